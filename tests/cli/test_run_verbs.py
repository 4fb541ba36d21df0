"""A run as a person meets it: the real command, in a process of its own where it trains, up to the books."""

import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tacit import Ledger
from tacit.cli.app import app
from tacit.experiments import experiment

TACIT = str(Path(sys.executable).with_name("tacit"))
ROUNDS = 30
# A bound for programs that hang, far above the time that a slow machine needs.
SOON = 600
TRIAL = f"""
name = "trial"
seed = 5
rounds = {ROUNDS}
[data]
records = 300
features = 4
[sites]
count = 3
[task]
kind = "logistic-hazard"
hidden = [4]
cuts = 5
steps = 1
sample = 0.3
lr = 0.5
[privacy]
unit = "record"
epsilon = 3.0
delta = 1e-4
clip = 1.0
rehearsal = true
"""


def tacit(folder, *words):
    return subprocess.run([TACIT, *map(str, words)], cwd=folder, capture_output=True, text=True, check=False)


def told(folder, *words):
    """The same in this process, which spares it two seconds: for what is asked about a run."""
    with chdir(folder):
        found = CliRunner().invoke(app, [str(word) for word in words])
    return subprocess.CompletedProcess(words, found.exit_code, found.stdout, found.stderr)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("command")
    (folder / "trial.toml").write_text(TRIAL)
    return folder


@pytest.fixture(scope="module")
def done(folder):
    """The run that nobody interrupted."""
    return tacit(folder, "run", "trial.toml", "--out", "whole")


@pytest.fixture(scope="module")
def interrupted(folder):
    """A run on which somebody pressed Ctrl-C in its third round or soon after."""
    words = [TACIT, "run", "trial.toml"]
    with subprocess.Popen(
        words,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever started these tests in the background may have taught them to ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if line.startswith(f"round 3/{ROUNDS}"):
                process.send_signal(signal.SIGINT)
                break
        out, err = process.communicate(timeout=SOON)
    return process.returncode, out, "".join(seen) + err


@pytest.fixture(scope="module")
def resumed(folder, interrupted):
    """The run that was interrupted, resumed by the very words that were said."""
    found = re.search(r"resume with: tacit (.+)$", interrupted[2], re.MULTILINE)
    assert found is not None
    return tacit(folder, *shlex.split(found[1]), "--json", "-q")


def test_a_run_prints_its_summary_and_its_promise(done):
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    lines = lines[lines.index("run      trial") :]
    assert lines[:3] == ["run      trial", "task     logistic-hazard", f"rounds   {ROUNDS}"]
    assert re.fullmatch(r"privacy  epsilon 2\.9\d+ at delta 0\.0001 for any one record, REHEARSAL", lines[3])
    assert re.search(r"^ +C-index +95 % interval +IBS +95 % interval$", done.stdout, re.MULTILINE)
    for label in ("federated", "each site alone", "pooled"):
        score = r" +0\.\d{4} +\[0\.\d{3}, 0\.\d{3}\]"
        assert re.search(rf"^{label}{score}{score}$", done.stdout, re.MULTILINE)
    for sentence in ("REHEARSAL: the noise repeats", "Protected: any one record.", "Price: epsilon 2.9"):
        assert f"\n{sentence}" in done.stdout


def test_progress_goes_to_the_standard_error_alone(done):
    *said, saved, report = done.stderr.splitlines()
    # On a slow machine a line of its own names whatever takes long.
    rounds = [line for line in said if not re.fullmatch(r"[a-z][\w ,]* \.\.\.", line)]
    assert len(rounds) == ROUNDS
    for number, line in enumerate(rounds, start=1):
        assert re.fullmatch(
            rf"round {number}/{ROUNDS}  C-index 0\.\d{{4}}  IBS 0\.\d{{4}}  epsilon [\d.]+/3", line
        )
    assert (report, saved) == ("report whole/report.html", "saved whole")
    assert "round 1/" not in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_an_interrupted_run_exits_with_130_and_says_how_to_go_on(folder, interrupted):
    code, out, err = interrupted
    assert (code, out) == (130, "")
    assert "Traceback" not in err
    place = re.search(r"^tacit: interrupted; resume with: tacit run (\S+) --resume$", err, re.MULTILINE)
    assert place is not None
    told = (folder / place[1] / "rounds.jsonl").read_text().splitlines()
    assert 3 <= len(told) < ROUNDS
    assert not (folder / place[1] / "summary.json").exists()
    assert (folder / place[1] / "secret.key").stat().st_mode & 0o777 == 0o600


def test_an_interrupted_run_is_resumed_to_the_result_of_an_undisturbed_one(folder, done, resumed):
    assert done.returncode == resumed.returncode == 0
    whole, again = experiment.load(folder / "whole"), json.loads(resumed.stdout)
    assert again | {"run": None} == whole.as_dict() | {"run": None}
    run = experiment.load(folder / again["run"])
    assert np.array_equal(run.state, whole.state)
    assert run.history.drop(columns="seconds").equals(whole.history.drop(columns="seconds"))


def test_a_quiet_run_says_nothing_but_its_result(resumed):
    assert resumed.stderr == ""


def test_the_document_of_a_run_has_the_documented_keys(folder, resumed):
    found = json.loads(resumed.stdout)
    assert {"run", "rounds", "scores", "baselines", "privacy"} <= set(found)
    assert (folder / found["run"]).is_dir()
    assert found["rounds"] == ROUNDS
    assert set(found["baselines"]) == {"alone", "pooled"}
    for scores in (found["scores"], *found["baselines"].values()):
        assert set(scores) == {"c_index", "ibs"}
        assert 0 < scores["ibs"] < scores["c_index"] < 1
    assert set(found["privacy"]) == {"epsilon", "delta", "unit", "relation", "rehearsal"}
    assert 2.9 < found["privacy"].pop("epsilon") <= 3
    assert found["privacy"] == {
        "delta": 1e-4,
        "unit": "record",
        "relation": "add-remove",
        "rehearsal": True,
    }


def test_the_ledger_of_a_resumed_run_verifies_with_the_epsilon_of_the_run(folder, resumed):
    run = json.loads(resumed.stdout)
    answer = told(folder, "ledger", f"{run['run']}/ledger.db", "--verify", "--json")
    found = json.loads(answer.stdout)
    assert answer.returncode == 0
    assert (found["valid"], found["problems"]) == (True, [])
    assert found["events"] == 3 * ROUNDS
    assert found["epsilon"] == run["privacy"]["epsilon"]


def test_a_run_is_shown_as_it_was_printed(folder, done):
    shown = told(folder, "show", "whole")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == done.stdout


def test_a_run_that_its_ledger_cannot_bear_exits_with_3_before_it_begins(folder):
    """A site's own budget, set in the ledger of the directory, is below the promise."""
    place = folder / "refused"
    place.mkdir()
    with Ledger(place / "ledger.db") as ledger:
        ledger.allow(epsilon=1.0, delta=1e-4, subject="records@site-2")
    answer = told(folder, "run", "trial.toml", "--out", "refused", "--json")
    error = json.loads(answer.stdout)["error"]
    assert answer.returncode == error["exit_code"] == 3
    assert error["kind"] == "BudgetExhausted"
    assert "budget of records@site-2 exhausted" in error["message"]
    assert answer.stderr == f"tacit: {error['message']}\n"
    with Ledger(place / "ledger.db", mode="read") as ledger:
        assert ledger.releases() == []
    assert not (place / "rounds.jsonl").exists()


def test_a_terminal_shows_a_live_bar_and_the_output_stays_clean(folder):
    screen, stderr = pty.openpty()
    words = [TACIT, "run", "trial.toml", "--set", "rounds=3", "--set", "baselines=false"]
    environment = {**os.environ, "COLUMNS": "160", "TERM": "xterm"}
    with subprocess.Popen(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
    ) as process:
        os.close(stderr)
        seen = everything(screen)
        out, _ = process.communicate(timeout=SOON)
    os.close(screen)
    assert process.returncode == 0
    # One line that is drawn over and over: erased, and the cursor hidden meanwhile and shown again.
    assert "\x1b[2K" in seen
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")
    assert re.search(r"round 3/3  .*\u2501.*  C-index 0\.\d{4}  IBS 0\.\d{4}  epsilon [\d.]+/3 ", seen)
    assert "\x1b" not in out
    assert out.startswith(("run      trial\n", "verdict  "))
    assert "round 3/3" not in out


def everything(screen):
    """Read a terminal until its last writer closes it."""
    seen = b""
    while True:
        try:
            seen += (piece := os.read(screen, 65536))
        except OSError:
            # On Linux a terminal that everybody has left cannot be read.
            return seen.decode()
        if not piece:
            return seen.decode()


def test_to_go_on_with_nothing_is_refused_and_nothing_is_begun(folder):
    answer = told(folder, "run", "trial.toml", "--set", "rounds=2", "--resume")
    assert answer.returncode == 2
    assert "no run of this experiment" in answer.stderr
    assert "round 1" not in answer.stderr


def test_a_wrong_word_is_a_document_too(folder):
    answer = tacit(folder, "new", "survvival", "--json")
    assert answer.returncode == json.loads(answer.stdout)["error"]["exit_code"] == 2
    assert "survvival" in answer.stderr


@pytest.mark.slow
def test_without_colours_a_terminal_still_shows_one_line(folder):
    screen, stderr = pty.openpty()
    words = [
        TACIT,
        "run",
        "trial.toml",
        "--set",
        "rounds=2",
        "--set",
        "baselines=false",
        "--set",
        "name=plain",
    ]
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1"}
    with subprocess.Popen(
        words, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=stderr
    ) as process:
        os.close(stderr)
        seen = everything(screen)
    os.close(screen)
    assert process.returncode == 0
    assert "round 2/2" in seen
    assert "\x1b[36m" not in seen
    assert (
        max(len(line) for line in re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", seen).replace("\r", "\n").split("\n"))
        <= 80
    )


@pytest.mark.slow
def test_a_run_whose_ledger_was_changed_is_shown_and_ends_with_4(folder, done):
    place = shutil.copytree(folder / "whole", folder / "harmed")
    (place / "ledger.db").write_bytes((place / "ledger.db").read_bytes().replace(b"round 3", b"round 4", 1))
    for verb in ("show", "report", "export"):
        answer = told(folder, verb, "harmed")
        assert answer.returncode == 4, verb
        assert "does not verify" in answer.stderr
        assert answer.stdout


@pytest.mark.slow
def test_a_run_whose_ledger_is_gone_or_anothers_is_shown_and_ends_with_4(folder, done):
    place = shutil.copytree(folder / "whole", folder / "robbed")
    (place / "ledger.db").unlink()
    assert told(folder, "show", "robbed").returncode == 4
    with Ledger(place / "ledger.db") as ledger:
        ledger.allow(epsilon=3.0, delta=1e-4)
    answer = told(folder, "report", "robbed", "--json")
    assert answer.returncode == 4
    assert "not the ledger of this run" in answer.stderr
    assert json.loads(answer.stdout) == {"report": "robbed/report.html"}


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["report", "whole", "-o", "whole.md"], {"report"}),
        (["report", "whole", "--dpia"], {"report"}),
        (["export", "whole", "--out", "exported"], {"files"}),
        (["show", "whole"], {"runs"}),
        (["ledger", "whole"], {"events", "valid", "epsilon"}),
    ],
)
def test_whatever_is_shown_of_a_run_is_one_document_when_asked(folder, done, words, keys):
    answer = told(folder, *words, "--json")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert keys <= set(json.loads(answer.stdout))


@pytest.mark.slow
def test_a_private_experiment_that_was_run_before_says_what_that_costs(folder):
    draws = np.random.default_rng(0)
    numbers = (draws.normal(size=60), draws.exponential(2, 60), draws.integers(0, 2, 60), ["a", "b"] * 30)
    rows = [",".join(map(str, row)) for row in zip(*numbers, strict=True)]
    (folder / "own.csv").write_text("\n".join(["x,days,death,where", *rows]))
    (folder / "own.toml").write_text(
        'name = "own"\nrounds = 1\n[data]\nkind = "csv"\npath = "own.csv"\ntime = "days"\nevent = "death"\n'
        '[sites]\nkind = "by-column"\ncolumn = "where"\n'
        '[task]\nkind = "poisson-ph"\nhorizon = 4.0\nsteps = 1\n'
        '[privacy]\nunit = "record"\nepsilon = 1.0\ndelta = 1e-5\nclip = 1.0\n'
    )
    first, second = (tacit(folder, "run", "own.toml") for _ in range(2))
    assert "on these data has cost" not in first.stderr
    assert "warning: 1 run on these data has cost any one record epsilon" in second.stderr
