"""From observations to coordinates in a frame: penalised least squares, for all curves at once.

Every curve is smoothed by itself: its coordinates depend on its own observations and on public choices, on no
other curve. So they can be clipped and paid for curve by curve.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tacit.functional.basis import Frame

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

# The ridge that closes directions which observations leave open, for the smoothest curve that bends: small
# against what observations say, large against what rounding does.
LEAST = 1e-7
# Its share for a line, which is smoother still, and for what is rough, so that it does not grow without end.
FLATTEST, ROUGHEST = 1e-2, 1e5
# How often the ridge is taken back, doubling: after 2^7 times its bias is gone wherever observations speak.
DOUBLINGS = 7
# How many numbers are held at once.
ROOM = 1 << 21


def smoothed(times: Array, values: Array, owners: Rows | None, frame: Frame, smooth: float) -> Array:
    """The coordinates of every curve in a full frame (curves, functions of the frame).

    The mean square of residuals, plus the roughness of the curve times `smooth` over that of the smoothest
    function that bends, is made least. What observations leave open is settled by a tiny ridge on roughness:
    one observation gives a constant, two give nearly a line.

    Args:
        times: Of the grid (times,), or of every observation, curve by curve.
        values: On the grid, NaN where nothing was observed (curves, times), or of every observation.
        owners: The curve of every observation, increasing; None on a grid.
        frame: With every function of its basis.
        smooth: How much roughness counts: a function that is r times as rough as the smoothest that bends is
            multiplied by 1 / (1 + smooth r) where observations are dense.
    """
    relative = frame.roughness / frame.roughness[frame.roughness > 0].min()
    penalties = smooth * relative, LEAST * relative.clip(FLATTEST, ROUGHEST)
    # The constant is always known: a curve has an observation.
    penalties[1][0] = 0.0
    if owners is not None:
        return _scattered(times, values, owners, frame, penalties)
    design = frame.design(times)
    operator = _solvers(design.T @ design / len(times), penalties) @ design.T / len(times)
    found, holes = values @ operator.T, np.isnan(values).any(axis=1)
    if holes.any():
        # Whoever has no hole is worked out as if nobody had one.
        found[holes] = _with_holes(values[holes], design, penalties)
    return found


def _with_holes(values: Array, design: Array, penalties: tuple[Array, Array]) -> Array:
    """On a common grid: curves that were observed at the same times share their equations."""
    seen = ~np.isnan(values)
    right = np.where(seen, values, 0.0) @ design / seen.sum(axis=1, keepdims=True)
    _, first, which = np.unique(np.packbits(seen, axis=1), axis=0, return_index=True, return_inverse=True)
    which = which.reshape(-1)
    made = np.empty_like(right)
    for rows in _portions(np.argsort(which, kind="stable"), design.shape[1] * max(design.shape)):
        patterns, place = np.unique(which[rows], return_inverse=True)
        shown = seen[first[patterns]].astype(np.float64)
        normal = (shown[:, None, :] * design.T) @ design / shown.sum(axis=1)[:, None, None]
        made[rows] = _applied(_solvers(normal, penalties)[place], right[rows])
    return made


def _scattered(
    times: Array, values: Array, owners: Rows, frame: Frame, penalties: tuple[Array, Array]
) -> Array:
    """At times of their own: curves of about the same number of observations go together."""
    counts = np.bincount(owners)
    starts, most = np.cumsum(counts) - counts, int(counts.max(initial=1))
    made = np.empty((len(counts), frame.size))
    for rows in _portions(np.argsort(counts, kind="stable"), frame.size * max(frame.size, most)):
        places = np.arange(int(counts[rows].max()))
        seen = places < counts[rows][:, None]
        slots = np.where(seen, starts[rows][:, None] + places, 0)
        design = frame.design(times[slots].ravel()).reshape(*slots.shape, frame.size) * seen[:, :, None]
        turned, share = design.swapaxes(1, 2), 1 / counts[rows]
        normal = turned @ design * share[:, None, None]
        made[rows] = _applied(_solvers(normal, penalties), _applied(turned, values[slots]) * share[:, None])
    return made


def _solvers(normal: Array, penalties: tuple[Array, Array]) -> Array:
    """What solves normal equations (..., functions, functions), the bias of the ridge taken back.

    Iterated Tikhonov regularisation: each pass fits, with the same ridge, what the last one left over. In the
    limit that is least squares, and among all that fit as well the smoothest.
    """
    strength, ridge = penalties
    solver = np.asarray(np.linalg.inv(normal + np.diag(strength + ridge)), dtype=np.float64)
    left = solver * ridge
    for _ in range(DOUBLINGS):
        solver = solver + left @ solver
        left = left @ left
    return solver


def _applied(matrices: Array, vectors: Array) -> Array:
    return (matrices @ vectors[:, :, None])[:, :, 0]


def _portions(rows: Rows, each: int) -> Iterator[Rows]:
    """Rows in turn, as many at once as there is room for."""
    step = max(1, ROOM // each)
    for start in range(0, len(rows), step):
        yield rows[start : start + step]
