"""Every survival task gives a cohort what its sites give one by one, and so do its questions.

Draws are by name: batches, risk groups, controls and noise do not depend on who works beside a site.
Agreement is asked to 1e-12.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from tacit import Federation, Key, Open, Privacy
from tacit.aggregation.mean import Mean
from tacit.engines.base import run_at_site
from tacit.learning import optimizers
from tacit.learning.perceptron import Perceptron
from tacit.learning.task import Updates
from tacit.privacy.mechanisms.base import NoPrivacy
from tacit.privacy.policy import Provenance
from tacit.runtime.arrays import Array
from tacit.sites.table import Table, from_arrays
from tacit.survival.models.learner import TimeGridQuery
from tacit.survival.tasks import LEARNERS

AGREEMENT = 1e-12
# From 2 records on, in no order, so that buckets mix sizes and some sites are done before others.
SIZES = {"oslo": 40, "bergen": 2, "voss": 25, "bodo": 60, "moss": 31}
SEPARABLE = ("logistic-hazard", "pc-hazard", "poisson-ph")
COUPLED = tuple(kind for kind in LEARNERS if kind not in SEPARABLE)


def records(size: int, seed: int, targets: str, causes: int) -> Table:
    draw = np.random.default_rng(seed)
    # Ties, and times at the ends of intervals.
    time = np.ceil(draw.exponential(size=size) * 8) / 8
    event = draw.integers(0, causes + 1, size)
    event[0] = 1 + seed % causes
    more = {}
    if targets == "late and weighed":
        more["entry"] = np.where(draw.random(size) < 0.5, time * draw.random(size) * 0.9, 0.0)
        more["weight"] = draw.uniform(0.2, 3, size)
    return from_arrays(draw.normal(size=(size, 3)), time=time, event=event, **more)


@cache
def federation(targets: str = "plain", causes: int = 1) -> Federation:
    tables = {name: records(size, seed, targets, causes) for seed, (name, size) in enumerate(SIZES.items())}
    return Federation(tables, records=sum(SIZES.values()))


WORKS = {
    "epochs": {"epochs": 2, "batch": 16},
    "steps": {"steps": 3, "sample": 0.4},
    "steps, adam, decay": {"steps": 3, "sample": 0.4, "optimizer": "adam", "decay": 0.1},
    "groups": {"steps": 3, "sample": 0.5, "groups_per_site": 6},
}
RECORD = Privacy(unit="record", noise_multiplier=0.7, delta=1e-5, clip=0.3, rehearsal=True)
PROMISES = {
    "open": Open(),
    "record": RECORD,
    "record, laplace": replace(RECORD, mechanism="laplace"),
    "site": replace(RECORD, unit="site"),
}


def made(kind: str, work_on: str, data: Federation, causes: int = 1):
    more = {"causes": causes} if causes > 1 else {}
    hidden = () if kind in ("cox-ph", "poisson-ph") else (4,)
    task = LEARNERS[kind](hidden=hidden, cuts=4, horizon=2.0, lr=0.05, **WORKS[work_on], **more)
    return task.bind(data, Provenance(Open(), public=False))


@dataclass(frozen=True)
class Ways:
    """The same question to all sites at once, one by one, and to sites that have no others in their store."""

    data: Federation
    mechanism: object
    key: Key

    def together(self, part, state) -> Updates:
        return run_at_site(part, state, self.data.cohort(list(self.data)), self.mechanism, self.key)

    def one_by_one(self, part, state) -> Updates:
        rows = [
            run_at_site(part, state, self.data.cohort([name]), self.mechanism, self.key).matrix
            for name in self.data
        ]
        return Updates(tuple(self.data), np.concatenate(rows))

    def apart(self, part, state) -> Updates:
        rows = []
        for name in self.data:
            own = Federation({name: self.data[name].table}).cohort([name])
            cohort = replace(own, mean_site_size=self.data.mean_site_size)
            rows.append(run_at_site(part, state, cohort, self.mechanism, self.key).matrix)
        return Updates(tuple(self.data), np.concatenate(rows))


def agree(ways: Ways, part, state: Array) -> Array:
    whole = ways.together(part, state)
    for other in (ways.one_by_one, ways.apart):
        found = other(part, state)
        assert found.names == whole.names
        np.testing.assert_allclose(found.matrix, whole.matrix, rtol=0, atol=AGREEMENT)
    return whole.matrix


def trained(kind, work_on, targets, promise, causes=1) -> Array:
    data = federation(targets, causes)
    task = made(kind, work_on, data, causes)
    mechanism = PROMISES[promise].solve(task, list(data), Mean(), 2, records=data.records)
    state = task.start(data, Key(3) / "start")
    for number in (1, 2):
        moved = agree(Ways(data, mechanism, Key(3, rehearsal=True) / number), task, state)
        state = state + moved.mean(axis=0)
    return moved


def cases() -> list:
    """Every task with every work that it knows and every kind of target, openly and privately."""
    found = []
    for kind in LEARNERS:
        works = [w for w in WORKS if not (w == "groups" and kind in SEPARABLE)]
        for turn, work_on in enumerate(works):
            for shift, targets in enumerate(("plain", "late and weighed")):
                priced = work_on == "groups" if kind in COUPLED else work_on.startswith("steps")
                private = ["record", "record, laplace"][(turn + shift) % 2] if priced else "site"
                found += [(kind, work_on, targets, promise) for promise in ("open", private)]
    return [pytest.param(*case, id=", ".join(case)) for case in found]


@pytest.mark.parametrize(("kind", "work_on", "targets", "promise"), cases())
def test_a_cohort_gives_what_its_sites_give_one_by_one(kind, work_on, targets, promise):
    moved = trained(kind, work_on, targets, promise)
    large = [size > 2 for size in SIZES.values()]
    assert bool((np.abs(moved).max(axis=1)[large] > 1e-6).all()), "a site has learned nothing"


@pytest.mark.parametrize(
    ("work_on", "promise"), [("epochs", "open"), ("groups", "record"), ("steps", "site")]
)
def test_competing_risks_of_a_cohort_are_those_of_its_sites(work_on, promise):
    trained("deep-hit", work_on, "late and weighed", promise, causes=2)


@pytest.mark.parametrize("kind", LEARNERS)
def test_the_order_of_the_sites_does_not_matter(kind):
    data = federation("late and weighed")
    task = made(kind, "steps", data)
    names, state = list(data), task.start(data, Key(3))
    other = names[::-1]
    found = {
        order: task.train(state, data.cohort(list(order)), NoPrivacy(), Key(3, rehearsal=True)).matrix
        for order in (tuple(names), tuple(other))
    }
    np.testing.assert_allclose(found[tuple(other)][::-1], found[tuple(names)], rtol=0, atol=AGREEMENT)


@pytest.mark.parametrize(
    ("kind", "work_on"), [(kind, "groups") for kind in COUPLED] + [("pc-hazard", "steps")]
)
def test_batches_that_are_taken_in_pieces_and_buckets_give_the_same(kind, work_on, monkeypatch):
    data = federation("late and weighed")
    task = made(kind, work_on, data)
    mechanism = RECORD.solve(task, list(data), Mean(), 1, records=data.records)
    state, key = task.start(data, Key(3)), Key(3, rehearsal=True)
    whole = Ways(data, mechanism, key).together(task, state).matrix
    monkeypatch.setattr(optimizers, "LARGEST_STEP", 400)
    pieces = Ways(data, mechanism, key).together(task, state).matrix
    np.testing.assert_allclose(pieces, whole, rtol=0, atol=AGREEMENT)
    monkeypatch.setattr(Perceptron, "working_numbers", 1)
    buckets = Ways(data, mechanism, key).together(task, state).matrix
    np.testing.assert_allclose(buckets, whole, rtol=0, atol=AGREEMENT)


# Questions


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("targets", ["plain", "late and weighed"])
@pytest.mark.parametrize("kind", ["cox-ph", "deep-surv", "cox-cc", "cox-time"])
def test_the_closing_question_is_answered_alike(kind, targets, promise):
    data = federation(targets)
    task = made(kind, "groups", data)
    rounds = PROMISES[promise].solve(task, list(data), Mean(), 2, questions=[task.final_query])
    mechanism = PROMISES[promise].solve_query(task.final_query, rounds)
    state = task.start(data, Key(3))
    told = agree(Ways(data, mechanism, Key(3, rehearsal=True) / "closing"), task.final_query, state)
    assert told.shape == (len(SIZES), 8)


@pytest.mark.parametrize("promise", PROMISES)
def test_the_opening_question_is_answered_alike(promise):
    data, question = federation("late and weighed"), TimeGridQuery(6)
    task = made("logistic-hazard", "steps", data)
    rounds = PROMISES[promise].solve(task, list(data), Mean(), 2, questions=[question])
    mechanism = PROMISES[promise].solve_query(question, rounds)
    told = agree(
        Ways(data, mechanism, Key(3, rehearsal=True) / "time grid"),
        question,
        np.zeros(0),
    )
    if promise == "open":
        events = [int((data[name].table.targets["event"] > 0).sum()) for name in data]
        assert told.sum(axis=1).tolist() == events
