"""Krum scores, in single precision where that separates them.

Inner products in single precision take half the time of those in double, and a choice only needs the lowest
scores. So scores are computed with an error bound first; those that the error could reorder are then computed
in double precision, so that the choice is the one that double precision makes.
"""

import numpy as np
from numpy.typing import NDArray

from tacit.aggregation.base import Array, Rows
from tacit.aggregation.geometry import ROUNDING, blocks, choose_origin, inner_products
from tacit.aggregation.kernels import HIGH, add_products, add_some_products
from tacit.runtime.jit import contiguous

Places = NDArray[np.intp]

# Products are added in single precision, and such sums in double. If all roundings went one way, sums would
# be wrong by SHORT / 2^24 = 2^-14 of the lengths. They do not, and the root of SHORT takes its place (Higham
# and Mary 2019): 2^-19; noise came to 2^-24, constants to 2^-18. A liar who sends what is rounded one way
# gains what it would by being nearer to the others by 2^-14.
DOUBT = 2.0**-17
# Products of numbers so small are lost, each as much as this.
LOST = 2.0**-126
# With fewer columns single precision saves nothing.
WIDE = 1 << 13
# Number of columns to test whether zero is far away.
GLANCE = 1 << 8
# If zero is farther from the rows than most are from each other, by this factor in squares, one of them takes
# its place.
NEAR = 4.0


def scores(distances: Array, f: int) -> Array:
    """The sum of the squared distances to the n - f - 1 nearest others, of all rows or some (some, sites)."""
    return np.sort(distances, axis=1)[:, : distances.shape[1] - f].sum(axis=1)


def lowest(rows: Rows, f: int, kept: int) -> Places | None:
    """The positions of the rows with the lowest scores, in order; of equal ones the first.

    Returns:
        None where all inner products are needed in double precision to tell, or a row cannot be squared.
    """
    if rows.shape[1] < WIDE:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        first = inner_products(rows[:, :GLANCE])
        about = choose_origin(first, NEAR) if np.isfinite(first).all() else None
        gram = _in_single(rows, about)
    if not np.isfinite(gram).all():
        return None
    sure, open_ = _split_certain(*_between(gram, rows.shape[1], f), kept)
    if len(open_) > len(rows) / 4:
        return None
    if len(open_):
        order = scores(_distances_of(rows, open_, about), f).argsort(kind="stable")
        sure = np.concatenate([sure, open_[order[: kept - len(sure)]]])
    return np.sort(sure)


def _in_single(rows: Rows, about: int | None) -> Array:
    """Inner products (sites, sites), summed in double precision over short sums in single."""
    gram = np.zeros((len(rows) + HIGH, len(rows) + HIGH))
    if about is None and rows.dtype == np.float32:
        add_products(contiguous(rows), gram)
    else:
        for part in blocks(rows):
            block = rows[:, part]
            apart = np.subtract(block, 0 if about is None else block[about])
            add_products(apart.astype(np.float32, order="C", copy=False), gram)
    lower = np.tril(gram[: len(rows), : len(rows)])
    return lower + np.tril(lower, -1).T


def _between(gram: Array, columns: int, f: int) -> tuple[Array, Array]:
    """The least and the most that scores can be."""
    squares = gram.diagonal()
    sums = squares[:, None] + squares
    distances, doubt = sums - 2 * gram, DOUBT * sums + LOST * columns
    low, high = np.maximum(distances - doubt, 0.0), distances + doubt
    np.fill_diagonal(low, 0.0)
    np.fill_diagonal(high, 0.0)
    return scores(low, f), scores(high, f)


def _split_certain(low: Array, high: Array, kept: int) -> tuple[Places, Places]:
    """Return the sites surely among the `kept` lowest, and the undecided ones."""
    if kept >= len(low):
        return np.arange(len(low)), np.arange(0)
    # At least `kept` scores are at most the first, and at least one more than that the second.
    most, least = np.sort(high)[kept - 1], np.sort(low)[kept]
    sure = high < least
    return np.flatnonzero(sure), np.flatnonzero((low <= most) & ~sure)


def _distances_of(rows: Rows, some: Places, about: int | None) -> Array:
    """Squared distances of some rows to all (some, sites), in double precision."""
    squares, inner = np.zeros(len(rows)), np.zeros((len(some), len(rows)))
    centre = np.zeros(rows.shape[1]) if about is None else rows[about].astype(np.float64)
    add_some_products(contiguous(rows), some, centre, squares, inner)
    # Two rows agree on how far they are apart.
    inner[:, some] = (inner[:, some] + inner[:, some].T) / 2
    sums = squares[some][:, None] + squares
    distances = sums - 2 * inner
    distances[distances < ROUNDING * sums] = 0.0
    distances[np.arange(len(some)), some] = 0.0
    return distances
