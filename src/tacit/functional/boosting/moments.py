"""Second moments of curves: sums of products of their coordinates, over all subjects and over folds.

A curve is a few coordinates in a frame: functions that are orthonormal over its domain, the smoothest first.
Predictors stand side by side, one block of columns for each; the response is apart. Everything that is
decided from moments, such as which predictors count and when to stop, is free once they have been paid for.

Folds are contiguous rows. They depend on the number of subjects alone, not on who holds which predictor, so
the same curves give the same fit however many parties there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, pairwise
from operator import add

import numpy as np

from tacit.errors import require
from tacit.runtime.arrays import Array


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
        """The mean squared distance, over curves, of the response from what coefficients make of predictors.

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
    """All but one part to learn from and that part to judge by, for each."""
    return [(union([*sums[:place], *sums[place + 1 :]]), sums[place]) for place in range(len(sums))]


def halves(sums: Sequence[Sums]) -> list[tuple[Sums, Sums]]:
    """Every half of the parts to learn from, and the other half to judge by."""
    chosen = combinations(range(len(sums)), len(sums) // 2)
    return [
        (
            union([sums[place] for place in half]),
            union([own for place, own in enumerate(sums) if place not in half]),
        )
        for half in chosen
    ]


def union(sums: Sequence[Sums]) -> Sums:
    """The sums of all parts together."""
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
