"""Trials: some predictors, some prices, how well they did and where to stop.

Nothing is chosen here but the number of steps; the evidence about some predictors is put together once.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue
from tacit.functional.boosting.config import BoostingConfig
from tacit.functional.boosting.degrees import degrees_of_freedom
from tacit.functional.boosting.moments import DebiasedMoments
from tacit.functional.boosting.path import BlockLayout, BoostingPath, Penalty, boost_path, design
from tacit.functional.boosting.psd_repair import RepairedMoments, restrict_to
from tacit.functional.boosting.screening import contributions, survivors
from tacit.functional.boosting.stopping import Information, held_out, information, residual

Array = NDArray[np.float64]
Some = tuple[int, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluation:
    """How some predictors did at some prices.

    Args:
        kept: The predictors that took part.
        penalty: What they paid.
        curve: The criterion after 0, 1, ... steps; less is better.
        steps: Where to stop.
        splits: The walk over splits, if there was one.
        optimism: By how much each predictor's contribution is too large, where splits share subjects, and how
            far that varies with them (2, predictors).
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
    """The trials that can be made of one evidence and one recipe."""

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

    def evaluate(self, kept: Some, penalty: Penalty) -> Evaluation:
        """Walk, and judge."""
        stop = self.recipe.stop
        if stop == "cv":
            return self._by_splits(kept, penalty, None)
        if isinstance(stop, str):
            return self._by_information(kept, penalty, stop)
        if self.weights.size:
            return self._by_splits(kept, penalty, stop)
        losses = held_out(self.boost_whole(kept, penalty, stop), np.ones(1))
        return Evaluation(kept=kept, penalty=penalty, curve=losses, steps=len(losses) - 1)

    def _by_splits(self, kept: Some, penalty: Penalty, fixed: int | None) -> Evaluation:
        if not self.weights.size:
            raise InvalidValue(
                'stop = "cv" is not allowed: nothing was held back to judge by; say how many steps'
            )
        patience = self.recipe.patience if fixed is None else None
        splits = self.boost_splits(kept, penalty, fixed or self.recipe.steps, patience)
        curve = held_out(splits, self.weights)
        optimism = self._optimism(kept, penalty, splits) if self.evidence.optimism else None
        if optimism is not None:
            curve = curve + optimism[0].sum(axis=1)
        steps = int(curve.argmin()) if fixed is None else len(curve) - 1
        return Evaluation(
            kept=kept,
            penalty=penalty,
            curve=curve,
            steps=steps,
            splits=splits,
            optimism=None if optimism is None else optimism[:, steps],
        )

    def _by_information(self, kept: Some, penalty: Penalty, kind: Information) -> Evaluation:
        found = self.boost_whole(kept, penalty, self.recipe.steps)
        curve = information(kind, found, self.evidence.whole, self.degrees(found).sum(axis=(1, 2)))
        return Evaluation(kept=kept, penalty=penalty, curve=curve, steps=int(curve.argmin()))

    def _optimism(self, kept: Some, penalty: Penalty, splits: BoostingPath) -> Array:
        """By how much the loss on shared subjects is too small, and its deviation, by step and predictor.

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

    def helpful_predictors(self, trial: Evaluation) -> Some:
        """The predictors of a trial that help on what was held back."""
        splits = trial.splits or self.boost_splits(trial.kept, trial.penalty, trial.steps, None)
        found, spread = contributions(splits, trial.steps), np.zeros(len(trial.kept))
        if trial.optimism is not None:
            found, spread = found - trial.optimism[0], trial.optimism[1]
        helping = survivors(found, spread, self.weights, self.recipe.margin)
        return tuple(trial.kept[place] for place in helping)

    def is_worse(self, one: Evaluation, other: Evaluation) -> bool:
        """Whether one is worse than another with more predictors by more than that varies."""
        if one.splits is None or other.splits is None:
            return one.value > other.value
        apart = self._losses(one, one.splits) - self._losses(other, other.splits)
        mean = float(self.weights @ apart)
        variance = float(self.weights @ (apart - mean) ** 2) / max(len(apart) - 1, 1)
        if other.optimism is not None:
            dropped = [place for place, row in enumerate(other.kept) if row not in one.kept]
            variance += float((other.optimism[1, dropped] ** 2).sum())
        return mean > np.sqrt(variance)

    def _losses(self, trial: Evaluation, splits: BoostingPath) -> Array:
        """The loss on each split's judge as it came: what was repaired for others cannot be compared."""
        given = self.parts[trial.kept].given
        layout = BlockLayout.from_moments(given)
        found = splits.coefficients(trial.steps)
        pairs = zip(given.splits, found, strict=True)
        losses = np.array([judge.loss(layout.flat(own)) for (_, judge), own in pairs])
        return losses if trial.optimism is None else losses + trial.optimism[0].sum()
