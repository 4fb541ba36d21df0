"""Geometry of updates from their inner products: lengths, distances, and the weight of each site.

Rules of this kind see one small matrix with a row and a column for each site, and return the share of each
update in the result, such as that of the geometric median; that is also their explanation. The updates
themselves are read in blocks of columns, so that beside the result no memory grows with their length.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray

from tacit.aggregation.base import (
    Array,
    Rows,
    Rule,
    blocks,
    double_blocks,
    pad_rows,
    rows_of,
    weighted_sum,
)
from tacit.aggregation.screening import LONGEST
from tacit.errors import InvalidValue
from tacit.learning.query import Updates
from tacit.runtime.arrays import as_array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


# Origin of inner products.
Centre = Literal["mean", "zero"]
# Distances below this part of the lengths they are differences of are rounding.
ROUNDING = 2.0**-44
# The longest row, squared, may exceed distances in the middle by this factor before it takes their digits.
FAR = 1e4

# The mean of the directions to all rows is shorter than this at the geometric median; twice as much is the
# part of the sum of distances that a better point could save.
LEVEL = 1e-9
# Number of plain steps before Newton's, and of steps until the point is good enough.
PLAIN = 10
STEPS = 200


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


def geometric_median(gram: Array) -> Array:
    """The weights of the geometric median (sites), from inner products about any center.

    Weiszfeld's steps, started where they cannot get stuck (Vardi and Zhang 2000). If the median is an update,
    it is the one with the smallest sum of distances, which is tried first; where several are as good, as
    between two, it is their mean.
    """
    largest = float(gram.diagonal().max(initial=0.0))
    # The weights do not depend on the unit; powers of very small or large distances do.
    gram = gram / largest if largest > 0 else gram
    distances = np.sqrt(squared_distances(gram))
    sums = distances.sum(axis=1)
    best = int(sums.argmin())
    near = distances[best]
    pulls = np.divide(1.0, near, out=np.zeros(len(gram)), where=near > 0)
    copies = len(gram) - np.count_nonzero(pulls)
    towards = pulls.copy()
    towards[best] -= pulls.sum()
    pull = length_of(gram, towards)
    if pull - copies <= LEVEL * len(gram):
        as_good = sums <= sums[best] * (1 + LEVEL)
        return as_good / as_good.sum()
    # A step away from an update that others pull at with more than its own weight.
    weights = (1 - copies / pull) * pulls / pulls.sum()
    weights[best] += copies / pull
    return _weiszfeld(gram, weights)


def _weiszfeld(gram: Array, weights: Array) -> Array:
    """Weiszfeld's steps until the directions to all rows cancel; Newton's between them if that is slow."""
    plain = weights
    for step in range(STEPS):
        pulls = 1 / np.sqrt(squares_from(gram, weights))
        plain = pulls / pulls.sum()
        if length_of(gram, plain - weights) * pulls.sum() <= LEVEL * len(gram):
            break
        weights = plain if step < PLAIN else _newton_step(gram, weights, plain, pulls)
    # Parts of the rows, whatever the last step was.
    return plain


def _newton_step(gram: Array, weights: Array, plain: Array, pulls: Array) -> Array:
    """Return Newton's step, if it descends further than the plain one."""
    cubes, total = pulls**3, pulls.sum()
    inner, cubed = gram @ weights, gram @ cubes
    # The curvature in terms of weights: the sum of pulls, less each direction to a row times itself.
    curvature = cubes[:, None] * (inner - gram) - weights[:, None] * (cubes.sum() * inner - cubed)
    curvature.flat[:: len(gram) + 1] += total
    try:
        change = cast(Array, np.linalg.solve(curvature, pulls - total * weights))
    except np.linalg.LinAlgError:
        return plain
    newton = weights + change
    sums = [np.sqrt(squares_from(gram, point)).sum() for point in (newton, plain)]
    return newton if sums[0] < sums[1] else plain


def squares_from(gram: Array, weights: Array) -> Array:
    """Return squared distances of all rows from a weighted sum of them, at least the rounding error."""
    inner = gram @ weights
    square = float(weights @ inner)
    squares = gram.diagonal() - 2 * inner + square
    return np.maximum(squares, ROUNDING * (gram.diagonal() + abs(square)))


def length_of(gram: Array, weights: Array) -> float:
    """Return the length of a weighted sum of the rows."""
    return math.sqrt(max(float(weights @ gram @ weights), 0.0))
