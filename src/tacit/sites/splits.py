"""Dealing records out to sites, to simulate a federation from one table.

A split decides who holds what before anything private begins. Every site gets records enough to take part,
with an event among them where the table has events.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.errors import MOST_SITES, InvalidValue, require, require_count
from tacit.runtime.contracts import Adapted, Layout
from tacit.runtime.keys import Key
from tacit.sites.federation import FEWEST_RECORDS
from tacit.sites.names import require_site_name
from tacit.sites.table import Records, Table

Integers = NDArray[np.int64]


class SplitBase:
    """Base of ways of dealing data out, the table [sites] of an experiment file.

    Args:
        kind: Its name in an experiment file.
        layout: Layout of the data that it deals out.
    """

    kind: ClassVar[str] = "own"
    layout: ClassVar[Layout] = "rows"
    # The sites, where the file says how many there are; None where the data decide.
    names: Sequence[str] | None


class _AdaptedSplit(Adapted, SplitBase):
    """A split of a user's own that does not inherit `SplitBase`."""

    def __call__(self, table: Table, key: Key) -> "dict[str, Integers]":
        """The positions of each site's records, by its name."""
        return self.own(table, key)


def as_split(split: object) -> SplitBase:
    """Return a split with every hook: one that inherits `SplitBase` unchanged, a structural one adapted."""
    return split if isinstance(split, SplitBase) else _AdaptedSplit(split)


@dataclass(frozen=True, kw_only=True)
class SplitByCount(SplitBase):
    """A split into a number of sites, named `site-1`, `site-2`, ...

    Args:
        count: Number of sites.
    """

    count: int = 5

    def __post_init__(self) -> None:
        require_count("count", self.count, MOST_SITES)

    @property
    def names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride] computed
        """The sites."""
        return tuple(f"site-{number}" for number in range(1, self.count + 1))

    def deal(self, table: Table, generator: np.random.Generator) -> list[Integers]:
        """The positions of each site's records."""
        raise AssertionError("a split implements its assignment")

    def __call__(self, table: Table, key: Key) -> dict[str, Integers]:
        """The positions of each site's records, by its name."""
        need = FEWEST_RECORDS * self.count
        if len(table) < need:
            raise InvalidValue(
                f"count = {self.count} is not allowed: {len(table)} records are too few for that number of "
                f"sites; each must hold at least {FEWEST_RECORDS}",
                rule=f"count = {self.count} is not allowed: a site holds at least {FEWEST_RECORDS} records",
            )
        dealt = _repair(self.deal(table, (key / "split").generator()), _events(table))
        return dict(zip(self.names, (np.sort(part) for part in dealt), strict=True))


@dataclass(frozen=True, kw_only=True)
class Iid(SplitByCount):
    """Sites of equal size and with an equal share of events."""

    kind: ClassVar[str] = "iid"

    def deal(self, table: Table, generator: np.random.Generator) -> list[Integers]:
        """Deal events and censored records to sites in turn."""
        order = generator.permutation(len(table))
        order = order[np.argsort(_events(table)[order], kind="stable")]
        return [order[start :: self.count] for start in range(self.count)]


@dataclass(frozen=True, kw_only=True)
class NonIid(SplitByCount):
    """Sites with different shares of events: the first has the most censored records, the last the fewest."""

    kind: ClassVar[str] = "non-iid"

    def deal(self, table: Table, generator: np.random.Generator) -> list[Integers]:
        """Events go to site k in proportion to its weight, from 1 to 3; censored records the other way."""
        weights = np.linspace(1, 3, self.count)
        events, parts = _events(table), [np.empty(0, dtype=np.int64) for _ in range(self.count)]
        for status, tilt in ((1, weights), (0, weights[::-1])):
            records = generator.permutation(np.flatnonzero(events == status))
            sizes = generator.multinomial(len(records), tilt / tilt.sum())
            parts = _concatenate(parts, np.split(records, np.cumsum(sizes)[:-1]))
        return parts


@dataclass(frozen=True, kw_only=True)
class TimeNonIid(SplitByCount):
    """Sites with different follow-up: the first has the shortest times, each the same share of events."""

    kind: ClassVar[str] = "time-non-iid"

    def deal(self, table: Table, generator: np.random.Generator) -> list[Integers]:
        """Deal ranges of time to sites, among events and among censored records."""
        if "time" not in table.targets:
            raise InvalidValue('sites kind = "time-non-iid" needs data with a time')
        events, parts = _events(table), [np.empty(0, dtype=np.int64) for _ in range(self.count)]
        for status in (1, 0):
            records = np.flatnonzero(events == status)
            ordered = records[np.argsort(table.targets["time"][records], kind="stable")]
            parts = _concatenate(parts, np.array_split(ordered, self.count))
        return parts


@dataclass(frozen=True, kw_only=True)
class Dirichlet(SplitByCount):
    """Sites with different patients and sizes: strata of the features go to sites by a Dirichlet draw.

    Args:
        alpha: Concentration of the Dirichlet draw; the smaller, the more the sites differ.
    """

    alpha: float = 0.5
    kind: ClassVar[str] = "dirichlet"
    strata: ClassVar[int] = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.alpha <= 1e6, "alpha", self.alpha, "above 0 and at most 1e6")

    def deal(self, table: Table, generator: np.random.Generator) -> list[Integers]:
        """Deal strata to sites: fifths along the first principal direction, events and others separately."""
        centred = table.features - table.features.mean(axis=0)
        scale = centred.std(axis=0)
        centred = centred / np.where(scale > 0, scale, 1.0)
        direction = np.linalg.svd(centred, full_matrices=False)[2][0]
        rank = np.argsort(np.argsort(centred @ direction, kind="stable"), kind="stable")
        stratum = rank * self.strata // len(table) + self.strata * _events(table)
        parts = [np.empty(0, dtype=np.int64) for _ in range(self.count)]
        for label in np.unique(stratum):
            records = generator.permutation(np.flatnonzero(stratum == label))
            shares = generator.dirichlet(np.full(self.count, self.alpha))
            sizes = generator.multinomial(len(records), shares)
            parts = _concatenate(parts, np.split(records, np.cumsum(sizes)[:-1]))
        return parts


@dataclass(frozen=True, kw_only=True)
class ByColumn(SplitBase):
    """Sites that a column of the data names, record by record.

    Args:
        column: The column that names the site.
    """

    column: str = "site"
    kind: ClassVar[str] = "by-column"
    names = None


@dataclass(frozen=True, kw_only=True)
class NamedSites(SplitBase):
    """Sites on machines of their own, by their names; each holds its data itself.

    Args:
        names: The names of the sites.
    """

    names: Sequence[str]  # pyright: ignore[reportIncompatibleVariableOverride] there are some
    kind: ClassVar[str] = "named"
    # Names do not say what the sites hold.
    layouts: ClassVar[tuple[Layout, ...]] = ("rows", "environments")

    def __post_init__(self) -> None:
        listed = isinstance(self.names, list | tuple) and len(self.names) > 0
        require(listed, "names", self.names, "a list with the name of at least one site")
        many = len(self.names)
        require(many <= MOST_SITES, "names", f"{many:,} of them", f"at most {MOST_SITES:,}")
        object.__setattr__(self, "names", tuple(self.names))
        different = len(set(self.names)) == len(self.names)
        require(different, "names", list(self.names), "different from one another")
        for name in self.names:
            require_site_name("names", name, of="machine")


SPLITS: dict[str, type[SplitByCount] | type[ByColumn] | type[NamedSites]] = {
    split.kind: split for split in (Iid, NonIid, TimeNonIid, Dirichlet, ByColumn, NamedSites)
}


def held_out_count(records: int, share: float) -> int:
    """Return the number of held-out records for a share."""
    return round(records * share)


def hold_out(table: Records, share: float, key: Key) -> tuple[Integers, Integers]:
    """Positions of records to train on and of a share to hold out, with the same share of events in both.

    Training keeps an event and records enough to take part, even of a small table.
    """
    generator, events = (key / "held out").generator(), _events(table)
    count = min(held_out_count(len(table), share), max(len(table) - FEWEST_RECORDS, 0))
    if count == 0:
        return np.arange(len(table)), np.empty(0, dtype=np.int64)
    order = generator.permutation(len(table))
    order = order[np.argsort(events[order], kind="stable")]
    # Equal steps through a list sorted by event: a systematic sample.
    steps = (np.arange(count) + generator.uniform()) * len(table) / count
    apart = np.zeros(len(table), dtype=np.bool_)
    apart[order[np.floor(steps).astype(np.int64)]] = True
    if events.any() and not events[~apart].any():
        kept, given = np.flatnonzero(apart & (events == 1))[0], np.flatnonzero(~apart)[0]
        apart[[kept, given]] = False, True
    return np.flatnonzero(~apart), np.flatnonzero(apart)


def _events(table: Records) -> Integers:
    found = table.targets.get("event") if isinstance(table, Table) else None
    return np.zeros(len(table), dtype=np.int64) if found is None else (found != 0).astype(np.int64)


def _concatenate(parts: list[Integers], more: Sequence[Integers]) -> list[Integers]:
    return [np.concatenate([part, extra]) for part, extra in zip(parts, more, strict=True)]


def _repair(parts: list[Integers], events: Integers) -> list[Integers]:
    """Move single records from rich sites to poor ones, until each has an event and records enough."""
    sites = [part.tolist() for part in parts]
    happened = set(np.flatnonzero(events).tolist())
    _even_out(sites, happened, 1)
    everybody = set(range(len(events)))
    _even_out(sites, everybody - happened, FEWEST_RECORDS - 1)
    _even_out(sites, everybody, FEWEST_RECORDS)
    return [np.array(site, dtype=np.int64) for site in sites]


def _even_out(sites: list[list[int]], kind: set[int], fewest: int) -> None:
    """Give every site at least `fewest` records of a kind, as far as others have more than they need."""
    owned = [[record for record in site if record in kind] for site in sites]
    for poor, site in enumerate(sites):
        while len(owned[poor]) < fewest:
            rich = max(range(len(sites)), key=lambda index: len(owned[index]))
            if len(owned[rich]) <= fewest:
                return
            record = owned[rich].pop()
            sites[rich].remove(record)
            owned[poor].append(record)
            site.append(record)
