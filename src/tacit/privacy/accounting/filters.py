"""Renyi filter: a budget for plans of which each may be chosen after seeing the results of the last.

Inside one plan, whose noise, rates and counts are fixed before its first release, privacy loss distributions
compose. Across plans they do not: convolving those of plans that were chosen along the way gives an epsilon
that the strategy as a whole may exceed (arXiv:2602.06756, arXiv:2602.15815). A Renyi filter holds for any
strategy, at the price of a few per cent of epsilon.

Guarantee:
    Fix a budget (epsilon, delta), an order a, and B such that (a, B)-Renyi privacy gives (epsilon, delta)
    (`allowance`: Canonne, Kamath and Steinke 2020, proposition 12). Let L be the privacy loss so far, and S
    the sum of the divergences of order a of the releases so far, each of which, as well as whether there is
    another one, may depend on all results before it. Given the past, E[exp((a - 1) l)] <= exp((a - 1) r) for
    a release with loss l and divergence r, so exp((a - 1) (L - S)) is a supermartingale that begins at 1. If
    S <= B wherever the interaction ends, then E[exp((a - 1) L)] <= exp((a - 1) B) there: the whole
    interaction is (a, B)-Renyi private, in both directions (Feldman and Zrnic 2021, theorem 3.1; Lecuyer
    2021).

    The order must be known before the first result: whichever order passes at the end would need its own
    share of delta. It is a function of the budget and of the first plan (`order_of`), which is chosen before
    anything is known. A sum of pure epsilons that is within epsilon is admitted as well. That costs no delta:
    where the interaction ends in that way, the loss is at most epsilon for certain, so only the ends that
    passed by S add to delta.

    A subject about which there is one plan is priced by privacy loss distributions, within the same budget.
    Let W be the releases of that first plan, written down before it begins, and let W as a whole be within
    the budget by composition. If W is neither within B nor purely within epsilon, no other plan is ever
    admitted, and what happens is W, or a part of it: (epsilon, delta)-private by composition, in any order of
    its releases and with any split of its undrawn Gaussians (Smith and Thakurta 2022), since the expected
    hockey-stick divergence of what is left of W, given the loss so far, is a martingale. Otherwise every end
    is within B or purely within epsilon, and the above holds. If W as a whole is not within the budget, each
    of its charges is held against the filter, and the above holds as well: a part of W that was chosen by
    results is not W. Which of the three is decided by W and the budget, hence before the first result.

Renyi divergences of single releases are computed one whole order at a time. Gaussian, Laplace and purely
private releases have closed forms; a drawn exchange is integrated with an error that is bounded beforehand.
What fails in any way costs infinitely much.
"""

import math
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, logsumexp

from tacit.privacy.accounting.release import Counts, Event
from tacit.runtime.arrays import Array

# An epsilon that is read off a filter is found up to this share.
ACCURACY = 1e-6
# Epsilons beyond which nothing is looked for.
LEAST, MOST = 1e-6, 1e9
# Orders are tried one by one up to the first, then in steps of this factor.
DENSE, FACTOR = 64, 1.05


def allowance(epsilon: float, delta: float, order: int) -> float:
    """The largest divergence at an order that keeps a budget; zero or below where the order is too low."""
    return epsilon - math.log1p(-1 / order) + math.log(delta * order) / (order - 1)


@lru_cache(maxsize=4096)
def order_of(first: Counts, epsilon: float, delta: float) -> int:
    """The order of the filter of a budget on a ledger that begins with a plan.

    The one at which the first plan could be repeated most often, and at most the one at which a Gaussian
    could be: tails of drawn releases are heavier than those of a Gaussian, and want a lower order; a first
    plan with lighter ones says nothing about those that will follow.
    """
    # The best order for a Gaussian is close to 1 + 2 log(1 / delta) / epsilon from below, for any budget.
    most = min(3 - 2.1 * math.log(delta) / epsilon, HIGHEST)
    orders = _orders(most)
    gaussian = max(orders, key=lambda order: allowance(epsilon, delta, order) / order)

    def repeats(order: int) -> float:
        allowed, cost = allowance(epsilon, delta, order), total(first, order)
        return allowed / cost if allowed > 0 and 0 < cost < math.inf else 0.0

    # Of equally good ones the highest, which is the Gaussian's.
    return max((order for order in reversed(orders) if order <= gaussian), key=repeats)


def _orders(most: float) -> list[int]:
    found = list(range(2, DENSE + 1))
    while found[-1] * FACTOR <= most:
        found.append(math.ceil(found[-1] * FACTOR))
    return found


def admits(counts: Counts, first: Counts, epsilon: float, delta: float) -> bool:
    """Return True if the privacy filter of a budget admits these releases, however each was chosen.

    Args:
        counts: Everything about one subject, the next charge included.
        first: The first plan about it.
        epsilon: The budget.
        delta: The probability with which it may fail; at 0 pure epsilons add up.
    """
    if total_pure_epsilon(counts) <= epsilon:
        return True
    if delta == 0:
        return False
    order = order_of(first, epsilon, delta)
    return is_within(total(counts, order), epsilon, delta, order)


def is_within(divergence: float, epsilon: float, delta: float, order: int) -> bool:
    """Return True if a sum of Renyi divergences at the order of a filter is within its budget."""
    return divergence * (1 + SAFETY) <= allowance(epsilon, delta, order)


def total_pure_epsilon(counts: Counts) -> float:
    """The sum of pure epsilons; infinite where a release has none."""
    return math.fsum(times * kind.pure for kind, times in counts) * (1 + 1e-12)


@lru_cache(maxsize=4096)
def epsilon(counts: Counts, first: Counts, delta: float) -> float:
    """Return the smallest budget whose filter admits these releases, however each was chosen.

    Guarantee:
        Had this number been fixed as the budget before the first release, all that could happen under it
        would be (epsilon, delta)-private. It is read off afterwards, so it is no promise by itself: where
        results decide if there is another release, the number follows them, and the strategy as a whole may
        fail with more than `delta` (20 to 60 runs on which an attacker stops at the best moment: 1.6 to 4.5
        times).

    Args:
        counts: Everything about one subject.
        first: The first plan about it.
        delta: The probability with which the promise may fail.
    """
    if not counts:
        return 0.0
    high = LEAST
    while not admits(counts, first, high, delta):
        high *= 8
        if high > MOST:
            return math.inf
    low = high / 8
    while high > low * (1 + ACCURACY):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if admits(counts, first, middle, delta) else (middle, high)
    return high


# No order above this one is used: closed forms of drawn releases have as many terms.
HIGHEST = 2**14
# Rounding of logarithms of factorials, of at most `HIGHEST`, and of sums of as many positive terms.
SAFETY = 1e-9
# Sums that stand for integrals are right up to e to this power, relatively, and so are their ends.
DIGITS = 41.0
MOST_POINTS = 2**20
LEAST_DIVERGENCE = 1e-300
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
    """Return one release after a draw, from the logarithms of its moments of order 2, 3, ... up to `order`.

    Mironov, Talwar and Zhang (2019), section 3.3: the moment of the mixture is a binomial sum of those of its
    part. Their theorem 5 has the direction of a unit that is there as the worse one, for any noise that a
    reflection turns into that of the neighbor.
    """
    powers = np.arange(2, order + 1, dtype=np.float64)
    ways = gammaln(order + 1) - gammaln(powers + 1) - gammaln(order - powers + 1)
    chances = ways + powers * math.log(rate) + (order - powers) * math.log1p(-rate)
    # Without the part that sums up to 1, so that little stays accurate.
    small = np.log(np.expm1(np.minimum(moments, 1)))
    above = np.where(moments > 1, moments + np.log1p(-np.exp(-moments)), small)
    # A divergence too small for a double still counts.
    return max(_log1p_exp(chances + above), LEAST_DIVERGENCE) / (order - 1)


def _log1p_exp(logs: Array) -> float:
    """Return the logarithm of 1 plus the sum of the exponentials."""
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
    # The integral is 1 and a little more: add the largest rounding error.
    return (max(found, 0.0) + 1e-11 * (order + found)) / (order - 1)
