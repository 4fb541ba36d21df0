"""Clipping: bound the contribution of one person or one site before anything is added up.

Clipping is what makes a sensitivity true, so its guarantee is strict: a clipped row is never longer than the
bound, rounding included. Rows within the bound stay bit-identical. Nothing here adds noise.

Lengths and sums of rows are compiled loops: the bits of a row depend on that row alone. Library kernels
choose their order of summation by the shape of the whole array, so that one record more rounds all others
anew. Here a loop sums a row over its own numbers, and rows are added up with compensation, so that the sum of
millions of clipped rows is off by a few roundings of one.
"""

import math
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit.errors import require, require_positive, require_word
from tacit.runtime.arrays import Array
from tacit.runtime.jit import compiled, compiled_sums, contiguous

Norm = Literal["l2", "l1"]
# Rows in single or in double precision.
Rows = TypeVar("Rows", NDArray[np.float32], NDArray[np.float64])


def clip_rows(rows: Rows, bound: float, *, norm: Norm = "l2") -> Rows:
    """Scale each row down to length `bound`; shorter rows stay as they are, to the bit.

    A single vector is one row: that is how the whole update of a site is clipped.

    Args:
        rows: The rows (..., coordinates).
        bound: The largest length allowed.
        norm: `l2` for Gaussian noise, `l1` for Laplace noise.

    Guarantee:
        Every row of the result has length at most `bound`, up to a rounding of double precision; a row that
        holds NaN or infinity, or whose length does, becomes zero, and `count_broken` counts it.
    """
    require_positive("bound", bound)
    length = lengths(rows, norm=norm)
    if bool((length <= bound).all()):
        return rows.copy()
    precision = np.finfo(rows.dtype)
    # Long rows shrink by a few roundings more than needed, so that the bound holds after rounding as well;
    # divided first, so that no factor is too small to be exact.
    slack = 1 - 8 * float(precision.eps) - rows.shape[-1] * float(np.finfo(np.float64).eps)
    with np.errstate(all="ignore"):
        shrunk = (rows.astype(np.float64) / length[..., None] * (bound * slack)).astype(rows.dtype)
        # A subnormal number could have been rounded up to a multiple of itself.
        shrunk[np.abs(shrunk) < precision.tiny] = 0.0
    clipped, long = rows.copy(), length > bound
    clipped[long] = shrunk[long]
    clipped[~np.isfinite(length)] = 0.0
    return clipped


def count_broken(rows: Rows) -> int:
    """Count the rows that clipping turns into zeros; as private as the rows, the number stays at the site."""
    return int(np.isinf(lengths(rows)).sum())


def lengths(rows: Rows, *, norm: Norm = "l2") -> Array:
    """Return the length of each row, in double precision; infinite where a row is broken."""
    require_word("norm", norm, ("l2", "l1"))
    require(np.issubdtype(rows.dtype, np.floating), "rows", str(rows.dtype), "floating-point numbers")
    require(rows.ndim > 0 and rows.shape[-1] > 0, "rows", f"shape {rows.shape}", "rows of coordinates")
    flat = contiguous(rows.astype(np.float64, copy=False)).reshape(-1, rows.shape[-1])
    found = np.empty(len(flat))
    row_lengths(flat, norm == "l2", found)
    return found.reshape(rows.shape[:-1])


# Between these, sums of squares neither overflow nor vanish; other rows are measured by their largest entry.
SMALLEST, LARGEST = 1e-100, 1e100
# The smallest normal number.
TINY = float(np.finfo(np.float64).tiny)


@compiled
def row_lengths(rows: Array, squared: bool, found: Array) -> None:
    """Write the length of each row (rows, coordinates) to `found`, infinite where a row is broken.

    Args:
        rows: The rows.
        squared: L2 lengths if true, L1 lengths otherwise.
        found: One length for each row.

    Guarantee:
        The bits of a length depend on the numbers of its own row alone.
    """
    for place in range(len(rows)):
        row = rows[place]
        length = _length(row, 1.0, squared)
        # Written so that NaN is measured again too.
        if not (SMALLEST < length < LARGEST):
            peak = TINY
            for number in range(len(row)):
                peak = max(peak, abs(row[number]))
            length = _length(row, peak, squared) * peak
            for number in range(len(row)):
                if not math.isfinite(row[number]):
                    length = math.inf
        found[place] = length if math.isfinite(length) else math.inf


@compiled_sums
def _length(row: Array, unit: float, squared: bool) -> float:
    """Return the length of one row, in multiples of `unit`."""
    total = 0.0
    if squared:
        for number in range(len(row)):
            total += (row[number] / unit) * (row[number] / unit)
        return math.sqrt(total)
    for number in range(len(row)):
        total += abs(row[number] / unit)
    return total


@compiled
def add_rows(rows: Array, factors: Array, sums: Array) -> None:
    """Write the sum over rows (sites, records, coordinates), each times its factor, to `sums`.

    A row whose factor is 0 is passed over, however broken it is.

    Args:
        rows: Rows to add up.
        factors: One for each row (sites, records).
        sums: The sums (sites, coordinates).

    Guarantee:
        A sum is off by at most two roundings of itself and of the sum of lengths over 2^53 (Neumaier 1974).
    """
    lost = np.empty(rows.shape[2])
    for site in range(len(rows)):
        total = sums[site]
        total[:] = 0.0
        lost[:] = 0.0
        for record in range(rows.shape[1]):
            if factors[site, record] != 0.0:
                add_exactly(rows[site, record], factors[site, record], total, lost)
        for place in range(len(total)):
            total[place] += lost[place]


@compiled
def add_exactly(row: Array, factor: float, total: Array, lost: Array) -> None:
    """Add a row times its factor to `total`, and the roundings of these additions to `lost`."""
    for place in range(len(total)):
        added = row[place] * factor
        before = total[place]
        after = before + added
        shifted = after - before
        # Exact for doubles (Knuth's two-sum), whichever of the two is larger.
        lost[place] += (before - (after - shifted)) + (added - shifted)
        total[place] = after
