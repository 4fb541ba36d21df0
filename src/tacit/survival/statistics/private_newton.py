"""Newton's method on noisy slopes: the server's half of a private Cox regression.

All of it works on numbers that have left the sites with noise, and costs nothing more. Each round gives an
estimate, one Newton step from where it was asked; later rounds are averaged, as their noise is independent.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tacit.survival.life_table import Exits, LifeTable
from tacit.survival.statistics.piecewise_exponential import CONSTANT, LONGEST, largest_norm

Array = NDArray[np.float64]

# The rounds that each round averages from: the first are far away, and left out as soon as possible.
FIRST = (0, 0, 1, 2)
# A step changes the log hazard of a record at the bound by this at most.
STRIDE = 3.0


@dataclass(frozen=True)
class Scales:
    """The noise of one site's answer in one round.

    Args:
        noise: The standard deviation in each entry of a sum of unit vectors.
        columns: How many features there are.
    """

    noise: float
    columns: int

    @property
    def score(self) -> float:
        """In each entry of the score."""
        return self.noise * largest_norm()

    @property
    def information(self) -> float:
        """In each entry on the diagonal of the information; beside it, less by the root of 2."""
        return self.noise * largest_norm() * float(np.sqrt(LONGEST))

    def decode(self, answers: Array) -> tuple[Array, Array]:
        """Scores (sites, regressors) and information matrices (sites, regressors, regressors)."""
        regressors = self.columns + 2
        scores = answers[:, :regressors] * largest_norm()
        rows, others = np.triu_indices(regressors)
        weights = np.where(rows == others, 1.0, np.sqrt(0.5)) * largest_norm() * np.sqrt(LONGEST)
        matrices = np.zeros((len(answers), regressors, regressors))
        matrices[:, rows, others] = matrices[:, others, rows] = answers[:, regressors:] * weights
        return scores, matrices


@dataclass(frozen=True, eq=False)
class NewtonRound:
    """Where the sites were asked, in the function of time and the features, and what they said."""

    point: Array
    scores: Array
    matrices: Array


@dataclass(frozen=True, eq=False)
class NewtonPath:
    """The rounds so far.

    Args:
        scales: The noise.
        base: The log of the events expected in each interval, at level 0 (intervals,).
        trend: The function of time beside a constant that corrects it (intervals,).
        levels: What is added for each site (sites,).
        shared: How many sites share a level.
        point: The coefficients of the function of time and of the features (1 + columns,).
        rounds: What was asked and answered.
    """

    scales: Scales
    base: Array
    trend: Array
    levels: Array
    shared: int
    point: Array
    rounds: tuple[NewtonRound, ...] = ()

    @classmethod
    def begin(cls, table: LifeTable, scales: Scales, by_site: bool) -> "NewtonPath":
        """From no effect, and hazards as the noisy histogram has them."""
        everybody, each = table.exits(), table.exits("site")
        spread = np.sqrt(everybody.variance)
        happened, lived = everybody.happened[0], _person_intervals(everybody)[0]
        rate = max(happened.sum(), 1.0) / max(lived.sum(), 1.0)
        # As if a few more had lived and died at the mean rate, as many as noise could hide.
        hazard = (happened + spread) / (lived + spread / rate)
        doubt = np.sqrt(each.variance * len(hazard))
        due = (_person_intervals(each) * hazard).sum(axis=1)
        ratio = (each.happened.sum(axis=1) + doubt) / (due + doubt)
        smooth = happened + spread / 3
        middle = (np.cumsum(smooth) - smooth / 2) / smooth.sum()
        sites = len(table.sites)
        return cls(
            scales,
            np.log(hazard),
            2 * middle - 1,
            np.log(ratio) if by_site else np.zeros(sites),
            1 if by_site else sites,
            np.zeros(scales.columns + 1),
        )

    def query_point(self) -> tuple[Array, Array]:
        """The log hazards (sites, intervals) and slopes (columns,) to ask the sites at."""
        return self.levels[:, None] + self.base + CONSTANT * self.point[0] * self.trend, self.point[1:]

    def step(self, answers: Array) -> "NewtonPath":
        """One round further."""
        scores, matrices = self.scales.decode(answers)
        if self.shared > 1:
            scores, matrices = scores.sum(axis=0, keepdims=True), matrices.sum(axis=0, keepdims=True)
        here = replace(self, rounds=(*self.rounds, NewtonRound(self.point, scores, matrices)))
        found, means, events = here._average_steps(damped=True)
        step = found - self.point
        step *= min(1.0, STRIDE / max(float(np.linalg.norm(step)), 1e-12))
        # The level takes up what events are left over, as if as many more as noise could hide were expected.
        doubt = self.scales.score * np.sqrt(self.shared) / CONSTANT
        ratio = np.maximum(events + doubt + scores[:, 0] / CONSTANT, doubt / 2) / (events + doubt)
        change = np.log(np.clip(ratio, 1 / 3, 3.0)) - CONSTANT * (means @ step)
        return replace(here, point=self.point + step, levels=self.levels + change)

    @property
    def signal(self) -> float:
        """The least information about any combination of features, in units of that which noise pretends."""
        matrix, _, _, pretended = self._information()
        own = np.linalg.inv(np.linalg.inv(matrix)[1:, 1:])
        return float(np.linalg.eigvalsh((own + own.T) / 2)[0] / pretended)

    def estimate(self) -> tuple[Array, Array, Array]:
        """The coefficients of the features, their covariance by the model, and what noise adds to it."""
        found, means, _ = self._average_steps(damped=False)
        matrix = self._information()[0]
        inverse = np.linalg.inv(matrix)
        alike = np.eye(len(matrix)) * len(means) + means.T @ means
        variance = self.scales.score**2 * self.shared / len(self._used)
        noisy = np.asarray(variance * inverse @ alike @ inverse, dtype=np.float64)
        return found[1:], np.asarray(inverse[1:, 1:], dtype=np.float64), noisy[1:, 1:]

    @property
    def _used(self) -> tuple[NewtonRound, ...]:
        return self.rounds[FIRST[min(len(self.rounds), len(FIRST)) - 1] :]

    def _average_steps(self, damped: bool) -> tuple[Array, Array, Array]:
        """The mean of what each round would step to; mean regressors and expected events of each stratum."""
        matrix, means, events, pretended = self._information()
        values, vectors = np.linalg.eigh(matrix)
        # Directions that noise may have made up are followed with care.
        inverse = vectors / (np.abs(values) + pretended * damped) @ vectors.T
        steps = [(one.scores[:, 1:] - means * one.scores[:, :1]).sum(axis=0) for one in self._used]
        found = [one.point + inverse @ step for one, step in zip(self._used, steps, strict=True)]
        return np.mean(found, axis=0), means, events

    def _information(self) -> tuple[Array, Array, Array, float]:
        """About everything but the levels, which are profiled out; means, events, and what noise pretends."""
        mean = np.mean([one.matrices for one in self._used], axis=0)
        noise = self.scales.information * np.sqrt(self.shared / len(self._used))
        corner = np.maximum(mean[:, 0, 0], noise)
        means = mean[:, 0, 1:] / corner[:, None]
        size = means.shape[1]
        # The square of a noisy mean is too large by the variance of its noise.
        excess = np.eye(size) * (noise**2 / 2 / corner).sum()
        matrix = (mean[:, 1:, 1:] - corner[:, None, None] * means[:, :, None] * means[:, None, :]).sum(axis=0)
        # The spectral norm of a symmetric matrix of noise, and the function of time held to 0 by as much.
        pretended = float(noise * np.sqrt(2 * size * len(mean)))
        held = np.zeros((size, size))
        held[0, 0] = pretended
        return matrix + excess + held, means, corner / CONSTANT**2, pretended


def _person_intervals(exits: Exits) -> Array:
    """Person-intervals, whoever leaves or comes being there for half of one (groups, intervals)."""
    partly = exits.happened + exits.censored
    partly = partly if exits.entered is None else partly + exits.entered[:, :-1]
    return np.maximum(exits.at_risk - partly / 2, 0.0)
