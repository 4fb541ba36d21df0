"""What an adversary can learn from each mechanism is no more than what was charged for it.

Each mechanism runs many times on its worst pair of neighbours, with independent rehearsal seeds. One event,
fixed in advance, tells the two apart best. How often it happens on either side bounds epsilon from below
(Clopper and Pearson 1934); that bound must not exceed the claim, and must exceed it as soon as the noise is
halved. Seeds are fixed, so verdicts repeat; a right mechanism would be accused on fewer than `FALSE_ALARM` of
them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from scipy import optimize, stats

from tacit.aggregation.averaging import Mean
from tacit.keys import Key
from tacit.privacy import accounting
from tacit.privacy.adaptive import AdaptiveBound
from tacit.privacy.mechanism import ProtectedRecords
from tacit.privacy.selection import PrivateQuantile, Selection
from tacit.privacy.whole import ProtectedSites

FALSE_ALARM = 1e-4
# Large, so that the event that spends it is seen in so few runs.
DELTA = 0.1
CLIP = 0.5
SITES = 4
LAWS = {"gaussian": stats.norm, "laplace": stats.laplace}

Event = Callable[[Any, bool, Key], bool]
# What the noise is added to: each value with its probability.
Mixture = dict[float, float]


def epsilon_at_least(hits: int, false_hits: int, runs: int, delta: float) -> float:
    """A lower bound on epsilon, wrong with probability at most `FALSE_ALARM`."""
    likely = stats.beta(hits, runs - hits + 1).ppf(FALSE_ALARM / 2) if hits else 0.0
    unlikely = stats.beta(false_hits + 1, runs - false_hits).isf(FALSE_ALARM / 2)
    return math.log((likely - delta) / unlikely) if likely > delta else -math.inf


@dataclass(frozen=True)
class Adversary:
    """Somebody who knows all but which of two neighbours was there.

    Args:
        mechanism: What is attacked.
        event: Runs the mechanism on the neighbour with or without, and says whether it looks like with.
        claim: The epsilon charged for one run.
        delta: At which delta.
        halve: The same mechanism with half the noise.
        runs: How often on either neighbour.
    """

    mechanism: Any
    event: Event
    claim: float
    delta: float
    halve: Callable[[Any], Any]
    runs: int = 2500

    def learns(self, mechanism: Any) -> float:
        """The epsilon that the runs of a mechanism prove."""
        hits, false_hits = (
            sum(
                self.event(mechanism, present, Key(seed, rehearsal=True) / str(present))
                for seed in range(self.runs)
            )
            for present in (True, False)
        )
        return epsilon_at_least(hits, false_hits, self.runs, self.delta)


def of_noise(
    mechanism: ProtectedRecords | ProtectedSites | AdaptiveBound,
    answer: Callable[[Any, bool, Key], float],
    present: Mixture,
    absent: Mixture,
) -> Adversary:
    """An adversary of a mechanism that adds noise: large answers look like the neighbour that is present."""
    release = price(mechanism)
    delta = DELTA if release.law == "gaussian" else 0.0
    claim = accounting.epsilon([release], delta)
    noise = "noise" if isinstance(mechanism, AdaptiveBound) else "multiplier"

    def event(attacked: Any, there: bool, key: Key) -> bool:
        limits = {getattr(mechanism, noise): far, getattr(mechanism, noise) / 2: near}
        return answer(attacked, there, key) > limits[getattr(attacked, noise)]

    far, near = (edge(release.law, release.scale / part, present, absent, claim) for part in (1, 2))

    def halve(whole: Any) -> Any:
        return replace(whole, **{noise: getattr(whole, noise) / 2})

    return Adversary(mechanism, event, claim, delta, halve, runs=1500)


def edge(law: str, scale: float, present: Mixture, absent: Mixture, claim: float) -> float:
    """Beyond which answer the privacy loss exceeds the claim: no other event tells the two better."""
    if law == "laplace":
        return max(present)

    def loss(place: float) -> float:
        one, other = (
            sum(chance * LAWS[law].pdf(place, value, scale) for value, chance in side.items())
            for side in (present, absent)
        )
        return math.log(one / other)

    return optimize.brentq(lambda place: loss(place) - claim, -10 * scale, 10 * scale)


def price(mechanism):
    return mechanism.release() if isinstance(mechanism, AdaptiveBound) else mechanism.release(1, ["oslo"])[0]


def records(**fields) -> ProtectedRecords:
    given = {"law": "gaussian", "clip": CLIP, "multiplier": 1.0, "steps": 1, "rate": 1.0, "rehearsal": True}
    return ProtectedRecords(**{**given, **fields})


def sites(**fields) -> ProtectedSites:
    given = {"law": "gaussian", "clip": CLIP, "multiplier": 1.0, "where": "server", "reach": CLIP / SITES}
    merged = {**given, "rehearsal": True, **fields}
    return ProtectedSites(**{**merged, "reach": CLIP if merged["where"] == "site" else merged["reach"]})


LONG = torch.full((1, 1), 7.0, dtype=torch.float64)


def drawn(mechanism: ProtectedRecords, key: Key) -> bool:
    return bool((key / "who").secret().uniform((1,))[0] < mechanism.rate)


def one_record(mechanism: ProtectedRecords, present: bool, key: Key) -> float:
    return float(mechanism.noisy_sum(LONG if present and drawn(mechanism, key) else LONG[:0], key))


def one_group(mechanism: ProtectedRecords, present: bool, key: Key) -> float:
    group = LONG if present else -LONG
    return float(mechanism.noisy_sum(group if drawn(mechanism, key) else group[:0], key))


def one_update(mechanism: ProtectedSites, present: bool, key: Key) -> float:
    return float(mechanism.at_site(LONG[0] if present else -LONG[0], key))


def one_site(mechanism: ProtectedSites, present: bool, key: Key) -> float:
    updates = mechanism.at_site(LONG, key / "site") if present else LONG[:0]
    return float(mechanism.at_server(Mean()(updates, sites=SITES), key / "server"))


def one_length(adaptive: AdaptiveBound, present: bool, key: Key) -> float:
    lengths = torch.full((1,), 9.0) if present else torch.zeros(0)
    # The noisy count of long contributions that the move of the bound shows.
    return adaptive.expected / adaptive.speed * math.log(adaptive.next(1.0, lengths, key))


def of_choice(rule: str) -> Adversary:
    # One record moves one score up and all the others down, or the other way round.
    scores = {
        "exponential": {True: [1.0] + [-1.0] * 19, False: [0.0] * 20},
        "permute-and-flip": {True: [0.0, 0.0], False: [-1.0, 1.0]},
    }[rule]
    selection = Selection(rehearsal=True, epsilon=1.0, rule=rule)

    def event(attacked: Selection, present: bool, key: Key) -> bool:
        return attacked.choose(scores[present], key) == 0

    claim = accounting.epsilon([selection.release()], 0.0)
    return Adversary(selection, event, claim, 0.0, lambda whole: replace(whole, epsilon=2 * whole.epsilon))


def of_quantile() -> Adversary:
    # The largest of two numbers becomes the smallest: a short gap gains a rank, and the long one loses it.
    numbers = {True: [0.0, 0.05], False: [0.05, 1.0]}
    quantile = PrivateQuantile(rehearsal=True, quantile=0.5, low=0.0, high=1.0, epsilon=1.0)

    def event(attacked: PrivateQuantile, present: bool, key: Key) -> bool:
        return attacked.choose(numbers[present], key) < 0.05

    claim = accounting.epsilon([quantile.release(relation="replace")], 0.0)
    return Adversary(quantile, event, claim, 0.0, lambda whole: replace(whole, epsilon=2 * whole.epsilon))


HALF = 0.5
ADVERSARIES = {
    "records": lambda: of_noise(records(), one_record, {CLIP: 1}, {0: 1}),
    "records, laplace": lambda: of_noise(records(law="laplace"), one_record, {CLIP: 1}, {0: 1}),
    "records, drawn": lambda: of_noise(
        records(rate=HALF, multiplier=0.7), one_record, {CLIP: HALF, 0: HALF}, {0: 1}
    ),
    "groups": lambda: of_noise(records(grouped=True, multiplier=2.0), one_group, {CLIP: 1}, {-CLIP: 1}),
    "groups, drawn": lambda: of_noise(
        records(grouped=True, sampled="group", rate=HALF),
        one_group,
        {CLIP: HALF, 0: HALF},
        {-CLIP: HALF, 0: HALF},
    ),
    "updates": lambda: of_noise(sites(where="site", multiplier=2.0), one_update, {CLIP: 1}, {-CLIP: 1}),
    "updates, laplace": lambda: of_noise(
        sites(where="site", multiplier=2.0, law="laplace"), one_update, {CLIP: 1}, {-CLIP: 1}
    ),
    "aggregate": lambda: of_noise(sites(), one_site, {CLIP / SITES: 1}, {0: 1}),
    "aggregate, laplace": lambda: of_noise(sites(law="laplace"), one_site, {CLIP / SITES: 1}, {0: 1}),
    "adaptive bound": lambda: of_noise(
        AdaptiveBound(rehearsal=True, expected=1000, noise=0.5), one_length, {0.5: 1}, {0: 1}
    ),
    "exponential": lambda: of_choice("exponential"),
    "permute-and-flip": lambda: of_choice("permute-and-flip"),
    "quantile": of_quantile,
}


@pytest.mark.parametrize("name", ADVERSARIES)
def test_no_adversary_learns_more_than_was_charged(name):
    adversary = ADVERSARIES[name]()
    assert adversary.learns(adversary.mechanism) <= adversary.claim


@pytest.mark.parametrize("name", ADVERSARIES)
def test_an_adversary_convicts_half_the_noise(name):
    adversary = ADVERSARIES[name]()
    assert adversary.learns(adversary.halve(adversary.mechanism)) > adversary.claim


def test_the_lower_bound_is_a_lower_bound():
    assert epsilon_at_least(500, 500, 1000, 0.0) < 0
    assert epsilon_at_least(0, 0, 1000, 0.0) == -math.inf
    # Half of the runs against none: the truth may be infinite, what is shown is finite.
    assert 3 < epsilon_at_least(500, 0, 1000, 0.0) < math.log(1000)
