"""LogisticHazard settles its time grid without a look at private records, and learns what can be learned."""

from itertools import pairwise

import numpy as np
import pytest

from tacit import Federation, Key, Open, Privacy, fit
from tacit.errors import InvalidValue
from tacit.privacy.policy import Provenance
from tacit.sites.splits import Iid
from tacit.sites.table import Table, from_arrays
from tacit.survival import LogisticHazard
from tacit.survival.data.sources import Simulated

PRIVATE = Privacy(unit="record", epsilon=3.0, delta=1e-5, clip=1.0)
REHEARSAL = Privacy(unit="record", epsilon=3.0, delta=1e-5, clip=1.0, rehearsal=True)
OPEN = Open()


def records(size: int = 50, seed: int = 0, **targets: object) -> Table:
    generator = np.random.default_rng(seed)
    drawn = {"time": generator.exponential(size=size) + 0.01, "event": generator.integers(0, 2, size)}
    return from_arrays(generator.standard_normal((size, 2)), columns=("age", "dose"), **(drawn | targets))


def federation(**options: object) -> Federation:
    return Federation({"oslo": records(seed=1), "bergen": records(seed=2)}, **options)


def settled(
    task: LogisticHazard, data: Federation, privacy: Privacy | Open = OPEN, public: bool = False
) -> tuple[LogisticHazard, Provenance]:
    provenance = Provenance(privacy, public=public)
    return task.bind(data, provenance), provenance


def event_times(*tables: Table) -> np.ndarray:
    return np.concatenate([table.targets["time"][table.targets["event"] == 1] for table in tables])


@pytest.mark.parametrize("privacy", [PRIVATE, REHEARSAL, OPEN], ids=["private", "rehearsal", "open"])
def test_cuts_come_from_public_reference_records_where_there_are_any(privacy: Privacy | Open):
    reference = records(400, seed=9)
    task, provenance = settled(LogisticHazard(cuts=4), federation(reference=reference), privacy)
    wanted = np.quantile(event_times(reference), [0.2475, 0.495, 0.7425, 0.99])
    np.testing.assert_allclose(task.cuts, wanted, rtol=1e-12)
    assert provenance.bare == []
    assert any("reference" in entry for entry in provenance.public)


def test_with_reference_records_the_sites_own_records_do_not_matter():
    reference = records(400, seed=9)
    other = Federation({"aker": records(80, seed=5, time=np.full(80, 77.0))}, reference=reference)
    first, second = (
        settled(LogisticHazard(cuts=6), data, PRIVATE)[0] for data in (federation(reference=reference), other)
    )
    assert first.cuts == second.cuts


@pytest.mark.parametrize("reference", [None, records(seed=9)], ids=["alone", "beside reference records"])
def test_cuts_are_even_up_to_a_horizon(reference: Table | None):
    task, provenance = settled(LogisticHazard(cuts=5, horizon=10.0), federation(reference=reference), PRIVATE)
    assert task.cuts == pytest.approx((2, 4, 6, 8, 10))
    assert provenance.bare == []


def test_cuts_that_are_given_stay_as_they_are():
    assert settled(LogisticHazard(cuts=[0.5, 1, 7]), federation(), PRIVATE)[0].cuts == (0.5, 1.0, 7.0)


def test_a_private_run_may_not_take_its_cuts_from_the_records_and_buys_them():
    task, provenance = settled(LogisticHazard(cuts=5), federation(), PRIVATE)
    assert task.cuts == 5
    assert task.initial_query is not None
    assert (task.initial_query.kind, task.initial_query.cuts) == ("time grid", 5)
    assert provenance.bare == []
    # What it knows already, it does not ask.
    known = settled(LogisticHazard(cuts=5, horizon=2.0), federation(), PRIVATE)[0]
    assert known.initial_query is None


@pytest.mark.parametrize("privacy", [REHEARSAL, OPEN], ids=["rehearsal", "open"])
def test_a_run_that_protects_nobody_may_and_says_so(privacy: Privacy | Open):
    data = federation()
    task, provenance = settled(LogisticHazard(cuts=4), data, privacy)
    wanted = np.quantile(event_times(data.store), [0.2475, 0.495, 0.7425, 0.99])
    np.testing.assert_allclose(task.cuts, wanted, rtol=1e-12)
    assert any("time grid" in entry for entry in provenance.bare)


def test_published_records_may_be_looked_at_in_a_private_run():
    task, provenance = settled(LogisticHazard(cuts=4), federation(public=True), PRIVATE, public=True)
    assert len(task.cuts) == 4
    assert provenance.bare == []


def test_events_at_few_times_give_fewer_cuts_but_each_above_the_last():
    for times, most in ((np.full(50, 3.0), 1), (np.arange(50) % 2 + 1.0, 3)):
        data = Federation({"oslo": records(time=times, event=np.ones(50))})
        cuts = settled(LogisticHazard(cuts=20), data)[0].cuts
        assert 1 <= len(cuts) <= most
        assert all(low < high for low, high in pairwise((0.0, *cuts)))
        assert cuts[-1] == times.max()


def test_settling_leaves_the_task_and_names_the_columns():
    task = LogisticHazard(cuts=5, horizon=1.0, lr=0.3)
    done, _ = settled(task, federation())
    assert (task.cuts, task.columns) == (5, ())
    assert (tuple(done.columns), done.lr) == (("age", "dose"), 0.3)
    assert settled(done, federation())[0] == done


def test_the_start_depends_on_the_key_alone():
    data = federation(reference=records(seed=9))
    other = Federation({"aker": records(80, seed=5)}, reference=data.reference)
    states = [
        settled(LogisticHazard(), where, PRIVATE)[0].start(where, key)
        for where, key in ((data, Key(1)), (data, Key(1)), (other, Key(1)), (data, Key(2)))
    ]
    assert np.array_equal(states[0], states[1])
    assert np.array_equal(states[0], states[2])
    assert not np.array_equal(states[0], states[3])
    assert states[0].dtype == np.float64
    assert states[0].shape == (2 * 32 + 32 + 32 * 32 + 32 + 32 * 20 + 20,)


def test_before_anything_is_learnt_every_interval_has_a_small_hazard():
    task, _ = settled(LogisticHazard(cuts=20), federation())
    model = task.model(task.start(federation(), Key(1)))
    hazards = 1 - np.exp(-np.diff(model.cumulative(records(300).features), axis=1, prepend=0))
    assert 0.02 < hazards.mean() < 0.1
    assert hazards.max() < 0.5


EVERYBODY_CENSORED = {"event": np.zeros(50)}


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (EVERYBODY_CENSORED, "event in {place} is not allowed: all 50 records are censored"),
        ({"event": np.arange(50) % 3}, "event in {place} is not allowed: it must be 1 .* or 0"),
        ({"event": np.full(50, 0.5)}, "event in {place} is not allowed: it must be 1 .* or 0"),
        ({"event": np.full(50, -1.0)}, "event in {place} is not allowed: it must be 1 .* or 0"),
        ({"time": np.arange(50.0)}, "time in {place} is not allowed: 1 of 50 records are not above 0"),
        ({"time": np.arange(50.0) - 1.5}, "time in {place} is not allowed: 2 of 50 records are not above 0"),
    ],
    ids=["all censored", "competing events", "half an event", "minus one", "time zero", "time below zero"],
)
@pytest.mark.parametrize("privacy", [PRIVATE, OPEN], ids=["private", "open"])
def test_what_cannot_be_survival_data_is_refused_with_field_and_site(
    targets: dict, said: str, privacy: Privacy | Open
):
    task = LogisticHazard(horizon=3.0)
    with pytest.raises(InvalidValue, match=said.format(place="site bergen")):
        settled(task, Federation({"oslo": records(), "bergen": records(**targets)}), privacy)
    with pytest.raises(InvalidValue, match=said.format(place="the held-out records")):
        settled(task, federation(held_out=records(**targets)), privacy)


@pytest.mark.parametrize("missing", ["time", "event"])
def test_data_without_a_time_or_an_event_are_refused(missing: str):
    targets = {name: np.ones(5) for name in ("time", "event") if name != missing}
    with pytest.raises(InvalidValue, match=f"^{missing} is missing in site oslo"):
        settled(LogisticHazard(horizon=1.0), Federation({"oslo": from_arrays(np.ones((5, 1)), **targets)}))


@pytest.mark.parametrize("cuts", [[1.0, 1.0], [2.0, 1.0], [0.0, 1.0], [-1.0, 1.0], [1.0, np.inf], [np.nan]])
def test_cuts_that_do_not_ascend_from_above_zero_are_refused(cuts: list[float]):
    with pytest.raises(InvalidValue, match=r"^cuts = .* finite, above 0 and ascending"):
        settled(LogisticHazard(cuts=cuts), federation())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hidden": (8, 0)}, "hidden = 0 is not allowed"),
        ({"hidden": (8.5,)}, "hidden = 8.5 is not allowed"),
        ({"activation": "rleu"}, r"activation = 'rleu' is not allowed.*did you mean \"relu\""),
        ({"cuts": ()}, r"cuts = \[\] is not allowed"),
        ({"horizon": 0.0}, "horizon = 0.0 is not allowed"),
        ({"horizon": np.inf}, "horizon = inf is not allowed"),
        ({"lr": -1.0}, "lr = -1.0 is not allowed"),
        ({"sample": 0.0}, "sample = 0.0 is not allowed"),
    ],
)
def test_a_choice_that_makes_no_sense_is_named(options: dict, said: str):
    with pytest.raises(InvalidValue, match=said):
        LogisticHazard(**options)


@pytest.mark.parametrize("hidden", [(), (16,)], ids=["linear", "one hidden layer"])
@pytest.mark.parametrize("seed", [2, 3])
def test_an_open_run_learns_a_strong_signal(hidden: tuple[int, ...], seed: int):
    data = Simulated(design="SDGM1", records=3000, features=20).open(Iid(count=4), seed)
    task = LogisticHazard(hidden=hidden, cuts=10, steps=10, sample=0.5, lr=0.2)
    run = fit(task, data, rounds=12, seed=seed)
    assert set(run.scores) == {"c_index", "ibs"}
    assert run.scores["c_index"] > 0.6
    before = run.task.score(run.task.start(data, Key(seed)), data.held_out)
    assert run.scores["ibs"] < before["ibs"] - 0.01
    assert run.scores["c_index"] > before["c_index"] + 0.05


def test_no_signal_is_learnt_where_there_is_none():
    data = Simulated(records=2000, features=5).open(Iid(count=2), 1)
    shuffled = Federation(
        {name: Table(site.table.features[::-1].copy(), site.table.targets, site.table.columns)
         for name, site in data.items()},
        held_out=data.held_out,
        reference=data.reference,
    )  # fmt: skip
    run = fit(LogisticHazard(hidden=(), cuts=10, steps=10, sample=0.5, lr=0.2), shuffled, rounds=10)
    assert abs(run.scores["c_index"] - 0.5) < 0.1
