"""Smoothing of observations to coordinates in a frame: penalized least squares, for all curves at once.

Every curve is smoothed by itself: its coordinates depend on its own observations and on public choices, on no
other curve, bit for bit. So they can be clipped and paid for curve by curve.
"""

import numpy as np
from numpy.typing import NDArray

from tacit.functional.curves.basis import Frame
from tacit.runtime.arrays import Array
from tacit.runtime.jit import contiguous

Rows = NDArray[np.int64]

# The ridge that closes directions which observations leave open, for the smoothest curve that bends: small
# against what observations say, large against what rounding does.
LEAST = 1e-7
# Its share for a line, which is smoother still, and for what is rough, so that it does not grow without end.
FLATTEST, ROUGHEST = 1e-2, 1e5
# Passes against the ridge's bias, doubling: after 2^7 it is gone wherever there are observations.
DOUBLINGS = 7
# The number of matrix entries held at once.
ROOM = 1 << 21


def smooth_curves(times: Array, values: Array, owners: Rows | None, frame: Frame, smooth: float) -> Array:
    """Return the smoothed coordinates of every curve in a full frame (curves, functions of the frame).

    The mean square of residuals, plus the roughness of the curve times `smooth` over that of the smoothest
    function that bends, is made least. What observations leave open is settled by a tiny ridge on roughness:
    one observation gives a constant, two give nearly a line.

    Args:
        times: Of the grid (times,), or of every observation, curve by curve.
        values: On the grid, NaN where nothing was observed (curves, times), or of every observation.
        owners: The curve of every observation, increasing; None on a grid.
        frame: With every function of its basis.
        smooth: The penalty on roughness: a function that is r times as rough as the smoothest that bends is
            multiplied by 1 / (1 + smooth r) where observations are dense.
    """
    relative = frame.roughness / frame.roughness[frame.roughness > 0].min()
    penalties = smooth * relative, LEAST * relative.clip(FLATTEST, ROUGHEST)
    # The constant is always known: a curve has an observation.
    penalties[1][0] = 0.0
    if owners is not None:
        return _fit_irregular(times, values, owners, frame, penalties)
    design = frame.design(times)
    operator = _solvers(design.T @ design / len(times), penalties) @ design.T / len(times)
    # BLAS rounds a row of a product by its place and by the number of rows, never by other rows. Both are
    # public here and stay when one curve is exchanged for another: all curves are in it, with holes or not.
    found, holes = values @ operator.T, np.isnan(values).any(axis=1)
    if holes.any():
        # The number of curves with holes is secret, so the result for one must not depend on it.
        found[holes] = _with_holes(values[holes], design, penalties)
    return found


def _with_holes(values: Array, design: Array, penalties: tuple[Array, Array]) -> Array:
    """Fit curves with missing values on a common grid; those observed at the same times share equations."""
    from tacit.functional.curves.least_squares import fit_on_grid

    seen = np.packbits(~np.isnan(values), axis=1)
    patterns = np.unique(seen, axis=0, return_inverse=True)[1].reshape(-1)
    order, made = np.argsort(patterns, kind="stable"), np.empty((len(values), design.shape[1]))
    fit_on_grid(contiguous(values), order, patterns, contiguous(design), *penalties, DOUBLINGS, made)
    return made


def _fit_irregular(
    times: Array, values: Array, owners: Rows, frame: Frame, penalties: tuple[Array, Array]
) -> Array:
    """Fit curves observed at times of their own: each curve has its own equations."""
    from tacit.functional.curves.least_squares import fit_irregular

    ends = np.cumsum(np.bincount(owners))
    made, first, begun = np.empty((len(ends), frame.size)), 0, 0
    while first < len(ends):
        # As many curves at once as there is room for; that moves no bit.
        end = max(int(np.searchsorted(ends, begun + ROOM // frame.size, side="right")), first + 1)
        part, own = slice(begun, int(ends[end - 1])), ends[first:end] - begun
        shown = _evaluate_basis(times[part], own, frame)
        mixing = contiguous(frame.mixing)
        fit_irregular(contiguous(values[part]), own, shown, mixing, *penalties, DOUBLINGS, made[first:end])
        first, begun = end, part.stop
    return made


def _evaluate_basis(times: Array, ends: Rows, frame: Frame) -> Array:
    """Return the functions of the basis at the times of every curve (observations, functions)."""
    if frame.basis.pointwise:
        return contiguous(frame.basis.design(times))
    # Functions of numpy may round by where a number stands in an array; in one of a curve's own times that
    # depends on no other curve.
    return np.concatenate([frame.basis.design(own) for own in np.split(times, ends[:-1])])


def _solvers(normal: Array, penalties: tuple[Array, Array]) -> Array:
    """Return solvers of normal equations (..., functions, functions), with the ridge's bias removed.

    Iterated Tikhonov regularization: each pass fits the residual of the last with the same ridge. In the
    limit that is least squares, and the smoothest of all equally good fits.
    """
    strength, ridge = penalties
    solver = np.asarray(np.linalg.inv(normal + np.diag(strength + ridge)), dtype=np.float64)
    left = solver * ridge
    for _ in range(DOUBLINGS):
        solver = solver + left @ solver
        left = left @ left
    return solver
