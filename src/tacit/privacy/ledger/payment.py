"""Payment for statistics that no round loop runs: all releases are charged at once, then noise is added.

A statistic that is asked for from Python names its epsilon and the ledger that bears it. Every release of
every site is charged here before any noise is drawn, and each noise is that of its release. A payment knows
sums and how far one record moves them, not what they mean.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from tacit.errors import Refused, require, require_positive
from tacit.privacy.accounting import calibrate
from tacit.privacy.accounting.release import Release, clipped_release, require_delta
from tacit.privacy.ledger.data_book import DataBook, new_run
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.mechanisms.base import TINY, NoiseLaw, add_noise
from tacit.privacy.mechanisms.counts import draw_share, require_scale
from tacit.privacy.mechanisms.discrete import discrete_laplace_variance
from tacit.runtime.arrays import Array
from tacit.runtime.fingerprints import People
from tacit.runtime.keys import Key

PUBLIC = "public: the records are simulated or published"


class ChargedRecords(Protocol):
    """The records that a statistic is about: a federation."""

    # True for records at remote sites, whose own ledgers bear their releases.
    distant: ClassVar[bool]

    @property
    def public(self) -> bool:
        """Return True if the records are public."""
        ...

    def people(self) -> People:
        """Return the identity of the people of these records."""
        ...


def is_paid(given: Mapping[str, Any]) -> bool:
    """Return True if a statistic with these arguments protects its records."""
    key: object = given.get("key")
    return given.get("epsilon") is not None and not (isinstance(key, Key) and key.rehearsal)


@dataclass(frozen=True, kw_only=True)
class Payment:
    """The price of a statistic and the ledger that bears it; without epsilon, sums leave unprotected.

    Args:
        epsilon: Cost of all releases of one site for any one record.
        delta: The probability with which that may fail; 0 takes Laplace noise, discrete for counts; more
            takes Gaussian noise.
        ledger: Charged before any noise is drawn.
        key: Source of the noise, by default the operating system; a rehearsal's key is reported everywhere.
        records: The sites; where their records are private, the book of the data is charged, too.
    """

    epsilon: float | None = None
    delta: float = 0.0
    ledger: Ledger | None = None
    key: Key | None = None
    records: ChargedRecords | None = None

    def __post_init__(self) -> None:
        if self.epsilon is None:
            idle = self.delta == 0 and self.ledger is None and self.key is None
            require(idle, "epsilon", None, "given with delta, ledger or key: they have no effect without it")
            return
        require_positive("epsilon", self.epsilon)
        require_delta(self.delta)
        if self.ledger is None:
            raise Refused(
                f"epsilon = {self.epsilon:g} has no ledger to charge: give ledger=Ledger(path), or Ledger() "
                "to keep it in memory"
            )

    @property
    def private(self) -> bool:
        """Return True if the payment protects records: it has an epsilon."""
        return self.epsilon is not None

    @property
    def protects(self) -> bool:
        """Return True if the noise protects: that of a rehearsal repeats."""
        return self.private and not self._key.rehearsal

    @property
    def law(self) -> NoiseLaw:
        """The noise that the delta allows, of sums."""
        return "gaussian" if self.delta else "laplace"

    def release(
        self, sensitivity: float, purpose: str, *, multiplier: float | None = None, count: int = 1
    ) -> Release:
        """Describe the release of sums of one site that one record moves by at most `sensitivity`.

        Args:
            sensitivity: Bound in the norm of the law.
            purpose: Description of the release.
            multiplier: Noise in units of it; by default one release costs all of epsilon.
            count: Number of equal releases.
        """
        assert self.epsilon is not None
        if multiplier is None:
            multiplier = calibrate(epsilon=self.epsilon, delta=self.delta, mechanism=self.law)
        return clipped_release(
            multiplier,
            clip=sensitivity,
            law=self.law,
            count=count,
            purpose=purpose,
            rehearsal=self._key.rehearsal,
        )

    def charge(self, releases: Sequence[Release], sites: Iterable[str], what: str) -> str:
        """Charge releases for each of the sites, on the book of the data and on the ledger.

        Args:
            releases: Releases of one site.
            sites: The sites.
            what: Description of the release and its noise, in words.

        Returns:
            The provenance of what is released, with what all runs on these data cost together.

        Guarantee:
            When this returns, both hold all releases, on disk; a crash in between leaves the book ahead.
            When it raises `BudgetExhausted`, neither does.
        """
        assert self.epsilon is not None
        assert self.ledger is not None
        names, book, total = tuple(sites), self._book(), ""
        rows = [replace(one, subject=f"records@{name}", party=name) for name in names for one in releases]
        if book is not None:
            self.ledger.check(rows)
            _ = book.charge(rows, run=new_run(), name="statistics", delta=self.delta)
        self.ledger.charge(rows)
        if book is not None:
            sentence = book.total(self.delta, "record").sentence()
            total = f"; {sentence[:1].lower()}{sentence[1:].rstrip('.')}"
        again = "; REHEARSAL: the noise repeats with the seed and gives no protection"
        return (
            f"released: epsilon {self.epsilon:g} at delta {self.delta:g} for any one record; {what}, "
            f"{from_sites(len(names))}{again * self._key.rehearsal}{total}"
        )

    def pay(self, releases: Sequence[Release], sites: Iterable[str], what: str) -> "PaidReleases":
        """Charge releases for each of the sites; return the only source of their noise."""
        return PaidReleases(tuple(releases), self.charge(releases, sites, what), self.law, self._key)

    def release_sums(
        self, sums: Mapping[str, Array], sensitivity: float, what: str, cells: int = 1
    ) -> "NoisySums":
        """Release sums: exact without epsilon, else with noise, after the ledger is charged.

        Args:
            sums: Sums of each site.
            sensitivity: Sensitivity of any one of the sums to one record.
            what: Description of the sums, in words.
            cells: Number of sums that one record may move.

        Guarantee:
            With epsilon, no noise is drawn before the ledger has accepted one release for every site.
        """
        if self.epsilon is None:
            return NoisySums(np.stack(list(sums.values())), 0.0, f"bare: {what}, {from_sites(len(sums))}")
        # Laplace noise is for the sum of the moves, Gaussian noise for the root of the sum of their squares.
        one = self.release(sensitivity * (math.sqrt(cells) if self.delta else cells), what)
        noise = f"{self.law} noise of scale {one.scale:.4g} over a sensitivity of {one.sensitivity:.4g}"
        paid = self.pay([one], sums, f"{what}, with {noise}")
        noisy = np.stack([paid.add_noise(part, one, what, name) for name, part in sums.items()])
        variance = one.scale**2 * (1 if self.law == "gaussian" else 2)
        return NoisySums(noisy, variance, paid.provenance, one)

    def release_counts(self, counts: Mapping[str, Array], what: str, cells: int = 1) -> "NoisySums":
        """Release counts of records as `release_sums` does; at delta 0 with discrete Laplace noise.

        Args:
            counts: Counts of each site, whole numbers where they are protected.
            what: Description of the counts, in words.
            cells: Number of counts that one record may move, each by 1.
        """
        if self.epsilon is None or self.delta:
            return self.release_sums(counts, 1.0, what, cells=cells)
        multiplier = calibrate(epsilon=self.epsilon, delta=0.0, mechanism="discrete-laplace")
        require_scale(cells, multiplier)
        rehearsal = self._key.rehearsal
        one = clipped_release(
            multiplier, clip=float(cells), law="discrete-laplace", purpose=what, rehearsal=rehearsal
        )
        noise = f"discrete Laplace noise of scale {one.scale:.4g} over a sensitivity of {one.sensitivity:.4g}"
        paid = self.pay([one], counts, f"{what}, with {noise}")
        noisy = np.stack([paid.add_noise(part, one, what, name) for name, part in counts.items()])
        # Noise so small that its variance is no number is noise all the same.
        variance = max(discrete_laplace_variance(one.scale), TINY)
        return NoisySums(noisy, variance, paid.provenance, one)

    @property
    def _key(self) -> Key:
        return Key(0) if self.key is None else self.key

    def _book(self) -> DataBook | None:
        known = self.records
        if known is None or known.public or known.distant or self._key.rehearsal:
            return None
        return DataBook(known.people())


@dataclass(frozen=True, eq=False)
class PaidReleases:
    """Releases that the ledger has accepted: noise is drawn for no others.

    Args:
        releases: The releases of one site.
        provenance: What is released, in words, with what all runs on these data cost together.
        law: The noise.
        key: The source of the noise.
    """

    releases: tuple[Release, ...]
    provenance: str
    law: NoiseLaw
    key: Key

    def add_noise(self, values: Array, release: Release, *names: str | int, rounded: float = 0.0) -> Array:
        """Add the noise of one of the releases to the values that one site releases.

        Args:
            values: Values that one record moves by at most the sensitivity of the release.
            release: The release.
            names: Names that separate this draw from others.
            rounded: Additional noise, as a share of it, that covers the rounding of the values.
        """
        assert release in self.releases, "it was not paid for"
        key = self.key
        for name in names:
            key = key / name
        if release.law == "discrete-laplace":
            assert rounded == 0, "whole counts are not rounded"
            return values + draw_share(values, release.scale, 1, key, release.rehearsal)
        return add_noise(values, self.law, release.scale * (1 + rounded), key, release.rehearsal)


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Sums that have left the sites (sites, cells), the variance of their noise, and their provenance.

    `release` is the charged release of one site, if there is one.
    """

    cells: Array
    variance: float
    provenance: str
    release: Release | None = None


def from_sites(count: int) -> str:
    """Describe the number of sites that a result comes from."""
    return "from one site" if count == 1 else f"from each of {count} sites"
