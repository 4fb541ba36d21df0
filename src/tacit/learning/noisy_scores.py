"""Scores of noisy counts and sums, with confidence intervals that cover sampling and noise.

Post-processing: these functions take numbers that were paid for and the law of their noise. They read no
records, draw no noise that protects anything, and charge nothing. The error of a score comes from a
parametric bootstrap: draw tables from the nearest counts that can be, add noise of the same law anew to each,
and compute the score again. What the noise hides is not shown.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidValue, require, require_count, require_positive, require_word
from tacit.runtime.arrays import Array

Law = Literal["discrete-laplace", "laplace", "gaussian"]

# Standard errors on each side of a 95 % interval, and of a one-sided test at 5 %.
SIDES, ONE_SIDE = 1.959963984540054, 1.6448536269514722
# Widest interval that is shown: of a score on the scale of a concordance, of a Brier score, of a curve or R2.
WIDEST_RANK, WIDEST_BRIER, WIDEST_CURVE = 0.2, 0.1, 0.4
# Number of records below which four intervals are better, without noise as well.
FEW_RECORDS = 400
# Standard deviations of its noise that a number at risk exceeds where its curve is shown.
FIRM = 2.0
# Tables in the bootstrap.
REPEATS = 200


@dataclass(frozen=True)
class Score:
    """Score with its 95 % confidence interval.

    Args:
        value: The estimate; None if the noise hides it.
        low: Lower end of the interval.
        high: Upper end.
        hidden: Reason why the value is not shown; empty if it is.
    """

    value: float | None
    low: float
    high: float
    hidden: str = ""

    def __str__(self) -> str:
        """Return the score and its interval, or the reason why it is hidden."""
        if self.value is None:
            return f"hidden: {self.hidden}"
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True, eq=False)
class Band:
    """Curve with pointwise 95 % confidence intervals; values that the noise hides are NaN.

    Args:
        value: The estimates, of any shape.
        low: Lower ends.
        high: Upper ends.
    """

    value: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class Noise:
    """Law of the noise in every number of a table; the draws are independent.

    Args:
        law: `discrete-laplace`, P(k) proportional to exp(-|k| / scale) on integers; `laplace`, the same on
            the real line; or `gaussian`.
        scale: Scale of a Laplace law, or the standard deviation; 0 for exact numbers.
        copies: Number of independent draws in the sum: the number of sites that add noise of their own, or 1
            where they share one noise; not whole where more shares are added than make up one.
    """

    law: Law = "discrete-laplace"
    scale: float = 0.0
    copies: float = 1.0

    def __post_init__(self) -> None:
        require_word("law", self.law, ("discrete-laplace", "laplace", "gaussian"))
        require(0 <= self.scale < math.inf, "scale", self.scale, "finite and at least 0")
        require_positive("copies", self.copies)

    @property
    def variance(self) -> float:
        """Variance of the noise in one number."""
        if self.scale == 0:
            return 0.0
        if self.law == "gaussian":
            return self.copies * self.scale**2
        if self.law == "laplace":
            return self.copies * 2 * self.scale**2
        # 2 a / (1 - a)^2 with a = exp(-1 / scale), in a form that does not cancel.
        return self.copies / (2 * math.sinh(1 / (2 * self.scale)) ** 2) if self.scale > 1e-3 else 0.0

    def redraw(self, random: Generator, shape: tuple[int, ...]) -> Array:
        """Draw noise of this law for the bootstrap; it is public and protects nothing."""
        if self.variance == 0:
            return np.zeros(shape)
        if self.law == "gaussian":
            return random.normal(0.0, math.sqrt(self.variance), shape)
        # A sum of geometric, or exponential, variables is negative binomial, or gamma.
        if self.law == "laplace":
            ups, downs = random.standard_gamma(self.copies, (2, *shape))
            return self.scale * (ups - downs)
        chance = -math.expm1(-1 / self.scale)
        ups, downs = random.negative_binomial(self.copies, chance, (2, *shape))
        return (ups - downs).astype(np.float64)


EXACT = Noise()


def redraw_tables(counts: Array, noise: Noise, random: Generator, repeats: int = REPEATS) -> Array:
    """Stack a noisy table and its bootstrap tables (repeats + 1, ...); the given one comes first.

    The bootstrap tables are multinomial draws from the nearest nonnegative counts, with noise anew.
    """
    require_count("repeats", repeats)
    flat = counts.reshape(-1)
    nearest = nearest_counts(flat)
    total = nearest.sum()
    shares = nearest / total if total > 0 else np.full(flat.size, 1 / flat.size)
    drawn = random.multinomial(max(round(float(total)), 1), shares, size=repeats).astype(np.float64)
    drawn += noise.redraw(random, drawn.shape)
    return np.concatenate([flat[None], drawn]).reshape(repeats + 1, *counts.shape)


def score_of(values: Array, widest: float, low: float = 0.0, high: float = 1.0) -> Score:
    """Return the first of these values with the interval that the others give.

    Args:
        values: The estimate, then those of the bootstrap tables (repeats + 1,); NaN where undefined.
        widest: Width of an interval beyond which the value is hidden.
        low: Least possible value; everything is clipped to it.
        high: Largest possible value.
    """
    if not np.isfinite(values[0]):
        return Score(None, low, high, "there are too few records beside the noise")
    error = error_of(values, low, high)
    value = float(np.clip(values[0], low, high))
    ends = max(value - SIDES * error, low), min(value + SIDES * error, high)
    # Compared before clipping: an interval is not narrow because its score is nearly 1.
    if 2 * SIDES * error > widest:
        return Score(None, *ends, f"its 95 % interval is wider than {widest:g}")
    return Score(value, *ends)


def error_of(values: Array, low: float, high: float) -> float:
    """Standard error: deviation of the bootstrap values, clipped to what is possible.

    A table whose score is undefined counts as the worst that it could be.
    """
    drawn = np.clip(values[1:], low, high)
    middle = float(np.clip(values[0], low, high))
    farthest = low if middle - low > high - middle else high
    return float(np.where(np.isfinite(drawn), drawn, farthest).std())


def band_of(values: Array, firm: NDArray[np.bool_] | None = None) -> Band:
    """Return the first of these curves of probabilities with pointwise intervals (repeats + 1, ...).

    Args:
        values: As for `score_of`, of any shape.
        firm: Whether the numbers behind each point exceed the noise (...); by default all do. Near 0 and 1
            the bootstrap alone does not tell: values that are clipped look certain.
    """
    low, high = 0.0, 1.0
    clipped = np.clip(np.where(np.isfinite(values), values, low), low, high)
    error = clipped[1:].std(axis=0)
    shown = np.isfinite(values[0]) & (2 * SIDES * error <= WIDEST_CURVE)
    if firm is not None:
        shown &= firm
    value = np.where(shown, clipped[0], np.nan)
    lows, highs = clipped[0] - SIDES * error, clipped[0] + SIDES * error
    return Band(value, np.maximum(lows, low), np.minimum(highs, high))


def is_above(values: Array, bound: float, low: float = 0.0, high: float = 1.0) -> bool:
    """Test one-sided at 5 % that a score is above a bound; values as for `score_of`."""
    if not np.isfinite(values[0]):
        return False
    return bool(values[0] - ONE_SIDE * error_of(values, low, high) > bound)


def verdict_of(subject: str, baseline: str, better: bool, score: Score) -> str:
    """Return a sentence if a model is not shown to be better than its baseline; empty if it is.

    Args:
        subject: Part of the model that is compared, such as "its curves".
        baseline: Name of the baseline.
        better: Whether the test says that it is better.
        score: Score of the comparison: one that is hidden tells nothing about the model.
    """
    if better:
        return ""
    if score.value is None:
        return f"{subject}: the noise hides a comparison with {baseline}"
    return f"{subject}: not shown to be better than {baseline} (one-sided test, 5 %)"


def divide(part: Array, whole: Array) -> Array:
    """Divide, NaN where the whole is not above 0."""
    return np.divide(part, whole, out=np.full(np.broadcast_shapes(part.shape, whole.shape), np.nan),
                     where=whole > 0)  # fmt: skip


def rank_concordance(pairs: Array, within: float = 1 / 3) -> tuple[Array, Array]:
    """Concordant and all pairs (...,) of pairs of bins; a pair is concordant if the first is higher.

    Args:
        pairs: Pairs by bin of one and of the other record, bins in the order of risk (..., bins, bins).
        within: Distance of two risks within a bin, in units of that between neighboring bins, on average; the
            concordance beyond one half is in the same proportion. A third where risks are spread evenly.
    """
    bins = pairs.shape[-1]
    above, below = (np.diagonal(pairs, offset, -2, -1).sum(axis=-1) for offset in (-1, 1))
    near = np.nan_to_num(np.clip(divide(above, above + below), 0.0, 1.0), nan=0.5)
    same = np.trace(pairs, axis1=-2, axis2=-1)
    higher = pairs[..., *np.tril_indices(bins, -1)].sum(axis=-1)
    return higher + same * (0.5 + (near - 0.5) * within), pairs.sum(axis=(-2, -1))


def nearest_counts(given: Array) -> Array:
    """Project onto nonnegative numbers with the same sum, by least squares (Duchi 2008)."""
    total = max(float(given.sum()), 0.0)
    falling = np.sort(given)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(given) + 1)
    kept = np.flatnonzero(falling > excess)
    return np.maximum(given - excess[kept[-1]], 0.0) if len(kept) else np.zeros_like(given)


def choose_bins(
    records: float | None, epsilon: float, copies: int = 1, intervals: Sequence[int] = (4, 8)
) -> tuple[int, int]:
    """Choose risk bins and exit intervals of a table from public numbers.

    Few cells for few records, many for many (docs/guides/private-scores.md).

    Args:
        records: Public or expected number of records that are scored; None if there is none.
        epsilon: Price of the table; infinite for exact counts.
        copies: Number of sites that add noise of their own.
        intervals: Few and many intervals.

    Returns:
        Risk bins and exit intervals, without the open one.
    """
    few, many = intervals
    if records is None:
        return 6, many
    # Several noises are as one of a smaller epsilon, with the same variance.
    worth = records * epsilon / math.sqrt(copies)
    if records < FEW_RECORDS or worth < 300:
        return 6, few
    return (12, many) if worth >= 1500 else (6, many)


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
