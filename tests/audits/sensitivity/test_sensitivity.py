"""One record is caught that moves what is let out further than was claimed, and honest work passes."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tacit import Federation, Privacy, Supervised
from tacit.audits.sensitivity import CoupledKey, SensitivityExceeded, check_sensitivity
from tacit.audits.sensitivity.neighbours import NeighbourCandidate
from tacit.errors import InvalidValue, NotSeparable, TacitError
from tacit.learning.perceptron import Perceptron
from tacit.learning.task import Updates
from tacit.runtime.keys import Key
from tacit.sites.table import Table, from_arrays
from tacit.survival.tasks import TASKS

ENDS = (0.5, 1.0, 2.5, 4.0)
SEPARABLE = ("logistic-hazard", "pc-hazard", "poisson-ph", "deep-hit")
GROUPED = ("deep-surv", "cox-ph", "cox-cc", "cox-time")
LAWS = ("gaussian", "laplace")


def promise(law: str = "gaussian", clip: float = 0.5, **fields) -> Privacy:
    given = {"unit": "record", "delta": 1e-5, "noise_multiplier": 1.0, "clip": clip, "mechanism": law}
    return Privacy(**{**given, **fields})


def patients(size: int = 40) -> Table:
    draw = np.random.default_rng(3)
    time = np.ceil(draw.exponential(size=size) * 4) / 4
    return from_arrays(draw.normal(size=(size, 2)), time=time, event=draw.integers(0, 2, size))


def numbers(size: int = 40) -> Table:
    draw = np.random.default_rng(4)
    x = draw.normal(size=(size, 2))
    return from_arrays(x, y=x @ [1.0, -2.0] + draw.normal(size=size))


def linear() -> nn.Module:
    module = nn.Linear(2, 1)
    with torch.no_grad():
        module.weight.fill_(0.3)
        module.bias.zero_()
    return module


def survival(kind: str, **fields):
    more = {"ranking": 0.0} if kind == "deep-hit" else {}
    return TASKS[kind](**{"hidden": (3,), "cuts": ENDS, "steps": 2, **more, **fields})


def error_of(*arguments, **fields) -> SensitivityExceeded:
    with pytest.raises(SensitivityExceeded) as caught:
        check_sensitivity(*arguments, **fields)
    return caught.value


# Honest work


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("kind", SEPARABLE)
def test_sums_over_records_use_what_is_claimed_and_no_more(kind, law):
    found = check_sensitivity(survival(kind), patients(), privacy=promise(law), neighbours=60)
    assert found.claim == 0.5
    assert 0.99 < found.ratio <= 1 + 1e-8


def test_counts_of_records_move_by_what_discrete_noise_is_charged_for():
    """By one whole cell, however wild the record is."""
    task = TASKS["kaplan-meier"](grid=ENDS)
    found = check_sensitivity(task, patients(), privacy=promise("laplace", delta=0.0), neighbours=100)
    assert (found.ratio, found.claim) == (1.0, 1.0)


@pytest.mark.parametrize("kind", GROUPED)
def test_risk_groups_move_by_more_than_the_clip_and_by_twice_at_most(kind):
    task = survival(kind, groups_per_site=3, **({"hidden": ()} if kind == "cox-ph" else {}))
    found = check_sensitivity(task, patients(), privacy=promise("laplace"), neighbours=100)
    assert 0.6 < found.ratio <= 1 + 1e-8


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    "module", [linear(), nn.Sequential(nn.LayerNorm(2), nn.Linear(2, 1))], ids=["closed form", "by torch"]
)
def test_a_loss_of_one_record_passes_whatever_it_is(module, law):
    def own(output, y):
        return torch.log1p((output[0] - y) ** 2)

    task = Supervised(module=module, loss=own, steps=1)
    found = check_sensitivity(task, numbers(), privacy=promise(law, 0.01), neighbours=30)
    assert 0.99 < found.ratio <= 1 + 1e-8


def test_questions_are_looked_at_as_well():
    """A grid of time that is bought moves by one count, and sets the sums of training in the shade."""
    found = check_sensitivity(survival("pc-hazard", cuts=4), patients(), privacy=promise(), neighbours=10)
    assert (found.what, found.moved, found.claim) == ("sum 1 of the time grid", 1.0, 1.0)
    curve = TASKS["kaplan-meier"](grid=ENDS)
    assert check_sensitivity(curve, patients(), privacy=promise(), neighbours=10).ratio == pytest.approx(1)


def test_an_exchange_moves_up_to_twice_as_far_and_is_claimed_to():
    task = Supervised(module=linear(), loss="squared", steps=2)
    found = check_sensitivity(task, numbers(), privacy=promise(), relation="replace", neighbours=60)
    assert found.claim == 1.0
    assert 0.9 < found.ratio <= 1 + 1e-8
    assert len(found.pair.one) == len(found.pair.other)


def test_sites_are_taken_together_and_the_seed_repeats():
    federation = Federation({"oslo": numbers(20), "bergen": numbers(30)})
    task = Supervised(module=linear(), loss="squared")
    first, again, other = (
        check_sensitivity(task, federation, privacy=promise(), neighbours=6, seed=seed) for seed in (1, 1, 2)
    )
    assert first.pair.other.digest() == again.pair.other.digest() != other.pair.other.digest()
    assert "supervised: one record more moves sum" in str(first)


# Work that is not what it says


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixed(Supervised):
    """A task of the user's whose slopes see all records of a step, declared to be a sum over records."""

    slope: Any

    def program(self, columns):
        return Perceptron(self._program.layers, self)

    def slopes(self, outputs, targets, present):
        """A loss of the kind that perceptrons take."""
        there = present[..., None]
        return np.where(there, self.slope(np.where(there, outputs, 0.0), targets, there), 0.0)


def partial_likelihood(outputs, targets, there):
    """Cox's slopes over everybody in the step: one more at risk changes those of all."""
    scores, time = outputs[:, :, 0, 0], targets["time"][:, :, 0]
    event, here = targets["event"][:, :, 0] * there[:, :, 0, 0], there[:, :, 0, 0]
    hazard = np.exp(scores - scores.max(axis=1, keepdims=True)) * here
    at_risk = time[:, None, :] >= time[:, :, None]
    shares = at_risk * hazard[:, None] / np.maximum((at_risk * hazard[:, None]).sum(2), 1e-300)[:, :, None]
    return ((shares * event[:, :, None]).sum(axis=1) - event)[:, :, None, None]


def of_the_mean(outputs, targets, there):
    return (outputs - targets["y"][..., None]) / np.maximum(there.sum(axis=1, keepdims=True), 1)


def normalised(outputs, targets, there):
    """As batch normalization would: outputs are centered by those of the others."""
    centre = outputs.sum(axis=1, keepdims=True) / np.maximum(there.sum(axis=1, keepdims=True), 1)
    return outputs - centre - targets["y"][..., None]


def first_output(output, **targets):
    return output[0]


@pytest.mark.parametrize("clip", [0.1, 10.0])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    ("slope", "table"),
    [(partial_likelihood, patients()), (of_the_mean, numbers()), (normalised, numbers())],
    ids=["cox", "mean", "normalised"],
)
def test_a_loss_that_mixes_records_and_says_it_does_not_is_caught(slope, table, law, clip):
    task = Mixed(module=linear(), loss=first_output, slope=slope, steps=1)
    error = error_of(task, table, privacy=promise(law, clip), neighbours=100)
    assert error.found.moved > clip
    assert error.found.claim == clip


class Halved(Supervised):
    """Risk groups that are priced like single records."""

    @property
    def separable(self):
        return True

    @property
    def groups(self):
        return "none"


def of_a_group(outputs, present, y):
    return torch.where(present, outputs[:, 0] - y, 0.0).square().sum()


def test_a_group_that_claims_the_clip_instead_of_twice_is_caught():
    task = Halved(module=linear(), loss=of_a_group, coupled=True, groups_per_site=3, steps=1)
    assert error_of(task, numbers(), privacy=promise()).found.ratio > 1.5
    honest = Supervised(module=linear(), loss=of_a_group, coupled=True, groups_per_site=3, steps=1)
    assert check_sensitivity(honest, numbers(), privacy=promise()).ratio > 0.75


class OfSize(Supervised):
    """Divides by the number of records there are, after the noise."""

    def train(self, state, cohort, mechanism, key):
        moved = super().train(state, cohort, mechanism, key)
        return replace(moved, matrix=moved.matrix / float(cohort.sizes[0]))


class AskingTwice(Supervised):
    """Takes a round of sums that nobody has paid for."""

    def train(self, state, cohort, mechanism, key):
        _ = super().train(state, cohort, mechanism, key / "first")
        return super().train(state, cohort, mechanism, key)


class Hesitant(Supervised):
    """Takes fewer steps where there are few records."""

    def train(self, state, cohort, mechanism, key):
        steps = 1 if cohort.sizes[0] < 4 else 2
        return Supervised.train(replace(self, steps=steps), state, cohort, mechanism, key)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (OfSize, "moves the update of the training, although all sums were equal, without bound"),
        (AskingTwice, "the number of sums of the training, 4 where 2 are paid for"),
        (Hesitant, "the number of sums of the training, 1 or 2"),
    ],
)
def test_what_tells_of_records_beside_the_sums_is_caught(kind, said):
    task = kind(module=linear(), loss="squared", steps=2)
    with pytest.raises(SensitivityExceeded, match=said):
        check_sensitivity(task, numbers(), privacy=promise(), neighbours=60)


class Understated(Supervised):
    """Says of its contributions that they are short."""

    def train(self, state, cohort, mechanism, key):
        _ = mechanism.noisy_sums(self, [key], 0)
        return Updates(cohort.names, np.zeros((1, 3)))

    def lengths(self, norm):
        return np.zeros((1, 1))

    def total(self, factors):
        return np.full((1, 3), np.nan)


def test_a_sum_that_is_no_number_moves_without_bound():
    error = error_of(Understated(module=linear(), loss="squared"), numbers(), privacy=promise(), neighbours=2)
    assert "moves sum 1 of the training without bound" in str(error)


# The report


def test_the_error_names_numbers_and_its_pair_shows_them_again():
    task = Mixed(module=linear(), loss=first_output, slope=normalised, steps=1)
    error = error_of(task, numbers(), privacy=promise())
    found, pair = error.found, error.found.pair
    assert isinstance(error, AssertionError)
    assert isinstance(error, TacitError)
    assert f"supervised: one record more moves sum 1 of the training by {found.moved:.4g} (l2)" in str(error)
    assert "0.5 is claimed, 200 neighbors were tried" in str(error)
    assert pair.again().moved == found.moved
    shared = len(pair.one)
    assert len(pair.other) == shared + 1
    assert np.array_equal(pair.other.features[:shared], pair.one.features)
    # By hand, from nothing but the data: each contribution clipped, then their sums.
    sums = [by_hand(table, pair.state, 0.5) for table in (pair.one, pair.other)]
    assert np.linalg.norm(sums[0] - sums[1]) == pytest.approx(found.moved, rel=1e-6)


def by_hand(table: Table, state: np.ndarray, clip: float) -> np.ndarray:
    inputs = np.concatenate([table.features, np.ones((len(table), 1))], axis=1)
    outputs = inputs @ state
    rows = (outputs - outputs.mean() - table.targets["y"])[:, None] * inputs
    with np.errstate(all="ignore"):
        size = np.abs(rows).max(axis=1, keepdims=True)
        length = size * np.linalg.norm(rows / size, axis=1, keepdims=True)
        return np.where(length > 0, rows / length * np.minimum(length, clip), 0.0).sum(axis=0)


# Functions of rows


def of_length_one(rows):
    peak = np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-300)
    length = peak * np.linalg.norm(rows / peak, axis=1, keepdims=True)
    return (rows / np.maximum(length, 1.0)).sum(axis=0)


ROWS = np.random.default_rng(0).normal(size=(30, 3))


def test_a_clipped_sum_passes_in_the_norm_of_its_clip():
    found = check_sensitivity(of_length_one, ROWS, claim=1.0)
    assert (found.subject, found.what, found.norm) == ("of_length_one", "the answer", "l2")
    assert 0.99 < found.ratio <= 1 + 1e-8
    assert check_sensitivity(of_length_one, ROWS, claim=2.0, relation="replace").ratio > 0.9


def test_an_l2_clip_that_is_claimed_for_l1_is_caught():
    error = error_of(of_length_one, ROWS, claim=1.0, norm="l1")
    assert 1.5 < error.found.moved <= np.sqrt(3) + 1e-6
    pair = error.found.pair
    apart = np.abs(of_length_one(pair.one) - of_length_one(pair.other)).sum()
    assert apart == error.found.moved == pair.again().moved


def test_an_exchange_that_is_claimed_like_one_record_more_is_caught():
    assert error_of(of_length_one, ROWS, claim=1.0, relation="replace").found.moved > 1.8


def test_a_mean_is_caught_and_a_bounded_sum_passes_within_its_bounds():
    def mean(rows):
        return rows.mean(axis=0)

    def total(rows):
        assert (rows >= [-1, 0]).all()
        assert (rows <= [1, 2]).all()
        return rows.sum(axis=0)

    bounds = ([-1.0, 0.0], [1.0, 2.0])
    assert check_sensitivity(total, bounds=bounds, claim=np.sqrt(5)).ratio > 0.95
    assert error_of(mean, bounds=bounds, claim=0.05).found.ratio > 5
    assert error_of(total, bounds=bounds, claim=2.0).found.moved > 2


# Draws


def test_draws_go_with_the_records_however_many_there_are():
    key = CoupledKey(3, True, rate=0.01) / "oslo"
    few, many = ((key / "anything").secret().uniform((4, size)) for size in (5, 6))
    assert np.array_equal(few, many[:, :5])
    assert (np.diff(few) != 0).all()
    assert ((key / "batches").secret().uniform((4, 50)) < 0.01).all()
    assert np.ptp((key / "luck").secret().uniform((9,))) == 0
    assert isinstance(key / 1 / "two", Key)


def test_neighbours_differ_in_the_last_record_alone():
    rows = np.arange(8.0).reshape(4, 2)
    one, other = NeighbourCandidate(rows, 0).sides("add-remove")
    assert (one.tolist(), other.tolist()) == (rows[:3].tolist(), rows.tolist())
    one, other = NeighbourCandidate(rows, 0).sides("replace")
    assert (one.tolist(), other.tolist()) == (rows[[0, 1, 2]].tolist(), rows[[0, 1, 3]].tolist())


# What is refused


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"claim": None}, "claim = None"),
        ({"claim": 1.0, "relation": "swap"}, "relation = 'swap'"),
        ({"claim": 1.0, "norm": "l3"}, "norm = 'l3'"),
        ({"claim": 1.0, "neighbours": 0}, "neighbours = 0"),
        ({"claim": 1.0, "privacy": promise()}, "privacy = "),
        ({"claim": 1.0, "records": None}, "records = None"),
        ({"claim": 1.0, "records": numbers()}, "records = 'Table'"),
        ({"claim": 1.0, "records": [[1.0]]}, "records = 'shape"),
        ({"claim": 1.0, "bounds": (1.0, 0.0)}, "bounds = "),
        ({"claim": 1.0, "bounds": ([0.0, 0.0], 1.0)}, "one for all, or 3"),
        ({"claim": 1.0, "bounds": (0.0, 1.0)}, "within bounds"),
    ],
)
def test_a_mistake_about_a_function_is_named(fields, said):
    with pytest.raises(InvalidValue, match=said):
        check_sensitivity(of_length_one, **{"records": ROWS, **fields})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"privacy": None}, "privacy = None"),
        ({"privacy": promise(unit="site")}, "unit = 'site'"),
        ({"privacy": promise(), "claim": 1.0}, "claim = 1.0"),
        ({"privacy": promise(), "bounds": (0, 1)}, "bounds = "),
        ({"privacy": promise(), "records": ROWS}, "records = 'ndarray'"),
    ],
)
def test_a_mistake_about_a_task_is_named(fields, said):
    with pytest.raises(InvalidValue, match=said):
        check_sensitivity(Supervised(module=linear(), loss="squared"), **{"records": numbers(), **fields})


def test_a_promise_that_cannot_be_kept_is_refused_as_in_a_run():
    with pytest.raises(NotSeparable):
        check_sensitivity(survival("deep-surv"), patients(), privacy=promise())


def test_a_rounding_that_hangs_on_the_number_of_records_is_found():
    # Alone, every record counts 0 or 1. But the order of a sum, and with it the sign of what cancels, depends
    # on how many records there are, as in the kernels of a linear algebra library.
    weights = np.random.default_rng(0).normal(size=12)

    def above(rows: np.ndarray) -> float:
        parts = rows * weights
        ordered = parts if len(rows) % 2 else parts[:, ::-1]
        return float((np.cumsum(ordered, axis=1)[:, -1] > 0).sum())

    records = np.random.default_rng(1).normal(size=(40, 12))
    with pytest.raises(SensitivityExceeded, match="rounding") as caught:
        check_sensitivity(above, records, claim=1.0)
    pair = caught.value.found.pair
    assert len(pair.other) == len(pair.one) + 1
    assert pair.again().moved > 1.0

    def steady(rows: np.ndarray) -> float:
        return float((np.cumsum(rows * weights, axis=1)[:, -1] > 0).sum())

    assert check_sensitivity(steady, records, claim=1.0).ratio == 1.0
