"""C-index and integrated Brier score of predictions, on `tacit.survival.metrics`."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from tacit.errors import require
from tacit.survival.metrics import harrell, integrated_brier

if TYPE_CHECKING:
    from pandas import DataFrame


def calculate_cindex(time: ArrayLike, event: ArrayLike, risk_score: ArrayLike) -> float:
    """Harrell's C: the share of comparable pairs in which the record at higher risk has its event first.

    Args:
        time: Of the event or of censoring (records,).
        event: 1 where the event was seen, 0 where the record is censored (records,).
        risk_score: Any score that is higher for earlier events (records,).
    """
    return harrell(time, event, risk_score)


def calculate_ibs(
    time_grid: ArrayLike, survival_curves: "ArrayLike | DataFrame", time: ArrayLike, event: ArrayLike
) -> float:
    """The Brier score integrated over `time_grid`, weighted for censoring; 0.5.0 returned None.

    Args:
        time_grid: Times to score at, in increasing order (times,).
        survival_curves: Predicted probabilities of surviving them (records, times), or a frame as
            `FSARunner.predict_survival` returns it, at these times (times, records).
        time: Of the event or of censoring (records,).
        event: 1 where the event was seen, 0 where the record is censored (records,).
    """
    curves = np.asarray(survival_curves, dtype=np.float64)
    grid, many = np.asarray(time_grid, dtype=np.float64), np.asarray(time).shape[0]
    # A frame has times as its index.
    turned = hasattr(survival_curves, "index") or curves.shape == (len(grid), many) != (many, len(grid))
    curves = curves.T if turned else curves
    require(curves.shape == (many, len(grid)), "survival_curves", f"shape {curves.shape}", "(records, times)")
    return integrated_brier(time, event, curves, grid)
