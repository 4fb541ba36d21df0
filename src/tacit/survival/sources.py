"""Where survival data come from in an experiment file: simulated patients, or a table of your own."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tacit.errors import InvalidValue, require, require_count, require_word
from tacit.keys import Key
from tacit.record import described
from tacit.sites.site import Federation
from tacit.sites.splits import ByColumn, Dealt, held_apart
from tacit.sites.tables import Table, from_frame, joined, read, require_column
from tacit.survival.data import DESIGNS, simulate

if TYPE_CHECKING:
    import pandas as pd

Split = Dealt | ByColumn
TARGETS = ("time", "event")


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
        return self.records - int(self.records * self.held_out + 1e-9)

    def open(self, split: Split, seed: int, *, may_look: bool = False) -> Federation:
        """The federation of simulated patients."""
        if isinstance(split, ByColumn):
            raise InvalidValue('[sites] kind = "by-column" needs data with such a column, not simulated data')
        frame = self._frame(seed)
        return _federation(
            from_frame(frame, targets=TARGETS),
            split,
            Key(seed),
            share=self.held_out,
            public=True,
            # Another draw of the same design is as public as the design.
            reference=from_frame(self._frame(-1 - seed), targets=TARGETS),
            origin={"data": described(self), "sites": described(split)},
        )

    def _frame(self, seed: int) -> "pd.DataFrame":
        options = {"c_mean": self.c_mean, "u_max": self.u_max, "c_step": self.c_step}
        return simulate(self.design, records=self.records, features=self.features, seed=seed, **options)


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
        if self.held_out is not None:
            _require_share(self.held_out)
            require(self.test is None, "held_out", self.held_out, "left out where `test` is given")

    @property
    def public_records(self) -> int | None:
        """The number of records is as private as the records."""
        return None

    def open(self, split: Split, seed: int, *, may_look: bool = False) -> Federation:
        """The federation of these records."""
        frame, place = read(self.path), Path(self.path).name
        column = split.column if isinstance(split, ByColumn) else self.site
        origin = {"data": described(self), "sites": described(split)}
        leave = () if column is None else (column,)
        test = self._table(read(self.test), (), Path(self.test).name) if self.test is not None else None
        usual = 0.2 if may_look and test is None else 0.0
        share = usual if self.held_out is None else self.held_out
        if not isinstance(split, ByColumn):
            whole = self._table(frame, leave, place)
            return _federation(whole, split, Key(seed), share=share, test=test, origin=origin)
        require_column(frame, split.column, place)
        if frame[split.column].isna().any():
            raise InvalidValue(f"column {split.column} in {place} is not allowed: some records have no site")
        parts = {
            str(name): self._table(part, leave, f"site {name}") for name, part in frame.groupby(split.column)
        }
        return _natural(parts, Key(seed), share=share, test=test, origin=origin)

    def _table(self, frame: "pd.DataFrame", leave: tuple[str, ...], place: str) -> Table:
        for column in (self.time, self.event):
            require_column(frame, column, place)
        known = [column for column in leave if column in frame.columns]
        renamed = frame.rename(columns={self.time: "time", self.event: "event"})
        return from_frame(renamed, targets=TARGETS, leave=known, place=place)


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
