"""A loss is known by its slope in the outputs: that of torch, wherever the outputs are."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import Tensor
from torch.nn import functional

from tacit.learning.perceptron import NAMED
from tacit.learning.torch_modules import FUNCTIONS, TorchLoss

CLASSES = 3
# How the named losses are called in torch.
TORCH: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "squared": lambda outputs, y: functional.mse_loss(outputs[:, 0], y, reduction="sum") / 2,
    "logistic": lambda outputs, y: functional.binary_cross_entropy_with_logits(
        outputs[:, 0], y, reduction="sum"
    ),
    "cross-entropy": lambda outputs, y: functional.cross_entropy(outputs, y.long(), reduction="sum"),
}
TARGETS = {
    "squared": st.floats(-1e3, 1e3),
    "logistic": st.sampled_from([0.0, 1.0]),
    "cross-entropy": st.sampled_from([0.0, 1.0, 2.0]),
}
outputs_of_a_step = arrays.arrays(np.float64, (2, 3, 1, CLASSES), elements=st.floats(-50, 50))


def present(shape: tuple[int, ...]) -> np.ndarray:
    return np.ones(shape, dtype=bool)


def expected(name: str, outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
    asked = torch.from_numpy(outputs.reshape(-1, CLASSES)).requires_grad_()
    TORCH[name](asked, torch.from_numpy(y.reshape(-1))).backward()
    assert asked.grad is not None
    return asked.grad.numpy().reshape(outputs.shape)


def test_every_named_loss_is_compared():
    assert set(TORCH) == set(NAMED)


@pytest.mark.parametrize("name", TORCH)
@settings(max_examples=60)
@given(outputs=outputs_of_a_step, data=st.data())
def test_slopes_are_those_of_torch(name, outputs, data):
    y = data.draw(arrays.arrays(np.float64, outputs.shape[:-1], elements=TARGETS[name]))
    found = NAMED[name].slopes(outputs.copy(), {"y": y}, present(y.shape))
    np.testing.assert_allclose(found, expected(name, outputs, y), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", TORCH)
@settings(max_examples=30)
@given(outputs=arrays.arrays(np.float64, (CLASSES,), elements=st.floats(-15, 15)), data=st.data())
def test_the_loss_of_one_record_is_that_of_torch(name, outputs, data):
    y = torch.tensor(data.draw(TARGETS[name]), dtype=torch.float64)
    output = torch.from_numpy(outputs)
    found = FUNCTIONS[name](output, y)
    torch.testing.assert_close(found, TORCH[name](output.unsqueeze(0), y.reshape(1)), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["logistic", "cross-entropy"])
@pytest.mark.parametrize("size", [800.0, 1e300])
def test_slopes_far_out_are_finite_and_at_most_one(name, size):
    outputs = np.array([[[[size, -size, 0.0]], [[-size, size, 0.0]]]])
    for y in (0.0, 1.0):
        found = NAMED[name].slopes(outputs.copy(), {"y": np.full((1, 2, 1), y)}, present((1, 2, 1)))
        assert bool(np.isfinite(found).all())
        assert float(np.abs(found).max()) == 1


@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_only_the_first_output_counts(name):
    outputs = np.arange(6.0).reshape(1, 2, 1, 3)
    found = NAMED[name].slopes(outputs, {"y": np.zeros((1, 2, 1))}, present((1, 2, 1)))
    assert bool((found[..., 0] != 0)[0, 1])
    assert not found[..., 1:].any()


@pytest.mark.parametrize("name", TORCH)
def test_torch_finds_the_same_slopes(name):
    draw = np.random.default_rng(0)
    outputs, y = draw.normal(size=(2, 4, 1, CLASSES)), draw.integers(0, 2, (2, 4, 1)).astype(np.float64)
    found = TorchLoss.of(name, coupled=False).slopes(outputs, {"y": y}, present(y.shape))
    np.testing.assert_allclose(found, NAMED[name].slopes(outputs, {"y": y}, present(y.shape)), atol=1e-12)


# Losses of one's own


def test_a_loss_of_ones_own_sees_one_record_and_its_targets_by_name():
    def weighed(output: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        assert output.shape == (CLASSES,)
        return weight * ((output - y) ** 2).sum()

    draw = np.random.default_rng(1)
    outputs, weight = draw.normal(size=(2, 3, 1, CLASSES)), draw.uniform(size=(2, 3, 1))
    y = draw.normal(size=(2, 3, 1, CLASSES))
    found = TorchLoss.of(weighed, coupled=False).slopes(
        outputs, {"y": y, "weight": weight}, present((2, 3, 1))
    )
    np.testing.assert_allclose(found, 2 * weight[..., None] * (outputs - y), atol=1e-12)


def test_a_loss_that_tries_to_mix_records_sees_one_alone():
    def centred(output: Tensor, y: Tensor) -> Tensor:
        return ((output - output.mean(dim=0)) ** 2).sum() * y

    outputs = np.random.default_rng(2).normal(size=(1, 4, 1, CLASSES))
    together = TorchLoss.of(centred, coupled=False).slopes(
        outputs, {"y": np.ones((1, 4, 1))}, present((1, 4, 1))
    )
    for unit in range(4):
        alone = TorchLoss.of(centred, coupled=False).slopes(
            outputs[:, unit : unit + 1], {"y": np.ones((1, 1, 1))}, present((1, 1, 1))
        )
        np.testing.assert_allclose(together[:, unit], alone[:, 0], atol=1e-14)


def test_a_coupled_loss_sees_its_group_and_nobody_elses():
    def spread(outputs: Tensor, there: Tensor, y: Tensor) -> Tensor:
        # As wide as the next power of two, whatever the size of other groups.
        assert outputs.shape in {(1, CLASSES), (2, CLASSES), (4, CLASSES)}
        kept = torch.where(there, outputs[:, 0] - y, 0.0)
        return kept.sum() ** 2 / 2

    draw = np.random.default_rng(3)
    outputs, y = draw.normal(size=(2, 2, 3, CLASSES)), draw.normal(size=(2, 2, 3))
    there = np.array([[[1, 1, 0], [1, 0, 0]], [[0, 0, 0], [1, 1, 1]]], dtype=bool)
    found = TorchLoss.of(spread, coupled=True).slopes(outputs, {"y": y}, there)
    sums = np.where(there, outputs[..., 0] - y, 0.0).sum(axis=2, keepdims=True)
    np.testing.assert_allclose(found[..., 0], np.where(there, sums, 0.0), atol=1e-12)
    assert not found[..., 1:].any()
