"""Clipping: bound the contribution of one person or one site before anything is added up.

Clipping is what makes a sensitivity true, so its guarantee is strict: a clipped row is never longer than the
bound, rounding included. Rows within the bound stay bit-identical. Nothing here adds noise.
"""

from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from tacit.errors import require, require_positive, require_word
from tacit.privacy.mechanisms.row_sums import row_lengths
from tacit.runtime.arrays import Array
from tacit.runtime.jit import contiguous

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
