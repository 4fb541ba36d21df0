"""Metrics of survival predictions, and bootstrap intervals around them.

    order          harrell, uno, antolini (concordances), auc, mean_auc (at chosen times)
    probability    brier, integrated_brier (both at once), d_calibration (probability alone)
    certainty      bootstrap (an interval around any of them)

Definitions are the textbook ones, ties included; where a popular package departs from them, an argument says
so by name. Every score is computed in double precision from plain arrays, lists, series or tensors. Nothing
here fits a model, and nothing is private: a score of held-out records is a release like any other.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidValue, is_between, require, require_count
from tacit.runtime.keys import Key
from tacit.survival.metrics.brier_score import Curve as Curve
from tacit.survival.metrics.brier_score import brier as brier
from tacit.survival.metrics.brier_score import censoring as censoring
from tacit.survival.metrics.brier_score import integrated_brier as integrated_brier
from tacit.survival.metrics.brier_score import outcomes as _outcomes
from tacit.survival.metrics.calibration import Calibration as Calibration
from tacit.survival.metrics.calibration import auc as auc
from tacit.survival.metrics.calibration import d_calibration as d_calibration
from tacit.survival.metrics.calibration import mean_auc as mean_auc
from tacit.survival.metrics.concordance import antolini as antolini
from tacit.survival.metrics.concordance import harrell as harrell
from tacit.survival.metrics.concordance import uno as uno

__all__ = [
    "Calibration",
    "Curve",
    "antolini",
    "auc",
    "bootstrap",
    "brier",
    "censoring",
    "d_calibration",
    "harrell",
    "integrated_brier",
    "mean_auc",
    "uno",
]


def bootstrap(
    metric: Callable[..., float],
    *arrays: ArrayLike,
    repeats: int = 200,
    seed: int = 0,
    level: float = 0.95,
) -> tuple[float, float]:
    """Return a bootstrap interval of a score: the middle `level` over records redrawn with replacement.

    Events and censored records are drawn apart, so that each draw has as many of both as there are. A draw
    that cannot be scored, such as one without a comparable pair, is skipped. The interval is about these
    records as a sample; it knows nothing of how the model would vary if it were trained anew.

    Args:
        metric: `metric(time, event, ...)`, called with the arrays in the order given. Whatever else it needs
            is bound to it: `partial(antolini, times=grid)`.
        arrays: `time`, `event` and what else there is for each record, records first.
        repeats: Number of draws.
        seed: The same seed gives the same draws.
        level: The share of draws inside of the interval.

    Returns:
        The lower and the upper end.
    """
    require_count("repeats", repeats)
    require(is_between(level, 0, 1), "level", level, "above 0 and below 1")
    require(len(arrays) > 1, "arrays", f"{len(arrays)} of them", "at least two, time and event")
    _, events = _outcomes(arrays[0], arrays[1])
    columns = [_column(array, index, len(events)) for index, array in enumerate(arrays)]
    # Errors in the records themselves are reported here; below, only a draw can be at fault.
    require(
        bool(np.isfinite(metric(*columns))), "metric", "NaN or infinity", "finite for the records as given"
    )
    draws = (Key(seed) / "bootstrap").generator()
    groups = [np.flatnonzero(events == kind) for kind in (0, 1)]
    scores: list[float] = []
    for _ in range(repeats):
        rows = np.concatenate([draws.choice(group, len(group)) for group in groups if len(group)])
        scores += _score(metric, [column[rows] for column in columns])
    allowed = "a score of at least half the draws: there are too few records or events for an interval"
    require(2 * len(scores) >= repeats, "metric", f"{len(scores)} scores of {repeats} draws", allowed)
    low, high = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _column(given: ArrayLike, index: int, records: int) -> NDArray[np.generic]:
    try:
        column = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidValue(f"array {index} is not allowed: it must be an array ({error})") from error
    allowed = f"of {records} records, as time is; pass other arguments by functools.partial"
    require(column.shape[:1] == (records,), f"array {index}", f"shape {column.shape}", allowed)
    return column


def _score(metric: Callable[..., float], columns: list[NDArray[np.generic]]) -> list[float]:
    try:
        score = float(metric(*columns))
    except InvalidValue:
        return []
    return [score] if np.isfinite(score) else []
