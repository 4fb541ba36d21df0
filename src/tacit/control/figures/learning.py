"""Learning curves: returns along training, by world and by regime, and how returns are written."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike
from scipy.stats import t as student

from tacit.control.figures.maps import short_steps
from tacit.errors import require, require_count, require_word
from tacit.reports.plots import (
    ROUND,
    band,
    footnote,
    in_order,
    line,
    panels,
    read_table,
    require_few,
    write,
)
from tacit.reports.plots.style import (
    GREY,
    PALETTE,
    SMALL,
    Label,
    Picture,
    colour,
    label_lines,
    picture,
    save_figure,
    tidy,
)
from tacit.runtime.arrays import Array

if TYPE_CHECKING:
    import pandas as pd

By = Literal["world", "regime"]
Band = Literal["range", "interval"]

STEPS = "Environment steps per site"
PANEL = 1.5
# Letters of a name that fit beside two panels; more rows than the second number fill a page.
SHORT, DOWN = 12, 6
# More points than these cannot be seen in a line: of steps, and of rounds.
POINTS, BY_ROUND = 400, 200
LEVEL = 0.95
# From which return on a lander has solved its world (Gymnasium).
TARGET = 200.0
# Names of a world that no site trains in, without a name of its own.
UNSEEN = ("unseen",)
# Number of worlds that a title names; of more it gives the number.
NAMED = 4


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
    """Check that each row is a return after some steps, and return the rows."""
    require_word("band", band, ("range", "interval"))
    require_count("window", window)
    rows = read_table(table, ("regime", "world", "seed", "steps", "return"), ("steps", "return"))
    require(bool((rows["steps"] >= 0).all()), "steps", float(rows["steps"].min()), "at least 0")
    return rows.assign(regime=rows["regime"].astype(str), world=rows["world"].astype(str))


def _curves(
    rows: "pd.DataFrame", by: str, names: Sequence[str], band: Band, window: int
) -> dict[str, ReturnCurve]:
    """Return a curve for each name that the rows have."""
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
    """Return the ends of a band over seeds (seeds, steps); one seed alone has none."""
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
    low, high = limit_range(ends, target, lowest)
    last = max(float(curve.at[-1]) for curve in curves)
    edge = 0.05 * max(high - low, 1.0)
    for place, axes in enumerate(panels):
        axes.set_ylim(low - edge * (lowest is None), high + edge)
        axes.set_xlim(0, 1.01 * max(last, 1.0))
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
        axes.xaxis.set_major_formatter(FuncFormatter(short_steps))
        if target is not None:
            draw_target(axes, target, told=place == 0)


def limit_range(ends: ArrayLike, target: float | None, lowest: float | None) -> tuple[float, float]:
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


def curve_by_round(rounds: Sequence[int], values: Array) -> ReturnCurve | None:
    """Return the curve of values (rounds, some), with NaN for unknown ones; None if all are unknown.

    Of very many rounds, those next to one another are averaged.
    """
    some = ~np.isnan(values).all(axis=1)
    if not some.any():
        return None
    told = values[some]
    lines = [np.asarray(rounds, dtype=np.float64)[some]]
    lines += [np.asarray(part(told, axis=1), dtype=np.float64) for part in (np.nanmean, np.nanmin, np.nanmax)]
    if len(told) > BY_ROUND:
        bins = np.array_split(np.arange(len(told)), BY_ROUND)
        lines = [np.array([line[own].mean() for own in bins]) for line in lines]
    return ReturnCurve(*lines)


def extremes(courses: Mapping[str, ReturnCurve]) -> tuple[dict[str, ReturnCurve], str]:
    """Select curves that can be told apart in one figure, the lowest and the highest, with a note."""
    if len(courses) <= len(PALETTE):
        return dict(courses), ""
    order = sorted(courses, key=lambda name: courses[name].last)
    half = len(PALETTE) // 2
    kept = {name: courses[name] for name in (*order[:half], *order[-half:])}
    return kept, f"The {half} lowest and the {half} highest of {len(courses)}"
