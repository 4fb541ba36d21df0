"""Coefficient surfaces, drawn: what the response at t owes to a predictor at s.

Orange adds and blue takes away; white is nothing. Surfaces that share a figure share a scale of colours, so
that a predictor that matters little looks pale. What is drawn has left the parties already.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidValue, require
from tacit.reports.plots.style import (
    BODY,
    GREY,
    INK,
    PALETTE,
    Picture,
    format_time,
    picture,
    save_figure,
    shorten_label,
    tidy,
)

Array = NDArray[np.float64]

MODELLED = "estimated by a model: see the statement of its run"
SHADES = LinearSegmentedColormap.from_list(
    "blue-white-orange", ["#00345a", PALETTE[0], "#ffffff", PALETTE[1], "#6b2f00"]
)
ACROSS = 4
# In inches: the height of a panel that is alone, the width of all panels, and the greatest height of one.
ALONE, PANELS, TALLEST = 3.0, 4.9, 1.9
LINES = 8
# So many fit side by side above all panels.
LETTERS = 76
NOTE = "s: time of the predictor. t: time of the response. Lines: equal values."


def surface(
    beta: ArrayLike,
    s: ArrayLike,
    t: ArrayLike,
    *,
    name: str = "",
    truth: ArrayLike | None = None,
    unit: str | None = None,
    title: str | None = None,
    provenance: str = MODELLED,
    path: str | Path | None = None,
) -> Picture:
    """Draw one coefficient surface beta(s, t), beside the true one if that is known.

    Args:
        beta: Its values, the predictor's times first (s, t).
        s: The predictor's times, ascending.
        t: The response's times, ascending.
        name: Of the predictor.
        truth: The true surface, where it is known (s, t).
        unit: Of both times, such as `hours`.
        title: What is seen; if not said, where the surface is farthest from 0.
        provenance: Where the numbers come from.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    across, up = _times("s", s), _times("t", t)
    shown = {"": _values(name or "beta", beta, across, up)}
    if truth is not None:
        shown = {"estimated": shown[""], "true": _values("truth", truth, across, up)}
    told = title or _farthest(name, next(iter(shown.values())), across, up, unit)
    figure = picture(ALONE if truth is None else 2.7, told, f"{provenance}. {NOTE}")
    panels = figure.subplots(1, len(shown), sharex=True, sharey=True, squeeze=False)
    meshes = [
        _panel(axes, across, up, values, _top(shown.values()), words)
        for axes, (words, values) in zip(panels[0], shown.items(), strict=True)
    ]
    _finish(figure, panels.tolist(), meshes[0], unit)
    return save_figure(figure, path)


def surfaces(
    betas: Mapping[str, ArrayLike],
    s: ArrayLike,
    t: ArrayLike,
    *,
    truth: Mapping[str, ArrayLike] | None = None,
    unit: str | None = None,
    title: str | None = None,
    provenance: str = MODELLED,
    path: str | Path | None = None,
) -> Picture:
    """Draw the surfaces of several predictors on one scale, the true ones below them if these are known.

    Args:
        betas: The values of each, the predictor's times first (s, t).
        s: The predictors' times, ascending.
        t: The response's times, ascending.
        truth: The true surface of each, where they are known.
        unit: Of both times, such as `hours`.
        title: What is seen; if not said, the largest of them and its predictor.
        provenance: Where the numbers come from.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require(bool(betas), "betas", "none", "the surface of at least one predictor")
    across, up = _times("s", s), _times("t", t)
    found = {name: _values(name, values, across, up) for name, values in betas.items()}
    true = _true(found, truth, across, up)
    kinds = 1 if true is None else 2
    bands = -(-len(found) // ACROSS)
    # As even as can be: five are three and two.
    wide = -(-len(found) // bands)
    height = 0.35 + (min(PANELS / wide, TALLEST) + 0.2) * bands * kinds
    figure = picture(height, title or _largest(found), f"{provenance}. {NOTE}")
    grid = figure.subplots(bands * kinds, wide, sharex=True, sharey=True, squeeze=False)
    top = _top([*found.values(), *(true or {}).values()])
    meshes: list[QuadMesh] = []
    for place, (name, values) in enumerate(found.items()):
        pair = {"": values} if true is None else {", estimated": values, ", true": true[name]}
        for kind, (ending, own) in enumerate(pair.items()):
            words = shorten_label(name, LETTERS // wide - max(map(len, pair))) + ending
            axes = grid[place // wide * kinds + kind, place % wide]
            meshes.append(_panel(axes, across, up, own, top, words, ticks=3))
            axes.tick_params(labelbottom=place + wide >= len(found) and kind == kinds - 1)
    for place in range(len(found), bands * wide):
        for kind in range(kinds):
            grid[place // wide * kinds + kind, place % wide].set_visible(False)
    _finish(figure, grid.tolist(), meshes[0], unit)
    return save_figure(figure, path)


def _times(field: str, given: ArrayLike) -> Array:
    found = np.asarray(given, dtype=np.float64)
    rising = found.ndim == 1 and len(found) > 1 and bool((np.diff(found) > 0).all())
    require(rising and bool(np.isfinite(found).all()), field, found.tolist(), "at least two, ascending")
    return found


def _values(name: str, given: ArrayLike, s: Array, t: Array) -> Array:
    found, wanted = np.asarray(given, dtype=np.float64), (len(s), len(t))
    allowed = f"of shape {wanted}, as s and t are long"
    require(found.shape == wanted, f"surface of {name}", f"shape {found.shape}", allowed)
    require(bool(np.isfinite(found).all()), f"surface of {name}", "NaN or infinity", "finite")
    return found


def _true(
    found: Mapping[str, Array], truth: Mapping[str, ArrayLike] | None, s: Array, t: Array
) -> dict[str, Array] | None:
    if truth is None:
        return None
    missing = [name for name in found if name not in truth]
    if missing:
        raise InvalidValue(
            f"truth has no surface of {', '.join(missing)}: it must have one for each of betas"
        )
    return {name: _values(f"{name} in truth", truth[name], s, t) for name in found}


def _top(shown: Iterable[Array]) -> float:
    """The end of the scale: what is farthest from 0."""
    return max(float(np.abs(values).max()) for values in shown) or 1.0


def _farthest(name: str, values: Array, s: Array, t: Array, unit: str | None) -> str:
    """Where a surface is farthest from 0."""
    row, column = (int(place) for place in np.unravel_index(np.abs(values).argmax(), values.shape))
    what = f"Effect of {name}" if name else "Effect"
    if values[row, column] == 0:
        return f"{what}: none"
    where = f"s = {format_time(float(s[row]), unit)}, t = {format_time(float(t[column]), unit)}"
    return f"{what}: farthest from 0 at {where} ({values[row, column]:.2g})"


def _largest(found: Mapping[str, Array]) -> str:
    """Which of several surfaces is farthest from 0."""
    tops = {name: float(np.abs(values).max()) for name, values in found.items()}
    first = max(tops, key=lambda name: tops[name])
    if len(tops) == 1:
        return f"Effect of {first}: at most {tops[first]:.2g} from 0"
    return f"Effects of {len(tops)} predictors: {first} is the farthest from 0 ({tops[first]:.2g})"


def _panel(axes: Axes, s: Array, t: Array, values: Array, top: float, words: str, ticks: int = 5) -> QuadMesh:
    """Draw one surface, and lines of equal values."""
    tidy(axes, "", "")
    axes.grid(visible=False)
    mesh = axes.pcolormesh(
        s, t, values.T, cmap=SHADES, vmin=-top, vmax=top, shading="gouraud", rasterized=True
    )
    levels = [level for level in MaxNLocator(LINES).tick_values(-top, top) if level != 0]
    if float(np.ptp(values)) > 0 and any(values.min() < level < values.max() for level in levels):
        lines = axes.contour(
            s, t, values.T, levels=levels, colors=INK, linewidths=0.4, alpha=0.5, linestyles="solid"
        )
        # The ground they are drawn on stays light, whatever a page is like.
        lines.set_gid("as-drawn")
    axes.set(xlim=(s[0], s[-1]), ylim=(t[0], t[-1]))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 2.5, 5, 10]))
    axes.set_title(shorten_label(words), loc="left", fontsize=BODY, color=INK, pad=3, parse_math=False)
    return mesh


def _finish(figure: Picture, grid: Sequence[Sequence[Axes]], mesh: QuadMesh, unit: str | None) -> None:
    """Name both times at the edges, and put a scale of colours to the right of all panels."""
    for row, panels in enumerate(grid):
        for column, axes in enumerate(panels):
            below = row + 1 == len(grid) or not grid[row + 1][column].get_visible()
            axes.set_xlabel(_axis("s", unit) if below else "", fontsize=BODY, color=INK, parse_math=False)
        panels[0].set_ylabel(_axis("t", unit), fontsize=BODY, color=INK, parse_math=False)
    shown, long = [axes for panels in grid for axes in panels if axes.get_visible()], 18 * len(grid)
    bar = figure.colorbar(mesh, ax=shown, shrink=0.8, aspect=long, pad=0.02, ticks=MaxNLocator(6))
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=BODY, colors=GREY, labelcolor=INK, width=0.6, length=3)
    bar.set_label("beta(s, t)", fontsize=BODY, color=INK)


def _axis(letter: str, unit: str | None) -> str:
    return f"{letter} ({unit})" if unit else letter
