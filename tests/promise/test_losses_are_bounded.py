"""No record moves a sum further than its release was charged for, whatever is in it.

Every survival loss, and every question, is asked about adversarial neighbors: one record more or less, with
huge features, extreme or tied times and enormous weights. What is compared are the clipped sums before noise,
with the mechanism that the promise solves for, against the sensitivity that its release declares.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import Federation, Key, Open, Privacy
from tacit.aggregation.mean import Mean
from tacit.audits.sensitivity import NoiselessMechanism, distance
from tacit.learning.batches import Batch, SiteStreams
from tacit.learning.optimizers import descend
from tacit.privacy.mechanisms.base import NORMS, RecordLevel
from tacit.privacy.policy import Provenance
from tacit.runtime.arrays import Array
from tacit.sites.table import Table, concatenate, from_arrays
from tacit.survival.models.learner import EDGES, TimeGridQuery
from tacit.survival.tasks import TASKS

ENDS = (0.5, 1.0, 2.5, 4.0)
SEPARABLE = ("logistic-hazard", "pc-hazard", "poisson-ph", "deep-hit")
GROUPED = ("deep-hit", "deep-surv", "cox-ph", "cox-cc", "cox-time")
LAWS = ("gaussian", "laplace")
# Double precision: what is charged is charged to nine digits.
SLACK = 1 + 1e-8


def _before_noise(mechanism: RecordLevel, contributions) -> np.ndarray:
    """`noisy_sums` up to its noise."""
    return NoiselessMechanism(**vars(mechanism)).noisy_sums(contributions, [Key(0)], 0)


def test_the_sums_compared_here_are_those_that_noise_is_added_to(monkeypatch):
    monkeypatch.setattr("tacit.privacy.mechanisms.base.add_noise", lambda values, *_: values.copy())
    mechanism = RecordLevel(law="gaussian", clip=0.3, multiplier=1.0, steps=1, rate=1.0)
    task, data = made("pc-hazard", False), Federation({"oslo": plain(9)})
    contributions = contributed(task, data.store, [[place] for place in range(9)], start(task))
    assert np.array_equal(
        mechanism.noisy_sums(contributions, [Key(0)], 0), _before_noise(mechanism, contributions)
    )


# Records


HUGE = (0.0, 1.0, -1.0, 1e3, -1e8, 1e150, -1e300, 1.7e308)
TIMES = (1e-300, 1e-6, 0.5, 0.5 + 1e-12, 0.7, 1.0, 4.0, 4.1, 1e6, 1e300)
WEIGHTS = (1e-300, 0.5, 1.0, 40.0, 1e10, 1e300)

feature = st.sampled_from(HUGE) | st.floats(-3, 3)
record = st.fixed_dictionaries(
    {
        "x": st.tuples(feature, feature),
        "time": st.sampled_from(TIMES),
        "event": st.integers(0, 1),
        "entry": st.sampled_from([0.0, 0.3, 0.999]),
        "weight": st.sampled_from(WEIGHTS),
    }
)


def as_table(records: list[dict], *, late: bool, weighed: bool) -> Table:
    column = {name: np.array([entry[name] for entry in records], dtype=float) for name in records[0]}
    more = {"entry": column["entry"] * column["time"]} if late else {}
    if weighed:
        more["weight"] = column["weight"]
    return from_arrays(column["x"], time=column["time"], event=column["event"], **more)


def plain(size: int, seed: int = 0) -> Table:
    draw = np.random.default_rng(seed)
    time = np.ceil(draw.exponential(size=size) * 4) / 4
    return from_arrays(draw.normal(size=(size, 2)), time=time, event=draw.integers(0, 2, size))


@cache
def made(kind: str, grouped: bool, causes: int = 1):
    """A settled task; only deep-hit can do without its coupling, and knows causes."""
    options = {"hidden": (3,), "activation": "tanh", "cuts": ENDS, "columns": ("x1", "x2"), "steps": 1}
    if kind == "deep-hit":
        options |= {"ranking": 0.4 if grouped else 0.0, "causes": causes}
    if grouped:
        options["groups_per_site"] = 3
    return TASKS[kind](**options)


def start(task, size: float = 1.0, seed: int = 1) -> np.ndarray:
    state = task.start(None, Key(seed))
    return state + size * np.random.default_rng(seed).normal(size=len(state))


class Destined(Batch):
    """A batch in which luck goes with the records, whoever else is there.

    What a step draws beyond its records is secret and independent, so it may be thought of as a property of
    each record: neighbors are then compared as they are, given the luck of everybody whom both have.
    """

    owners: np.ndarray

    @property
    def uniforms(self) -> np.ndarray:
        return LUCK[self.owners[self.rows]]


LUCK = np.random.default_rng(11).random(100)


def contributed(
    task, store: Table, units: list[list[int]], weights: np.ndarray, owners: np.ndarray | None = None
):
    """The contributions of one site's units, padded as a batch is; `owners` tells records apart."""
    room = max([1, *(len(unit) for unit in units)])
    rows = np.zeros((1, len(units), room), dtype=np.int64)
    present = np.zeros(rows.shape, dtype=np.bool_)
    for place, unit in enumerate(units):
        rows[0, place, : len(unit)], present[0, place, : len(unit)] = unit, True
    batch = Destined(rows, present)
    object.__setattr__(batch, "owners", np.arange(len(store)) if owners is None else owners)
    with np.errstate(all="ignore"):
        return task.program(2).contributions(weights[None], batch, store)


@cache
def promised(kind: str, grouped: bool, law: str, clip: float) -> tuple[RecordLevel, float]:
    """The mechanism of a promise, and how far it says that one record moves a sum."""
    promise = Privacy(unit="record", noise_multiplier=1.0, delta=1e-5, clip=clip, mechanism=law)
    mechanism = promise.solve(made(kind, grouped), ["oslo"], Mean(), 3, records=100)
    (price,) = mechanism.release(1, ["oslo"])
    assert price.sensitivity == (2 * clip if grouped else clip)
    assert price.relation == "add-remove"
    return mechanism, price.sensitivity


def moved(law: str, one: np.ndarray, other: np.ndarray) -> float:
    return distance(one, other, NORMS[law])


@dataclass(frozen=True)
class Neighbours:
    """Records with and without the last one, and the scale of the network's weights and of the clip."""

    records: list[dict]
    late: bool
    weighed: bool
    size: float
    clip: float
    law: str

    @property
    def store(self) -> Table:
        return as_table(self.records, late=self.late, weighed=self.weighed)


neighbours = st.builds(
    Neighbours,
    st.lists(record, min_size=3, max_size=12),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.1, 1.0, 100.0]),
    st.sampled_from([1e-3, 1.0, 50.0]),
    st.sampled_from(LAWS),
)


@pytest.mark.parametrize("kind", SEPARABLE)
@settings(max_examples=60)
@given(neighbours)
def test_a_record_more_moves_a_sum_over_records_by_the_clip_at_most(kind, case):
    task, store = made(kind, False), case.store
    mechanism, bound = promised(kind, False, case.law, case.clip)
    units, weights = [[place] for place in range(len(store))], start(task, case.size)
    sums = []
    for drawn in (units, units[:-1]):
        with np.errstate(all="ignore"):
            found = _before_noise(mechanism, contributed(task, store, drawn, weights))
        assert np.isfinite(found).all()
        sums.append(found)
    # Not only the record more: nobody else's contribution may change with it.
    assert moved(case.law, *sums) <= bound * SLACK


@pytest.mark.parametrize("kind", GROUPED)
@settings(max_examples=60)
@given(neighbours, st.lists(st.integers(0, 2), min_size=12, max_size=12), st.integers(0, 50))
def test_a_record_more_moves_a_sum_over_risk_groups_by_twice_the_clip_at_most(kind, case, labels, turn):
    task, store = made(kind, True), case.store
    mechanism, bound = promised(kind, True, case.law, case.clip)
    groups = [[place for place in range(len(store)) if labels[place] == group] for group in range(3)]
    without = [[place for place in group if place < len(store) - 1] for group in groups]
    weights, sums = start(task, case.size), []
    for drawn in (groups, without):
        with np.errstate(all="ignore"):
            owners = (np.arange(len(store)) + turn) % 100
            found = _before_noise(mechanism, contributed(task, store, drawn, weights, owners))
        assert np.isfinite(found).all()
        sums.append(found)
    assert moved(case.law, *sums) <= bound * SLACK


@settings(max_examples=40)
@given(neighbours, st.integers(0, 12))
def test_a_record_more_is_bounded_with_competing_risks_as_well(case, cause):
    task, store = made("deep-hit", False, 2), case.store
    event = store.targets["event"] * (1 + (np.arange(len(store)) + cause) % 2)
    store = Table(store.features, {**store.targets, "event": event}, store.columns)
    mechanism, bound = promised("deep-hit", False, case.law, case.clip)
    units, weights = [[place] for place in range(len(store))], start(task, case.size)
    with np.errstate(all="ignore"):
        sums = [
            _before_noise(mechanism, contributed(task, store, drawn, weights))
            for drawn in (units, units[:-1])
        ]
    assert moved(case.law, *sums) <= bound * SLACK


@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("gone", [0, 3, 11])
def test_a_record_may_be_any_of_a_site_not_only_its_last(kind, gone):
    """When a record leaves, the others move up in the table; their groups do not change."""
    task, store = made(kind, True), plain(12, 4)
    mechanism, bound = promised(kind, True, "gaussian", 1e-3)
    labels = np.arange(12) % 3
    rest = np.delete(np.arange(12), gone)
    weights, worst = start(task), 0.0
    for turn in range(20):
        owners = np.arange(12) + turn
        groups, left = (
            [np.flatnonzero(given == group).tolist() for group in range(3)]
            for given in (labels, labels[rest])
        )
        sums = [
            _before_noise(mechanism, contributed(task, store, groups, weights, owners)),
            _before_noise(mechanism, contributed(task, store.take(rest), left, weights, owners[rest])),
        ]
        worst = max(worst, moved("gaussian", *sums))
    assert 0 < worst <= bound * SLACK


def test_what_a_step_draws_beyond_its_records_is_secret():
    """Otherwise it would not go with the records: one that left would change what all after it draw."""
    batch = Batch(np.arange(5)[None, None], np.ones((1, 1, 5), dtype=np.bool_))
    one, other = (
        replace(batch, chance=SiteStreams([Key(1, entropy=bytes([number] * 32))])).uniforms
        for number in (1, 2)
    )
    assert not np.isclose(one, other).any()


# The whole step of a site


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("kind", "grouped"), [(kind, False) for kind in SEPARABLE] + [(kind, True) for kind in GROUPED]
)
def test_the_step_that_a_site_takes_is_bounded_by_its_release(kind, grouped, law, monkeypatch):
    """From drawing to clipping, as a round does it: a record at the end leaves all other draws alone."""
    monkeypatch.setattr(Batch, "uniforms", property(lambda batch: LUCK[batch.rows]))
    task = replace(made(kind, grouped), sample=0.8, batch=7 if not grouped else None)
    mechanism, bound = promised(kind, grouped, law, 0.2)
    worst = 0.0
    for seed in range(12):
        draw = np.random.default_rng(seed)
        other = from_arrays(
            draw.choice(HUGE[:6], (1, 2)), time=draw.choice(TIMES[:-1], 1), event=[draw.integers(0, 2)]
        )
        tables = [concatenate([plain(20, seed), other]), plain(20, seed)]
        sums = []
        for table in tables:
            told, key = NoiselessMechanism(**vars(mechanism)), Key(seed, rehearsal=True)
            cohort = Federation({"oslo": table}).cohort(["oslo"])
            descend(task, task.program(2), start(task)[None], cohort, told, [key / "oslo"])
            sums.append(told.heard[0])
        worst = max(worst, moved(law, *sums))
        assert worst <= bound * SLACK
    # The bound is used.
    assert worst > bound / 20


# Questions


def asked(question, state: Array, table: Table, law: str) -> tuple[np.ndarray, float]:
    """The clipped sums of one site, and how far one record may move them."""
    promise = Privacy(unit="record", epsilon=3.0, delta=1e-5, clip=7.0, mechanism=law)
    mechanism = promise.solve_query(question, promise.solve(made("cox-ph", True), ["oslo"], Mean(), 3))
    (price,) = mechanism.release(0, ["oslo"])
    assert price.rate == 1
    assert price.scale == pytest.approx(mechanism.multiplier * mechanism.clip)
    assert price.sensitivity == mechanism.clip == question.record_bound(NORMS[law])
    told = NoiselessMechanism(**vars(mechanism))
    with np.errstate(all="ignore"):
        question.train(state, Federation({"oslo": table}).cohort(["oslo"]), told, Key(0, rehearsal=True))
    return told.heard[0], price.sensitivity


@pytest.mark.parametrize("kind", ["cox-ph", "deep-surv", "cox-cc", "cox-time"])
@settings(max_examples=40)
@given(neighbours)
def test_a_record_more_moves_the_sums_of_the_shared_hazard_by_their_reach_at_most(kind, case):
    task = made(kind, True).bind(Federation({"oslo": plain(9)}), Provenance(Open(), public=False))
    state, store = start(task, case.size), case.store
    sums, bounds = zip(
        *(
            asked(task.final_query, state, table, case.law)
            for table in (store, store.take(slice(0, len(store) - 1)))
        ),
        strict=True,
    )
    assert moved(case.law, *sums) <= bounds[0] * SLACK


@settings(max_examples=60)
@given(neighbours)
def test_a_record_more_moves_the_counts_of_the_time_grid_by_one_at_most(case):
    question, store = TimeGridQuery(5), case.store
    assert question.record_bound("l2") == question.record_bound("l1") == 1
    sums, bounds = zip(
        *(
            asked(question, np.zeros(0), table, case.law)
            for table in (store, store.take(slice(0, len(store) - 1)))
        ),
        strict=True,
    )
    assert sums[0].shape == (1, len(EDGES) - 1)
    assert moved(case.law, *sums) <= bounds[0] == 1
    assert sums[0].sum() == store.targets["event"].sum()
