"""When to stop boosting: by what was held back, or by the loss and the degrees of freedom it was bought with.

Losses come from moments that noise was taken off, so each criterion is corrected for privacy already.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.functional.boosting.moments import Moments
from tacit.functional.boosting.path import BoostingPath

Array = NDArray[np.float64]
Information = Literal["aic", "aicc", "mv"]
# Of the spread of the response: a loss that noise took below it says no more.
LEAST = 1e-10


def held_out(walk: BoostingPath, weights: Array) -> Array:
    """The mean loss on what was held back after 0, 1, ... steps (steps + 1,)."""
    return walk.judged.sum(axis=2) @ weights


def residual(walk: BoostingPath, weights: Array, degrees: Array, count: int) -> Array:
    """The variance of what is left of each coordinate of the response, where a walk was judged best (m,).

    Args:
        walk: Of splits that share subjects.
        weights: Of the splits.
        degrees: Used after 0, 1, ... steps, by coordinate (steps + 1, m).
        count: Of subjects.
    """
    best = int(held_out(walk, weights).argmin())
    left = np.maximum(weights @ walk.judged[best], 0.0)
    return left / np.maximum(1 - degrees[best] / count, 0.1)


def information(kind: Information, walk: BoostingPath, whole: Moments, degrees: Array) -> Array:
    """An information criterion of a walk on all subjects after 0, 1, ... steps (steps + 1,).

    Args:
        kind: `aic`; `aicc`, corrected for few subjects; or `mv`, of the residuals' covariance.
        walk: Of one split, judged by what it learnt from.
        whole: That.
        degrees: Used after 0, 1, ... steps (steps + 1,).
    """
    spread = float(np.trace(whole.yy))
    if kind == "mv":
        return whole.count * _log_determinants(walk, whole) + 2 * degrees
    numbers = whole.count * whole.yy.shape[0]
    losses = np.maximum(walk.judged.sum(axis=(1, 2)), LEAST * spread) / whole.yy.shape[0]
    fair = numbers / np.maximum(numbers - degrees - 1, 1.0) if kind == "aicc" else 1.0
    return numbers * np.log(losses) + 2 * degrees * fair


def _log_determinants(walk: BoostingPath, whole: Moments) -> Array:
    """Log determinants of the residuals' covariance after 0, 1, ... steps."""
    halves = np.einsum("nqa,nqb->nab", walk.moves[:, 0], walk.slopes[:, 0]) / 2
    left = whole.yy - np.cumsum(halves + halves.swapaxes(1, 2), axis=0)
    roots = np.linalg.eigvalsh(np.concatenate([whole.yy[None], left]))
    least = LEAST * float(np.trace(whole.yy)) / len(whole.yy)
    return np.log(np.maximum(roots, least)).sum(axis=1)
