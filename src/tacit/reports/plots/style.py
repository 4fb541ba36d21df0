"""Style of all figures: colors for color-blind readers, names beside their lines, no frame.

Figures are plain objects: nothing here knows of windows, open figures or a global style, and nothing is left
behind. Every figure has a title with its result and a footnote with the source of its numbers. Text may come
from any source: it is drawn unchanged, never taken for formulas, and in letters that the font has.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import cast
from unicodedata import category, normalize

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.ft2font import FT2Font
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from scipy.optimize import isotonic_regression

from tacit.errors import require
from tacit.runtime.arrays import Array

# The colors of Okabe and Ito (2008), without yellow, which white paper swallows.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
INK, GREY, PALE, RULE = "#222222", "#5F5F5F", "#AAAAAA", "#DDDDDD"
TITLE, BODY, SMALL = 10.0, 8.0, 6.5
WIDTH = 6.5
KINDS = (".png", ".svg", ".pdf")
LONGEST = 28
DOTS_PER_INCH = 200
# Of text against white paper, by the accessibility guidelines of the web.
CONTRAST = 4.5
# Height of a line in font sizes; points in an inch.
LINE, INCH = 1.3, 72.0
# A row of a table, in inches.
ROW = BODY * LINE * LINE / INCH
MARGIN = 0.06
# A label that moves by more points than these is tied to its line.
NEAR = 2.0
# Below words that something could run through; an outline would turn them from text into shapes.
GROUND = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
# Of lines to compare with, one after the other.
GREY_DASHES = ("--", ":", "-.", "-")
# Replacement for letters that the font lacks; and the one invisible letter that is kept, because some scripts
# need it.
LACKING, APART = ("\N{REPLACEMENT CHARACTER}", "?"), "\N{ZERO WIDTH NON-JOINER}"


class Picture(Figure):
    """A figure that notebooks display."""

    def _repr_png_(self) -> bytes:
        drawn = BytesIO()
        self.savefig(drawn, format="png", dpi=DOTS_PER_INCH)
        return drawn.getvalue()


class FigureLayout(ConstrainedLayoutEngine):
    """Layout with room for all words, after replacing letters that cannot be drawn."""

    def execute(self, fig: Figure) -> None:
        """Lay out the figure."""
        for text in fig.findobj(Text):
            text.set_text(to_drawable(text.get_text()))
        super().execute(fig)


@dataclass(frozen=True)
class Label:
    """Words to the right of a line: at this height of the data, in the color of the line."""

    height: float
    words: str
    colour: str = GREY


def picture(height: float, title: str, note: str) -> Picture:
    """An empty figure of the common width, with a title above and a footnote below.

    Args:
        height: Of what is between them, in inches.
        title: The title, with the result.
        note: Source of the numbers.
    """
    layout = FigureLayout(w_pad=MARGIN, h_pad=MARGIN)
    figure = Picture(figsize=(WIDTH, height), facecolor="white", layout=layout)
    FigureCanvasAgg(figure)
    head, foot = wrap_text(figure, title, TITLE, "bold"), wrap_text(figure, note, SMALL)
    words = (TITLE * (1 + head.count("\n")) + SMALL * (1 + foot.count("\n"))) * LINE / INCH
    figure.set_size_inches(WIDTH, height + words)
    left, place = MARGIN / WIDTH, {"ha": "left", "parse_math": False}
    figure.suptitle(head, x=left, fontsize=TITLE, fontweight="bold", color=INK, **place)
    figure.supxlabel(foot, x=left, fontsize=SMALL, color=GREY, **place)
    return figure


def tidy(axes: Axes, across: str, up: str) -> None:
    """Name both axes; keep the two lines that are read, and faint lines to read heights by."""
    axes.set_facecolor("white")
    axes.spines[["top", "right"]].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set(color=GREY, linewidth=0.6)
    axes.grid(visible=True, axis="y", color=RULE, linewidth=0.5)
    axes.grid(visible=False, axis="x")
    axes.set_axisbelow(True)
    axes.tick_params(which="both", labelsize=BODY, colors=GREY, labelcolor=INK, width=0.6, length=3)
    axes.set_xlabel(to_drawable(across), fontsize=BODY, color=INK, parse_math=False)
    axes.set_ylabel(to_drawable(up), fontsize=BODY, color=INK, parse_math=False)


def tidy_bar(axes: Axes, words: str) -> None:
    """Name a scale of colors, and leave out its frame."""
    axes.spines[:].set_visible(False)
    axes.tick_params(labelsize=BODY, colors=GREY, labelcolor=INK, width=0.6, length=3)
    axes.set_ylabel(words, fontsize=BODY, color=INK)


def with_unit(words: str, unit: str | None) -> str:
    """Return the label of an axis, with its unit if that is known."""
    return f"{words} ({unit})" if unit else words


def round_axis(axes: Axes, first: int, last: int, edge: float | None = None) -> None:
    """Count rounds from the first to the last, in whole numbers.

    Args:
        axes: Rounds go across it.
        first: The first round.
        last: The last one.
        edge: Margin at either side, in rounds; by default a little.
    """
    room = max(0.02 * (last - first), 0.2) if edge is None else edge
    axes.set_xlim(first - room, last + room)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))


def label_lines(panels: Mapping[Axes, Sequence[Label]], gap: float = 5.0) -> None:
    """Write labels to the right of axes, each as near to its height as the others let it.

    Args:
        panels: The labels of each axes, in any order. The axes have their limits, and the figure its other
            words: both move what is at a height.
        gap: Between axes and words, in points.
    """
    figure = lay_out(next(iter(panels)))
    for axes, labels in panels.items():
        down = -1.0 if axes.yaxis_inverted() else 1.0
        order = sorted(labels, key=lambda label, down=down: down * label.height)
        if order:
            _label(axes, order, gap, INCH / figure.dpi)


def picture_of(axes: Axes) -> Figure:
    """The figure that axes are in."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def lay_out(axes: Axes) -> Figure:
    """Lay out the figure of these axes."""
    figure = picture_of(axes)
    layout = figure.get_layout_engine()
    assert layout is not None
    layout.execute(figure)
    return figure


def _label(axes: Axes, labels: Sequence[Label], gap: float, points: float) -> None:
    """Write labels, the lowest first; `points` is the size of a pixel in them."""
    box, left = axes.get_window_extent(), axes.get_xlim()[0]
    heights = axes.transData.transform([(left, label.height) for label in labels])[:, 1] * points
    shifts = spread(heights, BODY * LINE, box.y0 * points, box.y1 * points) - heights
    crowded = bool((np.abs(shifts) > NEAR).any())
    # From the middle of a label's left end, or it would run through the words of others.
    leader = {
        "arrowstyle": "-",
        "color": PALE,
        "linewidth": 0.5,
        "shrinkA": 1,
        "shrinkB": 0,
        "relpos": (0, 0.5),
    }
    for label, shift in zip(labels, shifts.tolist(), strict=True):
        axes.annotate(
            shorten_label(label.words),
            xy=(1, label.height),
            xycoords=axes.get_yaxis_transform(),
            xytext=(gap + 5 * crowded, shift),
            textcoords="offset points",
            color=ink(label.colour),
            fontsize=BODY,
            va="center",
            ha="left",
            parse_math=False,
            annotation_clip=False,
            arrowprops=leader if abs(shift) > NEAR else None,
        )


def levels(
    axes: Axes, known: Mapping[str, float], shown: Callable[[float], str] = "{:.3f}".format
) -> list[Label]:
    """Draw a level for each number to compare with; returns their labels."""
    for place, value in enumerate(known.values()):
        axes.axhline(value, color=GREY, linewidth=0.9, linestyle=GREY_DASHES[place % 4])
    return [Label(float(value), f"{name} {shown(value)}") for name, value in known.items()]


def spread(wanted: Array, apart: float, low: float, high: float) -> Array:
    """Return the nearest heights, by least squares, that ascend by at least `apart` within the ends.

    Args:
        wanted: Ascending (labels,).
        apart: The least distance of two.
        low: The lowest one, if all have room.
        high: The highest one, if all have room.
    """
    steps = apart * np.arange(len(wanted))
    level = np.asarray(isotonic_regression(wanted - steps).x, dtype=np.float64)
    return np.clip(level, low, max(low, high - steps[-1])) + steps


def colour(place: int) -> str:
    """The color of the line at this place; they repeat, with other dashes."""
    return PALETTE[place % len(PALETTE)]


def dashes(place: int) -> str:
    """The dashes of the line at this place."""
    return ("-", "--", ":", "-.")[place // len(PALETTE) % 4]


def ink(given: str) -> str:
    """Return a color for text: darkened until it contrasts with white paper."""
    red, green, blue = to_rgb(given)
    for share in np.linspace(1.0, 0.0, 51):
        found = (red * share, green * share, blue * share)
        if contrast(found) >= CONTRAST:
            return "#" + "".join(f"{round(255 * part):02x}" for part in found)
    return "#000000"


def contrast(given: tuple[float, float, float]) -> float:
    """Return the contrast of a color with white: 1 is white itself, 21 is black (WCAG 2.1)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in given]
    return 1.05 / (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)


def shorten_label(words: str, longest: int = LONGEST) -> str:
    """The words in one line, cut off where they are too long for a label."""
    line = to_drawable(" ".join(words.split()))
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"


def to_drawable(words: str) -> str:
    """Return the words in letters that the font has: a sign replaces every other.

    Signs that are not seen, such as those that turn the direction of writing, are left out. To show letters
    of more scripts, add fonts to matplotlib's `font.family`.
    """
    if words.isascii() and words.replace("\n", "").isprintable():
        return words
    # In bold, too.
    known = _common(_fonts("normal"), _fonts("bold"))
    lacking = next(sign for sign in LACKING if ord(sign) in known)
    seen = (
        letter
        for letter in normalize("NFC", words)
        if letter in (APART, "\n") or not (category(letter) == "Cf" or 0xFE00 <= ord(letter) <= 0xFE0F)
    )
    return "".join(letter if letter == "\n" or ord(letter) in known else lacking for letter in seen)


def _fonts(weight: str) -> tuple[str, ...]:
    """Return the files of the fonts that matplotlib draws in."""
    found: list[str] = []
    for family in FontProperties().get_family():
        with suppress(ValueError):
            font = FontProperties(family=family, weight=weight)
            found.append(str(fontManager.findfont(font, fallback_to_default=False)))
    return tuple(found or [str(fontManager.findfont(FontProperties(weight=weight)))])


@lru_cache(maxsize=8)
def _common(*weights: tuple[str, ...]) -> frozenset[int]:
    """Return the letters that fonts of all weights have."""
    first, *others = (
        frozenset[int]().union(*(FT2Font(font).get_charmap() for font in fonts)) for fonts in weights
    )
    return first.intersection(*others)


def format_tick(value: float, place: int | None = None) -> str:
    """A number as a tick shows it, without powers of ten; millions are written M."""
    return f"{value:g}" if abs(value) < 1e6 else f"{value / 1e6:g}M"


def format_time(time: float, unit: str | None) -> str:
    """A time with its unit, as text."""
    one = unit is not None and time == 1
    return f"{time:.4g} {unit.removesuffix('s') if one else unit}" if unit else f"{time:.4g}"


def format_p(p: float) -> str:
    """Format a p-value in words, without superfluous digits."""
    return "below 0.0001" if p < 0.0001 else "above 0.99" if p > 0.99 else f"{p:.2g}"


def credits(provenance: Mapping[str, str]) -> str:
    """Return the sources of numbers as a sentence; those from one source are named together."""
    places = {
        place: [name for name in provenance if provenance[name] == place] for place in provenance.values()
    }
    if len(places) == 1:
        return f"{next(iter(places))}."
    return " ".join(f"{', '.join(names)}: {place}." for place, names in places.items())


def wrap_text(figure: Figure, text: str, size: float, weight: str = "normal") -> str:
    """The text in lines that fit the figure's width; a word that is too long for it is broken."""
    most, lines = (WIDTH - 2 * MARGIN) * INCH, list[str]()

    def fitting(parts: Sequence[str], between: str) -> int:
        """Return the number of parts that fit a line, by bisection: measuring takes time."""
        return bisect_right(
            range(1, len(parts) + 1),
            most,
            key=lambda count: width(figure, between.join(parts[:count]), size, weight),
        )

    words = to_drawable(" ".join(text.split())).split()
    while words:
        if count := fitting(words, " "):
            lines.append(" ".join(words[:count]))
            words = words[count:]
        else:
            count = max(fitting(words[0], ""), 1)
            lines.append(words[0][:count])
            words[0] = words[0][count:]
    return "\n".join(lines)


def width(figure: Figure, line: str, size: float, weight: str = "normal") -> float:
    """Return the width of a line of text, in points."""
    canvas = cast("FigureCanvasAgg", figure.canvas)
    font = FontProperties(size=size, weight=weight)
    return (
        canvas.get_renderer().get_text_width_height_descent(to_drawable(line), font, ismath=False)[0]
        * INCH
        / figure.dpi
    )


def save_figure(figure: Picture, path: str | Path | None) -> Picture:
    """Save the figure to a file, if one is named; its suffix sets the format."""
    if path is None:
        return figure
    place = Path(path)
    require(place.suffix.lower() in KINDS, "path", str(path), f"a file that ends in {', '.join(KINDS)}")
    require(place.parent.is_dir(), "path", str(path), "in a folder that exists")
    # No date: the same figure drawn again is the same file.
    dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    figure.savefig(place, dpi=DOTS_PER_INCH, metadata=dated.get(place.suffix.lower()))
    return figure
