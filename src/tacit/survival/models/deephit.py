"""DeepHit's loss: probabilities of every interval and cause, and of survival beyond the grid.

The likelihood is a sum over records. The ranking term compares records, so with it a unit of records has one
loss and one gradient.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tacit.learning.batches import Marks
from tacit.learning.elementwise import exp, log
from tacit.runtime.arrays import Array
from tacit.runtime.jit import compiled, contiguous
from tacit.survival.models.losses import GridLoss


class IncidenceLoss(GridLoss):
    """Probabilities by a softmax over all intervals of all causes and the time beyond, whose score is 0.

    Lee and others 2018; Kvamme and Borgan 2021 for the padded score.

    Args:
        ends: The ends of the intervals, ascending.
        causes: Number of kinds of events; outputs are (..., causes x intervals), cause by cause.
        ranking: The share of the ranking term; the likelihood has the rest.
        spread: Difference of incidences that counts as ranked.
    """

    def __init__(
        self, ends: Sequence[float], causes: int = 1, ranking: float = 0.0, spread: float = 0.1
    ) -> None:
        super().__init__(ends)
        self.causes, self.ranking, self.spread = causes, ranking, spread

    def slopes(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The gradient in the scores; with ranking, of the loss of each unit, divided by its members."""
        if self.ranking == 0:
            return super().slopes(outputs, targets, present)
        raised, beyond = _exponentiate(outputs)
        found = self._likelihood_gradient(raised, beyond, targets)
        if "weight" in targets:
            found *= targets["weight"][..., None]
        members = np.maximum(present.sum(axis=-1), 1)[..., None, None]
        found *= (1 - self.ranking) / members
        found[~present] = 0.0
        ranked = self._ranking_gradient(_shares(raised, beyond), targets, present)
        ranked *= self.ranking / members**2
        found += ranked
        return found

    def gradients(self, outputs: Array, targets: Mapping[str, Array]) -> Array:
        """The gradient of the negative log-likelihood in the scores."""
        return self._likelihood_gradient(*_exponentiate(outputs), targets)

    def _likelihood_gradient(self, raised: Array, beyond: Array, targets: Mapping[str, Array]) -> Array:
        seen, possible = self.events_at_risk(targets)
        told = np.where(_any(seen)[..., None], seen, _shares(raised * possible, beyond))
        # A record seen from an entry on had got there without an event.
        base = raised * self._open(targets["entry"]) if "entry" in targets else raised
        return _shares(base, beyond) - told

    def likelihoods(self, outputs: Array, targets: Mapping[str, Array]) -> Array:
        """The negative log-likelihood of each record."""
        seen, possible = self.events_at_risk(targets)
        raised, beyond = _exponentiate(outputs)
        chosen = np.where(seen, raised, 0.0).sum(axis=-1)
        later = np.asarray((raised * possible).sum(axis=-1) + beyond[..., 0], dtype=np.float64)
        left = np.where(_any(seen), chosen, later)
        base = raised * self._open(targets["entry"]) if "entry" in targets else raised
        return log(base.sum(axis=-1) + beyond[..., 0]) - log(np.maximum(left, 1e-300))

    def ranks(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The ranking term of each unit (sites, units)."""
        return self._ranking_term(_shares(*_exponentiate(outputs)), targets, present)[0]

    def chances(self, outputs: Array) -> Array:
        """The chance of each interval and cause (..., causes, intervals)."""
        return _shares(*_exponentiate(outputs)).reshape(*outputs.shape[:-1], self.causes, len(self.ends))

    def increments(self, outputs: Array) -> Array:
        """The cumulative hazard that each interval adds, of all causes together."""
        raised, beyond = _exponentiate(outputs)
        intervals = raised.reshape(*outputs.shape[:-1], self.causes, len(self.ends)).sum(axis=-2)
        # Probability of reaching each interval, and beyond, in proportion to all together.
        left = np.cumsum(np.concatenate([beyond, intervals[..., ::-1]], axis=-1), axis=-1)[..., ::-1]
        return -np.diff(np.log(np.maximum(left, 1e-300)), axis=-1)

    @staticmethod
    def initial_output(hazard: float) -> float:
        """As likely as the time beyond."""
        return 0.0

    def _open(self, time: Array) -> Marks:
        """Intervals that were not over at a time, of every cause (..., causes x intervals)."""
        over = np.searchsorted(self.ends, time, side="right")
        return np.tile(np.arange(len(self.ends)) >= over[..., None], self.causes)

    def _find_events(self, targets: Mapping[str, Array]) -> tuple[Marks, Marks]:
        """Return where the event was seen, and where it was still possible (..., causes x intervals)."""
        own, happened = self._own(targets["time"], targets["event"])
        place = own + len(self.ends) * (np.maximum(targets["event"], 1).astype(np.int64) - 1)
        seen = happened[..., None] & (np.arange(self.causes * len(self.ends)) == place[..., None])
        return seen, self._open(targets["time"])

    def _ranking_gradient(self, chances: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """Return the gradient of the ranking term in the scores."""
        slope = self._ranking_term(chances, targets, present)[1]
        parts = slope.reshape(*chances.shape[:-1], self.causes, len(self.ends))
        inner = np.cumsum(parts[..., ::-1], axis=-1)[..., ::-1].reshape(chances.shape)
        inner -= (chances * inner).sum(axis=-1, keepdims=True)
        inner *= chances
        return inner

    def _ranking_term(
        self, chances: Array, targets: Mapping[str, Array], present: Marks
    ) -> tuple[Array, Array]:
        """Return the ranking term of each unit, and its slope in the incidences; see `ranking.compare`."""
        # Loads numba, which is not needed without ranking.
        weight = targets["weight"] if "weight" in targets else np.ones(present.shape)
        by_unit = (math.prod(present.shape[:-1]), present.shape[-1])
        slopes = np.zeros((*by_unit, chances.shape[-1]))
        parts = chances.reshape(*chances.shape[:-1], self.causes, len(self.ends))
        totals = compare(
            np.cumsum(parts, axis=-1).reshape(slopes.shape),
            np.asarray(self.events_at_risk(targets)[0], dtype=np.float64).reshape(slopes.shape),
            contiguous(targets["time"]).reshape(by_unit),
            contiguous(present).reshape(by_unit),
            contiguous(weight).reshape(by_unit),
            self.spread,
            slopes,
        )
        return totals.reshape(present.shape[:-1]), slopes.reshape(chances.shape)


def _any(marks: Array | Marks) -> Marks:
    return np.asarray(marks.any(axis=-1), dtype=np.bool_)


def _exponentiate(outputs: Array) -> tuple[Array, Array]:
    """E to the scores, and to that of the time beyond (..., 1), in proportion to the largest of them."""
    highest = np.maximum(outputs.max(axis=-1, keepdims=True), 0.0)
    return exp(outputs - highest), np.maximum(exp(-highest), 1e-300)


def _shares(raised: Array, beyond: Array) -> Array:
    """Chances in proportion to these numbers, the time beyond among them."""
    return raised / (raised.sum(axis=-1, keepdims=True) + beyond)


@compiled
def compare(
    incidence: Array, seen: Array, time: Array, present: Marks, weight: Array, spread: float, slopes: Array
) -> Array:
    """The sum over pairs of each unit: the earlier should be likelier. Writes its slopes, too.

    The term of members (j, i), the event of i before the time of j, is e to the lead of j's incidence over
    i's in units of `spread`, at the time and of the cause of i's event, times the weight of i.

    Args:
        incidence: The chance of every cause until the end of every interval (units, members, places).
        seen: 1 where an event was seen.
        time: Until when each member was seen (units, members).
        present: Mask of the members.
        weight: Weight of each.
        spread: Difference of incidences that counts as ranked.
        slopes: Output for the slopes (units, members, places); zero so far.
    """
    units, members, places = incidence.shape
    totals = np.zeros(units)
    for unit in range(units):
        chances, slope, until, here = incidence[unit], slopes[unit], time[unit], present[unit]
        for early in range(members):
            place = _first(seen[unit, early], places) if here[early] else places
            if place == places:
                continue
            for late in range(members):
                if here[late] and until[late] > until[early]:
                    # Incidences lie between 0 and 1, so the exponent is bounded by 1 / spread.
                    lead = (chances[late, place] - chances[early, place]) / spread
                    term = math.exp(lead) * weight[unit, early]
                    totals[unit] += term
                    slope[late, place] += term / spread
                    slope[early, place] -= term / spread
    return totals


@compiled
def _first(marks: Array, places: int) -> int:
    """Return the position of the first mark; one beyond the last if there is none."""
    for place in range(places):
        if marks[place] > 0:
            return place
    return places
