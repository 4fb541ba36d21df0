"""Parties that hold different columns of the same subjects: a vertical federation.

A column is whatever is known of every subject under one name, such as a curve. How many subjects there are is
public, and the order of them is agreed: row i is the same person at every party.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from tacit.errors import MOST_SITES, InvalidValue, require, require_count, require_word
from tacit.runtime.contracts import Layout
from tacit.runtime.sketches import Digests, Sketch, sketch
from tacit.sites.federation import FEWEST_RECORDS, Cohort, Federation, Site
from tacit.sites.splits import SplitBase
from tacit.sites.table import Table


class Column(Protocol):
    """Protocol of one named column: its values for every subject."""

    def __len__(self) -> int: ...

    def take(self, rows: ArrayLike | slice, place: str | None = None) -> Self:
        """That of the subjects at these positions."""
        ...

    def digest(self) -> bytes:
        """A fingerprint of every number; as private as they are."""
        ...

    def digest_rows(self) -> Digests:
        """Digest each subject, so that the same people are recognized in other data (subjects,)."""
        ...


@dataclass(frozen=True, eq=False)
class Subjects:
    """Columns of the same subjects, side by side, by name."""

    columns: Mapping[str, Column]

    def __post_init__(self) -> None:
        require(bool(self.columns), "columns", "none", "at least one")
        (first, known), *others = self.columns.items()
        for name, column in others:
            if len(column) != len(known):
                raise InvalidValue(
                    f"{name} has {len(column):,} subjects and {first} has {len(known):,}: every column must "
                    "hold the same subjects, in the same order",
                    rule=f"{name} and {first} must hold the same subjects, in the same order",
                )

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def sites(self) -> None:
        """A subject is at all parties."""

    @property
    def at_a_glance(self) -> None:
        """A choice by scores of subjects uses them up."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401
        require_word("column", name, self.columns)
        return self.columns[name]

    def take(self, rows: ArrayLike | slice, place: str | None = None) -> "Subjects":
        """The subjects at these positions."""
        return Subjects({name: column.take(rows, place) for name, column in self.columns.items()})

    def digest(self) -> bytes:
        """A fingerprint of every column."""
        parts = [name.encode() + column.digest() for name, column in self.columns.items()]
        return hashlib.sha256(b"".join(parts)).digest()


class VerticalFederation(Federation):
    """Parties that hold different columns of the same subjects.

    Args:
        parties: The columns of each party, by its name and theirs.
        held_out: Subjects to score models on, every column of them; excluded from training.
        held_out_public: True if those are public.
        public: True if the columns of the parties are public: simulated, or published.
        origin: The tables of the experiment file that these data come from.
        order: The names of all columns in an order that does not depend on the parties that hold them.
        taken: Facts taken from all records together to make these columns, in words.
    """

    layout: ClassVar[Layout] = "columns"

    def __init__(
        self,
        parties: Mapping[str, Mapping[str, Column]],
        *,
        held_out: Subjects | None = None,
        held_out_public: bool = False,
        public: bool = False,
        origin: Mapping[str, Any] | None = None,
        order: Sequence[str] | None = None,
        taken: Sequence[str] = (),
    ) -> None:
        require(bool(parties), "parties", "none", "at least one party")
        self.holdings = {name: dict(columns) for name, columns in parties.items()}
        everything: dict[str, Column] = {}
        for party, columns in self.holdings.items():
            require(bool(columns), f"party {party}", "no column", "at least one column")
            for name, column in columns.items():
                require(name not in everything, f"column {name}", "two parties", "one party that holds it")
                everything[name] = column
        listed = tuple(everything) if order is None else tuple(order)
        require(sorted(listed) == sorted(everything), "order", list(listed), "each column once")
        self.subjects = Subjects({name: everything[name] for name in listed})
        few = len(self.subjects) < FEWEST_RECORDS
        require(not few, "subjects", len(self.subjects), f"at least {FEWEST_RECORDS}", about_records=True)
        # Subjects have no rows.
        self._rows = Table(np.zeros((len(self.subjects), 0)), {}, ())
        self._sites = {name: Party(name, self._rows, columns) for name, columns in self.holdings.items()}
        if held_out is not None:
            missing = set(everything) ^ set(held_out.columns)
            require(not missing, "held_out", sorted(held_out.columns), f"the columns {sorted(everything)}")
        super().__init__(
            held_out=held_out, held_out_public=held_out_public, public=public, records=len(self.subjects),
            origin=origin, taken=taken,
        )  # fmt: skip

    def __getitem__(self, name: str) -> "Party":
        return self._sites[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sites)

    def __len__(self) -> int:
        return len(self._sites)

    def holder(self, column: str) -> str:
        """The party that holds a column."""
        require_word("column", column, self.subjects.columns)
        return next(party for party, columns in self.holdings.items() if column in columns)

    def cohort(self, names: Sequence[str]) -> Cohort:
        """These parties, in this order, with what they hold."""
        nothing = np.zeros(len(names), dtype=np.int64)
        sizes = nothing + len(self.subjects)
        held = tuple(self.holdings[name] for name in names)
        return Cohort(tuple(names), self._rows, nothing, sizes, self.mean_site_size, held)

    def records_of(self, name: str) -> Table:
        """Return an empty table: parties have columns instead of rows."""
        return self._sites[name].table

    def pool(self) -> "VerticalFederation":
        """Return all columns at one party: the pooled baseline."""
        return VerticalFederation({"pooled": dict(self.subjects.columns)}, public=self.public)

    def _views(self) -> tuple[Sketch, ...]:
        # By each column: the same people are recognized by any of them.
        return tuple(sketch(column.digest_rows()) for column in self.subjects.columns.values())

    def digest(self) -> bytes:
        """Hash the columns of all parties and those held out; as private as the columns."""
        held_out = b"" if self.held_out is None else self.held_out.digest()
        places = repr({party: list(columns) for party, columns in self.holdings.items()}).encode()
        return hashlib.sha256(places + self.subjects.digest() + held_out).digest()


@dataclass(frozen=True)
class Party(Site):
    """One holder of columns: its name, which is public, and its columns, which stay with it."""

    columns: Mapping[str, Column] = field(default_factory=dict[str, Column])


@dataclass(frozen=True, kw_only=True)
class ByParty(SplitBase):
    """Parties that hold different columns of the same subjects.

    Args:
        count: Number of parties. Columns are dealt to `party-1`, `party-2`, ... in turn, and the first party
            holds the response.
        parties: The columns of each party, by its name; instead of `count`.
        active: The party that holds the response, if it is not the first.
    """

    count: int | None = None
    parties: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    active: str | None = None
    kind: ClassVar[str] = "columns"
    layout: ClassVar[Layout] = "columns"

    def __post_init__(self) -> None:
        if self.count is not None:
            require_count("count", self.count, MOST_SITES)
            require(not self.parties, "count", self.count, "left out where `parties` are named")
        taken: set[str] = set()
        for party, columns in self.parties.items():
            for name in columns:
                require(name not in taken, f"parties.{party}", name, "a column that no other party holds")
                taken.add(name)
        if self.active is not None:
            require_word("active", self.active, self.names)

    @property
    def names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride] computed
        """The parties."""
        if self.parties:
            return tuple(self.parties)
        return tuple(f"party-{number}" for number in range(1, (self.count or 2) + 1))

    def deal(self, predictors: Sequence[str], response: str) -> dict[str, tuple[str, ...]]:
        """Assign columns to parties.

        Raises:
            InvalidValue: A party would hold nothing, or a named column does not exist.
        """
        names, holder = self.names, self.active or self.names[0]
        if not self.parties:
            found = {name: tuple(predictors[place :: len(names)]) for place, name in enumerate(names)}
        else:
            known = [*predictors, response]
            for party, columns in self.parties.items():
                for name in columns:
                    require_word(f"parties.{party}", name, known)
            left = sorted(set(predictors) - {name for columns in self.parties.values() for name in columns})
            require(not left, "parties", f"no party holds {', '.join(left)}", "a holder of every predictor")
            found = {party: tuple(columns) for party, columns in self.parties.items()}
        if not any(response in columns for columns in found.values()):
            found[holder] = (*found[holder], response)
        idle = [name for name, columns in found.items() if not columns]
        if idle:
            given = f"{len(names)} parties for {len(predictors)} predictor{'s' * (len(predictors) != 1)}"
            told = idle[0] if len(idle) == 1 else f"{idle[0]} and {len(idle) - 1} more"
            raise InvalidValue(
                f"{given} is not allowed: {told} would hold no column; use fewer parties, or more predictors"
            )
        return found
