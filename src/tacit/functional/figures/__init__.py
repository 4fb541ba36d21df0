"""The figures of a paper on curves, each from plain arrays and tables.

    model          surface, surfaces, selection_path, stopping, predictions
    experiments    privacy_utility, by_parties, selection

Each gives a matplotlib figure, and keeps it in a file if a `path` is named. What a figure shows has left the
parties already, except in `predictions`, which looks at curves of subjects. Of surfaces, which tell what the
response at t owes to a predictor at s, orange adds and blue takes away; white is nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from tacit.errors import InvalidValue, require, require_count, require_word
from tacit.functional import metrics
from tacit.reports.plots import (
    band,
    column,
    dots,
    few_ticks,
    footnote,
    head,
    in_order,
    line,
    mark_values,
    name_rows,
    panels,
    read_table,
    require_few,
    score_lines,
    tint_rows,
    write,
    write_asides,
)
from tacit.reports.plots import privacy_utility as scores
from tacit.reports.plots.style import (
    BODY,
    GREY,
    INK,
    PALE,
    PALETTE,
    ROW,
    Label,
    Picture,
    colour,
    format_time,
    ink,
    label_lines,
    levels,
    picture,
    save_figure,
    shorten_label,
    tidy,
    tidy_bar,
    with_unit,
)
from tacit.runtime.arrays import Array

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "by_parties",
    "predictions",
    "privacy_utility",
    "selection",
    "selection_path",
    "stopping",
    "surface",
    "surfaces",
]

By = Literal["parties", "epsilon"]
# Surfaces and what is written above them; None where a place stays empty.
Shown = list[tuple[str, Array] | None]

MODELLED = "estimated by a model: see the statement of its run"
LOOKED = "unprotected: curves and predictions of these subjects"
SHADES = LinearSegmentedColormap.from_list(
    "blue-white-orange", ["#00345a", PALETTE[0], "#ffffff", PALETTE[1], "#6b2f00"]
)
NOTE = "s: time of the predictor. t: time of the response. Lines: equal values"
# Surfaces side by side. In inches: the height of a panel that is alone, the width of all panels, and the
# greatest height of one. Letters that fit side by side above all panels; the number of contour lines.
ACROSS, ALONE, PANELS, TALLEST, LETTERS, LINES = 4, 3.0, 4.9, 1.9, 76, 8
# Subjects side by side, and the height of one in inches. The size of a dot in points: paths whose dots
# would touch have smaller ones.
SUBJECTS, SUBJECT, DOT, ROOM = 3, 1.3, 5.0, 330.0
AXES = {"parties": "Parties", "epsilon": "Epsilon (log scale)"}
BARS = "Bars: one standard error"


# Surfaces


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
        title: The title; by default the point at which the surface is farthest from 0.
        provenance: The source of the numbers.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    across, up = _times("s", s), _times("t", t)
    found = _values(name or "beta", beta, across, up)
    shown: Shown = [("", found)]
    if truth is not None:
        shown = [("estimated", found), ("true", _values("truth", truth, across, up))]
    title = title or _farthest(name, found, across, up, unit)
    figure = picture(ALONE if truth is None else 2.7, title, footnote(provenance, NOTE))
    _draw_surfaces(figure, shown, across, up, len(shown), unit)
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
        title: The title; by default the largest of them and its predictor.
        provenance: The source of the numbers.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require(bool(betas), "betas", "none", "the surface of at least one predictor")
    across, up = _times("s", s), _times("t", t)
    found = {name: _values(name, values, across, up) for name, values in betas.items()}
    kinds = {"": found}
    if truth is not None:
        if lacking := ", ".join(name for name in found if name not in truth):
            raise InvalidValue(f"truth has no surface of {lacking}: it must have one for each of betas")
        true = {name: _values(f"{name} in truth", truth[name], across, up) for name in found}
        kinds = {", estimated": found, ", true": true}
    bands = -(-len(found) // ACROSS)
    # As even as can be: five are three and two.
    wide = -(-len(found) // bands)
    letters = LETTERS // wide - max(map(len, kinds))
    shown: Shown = []
    for place in range(0, bands * wide, wide):
        own = list(found)[place : place + wide]
        for ending, values in kinds.items():
            shown += [(shorten_label(name, letters) + ending, values[name]) for name in own]
            shown += [None] * (wide - len(own))
    height = 0.35 + (min(PANELS / wide, TALLEST) + 0.2) * bands * len(kinds)
    figure = picture(height, title or _largest(found), footnote(provenance, NOTE))
    _draw_surfaces(figure, shown, across, up, wide, unit, ticks=3)
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


def _farthest(name: str, values: Array, s: Array, t: Array, unit: str | None) -> str:
    """Describe the point at which a surface is farthest from 0."""
    row, column = (int(place) for place in np.unravel_index(np.abs(values).argmax(), values.shape))
    what = f"Effect of {name}" if name else "Effect"
    if values[row, column] == 0:
        return f"{what}: none"
    where = f"s = {format_time(float(s[row]), unit)}, t = {format_time(float(t[column]), unit)}"
    return f"{what}: farthest from 0 at {where} ({values[row, column]:.2g})"


def _largest(found: Mapping[str, Array]) -> str:
    """Say which of several surfaces is farthest from 0."""
    tops = {name: float(np.abs(values).max()) for name, values in found.items()}
    first = max(tops, key=lambda name: tops[name])
    if len(tops) == 1:
        return f"Effect of {first}: at most {tops[first]:.2g} from 0"
    return f"Effects of {len(tops)} predictors: {first} is the farthest from 0 ({tops[first]:.2g})"


def _draw_surfaces(
    figure: Picture, shown: Shown, s: Array, t: Array, wide: int, unit: str | None, ticks: int = 5
) -> None:
    """Draw surfaces on one scale of colors, `wide` to a row; None leaves a place empty."""
    grid = figure.subplots(len(shown) // wide, wide, sharex=True, sharey=True, squeeze=False)
    top = max(float(np.abs(one[1]).max()) for one in shown if one is not None) or 1.0
    drawn: dict[Axes, QuadMesh] = {}
    for place, (axes, one) in enumerate(zip(grid.flat, shown, strict=True)):
        axes.set_visible(one is not None)
        if one is not None:
            last = place + wide >= len(shown) or shown[place + wide] is None
            tidy(axes, with_unit("s", unit) if last else "", "" if place % wide else with_unit("t", unit))
            axes.tick_params(labelbottom=last)
            drawn[axes] = _panel(axes, s, t, one[1], top, ticks)
            head(axes, shorten_label(one[0]))
    mesh, long = next(iter(drawn.values())), 18 * len(grid)
    bar = figure.colorbar(mesh, ax=list(drawn), shrink=0.8, aspect=long, pad=0.02, ticks=MaxNLocator(6))
    tidy_bar(bar.ax, "beta(s, t)")


def _panel(axes: Axes, s: Array, t: Array, values: Array, top: float, ticks: int) -> QuadMesh:
    """Draw one surface, and lines of equal values."""
    axes.grid(visible=False)
    mesh = axes.pcolormesh(
        s, t, values.T, cmap=SHADES, vmin=-top, vmax=top, shading="gouraud", rasterized=True
    )
    heights = [level for level in MaxNLocator(LINES).tick_values(-top, top) if level != 0]
    if float(np.ptp(values)) > 0 and any(values.min() < level < values.max() for level in heights):
        lines = axes.contour(
            s, t, values.T, levels=heights, colors=INK, linewidths=0.4, alpha=0.5, linestyles="-"
        )
        # The ground they are drawn on stays light, whatever a page is like.
        lines.set_gid("as-drawn")
    axes.set(xlim=(s[0], s[-1]), ylim=(t[0], t[-1]))
    few_ticks(axes, ticks)
    return mesh


# Boosting


def selection_path(
    chosen: Sequence[str],
    *,
    kept: int | None = None,
    active: Collection[str] | None = None,
    title: str | None = None,
    provenance: str = MODELLED,
    path: str | Path | None = None,
) -> Picture:
    """Draw the predictor that each boosting step improved.

    Args:
        chosen: The predictor of each step, by name.
        kept: The number of steps that the model has kept, if not all; later ones are drawn hollow.
        active: The predictors that matter in truth, where that is known; all others are drawn in orange.
        title: The title; by default the number of predictors in the model and the first of them.
        provenance: The source of the numbers.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require(len(chosen) > 0, "chosen", "no step", "the predictor of at least one step")
    names, used = list(dict.fromkeys(chosen)), len(chosen) if kept is None else kept
    require(0 <= used <= len(chosen), "kept", kept, f"from 0 to {len(chosen)}, as there are steps")
    note = footnote(
        provenance,
        "Hollow: steps that the model does not keep" * (used < len(chosen)),
        "Orange: predictors without a true effect" * (active is not None),
    )
    figure = picture(0.7 + 1.3 * ROW * len(names), title or _path_title(chosen[:used], active), note)
    axes = figure.add_subplot()
    tidy(axes, "Step", "")
    name_rows(axes, [shorten_label(name) for name in names], above=0.5, below=0.5)
    axes.tick_params(axis="y", pad=8)
    wrong = [active is not None and name not in active for name in names]
    tint_rows(axes, [colour(1) if one else INK for one in wrong])
    counts = [f"{sum(one == name for one in chosen[:used])} of {used}" for name in names]
    write_asides(axes, counts, [ink(colour(1)) if one else INK for one in wrong], gap=8)
    size = float(np.clip(0.8 * ROOM / len(chosen), 1.5, DOT))
    for row, (name, one) in enumerate(zip(names, wrong, strict=True)):
        steps, shade = 1 + np.flatnonzero([other == name for other in chosen]), colour(int(one))
        for own, fill in ((steps[steps <= used], shade), (steps[steps > used], "white")):
            dots(axes, own, np.full(len(own), row), shade, mfc=fill, mew=0.8, markersize=size)
    if used < len(chosen):
        axes.axvline(used + 0.5, color=GREY, linewidth=0.8, linestyle="--")
    edge = 0.01 * len(chosen)
    axes.set_xlim(0.5 - edge, len(chosen) + 0.5 + edge)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    return save_figure(figure, path)


def _path_title(used: Sequence[str], active: Collection[str] | None) -> str:
    """Return the title of a selection path."""
    if not used:
        return "No step was kept: the model is the mean curve"
    names = list(dict.fromkeys(used))
    steps = f"{len(used)} step{'s' * (len(used) != 1)}"
    if active is None:
        several = f"{len(names)} predictors, {names[0]} first" if len(names) > 1 else f"{names[0]} alone"
        return f"{steps} of boosting chose {several}"
    right = len(set(active) & set(names))
    return f"{steps} found {right} of {len(set(active))} active predictors and {len(names) - right} others"


def stopping(
    curve: ArrayLike,
    chosen: int | None = None,
    *,
    criterion: str = "Cross-validated error",
    references: Mapping[str, float] | None = None,
    title: str | None = None,
    provenance: str = MODELLED,
    path: str | Path | None = None,
) -> Picture:
    """Draw the stopping criterion of boosting by step, and the chosen step.

    Args:
        curve: The criterion after 0, 1, 2, ... steps.
        chosen: The step that was chosen; the lowest if not said.
        criterion: Its name.
        references: Levels to compare with, by name: `noise`.
        title: The title; by default the chosen step.
        provenance: The source of the numbers.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    values = np.asarray(curve, dtype=np.float64)
    shaped = values.ndim == 1 and len(values) > 0 and bool(np.isfinite(values).any())
    require(shaped, "curve", f"shape {values.shape}", "a number after each step, the first after none")
    best = int(np.nanargmin(np.where(np.isfinite(values), values, np.nan))) if chosen is None else chosen
    require(0 <= best < len(values), "chosen", chosen, f"a step from 0 to {len(values) - 1}")
    figure = picture(
        2.7, title or f"{criterion}: {values[best]:.3g} after {best} steps", footnote(provenance)
    )
    axes = figure.add_subplot()
    tidy(axes, "Step", criterion)
    ends = levels(axes, references or {}, "{:.3g}".format)
    axes.axvline(best, color=PALE, linewidth=0.8)
    last = line(axes, np.arange(len(values)), values, colour(0), f"last {values[-1]:.3g}", linewidth=1.5)
    line(axes, [best], [values[best]], colour(0), markersize=DOT)
    axes.set_xlim(-0.02 * len(values), 1.02 * (len(values) - 1) + 0.02)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    late = best > 0.8 * (len(values) - 1)
    aside, side = (-3 if late else 3, -2), "right" if late else "left"
    write(axes, f"step {best}", (best, 1), aside, "column", color=GREY, va="top", ha=side)
    ends += [last] * (best < len(values) - 1)
    label_lines({axes: ends})
    return save_figure(figure, path)


# Predictions


def predictions(
    true: ArrayLike,
    predicted: ArrayLike,
    times: ArrayLike,
    *,
    rows: Sequence[int] | None = None,
    count: int = 6,
    level: float = 0.9,
    unit: str | None = None,
    response: str = "Response",
    title: str | None = None,
    provenance: str = LOOKED,
    path: str | Path | None = None,
) -> Picture:
    """Draw true and predicted curves of a few subjects, with a band as wide as the residuals.

    The band is around the prediction: at each time, the middle share `level` of the residuals of all
    subjects. Where these are subjects that the model was fitted to, it is too narrow for others.

    Args:
        true: The curves of all subjects (subjects, times); NaN where one was not seen.
        predicted: Their predictions (subjects, times).
        times: The grid, ascending (times,).
        rows: The subjects to draw; by default from the best to the worst prediction in even steps.
        count: The number of subjects, without `rows`.
        level: The share of residuals inside the band.
        unit: Of time, such as `hours`.
        response: The name of the response.
        title: The title; by default R2 of all subjects.
        provenance: The source of the numbers.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require(0 < level < 1, "level", level, "above 0 and below 1")
    seen, told = (np.asarray(given, dtype=np.float64) for given in (true, predicted))
    explained, what = metrics.scores(seen, told, times)["r2"], "true and predicted"
    # Of one subject alone nothing can be said.
    if not np.isnan(explained):
        what = f"predictions explain {100 * explained:.0f} % of the variance between subjects"
    errors = _errors(seen, told, times)
    own = _spread_out(errors, count) if rows is None else list(rows)
    fits = len(own) > 0 and all(0 <= row < len(seen) for row in own)
    require(fits, "rows", own, f"at least one, each from 0 to {len(seen) - 1}")
    ends = _band(seen - told, level)
    note = footnote(
        provenance,
        f"Black: true. Blue: predicted. Band: the middle {100 * level:g} % of residuals of {len(seen):,} "
        "subjects, at each time. Subjects are numbered from 0",
    )
    down = -(-len(own) // SUBJECTS)
    height = 0.45 + SUBJECT * down + 0.5 * (down == 1)
    figure = picture(height, title or f"{response}: {what}", note)
    time = np.asarray(times, dtype=np.float64)
    for panel, row in zip(panels(figure, len(own), -(-len(own) // down)), own, strict=True):
        panel.frame(f"subject {row}, RIL2 {errors[row]:.2g}", with_unit("Time", unit), "")
        _draw_subject(panel.axes, time, seen[row], told[row], ends)
    figure.supylabel(shorten_label(response), fontsize=BODY, color=INK, parse_math=False)
    return save_figure(figure, path)


def _errors(true: Array, predicted: Array, times: ArrayLike) -> Array:
    """RIL2 of each subject; infinite for a true curve that is 0 everywhere."""
    rule = np.where(np.isnan(true), 0.0, metrics.quadrature(times))
    lost = (rule * np.nan_to_num(true - predicted) ** 2).sum(axis=1)
    whole = (rule * np.nan_to_num(true) ** 2).sum(axis=1)
    return np.divide(lost, whole, out=np.full(len(lost), np.inf), where=whole > 0)


def _spread_out(errors: Array, count: int) -> list[int]:
    """Subjects from the best to the worst prediction, in even steps."""
    require_count("count", count)
    order = np.argsort(errors, kind="stable")
    places = np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int)
    return order[places].tolist()


def _band(residuals: Array, level: float) -> Array:
    """The ends of the middle share of residuals at each time; straight over times at which there is none."""
    some = np.flatnonzero((~np.isnan(residuals)).any(axis=0))
    places = np.arange(residuals.shape[1], dtype=np.float64)
    shares = (0.5 - level / 2, 0.5 + level / 2)
    ends = [np.asarray(np.nanquantile(residuals[:, some], share, axis=0)) for share in shares]
    return np.array([np.interp(places, some, end) for end in ends])


def _draw_subject(axes: Axes, times: Array, true: Array, predicted: Array, ends: Array) -> None:
    """Draw one subject: its curve as it was seen, and the prediction with its band."""
    band(axes, times, predicted + ends[0], predicted + ends[1], colour(0), alpha=0.18)
    line(axes, times, predicted, colour(0))
    # Curves with missing values also show their observations.
    holes = bool(np.isnan(true).any())
    line(axes, times, true, "black", linewidth=0.9, marker="." if holes else "None", markersize=2.5)
    axes.set_xlim(times[0], times[-1])
    few_ticks(axes, 4)


# Experiments


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
