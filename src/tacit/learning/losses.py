"""Losses with a name: their slopes in the outputs of a network, in closed form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit

from tacit.learning.batches import Marks
from tacit.learning.elementwise import exp
from tacit.runtime.arrays import Array

LossName = Literal["squared", "logistic", "cross-entropy"]


@dataclass(frozen=True)
class Squared:
    """Half the squared distance between the first output and the target `y`."""

    def slopes(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The gradient in the outputs."""
        slopes = np.zeros(outputs.shape)
        np.subtract(outputs[..., 0], targets["y"], out=slopes[..., 0])
        return slopes


@dataclass(frozen=True)
class Logistic:
    """Negative log-likelihood of a target `y` of 0 or 1 whose log-odds are the first output."""

    def slopes(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The gradient in the outputs."""
        slopes = np.zeros_like(outputs)
        slopes[..., 0] = expit(outputs[..., 0]) - targets["y"]
        return slopes


@dataclass(frozen=True)
class CrossEntropy:
    """Negative log-likelihood of a class `y` (0, 1, ...) whose scores are the outputs."""

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
