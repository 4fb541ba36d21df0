"""One way in which something leaves, its price, and what an adversary sees of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.aggregation.mean import Mean
from tacit.audits.canaries import Canaries
from tacit.audits.insertion import with_canaries
from tacit.audits.lower_bounds import Bounds, Evidence, bounds
from tacit.privacy.accounting.release import Release
from tacit.privacy.mechanisms.base import Mechanism
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key

Marks = NDArray[np.bool_]
DELTA = 1e-5
CLIP = 0.5
SITES = 5
SITE = "site"
# Few canaries are enough where each costs a call of its own.
FEW = 2000


@dataclass(frozen=True)
class Primitive:
    """One way in which something leaves.

    Args:
        mechanism: What lets it out.
        price: What it charges for that.
        attack: What an adversary sees of so many canaries; called with the mechanism, which may be a broken
            one, so that its price is not what is believed.
        most: How many canaries are enough.
        delta: At which delta the price is stated.
    """

    mechanism: Any
    price: tuple[Release, ...]
    attack: Callable[[Any, int, Key], Evidence]
    most: int = 5000
    delta: float = DELTA

    def audit(self, *, mechanism: Any = None, confidence: float = 0.95, seed: int = 0) -> Bounds:  # noqa: ANN401
        """Attack the mechanism, or another one that claims the same price."""
        key = Key(seed, rehearsal=True)
        evidence = self.attack(mechanism or self.mechanism, self.most, key)
        return bounds(evidence, self.price, self.delta, confidence=confidence)


def canary_primitive(
    mechanism: Mechanism, play: Callable[[Any, Key], object], *, most: int = 5000, delta: float = DELTA
) -> Primitive:
    """A mechanism that takes canaries, and how it is used; with no records of anybody."""

    def attack(attacked: Mechanism, count: int, key: Key) -> Evidence:
        canaries = Canaries(count, [SITE], key / "coins")
        play(with_canaries(attacked, canaries, aggregation=Mean(), sites=SITES), key)
        return canaries.evidence()

    return Primitive(mechanism, mechanism.release(1, [SITE]), attack, most=most, delta=delta)


def toss_coins(count: int, key: Key) -> Marks:
    """Who of so many is there, by the toss of a coin."""
    return (key / "coins").generator().random(count) < 0.5


def zeros(count: int) -> Array:
    """So many zeros."""
    return np.zeros(count, dtype=np.float64)
