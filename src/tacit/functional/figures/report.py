"""The figures of a report on curves: surfaces, the path of boosting, and where it stopped.

All of it is worked out from what the parties have released: it looks at no curve, and costs nothing.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tacit.functional.figures import MODELLED, selection_path, stopping, surfaces
from tacit.reports.page.blocks import Figure
from tacit.reports.plots.style import Picture, shorten_label
from tacit.runtime.arrays import Array

if TYPE_CHECKING:
    from tacit.functional.model import Model
    from tacit.functional.tasks import Boosting
    from tacit.learning.record import Round

# Surfaces of more predictors are no longer looked at, nor figures of more domains.
MOST, DOMAINS = 6, 3
# In either direction: surfaces are smooth.
POINTS = 41
# Dots to an inch of few surfaces and of many: a report is to stay small.
FEW, DOTS, FEWER_DOTS = 2, 50, 36
HELD_BACK = "Error on held-out subjects"
CRITERIA = {"aic": "AIC", "aicc": "AIC, corrected for few subjects", "mv": "AIC by the residuals' covariance"}


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
    figures = _surfaces(model)
    if model.path:
        figures.append(_path(model))
    if len(model.criterion) > 1 and bool(np.isfinite(model.criterion).all()):
        figures.append(_stopping(model, CRITERIA.get(str(task.stop), HELD_BACK)))
    return figures


def _surfaces(model: "Model") -> list[Figure]:
    """The surfaces of the strongest predictors; those of one domain share a figure."""
    importance = model.importance
    order = sorted(model.selected, key=lambda name: -importance[name])
    groups: dict[tuple[float, float], list[str]] = {}
    for name in order[:MOST]:
        groups.setdefault(model.frames[name].domain, []).append(name)
    parts = list(groups.items())[:DOMAINS]
    shown = sum(len(names) for _, names in parts)
    some = f". {shown} of {len(order)} selected predictors, the strongest" * (shown < len(order))
    return [
        Figure(
            f"surfaces-{number}" if number > 1 else "surfaces", *_draw_surfaces(model, names, domain, some)
        )
        for number, (domain, names) in enumerate(parts, start=1)
    ]


def _draw_surfaces(
    model: "Model", names: Sequence[str], domain: tuple[float, float], some: str
) -> tuple[Picture, str]:
    """The surfaces of predictors of one domain, and where each is the farthest from 0."""
    s, t = (np.linspace(*ends, POINTS) for ends in (domain, model.frames[model.response].domain))
    found = {name: model.surface(name, s, t) for name in names}
    drawn = surfaces(found, s, t, provenance=MODELLED + some)
    drawn.set_dpi(DOTS if len(names) <= FEW else FEWER_DOTS)
    told = [_farthest(name, found[name], s, t, model.importance[name]) for name in names]
    words = f"Effects on {shorten_label(model.response)}, the strongest first: {'; '.join(told)}{some}."
    return drawn, words


def _farthest(name: str, values: Array, s: Array, t: Array, share: float) -> str:
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
