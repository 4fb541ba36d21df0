"""Privacy loss distributions (PLD) of single releases, composed over many releases.

The only door to the `dp-accounting` library. Distributions are pessimistic: an epsilon or a delta read off
them is an upper bound, whatever the grid.
"""

import contextlib
import logging
import math
from collections.abc import Generator, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from tacit.privacy.accounting import theorems
from tacit.privacy.accounting.composition import PrivacyLoss, compose_all
from tacit.privacy.accounting.events import Counts, Event
from tacit.privacy.accounting.release import Release
from tacit.runtime.arrays import Array

if TYPE_CHECKING:
    from dp_accounting.pld.pld_pmf import PLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

# In both directions between neighbours, or one where they are alike.
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
                event = dp_event.ZCDpEvent(theorems.rho(release))
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
