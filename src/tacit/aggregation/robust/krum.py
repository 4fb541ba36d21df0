"""Krum, Multi-Krum and Bulyan: rules that choose the updates that have the most others near them.

Scores are computed in single precision where that tells them apart: inner products take half the time of
those in double, and all a choice needs is which scores are lowest. Scores are known with a doubt first; those
between which the doubt could decide are then measured in double precision, so that the choice is the one that
double precision makes.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from tacit.aggregation.base import Array, Rows, Rule, blocks, pad_rows, rows_of
from tacit.aggregation.geometry import (
    ROUNDING,
    WeightedRule,
    choose_origin,
    gram_of,
    inner_products,
    squared_distances,
)
from tacit.aggregation.kernels import HIGH, add_products, add_some_products
from tacit.learning.query import Updates
from tacit.privacy.contracts import Fragility
from tacit.runtime.arrays import as_array
from tacit.runtime.jit import contiguous

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, kw_only=True)
class KrumRule(WeightedRule, ABC):
    """A rule that averages the updates with the lowest scores of Krum; of equal scores the first by name."""

    @classmethod
    def min_sites(cls, f: int) -> int:
        """Return the fewest sites among which f dishonest ones can be tolerated."""
        return 2 * f + 3 if f else 1

    @abstractmethod
    def selection_size(self, sites: int, f: int) -> int:
        """Return the number of averaged updates."""
        ...

    def weigh(self, gram: Array, f: int) -> Array:
        """Return equal weights for the selected updates."""
        order = krum_scores(squared_distances(gram), f).argsort(kind="stable")
        return _equal_parts(order[: self.selection_size(len(gram), f)], len(gram))

    def _weights(self, rows: Rows, order: "NDArray[np.intp]", updates: object, sites: float | None) -> Array:
        everybody = pad_rows(rows, sites)
        f = self.tolerates(len(everybody))
        chosen = lowest_scores(everybody, f, self.selection_size(len(everybody), f))
        if chosen is None:
            return super()._weights(rows, order, updates, sites)
        return _equal_parts(chosen, len(everybody))[: len(rows)]


@dataclass(frozen=True, kw_only=True)
class Krum(KrumRule):
    """Krum: the one update with the nearest neighbors (Blanchard and others 2017); for comparison.

    The score is the sum of squared distances to the n - f - 1 nearest others, as in "Fixing by mixing"
    (Allouah and others 2023); the first paper counts one neighbor less. It tolerates f of at least 2 f + 3
    sites. It does not average, which cost 0.11 of concordance without any dishonest site; and with noise at
    the sites, a dishonest site that sends no noise has the smallest score.

    Args:
        allow_fragile: Permit Krum where every site adds noise, although it can then follow dishonest sites.
    """

    allow_fragile: bool = False
    kind: ClassVar[str] = "krum"

    @property
    def under_noise(self) -> Fragility:
        """Return `breaks`; with `allow_fragile`, `suffers`, so that it can be compared with others."""
        return "suffers" if self.allow_fragile else "breaks"

    def selection_size(self, sites: int, f: int) -> int:
        """One: the update with the lowest score."""
        return 1


@dataclass(frozen=True, kw_only=True)
class MultiKrum(KrumRule):
    """The mean of the n - f updates with the lowest scores of Krum (Blanchard and others 2017).

    It tolerates f of at least 2 f + 3 sites, and costs little without dishonest sites. It leaves out honest
    sites that differ from the others, and keeps dishonest sites that hide among them.
    """

    kind: ClassVar[str] = "multi-krum"

    @property
    def under_noise(self) -> Fragility:
        """Return `suffers`: it averages noise, but over sites that noise has brought together."""
        return "suffers"

    def selection_size(self, sites: int, f: int) -> int:
        """Return the number of sites less f."""
        return sites - f


@dataclass(frozen=True, kw_only=True)
class Bulyan(Rule):
    """Bulyan: repeated Krum, then the mean around the median of the selected (El Mhamdi and others 2018).

    Krum selects n - 2 f of n updates, one after another; in every coordinate, the n - 4 f values nearest to
    the median are averaged. It tolerates f of at least 4 f + 3 sites, fewer than any other rule, and discards
    the most.
    """

    kind: ClassVar[str] = "bulyan"

    @property
    def under_noise(self) -> Fragility:
        """Return `suffers`: its last step is coordinatewise."""
        return "suffers"

    @classmethod
    def min_sites(cls, f: int) -> int:
        """Return the fewest sites among which f dishonest ones can be tolerated."""
        return 4 * f + 3 if f else 1

    def __call__(self, updates: "Updates | ArrayLike", *, sites: float | None = None) -> Array:
        """Combine the updates (sites, coordinates); see `WeightedRule`."""
        rows, order = rows_of(updates)
        everybody = pad_rows(rows, sites)
        f = self.tolerates(len(everybody))
        chosen = self.select(gram_of(everybody, order, updates), f)
        combined = np.empty(rows.shape[1])
        for part in blocks(rows):
            combined[part] = self.reduce(everybody[chosen, part], f)
        return as_array(combined)

    def select(self, gram: Array, f: int) -> "NDArray[np.intp]":
        """The positions of the n - 2 f chosen updates, in order."""
        near, whose, left = _rank_neighbours(squared_distances(gram))
        chosen: list[int] = []
        for count in range(len(gram), 2 * f, -1):
            # Two that are each other's nearest can have one score: then the nearer to all others is chosen.
            best = int(np.lexsort((near.sum(axis=1), near[:, : count - f].sum(axis=1)))[0])
            chosen.append(int(left[best]))
            kept = whose != left[best]
            # The chosen row leaves the others' lists, and takes its own with it.
            kept[best] = False
            near, whose = near[kept].reshape(count - 1, count - 1), whose[kept].reshape(count - 1, count - 1)
            left = np.delete(left, best)
        return np.sort(np.array(chosen, dtype=np.intp))

    def reduce(self, block: Rows, f: int) -> Array:
        """The mean of all but the 2 f values farthest from the median, of the chosen (chosen, columns)."""
        columns = np.sort(np.array(block.T, order="C"), axis=1).astype(np.float64)
        count = columns.shape[1]
        kept = count - 2 * f
        twice = columns[:, (count - 1) // 2] + columns[:, count // 2]
        # Neighbors in rank: the lowest goes as long as the one beyond the highest is nearer to the median.
        low = columns[:, : 2 * f] + columns[:, kept:] < twice[:, None]
        ranks = cast("NDArray[np.intp]", low.sum(axis=1)[:, None] + np.arange(kept))
        return np.take_along_axis(columns, ranks, axis=1).mean(axis=1)


def _equal_parts(chosen: "NDArray[np.intp]", sites: int) -> Array:
    weights = np.zeros(sites)
    weights[chosen] = 1 / len(chosen)
    return weights


def _rank_neighbours(distances: Array) -> "tuple[Array, NDArray[np.intp], NDArray[np.intp]]":
    """Return every row's distances in order, with their rows, itself first; and the positions of all."""
    whose = np.argsort(distances - np.eye(len(distances)), axis=1, kind="stable")
    return np.take_along_axis(distances, whose, axis=1), whose, np.arange(len(distances))


Places = NDArray[np.intp]

# Products are added in single precision, and such sums in double. If all roundings went one way, sums would
# be wrong by SHORT / 2^24 = 2^-14 of the lengths. They do not, and the root of SHORT takes its place (Higham
# and Mary 2019): 2^-19; noise came to 2^-24, constants to 2^-18. An attacker whose numbers are all rounded
# one way gains as much as by being nearer to the others by 2^-14.
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


def krum_scores(distances: Array, f: int) -> Array:
    """The sum of the squared distances to the n - f - 1 nearest others, of all rows or some (some, sites)."""
    return np.sort(distances, axis=1)[:, : distances.shape[1] - f].sum(axis=1)


def lowest_scores(rows: Rows, f: int, kept: int) -> Places | None:
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
        order = krum_scores(_distances_of(rows, open_, about), f).argsort(kind="stable")
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
    """Return lower and upper bounds of the scores."""
    squares = gram.diagonal()
    sums = squares[:, None] + squares
    distances, doubt = sums - 2 * gram, DOUBT * sums + LOST * columns
    low, high = np.maximum(distances - doubt, 0.0), distances + doubt
    np.fill_diagonal(low, 0.0)
    np.fill_diagonal(high, 0.0)
    return krum_scores(low, f), krum_scores(high, f)


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
    # Symmetrize, so that two rows agree on their distance.
    inner[:, some] = (inner[:, some] + inner[:, some].T) / 2
    sums = squares[some][:, None] + squares
    distances = sums - 2 * inner
    distances[distances < ROUNDING * sums] = 0.0
    distances[np.arange(len(some)), some] = 0.0
    return distances
