"""Maps of training: clusters of sites, noise in updates, and embeddings of weights.

A map of weights keeps neighborhoods; its axes have no unit, and distances between groups on it mean little.
It draws weights without protecting them: use released ones, or those of public worlds.
"""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal, Protocol, cast

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingTypeStubs]

from tacit.aggregation.defence.kmeans import adjusted_rand
from tacit.errors import InvalidValue, require, require_count, require_word
from tacit.reports.plots import (
    ROUND,
    cells,
    column,
    footnote,
    head,
    in_order,
    line,
    read_table,
    require_few,
    write,
    write_apart,
)
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
    picture_of,
    save_figure,
    shorten_label,
    tidy,
    tidy_bar,
    width,
)
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key

if TYPE_CHECKING:
    import pandas as pd

Words = NDArray[np.str_]
Method = Literal["t-sne", "umap", "pca"]

# Height of a site in inches, of all sites at most, and number of sites whose names fit.
HIGH, HIGHEST, NAMED = 0.13, 5.0, 40
STRIP = 0.7
INDEX = "Agreement: the adjusted Rand index of clusters and worlds; 1 if they are the same, 0 by chance"
NAMES = {"t-sne": "t-SNE", "umap": "UMAP", "pca": "principal axes"}
HOMES = {"t-sne": "sklearn.manifold", "umap": "umap"}
SHARED = "global"
LOOKED = "weights of sites without noise: see the statement of the run"
SHAPES = {
    "o": "Circles",
    "s": "Squares",
    "^": "Triangles",
    "D": "Diamonds",
    "v": "Wedges",
    "P": "Plusses",
    "X": "Crosses",
}
FEWEST, DIMENSIONS = 5, 50
PERPLEXITY, NEAREST = 30.0, 60
# From light to dark, without the yellow that white paper swallows.
SHADES = ListedColormap(colormaps["viridis_r"](np.linspace(0.12, 1.0, 256)))


def short_steps(steps: float, place: int | None = None) -> str:
    """A number of steps as a tick shows it: 400, 250k, 1.5M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(steps) >= size:
            return f"{steps / size:.3g}{unit}"
    return f"{steps:.3g}"


# Clusters and noise


@dataclass(frozen=True)
class Phase:
    """Rounds of one kind, with the agreement of clusters and worlds in them."""

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
    """Draw the cluster of each site from round to round, and the agreement of clusters with worlds.

    Args:
        table: One row for each site and round: `site`, `world`, `round`, `cluster`, and where rounds are of
            several kinds `phase`, such as `together` and `apart`. Rounds that a site sits out have no row.
        title: The title; by default the agreement in each phase.
        provenance: Source of the clusters.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    rows = read_table(table, ("site", "world", "round", "cluster"), ("round",))
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
    tidy(axes, "Round", "")
    first, shades = int(rows["round"].min()), ListedColormap(PALETTE)
    cells(axes, codes, first, cmap=shades, vmin=-0.5, vmax=len(PALETTE) - 0.5, alpha=0.85)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10]))
    _name_sites(axes, homes)
    _strip(strip, agreement, phases)
    label_lines({axes: _cluster_labels(codes, clusters)})
    return save_figure(figure, path)


def _site_worlds(rows: "pd.DataFrame") -> dict[str, str]:
    """Return the world of each site, sites of one world together."""
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
    """Return a title with the agreement of clusters and worlds, in the end and before."""
    last = f"{agreement[max(agreement)]:.2f} in the last round"
    if len(phases) == 1:
        return f"Clusters agree with worlds: {last}, {phases[0].agreement:.2f} on average"
    told = [f"{phase.name} {phase.agreement:.2f}" for phase in phases[-4:]]
    return f"Agreement of clusters with worlds: {', '.join(told)}"


def _codes(rows: "pd.DataFrame", sites: Sequence[str], clusters: Sequence[str]) -> Array:
    """Return the place of a site's cluster in each round (sites, rounds); NaN without one."""
    first = int(rows["round"].min())
    codes = np.full((len(sites), int(rows["round"].max()) - first + 1), np.nan)
    for site, number, cluster in rows[["site", "round", "cluster"]].itertuples(index=False):
        codes[sites.index(site), number - first] = clusters.index(cluster)
    return codes


def _name_sites(axes: Axes, homes: Mapping[str, str]) -> None:
    """Write sites to the left, if there is room, and their worlds to the left of them, parted by gaps."""
    sites, worlds = list(homes), list(homes.values())
    names = [shorten_label(site, 16) for site in sites] if len(sites) <= NAMED else []
    axes.set_yticks(range(len(names)), names, fontsize=SMALL, parse_math=False)
    left = max((width(picture_of(axes), name, SMALL) for name in names), default=0.0) + 10
    for world in in_order(worlds):
        rows = [row for row, name in enumerate(worlds) if name == world]
        axes.axhline(rows[-1] + 0.5, color="white", linewidth=2.5, clip_on=False)
        write(axes, shorten_label(world, 16), (0, (rows[0] + rows[-1]) / 2), (-left, 0), "row", ha="right")


def _strip(axes: Axes, agreement: Mapping[int, float], phases: Sequence[Phase]) -> None:
    """Draw agreement round by round, and its mean above each phase."""
    tidy(axes, "", "Agreement")
    axes.tick_params(labelbottom=False)
    line(axes, list(agreement), list(agreement.values()), INK, linewidth=1.2, marker=".", markersize=3)
    axes.set_ylim(min(-0.1, *agreement.values()), 1.1)
    axes.set_yticks([0, 1])
    # Room between the names of sites and of clusters, in points, over all rounds.
    room = 300.0 / (phases[-1].last - phases[0].first + 1)
    for phase in phases:
        if phase is not phases[0]:
            axes.axvline(phase.first - 0.5, color=PALE, linewidth=0.8)
        space, mean = room * (phase.last - phase.first + 1), f"{phase.agreement:.2f}"
        words = (f"{phase.name} {mean}".strip(), mean, "")
        kept = next(one for one in words if not one or width(picture_of(axes), one, BODY) < space)
        middle = ((phase.first + phase.last) / 2, 1)
        write(axes, kept, middle, (0, 2), "column", color=GREY, va="bottom")


def _cluster_labels(codes: NDArray[np.float64], clusters: Sequence[str]) -> list[Label]:
    """Return labels of clusters, each beside most of its sites in its last round."""
    labels: list[Label] = []
    for place, name in enumerate(clusters):
        column = codes[:, np.flatnonzero((codes == place).any(axis=0))[-1]]
        rows = np.flatnonzero(column == place)
        runs = np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1)
        largest = max(runs, key=len)
        labels.append(Label(float(largest.mean()), f"cluster {name}", colour(place)))
    return labels


def drift(
    table: "pd.DataFrame | Mapping[str, object]",
    *,
    title: str | None = None,
    provenance: str = "",
    path: str | Path | None = None,
) -> Picture:
    """Draw the norm of each round's combined update, and of its noise.

    Args:
        table: One row for each round: `round`, `update` and `noise`, which are L2 norms above 0, and where
            there are several `regime`, each with a panel of its own.
        title: The title; by default the ratio of noise to update.
        provenance: Source of the norms.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    numbers = ("round", "update", "noise")
    rows = read_table(table, numbers, numbers)
    for name in numbers[1:]:
        require(bool((rows[name] > 0).all()), name, float(rows[name].min()), "above 0, on a log axis")
    rows = rows.assign(regime=rows["regime"].astype(str) if "regime" in rows else "").sort_values("round")
    groups = {name: rows[rows["regime"] == name] for name in in_order(rows["regime"].sort_index())}
    figure = picture(0.5 + 1.5 * len(groups), title or _noise_title(groups), footnote(provenance))
    panels = figure.subplots(len(groups), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    labels: dict[Axes, list[Label]] = {}
    for axes, (regime, own) in zip(panels, groups.items(), strict=True):
        tidy(axes, "Round" if axes is panels[-1] else "", "L2 norm (log scale)")
        head(axes, regime)
        labels[axes] = _norms(axes, own)
    label_lines(labels)
    return save_figure(figure, path)


def _norms(axes: Axes, rows: "pd.DataFrame") -> list[Label]:
    """Draw both norms on a log axis."""
    labels = [
        line(
            axes,
            column(rows, "round"),
            column(rows, name),
            colour(place),
            f"{name} {rows[name].iloc[-1]:.2g}",
        )
        for place, name in enumerate(("update", "noise"))
    ]
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(format_tick))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    return labels


def _noise_title(groups: "Mapping[str, pd.DataFrame]") -> str:
    """Return a title with the median ratio of noise to update lengths."""
    ratios = {name: float((own["noise"] / own["update"]).median()) for name, own in groups.items()}
    if len(ratios) == 1:
        return f"Noise is {next(iter(ratios.values())):.2g} times as long as the update (median of rounds)"
    told = [f"{name} {ratio:.2g}" for name, ratio in ratios.items()]
    return f"Length of noise to that of the update (median of rounds): {', '.join(told)}"


# Weights


class Embedder(Protocol):
    """Common interface of scikit-learn and umap-learn."""

    def fit_transform(self, X: Array) -> ArrayLike:
        """Places in a plane (rows, 2)."""
        ...


def weight_map(
    weights: ArrayLike,
    worlds: Sequence[str],
    steps: ArrayLike,
    sites: Sequence[str],
    *,
    method: Method = "t-sne",
    key: Key,
    shared: str = SHARED,
    title: str | None = None,
    provenance: str = LOOKED,
    path: str | Path | None = None,
) -> Picture:
    """Draw the weights of sites, and of the model that they share, as paths in a plane.

    Args:
        weights: One row for each model (models, coordinates).
        worlds: In which world each was trained; that of the shared model is not looked at.
        steps: After how many environment steps per site each was kept.
        sites: Site of each row.
        method: Embedding: `t-sne` (scikit-learn), `umap` (umap-learn), or the two main axes, `pca`, which is
            quick and keeps large distances.
        key: Names the chance there is in placing; the same key gives the same map.
        shared: Name of the shared model among the sites; its path is drawn in black.
        title: The title; by default the share of sites whose world their weights identify.
        provenance: Source of the weights.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    rows, homes, owners = _validate(weights, worlds, sites)
    taken = np.asarray(steps, dtype=np.float64)
    fits = taken.shape == homes.shape and bool(np.isfinite(taken).all())
    require(fits, "steps", f"shape {taken.shape}", f"a finite number for each of {len(rows)} rows")
    own = owners != shared
    require(bool(own.any()), "sites", f"{shared} alone", "at least one other")
    shapes = dict(zip(require_few("world", in_order(homes[own])), SHAPES, strict=False))
    places = embed(rows, method=method, key=key)
    figure = picture(
        4.0,
        title or _identifiability_title(rows[own], homes[own], owners[own], method),
        _note(shapes, provenance, method),
    )
    axes = figure.add_subplot()
    tidy(axes, "", "")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set(xticks=[], yticks=[], xmargin=0.06)
    scale = Normalize(float(taken.min()), float(max(taken.max(), taken.min() + 1)))
    for world, shape in shapes.items():
        mine = own & (homes == world)
        axes.scatter(
            *places[mine].T, c=taken[mine], cmap=SHADES, norm=scale, marker=shape, s=16, linewidths=0
        )
    _paths(axes, places, taken, owners, shared)
    bar = figure.colorbar(ScalarMappable(scale, SHADES), ax=axes, fraction=0.025, pad=0.02).ax
    tidy_bar(bar, "Environment steps per site")
    bar.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
    bar.yaxis.set_major_formatter(FuncFormatter(short_steps))
    ends = _ends(places, taken, homes, owners, shared)
    labels = [Label(float(up), shorten_label(name), INK) for name, (_, up) in ends.items()]
    halo = [withStroke(linewidth=2.5, foreground="white")]
    across = [float(spot[0]) for spot in ends.values()]
    write_apart(axes, labels, across, fontweight="bold", zorder=4, path_effects=halo)
    return save_figure(figure, path)


def embed(weights: ArrayLike, *, method: Method = "t-sne", key: Key) -> Array:
    """Embed weights in a plane (rows, 2), keeping neighborhoods; deterministic for a key.

    Args:
        weights: One row for each model (models, coordinates).
        method: `t-sne`, `umap` or `pca`.
        key: Names the chance there is in placing.
    """
    require_word("method", method, NAMES)
    rows = np.asarray(weights, dtype=np.float64)
    require(
        rows.ndim == 2 and len(rows) >= FEWEST, "weights", f"shape {rows.shape}", f"at least {FEWEST} rows"
    )
    require(bool(np.isfinite(rows).all()), "weights", "NaN or infinite", "finite")
    if method == "pca":
        flat = np.zeros((len(rows), 2))
        found = principal_components(rows, 2)
        flat[:, : found.shape[1]] = found
        return flat
    seed = int((key / "map").generator().integers(2**31))
    # Loaded before threads are limited, or its own would not be: they mostly wait for one another.
    library = _library(method)
    with threadpool_limits(1):
        reduced = principal_components(rows, DIMENSIONS)
        placing = _embedder(method, library, reduced, seed)
        return np.asarray(placing.fit_transform(reduced), dtype=np.float64)


def principal_components(rows: Array, most: int) -> Array:
    """Return the principal components of centered rows (rows, at most `most`), the widest first.

    Distances are kept up to what the axes left out hold. Signs are such that the largest coordinate is
    positive: they do not depend on the machine.
    """
    centred = rows - rows.mean(axis=0)
    if rows.shape[1] > len(rows):
        # Far more coordinates than models: the same from inner products, which are fewer.
        squares, left = np.linalg.eigh(centred @ centred.T)
        scores = (left * np.sqrt(np.maximum(squares, 0.0)))[:, ::-1]
    else:
        scores = (centred @ np.linalg.eigh(centred.T @ centred)[1])[:, ::-1]
    scores = scores[:, :most]
    peaks = scores[np.abs(scores).argmax(axis=0), np.arange(scores.shape[1])]
    return np.ascontiguousarray(scores * np.where(peaks < 0, -1.0, 1.0))


def silo_identifiability(
    weights: ArrayLike,
    worlds: Sequence[str],
    sites: Sequence[str],
    *,
    neighbours: int = 5,
    shared: str = SHARED,
) -> float:
    """Return the share of sites whose world the nearest models of other sites identify.

    A model is never compared with others of its own site: these are near it whatever its world, and would
    make any site look as if it gave its world away. What guessing comes to is the share of the largest world.

    Args:
        weights: One row for each model (models, coordinates).
        worlds: In which world each was trained; each world has at least two sites.
        sites: Site of each row.
        neighbours: Number of nearest neighbors that vote; a tie goes to the nearest.
        shared: Name of the shared model among the sites, which has no world and is left out.
    """
    require_count("neighbours", neighbours)
    rows, homes, owners = _validate(weights, worlds, sites)
    kept = owners != shared
    rows, homes, owners = rows[kept] - rows[kept].mean(axis=0), homes[kept], owners[kept]
    lonely = [world for world in in_order(homes) if len(set(owners[homes == world])) < 2]
    require(not lonely and len(rows) > 0, "worlds", f"{lonely} with one site", "each of at least two sites")
    lengths = (rows**2).sum(axis=1)
    right = 0
    for site in in_order(owners):
        mine, others = np.flatnonzero(owners == site), np.flatnonzero(owners != site)
        with threadpool_limits(1):
            far = lengths[others] - 2 * rows[mine] @ rows[others].T
        order = np.argsort(far, axis=1, kind="stable")[:, :neighbours]
        # Of worlds with as many votes, the one that was met first, which is the nearest, is named.
        votes = [Counter(map(str, homes[others[near]])).most_common(1)[0][0] for near in order]
        right += sum(vote == world for vote, world in zip(votes, homes[mine], strict=True))
    return right / len(rows)


def _validate(weights: ArrayLike, worlds: Sequence[str], sites: Sequence[str]) -> tuple[Array, Words, Words]:
    """Return weights, worlds and sites as arrays, after checking their lengths."""
    rows = np.asarray(weights, dtype=np.float64)
    require(rows.ndim == 2 and rows.size > 0, "weights", f"shape {rows.shape}", "a row for each model")
    require(bool(np.isfinite(rows).all()), "weights", "NaN or infinite", "finite")
    homes, owners = (np.array([str(name) for name in names], dtype=np.str_) for names in (worlds, sites))
    for field, names in (("worlds", homes), ("sites", owners)):
        require(len(names) == len(rows), field, f"{len(names)} of them", f"one for each of {len(rows)} rows")
    return rows, homes, owners


def _library(method: Method) -> ModuleType:
    """Import the library of the method, if it is installed."""
    try:
        with warnings.catch_warnings():
            # UMAP says on import that it would like to have Tensorflow.
            warnings.simplefilter("ignore", ImportWarning)
            return import_module(HOMES[method])
    except ModuleNotFoundError as error:
        raise InvalidValue(
            f'method = "{method}" needs {error.name}, which is not installed: pip install tacit[maps]'
        ) from error


def _embedder(method: Method, library: ModuleType, rows: Array, seed: int) -> Embedder:
    """Return the embedding method: it starts from the two main axes and not from chance."""
    flat = np.zeros((len(rows), 2))
    flat[:, : min(2, rows.shape[1])] = rows[:, :2]
    flat /= max(float(flat[:, 0].std()), 1e-300)
    if method == "umap":
        nearest = min(NEAREST, len(rows) - 1)
        # More neighbors than a round has models, and spread out: paths should be visible, not rounds alone.
        made = library.UMAP(n_neighbors=nearest, min_dist=0.5, init=10 * flat, random_state=seed, n_jobs=1)
    else:
        perplexity = min(PERPLEXITY, (len(rows) - 1) / 3)
        made = library.TSNE(perplexity=perplexity, init=1e-4 * flat, random_state=seed)
    return cast("Embedder", made)


def _identifiability_title(rows: Array, homes: Words, owners: Words, method: Method) -> str:
    """Return a title with the share of sites whose world their weights identify, if that can be told."""
    worlds = in_order(homes)
    known = len(worlds) > 1 and all(len(set(owners[homes == world])) > 1 for world in worlds)
    if not known:
        return f"{len(rows)} models of {len(set(owners))} sites by {NAMES[method]}"
    share, guessed = silo_identifiability(rows, homes.tolist(), owners.tolist()), max(Counter(homes).values())
    told = f"Weights give the world of a site away in {100 * share:.0f} % of cases"
    return f"{told} (guessing: {100 * guessed / len(rows):.0f} %)"


def _note(shapes: "dict[str, str]", provenance: str, method: Method) -> str:
    """Return a note on the source of weights, and the meaning of shapes."""
    told = [f"{SHAPES[shape]}: {world}" for world, shape in shapes.items()]
    # The share in the title is of distances between weights, which no map in two dimensions keeps.
    places = f"Places: {NAMES[method]} of the weights, without a unit; shares are computed from the weights"
    return footnote(provenance, *told, "Lines join models of one site", places)


def _paths(axes: Axes, places: Array, taken: Array, owners: Words, shared: str) -> None:
    """Join the models of one site in the order of their steps; the shared one in black, on top."""
    for owner in in_order(owners):
        mine = np.flatnonzero(owners == owner)
        across, up = places[mine[np.argsort(taken[mine], kind="stable")]].T
        if owner != shared:
            axes.plot(across, up, color=PALE, linewidth=0.5, zorder=0.5)
            continue
        halo = [withStroke(linewidth=3.2, foreground="white")]
        axes.plot(across, up, color="black", linewidth=1.5, zorder=3, path_effects=halo)
        axes.plot(across, up, color="black", marker="o", markersize=2.5, linestyle="none", zorder=3)


def _ends(places: Array, taken: Array, homes: Words, owners: Words, shared: str) -> dict[str, Array]:
    """Return the median end point of each world, and of the shared model, by name."""
    last = np.array([taken[place] == taken[owners == owner].max() for place, owner in enumerate(owners)])
    own = owners != shared
    groups = {world: last & (homes == world) & own for world in in_order(homes[own])}
    groups |= {shared: last & ~own} if shared in owners else {}
    return {name: np.median(places[mine], axis=0) for name, mine in groups.items()}
