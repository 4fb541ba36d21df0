"""The figures of a paper on acting in several worlds, each from plain arrays and tables.

    learning       learning_curves, side_by_side, overlay
    experiments    scenarios, privacy_return
    rounds         memberships, drift
    weights        weight_map

Each gives a matplotlib figure, and keeps it in a file if a `path` is named. A regime is a way to train, such
as `federated` or `alone`; regimes and worlds come in the order of the table, so a regime has one colour in
all figures of tables of one order. What a figure shows has left the sites already.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray
from scipy.stats import t as student

from tacit.control.figures.maps import weight_map as weight_map
from tacit.control.figures.returns import privacy_return as privacy_return
from tacit.control.figures.returns import scenarios as scenarios
from tacit.control.figures.rounds import drift as drift
from tacit.control.figures.rounds import memberships as memberships
from tacit.control.figures.tables import (
    TARGET,
    UNSEEN,
    draw_target,
    footnote,
    format_return,
    in_order,
    leaders,
    panels,
    read,
    require_few,
    short_steps,
    world_title,
)
from tacit.errors import require, require_count, require_word
from tacit.reports.plots.style import Label, Picture, colour, label_lines, picture, save_figure, tidy

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

Array = NDArray[np.float64]
By = Literal["world", "regime"]
Band = Literal["range", "interval"]

STEPS = "Environment steps per site"
PANEL = 1.5
# Beside two panels names of so many letters have room, beside one all; more rows than these fill a page.
SHORT, DOWN = 12, 6
# More points than these cannot be seen in a line.
POINTS = 400
LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """A line: its mean over seeds at these steps, and the ends of its band (steps,)."""

    steps: Array
    mean: Array
    low: Array
    high: Array

    @property
    def last(self) -> float:
        """Where it has come to."""
        return float(self.mean[-1])


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
        by: What has a panel of its own: worlds, or regimes, with a line for each world.
        target: The return from which on a world counts as solved; None draws no line.
        unseen: Worlds that nobody has trained in; they come last.
        band: From the lowest to the highest seed, or the 95 % interval of the mean (Student's t).
        window: A point is the mean of so many returns of its curve, itself and those before: 1 for scores,
            about 100 for single episodes.
        lowest: Where the axis ends; what is lower is cut off.
        title: What is seen; if not said, the last returns.
        provenance: Where the returns come from.
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
    told = title or (_highest(curves, words) if by == "world" else _steadiest(curves, words))
    across = _panels_per_row(len(names), max(len(words[name]) for name in lines))
    down = -(-len(names) // across)
    note = _note(rows, provenance, band, window, lowest)
    figure = picture(0.4 + PANEL * down + 0.9 * (down == 1), told, note)
    labels: dict[Axes, list[Label]] = {}
    for name, panel in zip(names, panels(figure, len(names), across), strict=True):
        panel.frame(words[name], STEPS, "Return")
        labels[panel.axes] = _draw(panel.axes, curves[name], {line: words[line] for line in lines}, lowest)
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
    """Draw all regimes in one panel, each as the mean over the worlds that somebody trains in.

    A world counts once, however many sites it has. Arguments as of `learning_curves`.
    """
    rows = _returns(table, band, window)
    rows = rows[~rows["world"].isin(list(unseen))]
    require(len(rows) > 0, "unseen", list(unseen), "not all worlds that there are")
    worlds, regimes = in_order(rows["world"]), require_few("regime", in_order(rows["regime"]))
    for regime, own in rows.groupby("regime", sort=False):
        known, allowed = in_order(own["world"]), f"the same as of all others: {', '.join(worlds)}"
        require(set(known) == set(worlds), f"the worlds of {regime}", known, allowed)
    curves = _curves(rows, "regime", regimes, band, window)
    note = f"{_note(rows, provenance, band, window, lowest)} Lines: means over {', '.join(worlds)}."
    figure = picture(3.0, title or _final_title(curves), note)
    axes = figure.add_subplot()
    tidy(axes, STEPS, "Return")
    labels = _draw(axes, curves, {name: name for name in regimes}, lowest)
    _limit([axes], list(curves.values()), target, lowest)
    label_lines({axes: labels})
    return save_figure(figure, path)


def _returns(table: "pd.DataFrame | Mapping[str, object]", band: str, window: int) -> "pd.DataFrame":
    """The rows, once each is found to be a return after some steps."""
    require_word("band", band, ("range", "interval"))
    require_count("window", window)
    rows = read(table, ("regime", "world", "seed", "steps", "return"), ("steps", "return"))
    require(bool((rows["steps"] >= 0).all()), "steps", float(rows["steps"].min()), "at least 0")
    return rows.assign(regime=rows["regime"].astype(str), world=rows["world"].astype(str))


def _curves(
    rows: "pd.DataFrame", by: str, names: Sequence[str], band: Band, window: int
) -> dict[str, LearningCurve]:
    """A curve for each name that the rows have."""
    groups = {name: rows[rows[by] == name] for name in names}
    return {name: _curve(own, name, band, window) for name, own in groups.items() if len(own)}


def _curve(rows: "pd.DataFrame", name: str, band: Band, window: int) -> LearningCurve:
    """The mean over sites, then over worlds, then over seeds, at the steps where every curve is known."""
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
    return LearningCurve(grid, seeds.mean(axis=0), *_ends(seeds, band))


def _running(values: Array, window: int) -> Array:
    """The mean of each value and of those before it, so many in all; of fewer at the start."""
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


def _panels_per_row(panels: int, longest: int) -> int:
    """How many panels stand side by side, that there is room for names beside lines."""
    return 1 if panels == 1 or (longest > SHORT and panels <= DOWN) else 2


def _draw(
    axes: Axes, curves: Mapping[str, LearningCurve], words: Mapping[str, str], lowest: float | None
) -> list[Label]:
    """Draw each curve in the colour of its place among all names."""
    labels: list[Label] = []
    for place, name in enumerate(words):
        if name not in curves:
            continue
        curve, shade = curves[name], colour(place)
        if (curve.high > curve.low).any():
            axes.fill_between(curve.steps, curve.low, curve.high, color=shade, alpha=0.15, linewidth=0)
        alone = "o" if len(curve.steps) == 1 else ""
        axes.plot(curve.steps, curve.mean, color=shade, linewidth=1.4, marker=alone, markersize=4)
        height = curve.last if lowest is None else max(curve.last, lowest)
        labels.append(Label(height, f"{words[name]} {format_return(curve.last)}", shade))
    return labels


def _limit(
    panels: Sequence[Axes], curves: Sequence[LearningCurve], target: float | None, lowest: float | None
) -> None:
    """Give all panels the same axes, and a thin line where a world counts as solved."""
    low, high = (
        min(float(curve.low.min()) for curve in curves),
        max(float(curve.high.max()) for curve in curves),
    )
    high = high if target is None else max(high, target)
    low = low if lowest is None else lowest
    require(low < high or lowest is None, "lowest", lowest, f"below the highest return, {high:g}")
    last = max(float(curve.steps[-1]) for curve in curves)
    edge = 0.05 * max(high - low, 1.0)
    for place, axes in enumerate(panels):
        axes.set_ylim(low - edge * (lowest is None), high + edge)
        axes.set_xlim(0, 1.01 * max(last, 1.0))
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(short_steps))
        if target is not None:
            draw_target(axes, target, told=place == 0)


def _note(rows: "pd.DataFrame", provenance: str, band: Band, window: int, lowest: float | None) -> str:
    """Where returns come from, and what bands and points are."""
    seeds = rows["seed"].nunique()
    ends = "the lowest to the highest of" if band == "range" else "95 % intervals of means over"
    return footnote(
        provenance,
        f"Bands: {ends} {seeds} seeds" if seeds > 1 else "One seed",
        f"Points: means of {window} returns" if window > 1 else "",
        "" if lowest is None else f"Returns below {lowest:g} are cut off",
    )


def _highest(curves: Mapping[str, Mapping[str, LearningCurve]], words: Mapping[str, str]) -> str:
    """Which regime has come highest in each world."""
    best = {world: max(found, key=lambda name: found[name].last) for world, found in curves.items()}
    told = leaders({words[world]: (name, curves[world][name].last) for world, name in best.items()})
    return f"Highest at the end: {told}"


def _steadiest(curves: Mapping[str, Mapping[str, LearningCurve]], words: Mapping[str, str]) -> str:
    """Which regime has come highest in its worst world."""
    worst = {regime: min(found, key=lambda name: found[name].last) for regime, found in curves.items()}
    best = max(worst, key=lambda regime: curves[regime][worst[regime]].last)
    ends = format_return(curves[best][worst[best]].last)
    return f"Highest in its worst world: {best} ({ends} in {words[worst[best]]})"


def _final_title(curves: Mapping[str, LearningCurve]) -> str:
    """What each regime has come to, the best first, and after how many steps."""
    order = sorted(curves, key=lambda name: -curves[name].last)
    told = ", ".join(f"{name} ({format_return(curves[name].last)})" for name in order)
    steps = sorted({short_steps(float(curve.steps[-1])) for curve in curves.values()})
    return f"After {steps[0]} steps per site: {told}" if len(steps) == 1 else f"At the end: {told}"
