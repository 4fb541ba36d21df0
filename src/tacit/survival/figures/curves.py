"""Curves over time, drawn: Kaplan-Meier and its kin with bands and numbers at risk, predictions, incidence.

A drawing shows what its estimate holds and reads no records; only `kaplan_meier_by_site` counts them, if it
is given a federation instead of counts that were paid for. A footnote says where the numbers come from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidValue, require, require_word
from tacit.reports.plots.style import (
    BODY,
    GREY,
    INK,
    PALE,
    PALETTE,
    ROW,
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
)
from tacit.sites.federation import Federation
from tacit.survival.life_table import LifeTable, life_table
from tacit.survival.statistics.curves import Estimate
from tacit.survival.statistics.federated import kaplan_meier, logrank

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

# More lines than these in one panel can no longer be followed.
MOST = len(PALETTE)
FEW = 5
HEIGHT = 3.2
ACROSS = 4
NAMES = {
    "survival": "Probability of no event",
    "uncensored": "Probability of not being censored",
    "hazard": "Cumulative hazard",
}


def estimates(
    found: Estimate | Mapping[str, Estimate],
    *,
    unit: str | None = None,
    title: str | None = None,
    path: str | Path | None = None,
) -> Picture:
    """Draw curves with their bands, and the numbers at risk below.

    Args:
        found: What `kaplan_meier`, `nelson_aalen` or `breslow` gave, or several of one kind by name.
        unit: Of time, such as `days`.
        title: What is seen; if not said, the medians or last values.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    named = _of_one_kind({"": found} if isinstance(found, Estimate) else found)
    require_few("estimates", len(named))
    kind = next(iter(named.values())).curves[0]
    figure, axes = _with_risk_table(
        named, title or _estimates_title(named, unit), unit, NAMES.get(kind, kind)
    )
    ends = [_line(axes, one, kind, colour(place)) for place, one in enumerate(named.values())]
    limit_y_axis(axes, kind)
    label_lines({axes: line_labels(ends, list(named))})
    return save_figure(figure, path)


def kaplan_meier_by_site(
    sites: Federation | LifeTable | Mapping[str, Estimate],
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
            now, and its counts leave the sites bare: unprotected.
        grid: The ends of public intervals, if a federation is counted; else every exit time leaves the sites.
        level: Of the bands.
        unit: Of time, such as `days`.
        title: What is seen; if not said, the log-rank test between sites.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    table = life_table(sites, grid=grid) if isinstance(sites, Federation) else sites
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
    """The Kaplan-Meier curve of each site, from counts that have left the sites already: it costs nothing."""
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
        found: What `aalen_johansen` gave.
        labels: The causes in words, in their order.
        kind: A line for each cause, or layers that add up to the probability of any event.
        unit: Of time, such as `days`.
        title: What is seen; if not said, the last value of each cause.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require_word("kind", kind, ("lines", "stacked"))
    incidence = all(name.startswith("incidence") for name in found.curves)
    require(incidence, "estimate", found.name, "that of Aalen and Johansen")
    causes = len(found.curves)
    require_few("causes", causes)
    names = list(labels or [f"cause {number}" for number in range(1, causes + 1)])
    require(len(names) == causes, "labels", f"{len(names)} of them", f"one for each of {causes} causes")
    ends = [float(_values(_rows_at_risk(found), curve)[-1]) for curve in found.curves]
    parts = ", ".join(f"{name} {end:.2f}" for name, end in zip(names, ends, strict=True))
    seen = f"Probability of an event by {format_time(_end({'': found}), unit)}: {parts}"
    figure, axes = _with_risk_table({"": found}, title or seen, unit, "Cumulative incidence")
    label_lines({axes: (_layers if kind == "stacked" else _lines)(axes, found, names)})
    return save_figure(figure, path)


def _of_one_kind(found: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """The estimates, once they are found to be curves of the same thing, one each."""
    require(bool(found), "estimates", "none", "at least one")
    for name, one in found.items():
        if not isinstance(one, Estimate):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"estimate {name} = {one!r} is not allowed: it must be a curve over time")
    kinds = {one.curves for one in found.values()}
    require(len(kinds) == 1, "estimates", sorted(map(str, kinds)), "of one kind, to share an axis")
    require(len(next(iter(kinds))) == 1, "estimates", "several causes", "drawn by cumulative_incidence")
    return dict(found)


def _rows_at_risk(found: Estimate) -> "pd.DataFrame":
    """The rows up to the last at which anybody was at risk; beyond, a curve says nothing."""
    at_risk = found.table["at_risk"].to_numpy(dtype=np.float64)
    return found.table.iloc[: int(np.flatnonzero(at_risk > 0).max(initial=0)) + 1]


def _values(table: "pd.DataFrame", name: str) -> Array:
    return table[name].to_numpy(dtype=np.float64)


def _times(table: "pd.DataFrame") -> Array:
    return table.index.to_numpy(dtype=np.float64)


def _end(named: Mapping[str, Estimate]) -> float:
    last = max(float(_times(_rows_at_risk(one))[-1]) for one in named.values())
    require(last > 0, "estimates", "known at time 0 alone", "known for longer: too much noise, or too few")
    return last


def _estimates_title(named: Mapping[str, Estimate], unit: str | None) -> str:
    """What curves show: their medians, or else their last values."""
    kind = next(iter(named.values())).curves[0]
    if kind == "survival" and all(np.isfinite(one.median) for one in named.values()):
        found = {name: one.median for name, one in named.items()}
        told, words = [format_time(value, unit) for value in found.values()], "Median time to the event"
    else:
        found = {name: float(_values(_rows_at_risk(one), kind)[-1]) for name, one in named.items()}
        told = [f"{value:.2f}" for value in found.values()]
        words = f"{NAMES.get(kind, kind)} by {format_time(_end(named), unit)}"
    names, order = list(found), np.argsort(list(found.values()), kind="stable")
    low, high = int(order[0]), int(order[-1])
    if len(named) == 1:
        return f"{words}: {told[0]}"
    return f"{words}: from {told[low]} ({names[low]}) to {told[high]} ({names[high]})"


def _logrank_title(table: LifeTable) -> str:
    """What the log-rank test says of the sites."""
    if len(table.sites) == 1:
        return f"Survival at {table.sites[0]}"
    p = logrank(table).p
    verdict = "differs between sites" if p < 0.05 else "does not clearly differ between sites"
    return f"Survival {verdict} (log-rank p {format_p(p)})"


def _note(named: Mapping[str, Estimate]) -> str:
    """Where the numbers come from, and what the bands are."""
    levels = sorted({f"{100 * one.level:g} %" for one in named.values() if "lower" in one.table})
    bands = f" Bands: {', '.join(levels)}, pointwise." * bool(levels)
    return credits({name: one.provenance for name, one in named.items()}) + bands


def _with_risk_table(
    named: Mapping[str, Estimate], title: str, unit: str | None, up: str
) -> tuple[Picture, Axes]:
    """A figure with axes for curves, and the numbers at risk in a table below them."""
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
            table.text(tick, row, cell, ha="center", va="center_baseline", fontsize=BODY, color=INK)
    # The numbers at time 0 are centred on it: their left half is in the way of the names.
    table.tick_params(axis="y", pad=8 + max(len(cells[0]) for cells in counts) * BODY * 0.35)
    table.set_yticks(range(len(named)), [shorten_label(name) for name in named], parse_math=False)
    for place, text in enumerate(table.get_yticklabels()):
        text.set_color(ink(colour(place)))
    return figure, axes


def time_axis(axes: Axes, end: float, unit: str | None, up: str, most: int = 6) -> Array:
    """Let time go from 0 to the end; returns the ticks."""
    tidy(axes, f"Time ({unit})" if unit else "Time", up)
    ticks = np.asarray(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(0, end), dtype=np.float64)
    ticks = ticks[(ticks >= 0) & (ticks <= end * (1 + 1e-9))]
    axes.set_xlim(0, end * 1.01)
    axes.set_xticks(ticks)
    return ticks


def limit_y_axis(axes: Axes, kind: str) -> None:
    """Let probabilities go from 0 to 1, and all else from 0 to where it ends."""
    axes.set_ylim(0, 1.02 if kind in ("survival", "uncensored") else None)


def _line(axes: Axes, found: Estimate, kind: str, shade: str, width: float = 1.5) -> float:
    """Draw a curve and its band; returns its last value."""
    table = _rows_at_risk(found)
    times, values = _times(table), _values(table, kind)
    if "lower" in table:
        lower, upper, step = _values(table, "lower"), _values(table, "upper"), _step(found)
        axes.fill_between(times, lower, upper, step=step, color=shade, alpha=0.15, linewidth=0)
    axes.plot(times, values, color=shade, linewidth=width, drawstyle=_style(found))
    return float(values[-1])


def _style(found: Estimate) -> Literal["default", "steps-post"]:
    return "default" if found.spread else "steps-post"


def _step(found: Estimate) -> Literal["post"] | None:
    return None if found.spread else "post"


def _multiples(
    named: Mapping[str, Estimate], everybody: Estimate | None, title: str, unit: str | None
) -> Picture:
    """A small panel for each site, the curve of all sites in grey behind it."""
    down = -(-len(named) // ACROSS)
    behind = " Grey: all sites." if everybody is not None else ""
    figure = picture(0.4 + 1.15 * down, title, _note(named) + behind)
    panels = figure.subplots(down, ACROSS, sharex=True, sharey=True, squeeze=False)
    kind, end = next(iter(named.values())).curves[0], _end(named)
    for place, (axes, (name, one)) in enumerate(zip(panels.flat, named.items(), strict=False)):
        lowest = place + ACROSS >= len(named)
        time_axis(axes, end, unit, "", 2)
        axes.xaxis.label.set_visible(place // ACROSS == down - 1)
        axes.tick_params(labelbottom=lowest)
        if everybody is not None:
            table = _rows_at_risk(everybody)
            axes.plot(
                _times(table), _values(table, kind), color=PALE, linewidth=1.0, drawstyle=_style(everybody)
            )
        _line(axes, one, kind, colour(0), 1.2)
        count = f"{_values(one.table, 'at_risk')[0]:,.0f}"
        words = f"{shorten_label(name, 20 - len(count))} ({count})"
        axes.set_title(words, loc="left", fontsize=BODY - 1, color=INK, pad=2, parse_math=False)
        limit_y_axis(axes, kind)
    for axes in panels.flat[len(named) :]:
        axes.set_visible(False)
    figure.supylabel(NAMES.get(kind, kind), fontsize=BODY, color=INK)
    return figure


def require_few(field: str, count: int) -> None:
    """Refuse more lines than there are colours."""
    require(count <= MOST, field, f"{count} of them", f"at most {MOST}, to be told apart")


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
        high = low + _values(table, curve)
        shade, step = colour(place), _step(found)
        axes.fill_between(_times(table), low, high, step=step, color=shade, alpha=0.75, linewidth=0)
        middles.append(float(low[-1] + high[-1]) / 2)
        low = high
    axes.grid(visible=False)
    limit_y_axis(axes, "survival")
    return line_labels(middles, names)


def line_labels(heights: Sequence[float] | Array, names: Sequence[str]) -> list[Label]:
    """The name of each line in its colour."""
    pairs = enumerate(zip(heights, names, strict=True))
    return [Label(float(height), name, colour(place)) for place, (height, name) in pairs if name]
