"""Scores of noisy counts and sums, with confidence intervals that cover sampling and noise.

Post-processing: these functions take numbers that were paid for and the law of their noise. They read no
records, draw no noise that protects anything, and charge nothing. The error of a score comes from a
parametric bootstrap: draw tables from the nearest counts that can be, add noise of the same law anew to each,
and compute the score again. What the noise hides is not shown.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from tacit.errors import require, require_count, require_word
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
            where they share one noise.
    """

    law: Law = "discrete-laplace"
    scale: float = 0.0
    copies: int = 1

    def __post_init__(self) -> None:
        require_word("law", self.law, ("discrete-laplace", "laplace", "gaussian"))
        require(0 <= self.scale < math.inf, "scale", self.scale, "finite and at least 0")
        require_count("copies", self.copies)

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
