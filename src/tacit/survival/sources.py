"""Where survival data come from in an experiment file: simulated patients, or a table of your own."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tacit.errors import InvalidValue, require, require_count, require_word
from tacit.keys import Key
from tacit.record import described
from tacit.sites.site import Federation
from tacit.sites.splits import ByColumn, Dealt, held_apart, held_out_count
from tacit.sites.tables import Table, by_site, from_frame, joined, read, require_column
from tacit.survival.data import DESIGNS, simulate
from tacit.survival.targets import require_values

if TYPE_CHECKING:
    import pandas as pd

Split = Dealt | ByColumn
TARGETS = ("time", "event")
# How many simulated patients are drawn, at least, to place a time grid by.
REFERENCE = 2000


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """Simulated patients, whose truth is known and who are nobody's secret.

    Args:
        design: Which; `tacit list data` describes each.
        records: How many patients, held-out ones included.
        features: How many features.
        held_out: The share that is held out to score models on.
        c_mean: An option of the design.
        u_max: An option of the design.
        c_step: An option of the design.
    """

    design: str = "SDGM1"
    records: int = 2000
    features: int = 10
    held_out: float = 0.2
    c_mean: float | None = None
    u_max: float | None = None
    c_step: float | None = None
    kind: ClassVar[str] = "simulated"

    def __post_init__(self) -> None:
        require_word("design", self.design, DESIGNS)
        require_count("records", self.records)
        require_count("features", self.features)
        _require_share(self.held_out)

    @property
    def public_records(self) -> int | None:
        """How many records are trained on: the file says it."""
        return self.records - held_out_count(self.records, self.held_out)

    def open(self, split: Split, seed: int, *, may_look: bool = False) -> Federation:
        """The federation of simulated patients."""
        if isinstance(split, ByColumn):
            raise InvalidValue('[sites] kind = "by-column" needs data with such a column, not simulated data')
        return _federation(
            from_frame(self._frame(seed), targets=TARGETS),
            split,
            Key(seed),
            share=self.held_out,
            public=True,
            # Another draw of the same design is as public as the design.
            reference=from_frame(self._frame(-1 - seed, at_least=REFERENCE), targets=TARGETS),
            origin={"data": described(self), "sites": described(split)},
        )

    def _frame(self, seed: int, at_least: int = 0) -> "pd.DataFrame":
        options = {"c_mean": self.c_mean, "u_max": self.u_max, "c_step": self.c_step}
        records = max(self.records, at_least)
        return simulate(self.design, records=records, features=self.features, seed=seed, **options)


@dataclass(frozen=True, kw_only=True)
class Csv:
    """A table of your own, CSV or Parquet: every other column is a feature and must hold numbers.

    Args:
        path: The file, relative to the experiment file.
        time: The column of times.
        event: The column of events: 1 happened, 0 censored.
        site: The column that names the site of each record, if there is one.
        test: A file of public records to score models on.
        held_out: The share that is held out to score models on. A score tells about those records, so a
            private run has none unless it is a rehearsal, or scores on public records; 0.2 elsewhere.
    """

    path: str
    time: str = "time"
    event: str = "event"
    site: str | None = None
    test: str | None = None
    held_out: float | None = None
    kind: ClassVar[str] = "csv"

    def __post_init__(self) -> None:
        require(self.time != self.event, "event", self.event, "another column than that of the times")
        if self.held_out is not None:
            _require_share(self.held_out)
            require(self.test is None, "held_out", self.held_out, "left out where `test` is given")

    @property
    def public_records(self) -> int | None:
        """The number of records is as private as the records."""
        return None

    def open(self, split: Split, seed: int, *, may_look: bool = False) -> Federation:
        """The federation of these records."""
        column = split.column if isinstance(split, ByColumn) else self.site
        frame, place = read(self.path, words=column), Path(self.path).name
        if column is not None:
            require_column(frame, column, place)
        origin = {"data": described(self), "sites": described(split)}
        if isinstance(split, ByColumn):
            parts = by_site(frame, split.column, place)
            tables = {name: self._table(part, column, f"site {name}") for name, part in parts.items()}
        else:
            tables = {place: self._table(frame, column, place)}
        test = self._test(column, next(iter(tables.values())).columns)
        usual = 0.2 if may_look and test is None else 0.0
        share = usual if self.held_out is None else self.held_out
        if isinstance(split, ByColumn):
            return _natural(tables, Key(seed), share=share, test=test, origin=origin)
        return _federation(tables[place], split, Key(seed), share=share, test=test, origin=origin)

    def _test(self, column: str | None, columns: tuple[str, ...]) -> Table | None:
        """The public records to score on; their features in the order of the others."""
        if self.test is None:
            return None
        frame, place = read(self.test, words=column), Path(self.test).name
        for name in (*columns, self.time, self.event):
            require_column(frame, name, place)
        return self._table(frame[[*columns, self.time, self.event]], None, place)

    def _table(self, frame: "pd.DataFrame", column: str | None, place: str) -> Table:
        for name in (self.time, self.event):
            require_column(frame, name, place)
        targets, leave = (self.time, self.event), () if column is None else (column,)
        found = from_frame(frame, targets=targets, leave=leave, place=place)
        named = {"time": found.targets[self.time], "event": found.targets[self.event]}
        require_values(named["time"], named["event"], place)
        return Table(found.features, named, found.columns, place)


SOURCES: Mapping[str, type[Simulated] | type[Csv]] = {Simulated.kind: Simulated, Csv.kind: Csv}


def _federation(
    whole: Table,
    split: Dealt,
    key: Key,
    *,
    share: float,
    test: Table | None = None,
    public: bool = False,
    reference: Table | None = None,
    origin: Mapping[str, Any],
) -> Federation:
    """One table dealt out, a share of it held out first."""
    trained, apart = held_apart(whole, share, key)
    training = whole.take(trained)
    tables = {name: training.take(rows, f"site {name}") for name, rows in split(training, key).items()}
    return Federation(
        tables,
        held_out=test if len(apart) == 0 else whole.take(apart, "the held-out records"),
        held_out_public=public or len(apart) == 0,
        public=public,
        records=len(training) if public else None,
        reference=reference,
        origin=origin,
    )


def _natural(
    parts: Mapping[str, Table], key: Key, *, share: float, test: Table | None, origin: Mapping[str, Any]
) -> Federation:
    """Sites as they are, a share of each held out."""
    apart = {name: held_apart(part, share, key / name) for name, part in parts.items()}
    tables = {name: part.take(apart[name][0]) for name, part in parts.items()}
    held = [part.take(apart[name][1]) for name, part in parts.items() if len(apart[name][1])]
    apart_again = joined(held, "the held-out records") if held else test
    return Federation(tables, held_out=apart_again, held_out_public=not held, origin=origin)


def _require_share(given: float) -> None:
    require(0 <= given < 1, "held_out", given, "at least 0 and below 1")
