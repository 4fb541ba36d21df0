"""Refusals of private records: the column and the rule for anybody, the rest for the owner alone."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tacit
from tacit.errors import InvalidFile, InvalidValue, TacitError
from tacit.experiments import experiment, tuning
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.policy import Open, Privacy
from tacit.runtime.refusals import keep_traceback, state_directory, withhold_details
from tacit.sites.federation import RowFederation
from tacit.sites.table import Table
from tacit.survival.statistics import federated
from tacit.survival.tasks import PoissonPH

FILE = """
name = "leak"
rounds = 1
[data]
kind = "csv"
path = "patients.csv"
time = "days"
event = "death"
levels = { er = ["neg", "pos"] }
fill = { size = 1.0 }
[sites]
kind = "by-column"
column = "hospital"
[task]
kind = "poisson-ph"
horizon = 1000.0
[privacy]
unit = "record"
epsilon = 1.0
delta = 1e-5
clip = 1.0
"""
PROMISE = Privacy(unit="record", epsilon=1.0, delta=1e-5, clip=1.0)


def patients(records: int = 40, seed: int = 0) -> pd.DataFrame:
    draws = np.random.default_rng(seed)
    return pd.DataFrame({
        "age": draws.integers(40, 80, records).astype(object),
        "er": draws.choice(["neg", "pos"], records),
        "size": draws.uniform(1, 3, records),
        "days": draws.exponential(500, records) + 1,
        "death": draws.integers(0, 2, records),
        "hospital": ["oslo", "bergen"] * (records // 2),
    })  # fmt: skip


def asked(folder: Path, frame: pd.DataFrame, *changes: str) -> experiment.Experiment:
    folder.mkdir(exist_ok=True)
    frame.to_csv(folder / "patients.csv", index=False)
    (folder / "leak.toml").write_text(FILE)
    return experiment.read(folder / "leak.toml", changes)


def refusal(folder: Path, frame: pd.DataFrame, *changes: str) -> str:
    with pytest.raises(TacitError) as refused:
        asked(folder, frame, *changes).run(None)
    # Nothing that was said before is in a traceback either.
    assert refused.value.__cause__ is None
    return str(refused.value)


# What can be wrong with a record: the column, two values, and what a message must say.
WRONG = {
    "level": ("er", "HIV+", "Anna", 'its levels are "neg" or "pos"'),
    "word": ("age", "Mr Smith 45", "Jones", "age must hold numbers"),
    "missing": ("age", None, None, "age is not allowed: nothing may be missing"),
    "infinite": ("age", "1e400", "-inf", "age is not allowed: it must hold finite numbers"),
    "time": ("days", -417.25, 0.0, "time is not allowed: it must be above 0"),
    "event": ("death", 17, 23, "event is not allowed: it must be 1 (happened) or 0 (censored)"),
    "code": ("death", 0.125, -31, "0 (censored), or the cause as a whole number"),
    "site": ("hospital", "oslo2", "Tromso", "every site must hold at least 2 records"),
    "blank": ("hospital", "", "", "column hospital is not allowed: every record must have a site"),
    "name": ("hospital", "a@b", "c@d", "a name without"),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_the_message_is_the_same_whatever_records_break_the_rule(tmp_path, name):
    column, first, second, must = WRONG[name]
    told = []
    for folder, records, rows, value in (("a", 40, [3], first), ("b", 60, [5, 21, 22], second)):
        frame = patients(records, seed=records)
        frame[column] = frame[column].astype(object)
        # One site of one record each, where it is about sites.
        frame.loc[rows if name != "site" else rows[:1], column] = value
        if name == "name":
            frame.loc[rows[-1] + 2, column] = value
        told.append(refusal(tmp_path / folder, frame).replace(str(tmp_path / folder), "FOLDER"))
    assert told[0] == told[1]
    assert must in told[0]
    assert told[0].startswith("patients.csv: ")
    assert "details are in FOLDER/patients.csv.refused.txt" in told[0]
    for private in (first, second):
        assert not private or f"{private}" not in told[0]


@pytest.mark.parametrize("name", sorted(WRONG))
@pytest.mark.parametrize("change", ["privacy.rehearsal=true", "privacy.kind=open"])
def test_open_runs_and_rehearsals_say_everything_and_write_nothing(tmp_path, name, change):
    frame = patients()
    frame[WRONG[name][0]] = frame[WRONG[name][0]].astype(object)
    frame.loc[[3] if name == "site" else [3, 7], WRONG[name][0]] = WRONG[name][1]
    made = asked(tmp_path, frame, "privacy.rehearsal=true", "data.held_out=0")
    made = (
        made
        if change == "privacy.rehearsal=true"
        else experiment.Experiment(**{**vars(made), "privacy": Open()})
    )
    with pytest.raises(TacitError) as refused:
        made.run(None)
    assert "details are in" not in str(refused.value)
    assert not list(tmp_path.glob("*.refused.txt"))


def test_details_name_counts_values_and_rows_and_are_the_owners_alone(tmp_path):
    frame = patients()
    frame.loc[[3, 8], "er"] = ["HIV+", "unknown"]
    before = os.umask(0)
    refusal(tmp_path, frame)
    os.umask(before)
    details = tmp_path / "patients.csv.refused.txt"
    assert stat.S_IMODE(details.stat().st_mode) == 0o600
    assert 'er in site bergen is not allowed: it holds "HIV+"' in details.read_text()
    # Of the records of Bergen, which are every other one.
    assert "Records, the first being 1: 2\n" in details.read_text()
    frame = patients()
    frame.loc[[0, 2, 7], "days"] = -1.0
    refusal(tmp_path, frame)
    assert "time in site bergen is not allowed: 1 of 20 records" in details.read_text()


def test_a_link_that_was_put_where_details_go_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "stolen").write_text("as before")
    (tmp_path / "patients.csv.refused.txt").symlink_to(tmp_path / "stolen")
    frame = patients()
    frame.loc[3, "er"] = "HIV+"
    refusal(tmp_path, frame)
    assert (tmp_path / "stolen").read_text() == "as before"
    assert not (tmp_path / "patients.csv.refused.txt").is_symlink()


def test_where_the_folder_cannot_be_written_details_go_to_the_users_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    # What cannot be replaced by a file: root may write any folder.
    (tmp_path / "patients.csv.refused.txt").mkdir()
    frame = patients()
    frame.loc[3, "er"] = "HIV+"
    told = refusal(tmp_path, frame)
    (details,) = (tmp_path / "state" / "tacit").iterdir()
    assert f"details are in {details}" in told
    assert stat.S_IMODE(details.stat().st_mode) == 0o600
    assert stat.S_IMODE(details.parent.stat().st_mode) == 0o700
    assert "HIV+" in details.read_text()


def test_where_nothing_can_be_written_nothing_more_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(InvalidValue) as refused, withhold_details(True):
        raise InvalidValue("it holds 17", rule="it must be 0")
    assert str(refused.value).startswith(
        "it must be 0; the message withholds private details, and they could not be written"
    )
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(OSError, match="no home"):
        state_directory()


def test_a_file_that_cannot_be_read_is_not_quoted(tmp_path):
    made = asked(tmp_path, patients())
    for content in (b"age,days\n1,2\n1,2,3,4,5\n", b"age,days\n1,\xff\xfe\n", b'age,days\n"Mr Smith,4\n'):
        (tmp_path / "patients.csv").write_bytes(content)
        with pytest.raises(InvalidFile) as refused:
            made.run(None)
        told = str(refused.value)
        assert (
            "cannot be read: it must be a table" in told or "cannot be read: its text must be UTF-8" in told
        )
        assert "line 3" not in told
        assert "0xff" not in told


def test_what_is_no_secret_is_said_as_ever(tmp_path):
    assert refusal(tmp_path, patients().rename(columns={"days": "day"})) == (
        'column days is missing in site bergen (did you mean "day"?)'
    )
    with pytest.raises(InvalidFile, match="No such file"):
        asked(tmp_path, patients(), "data.path=nowhere.csv").run(None)


def test_a_held_out_share_is_refused_in_words_that_name_no_record(tmp_path):
    assert refusal(tmp_path, patients(), "data.held_out=0.2") == (
        "the scores on held-out records would leave the sites unprotected: score on public records, or on "
        "none"
    )


@pytest.mark.parametrize("event", [17, 23])
def test_a_tuning_tells_the_rule_as_well(tmp_path, event):
    frame = patients()
    frame.loc[3, "death"] = event
    asked(tmp_path, frame)
    grid = tuning.read(tmp_path / "leak.toml", ["tune.epsilon=0.2", "tune.task.lr=[0.1, 0.2]"])
    with pytest.raises(InvalidValue) as refused:
        tuning.tune(grid, tmp_path / "tuned")
    assert str(refused.value).startswith("patients.csv: event is not allowed: it must be 1 (happened) or 0")
    assert "bergen" not in str(refused.value)
    frame = patients()
    frame.loc[3, "days"] = -float(event)
    asked(tmp_path, frame)
    with pytest.raises(
        InvalidValue, match=r"^patients.csv: time is not allowed: it must be above 0 in every"
    ):
        tuning.tune(grid, tmp_path / "tuned")


def federation(event: float, **known) -> RowFederation:
    draws = np.random.default_rng(0)
    events = np.append(draws.integers(0, 2, 39).astype(float), event)
    table = Table(draws.normal(size=(40, 2)), {"time": np.ones(40), "event": events}, ("u", "v"))
    return RowFederation({"a": table}, **known)


def test_python_is_told_the_rule_as_well(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    task = PoissonPH(cuts=[1.0, 2.0])
    with pytest.raises(InvalidValue) as refused:
        tacit.fit(task, federation(7.0), privacy=PROMISE)
    details = tmp_path / "tacit" / "records.refused.txt"
    assert str(refused.value) == (
        "event is not allowed: it must be 1 (happened) or 0 (censored); of several causes choose one, as in "
        '[data] cause = 1, or "any"; where 1 means censored and 2 the event, as in some programs, set '
        f"cause = 2; details are in {details}, which only its owner can read"
    )
    assert "event in site a is not allowed" in details.read_text()
    assert "Records, the first being 1: 40\n" in details.read_text()
    details.unlink()
    for known in ({"public": True}, {}):
        privacy = PROMISE if known else Privacy(**{**vars(PROMISE), "rehearsal": True})
        with pytest.raises(InvalidValue, match="event in site a is not allowed"):
            tacit.fit(task, federation(7.0, **known), privacy=privacy)
    assert not details.exists()


def test_a_statistic_that_is_paid_for_tells_the_rule_and_an_open_one_everything(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(InvalidValue, match=r"^event is not allowed"):
        federated.kaplan_meier(federation(7.0), grid=[1.0, 2.0], epsilon=1.0, ledger=Ledger())
    with pytest.raises(InvalidValue, match=r"^event in site a is not allowed"):
        federated.kaplan_meier(federation(7.0), grid=[1.0, 2.0])


def test_a_curve_without_values_is_not_named(tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 5)), columns=[0.0, 0.25, 0.5, 0.75, 1.0])
    frame.insert(0, "subject", [f"patient-{row}" for row in range(30)])
    for name in ("x", "y"):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "curves.toml").write_text(
        '[data]\nkind = "curve-files"\npath = "."\nfiles = { x = "x.csv", y = "y.csv" }\n'
        '[sites]\nkind = "columns"\ncount = 2\n'
        '[task]\nkind = "functional-boosting"\nsize = 5\n'
        '[privacy]\nunit = "record"\nepsilon = 5.0\ndelta = 1e-5\nclip = 1.0\n'
    )
    frame.iloc[17, 1:] = np.nan
    frame.to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(InvalidValue) as refused:
        experiment.read(tmp_path / "curves.toml").run(None)
    assert "x is not allowed: each subject needs at least one observation" in str(refused.value)
    assert "patient" not in str(refused.value)
    (details,) = tmp_path.glob("*.refused.txt")
    assert "patient-17" in details.read_text()


def test_a_refusal_that_was_not_thought_about_is_withheld_while_records_are_read(tmp_path):
    with pytest.raises(InvalidValue) as refused, withhold_details(True, tmp_path / "d.csv", opening=True):
        raise InvalidValue("Mr Smith is 45")
    assert str(refused.value).startswith("d.csv: the records cannot be used; details are in")
    assert (tmp_path / "d.csv.refused.txt").read_text() == "Mr Smith is 45\n"
    with pytest.raises(InvalidValue, match="lr is too large"), withhold_details(True, tmp_path / "d.csv"):
        raise InvalidValue("lr is too large")


def test_a_bug_is_marked_and_its_words_are_kept_for_the_owner(tmp_path):
    with pytest.raises(KeyError) as raised, withhold_details(True, tmp_path / "d.csv"):
        raise KeyError("Mr Smith")
    details = tmp_path / "d.csv.refused.txt"
    assert keep_traceback(raised.value) == f"details are in {details}, which only its owner can read"
    assert "KeyError: 'Mr Smith'" in details.read_text()
    with pytest.raises(KeyError) as raised, withhold_details(False, tmp_path / "d.csv"):
        raise KeyError("Mr Smith")
    assert keep_traceback(raised.value) is None


BUGGY = """
from tacit.cli.app import main
from tacit.survival.data import sources
def broken(*args, **options):
    raise ZeroDivisionError("Mr Smith 45")
sources.from_frame = broken
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_the_command_says_neither_what_a_record_holds_nor_what_a_bug_says(tmp_path, debug):
    frame = patients()
    frame.loc[3, "er"] = "HIV+"
    asked(tmp_path, frame)

    def said(code: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-c", code, "run", "leak.toml", "--json", *debug]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)

    refused = said("from tacit.cli.app import main; main()")
    assert refused.returncode == 2
    assert json.loads(refused.stdout)["error"]["kind"] == "InvalidValue"
    assert "its levels are" in refused.stderr
    failed = said(BUGGY)
    assert failed.returncode == 1
    assert "a bug of ours, ZeroDivisionError: details are in" in failed.stderr
    assert "Mr Smith 45" in (tmp_path / "patients.csv.refused.txt").read_text()
    for answer in (refused, failed):
        for private in ("HIV+", "Mr Smith", "of 20", "of 40"):
            assert private not in answer.stdout + answer.stderr
