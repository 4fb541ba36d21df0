"""Coordinatewise rules: median, trimmed mean, mean around the median.

A liar can move a coordinate only as far as others do, but may do so in every coordinate at once. Columns are
worked on in blocks, so that beside the result nothing grows with the length of the updates. Few sites go
through a sorting network that compares whole rows, and only those that the rule depends on; many are sorted
column by column.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from tacit.aggregation.base import Array, Rows, Rule, pad_rows, rows_of
from tacit.errors import InvalidValue, TooFewSites, is_between, require
from tacit.learning.query import Updates
from tacit.privacy.contracts import Fragility, Norm
from tacit.privacy.policy import Open, Privacy
from tacit.runtime.arrays import as_array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# Numbers in memory at a time: a few megabytes, and less where columns are sorted one by one.
BLOCK = 1 << 20
SORTED = 1 << 18
# Number of sites above which the comparisons of a network take longer than a sort.
NETWORK = 50
# Scale for sums of numbers that would leave the range of doubles.
SMALLER = 2.0**-64

# Use of a rank: dropped, only added to others, or needed by itself.
Use = Literal["dropped", "added", "needed"]
# Sorted rows, as a list or as one array.
Ranked = Sequence[Rows] | Rows
# Two lanes, and whether the smaller and the larger of each pair are kept.
Comparison = tuple[int, int, bool, bool]


@dataclass(frozen=True, kw_only=True)
class CoordinatewiseRule(Rule, ABC):
    """Base of rules that treat every coordinate separately."""

    @property
    def under_noise(self) -> Fragility:
        """Return `suffers`: single coordinates cannot separate noise from attacks."""
        return "suffers"

    @abstractmethod
    def reduce(self, block: Rows, f: int) -> Array:
        """Reduce columns of all sites (sites, columns) to columns of the result.

        The block is not changed, and all of it is finite.
        """
        ...

    def __call__(self, updates: "Updates | ArrayLike", *, sites: float | None = None) -> Array:
        """Combine the updates (sites, coordinates).

        Args:
            updates: One row per site.
            sites: Expected number of sites; absent ones count as rows of zeros.

        Raises:
            InvalidValue: An update is not finite, or more came than were expected.
            TooFewSites: Too few sites for the configured f.
        """
        rows, order = rows_of(updates)
        expected = len(rows) if sites is None else round(sites)
        # One site more would add a row instead of changing one, which moves the result further.
        require(len(rows) <= expected, "sites", sites, f"at least {len(rows)}, which is how many came")
        f = self.tolerates(expected)
        combined = np.empty(rows.shape[1])
        width = max(1, (BLOCK if expected <= NETWORK else SORTED) // expected)
        for start in range(0, len(combined), width):
            part = slice(start, start + width)
            block = rows[:, part]
            _require_finite(block, order, updates)
            combined[part] = self._in_range(pad_rows(block, sites), f)
        return as_array(combined)

    def _in_range(self, block: Rows, f: int) -> Array:
        """Reduce a block, even if intermediate sums leave the range of doubles."""
        with np.errstate(over="ignore", invalid="ignore"):
            found = self.reduce(block, f)
        if np.isfinite(found).all():
            return found
        return self.reduce(block * SMALLER, f) / SMALLER


@dataclass(frozen=True, kw_only=True)
class Median(CoordinatewiseRule):
    """The median of each coordinate of the updates."""

    kind: ClassVar[str] = "median"

    def reduce(self, block: Rows, f: int) -> Array:
        """Return the medians of columns."""
        return _middle(_sort_columns(block, _uses(len(block), 0, "dropped")))


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(CoordinatewiseRule):
    """The mean of each coordinate without its f smallest and f largest values.

    Args:
        trim: Share of the sites that is dropped at each end, rounded down; instead of `f`.
    """

    trim: float | None = None
    kind: ClassVar[str] = "trimmed-mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trim is None:
            return
        require(self.f is None, "trim", self.trim, f"left out where f is given (f = {self.f})")
        share = is_between(self.trim, math.nextafter(0, -1), 0.5)
        require(share, "trim", self.trim, "a share of at least 0 and below 0.5")

    def tolerates(self, sites: int) -> int:
        """Return the number f of dishonest sites that it tolerates: as many as it drops at each end."""
        if self.trim is None:
            return super().tolerates(sites)
        if sites < 1:
            raise TooFewSites(
                f"trim = {self.trim} is not allowed with {sites} sites: there is nothing to trim"
            )
        # A share of 0.29 of 100 is 29, not the 28 below its binary neighbor.
        share = math.floor(self.trim * sites * (1 + 4 * np.finfo(float).eps))
        return min(share, (sites - 1) // 2)

    def resolve(self, sites: int, privacy: Privacy | Open) -> Self:
        """Return the rule with f resolved for a federation of `sites` sites."""
        return replace(self, f=self.tolerates(sites), trim=None)

    def sensitivity(self, clip: float, sites: float, norm: Norm = "l2") -> float | None:
        """Sensitivity to one update of length `clip`, in either norm: clip / (sites - 2 f).

        Guarantee:
            It holds for exactly `sites` rows, absent sites being rows of zeros, and for the f that is dropped
            of them. Let y be the other values of a coordinate in order, and x the one that is exchanged for
            zero. The kept ones add up to y[f+1] + ... + y[n-f-1] + median(x, y[f], y[n-f]), counted from 1,
            which moves by at most |x|. So the result moves by at most |x| / (n - 2 f) in each coordinate, and
            in every norm by at most the norm of the update over n - 2 f.
        """
        count = round(sites)
        return clip / (count - 2 * self.tolerates(count))

    def reduce(self, block: Rows, f: int) -> Array:
        """The trimmed means of columns."""
        count = len(block)
        uses: list[Use] = ["dropped" if min(rank, count - 1 - rank) < f else "added" for rank in range(count)]
        return _sum(_sort_columns(block, tuple(uses))[f : count - f]) / (count - 2 * f)


@dataclass(frozen=True, kw_only=True)
class MeanAroundMedian(CoordinatewiseRule):
    """The mean of all but the f values farthest from the median; ties keep the lower value."""

    kind: ClassVar[str] = "mean-around-median"

    def reduce(self, block: Rows, f: int) -> Array:
        """The means of columns around their medians."""
        count = len(block)
        ranked = _sort_columns(block, _uses(count, f, "added"))
        # The kept ranks are neighbors, n - f of them. So of two values that are n - f ranks apart, exactly
        # one is kept, the nearer; those between the f lowest and the f highest always are.
        kept = _sum(ranked[f : count - f])
        if f:
            low, high = np.asarray(ranked[:f]), np.asarray(ranked[count - f :])
            kept = kept + _sum(_nearer(low, high, _middle(ranked)))
        return kept / (count - f)


def _nearer(low: Rows, high: Rows, centre: Array) -> Rows:
    """Of each low and high value the one nearer to the center; the low one, if both are as near."""
    half_way = np.multiply(low, 0.5, dtype=np.float64)
    half_way += np.multiply(high, 0.5, dtype=np.float64)
    return np.where(half_way < centre, high, low)


def _middle(ranked: Ranked) -> Array:
    """Return the medians of sorted columns."""
    count = len(ranked)
    low, high = ranked[(count - 1) // 2], ranked[count // 2]
    if count % 2:
        return low.astype(np.float64)
    # Halves first: the sum of two large numbers need not be one.
    return np.multiply(low, 0.5, dtype=np.float64) + np.multiply(high, 0.5, dtype=np.float64)


def _sum(rows: Ranked) -> Array:
    return np.einsum("ij->j", np.asarray(rows), dtype=np.float64)


def _uses(count: int, ends: int, between: Use) -> tuple[Use, ...]:
    """Return the use of each of `count` ranks: the middle, and some at each end."""
    needed = {(count - 1) // 2, count // 2, *range(ends), *range(count - ends, count)}
    return tuple("needed" if rank in needed else between for rank in range(count))


def _sort_columns(block: Rows, uses: tuple[Use, ...]) -> Ranked:
    """Sort the columns of a block, as far as their ranks are used."""
    if len(block) <= NETWORK:
        return _through(_network(uses), block)
    columns = np.array(block.T, order="C")
    columns.sort(axis=1)
    return columns.T


def _through(network: Sequence[Comparison], block: Rows) -> list[Rows]:
    """Return the lanes of a sorting network, given the rows."""
    lanes = list(np.array(block, order="C"))
    if not lanes:
        return lanes
    spare = np.empty_like(lanes[0])
    for above, below, smaller, larger in network:
        one, other = lanes[above], lanes[below]
        if smaller and larger:
            np.minimum(one, other, out=spare)
            np.maximum(one, other, out=other)
            lanes[above], spare = spare, one
        elif smaller:
            np.minimum(one, other, out=one)
        else:
            np.maximum(one, other, out=other)
    return lanes


@lru_cache(maxsize=64)
def _network(uses: tuple[Use, ...]) -> tuple[Comparison, ...]:
    """Return the comparisons that the used ranks depend on, in order."""
    state = list(uses)
    kept: list[Comparison] = []
    for above, below in reversed(_batcher(len(uses))):
        smaller, larger = state[above], state[below]
        # Two that are both dropped, or both added to the same sum, need no order.
        if smaller == larger != "needed":
            continue
        kept.append((above, below, smaller != "dropped", larger != "dropped"))
        state[above] = state[below] = "needed"
    return tuple(reversed(kept))


def _batcher(count: int) -> list[tuple[int, int]]:
    """Return Batcher's odd-even merge sort of `count` lanes, as pairs to compare (Knuth, 5.2.2, M)."""
    pairs: list[tuple[int, int]] = []
    merged = 1
    while merged < count:
        apart = merged
        while apart:
            for lane in range(apart % merged, count - apart):
                turn = (lane - apart % merged) // apart % 2 == 0
                same = lane // (2 * merged) == (lane + apart) // (2 * merged)
                if turn and same:
                    pairs.append((lane, lane + apart))
            apart //= 2
        merged *= 2
    return pairs


def _require_finite(block: Rows, order: NDArray[np.intp], updates: object) -> None:
    # A sum is finite only if all of it is; a sum that is not may only be large.
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(float(block.sum(axis=0).sum())):
            return
    finite = np.isfinite(block)
    if finite.all():
        return
    row = int(order[int(np.argmin(finite.all(axis=1)))])
    name = f" of {updates.names[row]}" if isinstance(updates, Updates) else ""
    raise InvalidValue(f"updates[{row}]{name} is not allowed: it must be finite; screen updates first")
