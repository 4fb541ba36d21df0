"""Every loss on a grid: slopes and hazards are what they say, and it learns what Cox learns."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tacit
from tacit.learning.batches import Batch
from tacit.learning.perceptron import build_perceptron
from tacit.sites.splits import Iid
from tacit.sites.table import from_arrays
from tacit.survival import LogisticHazard, PCHazard, PoissonPH
from tacit.survival.data import simulate
from tacit.survival.data.sources import Simulated
from tacit.survival.models.losses import HazardLoss, PiecewiseLoss, PoissonLoss

ENDS = (0.5, 1.0, 2.5)
LOSSES = (HazardLoss, PiecewiseLoss, PoissonLoss)
TASKS = (LogisticHazard, PCHazard, PoissonPH)
times = st.one_of(st.floats(0.01, 4), st.sampled_from(ENDS))
outputs = st.lists(st.floats(-4, 4), min_size=3, max_size=3).map(np.array)


@pytest.mark.parametrize("kind", LOSSES)
@given(times, st.booleans(), outputs)
def test_slopes_are_the_derivatives_of_the_values(kind, time, event, at):
    loss = kind(ENDS)
    targets = {"time": np.array([time]), "event": np.array([float(event)])}
    step = 1e-6
    nearby = at + step * np.concatenate([np.eye(3), -np.eye(3)])
    many = {name: np.repeat(values, 6) for name, values in targets.items()}
    up, down = np.split(loss.values(nearby, many), 2)
    found = loss.slopes(at[None], targets, np.ones(1, dtype=bool))[0]
    assert found == pytest.approx((up - down) / (2 * step), abs=1e-5)


@pytest.mark.parametrize("kind", LOSSES)
def test_a_record_counts_as_often_as_its_weight_says_in_value_and_slopes(kind):
    draws = np.random.default_rng(4)
    at, weight = draws.normal(size=(7, 3)), np.array([0.0, 0.5, 1.0, 2.0, 3.5, 1e-3, 40.0])
    targets = {"time": draws.uniform(0.1, 3, 7), "event": draws.integers(0, 2, 7) * 1.0}
    loss, present = kind(ENDS), np.ones(7, dtype=bool)
    weighted = {**targets, "weight": weight}
    assert loss.values(at, weighted) == pytest.approx(weight * loss.values(at, targets))
    assert loss.slopes(at, weighted, present) == pytest.approx(
        weight[:, None] * loss.slopes(at, targets, present)
    )


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("hazard", [0.01, 0.3, 2.0])
def test_resting_outputs_stand_for_their_hazard(kind, hazard):
    loss = kind(ENDS)
    assert loss.increments(np.full(3, loss.initial_output(hazard))) == pytest.approx(np.full(3, hazard))


@pytest.mark.parametrize("kind", [PiecewiseLoss, PoissonLoss])
def test_the_loss_is_the_likelihood_of_constant_hazards(kind):
    loss, added = kind(ENDS), np.array([0.3, 0.2, 0.9])
    at = np.array([[loss.initial_output(hazard) for hazard in added]])
    lived = 0.3 + 0.2 + 0.9 * (1.6 - 1.0) / 1.5
    for event, expected in ((0.0, lived), (1.0, lived - np.log(0.9))):
        targets = {"time": np.array([1.6]), "event": np.array([event])}
        assert loss.values(at, targets) == pytest.approx([expected])


def test_a_spread_output_has_the_gradients_that_torch_finds():
    draws = np.random.default_rng(0)
    table = from_arrays(
        draws.normal(size=(6, 4)), time=draws.uniform(0.1, 3, 6), event=draws.integers(0, 2, 6)
    )
    program = build_perceptron([4, 5, 1], "tanh", PoissonLoss(ENDS), spread=3)
    weights = draws.normal(size=(1, program.size))
    batch = Batch(np.arange(6)[None, :, None], np.ones((1, 6, 1), dtype=bool))
    contributions = program.contributions(weights, batch, table)
    for record in range(6):
        factors = np.zeros((1, 6))
        factors[0, record] = 1.0
        expected = torch_gradient(weights[0], table, record)
        assert contributions.total(factors)[0] == pytest.approx(expected, abs=1e-10)
        assert contributions.lengths("l2")[0, record] == pytest.approx(np.linalg.norm(expected))
        assert contributions.lengths("l1")[0, record] == pytest.approx(np.abs(expected).sum())


def torch_gradient(weights, table, record):
    flat = torch.tensor(weights, requires_grad=True)
    first, shift, last, rates = flat.split([20, 5, 5, 3])
    x = torch.tensor(table.features[record])
    risk = torch.tanh(first.view(5, 4) @ x + shift) @ last
    edges = torch.tensor([0.0, *ENDS], dtype=torch.float64)
    time, event = table.targets["time"][record], table.targets["event"][record]
    shares = ((time - edges[:-1]) / edges.diff()).clamp(0, 1)
    own = int(np.searchsorted(ENDS, time))
    loss = (shares * torch.exp(risk + rates)).sum()
    if event and own < 3:
        loss = loss - (risk + rates[own])
    loss.backward()
    return flat.grad.numpy()


@pytest.mark.parametrize(
    "kind", [TASKS[0], *(pytest.param(kind, marks=pytest.mark.slow) for kind in TASKS[1:])]
)
def test_a_model_learns_the_signal_openly_and_privately(kind):
    federation = Simulated(records=3000, features=20).open(Iid(count=4), 3)
    task = kind(hidden=[], steps=1, sample=0.5, lr=0.2 if kind is PoissonPH else 1.0)
    promise = tacit.Privacy(unit="record", epsilon=3, delta=1e-5, clip=1.0, rehearsal=True)
    for privacy in (tacit.Open(), promise):
        run = tacit.fit(task, federation, privacy=privacy, rounds=40, seed=1)
        assert run.scores["c_index"] > 0.6
        assert run.scores["ibs"] < 0.22


def test_linear_poisson_weights_are_the_log_hazard_ratios_of_cox():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lifelines import CoxPHFitter

        frame = simulate("SDGM1", records=4000, features=5, seed=8)
        cox = CoxPHFitter().fit(frame, "time", "event").params_.to_numpy()
    table = from_arrays(frame[[f"x{i}" for i in range(1, 6)]], time=frame["time"], event=frame["event"])
    task = PoissonPH(steps=20, sample=1.0, lr=0.5, optimizer="momentum", cuts=30)
    run = tacit.fit(task, tacit.Federation({"all": table}), rounds=30, seed=1)
    assert run.state[:5] == pytest.approx(cox, abs=0.01)
