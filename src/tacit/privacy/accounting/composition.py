"""How much one answer can tell, as chances on a grid of privacy losses: repeated, put together, read off.

What `dp-accounting` does with its distributions, in a tenth of the time: a run asks for its epsilon after
every round. Nothing here knows where chances come from; `pld` does, and they are pessimistic.
"""

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy import fft

Array = NDArray[np.float64]
# What is cut from the tails of a composition, and counted as lost.
TAIL = 1e-15
# Chernoff's bound is tried at these orders, in units of one over the number of losses.
ORDERS = 20
# An epsilon lies this far, at most, below the loss beyond which less than delta is left: e^-100 is nothing.
WINDOW = 100.0


@dataclass(frozen=True, eq=False)
class PrivacyLoss:
    """How likely each privacy loss is, in one of the two directions between neighbours.

    Args:
        grid: How far losses are apart.
        lowest: The first of them, in steps of the grid.
        chances: How likely each is (losses,).
        infinite: How likely it is that everything is told.
    """

    grid: float
    lowest: int
    chances: Array
    infinite: float

    def self_compose(self, times: int) -> "PrivacyLoss":
        """The loss of so many releases with this one each."""
        if times == 1:
            return self
        low, high = self._support(times)
        size = fft.next_fast_len(max(high - low + 1, len(self.chances)), real=True)
        spectrum = np.asarray(fft.rfft(self.chances, size), dtype=np.complex128)
        # What is beyond the ends comes in at the other one, and is no more than the tail.
        whole = np.asarray(fft.irfft(_power(spectrum, times), size), dtype=np.float64)
        infinite = TAIL - math.expm1(times * math.log1p(-self.infinite))
        return PrivacyLoss(
            self.grid, self.lowest * times + low, np.roll(whole, -low)[: high - low + 1], infinite
        )

    def compose(self, other: "PrivacyLoss") -> "PrivacyLoss":
        """The loss of a release with this one and of another, together."""
        assert self.grid == other.grid, "losses on two grids do not add up"
        many = len(self.chances) + len(other.chances) - 1
        size = fft.next_fast_len(many, real=True)
        spectrum = fft.rfft(self.chances, size) * fft.rfft(other.chances, size)
        chances = np.asarray(fft.irfft(spectrum, size), dtype=np.float64)[:many]
        infinite = self.infinite + other.infinite - self.infinite * other.infinite
        return PrivacyLoss(self.grid, self.lowest + other.lowest, chances, infinite)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon, 0 or above, that holds but for `delta`; infinite where there is none."""
        # Of a distribution that is broken nothing is proven.
        if not (self.infinite <= delta and math.isfinite(float(self.chances.sum()))):
            return math.inf
        losses, chances = self._losses(1)
        more = self.infinite + _from_above(chances)
        above = np.flatnonzero(more > delta)
        if len(above) == 0:
            return 0.0
        # At this loss what lies above it is at most delta, so epsilon is no larger.
        last = int(above[-1])
        highest = float(losses[last])
        first = int(np.searchsorted(losses, highest - WINDOW))
        less = _from_above(chances[first:] * np.exp(highest - losses[first:]))[: last - first + 1]
        here, more = losses[first : last + 1], more[first : last + 1]
        broken = np.flatnonzero(more - np.exp(here - highest) * less > delta)
        place = int(broken[-1]) + 1 if len(broken) else 0
        found = highest + math.log((float(more[place]) - delta) / float(less[place]))
        return min(max(found, 0.0), float(here[place]))

    def deltas(self, epsilons: Array) -> Array:
        """What each epsilon holds but for."""
        losses, chances = self._losses(self.lowest)
        places = np.searchsorted(losses, epsilons, side="right")
        more = np.append(_from_above(chances), 0.0)[places]
        less = np.append(_from_above(chances * np.exp(-losses)), 0.0)[places]
        # Where nothing is left above, nothing is left, however large a factor.
        return self.infinite + np.where(less == 0, more, more - np.exp(epsilons) * less)

    def _losses(self, least: int) -> tuple[Array, Array]:
        """The losses from so many steps on, and how likely they are."""
        first = max(least - self.lowest, 0)
        steps = np.arange(first, len(self.chances), dtype=np.float64) + self.lowest
        return steps * np.float64(self.grid), self.chances[first:]

    def _support(self, times: int) -> tuple[int, int]:
        """Between which sums of places all but the tail lies, by Chernoff's bound."""
        count = len(self.chances)
        lowest, highest = 0, (count - 1) * times
        step, rising, falling = np.exp(np.arange(count) / count), self.chances.copy(), self.chances.copy()
        for order in range(1, ORDERS + 1):
            rising *= step
            falling /= step
            up, down = (
                (times * math.log(float(moments.sum())) - math.log(TAIL / 2)) * count / order
                for moments in (rising, falling)
            )
            lowest, highest = max(lowest, math.floor(-down)), min(highest, math.ceil(up))
        return lowest, highest


def compose_all(losses: "list[PrivacyLoss]") -> PrivacyLoss:
    """The loss of releases of several kinds."""
    return reduce(PrivacyLoss.compose, losses)


def _from_above(values: Array) -> Array:
    """For each place, the sum from there to the end."""
    return np.cumsum(values[::-1])[::-1]


def _power(values: NDArray[np.complex128], times: int) -> NDArray[np.complex128]:
    """A whole power by squaring: numpy would take a logarithm of each number."""
    found, square = None, values
    while True:
        times, odd = divmod(times, 2)
        if odd:
            found = square if found is None else found * square
        if times == 0:
            assert found is not None
            return found
        square = square * square
