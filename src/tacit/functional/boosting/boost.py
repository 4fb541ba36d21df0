"""Curves from curves, by boosting: its path, selection of predictors, roughness of surfaces, stopping.

A boosting path takes one step at a time: the predictor that explains most is moved part of the way to its
best fit. All predictors are tried at once, in coordinates in which each one's equation is diagonal. Once it
is known which predictor was moved at each step, a fit is linear in the response: its degrees of freedom are
the trace of that map, followed step by step among the predictors that were moved.

Everything is decided from moments and costs nothing once they are paid for. Paths of all splits of the data
are taken side by side and evaluated on the part that was held out; then one path on all data gives the
coefficients.

Boosting that predicts best still moves predictors that explain nothing, a little each. The screen drops such
a predictor, because what it learned on one part of the data raises the loss on another. Losses come from
moments that noise was taken off, so each stopping criterion is corrected for privacy already.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue, require
from tacit.functional.boosting.debias import RepairedMoments, restrict_to
from tacit.functional.boosting.moments import BlockLayout, DebiasedMoments, Design, Moments, Penalty, design
from tacit.functional.config import BoostingConfig as BoostingConfig
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import fields_of

# The largest number of screening passes; two are typical.
SCREENS = 6
# Of the spread of the response: a loss that noise took below it says no more.
LEAST = 1e-10
Some = tuple[int, ...]
Information = Literal["aic", "aicc", "mv"]
Places = NDArray[np.int64]
# A walk that changes what it explains by less than this part of all there is has arrived.
ARRIVED = 1e-13


@dataclass(frozen=True, eq=False)
class BoostingPath:
    """Boosting path: the steps of every split, and the judged loss after each.

    Args:
        chosen: The predictor moved at each step (steps, splits).
        moves: The step, in own coordinates (steps, splits, size, m).
        slopes: The judged slope before each move and after it, added up (steps, splits, size, m).
        judged: The loss that is left after 0, 1, ... steps, by coordinate (steps + 1, splits, m).
        ground: The moments that the path was computed on.
    """

    chosen: Places
    moves: Array
    slopes: Array
    judged: Array
    ground: Design

    def position(self, steps: int) -> Array:
        """Return the coefficients after some steps, in own coordinates (splits, predictors, size, m)."""
        place = np.zeros_like(self.ground.slopes[:, 0])
        for chosen, move in zip(self.chosen[:steps], self.moves[:steps], strict=True):
            place[np.arange(len(place)), chosen] += move
        return place

    def coefficients(self, steps: int) -> Array:
        """Return the coefficients after some steps, in the frame's basis (splits, predictors, size, m)."""
        return self.ground.basis @ self.position(steps)


@dataclass(frozen=True, eq=False, kw_only=True)
class BoostingFit:
    """Boosting fit: coefficients, path and stopping criterion.

    Args:
        coefficients: Of all predictors' coordinates, for those of the response (columns, m).
        path: The predictor moved at each step.
        steps: The number of steps.
        curve: The stopping criterion after 0, 1, ... steps.
        losses: On all that was learned from, after 0, 1, ... steps.
        selected: The predictors on the path, in order.
        screened: The predictors kept by the screen; None if there was none, empty if it would have kept
            nothing or done harm, so that all predictors took part.
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
    """Fit a functional regression by boosting, from debiased moments alone.

    Args:
        evidence: Moments, and splits of them.
        recipe: The options of the fit.
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


@dataclass(frozen=True, eq=False, kw_only=True)
class TrialLosses:
    """Cross-validated result of boosting with some predictors and one penalty.

    Args:
        kept: The predictors that took part.
        penalty: Their penalty.
        curve: The criterion after 0, 1, ... steps; less is better.
        steps: The chosen number of steps.
        splits: The boosting path over splits, if there was one.
        optimism: The optimism of each predictor's contribution, where splits share subjects, and its standard
            deviation over them (2, predictors).
    """

    kept: Some
    penalty: Penalty
    curve: Array
    steps: int
    splits: BoostingPath | None = None
    optimism: Array | None = None

    @property
    def value(self) -> float:
        """The criterion where it stops."""
        return float(self.curve[self.steps])


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Evaluator of trials on one set of moments with one configuration."""

    evidence: DebiasedMoments
    recipe: BoostingConfig
    parts: dict[Some, RepairedMoments] = field(default_factory=dict[Some, RepairedMoments])

    @cached_property
    def weights(self) -> Array:
        """Of the splits, by how many subjects judge; empty if there are none."""
        counts = np.array([judge.count for _, judge in self.evidence.splits], dtype=np.float64)
        return counts / counts.sum() if counts.size else counts

    def moments_for(self, kept: Some, penalty: Penalty) -> DebiasedMoments:
        """The evidence about some predictors; remembered, since a repair takes longer than a walk."""
        if kept not in self.parts:
            self.parts[kept] = restrict_to(self.evidence, kept)
        return self.parts[kept].repair(penalty.floor)

    def evaluate(self, kept: Some, penalty: Penalty) -> TrialLosses:
        """Walk, and judge."""
        stop = self.recipe.stop
        if stop == "cv":
            return self._by_splits(kept, penalty, None)
        if isinstance(stop, str):
            return self._by_information(kept, penalty, stop)
        if self.weights.size:
            return self._by_splits(kept, penalty, stop)
        losses = held_out(self.boost_whole(kept, penalty, stop), np.ones(1))
        return TrialLosses(kept=kept, penalty=penalty, curve=losses, steps=len(losses) - 1)

    def _by_splits(self, kept: Some, penalty: Penalty, fixed: int | None) -> TrialLosses:
        if not self.weights.size:
            raise InvalidValue(
                'stop = "cv" is not allowed: there are no held-out subjects; give the number of steps'
            )
        patience = self.recipe.patience if fixed is None else None
        splits = self.boost_splits(kept, penalty, fixed or self.recipe.steps, patience)
        curve = held_out(splits, self.weights)
        optimism = self._optimism(kept, penalty, splits) if self.evidence.optimism else None
        if optimism is not None:
            curve = curve + optimism[0].sum(axis=1)
        steps = int(curve.argmin()) if fixed is None else len(curve) - 1
        return TrialLosses(
            kept=kept,
            penalty=penalty,
            curve=curve,
            steps=steps,
            splits=splits,
            optimism=None if optimism is None else optimism[:, steps],
        )

    def _by_information(self, kept: Some, penalty: Penalty, kind: Information) -> TrialLosses:
        found = self.boost_whole(kept, penalty, self.recipe.steps)
        curve = information(kind, found, self.evidence.whole, self.degrees(found).sum(axis=(1, 2)))
        return TrialLosses(kept=kept, penalty=penalty, curve=curve, steps=int(curve.argmin()))

    def _optimism(self, kept: Some, penalty: Penalty, splits: BoostingPath) -> Array:
        """Estimate the optimism of the loss on shared subjects and its deviation, by step and predictor.

        Twice the covariance of fit and response (Mallows' Cp): the splits differ in their noise alone. What a
        predictor that does not count explains of n subjects varies as s2 chi2(df) / n.
        """
        used = self.degrees(self.boost_whole(kept, penalty, len(splits.chosen)))
        # A walk that has arrived uses no more.
        used = used[np.minimum(np.arange(len(splits.judged)), len(used) - 1)]
        count = self.evidence.whole.count
        left = residual(splits, self.weights, used.sum(axis=1), count)
        return np.stack([2 * used @ left, np.sqrt(2 * np.maximum(used @ left**2, 0.0))]) / count

    def boost_splits(self, kept: Some, penalty: Penalty, steps: int, patience: int | None) -> BoostingPath:
        """Walk on all splits."""
        part = self.moments_for(kept, penalty)
        place = design(part, part.splits, penalty)
        return boost_path(place, steps=steps, rate=self.recipe.rate, weights=self.weights, patience=patience)

    def boost_whole(self, kept: Some, penalty: Penalty, steps: int) -> BoostingPath:
        """Walk on all there is."""
        part = self.moments_for(kept, penalty)
        place = design(part, [(part.whole,)], penalty)
        return boost_path(place, steps=steps, rate=self.recipe.rate, weights=np.ones(1))

    def degrees(self, walked: BoostingPath) -> Array:
        """Degrees of freedom of a walk on all there is (steps + 1, predictors, m)."""
        return degrees_of_freedom(walked.ground, walked.chosen[:, 0], self.recipe.rate)

    def helpful_predictors(self, trial: TrialLosses) -> Some:
        """Return the predictors of a trial that help on held-back data."""
        splits = trial.splits or self.boost_splits(trial.kept, trial.penalty, trial.steps, None)
        found, spread = contributions(splits, trial.steps), np.zeros(len(trial.kept))
        if trial.optimism is not None:
            found, spread = found - trial.optimism[0], trial.optimism[1]
        helping = survivors(found, spread, self.weights, self.recipe.margin)
        return tuple(trial.kept[place] for place in helping)

    def is_worse(self, one: TrialLosses, other: TrialLosses) -> bool:
        """Return True if one is worse than another with more predictors by more than the standard error."""
        if one.splits is None or other.splits is None:
            return one.value > other.value
        apart = self._losses(one, one.splits) - self._losses(other, other.splits)
        mean = float(self.weights @ apart)
        variance = float(self.weights @ (apart - mean) ** 2) / max(len(apart) - 1, 1)
        if other.optimism is not None:
            dropped = [place for place, row in enumerate(other.kept) if row not in one.kept]
            variance += float((other.optimism[1, dropped] ** 2).sum())
        return mean > np.sqrt(variance)

    def _losses(self, trial: TrialLosses, splits: BoostingPath) -> Array:
        """Return the held-out loss of each split, by moments without repair, which can be compared."""
        given = self.parts[trial.kept].given
        layout = BlockLayout.from_moments(given)
        found = splits.coefficients(trial.steps)
        pairs = zip(given.splits, found, strict=True)
        losses = np.array([judge.loss(layout.flat(own)) for (_, judge), own in pairs])
        return losses if trial.optimism is None else losses + trial.optimism[0].sum()


def _best(trials: Evaluator) -> tuple[TrialLosses, Some | None]:
    """Choose the best trial; return it with the predictors that the screen kept.

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
    """Return the values of each penalty in the order of their choice; a single one if it has no effect."""
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


def _tune(trials: Evaluator, best: TrialLosses, grids: dict[str, tuple[float, ...]]) -> TrialLosses:
    """Return the best trial of the same predictors: one price is chosen after the other."""
    for price, values in grids.items():
        others = [value for value in values if value != fields_of(best.penalty)[price]]
        found = [trials.evaluate(best.kept, replace(best.penalty, **{price: value})) for value in others]
        best = min([best, *found], key=lambda trial: trial.value)
    return best


def _screen(
    trials: Evaluator, everyone: TrialLosses, grids: dict[str, tuple[float, ...]]
) -> TrialLosses | None:
    """Return the best trial of helpful predictors; None if there are none, or if dropping others hurts."""
    found = _drop_unhelpful(trials, everyone)
    if found is None or trials.is_worse(found, everyone):
        return None
    return _drop_unhelpful(trials, _tune(trials, found, grids))


def _drop_unhelpful(trials: Evaluator, trial: TrialLosses) -> TrialLosses | None:
    """Drop predictors that do not help until all others do."""
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


def contributions(walk: BoostingPath, steps: int) -> Array:
    """Return by how much the loss on held-back data grows without each predictor (splits, predictors).

    Args:
        walk: The boosting path over splits.
        steps: The number of its steps that count.
    """
    reached, ground = walk.position(steps), walk.ground
    explained = (ground.cross[:, -1] @ reached).sum(axis=1).reshape(reached.shape)
    own = ground.own[:, -1] @ reached
    return np.einsum("spqm,spqm->sp", reached, 2 * (ground.slopes[:, -1] - explained) + own)


def survivors(found: Array, spread: Array, weights: Array, margin: float) -> tuple[int, ...]:
    """Return the predictors whose mean contribution over splits exceeds a multiple of its standard error.

    Args:
        found: Contributions (splits, predictors).
        spread: The deviation of what all splits have in common (predictors,).
        weights: Of the splits; they add up to 1.
        margin: The multiple.
    """
    mean = weights @ found
    splits = len(found)
    variance = weights @ (found - mean) ** 2 / max(splits - 1, 1) + spread**2
    return tuple(np.flatnonzero(mean > margin * np.sqrt(variance)).tolist())


def held_out(walk: BoostingPath, weights: Array) -> Array:
    """The mean loss on held-back data after 0, 1, ... steps (steps + 1,)."""
    return walk.judged.sum(axis=2) @ weights


def residual(walk: BoostingPath, weights: Array, degrees: Array, count: int) -> Array:
    """Return the residual variance of each coordinate of the response at the best step (m,).

    Args:
        walk: Of splits that share subjects.
        weights: Of the splits.
        degrees: Used after 0, 1, ... steps, by coordinate (steps + 1, m).
        count: Of subjects.
    """
    best = int(held_out(walk, weights).argmin())
    left = np.maximum(weights @ walk.judged[best], 0.0)
    return left / np.maximum(1 - degrees[best] / count, 0.1)


def information(kind: Information, walk: BoostingPath, whole: Moments, degrees: Array) -> Array:
    """An information criterion of a walk on all subjects after 0, 1, ... steps (steps + 1,).

    Args:
        kind: `aic`; `aicc`, corrected for few subjects; or `mv`, of the residuals' covariance.
        walk: Of one split, judged by what it learned from.
        whole: That.
        degrees: Used after 0, 1, ... steps (steps + 1,).
    """
    spread = float(np.trace(whole.yy))
    if kind == "mv":
        return whole.count * _log_determinants(walk, whole) + 2 * degrees
    numbers = whole.count * whole.yy.shape[0]
    losses = np.maximum(walk.judged.sum(axis=(1, 2)), LEAST * spread) / whole.yy.shape[0]
    fair = numbers / np.maximum(numbers - degrees - 1, 1.0) if kind == "aicc" else 1.0
    return numbers * np.log(losses) + 2 * degrees * fair


def _log_determinants(walk: BoostingPath, whole: Moments) -> Array:
    """Log determinants of the residuals' covariance after 0, 1, ... steps."""
    halves = np.einsum("nqa,nqb->nab", walk.moves[:, 0], walk.slopes[:, 0]) / 2
    left = whole.yy - np.cumsum(halves + halves.swapaxes(1, 2), axis=0)
    roots = np.linalg.eigvalsh(np.concatenate([whole.yy[None], left]))
    least = LEAST * float(np.trace(whole.yy)) / len(whole.yy)
    return np.log(np.maximum(roots, least)).sum(axis=1)


def boost_path(
    ground: Design, *, steps: int, rate: float, weights: Array, patience: int | None = None
) -> BoostingPath:
    """Compute a boosting path: each step moves the predictor with the largest gain toward its best fit.

    Going all the way D to the best fit of one predictor changes the loss by -2 <D, g> + <D, G D>, with g the
    slope of the loss and G the predictor's own moments. Noise was taken off both, also that of the other
    predictors on their way into g: left in, it favors what was moved before, and the wrong one is chosen.

    Args:
        ground: The moments.
        steps: At most how many.
        rate: The learning rate.
        weights: Of the splits, when their judgements are averaged (splits,).
        patience: Steps without a better mean validation loss before stopping; None to take all.
    """
    state = _State(ground)
    steps_taken: list[tuple[Places, Array, Array]] = []
    judged = [ground.spread[:, -1]]
    best, since = float(weights @ judged[0].sum(axis=1)), 0
    for _ in range(steps):
        places, move, slopes, gain = state.step(rate)
        steps_taken.append((places, move, slopes))
        # The slope is linear on the way, so its mean over both ends is what a move is worth.
        judged.append(judged[-1] - (move * slopes).sum(axis=1))
        now = float(weights @ judged[-1].sum(axis=1))
        best, since = (now, 0) if now < best else (best, since + 1)
        if since == patience or gain >= -ARRIVED * state.scale:
            break
    return _make_path(ground, steps_taken, np.array(judged))


def _make_path(ground: Design, taken: list[tuple[Places, Array, Array]], judged: Array) -> BoostingPath:
    splits, _, _, size, width = ground.slopes.shape
    if not taken:
        none = np.zeros((0, splits, size, width))
        return BoostingPath(np.zeros((0, splits), dtype=np.int64), none, none, judged, ground)
    chosen, moves, slopes = (np.array(parts) for parts in zip(*taken, strict=True))
    return BoostingPath(chosen, moves, slopes, judged, ground)


class _State:
    """Current position of the paths of all splits, in own coordinates."""

    def __init__(self, ground: Design) -> None:
        self.ground = ground
        self.slopes = ground.slopes.copy()
        self.here = np.zeros_like(ground.slopes[:, 0])
        # The part explained by a predictor's own coefficients: cached, since a step changes one predictor.
        self.explained = np.zeros_like(self.here)
        self.rows = np.arange(len(self.here))
        self.scale = float(np.abs(ground.spread[:, 0]).sum(axis=1).max())

    def step(self, rate: float) -> tuple[Places, Array, Array, float]:
        """Take a step: who moved, how far, judged slopes before and after, and the best gain of any split."""
        ground, rows, slopes = self.ground, self.rows, self.slopes[:, 0]
        ahead = ground.shrink * (slopes + self.explained) - self.here
        curved = ground.own[:, 0] @ ahead
        gains = np.einsum("spqm,spqm->sp", ahead, curved - 2 * slopes)
        places = gains.argmin(axis=1)
        move = rate * ahead[rows, places]
        self.here[rows, places] += move
        self.explained[rows, places] += rate * curved[rows, places]
        before = self.slopes[rows, -1, places]
        cross = ground.cross[rows, :, places]
        self.slopes -= (cross @ move[:, None]).reshape(self.slopes.shape)
        return places, move, before + self.slopes[rows, -1, places], float(gains.min())


def degrees_of_freedom(ground: Design, chosen: Places, rate: float) -> Array:
    """Return the degrees of freedom after 0, 1, ... steps (steps + 1, predictors, m); they add up over both.

    Args:
        ground: Of one split.
        chosen: The predictor moved at each step (steps,).
        rate: The learning rate.
    """
    active, places = np.unique(chosen, return_inverse=True)
    count, width = ground.slopes.shape[2], ground.slopes.shape[-1]
    used = np.zeros((len(chosen) + 1, count, width))
    if not len(active):
        return used
    kept = ground.restrict_to(active.tolist())
    size = kept.slopes.shape[3]
    raw = kept.cross[0, 0].reshape(len(active), len(active) * size, size)
    levels, level = np.unique(kept.shrink[0].reshape(-1, width), axis=1, return_inverse=True)
    shrink = levels.reshape(len(active), size, -1, 1)
    units = np.eye(len(active) * size).reshape(len(active), size, 1, -1)
    start = np.broadcast_to(units, (*units.shape[:2], levels.shape[1], units.shape[-1]))
    for number, move in enumerate(_replay(kept, places, rate, start, shrink)):
        place = places[number]
        used[number + 1] = used[number]
        used[number + 1, active[place]] += np.einsum("qki,iq->k", move, raw[place])[level.ravel()]
    return used


def _replay(ground: Design, places: Places, rate: float, start: Array, shrink: Array) -> Iterator[Array]:
    """Replay the moves of a fixed sequence of predictors for other right-hand sides.

    Args:
        ground: Of one split.
        places: The predictor moved at each step.
        rate: The learning rate.
        start: The right-hand sides (predictors, size, m, how many).
        shrink: Shrinkage of the least-squares fit by the penalties (predictors, size, m, 1).
    """
    slopes = start.reshape(*start.shape[:2], -1).copy()
    here, explained = np.zeros_like(slopes), np.zeros_like(slopes)
    shrunk = np.broadcast_to(shrink, start.shape).reshape(slopes.shape)
    cross, own = ground.cross[0, 0], ground.own[0, 0]
    for place in places:
        move = rate * (shrunk[place] * (slopes[place] + explained[place]) - here[place])
        here[place] += move
        explained[place] += own[place] @ move
        slopes -= (cross[place] @ move).reshape(slopes.shape)
        yield move.reshape(start.shape[1:])
