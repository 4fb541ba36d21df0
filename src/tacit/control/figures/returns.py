"""Experiments with policies, drawn: what regimes come to in each world, and what a return costs."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from tacit.control.figures.tables import (
    TARGET,
    UNSEEN,
    footnote,
    format_return,
    in_order,
    leaders,
    panels,
    read,
    require_few,
    world_title,
)
from tacit.errors import require
from tacit.reports.plots import training as reports
from tacit.reports.plots.style import (
    GREY,
    INK,
    RULE,
    SMALL,
    Picture,
    colour,
    ink,
    picture,
    save_figure,
    shorten_label,
)

if TYPE_CHECKING:
    import pandas as pd

ACROSS = 4
# A regime in inches: its dot, and a number above it.
HIGH = 0.26
UNTRAINED = "untrained"


def scenarios(
    table: "pd.DataFrame | Mapping[str, object]",
    *,
    target: float | None = TARGET,
    unseen: Collection[str] = UNSEEN,
    lowest: float | None = None,
    title: str | None = None,
    provenance: str = "",
    path: str | Path | None = None,
) -> Picture:
    """Draw what each regime returns in each world: dots with intervals, a panel for each world.

    Args:
        table: One row for each regime and world: `regime`, `world`, `mean`, and `low` and `high`, the ends of
            its 95 % interval.
        target: The return from which on a world counts as solved; None draws no line.
        unseen: Worlds that nobody has trained in; they come last.
        lowest: Where the axis ends; dots that are lower become arrows at its end.
        title: What is seen; if not said, the best regime of each world.
        provenance: Where the returns come from.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    numbers = ("mean", "low", "high")
    rows = read(table, ("regime", "world", *numbers), numbers)
    rows = rows.assign(regime=rows["regime"].astype(str), world=rows["world"].astype(str))
    twice = bool(rows.duplicated(["regime", "world"]).any())
    require(not twice, "table", "a regime twice in one world", "one row for each regime and world")
    worlds, regimes = in_order(rows["world"], unseen), require_few("regime", in_order(rows["regime"]))
    line = "" if target is None else f"Thin line: solved, from {format_return(target)} on"
    note = footnote(provenance, "Dots: mean returns, bold the highest. Bars: 95 % intervals", line)
    down, across = -(-len(worlds) // ACROSS), min(ACROSS, len(worlds))
    figure = picture(down * (0.35 + HIGH * len(regimes)) + 0.3, title or _leaders(rows, worlds), note)
    found = panels(figure, len(worlds), across)
    for world, panel in zip(worlds, found, strict=True):
        panel.frame(world_title(world, unseen), "Return", "")
        _name_rows(panel.axes, regimes)
        _dots(panel.axes, rows[rows["world"] == world].set_index("regime"), regimes, lowest)
        if target is not None:
            panel.axes.axvline(target, color=GREY, linewidth=0.6, zorder=1)
    _limit(found[0].axes, rows, target, lowest, marks=8 // across)
    return save_figure(figure, path)


def privacy_return(
    table: "pd.DataFrame | Mapping[str, object]",
    references: Mapping[str, float] | None = None,
    *,
    title: str | None = None,
    provenance: str = "",
    path: str | Path | None = None,
) -> Picture:
    """Draw the return against the epsilon that it costs; points that have learnt nothing are hollow.

    Args:
        table: One row for each run or mean of runs: `epsilon`, what it truly costs, `return`, and where they
            are known `low` and `high`, the ends of an interval, `regime`, which parts the rows into lines,
            and `claimed`, the epsilon that was said to be its cost where that is not the same.
        references: Returns that cost no epsilon, by name: `open`, `alone`; a return that is not above
            `untrained`, as far as its interval tells, has learnt nothing.
        title: What is seen; if not said, the smallest epsilon that learns.
        provenance: Where the returns come from.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    rows = read(table, ("epsilon", "return"), ("epsilon", "return"))
    rows = rows.rename(columns={"return": "score", "regime": "method"})
    known = dict(references or {})
    floor = known.get(UNTRAINED)
    return reports.privacy_utility(
        rows, references=known, score="Return", shown="{:.0f}", floor=floor,
        title=title or (None if floor is None else _cheapest(rows, floor, known.get("open"))),
        provenance=provenance, path=path,
    )  # fmt: skip


def _cheapest(rows: "pd.DataFrame", floor: float, without: float | None) -> str:
    """The smallest epsilon at which something is learnt."""
    learnt = rows[rows["low" if "low" in rows else "score"] > floor]
    if learnt.empty:
        return f"Nothing is learnt at any epsilon up to {rows['epsilon'].max():g}"
    first = learnt.sort_values(["epsilon", "score"], ascending=[True, False]).iloc[0]
    told = f"Return {format_return(float(first['score']))} at epsilon {float(first['epsilon']):g}"
    less = " (the smallest that learns)" * bool((rows["epsilon"] < first["epsilon"]).any())
    return told + less + (f", {format_return(without)} without privacy" if without is not None else "")


def _leaders(rows: "pd.DataFrame", worlds: Sequence[str]) -> str:
    """Which regime has the highest mean in each world."""
    order = (
        rows.sort_values("mean", ascending=False, kind="stable").drop_duplicates("world").set_index("world")
    )
    means, regimes = order["mean"].to_dict(), order["regime"].to_dict()
    told = leaders({world: (str(regimes[world]), float(means[world])) for world in worlds})
    return f"Highest return: {told}"


def _name_rows(axes: Axes, regimes: Sequence[str]) -> None:
    """Give each regime a row, the first one on top, and its name in its colour."""
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_yticks(range(len(regimes)), [shorten_label(name) for name in regimes], parse_math=False)
    for place, tick in enumerate(axes.yaxis.get_major_ticks()):
        tick.label1.set_color(ink(colour(place)))
    axes.set_ylim(len(regimes) - 0.6, -0.6)


def _dots(axes: Axes, rows: "pd.DataFrame", regimes: Sequence[str], lowest: float | None) -> None:
    """Draw a dot, its interval and its number for each regime that the world has."""
    best = float(rows["mean"].max())
    edge = -np.inf if lowest is None else lowest
    for place, regime in enumerate(regimes):
        axes.axhline(place, color=RULE, linewidth=0.5, zorder=0)
        if regime not in rows.index:
            continue
        mean, low, high = (float(rows.loc[regime, name]) for name in ("mean", "low", "high"))  # pyright: ignore
        axes.hlines(place, max(low, edge), max(high, edge), color=colour(place), linewidth=1.4)
        spot, marker = max(mean, edge), "o" if mean >= edge else "<"
        axes.plot([spot], [place], color=colour(place), marker=marker, markersize=4.5, clip_on=False)
        axes.annotate(
            format_return(mean), (spot, place), xytext=(0, 3), textcoords="offset points",
            ha="center", va="bottom",
            fontsize=SMALL, color=INK, fontweight="bold" if mean == best else "normal", annotation_clip=False,
            path_effects=[withStroke(linewidth=2, foreground="white")],
        )  # fmt: skip


def _limit(axes: Axes, rows: "pd.DataFrame", target: float | None, lowest: float | None, marks: int) -> None:
    """Let the shared axis hold every interval, the solved line, and numbers at its ends."""
    ends = [float(rows["low"].min()), float(rows["high"].max()), *([] if target is None else [target])]
    low, high = min(ends) if lowest is None else lowest, max(ends)
    require(low < high or lowest is None, "lowest", lowest, f"below the highest return, {high:g}")
    room = 0.08 * max(high - low, 1.0)
    axes.set_xlim(low - room, high + room)
    axes.xaxis.set_major_locator(MaxNLocator(marks, steps=[1, 2, 4, 5, 10]))
