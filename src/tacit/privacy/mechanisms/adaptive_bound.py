"""Adaptive clip bound that follows the data, charged in every round.

Which share of the contributions is shorter than the bound is a private fact, so it is released with noise and
charged like anything else. A bound read off the data without that would make every sensitivity a secret.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.errors import require, require_count, require_positive
from tacit.privacy.accounting.release import Relation, Release
from tacit.privacy.mechanisms import noise
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key


@dataclass(frozen=True, kw_only=True)
class AdaptiveBound:
    """A clip bound moved towards a quantile of the lengths, round by round (Andrew and others 2021).

    Args:
        expected: Public, expected number of contributions in a round.
        noise: Standard deviation of the noise on the count of short ones.
        quantile: The share of contributions that should stay unclipped.
        speed: Speed of the bound: it moves by a factor of at most e^speed in a round.
        rehearsal: Whether the noise repeats with the seed, and so gives no protection.
    """

    expected: int
    noise: float
    quantile: float = 0.5
    speed: float = 0.2
    rehearsal: bool = False

    def __post_init__(self) -> None:
        require_count("expected", self.expected)
        require_positive("noise", self.noise)
        require(0 < self.quantile < 1, "quantile", self.quantile, "above 0 and below 1")
        require_positive("speed", self.speed)

    def next(self, bound: float, lengths: Array, key: Key) -> float:
        """The bound for the next round; charge `release()` first."""
        noise.require_rehearsal(key, self.rehearsal)
        # Counted as plus or minus one half, a contribution moves the sum by one half instead of one.
        centred = float((lengths <= bound).sum()) - 0.5 * lengths.size
        noisy = float(noise.gaussian(np.array([centred]), self.noise, key)[0])
        share = min(max(noisy / self.expected + 0.5, 0.0), 1.0)
        return bound * math.exp(-self.speed * (share - self.quantile))

    def release(self, *, relation: Relation = "add-remove", **fields: Any) -> Release:
        """Return the release of one round's noisy count."""
        # A unit joins or leaves with its half; an exchange, or a change in a group, can turn one half around.
        joins = relation == "add-remove" and fields.get("sampled", "unit") == "unit"
        sensitivity = 0.5 if joins else 1.0
        return Release(
            scale=self.noise,
            sensitivity=sensitivity,
            bound=0.5,
            relation=relation,
            rehearsal=self.rehearsal,
            **fields,
        )
