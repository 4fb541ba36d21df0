"""Sums and products over whole updates, compiled: each number is read once, without copies.

Updates may be in single or in double precision, and in order (`np.ascontiguousarray`).
"""

import numpy as np
from numpy.typing import NDArray

from tacit.runtime.arrays import Array
from tacit.runtime.jit import compiled, compiled_sums

Rows = NDArray[np.float32] | NDArray[np.float64]
Places = NDArray[np.intp]

# Number of products added in single precision.
SHORT = 1 << 10
# Number of columns of products, and of a sum, that stay in the cache.
COLUMNS, SUMMED = 1 << 12, 1 << 13
# Rows of a block of products, by columns: as many as fit into the registers.
HIGH, WIDE = 4, 2
NOTHING = np.float32(0.0)


@compiled
def sum_rows(rows: Rows, some: Places, factor: float, over: float, total: Array) -> None:
    """Write the sum of some of the rows (rows, columns) to a total (columns), in double precision.

    Four at a time: the total is read and written a quarter as often, and comes out as if one were added after
    the other.

    Args:
        rows: The rows.
        some: The positions of those that are added.
        factor: Factor of the sum.
        over: Divisor of the sum.
        total: Output for the sum.
    """
    whole = len(some) - len(some) % 4
    for start in range(0, len(total), SUMMED):
        end = start + SUMMED
        part = total[start:end]
        part[:] = 0.0
        for four in range(0, whole, 4):
            one, two = rows[some[four], start:end], rows[some[four + 1], start:end]
            three, last = rows[some[four + 2], start:end], rows[some[four + 3], start:end]
            for place in range(len(part)):
                part[place] = (((part[place] + one[place]) + two[place]) + three[place]) + last[place]
        for row in some[whole:]:
            values = rows[row, start:end]
            for place in range(len(part)):
                part[place] += values[place]
        if factor != 1 or over != 1:
            for place in range(len(part)):
                part[place] = part[place] * factor / over


@compiled
def add_multiple(row: Rows, factor: float, total: Array) -> None:
    """Add a row times a factor to a total, in double precision."""
    for place in range(len(total)):
        total[place] += np.float64(row[place]) * factor


@compiled_sums
def square_of(row: Rows) -> float:
    """The squared length of a row, in double precision."""
    square = 0.0
    for place in range(len(row)):
        square += np.float64(row[place]) * np.float64(row[place])
    return square


@compiled_sums
def add_some_products(rows: Rows, some: Places, centre: Array, squares: Array, inner: Array) -> None:
    """Add the squares of all rows, and their inner products with some, in double precision.

    Args:
        rows: The rows (rows, columns).
        some: The positions of some of them.
        centre: From where all are measured (columns).
        squares: Output for the squares (rows).
        inner: Output for the products (some, rows).
    """
    kept, row = np.empty((len(some), COLUMNS)), np.empty(COLUMNS)
    for start in range(0, len(centre), COLUMNS):
        about = centre[start : start + COLUMNS]
        wide = len(about)
        for place, chosen in enumerate(some):
            for column in range(wide):
                kept[place, column] = rows[chosen, start + column] - about[column]
        for each in range(len(rows)):
            values, square = rows[each, start : start + COLUMNS], 0.0
            for column in range(wide):
                row[column] = values[column] - about[column]
                square += row[column] * row[column]
            squares[each] += square
            for place in range(len(some)):
                other, product = kept[place], 0.0
                for column in range(wide):
                    product += row[column] * other[column]
                inner[place, each] += product


@compiled_sums
def add_products(rows: NDArray[np.float32], gram: Array) -> None:
    """Add the inner products of all pairs of rows to the lower half of `gram`, and to some of the upper.

    Args:
        rows: In single precision, and so are sums over `SHORT` columns; those are added in double.
        gram: A matrix of as many rows and columns as there are rows, and `HIGH` more, whose entries are not
            used.
    """
    last = len(rows) - 1
    for start in range(0, rows.shape[1], SHORT):
        end = start + SHORT
        for first in range(0, len(rows), HIGH):
            a, b = rows[first, start:end], rows[min(first + 1, last), start:end]
            c, d = rows[min(first + 2, last), start:end], rows[min(first + 3, last), start:end]
            for second in range(0, first + HIGH, WIDE):
                x, y = rows[min(second, last), start:end], rows[min(second + 1, last), start:end]
                ax, bx, cx, dx = NOTHING, NOTHING, NOTHING, NOTHING
                ay, by, cy, dy = NOTHING, NOTHING, NOTHING, NOTHING
                for place in range(len(x)):
                    ax += a[place] * x[place]
                    bx += b[place] * x[place]
                    cx += c[place] * x[place]
                    dx += d[place] * x[place]
                    ay += a[place] * y[place]
                    by += b[place] * y[place]
                    cy += c[place] * y[place]
                    dy += d[place] * y[place]
                gram[first, second] += ax
                gram[first + 1, second] += bx
                gram[first + 2, second] += cx
                gram[first + 3, second] += dx
                gram[first, second + 1] += ay
                gram[first + 1, second + 1] += by
                gram[first + 2, second + 1] += cy
                gram[first + 3, second + 1] += dy
