"""Figures of a report on agents: learning curves, returns in each world, clusters.

    rounds     returns in each world after every round, and of the episodes that sites trained in
    result     returns in each world at the end, beside those of other ways to train
    groups     which of several models each site belongs to
    weights    a map of the models of the sites, where they were kept

All of it is in the record of the run and in what it has kept; no world is opened.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
from matplotlib.ticker import MaxNLocator

from tacit.control.figures import ReturnCurve, draw_curves, format_return, world_title
from tacit.control.figures.maps import FEWEST, LOOKED, SHARED, memberships, weight_map
from tacit.control.history import HISTORY, History
from tacit.errors import InvalidFile
from tacit.reports.page.blocks import Figure
from tacit.reports.plots import dots, footnote, in_order, name_rows, write
from tacit.reports.plots.style import (
    BODY,
    PALETTE,
    RULE,
    Picture,
    colour,
    ink,
    label_lines,
    picture,
    shorten_label,
    tidy,
)
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.runtime.tables import parse

if TYPE_CHECKING:
    from tacit.control.tasks import PPO
    from tacit.learning.record import Round

Read = Callable[[str], bytes | None]

MOST = len(PALETTE)
# More points than these cannot be seen in a line.
POINTS, LETTERS = 200, 18
# On a map, more models than these are a cloud; and the most sites that are drawn in groups.
MODELS, TIMES, GROUPED = 240, 12, 60
# A history of more bytes is not looked into for a report.
LARGEST = 32 * 2**20
SEVERAL = re.compile(r"model-\d+")
SUMMARY, EXPERIMENT = "summary.json", "experiment.toml"
WAYS = {"alone": "each site alone", "pooled": "pooled"}
# Height of a row of worlds, in inches; and distance between ways to train in it.
HIGH, APART = 0.3, 0.2


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
    """The worlds that scores and experiment name."""
    scores = in_order(name for entry in rounds for name in entry.scores if name.startswith("return@"))
    try:
        data = parse((read(EXPERIMENT) or b"").decode(errors="replace"), EXPERIMENT).get("data", {})
    except InvalidFile:
        data = {}
    names = tuple(name.removeprefix("return@") for name in scores)
    return WorldNames(names, tuple(name for name in names if name in data.get("unseen", {})))


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
    if len(told) > POINTS:
        bins = np.array_split(np.arange(len(told)), POINTS)
        lines = [np.array([line[own].mean() for own in bins]) for line in lines]
    return ReturnCurve(*lines)


def extremes(courses: Mapping[str, ReturnCurve]) -> tuple[dict[str, ReturnCurve], str]:
    """Select curves that can be told apart in one figure, the lowest and the highest, with a note."""
    if len(courses) <= MOST:
        return dict(courses), ""
    order = sorted(courses, key=lambda name: courses[name].last)
    half = MOST // 2
    kept = {name: courses[name] for name in (*order[:half], *order[-half:])}
    return kept, f"The {half} lowest and the {half} highest of {len(courses)}"


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
    """The return in each world after every round."""
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
    """The return in each world and in all of them, by every way to train that was tried."""
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
    figure = _dots(shown, ways, title, note)
    return Figure("returns-by-world", figure, f"Return at the end. {'; '.join(told)}.")


def _dots(rows: Mapping[str, str], ways: Mapping[str, Mapping[str, float]], title: str, note: str) -> Picture:
    """Draw a row for each world, with a dot for every way to train and its interval."""
    figure = picture(0.6 + HIGH * len(rows), title, note)
    axes = figure.add_subplot()
    tidy(axes, "Return", "")
    for place, scores in enumerate(ways.values()):
        shift = (place - (len(ways) - 1) / 2) * min(APART, 0.7 / len(ways))
        heights = [row + shift for row, name in enumerate(rows.values()) if name in scores]
        dots(axes, [scores[name] for name in rows.values() if name in scores], heights, colour(place))
        if {"return_low", "return_high"} <= set(scores):
            ends = scores["return_low"], scores["return_high"]
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
    """The title in one line."""
    return " ".join(figure.get_suptitle().split())


def _members(entry: "Round") -> dict[int, list[str]]:
    """The sites of each model, numbered from 1."""
    pairs = entry.clusters.items()
    return {
        place + 1: [shorten_label(site) for site, own in pairs if own == place]
        for place in sorted(set(entry.clusters.values()))
    }


def _map(read: Read, worlds: WorldNames, *, several: bool) -> Figure | None:
    """The models of the sites along their two main axes, where they were kept."""
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
