"""Privacy filters: a budget for plans of which each may be chosen after seeing the results of the last.

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
"""

import math
from functools import lru_cache

from tacit.privacy.accounting import renyi
from tacit.privacy.accounting.events import Counts

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
    most = min(3 - 2.1 * math.log(delta) / epsilon, renyi.HIGHEST)
    orders = _orders(most)
    gaussian = max(orders, key=lambda order: allowance(epsilon, delta, order) / order)

    def repeats(order: int) -> float:
        allowed, cost = allowance(epsilon, delta, order), renyi.total(first, order)
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
    return is_within(renyi.total(counts, order), epsilon, delta, order)


def is_within(divergence: float, epsilon: float, delta: float, order: int) -> bool:
    """Return True if a sum of Renyi divergences at the order of a filter is within its budget."""
    return divergence * (1 + renyi.SAFETY) <= allowance(epsilon, delta, order)


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
