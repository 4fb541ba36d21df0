"""The figures of a survival paper, each from plain results.

    runs          training, privacy_utility
    curves        estimates, kaplan_meier_by_site, cumulative_incidence, survival_curves
    agreement     calibration, forest

Each gives a matplotlib figure, and keeps it in a file if a `path` is named. What a figure shows has left the
sites already, except in `kaplan_meier_by_site` of a federation and in `calibration`, which look at records.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from tacit.errors import require
from tacit.reports.plots.style import Label, Picture, colour, format_time, label_lines, picture, save_figure
from tacit.reports.plots.training import privacy_utility as privacy_utility
from tacit.reports.plots.training import training as training
from tacit.survival.figures.agreement import calibration as calibration
from tacit.survival.figures.agreement import forest as forest
from tacit.survival.figures.curves import HEIGHT, MOST, limit_y_axis, line_labels, require_few, time_axis
from tacit.survival.figures.curves import NAMES as AXES
from tacit.survival.figures.curves import by_site as by_site
from tacit.survival.figures.curves import cumulative_incidence as cumulative_incidence
from tacit.survival.figures.curves import estimates as estimates
from tacit.survival.figures.curves import kaplan_meier_by_site as kaplan_meier_by_site

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "by_site",
    "calibration",
    "cumulative_incidence",
    "estimates",
    "forest",
    "kaplan_meier_by_site",
    "privacy_utility",
    "survival_curves",
    "training",
]

Array = NDArray[np.float64]

MODELLED = "predicted by a model: see the statement of its run"


class Survival(Protocol):
    """What is drawn of a model."""

    def survival(self, features: "ArrayLike | pd.DataFrame", times: ArrayLike) -> Array:
        """The chance of being event-free at each time (records, times)."""
        ...


def survival_curves(
    model: Survival,
    features: "ArrayLike | pd.DataFrame",
    times: ArrayLike,
    labels: Sequence[str] | None = None,
    *,
    unit: str | None = None,
    title: str | None = None,
    provenance: str = MODELLED,
    path: str | Path | None = None,
) -> Picture:
    """Draw the predicted survival of up to 7 records, or the mean and spread of more.

    Args:
        model: Such as `run.model`.
        features: Of the records (records, columns).
        times: When, ascending (times,).
        labels: Who they are, one for each record; if not said, their numbers.
        unit: Of time, such as `days`.
        title: What is seen; if not said, the range at the last time.
        provenance: Where the numbers come from.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    moments = np.asarray(times, dtype=np.float64)
    rising = moments.ndim == 1 and len(moments) > 1 and bool((np.diff(moments) > 0).all())
    require(rising and moments[0] >= 0, "times", moments.tolist(), "at least two from 0 on, ascending")
    curves = np.asarray(model.survival(features, moments), dtype=np.float64)
    names = _record_names(labels, len(curves))
    few = len(names) <= MOST
    note = provenance + ". Bands: the middle half of the records, and nine tenths of them" * (not few) + "."
    figure = picture(HEIGHT, title or _survival_title(moments[-1], curves[:, -1], unit), note)
    axes = figure.add_subplot()
    time_axis(axes, float(moments[-1]), unit, AXES["survival"])
    ends = _each(axes, moments, curves, names) if few else _bulk(axes, moments, curves)
    limit_y_axis(axes, "survival")
    label_lines({axes: ends})
    return save_figure(figure, path)


def _survival_title(end: float, last: Array, unit: str | None) -> str:
    """What predictions show."""
    several = f"from {last.min():.2f} to {last.max():.2f}"
    return f"Predicted survival to {format_time(end, unit)}: {several if len(last) > 1 else f'{last[0]:.2f}'}"


def _record_names(labels: Sequence[str] | None, count: int) -> list[str]:
    require(count > 0, "features", "no record", "at least one record")
    if labels is None:
        return [f"record {number}" for number in range(1, count + 1)]
    require(len(labels) == count, "labels", f"{len(labels)} of them", f"one for each of {count} records")
    require_few("labels", count)
    return list(labels)


def _each(axes: Axes, times: Array, curves: Array, names: Sequence[str]) -> list[Label]:
    """Draw a line for each record."""
    for place, curve in enumerate(curves):
        axes.plot(times, curve, color=colour(place), linewidth=1.5)
    return line_labels(curves[:, -1], names)


def _bulk(axes: Axes, times: Array, curves: Array) -> list[Label]:
    """Draw the mean of many records, and where half and nine tenths of them are."""
    for low, high in ((0.05, 0.95), (0.25, 0.75)):
        lower, upper = np.quantile(curves, [low, high], axis=0)
        axes.fill_between(times, lower, upper, color=colour(0), alpha=0.18, linewidth=0)
    mean = curves.mean(axis=0)
    axes.plot(times, mean, color=colour(0), linewidth=1.5)
    return [Label(float(mean[-1]), f"mean of {len(curves):,}", colour(0))]
