"""Geometry of updates from their inner products: lengths, distances, and the weight of each site.

Rules of this kind see one small matrix with a row and a column for each site, and return the share of each
update in the result; that is also their explanation. The updates themselves are read in blocks of columns, so
that beside the result no memory grows with their length.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.aggregation.base import Array, Rows, Rule, pad_rows, rows_of
from tacit.aggregation.kernels import sum_rows
from tacit.aggregation.screening import LONGEST
from tacit.errors import InvalidValue
from tacit.learning.task import Updates
from tacit.runtime.arrays import as_array
from tacit.runtime.jit import contiguous

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# Origin of inner products.
Centre = Literal["mean", "zero"]
# Numbers in memory at a time: two megabytes, and enough columns for matrix products.
BLOCK = 1 << 18
COLUMNS = 1 << 11
# Distances below this part of the lengths they are differences of are rounding.
ROUNDING = 2.0**-44
# The longest row, squared, may exceed distances in the middle by this factor before it takes their digits.
FAR = 1e4


@dataclass(frozen=True, kw_only=True)
class WeightedRule(Rule, ABC):
    """Base of rules that weigh whole updates by their inner products."""

    @property
    def centre(self) -> Centre:
        """Origin of inner products; only a rule with a public center needs zero."""
        return "mean"

    @abstractmethod
    def weigh(self, gram: Array, f: int) -> Array:
        """Return the share of each update in the result (sites), from inner products (sites, sites)."""
        ...

    def __call__(self, updates: "Updates | ArrayLike", *, sites: float | None = None) -> Array:
        """Combine the updates (sites, coordinates).

        Args:
            updates: One row per site.
            sites: Expected number of sites; absent ones count as rows of zeros.

        Raises:
            InvalidValue: An update is not finite, or too long to be squared.
            TooFewSites: Too few sites for the configured f.
        """
        rows, order = rows_of(updates)
        return as_array(weighted_sum(rows, self._weights(rows, order, updates, sites)))

    def shares(self, updates: "Updates | ArrayLike") -> Array | None:
        """The weight of each update, in the order in which they were given."""
        rows, order = rows_of(updates)
        given = np.empty(len(rows))
        given[order] = self._weights(rows, order, updates, None)
        return given

    def _weights(self, rows: Rows, order: NDArray[np.intp], updates: object, sites: float | None) -> Array:
        # Rows of zeros add nothing to the result, but the others are weighed among them.
        everybody = pad_rows(rows, sites)
        f = self.tolerates(len(everybody))
        return self.weigh(gram_of(everybody, order, updates, self.centre), f)[: len(rows)]


def gram_of(rows: Rows, order: NDArray[np.intp], updates: object, centre: Centre = "mean") -> Array:
    """Return the Gram matrix of the rows (sites, sites) about a center, in double precision.

    Where zero is far from the rows, or a row is far from the others, differences would have few digits left:
    then all are computed anew, about the row that is nearest to most others.

    Raises:
        InvalidValue: A row is not finite, or too long to be squared.
    """
    gram = inner_products(rows)
    longest = gram.diagonal().max(initial=0.0)
    if not longest <= LONGEST**2:
        require_usable(rows, order, updates)
    if centre == "zero":
        return gram
    middle = choose_origin(gram, FAR)
    if middle is not None:
        return inner_products(rows, middle)
    inner = gram.mean(axis=1)
    return gram - inner[:, None] - inner + inner.mean()


def choose_origin(gram: Array, times: float) -> int | None:
    """The row that is nearest to most others, if all are better measured from there than from zero.

    That is, if the longest square exceeds the squared distance in the middle by this factor.
    """
    middles = np.median(squared_distances(gram), axis=1)
    middle = int(middles.argmin())
    return middle if gram.diagonal().max(initial=0.0) > times * middles[middle] else None


def inner_products(rows: Rows, about: int | None = None) -> Array:
    """Inner products of the rows (sites, sites) about zero or about one of them, in double precision."""
    gram = np.zeros((len(rows), len(rows)))
    # Rows that are not finite are named later, once they have been found.
    with np.errstate(over="ignore", invalid="ignore"):
        for _, block in double_blocks(rows, about):
            gram += block @ block.T
    return gram


def squared_distances(gram: Array) -> Array:
    """Return squared distances between rows (sites, sites); those below rounding are zero."""
    squares = gram.diagonal()
    sums = squares[:, None] + squares
    # Both triangles, whose last digits differ: otherwise two rows would disagree on their distance.
    distances = sums - (gram + gram.T)
    distances[distances < ROUNDING * sums] = 0.0
    return distances


def paired_distances(rows: Rows) -> Array:
    """Squared distances between rows (sites, sites), to a few digits, each from its two rows alone.

    Guarantee:
        No other row, and no position among them, changes a bit of a distance. Each row is rounded to whole
        numbers in a unit of its own, a power of two, so that all sums of their products are whole numbers
        below 2^53, and exact in whatever order they are added.
    """
    bits = (53 - math.ceil(math.log2(max(rows.shape[1], 1)))) // 2
    largest = np.zeros(len(rows))
    for part in blocks(rows):
        np.maximum(largest, np.abs(rows[:, part]).max(axis=1, initial=0.0), out=largest)
    # Below the smallest normal number a unit would have no inverse.
    exponents = bits - np.maximum(np.frexp(largest)[1], -900)
    units = np.ldexp(1.0, exponents)[:, None]
    gram = np.zeros((len(rows), len(rows)))
    for part in blocks(rows):
        whole = np.rint(rows[:, part] * units)
        gram += whole @ whole.T
    gram = np.ldexp(gram, -exponents[:, None] - exponents)
    squares = gram.diagonal()
    return np.maximum((squares[:, None] + squares) - 2 * gram, 0.0)


def weighted_sum(rows: Rows, weights: Array, over: float = 1.0) -> Array:
    """The sum of the rows, each times its weight, over a number (coordinates), a new array."""
    counted, total = np.flatnonzero(weights), np.empty(rows.shape[1])
    kept = weights[counted]
    if len(counted) and (kept == kept[0]).all():
        # Without a product for each number.
        sum_rows(contiguous(rows), counted, kept[0], over, total)
        return total
    for part, block in double_blocks(rows):
        total[part] = weights @ block
    return total if over == 1 else np.divide(total, over, out=total)


def double_blocks(rows: Rows, about: int | None = None) -> Iterator[tuple[slice, Array]]:
    """Yield the columns in blocks, in double precision, less one of the rows on request.

    A block is gone when the next one comes.
    """
    # One space for all: new pages would cost more than the numbers that are written to them.
    space = np.empty(0)
    for part in blocks(rows):
        block = rows[:, part]
        if about is None and rows.dtype == np.float64:
            yield part, block.astype(np.float64, copy=False)
            continue
        space = space if space.size else np.empty(block.shape)
        room = space[:, : block.shape[1]]
        np.copyto(room, block)
        if about is not None:
            room -= room[about].copy()
        yield part, room


def blocks(rows: Rows) -> Iterator[slice]:
    """The columns, some at a time."""
    width = max(COLUMNS, BLOCK // max(len(rows), 1))
    return (slice(start, start + width) for start in range(0, rows.shape[1], width))


def require_usable(rows: Rows, order: NDArray[np.intp], updates: object) -> None:
    """Refuse rows that are not finite or too long to be squared, by name; screening keeps them away."""
    longest = np.zeros(len(order))
    for part in blocks(rows):
        # The maximum of numbers with a NaN is NaN.
        np.maximum(longest, np.abs(rows[: len(order), part]).max(axis=1, initial=0.0), out=longest)
    usable = longest * math.sqrt(max(rows.shape[1], 1)) <= LONGEST
    if usable.all():
        return
    row = int(order[int(usable.argmin())])
    name = f" of {updates.names[row]}" if isinstance(updates, Updates) else ""
    raise InvalidValue(
        f"updates[{row}]{name} is not allowed: it must be finite and shorter than {LONGEST:g}; "
        "screen updates first"
    )
