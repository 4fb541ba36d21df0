"""Figures of a survival run's report, from its model alone, without any record.

    networks          survival of a typical person and of others, what features do, incidence by cause
    Cox regression    hazard ratios with their intervals
    Kaplan-Meier      the curve with its band, incidence by cause

All of it is worked out from the model, which has left the sites already: it costs nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from tacit.errors import InvalidValue, Refused
from tacit.reports.page.blocks import Figure
from tacit.reports.plots import band, line
from tacit.reports.plots.style import Label, colour, label_lines, picture, shorten_label
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import fields_of
from tacit.survival.figures.curves import (
    HEIGHT,
    MODELLED,
    MOST,
    cumulative_incidence,
    estimates,
    limit_y_axis,
    survival_curves,
    time_axis,
    time_lines,
)
from tacit.survival.figures.importance import ROWS, forest, readable_unit, tornado
from tacit.survival.models.learner import SurvivalLearner
from tacit.survival.models.newton_ph import NewtonPH
from tacit.survival.models.prediction import GridModel, IncidenceModel, RelativeModel
from tacit.survival.partial_effects import TRIED, Effects, Person, changes, describe_typical, effects, typical
from tacit.survival.statistics.cox_fit import PrivateCoxFit
from tacit.survival.statistics.cox_task import Cox
from tacit.survival.statistics.curves import Estimate
from tacit.survival.statistics.kaplan_meier_task import KaplanMeier, KaplanMeierFit
from tacit.survival.statistics.private_cox_task import PrivateCox

if TYPE_CHECKING:
    from tacit.learning.record import Round

Read = Callable[[str], bytes | None]

# Number of people in a figure of curves beside the typical one, and of these to the same side.
OTHERS, SAME = 5, 3
# Times of curves, and most steps of an estimate.
POINTS, STEPS = 101, 250
# Most models whose effects share a figure.
COMPARED = 4
SUMMARY = "summary.json"


def pictures(
    task: SurvivalLearner | NewtonPH | Cox | PrivateCox | KaplanMeier,
    state: Array,
    rounds: "Sequence[Round]",
    read: Read,
) -> list[Figure]:
    """Return the figures of a survival run; none before there is a model.

    Args:
        task: The bound task.
        state: One model (coordinates), or several (models, coordinates).
        rounds: The record of the rounds.
        read: A file of the run by its name, if it is there.
    """
    states = state.reshape(-1, state.shape[-1])
    if not bool(np.isfinite(states).all()):
        return []
    if isinstance(task, NewtonPH):
        if not task.baseline:
            return []
        return [*_network_figures(task, [task.model(own) for own in states], {}), *_risk_group_figures(read)]
    if isinstance(task, SurvivalLearner):
        if isinstance(task.cuts, int) or not task.columns:
            return []
        figures = _network_figures(task, [task.model(own) for own in states], _members(rounds, read))
        return [*figures, *_risk_group_figures(read)]
    try:
        return (
            _kaplan_meier_figures(task, states[0])
            if isinstance(task, KaplanMeier)
            else _cox_figures(task, states[0])
        )
    except (InvalidValue, Refused):
        # Nothing has been counted, or the counts are noise alone.
        return []


def _members(rounds: "Sequence[Round]", read: Read) -> Mapping[str, int]:
    """Return the model of each site, where there are several models."""
    kept = cast("dict[str, Any]", msgspec.json.decode(read(SUMMARY) or b"{}"))
    return kept.get("clusters", rounds[-1].clusters if rounds else {})


def _risk_group_figures(read: Read) -> list[Figure]:
    """Draw Kaplan-Meier curves of risk groups from the noisy table that scored the model, if there is one."""
    kept = cast("dict[str, Any]", msgspec.json.decode(read(SUMMARY) or b"{}")).get("evaluation", {})
    curves = kept.get("curves", {})
    if not curves:
        return []
    times = np.append(0.0, np.asarray(curves["ends"][0], dtype=np.float64))
    found, low, high = (
        np.array([[1.0, *(math.nan if value is None else value for value in row)] for row in curves[name]])
        for name in ("groups", "groups_low", "groups_high")
    )
    shown = np.isfinite(found)
    if not bool(shown[:, 1:].any()):
        return []
    names = [f"{word} risk" for word in ("low", "medium", "high")][:: 1 if len(found) == 3 else 2]
    names = names if len(names) == len(found) else [f"group {place + 1}" for place in range(len(found))]
    last = [row[known][-1] for row, known in zip(found, shown, strict=True)]
    title = (
        f"Held-out records by predicted risk: survival falls to {last[0]:.2f} in the group of low risk and "
        f"to {last[-1]:.2f} in that of high risk"
    )
    note = (
        "Kaplan-Meier curves of risk groups, from the noisy table of held-out records that scored the model. "
        "Bands: 95 %, with the noise. Values that the noise hides are left out."
    )
    figure = picture(HEIGHT, title, note)
    axes = figure.add_subplot()
    time_axis(axes, float(times[-1]), None, "Survival")
    labels = list[Label]()
    for place, (row, known) in enumerate(zip(found, shown, strict=True)):
        band(axes, times[known], low[place][known], high[place][known], colour(place))
        labels.append(line(axes, times[known], row[known], colour(place), names[place], linewidth=1.5))
    limit_y_axis(axes, "survival")
    label_lines({axes: labels})
    words = "; ".join(f"{name} {value:.2f}" for name, value in zip(names, last, strict=True))
    return [Figure("risk-groups", figure, f"Survival of held-out records by predicted risk: {words}.")]


def _kaplan_meier_figures(task: KaplanMeier, state: Array) -> list[Figure]:
    """The curve of all sites, and the incidence of each of several causes."""
    model = task.model(state)
    found = model.survival
    last = {name: float(found.table[name].iloc[-1]) for name in ("survival", "lower", "upper")}
    half = f"the median is {found.median:.4g}" if np.isfinite(found.median) else "it stays above one half"
    words = (
        f"The probability of no event falls from 1 to {last['survival']:.2f} at {found.table.index[-1]:.4g} "
        f"({100 * found.level:g} % band: {last['lower']:.2f} to {last['upper']:.2f}); {half}."
    )
    figures = [*_arm_figures(task, model), Figure("kaplan-meier", estimates(_sparse(found)), words)]
    if 1 < task.causes <= MOST:
        each = model.incidence
        parts = [
            f"cause {number} {float(each.table[name].iloc[-1]):.2f}"
            for number, name in enumerate(each.curves, start=1)
        ]
        words = f"Probability of an event by {each.table.index[-1]:.4g}: {', '.join(parts)}."
        figures.append(Figure("incidence", cumulative_incidence(_sparse(each)), words))
    return figures


def _arm_figures(task: KaplanMeier, model: KaplanMeierFit) -> list[Figure]:
    """The curves of the arms, with their comparison in words, and the incidences of each arm."""
    if task.by is None or len(model.table.groups) > MOST:
        return []
    named = {f"{task.by} {label}": _sparse(part) for label, part in model.survival_by.items()}
    words = ". ".join(part[:1].upper() + part[1:] for part in model.comparison()) + "."
    figures = [Figure("kaplan-meier-by-arm", estimates(named), words)]
    if 1 < task.causes <= MOST:
        figures += [
            Figure(
                f"incidence-{label}",
                cumulative_incidence(_sparse(part)),
                f"Probability of an event of each cause where {task.by} is {label}.",
            )
            for label, part in model.incidence_by.items()
        ]
    return figures


@dataclass(frozen=True, eq=False)
class SparseEstimate(Estimate):
    """An estimate at some of its times; the number at risk is kept for all of them."""

    whole: Estimate | None = None

    def at_risk(self, times: ArrayLike) -> Array:
        """Return the number at risk just before these times (times,)."""
        return super().at_risk(times) if self.whole is None else self.whole.at_risk(times)


def _sparse(found: Estimate) -> SparseEstimate:
    """Return the estimate at as many times as a figure can show, first and last included."""
    rows = np.unique(np.linspace(0, len(found.table) - 1, STEPS).round().astype(np.int64))
    held: dict[str, Any] = {**fields_of(found), "table": found.table.iloc[rows], "whole": found}
    return SparseEstimate(**held)


def _cox_figures(task: Cox | PrivateCox, state: Array) -> list[Figure]:
    """Draw hazard ratios with their intervals, clearest effects first; those that noise hides are named."""
    fit = task.model(state)
    shown = fit.shown if isinstance(fit, PrivateCoxFit) else np.ones(len(fit.columns), dtype=np.bool_)
    hidden = [name for name, here in zip(fit.columns, shown.tolist(), strict=True) if not here]
    if not shown.any():
        return []
    clearness = np.where(shown, np.abs(fit.coefficients / fit.standard_errors), -1.0)
    order: list[int] = np.argsort(-clearness, kind="stable")[: min(ROWS, int(shown.sum()))].tolist()
    table, share = fit.summary(), f"{100 * fit.level:g}%"
    ends = ("exp(coef)", f"exp(coef) lower {share}", f"exp(coef) upper {share}")
    rows = table[list(ends)].to_numpy(dtype=np.float64)[order]
    away = f" Hidden by noise: {', '.join(hidden)}." if hidden else ""
    names = [fit.columns[place] for place in order]
    units = {name: readable_unit(name, [fit]) for name in names}
    per = {name: "" if units[name] == 1 else f" per {units[name]:g}" for name in names}
    lines = [
        f"{shorten_label(name)}{per[name]} {middle:.2f} ({low:.2f} to {high:.2f})"
        for name, (middle, low, high) in (
            (name, row ** units[name]) for name, row in zip(names, rows, strict=True)
        )
    ]
    some = f", the clearest {len(names)} of {len(fit.columns)}" * (len(names) < int(shown.sum()))
    words = f"Hazard ratios with {100 * fit.level:g} % intervals{some}: {'; '.join(lines)}.{away}"
    return [Figure("hazard-ratios", forest({"all sites": fit}, columns=names, units=units), words)]


def _network_figures(
    task: SurvivalLearner | NewtonPH, models: Sequence[GridModel], members: Mapping[str, int]
) -> list[Figure]:
    """The figures of one network, or of several."""
    usual, person = typical(task.columns, task.encoding), describe_typical(task.columns, task.encoding)
    changed, many = changes(task.columns, task.encoding), len(models)
    # Before a run is over the common baseline hazard is not known: there are weights at most.
    curves = not any(isinstance(model, RelativeModel) and model.baseline is None for model in models)
    if not curves and task.kind == "cox-time":
        return []
    found = [effects(models[0], usual, changed)]
    found += [effects(model, usual, changed, found[0].when) for model in models[1:COMPARED]]
    figures: list[Figure] = []
    if curves and many == 1:
        figures.append(_survival_figure(models[0], usual, person, found[0]))
    elif curves:
        figures.append(_by_model(models, usual, person, members))
    # Lengths are bounded, so that an effect is not the same at every value: no ratio holds throughout.
    linear = isinstance(task, SurvivalLearner) and not task.hidden and found[0].when is None
    tried = f"the first {TRIED} of " * (len(task.columns) > TRIED) + f"{len(task.columns)}"
    figures.append(tornado(found, person=person, features=tried, models=many, linear=linear))
    first = models[0]
    if isinstance(first, IncidenceModel) and 1 < first.loss.causes <= MOST:
        figures.append(_incidence(first, usual, person, many))
    return figures


def _survival_figure(model: GridModel, usual: Array, person: str, found: Effects) -> Figure:
    """Draw curves of a typical person, and of people who differ in the strongest features."""
    others = _most_different(found)
    names, inputs = (
        ["typical", *(one.words for one in others)],
        np.array([usual, *(one.inputs for one in others)]),
    )
    times = np.linspace(0, float(model.ends[-1]), POINTS)
    last, end = model.survival(inputs, times[-1:])[:, 0], f"{times[-1]:.4g}"
    span = f"{last.min():.2f} to {last.max():.2f}"
    title = f"A typical person has no event until {end} with probability {last[0]:.2f}; others with {span}"
    origin = f"{MODELLED}. {person}. Others differ from it in one feature"
    seen = survival_curves(model, inputs, times, names, title=title, provenance=origin)
    ends = [f"with {name} to {value:.2f}" for name, value in zip(names[1:], last[1:], strict=True)]
    words = [f"Survival of a typical person falls from 1 to {last[0]:.2f} at {end}", *ends]
    return Figure("survival-curves", seen, f"{'; '.join(words)}.")


def _most_different(found: Effects) -> list[Person]:
    """Return the people farthest from the typical person, some to either side if there are any."""
    people = [one for change in found.changes for one in change.people]
    moved = np.array([value for row in found.found for value in row])
    chosen: list[int] = []
    for place in np.argsort(-np.abs(moved), kind="stable").tolist():
        same = sum((moved[other] > 0) == (moved[place] > 0) for other in chosen)
        if same < SAME and len(chosen) < OTHERS:
            chosen.append(place)
    return [people[place] for place in sorted(chosen, key=lambda place: -moved[place])]


@dataclass(frozen=True, eq=False)
class ModelStack:
    """Several models, each for one record."""

    models: Sequence[GridModel]

    def survival(self, features: ArrayLike, times: ArrayLike) -> Array:
        """Predict survival of each record by the model at its place (models, times)."""
        rows = np.asarray(features, dtype=np.float64)
        found = [model.survival(row, times) for model, row in zip(self.models, rows, strict=True)]
        return np.vstack(found)


def _by_model(models: Sequence[GridModel], usual: Array, person: str, members: Mapping[str, int]) -> Figure:
    """Curves of a typical person, by each of several models."""
    shown = models[:MOST]
    sizes = [sum(own == place for own in members.values()) for place in range(len(shown))]
    names = [
        f"model {place + 1}" + f", {size} site{'s' * (size != 1)}" * bool(members)
        for place, size in enumerate(sizes)
    ]
    times = np.linspace(0, min(float(model.ends[-1]) for model in shown), POINTS)
    side, inputs = ModelStack(shown), np.repeat(usual[None], len(shown), axis=0)
    last, end = side.survival(inputs, times[-1:])[:, 0], f"{times[-1]:.4g}"
    some = f". The first {len(shown)} of {len(models)} models" * (len(models) > len(shown))
    title = (
        f"A typical person has no event until {end} with probability {last.min():.2f} to {last.max():.2f}, "
        "by the model of its site"
    )
    origin = f"{MODELLED}. {person}{some}"
    seen = survival_curves(side, inputs, times, names, title=title, provenance=origin)
    ends = [f"{value:.2f} by {name}" for name, value in zip(names, last, strict=True)]
    words = f"Survival of a typical person falls from 1 to these at {end}: {'; '.join(ends)}{some}."
    return Figure("survival-curves", seen, words)


def _incidence(model: IncidenceModel, usual: Array, person: str, many: int) -> Figure:
    """The chance of an event of each cause, of a typical person."""
    times = np.linspace(0, float(model.ends[-1]), POINTS)
    causes = range(1, model.loss.causes + 1)
    curves = np.vstack([model.incidence(usual, times, cause) for cause in causes])
    ends = [f"cause {cause} {value:.2f}" for cause, value in zip(causes, curves[:, -1], strict=True)]
    whose = " by model 1" * (many > 1)
    seen = f"Probability of an event for a typical person by {times[-1]:.4g}{whose}: {', '.join(ends)}"
    figure = picture(HEIGHT, seen, f"{MODELLED}. {person}.")
    axes = figure.add_subplot()
    time_axis(axes, float(times[-1]), None, "Cumulative incidence")
    labels = time_lines(axes, times, curves, [f"cause {cause}" for cause in causes])
    limit_y_axis(axes, "incidence")
    label_lines({axes: labels})
    return Figure("incidence", figure, f"{seen}.")
