"""Choices among candidates, and quantiles, which are choices among places."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tacit.audits.lower_bounds import Evidence
from tacit.audits.mechanisms.base import Primitive, toss_coins
from tacit.privacy.mechanisms.selection import PrivateQuantile, Selection
from tacit.runtime.keys import Key


def choice(
    mechanism: Selection | PrivateQuantile, pair: Mapping[bool, Sequence[float]], seen: Callable[[Any], bool]
) -> Primitive:
    """One of several is chosen: an adversary waits for the outcome that tells its worst neighbours apart."""

    def attack(attacked: Selection | PrivateQuantile, count: int, key: Key) -> Evidence:
        present = toss_coins(count, key)
        found = [
            seen(attacked.choose(pair[bool(there)], key / number)) for number, there in enumerate(present)
        ]
        return Evidence(np.where(found, 1.0, -1.0), present)

    return Primitive(mechanism, (mechanism.release(),), attack, delta=0.0)


def exponential() -> Primitive:
    """One of several chosen by the exponential mechanism."""
    # One record moves one score up and all the others down.
    pair = {True: [1.0] + [-1.0] * 19, False: [0.0] * 20}
    return choice(Selection(rehearsal=True, epsilon=2.0, rule="exponential"), pair, lambda place: place == 0)


def permute_and_flip() -> Primitive:
    """One of several chosen by permute and flip."""
    pair = {True: [0.0, 0.0], False: [-1.0, 1.0]}
    rule = Selection(rehearsal=True, epsilon=2.0, rule="permute-and-flip")
    return choice(rule, pair, lambda place: place == 0)


def quantile() -> Primitive:
    """A quantile of private numbers."""
    # The largest of two numbers becomes the smallest: a short gap gains a rank, and the long one loses it.
    pair = {True: [0.0, 0.05], False: [0.05, 1.0]}
    rule = PrivateQuantile(rehearsal=True, quantile=0.5, low=0.0, high=1.0, epsilon=2.0)
    return choice(rule, pair, lambda place: place < 0.05)
