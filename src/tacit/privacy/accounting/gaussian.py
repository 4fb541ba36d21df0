"""The Gaussian mechanism in closed form: exact, so any number of unsampled Gaussians needs no numerics.

Balle and Wang (2018), theorem 8: with noise of z sensitivities,
`delta(epsilon) = Phi(1/(2z) - epsilon z) - exp(epsilon) Phi(-1/(2z) - epsilon z)`.
"""

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr

# An epsilon of zero is never claimed, even where it is true at this delta.
SMALLEST = 1e-9
# Roots are moved to the safe side by more than their tolerance.
TOLERANCE = 1e-12
SAFETY = 1e-10


def delta_of(multiplier: float, epsilon: float) -> float:
    """The smallest delta at which noise of `multiplier` sensitivities is (epsilon, delta)-private."""
    half = 0.5 / multiplier
    upper = float(log_ndtr(half - epsilon * multiplier))
    lower = epsilon + float(log_ndtr(-half - epsilon * multiplier))
    if not lower < upper:
        return 0.0 if lower == upper else math.inf
    return math.exp(upper) * -math.expm1(lower - upper)


def epsilon_of(multiplier: float, delta: float) -> float:
    """The smallest epsilon at which noise of `multiplier` sensitivities is (epsilon, delta)-private.

    Guarantee:
        At least the exact value, and at most 1e-9 above it (relative, or absolute near zero).
    """
    mu = 1 / multiplier
    ceiling = zcdp_epsilon(mu * mu / 2, delta)
    if not math.isfinite(ceiling):
        return math.inf
    if delta_of(multiplier, 0.0) <= delta:
        return SMALLEST
    root = float(brentq(lambda epsilon: delta_of(multiplier, epsilon) - delta, 0.0, ceiling, xtol=TOLERANCE))
    return max(root * (1 + SAFETY) + 2 * TOLERANCE, SMALLEST)


def multiplier_of(epsilon: float, delta: float) -> float:
    """The least noise, in sensitivities, that is (epsilon, delta)-private."""
    log = -math.log(delta)
    # The zCDP conversion solved for its noise: enough noise, by a few per cent too much.
    enough = (math.sqrt(log + epsilon) + math.sqrt(log)) / (math.sqrt(2) * epsilon)
    scarce = enough / 2
    while delta_of(scarce, epsilon) <= delta:
        enough, scarce = scarce, scarce / 2
    root = float(brentq(lambda z: delta_of(z, epsilon) - delta, scarce, enough, xtol=TOLERANCE * enough))
    # Beyond the tolerance of `epsilon_of`, so that the answer, priced again, is within the target.
    return root * (1 + 1e-7)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon of rho-zCDP by Bun and Steinke (2016): simple, valid and loose."""
    return rho + 2 * math.sqrt(rho * -math.log(delta))
