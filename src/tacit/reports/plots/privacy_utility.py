"""Figures of scores against epsilon, another number, or words, and of several runs.

Rows of a table are runs or means of runs, of whatever workload.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from tacit.errors import require
from tacit.reports.plots import (
    column,
    dots,
    footnote,
    in_order,
    line,
    mark_values,
    name_rows,
    reach,
    read_table,
    require_few,
    score_lines,
    write,
    write_apart,
)
from tacit.reports.plots.style import (
    BODY,
    GREY,
    GREY_DASHES,
    GROUND,
    ROW,
    RULE,
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
from tacit.reports.plots.training import format_score, score_label, shorten_names
from tacit.runtime.arrays import Array

if TYPE_CHECKING:
    import pandas as pd

COST = "Epsilon: the privacy price of a score (log scale)"
# Ratio of the largest to the smallest number from which on the scale is logarithmic.
WIDE = 20.0
# Epsilons that differ by a smaller share read alike, and are one place on an axis.
ALIKE = 2e-3
TABLE = ("value", "method", "score", "low", "high")


def privacy_utility(
    table: "pd.DataFrame",
    *,
    references: Mapping[str, float] | None = None,
    score: str = "C-index",
    shown: str = "{:.3f}",
    floor: float | None = None,
    band: str | None = None,
    title: str | None = None,
    provenance: str = "",
    path: str | Path | None = None,
) -> Picture:
    """Draw a score against the epsilon that it costs.

    Args:
        table: One row for each run or mean of runs: `epsilon`, `score`, and where they are known `low` and
            `high`, the ends of an interval, `method`, which parts the rows into lines, and `claimed`, the
            published epsilon: a cross where that differs, tied to the true one.
        references: Scores that cost no epsilon, by name: `open`, `alone`.
        score: Name of the score.
        shown: Format of its numbers.
        floor: Score of a model that has learned nothing, where high is good: points that are not above it,
            within their intervals, are hollow.
        band: Description of the intervals: they are shaded then; by default bars.
        title: The title; by default the best score at the smallest and at the largest epsilon.
        provenance: Source of the scores.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    rows = _sort_by_epsilon(table)
    require_few("method", in_order(rows["method"]))
    wrong = _wrong_claims(rows)
    note = footnote(
        provenance,
        (f"Shaded: {band}" if band else "Bars: intervals of the scores") * ("low" in rows),
        "" if floor is None else f"Hollow: nothing learned, not above {shown.format(floor)}",
        "Crosses: claimed epsilon of the point at the same height" * (len(wrong) > 0),
    )
    figure = picture(3.1, title or best_at_ends(rows, score, shown), note)
    axes = figure.add_subplot()
    tidy(axes, COST, score)
    axes.set_xscale("log")
    labels = levels(axes, references or {}, shown.format)
    labels += score_lines(axes, rows, "epsilon", shown, shaded=bool(band), floor=floor)
    for place, method in enumerate(in_order(rows["method"])):
        _claims(axes, wrong[wrong["method"] == method], colour(place))
    mark_values(axes, np.unique(column(rows, "epsilon")), rows.get("claimed", ()), log=True)
    axes.set_ylim(*reach(*_extents(rows), list((references or {}).values())))
    label_lines({axes: labels}, gap=8.0)
    return save_figure(figure, path)


def _extents(rows: "pd.DataFrame") -> list[ArrayLike]:
    """Return all numbers of a score that are drawn."""
    return [column(rows, name) for name in ("score", "low", "high") if name in rows]


def merge_close(epsilons: ArrayLike) -> Array:
    """Replace epsilons that read alike by the smallest of them: solved budgets differ in the sixth digit."""
    found = np.asarray(epsilons, dtype=np.float64).copy()
    for place in np.argsort(found, kind="stable"):
        alike = (found >= found[place]) & (found <= found[place] * (1 + ALIKE))
        found[alike] = found[place]
    return found


def _sort_by_epsilon(table: "pd.DataFrame") -> "pd.DataFrame":
    """Order drawable rows by epsilon."""
    numbers = ("epsilon", "score", "low", "high")
    rows = read_table(table, numbers[:2], numbers, "finite; a score without epsilon belongs to references")
    require(("low" in rows) == ("high" in rows), "table", "one of low and high", "with both or neither")
    require(bool((rows["epsilon"] > 0).all()), "epsilon", rows["epsilon"].tolist(), "above 0")
    if "claimed" in rows:
        claimed = column(rows, "claimed")
        fits = np.isnan(claimed) | ((claimed > 0) & np.isfinite(claimed))
        require(
            bool(fits.all()), "claimed", claimed.tolist(), "above 0, or missing where nothing was claimed"
        )
    return rows.assign(epsilon=merge_close(rows["epsilon"])).sort_values("epsilon", kind="stable")


def best_at_ends(rows: "pd.DataFrame", score: str, shown: str = "{:.3f}", *, lower: bool = False) -> str:
    """Return a title with the best score at the smallest and at the largest epsilon."""
    groups = rows.groupby("epsilon")["score"]
    best = groups.min() if lower else groups.max()
    ends = [f"{shown.format(best.iloc[place])} at epsilon {best.index[place]:g}" for place in (0, -1)]
    return f"{score}: {', '.join(dict.fromkeys(ends))}"


def _wrong_claims(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Select the rows of which another epsilon was claimed than they cost."""
    if "claimed" not in rows:
        return rows.iloc[:0]
    claimed = column(rows, "claimed")
    return rows[~np.isnan(claimed) & ~np.isclose(claimed, column(rows, "epsilon"))]


def _claims(axes: Axes, rows: "pd.DataFrame", shade: str) -> None:
    """Tie points to the epsilons that were claimed for them, and write these down."""
    if rows.empty:
        return
    claimed, epsilon, score = (column(rows, name) for name in ("claimed", "epsilon", "score"))
    axes.hlines(score, claimed, epsilon, color=shade, linewidth=0.6, linestyle=":", zorder=1)
    line(axes, claimed, score, shade, marker="x", linestyle="none")
    for place, one in enumerate(claimed.tolist()):
        at, look = (one, score[place]), dict[str, Any](color=ink(shade), fontsize=SMALL)
        if place == int(claimed.argmin()):
            # The lowest has room to its left.
            write(axes, f"claimed {format_tick(one)}", at, (-5, 0), ha="right", **look)
        else:
            write(axes, format_tick(one), at, (0, 3), va="bottom", **look)


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
        across: Name of the number.
        score: Name of the score.
        shown: Format of its numbers.
        references: Scores to compare with, by name.
        beside: Scores to compare with that depend on the number, by name.
        band: Description of the intervals; nothing is shaded without it.
        title: The title.
        provenance: Source of the scores.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    rows = _read_means(table).sort_values("value", kind="stable")
    values = np.unique(column(rows, "value"))
    log = bool(values[0] > 0) and values[-1] / values[0] >= WIDE
    figure = picture(3.1, title, footnote(provenance, f"Shaded: {band}" if band else ""))
    axes = figure.add_subplot()
    tidy(axes, f"{across} (log scale)" if log else across, score)
    labels, drawn = levels(axes, references or {}, shown.format), _extents(rows)
    for place, (name, points) in enumerate((beside or {}).items()):
        at = sorted(points)
        heights = [points[value] for value in at]
        words, dashes = f"{name} {shown.format(heights[-1])}", GREY_DASHES[place % 4]
        labels.append(line(axes, at, heights, GREY, words, linewidth=0.9, linestyle=dashes, marker=""))
        drawn.append(heights)
    labels += score_lines(
        axes, rows if band else rows[["value", "score", "method"]], "value", shown, shaded=True
    )
    mark_values(axes, values, log=log)
    axes.set_ylim(*reach(*drawn, list((references or {}).values())))
    label_lines({axes: labels}, gap=8.0)
    return save_figure(figure, path)


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
    rows = _read_means(table)
    words, methods = in_order(rows["value"]), in_order(rows["method"])
    height = 0.9 + 1.8 * ROW * len(words) * len(methods)
    figure = picture(height, title, footnote(provenance, f"Bars: {band}" if band else ""))
    axes = figure.add_subplot()
    tidy(axes, score, across)
    name_rows(axes, [shorten_label(word) for word in words])
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x", color=RULE, linewidth=0.5)
    for place, (method, own) in enumerate(rows.groupby("method", sort=False)):
        shift = 0.6 * (place - (len(methods) - 1) / 2) / len(methods)
        heights = [words.index(str(word)) + shift for word in own["value"]]
        scores, ends = column(own, "score"), (own["low"], own["high"])
        told = [shown.format(number) for number in scores]
        dots(axes, scores, heights, colour(place), ends=ends, words=told, label=shorten_label(str(method)))
    for place, (name, value) in enumerate((references or {}).items()):
        axes.axvline(value, color=GREY, linewidth=0.9, linestyle=GREY_DASHES[place % 4])
        above = (0, 2 + 9 * (place % 2))
        write(axes, f"{name} {shown.format(value)}", (value, 1), above, "column", va="bottom", fontsize=SMALL)
    axes.set_xlim(*reach(*_extents(rows), list((references or {}).values())))
    if len(methods) > 1:
        legend = figure.legend(loc="outside right upper", frameon=False, fontsize=BODY, handletextpad=0.3)
        for text in legend.get_texts():
            text.set_parse_math(False)
    return save_figure(figure, path)


def _read_means(table: "pd.DataFrame") -> "pd.DataFrame":
    rows = read_table(table, TABLE, TABLE[2:])
    require_few("method", in_order(rows["method"]))
    return rows


def frontier(rows: Sequence[Mapping[str, Any]], score: str) -> Picture | None:
    """Draw a score of several runs against the epsilon that each has cost.

    Args:
        rows: One for each run: its `name`, its `epsilon`, None where there is none, its `score`, and where
            they are known `low` and `high`, the ends of an interval. Runs without a score are left out.
        score: Name of the score.

    Returns:
        None if fewer than two runs have both.
    """
    names = shorten_names([str(row.get("name", "")) for row in rows])
    points = [
        (math.inf if row.get("epsilon") is None else float(row["epsilon"]), name, row)
        for name, row in zip(names, rows, strict=True)
        if _finite(row.get("score"))
    ]
    priced = sorted((one for one in points if 0 < one[0] < math.inf), key=lambda one: one[0])
    alike = merge_close([epsilon for epsilon, *_ in priced]).tolist()
    priced = [(epsilon, *one[1:]) for epsilon, one in zip(alike, priced, strict=True)]
    free = {name: float(row["score"]) for epsilon, name, row in points if epsilon == math.inf}
    if len(priced) < 2:
        return None
    barred = [all(_finite(row.get(end)) for end in ("low", "high")) for _, _, row in priced]
    note = footnote(
        "Bars: intervals of the scores" * any(barred), "Lines across: runs without an epsilon" * bool(free)
    )
    spots = [
        Label(float(row["score"]), f"{name} {format_score(row['score'])}", colour(place))
        for place, (_, name, row) in enumerate(priced)
    ]
    figure = picture(
        3.2, _frontier_title([(epsilon, row["score"]) for epsilon, _, row in priced], score), note
    )
    axes = figure.add_subplot()
    tidy(axes, COST, score_label(score))
    axes.set_xscale("log")
    labels, ends = levels(axes, free, format_score), [spot.height for spot in spots] + list(free.values())
    for (epsilon, _, row), spot, bar in zip(priced, spots, barred, strict=True):
        if bar:
            axes.vlines(epsilon, row["low"], row["high"], color=spot.colour, linewidth=1.2)
            ends += [row["low"], row["high"]]
        # Above all words: those of others may overlap it.
        line(axes, [epsilon], [spot.height], spot.colour, markersize=5, zorder=4)
    mark_values(axes, np.unique([epsilon for epsilon, *_ in priced]), log=True)
    axes.set_ylim(*reach(ends, share=0.1, least=max(0.01 * abs(max(ends)), 1e-6)))
    label_lines({axes: labels}, gap=8.0)
    write_apart(axes, spots, [epsilon for epsilon, *_ in priced], bbox=GROUND)
    return figure


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _frontier_title(points: Sequence[tuple[float, float]], score: str) -> str:
    """Return a title with the scores of the cheapest and the most expensive run."""
    (first, _), (last, _) = points[0], points[-1]
    if first == last:
        ends = " to ".join(format_score(end(value for _, value in points)) for end in (min, max))
        return f"{score_label(score)} from {ends} at epsilon {first:.3g}"
    ends = [f"{format_score(value)} at epsilon {epsilon:.3g}" for epsilon, value in (points[0], points[-1])]
    return f"{score_label(score)}: {', '.join(ends)}"
