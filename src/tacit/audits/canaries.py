"""Mechanisms with canaries in them: the same clip, noise and price, and made-up units beside the real ones.

A canary has a coordinate, a row or a small world of its own that no model uses, so canaries touch neither the
training nor each other. Each is there or not by the toss of a coin. What a mechanism makes of it is kept as
the logarithm of a likelihood ratio, added up over everything that leaves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from tacit.aggregation.base import Aggregator
from tacit.batched import batches
from tacit.keys import Key
from tacit.privacy.audit import Evidence, ratios, sides
from tacit.privacy.blind import BlindSites
from tacit.privacy.blind_products import BlindProducts, place, shares_of
from tacit.privacy.columns import EXCHANGED, ColumnsApart, ColumnsBlind, ColumnsTogether, Counted
from tacit.privacy.mechanism import Contributions, Mechanism, Norm, ProtectedRecords
from tacit.privacy.release import Release
from tacit.privacy.whole import ProtectedSites
from tacit.sites.sampling import Poisson
from tacit.sites.site import Cohort
from tacit.sites.tables import Table
from tacit.task import Updates

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float64]
# How much longer than its bound a canary is before it is clipped: clipping is put to the test as well.
LONG = 3.0


class Canaries:
    """Made-up units, shared out evenly among sites, and what was seen of them.

    Args:
        count: How many at the least.
        names: The sites.
        key: What the coins are tossed by.
    """

    def __init__(self, count: int, names: Sequence[str], key: Key) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        shape = (len(names), -(-count // len(names)))
        self.present = key.generator().random(shape) < 0.5
        self.scores = np.zeros(shape)

    @property
    def each(self) -> int:
        """How many there are at each site."""
        return self.present.shape[1]

    def places(self, keys: Sequence[Key]) -> list[int]:
        """Which sites these keys belong to: the last part but one of their paths is the name."""
        return [self._places[str(key.path[-2])] for key in keys]

    def values(self, release: Release, places: Sequence[int]) -> Array:
        """What those at these sites contribute (sites, canaries), before it is clipped."""
        there, gone = sides(release)
        return LONG * np.where(self.present[list(places)], there, gone)

    def heard(self, release: Release, answers: Array, places: Sequence[int] | None = None) -> None:
        """Add what was seen of those at these sites, or of all: numbers as far apart as `sides` says."""
        here = list(range(len(self.scores))) if places is None else list(places)
        self.scores[here] += ratios(release, answers.reshape(len(here), self.each))

    def evidence(self) -> Evidence:
        """Everything that was seen."""
        return Evidence(self.scores.ravel(), self.present.ravel())


@dataclass(frozen=True)
class Accompanied:
    """Contributions, and those of canaries: each has a coordinate of its own behind all others.

    Args:
        inner: The contributions of records.
        own: What each canary contributes to its coordinate (sites, canaries).
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
class CanariedRecords(ProtectedRecords):
    """Training steps, each with canaries in dummy coordinates; drawn as records are."""

    canaries: Canaries

    def noisy_sums(self, contributions: Contributions, keys: Sequence[Key], step: int) -> Array:
        """The noisy sums of the records; those of the canaries are kept."""
        places, (price,) = self.canaries.places(keys), self.release(0, ["canaries"])
        drawn = np.stack([_drawn(self.canaries.each, self.rate, key / "canaries" / step) for key in keys])
        gone = LONG * sides(price)[1] if not price.two_sided else 0.0
        own = np.where(drawn, self.canaries.values(price, places), gone)
        sums = super().noisy_sums(Accompanied(contributions, own), keys, step)
        self.canaries.heard(price, sums[:, -self.canaries.each :], places)
        return sums[:, : -self.canaries.each]


def _drawn(count: int, rate: float, key: Key) -> NDArray[np.bool_]:
    """Who of so many is drawn, by the very function that draws records."""
    table = Table(np.zeros((count, 0)), columns=(), targets={})
    zero, all_of_them = np.zeros(1, dtype=np.int64), np.array([count], dtype=np.int64)
    cohort = Cohort(("canaries",), table, zero, all_of_them)
    (batch,) = batches.poisson(cohort, 1, rate, [key], coupled=False)
    found = np.zeros(count, dtype=np.bool_)
    found[batch.rows[batch.present]] = True
    return found


@dataclass(frozen=True, kw_only=True)
class CanariedSites(ProtectedSites):
    """Updates of sites, and of canaries that are sites with an update of one number.

    Where the server adds the noise, each canary has a federation of its own, of as many sites as there are;
    the others of them send numbers from one end of what is allowed to the other.
    """

    canaries: Canaries
    aggregation: Aggregator
    sites: int

    def at_site(self, update: "Tensor", key: Key) -> "Tensor":
        """The update as it leaves; so do those of the canaries that are with this site."""
        import torch

        if self.where == "site":
            places, (price,) = self.canaries.places([key]), self.release(0, ())
            rows = torch.from_numpy(self.canaries.values(price, places)).reshape(-1, 1)
            answers = super().at_site(rows, key / "canaries").numpy()
            self.canaries.heard(price, answers, places)
        return super().at_site(update, key)

    def at_server(self, combined: "Tensor", key: Key) -> "Tensor":
        """The aggregate as it leaves; so do those of the canaries' federations."""
        import torch

        if self.where == "server":
            (price,) = self.release(0, ())
            with_it, without = self._aggregates(key / "canaries")
            names = [str(number) for number in range(self.canaries.present.size)]
            come = set(Poisson()(names, self.rate, key / "canaries" / "who"))
            joined = np.array([name in come for name in names]) & self.canaries.present.ravel()
            exact = torch.from_numpy(np.where(joined, with_it - without, 0.0))
            self.canaries.heard(price, super().at_server(exact, key / "canaries").numpy())
        return super().at_server(combined, key)

    def _aggregates(self, key: Key) -> tuple[float, float]:
        """What a federation of single numbers makes of one update more, and of one that is not there."""
        import torch

        others = np.linspace(-LONG * self.clip, LONG * self.clip, max(self.sites - 1, 0) | 1)[
            : self.sites - 1
        ]
        found: list[float] = []
        for own in (LONG * self.clip, 0.0):
            rows = torch.from_numpy(np.append(others, own)[:, None])
            sent = super().at_site(rows, key)
            names = tuple(str(number) for number in range(len(rows)))
            found.append(float(self.aggregation(Updates(names, sent), sites=self.denominator(self.sites))))
        return found[0], found[1]


@dataclass(frozen=True, kw_only=True)
class CanariedBlindly(BlindSites):
    """Sums that are taken in secret, and those of small federations of canaries alone.

    The adversary knows the shares of noise of those it works with; what it sees beyond them has the least
    number of shares that the price counts on.
    """

    canaries: Canaries

    def at_site(self, update: "Tensor", key: Key) -> "Tensor":
        """The update with its share of noise; the canaries with this site are added up in their own sums."""
        (place,), (price,) = self.canaries.places([key]), self.release(0, ())
        values = self.canaries.values(price, [place])[0] * (self.clip / price.sensitivity)
        # In each sum, every site that counts is a canary, with a coordinate of its own.
        sums = [
            self._summed(values[first : first + self.shares], key / "canaries" / first)
            for first in range(0, len(values), self.shares)
        ]
        self.canaries.heard(price, np.concatenate(sums) * (price.sensitivity / self.clip), [place])
        return super().at_site(update, key)

    def _summed(self, values: Array, key: Key) -> Array:
        import torch

        updates = torch.from_numpy(np.diag(values))
        silent = torch.zeros(self.shares - len(values), len(values), dtype=torch.float64)
        rows = [
            self.on_ring(super(CanariedBlindly, self).at_site(row, key / site))
            for site, row in enumerate(torch.cat([updates, silent]))
        ]
        return self.mean_of(reduce(np.add, rows), 1)


@dataclass(frozen=True, kw_only=True)
class CanariedColumns(ColumnsApart):
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
        self.canaries.heard(price, noisy[len(rows) :, 0])
        return noisy[: len(rows)]


def _is_of(release: Release, column: str) -> bool:
    return release.purpose == f"column {column}"


@dataclass(frozen=True, kw_only=True)
class CanariedProducts(ColumnsTogether):
    """Products of all columns, and those of canaries alone, each exchanged for what is furthest from it."""

    canaries: Canaries

    def at_server(self, combined: "Tensor", key: Key) -> "Tensor":
        """The noisy products; those of the canaries are kept."""
        import torch

        (price,) = self.release(0, ())
        pair = _opposites(len(self.radii), lambda rows: super(CanariedProducts, self).noisy_rows(
            rows * self._longest, self._widest, Key(0)
        ))  # fmt: skip
        exact = [torch.from_numpy(_triangle(row)) for row in pair]
        noisy = [
            super(CanariedProducts, self)
            .at_server(exact[0 if there else 1], key / "canaries" / number)
            .numpy()
            for number, there in enumerate(self.canaries.present.ravel())
        ]
        self.canaries.heard(price, _along(np.array(noisy), *pair) * price.sensitivity)
        return super().at_server(combined, key)

    @property
    def _widest(self) -> str:
        return max(self.radii, key=lambda name: self.radii[name])

    @property
    def _longest(self) -> float:
        return self.radii[self._widest]


@dataclass(frozen=True, kw_only=True)
class CanariedSecretly(ColumnsBlind):
    """Products that are taken in secret, and those of small federations of the same parties on one canary.

    The adversary knows the noise of the parties it works with, as many as the price allows for.
    """

    canaries: Canaries

    def at_site(self, update: "Tensor", key: Key) -> "Tensor":
        """The rows and the noise of a party; the canaries with it are multiplied by themselves."""
        (here,), (price,) = self.canaries.places([key]), self.release(0, ())
        # As they are: a number beyond 1 is cut by itself, which would turn a record round.
        pair = _opposites(self.blocks - 1, lambda rows: rows / LONG)
        small = BlindProducts(
            multiplier=self.multiplier, widths=tuple((2,) * len(blocks) for blocks in self.widths), records=1,
            colluders=self.colluders, rehearsal=self.rehearsal,
        )  # fmt: skip
        noisy = [
            _multiplied(small, pair[0 if there else 1][1:], key / "canaries" / number)
            for number, there in enumerate(self.canaries.present[here])
        ]
        self.canaries.heard(price, _along(np.array(noisy), *pair) * price.sensitivity, [here])
        return super().at_site(update, key)


def _multiplied(small: BlindProducts, row: Array, key: Key) -> Array:
    """The products of one record's columns, as a server would decode them, with the noise that counts."""
    import torch

    ends = np.cumsum(small.columns)
    counted = shares_of(len(small.widths), small.colluders)
    rows, total = list[Array](), np.zeros(small.entries, dtype=np.uint32)
    for party, (columns, end) in enumerate(zip(small.columns, ends, strict=True)):
        padded = np.zeros(max(small.columns))
        padded[:columns] = row[end - columns : end]
        sent = small.at_site(torch.from_numpy(padded), key / party).numpy()
        # Those beyond work with the adversary, who takes their noise away.
        sent[len(padded) :] *= party < counted
        steps, own = small.brought(party, sent)
        rows.append(steps[0].astype(np.float64))
        total += own
    whole = np.concatenate(rows)
    party_of = np.repeat(np.arange(len(rows)), small.columns)
    above, beside = np.triu_indices(len(whole), 1)
    across = party_of[above] != party_of[beside]
    above, beside = above[across], beside[across]
    products = (whole[above] * whole[beside]).astype(np.int64)
    total[place(above + 1, beside + 1, small.order)] += products.astype(np.uint32)
    return small.decoded(total)


def _opposites(columns: int, bounded: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Two records at a right angle, as long as any may be: 1, and two numbers in each column."""
    angle = np.arccos(-1 / columns)
    first, second = bounded(LONG * np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]]))
    return np.concatenate([[1.0], *[first] * columns]), np.concatenate([[1.0], *[second] * columns])


def _triangle(row: Array) -> Array:
    """The products of a record with itself: the upper triangle, row by row."""
    return np.outer(row, row)[np.triu_indices(len(row))]


def _along(noisy: Array, first: Array, second: Array) -> Array:
    """How far products (canaries, numbers) are from those of the second record to those of the first."""
    apart = _triangle(first) - _triangle(second)
    rows, columns = np.triu_indices(len(first))
    # Beside the diagonal each number stands twice.
    weights = np.where(rows == columns, 1.0, 2.0) * apart
    return (noisy - _triangle(second)) @ weights / float(weights @ apart)


@dataclass(frozen=True, kw_only=True)
class CanariedCounts(Counted):
    """Histograms of columns, and those of canaries alone, each of which is counted in one of two places."""

    canaries: Canaries

    def noisy_sum(self, rows: "Tensor", key: Key) -> "Tensor":
        """The noisy counts; those of the canaries are kept."""
        import torch

        price = self.release(0, set(self.holders.values()))[0]
        marks = torch.eye(2, dtype=torch.float64) * LONG
        answers: list[float] = []
        for number, there in enumerate(self.canaries.present.ravel()):
            counts = super().noisy_sum(marks[[0 if there else 1]], key / "canaries" / number)
            answers.append(float(counts[0] - counts[1]) / EXCHANGED)
        self.canaries.heard(price, np.array(answers))
        return super().noisy_sum(rows, key)


CANARIED: dict[type, type] = {
    ProtectedRecords: CanariedRecords,
    ProtectedSites: CanariedSites,
    BlindSites: CanariedBlindly,
    ColumnsApart: CanariedColumns,
    ColumnsTogether: CanariedProducts,
    ColumnsBlind: CanariedSecretly,
    Counted: CanariedCounts,
}


def canaried(
    mechanism: Mechanism, canaries: Canaries, *, aggregation: Aggregator | None = None, sites: int = 1
) -> Mechanism:
    """The same mechanism with canaries in it."""
    kind = CANARIED[type(mechanism)]
    own: dict[str, Any] = {"canaries": canaries, "aggregation": aggregation, "sites": sites}
    known = {entry.name for entry in fields(kind)}
    given = {entry.name: getattr(mechanism, entry.name) for entry in fields(cast(Any, mechanism))}
    return kind(**{**{name: value for name, value in own.items() if name in known}, **given})
