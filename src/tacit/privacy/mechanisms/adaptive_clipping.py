"""Adaptive clipping: clip bounds that follow the lengths of updates, paid for in every round.

The share of updates that are shorter than the bound is a private fact, so it is released with noise and
charged like anything else. A bound read off the data without that would make every sensitivity a secret.

`AdaptiveClipping` sends, beside each part of an update, whether it was shorter than its bound, and all of it
together is one vector no longer than 1: one clip, one noise, one price. The next bounds are worked out from
what was released, which is free. The reason for one vector is the draw: where sites are drawn in secret, what
one round releases shares one draw, and counting its parts as if each had a draw of its own could claim too
little. `AdaptiveBound` is the same for one bound and a release of its own.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.errors import require, require_count, require_positive
from tacit.privacy.accounting.release import Relation, Release
from tacit.privacy.contracts import Norm
from tacit.privacy.mechanisms import noise
from tacit.privacy.policy import require_bound
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key

# Share of the whole that each count takes; largest move of a bound in a round, as a power of e, and in all,
# as a factor.
COUNTED = 0.1
SPEED = 0.4
FARTHEST = 1e6


@dataclass(frozen=True, kw_only=True)
class AdaptiveClipping:
    """Encoding of an update as a vector of norm at most 1, with clip bounds that adapt, and its inverse.

    Args:
        blocks: Number of coordinates in each part of an update; each part has a bound of its own.
        quantile: Share of the updates that should be shorter than their bound.
        start: The bounds before the first round.
        norm: Norm in which lengths are measured.
        weights: Weight of each part, where they do not count alike.
    """

    blocks: tuple[int, ...]
    quantile: float
    start: float
    norm: Norm = "l2"
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        require(bool(self.blocks), "blocks", self.blocks, "at least one")
        for size in self.blocks:
            require_count("blocks", size)
        # Counts take half of the whole at the most.
        most = round(0.5 / COUNTED**self._power)
        require(len(self.blocks) <= most, "blocks", f"{len(self.blocks)} of them", f"at most {most}")
        require(0 < self.quantile < 1, "clip_quantile", self.quantile, "above 0 and below 1")
        require_bound("clip", self.start)
        fits = len(self.weights) in (0, len(self.blocks)) and all(weight > 0 for weight in self.weights)
        require(fits, "weights", self.weights, "one above 0 for each block, or none")

    @property
    def _power(self) -> int:
        """Exponent of the norm: 2 for L2, 1 for L1."""
        return 2 if self.norm == "l2" else 1

    @property
    def width(self) -> int:
        """Number of coordinates sent: the update, and a count for each block."""
        return sum(self.blocks) + len(self.blocks)

    @property
    def shares(self) -> tuple[float, ...]:
        """Largest norm of each block; with the counts, the whole has norm 1."""
        given, power = self.weights or (1.0,) * len(self.blocks), self._power
        left = 1 - len(self.blocks) * COUNTED**power
        total = sum(weight**power for weight in given)
        return tuple(weight * (left / total) ** (1 / power) for weight in given)

    def initial(self) -> Array:
        """The bounds before the first round."""
        return np.full((len(self.blocks),), self.start, dtype=np.float64)

    def encode(self, updates: Array, bounds: Array) -> Array:
        """Updates (sites, coordinates) as they are sent (sites, width).

        Guarantee:
            Every row is no longer than 1, whatever the update is.
        """
        from tacit.privacy.mechanisms.clip import clip_rows, lengths

        parts, counts = list[Array](), list[Array]()
        for part, bound, share in zip(_split(updates, self.blocks), bounds, self.shares, strict=True):
            limit = float(bound)
            parts.append(clip_rows(part, limit, norm=self.norm) * (share / limit))
            short = lengths(part, norm=self.norm) <= limit
            counts.append(np.where(short, COUNTED, -COUNTED))
        return np.concatenate([*parts, np.stack(counts, axis=-1)], axis=-1)

    def decode(self, sent: Array, bounds: Array) -> "tuple[Array, Array]":
        """Decode a released sum (width) into the combined update (coordinates) and the next bounds."""
        *parts, counts = _split(sent, (*self.blocks, len(self.blocks)))
        scaled = [
            part * (float(bound) / share)
            for part, bound, share in zip(parts, bounds, self.shares, strict=True)
        ]
        short = np.clip(counts / COUNTED + 1, 0, 2) / 2
        moved = bounds * np.exp(-SPEED * (short - self.quantile))
        return np.concatenate(scaled, -1), np.clip(moved, self.start / FARTHEST, self.start * FARTHEST)


def _split(rows: Array, blocks: Sequence[int]) -> "list[Array]":
    """Split rows (..., coordinates) into blocks of the given widths."""
    return np.split(rows, np.cumsum(blocks)[:-1], axis=-1)


@dataclass(frozen=True, kw_only=True)
class AdaptiveBound:
    """A clip bound moved toward a quantile of the lengths, round by round (Andrew and others 2021).

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
