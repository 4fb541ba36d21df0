"""What a score costs, drawn: scores against epsilon, of whatever workload."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

from tacit.errors import InvalidValue, require
from tacit.reports.plots.style import (
    INCH,
    PALETTE,
    SMALL,
    Label,
    Picture,
    colour,
    format_tick,
    ink,
    label_lines,
    levels,
    picture,
    save_figure,
    tidy,
)

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

# So many letters have room along an axis.
LETTERS = 60
COST = "Epsilon: what a score costs any one unit (log scale)"


def privacy_utility(
    table: "pd.DataFrame",
    *,
    references: Mapping[str, float] | None = None,
    score: str = "C-index",
    shown: str = "{:.3f}",
    floor: float | None = None,
    band: str | None = None,
    title: str | None = None,
    provenance: str = "",
    path: str | Path | None = None,
) -> Picture:
    """Draw a score against the epsilon that it costs.

    Args:
        table: One row for each run or mean of runs: `epsilon`, `score`, and where they are known `low` and
            `high`, the ends of an interval, `method`, which parts the rows into lines, and `claimed`, the
            epsilon that somebody said it costs: a cross where that differs, tied to the true one.
        references: Scores that cost no epsilon, by name: `open`, `alone`.
        score: What the score is.
        shown: How its numbers are written.
        floor: What a model that has learnt nothing scores, where high is good: points that are not above it,
            as far as their intervals tell, are hollow.
        band: What the intervals are, in words: they are shaded then; bars if not said.
        title: What is seen; if not said, the best score at the smallest and at the largest epsilon.
        provenance: Where the scores come from.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    rows = _sort_by_epsilon(table)
    methods = list(dict.fromkeys(rows["method"].tolist()))
    most = len(PALETTE)
    require(len(methods) <= most, "method", f"{len(methods)} of them", f"at most {most}, to be told apart")
    note = [f"{provenance}."] * bool(provenance) + [_ends(band)] * ("low" in rows)
    note += [] if floor is None else [f"Hollow: nothing learnt, not above {shown.format(floor)}."]
    note += ["Crosses: what was claimed of the points at their height."] * bool(_wrong_claims(rows).any())
    figure = picture(3.1, title or _tradeoff_title(rows, score, shown), " ".join(note))
    axes = figure.add_subplot()
    tidy(axes, COST, score)
    axes.set_xscale("log")
    labels = levels(axes, references or {}, shown.format)
    for place, (_, own) in enumerate(rows.groupby("method", sort=False)):
        shift = 3.0 * (place - (len(methods) - 1) / 2) * ("low" in rows and not band)
        labels.append(_trade(axes, own, place, shift, shown, floor, shaded=bool(band)))
        _claims(axes, own[_wrong_claims(own)], colour(place))
    mark(axes, np.unique(rows["epsilon"].to_numpy(dtype=np.float64)), rows.get("claimed", ()))
    drawn = rows[[name for name in ("score", "low", "high") if name in rows]].to_numpy(dtype=np.float64)
    heights = np.append(drawn.ravel(), list((references or {}).values()))
    edge = 0.06 * max(float(np.ptp(heights)), 0.01)
    axes.set_ylim(float(heights.min()) - edge, float(heights.max()) + edge)
    label_lines({axes: labels}, gap=8.0)
    return save_figure(figure, path)


def _sort_by_epsilon(table: "pd.DataFrame") -> "pd.DataFrame":
    """The rows in the order of epsilon, once they are found to be drawable."""
    columns = list(getattr(table, "columns", []))
    for name in ("epsilon", "score"):
        if name not in columns:
            raise InvalidValue(f"table has no column {name}: it must have epsilon and score")
    require(("low" in columns) == ("high" in columns), "table", "one of low and high", "with both or neither")
    require(len(table) > 0, "table", "no row", "at least one row")
    for name in [name for name in ("epsilon", "score", "low", "high") if name in columns]:
        finite = bool(np.isfinite(table[name].to_numpy(dtype=np.float64)).all())
        require(finite, name, table[name].tolist(), "finite; a score without epsilon belongs to references")
    require(bool((table["epsilon"] > 0).all()), "epsilon", table["epsilon"].tolist(), "above 0")
    if "claimed" in columns:
        said = table["claimed"].to_numpy(dtype=np.float64)
        fits = np.isnan(said) | ((said > 0) & np.isfinite(said))
        require(bool(fits.all()), "claimed", said.tolist(), "above 0, or missing where nothing was claimed")
    rows = table.assign(method=table["method"].astype(str) if "method" in columns else "")
    return rows.sort_values("epsilon", kind="stable")


def _tradeoff_title(rows: "pd.DataFrame", score: str, shown: str) -> str:
    """What the trade comes to."""
    best = rows.groupby("epsilon")["score"].max()
    ends = [f"{shown.format(best.iloc[place])} at epsilon {best.index[place]:g}" for place in (0, -1)]
    return f"{score}: " + (ends[0] if len(best) == 1 else f"{ends[0]}, {ends[1]}")


def _ends(band: str | None) -> str:
    """What is drawn between the ends of intervals."""
    return f"Shaded: {band}." if band else "Bars: intervals of the scores."


def _trade(
    axes: Axes,
    rows: "pd.DataFrame",
    place: int,
    shift: float,
    shown: str,
    floor: float | None,
    *,
    shaded: bool = False,
) -> Label:
    """Draw one method, shifted by so many points, that the bars of several do not hide each other."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    beside = axes.transData + ScaledTranslation(shift / INCH, 0, figure.dpi_scale_trans)
    epsilon, score = (rows[name].to_numpy(dtype=np.float64) for name in ("epsilon", "score"))
    axes.plot(epsilon, score, color=colour(place), linewidth=1.5, marker="o", markersize=4, transform=beside)
    if "low" in rows:
        low, high = (rows[name].to_numpy(dtype=np.float64) for name in ("low", "high"))
        if shaded:
            axes.fill_between(epsilon, low, high, color=colour(place), alpha=0.15, linewidth=0)
        else:
            axes.vlines(epsilon, low, high, color=colour(place), linewidth=1.0, transform=beside)
    if floor is not None:
        vain = rows["low" if "low" in rows else "score"].to_numpy(dtype=np.float64) <= floor
        axes.plot(
            epsilon[vain], score[vain], color=colour(place), linestyle="none", transform=beside, marker="o",
            markersize=4, mfc="white",
        )  # fmt: skip
    method = str(rows["method"].iloc[0])
    return Label(float(score[-1]), f"{method} {shown.format(score[-1])}".strip(), colour(place))


def _wrong_claims(rows: "pd.DataFrame") -> NDArray[np.bool_]:
    """The rows of which another epsilon was claimed than they cost."""
    if "claimed" not in rows:
        return np.zeros(len(rows), dtype=np.bool_)
    claimed, epsilon = (rows[name].to_numpy(dtype=np.float64) for name in ("claimed", "epsilon"))
    return ~np.isnan(claimed) & ~np.isclose(claimed, epsilon)


def _claims(axes: Axes, rows: "pd.DataFrame", shade: str) -> None:
    """Tie points to the epsilons that were claimed for them, and write these down."""
    if rows.empty:
        return
    claimed, epsilon, score = (
        rows[name].to_numpy(dtype=np.float64) for name in ("claimed", "epsilon", "score")
    )
    axes.hlines(score, claimed, epsilon, color=shade, linewidth=0.6, linestyle=":", zorder=1)
    axes.plot(claimed, score, color=shade, marker="x", markersize=4, linestyle="none")
    for place, one in enumerate(claimed.tolist()):
        first = place == int(claimed.argmin())
        axes.annotate(
            f"claimed {format_tick(one)}" if first else format_tick(one), (one, score[place]), fontsize=SMALL,
            color=ink(shade), xytext=(-5, 0) if first else (0, 3), textcoords="offset points",
            ha="right" if first else "center", va="center" if first else "bottom",
        )  # fmt: skip


def mark(axes: Axes, epsilons: Array, claimed: "Sequence[float] | pd.Series[float]" = ()) -> None:
    """Mark the epsilons that there are, or so many of them as have room."""
    low, high = (float(end) for end in np.nanquantile(np.append(epsilons, claimed), (0, 1)))
    span = max(np.log(high / low), 1e-9)
    kept: list[float] = []
    for epsilon in epsilons.tolist():
        letters = len(_short(epsilon)) + len(_short(kept[-1])) if kept else 0
        if not kept or np.log(epsilon / kept[-1]) > span * (letters / 2 + 1) / LETTERS:
            kept.append(epsilon)
    edge = (high / low) ** 0.04 if high > low else 2.0
    # What was claimed is written to the left of its cross.
    axes.set_xlim(low / edge ** (1 if low == epsilons[0] else 4), high * edge)
    axes.set_xticks(kept)
    axes.xaxis.set_major_formatter(FuncFormatter(_short))
    axes.xaxis.set_minor_locator(NullLocator())


def _short(epsilon: float, place: int | None = None) -> str:
    """An epsilon in three digits: what was spent is a little less than what was allowed."""
    return format_tick(float(f"{epsilon:.3g}"))
