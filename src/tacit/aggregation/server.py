"""Server optimizers: the step that the combined update becomes.

Post-processing: it sees released updates alone, and costs nothing.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from tacit.errors import require, require_positive
from tacit.runtime.arrays import Array


class ServerStep(Protocol):
    """Server optimizer: computes the step from the combined update and a memory of earlier ones."""

    def remember(self, state: Array) -> Array:
        """Return the initial memory (rows, *shape of the state)."""
        ...

    def __call__(self, combined: Array, memory: Array) -> tuple[Array, Array]:
        """Return the step and the updated memory."""
        ...


@dataclass(frozen=True, kw_only=True)
class Plain:
    """The combined update times a rate (FedAvg).

    Args:
        lr: Server learning rate.
    """

    lr: float = 1.0
    kind: ClassVar[str] = "plain"

    def __post_init__(self) -> None:
        require_positive("lr", self.lr)

    def remember(self, state: Array) -> Array:
        """Return no memory."""
        return np.zeros((0, *state.shape))

    def __call__(self, combined: Array, memory: Array) -> tuple[Array, Array]:
        """Return the combined update, scaled."""
        return self.lr * combined, memory


@dataclass(frozen=True, kw_only=True)
class Momentum:
    """A running sum of combined updates (FedAvgM, Hsu and others 2019).

    Args:
        lr: Server learning rate.
        momentum: Share of the earlier updates that is kept.
    """

    lr: float = 1.0
    momentum: float = 0.9
    kind: ClassVar[str] = "momentum"

    def __post_init__(self) -> None:
        require_positive("lr", self.lr)
        require(0 <= self.momentum < 1, "momentum", self.momentum, "at least 0 and below 1")

    def remember(self, state: Array) -> Array:
        """Return the initial running sum."""
        return np.zeros((1, *state.shape))

    def __call__(self, combined: Array, memory: Array) -> tuple[Array, Array]:
        """Return the running sum, scaled."""
        velocity = self.momentum * memory[0] + combined
        return self.lr * velocity, velocity[None]


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam at the server (FedAdam, Reddi and others 2021), with corrected moments.

    Args:
        lr: Server learning rate.
        first: Decay rate of the first moment.
        second: Decay rate of the second moment.
        floor: Constant that is added to the root of the second moment.
    """

    lr: float = 0.01
    first: float = 0.9
    second: float = 0.99
    floor: float = 1e-3
    kind: ClassVar[str] = "adam"

    def __post_init__(self) -> None:
        require_positive("lr", self.lr)
        require_positive("floor", self.floor)
        for name, kept in (("first", self.first), ("second", self.second)):
            require(0 <= kept < 1, name, kept, "at least 0 and below 1")

    def remember(self, state: Array) -> Array:
        """Return both initial moments, and the number of rounds."""
        return np.zeros((3, *state.shape))

    def __call__(self, combined: Array, memory: Array) -> tuple[Array, Array]:
        """The first moment over the root of the second, scaled."""
        mean = self.first * memory[0] + (1 - self.first) * combined
        square = self.second * memory[1] + (1 - self.second) * combined**2
        rounds = memory[2] + 1
        corrected = mean / (1 - self.first**rounds)
        pace = np.sqrt(square / (1 - self.second**rounds)) + self.floor
        return self.lr * corrected / pace, np.stack([mean, square, rounds])
