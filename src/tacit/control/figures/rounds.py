"""Training from round to round, drawn: who learns with whom, and how much of an update is noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from tacit.aggregation.defence.kmeans import adjusted_rand
from tacit.control.figures.tables import footnote, in_order, read, require_few
from tacit.errors import require
from tacit.reports.plots.style import (
    BODY,
    GREY,
    INK,
    PALE,
    PALETTE,
    SMALL,
    Label,
    Picture,
    colour,
    format_tick,
    label_lines,
    picture,
    save_figure,
    shorten_label,
    tidy,
    width,
)

if TYPE_CHECKING:
    import pandas as pd

# A site in inches, all sites at most, and how many of them have room for their names.
HIGH, HIGHEST, NAMED = 0.13, 5.0, 40
STRIP = 0.7
INDEX = "Agreement: the adjusted Rand index of clusters and worlds; 1 if they are the same, 0 by chance"


@dataclass(frozen=True)
class Phase:
    """Rounds of one kind, and how well clusters agree with worlds in them."""

    name: str
    first: int
    last: int
    agreement: float


def memberships(
    table: "pd.DataFrame | Mapping[str, object]",
    *,
    title: str | None = None,
    provenance: str = "",
    path: str | Path | None = None,
) -> Picture:
    """Draw which cluster each site is in from round to round, and how well clusters agree with worlds.

    Args:
        table: One row for each site and round: `site`, `world`, `round`, `cluster`, and where rounds are of
            several kinds `phase`, such as `together` and `apart`. Rounds that a site sits out have no row.
        title: What is seen; if not said, the agreement in each phase.
        provenance: Where the clusters come from.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    rows = read(table, ("site", "world", "round", "cluster"), ("round",))
    rows = rows.astype({"site": str, "world": str, "round": int, "cluster": str})
    rows = rows.assign(phase=rows["phase"].astype(str) if "phase" in rows else "")
    twice = bool(rows.duplicated(["site", "round"]).any())
    require(not twice, "table", "a site twice in one round", "one row for each site and round")
    homes, clusters = (
        _site_worlds(rows),
        require_few("cluster", sorted(in_order(rows["cluster"]), key=_cluster_order)),
    )
    agreement = {
        int(str(number)): adjusted_rand(own["cluster"].tolist(), own["world"].tolist())
        for number, own in rows.groupby("round")
    }
    phases = _phases(rows, agreement)
    codes = _codes(rows, list(homes), clusters)
    high, blank = min(HIGH * len(homes), HIGHEST), "White: not taken part" * bool(np.isnan(codes).any())
    figure = picture(
        0.8 + STRIP + high, title or _agreement_title(phases, agreement), footnote(provenance, INDEX, blank)
    )
    strip, axes = figure.subplots(2, 1, sharex=True, height_ratios=(STRIP, high))
    _cells(axes, codes, int(rows["round"].min()))
    _name_sites(axes, homes)
    _strip(strip, agreement, phases)
    label_lines({axes: _cluster_labels(codes, clusters)})
    return save_figure(figure, path)


def drift(
    table: "pd.DataFrame | Mapping[str, object]",
    *,
    title: str | None = None,
    provenance: str = "",
    path: str | Path | None = None,
) -> Picture:
    """Draw how long the combined update of each round is, and how long the noise that was added to it.

    Args:
        table: One row for each round: `round`, `update` and `noise`, which are L2 norms above 0, and where
            there are several `regime`, each with a panel of its own.
        title: What is seen; if not said, how many times as long as the update the noise is.
        provenance: Where the norms come from.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    numbers = ("round", "update", "noise")
    rows = read(table, numbers, numbers)
    for name in numbers[1:]:
        require(bool((rows[name] > 0).all()), name, float(rows[name].min()), "above 0, on a log axis")
    rows = rows.assign(regime=rows["regime"].astype(str) if "regime" in rows else "").sort_values("round")
    groups = {name: rows[rows["regime"] == name] for name in in_order(rows["regime"].sort_index())}
    figure = picture(0.5 + 1.5 * len(groups), title or _noise_title(groups), footnote(provenance))
    panels = figure.subplots(len(groups), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    labels: dict[Axes, list[Label]] = {}
    for axes, (regime, own) in zip(panels, groups.items(), strict=True):
        tidy(axes, "Round" if axes is panels[-1] else "", "L2 norm (log scale)")
        axes.set_title(regime, loc="left", fontsize=BODY, color=INK, pad=3, parse_math=False)
        labels[axes] = _norms(axes, own)
    label_lines(labels)
    return save_figure(figure, path)


def _site_worlds(rows: "pd.DataFrame") -> dict[str, str]:
    """The world of each site, sites of one world together."""
    pairs = list(dict.fromkeys(zip(rows["site"].tolist(), rows["world"].tolist(), strict=True)))
    homes = dict(pairs)
    moved = [site for site, world in pairs if homes[site] != world]
    require(not moved, "world", f"several of {', '.join(moved)}", "the same in all rows of a site")
    return {
        site: world for place in in_order(homes.values()) for site, world in homes.items() if world == place
    }


def _cluster_order(name: str) -> tuple[float, str]:
    """Clusters in the order of their numbers, or else of their names."""
    return (float(name), "") if name.isdecimal() else (np.inf, name)


def _phases(rows: "pd.DataFrame", agreement: Mapping[int, float]) -> list[Phase]:
    """Rounds of one kind that follow one another, with their mean agreement."""
    kinds: dict[int, str] = dict(zip(rows["round"].tolist(), rows["phase"].tolist(), strict=True))
    spans: list[list[int]] = []
    for number in sorted(kinds):
        if not spans or kinds[number] != kinds[spans[-1][-1]]:
            spans.append([])
        spans[-1].append(number)
    means = [float(np.mean([agreement[number] for number in span])) for span in spans]
    return [Phase(kinds[span[0]], span[0], span[-1], mean) for span, mean in zip(spans, means, strict=True)]


def _agreement_title(phases: Sequence[Phase], agreement: Mapping[int, float]) -> str:
    """How well clusters are worlds, in the end and before."""
    last = f"{agreement[max(agreement)]:.2f} in the last round"
    if len(phases) == 1:
        return f"Clusters agree with worlds: {last}, {phases[0].agreement:.2f} on average"
    told = [f"{phase.name} {phase.agreement:.2f}" for phase in phases[-4:]]
    return f"Agreement of clusters with worlds: {', '.join(told)}"


def _codes(rows: "pd.DataFrame", sites: Sequence[str], clusters: Sequence[str]) -> NDArray[np.float64]:
    """The place of a site's cluster in each round (sites, rounds), the last site first; NaN without one."""
    first = int(rows["round"].min())
    codes = np.full((len(sites), int(rows["round"].max()) - first + 1), np.nan)
    heights = {site: len(sites) - 1 - place for place, site in enumerate(sites)}
    for site, number, cluster in rows[["site", "round", "cluster"]].itertuples(index=False):
        codes[heights[site], number - first] = clusters.index(cluster)
    return codes


def _cells(axes: Axes, codes: NDArray[np.float64], first: int) -> None:
    """Fill a cell for each site and round in the colour of its cluster."""
    sites, rounds = codes.shape
    tidy(axes, "Round", "")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.imshow(
        codes,
        cmap=ListedColormap(PALETTE),
        vmin=-0.5,
        vmax=len(PALETTE) - 0.5,
        aspect="auto",
        interpolation="nearest",
        origin="lower",
        extent=(first - 0.5, first + rounds - 0.5, -0.5, sites - 0.5),
        alpha=0.85,
    )
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10]))


def _name_sites(axes: Axes, homes: Mapping[str, str]) -> None:
    """Write sites to the left, if there is room, and their worlds to the left of them, parted by gaps."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    sites, worlds = list(homes)[::-1], list(homes.values())[::-1]
    names = [shorten_label(site, 16) for site in sites] if len(sites) <= NAMED else []
    axes.set_yticks(range(len(names)), names, fontsize=SMALL, parse_math=False)
    axes.tick_params(axis="y", length=0)
    aside = max((width(figure, name, SMALL) for name in names), default=0.0) + 10
    for world in in_order(worlds):
        rows = [row for row, name in enumerate(worlds) if name == world]
        axes.axhline(rows[0] - 0.5, color="white", linewidth=2.5, clip_on=False)
        axes.annotate(
            shorten_label(world, 16), (0, (rows[0] + rows[-1]) / 2), xycoords=axes.get_yaxis_transform(),
            xytext=(-aside, 0), textcoords="offset points", ha="right", va="center", fontsize=BODY,
            color=INK, parse_math=False, annotation_clip=False,
        )  # fmt: skip


def _strip(axes: Axes, agreement: Mapping[int, float], phases: Sequence[Phase]) -> None:
    """Draw agreement round by round, and its mean above each phase."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    tidy(axes, "", "Agreement")
    axes.tick_params(labelbottom=False)
    axes.plot(list(agreement), list(agreement.values()), color=INK, linewidth=1.2, marker=".", markersize=3)
    axes.set_ylim(min(-0.1, *agreement.values()), 1.1)
    axes.set_yticks([0, 1])
    # What is left between the names of sites and of clusters, in points, of all rounds.
    room = 300.0 / (phases[-1].last - phases[0].first + 1)
    for phase in phases:
        if phase is not phases[0]:
            axes.axvline(phase.first - 0.5, color=PALE, linewidth=0.8)
        space = room * (phase.last - phase.first + 1)
        mean = f"{phase.agreement:.2f}"
        kept = [
            words for words in (f"{phase.name} {mean}".strip(), mean) if width(figure, words, BODY) < space
        ]
        axes.annotate(
            kept[0] if kept else "", ((phase.first + phase.last) / 2, 1), xytext=(0, 2), ha="center",
            xycoords=axes.get_xaxis_transform(), textcoords="offset points", fontsize=BODY, color=GREY,
            parse_math=False,
        )  # fmt: skip


def _cluster_labels(codes: NDArray[np.float64], clusters: Sequence[str]) -> list[Label]:
    """Labels of clusters, each beside most of its sites when it was last seen."""
    labels: list[Label] = []
    for place, name in enumerate(clusters):
        column = codes[:, np.flatnonzero((codes == place).any(axis=0))[-1]]
        rows = np.flatnonzero(column == place)
        runs = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
        largest = max(runs, key=len)
        labels.append(Label(float(largest.mean()), f"cluster {name}", colour(place)))
    return labels


def _norms(axes: Axes, rows: "pd.DataFrame") -> list[Label]:
    """Draw both norms on a log axis."""
    rounds, labels = rows["round"].to_numpy(dtype=np.float64), list[Label]()
    for place, name in enumerate(("update", "noise")):
        heights = rows[name].to_numpy(dtype=np.float64)
        axes.plot(rounds, heights, color=colour(place), linewidth=1.4, marker="o" if len(rows) == 1 else "")
        labels.append(Label(float(heights[-1]), f"{name} {heights[-1]:.2g}", colour(place)))
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(format_tick))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    return labels


def _noise_title(groups: "Mapping[str, pd.DataFrame]") -> str:
    """How many times as long as an update its noise is, in the middle of all rounds."""
    ratios = {name: float((own["noise"] / own["update"]).median()) for name, own in groups.items()}
    if len(ratios) == 1:
        return f"Noise is {next(iter(ratios.values())):.2g} times as long as the update (median of rounds)"
    told = [f"{name} {ratio:.2g}" for name, ratio in ratios.items()]
    return f"Length of noise to that of the update (median of rounds): {', '.join(told)}"
