"""Mechanism: the site half, the server half and the price of a promise.

A mechanism clips, adds noise and names its price in one object, so that clip, noise and sensitivity cannot be
set apart. The loop calls all hooks of every mechanism; hooks that a mechanism does not need do nothing.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from tacit.errors import require, require_count, require_positive, require_rate, require_word
from tacit.privacy.accounting.release import Release, Sampled, Unit, clipped_release
from tacit.privacy.contracts import Norm, SiteGroups, TaskSpec
from tacit.privacy.mechanisms import noise
from tacit.privacy.policy import require_bound
from tacit.runtime.arrays import Array
from tacit.runtime.jit import contiguous
from tacit.runtime.keys import Key

NoiseLaw = Literal["gaussian", "laplace"]
# The standard deviation of noise of scale 1.
DEVIATIONS: dict[NoiseLaw, float] = {"gaussian": 1.0, "laplace": math.sqrt(2)}
NORMS: dict[NoiseLaw, Norm] = {"gaussian": "l2", "laplace": "l1"}
# The smallest normal number.
TINY = float(np.finfo(np.float64).tiny)
# Sums of doubles are rounded, and one contribution more rounds them otherwise: this much more noise, as a
# share of it, covers the roundings of sums of up to `MOST_ADDED` contributions; see `noisy_sums`.
ROUNDED, MOST_ADDED = 2.0**-20, 2**23


class Contributions(Protocol):
    """One contribution per record, or group, at each of several sites; they need never be written out.

    The bits of a contribution and of its length depend on its own records and the state alone: not on the
    number or the order of others, nor on another site. Otherwise one record more would move all others.
    """

    def lengths(self, norm: Norm) -> Array:
        """The length of each (sites, records); infinite where one is broken."""
        ...

    def total(self, factors: Array | None) -> Array:
        """The sums (sites, coordinates), each contribution times its factor (sites, records).

        A contribution whose factor is 0 must vanish even if it is NaN or infinite.
        """
        ...


class Mechanism(Protocol):
    """Privacy mechanism: the way in which private data may leave a site."""

    def noisy_sums(self, contributions: Contributions, keys: Sequence[Key], step: int) -> Array:
        """The sums (sites, coordinates) as a training step may use them; one key for each site."""
        ...

    def noisy_sum(self, rows: Array, key: Key) -> Array:
        """The sum of one contribution per record (records, coordinates) at one site."""
        ...

    def noisy_rows(self, rows: Array, column: str, key: Key) -> Array:
        """The records (records, numbers) of one column as they leave the party that holds it."""
        ...

    def at_site(self, update: Array, key: Key) -> Array:
        """Clip and noise the update of a site (coordinates) before it leaves the site."""
        ...

    def at_sites(self, updates: Array, keys: Sequence[Key]) -> Array:
        """Clip and noise the updates of several sites (sites, coordinates), with one key for each."""
        ...

    def at_server(self, combined: Array, key: Key) -> Array:
        """Add noise to the aggregate (coordinates) before it leaves the server."""
        ...

    def release(self, number: int, names: Collection[str]) -> tuple[Release, ...]:
        """Price round `number` among the sites of these names; charged before the round begins."""
        ...

    def deviation(self, sites: int) -> float:
        """Return the standard deviation of the noise in each coordinate of a mean over `sites` sites."""
        ...

    def count_releases(self, names: Collection[str]) -> tuple[Release, ...]:
        """Return the releases of the sites' record counts; empty where the mechanism needs no count."""
        ...

    def noisy_count(self, size: int, key: Key) -> float:
        """Return the noisy number of records of a site, once `count_releases` is paid."""
        ...

    def denominator(self, sites: int) -> float | None:
        """Return the public denominator of a mean over the updates of a federation of `sites` sites.

        None where the number of participants may be known.
        """
        ...

    def update_bound(self) -> tuple[float, Norm] | None:
        """Bound, with its norm, of an honest update at the server, where that is public and exact."""
        ...

    def check_width(self, width: int) -> None:
        """Refuse updates of `width` coordinates that cannot be protected, before anything is charged."""
        ...

    def most_records(self, width: int) -> int | None:
        """Return the most records of a site whose sum of `width` coordinates is never cut off, if limited."""
        ...

    def at_round(self, number: int) -> "Mechanism":
        """Return the mechanism of a round, with the round's groups of sites."""
        ...

    def groups(self, names: Sequence[str]) -> SiteGroups | None:
        """Return the groups of sites whose sums alone the server sees; None where it sees every update."""
        ...

    def with_one_group(self) -> "Mechanism":
        """Return the mechanism of a query that all sites answer in one group."""
        ...

    def with_task(self, task: TaskSpec) -> "Mechanism":
        """Return this mechanism with the answers to the task's initial query, such as bought clip radii."""
        ...

    @property
    def rounds(self) -> int:
        """Number of rounds that differ in their noise; 0 if all are alike."""
        ...


@runtime_checkable
class Multiplied(Protocol):
    """A mechanism whose noise is stated as a multiple of its bound."""

    @property
    def multiplier(self) -> float:
        """Noise in units of the bound."""
        ...


@dataclass(frozen=True)
class Rows:
    """Contributions that are written out: `rows` is (sites, records, coordinates)."""

    rows: Array

    def lengths(self, norm: Norm) -> Array:
        """The length of each row."""
        from tacit.privacy.mechanisms.clip import lengths

        return lengths(self.rows, norm=norm)

    def total(self, factors: Array | None) -> Array:
        """The sums of the rows, each times its factor."""
        from tacit.privacy.mechanisms.clip import add_rows

        rows = contiguous(self.rows)
        if factors is None:
            return rows.sum(axis=1)
        sums = np.empty((rows.shape[0], rows.shape[2]))
        add_rows(rows, contiguous(factors), sums)
        return sums


@dataclass(frozen=True, kw_only=True)
class NoPrivacy:
    """The null mechanism: nothing is clipped, noised or charged."""

    def noisy_sums(self, contributions: Contributions, keys: Sequence[Key], step: int) -> Array:
        """Return the sums without noise."""
        return contributions.total(None)

    def noisy_sum(self, rows: Array, key: Key) -> Array:
        """Return the sum without noise."""
        return rows.sum(axis=0)

    def noisy_rows(self, rows: Array, column: str, key: Key) -> Array:
        """The rows as they are."""
        return rows

    def at_site(self, update: Array, key: Key) -> Array:
        """Return the update unchanged."""
        return update

    def at_sites(self, updates: Array, keys: Sequence[Key]) -> Array:
        """The updates, one after the other."""
        return np.stack([self.at_site(update, key) for update, key in zip(updates, keys, strict=True)])

    def at_server(self, combined: Array, key: Key) -> Array:
        """Return the aggregate unchanged."""
        return combined

    def release(self, number: int, names: Collection[str]) -> tuple[Release, ...]:
        """Return no releases; the statement lists all updates as unprotected."""
        return ()

    def count_releases(self, names: Collection[str]) -> tuple[Release, ...]:
        """Return nothing: record counts are not released."""
        return ()

    def noisy_count(self, size: int, key: Key) -> float:
        """Return the exact count."""
        return float(size)

    def denominator(self, sites: int) -> float | None:
        """Return None: divide by the number of participants."""
        return None

    def deviation(self, sites: int) -> float:
        """Return 0: there is no noise."""
        return 0.0

    def update_bound(self) -> tuple[float, Norm] | None:
        """Return None: updates have no bound."""
        return None

    def check_width(self, width: int) -> None:
        """Accept any width."""

    def most_records(self, width: int) -> int | None:
        """Return None: sums hold any number of records."""
        return None

    def at_round(self, number: int) -> "Mechanism":
        """Return this mechanism for every round."""
        return self

    def groups(self, names: Sequence[str]) -> SiteGroups | None:
        """Return None: the server sees every update."""
        return None

    def with_one_group(self) -> "Mechanism":
        """Return this mechanism."""
        return self

    def with_task(self, task: TaskSpec) -> "Mechanism":
        """Return this mechanism."""
        return self

    @property
    def rounds(self) -> int:
        """Return 0: rounds are alike."""
        return 0


@dataclass(frozen=True, kw_only=True)
class ClippedOnly(NoPrivacy):
    """Clipping without noise: no protection, to compare a promise with.

    Args:
        clip: The bound of one contribution.
        norm: Norm of the bound.
        unit: Contribution that is clipped: that of a `record` (or risk group), or the update of a `site`.
    """

    clip: float
    norm: Norm
    unit: Unit

    def noisy_sums(self, contributions: Contributions, keys: Sequence[Key], step: int) -> Array:
        """Return the sums of clipped contributions, without noise."""
        if self.unit == "site":
            return contributions.total(None)
        return contributions.total(clip_factors(contributions.lengths(self.norm), self.clip))

    def noisy_sum(self, rows: Array, key: Key) -> Array:
        """Return the sum of clipped rows, without noise."""
        return self.noisy_sums(Rows(rows[None]), [key], 0)[0]

    def at_site(self, update: Array, key: Key) -> Array:
        """Return the update, clipped where whole updates are."""
        from tacit.privacy.mechanisms.clip import clip_rows

        return update if self.unit == "record" else clip_rows(update, self.clip, norm=self.norm)

    def update_bound(self) -> tuple[float, Norm] | None:
        """Return the bound of updates, where these are clipped."""
        return None if self.unit == "record" else (self.clip, self.norm)


@dataclass(frozen=True, kw_only=True)
class CountNoise:
    """Noise on the number of records at each site; one record moves the count by 1."""

    law: NoiseLaw
    scale: float


@dataclass(frozen=True, kw_only=True)
class RecordLevel(NoPrivacy):
    """Each training step adds noise to a sum of clipped contributions (DP-SGD, Abadi and others 2016).

    Args:
        law: The noise.
        clip: The bound of one contribution.
        multiplier: Noise in units of `clip`.
        steps: Noisy sums per round.
        rate: Probability with which each record, or group, joins a step; public, and the draw is secret.
        grouped: Whether a row is the sum over a risk group, which one record can turn into its opposite.
        sampled: Unit of the sampling: records, or fixed groups.
        rehearsal: Whether the noise repeats.
        counts: Noise on the number of records, if that has to be bought.
    """

    law: NoiseLaw
    clip: float
    multiplier: float
    steps: int
    rate: float
    grouped: bool = False
    sampled: Sampled = "unit"
    rehearsal: bool = False
    counts: CountNoise | None = None

    def __post_init__(self) -> None:
        require(self.grouped or self.sampled == "unit", "sampled", self.sampled, '"unit" without risk groups')
        require_price(self.clip, self.multiplier, self.rate)
        require_count("steps", self.steps)

    def noisy_sums(self, contributions: Contributions, keys: Sequence[Key], step: int) -> Array:
        """The sums of clipped contributions plus noise; with no contribution at all, noise alone.

        Guarantee:
            One contribution more or less moves its site's sum by at most `clip (1 + ROUNDED)` before noise
            of `multiplier * clip (1 + ROUNDED)`: the ratio that is charged. The bits of a contribution
            depend on its own records and the state alone (`Contributions`), so that all others stay as they
            are. What is left are the roundings of the sum: products are added in blocks of 256, at most 258
            roundings of 2^-53 each, blocks with compensation; two sums of n contributions then differ from
            their exact values by at most `2 * 258 * 2^-53 * n * clip`, which is below `ROUNDED * clip` for n
            up to `MOST_ADDED`. Results are rounded to a public grid afterwards (`noise`).
        """
        totals = contributions.total(clip_factors(contributions.lengths(NORMS[self.law]), self.clip))
        scale = self.multiplier * self.clip * (1 + ROUNDED)
        return add_noise(totals, self.law, scale, [key / step for key in keys], self.rehearsal)

    def noisy_sum(self, rows: Array, key: Key) -> Array:
        """The sum of clipped rows plus noise; with no rows at all, noise alone."""
        return self.noisy_sums(Rows(rows[None]), [key], 0)[0]

    def release(self, number: int, names: Collection[str]) -> tuple[Release, ...]:
        """Return one release per participating site, about its own records."""
        return tuple(
            Release(
                law=self.law,
                scale=self.multiplier * self.clip,
                sensitivity=2 * self.clip if self.grouped else self.clip,
                bound=self.clip,
                rate=self.rate,
                sampled=self.sampled,
                count=self.steps,
                subject=f"records@{name}",
                party=name,
                purpose=f"round {number}",
                rehearsal=self.rehearsal,
            )
            for name in names
        )

    def deviation(self, sites: int) -> float:
        """Return the standard deviation of the noise in one noisy sum, averaged over `sites` sites."""
        return DEVIATIONS[self.law] * self.multiplier * self.clip / math.sqrt(sites)

    def count_releases(self, names: Collection[str]) -> tuple[Release, ...]:
        """Return one release per site, if the number of records is bought."""
        if self.counts is None:
            return ()
        return tuple(
            Release(
                law=self.counts.law,
                scale=self.counts.scale,
                sensitivity=1.0,
                subject=f"records@{name}",
                party=name,
                purpose="number of records",
                rehearsal=self.rehearsal,
            )
            for name in names
        )

    def noisy_count(self, size: int, key: Key) -> float:
        """Return the number of records with the paid noise."""
        assert self.counts is not None, "there is no query"
        exact = np.array([float(size)])
        return float(add_noise(exact, self.counts.law, self.counts.scale, key, self.rehearsal)[0])


@dataclass(frozen=True, kw_only=True)
class SumRounds(NoPrivacy):
    """Rounds in which every record contributes to one noisy sum, with a share of one Gaussian noise each.

    Args:
        bound: The L2 bound of one record's contribution.
        multiplier: Noise of all rounds as if they were one release, in units of the bound.
        shares: The share of each round; later ones are as the last.
        rehearsal: Whether the noise repeats.

    Guarantee:
        A release with share f has multiplier `multiplier / sqrt(f)`. Gaussian releases compose exactly, also
        where later ones are chosen by the results of earlier ones: shares that add up to 1 cost what one
        release with this multiplier costs.
    """

    bound: float
    multiplier: float
    shares: tuple[float, ...]
    rehearsal: bool = False

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return len(self.shares)

    def multiplier_of(self, number: int) -> float:
        """Return the noise of a round, in units of the bound."""
        return self.multiplier / math.sqrt(self.shares[min(number, len(self.shares)) - 1])

    def at_round(self, number: int) -> "Mechanism":
        """The mechanism of a round."""
        return RecordLevel(
            law="gaussian",
            clip=self.bound,
            multiplier=self.multiplier_of(number),
            steps=1,
            rate=1.0,
            rehearsal=self.rehearsal,
        )

    def release(self, number: int, names: Collection[str]) -> tuple[Release, ...]:
        """Return one release per site, about its own records."""
        return self.at_round(number).release(number, names)

    def deviation(self, sites: int) -> float:
        """Return the standard deviation of the noise in a mean of sums, in the last round."""
        return self.at_round(self.rounds).deviation(sites)


@dataclass(frozen=True, kw_only=True)
class BoundedSum:
    """Noisy sum of bounded numbers at each site, one for each record, such as monitored losses.

    Args:
        law: The noise.
        bound: The largest number that counts; a record moves a sum by at most that.
        multiplier: Noise in units of the bound.
        purpose: Description of the numbers, in words.
        rehearsal: Whether the noise repeats.
    """

    law: NoiseLaw
    bound: float
    multiplier: float
    purpose: str
    rehearsal: bool = False

    def noisy_total(self, values: Array, key: Key) -> float:
        """Return the sum of numbers (records,) between 0 and the bound, plus noise; NaN counts as the bound.

        Guarantee:
            One record more or less moves the sum by at most `bound` before noise of `multiplier * bound (1 +
            ROUNDED)`, which covers the rounding of the sum as in `RecordLevel.noisy_sums`.
        """
        total = np.clip(np.nan_to_num(values, nan=self.bound), 0.0, self.bound).sum(keepdims=True)
        scale = self.multiplier * self.bound * (1 + ROUNDED)
        return float(add_noise(total, self.law, scale, key, self.rehearsal)[0])

    def release(self, number: int, names: Collection[str]) -> tuple[Release, ...]:
        """Return one release per site, about its own records."""
        return tuple(
            clipped_release(
                self.multiplier,
                clip=self.bound,
                law=self.law,
                subject=f"records@{name}",
                party=name,
                purpose=f"{self.purpose} of round {number}",
                rehearsal=self.rehearsal,
            )
            for name in names
        )


def require_price(clip: float, multiplier: float, rate: float) -> None:
    """Refuse parameters without a proven price, before they are used."""
    require_bound("clip", clip)
    require_positive("multiplier", multiplier)
    require_rate("rate", rate)


def clip_by_law(rows: Array, law: NoiseLaw, bound: float) -> Array:
    """Rows no longer than the bound, in the norm of the law."""
    from tacit.privacy.mechanisms.clip import clip_rows

    return clip_rows(rows, bound, norm=NORMS[law])


def clip_factors(lengths: Array, bound: float) -> Array:
    """Return the clipping factors of contributions with these lengths: scaled lengths are at most `bound`.

    For contributions that are never written out; their lengths come in double precision, good to nine digits,
    or to 1e-100, which no bound is as short as.

    Guarantee:
        Length times factor is at most `bound`; short contributions have factor 1, broken ones 0.
    """
    require_bound("bound", bound)
    # Lengths that are sums over products are rounded more than once: long ones shrink by a little more.
    shrunk = np.asarray(bound * (1 - 1e-9) / np.maximum(lengths, bound), dtype=np.float64)
    factors = np.where(lengths <= bound, 1.0, shrunk)
    # A factor that is not a normal number could have been rounded up to a multiple of itself; NaN is none.
    normal = factors >= TINY
    return factors if np.count_nonzero(normal) == normal.size else np.where(normal, factors, 0.0)


def add_noise(values: Array, law: NoiseLaw, scale: float, key: Key | Sequence[Key], rehearsal: bool) -> Array:
    """The values with noise, from one key or one for each row; refused where it repeats unsaid."""
    keys = [key] if isinstance(key, Key) else key
    for each in keys:
        noise.require_rehearsal(each, rehearsal)
    return (noise.gaussian if law == "gaussian" else noise.laplace)(values, scale, *keys)


def noisy_answer(values: Array, release: Release, key: Key) -> Array:
    """Clip one answer and add the noise that its release is priced for; charge the release first.

    Args:
        values: The answer.
        release: The charged release. Without a bound, the caller has to ensure its sensitivity.
        key: Key of the noise.

    Guarantee:
        Before noise the answer is no longer than `release.bound`, in the norm of the law; the noise has the
        law and the scale of the release, and repeats only if the release says so.
    """
    require_word("law", release.law, NORMS)
    law: NoiseLaw = "gaussian" if release.law == "gaussian" else "laplace"
    if release.bound is not None:
        values = clip_by_law(values, law, release.bound)
    return add_noise(values, law, release.scale, key, release.rehearsal)
