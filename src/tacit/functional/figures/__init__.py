"""The figures of a paper on curves, each from plain arrays and tables.

    model          surface, surfaces, selection_path, stopping, predictions
    experiments    privacy_utility, by_parties, selection
    report         pictures, all figures of a run

Each gives a matplotlib figure, and keeps it in a file if a `path` is named. `pictures` draws what the parties
have released: it reads no curve, and costs nothing. What a figure shows has left the parties already, except
in `predictions`, which shows curves of subjects. Surfaces show the effect of a predictor at time s on the
response at time t: orange is positive, blue negative, white zero.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from tacit.errors import InvalidValue, require, require_count
from tacit.functional import metrics
from tacit.functional.figures.experiments import by_parties as by_parties
from tacit.functional.figures.experiments import privacy_utility as privacy_utility
from tacit.functional.figures.experiments import selection as selection
from tacit.reports.page.blocks import Figure
from tacit.reports.plots import (
    band,
    dots,
    few_ticks,
    footnote,
    head,
    line,
    name_rows,
    panels,
    tint_rows,
    write,
    write_asides,
)
from tacit.reports.plots.style import (
    BODY,
    GREY,
    INK,
    PALE,
    PALETTE,
    ROW,
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
    from tacit.functional.model import Model
    from tacit.functional.tasks import Boosting
    from tacit.learning.record import Round

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

# A report shows surfaces of at most so many predictors, and of so many domains.
MOST, DOMAINS = 6, 3
# In either direction: surfaces are smooth.
POINTS = 41
# Dots to an inch of few surfaces and of many: a report is to stay small.
FEW, DOTS, FEWER_DOTS = 2, 50, 36
HELD_BACK = "Error on held-out subjects"
# File of a run with predictions of held-out subjects.
PREDICTIONS = "predictions.json"
CRITERIA = {"aic": "AIC", "aicc": "AIC, corrected for few subjects", "mv": "AIC by the residuals' covariance"}


class KeptPredictions(msgspec.Struct):
    """True and predicted curves of some held-out subjects, as a run keeps them; null where unobserved."""

    of: int
    times: list[float]
    true: list[list[float | None]]
    predicted: list[list[float]]

    def arrays(self) -> tuple[Array, Array, Array]:
        """Return the true and the predicted curves (subjects, times), and the times; empty if ragged."""
        lengths = {len(row) for row in (*self.true, *self.predicted)}
        if lengths != {len(self.times)}:
            return np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0)
        true = [[math.nan if value is None else value for value in row] for row in self.true]
        return np.array(true), np.array(self.predicted), np.array(self.times)


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
    """Return the middle interval of residuals at each time, interpolated over times without any."""
    some = np.flatnonzero((~np.isnan(residuals)).any(axis=0))
    places = np.arange(residuals.shape[1], dtype=np.float64)
    shares = (0.5 - level / 2, 0.5 + level / 2)
    ends = [np.asarray(np.nanquantile(residuals[:, some], share, axis=0)) for share in shares]
    return np.array([np.interp(places, some, end) for end in ends])


def _draw_subject(axes: Axes, times: Array, true: Array, predicted: Array, ends: Array) -> None:
    """Draw the observed curve of one subject, and the prediction with its band."""
    band(axes, times, predicted + ends[0], predicted + ends[1], colour(0), alpha=0.18)
    line(axes, times, predicted, colour(0))
    # Curves with missing values also show their observations.
    holes = bool(np.isnan(true).any())
    line(axes, times, true, "black", linewidth=0.9, marker="." if holes else "None", markersize=2.5)
    axes.set_xlim(times[0], times[-1])
    few_ticks(axes, 4)


def pictures(
    task: "Boosting", state: Array, rounds: "Sequence[Round]", read: Callable[[str], bytes | None]
) -> list[Figure]:
    """Return the figures of a run on curves; none before the parties have released anything.

    Args:
        task: The bound task.
        state: The parties' release.
        rounds: The rounds of the run.
        read: A file of the run by its name, if it is there.
    """
    if state.ndim != 1 or not bool(state.any()) or not bool(np.isfinite(state).all()):
        return []
    model = task.model(state)
    figures = [*_predicted(model, read(PREDICTIONS)), *_surfaces(model)]
    if model.path:
        figures.append(_path(model))
    if len(model.criterion) > 1 and bool(np.isfinite(model.criterion).all()):
        figures.append(_stopping(model, CRITERIA.get(str(task.stop), HELD_BACK)))
    return figures


def _predicted(model: "Model", content: bytes | None) -> list[Figure]:
    """Draw true beside predicted curves of held-out subjects, where a run keeps some that may be shown."""
    try:
        kept = msgspec.json.decode(content or b"", type=KeptPredictions)
    except msgspec.MsgspecError:
        return []
    true, predicted, times = kept.arrays()
    if true.shape != predicted.shape or true.shape[1:] != times.shape or not len(true) or len(times) < 2:
        return []
    if not (np.isfinite(predicted).all() and np.isfinite(times).all() and (np.diff(times) > 0).all()):
        return []
    some = f", the first {len(true):,} of {kept.of:,}" * (len(true) < kept.of)
    drawn = predictions(
        true, predicted, times, response=shorten_label(model.response), provenance=f"Held-out subjects{some}"
    )
    errors = _errors(true, predicted, times)
    words = (
        f"True and predicted {shorten_label(model.response)} of held-out subjects{some}, from the best "
        f"prediction to the worst: RIL2 from {errors.min():.2g} to {errors.max():.2g}."
    )
    return [Figure("predictions", drawn, words)]


def _surfaces(model: "Model") -> list[Figure]:
    """Draw the surfaces of the strongest predictors; those of one domain share a figure."""
    importance = model.importance
    order = sorted(model.selected, key=lambda name: -importance[name])
    groups: dict[tuple[float, float], list[str]] = {}
    for name in order[:MOST]:
        groups.setdefault(model.frames[name].domain, []).append(name)
    parts = list(groups.items())[:DOMAINS]
    shown = sum(len(names) for _, names in parts)
    some = f". {shown} of {len(order)} selected predictors, the strongest" * (shown < len(order))
    return [
        Figure(f"surfaces-{number}" if number > 1 else "surfaces", *_draw_domain(model, names, domain, some))
        for number, (domain, names) in enumerate(parts, start=1)
    ]


def _draw_domain(
    model: "Model", names: Sequence[str], domain: tuple[float, float], some: str
) -> tuple[Picture, str]:
    """Draw the surfaces of predictors of one domain, and where each is the farthest from 0."""
    s, t = (np.linspace(*ends, POINTS) for ends in (domain, model.frames[model.response].domain))
    found = {name: model.surface(name, s, t) for name in names}
    drawn = surfaces(found, s, t, provenance=MODELLED + some)
    drawn.set_dpi(DOTS if len(names) <= FEW else FEWER_DOTS)
    told = [_describe_farthest(name, found[name], s, t, model.importance[name]) for name in names]
    words = f"Effects on {shorten_label(model.response)}, the strongest first: {'; '.join(told)}{some}."
    return drawn, words


def _describe_farthest(name: str, values: Array, s: Array, t: Array, share: float) -> str:
    """Describe the point at which a surface is farthest from 0, and its share of the model."""
    row, column = (int(place) for place in np.unravel_index(np.abs(values).argmax(), values.shape))
    where = f"s = {s[row]:.3g}, t = {t[column]:.3g}"
    return f"{shorten_label(name)}, {100 * share:.0f} % of the model, is {values[row, column]:.2g} at {where}"


def _path(model: "Model") -> Figure:
    """Draw the predictor that each boosting step improved."""
    names, steps = list(dict.fromkeys(model.path)), f"{model.steps} step{'s' * (model.steps != 1)}"
    told = [f"{shorten_label(name)} in {model.path.count(name)}" for name in names[:MOST]]
    told += [f"{len(names) - MOST} more"] * (len(names) > MOST)
    words = f"Boosting took {steps}: {', '.join(told)}; first come first."
    return Figure("selection-path", selection_path(model.path), words)


def _stopping(model: "Model", criterion: str) -> Figure:
    """Draw the criterion that chose the number of steps."""
    curve = model.criterion
    chosen = min(model.steps, len(curve) - 1)
    drawn = stopping(curve, chosen, criterion=criterion)
    words = (
        f"{criterion}: {curve[0]:.3g} before the first step, {curve[chosen]:.3g} after {chosen}, where "
        f"boosting stopped, {curve[-1]:.3g} after {len(curve) - 1}."
    )
    return Figure("stopping", drawn, words)
