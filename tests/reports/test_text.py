"""A run as text, for terminals, pipes and people."""

import io
import re
import threading

import pytest

from tacit.learning.record import Round
from tacit.reports.evaluation import NO_SCORE
from tacit.reports.text import align_table, format_rows, line, progress, scores, side_by_side, summary

PROMISE = {"epsilon": 2.9989, "delta": 1e-4, "unit": "record", "relation": "add-remove", "rehearsal": False}
RUN = {
    "run": "runs/trial-1",
    "name": "trial",
    "task": "logistic-hazard",
    "rounds": 8,
    "chosen": 8,
    "stopped": None,
    "scores": {"c_index": 0.71234, "ibs": 0.2},
    "baselines": {"alone": {"c_index": 0.6, "ibs": 0.25}, "pooled": {"c_index": 0.8, "ibs": 0.125}},
    "privacy": PROMISE,
    "statement": ["Protected: any one record.", "Price: little."],
}


def entry(number=3, **fields):
    usual = {
        "rounds": 8,
        "sites": 3,
        "scores": {"c_index": 0.5, "ibs": 0.25},
        "epsilon": 1.23456,
        "budget": 3.0,
    }
    return Round(**{"number": number, "seconds": 0.1, **usual, **fields})


def test_a_summary_is_a_header_a_table_and_the_statement():
    assert summary(RUN).splitlines() == [
        "run      trial",
        "task     logistic-hazard",
        "rounds   8",
        "privacy  epsilon 2.999 at delta 0.0001 for any one record",
        "",
        "                 C-index     IBS",
        "---------------  -------  ------",
        "federated         0.7123  0.2000",
        "each site alone   0.6000  0.2500",
        "pooled            0.8000  0.1250",
        "",
        "The comparison models had the same training without any protection.",
        "",
        "Protected: any one record.",
        "Price: little.",
    ]


def test_a_summary_of_an_open_run_promises_nothing():
    nothing = dict.fromkeys(("epsilon", "delta", "unit", "relation")) | {"rehearsal": False}
    said = summary(RUN | {"privacy": nothing, "baselines": {}})
    assert "privacy  open: no promise" in said
    assert "comparison models" not in said
    assert "epsilon" not in said


def test_a_summary_says_when_nothing_is_proven_and_when_noise_repeats():
    assert "epsilon unbounded at delta" in summary(RUN | {"privacy": PROMISE | {"epsilon": None}})
    assert "for any one record, REHEARSAL" in summary(RUN | {"privacy": PROMISE | {"rehearsal": True}})


def test_a_summary_says_why_a_run_ended_early_and_which_round_is_kept():
    said = summary(RUN | {"stopped": "c_index has not improved for 2 rounds", "chosen": 6}).splitlines()
    assert said[2] == "rounds   8, ended early: c_index has not improved for 2 rounds"
    assert said[4] == "model    of round 6"
    assert "of round" not in summary(RUN)


def test_several_runs_stand_side_by_side_with_all_their_scores():
    other = RUN | {"run": None, "name": "other", "scores": {"r2": 0.9}, "privacy": dict.fromkeys(PROMISE)}
    head, rule, *rows = side_by_side([RUN, other]).splitlines()
    assert head.split() == ["run", "runs/trial-1", "other"]
    assert set(rule) == {"-", " "}
    assert [row.split() for row in rows] == [
        ["task", "logistic-hazard", "logistic-hazard"],
        ["rounds", "8", "8"],
        ["epsilon", "2.999", "open"],
        ["delta", "0.0001", "-"],
        ["unit", "record", "-"],
        ["C-index", "0.7123", "-"],
        ["IBS", "0.2000", "-"],
        ["R2", "-", "0.9000"],
    ]


def test_a_rehearsal_among_others_is_marked():
    rehearsed = RUN | {"privacy": PROMISE | {"rehearsal": True}}
    said = side_by_side([RUN, rehearsed])
    assert said.count("record*") == 1
    assert said.splitlines()[-1].startswith("* A rehearsal")


def test_scores_that_only_some_have_leave_a_dash_for_the_others():
    rows = scores([("federated", {"c_index": 0.5}), ("pooled", {"ibs": 0.1})]).splitlines()
    assert rows[2].split() == ["federated", "0.5000", "-"]
    assert rows[3].split() == ["pooled", "-", "0.1000"]
    assert scores([("federated", {})]) == NO_SCORE


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "round 3/8  C-index 0.5000  IBS 0.2500  epsilon 1.235/3"),
        ({"budget": None}, "round 3/8  C-index 0.5000  IBS 0.2500  epsilon 1.235"),
        ({"epsilon": None, "budget": None}, "round 3/8  C-index 0.5000  IBS 0.2500"),
        ({"scores": {}}, "round 3/8  epsilon 1.235/3"),
        ({"scores": {}, "epsilon": None, "budget": None}, "round 3/8"),
        ({"scores": {"own": 12.3}, "epsilon": 0.0}, "round 3/8  own 12.3000  epsilon 0/3"),
        ({"epsilon": float("inf")}, "round 3/8  C-index 0.5000  IBS 0.2500  epsilon inf/3"),
    ],
)
def test_a_round_is_one_line(fields, said):
    assert line(entry(**fields)) == said


def test_progress_in_a_pipe_is_one_line_for_each_round():
    stream = io.StringIO()
    with progress(stream) as watcher:
        watcher(entry(1))
        assert stream.getvalue() == line(entry(1)) + "\n"
        watcher(entry(2))
    assert stream.getvalue().splitlines() == [line(entry(1)), line(entry(2))]


def test_a_pipe_is_told_what_takes_long_and_nothing_of_what_does_not(monkeypatch):
    monkeypatch.setattr("tacit.reports.text.PATIENCE", 0.01)
    told = threading.Event()

    class Pipe(io.StringIO):
        def write(self, words):
            told.set()
            return super().write(words)

    stream = Pipe()
    with progress(stream) as watcher:
        watcher.stage("solving the noise")
        assert told.wait(600)
        for share in (0.1, 0.2):
            watcher.stage("solving the noise", share)
        watcher(entry(1))
        monkeypatch.setattr("tacit.reports.text.PATIENCE", 600.0)
        watcher.stage("scoring the model")
    assert stream.getvalue().splitlines() == ["solving the noise ...", line(entry(1))]
    for timer in (thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)):
        timer.join(600)
        assert not timer.is_alive()


def test_quiet_progress_says_nothing():
    stream = io.StringIO()
    with progress(stream, quiet=True) as watcher:
        watcher(entry(1))
    assert stream.getvalue() == ""


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return Terminal()


def test_progress_on_a_terminal_is_one_live_bar(terminal):
    with progress(terminal) as watcher:
        for number in range(1, 9):
            watcher(entry(number))
    seen = terminal.getvalue()
    assert seen.count("\n") == 1
    words = [part.strip() for part in re.split(r"\x1b\[[\d;?]*[a-zA-Z]|\u2501+|\u2500+", seen)]
    *_, first, second, _ = [part for part in words if part] + [""]
    assert first == "round 8/8"
    assert second == line(entry(8)).removeprefix("round 8/8  ") + "  0:00"
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")


def test_an_interrupted_bar_gives_the_cursor_back(terminal):
    def interrupted():
        with progress(terminal) as watcher:
            watcher(entry(1))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l")


def test_labels_stand_in_one_column():
    assert format_rows([("a", "one"), ("longer", "two"), ("b", "")]) == "a       one\nlonger  two\nb"
    assert format_rows([]) == ""


def test_columns_of_numbers_stand_to_the_right():
    assert align_table(("name", "value"), [("a", "1.5"), ("bbbbbb", "-"), ("c", "1e-05")]).splitlines() == [
        "name    value",
        "------  -----",
        "a         1.5",
        "bbbbbb      -",
        "c       1e-05",
    ]


def test_a_table_without_rows_is_its_header():
    assert align_table(("name", "value"), []).splitlines() == ["name  value", "----  -----"]
