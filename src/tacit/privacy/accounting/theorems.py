"""Well-known composition theorems, to print beside the claim.

Each is a valid bound, and each is looser than what `accounting` claims; that difference is what a user may
want to see. A theorem that says nothing about a release (zCDP of a sampled one, say) answers None.
"""

import math
from collections.abc import Callable, Sequence

from tacit.privacy.accounting import gaussian
from tacit.privacy.accounting.release import Release

Theorem = Callable[[Sequence[Release], float], float | None]


def amplify(epsilon: float, rate: float) -> float:
    """Epsilon after a secret draw with probability `rate`: log(1 + rate (e^epsilon - 1))."""
    if epsilon < 500:
        return math.log1p(rate * math.expm1(epsilon))
    return epsilon + math.log(rate + (1 - rate) * math.exp(-epsilon))


def basic_composition(epsilon: float, times: int) -> float:
    """Epsilons simply add up; so do deltas."""
    return epsilon * times


def advanced_composition(epsilon: float, times: int, slack: float) -> float:
    """Dwork, Rothblum and Vadhan (2010): `times` releases of `epsilon`, for `slack` more delta."""
    return _advanced_bound([(epsilon, times)], slack)


def pure_epsilon(release: Release) -> float:
    """Epsilon of one Laplace or selection release, at delta 0; infinite for a Gaussian."""
    pure = release.law in ("laplace", "selection")
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


def rho(release: Release) -> float:
    """The zCDP of one release; of a sampled one, as if there had been no draw."""
    # A Gaussian of z sensitivities has 1 / (2 z^2); so has a discrete one (Canonne, Kamath and Steinke 2020),
    # and any pure release with epsilon = 1 / z.
    return 1 / (2 * release.multiplier**2)


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
