"""What sites see before they have learnt anything, asked once, so that observations can be scaled alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tacit.learning.task import Updates
from tacit.privacy.contracts import Norm
from tacit.privacy.mechanisms.base import Mechanism
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.environments import World
from tacit.sites.federation import Cohort

# How many steps a site plays at random to see what there is, and in how many copies of its world.
LOOKED, COPIES = 512, 4
# Scales below this part of the limit are noise, or numbers that never change.
FINEST = 1e-3


@dataclass(frozen=True, kw_only=True)
class ObservationStatsQuery:
    """Means and squares of what sites observe while they act at random, each number within a public limit.

    Args:
        inputs: How many numbers an observation has.
        limit: How far a number counts from 0.
    """

    inputs: int
    limit: float
    kind: ClassVar[str] = "observations"
    share: ClassVar[float] = 0.05
    # Worlds are asked even where they are public: what they show is not in any file.
    always: ClassVar[bool] = True

    def record_bound(self, norm: Norm) -> float:
        """Whole sites alone are protected: a site's answer is bounded like its updates."""
        return 1.0

    @property
    def width(self) -> int:
        """A mean and a mean square of each number, and a one."""
        return 2 * self.inputs + 1

    @property
    def placeholder(self) -> dict[str, Any]:
        """As if observations were scaled already."""
        return {"center": (0.0,) * self.inputs, "scale": (1.0,) * self.inputs}

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """What each site has seen; in units of the limit, so that the answer is short."""
        rows = [
            self._moments(held, f"site {name}", key / name)
            for held, name in zip(cohort.holdings, cohort.names, strict=True)
        ]
        return Updates(cohort.names, np.stack(rows))

    def _moments(self, worlds: Sequence[World], place: str, key: Key) -> Array:
        from tacit.control.envs.spaces import random_observations

        shown = np.clip(random_observations(worlds, LOOKED, COPIES, place, key) / self.limit, -1.0, 1.0)
        return np.concatenate([shown.mean(axis=0), (shown**2).mean(axis=0), [1.0]]) / np.sqrt(self.width)

    def decode(self, combined: Array, noise: float = 0.0) -> dict[str, Any]:
        """Center and scale for every number; noise may make a variance anything, a scale stays sensible."""
        found = combined.astype(np.float64)
        # However few came, or however much noise there is, the last number is what ones have become.
        ones = max(float(found[-1]), 4 * noise, 1e-12)
        means = np.clip(found[: self.inputs] / ones, -1.0, 1.0)
        squares = np.clip(found[self.inputs : -1] / ones, 0.0, 1.0)
        spread = np.sqrt(np.clip(squares - means**2, FINEST**2, 1.0))
        return {
            "center": tuple((self.limit * means).tolist()),
            "scale": tuple((self.limit * spread).tolist()),
        }
