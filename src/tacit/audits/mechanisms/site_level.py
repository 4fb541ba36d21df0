"""Whole updates of sites, and what is made of all of them."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tacit.audits.canaries import LONG
from tacit.audits.lower_bounds import Evidence, ratios
from tacit.audits.mechanisms.base import (
    CLIP,
    DELTA,
    FEW,
    SITE,
    SITES,
    Primitive,
    canary_primitive,
    toss_coins,
    zeros,
)
from tacit.privacy.accounting.release import Relation, Release
from tacit.privacy.mechanisms.adaptive_bound import AdaptiveBound
from tacit.privacy.mechanisms.base import NoiseLaw
from tacit.privacy.mechanisms.secure_sum import SecureSum
from tacit.privacy.mechanisms.site_level import SiteLevel
from tacit.runtime.keys import Key

# How many numbers there are where a bound is spread evenly over all of them, and how much noise then tells
# what was clipped from what was not.
SPREAD = 64
SPREAD_NOISE: Mapping[NoiseLaw, float] = {"gaussian": 2.0, "laplace": 2 / 3}


def updates(multiplier: float, **fields: Any) -> Primitive:
    """Whole updates, with noise at the site or at the server."""
    usual: dict[str, Any] = {"law": "gaussian", "reach": CLIP}
    mechanism = SiteLevel(clip=CLIP, multiplier=multiplier, rehearsal=True, **{**usual, **fields})

    def play(planted: SiteLevel, key: Key) -> None:
        planted.at_server(planted.at_site(zeros(1), key / SITE / "update"), key / "server")

    return canary_primitive(mechanism, play, delta=0.0 if mechanism.law == "laplace" else DELTA)


def spread_updates(law: NoiseLaw) -> Primitive:
    """Updates one at a time, as a run has them, spread evenly over many numbers: only a norm bounds them."""
    primitive = updates(SPREAD_NOISE[law], law=law, where="site")
    own = even_split(primitive.price[0], "replace")

    def attack(attacked: SiteLevel, count: int, key: Key) -> Evidence:
        present = toss_coins(count, key)
        long = np.full((SPREAD,), LONG * CLIP, dtype=np.float64)
        answers = [
            attacked.at_site(long if there else -long, key / number / SITE / "update")
            for number, there in enumerate(present)
        ]
        return Evidence(ratios(own, np.array(answers)).sum(axis=1), present)

    return replace(primitive, attack=attack, most=FEW)


def even_split(price: Release, relation: Relation) -> Release:
    """The price of one of many numbers that share the bound evenly."""
    share = CLIP / (SPREAD if price.law == "laplace" else math.sqrt(SPREAD))
    sides = 2 if relation == "replace" else 1
    return replace(price, sensitivity=sides * share, bound=share)


def secure_sum() -> Primitive:
    """A sum over sites that nobody sees the parts of."""
    mechanism = SecureSum(clip=CLIP, multiplier=1.0, colluders=1, sites=SITES, rehearsal=True)
    return canary_primitive(
        mechanism, lambda planted, key: planted.at_site(zeros(1), key / SITE / "update"), most=FEW
    )


def adaptive_clipping() -> Primitive:
    """A bound of updates that follows their lengths."""
    mechanism = AdaptiveBound(rehearsal=True, expected=1000, noise=0.5)

    def attack(attacked: AdaptiveBound, count: int, key: Key) -> Evidence:
        present = toss_coins(count, key)
        lengths = {True: np.full((1,), 9.0), False: np.zeros(0)}
        # The noisy count of long contributions is what the move of the bound shows.
        counts = [
            attacked.expected
            / attacked.speed
            * math.log(attacked.next(1.0, lengths[bool(there)], key / number))
            for number, there in enumerate(present)
        ]
        return Evidence(ratios(mechanism.release(), np.array(counts)), present)

    return Primitive(mechanism, (mechanism.release(),), attack, most=FEW)
