"""Privacy loss distributions (PLD), composed over many releases.

The only door to the `dp-accounting` library, which makes the distribution of one release. Distributions are
pessimistic: an epsilon or a delta read off them is an upper bound, whatever the grid.

`PrivacyLoss` repeats and adds up what the library made, in a tenth of the library's time: a run asks for its
epsilon after every round.
"""

import contextlib
import logging
import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from tacit.privacy.accounting.release import Counts, Event, Release, rho
from tacit.runtime.arrays import Array

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import PLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

# Probability that is cut from the tails of a composition, and counted as lost.
TAIL = 1e-15
# Chernoff's bound is tried at these orders, in units of one over the number of losses.
ORDERS = 20
# An epsilon lies this far, at most, below the loss beyond which less than delta is left: e^-100 is nothing.
WINDOW = 100.0


@dataclass(frozen=True, eq=False)
class PrivacyLoss:
    """Distribution of the privacy loss on a grid, in one of the two directions between neighbors.

    Args:
        grid: Distance between losses.
        lowest: The smallest loss, in steps of the grid.
        chances: Probability of each loss (losses,).
        infinite: Probability of an infinite loss: the answer gives the record away.
    """

    grid: float
    lowest: int
    chances: Array
    infinite: float

    def self_compose(self, times: int) -> "PrivacyLoss":
        """Compose this loss with itself `times` times."""
        if times == 1:
            return self
        low, high = self._support(times)
        size = fft.next_fast_len(max(high - low + 1, len(self.chances)), real=True)
        spectrum = np.asarray(fft.rfft(self.chances, size), dtype=np.complex128)
        # Mass beyond either end wraps around to the other one; it is no more than the tail.
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
        """Return the smallest epsilon, 0 or above, that holds at `delta`; infinite if none does."""
        # Of a distribution that is broken nothing is proven.
        if not (self.infinite <= delta and math.isfinite(float(self.chances.sum()))):
            return math.inf
        losses, chances = self._losses(1)
        more = self.infinite + _from_above(chances)
        above = np.flatnonzero(more > delta)
        if len(above) == 0:
            return 0.0
        # At this loss the probability above is at most delta, so epsilon is no larger.
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
        """Return delta for each epsilon: the probability with which that epsilon may fail."""
        losses, chances = self._losses(self.lowest)
        places = np.searchsorted(losses, epsilons, side="right")
        more = np.append(_from_above(chances), 0.0)[places]
        less = np.append(_from_above(chances * np.exp(-losses)), 0.0)[places]
        # If no probability is left above, the subtracted term is zero, however large its factor.
        return self.infinite + np.where(less == 0, more, more - np.exp(epsilons) * less)

    def _losses(self, least: int) -> tuple[Array, Array]:
        """Return the losses from the step `least` on, with their probabilities."""
        first = max(least - self.lowest, 0)
        steps = np.arange(first, len(self.chances), dtype=np.float64) + self.lowest
        return steps * np.float64(self.grid), self.chances[first:]

    def _support(self, times: int) -> tuple[int, int]:
        """Bound the support up to the tail, by Chernoff's bound."""
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
    """Return the sum from each position to the end."""
    return np.cumsum(values[::-1])[::-1]


def _power(values: NDArray[np.complex128], times: int) -> NDArray[np.complex128]:
    """Raise to an integer power by squaring: numpy would take a logarithm of each number."""
    found, square = None, values
    while True:
        times, odd = divmod(times, 2)
        if odd:
            found = square if found is None else found * square
        if times == 0:
            assert found is not None
            return found
        square = square * square


# In both directions between neighbors, or once where they are equal.
Sides = tuple[PrivacyLoss, ...]
# More releases than this are composed on a coarse grid: a finer one would only gather more rounding.
MANY = 1_000_000
# The logarithm of the tail of a single release that is given up, and counted as lost.
CUT = -40


def epsilon(counts: Counts, delta: float, grid: float) -> float:
    """The epsilon of all these releases at `delta`, on a grid; at least the truth."""
    with np.errstate(all="ignore"):
        return max(side.epsilon(delta) for side in compose(counts, grid))


def deltas(counts: Counts, epsilons: Array, grid: float) -> Array:
    """The delta of all these releases at each epsilon, on a grid; at least the truth."""
    with np.errstate(all="ignore"):
        return np.max([side.deltas(epsilons) for side in compose(counts, grid)], axis=0)


def compose(counts: Counts, grid: float) -> Sides:
    """The privacy loss of all these releases together, in both directions."""
    parts = [(single(kind, grid), times) for kind, times in _merge_gaussians(counts)]
    return tuple(
        compose_all([sides[direction % len(sides)].self_compose(times) for sides, times in parts])
        for direction in range(max(len(sides) for sides, _ in parts))
    )


def _merge_gaussians(counts: Counts) -> Iterator[tuple[Event, int]]:
    """Merge all unsampled Gaussians into the one Gaussian that they compose to."""
    plain = {kind: times for kind, times in counts if kind.law == "gaussian" and kind.rate == 1}
    if plain:
        precision = sum(times / kind.multiplier**2 for kind, times in plain.items())
        yield Event("gaussian", precision**-0.5, 1.0, False), 1
    yield from ((kind, times) for kind, times in counts if kind not in plain)


@lru_cache(maxsize=32)
def single(kind: Event, grid: float) -> Sides:
    """Compute the privacy loss of one release, in both directions, or once where they are equal."""
    if kind.law == "gaussian" and kind.rate < 1 and not kind.two_sided:
        return _loss(_sampled_gaussian(kind, grid, "REMOVE")), _loss(_sampled_gaussian(kind, grid, "ADD"))
    whole = vars(_by_library(kind, grid))
    return tuple(_loss(whole[name]) for name in ("_pmf_remove", "_pmf_add")[: 2 - whole["_symmetric"]])


def _loss(distribution: "PLDPmf") -> PrivacyLoss:
    """Convert a distribution of the library into a `PrivacyLoss`."""
    dense = vars(distribution.to_dense_pmf())
    chances = np.asarray(dense["_probs"], dtype=np.float64)
    return PrivacyLoss(dense["_discretization"], dense["_lower_loss"], chances, dense["_infinity_mass"])


def _by_library(kind: Event, grid: float) -> "PrivacyLossDistribution":
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    if kind.law == "gaussian":
        # The library's exchange takes the bound of one contribution, half of our sensitivity.
        two_sided, one_sided = NeighboringRelation.REPLACE_ONE, NeighboringRelation.ADD_OR_REMOVE_ONE
        return pld.from_gaussian_mechanism(
            kind.multiplier,
            sensitivity=0.5 if kind.two_sided else 1.0,
            value_discretization_interval=grid,
            log_mass_truncation_bound=CUT,
            sampling_prob=kind.rate,
            neighboring_relation=two_sided if kind.two_sided else one_sided,
        )
    if not kind.pure_only:
        return pld.from_laplace_mechanism(
            kind.multiplier, value_discretization_interval=grid, sampling_prob=kind.rate
        )
    parameters = common.DifferentialPrivacyParameters(kind.pure, 0.0)
    return pld.from_privacy_parameters(parameters, value_discretization_interval=grid)


def _sampled_gaussian(kind: Event, grid: float, side: Literal["REMOVE", "ADD"]) -> "PLDPmf":
    """Build the library's distribution of a Poisson-sampled Gaussian without its loop over grid points."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_mechanism as library

    pair = library.GaussianPrivacyLoss(
        kind.multiplier,
        sampling_prob=kind.rate,
        adjacency_type=library.AdjacencyType[side],
        log_mass_truncation_bound=CUT,
    )
    bounds = pair.connect_dots_bounds()
    low = math.floor(cast(float, bounds.epsilon_lower) / grid)
    high = math.ceil(cast(float, bounds.epsilon_upper) / grid)
    epsilons = np.arange(low, high + 1) * grid
    # A drawn loss of epsilon is an undrawn one of log(1 + (e^epsilon - 1) / q), at one place of the noise.
    sign = 1 if side == "REMOVE" else -1
    deltas = -np.expm1(epsilons) if side == "REMOVE" else np.zeros_like(epsilons)
    possible = sign * epsilons > math.log1p(-kind.rate)
    losses = sign * np.log1p(np.expm1(sign * epsilons[possible]) / kind.rate)
    places = -sign * 0.5 - losses * kind.multiplier**2
    deltas[possible] = pair.mu_upper_cdf(places) - np.exp(epsilons[possible] + pair.mu_lower_log_cdf(places))
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, low, high, np.clip(deltas, 0, 1))


def rdp(releases: Sequence[Release], delta: float) -> float | None:
    """The epsilon of Renyi privacy with draws; None where the library has none."""
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    with _silence_logger("absl"):
        for release in releases:
            if release.law == "gaussian":
                event = dp_event.GaussianDpEvent(release.multiplier)
            elif release.rate == 1:
                event = dp_event.ZCDpEvent(rho(release))
            else:
                return None
            drawn = dp_event.PoissonSampledDpEvent(release.rate, event) if release.rate < 1 else event
            accountant.compose(drawn, release.count)
        return float(accountant.get_epsilon(delta))


@contextlib.contextmanager
def _silence_logger(name: str) -> Generator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
