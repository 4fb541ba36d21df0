"""Figures of survival curves, and of predictions against outcomes.

Curves are estimates, which have left the sites already, or predictions of a model. `kaplan_meier_by_site` of
a federation and `calibration` look at records: on private ones their figures are unprotected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from tacit.errors import InvalidValue, is_between, require, require_count, require_word
from tacit.reports.plots import ROUND, band, column, dots, head, line, panels, tint_rows, write
from tacit.reports.plots.style import (
    BODY,
    GREY,
    GROUND,
    INK,
    PALE,
    PALETTE,
    ROW,
    RULE,
    Label,
    Picture,
    colour,
    credits,
    format_p,
    format_time,
    ink,
    label_lines,
    picture,
    save_figure,
    shorten_label,
    tidy,
    with_unit,
)
from tacit.runtime.arrays import Array
from tacit.sites.federation import RowFederation
from tacit.sites.table import from_arrays
from tacit.survival.life_table import LifeTable
from tacit.survival.metrics.brier_score import outcomes, probabilities
from tacit.survival.metrics.calibration import d_calibration
from tacit.survival.statistics.curves import Estimate
from tacit.survival.statistics.federated import kaplan_meier, life_table, logrank

if TYPE_CHECKING:
    import pandas as pd

# More lines than these in one panel can no longer be followed.
MOST = len(PALETTE)
FEW = 5
HEIGHT = 3.2
# Curves that end before this share of the axis are named where they end; curves this close are beside it.
EARLY, CLOSE = 0.93, 0.06
ACROSS = 4
AXES = {
    "survival": "Probability of no event",
    "uncensored": "Probability of not being censored",
    "hazard": "Cumulative hazard",
}
MODELLED = "predicted by a model: see the statement of its run"
LOOKED = "unprotected: times, events and predictions of these records"


# Estimates


def estimates(
    found: Estimate | Mapping[str, Estimate],
    *,
    unit: str | None = None,
    title: str | None = None,
    path: str | Path | None = None,
) -> Picture:
    """Draw curves with their bands, and the numbers at risk below.

    Args:
        found: Result of `kaplan_meier`, `nelson_aalen` or `breslow`, or several of one kind by name.
        unit: Of time, such as `days`.
        title: The title; by default the medians or last values.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    named = _of_one_kind({"": found} if isinstance(found, Estimate) else found)
    require_few("estimates", len(named))
    kind = next(iter(named.values())).curves[0]
    figure, axes = _with_risk_table(named, title or _estimates_title(named, unit), unit, _axis(kind))
    for place, one in enumerate(named.values()):
        _line(axes, one, kind, colour(place))
    limit_y_axis(axes, kind)
    label_lines({axes: _label_ends(axes, named, kind)})
    return save_figure(figure, path)


def _label_ends(axes: Axes, named: Mapping[str, Estimate], kind: str) -> list[Label]:
    """Write names where curves end that end early; return the labels of the others."""
    last, labels = _end(named), list[Label]()
    ends = {name: _rows_at_risk(one) for name, one in named.items() if name}
    for place, (name, table) in enumerate(ends.items()):
        at, height = float(table.index[-1]), float(column(table, kind)[-1])
        if at > EARLY * last:
            labels.append(Label(height, name, colour(place)))
            continue
        later = [float(one.at([at])[0]) for other, one in named.items() if other != name]
        near = [other - height for other in later if abs(other - height) < CLOSE * axes.get_ylim()[1]]
        # Away from the curves that go on beside it.
        side = -1.0 if sum(near) > 0 else 1.0
        aside = (5.0, 0.0 if not near else side * 8.0)
        write(
            axes, shorten_label(name), (at, height), aside, ha="left", color=ink(colour(place)), bbox=GROUND
        )
    return labels


def kaplan_meier_by_site(
    sites: RowFederation | LifeTable | Mapping[str, Estimate],
    *,
    grid: ArrayLike | None = None,
    level: float = 0.95,
    unit: str | None = None,
    title: str | None = None,
    path: str | Path | None = None,
) -> Picture:
    """Draw the survival of each site; up to 5 share a panel, more have one each beside the curve of all.

    Args:
        sites: Counts that a `life_table` has paid for, or curves by name. A federation is counted here and
            now, and its counts leave the sites unprotected.
        grid: The ends of public intervals, if a federation is counted; else every exit time leaves the sites.
        level: Of the bands.
        unit: Of time, such as `days`.
        title: The title; by default the log-rank test between sites.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    table = life_table(sites, grid=grid) if isinstance(sites, RowFederation) else sites
    require(grid is None or table is not sites, "grid", "one", "None where exits have been counted already")
    if not isinstance(table, LifeTable):
        named, everybody = _of_one_kind(table), None
    else:
        named, everybody = by_site(table, level=level), kaplan_meier(table, level=level)
        title = title or _logrank_title(table)
    if len(named) <= FEW:
        return estimates(named, unit=unit, title=title, path=path)
    return save_figure(_multiples(named, everybody, title or _estimates_title(named, unit), unit), path)


def by_site(table: LifeTable, *, level: float = 0.95) -> dict[str, Estimate]:
    """Return the Kaplan-Meier curve of each site, from released counts: it costs nothing."""
    parts = {
        name: replace(table, cells=table.cells[place : place + 1], sites=(name,))
        for place, name in enumerate(table.sites)
    }
    return {name: kaplan_meier(part, level=level) for name, part in parts.items()}


def cumulative_incidence(
    found: Estimate,
    labels: Sequence[str] | None = None,
    *,
    kind: Literal["lines", "stacked"] = "lines",
    unit: str | None = None,
    title: str | None = None,
    path: str | Path | None = None,
) -> Picture:
    """Draw the probability of an event of each cause, and the numbers at risk below.

    Args:
        found: Result of `aalen_johansen`.
        labels: The causes in words, in their order.
        kind: A line for each cause, or layers that add up to the probability of any event.
        unit: Of time, such as `days`.
        title: The title; by default the last value of each cause.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require_word("kind", kind, ("lines", "stacked"))
    incidence = all(name.startswith("incidence") for name in found.curves)
    require(incidence, "estimate", found.name, "that of Aalen and Johansen")
    causes = len(found.curves)
    require_few("causes", causes)
    names = list(labels or [f"cause {number}" for number in range(1, causes + 1)])
    require(len(names) == causes, "labels", f"{len(names)} of them", f"one for each of {causes} causes")
    ends = [float(column(_rows_at_risk(found), curve)[-1]) for curve in found.curves]
    parts = ", ".join(f"{name} {end:.2f}" for name, end in zip(names, ends, strict=True))
    seen = f"Probability of an event by {format_time(_end({'': found}), unit)}: {parts}"
    figure, axes = _with_risk_table({"": found}, title or seen, unit, "Cumulative incidence")
    label_lines({axes: (_layers if kind == "stacked" else _lines)(axes, found, names)})
    return save_figure(figure, path)


def _of_one_kind(found: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """Return the estimates, after checking that they are curves of one kind."""
    require(bool(found), "estimates", "none", "at least one")
    for name, one in found.items():
        if not isinstance(one, Estimate):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"estimate {name} = {one!r} is not allowed: it must be a curve over time")
    kinds = {one.curves for one in found.values()}
    require(len(kinds) == 1, "estimates", sorted(map(str, kinds)), "of one kind, to share an axis")
    require(len(next(iter(kinds))) == 1, "estimates", "several causes", "drawn by cumulative_incidence")
    return dict(found)


def _rows_at_risk(found: Estimate) -> "pd.DataFrame":
    """Return the rows up to the last with records at risk; beyond, a curve says nothing."""
    at_risk = found.table["at_risk"].to_numpy(dtype=np.float64)
    return found.table.iloc[: int(np.flatnonzero(at_risk > 0).max(initial=0)) + 1]


def _axis(kind: str) -> str:
    return AXES.get(kind, kind)


def _end(named: Mapping[str, Estimate]) -> float:
    last = max(float(_rows_at_risk(one).index[-1]) for one in named.values())
    require(
        last > 0,
        "estimates",
        "known at time 0 alone",
        "known for longer: the noise is too large, or there are too few",
    )
    return last


def _estimates_title(named: Mapping[str, Estimate], unit: str | None) -> str:
    """Return a title with the curves' medians, or else their last values."""
    kind = next(iter(named.values())).curves[0]
    if kind == "survival" and all(np.isfinite(one.median) for one in named.values()):
        found = {name: one.median for name, one in named.items()}
        told, words = [format_time(value, unit) for value in found.values()], "Median time to the event"
    else:
        found = {name: float(column(_rows_at_risk(one), kind)[-1]) for name, one in named.items()}
        told = [f"{value:.2f}" for value in found.values()]
        words = f"{_axis(kind)} by {format_time(_end(named), unit)}"
    names, order = list(found), np.argsort(list(found.values()), kind="stable")
    low, high = int(order[0]), int(order[-1])
    if len(named) == 1:
        return f"{words}: {told[0]}"
    return f"{words}: from {told[low]} ({names[low]}) to {told[high]} ({names[high]})"


def _logrank_title(table: LifeTable) -> str:
    """Return a title with the verdict of the log-rank test between sites."""
    if len(table.sites) == 1:
        return f"Survival at {table.sites[0]}"
    p = logrank(table).p
    verdict = "differs between sites" if p < 0.05 else "does not clearly differ between sites"
    return f"Survival {verdict} (log-rank p {format_p(p)})"


def _note(named: Mapping[str, Estimate]) -> str:
    """Return a note on the provenance of the numbers and the level of the bands."""
    levels = sorted({f"{100 * one.level:g} %" for one in named.values() if "lower" in one.table})
    bands = f" Bands: {', '.join(levels)}, pointwise." * bool(levels)
    return credits({name: one.provenance for name, one in named.items()}) + bands


def _with_risk_table(
    named: Mapping[str, Estimate], title: str, unit: str | None, up: str
) -> tuple[Picture, Axes]:
    """Return a figure with axes for curves, and the numbers at risk in a table below them."""
    rows = ROW * len(named)
    figure = picture(HEIGHT + rows, title, _note(named))
    parts = figure.add_gridspec(2, 1, height_ratios=[HEIGHT - 0.8, rows])
    axes = figure.add_subplot(parts[0])
    ticks = time_axis(axes, _end(named), unit, up)
    table = figure.add_subplot(parts[1], sharex=axes)
    table.set_ylim(len(named) - 0.5, -0.5)
    table.spines[:].set_visible(False)
    table.tick_params(which="both", length=0, labelbottom=False, labelsize=BODY)
    table.set_title("Number at risk", loc="left", fontsize=BODY, color=GREY, pad=2)
    counts = [[f"{n:,.0f}" if np.isfinite(n) else "" for n in one.at_risk(ticks)] for one in named.values()]
    for row, cells in enumerate(counts):
        for tick, cell in zip(ticks, cells, strict=True):
            write(table, cell, (tick, row), va="center_baseline")
    # The numbers at time 0 are centered on it: their left half is in the way of the names.
    table.tick_params(axis="y", pad=8 + max(len(cells[0]) for cells in counts) * BODY * 0.35)
    table.set_yticks(range(len(named)), [shorten_label(name) for name in named], parse_math=False)
    tint_rows(table, map(colour, range(len(named))))
    return figure, axes


def time_axis(axes: Axes, end: float, unit: str | None, up: str, most: int = 6) -> Array:
    """Scale the time axis from 0 to the end; return the ticks."""
    tidy(axes, with_unit("Time", unit), up)
    ticks = np.asarray(MaxNLocator(most, steps=ROUND).tick_values(0, end), dtype=np.float64)
    ticks = ticks[(ticks >= 0) & (ticks <= end * (1 + 1e-9))]
    axes.set_xlim(0, end * 1.01)
    axes.set_xticks(ticks)
    return ticks


def limit_y_axis(axes: Axes, kind: str) -> None:
    """Scale the axis of probabilities from 0 to 1, and others from 0 to their end."""
    axes.set_ylim(0, 1.02 if kind in ("survival", "uncensored") else None)


def _line(axes: Axes, found: Estimate, kind: str, shade: str, width: float = 1.5) -> float:
    """Draw a curve and its band; returns its last value."""
    table = _rows_at_risk(found)
    if "lower" in table:
        step = {} if found.spread else {"step": "post"}
        band(axes, table.index, table["lower"], table["upper"], shade, **step)
    style = "default" if found.spread else "steps-post"
    return line(axes, table.index, column(table, kind), shade, linewidth=width, drawstyle=style).height


def _multiples(
    named: Mapping[str, Estimate], everybody: Estimate | None, title: str, unit: str | None
) -> Picture:
    """Draw a small panel for each site, the curve of all sites in gray behind it."""
    down = -(-len(named) // ACROSS)
    behind = " Gray: all sites." if everybody is not None else ""
    figure = picture(0.4 + 1.15 * down, title, _note(named) + behind)
    kind, end = next(iter(named.values())).curves[0], _end(named)
    for panel, (name, one) in zip(panels(figure, len(named), ACROSS), named.items(), strict=True):
        axes = panel.axes
        time_axis(axes, end, unit, "", 2)
        axes.xaxis.label.set_visible(panel.bottom)
        axes.tick_params(labelbottom=panel.bottom)
        if everybody is not None:
            plain = replace(
                everybody, table=everybody.table.drop(columns=["lower", "upper"], errors="ignore")
            )
            _line(axes, plain, kind, PALE, 1.0)
        _line(axes, one, kind, colour(0), 1.2)
        count = f"{column(one.table, 'at_risk')[0]:,.0f}"
        head(axes, f"{shorten_label(name, 17 - len(count))} ({count})")
        limit_y_axis(axes, kind)
    figure.supylabel(_axis(kind), fontsize=BODY, color=INK)
    return figure


def require_few(field: str, count: int) -> None:
    """Refuse more lines than there are colors."""
    require(count <= MOST, field, f"{count} of them", f"at most {MOST}, so that colors differ")


def _lines(axes: Axes, found: Estimate, names: Sequence[str]) -> list[Label]:
    """Draw a line for each cause."""
    ends = [_line(axes, found, curve, colour(place)) for place, curve in enumerate(found.curves)]
    limit_y_axis(axes, "incidence")
    return line_labels(ends, names)


def _layers(axes: Axes, found: Estimate, names: Sequence[str]) -> list[Label]:
    """Draw a layer for each cause, the first at the bottom."""
    table, middles = _rows_at_risk(found), list[float]()
    low = np.zeros(len(table))
    for place, curve in enumerate(found.curves):
        high = low + column(table, curve)
        step = {} if found.spread else {"step": "post"}
        band(axes, table.index, low, high, colour(place), alpha=0.75, **step)
        middles.append(float(low[-1] + high[-1]) / 2)
        low = high
    axes.grid(visible=False)
    limit_y_axis(axes, "survival")
    return line_labels(middles, names)


def line_labels(heights: Sequence[float] | Array, names: Sequence[str]) -> list[Label]:
    """The name of each line in its color."""
    pairs = enumerate(zip(heights, names, strict=True))
    return [Label(float(height), name, colour(place)) for place, (height, name) in pairs if name]


# Predictions


class Survival(Protocol):
    """Protocol of a model with survival curves."""

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
        times: Times of the curves, ascending (times,).
        labels: Names of the records; by default their numbers.
        unit: Of time, such as `days`.
        title: The title; by default the range at the last time.
        provenance: Source of the numbers.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    moments = np.asarray(times, dtype=np.float64)
    rising = moments.ndim == 1 and len(moments) > 1 and bool((np.diff(moments) > 0).all())
    require(rising and moments[0] >= 0, "times", moments.tolist(), "at least two from 0 on, ascending")
    curves = np.asarray(model.survival(features, moments), dtype=np.float64)
    # Nothing is predicted beyond the horizon of a model.
    known = np.isfinite(curves).all(axis=0)
    require(int(known.sum()) > 1, "times", moments.tolist(), "at least two within the horizon of the model")
    moments, curves = moments[known], curves[:, known]
    names = _record_names(labels, len(curves))
    few = len(names) <= MOST
    note = provenance + ". Bands: the middle half of the records, and nine tenths of them" * (not few) + "."
    figure = picture(HEIGHT, title or _survival_title(moments[-1], curves[:, -1], unit), note)
    axes = figure.add_subplot()
    time_axis(axes, float(moments[-1]), unit, AXES["survival"])
    ends = time_lines(axes, moments, curves, names) if few else _bulk(axes, moments, curves)
    limit_y_axis(axes, "survival")
    label_lines({axes: ends})
    return save_figure(figure, path)


def _survival_title(end: float, last: Array, unit: str | None) -> str:
    """Return a title for predicted survival."""
    several = f"from {last.min():.2f} to {last.max():.2f}"
    return f"Predicted survival to {format_time(end, unit)}: {several if len(last) > 1 else f'{last[0]:.2f}'}"


def _record_names(labels: Sequence[str] | None, count: int) -> list[str]:
    require(count > 0, "features", "no record", "at least one record")
    if labels is None:
        return [f"record {number}" for number in range(1, count + 1)]
    require(len(labels) == count, "labels", f"{len(labels)} of them", f"one for each of {count} records")
    require_few("labels", count)
    return list(labels)


def time_lines(axes: Axes, times: Array, curves: Array, names: Sequence[str]) -> list[Label]:
    """Draw a line for each curve (curves, times)."""
    return [
        line(axes, times, curve, colour(place), name, linewidth=1.5)
        for place, (curve, name) in enumerate(zip(curves, names, strict=True))
    ]


def _bulk(axes: Axes, times: Array, curves: Array) -> list[Label]:
    """Draw the mean of many records, and where half and nine tenths of them are."""
    for low, high in ((0.05, 0.95), (0.25, 0.75)):
        lower, upper = np.quantile(curves, [low, high], axis=0)
        band(axes, times, lower, upper, colour(0), alpha=0.18)
    return [line(axes, times, curves.mean(axis=0), colour(0), f"mean of {len(curves):,}", linewidth=1.5)]


# Predictions beside what happened


def calibration(
    time: ArrayLike,
    event: ArrayLike,
    survival_at_t: ArrayLike,
    at: float,
    bins: int = 10,
    *,
    survival_at_time: ArrayLike | None = None,
    level: float = 0.95,
    unit: str | None = None,
    title: str | None = None,
    provenance: str = LOOKED,
    path: str | Path | None = None,
) -> Picture:
    """Draw predicted against observed risk by a time, and the histogram of D-calibration if possible.

    Records are put in bins of equal size by their predictions; what was observed in a bin is its Kaplan-Meier
    estimate. The records are looked at: on private ones the figure is unprotected.

    Args:
        time: Of the event or of censoring (records,).
        event: 1 where the event was seen, 0 where the record is censored (records,).
        survival_at_t: Predicted probability of no event up to `at` (records,).
        at: The time.
        bins: Number of bins; fewer where predictions are equal.
        survival_at_time: Predicted probability that each record survives its own time, for D-calibration.
        level: Of the intervals.
        unit: Of time, such as `days`.
        title: The title; by default the mean difference.
        provenance: Source of the numbers.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    times, events = outcomes(time, event)
    risks = 1 - probabilities("survival_at_t", survival_at_t, times.shape, "one per record")
    require(
        is_between(at, 0, np.nextafter(times.max(), np.inf)), "at", at, "above 0 and not after all records"
    )
    require_count("bins", bins)
    found = _bin_risks(times, events, risks, at, bins, level)
    when = format_time(at, unit)
    seen = f"Predicted and observed risk by {when} differ by {found.gap:.3f} on average"
    note = f"{credits({'': provenance})} Intervals: {100 * level:g} %.{found.missing}"
    figure = picture(3.1, title or seen, note)
    panels = figure.subplots(1, 1 if survival_at_time is None else 2, squeeze=False)[0]
    _risk_panel(panels[0], found, risks, when)
    if survival_at_time is not None:
        _share_panel(panels[1], times, events, survival_at_time, bins, level)
    return save_figure(figure, path)


@dataclass(frozen=True, eq=False)
class RiskBins:
    """Calibration bins by predicted risk: predicted and observed risks (bins,).

    Args:
        predicted: The mean risk.
        observed: The Kaplan-Meier estimate of it; NaN where no record was followed that long.
        lower: The lower end of its interval, and `upper` the upper one.
        sizes: Number of records.
    """

    predicted: Array
    observed: Array
    lower: Array
    upper: Array
    sizes: Array

    @property
    def gap(self) -> float:
        """The mean difference of predicted and observed, over records."""
        known = np.isfinite(self.observed)
        return float(np.average(np.abs(self.predicted - self.observed)[known], weights=self.sizes[known]))

    @property
    def missing(self) -> str:
        """Describe the number of unknown bins in words."""
        unknown = int(np.isnan(self.observed).sum())
        words = f" {unknown} of {len(self.sizes)} bins not drawn: no follow-up in them is that long."
        return words * bool(unknown)


def _bin_risks(
    time: Array, event: NDArray[np.int64], risks: Array, at: float, bins: int, level: float
) -> RiskBins:
    edges = np.unique(np.quantile(risks, np.linspace(0, 1, bins + 1)[1:-1]))
    own = np.searchsorted(edges, risks, side="left")
    members = [np.flatnonzero(own == place) for place in np.unique(own)]
    fewest = min(map(len, members))
    require(fewest > 1, "bins", bins, f"fewer: one of them has {fewest} record for {len(time)} in all")
    tables = {
        str(place): from_arrays(risks[rows], time=time[rows], event=event[rows])
        for place, rows in enumerate(members)
    }
    curves = by_site(life_table(RowFederation(tables)), level=level).values()
    followed = np.array([curve.at_risk([at])[0] > 0 or curve.at([at])[0] == 0 for curve in curves])
    allowed = "a time within the follow-up of some bin"
    require(bool(followed.any()), "at", at, allowed)
    rows = [
        curve.table.iloc[int(np.searchsorted(curve.table.index, at, side="right")) - 1] for curve in curves
    ]
    observed, upper, lower = (
        np.where(followed, [1 - float(row[name]) for row in rows], np.nan)
        for name in ("survival", "lower", "upper")
    )
    predicted = np.array([risks[rows].mean() for rows in members])
    return RiskBins(predicted, observed, lower, upper, np.array([len(rows) for rows in members], dtype=float))


def _risk_panel(axes: Axes, found: RiskBins, risks: Array, when: str) -> None:
    """Draw calibration bins against the diagonal, and a histogram of predicted risks below."""
    tidy(axes, f"Predicted risk by {when}", f"Observed risk by {when}")
    top = min(1.0, 1.08 * float(np.nanmax([found.upper.max(), found.predicted.max(), 0.05])))
    axes.plot([0, top], [0, top], color=GREY, linewidth=0.9, linestyle="--")
    axes.vlines(found.predicted, found.lower, found.upper, color=colour(0), linewidth=1.2)
    dots(axes, found.predicted, found.observed, colour(0))
    counts, edges = np.histogram(risks, bins=60, range=(0, top))
    middle, high = (edges[:-1] + edges[1:]) / 2, 0.07 * top * counts / max(counts.max(), 1)
    axes.vlines(middle[counts > 0], 0, high[counts > 0], color=GREY, linewidth=1.2)
    axes.set(xlim=(0, top), ylim=(0, top), box_aspect=1)


def _share_panel(
    axes: Axes, time: Array, event: NDArray[np.int64], given: ArrayLike, bins: int, level: float
) -> None:
    """Draw the share of records in each bin of their survival at their own time."""
    found = d_calibration(time, event, given, bins)
    tidy(axes, "Predicted survival at a record's own time", "Share of records")
    even, half = 1 / bins, float(norm.ppf(0.5 + level / 2)) * np.sqrt((1 - 1 / bins) / bins / len(time))
    axes.axhspan(max(even - half, 0), even + half, color=RULE, alpha=0.6, linewidth=0)
    axes.bar((np.arange(bins) + 0.5) / bins, found.shares, width=0.86 / bins, color=colour(0), alpha=0.75)
    axes.axhline(even, color=GREY, linewidth=0.9, linestyle="--")
    head(axes, f"D-calibration: p {format_p(found.p_value)}")
    axes.set(xlim=(0, 1), ylim=(0, None), box_aspect=1)
