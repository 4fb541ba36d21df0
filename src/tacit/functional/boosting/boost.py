"""Curves from curves, by boosting: which predictors count, how rough their surfaces may be, when to stop.

Everything is decided from moments and costs nothing once they are paid for. Splits of the evidence are walked
side by side and judged on what was held back; then one walk on all of it gives the coefficients.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tacit.errors import require
from tacit.functional.boosting.config import BoostingConfig as BoostingConfig
from tacit.functional.boosting.moments import DebiasedMoments
from tacit.functional.boosting.path import Penalty
from tacit.functional.boosting.selection import Evaluation, Evaluator, Some

Array = NDArray[np.float64]
# How often survivors are screened anew, at most; twice is the rule.
SCREENS = 6


@dataclass(frozen=True, eq=False, kw_only=True)
class BoostingFit:
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


def boost(evidence: DebiasedMoments, recipe: BoostingConfig) -> BoostingFit:
    """Fit curves by curves, from evidence alone.

    Args:
        evidence: Moments, and splits of them.
        recipe: What to do.
    """
    require(len(evidence.blocks) > 0, "blocks", evidence.blocks, "the columns of at least one predictor")
    trials = Evaluator(evidence, recipe)
    best, screened = _best(trials)
    final = trials.boost_whole(best.kept, best.penalty, best.steps)
    path = tuple(best.kept[int(place)] for place in final.chosen[:, 0])
    return BoostingFit(
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


def _best(trials: Evaluator) -> tuple[Evaluation, Some | None]:
    """The trial to go by, and what a screen kept.

    Prices are chosen among survivors, which takes a fraction of the time. Only if noise hides all predictors
    at the first prices, others are tried on everyone.
    """
    grids = _grids(trials.evidence, trials.recipe)
    first = Penalty(**{name: values[0] for name, values in grids.items()})
    everyone = trials.evaluate(tuple(range(len(trials.evidence.blocks))), first)
    if trials.recipe.selection == "all" or not trials.weights.size:
        return _tune(trials, everyone, grids), None
    found = _screen(trials, everyone, grids)
    if found is None:
        everyone = _tune(trials, everyone, grids)
        found = _screen(trials, everyone, grids)
    return (everyone, ()) if found is None else (found, found.kept)


def _grids(evidence: DebiasedMoments, recipe: BoostingConfig) -> dict[str, tuple[float, ...]]:
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


def _tune(trials: Evaluator, best: Evaluation, grids: dict[str, tuple[float, ...]]) -> Evaluation:
    """The best trial of the same predictors: one price is chosen after the other."""
    for price, values in grids.items():
        others = [value for value in values if value != getattr(best.penalty, price)]
        found = [trials.evaluate(best.kept, replace(best.penalty, **{price: value})) for value in others]
        best = min([best, *found], key=lambda trial: trial.value)
    return best


def _screen(
    trials: Evaluator, everyone: Evaluation, grids: dict[str, tuple[float, ...]]
) -> Evaluation | None:
    """The best trial of predictors that all help; None if there are none, or if the others are missed."""
    found = _drop_unhelpful(trials, everyone)
    if found is None or trials.is_worse(found, everyone):
        return None
    return _drop_unhelpful(trials, _tune(trials, found, grids))


def _drop_unhelpful(trials: Evaluator, trial: Evaluation) -> Evaluation | None:
    """Drop what does not help until all that is left does."""
    for _ in range(SCREENS):
        kept = trials.helpful_predictors(trial)
        if not kept:
            return None
        if kept == trial.kept:
            break
        trial = trials.evaluate(kept, trial.penalty)
    return trial


def _spread(evidence: DebiasedMoments, kept: Sequence[int], found: Array) -> Array:
    """Coefficients by predictor (predictors, size, m) as those of all columns, 0 for the others."""
    coefficients = np.zeros_like(evidence.whole.xy)
    for row, own in zip(kept, found, strict=True):
        block = evidence.blocks[row]
        coefficients[block] = own[: block.stop - block.start]
    return coefficients
