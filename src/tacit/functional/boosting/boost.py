"""Curves from curves, by boosting: which predictors count, how rough their surfaces may be, when to stop.

Everything is decided from moments and costs nothing once they are paid for. Splits of the evidence are walked
side by side and judged on what was held back; then one walk on all of it gives the coefficients.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tacit.errors import require
from tacit.functional.boosting.config import Recipe as Recipe
from tacit.functional.boosting.moments import Evidence
from tacit.functional.boosting.path import Penalty
from tacit.functional.boosting.selection import Some, Trial, Trials

Array = NDArray[np.float64]
# How often survivors are screened anew, at most; twice is the rule.
SCREENS = 6


@dataclass(frozen=True, eq=False, kw_only=True)
class Boosted:
    """A fit.

    Args:
        coefficients: Of all predictors' coordinates, for those of the response (columns, m).
        path: Which predictor was moved at each step.
        steps: How many steps there are.
        curve: What their number was chosen by, after 0, 1, ... steps.
        losses: On all that was learnt from, after 0, 1, ... steps.
        selected: The predictors on the path, in order.
        screened: What the screen kept; None if there was none, empty if it would have kept nothing or done
            harm, so that all predictors took part.
        degrees: Degrees of freedom.
        smooth: The prices of roughness that were chosen, along s, t and both.
        ridge: The floor of variances that was chosen, in units of what noise alone would show.
    """

    coefficients: Array
    path: tuple[int, ...]
    steps: int
    curve: Array
    losses: Array
    selected: tuple[int, ...]
    screened: tuple[int, ...] | None
    degrees: float
    smooth: tuple[float, float, float]
    ridge: float


def boost(evidence: Evidence, recipe: Recipe) -> Boosted:
    """Fit curves by curves, from evidence alone.

    Args:
        evidence: Moments, and splits of them.
        recipe: What to do.
    """
    require(len(evidence.blocks) > 0, "blocks", evidence.blocks, "the columns of at least one predictor")
    trials = Trials(evidence, recipe)
    best, screened = _best(trials)
    final = trials.on_whole(best.kept, best.penalty, best.steps)
    path = tuple(best.kept[int(place)] for place in final.chosen[:, 0])
    return Boosted(
        coefficients=_spread(evidence, best.kept, final.coefficients(best.steps)[0]),
        path=path,
        steps=len(path),
        curve=best.curve,
        losses=final.judged.sum(axis=(1, 2)),
        selected=tuple(sorted(set(path))),
        screened=screened,
        degrees=float(trials.degrees(final)[-1].sum()),
        smooth=(best.penalty.s, best.penalty.t, best.penalty.st),
        ridge=best.penalty.floor,
    )


def _best(trials: Trials) -> tuple[Trial, Some | None]:
    """The trial to go by, and what a screen kept.

    Prices are chosen among survivors, which takes a fraction of the time. Only if noise hides all predictors
    at the first prices, others are tried on everyone.
    """
    grids = _grids(trials.evidence, trials.recipe)
    first = Penalty(**{name: values[0] for name, values in grids.items()})
    everyone = trials.of(tuple(range(len(trials.evidence.blocks))), first)
    if trials.recipe.selection == "all" or not trials.weights.size:
        return _tuned(trials, everyone, grids), None
    found = _screened(trials, everyone, grids)
    if found is None:
        everyone = _tuned(trials, everyone, grids)
        found = _screened(trials, everyone, grids)
    return (everyone, ()) if found is None else (found, found.kept)


def _grids(evidence: Evidence, recipe: Recipe) -> dict[str, tuple[float, ...]]:
    """The values of each price, in the order they are chosen; one alone where it makes no difference."""
    rough, rough_y = any(own.any() for own in evidence.roughness), bool(evidence.roughness_y.any())
    found = {
        "floor": ("ridge", any(evidence.floors)),
        "s": ("smooth_s", rough),
        "t": ("smooth_t", rough_y),
        "st": ("smooth_st", rough and rough_y),
    }
    return {
        price: recipe.values(name) if matters else (recipe.values(name)[0],)
        for price, (name, matters) in found.items()
    }


def _tuned(trials: Trials, best: Trial, grids: dict[str, tuple[float, ...]]) -> Trial:
    """The best trial of the same predictors: one price is chosen after the other."""
    for price, values in grids.items():
        others = [value for value in values if value != getattr(best.penalty, price)]
        found = [trials.of(best.kept, replace(best.penalty, **{price: value})) for value in others]
        best = min([best, *found], key=lambda trial: trial.value)
    return best


def _screened(trials: Trials, everyone: Trial, grids: dict[str, tuple[float, ...]]) -> Trial | None:
    """The best trial of predictors that all help; None if there are none, or if the others are missed."""
    found = _settled(trials, everyone)
    if found is None or trials.worse(found, everyone):
        return None
    return _settled(trials, _tuned(trials, found, grids))


def _settled(trials: Trials, trial: Trial) -> Trial | None:
    """Drop what does not help until all that is left does."""
    for _ in range(SCREENS):
        kept = trials.helpful(trial)
        if not kept:
            return None
        if kept == trial.kept:
            break
        trial = trials.of(kept, trial.penalty)
    return trial


def _spread(evidence: Evidence, kept: Sequence[int], found: Array) -> Array:
    """Coefficients by predictor (predictors, size, m) as those of all columns, 0 for the others."""
    coefficients = np.zeros_like(evidence.whole.xy)
    for row, own in zip(kept, found, strict=True):
        block = evidence.blocks[row]
        coefficients[block] = own[: block.stop - block.start]
    return coefficients
