"""Metrics of predicted curves, of variable selection, and of communication.

    distance       il2, ril2, r2 (integrals over the domain; also of coordinates)
    bounded        curve_sums (what a site releases for a private score)
    points         rmse, nrmse, mae, smape, wmape, mape (over the points of a grid)
    selection      sensitivity, specificity
    traffic        bytes_local, bytes_moments, bytes_reference

Curves are rows of values on a common grid (subjects, times); unknown true values are NaN and do not count.
Nothing here is private: a score of held-out subjects is a release like any other.
"""

import math
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidValue, require, require_count
from tacit.learning.noisy_scores import square_sums
from tacit.runtime.arrays import Array

__all__ = [
    "bytes_local",
    "bytes_moments",
    "bytes_reference",
    "curve_sums",
    "il2",
    "mae",
    "mape",
    "nrmse",
    "quadrature",
    "r2",
    "ril2",
    "rmse",
    "scores",
    "sensitivity",
    "smape",
    "specificity",
    "wmape",
]


# Of a number in double precision.
BYTES = 8


def scores(
    true: ArrayLike,
    predicted: ArrayLike,
    times: ArrayLike,
    *,
    selected: Collection[str] | None = None,
    active: Collection[str] | None = None,
    predictors: Collection[str] | None = None,
) -> dict[str, float]:
    """Return every score by name (r2, ril2, il2, rmse, nrmse, mae, smape, wmape, mape); NaN if undefined.

    Args:
        true: The curves that were seen (subjects, times); NaN where one was not.
        predicted: Their predictions (subjects, times).
        times: The grid, ascending (times,).
        selected: The predictors that a model uses. With `active` and `predictors`: sensitivity and
            specificity as well.
        active: The predictors that matter in truth, where that is known.
        predictors: All of them.
    """
    _ = _pair(true, predicted, times)
    found = {score.__name__: _score_or_nan(score, true, predicted, times) for score in (r2, ril2, il2)}
    for score in (rmse, nrmse, mae, smape, wmape, mape):
        found[score.__name__] = _score_or_nan(score, true, predicted)
    if selected is not None and active is not None:
        found["sensitivity"] = sensitivity(selected, active)
        if predictors is not None:
            found["specificity"] = specificity(selected, active, predictors)
    return found


def il2(true: ArrayLike, predicted: ArrayLike, times: ArrayLike | None = None) -> float:
    """The mean over subjects of the integral of (y - yhat)^2 over the domain.

    Args:
        true: Values on a grid, NaN where one is not known, or coordinates in orthonormal functions, whose
            squares add up to the integral of the square (subjects, times or coordinates).
        predicted: Of the same shape.
        times: The grid, ascending; None if coordinates are given. Frames are orthonormal in the mean over
            the domain: with their coordinates this is the integral divided by the domain's length.
    """
    pair = _pair(true, predicted, times)
    return _square(pair, pair.true - pair.predicted) / len(pair.true)


def ril2(true: ArrayLike, predicted: ArrayLike, times: ArrayLike | None = None) -> float:
    """The sum of int (y - yhat)^2 over subjects, divided by that of int y^2: 0 is perfect, 1 is yhat = 0.

    Args:
        true: As for `il2`.
        predicted: As for `il2`.
        times: As for `il2`.
    """
    pair = _pair(true, predicted, times)
    whole = _square(pair, pair.true)
    require(whole > 0, "true", "0 everywhere", "different from 0 somewhere, to be relative to")
    return _square(pair, pair.true - pair.predicted) / whole


def r2(true: ArrayLike, predicted: ArrayLike, times: ArrayLike | None = None) -> float:
    """1 - sum int (y - yhat)^2 / sum int (y - ybar)^2, with ybar the mean curve of the true ones.

    Args:
        true: As for `il2`.
        predicted: As for `il2`.
        times: As for `il2`.
    """
    pair = _pair(true, predicted, times)
    mean = pair.true.sum(axis=0) / np.maximum(pair.known.sum(axis=0), 1)
    spread = _square(pair, np.where(pair.known, pair.true - mean, 0.0))
    require(spread > 0, "true", "the same curve for all subjects", "curves that differ, to be explained")
    return 1 - _square(pair, pair.true - pair.predicted) / spread


def curve_sums(
    true: ArrayLike, predicted: ArrayLike, times: ArrayLike, center: ArrayLike, bound: float
) -> Array:
    """Bounded sums of squares of curves: what a site releases, with noise, for a private R2 or RIL2.

    Args:
        true: As for `il2`.
        predicted: As for `il2`.
        times: The grid, ascending (times,).
        center: Public curve that R2 is relative to, such as the mean curve of training (times,); 0 for RIL2.
        bound: Public bound of the mean over the domain of a curve's squared residual; more counts as this.

    Returns:
        Squared residuals, squared distances from the center, and subjects, in whole units (3,), for
        `tacit.learning.noisy_scores.SquareSums`.

    Guarantee:
        A subject moves the sums by at most `tacit.learning.noisy_scores.SENSITIVITY` in L1.
    """
    pair = _pair(true, predicted, times)
    return square_sums(pair.true, pair.predicted, center, bound, pair.weights)


def rmse(true: ArrayLike, predicted: ArrayLike) -> float:
    """The root of the mean of (y - yhat)^2 over all points of all subjects."""
    return float(np.sqrt((_gaps(_pair(true, predicted, holes=True)) ** 2).mean()))


def nrmse(true: ArrayLike, predicted: ArrayLike) -> float:
    """`rmse` divided by the standard deviation, with n - 1, of all values of y."""
    pair = _pair(true, predicted, holes=True)
    values = pair.true[pair.known]
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    require(spread > 0, "true", "one value everywhere", "values that differ, to be relative to")
    return rmse(true, predicted) / spread


def mae(true: ArrayLike, predicted: ArrayLike) -> float:
    """The mean of |y - yhat| over all points."""
    return float(_gaps(_pair(true, predicted, holes=True)).mean())


def smape(true: ArrayLike, predicted: ArrayLike) -> float:
    """The mean of 2 |y - yhat| / (|y| + |yhat|) over all points, in percent; 0 where both are 0."""
    pair = _pair(true, predicted, holes=True)
    sizes = (np.abs(pair.true) + np.abs(pair.predicted))[pair.known]
    return 200 * float(np.divide(_gaps(pair), sizes, out=np.zeros_like(sizes), where=sizes > 0).mean())


def wmape(true: ArrayLike, predicted: ArrayLike) -> float:
    """The sum of |y - yhat| divided by the sum of |y|, in percent."""
    pair = _pair(true, predicted, holes=True)
    whole = float(np.abs(pair.true).sum())
    require(whole > 0, "true", "0 everywhere", "different from 0 somewhere, to be relative to")
    return 100 * float(_gaps(pair).sum()) / whole


def mape(true: ArrayLike, predicted: ArrayLike) -> float:
    """The mean of |y - yhat| / |y| over the points where y is not 0, in percent.

    It is ruled by the points where y is nearly 0: for curves that cross 0, read `wmape` instead.
    """
    pair = _pair(true, predicted, holes=True)
    sizes = np.abs(pair.true)[pair.known]
    some = sizes > 0
    require(bool(some.any()), "true", "0 everywhere", "different from 0 somewhere, to be relative to")
    return 100 * float((_gaps(pair)[some] / sizes[some]).mean())


def sensitivity(selected: Collection[str], active: Collection[str]) -> float:
    """The share of active predictors that were selected; 1 if there is none to miss."""
    wanted = set(active)
    return len(wanted & set(selected)) / len(wanted) if wanted else 1.0


def specificity(selected: Collection[str], active: Collection[str], predictors: Collection[str]) -> float:
    """The share of the other predictors that were not selected; 1 if every one of them is active."""
    known = set(predictors)
    for field, names in (("selected", selected), ("active", active)):
        strange = sorted(set(names) - known)
        require(not strange, field, strange, "among the predictors")
    others = known - set(active)
    return len(others - set(selected)) / len(others) if others else 1.0


def bytes_local(records: int, widths: Sequence[int]) -> int:
    """Return the bytes of a local release: every subject's coordinates, 8 records (w_1 + ... + w_p).

    Args:
        records: The number of subjects.
        widths: The number of coordinates that each predictor sends.
    """
    require_count("records", records)
    return BYTES * records * _total(widths)


def bytes_moments(widths: Sequence[int]) -> int:
    """Return the bytes of a release of moments: half a symmetric matrix, 8 d (d + 1) / 2.

    Args:
        widths: The number of coordinates of each predictor and the response; d is one more than their sum,
            since the mean of each is a moment too.
    """
    side = 1 + _total(widths)
    return BYTES * side * (side + 1) // 2


def bytes_reference(records: int, parties: Sequence[int], width: int) -> int:
    """Return the bytes of the reference method: over parties g, the sum of 8 (N m_g Q + (m_g Q)^2).

    Args:
        records: N, the number of subjects.
        parties: m_g, the number of predictors of each party.
        width: Q, the number of coordinates of each predictor.
    """
    require_count("records", records)
    require_count("width", width)
    _total(parties, "parties")
    return BYTES * sum(records * own * width + (own * width) ** 2 for own in parties)


def quadrature(times: ArrayLike) -> Array:
    """The weights of the trapezoidal rule on a grid, in units of the domain (times,)."""
    grid = np.asarray(times, dtype=np.float64)
    rising = grid.ndim == 1 and len(grid) > 1 and bool((np.diff(grid) > 0).all())
    require(rising and bool(np.isfinite(grid).all()), "times", grid.tolist(), "at least two, ascending")
    return np.convolve(np.diff(grid), [0.5, 0.5])


class _Pair(NamedTuple):
    """True and predicted curves, 0 where the truth is not known, and what each point weighs."""

    true: Array
    predicted: Array
    known: NDArray[np.bool_]
    weights: Array


def _pair(
    true: ArrayLike, predicted: ArrayLike, times: ArrayLike | None = None, *, holes: bool = False
) -> _Pair:
    """Check that truth and prediction fit together, and return both."""
    seen, told = _matrix("true", true), _matrix("predicted", predicted)
    require(
        told.shape == seen.shape, "predicted", f"shape {told.shape}", f"of shape {seen.shape}, as true is"
    )
    known = ~np.isnan(seen)
    holes = holes or times is not None
    require(holes or bool(known.all()), "true", "NaN", "known in every coordinate")
    require(bool(known.any(axis=1).all()), "true", "a curve without a value", "curves of one value or more")
    require(bool(np.isfinite(seen[known]).all()), "true", "infinity", "finite, or NaN where it is not known")
    require(
        bool(np.isfinite(told[known]).all()), "predicted", "NaN or infinity", "finite where true is known"
    )
    weights = known.astype(np.float64)
    if times is not None:
        rule = quadrature(times)
        require(len(rule) == seen.shape[1], "times", f"{len(rule)} of them", f"{seen.shape[1]}, as true has")
        weights *= rule
        # A curve with holes weighs as much as one without: what is known of it stands for the rest.
        weights *= rule.sum() / weights.sum(axis=1, keepdims=True)
    return _Pair(np.where(known, seen, 0.0), np.where(known, told, 0.0), known, weights)


def _matrix(field: str, given: ArrayLike) -> Array:
    try:
        matrix = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"{field} is not allowed: it must be an array of numbers ({error})") from error
    filled = matrix.ndim == 2 and matrix.size > 0
    require(filled, field, f"shape {matrix.shape}", "curves by points, at least one of each")
    return matrix


def _square(pair: _Pair, difference: Array) -> float:
    return float((pair.weights * difference**2).sum())


def _gaps(pair: _Pair) -> Array:
    return np.abs(pair.true - pair.predicted)[pair.known]


def _score_or_nan(score: Callable[..., float], *given: ArrayLike) -> float:
    """Return the score; NaN if its denominator is 0."""
    try:
        return score(*given)
    except InvalidValue:
        return math.nan


def _total(widths: Sequence[int], field: str = "widths") -> int:
    require(len(widths) > 0, field, list(widths), "at least one")
    for width in widths:
        require_count(field, width)
    return sum(widths)
