"""A run that is cut off and resumed with anything changed pays again, with draws and noise of their own."""

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit.engines.base import Engine
from tacit.errors import RunUnusable
from tacit.privacy.ledger.store import Ledger
from tacit.runs.fit import fit
from tacit.runtime.arrays import Array
from tacit.sites.table import from_arrays

PROMISE = tacit.Privacy(unit="record", noise_multiplier=2.0, delta=1e-5, clip=1.0)


class Cut(Exception):
    """The power is cut."""


class Overheard(Engine):
    """An engine that tells what left the sites, then loses its power."""

    kind = "overheard"

    def __init__(self, *, cut: bool = True) -> None:
        self.heard: list[Array] = []
        self.engine, self.cut = tacit.Local(), cut

    @classmethod
    def quiet(cls) -> "Overheard":
        return cls(cut=False)

    def train(self, *arguments):
        updates = self.engine.train(*arguments)
        self.heard.append(updates.matrix)
        if self.cut:
            raise Cut
        return updates


def federation(seed: int = 0, **options) -> tacit.Federation:
    draws = np.random.default_rng(seed)
    tables = {name: from_arrays(draws.normal(size=(40, 3)), y=draws.normal(size=40)) for name in ("a", "b")}
    return tacit.Federation(tables, **options)


def network() -> nn.Module:
    return nn.Linear(3, 1)


def asked(folder, task, data, *, resume: bool) -> Array:
    engine = Overheard()
    with pytest.raises(Cut):
        fit(task, data, privacy=PROMISE, rounds=3, out=folder, resume=resume, engine=engine)
    return engine.heard[0]


def paid(folder) -> int:
    with Ledger(folder / "ledger.db", mode="read") as ledger:
        return sum(release.count for release in ledger.releases())


def supervised(loss="squared", **options) -> tacit.Supervised:
    torch.manual_seed(1)
    return tacit.Supervised(module=network(), loss=loss, steps=1, sample=0.5, **options)


def test_the_same_question_gives_the_same_answer_at_no_price(tmp_path):
    first = asked(tmp_path / "run", supervised(batch=20), federation(), resume=False)
    before = paid(tmp_path / "run")
    again = asked(tmp_path / "run", supervised(batch=20), federation(), resume=True)
    assert np.array_equal(first, again)
    assert paid(tmp_path / "run") == before


def test_a_question_that_cannot_be_written_down_is_paid_each_time(tmp_path):
    def one(output, y):
        return (output[0] - y) ** 2

    def other(output, y):
        return torch.abs(output[0] - y)

    first = asked(tmp_path / "run", supervised(one, batch=20), federation(), resume=False)
    before = paid(tmp_path / "run")
    again = asked(tmp_path / "run", supervised(other, batch=20), federation(), resume=True)
    assert not np.array_equal(first, again)
    assert paid(tmp_path / "run") == 2 * before


def test_another_number_of_records_is_another_question(tmp_path):
    first = asked(tmp_path / "run", supervised(), federation(records=80), resume=False)
    before = paid(tmp_path / "run")
    again = asked(tmp_path / "run", supervised(), federation(records=90), resume=True)
    assert not np.array_equal(first, again)
    assert paid(tmp_path / "run") == 2 * before


def test_another_machine_is_another_question(tmp_path, monkeypatch):
    first = asked(tmp_path / "run", supervised(batch=20), federation(), resume=False)
    before = paid(tmp_path / "run")
    monkeypatch.setattr("tacit.runs.context.machine", lambda: "another")
    again = asked(tmp_path / "run", supervised(batch=20), federation(), resume=True)
    assert not np.array_equal(first, again)
    assert paid(tmp_path / "run") == 2 * before


def test_other_data_are_refused_at_no_price(tmp_path):
    asked(tmp_path / "run", supervised(batch=20), federation(), resume=False)
    before = paid(tmp_path / "run")
    with pytest.raises(RunUnusable, match="the data have changed"):
        fit(supervised(batch=20), federation(5), privacy=PROMISE, rounds=3, out=tmp_path / "run", resume=True,
            engine=Overheard())  # fmt: skip
    assert paid(tmp_path / "run") == before


def test_stopping_early_is_charged_as_planned(tmp_path):
    data = federation(held_out=federation()["a"].table, held_out_public=True)
    flat = {"metrics": lambda outputs, y: {"flat": 1.0}, "maximize": "flat"}
    task, stop = supervised(batch=20, **flat), tacit.Stopping(patience=1)
    run = fit(task, data, privacy=PROMISE, rounds=12, stop=stop, seed=3, out=tmp_path / "run")
    assert len(run.record.rounds) < 12
    assert run.record.stopped
    whole = fit(supervised(batch=20), data, privacy=PROMISE, rounds=12)
    assert run.privacy.epsilon == pytest.approx(whole.privacy.epsilon)
    assert paid(tmp_path / "run") == 24


def test_a_budget_that_others_have_set_is_not_raised(tmp_path):
    (tmp_path / "run").mkdir()
    with Ledger(tmp_path / "run" / "ledger.db") as ledger:
        ledger.allow(epsilon=0.5, delta=1e-5)
    promise = tacit.Privacy(unit="record", epsilon=3, delta=1e-5, clip=1.0)
    with pytest.raises(tacit.TacitError, match="budget"):
        fit(supervised(batch=20), federation(), privacy=promise, rounds=3, out=tmp_path / "run")
    with Ledger(tmp_path / "run" / "ledger.db") as ledger:
        assert ledger.releases() == []


def test_one_broken_record_spoils_no_other_site():
    draws = np.random.default_rng(0)
    huge = draws.normal(size=(3, 3))
    huge[0] = 1.7e308
    tables = {
        "a": from_arrays(huge, y=np.zeros(3)),
        "b": from_arrays(draws.normal(size=(7, 3)), y=draws.normal(size=7)),
    }
    data = tacit.Federation(tables)
    task = tacit.Supervised(module=nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), loss="squared",
                            epochs=1, batch=4)  # fmt: skip
    state, key = task.start(data, tacit.Key(0)), tacit.Key(1, rehearsal=True)
    from tacit.privacy.mechanisms.base import NoPrivacy

    both = tacit.Local().train(task, data, state, ["a", "b"], NoPrivacy(), key).matrix
    alone = tacit.Local().train(task, data, state, ["b"], NoPrivacy(), key).matrix
    assert bool(np.isfinite(alone).all())
    np.testing.assert_allclose(both[1], alone[0], rtol=0, atol=1e-12)


def test_what_does_not_fit_is_refused_before_anything_is_paid(tmp_path):
    task = tacit.Supervised(module=nn.Linear(7, 1), loss="squared", steps=1, sample=0.5, batch=20)
    with pytest.raises(tacit.TacitError, match="do not fit the data, 3 columns and targets y"):
        fit(task, federation(), privacy=PROMISE, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_a_budget_cannot_bear_any_more_is_stated_all_the_same(tmp_path):
    def loss(output, y):
        return (output[0] - y) ** 2

    flat = {"metrics": lambda outputs, y: {"flat": 1.0}, "maximize": "flat"}
    data = federation(held_out=federation()["a"].table, held_out_public=True)
    promise = tacit.Privacy(unit="record", epsilon=3, delta=1e-5, clip=1.0)
    task, stop = supervised(loss, batch=20, **flat), tacit.Stopping(patience=2)
    with pytest.raises(Cut):
        fit(task, data, privacy=promise, rounds=4, stop=stop, out=tmp_path / "run", engine=Overheard())
    run = fit(task, data, privacy=promise, rounds=4, stop=stop, out=tmp_path / "run", resume=True,
              engine=Overheard.quiet())  # fmt: skip
    assert run.record.stopped
    assert run.privacy.epsilon > 3
    with Ledger(tmp_path / "run" / "ledger.db", mode="read") as ledger:
        # What must be stated is on the books, beyond the budget too.
        assert ledger.spent() == pytest.approx(run.privacy.epsilon)
