"""Penalized least squares for single curves, compiled: one subject after the other, in loops of our own.

Who has a hole, and how many do, is as private as the values. A product of BLAS over all such subjects has as
many rows as there are of them, and rounds every row by that number: one subject more would move the
coordinates of all others, which clipping makes as long as the radius where they are rounding alone. Here the
result for a subject is a function of its own observations and of public numbers, bit for bit: sums go over
its observations in their order, and inner loops over outputs, so that no sum is ever taken in another order.
"""

import numpy as np
from numpy.typing import NDArray

from tacit.runtime.arrays import Array
from tacit.runtime.jit import compiled

Rows = NDArray[np.int64]


@compiled
def fit_on_grid(
    values: Array,
    order: Rows,
    patterns: Rows,
    design: Array,
    strength: Array,
    ridge: Array,
    doublings: int,
    made: Array,
) -> None:
    """Write the coordinates of curves on a common grid with holes to `made` (curves, functions).

    Equations hang on when a curve was observed and not on its values: curves next to each other in `order`
    that share a pattern share what solves them, which has the same bits for each.

    Args:
        values: NaN where nothing was observed (curves, times).
        order: The curves, those of one pattern next to each other.
        patterns: The number of the pattern of each curve.
        design: The functions at the times of the grid (times, functions); public.
        strength: The penalty on each function by its roughness.
        ridge: The ridge on directions that observations leave open.
        doublings: The number of passes that remove the ridge's bias.
        made: The output array.
    """
    size = design.shape[1]
    normal, solver, work = np.empty((size, size)), np.empty((size, size)), np.empty((3, size, size))
    whole, right = np.zeros((size, size)), np.empty(size)
    for time in range(len(design)):
        _add_square(whole, design, time, 1.0)
    for place in range(len(order)):
        curve = order[place]
        seen = _observation_count(values, curve)
        if place == 0 or patterns[curve] != patterns[order[place - 1]]:
            _square(values, curve, seen, design, whole, normal)
            _solve(normal, seen, strength, ridge, doublings, work, solver)
        _project(values, curve, design, right)
        _apply(solver, right, seen, made, curve)


@compiled
def fit_irregular(
    values: Array,
    ends: Rows,
    shown: Array,
    mixing: Array,
    strength: Array,
    ridge: Array,
    doublings: int,
    made: Array,
) -> None:
    """Write the coordinates of curves observed at times of their own to `made` (curves, functions).

    Args:
        values: Of every observation, curve by curve.
        ends: The end of each curve's observations.
        shown: The functions of the basis at the time of every observation (observations, functions).
        mixing: From coordinates in the frame to coefficients in the basis; public.
        strength: The penalty on each function by its roughness.
        ridge: The ridge on directions that observations leave open.
        doublings: The number of passes that remove the ridge's bias.
        made: The output array.
    """
    size, start = mixing.shape[1], 0
    normal, solver, work = np.empty((size, size)), np.empty((size, size)), np.empty((3, size, size))
    row, right = np.empty((1, size)), np.empty(size)
    for curve in range(len(ends)):
        normal[:], right[:] = 0.0, 0.0
        for slot in range(start, ends[curve]):
            row[:] = 0.0
            for place in range(len(mixing)):
                factor = shown[slot, place]
                # A spline is zero nearly everywhere.
                if factor != 0.0:
                    for other in range(size):
                        row[0, other] += factor * mixing[place, other]
            for other in range(size):
                right[other] += values[slot] * row[0, other]
            _add_square(normal, row, 0, 1.0)
        seen = ends[curve] - start
        _solve(normal, seen, strength, ridge, doublings, work, solver)
        _apply(solver, right, seen, made, curve)
        start = ends[curve]


@compiled
def _observation_count(values: Array, curve: int) -> int:
    """Count the observations of a curve on a grid."""
    seen = 0
    for time in range(values.shape[1]):
        seen += not np.isnan(values[curve, time])
    return seen


@compiled
def _square(values: Array, curve: int, seen: int, design: Array, whole: Array, normal: Array) -> None:
    """Write the products of the functions at the times of a curve, on the diagonal and right of it.

    Few observations are added up; few holes are taken from the products over the whole grid.
    """
    few = 2 * seen < len(design)
    if few:
        normal[:] = 0.0
    else:
        normal[:] = whole
    for time in range(len(design)):
        if np.isnan(values[curve, time]) != few:
            _add_square(normal, design, time, 1.0 if few else -1.0)


@compiled
def _project(values: Array, curve: int, design: Array, right: Array) -> None:
    """Write the sum of the functions at the times of a curve, each times its value."""
    right[:] = 0.0
    for time in range(len(design)):
        value = values[curve, time]
        if not np.isnan(value):
            for other in range(len(right)):
                right[other] += value * design[time, other]


@compiled
def _add_square(normal: Array, rows: Array, at: int, sign: float) -> None:
    """Add the product of a row with itself, or take it away, on the diagonal and right of it."""
    for place in range(rows.shape[1]):
        factor = sign * rows[at, place]
        for other in range(place, rows.shape[1]):
            normal[place, other] += factor * rows[at, other]


@compiled
def _apply(solver: Array, right: Array, seen: int, made: Array, curve: int) -> None:
    """Write the mean right side times the solver, which stands transposed."""
    made[curve] = 0.0
    for place in range(len(right)):
        factor = right[place] / seen
        for other in range(len(right)):
            made[curve, other] += factor * solver[place, other]


@compiled
def _solve(
    normal: Array, seen: int, strength: Array, ridge: Array, doublings: int, work: Array, solver: Array
) -> None:
    """Write the transposed solver of normal equations to `solver`; they are overwritten.

    As `smoothing._solvers` does for the grid without holes: iterated Tikhonov regularisation, by doubling.
    Transposed, sum and powers are S' = S' + S' L' and L' = L' L' with L' = R S', for the ridge R.
    """
    size = len(normal)
    left, added, squared = work[0], work[1], work[2]
    for place in range(size):
        for other in range(place, size):
            normal[place, other] /= seen
            normal[other, place] = normal[place, other]
        normal[place, place] += strength[place] + ridge[place]
    # The inverse of a symmetric matrix is its own transpose, and what rounding makes of it serves as well.
    _invert(normal, solver)
    for place in range(size):
        for other in range(size):
            left[place, other] = ridge[place] * solver[place, other]
    for _ in range(doublings):
        _multiply(solver, left, added)
        _multiply(left, left, squared)
        for place in range(size):
            for other in range(size):
                solver[place, other] += added[place, other]
                left[place, other] = squared[place, other]


@compiled
def _multiply(one: Array, other: Array, made: Array) -> None:
    """Write a product of square matrices; inner loops go over outputs, so that sums keep their order."""
    size = len(one)
    fours = size - size % 4
    for row in range(size):
        for column in range(size):
            made[row, column] = 0.0
        for place in range(0, fours, 4):
            first, second = one[row, place], one[row, place + 1]
            third, fourth = one[row, place + 2], one[row, place + 3]
            for column in range(size):
                made[row, column] += (
                    first * other[place, column]
                    + second * other[place + 1, column]
                    + third * other[place + 2, column]
                    + fourth * other[place + 3, column]
                )
        for place in range(fours, size):
            factor = one[row, place]
            for column in range(size):
                made[row, column] += factor * other[place, column]


@compiled
def _invert(matrix: Array, found: Array) -> None:
    """Write the inverse of a positive definite matrix, which is used up; not a number where it is none.

    By its factors L D L' and substitution, row by row.
    """
    size = len(matrix)
    found[:] = 0.0
    for row in range(size):
        found[row, row] = 1.0
    for pivot in range(size):
        if not matrix[pivot, pivot] > 0.0:
            matrix[pivot, pivot] = np.nan
        for row in range(pivot + 1, size):
            # The factor L overwrites the matrix.
            matrix[row, pivot] /= matrix[pivot, pivot]
            _take(matrix, row, matrix[row, pivot], pivot, pivot + 1, size)
            _take(found, row, matrix[row, pivot], pivot, 0, pivot + 1)
    for row in range(size - 1, -1, -1):
        found[row] /= matrix[row, row]
        for below in range(row + 1, size):
            _take(found, row, matrix[below, row], below, 0, size)


@compiled
def _take(rows: Array, row: int, factor: float, other: int, first: int, end: int) -> None:
    """Take a multiple of one row from another, in some of the columns."""
    for column in range(first, end):
        rows[row, column] -= factor * rows[other, column]
