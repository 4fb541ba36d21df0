"""The closed form gives the gradient of every record that torch and Opacus give, and their lengths.

Gradients are never written out by the closed form. Here they are, one at a time, by factors that are one for
a single record and zero for all others.
"""

import itertools
import math
import warnings
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tacit.learning.batches import Batch
from tacit.learning.perceptron import (
    ACTIVATIONS,
    NAMED,
    Layer,
    OuterProducts,
    Perceptron,
    build_perceptron,
)
from tacit.learning.torch_modules import KNOWN, ParameterLayout, TorchLoss, perceptron_of
from tacit.sites.table import Table, from_arrays

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from opacus import GradSampleModule

COLUMNS, CLASSES, RECORDS = 3, 4, 11
# Ours and torch.func's are doubles, and so is the module that Opacus gets.
TOLERANCE = {"rtol": 0, "atol": 1e-10}
MODULES = {name: kind for kind, name in KNOWN.items()}
# Two sites of five records; the second has two absent at the end, of which nothing may be seen.
ROWS = np.array([[4, 0, 9, 2, 7], [1, 3, 8, 0, 0]])[:, :, None]
PRESENT = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=bool)[:, :, None]
BATCH = Batch(ROWS, PRESENT)


def own(output: Tensor, y: Tensor) -> Tensor:
    """A loss that nobody has named: it looks at every output, and it is not convex."""
    return torch.sin(output * y).sum() + torch.log1p(output.square().sum())


def coupled(outputs: Tensor, present: Tensor, y: Tensor) -> Tensor:
    """A loss of a whole group, like Cox's: everybody present is compared with everybody."""
    among = torch.where(present, outputs[:, 0], -torch.inf)
    return (torch.where(present, y, 0.0) * (torch.logsumexp(among, 0) - outputs[:, 0])).sum()


def chosen(output: Tensor, y: Tensor) -> Tensor:
    picked = (torch.arange(len(output)) == y).to(output.dtype)
    return -(picked * torch.log_softmax(output, dim=-1)).sum()


# The named losses, written out a second time.
LOSSES: dict[str, Callable[..., Tensor]] = {
    "squared": lambda output, y: nn.functional.mse_loss(output[0], y) / 2,
    "logistic": lambda output, y: nn.functional.binary_cross_entropy_with_logits(output[0], y),
    "cross-entropy": chosen,
    "own": own,
}


def table(seed: int = 0) -> Table:
    draw = np.random.default_rng(seed)
    return from_arrays(draw.normal(size=(RECORDS, COLUMNS)), y=draw.integers(0, CLASSES, RECORDS))


def network(activation: str, hidden: int, bias: bool, *, last: str | None = None) -> nn.Sequential:
    torch_seed = torch.Generator().manual_seed(hidden + 10 * bias)
    widths = [COLUMNS, *[5, 4, 6][:hidden], CLASSES]
    parts: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        parts += [nn.Linear(inputs, outputs, bias=bias), MODULES[activation]()]
    made = nn.Sequential(*parts[:-1], *([MODULES[last]()] if last else []))
    with torch.no_grad():
        for values in made.parameters():
            values.copy_(torch.randn(values.shape, generator=torch_seed))
    return made.double()


def weights_of_two_sites(module: nn.Module) -> np.ndarray:
    first = ParameterLayout.of(module).flatten(dict(module.named_parameters()))
    return torch.stack([first, 0.7 * first + 0.1]).numpy()


def closed(module: nn.Module, loss: str) -> Perceptron:
    found = perceptron_of(module, NAMED[loss] if loss in NAMED else TorchLoss.of(own, coupled=False))
    assert found is not None
    return found


def written(contributions: OuterProducts, units: int) -> Tensor:
    """The gradient of every unit (sites, units, coordinates)."""
    sites = len(contributions.inputs[0])
    chosen = [np.tile(row, (sites, 1)) for row in np.eye(units)]
    return torch.from_numpy(np.stack([contributions.total(factors) for factors in chosen], axis=1))


def clipping(lengths: np.ndarray, clip: float) -> np.ndarray:
    """The factors that clip: at most 1, and 0 for what is broken."""
    return clip / np.maximum(lengths, clip)


def flat(parts: dict[str, Tensor], layout: ParameterLayout) -> Tensor:
    return torch.cat([parts[name].reshape(-1) for name in layout.names])


def by_func(module: nn.Module, weights: np.ndarray, batch: Batch, loss: Callable[..., Tensor]) -> Tensor:
    """The same by `torch.func`, for batches of single records; zero where nobody is."""
    data, layout = table(), ParameterLayout.of(module)

    def of_record(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return loss(functional_call(module, parameters, (x.unsqueeze(0),))[0], y).sum()

    rows = []
    for vector, places, there in zip(weights, batch.rows[:, :, 0], batch.present[:, :, 0], strict=True):
        parameters = layout.unflatten(torch.from_numpy(vector))
        x, y = torch.from_numpy(data.features[places]), torch.from_numpy(data.targets["y"][places])
        found = vmap(grad(of_record), in_dims=(None, 0, 0))(parameters, x, y)
        each = torch.stack([flat({name: part[i] for name, part in found.items()}, layout) for i in range(5)])
        rows.append(torch.where(torch.from_numpy(there)[:, None], each, 0.0))
    return torch.stack(rows)


def by_opacus(module: nn.Module, weights: np.ndarray, batch: Batch, loss: Callable[..., Tensor]) -> Tensor:
    """The same by Opacus, from hooks."""
    data, layout, rows = table(), ParameterLayout.of(module), []
    for vector, places, there in zip(weights, batch.rows[:, :, 0], batch.present[:, :, 0], strict=True):
        with torch.no_grad():
            for name, values in layout.unflatten(torch.from_numpy(vector)).items():
                module.get_parameter(name).copy_(values)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            hooked = GradSampleModule(module, loss_reduction="sum")
            outputs = hooked(torch.from_numpy(data.features[places]))
            y = torch.from_numpy(data.targets["y"][places])
            torch.stack(
                [loss(output, target).sum() for output, target in zip(outputs, y, strict=True)]
            ).sum().backward()
        parts = {name: module.get_parameter(name).grad_sample for name in layout.names}
        each = torch.stack([flat({name: part[i] for name, part in parts.items()}, layout) for i in range(5)])
        rows.append(torch.where(torch.from_numpy(there)[:, None], each.detach(), 0.0))
        hooked.to_standard_module()
    return torch.stack(rows)


EVERY_NETWORK = [
    pytest.param(activation, hidden, bias, id=f"{activation}-{hidden}-{'bias' if bias else 'no bias'}")
    for activation in ACTIVATIONS
    for hidden in range(4)
    for bias in (True, False)
    # Without a hidden layer there is no activation to vary.
    if hidden or activation == "relu"
]


# Gradients


@pytest.mark.parametrize("activation", ["identity", "tanh"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_full_batch_has_the_gradients_that_it_has_beside_absent_records(activation, outputs):
    # A full batch takes a shorter way. An activation behind the outputs works on the slopes of the loss.
    layers = [Layer(COLUMNS, 4, True, "relu", 0)]
    layers.append(Layer(4, outputs, True, activation, layers[0].end))
    program = Perceptron(layers, NAMED["squared"])
    weights = np.random.default_rng(3).normal(size=(1, program.size))
    beside = np.concatenate([PRESENT[:1], np.zeros_like(PRESENT[:1])], axis=1)
    full, padded = Batch(ROWS[:1], PRESENT[:1]), Batch(np.tile(ROWS[:1], (1, 2, 1)), beside)
    one, other = (program.contributions(weights, batch, table()) for batch in (full, padded))
    np.testing.assert_allclose(written(one, 5), written(other, 10)[:, :5], **TOLERANCE)
    assert not written(other, 10)[:, 5:].any()
    np.testing.assert_allclose(one.lengths("l2"), other.lengths("l2")[:, :5], **TOLERANCE)


@pytest.mark.parametrize(("activation", "hidden", "bias"), EVERY_NETWORK)
def test_every_gradient_is_that_of_torch_func(activation, hidden, bias):
    module = network(activation, hidden, bias)
    weights = weights_of_two_sites(module)
    for loss, written_out in LOSSES.items():
        found = written(closed(module, loss).contributions(weights, BATCH, table()), 5)
        expected = by_func(module, weights, BATCH, written_out)
        torch.testing.assert_close(
            found, expected, **TOLERANCE, msg=lambda said, loss=loss: f"{loss}: {said}"
        )


# Every activation and every loss once; torch.func, which takes no hooks of modules, has all networks.
@pytest.mark.parametrize(("activation", "hidden", "bias"), [
    (activation, 1 + place % 3, place % 2 == 0) for place, activation in enumerate(ACTIVATIONS)
])  # fmt: skip
def test_gradients_are_those_of_opacus(activation, hidden, bias):
    module = network(activation, hidden, bias)
    weights = weights_of_two_sites(module)
    loss = list(LOSSES)[list(ACTIVATIONS).index(activation) % len(LOSSES)]
    found = written(closed(module, loss).contributions(weights, BATCH, table()), 5)
    torch.testing.assert_close(found, by_opacus(module, weights, BATCH, LOSSES[loss]), **TOLERANCE)


@pytest.mark.parametrize("last", ACTIVATIONS)
@pytest.mark.parametrize("hidden", [0, 2])
def test_an_activation_behind_the_last_layer_counts_too(hidden, last):
    module = network("tanh", hidden, True, last=last)
    weights = weights_of_two_sites(module)
    found = written(closed(module, "own").contributions(weights, BATCH, table()), 5)
    torch.testing.assert_close(found, by_func(module, weights, BATCH, own), **TOLERANCE)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_outputs_are_those_of_the_module(activation):
    module = network(activation, 2, True)
    features = table().features
    weights = weights_of_two_sites(module)[:1]
    found = closed(module, "squared").outputs(weights, features[None])[0]
    with torch.no_grad():
        expected = module(torch.from_numpy(features))
    torch.testing.assert_close(torch.from_numpy(found), expected, **TOLERANCE)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_and_their_slopes_are_those_of_torch_far_out_too(activation):
    places = np.concatenate([np.linspace(-scale, scale, 101) for scale in (1e-8, 1.0, 30.0, 300.0)])
    made, slope = ACTIVATIONS[activation]
    inputs = torch.tensor(places, requires_grad=True)
    outputs = MODULES[activation]()(inputs)
    outputs.sum().backward()
    # Torch's softplus is a straight line from 20 on, which is off by e^-20.
    room = 3e-9 if activation == "softplus" else 1e-12
    ours = made(places.copy())
    np.testing.assert_allclose(ours, outputs.detach().numpy(), rtol=1e-12, atol=room)
    found = np.broadcast_to(np.asarray(slope(places, ours), dtype=np.float64), places.shape)
    assert inputs.grad is not None
    np.testing.assert_allclose(found, inputs.grad.numpy(), rtol=1e-12, atol=room)


def test_the_sum_without_factors_is_the_sum_of_all_gradients():
    module = network("gelu", 2, True)
    weights = weights_of_two_sites(module)
    contributions = closed(module, "own").contributions(weights, BATCH, table())
    expected = by_func(module, weights, BATCH, own).sum(dim=1)
    torch.testing.assert_close(torch.from_numpy(contributions.total(None)), expected, **TOLERANCE)


def test_factors_multiply_gradients():
    module = network("silu", 1, True)
    weights = weights_of_two_sites(module)
    factors = np.array([[0.5, 0.0, 2.0, 1.0, 0.1], [3.0, 1.0, 0.0, 1.0, 1.0]])
    found = closed(module, "logistic").contributions(weights, BATCH, table()).total(factors)
    each = by_func(module, weights, BATCH, LOSSES["logistic"])
    expected = (torch.from_numpy(factors).unsqueeze(-1) * each).sum(dim=1)
    torch.testing.assert_close(torch.from_numpy(found), expected, **TOLERANCE)


def test_what_was_asked_before_does_not_change_an_answer():
    module = network("relu", 2, True)
    contributions = closed(module, "own").contributions(weights_of_two_sites(module), BATCH, table())
    before = contributions.total(None).copy()
    contributions.lengths("l2")
    contributions.total(np.zeros((2, 5)))
    contributions.total(np.full((2, 5), 3.0))
    assert np.array_equal(contributions.total(None), before)


def test_the_weights_of_the_sites_and_their_records_are_left_as_they_were():
    module = network("tanh", 2, True)
    weights, data = weights_of_two_sites(module), table()
    before = weights.copy()
    closed(module, "own").contributions(weights, BATCH, data).total(None)
    assert np.array_equal(weights, before)
    assert np.array_equal(data.features, table().features)


# Lengths


@pytest.mark.parametrize(("activation", "hidden", "bias"), EVERY_NETWORK)
def test_lengths_are_those_of_the_gradients_written_out(activation, hidden, bias):
    module = network(activation, hidden, bias)
    weights = weights_of_two_sites(module)
    for loss in LOSSES:
        contributions = closed(module, loss).contributions(weights, BATCH, table())
        each = written(contributions, 5).numpy()
        for norm, order in (("l2", 2), ("l1", 1)):
            expected = np.linalg.norm(each, ord=order, axis=-1)
            np.testing.assert_allclose(contributions.lengths(norm), expected, rtol=1e-12, atol=1e-14)


def test_nobody_has_no_length():
    module = network("relu", 1, True)
    found = closed(module, "own").contributions(weights_of_two_sites(module), BATCH, table()).lengths("l2")
    assert found[1, 3:].tolist() == [0, 0]
    assert bool((found[0] > 0).all())


@settings(max_examples=60)
@given(st.data())
def test_lengths_of_any_outer_products_are_those_written_out(data):
    sites, units, members = (data.draw(st.integers(1, 3)) for _ in range(3))
    bias = data.draw(st.booleans())
    numbers = st.floats(-100, 100, allow_subnormal=False)
    entering = data.draw(arrays.arrays(np.float64, (sites, units * members, 3), elements=numbers))
    back = data.draw(arrays.arrays(np.float64, (sites, units * members, 2), elements=numbers))
    products = OuterProducts([Layer(3, 2, bias, "identity", 0)], [entering], [back], units)
    each = written(products, units)
    for norm, order in (("l2", 2), ("l1", 1)):
        # Products of numbers up to 100, three members: what cancels leaves roundings of that size.
        room = {"l2": 1e-2, "l1": 2e-2}[norm] if members > 1 else 1e-9
        expected = each.norm(p=order, dim=-1)
        found = torch.from_numpy(products.lengths(norm))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=room)
        # A length may be a little too long, never too short.
        assert bool((found >= expected * (1 - 1e-12) - 1e-12).all())


# Groups


MEMBERS = np.array([[[4, 0, 9], [2, 0, 0], [0, 0, 0]], [[1, 3, 0], [8, 7, 5], [6, 0, 0]]])
THERE = np.array([[[1, 1, 1], [1, 0, 0], [0, 0, 0]], [[1, 1, 0], [1, 1, 1], [1, 0, 0]]], dtype=bool)
GROUPS = Batch(MEMBERS, THERE)


def of_groups(module: nn.Module, weights: np.ndarray) -> Tensor:
    """The gradient of each group by `torch.func`, formed from its members alone."""
    data, layout, found = table(), ParameterLayout.of(module), []

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return coupled(functional_call(module, parameters, (x,)), torch.ones(len(x), dtype=torch.bool), y)

    for site, vector in enumerate(weights):
        for unit in range(3):
            places = MEMBERS[site, unit][THERE[site, unit]]
            x, y = torch.from_numpy(data.features[places]), torch.from_numpy(data.targets["y"][places])
            parameters = layout.unflatten(torch.from_numpy(vector))
            row = (
                flat(grad(loss)(parameters, x, y), layout)
                if len(places)
                else torch.zeros(layout.size).double()
            )
            found.append(row)
    return torch.stack(found).reshape(len(weights), 3, -1)


GROUP_NETWORKS = [("tanh", 0, True), ("tanh", 1, True), ("silu", 2, False), ("softplus", 3, True)]


@pytest.mark.parametrize(("activation", "hidden", "bias"), GROUP_NETWORKS)
def test_the_gradient_of_a_group_is_that_of_its_members_alone(activation, hidden, bias):
    module = network(activation, hidden, bias)
    weights = weights_of_two_sites(module)
    program = perceptron_of(module, TorchLoss.of(coupled, coupled=True))
    assert program is not None
    found = written(program.contributions(weights, GROUPS, table()), 3)
    torch.testing.assert_close(found, of_groups(module, weights), **TOLERANCE)


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize(("activation", "hidden", "bias"), GROUP_NETWORKS)
def test_the_length_of_a_group_is_that_of_its_sum(activation, hidden, bias, norm):
    module = network(activation, hidden, bias)
    weights = weights_of_two_sites(module)
    program = perceptron_of(module, TorchLoss.of(coupled, coupled=True))
    assert program is not None
    found = program.contributions(weights, GROUPS, table()).lengths(norm)
    expected = of_groups(module, weights).norm(p=2 if norm == "l2" else 1, dim=-1)
    # A group of one has no gradient here: it is compared with itself alone.
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-6, atol=1e-4)
    assert float(expected.max()) > 0.1


@pytest.mark.parametrize("scale", [1e8, 1e10, 1e12, 1e15])
@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_members_that_cancel_are_clipped_as_well(scale, norm):
    draw = np.random.default_rng(3)
    entering = scale * (1 + 1e-8 * draw.normal(size=(1, 4, 3)))
    back = draw.normal(size=(1, 4, 2))
    back -= back.mean(axis=1, keepdims=True)
    products = OuterProducts([Layer(3, 2, True, "identity", 0)], [entering], [back], 1)
    clipped = products.total(clipping(products.lengths(norm), 1.0))[0]
    exact = [sum(Fraction(b) * Fraction(a) for b, a in zip(back[0, :, o], entering[0, :, i], strict=True))
             for o in range(2) for i in range(3)]  # fmt: skip
    length = np.linalg.norm(clipped, ord=2 if norm == "l2" else 1)
    assert length <= 1 + 1e-7
    factor = float(clipping(products.lengths(norm), 1.0)[0, 0])
    assert abs(factor) * max(abs(float(value)) for value in exact) <= 1


@settings(max_examples=50)
@given(st.floats(1e-3, 1e3), st.integers(0, 2**31))
def test_no_clipped_group_is_longer_than_the_bound(clip, seed):
    draw = np.random.default_rng(seed)
    entering, back = draw.normal(size=(1, 12, 4)) * 10, draw.normal(size=(1, 12, 3)) * 10
    products = OuterProducts([Layer(4, 3, True, "identity", 0)], [entering], [back], 4)
    for norm, order in (("l2", 2), ("l1", 1)):
        factors = clipping(products.lengths(norm), clip)
        clipped = np.stack([products.total(factors * np.eye(4)[i])[0] for i in range(4)])
        assert float(np.linalg.norm(clipped, ord=order, axis=-1).max()) <= clip * (1 + 1e-9)


# Broken records


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf, 1e200])
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("where", ["inputs", "signals"])
def test_a_broken_record_has_infinite_length_and_vanishes(broken, norm, members, where):
    draw = np.random.default_rng(1)
    parts = {"inputs": draw.normal(size=(2, 6, 3)), "signals": draw.normal(size=(2, 6, 2))}
    whole = {name: values.copy() for name, values in parts.items()}
    parts[where][1, 3, 1] = broken
    # A finite number whose square is not, on both sides, so that L1 lengths overflow too.
    other = "signals" if where == "inputs" else "inputs"
    parts[other][1, 3] = 1e200 if broken == 1e200 else parts[other][1, 3]
    units, unit = 6 // members, 3 // members

    def products(values: dict[str, np.ndarray]) -> OuterProducts:
        return OuterProducts(
            [Layer(3, 2, True, "identity", 0)], [values["inputs"]], [values["signals"]], units
        )

    lengths = products(parts).lengths(norm)
    assert np.argwhere(np.isinf(lengths)).tolist() == [[1, unit]]
    factors = clipping(lengths, 1e9)
    assert factors[1, unit] == 0
    assert np.array_equal(products(parts).total(factors), products(whole).total(factors))


def test_a_record_that_overflows_the_network_vanishes_and_leaves_the_others_alone():
    module = network("relu", 1, True)
    weights = weights_of_two_sites(module) * 10
    data, wild = table(), table()
    wild.features[9] = 1e308
    program = closed(module, "squared")
    with np.errstate(all="ignore"):
        contributions = program.contributions(weights, BATCH, wild)
    lengths = contributions.lengths("l2")
    assert np.argwhere(np.isinf(lengths)).tolist() == [[0, 2]]
    factors = clipping(lengths, 1.0)
    expected = program.contributions(weights, BATCH, data).total(factors)
    assert np.array_equal(contributions.total(factors), expected)


# Which modules have a closed form


def linear(inputs: int = COLUMNS, outputs: int = COLUMNS) -> nn.Linear:
    return nn.Linear(inputs, outputs)


def frozen(layer: nn.Linear, *names: str) -> nn.Linear:
    for name in names:
        layer.get_parameter(name).requires_grad_(False)
    return layer


def shared() -> nn.Module:
    layer = linear()
    return nn.Sequential(layer, nn.Tanh(), layer)


def tied() -> nn.Module:
    first, second = linear(), linear()
    second.weight = first.weight
    return nn.Sequential(first, nn.Tanh(), second)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = linear()

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.inner(x))


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Backwards(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        for part in reversed(list(self)):
            x = part(x)
        return x


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "shared layer": shared,
    "tied weights": tied,
    "frozen layer": lambda: nn.Sequential(frozen(linear(), "weight", "bias"), nn.ReLU(), linear()),
    "frozen bias": lambda: nn.Sequential(frozen(linear(), "bias"), nn.ReLU(), linear()),
    "other gelu": lambda: nn.Sequential(linear(), nn.GELU(approximate="tanh"), linear()),
    "other softplus": lambda: nn.Sequential(linear(), nn.Softplus(beta=2), linear()),
    "other elu": lambda: nn.Sequential(linear(), nn.ELU(alpha=0.5), linear()),
    "leaky relu": lambda: nn.Sequential(linear(), nn.LeakyReLU(), linear()),
    "two activations": lambda: nn.Sequential(linear(), nn.ReLU(), nn.Tanh(), linear()),
    "activation first": lambda: nn.Sequential(nn.Tanh(), linear()),
    "nested": lambda: nn.Sequential(nn.Sequential(linear(), nn.ReLU()), linear()),
    "residual": Residual,
    "own linear": lambda: nn.Sequential(Doubled(COLUMNS, COLUMNS), nn.ReLU(), linear()),
    "own sequential": lambda: Backwards(linear(), nn.ReLU(), linear()),
    "layer norm": lambda: nn.Sequential(linear(), nn.LayerNorm(COLUMNS), linear()),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 2), nn.Flatten(), linear(4, 2)
    ),
    "weight norm": lambda: nn.Sequential(
        nn.utils.parametrizations.weight_norm(linear()), nn.ReLU(), linear()
    ),
    "no layer": lambda: nn.Identity(),
    "nothing": lambda: nn.Sequential(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_a_plain_stack_is_not_taken_for_one(name):
    assert perceptron_of(OTHERS[name](), NAMED["squared"]) is None


PLAIN: dict[str, tuple[nn.Module, list[str]]] = {
    "a layer": (linear(), ["identity"]),
    "a layer alone": (nn.Sequential(linear()), ["identity"]),
    "two layers": (nn.Sequential(linear(), linear()), ["identity", "identity"]),
    "in place": (nn.Sequential(linear(), nn.ReLU(inplace=True), linear()), ["relu", "identity"]),
    "identity before relu": (nn.Sequential(linear(), nn.Identity(), nn.ReLU()), ["relu"]),
    "explicit defaults": (
        nn.Sequential(linear(), nn.ELU(alpha=1.0), linear(), nn.Softplus(beta=1.0)),
        ["elu", "softplus"],
    ),
    "half biased": (nn.Sequential(nn.Linear(3, 3, bias=False), nn.SiLU(), linear()), ["silu", "identity"]),
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_stack_has_a_closed_form_of_as_many_numbers(name):
    module, activations = PLAIN[name]
    found = perceptron_of(module, NAMED["squared"])
    assert found is not None
    assert [layer.activation for layer in found.layers] == activations
    assert found.size == sum(values.numel() for values in module.parameters())


def test_a_stack_by_its_widths_is_the_module_of_these_widths():
    module = network("elu", 3, True)
    made = build_perceptron([COLUMNS, 5, 4, 6, CLASSES], "elu", NAMED["squared"])
    found = closed(module, "squared")
    assert made.layers == found.layers
    assert made.size == found.size == ParameterLayout.of(module).size


def test_a_module_in_single_precision_is_computed_in_double():
    module = network("tanh", 1, True).float()
    weights = weights_of_two_sites(module)
    assert weights.dtype == np.float64
    found = written(closed(module, "own").contributions(weights, BATCH, table()), 5)
    torch.testing.assert_close(found, by_func(module.double(), weights, BATCH, own), **TOLERANCE)


@pytest.mark.parametrize("columns", [2, 4])
def test_features_that_do_not_fit_the_first_layer_are_refused(columns):
    # Compiled code looks at no shapes by itself.
    layer = build_perceptron([3, 5, 1], "relu", NAMED["squared"]).layers[0]
    with pytest.raises(ValueError, match="do not fit a layer of 3 inputs and 5 outputs"):
        layer.forward(np.zeros((2, 26)), np.zeros((2, 4, columns)))
    with pytest.raises(ValueError, match="for 3 sites do not fit"):
        layer.forward(np.zeros((2, 26)), np.zeros((3, 4, 3)))
    with pytest.raises(ValueError, match="19 weights of 2"):
        layer.forward(np.zeros((2, 19)), np.zeros((2, 4, 3)))
    with pytest.raises(ValueError, match="6 out"):
        layer.backward(np.zeros((2, 26)), np.zeros((2, 4, 6)), np.zeros((2, 4, 3)), rectified=False)
