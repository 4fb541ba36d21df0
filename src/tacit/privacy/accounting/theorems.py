"""Well-known composition theorems, for comparison with the claim; exact for equal pure releases.

Each is a valid bound, and each is looser than what `accounting` claims; that difference is what a user may
want to see. A theorem that says nothing about a release (zCDP of a sampled one, say) answers None.

`pure_composition` is exact: no purely private release tells two neighbors apart better than randomized
response with the same epsilon, and the composition of those is known (Kairouz, Oh and Viswanath 2015).
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln

from tacit.privacy.accounting import gaussian
from tacit.privacy.accounting.gaussian import SMALLEST
from tacit.privacy.accounting.release import Release, amplify, rho

Theorem = Callable[[Sequence[Release], float], float | None]


def basic_composition(epsilon: float, times: int) -> float:
    """Epsilons simply add up; so do deltas."""
    return epsilon * times


def advanced_composition(epsilon: float, times: int, slack: float) -> float:
    """Dwork, Rothblum and Vadhan (2010): `times` releases of `epsilon`, for `slack` more delta."""
    return _advanced_bound([(epsilon, times)], slack)


def pure_epsilon(release: Release) -> float:
    """Epsilon of one Laplace or selection release, at delta 0; infinite for a Gaussian."""
    pure = release.law in ("laplace", "discrete-laplace", "selection")
    return amplify(1 / release.multiplier, release.rate) if pure else math.inf


def basic_epsilon(releases: Sequence[Release], delta: float) -> float | None:
    """Basic composition over single releases, delta shared equally among the Gaussians."""
    return sum(basic_composition(epsilon, times) for epsilon, times in _singles(releases, delta))


def advanced_epsilon(releases: Sequence[Release], delta: float) -> float | None:
    """Advanced composition over single releases: half of delta for them, half as the slack."""
    return None if delta == 0 else _advanced_bound(_singles(releases, delta / 2), delta / 2)


def zcdp(releases: Sequence[Release], delta: float) -> float | None:
    """Compute epsilon by zero-concentrated DP (Bun and Steinke 2016); None with sampling."""
    if delta == 0 or any(release.rate < 1 for release in releases):
        return None
    return gaussian.zcdp_epsilon(sum(release.count * rho(release) for release in releases), delta)


def rdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon of releases that are rho-zCDP, through Renyi privacy (Mironov 2017) at its best order."""
    # Canonne, Kamath and Steinke (2020), proposition 12, at the best of many orders.
    orders = [1 + 10 ** (power / 100) for power in range(-400, 501)]
    log = math.log(delta)
    return min(a * rho + math.log1p(-1 / a) - (log + math.log(a)) / (a - 1) for a in orders)


THEOREMS: dict[str, Theorem] = {"zcdp": zcdp, "advanced": advanced_epsilon, "basic": basic_epsilon}


def _singles(releases: Sequence[Release], delta: float) -> list[tuple[float, int]]:
    plain = [release.as_gaussian() for release in releases]
    sharing = sum(release.count for release in plain if release.law == "gaussian")
    return [(_single(release, delta / max(sharing, 1)), release.count) for release in plain]


def _single(release: Release, delta: float) -> float:
    if release.law != "gaussian":
        return pure_epsilon(release)
    if delta == 0:
        return math.inf
    # A draw with probability q turns (epsilon, delta / q) into (log(1 + q (e^epsilon - 1)), delta)
    # (Balle, Barthe and Gaboardi 2018).
    before = delta / release.rate
    return amplify(
        gaussian.epsilon_of(release.multiplier, before) if before < 1 else gaussian.SMALLEST, release.rate
    )


def _advanced_bound(singles: Sequence[tuple[float, int]], slack: float) -> float:
    try:
        square = sum(times * epsilon**2 for epsilon, times in singles)
        linear = sum(times * epsilon * math.expm1(epsilon) for epsilon, times in singles)
    except OverflowError:
        return math.inf
    return math.sqrt(2 * square * -math.log(slack)) + linear


# Logarithms of factorials are good to nine digits for a million releases.
SAFETY = 1e-6
MOST_TIMES = 10_000_000


def pure_composition(single: float, times: int, delta: float) -> float:
    """The smallest epsilon at `delta` of `times` releases that cost `single` each.

    Guarantee:
        At least the exact value, and at most the plain sum.
    """
    total = times * single
    if times > MOST_TIMES:
        return total
    # Of `times` answers, `truths` point to the truth, each with probability e^single / (1 + e^single).
    truths = np.arange(times // 2, times + 1, dtype=np.float64)
    choose = gammaln(times + 1) - gammaln(truths + 1) - gammaln(times - truths + 1)
    mass = np.exp(choose - truths * np.log1p(np.exp(-single)) - (times - truths) * np.logaddexp(0, single))
    losses = (2 * truths - times) * single

    def excess(epsilon: float) -> float:
        beyond = losses > epsilon
        return float((mass[beyond] * -np.expm1(epsilon - losses[beyond])).sum()) - delta * (1 - SAFETY)

    if excess(0.0) <= 0:
        return min(SMALLEST, total)
    return min(float(brentq(excess, 0.0, total, xtol=1e-12)) * (1 + 1e-9) + 1e-11, total)
