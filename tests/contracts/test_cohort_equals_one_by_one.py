"""A cohort of sites in one batched program gives what the sites give one by one.

That is what makes a simulation speak for a real federation, where every site works alone. Rehearsals draw by
name, so both ways see the same batches and the same noise. Agreement is asked to 1e-6; seen is 1e-12.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tacit
from tacit.aggregation.mean import Mean
from tacit.engines.base import Engine, Local, run_at_site
from tacit.learning.supervised import Supervised
from tacit.learning.task import Updates
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import RowFederation
from tacit.sites.table import from_arrays
from tacit.survival import LogisticHazard

ROUNDS, COLUMNS = 3, 3
AGREEMENT = 1e-9


@dataclass(frozen=True, kw_only=True)
class OneByOne(Engine):
    """Cohorts of one, as an engine for sites on machines of their own passes them."""

    kind: ClassVar[str] = "local"

    def train(self, task, federation, state, names, mechanism, key) -> Updates:
        rows = [run_at_site(task, state, federation.cohort([name]), mechanism, key).matrix for name in names]
        return Updates(tuple(names), np.concatenate(rows) if rows else np.zeros((0, len(state))))


# The same engine with sites told apart by a federation of their own, as they would be over a network.
@dataclass(frozen=True, kw_only=True)
class Apart(Engine):
    """Every site has a store of its own: nobody's records are within reach of another."""

    kind: ClassVar[str] = "local"

    def train(self, task, federation, state, names, mechanism, key) -> Updates:
        rows = []
        for name in names:
            alone = RowFederation({name: federation[name].table})
            cohort = alone.cohort([name])
            own = type(cohort)(
                cohort.names, cohort.store, cohort.starts, cohort.sizes, federation.mean_site_size
            )
            rows.append(run_at_site(task, state, own, mechanism, key).matrix)
        return Updates(tuple(names), np.concatenate(rows) if rows else np.zeros((0, len(state))))


def sizes(sites: int) -> list[int]:
    """From 2 to 300 records, in no order."""
    drawn = np.random.default_rng(sites).integers(2, 301, sites).tolist()
    return [300, 2, *drawn][:sites] if sites > 1 else [150]


@cache
def federation(sites: int, *, order: tuple[int, ...] | None = None) -> RowFederation:
    tables = {}
    for number, size in enumerate(sizes(sites)):
        draw = np.random.default_rng(number)
        tables[f"site-{number}"] = from_arrays(
            draw.normal(size=(size, COLUMNS)),
            time=draw.exponential(size=size) + 0.01,
            event=np.maximum(draw.integers(0, 2, size), np.arange(size) == 0),
            y=draw.normal(size=size),
        )
    names = [list(tables)[place] for place in order] if order is not None else list(tables)
    return RowFederation({name: tables[name] for name in names}, records=sum(sizes(sites)))


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(COLUMNS, 4), nn.Tanh(), nn.Linear(4, 1))


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(COLUMNS, 3), nn.Linear(COLUMNS, 3)

    def forward(self, x: Tensor) -> Tensor:
        return (torch.sigmoid(self.gate(x)) * self.value(x)).sum(dim=-1, keepdim=True)


def made(kind: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return kind()


def loss(output: Tensor, y: Tensor, time: Tensor, event: Tensor) -> Tensor:
    return torch.log1p((output[0] - y) ** 2)


STEPS = {"steps": 3, "sample": 0.2, "lr": 0.05}
EPOCHS = {"epochs": 2, "batch": 90, "lr": 0.05}
WORKS = {
    "steps": STEPS,
    "steps, adam": {**STEPS, "optimizer": "adam"},
    "steps, momentum, proximal": {**STEPS, "optimizer": "momentum", "proximal": 0.3},
    "epochs": EPOCHS,
    "epochs, adam, proximal": {**EPOCHS, "optimizer": "adam", "proximal": 0.3},
    "epochs, momentum": {**EPOCHS, "optimizer": "momentum"},
}
TASKS = {
    "perceptron": lambda work: Supervised(module=made(plain), loss="squared", **work),
    "custom": lambda work: Supervised(module=made(Gated), loss=loss, **work),
    "logistic-hazard": lambda work: LogisticHazard(hidden=(4,), cuts=5, horizon=3.0, **work),
}
SITE = {"unit": "site", "noise_multiplier": 0.5, "delta": 1e-5, "clip": 0.3, "rehearsal": True}
RECORD = {"unit": "record", "noise_multiplier": 0.7, "delta": 1e-5, "clip": 0.3, "rehearsal": True}
PROMISES = {
    "open": Open(),
    "record": Privacy(**RECORD),
    "record, laplace": Privacy(**RECORD, mechanism="laplace"),
    "site": Privacy(**SITE),
    "site, laplace": Privacy(**SITE, mechanism="laplace"),
    "server": Privacy(**SITE, noise="server", participation=0.7),
    "server, laplace": Privacy(**SITE, noise="server", mechanism="laplace"),
}


def trained(task, whole: RowFederation, promise: Privacy | Open, engine) -> Array:
    """Three rounds, as `fit` makes them."""
    task = task.bind(whole, Provenance(promise, public=False))
    key, names = Key(3, rehearsal=True), list(whole)
    mechanism = promise.solve(task, names, Mean(), ROUNDS, records=whole.records)
    state = task.start(whole, key / "start")
    for number in range(1, ROUNDS + 1):
        joined = (key / number / "who").secret().uniform((len(names),)) < promise.participation
        present = [name for name, joins in zip(names, joined, strict=True) if joins]
        updates = engine.train(task, whole, state, present, mechanism, key / number)
        combined = Mean()(updates, sites=mechanism.denominator(len(names)))
        state = task.advance(state, mechanism.at_server(combined, key / number / "server"))
    return state


def agree(one: Array, other: Array, start: Array) -> None:
    np.testing.assert_allclose(one, other, rtol=0, atol=AGREEMENT)
    assert float(np.abs(one - start).max()) > 1e-4


def fitting(promise: str) -> list[str]:
    """The kinds of work that a promise allows: the price of records counts on drawn steps."""
    return [work for work in WORKS if not (promise.startswith("record") and work.startswith("epochs"))]


# Every promise with every task at every number of sites, the work taken in turn; and every kind of work with
# every task. Many sites of a custom module take long one by one, so there are fewer of those.
IN_TURN = [
    (sites, promise, task, fitting(promise)[(turn + rank + shift) % len(fitting(promise))])
    for shift, task in enumerate(TASKS)
    for rank, promise in enumerate(PROMISES)
    for turn, sites in enumerate((1, 3, 16, 64))
    if not (sites > 3 and promise in ("site, laplace", "server, laplace"))
    if not (task == "custom" and (sites == 64 or (sites == 16 and promise not in ("record", "server"))))
]
EVERY_WORK = [(2, "open", task, work) for task in TASKS for work in WORKS]
CASES = [
    pytest.param(*case, id="{} sites, {}, {}, {}".format(*case))
    for case in dict.fromkeys(IN_TURN + EVERY_WORK)
]


@pytest.mark.parametrize(("sites", "promise", "task", "work"), CASES)
def test_a_cohort_gives_what_its_sites_give_one_by_one(sites, promise, task, work):
    whole, made_task = federation(sites), TASKS[task](WORKS[work])
    states = [trained(made_task, whole, PROMISES[promise], engine) for engine in (Local(), OneByOne())]
    start = made_task.bind(whole, Provenance(Open(), public=False)).start(whole, Key(3) / "start")
    agree(states[0], states[1], start)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("promise", ["record", "server"])
def test_it_gives_what_sites_give_that_cannot_reach_each_others_records(promise, task):
    whole, made_task = federation(5), TASKS[task](STEPS)
    states = [trained(made_task, whole, PROMISES[promise], engine) for engine in (Local(), Apart())]
    start = made_task.bind(whole, Provenance(Open(), public=False)).start(whole, Key(3) / "start")
    agree(states[0], states[1], start)


def in_groups(outputs: Tensor, present: Tensor, y: Tensor, time: Tensor, event: Tensor) -> Tensor:
    among = torch.where(present, outputs[:, 0], -1e9)
    return (torch.where(present, event, 0.0) * (torch.logsumexp(among, 0) - outputs[:, 0])).sum()


@pytest.mark.parametrize(
    ("promise", "kind"),
    [("open", plain), ("record", plain), ("record, laplace", plain), ("site", plain), ("record", Gated)],
)
def test_risk_groups_of_a_cohort_are_those_of_its_sites(promise, kind):
    whole = federation(4)
    task = Supervised(module=made(kind), loss=in_groups, coupled=True, groups_per_site=8, **STEPS)
    states = [trained(task, whole, PROMISES[promise], engine) for engine in (Local(), OneByOne())]
    agree(states[0], states[1], task.start(whole, Key(3)))


# The loop itself


@pytest.mark.parametrize(
    ("promise", "task"),
    [("open", "perceptron"), ("record", "logistic-hazard"), ("site", "custom"), ("server", "perceptron")],
)
def test_a_run_gives_the_same_model_by_either_engine(promise, task):
    whole, made_task = federation(3), TASKS[task](STEPS)
    runs = [
        tacit.fit(made_task, whole, privacy=PROMISES[promise], rounds=ROUNDS, seed=3, engine=engine)
        for engine in (Local(), OneByOne())
    ]
    np.testing.assert_allclose(runs[0].state, runs[1].state, rtol=0, atol=AGREEMENT)
    assert runs[0].privacy == runs[1].privacy
    assert float(np.abs(runs[0].state).max()) > 1e-3


# Order


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    ("promise", "work"),
    [("open", "steps, adam"), ("open", "epochs"), ("record", "steps"), ("site", "epochs")],
)
def test_the_order_in_which_sites_are_asked_does_not_matter(promise, work, task):
    whole = federation(5)
    made_task = TASKS[task](WORKS[work]).bind(whole, Provenance(Open(), public=False))
    mechanism = PROMISES[promise].solve(made_task, list(whole), Mean(), 1, records=whole.records)
    state, key = made_task.start(whole, Key(3)), Key(3, rehearsal=True) / 1
    order = np.random.default_rng(0).permutation(list(whole)).tolist()
    updates = Local().train(made_task, whole, state, list(whole), mechanism, key)
    other = Local().train(made_task, whole, state, order, mechanism, key)
    assert other.names == tuple(order)
    places = [order.index(name) for name in updates.names]
    np.testing.assert_allclose(other.matrix[places], updates.matrix, rtol=0, atol=1e-12)


@pytest.mark.parametrize("promise", ["open", "record", "site"])
def test_the_order_in_which_a_federation_lists_its_sites_does_not_matter(promise):
    order = tuple(np.random.default_rng(1).permutation(9).tolist())
    states = [
        trained(TASKS["perceptron"](STEPS), federation(9, order=given), PROMISES[promise], Local())
        for given in (None, order)
    ]
    np.testing.assert_allclose(states[0], states[1], rtol=0, atol=1e-12)


# What is left alone


@pytest.mark.parametrize(
    ("promise", "task"),
    [("open", "custom"), ("record", "perceptron"), ("record", "custom"), ("server", "custom")],
)
def test_a_run_leaves_the_global_random_state_and_the_users_module_alone(promise, task):
    made_task = TASKS[task](STEPS)
    module = made_task.module
    before = {name: values.clone() for name, values in module.state_dict().items()}
    threads = torch.get_num_threads()
    states = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state())
    tacit.fit(made_task, federation(3), privacy=PROMISES[promise], rounds=2, seed=3)
    assert random.getstate() == states[0]
    assert np.random.get_state()[1].tolist() == states[1]
    assert torch.equal(torch.get_rng_state(), states[2])
    assert all(torch.equal(values, before[name]) for name, values in module.state_dict().items())
    assert all(values.grad is None and values.requires_grad for values in module.parameters())
    assert torch.get_num_threads() == threads


def test_a_rehearsal_does_not_depend_on_the_global_random_state():
    states = []
    for seed in (1, 2):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            states.append(trained(TASKS["custom"](STEPS), federation(3), PROMISES["record"], Local()))
    assert np.array_equal(states[0], states[1])
