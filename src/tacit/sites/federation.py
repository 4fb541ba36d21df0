"""Sites, the federation they form, and cohorts: sites that train together as one batched program.

A federation in this process keeps the records of all sites in one store, site after site, so that a cohort is
a list of places in it: nothing is copied or padded before a batch is drawn.
"""

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue, require, require_word
from tacit.runtime.contracts import Layout
from tacit.runtime.fingerprints import People, sketch_frame, sketch_table
from tacit.runtime.sketches import Sketch
from tacit.runtime.tables import resolve_paths
from tacit.sites.encoding import Encoding
from tacit.sites.names import require_site_name
from tacit.sites.table import Records, Table, by_site, concatenate, from_frame

if TYPE_CHECKING:
    import pandas as pd

# A site needs more than one record: statistics of a single person are that person.
FEWEST_RECORDS = 2


@dataclass(frozen=True)
class Site:
    """One holder of data: its name, which is public, and its records, which stay with it."""

    name: str
    table: Table

    def __post_init__(self) -> None:
        require_site_name("site", self.name, of="records")
        if len(self.table) < FEWEST_RECORDS:
            few = "no records" if len(self.table) == 0 else "one record"
            mend = "leave it out, or merge it with another"
            raise InvalidValue(
                f"site {self.name} holds {few}: it must hold at least {FEWEST_RECORDS}; {mend}",
                rule=f"every site must hold at least {FEWEST_RECORDS} records; where one does not, {mend}",
            )


@dataclass(kw_only=True, eq=False, repr=False)
class Federation(Mapping[str, Site], ABC):
    """Sites that learn together, by name; siblings say what each holds: rows, columns, or environments.

    Args:
        held_out: Data to score models on; excluded from training.
        held_out_public: True if those are public; if not, a private run refuses to show scores on them.
        public: True if the data of the sites are public: simulated, or published.
        records: The number of records of all sites, if it is public.
        origin: The tables of the experiment file that these data come from.
        taken: Facts taken from all records together to make these data, in words; no promise covers them.
    """

    held_out: Records | None = None
    held_out_public: bool = False
    public: bool = False
    records: int | None = None
    origin: Mapping[str, Any] | None = None
    taken: Sequence[str] = ()
    # The files that the data came from.
    files: tuple[str, ...] = field(default=(), init=False)
    # The receipt of a run that has charged the book of the data for all that is asked of these sites.
    receipt: object = field(default=None, init=False)
    layout: ClassVar[Layout]
    # True if the data are on other machines and cannot be looked at here.
    distant: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.origin, self.taken = resolve_paths(self.origin), tuple(self.taken)

    @abstractmethod
    def cohort(self, names: Sequence[str]) -> "Cohort":
        """These sites as one batch of work, in this order."""

    @abstractmethod
    def records_of(self, name: str) -> Table:
        """The rows of one site, however few."""

    @abstractmethod
    def pool(self) -> "Federation":
        """Return all data at one site: the pooled baseline."""

    @abstractmethod
    def digest(self) -> bytes:
        """Hash everything that the sites hold and what models are scored on; as private as the data."""

    @abstractmethod
    def _views(self) -> tuple[Sketch, ...]:
        """Return sketches by which the same people are recognized in other data."""

    @cached_property
    def fingerprint(self) -> bytes:
        """Digest of these data, computed once."""
        return self.digest()

    @property
    def mean_site_size(self) -> float | None:
        """The mean number of records at a site, if that is public."""
        return None if self.records is None else self.records / len(self)

    def revise(self, **changed: object) -> Self:
        """Copy this federation with some attributes changed; its fingerprint is worked out anew."""
        made = copy.copy(self)
        vars(made).pop("fingerprint", None)
        vars(made).update(changed)
        return made

    def carry(self, receipt: object) -> Self:
        """The same sites with a receipt; a run on them looks for it in the book of the data."""
        made = copy.copy(self)
        made.receipt = receipt
        return made

    def with_record_count(self, records: int | None) -> Self:
        """The same federation, the number of its records known."""
        made = copy.copy(self)
        made.records = records
        return made

    def people(self) -> People:
        """The identity of the people whose data these are; as private as the data."""
        return People(tuple(map(Path, self.files)), self._views(), self.fingerprint)


@dataclass(eq=False, repr=False)
class RowFederation(Federation):
    """Sites that hold records, each its own; `tacit.Federation` is this one.

    Args:
        tables: The records of each site, by its name.
        held_out: Records to score models on; excluded from training.
        held_out_sites: The site that each of those records is of, if that is known: where sites learn
            several models, each model is then scored on the records of its own sites.
        held_out_public: True if those records are public; if not, a private run refuses to show scores on
            them.
        public: True if the records of the sites are public: simulated, or published.
        records: The number of records of all sites, if it is public.
        reference: Public records like those of the sites, to choose time grids and the like by.
        origin: The tables of the experiment file that these data come from.
        encoding: The encoding of raw columns as these numbers; models use it on new raw records.
        taken: Facts taken from all records together to make these tables, in words; no promise covers them.
    """

    tables: InitVar[Mapping[str, Table]]
    _: KW_ONLY
    held_out_sites: InitVar[Sequence[str] | None] = None
    reference: Table | None = None
    encoding: Encoding | None = None
    # The records of all sites, site after site, and where each begins and how many it has.
    store: Table = field(init=False)
    places: dict[str, tuple[int, int]] = field(init=False)
    # Notes of synthetic data added to the sites.
    notes: tuple[str, ...] = field(default=(), init=False)
    # Sketches of the rows as they stand in the files; and the frame that the records came from: a private
    # run sketches it in its present state.
    raw: tuple[Sketch, ...] = field(default=(), init=False)
    frame: "pd.DataFrame | None" = field(default=None, init=False)
    # Columns left out that name a person in several records.
    repeated: tuple[str, ...] = field(default=(), init=False)
    layout: ClassVar[Layout] = "rows"

    def __post_init__(self, tables: Mapping[str, Table], held_out_sites: Sequence[str] | None) -> None:
        super().__post_init__()
        self.encoding = self.encoding or Encoding()
        require(bool(tables), "sites", "none", "at least one site")
        parts = [self._admit(name, table) for name, table in tables.items()]
        for part in parts:
            require_alike(parts[0], part)
        self.store = concatenate(parts)
        self.places = places_of(tables, [len(part) for part in parts])
        if isinstance(self.held_out, Table):
            require_alike(parts[0], self.held_out)
        if held_out_sites is not None:
            self.held_out = self._label_held_out(held_out_sites)

    def _admit(self, name: str, table: Table) -> Table:
        """Check the name and the number of records of a site, and return the records."""
        return Site(name, table).table

    def _label_held_out(self, names: Sequence[str]) -> Table:
        """Return the held-out records, the site of each known."""
        held_out = self.held_out
        known = isinstance(held_out, Table) and len(held_out) == len(names)
        require(known, "held_out_sites", f"{len(names)} names", "one for each held-out record")
        assert isinstance(held_out, Table)
        for name in dict.fromkeys(names):
            require_word("held_out_sites", name, self)
        return replace(held_out, sites=np.array(names, dtype=np.str_))

    @classmethod
    def from_frame(
        cls,
        frame: "pd.DataFrame",
        *,
        site: str,
        targets: Sequence[str],
        held_out: Table | None = None,
        encoding: Encoding | None = None,
    ) -> Self:
        """A federation from one DataFrame with a column that names the site of each record."""
        tables = {
            name: from_frame(part, targets=targets, leave=(site,), place=f"site {name}", encoding=encoding)
            for name, part in by_site(frame, site, "data").items()
        }
        features = (encoding or Encoding()).part(targets)[0]
        return cls(tables, held_out=held_out, encoding=features).revise(frame=frame)

    def __getitem__(self, name: str) -> Site:
        return Site(name, self.records_of(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def cohort(self, names: Sequence[str]) -> "Cohort":
        """These sites as one batch of work, in this order."""
        places = np.array([self.places[name] for name in names], dtype=np.int64).reshape(-1, 2)
        return Cohort(tuple(names), self.store, places[:, 0], places[:, 1], self.mean_site_size)

    def records_of(self, name: str) -> Table:
        """The records of one site, however few."""
        start, size = self.places[name]
        return self.store.take(slice(start, start + size), f"site {name}")

    def with_store(self, store: Table, sizes: Sequence[int], **changed: object) -> Self:
        """The same sites with other records, site after site, as many at each as `sizes` says."""
        return self.revise(store=store, places=places_of(self, sizes), **changed)

    def split(self, marks: NDArray[np.bool_], share: float) -> tuple[Self, Self]:
        """Two federations of the same sites: the records that are not marked, and those that are.

        Args:
            marks: One for each record of the store.
            share: The public probability of a mark.
        """
        parts: list[Self] = []
        for chosen, part in ((~marks, 1 - share), (marks, share)):
            sizes = [int(chosen[start : start + size].sum()) for start, size in self.places.values()]
            records = None if self.records is None else round(self.records * part)
            parts.append(self.with_store(self.store.take(np.flatnonzero(chosen)), sizes, records=records))
        return parts[0], parts[1]

    def pool(self) -> "RowFederation":
        """Return all records at one site: the pooled baseline."""
        return RowFederation({"pooled": self.store}, public=self.public, encoding=self.encoding)

    def digest(self) -> bytes:
        """Hash the records of all sites and those held out; as private as the records."""
        held_out = b"" if self.held_out is None else self.held_out.digest()
        return hashlib.sha256(repr(self.places).encode() + self.store.digest() + held_out).digest()

    def _views(self) -> tuple[Sketch, ...]:
        own = sketch_table(self.store.features, self.store.targets.values())
        raw = self.raw if self.frame is None else sketch_frame(self.frame)
        return (*raw, *own)


def require_rows(federation: Federation) -> RowFederation:
    """Refuse a federation whose sites hold anything but records."""
    if not isinstance(federation, RowFederation):
        raise InvalidValue(f"sites that hold {federation.layout} are not allowed: they must hold records")
    return federation


def places_of(names: Iterable[str], sizes: Sequence[int]) -> dict[str, tuple[int, int]]:
    """The first record of each site in a store, and how many it has."""
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    return {name: (start, size) for name, start, size in zip(names, starts, sizes, strict=True)}


@dataclass(frozen=True, eq=False)
class Cohort:
    """Sites that train together: index of their records in the common store.

    Args:
        names: The sites.
        store: The records of all sites, site after site.
        starts: The first record of each site.
        sizes: The number of records of each; as private as the records.
        mean_site_size: The mean number of records of a site, if it is public.
        holdings: Non-tabular data per site: curves of a vertical party, or environments. Empty for row data.
    """

    names: tuple[str, ...]
    store: Table
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    mean_site_size: float | None = None
    holdings: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    def records_of(self, position: int) -> Table:
        """The records of the site at this position."""
        start = int(self.starts[position])
        return self.store.take(slice(start, start + int(self.sizes[position])))

    def part(self, positions: NDArray[np.int64]) -> "Cohort":
        """The sites at these positions."""
        names = tuple(self.names[int(position)] for position in positions)
        return Cohort(names, self.store, self.starts[positions], self.sizes[positions], self.mean_site_size)

    def buckets(self, most: int) -> list[NDArray[np.int64]]:
        """Positions in buckets of at most `most` sites of similar size, the larger sites first."""
        order = np.argsort(-self.sizes, kind="stable")
        found: list[list[int]] = []
        for position in order.tolist():
            # Padding to the largest of a bucket then wastes at most half.
            fits = found and len(found[-1]) < most and 2 * self.sizes[position] >= self.sizes[found[-1][0]]
            found[-1].append(position) if fits else found.append([position])
        return [np.array(bucket, dtype=np.int64) for bucket in found]


def require_alike(first: Table, other: Table) -> None:
    """Refuse records of other columns or targets than the first ones."""
    if (first.columns, set(first.targets)) != (other.columns, set(other.targets)):
        told = (
            f"{other.place} has columns {', '.join(other.columns)} and targets "
            f"{', '.join(sorted(other.targets))}, {first.place} has others: they must be the same everywhere"
        )
        raise InvalidValue(told, rule="columns and targets must be the same everywhere")
