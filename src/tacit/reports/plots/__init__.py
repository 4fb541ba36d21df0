"""Primitives that every figure is made of: lines with labels, bands, rows of dots, panels, cells, words.

A primitive draws arrays and knows how they look. It knows no run, no record and no workload.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from matplotlib.text import Annotation
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation, Transform
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidValue, require
from tacit.reports.plots.style import (
    BODY,
    INCH,
    INK,
    LINE,
    PALETTE,
    SMALL,
    Label,
    Picture,
    colour,
    format_tick,
    ink,
    lay_out,
    picture_of,
    spread,
    tidy,
    width,
)
from tacit.runtime.arrays import Array

if TYPE_CHECKING:
    import pandas as pd

# Coordinates of words: data, or in one direction the share of the axes.
Frame = Literal["data", "row", "column", "axes"]

# Ticks at the same round numbers on every scale.
ROUND = (1, 2, 2.5, 5, 10)
# Linear ticks that are nearer, as a part of the axis, would run into each other; and the number of letters
# that fit along a logarithmic axis as wide as a figure.
CLOSE, LETTERS = 0.07, 60
# Points between a dot and its name.
BESIDE = 6.0
FEW = f"at most {len(PALETTE)}, so that colors differ"


# Words


def write(
    axes: Axes,
    words: str,
    at: tuple[float, float],
    aside: tuple[float, float] = (0, 0),
    frame: Frame = "data",
    **look: Any,
) -> Annotation:
    """Write literal text beside a point.

    Args:
        axes: Axes to write in.
        words: Text to write; never taken for a formula.
        at: The place.
        aside: Distance of the words from it, in points.
        frame: Coordinates of the place: `row` is a height of the data and a share of the width, `column` the
            other way round.
        look: Color, size, alignment and so on, as Matplotlib names them; in the middle of the place if not
            given.
    """
    frames = {
        "data": axes.transData,
        "row": axes.get_yaxis_transform(),
        "column": axes.get_xaxis_transform(),
        "axes": axes.transAxes,
    }
    usual: dict[str, Any] = {"fontsize": BODY, "color": INK, "ha": "center", "va": "center"}
    return axes.annotate(
        words, at, xycoords=frames[frame], xytext=aside, textcoords="offset points", parse_math=False,
        annotation_clip=False, **(usual | look),
    )  # fmt: skip


def write_asides(
    axes: Axes, words: Sequence[str], colours: str | Sequence[str] = INK, gap: float = 10, size: float = BODY
) -> None:
    """Write words to the right of rows, the first row first."""
    shades = [colours] * len(words) if isinstance(colours, str) else colours
    for row, (line, shade) in enumerate(zip(words, shades, strict=True)):
        write(
            axes, line, (1, row), (gap, 0), "row", ha="left", va="center_baseline", color=shade, fontsize=size
        )


def write_apart(axes: Axes, spots: Sequence[Label], across: Sequence[float], **look: Any) -> None:
    """Write the names of dots beside them, on a free side, without overlaps.

    Args:
        axes: They have their limits, and the figure its other words.
        spots: The height, name and color of each dot.
        across: Place of each dot along the axis (dots,).
        look: Style of the words, in Matplotlib's names.
    """
    figure = lay_out(axes)
    size = INCH / figure.dpi
    left, low, right, high = (edge * size for edge in axes.get_window_extent().extents)
    heights = [spot.height for spot in spots]
    places: Array = axes.transData.transform(np.column_stack([across, heights])) * size
    wide = np.array([width(figure, spot.words, BODY) + 2 * BESIDE for spot in spots])
    before = _sides(places, wide, (left, right))
    starts = np.where(before, places[:, 0] - wide, places[:, 0])
    for group in _crowds(starts, starts + wide):
        order = sorted(group, key=lambda place: places[place, 1])
        own = places[order, 1]
        shifts = spread(own, BODY * LINE, low, high) - own
        for place, shift in zip(order, shifts.tolist(), strict=True):
            at, side = (across[place], heights[place]), "right" if before[place] else "left"
            aside = (-BESIDE if before[place] else BESIDE, shift)
            words = write(
                axes, spots[place].words, at, aside, ha=side, color=ink(spots[place].colour), **look
            )
            # It is inside already, and must not move its own reference.
            words.set_in_layout(False)


def _sides(places: Array, wide: Array, ends: tuple[float, float]) -> NDArray[np.bool_]:
    """Choose the names to the left: those at the right end, or beside other dots."""
    across, up = places.T
    apart = np.abs(up[:, None] - up) < BODY * LINE
    steps = across - across[:, None]
    after = (apart & (steps > 0) & (steps < wide[:, None])).sum(axis=1)
    ahead = (apart & (steps < 0) & (-steps < wide[:, None])).sum(axis=1)
    beyond, room = across + wide > ends[1], across - wide > ends[0]
    return room & (beyond | (ahead < after))


def _crowds(starts: Array, ends: Array) -> list[list[int]]:
    """Group names that could be on one another, since they share a part of the axis."""
    crowds: list[list[int]] = []
    reach = -np.inf
    for place in np.argsort(starts, kind="stable").tolist():
        if starts[place] >= reach:
            crowds.append([])
        crowds[-1].append(place)
        reach = max(reach, float(ends[place]))
    return crowds


def footnote(*sentences: str) -> str:
    """Join sentences into one line; empty ones are left out."""
    return " ".join(f"{words.rstrip('.')}." for words in sentences if words)


# Lines, bands and bars


def translate(axes: Axes, across: float = 0.0, up: float = 0.0) -> Transform:
    """Return the transform of the data, moved by `across` and `up` points."""
    return axes.transData + ScaledTranslation(across / INCH, up / INCH, picture_of(axes).dpi_scale_trans)


def line(
    axes: Axes, across: ArrayLike, up: Array | Sequence[float], shade: str, words: str = "", **look: Any
) -> Label:
    """Draw a line, or a dot for a single place; its label is at its last height.

    Args:
        axes: Axes to draw in.
        across: Places along the axis, ascending.
        up: Heights.
        shade: The color.
        words: The label.
        look: Width, dashes and so on, as Matplotlib names them.
    """
    usual: dict[str, Any] = {
        "color": shade,
        "linewidth": 1.4,
        "marker": "o" if len(up) == 1 else "None",
        "markersize": 4,
    }
    axes.plot(across, up, **(usual | look))
    return Label(float(up[-1]), words, shade)


def band(axes: Axes, across: ArrayLike, low: ArrayLike, high: ArrayLike, shade: str, **look: Any) -> None:
    """Shade the area between two lines."""
    usual: dict[str, Any] = {"color": shade, "alpha": 0.15, "linewidth": 0}
    axes.fill_between(across, low, high, **(usual | look))


def score_lines(
    axes: Axes,
    rows: "pd.DataFrame",
    by: str,
    shown: str,
    *,
    shaded: bool = False,
    floor: float | None = None,
) -> list[Label]:
    """Draw `score` against a number, a line for each `method`, with bands or bars where there are intervals.

    Args:
        axes: Axes to draw in.
        rows: One for each point, in their order: `by`, `score`, `method` and perhaps `low` and `high`.
        by: The column that goes along the axis.
        shown: Format of numbers.
        shaded: Whether intervals are bands; else they are bars, and methods stand a little apart.
        floor: Points that are not above it, as far as their intervals tell, are hollow.
    """
    hollow: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 4, "mfc": "white"}
    labels, groups, barred = list[Label](), list(rows.groupby("method", sort=False)), "low" in rows
    for place, (method, own) in enumerate(groups):
        names = [name for name in (by, "score", "low", "high") if name in own]
        shade, points = colour(place), {name: column(own, name) for name in names}
        shift = 3.0 * (place - (len(groups) - 1) / 2) * (barred and not shaded)
        across, up, beside = points[by], points["score"], translate(axes, shift)
        words = f"{method} {shown.format(up[-1])}".strip()
        look: dict[str, Any] = {"linewidth": 1.5, "marker": "o", "transform": beside}
        labels.append(line(axes, across, up, shade, words, **look))
        if barred and shaded:
            band(axes, across, points["low"], points["high"], shade)
        elif barred:
            axes.vlines(across, points["low"], points["high"], color=shade, linewidth=1.0, transform=beside)
        if floor is not None:
            vain = points["low" if barred else "score"] <= floor
            axes.plot(across[vain], up[vain], color=shade, **hollow, transform=beside)
    return labels


def mark_values(
    axes: Axes, values: Array, also: ArrayLike = (), *, log: bool, letters: int = LETTERS
) -> None:
    """Mark the values along an axis, or as many of them as fit.

    Args:
        axes: All plots are inside it already.
        values: Ascending, each once.
        also: Others that have to be inside; to the left of the lowest of all there is room for a word.
        log: Whether the axis is logarithmic.
        letters: Number of letters that fit along it.
    """
    if log:
        axes.set_xscale("log")
        low, high = (float(end) for end in np.nanquantile(np.append(values, also), (0, 1)))
        edge = (high / low) ** 0.04 if high > low else 2.0
        axes.set_xlim(low / edge ** (1 if low == values[0] else 4), high * edge)
        axes.xaxis.set_major_locator(FixedLocator(_with_room(values, max(np.log(high / low), 1e-9), letters)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        span = float(np.ptp(values)) or 1.0
        axes.set_xlim(float(values[0]) - 0.05 * span, float(values[-1]) + 0.05 * span)
        if len(values) == 1 or float(np.diff(values).min()) > CLOSE * span:
            axes.set_xticks(values.tolist())
        else:
            axes.xaxis.set_major_locator(MaxNLocator(8, steps=ROUND))
    axes.xaxis.set_major_formatter(FuncFormatter(_three_digits if log else format_tick))


def _with_room(values: Array, span: float, letters: int) -> list[float]:
    """Choose values whose labels do not overlap on a logarithmic axis."""
    kept: list[float] = []
    for value in values.tolist():
        needed = len(_three_digits(value)) + len(_three_digits(kept[-1])) if kept else 0
        if not kept or np.log(value / kept[-1]) > span * (needed / 2 + 1) / letters:
            kept.append(value)
    return kept


def _three_digits(value: float, place: int | None = None) -> str:
    """Format a number in three digits, for epsilons just below their budget."""
    return format_tick(float(f"{value:.3g}"))


def few_ticks(axes: Axes, most: int) -> None:
    """Mark both axes at `most` round numbers at most."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(most, steps=ROUND))


def reach(*parts: ArrayLike, share: float = 0.06, least: float = 0.01) -> tuple[float, float]:
    """Limits of an axis that holds all numbers, with a margin at either end."""
    every = np.concatenate([np.ravel(np.asarray(part, dtype=np.float64)) for part in parts])
    edge = share * max(float(np.ptp(every)), least)
    return float(every.min()) - edge, float(every.max()) + edge


# Rows of dots


def name_rows(axes: Axes, names: Sequence[str], *, above: float = 0.6, below: float = 0.4) -> None:
    """Give each name a row with a faint rule, the first on top, with margins `above` and `below`."""
    axes.set_ylim(len(names) - below, -above)
    axes.set_yticks(range(len(names)), list(names), parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def tint_rows(axes: Axes, shades: Iterable[str]) -> None:
    """Write the names of rows in these colors, darkened until they can be read."""
    for text, shade in zip(axes.get_yticklabels(), shades, strict=False):
        text.set_color(ink(shade))


def dots(
    axes: Axes,
    values: ArrayLike,
    heights: ArrayLike,
    shade: str,
    *,
    ends: tuple[ArrayLike, ArrayLike] | None = None,
    words: Sequence[str] = (),
    **look: Any,
) -> None:
    """Draw dots in rows, their intervals, and words above them.

    Args:
        axes: Its rows have their places.
        values: Places of the dots (dots,).
        heights: Their rows (dots,).
        shade: The color.
        ends: The lower and the upper ends of intervals (dots,).
        words: Words above each dot.
        look: Style of the dots, in Matplotlib's names.
    """
    if ends is not None:
        axes.hlines(heights, *ends, color=shade, linewidth=1.2)
    usual: dict[str, Any] = {"color": shade, "marker": "o", "markersize": 4.5, "linestyle": "none"}
    axes.plot(values, heights, **(usual | look))
    places = zip(np.ravel(values), np.ravel(heights), words, strict=False)
    for value, height, number in places:
        write(
            axes, number, (float(value), float(height)), (0, 3), va="bottom", color=ink(shade), fontsize=SMALL
        )


# Panels and cells


@dataclass(frozen=True, eq=False)
class Panel:
    """One of several axes, and whether none is below it or to its left."""

    axes: Axes
    bottom: bool
    left: bool

    def frame(self, words: str, along: str, up: str) -> None:
        """Name it above, and its axes where no other panel does."""
        tidy(self.axes, along if self.bottom else "", up if self.left else "")
        self.axes.tick_params(labelleft=self.left, labelbottom=self.bottom)
        head(self.axes, words)


def head(axes: Axes, words: str, colour: str = INK) -> None:
    """Write the title of a panel above its left end."""
    axes.set_title(words, loc="left", fontsize=BODY, color=colour, pad=3, parse_math=False)


def panels(figure: Picture, count: int, across: int) -> list[Panel]:
    """Make `count` panels with shared axes, `across` of them side by side."""
    down = -(-count // across)
    grid = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    found: list[Panel] = []
    for place, axes in enumerate(grid.flat):
        axes.set_visible(place < count)
        last = place // across == down - 1
        found.append(Panel(axes, bottom=place + across >= count, left=place % across == 0))
        # Above an empty place, words hang into it: rows need not move apart for them.
        axes.xaxis.set_in_layout(last or not found[-1].bottom)
    return found[:count]


def cells(axes: Axes, image: NDArray[np.float64], first: float, wide: float = 1.0, **look: Any) -> AxesImage:
    """Fill a cell for each row and round, as one image: rows below each other, the first round first.

    Args:
        axes: It loses its frame and its rules.
        image: A number or a color for each cell (rows, columns) or (rows, columns, 4).
        first: The first round.
        wide: Number of rounds in a column.
        look: Color map, in Matplotlib's names.
    """
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(axis="y", length=0)
    rows, columns = image.shape[:2]
    extent = (first - 0.5, first - 0.5 + wide * columns, rows - 0.5, -0.5)
    return axes.imshow(image, aspect="auto", interpolation="nearest", extent=extent, **look)  # pyright: ignore[reportArgumentType]


# Tables


def read_table(
    table: "pd.DataFrame | Mapping[str, object]",
    needed: Sequence[str],
    numbers: Sequence[str],
    allowed: str = "finite in every row",
) -> "pd.DataFrame":
    """Read a table with required columns; rows without a `method` share one without a name.

    Args:
        table: Of any kind that pandas reads.
        needed: The columns that it must have.
        numbers: Columns that must be finite, if they are there.
        allowed: Description of the allowed numbers.
    """
    import pandas as pd

    rows = pd.DataFrame(table)
    missing = [name for name in needed if name not in rows]
    if missing:
        raise InvalidValue(f"table has no column {', '.join(missing)}: it must have {', '.join(needed)}")
    require(len(rows) > 0, "table", "no row", "at least one row")
    for name in [name for name in numbers if name in rows]:
        wrong = column(rows, name)[~np.isfinite(column(rows, name))]
        require(len(wrong) == 0, name, wrong[:3].tolist(), allowed)
    return rows.assign(method=rows["method"].astype(str) if "method" in rows else "")


def column(rows: "pd.DataFrame", name: str) -> Array:
    """Return a column as doubles."""
    return rows[name].to_numpy(dtype=np.float64)


def in_order(names: Iterable[object], last: Collection[str] = ()) -> list[str]:
    """List every name once, in order, with the names in `last` at the end."""
    found = list(dict.fromkeys(str(name) for name in names))
    return [name for name in found if name not in last] + [name for name in found if name in last]


def require_few(field: str, names: list[str]) -> list[str]:
    """Return the names, unless they are more than there are colors."""
    require(len(names) <= len(PALETTE), field, f"{len(names)} of them", FEW)
    return names
