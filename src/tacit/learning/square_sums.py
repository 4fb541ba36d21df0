"""Bounded sums of squares of held-out records: R2, relative and mean squared errors of regression and curves.

Three whole numbers leave a site: squared residuals, squared distances from a public center, and records, each
record's part bounded and rounded to a public grid, so that sums are exact. `score_squares` computes scores
from exact or noisy sums, with intervals that cover sampling and noise. This is post-processing: it knows the
law of the noise and no price.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from tacit.errors import InvalidValue, require, require_positive
from tacit.learning.noisy_scores import EXACT, ONE_SIDE, SIDES, WIDEST_CURVE, Noise, Score, verdict_of
from tacit.runtime.arrays import Array

# Whole numbers that a record adds to each sum at most.
UNITS = 1024
# L1 norm of what a record adds: the sensitivity of the three sums together.
SENSITIVITY = 3 * UNITS
# Variance of a square in units of its squared mean: that of a normal variable's.
SQUARE_VARIANCE = 2.0
# Standard deviations of its noise that a sum must exceed to be divided by.
LEAST_SUM = 3.0


def square_sums(
    true: ArrayLike,
    predicted: ArrayLike,
    center: ArrayLike,
    bound: float,
    weights: ArrayLike | None = None,
) -> Array:
    """Sum squared residuals, squared distances from a center, and records, in whole units (3,).

    Args:
        true: Outcomes (records,), or several of each record, such as a curve (records, points).
        predicted: Their predictions, of the same shape.
        center: Public numbers that a prediction without features would name, such as the mean of training:
            one, or one for each point.
        bound: Public bound of a record's mean square, in the squared unit of the outcome; more is cut, which
            lowers R2. Nine variances of a single outcome cut little, and four of a curve.
        weights: Weight of each point in a record's mean square (points,), or its own (records, points); by
            default all alike.

    Guarantee:
        A record adds at most `UNITS` to each sum and at least 0, so it moves them by `SENSITIVITY` in L1.
    """
    require_positive("bound", bound)
    seen, told = _rows("true", true), _rows("predicted", predicted)
    require(
        told.shape == seen.shape, "predicted", f"shape {told.shape}", f"of shape {seen.shape}, as true is"
    )
    shares = np.ones(seen.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
    fits = shares.shape in (seen.shape[1:], seen.shape) and bool((shares >= 0).all())
    require(fits, "weights", f"shape {shares.shape}", f"{seen.shape[1]} numbers, at least 0")
    shares = np.broadcast_to(shares, seen.shape)
    middle = np.broadcast_to(np.asarray(center, dtype=np.float64), seen.shape[1:])
    with np.errstate(all="ignore"):
        residual, total = (_mean_square(seen - one, shares) / bound for one in (told, middle))
    # A square that is no number counts as the largest.
    parts = [np.rint(UNITS * np.where(one <= 1, one, 1.0)).sum() for one in (residual, total)]
    return np.array([*parts, UNITS * len(seen)], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class SquareSums:
    """Three sums of all sites, exact or with noise.

    Args:
        sums: Squared residuals, squared distances from the center, and records, in whole units (3,).
        bound: Public bound of a record's mean square.
        noise: Law of the noise in each sum, in the same units.
    """

    sums: Array = field(repr=False)
    bound: float
    noise: Noise = EXACT

    def __post_init__(self) -> None:
        require_positive("bound", self.bound)
        sums = np.asarray(self.sums, dtype=np.float64)
        found = sums.shape == (3,) and bool(np.isfinite(sums).all())
        require(found, "sums", f"shape {sums.shape}", "three finite numbers")
        object.__setattr__(self, "sums", sums)


@dataclass(frozen=True)
class SquareScores:
    """Scores of a regression, or of predicted curves, from bounded sums.

    Args:
        r2: 1 less the relative error: the share of squared distances from the center that is explained.
        relative: Sum of squared residuals over that of squared distances from the center; RIL2 with center 0.
        mse: Mean squared error, in the squared unit of the outcome.
        better_than_center: Whether residuals are smaller than distances from the center (one-sided, 5 %).
    """

    r2: Score
    relative: Score
    mse: Score
    better_than_center: bool

    @property
    def verdict(self) -> tuple[str, ...]:
        """Sentence if the model is not shown to be better than its center, or the noise hides it."""
        words = verdict_of("its predictions", "the mean", self.better_than_center, self.r2)
        return (words,) if words else ()


def score_squares(found: SquareSums) -> SquareScores:
    """Compute the scores of sums, each with a 95 % interval for sampling and noise, by the delta method.

    Squares are taken to vary as those of normal variables do; means of squares over a curve vary less.
    """
    residual, total, records = (float(one) / UNITS for one in found.sums)
    noise = found.noise.variance / UNITS**2
    few = Score(None, -math.inf, 1.0, "there are too few records beside the noise")
    if records <= max(LEAST_SUM * math.sqrt(noise), 1.0):
        return SquareScores(
            few, Score(None, 0, math.inf, few.hidden), Score(None, 0, math.inf, few.hidden), False
        )
    mean, spread = max(residual / records, 0.0), max(total / records, 0.0)
    own, whole = _variance_of(mean), _variance_of(spread)
    ratio = mean / spread if spread > 0 else math.inf
    # Residual and outcome of a good prediction share the residual; of a useless one, the outcome.
    alike = math.sqrt(own * whole) * (min(ratio, 1 / ratio) if 0 < ratio < math.inf else 0.0)
    gap = math.sqrt(max(records * (own + whole - 2 * alike), 0.0) + 2 * noise)
    better = total - residual > ONE_SIDE * gap
    error = math.sqrt(records * own + noise * (1 + mean**2)) / records
    mse = _score(found.bound * mean, found.bound * error, 0.0, math.inf, math.inf)
    if total <= LEAST_SUM * math.sqrt(noise) or spread == 0:
        hidden = "the noise is larger than what there is to explain"
        return SquareScores(Score(None, -math.inf, 1, hidden), Score(None, 0, math.inf, hidden), mse, better)
    sampled = records * (own + ratio**2 * whole - 2 * ratio * alike)
    error = math.sqrt(max(sampled, 0.0) + noise * (1 + ratio**2)) / total
    return SquareScores(
        _score(1 - ratio, error, -math.inf, 1.0, WIDEST_CURVE),
        _score(ratio, error, 0.0, math.inf, WIDEST_CURVE),
        mse,
        better,
    )


def _variance_of(mean: float) -> float:
    """Variance of a bounded square with this mean, in units of the bound: at most that of 0 and 1."""
    return min(SQUARE_VARIANCE * mean**2, mean * max(1 - mean, 0.0))


def _score(value: float, error: float, low: float, high: float, widest: float) -> Score:
    ends = max(value - SIDES * error, low), min(value + SIDES * error, high)
    if 2 * SIDES * error > widest:
        return Score(None, *ends, f"its 95 % interval is wider than {widest:g}")
    return Score(min(max(value, low), high), *ends)


def _rows(name: str, given: ArrayLike) -> Array:
    try:
        rows = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"{name} is not allowed: it must be numbers ({error})") from error
    require(rows.ndim in (1, 2), name, f"shape {rows.shape}", "(records,) or (records, points)")
    return rows if rows.ndim == 2 else rows[:, None]


def _mean_square(gaps: Array, weights: Array) -> Array:
    """Weighted mean square of each row, point by point: its bits do not depend on other rows."""
    squares, whole = np.zeros(len(gaps)), np.zeros(len(gaps))
    for point in range(gaps.shape[1]):
        squares += weights[:, point] * gaps[:, point] ** 2
        whole += weights[:, point]
    return squares / whole
