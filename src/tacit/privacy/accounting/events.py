"""What decides the price of a release: equal kinds are counted, and priced together."""

import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from tacit.privacy.accounting import theorems
from tacit.privacy.accounting.release import Law, Release


class Event(NamedTuple):
    """What decides the price of one release; equal kinds are counted, not composed one by one."""

    law: Law
    multiplier: float
    rate: float
    two_sided: bool

    @property
    def pure_only(self) -> bool:
        """Whether nothing is known of it but its pure epsilon."""
        return self.law == "selection" or (self.law == "laplace" and self.two_sided)

    @property
    def pure(self) -> float:
        """Epsilon at delta 0."""
        return math.inf if self.law == "gaussian" else theorems.amplify(1 / self.multiplier, self.rate)


Counts = tuple[tuple[Event, int], ...]


def group_events(releases: Iterable[Release]) -> Counts:
    """How often each kind of release occurs; all that a price depends on."""
    counter: Counter[Event] = Counter()
    # What is discrete is priced as the Gaussian that it is a rounding of, alone and among others.
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
