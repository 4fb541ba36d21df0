"""Figures of experiments on curves: scores by epsilon or by the number of parties, and selection."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from matplotlib.axes import Axes

from tacit.errors import require, require_word
from tacit.reports.plots import (
    column,
    footnote,
    in_order,
    mark_values,
    read_table,
    require_few,
    score_lines,
)
from tacit.reports.plots import privacy_utility as scores
from tacit.reports.plots.style import (
    Label,
    Picture,
    label_lines,
    levels,
    picture,
    save_figure,
    tidy,
)
from tacit.runtime.arrays import Array

if TYPE_CHECKING:
    import pandas as pd

By = Literal["parties", "epsilon"]
AXES = {"parties": "Parties", "epsilon": "Epsilon (log scale)"}
BARS = "Bars: one standard error"


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
        references: Scores that cost no epsilon, by name: `open`, and `noise`, the error of the truth itself.
        score: The name of the score.
        better: `lower` or `higher`, the good direction.
        title: The title; by default the best score at the smallest and at the largest epsilon.
        provenance: The source of the scores.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require_word("better", better, ("lower", "higher"))
    rows = read_table(table, ("epsilon", "score"), ())
    if "error" in rows and "low" not in rows:
        rows = _with_ends(rows, "score", "error")
        provenance = footnote(provenance, "Intervals: one standard error to either side")
    title = title or scores.best_at_ends(rows, score, lower=better == "lower")
    return scores.privacy_utility(
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
        score: The name of the score.
        title: The title; by default the range of each method over parties.
        provenance: The source of the scores.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    rows = _read(table, "parties", {"score": "error"})
    figure = picture(2.9, title or _ranges(rows, score), footnote(provenance, BARS * ("error" in rows)))
    axes = figure.add_subplot()
    tidy(axes, "Parties that divide the predictors", score)
    drawn, known = _with_ends(rows, "score", "error"), references or {}
    labels = levels(axes, known) + score_lines(axes, drawn, "parties", "{:.3f}")
    ends = np.append(
        drawn[[name for name in ("score", "low", "high") if name in drawn]], list(known.values())
    )
    # From 0: a score that hardly moves is to look as if it hardly moved.
    axes.set_ylim(min(0.0, 1.08 * float(ends.min())), 1.12 * max(float(ends.max()), 1e-9))
    mark_values(axes, np.unique(column(rows, "parties")), log=False)
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
        by: The horizontal axis.
        title: The title; by default the lowest of both.
        provenance: The source of the scores.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require_word("by", by, AXES)
    kinds = {kind: f"{kind}_error" for kind in ("sensitivity", "specificity")}
    rows = _read(table, by, kinds)
    lowest = ", ".join(f"{kind} at least {float(rows[kind].min()):.2f}" for kind in kinds)
    note = footnote(provenance, BARS * any(error in rows for error in kinds.values()))
    figure = picture(2.6, title or f"Selection of predictors: {lowest}", note)
    labels: dict[Axes, list[Label]] = {}
    for axes, (kind, error) in zip(figure.subplots(1, 2, sharey=True), kinds.items(), strict=True):
        tidy(axes, AXES[by], kind.capitalize())
        labels[axes] = score_lines(axes, _with_ends(rows, kind, error), by, "{:.2f}")
        axes.set_ylim(-0.04, 1.06)
        mark_values(axes, np.unique(column(rows, by)), log=by == "epsilon", letters=20)
    label_lines(labels, gap=8.0)
    return save_figure(figure, path)


def _read(table: "pd.DataFrame | Mapping[str, object]", by: By, values: Mapping[str, str]) -> "pd.DataFrame":
    """Read rows of values and their errors, in order; every number is one."""
    rows = read_table(table, (by, *values), (by, *values, *values.values()))
    require(bool((rows[by] > 0).all()), by, rows[by].tolist(), "above 0")
    require_few("method", in_order(rows["method"]))
    return rows.sort_values(by, kind="stable")


def _with_ends(rows: "pd.DataFrame", value: str, error: str) -> "pd.DataFrame":
    """Rows whose score is this value, with the ends of its interval where its error is known."""
    rows = rows.assign(score=rows[value])
    if error not in rows:
        return rows
    return rows.assign(low=rows[value] - rows[error], high=rows[value] + rows[error])


def _ranges(rows: "pd.DataFrame", score: str) -> str:
    """Say how far each method moves with the number of parties."""
    groups = rows.groupby("method", sort=False)["score"]
    told = [f"{name} {_range(own.to_numpy(dtype=np.float64), '.3f')}".strip() for name, own in groups]
    return f"{score} with {_range(column(rows, 'parties'), 'g')} parties: {', '.join(told)}"


def _range(values: Array, shown: str) -> str:
    return " to ".join(dict.fromkeys(format(float(end), shown) for end in (values.min(), values.max())))
