"""Renyi divergences of single releases: a price that adds up even when each release is chosen by the last.

One whole order at a time. Gaussian, Laplace and purely private releases have closed forms; a drawn exchange
is integrated with an error that is bounded beforehand. What fails in any way costs infinitely much.
"""

import math
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, logsumexp

from tacit.privacy.accounting.events import Counts, Event
from tacit.runtime.arrays import Array

# No order above this one is used: closed forms of drawn releases have as many terms.
HIGHEST = 2**14
# Rounding of logarithms of factorials, of at most `HIGHEST`, and of sums of as many positive terms.
SAFETY = 1e-9
# Sums that stand for integrals are right up to e to this power, relatively, and so are their ends.
DIGITS = 41.0
MOST_POINTS = 2**20
LEAST = 1e-300
# Below this pure epsilon a Laplace release is priced as any other purely private one: nothing is lost by it.
SMALL = 0.01


@lru_cache(maxsize=65536)
def divergence(kind: Event, order: int) -> float:
    """The Renyi divergence of one release at a whole order of 2 or more, in the worse of both directions.

    Guarantee:
        At least the truth; infinite where nothing can be computed. A draw never costs more than none, and
        what is purely private never more than epsilon, nor than order * epsilon^2 / 2 (Bun and Steinke 2016).
    """
    if not 2 <= order <= HIGHEST:
        return math.inf
    ceiling = order / 2 / kind.multiplier / kind.multiplier
    try:
        with np.errstate(all="ignore"):
            if kind.law == "gaussian":
                found = _gaussian(kind, order)
            else:
                ceiling = min(ceiling, kind.pure, order * kind.pure / 2 * kind.pure)
                found = _pure(kind, order)
    except (ArithmeticError, ValueError):
        found = math.inf
    # NaN is no price.
    found = found * (1 + SAFETY) if found > 0 else math.inf
    return min(found, ceiling * (1 + SAFETY))


def total(counts: Counts, order: int) -> float:
    """The divergence of all these releases together: it adds up, whatever decided on each of them."""
    return math.fsum(times * divergence(kind, order) for kind, times in counts)


def _gaussian(kind: Event, order: int) -> float:
    if kind.rate == 1:
        return order / 2 / kind.multiplier / kind.multiplier
    if kind.two_sided:
        return _replacement_divergence(kind.multiplier, kind.rate, order)
    powers = np.arange(2, order + 1, dtype=np.float64)
    return _sampled_divergence(powers * (powers - 1) / (2 * kind.multiplier**2), kind.rate, order)


def _pure(kind: Event, order: int) -> float:
    if kind.pure_only or 1 / kind.multiplier < SMALL:
        return _randomised_response(kind.pure, order)
    # Mironov (2017), proposition 6: the moments of a Laplace release.
    epsilon, powers = 1 / kind.multiplier, np.arange(2, order + 1, dtype=np.float64)
    up = np.log(powers / (2 * powers - 1)) + (powers - 1) * epsilon
    down = np.log((powers - 1) / (2 * powers - 1)) - powers * epsilon
    moments = np.logaddexp(up, down)
    return (
        float(moments[-1]) / (order - 1) if kind.rate == 1 else _sampled_divergence(moments, kind.rate, order)
    )


def _randomised_response(epsilon: float, order: int) -> float:
    """Return the largest divergence of a pure release: log(cosh((2a - 1) e / 2) / cosh(e / 2)) / (a - 1)."""
    return (_log_cosh((order - 0.5) * epsilon) - _log_cosh(0.5 * epsilon)) / (order - 1)


def _log_cosh(value: float) -> float:
    return value - math.log(2) if value > 40 else math.log1p(2 * math.sinh(value / 2) ** 2)


def _sampled_divergence(moments: Array, rate: float, order: int) -> float:
    """One release after a draw, from the logarithms of its moments of order 2, 3, ... up to `order`.

    Mironov, Talwar and Zhang (2019), section 3.3: the moment of the mixture is a binomial sum of those of its
    part. Their theorem 5 has the direction of a unit that is there as the worse one, for any noise that a
    reflection turns into that of the neighbour.
    """
    powers = np.arange(2, order + 1, dtype=np.float64)
    ways = gammaln(order + 1) - gammaln(powers + 1) - gammaln(order - powers + 1)
    chances = ways + powers * math.log(rate) + (order - powers) * math.log1p(-rate)
    # Without the part that sums up to 1, so that little stays accurate.
    small = np.log(np.expm1(np.minimum(moments, 1)))
    above = np.where(moments > 1, moments + np.log1p(-np.exp(-moments)), small)
    # A divergence too small for a double still counts.
    return max(_log1p_exp(chances + above), LEAST) / (order - 1)


def _log1p_exp(logs: Array) -> float:
    """The logarithm of 1 plus the sum of the exponentials."""
    whole = float(logsumexp(logs))
    return whole + math.log1p(math.exp(-whole)) if whole > 0 else math.log1p(math.exp(whole))


def _replacement_divergence(noise: float, rate: float, order: int) -> float:
    """Compute the divergence of sampled 1/2 against -1/2: log of the integral of p^a q^(1 - a), over a - 1.

    By the trapezium rule. With p = f a and q = f b for the normal density f, both a and b are of the form 1 -
    rate + rate e^w, and |1 - rate + rate e^(u + iv)| >= cos(v / 2) (1 - rate + rate e^u). So the integrand is
    analytic where |y| <= pi noise^2 (there |v| <= pi / 2), and on the line at height y its absolute value is
    at most e^(y^2 / (2 noise^2)) 2^((a - 1) / 2) times its value on the real line. The relative error of a
    step of h is at most twice that over e^(2 pi y / h) - 1 (Trefethen and Weideman 2014, theorem 5.1).
    """
    height = min(math.pi * noise**2, 9 * noise)
    lost = DIGITS + 2 + height**2 / (2 * noise**2) + (order - 1) * math.log(2) / 2
    step = 2 * math.pi * height / lost
    # Beyond these ends f e^(a u) / (1 - rate)^(a - 1), which is above the integrand, is as little as its
    # error.
    ends = noise * math.sqrt(2 * (DIGITS + order**2 / (8 * noise**2) - (order - 1) * math.log1p(-rate)))
    count = math.ceil((2 * ends + order / 2) / step) + 1
    if count > MOST_POINTS:
        return math.inf
    places = -ends + step * np.arange(count + 1)
    log_a, log_b = (
        np.logaddexp(math.log1p(-rate), math.log(rate) + (side * places - 0.25) / (2 * noise**2))
        for side in (1, -1)
    )
    density = -(places**2) / (2 * noise**2) - math.log(noise * math.sqrt(2 * math.pi))
    found = float(logsumexp(density + order * log_a + (1 - order) * log_b)) + math.log(step)
    # The integral is 1 and a little more: what rounding may have taken is added.
    return (max(found, 0.0) + 1e-11 * (order + found)) / (order - 1)
