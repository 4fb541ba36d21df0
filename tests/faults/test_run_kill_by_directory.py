"""A run is killed and resumed by its own directory, as its message says: it pays for everything once."""

import json
import os
import signal
from collections import Counter
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import forked
from test_run_kill import KEPT_SECRET, SOLVED, dying

from tacit.experiments import experiment
from tacit.privacy import policy
from tacit.privacy.ledger.store import Ledger, verify
from tacit.runs import stopping
from tacit.runs.directory import EXPERIMENT, LEDGER, SECRET, STATEMENT, SUMMARY
from tacit.survival.data import simulate

COX = """
rounds = 3
[data]
kind = "csv"
path = "patients.csv"
levels = {word = ["no", "yes"]}
leave = ["number"]
[sites]
kind = "by-column"
column = "town"
[task]
kind = "cox-ph"
cuts = [1, 2.5, 4]
groups_per_site = 8
steps = 2
sample = 0.5
[privacy]
unit = "record"
epsilon = 3
delta = 1e-5
clip = 1
"""
HAZARD = """
rounds = 3
[data]
records = 90
features = 3
[sites]
count = 3
[task]
kind = "logistic-hazard"
hidden = [4]
steps = 2
sample = 0.5
[aggregation]
kind = "mixing"
then = {kind = "trimmed-mean", f = 1}
[server]
kind = "momentum"
lr = 1
[privacy]
unit = "record"
noise_multiplier = 2
delta = 1e-5
clip = 1
rehearsal = true
"""
CURVES = """
[data]
kind = "simulated-curves"
records = 60
predictors = 2
points = 21
[task]
kind = "functional-boosting"
size = 6
components = 3
steps = 5
radius = "private"
[privacy]
unit = "record"
noise_multiplier = 2
delta = 1e-5
clip = 3
"""
AGENTS = """
rounds = 2
[data]
kind = "gymnasium"
episodes = 2
[sites]
copies = 3
[task]
kind = "ppo"
hidden = [4]
envs = 2
steps = 16
epochs = 1
normalise = "sites"
[privacy]
unit = "site"
noise = "server"
noise_multiplier = 2
delta = 1e-5
clip = 1
clip_quantile = 0.5
"""
ASKED = {
    "cox": {"round 1", "round 3", "baseline hazard"},
    "hazard": {"round 1", "round 3"},
    "curves": {"clip radii"},
    "agents": {"round 1", "round 2"},
}
EXPERIMENTS = {"cox": COX, "hazard": HAZARD, "curves": CURVES, "agents": AGENTS}


@pytest.fixture(autouse=True)
def solved_once(monkeypatch):
    """Solve for the noise once, not in every process."""
    for module in (policy, stopping):
        monkeypatch.setattr(module, "calibrate", SOLVED)


@dataclass(frozen=True)
class Trial:
    """A run of a file in a directory of its own, whose secret is known, so that noise can be compared."""

    file: Path
    out: Path

    def __post_init__(self):
        self.out.mkdir()
        (self.out / SECRET).write_bytes(KEPT_SECRET)

    def go(self, by: Path | None = None) -> Any:
        return experiment.read(by or self.file).run(self.out, resume=True)

    def charges(self) -> Counter[tuple[str, str, str]]:
        with Ledger(self.out / LEDGER, mode="read") as ledger:
            rows = [entry for entry in ledger.entries() if entry["kind"] == "release"]
        return Counter((row["purpose"], row["party"], row["subject"]) for row in rows)


@pytest.fixture
def trials(tmp_path):
    """New trials of one experiment, each in a place of its own."""

    def make(text: str):
        file = tmp_path / "e.toml"
        file.write_text(text)
        frame = simulate("SDGM1", records=80, features=2, seed=1)
        frame["town"] = ["oslo", "bergen"] * 40
        frame["word"] = ["no", "yes", "yes", "no"] * 20
        frame["number"] = range(80)
        frame.to_csv(tmp_path / "patients.csv", index=False)
        return (Trial(file, tmp_path / f"run-{number}") for number in count())

    return make


def assert_same(trial, run, complete, whole):
    """Every charge was made once, and the run ended as the one that was not killed."""
    assert trial.charges() == complete.charges()
    assert set(trial.charges().values()) == {1}
    assert np.array_equal(run.state, whole.state)
    told = [replace(entry, seconds=None) for entry in run.record.rounds]
    assert told == [replace(entry, seconds=None) for entry in whole.record.rounds]
    assert replace(run.record, rounds=()) == replace(whole.record, rounds=())
    assert run.privacy == whole.privacy
    assert run.record.left_out == ()
    found = verify(trial.out / LEDGER)
    assert found.valid
    assert found.epsilon == whole.privacy.epsilon


def dying_after(trial, purpose):
    """Die when the charge for a purpose is on disk, and nothing of what it pays for has been done."""
    real = Ledger.charge

    def charge(self, releases, **named):
        rows = list(releases)
        new = real(self, rows, **named)
        if any(row.purpose == purpose for row in rows):
            os.kill(os.getpid(), signal.SIGKILL)
        return new

    def work():
        Ledger.charge = charge
        trial.go()

    _, status = os.waitpid(forked(work), 0)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_was_charged_when_a_run_was_killed_is_not_charged_again_by_its_directory(trials, name):
    made = trials(EXPERIMENTS[name])
    complete = next(made)
    whole = complete.go()
    purposes = list(dict.fromkeys(purpose for purpose, _, _ in complete.charges()))
    assert ASKED[name] <= set(purposes)
    for purpose in purposes:
        trial = next(made)
        assert dying_after(trial, purpose)
        assert any(charge[0] == purpose for charge in trial.charges())
        assert_same(trial, trial.go(trial.out), complete, whole)


@pytest.mark.parametrize("name", ["cox", "hazard"])
def test_a_run_killed_at_any_step_is_resumed_by_its_directory_to_the_same_bits(trials, name):
    made = trials(EXPERIMENTS[name])
    complete = next(made)
    whole, by_directory = complete.go(), 0
    for at in count(1, 5):
        trial = next(made)
        if not dying(trial, at):
            break
        # A directory that was killed before it knew its experiment can only be begun again.
        begun = (trial.out / EXPERIMENT).exists()
        by_directory += begun
        assert_same(trial, trial.go(trial.out if begun else None), complete, whole)
    assert by_directory > 4


def test_a_run_killed_in_its_closing_question_has_its_answer_once_it_is_resumed(trials):
    trial = next(trials(COX))
    assert dying_after(trial, "baseline hazard")
    assert not (trial.out / SUMMARY).exists()
    run = trial.go(trial.out)
    assert run.privacy.left_out == ()
    assert json.loads((trial.out / STATEMENT).read_text())["left_out"] == []
    assert experiment.load(trial.out).model.survival(np.zeros((1, 3)), [1.0]).shape == (1, 1)
