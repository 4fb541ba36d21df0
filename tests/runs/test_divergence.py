"""Training that diverges ends with a sentence and a report, and a baseline that diverged is no reference."""

import json

import numpy as np
import pytest

import tacit
from tacit.learning.task import Updates
from tacit.runs import divergence
from tacit.sites.splits import Iid
from tacit.survival import NewtonPH, PoissonPH
from tacit.survival.data.sources import Simulated

# Steps this long leap over the solution, farther each time.
WILD = {"steps": 1, "sample": 1.0, "lr": 100.0, "horizon": 4.0}
CALM = {"steps": 5, "sample": 0.5, "lr": 0.1, "horizon": 4.0}


def federation(held_out: float | None = 0.3) -> tacit.Federation:
    return Simulated(records=400, features=3, held_out=held_out).open(Iid(count=3), 1)


def test_an_open_run_that_diverges_ends_with_a_sentence_and_a_report(tmp_path):
    run = tacit.fit(PoissonPH(**WILD), federation(), rounds=60, out=tmp_path / "run")
    assert len(run.record.rounds) < 60
    assert run.record.stopped is not None
    assert "training diverged in round" in run.record.stopped
    assert run.record.stopped.endswith("lower the lr")
    assert np.isfinite(run.state).all()
    assert run.report().read_text().count("training diverged in round") >= 1
    # Whoever resumes it gets the same result.
    again = tacit.fit(PoissonPH(**WILD), federation(), rounds=60, out=tmp_path / "run", resume=True)
    assert (again.record.stopped, again.scores) == (run.record.stopped, run.scores)


def test_steps_that_settle_are_let_alone():
    run = tacit.fit(PoissonPH(**CALM), federation(), rounds=20, baselines=True)
    assert (run.record.stopped, run.record.notes) == (None, ())


def test_updates_that_are_no_numbers_end_a_run_with_the_model_before_them(monkeypatch):
    before = tacit.fit(PoissonPH(**CALM), federation(), rounds=2)
    sent = PoissonPH.train
    rounds = iter(range(1, 9))

    def train(task, state, cohort, mechanism, key):
        updates = sent(task, state, cohort, mechanism, key)
        return Updates(updates.names, updates.matrix * (np.inf if next(rounds) > 2 else 1.0))

    monkeypatch.setattr(PoissonPH, "train", train)
    run = tacit.fit(PoissonPH(**CALM), federation(), rounds=8)
    assert run.record.stopped == "training diverged in round 3: no site sent finite numbers; lower the lr"
    assert run.scores == before.scores


def test_a_task_without_a_learning_rate_is_not_advised_to_lower_it(monkeypatch):
    moved = NewtonPH.advance

    def advance(task, state, step):
        after = moved(task, state, step)
        return after * (np.nan if after[2] > 2 else 1.0)

    monkeypatch.setattr(NewtonPH, "advance", advance)
    run = tacit.fit(NewtonPH(horizon=4.0), federation(), rounds=6)
    assert run.record.stopped == "training diverged in round 3: the state is not finite"
    assert np.isfinite(run.state).all()


def test_a_promise_pays_for_the_rounds_that_divergence_left_out(monkeypatch):
    monkeypatch.setattr(divergence, "LONGEST_STEP", 1e-9)
    promise = tacit.Privacy(unit="record", epsilon=3, delta=1e-4, clip=1.0, rehearsal=True)
    run = tacit.fit(PoissonPH(**CALM), federation(), privacy=promise, rounds=5)
    assert "the step is far longer than the state before it" in (run.record.stopped or "")
    assert run.privacy.epsilon == pytest.approx(3.0, rel=0.01)


def test_noise_at_whole_sites_is_no_divergence_however_long_a_step_it_makes(monkeypatch):
    monkeypatch.setattr(divergence, "LONGEST_STEP", 1e-9)
    promise = tacit.Privacy(unit="site", epsilon=1, delta=1e-4, clip=1.0, rehearsal=True)
    run = tacit.fit(PoissonPH(**CALM), federation(), privacy=promise, rounds=3)
    assert run.record.stopped is None
    assert [entry.skipped for entry in run.record.rounds] == [None, None, None]


def test_a_promise_forbids_a_look_at_the_training_loss(monkeypatch):
    monkeypatch.setattr(
        divergence.LossProbe, "__call__", lambda *given: pytest.fail("records were looked at")
    )
    promise = tacit.Privacy(unit="record", epsilon=3, delta=1e-4, clip=1.0, rehearsal=True)
    tacit.fit(PoissonPH(**CALM), federation(), privacy=promise, rounds=2)


def test_a_baseline_that_diverged_is_trained_again_and_says_so():
    wild = tacit.fit(PoissonPH(**WILD), federation(), rounds=30, baselines=True)
    calm = tacit.fit(PoissonPH(**{**CALM, "lr": 1.0}), federation(), rounds=30, baselines=True)
    assert any("baseline pooled diverged and was repeated" in note for note in wild.record.notes)
    assert wild.baselines["pooled"]["ibs"] == pytest.approx(calm.baselines["pooled"]["ibs"], abs=0.02)


def test_a_baseline_that_diverges_again_is_not_shown(monkeypatch):
    monkeypatch.setattr(divergence, "mean_loss", lambda *given: np.inf)
    run = tacit.fit(PoissonPH(**CALM), federation(), rounds=2, baselines=True)
    assert run.baselines == {}
    assert any("baseline pooled diverged and is not shown" in note for note in run.record.notes)
    assert "pooled" not in json.dumps(run.as_dict()["baselines"])
