"""Private selection of one of several candidates by score, at a price known in advance.

Both rules are purely private: the better candidate is likelier, and one record changes every probability by a
factor of at most e^epsilon. The private quantile that buys a clip radius is such a choice too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tacit.errors import require, require_positive, require_word
from tacit.privacy.accounting.release import Release
from tacit.privacy.mechanisms.noise import GRID_BITS, require_rehearsal
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key, signed_uniform

Rule = Literal["exponential", "permute-and-flip"]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """A private choice of the candidate with a high score.

    Args:
        epsilon: The price of one choice.
        sensitivity: Largest change of any score by one record, under the relation of the release.
        rule: `exponential`, or `permute-and-flip`, which is never worse and at best twice as good
            (McKenna and Sheldon 2020).
        rehearsal: Whether the draws repeat with the seed, and so give no protection.
    """

    epsilon: float
    sensitivity: float = 1.0
    rule: Rule = "exponential"
    rehearsal: bool = False

    def __post_init__(self) -> None:
        require_positive("epsilon", self.epsilon)
        require_positive("sensitivity", self.sensitivity)
        require_word("rule", self.rule, ("exponential", "permute-and-flip"))

    def choose(self, scores: Sequence[float] | Array, key: Key) -> int:
        """The index of the chosen candidate; charge `release()` first."""
        require_rehearsal(key, self.rehearsal)
        values = np.asarray(scores, dtype=np.float64)
        require(
            values.ndim == 1 and values.size > 0, "scores", f"shape {values.shape}", "a list of at least one"
        )
        require(bool(np.isfinite(values).all()), "scores", "one that is not finite", "finite numbers")
        tilt = self.epsilon / (2 * self.sensitivity)
        with np.errstate(over="ignore"):
            weights = tilt * (values - values.max())
        return _noisiest(weights, self.rule, key, values.tobytes())

    def release(self, **fields: Any) -> Release:
        """Return the release of one choice."""
        return Release(
            law="selection",
            scale=self.sensitivity / self.epsilon,
            sensitivity=self.sensitivity,
            rehearsal=self.rehearsal,
            **fields,
        )


@dataclass(frozen=True, kw_only=True)
class PrivateQuantile:
    """A quantile of private numbers by the exponential mechanism (Smith 2011), such as a clip radius.

    Args:
        quantile: Its order: 0.5 is the median.
        low: The smallest answer, public.
        high: The largest answer, public; numbers outside count as the nearest end.
        epsilon: The price.
        rehearsal: Whether the draws repeat with the seed, and so give no protection.
    """

    quantile: float
    low: float
    high: float
    epsilon: float
    rehearsal: bool = False

    def __post_init__(self) -> None:
        require(0 <= self.quantile <= 1, "quantile", self.quantile, "from 0 to 1")
        require(
            bool(-np.inf < self.low < self.high < np.inf),
            "low, high",
            (self.low, self.high),
            "low below high",
        )
        require_positive("epsilon", self.epsilon)

    def choose(self, numbers: Sequence[float] | Array, key: Key) -> float:
        """Return a number near the quantile; charge `release()` first. NaN counts as `high`."""
        require_rehearsal(key, self.rehearsal)
        values = np.nan_to_num(
            np.asarray(numbers, dtype=np.float64), nan=self.high, posinf=self.high, neginf=self.low
        )
        ends = np.concatenate([[self.low], np.sort(np.clip(values, self.low, self.high)), [self.high]])
        # One record moves each rank by at most one, added, removed or replaced; long gaps are likelier.
        scores = -np.abs(np.arange(values.size + 1) - self.quantile * values.size)
        with np.errstate(divide="ignore"):
            weights = self.epsilon / 2 * scores + np.log(np.diff(ends))
        gap = _noisiest(weights, "exponential", key / "gap", ends.tobytes())
        share = float((key / "place").secret(ends.tobytes()).uniform((1,))[0])
        place = float(ends[gap] + share * (ends[gap + 1] - ends[gap]))
        # On a public grid: the last bits of the place would disclose which numbers it lies between.
        step = 2.0 ** (math.floor(math.log2(self.high - self.low)) - GRID_BITS)
        return min(self.low + round((place - self.low) / step) * step, self.high)

    def release(self, **fields: Any) -> Release:
        """Return the release of one answer."""
        return Selection(epsilon=self.epsilon, rehearsal=self.rehearsal).release(**fields)


def _noisiest(weights: Array, rule: Rule, key: Key, inputs: bytes) -> int:
    """Return the index of the largest weight after noise: drawn in proportion to exp(weight), or better.

    Gumbel noise gives exactly the exponential mechanism; exponential noise gives permute-and-flip (Ding and
    others 2021). Nothing is exponentiated, so weights of any size are safe.
    """
    draws = -np.log(signed_uniform([key.secret(inputs)], weights.size)[1]).reshape(weights.shape)
    noise = draws if rule == "permute-and-flip" else -np.log(draws)
    return int(np.argmax(weights + noise))
