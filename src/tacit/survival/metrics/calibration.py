"""Calibration and discrimination: the time-dependent AUC and D-calibration.

`auc` judges the order of risks at chosen times; `d_calibration` judges the probabilities themselves. A good
order says nothing about good probabilities, nor the other way round.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import require, require_count
from tacit.runtime.arrays import Array
from tacit.survival.metrics.brier_score import (
    Curve,
    Integers,
    Rule,
    ShortTimes,
    as_floats,
    increasing_times,
    inverse_probabilities,
    kaplan_meier,
    numbers,
    outcomes,
    probabilities,
    weighting,
)


def auc(
    time: ArrayLike,
    event: ArrayLike,
    risk: ArrayLike,
    times: ArrayLike,
    *,
    censoring: Curve | None = None,
    rule: Rule = "right",
) -> Array:
    """Areas under the ROC curve at each time: event by t against event-free at t.

    Cumulative cases, dynamic controls (Uno et al. 2007): a case has its event at or before t and is weighted
    for censoring, a control has a time after t. A pair of equal risks counts one half.

    Args:
        time: Of the event or of censoring (records,).
        event: 1 where the event was seen, 0 where the record is censored (records,).
        risk: Any score that is higher for earlier events (records,), or one for each of `times`
            (records, times).
        times: Times to score at (times,): from the first event on, and before the last time of a record.
        censoring: The curve to weight by, such as that of training data; by default that of these records.
        rule: An event at T is weighted by the curve at T (`right`), as in scikit-survival, or just before T
            (`left`), as the theory has it. They differ only where events and censorings tie.

    Returns:
        One area for each of `times` (times,): 1 is perfect, and 1/2 is what a coin gets.
    """
    records, events = outcomes(time, event)
    grid = numbers("times", times, None, "a list of them")
    depth = as_floats("risk", risk, "one per record").ndim
    shape = (len(records), len(grid)) if depth == 2 else records.shape
    risks = numbers("risk", risk, shape, "one per record, or (records, times)")
    weigh = weighting(records, events, censoring, rule)
    order = np.argsort(records, kind="stable")
    records, events = records[order], events[order]
    happened = records[events == 1]
    scored = (grid >= happened.min(initial=np.inf)) & (grid < records[-1])
    allowed = "at or after the first event, and before the last time of a record"
    require(bool(scored.all()), "times", ShortTimes(grid[~scored]), allowed)
    past = np.searchsorted(records, grid, side="right")
    cases = np.flatnonzero(events[: past.max(initial=0)])
    weights = np.zeros_like(records)
    weights[cases] = inverse_probabilities(records[cases], weigh)
    return _areas(risks[order], past, weights)


def mean_auc(
    time: ArrayLike,
    event: ArrayLike,
    risk: ArrayLike,
    times: ArrayLike,
    *,
    censoring: Curve | None = None,
    rule: Rule = "right",
) -> float:
    """The mean of `auc` over `times`, each weighted by the share of events since the one before.

    The shares are drops of the Kaplan-Meier curve of these records, the first of them since the start
    (Lambert and Chevret 2016), as in scikit-survival.

    Args:
        time: As for `auc`.
        event: As for `auc`.
        risk: As for `auc`.
        times: Times to score at (times,): at least one, in increasing order.
        censoring: As for `auc`.
        rule: As for `auc`.
    """
    grid = increasing_times(times, "one")
    areas = auc(time, event, risk, grid, censoring=censoring, rule=rule)
    drops = -np.diff(kaplan_meier(*outcomes(time, event))(grid), prepend=1.0)
    return float(areas @ drops / drops.sum())


class Calibration(NamedTuple):
    """A test of calibration.

    Attributes:
        statistic: Pearson's chi-square of the shares against equal ones.
        p_value: The probability of a statistic at least as large if the predictions are calibrated.
        shares: Of the records, by how likely they were to survive their own time, lowest first (bins,).
    """

    statistic: float
    p_value: float
    shares: Array


def d_calibration(
    time: ArrayLike, event: ArrayLike, survival_at_time: ArrayLike, bins: int = 10
) -> Calibration:
    """D-calibration: events predicted with probability p happen with frequency p, for all p at once.

    If predictions are right, S(T) is spread evenly from 0 to 1, so each of `bins` equal bins gets an equal
    share (Haider et al. 2020). A record censored at C has its event later, when S is lower: it is spread
    evenly over 0 to S(C).

    Args:
        time: Of the event or of censoring (records,).
        event: 1 where the event was seen, 0 where the record is censored (records,).
        survival_at_time: Predicted probability that the record survives its own `time` (records,).
        bins: Number of bins; a bin includes its lower end, and the last one 1 as well.

    Returns:
        The statistic, its p-value for `bins` - 1 degrees of freedom, and the shares. With many censored
        records the test is lenient, as evenly spread records look calibrated.
    """
    times, events = outcomes(time, event)
    given = probabilities("survival_at_time", survival_at_time, times.shape, "one per record")
    require_count("bins", bins)
    require(bins > 1, "bins", bins, "at least 2")
    shares = _spread(np.clip(given, 0, 1), events, bins) / len(times)
    statistic = float(len(times) * bins * ((shares - 1 / bins) ** 2).sum())
    return Calibration(statistic, chi_square_tail(statistic, bins - 1), shares)


def _areas(risks: Array, past: NDArray[np.intp], weights: Array) -> Array:
    # Records in the order of their times: the first `past` are over at each time, the others are controls.
    shared = np.unique(risks, return_inverse=True)[1] if risks.ndim == 1 else None
    areas = np.empty(len(past))
    for index, split in enumerate(past):
        ranks = np.unique(risks[:, index], return_inverse=True)[1] if shared is None else shared
        over, going = ranks[:split], ranks[split:]
        controls = np.bincount(going, minlength=int(over.max()) + 1)
        # Twice the controls at lower risk, and once those at equal risk.
        twice = 2 * np.cumsum(controls) - controls
        cases = weights[:split]
        areas[index] = cases @ twice[over] / (2 * cases.sum() * len(going))
    return areas


def _spread(survival: Array, events: Integers, bins: int) -> Array:
    edges = np.arange(bins) / bins
    own = np.searchsorted(edges, survival, side="right") - 1
    seen = np.bincount(own[events == 1], minlength=bins)
    own, survival = own[events == 0], survival[events == 0]
    # In the lowest bin nothing is left to spread, whatever the probability: 0 must not divide.
    survival = np.where(own > 0, survival, 1.0)
    staying = np.bincount(own, weights=1 - edges[own] / survival, minlength=bins)
    each = np.bincount(own, weights=1 / (bins * survival), minlength=bins)
    below = np.append(np.cumsum(each[:0:-1])[::-1], 0)
    return (seen + staying + below).astype(np.float64)


def chi_square_tail(statistic: float, freedom: int) -> float:
    """Return the probability of a larger chi-square of so many degrees of freedom."""
    # The upper incomplete gamma function of half the degrees of freedom is a finite sum (Abramowitz and
    # Stegun 26.4.4 and 26.4.5).
    half = statistic / 2
    if half == 0:
        return 1.0
    odd = freedom % 2
    powers = [term + odd / 2 for term in range(freedom // 2)]
    terms = [math.exp(power * math.log(half) - half - math.lgamma(power + 1)) for power in powers]
    return min(math.fsum(terms) + odd * math.erfc(math.sqrt(half)), 1.0)
