"""The figures of a paper on curves, each from plain arrays and tables.

    model          surface, surfaces, selection_path, stopping, predictions
    experiments    privacy_utility, by_parties, selection

Each gives a matplotlib figure, and keeps it in a file if a `path` is named. What a figure shows has left the
parties already, except in `predictions`, which looks at curves of subjects.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from tacit.errors import require, require_count
from tacit.functional import metrics
from tacit.functional.figures.coefficients import MODELLED
from tacit.functional.figures.coefficients import surface as surface
from tacit.functional.figures.coefficients import surfaces as surfaces
from tacit.functional.figures.comparisons import by_parties as by_parties
from tacit.functional.figures.comparisons import privacy_utility as privacy_utility
from tacit.functional.figures.comparisons import selection as selection
from tacit.reports.plots.style import (
    BODY,
    GREY,
    INK,
    PALE,
    ROW,
    RULE,
    Label,
    Picture,
    colour,
    ink,
    label_lines,
    picture,
    save_figure,
    shorten_label,
    tidy,
)

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

Array = NDArray[np.float64]

LOOKED = "bare: curves and predictions of these subjects"
ACROSS = 3
PANEL = 1.3
# The size of a dot in points: steps so many that dots would touch have smaller ones.
DOT, ROOM = 5.0, 330.0


def selection_path(
    chosen: Sequence[str],
    *,
    kept: int | None = None,
    active: Collection[str] | None = None,
    title: str | None = None,
    provenance: str = MODELLED,
    path: str | Path | None = None,
) -> Picture:
    """Draw which predictor each step of boosting has improved; first come first.

    Args:
        chosen: The predictor of each step, by name.
        kept: How many steps the model has kept, if not all; later ones are drawn hollow.
        active: The predictors that matter in truth, where that is known; all others are drawn in orange.
        title: What is seen; if not said, how many predictors the model uses and which came first.
        provenance: Where the numbers come from.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require(len(chosen) > 0, "chosen", "no step", "the predictor of at least one step")
    names, used = list(dict.fromkeys(chosen)), len(chosen) if kept is None else kept
    require(0 <= used <= len(chosen), "kept", kept, f"from 0 to {len(chosen)}, as there are steps")
    told = title or _path_title(chosen[:used], active)
    note = f"{provenance}." + " Hollow: steps that the model has not kept." * (used < len(chosen))
    note += " Orange: predictors that do not matter in truth." * (active is not None)
    figure = picture(0.7 + 1.3 * ROW * len(names), told, note)
    axes = figure.add_subplot()
    tidy(axes, "Step", "")
    axes.grid(visible=False)
    shades = [colour(int(active is not None and name not in active)) for name in names]
    for row, (name, shade) in enumerate(zip(names, shades, strict=True)):
        steps = 1 + np.flatnonzero([one == name for one in chosen])
        _steps(axes, row, steps, used, shade)
        told_apart = ink(shade) if shade != colour(0) else INK
        times = f"{sum(one == name for one in chosen[:used])} of {used}"
        _beside(axes, row, name, times, told_apart)
    _step_axes(axes, len(names), len(chosen), used)
    return save_figure(figure, path)


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
    """Draw the criterion that boosting was stopped by, step by step, and the step that was chosen.

    Args:
        curve: The criterion after 0, 1, 2, ... steps.
        chosen: The step that was chosen; the lowest if not said.
        criterion: What it is.
        references: Levels to compare with, by name: `noise`.
        title: What is seen; if not said, the chosen step.
        provenance: Where the numbers come from.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    values = np.asarray(curve, dtype=np.float64)
    shaped = values.ndim == 1 and len(values) > 0 and bool(np.isfinite(values).any())
    require(shaped, "curve", f"shape {values.shape}", "a number after each step, the first after none")
    best = int(np.nanargmin(np.where(np.isfinite(values), values, np.nan))) if chosen is None else chosen
    require(0 <= best < len(values), "chosen", chosen, f"a step from 0 to {len(values) - 1}")
    figure = picture(2.7, title or f"{criterion}: {values[best]:.3g} after {best} steps", f"{provenance}.")
    axes = figure.add_subplot()
    tidy(axes, "Step", criterion)
    levels = dict(references or {})
    for place, level in enumerate(levels.values()):
        axes.axhline(level, color=GREY, linewidth=0.9, linestyle=("--", ":", "-.", "-")[place % 4])
    axes.axvline(best, color=PALE, linewidth=0.8)
    axes.plot(np.arange(len(values)), values, color=colour(0), linewidth=1.5)
    axes.plot([best], [values[best]], color=colour(0), marker="o", markersize=DOT)
    axes.set_xlim(-0.02 * len(values), 1.02 * (len(values) - 1) + 0.02)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    ends = [Label(level, f"{name} {level:.3g}") for name, level in levels.items()]
    if best < len(values) - 1:
        ends.append(Label(float(values[-1]), f"last {values[-1]:.3g}", colour(0)))
    late = best > 0.8 * (len(values) - 1)
    axes.annotate(
        f"step {best}", (best, 1), xycoords=axes.get_xaxis_transform(), xytext=(-3 if late else 3, -2),
        textcoords="offset points", fontsize=BODY, color=GREY, va="top", ha="right" if late else "left",
    )  # fmt: skip
    label_lines({axes: ends})
    return save_figure(figure, path)


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
    """Draw true and predicted curves of a few subjects, with a band as wide as residuals are.

    The band is around the prediction: at each time, the middle share `level` of the residuals of all
    subjects. Where these are subjects that the model was fitted to, it is too narrow for others.

    Args:
        true: The curves of all subjects (subjects, times); NaN where one was not seen.
        predicted: What was predicted of them (subjects, times).
        times: The grid, ascending (times,).
        rows: Whose curves to draw; if not said, from the best to the worst prediction in even steps.
        count: How many, if `rows` does not say.
        level: The share of residuals inside the band.
        unit: Of time, such as `hours`.
        response: What the curves are.
        title: What is seen; if not said, R2 of all subjects.
        provenance: Where the numbers come from.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    require(0 < level < 1, "level", level, "above 0 and below 1")
    seen, told = (np.asarray(given, dtype=np.float64) for given in (true, predicted))
    explained = metrics.scores(seen, told, times)["r2"]
    errors = _errors(seen, told, times)
    own = _spread_out(errors, count) if rows is None else list(rows)
    fits = len(own) > 0 and all(0 <= row < len(seen) for row in own)
    require(fits, "rows", own, f"at least one, each from 0 to {len(seen) - 1}")
    band = _band(seen - told, level)
    note = f"{provenance}. Black: true. Blue: predicted. Band: the middle {100 * level:g} % of residuals of"
    down = -(-len(own) // ACROSS)
    wide = -(-len(own) // down)
    figure = picture(
        0.45 + PANEL * down + 0.5 * (down == 1),
        title or _r2_title(response, explained),
        f"{note} {len(seen):,} subjects, at each time. Subjects are numbered from 0.",
    )
    grid = figure.subplots(down, wide, sharex=True, sharey=True, squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place >= len(own):
            axes.set_visible(False)
            continue
        row = own[place]
        tidy(axes, (f"Time ({unit})" if unit else "Time") if place + wide >= len(own) else "", "")
        axes.tick_params(labelbottom=place + wide >= len(own))
        _draw_subject(axes, np.asarray(times, dtype=np.float64), seen[row], told[row], band)
        words = f"subject {row}, RIL2 {errors[row]:.2g}"
        axes.set_title(words, loc="left", fontsize=BODY, color=INK, pad=2)
    figure.supylabel(shorten_label(response), fontsize=BODY, color=INK, parse_math=False)
    return save_figure(figure, path)


def _path_title(used: Sequence[str], active: Collection[str] | None) -> str:
    """What a path shows."""
    if not used:
        return "No step was kept: the model is the mean curve"
    names = list(dict.fromkeys(used))
    steps = f"{len(used)} step{'s' * (len(used) != 1)}"
    if active is None:
        several = f"{len(names)} predictors, {names[0]} first" if len(names) > 1 else f"{names[0]} alone"
        return f"{steps} of boosting chose {several}"
    right = len(set(active) & set(names))
    return f"{steps} found {right} of {len(set(active))} active predictors and {len(names) - right} others"


def _steps(axes: Axes, row: int, steps: NDArray[np.int64], used: int, shade: str) -> None:
    """Draw the steps of one predictor, hollow from where they were not kept."""
    axes.axhline(row, color=RULE, linewidth=0.5, zorder=0)
    for own, fill in ((steps[steps <= used], shade), (steps[steps > used], "white")):
        axes.plot(own, np.full(len(own), row), color=shade, marker="o", linestyle="none", mfc=fill, mew=0.8)


def _beside(axes: Axes, row: int, name: str, times: str, shade: str) -> None:
    """Write the predictor to the left of its steps, and how often it was chosen to the right."""
    for side, words, gap, align in ((0, shorten_label(name), -8, "right"), (1, times, 8, "left")):
        axes.annotate(
            words, (side, row), xycoords=axes.get_yaxis_transform(), xytext=(gap, 0), ha=align, va="center",
            textcoords="offset points", fontsize=BODY, color=shade, parse_math=False, annotation_clip=False,
        )  # fmt: skip


def _step_axes(axes: Axes, rows: int, steps: int, used: int) -> None:
    """Let steps go to the right and predictors down, the first one on top."""
    size = float(np.clip(0.8 * ROOM / steps, 1.5, DOT))
    for line in axes.lines:
        line.set_markersize(size)
    if used < steps:
        axes.axvline(used + 0.5, color=GREY, linewidth=0.8, linestyle="--")
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_xlim(0.5 - 0.01 * steps, steps + 0.5 + 0.01 * steps)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)


def _r2_title(response: str, share: float) -> str:
    """What predictions come to; of one subject alone nothing can be said."""
    if np.isnan(share):
        return f"{response}: true and predicted"
    return f"{response}: predictions explain {100 * share:.0f} % of the variance between subjects"


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


def _draw_subject(axes: Axes, times: Array, true: Array, predicted: Array, band: Array) -> None:
    """Draw one subject: its curve as it was seen, and the prediction with its band."""
    axes.fill_between(
        times, predicted + band[0], predicted + band[1], color=colour(0), alpha=0.18, linewidth=0
    )
    axes.plot(times, predicted, color=colour(0), linewidth=1.4)
    # Where there are holes, points show what was seen.
    holes = bool(np.isnan(true).any())
    axes.plot(times, true, color="black", linewidth=0.9, marker="." if holes else "", markersize=2.5)
    axes.set_xlim(times[0], times[-1])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
