"""Experiments, drawn: what a score costs, and whether it depends on how many parties divide the predictors.

Rows of a table are runs or means of runs; nothing here looks at curves.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

from tacit.errors import InvalidValue, require, require_word
from tacit.reports.plots import training as reports
from tacit.reports.plots.style import (
    GREY,
    INCH,
    PALETTE,
    Label,
    Picture,
    colour,
    format_tick,
    label_lines,
    picture,
    save_figure,
    tidy,
)

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
By = Literal["parties", "epsilon"]

AXES = {
    "parties": "Parties that divide the predictors",
    "epsilon": "Epsilon: what it costs any one subject (log scale)",
}
SHORT = {"parties": "Parties", "epsilon": "Epsilon (log scale)"}
BARS = "Bars: one standard error."
# By how many points the bars of methods stand apart.
APART = 3.0
MARKS = 9


def privacy_utility(
    table: "pd.DataFrame | Mapping[str, object]",
    *,
    references: Mapping[str, float] | None = None,
    score: str = "RIL2",
    better: Literal["lower", "higher"] = "lower",
    title: str | None = None,
    provenance: str = "",
    path: str | Path | None = None,
) -> Picture:
    """Draw a score against the epsilon that it costs.

    Args:
        table: One row for each run or mean of runs: `epsilon`, `score`, and where they are known `error`, its
            standard error, or `low` and `high`, the ends of an interval, and `method`, which parts the rows
            into lines.
        references: Scores that cost no epsilon, by name: `open`, and `noise`, below which nobody can come.
        score: What the score is.
        better: Whether a good one is low or high.
        title: What is seen; if not said, the best score at the smallest and at the largest epsilon.
        provenance: Where the scores come from.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require_word("better", better, ("lower", "higher"))
    rows = _rows(table, ("epsilon", "score"))
    if "error" in rows and "low" not in rows:
        rows = rows.assign(low=rows["score"] - rows["error"], high=rows["score"] + rows["error"])
        provenance = f"{provenance}. Intervals: one standard error to either side".removeprefix(". ")
    if title is None and len(rows):
        groups = rows.groupby("epsilon")["score"]
        best = groups.min() if better == "lower" else groups.max()
        ends = [f"{best.iloc[place]:.3f} at epsilon {best.index[place]:g}" for place in (0, -1)]
        title = f"{score}: " + (ends[0] if len(best) == 1 else f"{ends[0]}, {ends[1]}")
    return reports.privacy_utility(
        rows, references=references, score=score, title=title, provenance=provenance, path=path
    )


def by_parties(
    table: "pd.DataFrame | Mapping[str, object]",
    *,
    references: Mapping[str, float] | None = None,
    score: str = "RIL2",
    title: str | None = None,
    provenance: str = "",
    path: str | Path | None = None,
) -> Picture:
    """Draw a score by the number of parties, at the same subjects and the same promise.

    Args:
        table: One row for each number of parties: `parties`, `score`, and where they are known `error`, its
            standard error, and `method`, which parts the rows into lines.
        references: Scores to compare with, by name: `noise`.
        score: What the score is.
        title: What is seen; if not said, the range of each method over parties.
        provenance: Where the scores come from.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    rows = _drawable(_rows(table, ("parties", "score")), "parties", ("score",))
    note = _note(rows, provenance)
    figure = picture(2.9, title or _ranges(rows, score), note)
    axes = figure.add_subplot()
    tidy(axes, AXES["parties"], score)
    labels = _levels(axes, references or {})
    labels += _lines(axes, rows, "parties", "score", "{:.3f}")
    heights = np.append(_extent(rows, "score"), list((references or {}).values()))
    # From 0: a score that hardly moves is to look as if it hardly moved.
    axes.set_ylim(min(0.0, 1.08 * float(heights.min())), 1.12 * max(float(heights.max()), 1e-9))
    _mark(axes, rows, "parties")
    label_lines({axes: labels}, gap=8.0)
    return save_figure(figure, path)


def selection(
    table: "pd.DataFrame | Mapping[str, object]",
    *,
    by: By = "parties",
    title: str | None = None,
    provenance: str = "",
    path: str | Path | None = None,
) -> Picture:
    """Draw the sensitivity and the specificity of selection by the number of parties or by epsilon.

    Args:
        table: One row for each run or mean of runs: `parties` or `epsilon`, `sensitivity`, `specificity`, and
            where they are known `sensitivity_error` and `specificity_error`, their standard errors, and
            `method`, which parts the rows into lines.
        by: What they are drawn against.
        title: What is seen; if not said, the lowest of both.
        provenance: Where the scores come from.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require_word("by", by, AXES)
    kinds = ("sensitivity", "specificity")
    rows = _drawable(_rows(table, (by, *kinds)), by, kinds)
    lowest = {kind: float(rows[kind].min()) for kind in kinds}
    told = ", ".join(f"{kind} at least {value:.2f}" for kind, value in lowest.items())
    figure = picture(2.6, title or f"Selection of predictors: {told}", _note(rows, provenance))
    panels = figure.subplots(1, 2, sharey=True)
    labels: dict[Axes, list[Label]] = {}
    for axes, kind in zip(panels, kinds, strict=True):
        tidy(axes, SHORT[by], kind.capitalize())
        labels[axes] = _lines(axes, rows, by, kind, "{:.2f}")
        axes.set_ylim(-0.04, 1.06)
        _mark(axes, rows, by, 5)
    label_lines(labels, gap=8.0)
    return save_figure(figure, path)


def _rows(table: "pd.DataFrame | Mapping[str, object]", needed: tuple[str, ...]) -> "pd.DataFrame":
    """The table as a data frame, once it is found to have what is needed."""
    import pandas as pd

    rows = pd.DataFrame(table)
    missing = [name for name in needed if name not in rows]
    if missing:
        raise InvalidValue(f"table has no column {', '.join(missing)}: it must have {', '.join(needed)}")
    return rows


def _drawable(rows: "pd.DataFrame", by: str, values: tuple[str, ...]) -> "pd.DataFrame":
    """The rows in order, each with a method, once every number is found to be one."""
    require(len(rows) > 0, "table", "no row", "at least one row")
    errors = [name for name in _error_names(values) if name in rows]
    for name in (by, *values, *errors):
        finite = bool(np.isfinite(rows[name].to_numpy(dtype=np.float64)).all())
        require(finite, name, rows[name].tolist(), "finite")
    require(bool((rows[by] > 0).all()), by, rows[by].tolist(), "above 0")
    named = rows.assign(method=rows["method"].astype(str) if "method" in rows else "")
    methods, most = named["method"].nunique(), len(PALETTE)
    require(methods <= most, "method", f"{methods} of them", f"at most {most}, to be told apart")
    return named.sort_values(by, kind="stable")


def _error_names(values: tuple[str, ...]) -> tuple[str, ...]:
    return ("error",) if values == ("score",) else tuple(f"{name}_error" for name in values)


def _error(rows: "pd.DataFrame", value: str) -> Array | None:
    (name,) = _error_names((value,))
    return rows[name].to_numpy(dtype=np.float64) if name in rows else None


def _note(rows: "pd.DataFrame", provenance: str) -> str:
    bars = any(str(name).endswith("error") for name in rows.columns)
    return " ".join([f"{provenance}."] * bool(provenance) + [BARS] * bars)


def _ranges(rows: "pd.DataFrame", score: str) -> str:
    """How far each method moves with the number of parties."""
    counts = rows["parties"].to_numpy(dtype=np.float64)
    groups = rows.groupby("method", sort=False)["score"]
    told = [f"{name} {_range(own.to_numpy(dtype=np.float64), '.3f')}".strip() for name, own in groups]
    return f"{score} with {_range(counts, 'g')} parties: {', '.join(told)}"


def _range(values: Array, shown: str) -> str:
    low, high = (format(float(end), shown) for end in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


def _levels(axes: Axes, references: Mapping[str, float]) -> list[Label]:
    for place, level in enumerate(references.values()):
        axes.axhline(level, color=GREY, linewidth=0.9, linestyle=("--", ":", "-.", "-")[place % 4])
    return [Label(float(level), f"{name} {level:.3f}") for name, level in references.items()]


def _lines(axes: Axes, rows: "pd.DataFrame", by: str, value: str, shown: str) -> list[Label]:
    """Draw a line for each method, a little apart so that bars do not hide each other."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    labels: list[Label] = []
    methods = list(rows.groupby("method", sort=False))
    for place, (method, own) in enumerate(methods):
        shift = APART * (place - (len(methods) - 1) / 2)
        beside = axes.transData + ScaledTranslation(shift / INCH, 0, figure.dpi_scale_trans)
        across, heights = (own[name].to_numpy(dtype=np.float64) for name in (by, value))
        error, shade = _error(own, value), colour(place)
        axes.plot(across, heights, color=shade, linewidth=1.5, marker="o", markersize=4, transform=beside)
        if error is not None:
            axes.vlines(
                across, heights - error, heights + error, color=shade, linewidth=1.0, transform=beside
            )
        words = f"{method} {shown.format(heights[-1])}".strip()
        labels.append(Label(float(heights[-1]), words, shade))
    return labels


def _extent(rows: "pd.DataFrame", value: str) -> Array:
    """How low and how high points and their bars go."""
    heights, error = rows[value].to_numpy(dtype=np.float64), _error(rows, value)
    return heights if error is None else np.concatenate([heights - error, heights + error])


def _mark(axes: Axes, rows: "pd.DataFrame", by: str, most: int = MARKS) -> None:
    """Mark the places that there are, or so many of them as have room."""
    places = np.unique(rows[by].to_numpy(dtype=np.float64))
    scale = np.log if by == "epsilon" else np.asarray
    if by == "epsilon":
        axes.set_xscale("log")
    spots = np.asarray(scale(places), dtype=np.float64)
    span = float(np.ptp(spots)) or 1.0
    kept: list[int] = []
    for place, spot in enumerate(spots):
        if not kept or spot - spots[kept[-1]] > 0.6 * span / most:
            kept.append(place)
    low, high = spots[0] - 0.05 * span, spots[-1] + 0.05 * span
    axes.set_xlim(*(np.exp([low, high]) if by == "epsilon" else (low, high)))
    axes.xaxis.set_major_locator(FixedLocator(places[kept].tolist()))
    axes.xaxis.set_major_formatter(FuncFormatter(format_tick))
    axes.xaxis.set_minor_locator(NullLocator())
