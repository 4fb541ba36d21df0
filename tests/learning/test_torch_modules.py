"""Modules without a closed form: the gradients that torch and Opacus give, or a refusal that says what to do.

Broken and absent units must vanish from clipped sums, and nothing may be written into the user's module.
"""

import copy
import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.errors import InvalidValue, Refused
from tacit.learning.batches import Batch
from tacit.learning.supervised import Supervised
from tacit.learning.torch_modules import (
    ParameterLayout,
    TorchLoss,
    TorchProgram,
    perceptron_of,
    refuse_running_state,
)
from tacit.sites.table import Table, from_arrays

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from opacus import GradSampleModule

COLUMNS, RECORDS = 4, 11
TOLERANCE = {"rtol": 0, "atol": 1e-10}
# Two sites of four records; the second has one absent at the end.
BATCH = Batch(
    np.array([[4, 0, 9, 2], [1, 3, 8, 0]])[:, :, None],
    np.array([[1, 1, 1, 1], [1, 1, 1, 0]], dtype=bool)[:, :, None],
)


def own(output: Tensor, y: Tensor) -> Tensor:
    return torch.sin(output * y).sum() + torch.log1p(output.square().sum())


def coupled(outputs: Tensor, present: Tensor, y: Tensor) -> Tensor:
    among = torch.where(present, outputs[:, 0], -torch.inf)
    everybody = torch.logsumexp(torch.where(present.any(), among, outputs[:, 0]), 0)
    return (torch.where(present, y, 0.0) * (everybody - outputs[:, 0])).sum()


def table(seed: int = 0) -> Table:
    draw = np.random.default_rng(seed)
    return from_arrays(draw.normal(size=(RECORDS, COLUMNS)), y=draw.normal(size=RECORDS))


def linear(outputs: int = COLUMNS, inputs: int = COLUMNS) -> nn.Linear:
    return nn.Linear(inputs, outputs)


def shared() -> nn.Module:
    layer = linear()
    return nn.Sequential(layer, nn.Tanh(), layer)


def tied() -> nn.Module:
    first, second = linear(), linear()
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second)


def half_frozen() -> nn.Module:
    module = nn.Sequential(linear(), nn.ReLU(), linear())
    module[0].requires_grad_(False)
    return module


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.inner = linear()
        self.last = linear(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x + self.scale * torch.tanh(self.inner(x)))


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def convolution() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 2), nn.Tanh(), nn.GroupNorm(3, 3), nn.Flatten(), linear(2, 9)
    )


MODULES: dict[str, Callable[[], nn.Module]] = {
    "shared layer": shared,
    "tied weights": tied,
    "frozen layer": half_frozen,
    "other gelu": lambda: nn.Sequential(linear(), nn.GELU(approximate="tanh"), linear()),
    "other softplus": lambda: nn.Sequential(linear(), nn.Softplus(beta=2.0), linear()),
    "other elu": lambda: nn.Sequential(linear(), nn.ELU(alpha=0.5), linear()),
    "leaky relu": lambda: nn.Sequential(linear(), nn.LeakyReLU(), linear()),
    "two activations": lambda: nn.Sequential(linear(), nn.Tanh(), nn.Sigmoid(), linear()),
    "nested": lambda: nn.Sequential(nn.Sequential(linear(), nn.Tanh()), linear()),
    "residual": Residual,
    "own linear": lambda: nn.Sequential(Doubled(COLUMNS, COLUMNS), nn.Tanh(), linear()),
    "layer norm": lambda: nn.Sequential(linear(), nn.LayerNorm(COLUMNS), linear(1)),
    "convolution": convolution,
    "no activation": lambda: nn.Sequential(nn.Tanh(), linear(2)),
}
# What Opacus has hooks for.
HOOKED = (
    "other gelu",
    "leaky relu",
    "nested",
    "layer norm",
    "convolution",
    "frozen layer",
    "two activations",
)


def made(name: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return MODULES[name]().double()


def weights_of_two_sites(module: nn.Module) -> np.ndarray:
    first = ParameterLayout.of(module).flatten(dict(module.named_parameters()))
    return torch.stack([first, 0.7 * first + 0.1]).numpy()


def program(module: nn.Module) -> TorchProgram:
    assert perceptron_of(module, TorchLoss.of(own, coupled=False)) is None
    return TorchProgram(module, TorchLoss.of(own, coupled=False))


def filled(module: nn.Module, weights: np.ndarray) -> nn.Module:
    """A copy of a module with these weights; what is tied stays tied."""
    other = copy.deepcopy(module)
    with torch.no_grad():
        for name, values in ParameterLayout.of(module).unflatten(torch.from_numpy(weights)).items():
            other.get_parameter(name).copy_(values)
    return other


def by_autograd(module: nn.Module, weights: np.ndarray, rows: np.ndarray) -> Tensor:
    """The gradient of each record, one backward pass after the other."""
    data, other = table(), filled(module, weights)
    trained = [values for values in other.parameters() if values.requires_grad]
    found = []
    for row in rows:
        output = other(torch.from_numpy(data.features[row : row + 1]))[0]
        loss = own(output, torch.tensor(data.targets["y"][row]))
        found.append(torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, trained)]))
    return torch.stack(found)


def by_opacus(module: nn.Module, weights: np.ndarray, rows: np.ndarray) -> Tensor:
    data, other = table(), filled(module, weights)
    y = torch.from_numpy(data.targets["y"][rows])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hooked = GradSampleModule(other, loss_reduction="sum")
        outputs = hooked(torch.from_numpy(data.features[rows]))
        torch.stack([own(output, target) for output, target in zip(outputs, y, strict=True)]).sum().backward()
    trained = [values for values in other.parameters() if values.requires_grad]
    return torch.cat([values.grad_sample.reshape(len(rows), -1) for values in trained], dim=1)


def written(contributions, sites: int, units: int) -> Tensor:
    chosen = [np.tile(row, (sites, 1)) for row in np.eye(units)]
    return torch.from_numpy(np.stack([contributions.total(factors) for factors in chosen], axis=1))


# Gradients


@pytest.mark.parametrize("name", MODULES)
def test_every_gradient_is_that_of_a_backward_pass(name):
    module = made(name)
    weights = weights_of_two_sites(module)
    first, second = (by_autograd(module, weights[site], BATCH.rows[site, :, 0]) for site in (0, 1))
    found = written(program(module).contributions(weights, BATCH, table()), 2, 4)
    torch.testing.assert_close(found[0], first, **TOLERANCE)
    torch.testing.assert_close(found[1, :3], second[:3], **TOLERANCE)
    assert found[1, 3].abs().max() == 0
    assert float(first.abs().max()) > 1e-3


@pytest.mark.parametrize("name", HOOKED)
def test_every_gradient_is_that_of_opacus(name):
    module = made(name)
    weights = weights_of_two_sites(module)
    found = written(program(module).contributions(weights, BATCH, table()), 2, 4)
    expected = by_opacus(module, weights[0], BATCH.rows[0, :, 0])
    torch.testing.assert_close(found[0], expected, **TOLERANCE)


@pytest.mark.parametrize("name", MODULES)
def test_the_sum_without_factors_is_the_sum_of_all_gradients(name):
    module = made(name)
    contributions = program(module).contributions(weights_of_two_sites(module), BATCH, table())
    directly = torch.from_numpy(contributions.total(None))
    torch.testing.assert_close(directly, written(contributions, 2, 4).sum(dim=1), **TOLERANCE)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize(("norm", "order"), [("l2", 2), ("l1", 1)])
def test_lengths_are_those_of_the_gradients(name, norm, order):
    module = made(name)
    contributions = program(module).contributions(weights_of_two_sites(module), BATCH, table())
    expected = np.linalg.norm(written(contributions, 2, 4).numpy(), ord=order, axis=-1)
    np.testing.assert_allclose(contributions.lengths(norm), expected, rtol=1e-12)
    assert contributions.lengths(norm)[1, 3] == 0


@pytest.mark.parametrize("name", MODULES)
def test_the_same_question_has_the_same_answer(name):
    module = made(name)
    weights, asked = weights_of_two_sites(module), program(module)
    answers = [asked.contributions(weights, BATCH, table()).total(None) for _ in range(3)]
    assert np.array_equal(answers[0], answers[1])
    assert np.array_equal(answers[0], answers[2])


def test_factors_multiply_gradients():
    module = made("residual")
    contributions = program(module).contributions(weights_of_two_sites(module), BATCH, table())
    factors = np.array([[0.5, 0.0, 2.0, 1.0], [3.0, 1.0, 0.0, 1.0]])
    expected = (torch.from_numpy(factors).unsqueeze(-1) * written(contributions, 2, 4)).sum(dim=1)
    torch.testing.assert_close(torch.from_numpy(contributions.total(factors)), expected, **TOLERANCE)


def test_a_plain_stack_gets_the_same_numbers_both_ways():
    module = nn.Sequential(linear(), nn.SiLU(), linear(3)).double()
    weights = weights_of_two_sites(module)
    closed = perceptron_of(module, TorchLoss.of(own, coupled=False))
    assert closed is not None
    one, other = (
        each.contributions(weights, BATCH, table())
        for each in (closed, TorchProgram(module, TorchLoss.of(own, coupled=False)))
    )
    torch.testing.assert_close(written(one, 2, 4), written(other, 2, 4), **TOLERANCE)
    for norm in ("l2", "l1"):
        np.testing.assert_allclose(one.lengths(norm), other.lengths(norm), rtol=1e-12)


@pytest.mark.parametrize("name", MODULES)
def test_outputs_are_those_of_the_module(name):
    module = made(name)
    weights, features = weights_of_two_sites(module), table().features
    with torch.no_grad():
        expected = torch.stack([filled(module, vector)(torch.from_numpy(features)) for vector in weights])
    found = program(module).outputs(weights, np.stack([features, features]))
    torch.testing.assert_close(torch.from_numpy(found), expected, **TOLERANCE)


# Groups


GROUPS = Batch(
    np.array([[[4, 0, 9], [2, 7, 0], [0, 0, 0]], [[1, 3, 0], [8, 7, 5], [6, 0, 0]]]),
    np.array([[[1, 1, 1], [1, 1, 0], [0, 0, 0]], [[1, 1, 0], [1, 1, 1], [1, 0, 0]]], dtype=bool),
)


def test_the_gradient_of_a_group_is_that_of_its_members_alone():
    module, data = made("residual"), table()
    weights = weights_of_two_sites(module)
    found = written(
        TorchProgram(module, TorchLoss.of(coupled, coupled=True)).contributions(weights, GROUPS, data), 2, 3
    )
    for site, unit in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]:
        rows = GROUPS.rows[site, unit][GROUPS.present[site, unit]]
        other = filled(module, weights[site])
        outputs = other(torch.from_numpy(data.features[rows]))
        loss = coupled(
            outputs, torch.ones(len(rows), dtype=torch.bool), torch.from_numpy(data.targets["y"][rows])
        )
        expected = torch.cat(
            [part.reshape(-1) for part in torch.autograd.grad(loss, list(other.parameters()))]
        )
        torch.testing.assert_close(found[site, unit], expected, **TOLERANCE)
    assert found[0, 2].abs().max() == 0
    assert float(found[0, 0].abs().max()) > 1e-2


def test_both_ways_to_add_up_groups_agree():
    module = made("residual")
    contributions = TorchProgram(module, TorchLoss.of(coupled, coupled=True)).contributions(
        weights_of_two_sites(module), GROUPS, table()
    )
    np.testing.assert_allclose(
        contributions.total(None), written(contributions, 2, 3).sum(dim=1).numpy(), atol=1e-12
    )


# Broken records


def singular(output: Tensor, y: Tensor) -> Tensor:
    """Finite, but without a finite slope where the root is zero."""
    return torch.sqrt(y.square() * output.square().sum()) + y * output[0]


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("value", [0.0, 1e200])
def test_a_record_without_a_finite_gradient_vanishes_and_leaves_the_others_alone(norm, value):
    module, data, wild = made("residual"), table(), table()
    wild.targets["y"][9] = value
    weights = weights_of_two_sites(module)
    if value == 0:
        broken = TorchProgram(module, TorchLoss.of(singular, coupled=False))
    else:
        broken = TorchProgram(
            module, TorchLoss.of(lambda output, y: (y * output).square().sum(), coupled=False)
        )
    contributions = broken.contributions(weights, BATCH, wild)
    lengths = contributions.lengths(norm)
    assert np.argwhere(np.isinf(lengths)).tolist() == [[0, 2]]
    factors = 1.0 / np.maximum(lengths, 1.0)
    expected = broken.contributions(weights, BATCH, data).total(factors)
    assert factors[0, 2] == 0
    np.testing.assert_allclose(contributions.total(factors), expected, rtol=1e-12, atol=1e-15)


def test_nobody_has_no_length_even_where_a_place_is_filled_with_a_broken_record():
    # Absent units stand on some position of the store; whatever lies there is nobody's contribution.
    module, wild = made("residual"), table()
    wild.targets["y"][0] = 0.0
    weights = weights_of_two_sites(module)
    contributions = TorchProgram(module, TorchLoss.of(singular, coupled=False)).contributions(
        weights, BATCH, wild
    )
    lengths = contributions.lengths("l2")
    assert np.argwhere(np.isinf(lengths)).tolist() == [[0, 1]]
    assert lengths[1, 3] == 0
    assert bool(np.isfinite(contributions.total(1.0 / np.maximum(lengths, 1.0))).all())


# Refusals


class Buffered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = linear()
        self.register_buffer("shift", torch.ones(COLUMNS))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + self.shift


REFUSED = {
    "batch norm": (
        nn.Sequential(linear(), nn.BatchNorm1d(COLUMNS)),
        r"^1 \(BatchNorm1d\).*nn.GroupNorm or nn.LayerNorm",
    ),
    "batch norm without memory": (
        nn.Sequential(linear(), nn.BatchNorm1d(COLUMNS, track_running_stats=False)),
        "nn.GroupNorm",
    ),
    "nested batch norm": (
        nn.Sequential(nn.Sequential(linear(), nn.BatchNorm1d(COLUMNS))),
        r"^0\.1 \(BatchNorm1d\)",
    ),
    "dropout": (nn.Sequential(linear(), nn.Dropout(0.5)), r"^1 \(Dropout\).*leave it out.*proximal"),
    "dropout of channels": (nn.Sequential(linear(), nn.Dropout2d(0.1)), "leave it out"),
    "buffer": (Buffered(), "^shift is a buffer.*parameter or constant"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_running_state_is_refused_with_what_to_use_instead(name):
    module, said = REFUSED[name]
    with pytest.raises(Refused, match=said):
        refuse_running_state(module)
    with pytest.raises(Refused, match=said):
        TorchProgram(module, TorchLoss.of(own, coupled=False))
    with pytest.raises(Refused, match=said):
        Supervised(module=module, loss="squared")


def test_a_module_that_is_a_batch_norm_itself_is_refused_by_name():
    with pytest.raises(Refused, match=r"^module \(BatchNorm1d\)"):
        refuse_running_state(nn.BatchNorm1d(3))


@pytest.mark.parametrize(
    "part", [nn.Dropout(0.0), nn.LayerNorm(COLUMNS), nn.GroupNorm(2, COLUMNS), nn.Softmax(dim=-1)]
)
def test_what_looks_at_one_record_alone_is_allowed(part):
    refuse_running_state(nn.Sequential(linear(), part))


def test_a_module_without_anything_to_train_is_refused():
    module = nn.Sequential(linear(), nn.Tanh(), nn.Tanh())
    module.requires_grad_(False)
    with pytest.raises(InvalidValue, match="no parameters to train"):
        TorchProgram(module, TorchLoss.of(own, coupled=False))


# The user's module


def test_the_module_is_left_as_it_was():
    module = made("frozen layer").train()
    before = copy.deepcopy(module.state_dict())
    contributions = program(module).contributions(weights_of_two_sites(module), BATCH, table())
    contributions.lengths("l2")
    contributions.total(np.ones((2, 4)))
    contributions.total(None)
    assert all(torch.equal(values, before[name]) for name, values in module.state_dict().items())
    assert all(values.grad is None for values in module.parameters())
    assert [values.requires_grad for values in module.parameters()] == [False, False, True, True]
    assert module.training


def test_what_is_frozen_takes_part_but_has_no_place_in_the_vector():
    module = made("frozen layer")
    found = program(module)
    assert found.size == COLUMNS * COLUMNS + COLUMNS
    before = found.outputs(weights_of_two_sites(module)[:1], table().features[None])
    with torch.no_grad():
        module[0].weight.mul_(2)
    other = program(module)
    after = other.outputs(weights_of_two_sites(module)[:1], table().features[None])
    assert not np.allclose(before, after)


def test_a_module_in_single_precision_is_computed_in_double():
    module = made("residual").float()
    weights = weights_of_two_sites(module)
    found = written(program(module).contributions(weights, BATCH, table()), 2, 4)
    assert found.dtype == torch.float64
    expected = by_autograd(module.double(), weights[0], BATCH.rows[0, :, 0])
    torch.testing.assert_close(found[0], expected, **TOLERANCE)
    assert math.isfinite(float(found.abs().max()))
