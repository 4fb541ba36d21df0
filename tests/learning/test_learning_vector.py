"""A model is one flat vector: in the order of torch, in double precision, and back without a loss."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tacit.errors import InvalidValue
from tacit.learning.torch_modules import ParameterLayout


def network() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(4, 3, bias=False), nn.LayerNorm(3))


def flattened(module: nn.Module) -> torch.Tensor:
    return ParameterLayout.of(module).flatten(dict(module.named_parameters()))


def test_the_order_is_that_of_torch():
    module = network()
    expected = nn.utils.parameters_to_vector(module.parameters()).detach().double()
    assert torch.equal(flattened(module), expected)


def test_names_and_shapes_are_those_of_the_module():
    layout = ParameterLayout.of(network())
    assert layout.names == ("0.weight", "0.bias", "2.weight", "3.weight", "3.bias")
    assert layout.shapes == ((2, 1, 3), (2,), (3, 4), (3,), (3,))
    assert layout.size == 6 + 2 + 12 + 3 + 3


def test_there_and_back_is_where_one_was():
    module = network()
    parts = ParameterLayout.of(module).unflatten(flattened(module))
    assert list(parts) == [name for name, _ in module.named_parameters()]
    for name, values in module.named_parameters():
        assert torch.equal(parts[name], values.double())


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.integers(1, 4), min_size=0, max_size=3), min_size=1, max_size=5), st.integers(0, 99)
)
def test_back_and_there_is_where_one_was(shapes, seed):
    module = nn.Module()
    for number, shape in enumerate(shapes):
        module.register_parameter(f"part{number}", nn.Parameter(torch.zeros(shape)))
    layout = ParameterLayout.of(module)
    vector = torch.randn(layout.size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(layout.flatten(layout.unflatten(vector)), vector)


def test_single_precision_becomes_double_and_keeps_every_bit():
    module = network()
    assert flattened(module).dtype == torch.float64
    nn.utils.vector_to_parameters(flattened(module).float(), copied := network().parameters())
    assert copied is not None
    assert torch.equal(flattened(module).float().double(), flattened(module))


def test_a_vector_is_a_copy_and_parts_are_views():
    module = network()
    vector = flattened(module)
    vector += 1
    assert not torch.equal(flattened(module), vector)
    parts = ParameterLayout.of(module).unflatten(vector)
    parts["0.bias"].zero_()
    assert vector[6:8].tolist() == [0, 0]


def test_a_vector_carries_no_gradients():
    assert not flattened(network()).requires_grad


def test_what_is_frozen_has_no_place():
    module = network()
    module[0].requires_grad_(False)
    layout = ParameterLayout.of(module)
    assert layout.names == ("2.weight", "3.weight", "3.bias")
    assert layout.size == 18
    assert len(layout.flatten(dict(module.named_parameters()))) == 18


def test_what_is_shared_has_one_place():
    layer = nn.Linear(2, 2)
    assert ParameterLayout.of(nn.Sequential(layer, nn.Tanh(), layer)).size == 6
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    assert ParameterLayout.of(nn.Sequential(first, second)).names == ("0.weight", "0.bias", "1.bias")


@pytest.mark.parametrize(
    "module", [nn.Tanh(), nn.Linear(2, 1).requires_grad_(False)], ids=["empty", "frozen"]
)
def test_a_module_without_anything_to_train_is_refused(module):
    with pytest.raises(InvalidValue, match="no parameters to train: give it at least one layer"):
        ParameterLayout.of(module)


@pytest.mark.parametrize("shape", [(25,), (27,), (1, 26), ()])
def test_a_vector_of_another_length_is_refused(shape):
    with pytest.raises(InvalidValue, match=r"\(26,\)"):
        ParameterLayout.of(network()).unflatten(torch.zeros(shape))


def test_layouts_of_modules_alike_are_equal():
    assert ParameterLayout.of(network()) == ParameterLayout.of(network())
    assert ParameterLayout.of(network()) != ParameterLayout.of(nn.Linear(2, 1))
