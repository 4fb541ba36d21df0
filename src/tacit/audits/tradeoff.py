"""What any attack can achieve against releases: how many members it misses at a share of false alarms.

The whole curve says more than one epsilon at one delta (Dong, Roth and Su 2022): an attack that lies beyond
it has disproved the promise.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from tacit.privacy import accounting
from tacit.privacy.accounting.events import group_events
from tacit.privacy.accounting.release import Release, by_subject

Array = NDArray[np.float64]
# At how many epsilons a curve that has no closed form is looked up.
POINTS = 400
# Events that are rarer than this need not be bounded well.
RAREST = 1e-9


def power(releases: Sequence[Release], alarms: Array) -> Array:
    """The largest share of members that any attack can find, at such shares of false alarms.

    Guarantee:
        At least the truth, for the subject that is protected least.
    """
    shares = np.asarray(alarms, dtype=np.float64)
    groups = by_subject(releases).values()
    return 1 - np.min([min_false_negative_rate(group, shares) for group in groups], axis=0)


def min_false_negative_rate(releases: Sequence[Release], alarms: Array) -> Array:
    """The least share of members that any attack misses, at such shares of false alarms, about one subject.

    Guarantee:
        At most the truth.
    """
    mu = shift(releases)
    if mu is not None:
        return ndtr(ndtri(1 - alarms) - mu)
    epsilons, kept = _delta_curve(tuple(releases))
    # Each epsilon and its delta forbid what is below two lines, one the mirror image of the other.
    lines = np.maximum(
        kept - np.exp(epsilons) * alarms[..., None], np.exp(-epsilons) * (kept - alarms[..., None])
    )
    return np.maximum(lines.max(axis=-1), 0.0)


def shift(releases: Sequence[Release]) -> float | None:
    """By how many deviations releases move that are all Gaussian and undrawn; None if some are not."""
    counts = group_events(releases)
    if any(kind.law != "gaussian" or kind.rate < 1 for kind, _ in counts):
        return None
    return float(sum(times / kind.multiplier**2 for kind, times in counts)) ** 0.5


@lru_cache(maxsize=1024)
def _delta_curve(releases: tuple[Release, ...]) -> tuple[Array, Array]:
    """Some epsilons, and one minus the delta of each."""
    epsilons, pure = np.linspace(0.0, _largest(releases), POINTS), accounting.total_pure_epsilon(releases)
    epsilons = np.append(epsilons, pure) if math.isfinite(pure) else epsilons
    return epsilons, 1 - accounting.deltas(releases, epsilons)


def _largest(releases: Sequence[Release]) -> float:
    """An epsilon beyond which curves have nothing to add, but at the rarest events."""
    return min(accounting.epsilon(releases, RAREST), 60.0)
