"""Mechanisms with canaries: the same clipping, noise and price, with made-up units added to the real ones.

A canary has a coordinate, a row or a small world of its own that no model uses, so canaries touch neither the
training nor each other. Each is there or not by the toss of a coin. What a mechanism makes of it is kept as
the logarithm of a likelihood ratio, added up over everything that leaves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.aggregation.base import Aggregator
from tacit.audits.lower_bounds import Evidence, ratios, sides
from tacit.learning import batches
from tacit.learning.query import Updates
from tacit.privacy.accounting.release import Release
from tacit.privacy.mechanisms.base import (
    Contributions,
    Mechanism,
    NoPrivacy,
    Norm,
    RecordLevel,
    SumRounds,
)
from tacit.privacy.mechanisms.counts import NoisyCounts, SecureCounts
from tacit.privacy.mechanisms.secure_gram import SecureGram, shares_of, triangle_index
from tacit.privacy.mechanisms.secure_records import SecureRecordSum, SecureSumRounds
from tacit.privacy.mechanisms.secure_sum import SecureSum
from tacit.privacy.mechanisms.site_level import SiteLevel
from tacit.privacy.mechanisms.vertical import (
    EXCHANGED,
    ClippedSecureGram,
    GramMatrix,
    LocalColumns,
    NoisyHistograms,
)
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort
from tacit.sites.sampling import Poisson
from tacit.sites.table import Table

# A canary's length before clipping, as a multiple of the bound: clipping is audited as well.
LONG = 3.0


class Canaries:
    """Canaries: made-up units, divided evenly among sites, and the evidence about them.

    Args:
        count: The least number of canaries.
        names: The sites.
        key: The key of their coins.
    """

    def __init__(self, count: int, names: Sequence[str], key: Key) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        shape = (len(names), -(-count // len(names)))
        self.present = key.generator().random(shape) < 0.5
        self.scores = np.zeros(shape)
        # Answers about each site; sums and sums of squares of the noise in each place.
        self._heard: dict[int | None, set[tuple[object, ...]]] = {}
        self._sums, self._squares = np.zeros(shape[1]), np.zeros(shape[1])

    @property
    def each(self) -> int:
        """Number of canaries at each site."""
        return self.present.shape[1]

    def places(self, keys: Sequence[Key]) -> list[int]:
        """Return the indices of the sites that keys belong to; a path's last part but one is the name."""
        return [self._places[str(key.path[-2])] for key in keys]

    def values(self, release: Release, places: Sequence[int]) -> Array:
        """Return the canaries' contributions at these sites before clipping (sites, canaries)."""
        there, gone = sides(release)
        return LONG * np.where(self.present[list(places)], there, gone)

    def observe(
        self,
        release: Release,
        answers: Array,
        exact: Array,
        occasions: Mapping[int | None, tuple[object, ...]],
        places: Sequence[int] | None = None,
    ) -> None:
        """Add the likelihood ratios of some canaries, from the answers about them.

        Args:
            release: The charged release.
            answers: The noisy answers, on the scale of `sides`.
            exact: The same before noise.
            occasions: A name of this answer among those about the records of each of these sites, or about
                all sites (None).
            places: The sites; by default all.
        """
        here = list(range(len(self.scores))) if places is None else list(places)
        seen = answers.reshape(len(here), self.each)
        self.scores[here] += ratios(release, seen)
        noise = (seen - exact.reshape(seen.shape)) / release.scale
        self._sums += noise.sum(axis=0)
        self._squares += (noise**2).sum(axis=0)
        for subject, occasion in occasions.items():
            self._heard.setdefault(subject, set()).add(occasion)

    @property
    def times(self) -> int:
        """Largest number of observed answers about one subject."""
        return max((len(occasions) for occasions in self._heard.values()), default=0)

    @property
    def echo(self) -> float:
        """Correlation of noises in standard deviations: far above 0 if some noise was used twice."""
        pairs = self._sums**2 - self._squares
        spread = float(pairs.std())
        return float(pairs.mean()) / spread * len(pairs) ** 0.5 if spread else 0.0

    def evidence(self) -> Evidence:
        """Evidence of all observed answers."""
        return Evidence(self.scores.ravel(), self.present.ravel())


class EmptyContributions:
    """Contributions of no records to no coordinates, at one site."""

    def lengths(self, norm: Norm) -> Array:
        """None."""
        return np.zeros((1, 0))

    def total(self, factors: Array | None) -> Array:
        """None."""
        return np.zeros((1, 0))


@dataclass(frozen=True)
class CanariedContributions:
    """Contributions, and those of canaries: each has a coordinate of its own behind all others.

    Args:
        inner: The contributions of records.
        own: The contribution of each canary to its coordinate (sites, canaries).
    """

    inner: Contributions
    own: Array

    def lengths(self, norm: Norm) -> Array:
        """The length of each; in a single coordinate all norms agree."""
        return np.concatenate([self.inner.lengths(norm), np.abs(self.own)], axis=1)

    def total(self, factors: Array | None) -> Array:
        """The sums."""
        records = None if factors is None else factors[:, : -self.own.shape[1]]
        canaries = 1.0 if factors is None else factors[:, -self.own.shape[1] :]
        return np.concatenate([self.inner.total(records), canaries * self.own], axis=1)


@dataclass(frozen=True, kw_only=True)
class CanariedRecordLevel(RecordLevel):
    """Training steps, each with canaries in dummy coordinates; drawn as records are."""

    canaries: Canaries

    def noisy_sums(self, contributions: Contributions, keys: Sequence[Key], step: int) -> Array:
        """The noisy sums of the records; those of the canaries are kept."""
        places, (price,) = self.canaries.places(keys), self.release(0, ["canaries"])
        drawn = np.stack([_draw(self.canaries.each, self.rate, key / "canaries" / step) for key in keys])
        gone = LONG * sides(price)[1] if not price.two_sided else 0.0
        own = np.where(drawn, self.canaries.values(price, places), gone)
        sums = super().noisy_sums(CanariedContributions(contributions, own), keys, step)
        occasions: dict[int | None, tuple[object, ...]] = {
            place: (*key.path, step) for place, key in zip(places, keys, strict=True)
        }
        self.canaries.observe(price, sums[:, -self.canaries.each :], own / LONG, occasions, places)
        return sums[:, : -self.canaries.each]


@dataclass(frozen=True, kw_only=True)
class CanariedSumRounds(SumRounds):
    """Rounds of noisy sums, each with canaries."""

    canaries: Canaries

    def at_round(self, number: int) -> CanariedRecordLevel:
        """The mechanism of a round."""
        return CanariedRecordLevel(**vars(super().at_round(number)), canaries=self.canaries)


def _draw(count: int, rate: float, key: Key) -> NDArray[np.bool_]:
    """Draw a Poisson sample of `count` canaries, by the function that samples records."""
    (batch,) = batches.poisson(dummy_cohort(count), 1, rate, [key], coupled=False)
    found = np.zeros(count, dtype=np.bool_)
    found[batch.rows[batch.present]] = True
    return found


def dummy_cohort(count: int) -> Cohort:
    """Return a cohort of one site with `count` records without columns."""
    table = Table(np.zeros((count, 0)), columns=(), targets={})
    return Cohort(("crowd",), table, np.zeros(1, dtype=np.int64), np.array([count], dtype=np.int64))


@dataclass(frozen=True, kw_only=True)
class CanariedSiteLevel(SiteLevel):
    """Updates of sites, and of canaries that are sites with an update of one number.

    Where the server adds the noise, each canary has a federation of its own, of as many sites as there are;
    the others of them send numbers from one end of what is allowed to the other.
    """

    canaries: Canaries
    aggregation: Aggregator
    sites: int

    def at_site(self, update: Array, key: Key) -> Array:
        """The update as it leaves; so do those of the canaries that are with this site."""
        if self.where == "site":
            places, (price,) = self.canaries.places([key]), self.release(0, ())
            rows = self.canaries.values(price, places).reshape(-1, 1)
            answers = super().at_site(rows, key / "canaries")
            self.canaries.observe(price, answers, rows / LONG, {None: key.path[:-2]}, places)
        return super().at_site(update, key)

    # Canaries leave with one site after the other.
    at_sites = NoPrivacy.at_sites

    def at_server(self, combined: Array, key: Key) -> Array:
        """The aggregate as it leaves; so do those of the canaries' federations."""
        if self.where == "server":
            (price,) = self.release(0, ())
            with_it, without = self._aggregates(key / "canaries")
            names = [str(number) for number in range(self.canaries.present.size)]
            come = set(Poisson()(names, self.rate, key / "canaries" / "who"))
            joined = np.array([name in come for name in names]) & self.canaries.present.ravel()
            exact = np.where(joined, with_it - without, 0.0)
            answers = super().at_server(exact, key / "canaries")
            self.canaries.observe(price, answers, exact, {None: key.path})
        return super().at_server(combined, key)

    def _aggregates(self, key: Key) -> tuple[float, float]:
        """Return the aggregate of a federation of single numbers with one update more, and without it."""
        others = np.linspace(-LONG * self.clip, LONG * self.clip, max(self.sites - 1, 0) | 1)[
            : self.sites - 1
        ]
        found: list[float] = []
        for own in (LONG * self.clip, 0.0):
            rows = np.append(others, own)[:, None]
            sent = super().at_site(rows, key)
            names = tuple(str(number) for number in range(len(rows)))
            found.append(self.aggregation(Updates(names, sent), sites=self.denominator(self.sites)).item())
        return found[0], found[1]


@dataclass(frozen=True, kw_only=True)
class CanariedSecureSum(SecureSum):
    """Secure aggregation with canaries: the sums of the sites, and of small federations of canaries.

    The adversary knows the shares of noise of those it works with; what it sees beyond them has the least
    number of shares that the price counts on.
    """

    canaries: Canaries

    def at_site(self, update: Array, key: Key) -> Array:
        """The update with its share of noise; the canaries with this site are added up in their own sums."""
        (place,), (price,) = self.canaries.places([key]), self.release(0, ())
        values = self.canaries.values(price, [place])[0] * (self.clip / price.sensitivity)
        # In each sum, every site that counts is a canary, with a coordinate of its own.
        sums = [
            self._sum(values[first : first + self.shares], key / "canaries" / first)
            for first in range(0, len(values), self.shares)
        ]
        unit = price.sensitivity / self.clip
        exact, answers = values / LONG * unit, np.concatenate(sums) * unit
        self.canaries.observe(price, answers, exact, {None: key.path[:-2]}, [place])
        return super().at_site(update, key)

    def _sum(self, values: Array, key: Key) -> Array:
        updates: Array = np.diag(values)
        silent = np.zeros((self.shares - len(values), len(values)))
        rows = [
            self.on_ring(super(CanariedSecureSum, self).at_site(row, key / site))
            for site, row in enumerate([*updates, *silent])
        ]
        return self.mean_of(np.add.reduce(np.stack(rows), axis=0, dtype=np.uint32), 1)


@dataclass(frozen=True, kw_only=True)
class CanariedSecureRecordSum(SecureRecordSum):
    """Sums over records that are taken in secret, each with canaries in coordinates of their own.

    The adversary takes the canaries' coordinates of one site out of the sum; the noise in them has the least
    number of shares that the price counts on, its own site's among them.
    """

    canaries: Canaries

    def noisy_sums(self, contributions: Contributions, keys: Sequence[Key], step: int) -> Array:
        """The noisy sums of the records; those of the canaries are kept."""
        places, (price,) = self.canaries.places(keys), self.release(0, ["canaries"])
        own, unit = self.canaries.values(price, places) * (self.clip / price.sensitivity), price.sensitivity
        own_keys = [key / "canaries" for key in keys]
        answers = sum_over_honest(super().noisy_sums, self, own, own_keys, step) * (unit / self.clip)
        occasions: dict[int | None, tuple[object, ...]] = {
            place: (*key.path, step) for place, key in zip(places, keys, strict=True)
        }
        self.canaries.observe(price, answers, own / LONG * (unit / self.clip), occasions, places)
        return super().noisy_sums(contributions, keys, step)


@dataclass(frozen=True, kw_only=True)
class CanariedSecureSumRounds(SecureSumRounds):
    """Rounds of secure sums over records, each with canaries."""

    canaries: Canaries

    def at_round(self, number: int) -> SecureRecordSum:
        """The mechanism of a round."""
        plain = SecureSumRounds.at_round(self, number)
        return CanariedSecureRecordSum(**vars(plain), canaries=self.canaries)


@dataclass(frozen=True, kw_only=True)
class CanariedNoisyCounts(NoisyCounts):
    """Noisy counts, each with canaries in cells of their own.

    Longer canaries would not be clipped but left out, so these move as many cells as a record may.
    """

    canaries: Canaries

    def noisy_sums(self, contributions: Contributions, keys: Sequence[Key], step: int) -> Array:
        """The noisy counts of the records; those of the canaries are kept."""
        places, (price,) = self.canaries.places(keys), self.release(0, ["canaries"])
        own = self.canaries.values(price, places) / LONG
        counts = super().noisy_sums(CanariedContributions(contributions, own), keys, step)
        occasions: dict[int | None, tuple[object, ...]] = {
            place: (*key.path, step) for place, key in zip(places, keys, strict=True)
        }
        self.canaries.observe(price, counts[:, -self.canaries.each :], own, occasions, places)
        return counts[:, : -self.canaries.each]


@dataclass(frozen=True, kw_only=True)
class CanariedSecureCounts(SecureCounts):
    """Secure sums of counts, with canaries as in `CanariedSecureRecordSum`."""

    canaries: Canaries

    def noisy_sums(self, contributions: Contributions, keys: Sequence[Key], step: int) -> Array:
        """The noisy counts of the records; those of the canaries are kept."""
        places, (price,) = self.canaries.places(keys), self.release(0, ["canaries"])
        own = self.canaries.values(price, places) / LONG
        own_keys = [key / "canaries" for key in keys]
        answers = sum_over_honest(super().noisy_sums, self, own, own_keys, step)
        occasions: dict[int | None, tuple[object, ...]] = {
            place: (*key.path, step) for place, key in zip(places, keys, strict=True)
        }
        self.canaries.observe(price, answers, own, occasions, places)
        return super().noisy_sums(contributions, keys, step)


def sum_over_honest(
    ask: Callable[[Contributions, Sequence[Key], int], Array],
    mechanism: SecureSum,
    own: Array,
    keys: Sequence[Key],
    step: int,
) -> Array:
    """The sums over as many sites as count, of which the first holds the canaries (sites, canaries)."""
    nobody, found = EmptyContributions(), list[Array]()
    for values, key in zip(own, keys, strict=True):
        sums = [ask(CanariedContributions(nobody, values[None]), [key / 0], step)[0]]
        silent = CanariedContributions(nobody, np.zeros((1, values.size)))
        sums += [ask(silent, [key / site], step)[0] for site in range(1, mechanism.shares)]
        steps = [mechanism.on_ring(mechanism.at_site(each, key)) for each in sums]
        found.append(mechanism.mean_of(np.add.reduce(np.stack(steps), axis=0, dtype=np.uint32), 1))
    return np.stack(found)


@dataclass(frozen=True, kw_only=True)
class CanariedLocalColumns(LocalColumns):
    """Columns as they leave their parties, and canaries that are further records in every column."""

    canaries: Canaries

    def noisy_rows(self, rows: Array, column: str, key: Key) -> Array:
        """The noisy records; those of the canaries are kept."""
        if column not in self.radii:
            return super().noisy_rows(rows, column, key)
        price = next(part for part in self.release(0, set(self.holders.values())) if _is_of(part, column))
        everywhere = range(len(self.canaries.present))
        own = np.zeros((self.canaries.present.size, rows.shape[1]))
        own[:, 0] = self.canaries.values(price, everywhere).ravel()
        noisy = super().noisy_rows(np.concatenate([rows, own]), column, key)
        self.canaries.observe(price, noisy[len(rows) :, 0], own[:, 0] / LONG, {None: key.path})
        return noisy[: len(rows)]


def _is_of(release: Release, column: str) -> bool:
    return release.purpose == f"column {column}"


@dataclass(frozen=True, kw_only=True)
class CanariedGramMatrix(GramMatrix):
    """Gram matrix with canaries: products of columns and of canaries, each replaced by its farthest row."""

    canaries: Canaries

    def at_server(self, combined: Array, key: Key) -> Array:
        """The noisy products; those of the canaries are kept."""
        (price,) = self.release(0, ())
        rows = LONG * _directions(len(self.radii))
        pair = _join(
            [
                super(CanariedGramMatrix, self).noisy_rows(rows * self.radii[name], name, key)
                for name in self.radii
            ]
        )
        exact = [_triangle(row) for row in pair]
        noisy = [
            super(CanariedGramMatrix, self).at_server(exact[0 if there else 1], key / "canaries" / number)
            for number, there in enumerate(self.canaries.present.ravel())
        ]
        exact = np.where(self.canaries.present, price.sensitivity, 0.0)
        answers = _along(np.array(noisy), *pair) * price.sensitivity
        self.canaries.observe(price, answers, exact, {None: key.path})
        return super().at_server(combined, key)


@dataclass(frozen=True, kw_only=True)
class CanariedSecureGram(ClippedSecureGram):
    """Secure products with canaries: those of the parties, and of small federations of them on one canary.

    The adversary knows the noise of the parties it works with, as many as the price allows for.
    """

    canaries: Canaries

    def at_site(self, update: Array, key: Key) -> Array:
        """The rows and the noise of a party; the canaries with it are multiplied by themselves."""
        (here,), (price,) = self.canaries.places([key]), self.release(0, ())
        columns = self.blocks - 1
        pair = _join([_directions(columns)] * columns)
        small = SecureGram(
            multiplier=self.multiplier, widths=tuple((2,) * len(blocks) for blocks in self.widths), records=1,
            colluders=self.colluders, rehearsal=self.rehearsal,
        )  # fmt: skip
        noisy = [
            _multiply(small, pair[0 if there else 1][1:], key / "canaries" / number)
            for number, there in enumerate(self.canaries.present[here])
        ]
        exact = np.where(self.canaries.present[here], price.sensitivity, 0.0)
        answers = _along(np.array(noisy), *pair) * price.sensitivity
        self.canaries.observe(price, answers, exact, {None: key.path[:-2]}, [here])
        return super().at_site(update, key)


def _multiply(small: SecureGram, row: Array, key: Key) -> Array:
    """The products of one record's columns, as a server would decode them, with the noise that counts."""
    ends = np.cumsum(small.columns)
    counted = shares_of(len(small.widths), small.colluders)
    rows, total = list[Array](), np.zeros(small.entries, dtype=np.uint32)
    for party, (columns, end) in enumerate(zip(small.columns, ends, strict=True)):
        padded = np.zeros(max(small.columns))
        padded[:columns] = row[end - columns : end]
        # A block may be too long as a whole; a number by itself would be cut, which turns a record round.
        blocks = padded[:columns].reshape(-1, 2)
        blocks /= np.abs(blocks).max(axis=1, keepdims=True)
        sent = small.at_site(padded, key / party)
        # Those beyond work with the adversary, who takes their noise away.
        sent[len(padded) :] *= party < counted
        steps, own = small.secure_input(party, sent)
        rows.append(steps[0].astype(np.float64))
        total += own
    whole = np.concatenate(rows)
    party_of = np.repeat(np.arange(len(rows)), small.columns)
    above, beside = np.triu_indices(len(whole), 1)
    across = party_of[above] != party_of[beside]
    above, beside = above[across], beside[across]
    products = (whole[above] * whole[beside]).astype(np.int64)
    total[triangle_index(above + 1, beside + 1, small.order)] += products.astype(np.uint32)
    return small.decode(total)


def _directions(columns: int) -> Array:
    """Return two directions (2, 2): with one of them in each column, two records are far apart."""
    angles = np.pi / 4 + np.array([0.0, np.arccos(-1 / columns)])
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _join(parts: Sequence[Array]) -> tuple[Array, Array]:
    """Concatenate the columns of two records behind a constant 1 (2, numbers)."""
    first, second = np.concatenate([np.ones((2, 1)), *parts], axis=1)
    return first, second


def _triangle(row: Array) -> Array:
    """The products of a record with itself: the upper triangle, row by row."""
    return np.outer(row, row)[np.triu_indices(len(row))]


def _along(noisy: Array, first: Array, second: Array) -> Array:
    """Project noisy products (canaries, numbers) on the line from the second record's to the first's."""
    apart = _triangle(first) - _triangle(second)
    rows, columns = np.triu_indices(len(first))
    # Beside the diagonal each number stands twice.
    weights = np.where(rows == columns, 1.0, 2.0) * apart
    return (noisy - _triangle(second)) @ weights / float(weights @ apart)


@dataclass(frozen=True, kw_only=True)
class CanariedCounts(NoisyHistograms):
    """Histograms of columns, and those of canaries alone, each of which is counted in one of two places."""

    canaries: Canaries

    def noisy_sum(self, rows: Array, key: Key) -> Array:
        """The noisy counts; those of the canaries are kept."""
        price = self.release(0, set(self.holders.values()))[0]
        marks = np.eye(2) * LONG
        answers: list[float] = []
        for number, there in enumerate(self.canaries.present.ravel()):
            counts = super().noisy_sum(marks[[0 if there else 1]], key / "canaries" / number)
            answers.append(float(counts[0] - counts[1]) / EXCHANGED)
        there, gone = sides(price)
        exact = np.where(self.canaries.present, there, gone)
        self.canaries.observe(price, np.array(answers), exact, {None: key.path})
        return super().noisy_sum(rows, key)


CANARIED: dict[type, type] = {
    RecordLevel: CanariedRecordLevel,
    NoisyCounts: CanariedNoisyCounts,
    SecureCounts: CanariedSecureCounts,
    SumRounds: CanariedSumRounds,
    SecureRecordSum: CanariedSecureRecordSum,
    SecureSumRounds: CanariedSecureSumRounds,
    SiteLevel: CanariedSiteLevel,
    SecureSum: CanariedSecureSum,
    LocalColumns: CanariedLocalColumns,
    GramMatrix: CanariedGramMatrix,
    ClippedSecureGram: CanariedSecureGram,
    NoisyHistograms: CanariedCounts,
}


def with_canaries(
    mechanism: Mechanism, canaries: Canaries, *, aggregation: Aggregator | None = None, sites: int = 1
) -> Mechanism:
    """The same mechanism with canaries in it."""
    kind = CANARIED[type(mechanism)]
    own: dict[str, Any] = {"canaries": canaries, "aggregation": aggregation, "sites": sites}
    known = {entry.name for entry in fields(kind)}
    given = {**own, **vars(mechanism)}
    return kind(**{name: value for name, value in given.items() if name in known})
