"""Whether things agree, drawn: predictions with what happened, and the sites with one another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Polygon
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from tacit.errors import InvalidValue, is_between, require, require_count
from tacit.reports.plots.style import (
    BODY,
    GREY,
    INCH,
    INK,
    ROW,
    RULE,
    Picture,
    colour,
    credits,
    format_p,
    format_tick,
    format_time,
    ink,
    picture,
    save_figure,
    shorten_label,
    tidy,
    width,
)
from tacit.sites.federation import Federation
from tacit.sites.table import from_arrays
from tacit.survival.figures.curves import by_site
from tacit.survival.life_table import life_table
from tacit.survival.metrics.brier_score import outcomes, probabilities
from tacit.survival.metrics.calibration import d_calibration
from tacit.survival.statistics.cox_fit import CoxFit

Array = NDArray[np.float64]

LOOKED = "bare: times, events and predictions of these records"
# Hazard ratios to mark on an axis, the finest set first.
RATIOS = (
    (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2),
    (0.5, 0.6, 0.7, 0.8, 1.0, 1.2, 1.5, 2.0),
    tuple(2.0**power for power in range(-6, 7)),
    tuple(4.0**power for power in range(-6, 7)),
    tuple(10.0**power for power in range(-12, 13, 2)),
)
MARKS = 7


def calibration(
    time: ArrayLike,
    event: ArrayLike,
    survival_at_t: ArrayLike,
    at: float,
    bins: int = 10,
    *,
    survival_at_time: ArrayLike | None = None,
    level: float = 0.95,
    unit: str | None = None,
    title: str | None = None,
    provenance: str = LOOKED,
    path: str | Path | None = None,
) -> Picture:
    """Draw predicted against observed risk by a time, and the histogram of D-calibration if it can be had.

    Records are put in bins of equal size by their predictions; what was observed in a bin is its Kaplan-Meier
    estimate. The records are looked at: on private ones the figure is unprotected.

    Args:
        time: Of the event or of censoring (records,).
        event: 1 where the event was seen, 0 where the record is censored (records,).
        survival_at_t: Predicted probability of no event up to `at` (records,).
        at: The time.
        bins: How many; fewer where predictions are equal.
        survival_at_time: Predicted probability that each record survives its own time, for D-calibration.
        level: Of the intervals.
        unit: Of time, such as `days`.
        title: What is seen; if not said, the mean difference.
        provenance: Where the numbers come from.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    times, events = outcomes(time, event)
    risks = 1 - probabilities("survival_at_t", survival_at_t, times.shape, "one per record")
    require(
        is_between(at, 0, np.nextafter(times.max(), np.inf)), "at", at, "above 0 and not after all records"
    )
    require_count("bins", bins)
    found = _bin_risks(times, events, risks, at, bins, level)
    when = format_time(at, unit)
    seen = f"Predicted and observed risk by {when} differ by {found.gap:.3f} on average"
    note = f"{credits({'': provenance})} Intervals: {100 * level:g} %.{found.missing}"
    figure = picture(3.1, title or seen, note)
    panels = figure.subplots(1, 1 if survival_at_time is None else 2, squeeze=False)[0]
    _risk_panel(panels[0], found, risks, when)
    if survival_at_time is not None:
        _share_panel(panels[1], times, events, survival_at_time, bins, level)
    return save_figure(figure, path)


def forest(
    fits: Mapping[str, CoxFit],
    *,
    pooled: str = "pooled",
    columns: Sequence[str] | None = None,
    title: str | None = None,
    path: str | Path | None = None,
) -> Picture:
    """Draw hazard ratios by site and pooled, on a log axis: squares as large as a fit is precise.

    `{name: cox(Federation({name: site.table})) for name, site in federation.items()}` and
    `{"pooled": cox(federation)}` together are such fits.

    Args:
        fits: Cox regressions by name.
        pooled: Which of them is of all sites, and becomes a diamond.
        columns: What to draw, in this order; every column of any fit if not said.
        title: What is seen; if not said, how many of the pooled intervals leave 1 out.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    level = _require_fits(fits)
    names = list(dict.fromkeys(name for fit in fits.values() for name in fit.columns))
    for name in columns or ():
        if name not in names:
            raise InvalidValue(f"columns = {name!r} is not allowed: no fit has it")
    order = [name for name in fits if name != pooled] + [pooled] * (pooled in fits)
    rows = [row for name in columns or names for row in _rows(name, fits, order, pooled)]
    told = credits({name: fit.provenance for name, fit in fits.items()})
    figure = picture(0.75 + ROW * len(rows), title or _forest_title(rows, level), told)
    axes = figure.add_subplot()
    _ratio_axis(axes, rows)
    for place, row in enumerate(rows):
        _row(axes, place, row)
    _names(axes, rows, f"Hazard ratio ({100 * level:g} % interval)")
    return save_figure(figure, path)


@dataclass(frozen=True, eq=False)
class RiskBins:
    """Records in bins by their predicted risk: what was predicted, and what was observed (bins,).

    Args:
        predicted: The mean risk.
        observed: The Kaplan-Meier estimate of it; NaN where nobody was followed so long.
        lower: The lower end of its interval, and `upper` the upper one.
        sizes: How many records.
    """

    predicted: Array
    observed: Array
    lower: Array
    upper: Array
    sizes: Array

    @property
    def gap(self) -> float:
        """The mean difference of predicted and observed, over records."""
        known = np.isfinite(self.observed)
        return float(np.average(np.abs(self.predicted - self.observed)[known], weights=self.sizes[known]))

    @property
    def missing(self) -> str:
        """How many bins are not known, in words."""
        unknown = int(np.isnan(self.observed).sum())
        words = f" {unknown} of {len(self.sizes)} bins not drawn: nobody in them was followed so long."
        return words * bool(unknown)


def _bin_risks(
    time: Array, event: NDArray[np.int64], risks: Array, at: float, bins: int, level: float
) -> RiskBins:
    edges = np.unique(np.quantile(risks, np.linspace(0, 1, bins + 1)[1:-1]))
    own = np.searchsorted(edges, risks, side="left")
    members = [np.flatnonzero(own == place) for place in np.unique(own)]
    fewest = min(map(len, members))
    require(fewest > 1, "bins", bins, f"fewer: one of them has {fewest} record for {len(time)} in all")
    tables = {
        str(place): from_arrays(risks[rows], time=time[rows], event=event[rows])
        for place, rows in enumerate(members)
    }
    curves = by_site(life_table(Federation(tables)), level=level).values()
    followed = np.array([curve.at_risk([at])[0] > 0 or curve.at([at])[0] == 0 for curve in curves])
    allowed = "a time up to which somebody in some bin was followed"
    require(bool(followed.any()), "at", at, allowed)
    rows = [
        curve.table.iloc[int(np.searchsorted(curve.table.index, at, side="right")) - 1] for curve in curves
    ]
    observed, upper, lower = (
        np.where(followed, [1 - float(row[name]) for row in rows], np.nan)
        for name in ("survival", "lower", "upper")
    )
    predicted = np.array([risks[rows].mean() for rows in members])
    return RiskBins(predicted, observed, lower, upper, np.array([len(rows) for rows in members], dtype=float))


def _risk_panel(axes: Axes, found: RiskBins, risks: Array, when: str) -> None:
    """Draw bins against the line of agreement, and below how often each risk was predicted."""
    tidy(axes, f"Predicted risk by {when}", f"Observed risk by {when}")
    top = min(1.0, 1.08 * float(np.nanmax([found.upper.max(), found.predicted.max(), 0.05])))
    axes.plot([0, top], [0, top], color=GREY, linewidth=0.9, linestyle="--")
    axes.vlines(found.predicted, found.lower, found.upper, color=colour(0), linewidth=1.2)
    axes.plot(found.predicted, found.observed, color=colour(0), marker="o", markersize=4.5, linestyle="none")
    counts, edges = np.histogram(risks, bins=60, range=(0, top))
    middle, high = (edges[:-1] + edges[1:]) / 2, 0.07 * top * counts / max(counts.max(), 1)
    axes.vlines(middle[counts > 0], 0, high[counts > 0], color=GREY, linewidth=1.2)
    axes.set(xlim=(0, top), ylim=(0, top), box_aspect=1)


def _share_panel(
    axes: Axes, time: Array, event: NDArray[np.int64], given: ArrayLike, bins: int, level: float
) -> None:
    """Draw the share of records in each bin of their survival at their own time."""
    found = d_calibration(time, event, given, bins)
    tidy(axes, "Predicted survival at a record's own time", "Share of records")
    even, half = 1 / bins, float(norm.ppf(0.5 + level / 2)) * np.sqrt((1 - 1 / bins) / bins / len(time))
    axes.axhspan(max(even - half, 0), even + half, color=RULE, alpha=0.6, linewidth=0)
    axes.bar((np.arange(bins) + 0.5) / bins, found.shares, width=0.86 / bins, color=colour(0), alpha=0.75)
    axes.axhline(even, color=GREY, linewidth=0.9, linestyle="--")
    axes.set_title(f"D-calibration: p {format_p(found.p_value)}", loc="left", fontsize=BODY, color=INK)
    axes.set(xlim=(0, 1), ylim=(0, None), box_aspect=1)


@dataclass(frozen=True)
class Row:
    """A row of a forest: the name of a column, or the estimate of one fit.

    Args:
        words: What is written to its left.
        kind: A heading, a site, or all sites.
        centre: The log hazard ratio.
        half: Half the width of its interval.
        weight: How precise it is, of at most 1.
        aside: What is written to its right.
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


def _rows(column: str, fits: Mapping[str, CoxFit], order: Sequence[str], pooled: str) -> list[Row]:
    """A heading and a row for each fit that has the column; without a heading if there is one fit alone."""
    own = [name for name in order if column in fits[name].columns]
    places = [fits[name].columns.index(column) for name in own]
    centres = np.array([fits[name].coefficients[place] for name, place in zip(own, places, strict=True)])
    errors = np.array([fits[name].standard_errors[place] for name, place in zip(own, places, strict=True)])
    half = float(norm.ppf(0.5 + fits[own[0]].level / 2)) * errors
    sites = np.array([name != pooled for name in own])
    precision = errors.min(where=sites, initial=np.inf) ** 2 / errors**2
    alone = len(order) == 1
    rows = [
        Row(
            column if alone else name,
            "site" if one else "pooled",
            float(centre),
            float(wide),
            float(min(weight, 1.0)) if one else 1.0,
            f"{np.exp(centre):.2f} ({np.exp(centre - wide):.2f} to {np.exp(centre + wide):.2f})",
        )
        for name, one, centre, wide, weight in zip(own, sites, centres, half, precision, strict=True)
    ]
    heading = Row(column, "heading", aside=_spread(centres[sites], errors[sites]))
    return rows if alone else [heading, *rows]


def _spread(centres: Array, errors: Array) -> str:
    """How much of the spread between sites is more than chance (Higgins and Thompson 2002)."""
    if len(centres) < 2:
        return ""
    weights = 1 / errors**2
    chance = float(weights @ (centres - np.average(centres, weights=weights)) ** 2)
    excess = max(0.0, 1 - (len(centres) - 1) / chance) if chance > 0 else 0.0
    return f"I\N{SUPERSCRIPT TWO} {100 * excess:.0f} %"


def _forest_title(rows: Sequence[Row], level: float) -> str:
    """What the forest shows."""
    kinds = {row.kind for row in rows}
    judged = [row for row in rows if row.kind == ("pooled" if "pooled" in kinds else "site")]
    off = sum(abs(row.centre) > row.half for row in judged)
    what = "pooled hazard ratio" if "pooled" in kinds else "hazard ratio"
    return f"{off} of {len(judged)} {what}s: the {100 * level:g} % interval leaves out 1"


def _ratio_axis(axes: Axes, rows: Sequence[Row]) -> None:
    """A log axis that holds every ratio, and intervals unless they are far wider than most."""
    drawn = [row for row in rows if row.kind != "heading"]
    centres, halves = np.array([row.centre for row in drawn]), np.array([row.half for row in drawn])
    far = 3 * float(np.median(halves))
    low = min(float(np.max([(centres - halves).min(), centres.min() - far])), -0.05)
    high = max(float(np.min([(centres + halves).max(), centres.max() + far])), 0.05)
    edge = 0.04 * (high - low)
    tidy(axes, "", "")
    axes.grid(visible=False, axis="y")
    axes.set_xscale("log")
    axes.set_xlim(np.exp(low - edge), np.exp(high + edge))
    axes.xaxis.set_major_locator(FixedLocator(ratio_marks(low, high)))
    axes.xaxis.set_major_formatter(FuncFormatter(format_tick))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.axvline(1, color=GREY, linewidth=0.9)


def ratio_marks(low: float, high: float) -> list[float]:
    """The ratios to mark between two log ratios: few, and over most of the way."""
    within = ([mark for mark in marks if low <= np.log(mark) <= high] for marks in RATIOS)
    sets = [marks for marks in within if len(marks) <= MARKS]
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


def _names(axes: Axes, rows: Sequence[Row], heading: str) -> None:
    """Write names to the left and numbers to the right of the rows."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    indent = "    " if any(row.kind == "heading" for row in rows) else ""
    words = [
        shorten_label(row.words) if row.kind == "heading" else indent + shorten_label(row.words)
        for row in rows
    ]
    wide = max(width(figure, line, BODY, "bold") for line in words)
    axes.set_yticks(range(len(rows)), words, ha="left", parse_math=False)
    axes.tick_params(axis="y", length=0, pad=wide + 6)
    axes.spines["left"].set_visible(False)
    beside = axes.get_yaxis_transform() + ScaledTranslation(10 / INCH, 0, figure.dpi_scale_trans)
    for place, (row, text) in enumerate(zip(rows, axes.get_yticklabels(), strict=True)):
        text.set_fontweight("bold" if row.kind == "heading" else "normal")
        text.set_color(ink(colour(1)) if row.kind == "pooled" else INK)
        shade = GREY if row.kind == "heading" else INK
        axes.text(1, place, row.aside, fontsize=BODY, color=shade, va="center_baseline", transform=beside)
    axes.set_xlabel(heading + ", log scale", fontsize=BODY, color=INK)
