"""Weights as a map: models that are near one another are drawn so; and whether they tell a world.

A map keeps who is near whom; its axes have no unit, and how far apart groups are on it means little. It looks
at weights as they are: draw those that were released, or of worlds that are nobody's secret.
"""

import warnings
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Literal, Protocol, cast

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingTypeStubs]

from tacit.control.figures.tables import footnote, in_order, require_few, short_steps
from tacit.errors import InvalidValue, require, require_count, require_word
from tacit.reports.plots.style import (
    BODY,
    GREY,
    INCH,
    INK,
    LINE,
    PALE,
    Picture,
    picture,
    save_figure,
    shorten_label,
    spread,
    tidy,
)
from tacit.runtime.keys import Key

Array = NDArray[np.float64]
Words = NDArray[np.str_]
Method = Literal["t-sne", "umap", "pca"]

NAMES = {"t-sne": "t-SNE", "umap": "UMAP", "pca": "principal axes"}
HOMES = {"t-sne": "sklearn.manifold", "umap": "umap"}
SHARED = "global"
LOOKED = "weights of sites as they are: see the statement of the run"
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


class Embedder(Protocol):
    """What scikit-learn and umap-learn have in common."""

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
        sites: Whose each is.
        method: How models are placed: `t-sne` (scikit-learn), `umap` (umap-learn), or along their two main
            axes, `pca`, which is quick and keeps what is far apart so.
        key: Names the chance there is in placing; the same key gives the same map.
        shared: The site that stands for the model of all; its path is drawn in black.
        title: What is seen; if not said, how often weights give their world away.
        provenance: Where the weights come from.
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
        _note(shapes, provenance),
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
    _shades(figure.colorbar(ScalarMappable(scale, SHADES), ax=axes, fraction=0.025, pad=0.02).ax)
    _name(axes, _ends(places, taken, homes, owners, shared))
    return save_figure(figure, path)


def embed(weights: ArrayLike, *, method: Method = "t-sne", key: Key) -> Array:
    """Places in a plane (rows, 2), near one another where weights are; the same for the same key.

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
    """Coordinates of centred rows along their main axes (rows, at most so many), the widest first.

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
    """In what share of cases the world of a site is told by the nearest models of other sites.

    A model is never compared with others of its own site: these are near it whatever its world, and would
    make any site look as if it gave its world away. What guessing comes to is the share of the largest world.

    Args:
        weights: One row for each model (models, coordinates).
        worlds: In which world each was trained; each world has at least two sites.
        sites: Whose each is.
        neighbours: How many of the nearest vote; a tie goes to the nearest.
        shared: The site that stands for the model of all, which has no world and is left out.
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
    """Weights, worlds and sites as arrays, once they are found to be of the same models."""
    rows = np.asarray(weights, dtype=np.float64)
    require(rows.ndim == 2 and rows.size > 0, "weights", f"shape {rows.shape}", "a row for each model")
    require(bool(np.isfinite(rows).all()), "weights", "NaN or infinite", "finite")
    homes, owners = (np.array([str(name) for name in names], dtype=np.str_) for names in (worlds, sites))
    for field, names in (("worlds", homes), ("sites", owners)):
        require(len(names) == len(rows), field, f"{len(names)} of them", f"one for each of {len(rows)} rows")
    return rows, homes, owners


def _library(method: Method) -> ModuleType:
    """The library that knows the method, if it is installed."""
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
    """What places rows: it starts from their two main axes and not from chance."""
    flat = np.zeros((len(rows), 2))
    flat[:, : min(2, rows.shape[1])] = rows[:, :2]
    flat /= max(float(flat[:, 0].std()), 1e-300)
    if method == "umap":
        nearest = min(NEAREST, len(rows) - 1)
        # More neighbours than a round has models, and apart: paths are to be seen, and not rounds alone.
        made = library.UMAP(n_neighbors=nearest, min_dist=0.5, init=10 * flat, random_state=seed, n_jobs=1)
    else:
        perplexity = min(PERPLEXITY, (len(rows) - 1) / 3)
        made = library.TSNE(perplexity=perplexity, init=1e-4 * flat, random_state=seed)
    return cast("Embedder", made)


def _identifiability_title(rows: Array, homes: Words, owners: Words, method: Method) -> str:
    """How often weights give their world away, where that can be told from other sites."""
    worlds = in_order(homes)
    known = len(worlds) > 1 and all(len(set(owners[homes == world])) > 1 for world in worlds)
    if not known:
        return f"{len(rows)} models of {len(set(owners))} sites by {NAMES[method]}"
    share, guessed = silo_identifiability(rows, homes.tolist(), owners.tolist()), max(Counter(homes).values())
    told = f"Weights give the world of a site away in {100 * share:.0f} % of cases"
    return f"{told} (guessing: {100 * guessed / len(rows):.0f} %), {NAMES[method]}"


def _note(shapes: "dict[str, str]", provenance: str) -> str:
    """Where weights come from, and what shapes mean."""
    told = [f"{SHAPES[shape]}: {world}" for world, shape in shapes.items()]
    return footnote(provenance, ". ".join(told), "Lines join models of one site. Axes have no unit")


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


def _shades(axes: Axes) -> None:
    """Name the shades."""
    axes.tick_params(labelsize=BODY, colors=GREY, labelcolor=INK, width=0.6, length=3)
    axes.set_ylabel("Environment steps per site", fontsize=BODY, color=INK)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(short_steps))
    axes.spines[:].set_visible(False)


def _ends(
    places: Array, taken: Array, homes: Words, owners: Words, shared: str
) -> list[tuple[float, float, str]]:
    """Where each world, and the shared model, has come to, with its name; the lowest first."""
    last = np.array([taken[place] == taken[owners == owner].max() for place, owner in enumerate(owners)])
    groups = {
        world: last & (homes == world) & (owners != shared) for world in in_order(homes[owners != shared])
    }
    groups |= {shared: last & (owners == shared)} if shared in owners else {}
    spots = {name: np.median(places[mine], axis=0) for name, mine in groups.items()}
    return sorted(
        ((float(spot[0]), float(spot[1]), name) for name, spot in spots.items()), key=lambda one: one[1]
    )


def _name(axes: Axes, ends: Sequence[tuple[float, float, str]]) -> None:
    """Write names where they belong, apart from one another."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    layout = figure.get_layout_engine()
    assert layout is not None
    layout.execute(figure)
    box, points = axes.get_window_extent(), INCH / figure.dpi
    heights = axes.transData.transform([end[:2] for end in ends])[:, 1] * points
    shifts = spread(heights, BODY * LINE, box.y0 * points, box.y1 * points) - heights
    for (across, up, name), shift in zip(ends, shifts.tolist(), strict=True):
        axes.annotate(
            shorten_label(name), (across, up), xytext=(6, shift), textcoords="offset points", va="center",
            fontsize=BODY, fontweight="bold", color=INK, parse_math=False, zorder=4,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )  # fmt: skip
