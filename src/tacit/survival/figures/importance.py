"""Importance of features: hazard ratios of Cox regressions, and model weights per step in one feature.

A row for each feature; ratios are on a log axis, changes of a probability in percentage points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Polygon
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from scipy.stats import norm

from tacit.errors import InvalidValue, require, require_positive
from tacit.reports.page.blocks import Figure
from tacit.reports.plots import ROUND, dots, footnote, name_rows, reach, write_asides
from tacit.reports.plots.style import (
    BODY,
    GREY,
    INK,
    ROW,
    Picture,
    colour,
    credits,
    format_tick,
    ink,
    picture,
    picture_of,
    save_figure,
    shorten_label,
    tidy,
    width,
)
from tacit.runtime.arrays import Array
from tacit.survival.figures.curves import MODELLED
from tacit.survival.statistics.cox_fit import CoxFit

if TYPE_CHECKING:
    from tacit.survival.partial_effects import Effects

# Hazard ratios to mark on an axis, the finest set first.
RATIOS = (
    (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2),
    (0.5, 0.6, 0.7, 0.8, 1.0, 1.2, 1.5, 2.0),
    tuple(2.0**power for power in range(-6, 7)),
    tuple(4.0**power for power in range(-6, 7)),
    tuple(10.0**power for power in range(-12, 13, 2)),
)
MARKS = 7
# Log ratios that read 1.00, and the least that a reader tells from 1.
SAME_AS_ONE, SEEN = 0.005, 0.05
# More rows than these are no longer read.
ROWS = 12
# The least that an axis reaches from its middle: a difference of log hazards, or a percentage point.
LEAST_WEIGHT, LEAST_POINTS = 0.05, 1.0
# Clipping, noise and an early end each move the weights of a trained model away from the hazard ratios.
NO_ESTIMATE = (
    "Weights serve prediction and estimate no hazard ratio: the task cox "
    "(tacit.survival.statistics.cox) fits a linear model to interpret, with intervals"
)
MINUS = "\N{MINUS SIGN}"

# Effects on the people of each change, by one model.
Rows = list[tuple[float, ...]]


# Regressions


def forest(
    fits: Mapping[str, CoxFit] | CoxFit,
    *,
    pooled: str = "pooled",
    columns: Sequence[str] | None = None,
    units: Mapping[str, float] | None = None,
    title: str | None = None,
    path: str | Path | None = None,
) -> Picture:
    """Draw hazard ratios by site and pooled, on a log axis: squares as large as a fit is precise.

    `{name: cox(Federation({name: site.table})) for name, site in federation.items()}` and
    `{"pooled": cox(federation)}` together are such fits.

    Args:
        fits: Cox regressions by name; or one, which is then that of all sites.
        pooled: The fit of all sites, drawn as a diamond.
        columns: Columns to draw, in this order; by default every column of any fit.
        units: Step in each column that its ratio is for, as in `{"pgr": 100}`; by default 1, or the power of
            ten with which a ratio that reads 1.00 can be told from 1.
        title: The title; by default the number of pooled intervals that leave 1 out.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    fits = {pooled: fits} if isinstance(fits, CoxFit) else fits
    level = _require_fits(fits)
    names = list(dict.fromkeys(name for fit in fits.values() for name in fit.columns))
    for field, asked in (("columns", columns or ()), ("units", units or {})):
        for name in asked:
            if name not in names:
                raise InvalidValue(f"{field} = {name!r} is not allowed: no fit has it")
    for name, unit in (units or {}).items():
        require_positive(f"units {name}", unit)
    order = [name for name in fits if name != pooled] + [pooled] * (pooled in fits)
    chosen = {name: readable_unit(name, list(fits.values())) for name in names} | dict(units or {})
    rows = [row for name in columns or names for row in _rows(name, chosen[name], fits, order, pooled)]
    told = credits({name: fit.provenance for name, fit in fits.items()})
    figure = picture(0.75 + ROW * len(rows), title or _forest_title(rows, level), told)
    axes = figure.add_subplot()
    tidy(axes, f"Hazard ratio ({100 * level:g} % interval), log scale", "")
    _ratio_axis(axes, rows)
    for place, row in enumerate(rows):
        _row(axes, place, row)
    _names(axes, rows)
    return save_figure(figure, path)


@dataclass(frozen=True)
class Row:
    """A row of a forest: the name of a column, or the estimate of one fit.

    Args:
        words: Words to its left.
        kind: A heading, a site, or all sites.
        centre: The log hazard ratio.
        half: Half the width of its interval.
        weight: Its precision, at most 1.
        aside: Words to its right.
    """

    words: str
    kind: str
    centre: float = np.nan
    half: float = np.nan
    weight: float = 1.0
    aside: str = ""


def _require_fits(fits: Mapping[str, CoxFit]) -> float:
    require(bool(fits), "fits", "none", "at least one")
    for name, fit in fits.items():
        if not isinstance(fit, CoxFit):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidValue(f"fit {name} = {fit!r} is not allowed: it must be a Cox regression")
    levels = sorted({fit.level for fit in fits.values()})
    require(len(levels) == 1, "level", levels, "the same in all fits")
    return levels[0]


def readable_unit(column: str, fits: Sequence[CoxFit]) -> float:
    """Return the step in a column to state its ratio for: 1, or a power of ten if the ratio reads 1.00."""
    far = 0.0
    for fit in fits:
        if column in fit.columns:
            place, wide = fit.columns.index(column), float(norm.ppf(0.5 + fit.level / 2))
            far = max(far, abs(float(fit.coefficients[place])) + wide * float(fit.standard_errors[place]))
    if not 0 < far < SAME_AS_ONE:
        return 1.0
    return 10.0 ** float(np.ceil(np.log10(SEEN / far)))


def _rows(
    column: str, unit: float, fits: Mapping[str, CoxFit], order: Sequence[str], pooled: str
) -> list[Row]:
    """Draw a heading and a row for each fit with the column; no heading for a single fit."""
    named = column if unit == 1 else f"{column}, per {unit:g}"
    own = [name for name in order if column in fits[name].columns]
    places = [fits[name].columns.index(column) for name in own]
    pairs = list(zip(own, places, strict=True))
    centres = unit * np.array([fits[name].coefficients[place] for name, place in pairs])
    errors = unit * np.array([fits[name].standard_errors[place] for name, place in pairs])
    half = float(norm.ppf(0.5 + fits[own[0]].level / 2)) * errors
    sites = np.array([name != pooled for name in own])
    precision = errors.min(where=sites, initial=np.inf) ** 2 / errors**2
    alone = len(order) == 1
    rows = [
        Row(
            named if alone else name,
            "site" if one else "pooled",
            float(centre),
            float(wide),
            float(min(weight, 1.0)) if one else 1.0,
            f"{np.exp(centre):.2f} ({np.exp(centre - wide):.2f} to {np.exp(centre + wide):.2f})",
        )
        for name, one, centre, wide, weight in zip(own, sites, centres, half, precision, strict=True)
    ]
    heading = Row(named, "heading", aside=_spread(centres[sites], errors[sites]))
    return rows if alone else [heading, *rows]


def _spread(centres: Array, errors: Array) -> str:
    """Return I squared, the share of the spread between sites beyond chance (Higgins and Thompson 2002)."""
    if len(centres) < 2:
        return ""
    weights = 1 / errors**2
    chance = float(weights @ (centres - np.average(centres, weights=weights)) ** 2)
    excess = max(0.0, 1 - (len(centres) - 1) / chance) if chance > 0 else 0.0
    return f"I\N{SUPERSCRIPT TWO} {100 * excess:.0f} %"


def _forest_title(rows: Sequence[Row], level: float) -> str:
    """Return the title of the forest plot."""
    kinds = {row.kind for row in rows}
    judged = [row for row in rows if row.kind == ("pooled" if "pooled" in kinds else "site")]
    off = sum(abs(row.centre) > row.half for row in judged)
    what = "pooled hazard ratio" if "pooled" in kinds else "hazard ratio"
    return f"{off} of {len(judged)} {what}s: the {100 * level:g} % interval leaves out 1"


def _ratio_axis(axes: Axes, rows: Sequence[Row]) -> None:
    """Lay out a log axis that holds every ratio, and intervals unless they are far wider than most."""
    drawn = [row for row in rows if row.kind != "heading"]
    centres, halves = np.array([row.centre for row in drawn]), np.array([row.half for row in drawn])
    far = 3 * float(np.median(halves))
    low = min(float(np.max([(centres - halves).min(), centres.min() - far])), -0.05)
    high = max(float(np.min([(centres + halves).max(), centres.max() + far])), 0.05)
    mark_ratios(axes, low, high, share=0.04)


def mark_ratios(axes: Axes, low: float, high: float, share: float) -> None:
    """Let an axis go from one log ratio to another, on a log scale with a line at 1 and few marks."""
    edge = share * (high - low)
    axes.set_xscale("log")
    axes.set_xlim(float(np.exp(low - edge)), float(np.exp(high + edge)))
    axes.xaxis.set_major_locator(FixedLocator(ratio_marks(low, high)))
    axes.xaxis.set_major_formatter(FuncFormatter(format_tick))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.axvline(1, color=GREY, linewidth=0.9)


def ratio_marks(low: float, high: float) -> list[float]:
    """The ratios to mark between two log ratios: few, and over most of the way."""
    # The last set is coarse enough for any axis: powers of ten, few of them.
    every = int(np.ceil((high - low) / ((MARKS - 1) * np.log(10.0))))
    far = int(np.ceil(max(-low, high) / np.log(10.0)))
    coarse = [10.0**power for power in range(-every * (far // every), far + 1, every)]
    within = ([mark for mark in marks if low <= np.log(mark) <= high] for marks in (*RATIOS, coarse))
    sets = [marks for marks in within if 0 < len(marks) <= MARKS]
    shares = [float(np.log(marks[-1] / marks[0])) / (high - low) for marks in sets]
    return next(
        (marks for marks, share in zip(sets, shares, strict=True) if share > 0.6),
        sets[int(np.argmax(shares))],
    )


def _row(axes: Axes, place: int, row: Row) -> None:
    """Draw a square or a diamond, and arrows where an interval leaves the axes."""
    if row.kind == "heading":
        return
    low, high = axes.get_xlim()
    lower, middle, upper = (float(np.exp(row.centre + side * row.half)) for side in (-1, 0, 1))
    if row.kind == "pooled":
        corners = [(lower, place), (middle, place - 0.32), (upper, place), (middle, place + 0.32)]
        axes.add_patch(Polygon(corners, color=colour(1), linewidth=0))
        return
    axes.hlines(place, max(lower, low), min(upper, high), color=colour(0), linewidth=1.0)
    axes.scatter([middle], [place], s=6 + 40 * row.weight, marker="s", color=colour(0), linewidth=0, zorder=3)
    for end, mark, cut in ((low, "<", lower < low), (high, ">", upper > high)):
        if cut:
            axes.plot([end], [place], color=colour(0), marker=mark, markersize=4, clip_on=False)


def _names(axes: Axes, rows: Sequence[Row]) -> None:
    """Write names to the left and numbers to the right of the rows."""
    heading = [row.kind == "heading" for row in rows]
    indent = "    " * any(heading)
    words = [shorten_label(row.words) for row in rows]
    words = [line if bold else indent + line for line, bold in zip(words, heading, strict=True)]
    name_rows(axes, words)
    axes.grid(visible=False, axis="y")
    wide = max(width(picture_of(axes), line, BODY, "bold") for line in words)
    axes.tick_params(axis="y", pad=wide + 6)
    for row, text in zip(rows, axes.get_yticklabels(), strict=True):
        text.set(ha="left", fontweight="bold" if row.kind == "heading" else "normal")
        text.set_color(ink(colour(1)) if row.kind == "pooled" else INK)
    write_asides(axes, [row.aside for row in rows], [GREY if bold else INK for bold in heading])


# Models


def tornado(found: "Sequence[Effects]", *, person: str, features: str, models: int, linear: bool) -> Figure:
    """Draw the effects of features, by one model or by the first ones of several.

    Args:
        found: Effects of the same changes by each model; probabilities are at one time.
        person: Description of the typical person.
        features: Of how many features these are, in words.
        models: Number of models, drawn or not.
        linear: Whether a step less does the inverse of a step more, and need not be drawn.
    """
    first, sides = found[0], 1 if linear or len(found) > 1 else 2
    strengths = np.array([one.strengths for one in found])
    order: list[int] = np.argsort(-strengths.max(axis=0), kind="stable")[:ROWS].tolist()
    names = [first.changes[place].words(sides) for place in order]
    drawn: list[Rows] = [[one.found[place][:sides] for place in order] for one in found]
    note = footnote(MODELLED, person, *_legend(drawn, first, features, models), NO_ESTIMATE)
    most = int(strengths[:, order[0]].argmax())
    whose = f" by model {most + 1}" * (models > 1)
    title = _title(names[0], f"{_asides(drawn[most][0], first)}{whose}", first)
    figure = picture(0.75 + ROW * len(names), title, note)
    axes = figure.add_subplot()
    _axis(axes, names, drawn, first)
    for place, rows in enumerate(drawn):
        _draw(axes, rows, first, colour(place), (place - (len(drawn) - 1) / 2) * 0.16)
    # To the right of rows stand their numbers, or which model has which color.
    if models == 1:
        write_asides(axes, [_asides(row, first) for row in drawn[0]])
    else:
        shades = [colour(place) for place in range(len(drawn))]
        write_asides(axes, [f"model {place + 1}" for place in range(len(drawn))], list(map(ink, shades)))
        axes.grid(visible=False, axis="y")
    told = [f"{name}: {_asides(row, first)}" for name, row in zip(names, drawn[0], strict=True)]
    first_of = f", by model 1 of {models}" * (models > 1)
    words = f"{_measure(first)}{first_of}, the strongest first. {'; '.join(told)}."
    return Figure("feature-effects", figure, f"{words} {NO_ESTIMATE}")


def _measure(found: "Effects") -> str:
    """Return the axis label in words."""
    if found.when is None:
        return "Change of the model's log hazard by one step in one feature"
    return f"Change in the probability of an event by {found.when:.4g}, in percentage points"


def _title(name: str, most: str, found: "Effects") -> str:
    """Return a title that names the feature with the largest effect, and its effect."""
    if found.when is None:
        return f"Model weights per step: {name} has the largest ({most})"
    when = f"the chance of an event until {found.when:.4g}"
    return f"Model predictions: {name} changes {when} most ({most} points)"


def _legend(drawn: Sequence[Rows], found: "Effects", features: str, models: int) -> list[str]:
    """Explain the dots, and name features that are left out."""
    both = any(len(row) > 1 for row in drawn[0])
    return [
        f"A typical person's chance is {100 * found.chance:.0f} %" * (found.when is not None and models == 1),
        "Filled dots: a step more, or another level. Hollow: a step less" * both,
        f"{len(drawn)} of {models} models, the first" * (models > len(drawn)),
        f"{len(drawn[0])} of {features} features, the strongest" * (len(found.changes) > len(drawn[0])),
    ]


def _axis(axes: Axes, names: Sequence[str], drawn: Sequence[Rows], found: "Effects") -> None:
    """Draw a row for each name, and an axis that holds every dot."""
    values = np.array([value for rows in drawn for row in rows for value in row])
    tidy(axes, _measure(found), "")
    least = LEAST_WEIGHT if found.when is None else LEAST_POINTS
    axes.set_xlim(*reach(_unit(found) * values, [-least, least]))
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=ROUND))
    axes.axvline(0, color=GREY, linewidth=0.9)
    name_rows(axes, names)


def _draw(axes: Axes, rows: Rows, found: "Effects", shade: str, shift: float) -> None:
    """Draw dots, filled and hollow, each joined with the line of no effect."""
    unit = _unit(found)
    for side, fill in enumerate((shade, "white")):
        known = [(place + shift, unit * row[side]) for place, row in enumerate(rows) if len(row) > side]
        if known:
            heights, values = np.array(known, dtype=np.float64).T
            axes.hlines(heights, 0.0, values, color=shade, linewidth=1.2 if side == 0 else 0.8)
            dots(axes, values, heights, shade, mfc=fill)


def _asides(row: tuple[float, ...], found: "Effects") -> str:
    """Draw the numbers of a row as text."""
    decimals = 2 if found.when is None else 1
    return ", ".join(f"{_unit(found) * value:+.{decimals}f}".replace("-", MINUS) for value in row)


def _unit(found: "Effects") -> float:
    """Return the unit of numbers in a figure: percentage points for probabilities."""
    return 1.0 if found.when is None else 100.0
