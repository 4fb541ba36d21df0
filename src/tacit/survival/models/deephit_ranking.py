"""DeepHit's ranking term, compiled: incomparable pairs, which are most, are skipped."""

import math

import numpy as np

from tacit.learning.batches import Marks
from tacit.runtime.arrays import Array
from tacit.runtime.jit import compiled


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
    """The first mark, or behind the last place if there is none."""
    for place in range(places):
        if marks[place] > 0:
            return place
    return places
