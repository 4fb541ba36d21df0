"""Second moments of curves: sums of products of their coordinates, over all subjects and over folds.

A curve is a few coordinates in a frame: functions that are orthonormal over its domain, the smoothest first.
Predictors stand side by side, one block of columns for each; the response is apart. Everything that is
decided from moments, such as which predictors count and when to stop, is free once they have been paid for.

Folds are contiguous rows. They depend on the number of subjects alone, not on who holds which predictor, so
the same curves give the same fit however many parties there are.

A `Design` has moments in the coordinates in which the equation of each predictor is diagonal: the input of a
boosting path. Predictors of fewer coordinates than others are padded with coordinates that are constantly 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations, pairwise
from operator import add

import numpy as np
from numpy.typing import NDArray

from tacit.errors import require
from tacit.functional.solver import prepare
from tacit.runtime.arrays import Array

# Of a predictor's mean variance: keeps an equation solvable where coordinates are constant or repeat others.
TINY = 1e-10


@dataclass(frozen=True, eq=False, kw_only=True)
class Moments:
    """Second moments of centered coordinates, noise taken off; they may be indefinite where there was some.

    Args:
        xx: Of all predictors with each other (columns, columns).
        xy: Of predictors with the response (columns, coordinates of the response).
        yy: Of the response with itself.
        count: Over how many subjects they are means; a public number.
    """

    xx: Array
    xy: Array
    yy: Array
    count: int

    def loss(self, coefficients: Array) -> float:
        """Return the mean squared error of the response over curves, under these coefficients.

        Args:
            coefficients: (columns, coordinates of the response).
        """
        fitted = self.xx @ coefficients - 2 * self.xy
        return float(np.trace(self.yy) + np.vdot(coefficients, fitted))


@dataclass(frozen=True, eq=False, kw_only=True)
class DebiasedMoments:
    """Input of a fit: debiased moments, with splits for validation.

    Args:
        whole: The moments of all subjects; `xx` is repaired: positive semidefinite.
        raw: The same before repair.
        splits: Pairs of moments to learn from and to judge by, whose noise and subjects do not overlap; as
            they are, to be repaired for the predictors that take part.
        blocks: The columns of each predictor.
        floors: For each predictor, what noise does to the eigenvalues of its moments; 0 where there is none.
        roughness: For each predictor, that of each of its coordinates: the diagonal penalty of its frame.
        roughness_y: That of the coordinates of the response.
        optimism: True if `splits` share subjects and differ in noise alone, so that the fit must be judged by
            degrees of freedom as well.
    """

    whole: Moments
    raw: Moments
    splits: Sequence[tuple[Moments, Moments]]
    blocks: tuple[slice, ...]
    floors: tuple[float, ...]
    roughness: tuple[Array, ...]
    roughness_y: Array
    optimism: bool = False


# Their halves are judged by each other, in three ways and both directions.
NOISY_FOLDS = 4


@dataclass(frozen=True, eq=False)
class Sums:
    """Sufficient statistics of some subjects; those of disjoint parts add up.

    Args:
        count: The number of subjects.
        first: The sum of their rows, predictors and response side by side.
        second: The sum of the products of each two columns.
    """

    count: int
    first: Array
    second: Array

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.count + other.count, self.first + other.first, self.second + other.second)

    def moments(self, columns: int) -> Moments:
        """Return centered moments, divided by the number of subjects less one, which makes them unbiased.

        Args:
            columns: The number of the predictors' columns.
        """
        centred = (self.second - np.outer(self.first, self.first) / self.count) / (self.count - 1)
        return Moments(
            xx=centred[:columns, :columns],
            xy=centred[:columns, columns:],
            yy=centred[columns:, columns:],
            count=self.count,
        )


def fold_sums(x: Array, y: Array, folds: int) -> list[Sums]:
    """The sums of contiguous parts of the rows, as equal as can be."""
    most = len(x) // 2
    require(2 <= folds <= most, "folds", folds, f"from 2 to {most}: at least 2 of {len(x)} subjects in each")
    rows = np.hstack([x, y])
    # About a place in the middle, or large means would swallow the digits of what varies.
    rows -= rows.mean(axis=0)
    ends = [len(rows) * fold // folds for fold in range(folds + 1)]
    parts = [rows[start:end] for start, end in pairwise(ends)]
    return [Sums(len(part), part.sum(axis=0), part.T @ part) for part in parts]


def encode_sums(rows: Array, cut: int, folds: int) -> Array:
    """Encode the mean of rows, and centered sums over their parts, as one list without single rows.

    Args:
        rows: Predictors and response side by side (subjects, columns).
        cut: The number of the predictors' columns.
        folds: The number of parts.
    """
    upper = np.triu_indices(rows.shape[1])
    parts = [
        np.concatenate([[part.count], part.first, part.second[upper]])
        for part in fold_sums(rows[:, :cut], rows[:, cut:], folds)
    ]
    return np.concatenate([rows.mean(axis=0), *parts])


def encoded_length(columns: int, folds: int) -> int:
    """Return the length of an encoded release of moments."""
    return columns + folds * (1 + columns + columns * (columns + 1) // 2)


def decode_sums(numbers: Array, columns: int, folds: int) -> tuple[Array, list[Sums]]:
    """The mean, and the sums of the parts about it."""
    upper = np.triu_indices(columns)
    found: list[Sums] = []
    for part in numbers[columns:].reshape(folds, -1):
        second = np.zeros((columns, columns))
        second[upper] = part[1 + columns :]
        found.append(Sums(round(part[0]), part[1 : 1 + columns], second + np.triu(second, 1).T))
    return numbers[:columns], found


def leave_one_out(sums: Sequence[Sums]) -> list[tuple[Sums, Sums]]:
    """Split the parts by leave-one-out: training sums and evaluation sums."""
    return [(union([*sums[:place], *sums[place + 1 :]]), sums[place]) for place in range(len(sums))]


def halves(sums: Sequence[Sums]) -> list[tuple[Sums, Sums]]:
    """Split the parts into halves in every way: training sums and evaluation sums."""
    chosen = combinations(range(len(sums)), len(sums) // 2)
    return [
        (
            union([sums[place] for place in half]),
            union([own for place, own in enumerate(sums) if place not in half]),
        )
        for half in chosen
    ]


def union(sums: Sequence[Sums]) -> Sums:
    """Add up the sums of all parts."""
    return reduce(add, sums)


# Rows per product, which bounds the roundings of each number.
BLOCK = 256


def products(rows: Array) -> Array:
    """The upper triangle, row by row, of W'W for W = [1, rows].

    Guarantee:
        Products are added up in blocks of `BLOCK` rows, and blocks with compensation (Neumaier 1974): each
        number is off by at most 260 * 2^-53 times the sum of the sizes of what is added up.
    """
    whole = np.hstack([np.ones((len(rows), 1)), rows])
    total, lost = np.zeros((2, whole.shape[1], whole.shape[1]))
    for start in range(0, len(whole), BLOCK):
        part = whole[start : start + BLOCK]
        added = part.T @ part
        new = total + added
        larger = np.abs(total) >= np.abs(added)
        lost += np.where(larger, (total - new) + added, (added - new) + total)
        total = new
    return (total + lost)[np.triu_indices(whole.shape[1])]


@dataclass(frozen=True, kw_only=True)
class Penalty:
    """Penalty on roughness along either argument or both, and the floor of predictor variances.

    Args:
        s: Along the predictors' argument: 1 lets mean roughness cost what its mean variance is worth.
        t: Along that of the response.
        st: Along both.
        floor: Variances of predictors are raised to this multiple of what noise alone would show.
    """

    s: float = 0.0
    t: float = 0.0
    st: float = 0.0
    floor: float = 1.0


@dataclass(frozen=True, eq=False)
class BlockLayout:
    """Columns of each predictor, as one table with a row for each.

    Args:
        columns: (predictors, size), filled up with `width`, one past the last column.
        roughness: That of each coordinate (predictors, size), 0 where filled up.
        width: The number of columns.
    """

    columns: NDArray[np.int64]
    roughness: Array
    width: int

    @classmethod
    def from_moments(cls, evidence: DebiasedMoments) -> "BlockLayout":
        """The layout of predictors side by side."""
        width = evidence.whole.xx.shape[0]
        sizes = [block.stop - block.start for block in evidence.blocks]
        columns, rough = np.full((len(sizes), max(sizes)), width), np.zeros((len(sizes), max(sizes)))
        for row, (block, size) in enumerate(zip(evidence.blocks, sizes, strict=True)):
            columns[row, :size] = np.arange(block.start, block.stop)
            rough[row, :size] = evidence.roughness[row]
        return cls(columns, rough, width)

    @cached_property
    def plain(self) -> bool:
        """True if all predictors have the same number of coordinates and stand in order."""
        return np.array_equal(self.columns.ravel(), np.arange(self.width))

    def squares(self, xx: Array) -> Array:
        """Moments of predictors by predictor, twice (predictors, size, predictors, size)."""
        shape = (*self.columns.shape, *self.columns.shape)
        if self.plain:
            return xx.reshape(shape)
        flat = self.columns.ravel()
        return np.pad(xx, (0, 1))[np.ix_(flat, flat)].reshape(shape)

    def rows(self, xy: Array) -> Array:
        """Moments with the response by predictor (predictors, size, m)."""
        if self.plain:
            return xy.reshape(*self.columns.shape, -1)
        return np.pad(xy, ((0, 1), (0, 0)))[self.columns]

    def flat(self, coefficients: Array) -> Array:
        """Coefficients by predictor (predictors, size, m) as those of all columns (columns, m)."""
        return coefficients[self.columns < self.width]


@dataclass(frozen=True, eq=False)
class Design:
    """Moments in each predictor's own coordinates, for every split and view: the input of a boosting path.

    The first view is for learning, the last for judging; a single one is both.

    Args:
        cross: Moments of all predictors with each one (splits, views, predictors, predictors * size, size).
        slopes: Moments with the response (splits, views, predictors, size, m).
        spread: Of the response, coordinate by coordinate (splits, views, m).
        basis: From own coordinates to those of the frame (splits, predictors, size, size).
        shrink: Shrinkage of the least-squares fit by the penalties (splits, predictors, size, m).
    """

    cross: Array
    slopes: Array
    spread: Array
    basis: Array
    shrink: Array

    @cached_property
    def own(self) -> Array:
        """Each predictor's moments with itself (splits, views, predictors, size, size)."""
        splits, views, count, size = self.slopes.shape[:4]
        blocks = self.cross.reshape(splits, views, count, count, size, size)
        return np.ascontiguousarray(np.moveaxis(np.diagonal(blocks, axis1=2, axis2=3), -1, 2))

    def restrict_to(self, rows: Sequence[int]) -> "Design":
        """Restrict the design to some of the predictors."""
        kept = list(rows)
        splits, views, count, size = self.slopes.shape[:4]
        blocks = self.cross.reshape(splits, views, count, count, size, size)[:, :, kept][:, :, :, kept]
        cross = blocks.reshape(splits, views, len(kept), len(kept) * size, size)
        slopes, basis, shrink = self.slopes[:, :, kept], self.basis[:, kept], self.shrink[:, kept]
        return Design(cross, slopes, self.spread, basis, shrink)


def design(evidence: DebiasedMoments, splits: Sequence[tuple[Moments, ...]], penalty: Penalty) -> Design:
    """Transform moments to coordinates in which a penalty's equations are diagonal.

    Args:
        evidence: About the predictors that may be moved.
        splits: The views of each; those of the evidence, or others of the same columns.
        penalty: The penalty of the fit.
    """
    layout = BlockLayout.from_moments(evidence)
    parts = [_views(layout, evidence.roughness_y, views, penalty) for views in splits]
    return Design(*(np.stack(arrays) for arrays in zip(*parts, strict=True)))


def _views(
    layout: BlockLayout, rough_y: Array, views: tuple[Moments, ...], penalty: Penalty
) -> tuple[Array, ...]:
    count, size = layout.columns.shape
    squares = np.stack([layout.squares(view.xx) for view in views])
    own = np.moveaxis(np.diagonal(squares[0], axis1=0, axis2=2), -1, 0)
    basis, shrink = _prepare_basis(layout, own, rough_y, penalty)
    # One predictor's basis at a time: (l, a, j, b) as (j, l a, b) into own coordinates of j, then of l.
    turned = squares.transpose(0, 3, 1, 2, 4).reshape(len(views), count, count * size, size) @ basis
    cross = basis.swapaxes(-1, -2) @ turned.reshape(len(views), count, count, size, size)
    slopes = np.stack([basis.swapaxes(-1, -2) @ layout.rows(view.xy) for view in views])
    spread = np.stack([np.diagonal(view.yy) for view in views])
    return cross.reshape(len(views), count, count * size, size), slopes, spread, basis, shrink


def _prepare_basis(layout: BlockLayout, own: Array, rough_y: Array, penalty: Penalty) -> tuple[Array, Array]:
    """Return the basis and shrinkage of every predictor, from its own moments (predictors, size, size)."""
    there = layout.columns < layout.width
    sizes = there.sum(axis=1)
    variance = np.trace(own, axis1=1, axis2=2) / sizes
    per_s = _over(variance, layout.roughness.sum(axis=1) / sizes)
    per_t, per_both = (_over(one, np.full_like(one, rough_y.mean())) for one in (variance, per_s))
    ridge = np.where(variance > 0, TINY * variance, 1.0)
    # Coordinates that fill up get variance 1 and no slope: they stay 0.
    filled = own + np.where(there, ridge[:, None], 1.0)[..., None] * np.eye(own.shape[-1])
    weights = (penalty.s * per_s, penalty.t * per_t, penalty.st * per_both)
    ready = prepare(filled, layout.roughness, rough_y, *weights)
    return ready.basis, ready.shrink


def _over(one: Array, other: Array) -> Array:
    return np.divide(one, other, out=np.zeros_like(one), where=other > 0)
