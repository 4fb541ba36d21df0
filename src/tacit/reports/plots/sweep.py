"""A score against whatever was varied, drawn: numbers along an axis, or words one below the other."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from tacit.errors import require
from tacit.reports.plots.privacy_utility import mark
from tacit.reports.plots.style import (
    BODY,
    GREY,
    INK,
    PALETTE,
    ROW,
    SMALL,
    Label,
    Picture,
    colour,
    format_tick,
    ink,
    label_lines,
    levels,
    picture,
    save_figure,
    shorten_label,
    tidy,
)

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

# Numbers that differ by more than so many times stand on a log scale.
WIDE = 20.0
# Ticks that are nearer, as a part of the axis, would run into each other.
CLOSE = 0.07
COLUMNS = ("value", "method", "score", "low", "high")


def by_number(
    table: "pd.DataFrame",
    *,
    across: str,
    score: str,
    shown: str = "{:.3f}",
    references: Mapping[str, float] | None = None,
    beside: Mapping[str, Mapping[float, float]] | None = None,
    band: str | None = None,
    title: str,
    provenance: str = "",
    path: str | Path | None = None,
) -> Picture:
    """Draw a score against a number, with a band around each line.

    Args:
        table: One row for each mean: `value`, `score`, `low` and `high`, the ends of its interval, and
            `method`, which parts the rows into lines; empty where there is one line.
        across: What the number is.
        score: What the score is.
        shown: How its numbers are written.
        references: Scores to compare with, by name.
        beside: Scores to compare with that depend on the number, by name.
        band: What the intervals are; nothing is shaded without that.
        title: What is seen.
        provenance: Where the scores come from.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    rows = _drawable(table).sort_values("value", kind="stable")
    values = np.unique(rows["value"].to_numpy(dtype=np.float64))
    log = bool(values[0] > 0) and values[-1] / values[0] >= WIDE
    figure = picture(3.1, title, _note(provenance, f"Shaded: {band}." if band else ""))
    axes = figure.add_subplot()
    tidy(axes, f"{across} (log scale)" if log else across, score)
    others = beside or {}
    labels = [*levels(axes, references or {}, shown.format), *_lines(axes, others, shown)]
    for place, (method, own) in enumerate(rows.groupby("method", sort=False)):
        value, height = (own[name].to_numpy(dtype=np.float64) for name in ("value", "score"))
        axes.plot(value, height, color=colour(place), linewidth=1.5, marker="o", markersize=4)
        if band:
            shade(axes, value, own, colour(place))
        words = f"{method} {shown.format(height[-1])}".strip()
        labels.append(Label(float(height[-1]), words, colour(place)))
    _mark_ticks(axes, values, log=log)
    also = {
        str(place): height for place, height in enumerate(h for one in others.values() for h in one.values())
    }
    axes.set_ylim(*_heights(rows, {**(references or {}), **also}))
    label_lines({axes: labels}, gap=8.0)
    return save_figure(figure, path)


def _lines(axes: Axes, beside: Mapping[str, Mapping[float, float]], shown: str) -> list[Label]:
    """Draw a grey line for each thing to compare with."""
    found = list[Label]()
    for place, (name, points) in enumerate(beside.items()):
        values = sorted(points)
        heights = [points[value] for value in values]
        axes.plot(values, heights, color=GREY, linewidth=0.9, linestyle=("--", ":", "-.", "-")[place % 4])
        found.append(Label(heights[-1], f"{name} {shown.format(heights[-1])}"))
    return found


def _mark_ticks(axes: Axes, values: Array, *, log: bool) -> None:
    """Mark the numbers that there are, or round ones where these have no room."""
    if log:
        axes.set_xscale("log")
        mark(axes, values)
        return
    roomy = len(values) > 1 and float(np.diff(values).min()) > CLOSE * float(np.ptp(values))
    if roomy:
        axes.set_xticks(values.tolist())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(format_tick))


def by_word(
    table: "pd.DataFrame",
    *,
    across: str,
    score: str,
    shown: str = "{:.3f}",
    references: Mapping[str, float] | None = None,
    band: str | None = None,
    title: str,
    provenance: str = "",
    path: str | Path | None = None,
) -> Picture:
    """Draw a score for each word, one below the other, with a bar for its interval; arguments as above."""
    rows = _drawable(table)
    words = list(dict.fromkeys(rows["value"].astype(str)))
    methods = list(dict.fromkeys(rows["method"]))
    lines = len(words) * max(len(methods), 1)
    figure = picture(0.9 + 1.8 * ROW * lines, title, _note(provenance, f"Bars: {band}." if band else ""))
    axes = figure.add_subplot()
    tidy(axes, score, across)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x", color="#DDDDDD", linewidth=0.5)
    for place, (method, own) in enumerate(rows.groupby("method", sort=False)):
        shift = 0.6 * (place - (len(methods) - 1) / 2) / max(len(methods), 1)
        _dots(axes, own, [words.index(str(word)) + shift for word in own["value"]], colour(place), shown)
        axes.plot([], [], color=colour(place), marker="o", linestyle="none", label=shorten_label(str(method)))
    _draw_references(axes, references or {}, shown)
    axes.set_yticks(range(len(words)), [shorten_label(word) for word in words], parse_math=False)
    axes.set_ylim(len(words) - 0.4, -0.6)
    axes.set_xlim(*_heights(rows, references or {}))
    if len(methods) > 1:
        legend = figure.legend(loc="outside right upper", frameon=False, fontsize=BODY, handletextpad=0.3)
        for words_of in legend.get_texts():
            words_of.set_parse_math(False)
    return save_figure(figure, path)


def shade(axes: Axes, value: Array, rows: "pd.DataFrame", tint: str) -> None:
    """Shade what lies between the ends of intervals."""
    low, high = (rows[name].to_numpy(dtype=np.float64) for name in ("low", "high"))
    axes.fill_between(value, low, high, color=tint, alpha=0.15, linewidth=0)


def _dots(axes: Axes, rows: "pd.DataFrame", heights: list[float], tint: str, shown: str) -> None:
    """Draw a dot at each score, its interval, and its number."""
    score, low, high = (rows[name].to_numpy(dtype=np.float64) for name in ("score", "low", "high"))
    axes.hlines(heights, low, high, color=tint, linewidth=1.0)
    axes.plot(score, heights, color=tint, marker="o", markersize=4, linestyle="none")
    for number, height in zip(score.tolist(), heights, strict=True):
        axes.annotate(
            shown.format(number), (number, height), xytext=(0, 3), textcoords="offset points",
            fontsize=SMALL, color=ink(tint), ha="center", va="bottom",
        )  # fmt: skip


def _draw_references(axes: Axes, known: Mapping[str, float], shown: str) -> None:
    """Draw a line for each number to compare with, and name it above."""
    for place, (name, value) in enumerate(known.items()):
        axes.axvline(value, color=GREY, linewidth=0.9, linestyle=("--", ":", "-.", "-")[place % 4])
        axes.annotate(
            f"{name} {shown.format(value)}", (value, 1), xycoords=axes.get_xaxis_transform(),
            xytext=(0, 2 + 9 * (place % 2)), textcoords="offset points", fontsize=SMALL, color=INK,
            ha="center", va="bottom", annotation_clip=False,
        )  # fmt: skip


def _drawable(table: "pd.DataFrame") -> "pd.DataFrame":
    """The rows, once they are found to be drawable."""
    missing = [name for name in COLUMNS if name not in table]
    require(not missing, "table", f"one without {', '.join(missing)}", f"one with {', '.join(COLUMNS)}")
    require(len(table) > 0, "table", "no row", "at least one row")
    numbers = table[["score", "low", "high"]].to_numpy(dtype=np.float64)
    require(bool(np.isfinite(numbers).all()), "table", "a score that is no number", "finite")
    most, methods = len(PALETTE), table["method"].nunique()
    require(methods <= most, "method", f"{methods} of them", f"at most {most}, to be told apart")
    return table


def _note(provenance: str, band: str) -> str:
    return " ".join(part for part in (f"{provenance}." * bool(provenance), band) if part)


def _heights(rows: "pd.DataFrame", references: Mapping[str, float]) -> tuple[float, float]:
    """From where to where the axis of the score goes."""
    drawn = rows[["score", "low", "high"]].to_numpy(dtype=np.float64).ravel()
    every = np.append(drawn, list(references.values()))
    edge = 0.06 * max(float(np.ptp(every)), 0.01)
    return float(every.min()) - edge, float(every.max()) + edge
