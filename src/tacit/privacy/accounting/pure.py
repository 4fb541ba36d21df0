"""Many equal pure releases in closed form: epsilon at a delta above zero.

Whatever a purely private release is, nothing tells two neighbours apart better than randomised response with
the same epsilon, so the composition of `times` of those is exact (Kairouz, Oh and Viswanath 2015).
"""

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln

from tacit.privacy.accounting.gaussian import SMALLEST

# Logarithms of factorials are good to nine digits for a million releases.
SAFETY = 1e-6
MOST_TIMES = 10_000_000


def epsilon_of(single: float, times: int, delta: float) -> float:
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
