"""The networks of an agent: one that acts and one that judges, two perceptrons in one flat vector."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import MOST_WIDTH, require, require_count, require_weights
from tacit.runtime.arrays import Array

Layers = list[tuple[Array, Array]]
# Initial scale of weights: in hidden layers, in the actor's head, in the critic's.
HIDDEN, ACTING, JUDGING = 2.0**0.5, 0.01, 1.0


@dataclass(frozen=True)
class NetworkShape:
    """Shape of actor and critic; each has its own hidden layers, all of them with tanh.

    In the flat vector the actor's layers come first, each its matrix (outputs, inputs) row by row and then
    its intercepts; the critic's follow.

    Args:
        inputs: Number of inputs in an observation.
        hidden: Widths of the hidden layers; none for linear networks.
        actions: Number of actions.
    """

    inputs: int
    hidden: tuple[int, ...]
    actions: int

    def __post_init__(self) -> None:
        require_count("inputs", self.inputs)
        require_count("actions", self.actions)
        for width in self.hidden:
            require_count("hidden", width, MOST_WIDTH)
        require_weights([self.inputs, *self.hidden, self.actions])
        # A list, as files hold one, could not be compared with other shapes.
        object.__setattr__(self, "hidden", tuple(self.hidden))

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Widths of the actor's layers: inputs, hidden layers, actions. The critic ends in one."""
        return np.array([self.inputs, *self.hidden, self.actions], dtype=np.int64)

    @property
    def actor(self) -> int:
        """Number of the actor's coordinates, which come first in the vector."""
        return sum((inputs + 1) * outputs for inputs, outputs in self._steps(self.actions))

    @property
    def critic(self) -> int:
        """Number of the critic's coordinates, the others."""
        return sum((inputs + 1) * outputs for inputs, outputs in self._steps(1))

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.actor + self.critic

    def start(self, generator: np.random.Generator) -> Array:
        """Weights to begin with: orthogonal, no intercepts; any action is almost as likely as another."""
        weights = np.zeros(self.size)
        for layers, head in zip(self.layers(weights), (ACTING, JUDGING), strict=True):
            for matrix, _ in layers[:-1]:
                matrix[:] = HIDDEN * _orthogonal(matrix.shape, generator)
            last = layers[-1][0]
            last[:] = head * _orthogonal(last.shape, generator)
        return weights

    def layers(self, weights: Array) -> tuple[Layers, Layers]:
        """The matrices and intercepts of the actor and of the critic, as views of the vector."""
        require(weights.shape == (self.size,), "weights", weights.shape, f"a vector of {self.size}")
        return (
            list(self._split(weights[: self.actor], self.actions)),
            list(self._split(weights[self.actor :], 1)),
        )

    def logits(self, weights: Array, observations: ArrayLike) -> Array:
        """Return the logits of the actor (rows, actions)."""
        return _forward(self.layers(weights)[0], observations)

    def values(self, weights: Array, observations: ArrayLike) -> Array:
        """Return the critic's value of each observation."""
        return _forward(self.layers(weights)[1], observations)[:, 0]

    def _steps(self, outputs: int) -> list[tuple[int, int]]:
        widths = (self.inputs, *self.hidden, outputs)
        return list(pairwise(widths))

    def _split(self, part: Array, outputs: int) -> Iterator[tuple[Array, Array]]:
        start = 0
        for before, after in self._steps(outputs):
            middle, end = start + before * after, start + (before + 1) * after
            yield part[start:middle].reshape(after, before), part[middle:end]
            start = end


def _orthogonal(shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    rows, columns = shape
    drawn = generator.normal(size=(max(rows, columns), min(rows, columns)))
    basis, triangle = np.linalg.qr(drawn)
    # With signs as those of the triangle, every orthogonal matrix is as likely as any other.
    basis = basis * np.sign(np.diag(triangle))
    return basis if rows >= columns else basis.T


def _forward(layers: Layers, observations: ArrayLike) -> Array:
    passing = np.asarray(observations, dtype=np.float64)
    for matrix, intercepts in layers[:-1]:
        passing = np.tanh(passing @ matrix.T + intercepts)
    matrix, intercepts = layers[-1]
    return passing @ matrix.T + intercepts
