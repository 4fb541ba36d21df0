"""Estimators of survival scores from tables of risk bin by exit interval by state.

Each takes a stack of tables, the released one and those of the bootstrap, and returns a number or an array
for each. Counts may carry noise and be negative: products of counts are of different cells, whose noise is
independent, and the square of one cell is corrected for its variance, so that sums of pairs are unbiased.
Cutting counts at 0 first would not be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.learning.noisy_scores import FIRM, divide, rank_concordance
from tacit.runtime.arrays import Array

# Distance of two risks within a bin in units of that between neighboring bins: 0.41 to 0.45 for 2 to 24 bins
# of equal shares of a normal law. A third, for risks that are spread evenly, lowers C by 0.002.
WITHIN_BIN = 0.44
# Least probability of being uncensored that a weight divides by.
LEAST_UNCENSORED = 0.1
# Least predicted survival, and least relative width of an interval, that is divided by.
NARROW = 1e-6


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
