"""Pricing events: the attributes that decide the price of a release; equal events are counted together."""

import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from tacit.privacy.accounting import theorems
from tacit.privacy.accounting.release import Law, Release


class Event(NamedTuple):
    """Attributes that decide the price of one release; equal events are counted, not composed one by one."""

    law: Law
    multiplier: float
    rate: float
    two_sided: bool

    @property
    def pure_only(self) -> bool:
        """Return True if the event has no bound except its pure epsilon."""
        return self.law == "selection" or (self.law == "laplace" and self.two_sided)

    @property
    def pure(self) -> float:
        """Return epsilon at delta 0, amplified by sampling."""
        return math.inf if self.law == "gaussian" else theorems.amplify(1 / self.multiplier, self.rate)


Counts = tuple[tuple[Event, int], ...]


def group_events(releases: Iterable[Release]) -> Counts:
    """Count the releases of each event; a price depends on nothing else."""
    counter: Counter[Event] = Counter()
    # Discrete noise is priced as the Gaussian that it is a rounding of, alone and among other releases.
    for release in (release.as_gaussian() for release in releases):
        counter[Event(release.law, release.multiplier, release.rate, release.two_sided)] += release.count
    return tuple(sorted(counter.items()))


def variance(kind: Event) -> float:
    """Roughly, the variance of the privacy loss of one release; for choosing grids, never a claim."""
    spread = 1 / kind.multiplier if kind.law == "gaussian" else kind.pure
    if kind.rate == 1 or kind.law != "gaussian":
        return spread**2
    return min(kind.rate**2 * math.expm1(min(spread**2, 700.0)), spread**2)


def max_loss(kind: Event) -> float:
    """About the largest privacy loss of one release before its tail is cut."""
    inverse = 1 / kind.multiplier
    loss = 9 * inverse + 0.5 * inverse**2 if kind.law == "gaussian" else inverse
    return theorems.amplify(loss, kind.rate)
