"""Table of exits by risk bin, exit interval and state: one query from which all scores of a model follow.

A record is in exactly one cell, so that one record more or less moves one count by one, however many cells
there are; the model, the edges of bins and the ends of intervals are public. `table_of` counts, `score_table`
computes scores from exact or noisy counts, each with an interval that covers sampling and noise. This is
post-processing: it knows the law of the noise and no price.

Estimators take a stack of tables, the released one and those of the bootstrap, and return a number or an
array for each. Counts may carry noise and be negative: products of counts are of different cells, whose noise
is independent, and the square of one cell is corrected for its variance, so that sums of pairs are unbiased.
Cutting counts at 0 first would not be.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import require, require_count
from tacit.learning.noisy_scores import (
    EXACT,
    FIRM,
    REPEATS,
    WIDEST_BRIER,
    WIDEST_RANK,
    Band,
    Noise,
    Score,
    band_of,
    divide,
    is_above,
    nearest_counts,
    rank_concordance,
    redraw_tables,
    score_of,
    verdict_of,
)
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.table import Table
from tacit.survival.life_table import Groups, exit_cells, require_grid
from tacit.survival.metrics.brier_score import numbers, outcomes, probabilities
from tacit.survival.metrics.calibration import Calibration, chi_square_tail

# Risk groups, and equal bins of predicted survival for D-calibration.
RISK_GROUPS, SHARES = 3, 5
# Least part of the largest eigenvalue at which a direction of the shares counts.
LEAST_SPREAD = 1e-3
# Distance of two risks within a bin in units of that between neighboring bins: 0.41 to 0.45 for 2 to 24 bins
# of equal shares of a normal law. A third, for risks that are spread evenly, lowers C by 0.002.
WITHIN_BIN = 0.44
# Least probability of being uncensored that a weight divides by.
LEAST_UNCENSORED = 0.1
# Least predicted survival, and least relative width of an interval, that is divided by.
NARROW = 1e-6


@dataclass(frozen=True, eq=False)
class ExitTable:
    """Exits by bin of predicted risk, interval of exit and state, exact or with noise.

    Args:
        counts: Signed counts (bins, intervals + 1, 2) of events and of censored records. The last interval is
            open: who stays until after the horizon is censored there, and its count of events is not read.
        ends: Public ends of the intervals, ascending (intervals,).
        predicted: Public predicted survival of each bin, in the order of risk, at each end (bins, intervals).
        noise: Law of the noise in each cell.
        spread: Public variance of predicted survival within each bin at each end (bins, intervals); by
            default that of predictions spread evenly between the middles of neighboring bins.
    """

    counts: Array = field(repr=False)
    ends: Array
    predicted: Array = field(repr=False)
    noise: Noise = EXACT
    spread: Array | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        ends = require_grid(self.ends)
        counts = np.asarray(self.counts, dtype=np.float64)
        shape = (len(counts), len(ends) + 1, 2)
        found = bool(counts.shape == shape and len(counts) > 0 and np.isfinite(counts).all())
        require(
            found, "counts", f"shape {counts.shape}", f"finite numbers of shape (bins, {len(ends) + 1}, 2)"
        )
        cells = (len(counts), len(ends))
        predicted = probabilities("predicted", self.predicted, cells, "(bins, intervals)")
        spread = _even_spread(predicted) if self.spread is None else self.spread
        spread = numbers("spread", spread, cells, "(bins, intervals)")
        require(bool((spread >= 0).all()), "spread", float(spread.min()), "variances, at least 0")
        for name, array in zip(
            ("ends", "counts", "predicted", "spread"), (ends, counts, predicted, spread), strict=True
        ):
            object.__setattr__(self, name, array)

    @property
    def variance(self) -> float:
        """Variance of the noise in one cell."""
        return self.noise.variance

    @property
    def records(self) -> float:
        """Number of records, with noise."""
        return float(Tables(self.counts[None], self.variance).records.sum())


def table_of(time: ArrayLike, event: ArrayLike, bins: ArrayLike, ends: ArrayLike, count: int) -> Array:
    """Count records by bin, interval of exit and state (count, intervals + 1, 2): events, then censored.

    An exit at an end belongs to the interval that ends there.

    Args:
        time: Of the event or of censoring (records,).
        event: 1 where the event was seen, 0 where the record is censored (records,).
        bins: Bin of each record by predicted risk, from 0 to `count` - 1, in the order of risk (records,).
        ends: Ends of the intervals, ascending; who stays beyond is counted as censored in an open interval.
        count: Number of bins.

    Guarantee:
        Each record adds one to exactly one cell.
    """
    require_count("count", count)
    grid = require_grid(ends)
    if np.size(time) == 0:
        return np.zeros((count, len(grid) + 1, 2))
    times, events = outcomes(time, event)
    own = numbers("bins", bins, times.shape, "one per record")
    require(bool(np.isin(own, np.arange(count)).all()), "bins", "another bin", f"0 to {count - 1}")
    groups = Groups("bin", tuple(map(str, range(count))), tuple(map(float, range(count))))
    table = Table(own[:, None], {"time": times, "event": events.astype(np.float64)}, ("bin",))
    cells = exit_cells(table, grid, 2, groups).reshape(count, 2 * len(grid) + 1)
    censored, happened = cells[:, ::2], np.pad(cells[:, 1::2], ((0, 0), (0, 1)))
    return np.stack([happened, censored], axis=-1)


@dataclass(frozen=True, eq=False)
class ExitScores:
    """Scores of a survival model from a table of exits.

    Args:
        harrell: Harrell's C up to the last end.
        uno: Uno's C up to the last end.
        auc: Time-dependent AUC at the chosen ends.
        brier: Integrated Brier score: the mean over the span of the ends, by the trapezoid rule.
        kaplan_meier: The same of the Kaplan-Meier curve of the table, which ignores risk.
        gain: Second less first: how much the model is better.
        calibration: Kaplan-Meier curve of each bin, beside its prediction (bins, intervals).
        risk_groups: Kaplan-Meier curve of each risk group, low risk first (groups, intervals).
        d_calibration: Test that predicted survival at the event is uniform.
        better_than_chance: Whether Harrell's C is above one half (one-sided, 5 %).
        better_than_kaplan_meier: Whether the gain is above 0 (one-sided, 5 %).
    """

    harrell: Score
    uno: Score
    auc: tuple[Score, ...]
    brier: Score
    kaplan_meier: Score
    gain: Score
    calibration: Band = field(repr=False)
    risk_groups: Band = field(repr=False)
    d_calibration: Calibration
    better_than_chance: bool
    better_than_kaplan_meier: bool

    @property
    def verdict(self) -> tuple[str, ...]:
        """Sentences if the model is not shown to be better than both, or the noise hides it."""
        found = [
            verdict_of("its order of risks", "chance", self.better_than_chance, self.harrell),
            verdict_of("its curves", "one Kaplan-Meier curve", self.better_than_kaplan_meier, self.gain),
        ]
        return tuple(words for words in found if words)


def score_table(
    table: ExitTable, at: Sequence[int] | None = None, repeats: int = REPEATS, seed: int = 0
) -> ExitScores:
    """Compute the scores of a table, each with a 95 % interval for sampling and noise.

    Args:
        table: The table, exact or noisy.
        at: Places of the ends at which the AUC is computed; by default all.
        repeats: Number of tables in the bootstrap.
        seed: Of the bootstrap, which is public.
    """
    chosen = list(range(len(table.ends)) if at is None else at)
    fits = all(0 <= place < len(table.ends) for place in chosen)
    require(fits, "at", chosen, f"places of ends, 0 to {len(table.ends) - 1}")
    random = (Key(seed) / "exit-table").generator()
    tables = Tables(redraw_tables(table.counts, table.noise, random, repeats), table.variance)
    order, timed = harrell(tables), areas(tables)
    assert table.spread is not None
    model, baseline = (
        integrate(scores, table.ends) for scores in brier_scores(tables, table.predicted, table.spread)
    )
    groups = np.array_split(np.arange(len(table.counts)), min(RISK_GROUPS, len(table.counts)))
    merged = merge(tables, groups)
    return ExitScores(
        harrell=score_of(order, WIDEST_RANK),
        uno=score_of(uno(tables), WIDEST_RANK),
        auc=tuple(score_of(timed[:, place], WIDEST_RANK) for place in chosen),
        brier=score_of(model, WIDEST_BRIER),
        kaplan_meier=score_of(baseline, WIDEST_BRIER),
        gain=score_of(baseline - model, WIDEST_BRIER, low=-1.0),
        calibration=band_of(survival(tables), exceed_noise(tables)),
        risk_groups=band_of(survival(merged), exceed_noise(merged, len(groups[0]))),
        d_calibration=calibrate_shares(table),
        better_than_chance=is_above(order, 0.5),
        better_than_kaplan_meier=is_above(baseline - model, 0.0, low=-1.0),
    )


def calibrate_shares(table: ExitTable, shares: int = SHARES) -> Calibration:
    """Test D-calibration: predicted survival at the event falls into equal bins equally often.

    A Wald test: the mass of each bin is a sum over cells, so its variance is that of spread records plus that
    of noise. Pearson's statistic takes spread mass for counts, and is lenient where many are censored.

    Args:
        table: The table.
        shares: Number of equal bins of predicted survival.
    """
    require_count("shares", shares)
    require(shares > 1, "shares", shares, "at least 2")
    weights = survival_shares(table.predicted, shares)
    # The last cell of events is empty by construction.
    used = np.ones(table.counts.shape, dtype=np.bool_)
    used[:, -1, 0] = False
    counts, spread = table.counts[used], weights[used] - 1 / shares
    nearest = nearest_counts(counts)
    gap, total = counts @ spread, max(float(nearest.sum()), 1.0)
    mean = nearest @ spread / total
    covariance = (spread * nearest[:, None]).T @ spread - total * np.outer(mean, mean)
    covariance += table.variance * spread.T @ spread
    values, vectors = np.linalg.eigh(covariance)
    # Shares add up to 1, and beyond the horizon they follow from one another.
    firm = values > LEAST_SPREAD * max(float(values[-1]), 0.0)
    found = (vectors[:, firm].T @ gap) ** 2 / values[firm]
    statistic, freedom = float(found.sum()), int(firm.sum())
    masses = np.maximum(counts @ weights[used], 0.0)
    observed = masses / max(float(masses.sum()), 1e-9)
    return Calibration(statistic, chi_square_tail(statistic, freedom) if freedom else 1.0, observed)


def _even_spread(predicted: Array) -> Array:
    """Variance of predictions within bins that reach to the middles of their neighbours."""
    if len(predicted) == 1:
        return np.zeros_like(predicted)
    steps = np.diff(predicted, axis=0)
    # The outer bins are as wide as the distance to their neighbour.
    widths = np.concatenate([steps[:1], (steps[1:] + steps[:-1]) / 2, steps[-1:]])
    return widths**2 / 12


@dataclass(frozen=True, eq=False)
class Tables:
    """Stack of tables of exits.

    Args:
        cells: Counts (tables, bins, intervals + 1, 2) of events and of censored records; in the last
            interval, the open one, only the second is read.
        variance: Variance of the noise in each cell.
    """

    cells: Array
    variance: float

    @property
    def events(self) -> Array:
        """Events by bin and interval (tables, bins, intervals)."""
        return self.cells[:, :, :-1, 0]

    @property
    def censored(self) -> Array:
        """Censored records by bin and interval (tables, bins, intervals)."""
        return self.cells[:, :, :-1, 1]

    @cached_property
    def later(self) -> Array:
        """Records that leave after each interval, by bin (tables, bins, intervals)."""
        leaving = np.concatenate([(self.events + self.censored)[..., 1:], self.cells[:, :, -1:, 1]], axis=-1)
        return np.cumsum(leaving[..., ::-1], axis=-1)[..., ::-1]

    @cached_property
    def records(self) -> Array:
        """Number of records by bin (tables, bins)."""
        return self.later[..., 0] + self.events[..., 0] + self.censored[..., 0]

    @cached_property
    def uncensored(self) -> tuple[Array, Array]:
        """Probability of being uncensored at the middle and end of each interval (tables, intervals)."""
        events, censored = self.events.sum(axis=1), self.censored.sum(axis=1)
        ends = product_limit(censored, events, self.later.sum(axis=1))
        starts = np.concatenate([np.ones((len(ends), 1)), ends[:, :-1]], axis=1)
        least = LEAST_UNCENSORED
        return np.maximum(np.sqrt(starts * ends), least), np.maximum(ends, least)

    @cached_property
    def cases(self) -> Array:
        """Events up to the end of each interval, weighted for censoring (tables, bins, intervals)."""
        return np.cumsum(self.events / self.uncensored[0][:, None], axis=-1)

    @cached_property
    def survivors(self) -> Array:
        """Survivors of the end of each interval, weighted for censoring (tables, bins, intervals)."""
        return self.later / self.uncensored[1][:, None]


def product_limit(leaving: Array, others: Array, later: Array) -> Array:
    """Survival curve of grouped exits (..., intervals): the actuarial estimate, clipped to [0, 1], falling.

    Those who leave for other reasons count for half of their interval. Steps may be negative, so that noise
    averages out; a curve that rises is replaced by the middle of its falling envelopes.
    """
    exposed = later + leaving + others / 2
    steps = np.clip(np.nan_to_num(divide(leaving, np.maximum(exposed, leaving)), nan=0.0), -1.0, 1.0)
    curve = np.clip(np.cumprod(1 - steps, axis=-1), 0.0, 1.0)
    under = np.minimum.accumulate(curve, axis=-1)
    over = np.maximum.accumulate(curve[..., ::-1], axis=-1)[..., ::-1]
    return (under + over) / 2


def concordance(tables: Tables, weights: Array | None = None) -> Array:
    """Harrell's C up to the end of the last interval (tables,), or Uno's with weights (tables, intervals).

    A censored record outlives half of the events of its own interval. Of two events in one interval one is
    first: the distance of their times is a third of that in neighboring intervals on average, and so is the
    concordance beyond one half.
    """
    events = tables.events
    weighted = events if weights is None else events * weights[:, None]
    pairs = np.einsum("bqk,brk->bqr", weighted, tables.later + tables.censored / 2)
    right, whole = rank_concordance(pairs, WITHIN_BIN)
    following = np.einsum("bqk,brk->bqr", events[..., :-1], events[..., 1:])
    near, around = rank_concordance(following, WITHIN_BIN)
    share = np.nan_to_num(np.clip(divide(near, around), 0.0, 1.0), nan=0.5)
    # E (E - 1) / 2 pairs, where the square of a noisy sum exceeds E^2 by the variance on average.
    total = events.sum(axis=1)
    tied = (total**2 - events.shape[1] * tables.variance - total) / 2
    tied = (tied if weights is None else tied * weights).sum(axis=-1)
    return divide(right + tied * (0.5 + (share - 0.5) / 3), whole + tied)


def harrell(tables: Tables) -> Array:
    """Harrell's C up to the end of the last interval (tables,)."""
    return concordance(tables)


def uno(tables: Tables) -> Array:
    """Uno's C up to the end of the last interval (tables,)."""
    return concordance(tables, tables.uncensored[0] ** -2)


def areas(tables: Tables) -> Array:
    """Time-dependent AUC at each end: events by then against survivors (tables, intervals)."""
    pairs = np.einsum("bqk,brk->bkqr", tables.cases, tables.later)
    right, whole = rank_concordance(pairs, WITHIN_BIN)
    return divide(right, whole)


def brier_scores(tables: Tables, predicted: Array, spread: Array) -> tuple[Array, Array]:
    """Brier scores of the model and of Kaplan-Meier at the end of each interval (tables, intervals) each.

    A record is scored by its bin's prediction. That its own differs lowers the Brier score by (2 b - 1) times
    the variance of predictions within the bin, if b is the slope of survival on predicted survival: the slope
    between bins stands for it, within [0, 1].

    Args:
        tables: The tables.
        predicted: Predicted survival of each bin at each end (bins, intervals).
        spread: Variance of predicted survival within each bin (bins, intervals).
    """
    cases, survivors = tables.cases, tables.survivors
    weight = cases + survivors
    whole = weight.sum(axis=1)
    share = np.clip(divide(survivors.sum(axis=1), whole), 0.0, 1.0)
    error = divide((cases * predicted**2 + survivors * (1 - predicted) ** 2).sum(axis=1), whole)
    within = divide((weight * spread).sum(axis=1), whole)
    return error + (1 - 2 * slope(tables, predicted)[:, None]) * within, share * (1 - share)


def slope(tables: Tables, predicted: Array) -> Array:
    """Slope of observed on predicted survival between bins, over all ends, within [0, 1] (tables,)."""
    weight = tables.cases + tables.survivors
    whole = weight.sum(axis=1)
    mean = divide((weight * predicted).sum(axis=1), whole)
    about = predicted - mean[:, None]
    shared = np.nan_to_num((tables.survivors * about).sum(axis=(1, 2)))
    varied = np.nan_to_num((weight * about**2).sum(axis=(1, 2)))
    return np.nan_to_num(np.clip(divide(shared, varied), 0.0, 1.0), nan=0.0)


def integrate(scores: Array, ends: Array) -> Array:
    """Mean over the span of the ends by the trapezoid rule (tables,); of a single end, its score."""
    if len(ends) == 1:
        return scores[:, 0]
    return (scores[:, 1:] + scores[:, :-1]) @ np.diff(ends) / (2 * (ends[-1] - ends[0]))


def survival(tables: Tables) -> Array:
    """Kaplan-Meier curve of each bin at each end (tables, bins, intervals)."""
    return product_limit(tables.events, tables.censored, tables.later)


def exceed_noise(tables: Tables, merged: int = 1) -> NDArray[np.bool_]:
    """Return where the number at risk exceeds its noise in the first table (bins, intervals).

    Args:
        tables: The tables.
        merged: Number of bins that each of them is merged of.
    """
    at_risk = (tables.later + tables.events + tables.censored)[0]
    left: Array = np.arange(at_risk.shape[1], 0, -1, dtype=np.float64)
    deviation = np.sqrt(tables.variance * merged * (2 * left + 1))
    return at_risk >= FIRM * deviation


def merge(tables: Tables, groups: Sequence[NDArray[np.int64]]) -> Tables:
    """Merge bins into risk groups."""
    merged = np.stack([tables.cells[:, group].sum(axis=1) for group in groups], axis=1)
    return Tables(merged, tables.variance)


def survival_shares(predicted: Array, shares: int) -> Array:
    """Share of a record of each cell in equal bins of predicted survival at its event.

    If predictions are right, predicted survival at the event is uniform on [0, 1]. Given an event in an
    interval, it is uniform between the predictions for its ends; given a record censored at t, between 0 and
    the prediction for t, which is uniform in its turn.

    Args:
        predicted: Predicted survival of each bin at each end (bins, intervals).
        shares: Number of equal bins of predicted survival.

    Returns:
        An array (bins, intervals + 1, 2, shares); the shares of a cell add up to 1.
    """
    edges = np.linspace(0, 1, shares + 1)
    falling = np.minimum.accumulate(predicted, axis=1)
    start, stop = np.ones((len(falling), 1)), np.zeros((len(falling), 1))
    high = np.maximum(np.concatenate([start, falling], axis=1), NARROW)[..., None]
    low = np.concatenate([falling, stop], axis=1)[..., None]
    # An interval without a width is a narrow one.
    low = np.clip(low, NARROW**2, high * (1 - NARROW))
    width = high - low
    inside = (np.minimum(high, edges) - np.minimum(low, edges)) / width
    # The mean of min(edge, u) / u over u in the interval.
    beyond = edges * np.log(np.maximum(high, edges) / np.maximum(low, edges)) / width
    below = np.stack([inside, inside + beyond], axis=2)
    # Censored beyond the horizon: known to survive the last end, and no more.
    below[:, -1, 1] = np.minimum(edges, high[:, -1]) / high[:, -1]
    below[..., 0], below[..., -1] = 0.0, 1.0
    return np.diff(below, axis=-1)
