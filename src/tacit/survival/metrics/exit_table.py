"""Table of exits by risk bin, exit interval and state: one query from which all scores of a model follow.

A record is in exactly one cell, so that one record more or less moves one count by one, however many cells
there are; the model, the edges of bins and the ends of intervals are public. `table_of` counts, `score_table`
computes scores from exact or noisy counts, each with an interval that covers sampling and noise. This is
post-processing: it knows the law of the noise and no price.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from tacit.errors import require, require_count
from tacit.learning.noisy_scores import (
    EXACT,
    REPEATS,
    WIDEST_BRIER,
    WIDEST_RANK,
    Band,
    Noise,
    Score,
    band_of,
    is_above,
    nearest_counts,
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
from tacit.survival.metrics.exit_scores import (
    Tables,
    areas,
    brier_scores,
    exceed_noise,
    harrell,
    integrate,
    merge,
    survival,
    survival_shares,
    uno,
)

# Risk groups, and equal bins of predicted survival for D-calibration.
RISK_GROUPS, SHARES = 3, 5


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


# Least part of the largest eigenvalue at which a direction of the shares counts.
LEAST_SPREAD = 1e-3


def _even_spread(predicted: Array) -> Array:
    """Variance of predictions within bins that reach to the middles of their neighbours."""
    if len(predicted) == 1:
        return np.zeros_like(predicted)
    steps = np.diff(predicted, axis=0)
    # The outer bins are as wide as the distance to their neighbour.
    widths = np.concatenate([steps[:1], (steps[1:] + steps[:-1]) / 2, steps[-1:]])
    return widths**2 / 12
