"""What features do to risk, drawn: a row for each, the strongest on top, as a tornado.

Hazard ratios are on a log axis, changes of a chance in percentage points. Of several models each has a dot in
a row, in a colour of its own.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from tacit.reports.page.blocks import Figure
from tacit.reports.plots.style import (
    BODY,
    GREY,
    INCH,
    INK,
    ROW,
    RULE,
    Picture,
    colour,
    format_tick,
    ink,
    picture,
    tidy,
)
from tacit.survival.figures import MODELLED
from tacit.survival.figures.agreement import ratio_marks
from tacit.survival.partial_effects import TRIED, Effects

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# More rows than these are no longer read.
ROWS = 12
# The least that an axis reaches from its middle: a hazard ratio of 1.05, or a percentage point.
LEAST_RATIO, LEAST_POINTS = 1.05, 1.0
MINUS = "\N{MINUS SIGN}"

# What becomes of the people of each change, by one model.
Rows = list[tuple[float, ...]]


def tornado(found: Sequence[Effects], *, person: str, features: int, models: int, linear: bool) -> Figure:
    """Draw what features do, by one model or by the first ones of several.

    Args:
        found: What each model says of the same changes; chances are of one time.
        person: Who the typical person is, in words.
        features: How many features there are.
        models: How many models there are, drawn or not.
        linear: Whether a step less does the inverse of a step more, and need not be drawn.
    """
    first, sides = found[0], 1 if linear or len(found) > 1 else 2
    strengths = np.array([one.strengths for one in found])
    order: list[int] = np.argsort(-strengths.max(axis=0), kind="stable")[:ROWS].tolist()
    names = [first.changes[place].words(sides) for place in order]
    drawn: list[Rows] = [[one.found[place][:sides] for place in order] for one in found]
    note = [f"{MODELLED}. {person}.", *_legend(drawn, first, features, models)]
    most = int(strengths[:, order[0]].argmax())
    whose = f" by model {most + 1}" * (models > 1)
    title = _title(names[0], f"{_asides(drawn[most][0], first)}{whose}", first)
    figure = picture(0.75 + ROW * len(names), title, " ".join(note))
    axes = figure.add_subplot()
    _axis(axes, names, drawn, first)
    for place, rows in enumerate(drawn):
        _dots(axes, rows, first, colour(place), (place - (len(drawn) - 1) / 2) * 0.16)
    asides = [_asides(row, first) for row in drawn[0]] if models == 1 else []
    _beside(figure, axes, asides or [f"model {place + 1}" for place in range(len(drawn))], named=not asides)
    told = [f"{name}: {_asides(row, first)}" for name, row in zip(names, drawn[0], strict=True)]
    first_of = f", by model 1 of {models}" * (models > 1)
    words = f"{_measure(first)}{first_of}, the strongest first. {'; '.join(told)}."
    return Figure("feature-effects", figure, words)


def _measure(found: Effects) -> str:
    """What is on the axis, in words."""
    if found.when is None:
        return "Hazard ratio of a step in one feature"
    return f"Change of the chance of an event until {found.when:.4g}, in percentage points"


def _title(name: str, most: str, found: Effects) -> str:
    """What is seen: the feature that does most, and how much that is."""
    if found.when is None:
        return f"Hazard ratios: {name} is the farthest from 1 ({most})"
    return f"{name} changes the chance of an event until {found.when:.4g} most ({most} points)"


def _legend(drawn: Sequence[Rows], found: Effects, features: int, models: int) -> list[str]:
    """How dots are read, and what is left out."""
    both = any(len(row) > 1 for row in drawn[0])
    shown, tried = len(drawn[0]), f"the first {TRIED} of " * (features > TRIED)
    sentences = {
        f"A typical person's chance is {100 * found.chance:.0f} %.": found.when is not None and models == 1,
        "Filled dots: a step more, or another level. Hollow: a step less.": both,
        f"{len(drawn)} of {models} models, the first.": models > len(drawn),
        f"{shown} of {tried}{features} features, the strongest.": len(found.changes) > shown,
    }
    return [words for words, wanted in sentences.items() if wanted]


def _axis(axes: "Axes", names: Sequence[str], drawn: Sequence[Rows], found: Effects) -> None:
    """A row for each name, and an axis that holds every dot."""
    values = np.array([value for rows in drawn for row in rows for value in row])
    if found.when is None:
        tidy(axes, f"{_measure(found)}, log scale", "")
        least = float(np.log(LEAST_RATIO))
        low, high = min(float(np.log(values.min())), -least), max(float(np.log(values.max())), least)
        edge = 0.06 * (high - low)
        axes.set_xscale("log")
        axes.set_xlim(float(np.exp(low - edge)), float(np.exp(high + edge)))
        axes.xaxis.set_major_locator(FixedLocator(ratio_marks(low, high)))
        axes.xaxis.set_major_formatter(FuncFormatter(format_tick))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        tidy(axes, _measure(found), "")
        low = min(100 * float(values.min()), -LEAST_POINTS)
        high = max(100 * float(values.max()), LEAST_POINTS)
        edge = 0.06 * (high - low)
        axes.set_xlim(low - edge, high + edge)
        axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
    axes.grid(visible=False)
    axes.axvline(_middle(found), color=GREY, linewidth=0.9)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _middle(found: Effects) -> float:
    """Where nothing changes."""
    return 1.0 if found.when is None else 0.0


def _dots(axes: "Axes", rows: Rows, found: Effects, shade: str, shift: float) -> None:
    """Draw dots, filled and hollow, each joined with the middle."""
    unit, middle = 1.0 if found.when is None else 100.0, _middle(found)
    for side, fill in enumerate((shade, "white")):
        known = [(place, unit * row[side]) for place, row in enumerate(rows) if len(row) > side]
        if not known:
            continue
        heights, values = (np.array(part, dtype=np.float64) for part in zip(*known, strict=True))
        axes.hlines(heights + shift, middle, values, color=shade, linewidth=1.2 if side == 0 else 0.8)
        axes.plot(
            values, heights + shift, color=shade, marker="o", markersize=4.5, mfc=fill, linestyle="none"
        )


def _asides(row: tuple[float, ...], found: Effects) -> str:
    """The numbers of a row as text."""
    if found.when is None:
        return ", ".join(f"{value:.2f}" if value < 100 else f"{value:.2g}" for value in row)
    return ", ".join(f"{100 * value:+.1f}".replace("-", MINUS) for value in row)


def _beside(figure: Picture, axes: "Axes", words: Sequence[str], *, named: bool) -> None:
    """Write to the right of the rows: their numbers, or which model has which colour."""
    beside = axes.get_yaxis_transform() + ScaledTranslation(10 / INCH, 0, figure.dpi_scale_trans)
    for place, line in enumerate(words):
        shade = ink(colour(place)) if named else INK
        axes.text(1, place, line, fontsize=BODY, color=shade, va="center_baseline", transform=beside)
        if not named:
            axes.axhline(place, color=RULE, linewidth=0.5, zorder=0)
