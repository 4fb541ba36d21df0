"""The figures of a paper on acting in several worlds, each from plain arrays and tables.

    learning       learning_curves, side_by_side, overlay
    experiments    scenarios, privacy_return
    rounds         memberships, drift
    weights        weight_map

Each gives a matplotlib figure, and keeps it in a file if a `path` is named. A regime is a way to train, such
as `federated` or `alone`; regimes and worlds come in the order of the table, so a regime has one color in
all figures of tables of one order. What a figure shows has left the sites already.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike
from scipy.stats import t as student

from tacit.control.figures.maps import drift, memberships, short_steps, weight_map
from tacit.errors import require, require_count, require_word
from tacit.reports.plots import (
    ROUND,
    band,
    dots,
    footnote,
    in_order,
    line,
    name_rows,
    panels,
    reach,
    read_table,
    require_few,
    tint_rows,
    write,
)
from tacit.reports.plots import privacy_utility as scores
from tacit.reports.plots.style import (
    GREY,
    SMALL,
    Label,
    Picture,
    colour,
    label_lines,
    picture,
    save_figure,
    shorten_label,
    tidy,
)
from tacit.runtime.arrays import Array

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "drift",
    "learning_curves",
    "memberships",
    "overlay",
    "privacy_return",
    "scenarios",
    "side_by_side",
    "weight_map",
]

By = Literal["world", "regime"]
Band = Literal["range", "interval"]

STEPS = "Environment steps per site"
PANEL = 1.5
# Letters of a name that fit beside two panels; more rows than the second number fill a page.
SHORT, DOWN = 12, 6
# More points than these cannot be seen in a line.
POINTS = 400
LEVEL = 0.95
# Worlds side by side; a regime in inches: its dot, and a number above it.
ACROSS, HIGH = 4, 0.26
UNTRAINED = "untrained"
# From which return on a lander has solved its world (Gymnasium).
TARGET = 200.0
# Names of a world that no site trains in, without a name of its own.
UNSEEN = ("unseen",)
# Number of worlds that a title names; of more it gives the number.
NAMED = 4


# Returns in words


def world_title(world: str, unseen: Collection[str]) -> str:
    """Return the title of a world, and mark it if no site trains in it."""
    return f"{world} (unseen)" if world in unseen and world not in UNSEEN else world


def format_return(value: float) -> str:
    """Format a return without digits that are within chance."""
    # Adding 0 turns minus zero into zero.
    return f"{round(value) + 0:d}" if abs(value) >= 10 else f"{round(value, 1) + 0:g}"


def leaders(best: Mapping[str, tuple[str, float]]) -> str:
    """Name the best regime of each world, or count its worlds, in words.

    Args:
        best: The best regime and its return, by world.
    """
    if len(best) > NAMED:
        (first, most), *others = Counter(regime for regime, _ in best.values()).most_common()
        told = [f"{first} in {most} of {len(best)} worlds", *(f"{name} in {count}" for name, count in others)]
        return "; ".join(told)
    told = {
        regime: ", ".join(
            f"{world} ({format_return(value)})" for world, (name, value) in best.items() if name == regime
        )
        for regime in dict.fromkeys(name for name, _ in best.values())
    }
    return "; ".join(f"{regime} in {worlds}" for regime, worlds in told.items())


def draw_target(axes: Axes, target: float, *, told: bool) -> None:
    """Draw a thin line where a world counts as solved, with a label on request."""
    axes.axhline(target, color=GREY, linewidth=0.6, zorder=1)
    if told:
        words = f"solved: {format_return(target)}"
        write(axes, words, (0, target), (3, -2), "row", fontsize=SMALL, color=GREY, ha="left", va="top")


# Learning


@dataclass(frozen=True, eq=False)
class ReturnCurve:
    """Returns along training: their mean and the ends of their band (places,).

    Args:
        at: After how many steps, or in which rounds.
        mean: The mean.
        low: The lower ends.
        high: The upper ends.
    """

    at: Array
    mean: Array
    low: Array
    high: Array

    @property
    def last(self) -> float:
        """Last mean return."""
        return float(self.mean[-1])

    def __str__(self) -> str:
        return f"from {format_return(float(self.mean[0]))} to {format_return(self.last)}"


def learning_curves(
    table: "pd.DataFrame | Mapping[str, object]",
    *,
    by: By = "world",
    target: float | None = TARGET,
    unseen: Collection[str] = UNSEEN,
    band: Band = "range",
    window: int = 1,
    lowest: float | None = None,
    title: str | None = None,
    provenance: str = "",
    path: str | Path | None = None,
) -> Picture:
    """Draw returns against environment steps: a panel for each world, and in it a line for each regime.

    Args:
        table: One row for each return: `regime`, `world`, `seed`, `steps` of one site until then, `return`,
            and `site` where sites are looked at after different steps. Sites are averaged within a seed, so
            that bands are over seeds; curves of one line are compared at steps where all of them are known.
        by: The unit of a panel: a world, or a regime, with a line for each world.
        target: The return from which on a world counts as solved; None draws no line.
        unseen: Worlds that no site has trained in; they come last.
        band: From the lowest to the highest seed, or the 95 % interval of the mean (Student's t).
        window: Number of returns of a curve, up to and with its own, that a point averages: 1 for scores,
            about 100 for single episodes.
        lowest: End of the axis; lower returns are cut off.
        title: The title; by default the last returns.
        provenance: Source of the returns.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require_word("by", by, ("world", "regime"))
    rows = _returns(table, band, window)
    worlds, regimes = in_order(rows["world"], unseen), in_order(rows["regime"])
    names, lines = (
        (worlds, require_few("regime", regimes)) if by == "world" else (regimes, require_few("world", worlds))
    )
    within = "regime" if by == "world" else "world"
    curves = {name: _curves(rows[rows[by] == name], within, lines, band, window) for name in names}
    words = {name: world_title(name, unseen) if name in worlds else name for name in [*names, *lines]}
    title = title or (_highest(curves, words) if by == "world" else _steadiest(curves, words))
    longest = max(len(words[name]) for name in lines)
    across = 1 if len(names) == 1 or (longest > SHORT and len(names) <= DOWN) else 2
    down = -(-len(names) // across)
    note = _note(rows, provenance, band, window, lowest)
    figure = picture(0.4 + PANEL * down + 0.9 * (down == 1), title, note)
    labels: dict[Axes, list[Label]] = {}
    for name, panel in zip(names, panels(figure, len(names), across), strict=True):
        panel.frame(words[name], STEPS, "Return")
        labels[panel.axes] = draw_curves(
            panel.axes, curves[name], {line: words[line] for line in lines}, lowest
        )
    _limit(list(labels), [curve for found in curves.values() for curve in found.values()], target, lowest)
    label_lines(labels)
    return save_figure(figure, path)


def side_by_side(
    table: "pd.DataFrame | Mapping[str, object]",
    *,
    target: float | None = TARGET,
    unseen: Collection[str] = UNSEEN,
    band: Band = "range",
    window: int = 1,
    lowest: float | None = None,
    title: str | None = None,
    provenance: str = "",
    path: str | Path | None = None,
) -> Picture:
    """Draw a panel for each regime, and in it a line for each world; arguments as of `learning_curves`."""
    return learning_curves(
        table, by="regime", target=target, unseen=unseen, band=band, window=window, lowest=lowest,
        title=title, provenance=provenance, path=path,
    )  # fmt: skip


def overlay(
    table: "pd.DataFrame | Mapping[str, object]",
    *,
    target: float | None = TARGET,
    unseen: Collection[str] = UNSEEN,
    band: Band = "range",
    window: int = 1,
    lowest: float | None = None,
    title: str | None = None,
    provenance: str = "",
    path: str | Path | None = None,
) -> Picture:
    """Draw all regimes in one panel, each as the mean over the worlds that sites train in.

    A world counts once, however many sites it has. Arguments as of `learning_curves`.
    """
    rows = _returns(table, band, window)
    rows = rows[~rows["world"].isin(list(unseen))]
    require(len(rows) > 0, "unseen", list(unseen), "not all worlds")
    worlds, regimes = in_order(rows["world"]), require_few("regime", in_order(rows["regime"]))
    for regime, own in rows.groupby("regime", sort=False):
        known, allowed = in_order(own["world"]), f"the same as of all others: {', '.join(worlds)}"
        require(set(known) == set(worlds), f"the worlds of {regime}", known, allowed)
    curves = _curves(rows, "regime", regimes, band, window)
    note = f"{_note(rows, provenance, band, window, lowest)} Lines: means over {', '.join(worlds)}."
    figure = picture(3.0, title or _final_title(curves), note)
    axes = figure.add_subplot()
    tidy(axes, STEPS, "Return")
    labels = draw_curves(axes, curves, {name: name for name in regimes}, lowest)
    _limit([axes], list(curves.values()), target, lowest)
    label_lines({axes: labels})
    return save_figure(figure, path)


def _returns(table: "pd.DataFrame | Mapping[str, object]", band: str, window: int) -> "pd.DataFrame":
    """The rows, once each is found to be a return after some steps."""
    require_word("band", band, ("range", "interval"))
    require_count("window", window)
    rows = read_table(table, ("regime", "world", "seed", "steps", "return"), ("steps", "return"))
    require(bool((rows["steps"] >= 0).all()), "steps", float(rows["steps"].min()), "at least 0")
    return rows.assign(regime=rows["regime"].astype(str), world=rows["world"].astype(str))


def _curves(
    rows: "pd.DataFrame", by: str, names: Sequence[str], band: Band, window: int
) -> dict[str, ReturnCurve]:
    """A curve for each name that the rows have."""
    groups = {name: rows[rows[by] == name] for name in names}
    return {name: _curve(own, name, band, window) for name, own in groups.items() if len(own)}


def _curve(rows: "pd.DataFrame", name: str, band: Band, window: int) -> ReturnCurve:
    """Average over sites, then over worlds, then over seeds, at steps where every curve is known."""
    import pandas as pd

    levels = ["seed", "world"] + ["site"] * ("site" in rows)
    found = rows.groupby([*levels, "steps"])["return"].mean().reset_index("steps")
    groups = list(found.groupby(level=levels))
    curves = [own[["steps", "return"]].to_numpy(dtype=np.float64).T for _, own in groups]
    low, high = max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves)
    require(low <= high, f"steps of {name}", f"of {len(curves)} curves", "some that are within all curves")
    grid: Array = np.unique(np.concatenate([steps for steps, _ in curves]))
    grid = grid[(grid >= low) & (grid <= high)]
    if len(grid) > POINTS:
        grid = np.linspace(float(low), float(high), POINTS)
    heights = np.array([np.interp(grid, steps, _running(returns, window)) for steps, returns in curves])
    index = pd.MultiIndex.from_tuples([key for key, _ in groups], names=levels)
    worlds = pd.DataFrame(heights, index=index).groupby(level=["seed", "world"]).mean()
    seeds = worlds.groupby(level="seed").mean().to_numpy(dtype=np.float64)
    return ReturnCurve(grid, seeds.mean(axis=0), *_ends(seeds, band))


def _running(values: Array, window: int) -> Array:
    """Return moving averages of `window` values; of fewer at the start."""
    sums = np.cumsum(np.append(0.0, values))
    last = np.arange(1, len(values) + 1)
    first = np.maximum(last - window, 0)
    return (sums[last] - sums[first]) / (last - first)


def _ends(seeds: Array, band: Band) -> tuple[Array, Array]:
    """The ends of a band over seeds (seeds, steps); one seed alone has none."""
    if band == "range" or len(seeds) == 1:
        return seeds.min(axis=0), seeds.max(axis=0)
    half = float(student.ppf(0.5 + LEVEL / 2, len(seeds) - 1)) * seeds.std(axis=0, ddof=1)
    mean, half = seeds.mean(axis=0), half / np.sqrt(len(seeds))
    return mean - half, mean + half


def draw_curves(
    axes: Axes, curves: Mapping[str, ReturnCurve], words: Mapping[str, str], lowest: float | None = None
) -> list[Label]:
    """Draw each curve, with its band, in the color of its place among all names."""
    labels: list[Label] = []
    for place, name in enumerate(words):
        if name in curves:
            curve, shade = curves[name], colour(place)
            if (curve.high > curve.low).any():
                band(axes, curve.at, curve.low, curve.high, shade)
            line(axes, curve.at, curve.mean, shade)
            height = curve.last if lowest is None else max(curve.last, lowest)
            labels.append(Label(height, f"{words[name]} {format_return(curve.last)}", shade))
    return labels


def _limit(
    panels: Sequence[Axes], curves: Sequence[ReturnCurve], target: float | None, lowest: float | None
) -> None:
    """Give all panels the same axes, and a thin line where a world counts as solved."""
    ends = [[curve.low.min(), curve.high.max()] for curve in curves]
    low, high = _range(ends, target, lowest)
    last = max(float(curve.at[-1]) for curve in curves)
    edge = 0.05 * max(high - low, 1.0)
    for place, axes in enumerate(panels):
        axes.set_ylim(low - edge * (lowest is None), high + edge)
        axes.set_xlim(0, 1.01 * max(last, 1.0))
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
        axes.xaxis.set_major_formatter(FuncFormatter(short_steps))
        if target is not None:
            draw_target(axes, target, told=place == 0)


def _range(ends: ArrayLike, target: float | None, lowest: float | None) -> tuple[float, float]:
    """Return the range of an axis of returns."""
    low, high = float(np.min(ends)), float(np.max(ends))
    low, high = (low, high) if target is None else (min(low, target), max(high, target))
    require(lowest is None or lowest < high, "lowest", lowest, f"below the highest return, {high:g}")
    return low if lowest is None else lowest, high


def _note(rows: "pd.DataFrame", provenance: str, band: Band, window: int, lowest: float | None) -> str:
    """Return a note on the source of returns, bands and points."""
    seeds = rows["seed"].nunique()
    ends = "the lowest to the highest of" if band == "range" else "95 % intervals of means over"
    return footnote(
        provenance,
        f"Bands: {ends} {seeds} seeds" if seeds > 1 else "One seed",
        f"Points: means of {window} returns" if window > 1 else "",
        "" if lowest is None else f"Returns below {lowest:g} are cut off",
    )


def _highest(curves: Mapping[str, Mapping[str, ReturnCurve]], words: Mapping[str, str]) -> str:
    """Return a title with the regime that ends highest in each world."""
    best = {world: max(found, key=lambda name: found[name].last) for world, found in curves.items()}
    told = leaders({words[world]: (name, curves[world][name].last) for world, name in best.items()})
    return f"Highest at the end: {told}"


def _steadiest(curves: Mapping[str, Mapping[str, ReturnCurve]], words: Mapping[str, str]) -> str:
    """Return a title with the regime that ends highest in its worst world."""
    worst = {regime: min(found, key=lambda name: found[name].last) for regime, found in curves.items()}
    best = max(worst, key=lambda regime: curves[regime][worst[regime]].last)
    ends = format_return(curves[best][worst[best]].last)
    return f"Highest in its worst world: {best} ({ends} in {words[worst[best]]})"


def _final_title(curves: Mapping[str, ReturnCurve]) -> str:
    """Return a title with the last return of each regime, the best first, and the number of steps."""
    order = sorted(curves, key=lambda name: -curves[name].last)
    told = ", ".join(f"{name} ({format_return(curves[name].last)})" for name in order)
    steps = sorted({short_steps(float(curve.at[-1])) for curve in curves.values()})
    return f"After {steps[0]} steps per site: {told}" if len(steps) == 1 else f"At the end: {told}"


# Experiments


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
    """Draw the return of each regime in each world: dots with intervals, a panel for each world.

    Args:
        table: One row for each regime and world: `regime`, `world`, `mean`, and `low` and `high`, the ends of
            its 95 % interval.
        target: The return from which on a world counts as solved; None draws no line.
        unseen: Worlds that no site has trained in; they come last.
        lowest: End of the axis; dots that are lower become arrows at its end.
        title: The title; by default the best regime of each world.
        provenance: Source of the returns.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    numbers = ("mean", "low", "high")
    rows = read_table(table, ("regime", "world", *numbers), numbers)
    rows = rows.assign(regime=rows["regime"].astype(str), world=rows["world"].astype(str))
    twice = bool(rows.duplicated(["regime", "world"]).any())
    require(not twice, "table", "a regime twice in one world", "one row for each regime and world")
    worlds, regimes = in_order(rows["world"], unseen), require_few("regime", in_order(rows["regime"]))
    line = "" if target is None else f"Thin line: solved, from {format_return(target)} on"
    note = footnote(provenance, "Dots: mean returns, bold the highest. Bars: 95 % intervals", line)
    down, across = -(-len(worlds) // ACROSS), min(ACROSS, len(worlds))
    figure = picture(down * (0.35 + HIGH * len(regimes)) + 0.3, title or _leaders(rows, worlds), note)
    low, high = _range(rows[["low", "high"]], target, lowest)
    for world, panel in zip(worlds, panels(figure, len(worlds), across), strict=True):
        panel.frame(world_title(world, unseen), "Return", "")
        name_rows(panel.axes, [shorten_label(name) for name in regimes], below=0.6)
        tint_rows(panel.axes, map(colour, range(len(regimes))))
        _dots(panel.axes, rows[rows["world"] == world].set_index("regime"), regimes, lowest)
        if target is not None:
            panel.axes.axvline(target, color=GREY, linewidth=0.6, zorder=1)
        panel.axes.set_xlim(*reach([low, high], share=0.08, least=1.0))
        panel.axes.xaxis.set_major_locator(MaxNLocator(8 // across, steps=[1, 2, 4, 5, 10]))
    return save_figure(figure, path)


def privacy_return(
    table: "pd.DataFrame | Mapping[str, object]",
    references: Mapping[str, float] | None = None,
    *,
    title: str | None = None,
    provenance: str = "",
    path: str | Path | None = None,
) -> Picture:
    """Draw the return against the epsilon that it costs; points that have learned nothing are hollow.

    Args:
        table: One row for each run or mean of runs: `epsilon`, what it truly costs, `return`, and where they
            are known `low` and `high`, the ends of an interval, `regime`, which parts the rows into lines,
            and `claimed`, the epsilon that was said to be its cost where that is not the same.
        references: Returns that cost no epsilon, by name: `open`, `alone`; a return that is not above
            `untrained`, as far as its interval tells, has learned nothing.
        title: The title; by default the smallest epsilon that learns.
        provenance: Source of the returns.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    rows = read_table(table, ("epsilon", "return"), ("epsilon", "return")).drop(columns="method")
    rows = rows.rename(columns={"return": "score", "regime": "method"})
    known = dict(references or {})
    floor = known.get(UNTRAINED)
    return scores.privacy_utility(
        rows, references=known, score="Return", shown="{:.0f}", floor=floor,
        title=title or (None if floor is None else _cheapest(rows, floor, known.get("open"))),
        provenance=provenance, path=path,
    )  # fmt: skip


def _cheapest(rows: "pd.DataFrame", floor: float, without: float | None) -> str:
    """The smallest epsilon at which something is learned."""
    learnt = rows[rows["low" if "low" in rows else "score"] > floor]
    if learnt.empty:
        return f"Nothing is learned at any epsilon up to {rows['epsilon'].max():g}"
    first = learnt.sort_values(["epsilon", "score"], ascending=[True, False]).iloc[0]
    told = f"Return {format_return(float(first['score']))} at epsilon {float(first['epsilon']):g}"
    less = " (the smallest that learns)" * bool((rows["epsilon"] < first["epsilon"]).any())
    return told + less + (f", {format_return(without)} without privacy" if without is not None else "")


def _leaders(rows: "pd.DataFrame", worlds: Sequence[str]) -> str:
    """Return a title with the regime of the highest mean in each world."""
    order = (
        rows.sort_values("mean", ascending=False, kind="stable").drop_duplicates("world").set_index("world")
    )
    means, regimes = order["mean"].to_dict(), order["regime"].to_dict()
    told = leaders({world: (str(regimes[world]), float(means[world])) for world in worlds})
    return f"Highest return: {told}{_unclear(rows, worlds)}"


def _unclear(rows: "pd.DataFrame", worlds: Sequence[str]) -> str:
    """Count the worlds in which the interval of another regime reaches that of the best, in words."""
    many = 0
    for world in worlds:
        own = rows[rows["world"] == world].sort_values("mean", ascending=False, kind="stable")
        many += bool(len(own) > 1 and (own["high"].iloc[1:] >= own["low"].iloc[0]).any())
    return f"; intervals overlap in {many} of {len(worlds)}" if many else ""


def _dots(axes: Axes, rows: "pd.DataFrame", regimes: Sequence[str], lowest: float | None) -> None:
    """Draw a dot, its interval and its number for each regime that the world has."""
    best, edge = float(rows["mean"].max()), -np.inf if lowest is None else lowest
    for place, regime in enumerate(regimes):
        if regime in rows.index:
            mean, low, high = (float(rows.loc[regime, name]) for name in ("mean", "low", "high"))  # pyright: ignore
            spot, marker = max(mean, edge), "o" if mean >= edge else "<"
            ends = ([max(low, edge)], [max(high, edge)])
            dots(axes, [spot], [place], colour(place), ends=ends, marker=marker, clip_on=False)
            halo = [withStroke(linewidth=2, foreground="white")]
            weight = "bold" if mean == best else "normal"
            write(
                axes, format_return(mean), (spot, place), (0, 3), va="bottom", fontsize=SMALL,
                fontweight=weight, path_effects=halo,
            )  # fmt: skip
