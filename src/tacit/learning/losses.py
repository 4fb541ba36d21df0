"""Losses with a name: their slopes in closed form, and the same in torch for modules that need it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor
from torch.nn import functional

from tacit.learning.batches import Marks
from tacit.learning.elementwise import exp
from tacit.learning.torch_modules import LossFunction, TorchLoss

Array = NDArray[np.float64]
LossName = Literal["squared", "logistic", "cross-entropy"]


@dataclass(frozen=True)
class Squared:
    """Half the squared distance between the first output and the target `y`."""

    @staticmethod
    def function(output: Tensor, y: Tensor) -> Tensor:
        """The loss of one record."""
        return (output[0] - y) ** 2 / 2

    def slopes(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The gradient in the outputs."""
        slopes = np.zeros(outputs.shape)
        np.subtract(outputs[..., 0], targets["y"], out=slopes[..., 0])
        return slopes


@dataclass(frozen=True)
class Logistic:
    """The negative log-likelihood of a target `y` of 0 or 1 whose log-odds are the first output."""

    @staticmethod
    def function(output: Tensor, y: Tensor) -> Tensor:
        """The loss of one record."""
        return functional.softplus(output[0]) - y * output[0]

    def slopes(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The gradient in the outputs."""
        slopes = np.zeros_like(outputs)
        slopes[..., 0] = expit(outputs[..., 0]) - targets["y"]
        return slopes


@dataclass(frozen=True)
class CrossEntropy:
    """The negative log-likelihood of a class `y` (0, 1, ...) whose scores are the outputs."""

    @staticmethod
    def function(output: Tensor, y: Tensor) -> Tensor:
        """The loss of one record."""
        chosen = (torch.arange(output.shape[-1]) == y).to(output.dtype)
        return -(chosen * torch.log_softmax(output, dim=-1)).sum()

    def slopes(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The gradient in the outputs."""
        chances = exp(outputs - outputs.max(axis=-1, keepdims=True))
        chances /= chances.sum(axis=-1, keepdims=True)
        return chances - (targets["y"][..., None] == np.arange(outputs.shape[-1], dtype=np.float64))


NAMED: dict[LossName, Squared | Logistic | CrossEntropy] = {
    "squared": Squared(),
    "logistic": Logistic(),
    "cross-entropy": CrossEntropy(),
}


def torch_loss(loss: LossFunction | LossName, *, coupled: bool) -> TorchLoss:
    """Any loss as torch differentiates it."""
    return TorchLoss(loss if callable(loss) else NAMED[loss].function, coupled=coupled)
