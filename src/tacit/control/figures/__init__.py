"""The figures of a paper on acting in several worlds, each from plain arrays and tables.

    learning       learning_curves, side_by_side, overlay
    experiments    scenarios, privacy_return
    rounds         memberships, drift
    weights        weight_map
    report         pictures, all figures of a run

Each gives a matplotlib figure, and keeps it in a file if a `path` is named. A regime is a way to train, such
as `federated` or `alone`; regimes and worlds come in the order of the table, so a regime has one color in
all figures of tables of one order. What a figure shows has left the sites already.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from tacit.control.figures.learning import (
    TARGET,
    UNSEEN,
    ReturnCurve,
    curve_by_round,
    draw_curves,
    extremes,
    format_return,
    leaders,
    limit_range,
    world_title,
)
from tacit.control.figures.learning import learning_curves as learning_curves
from tacit.control.figures.learning import overlay as overlay
from tacit.control.figures.learning import side_by_side as side_by_side
from tacit.control.figures.maps import FEWEST, LOOKED, SHARED, drift, memberships, weight_map
from tacit.control.history import HISTORY, History
from tacit.errors import InvalidFile, require
from tacit.reports.page.blocks import Figure
from tacit.reports.plots import (
    dots,
    footnote,
    in_order,
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
    BODY,
    GREY,
    PALETTE,
    RULE,
    SMALL,
    Picture,
    colour,
    ink,
    label_lines,
    picture,
    save_figure,
    shorten_label,
    tidy,
)
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.runtime.tables import parse

if TYPE_CHECKING:
    import pandas as pd

    from tacit.control.tasks import PPO
    from tacit.learning.record import Round

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

# Worlds side by side; a regime in inches: its dot, and a number above it.
ACROSS, HIGH = 4, 0.26
UNTRAINED = "untrained"
Read = Callable[[str], bytes | None]

MOST = len(PALETTE)
# Letters of a name beside a line.
LETTERS = 18
# On a map, more models than these are a cloud; and the most sites that are drawn in groups.
MODELS, TIMES, GROUPED = 240, 12, 60
# A history of more bytes is not looked into for a report.
LARGEST = 32 * 2**20
SEVERAL = re.compile(r"model-\d+")
SUMMARY, EXPERIMENT = "summary.json", "experiment.toml"
WAYS = {"alone": "each site alone", "pooled": "pooled"}
# Height of a row of worlds, in inches; and distance between ways to train in it.
ROW_HIGH, APART = 0.3, 0.2


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
    low, high = limit_range(rows[["low", "high"]], target, lowest)
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
    """Return the smallest epsilon at which something is learned."""
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


@dataclass(frozen=True)
class WorldNames:
    """Worlds of a run by name.

    Args:
        names: Worlds whose returns are reported separately; none where all are alike.
        unseen: Those of them that no site trains in.
    """

    names: tuple[str, ...]
    unseen: tuple[str, ...] = ()

    def world_of(self, site: str) -> str:
        """Return the world of a site, whose copies are numbered; empty where that is not known."""
        stem = re.sub(r"-\d+$", "", site)
        return next((name for name in (site, stem) if name in self.names), "")

    def title(self, name: str) -> str:
        """Return the title of a world."""
        return world_title(shorten_label(name, 20), [shorten_label(one, 20) for one in self.unseen])


def pictures(task: "PPO", state: Array, rounds: "Sequence[Round]", read: Read) -> list[Figure]:
    """The figures of a run of agents.

    Args:
        task: The task.
        state: One model (coordinates), or several (models, coordinates).
        rounds: The record of the rounds.
        read: A file of the run by its name, if it is there.
    """
    worlds = _worlds(rounds, read)
    found = (
        _by_round(rounds, worlds, several=state.ndim > 1),
        _training(rounds, worlds),
        _at_the_end(read, worlds),
        _groups(rounds, worlds),
        _map(read, worlds, several=state.ndim > 1),
    )
    return [figure for figure in found if figure is not None]


def _worlds(rounds: "Sequence[Round]", read: Read) -> WorldNames:
    """Return the worlds that scores and experiment name."""
    scores = in_order(name for entry in rounds for name in entry.scores if name.startswith("return@"))
    try:
        data = parse((read(EXPERIMENT) or b"").decode(errors="replace"), EXPERIMENT).get("data", {})
    except InvalidFile:
        data = {}
    names = tuple(name.removeprefix("return@") for name in scores)
    return WorldNames(names, tuple(name for name in names if name in data.get("unseen", {})))


def _draw(courses: Mapping[str, ReturnCurve], title: str, note: str) -> Picture:
    """Draw returns round by round, each line with its name and its last value beside it."""
    figure = picture(2.6, title, note)
    axes = figure.add_subplot()
    tidy(axes, "Round", "Return")
    labels = draw_curves(axes, courses, {name: shorten_label(name, LETTERS) for name in courses})
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axes.margins(x=0.01)
    label_lines({axes: labels})
    return figure


def _by_round(rounds: "Sequence[Round]", worlds: WorldNames, *, several: bool) -> Figure | None:
    """Draw the return in each world after every round."""
    numbers, courses = [entry.number for entry in rounds], dict[str, ReturnCurve]()
    for name in worlds.names:
        values = [[entry.scores.get(f"return@{name}", np.nan)] for entry in rounds]
        if (found := curve_by_round(numbers, np.array(values))) is not None:
            courses[worlds.title(name)] = found
    if not courses:
        return None
    shown, some = extremes(courses)
    low, high = (choose(courses, key=lambda name: courses[name].last) for choose in (min, max))
    ends = [f"{format_return(courses[name].last)} in {name}" for name in dict.fromkeys((low, high))]
    title = f"Return after round {rounds[-1].number}: {' to '.join(ends)}"
    own = "Sites have different models: each plays in its own world, all in unseen ones" * several
    note = footnote("Means of greedy episodes after every round, on other seeds than in training", own, some)
    told = [f"{name} {one}" for name, one in shown.items()]
    words = f"Return in each world over {len(rounds)} rounds: {'; '.join(told)}. {some}".strip()
    return Figure("returns-by-round", _draw(shown, title, note), words)


def _training(rounds: "Sequence[Round]", worlds: WorldNames) -> Figure | None:
    """Draw the training returns; by site, or of many sites by world."""
    sites, numbers = in_order(name for entry in rounds for name in entry.diary), [e.number for e in rounds]
    groups = _group_sites(sites, worlds)
    courses: dict[str, ReturnCurve] = {}
    for name, own in groups.items():
        rows = [[_mean(entry.diary.get(site, {}).get("returns", ())) for site in own] for entry in rounds]
        if (found := curve_by_round(numbers, np.array(rows, dtype=np.float64))) is not None:
            courses[name] = found
    if not courses:
        return None
    first, last = (np.mean([one.mean[end] for one in courses.values()]) for end in (0, -1))
    means = [format_return(float(value)) for value in (first, last)]
    title = f"Training episodes: mean return {means[0]} at first, {means[1]} at last"
    bands = f"Lines: means of sites. Bands: the lowest to the highest of {len(sites)} sites"
    note = footnote(
        "Reported by the sites: means over the episodes of a round, with random actions",
        bands * (len(groups) < len(sites)),
    )
    told = [f"{name} {one}" for name, one in courses.items()]
    words = f"Mean return of training episodes over {len(rounds)} rounds: {'; '.join(told)}."
    return Figure("training-returns", _draw(courses, title, note), words)


def _group_sites(sites: Sequence[str], worlds: WorldNames) -> dict[str, list[str]]:
    """Group the sites that share a line: each alone, by world, or all."""
    if len(sites) <= MOST:
        return {shorten_label(site): [site] for site in sites}
    homes = [worlds.world_of(site) for site in sites]
    if "" in homes or len(set(homes)) > MOST:
        return {"all sites": list(sites)}
    pairs = list(zip(sites, homes, strict=True))
    return {worlds.title(name): [site for site, home in pairs if home == name] for name in in_order(homes)}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _at_the_end(read: Read, worlds: WorldNames) -> Figure | None:
    """Draw the return in each world and in all of them, by every way to train that was tried."""
    said = cast("dict[str, Any]", msgspec.json.decode(read(SUMMARY) or b"{}"))
    compared = cast("dict[str, dict[str, float]]", said.get("baselines", {}))
    ways: dict[str, dict[str, float]] = {"federated": said.get("scores", {})}
    ways |= {WAYS.get(name, name): scores for name, scores in compared.items()}
    ways = {name: scores for name, scores in list(ways.items())[:MOST] if "return" in scores}
    if len(worlds.names) < 2 or not ways:
        return None
    rows = {
        "all (95 % interval)": "return",
        **{worlds.title(name): f"return@{name}" for name in worlds.names},
    }
    shown = dict(list(rows.items())[: 2 * MOST])
    federated = next(iter(ways.values()))
    title = (
        f"Return at the end: {format_return(federated['return'])} over all environments that a site trains in"
    )
    some = f"{len(shown) - 1} of {len(worlds.names)} worlds" * (len(shown) < len(rows))
    note = footnote("Means of greedy episodes in Gymnasium, on other seeds than in training", some)
    told = [
        f"{row}: "
        + ", ".join(f"{way} {format_return(own[name])}" for way, own in ways.items() if name in own)
        for row, name in shown.items()
    ]
    figure = _dots_by_way(shown, ways, title, note)
    return Figure("returns-by-world", figure, f"Return at the end. {'; '.join(told)}.")


def _dots_by_way(
    rows: Mapping[str, str], ways: Mapping[str, Mapping[str, float]], title: str, note: str
) -> Picture:
    """Draw a row for each world, with a dot for every way to train and its interval."""
    figure = picture(0.6 + ROW_HIGH * len(rows), title, note)
    axes = figure.add_subplot()
    tidy(axes, "Return", "")
    for place, found in enumerate(ways.values()):
        shift = (place - (len(ways) - 1) / 2) * min(APART, 0.7 / len(ways))
        heights = [row + shift for row, name in enumerate(rows.values()) if name in found]
        dots(axes, [found[name] for name in rows.values() if name in found], heights, colour(place))
        if {"return_low", "return_high"} <= set(found):
            ends = found["return_low"], found["return_high"]
            axes.hlines(shift, *ends, color=colour(place), linewidth=1.2)
    name_rows(axes, list(rows), above=0.5, below=0.5)
    axes.grid(visible=False)
    for row in range(len(rows)):
        axes.axhline(row + 0.5, color=RULE, linewidth=0.5, zorder=0)
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 4, 5, 10]))
    # The key of colors stands to the right, one below the other.
    for place, name in enumerate(ways):
        aside, shade = (10, -BODY * (0.8 + 1.5 * place)), ink(colour(place))
        write(axes, shorten_label(name, 18), (1, 1), aside, "axes", ha="left", color=shade)
    return figure


def _groups(rounds: "Sequence[Round]", worlds: WorldNames) -> Figure | None:
    """Draw the model of each site, round by round, where there are several."""
    rows = [
        {"site": site, "world": worlds.world_of(site), "round": entry.number, "cluster": place + 1}
        for entry in rounds
        for site, place in entry.clusters.items()
    ]
    sites, homes = {row["site"] for row in rows}, {row["world"] for row in rows}
    clusters = {row["cluster"] for row in rows}
    if not rows or "" in homes or len(homes) < 2 or len(sites) > GROUPED or len(clusters) > MOST:
        return None
    table = {name: [row[name] for row in rows] for name in rows[0]}
    figure = memberships(table, provenance="Clusters of the sites")
    last = [f"model {number}: {', '.join(members)}" for number, members in _members(rounds[-1]).items()]
    return Figure("clusters", figure, f"{_title(figure)}. In the last round, {'; '.join(last)}.")


def _title(figure: Picture) -> str:
    """Return the title in one line."""
    return " ".join(figure.get_suptitle().split())


def _members(entry: "Round") -> dict[int, list[str]]:
    """Return the sites of each model, numbered from 1."""
    pairs = entry.clusters.items()
    return {
        place + 1: [shorten_label(site) for site, own in pairs if own == place]
        for place in sorted(set(entry.clusters.values()))
    }


def _map(read: Read, worlds: WorldNames, *, several: bool) -> Figure | None:
    """Draw the models of the sites along their two main axes, where they were kept."""
    content = read(HISTORY)
    if content is None or len(content) > LARGEST:
        return None
    try:
        found = History.read(content)
    except InvalidFile:
        return None
    rows, some = _subsample(found, several=several)
    owners = found.weight_labels[rows].tolist()
    if len(rows) < FEWEST or not set(owners) - {SHARED}:
        return None
    homes = [worlds.world_of(owner) or "sites" for owner in owners]
    if len(set(homes)) > MOST:
        homes = ["sites"] * len(homes)
    figure = weight_map(
        found.weights[rows], homes, found.weight_steps[rows], owners, method="pca", key=Key(0),
        provenance=LOOKED + some,
    )  # fmt: skip
    ends = f"{len(set(owners) - {SHARED})} sites in {len(set(found.weight_rounds[rows].tolist()))} rounds"
    return Figure("weight-map", figure, f"{_title(figure)}. A map of the weights of {ends}.")


def _subsample(found: History, *, several: bool) -> tuple[list[int], str]:
    """Select the kept models to draw: of many rounds some, and of many sites the first ones.

    Where there are several models for all, those of the sites alone: they are named by numbers.
    """
    numbers = np.unique(found.weight_rounds)
    kept = set(
        numbers[np.linspace(0, len(numbers) - 1, min(TIMES, len(numbers))).round().astype(int)].tolist()
    )
    everybody = in_order(found.weight_labels.tolist())
    sites = [name for name in everybody if name != SHARED and not (several and SEVERAL.fullmatch(name))]
    most = max(1, MODELS // max(len(kept), 1))
    shown = {SHARED, *sites[:most]}
    pairs = enumerate(zip(found.weight_rounds.tolist(), found.weight_labels.tolist(), strict=True))
    rows = [place for place, (number, owner) in pairs if number in kept and owner in shown]
    return rows, f". The first {most} of {len(sites)} sites" * (len(sites) > most)
