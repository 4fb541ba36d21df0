"""One judgment of a run's ledger and statement, and every verb that shows a run or builds on it obeys it."""

import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.experiments import experiment, tuning
from tacit.privacy.ledger.store import Ledger, verify
from tacit.runs.run import run_of, verify_run

FILE = """name = "patients"
rounds = 4
[data]
kind = "csv"
path = "patients.csv"
time = "days"
event = "death"
[sites]
kind = "by-column"
column = "hospital"
[task]
kind = "poisson-ph"
horizon = 4.0
steps = 1
"""
PROMISE = '[privacy]\nunit = "record"\nepsilon = 3.0\ndelta = 1e-5\nclip = 1.0\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place, draws = tmp_path_factory.mktemp("judged"), np.random.default_rng(1)
    frame = pd.DataFrame(draws.normal(size=(90, 2)), columns=["a", "b"])
    frame["days"], frame["death"] = draws.exponential(2, 90), draws.integers(0, 2, 90)
    frame["hospital"] = [f"h{row % 3}" for row in range(90)]
    frame.to_csv(place / "patients.csv", index=False)
    (place / "patients.toml").write_text(FILE + PROMISE)
    (place / "open.toml").write_text(FILE)
    (place / "tune.toml").write_text(FILE + PROMISE + "[tune]\nepsilon = 0.5\ntask.lr = [0.05, 0.5]\n")
    return place


@pytest.fixture(scope="module")
def whole(folder) -> Path:
    experiment.read(folder / "patients.toml").run(folder / "whole")
    return folder / "whole"


@pytest.fixture
def run(whole, tmp_path) -> Path:
    return shutil.copytree(whole, tmp_path / "run")


def cut(ledger: Path, rows: int) -> None:
    """Take the last rows off a ledger and leave everything else as it was, so that the chain fits."""
    with sqlite3.connect(ledger) as file:
        guards = file.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in guards:
            file.execute(f"DROP TRIGGER {name}")
        (last,) = file.execute("SELECT max(number) FROM entries").fetchone()
        file.execute("DELETE FROM entries WHERE number > ?", (last - rows,))
        for _, statement in guards:
            file.execute(statement)
        file.execute(f"PRAGMA user_version = {last - rows}")


def forge(run: Path, **changes: object) -> None:
    said = json.loads((run / "statement.json").read_text())
    (run / "statement.json").write_text(json.dumps({**said, **changes}))


def answered(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("patients.toml", []),
        ("patients.toml", ["privacy.rehearsal=true", "data.held_out=0.3", "stop.patience=1"]),
        ("patients.toml", ["stop.patience=1", "stop.epsilon=0.5", "rounds=6"]),
        ("patients.toml", ["task.kind=cox-ph", "task.groups_per_site=5", "privacy.mechanism=laplace"]),
        ("patients.toml", ["privacy.unit=site", "privacy.noise=server", "privacy.participation=0.5"]),
        ("open.toml", []),
    ],
)
def test_a_run_that_nobody_touched_is_sound(folder, tmp_path, file, changes):
    done = experiment.read(folder / file, changes).run(tmp_path / "run")
    assert verify_run(tmp_path / "run").problems == ()
    with Ledger(tmp_path / "run" / "ledger.db") as ledger:
        # A ledger outlives the run: what others are charged on it later is not the run's.
        ledger.allow(epsilon=20.0, delta=1e-5)
        ledger.charge([release for release in ledger.releases() if done.privacy.unit] or [])
    assert verify_run(tmp_path / "run").problems == ()


def test_a_tail_that_was_cut_off_is_found_however_short(run):
    with Ledger(run / "ledger.db", mode="read") as ledger:
        rows = len(ledger.entries())
    for _ in range(min(4, rows - 1)):
        cut(run / "ledger.db", 1)
        assert verify(run / "ledger.db").valid
        assert "an older state of it" in verify_run(run).ledger[0]


@pytest.mark.parametrize(
    "changes", [["stop.patience=1", "stop.epsilon=0.5", "rounds=6"], ["task.kind=cox-ph"]]
)
def test_what_was_charged_last_of_all_cannot_be_cut_off_either(folder, tmp_path, changes):
    """The rest of a plan that was left, and the last question, are charged after the last round."""
    needs = ["task.groups_per_site=5"] if "task.kind=cox-ph" in changes else []
    experiment.read(folder / "patients.toml", [*changes, *needs]).run(tmp_path / "run")
    cut(tmp_path / "run" / "ledger.db", 1)
    assert verify_run(tmp_path / "run").ledger


@pytest.mark.parametrize(
    "forged",
    [
        {"epsilon": 0.01},
        {"epsilon": 30.0},
        {"epsilon": None},
        {"epsilon": "none"},
        {"delta": 1e-3},
        {"unit": "site"},
        {"unit": None, "relation": None, "epsilon": None, "delta": None},
        {"rehearsal": True},
        {"relation": "replace"},
        {"subjects": {}},
        {"subjects": {"records@h0": 0.01, "records@h1": 0.01, "records@h2": 0.01}},
    ],
)
def test_a_statement_that_the_ledger_does_not_bear_out_is_found(run, forged):
    forge(run, **forged)
    found = verify_run(run)
    assert found.ledger == ()
    assert "its ledger shows epsilon 3 at delta 1e-05 for any one record" in found.statement[0]


def test_a_statement_or_checkpoint_that_is_gone_or_damaged_is_found(run):
    for name in ("statement.json", "state.safetensors"):
        content = (run / name).read_bytes()
        (run / name).unlink()
        assert f"{name} is missing" in verify_run(run).problems[0]
        (run / name).write_bytes(
            content[:100] + b"?" + content[101:] if name.startswith("state.") else content
        )
    assert "state.safetensors is damaged" in verify_run(run).problems[0]


def test_a_promise_that_was_changed_in_the_experiment_is_found(run):
    text = (run / "experiment.toml").read_text()
    (run / "experiment.toml").write_text(text.replace("delta = 1e-05", "delta = 0.001"))
    assert "statement.json was changed" in verify_run(run).statement[0]
    (run / "experiment.toml").write_text(text.replace('unit = "record"', 'unit = "nobody"'))
    assert "does not state the promise" in verify_run(run).statement[0]


def test_a_run_that_is_under_way_has_no_statement_to_judge_and_its_tail_is_looked_at(folder, tmp_path):
    def stop(entry):
        if entry.number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment.read(folder / "patients.toml").run(tmp_path / "run", callbacks=[stop])
    assert verify_run(tmp_path / "run").problems == ()
    cut(tmp_path / "run" / "ledger.db", 4)
    assert answered("ledger", tmp_path / "run", "--verify")[0] == 4


def test_every_candidate_of_a_tuning_is_judged_by_their_common_ledger(folder, tmp_path):
    done = tuning.tune(tuning.read(folder / "tune.toml"), tmp_path / "tuned")
    assert verify_run(tmp_path / "tuned").problems == ()
    assert verify_run(done.run.path).problems == ()
    assert answered("ledger", tmp_path / "tuned", "--verify")[0] == 0
    forge(done.run.path, epsilon=0.01)
    assert (
        verify_run(tmp_path / "tuned").statement[0].startswith(f"{done.chosen}: statement.json was changed")
    )
    cut(tmp_path / "tuned" / "ledger.db", 1)
    assert verify_run(done.run.path).ledger
    assert answered("ledger", tmp_path / "tuned", "--verify")[0] == 4


def test_a_ledger_knows_its_run_by_the_folder_it_is_in(run, tmp_path):
    assert run_of(run) == run_of(run / "ledger.db") == run
    shutil.copy(run / "ledger.db", tmp_path / "copy.db")
    assert run_of(tmp_path / "copy.db") is None
    assert run_of(tmp_path) is None


VERBS = ("show", "report", "export", "ledger", "audit")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_ends_with_4_where_the_tail_was_cut_off(run, verb):
    cut(run / "ledger.db", 2)
    code, _, said = answered(verb, run)
    assert code == 4
    assert "an older state of it" in said


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_ends_with_4_where_the_statement_was_forged(run, verb):
    forge(run, epsilon=0.01)
    code, out, said = answered(verb, run)
    assert code == 4
    assert "it states epsilon 0.01" in said
    assert "0.01" not in out


@pytest.mark.parametrize("verb", ["show", "ledger"])
def test_every_verb_is_content_with_a_run_that_nobody_touched(run, verb):
    assert answered(verb, run)[0] == 0
    assert answered("ledger", run / "ledger.db", "--verify")[0] == 0


def test_show_proves_nothing_by_files_that_contradict_each_other(run):
    forge(run, epsilon=0.01)
    code, out, _ = answered("show", run, "--json")
    assert code == 4
    (shown,) = json.loads(out)["runs"]
    assert shown["privacy"]["epsilon"] is None
    assert "nothing can be proven" in answered("show", run)[1]


def test_verification_as_json_says_why_and_names_no_price(run):
    cut(run / "ledger.db", 2)
    for path in (run, run / "ledger.db"):
        code, out, said = answered("ledger", path, "--verify", "--json")
        found = json.loads(out)
        assert (code, found["valid"], found["epsilon"]) == (4, False, None)
        assert "an older state of it" in found["problems"][0]
        assert "does not verify" in said


@pytest.mark.parametrize(
    "changes",
    [
        {"all_runs": {"runs": 1, "epsilon": 0.01}},
        {"released": ["nothing"]},
        {"not_protected": []},
        {"trusted": ["everyone"]},
        {"left_out": ["a question"]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_word_of_a_statement_is_covered_by_its_digest(run, changes):
    said = json.loads((run / "statement.json").read_text())
    if "all_runs" in changes:
        changes = {"all_runs": {**said["all_runs"], **changes["all_runs"]}}
    forge(run, **changes)
    assert verify_run(run).statement == ("statement.json was changed after the run was over",)
    for verb in (("show", run), ("report", run), ("ledger", run, "--verify")):
        assert answered(*verb)[0] == 4


def test_a_statement_in_another_layout_is_the_same(run):
    said = json.loads((run / "statement.json").read_text())
    (run / "statement.json").write_text(json.dumps(dict(reversed(said.items())), indent=3))
    assert verify_run(run).problems == ()


def test_a_run_that_is_over_is_judged_before_it_is_resumed(folder, run):
    cut(run / "ledger.db", 2)
    shutil.copytree(run, folder / "cut")
    code, _, said = answered("run", folder / "cut", "--resume")
    assert code == 4
    assert "does not verify" in said
