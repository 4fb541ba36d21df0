"""Lower bounds on epsilon from an adversary's guesses: a claim below one of them is false.

A canary is a made-up unit that is put into the work, or left out, by the toss of a coin. An adversary who
sees the answers and tells heads from tails too often has disproved the claim. Three bounds use the same
evidence:

- family fit: assumes the claimed mechanism except for the size of its noise, and finds the largest noise that
  is consistent (Nasr and others 2023, for any composed release). Needs canaries that do not interact. With
  many of them it is close to the truth.
- one run: the same family, but canaries may interact (Mahloujifar and others 2025).
- Steinke: an epsilon and a delta alone, and canaries may interact (Steinke and others 2023). Assumes least.

The claim itself bounds every attack: the share of members that it misses at a share of false alarms. The
whole trade-off curve says more than one epsilon at one delta (Dong, Roth and Su 2022): an attack beyond it
has disproved the promise.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr, ndtri

from tacit.errors import require
from tacit.privacy import accounting
from tacit.privacy.accounting.release import Release, by_subject, group_events
from tacit.runtime.arrays import Array

Marks = NDArray[np.bool_]
# Sizes of noise that are tried, in units of the claimed one: between 1/16 and 16, none of them 1 itself, so
# that each bound is above the claim or below it.
LEVELS = tuple(2 ** ((step + 0.5) / 32) for step in range(-128, 128))
# Shares of the canaries that are guessed, those with the clearest answers; the others are passed over.
GUESSED = (0.02, 0.1, 0.25, 0.5)
# Candidate thresholds, as quantiles of the scores.
THRESHOLDS = np.concatenate([[0.002, 0.005], np.linspace(0.01, 0.99, 41), [0.995, 0.998]])
FEWEST = 100


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence of an adversary about canaries.

    Args:
        scores: The logarithm of the likelihood ratio of each canary's presence (canaries,), by the claim.
        present: Its presence, by independent tosses of a fair coin.
    """

    scores: Array
    present: Marks

    def __post_init__(self) -> None:
        alike = self.scores.ndim == 1 and self.scores.shape == self.present.shape
        require(
            alike, "scores", f"shape {self.scores.shape}", f"one for each of {self.present.size} canaries"
        )
        require(self.scores.size >= FEWEST // 2, "canaries", self.scores.size, f"at least {FEWEST // 2}")
        require(not np.isnan(self.scores).any(), "scores", "NaN", "numbers")


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Lower bounds on epsilon, beside the claim.

    Args:
        claim: The claimed epsilon.
        delta: The delta of the claim.
        confidence: The probability that all bounds are below the true epsilon.
        canaries: The number of canaries.
        fitted: Epsilon is at least this, by the family fit.
        noise: There is less noise than this multiple of the claimed one; infinite if nothing is known.
        one_run: Epsilon is at least this, by one run.
        steinke: Epsilon is at least this, by Steinke's bound.
    """

    claim: float
    delta: float
    confidence: float
    canaries: int
    fitted: float
    noise: float
    one_run: float
    steinke: float

    @property
    def largest(self) -> float:
        """The best of the bounds."""
        return max(self.fitted, self.one_run, self.steinke)

    @property
    def kept(self) -> bool:
        """True if no bound exceeds the claim."""
        return self.largest <= self.claim

    def as_dict(self) -> dict[str, float | int | bool | None]:
        """Plain data."""
        noise = self.noise if math.isfinite(self.noise) else None
        return {**vars(self), "noise": noise, "kept": self.kept}


def bounds(
    evidence: Evidence, releases: Sequence[Release], delta: float, *, confidence: float = 0.95
) -> Bounds:
    """Compute all lower bounds at once.

    Args:
        evidence: The adversary's evidence.
        releases: The releases charged for one subject.
        delta: At which delta epsilon is claimed.
        confidence: With which probability all of them are to hold.
    """
    require(0.5 <= confidence < 1, "confidence", confidence, "from 0.5 to below 1")
    family = Family(tuple(releases))
    # The doubt is shared: one of three that exceeds the claim is enough to refute it.
    each = 1 - (1 - confidence) / 3
    noise, lighter = fit(evidence, family, each), one_run(evidence, family, each)
    return Bounds(
        claim=accounting.epsilon(releases, delta),
        delta=delta,
        confidence=confidence,
        canaries=evidence.scores.size,
        fitted=family.epsilon(noise, delta),
        noise=noise,
        one_run=family.epsilon(lighter, delta),
        steinke=steinke(evidence, delta, each),
    )


@dataclass(frozen=True)
class Family:
    """The claimed releases of one subject, with more or less noise than was claimed."""

    releases: tuple[Release, ...]

    def with_noise_factor(self, factor: float) -> tuple[Release, ...]:
        """Return the releases with their noise multiplied by a factor."""
        return tuple(replace(release, scale=release.scale * factor) for release in self.releases)

    def min_false_negative_rate(self, factor: float, alarms: Array) -> Array:
        """Return the smallest false negative rate of an attack, at these false positive rates."""
        return min_false_negative_rate(self.with_noise_factor(factor), alarms)

    def epsilon(self, factor: float, delta: float) -> float:
        """Return the epsilon of the releases at a noise factor; 0 at an infinite one."""
        return accounting.epsilon(self.with_noise_factor(factor), delta) if math.isfinite(factor) else 0.0

    def smallest_refuted_noise(self, refuted: Callable[[float], bool]) -> float:
        """The least noise that the evidence refutes: there must be less than that."""
        low, high = -1, len(LEVELS)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if refuted(LEVELS[middle]) else (middle, high)
        return LEVELS[high] if high < len(LEVELS) else math.inf


def fit(evidence: Evidence, family: Family, confidence: float) -> float:
    """Return the smallest refuted multiple of the claimed noise, by the family fit.

    A canary with a score above a threshold is guessed present. The shares of false alarms and of misses are
    bounded from above (Clopper and Pearson 1934); noise under which no attack could do so well is refuted.
    Two thresholds share the doubt: 0, on all canaries, and the best for one half of them, on the other half.
    """
    sure = 1 - (1 - confidence) / 2
    ways = [(evidence, 0.0), (_half(evidence, 1), _chosen(_half(evidence, 0), family, sure))]
    errors = [_errors(part, np.array([limit]), sure) for part, limit in ways]
    alarms, misses = (np.concatenate(parts) for parts in zip(*errors, strict=True))
    return family.smallest_refuted_noise(
        lambda factor: bool((family.min_false_negative_rate(factor, alarms) > misses).any())
    )


def _half(evidence: Evidence, which: int) -> Evidence:
    return Evidence(evidence.scores[which::2], evidence.present[which::2])


def _chosen(evidence: Evidence, family: Family, confidence: float) -> float:
    """Choose the threshold that gives the largest lower bound."""
    limits = np.unique(np.quantile(evidence.scores, THRESHOLDS))
    alarms, misses = _errors(evidence, limits, confidence)
    near = family.smallest_refuted_noise(
        lambda factor: bool((family.min_false_negative_rate(factor, alarms) > misses).any())
    )
    margins = (
        1 - alarms - misses if math.isinf(near) else family.min_false_negative_rate(near, alarms) - misses
    )
    return float(limits[int(np.argmax(margins))])


def _errors(evidence: Evidence, limits: Array, confidence: float) -> tuple[Array, Array]:
    """Upper bounds on the shares of false alarms and of misses at each threshold, both with confidence."""
    absent, there = np.sort(evidence.scores[~evidence.present]), np.sort(evidence.scores[evidence.present])
    alarms = len(absent) - np.searchsorted(absent, limits, side="right")
    misses = np.searchsorted(there, limits, side="right")
    doubt = (1 - confidence) / 2
    return _at_most(alarms, len(absent), doubt), _at_most(misses, len(there), doubt)


def _at_most(hits: NDArray[np.int64], of: int, doubt: float) -> Array:
    """Return the upper confidence bound of a probability, from its number of hits."""
    found = np.ones(len(hits))
    some = hits < of
    found[some] = stats.beta.isf(doubt, hits[some] + 1, of - hits[some])
    return found


def one_run(evidence: Evidence, family: Family, confidence: float) -> float:
    """Bound the noise from above as a multiple of the claimed one, by one run.

    The canaries with the highest scores are guessed to be there, those with the lowest not to be.
    """
    doubt = (1 - confidence) / len(GUESSED)
    guesses = [_count_guesses(evidence, share) for share in GUESSED]

    def refutes(factor: float) -> bool:
        curve = _rejections(family, factor)
        return any(_impossible(right, made, evidence.scores.size, curve, doubt) for right, made in guesses)

    return family.smallest_refuted_noise(refutes)


def _count_guesses(evidence: Evidence, share: float) -> tuple[int, int]:
    """Count right guesses and all guesses."""
    order, half = np.argsort(evidence.scores, kind="stable"), int(evidence.scores.size * share / 2)
    right = int(evidence.present[order[-half:]].sum()) + int((~evidence.present[order[:half]]).sum())
    return right, 2 * half


@lru_cache(maxsize=512)
def _rejections(family: Family, factor: float) -> Callable[[float], float]:
    """Return a lower bound on an event's probability under one neighbor, given that under the other."""
    mu = shift(family.with_noise_factor(factor))
    if mu is not None:
        return lambda share: float(ndtr(ndtri(share) - mu))
    shares = np.concatenate([[0.0], np.geomspace(1e-8, 1.0, 1000)])
    rare = np.maximum.accumulate(
        np.concatenate([[0.0], family.min_false_negative_rate(factor, 1 - shares[1:])])
    )
    # Between two points of a convex curve, that of the rarer event is a lower bound.
    return lambda share: float(rare[np.searchsorted(shares, share, side="right") - 1])


def _impossible(right: int, made: int, canaries: int, curve: Callable[[float], float], doubt: float) -> bool:
    """Return True if this number of right guesses is too unlikely under every mechanism of a curve.

    Mahloujifar and others (2025), algorithm 3: tails of the number of right guesses constrain each other.
    """
    if right == 0:
        return False
    tail, wrong = doubt * right / canaries, doubt * (made - right) / canaries
    for count in range(right - 1, -1, -1):
        least = max(wrong, curve(min(tail, 1.0)))
        tail += count / (made - count) * (least - wrong)
        wrong = least
        if tail + wrong > made / canaries:
            return True
    return False


def steinke(evidence: Evidence, delta: float, confidence: float) -> float:
    """Return the largest epsilon under which the number of right guesses is less likely than the doubt."""
    doubt = (1 - confidence) / len(GUESSED)
    return max(
        _steinke(*_count_guesses(evidence, share), evidence.scores.size, delta, doubt) for share in GUESSED
    )


def _steinke(right: int, made: int, canaries: int, delta: float, doubt: float) -> float:
    def likely(epsilon: float) -> bool:
        coin = 1 / (1 + math.exp(-epsilon))
        chance = float(stats.binom.sf(right - 1, made, coin))
        if delta:
            masses = stats.binom.pmf(right - np.arange(1, right + 1), made, coin)
            chance += (
                2 * canaries * delta * float((np.cumsum(masses) / np.arange(1, right + 1)).max(initial=0.0))
            )
        return chance >= doubt

    low, high = 0.0, 40.0
    if likely(low):
        return 0.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (low, middle) if likely(middle) else (middle, high)
    return low


def ratios(release: Release, answers: Array) -> Array:
    """Return each answer's log-likelihood ratio for the presence of a canary, by the charged release.

    Under replacement the canary is on one side of zero and its opposite on the other; else it is there or
    not.
    """
    present, absent = _worst(release)
    return _density(release, answers, present) - _density(release, answers, absent)


def sides(release: Release) -> tuple[float, float]:
    """Return the contributions of the worst unit and of its worst neighbor to the most telling number."""
    bound = release.bound
    if bound is not None and release.sensitivity > 1.5 * bound:
        return bound, -bound
    return release.sensitivity, 0.0


Mixture = tuple[tuple[float, float], ...]


@lru_cache(maxsize=64)
def _worst(release: Release) -> tuple[Mixture, Mixture]:
    """Return the mixtures of means of an answer with the canary and without: values with probabilities."""
    there, gone = sides(release)
    rate = release.rate
    if rate == 1:
        return ((there, 1.0),), ((gone, 1.0),)
    if release.two_sided:
        return ((there, rate), (0.0, 1 - rate)), ((gone, rate), (0.0, 1 - rate))
    return ((there, rate), (gone, 1 - rate)), ((gone, 1.0),)


def _density(release: Release, answers: Array, mixture: Mixture) -> Array:
    """Return the log-density of answers, up to a constant."""
    parts = [
        math.log(chance)
        - (
            np.abs(answers - value) / release.scale
            if release.law in ("laplace", "discrete-laplace")
            else (answers - value) ** 2 / (2 * release.scale**2)
        )
        for value, chance in mixture
    ]
    return np.logaddexp.reduce(parts)


# At how many epsilons a curve that has no closed form is looked up.
POINTS = 400
# Events that are rarer than this need not be bounded well.
RAREST = 1e-9


def power(releases: Sequence[Release], alarms: Array) -> Array:
    """Return the largest true positive rate of any attack at these false positive rates.

    Guarantee:
        At least the truth, for the subject that is protected least.
    """
    shares = np.asarray(alarms, dtype=np.float64)
    groups = by_subject(releases).values()
    return 1 - np.min([min_false_negative_rate(group, shares) for group in groups], axis=0)


def min_false_negative_rate(releases: Sequence[Release], alarms: Array) -> Array:
    """Return the smallest false negative rate of any attack on one subject, at these false positive rates.

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
    """Return the shift of unsampled Gaussian releases in standard deviations; None if some are not."""
    counts = group_events(releases)
    if any(kind.law != "gaussian" or kind.rate < 1 for kind, _ in counts):
        return None
    return float(sum(times / kind.multiplier**2 for kind, times in counts)) ** 0.5


@lru_cache(maxsize=1024)
def _delta_curve(releases: tuple[Release, ...]) -> tuple[Array, Array]:
    """Tabulate epsilons and one minus the delta of each."""
    epsilons, pure = np.linspace(0.0, _largest(releases), POINTS), accounting.total_pure_epsilon(releases)
    epsilons = np.append(epsilons, pure) if math.isfinite(pure) else epsilons
    return epsilons, 1 - accounting.deltas(releases, epsilons)


def _largest(releases: Sequence[Release]) -> float:
    """Return the largest epsilon at which privacy curves are evaluated."""
    return min(accounting.epsilon(releases, RAREST), 60.0)
