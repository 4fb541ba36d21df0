"""What noisy sums cost, who books it, and how they leave the sites.

Every private statistic pays here: the ledger is charged for all sites before any noise is drawn. It knows
sums and how far one record moves them, not what they mean.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import Refused, require, require_positive
from tacit.privacy.accounting import calibrate
from tacit.privacy.accounting.release import Law, Release, clipped_release, require_delta
from tacit.privacy.ledger.data_book import DataBook, new_run
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.mechanisms import noise
from tacit.runtime.keys import Key
from tacit.sites.federation import Federation

Array = NDArray[np.float64]

PUBLIC = "public: the records are simulated or published"


def is_paid(given: Mapping[str, Any]) -> bool:
    """Whether a statistic that is asked for with these arguments protects the records it is about."""
    return given.get("epsilon") is not None and not getattr(given.get("key"), "rehearsal", False)


@dataclass(frozen=True, kw_only=True)
class Payment:
    """What noisy sums cost and who books it; without epsilon nothing is promised, and sums leave bare.

    Args:
        epsilon: What one release of each site costs any one record.
        delta: The probability with which that may fail; 0 takes Laplace noise, more takes Gaussian noise.
        ledger: Charged before any noise is drawn.
        key: Where the noise comes from, if not from the operating system; a rehearsal's says so everywhere.
        federation: The sites; where their records are private, the book of the data is charged, too.
    """

    epsilon: float | None = None
    delta: float = 0.0
    ledger: Ledger | None = None
    key: Key | None = None
    federation: Federation | None = None

    def __post_init__(self) -> None:
        if self.epsilon is None:
            idle = self.delta == 0 and self.ledger is None and self.key is None
            require(idle, "epsilon", None, "given with delta, ledger or key: without it nothing is protected")
            return
        require_positive("epsilon", self.epsilon)
        require_delta(self.delta)
        if self.ledger is None:
            raise Refused(
                f"epsilon = {self.epsilon:g} has no ledger to be charged on: give ledger=Ledger(path), or "
                "Ledger() to keep it in memory"
            )

    def release(self, sensitivity: float, purpose: str) -> Release:
        """The release of one site's sums, which one record moves by at most `sensitivity`."""
        assert self.epsilon is not None
        law: Law = "gaussian" if self.delta else "laplace"
        multiplier = calibrate(epsilon=self.epsilon, delta=self.delta, mechanism=law)
        rehearsal = self.key is not None and self.key.rehearsal
        return clipped_release(multiplier, clip=sensitivity, law=law, purpose=purpose, rehearsal=rehearsal)

    def release_sums(
        self, sums: Mapping[str, Array], sensitivity: float, what: str, cells: int = 1
    ) -> "NoisySums":
        """Sums as they leave the sites: bare, or with noise once the ledger has been charged for all sites.

        Args:
            sums: What each site would send.
            sensitivity: How far one record moves any one of the sums.
            what: What they are, in words.
            cells: How many of them one record may move.

        Guarantee:
            With epsilon, no noise is drawn before the ledger has accepted one release for every site.
        """
        if self.epsilon is None:
            return NoisySums(np.stack(list(sums.values())), 0.0, f"bare: {what}, {from_sites(len(sums))}")
        assert self.ledger is not None
        # Laplace noise is for the sum of the moves, Gaussian noise for the root of the sum of their squares.
        one = self.release(sensitivity * (math.sqrt(cells) if self.delta else cells), what)
        total = self.charge([replace(one, subject=f"records@{name}", party=name) for name in sums])
        key = (Key(0) if self.key is None else self.key) / what
        add = noise.gaussian if one.law == "gaussian" else noise.laplace
        told = np.stack([add(part, one.scale, key / name) for name, part in sums.items()])
        words = (
            f"released: epsilon {self.epsilon:g} at delta {self.delta:g} for any one record; {what}, with "
            f"{one.law} noise of scale {one.scale:.4g} over a sensitivity of {one.sensitivity:.4g}, "
            f"{from_sites(len(sums))}"
        )
        again = "; REHEARSAL: the noise repeats with the seed and protects nobody" if one.rehearsal else ""
        return NoisySums(told, one.scale**2 * (1 if one.law == "gaussian" else 2), words + again + total)

    def charge(self, releases: Sequence[Release]) -> str:
        """Charge everything that a statistic releases to the book of the data and to the ledger.

        Returns:
            What all runs on these data cost together, in words to be added to a provenance.

        Guarantee:
            When this returns, both hold all releases, on disk; a crash in between leaves the book ahead.
            When it raises `BudgetExhausted`, neither does.
        """
        assert self.ledger is not None
        book = self._book()
        if book is None:
            self.ledger.charge(releases)
            return ""
        self.ledger.check(releases)
        _ = book.charge(releases, run=new_run(), name="statistics")
        self.ledger.charge(releases)
        sentence = book.total(self.delta, "record").sentence()
        return f"; {sentence[:1].lower()}{sentence[1:].rstrip('.')}"

    def _book(self) -> DataBook | None:
        known = self.federation
        if known is None or known.public or known.distant or (self.key is not None and self.key.rehearsal):
            return None
        return DataBook(known.people())


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Sums that have left the sites (sites, cells), the variance of their noise, and their provenance."""

    cells: Array
    variance: float
    provenance: str


def from_sites(count: int) -> str:
    """Where something comes from, in words."""
    return "from one site" if count == 1 else f"from each of {count} sites"
