"""Sources of survival data in an experiment file: simulated patients, or a table of your own.

Published sets, which are kinds of data too, are in `tacit.survival.data.published`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tacit.errors import (
    MOST_CAUSES,
    MOST_COLUMNS,
    MOST_NUMBERS,
    MOST_RECORDS,
    InvalidValue,
    Refused,
    require,
    require_count,
    require_word,
)
from tacit.learning.record import describe
from tacit.runtime.contracts import fields_of
from tacit.runtime.fingerprints import sketch_frame
from tacit.runtime.keys import Key
from tacit.sites.encoding import Encoding, Value, require_column, with_scaling
from tacit.sites.federation import RowFederation
from tacit.sites.source import SourceBase
from tacit.sites.splits import ByColumn, SplitByCount, held_out_count
from tacit.sites.table import Table, by_site, from_frame, is_identifier
from tacit.sites.table_files import read
from tacit.survival.data import DESIGNS, simulate
from tacit.survival.data.partition import (
    TARGETS,
    Cause,
    PartitionOptions,
    Split,
    horizontal_federation,
    natural_federation,
    require_cause,
    require_cause_events,
    require_share,
    select_cause,
)
from tacit.survival.data.published import PUBLISHED, Published
from tacit.survival.targets import require_values

if TYPE_CHECKING:
    import pandas as pd

# Number of simulated patients, at least, that place a time grid.
REFERENCE = 2000


@dataclass(frozen=True, kw_only=True)
class Simulated(SourceBase):
    """Simulated patients from a known model; the records are public.

    Args:
        design: The simulation design; `tacit list data` describes each.
        records: Number of patients, held-out ones included.
        features: Number of features.
        held_out: The share that is held out to score models on.
        c_mean: Rate (not mean) of the exponential censoring, in designs that have it.
        u_max: Latest censoring time of the uniform censoring, in designs that have it.
        c_step: Mean of log C - log T, in the design that has it.
        censoring: Share of censored records; solved for, instead of the three options before it.
        causes: Number of causes of the design competing; 2 by default.
    """

    design: str = "SDGM1"
    records: int = 2000
    features: int = 10
    held_out: float = 0.2
    c_mean: float | None = None
    u_max: float | None = None
    c_step: float | None = None
    censoring: float | None = None
    causes: int | None = None
    kind: ClassVar[str] = "simulated"
    public = True

    def __post_init__(self) -> None:
        require_word("design", self.design, DESIGNS)
        require_count("records", self.records, MOST_RECORDS)
        require_count("features", self.features, MOST_COLUMNS)
        numbers = self.records * self.features
        require(numbers <= MOST_NUMBERS, "records", self.records, f"at most {MOST_NUMBERS:,} in all features")
        if self.causes is not None:
            require_count("causes", self.causes, MOST_CAUSES)
        require_share(self.held_out)

    @property
    def public_features(self) -> int | None:
        """The number of features."""
        return self.features

    @property
    def public_records(self) -> int | None:
        """Number of training records, from the options."""
        return self.records - held_out_count(self.records, self.held_out)

    def open(self, split: Split, seed: int, *, may_look: bool = False) -> RowFederation:
        """The federation of simulated patients."""
        if isinstance(split, ByColumn):
            raise InvalidValue('[sites] kind = "by-column" needs data with such a column, not simulated data')
        return horizontal_federation(
            from_frame(self._frame(seed), targets=TARGETS),
            split,
            Key(seed),
            PartitionOptions(
                share=self.held_out,
                public=True,
                # Another draw of the same design is as public as the design.
                reference=from_frame(self._frame(-1 - seed, at_least=REFERENCE), targets=TARGETS),
                origin={"data": describe(self), "sites": describe(split)},
            ),
        )

    def _frame(self, seed: int, at_least: int = 0) -> "pd.DataFrame":
        return simulate(
            self.design,
            records=max(self.records, at_least),
            features=self.features,
            seed=seed,
            c_mean=self.c_mean,
            u_max=self.u_max,
            c_step=self.c_step,
            censoring=self.censoring,
            causes=self.causes,
        )


@dataclass(frozen=True, kw_only=True)
class Csv(SourceBase):
    """A table of your own, CSV or Parquet: every other column is a feature, numeric or categorical.

    Args:
        path: The file, relative to the experiment file.
        time: The column of times.
        event: The column of events: 0 for censored, 1 for the event, or the number of its cause.
        site: The column that names the site of each record, if there is one.
        outcome: The column that a regression learns (linear, logistic, poisson), in place of times and
            events.
        entry: The column of entry times (left truncation), from which on a record is at risk; 0 by default.
        weight: The column of case weights; 1 by default.
        cause: The cause to learn about, of several; events of other causes then count as censored. "any"
            counts all causes as the event. By default events keep their codes.
        leave: Columns that are not features, such as the number of a patient.
        levels: The levels of each column of words; each but the first becomes a feature of 0 and 1. For the
            event column, the words in the order of their codes, first the word for censored.
        fill: The value for missing entries of a column: a number, or a level.
        center: The public number that is subtracted from a column.
        scale: The public number that a column is divided by after that.
        standardize: Take `center` and `scale` from the records where they are not given. This looks at all
            records, so a private run refuses it.
        test: A file of public records to score models on.
        held_out: The share of records that is held out for scoring; 0.2 by default. A score reveals
            something about these records, so a private run holds out none, except in a rehearsal.
    """

    path: str
    time: str = "time"
    event: str = "event"
    outcome: str | None = None
    site: str | None = None
    entry: str | None = None
    weight: str | None = None
    cause: Cause | None = None
    leave: Sequence[str] = ()
    levels: Mapping[str, Sequence[Value]] = field(default_factory=dict[str, Sequence[Value]])
    fill: Mapping[str, Value] = field(default_factory=dict[str, Value])
    center: Mapping[str, float] = field(default_factory=dict[str, float])
    scale: Mapping[str, float] = field(default_factory=dict[str, float])
    standardize: bool = False
    test: str | None = None
    held_out: float | None = None
    kind: ClassVar[str] = "csv"

    def __post_init__(self) -> None:
        require(self.time != self.event, "event", self.event, "another column than that of the times")
        taken = [self.time, self.event] if self.outcome is None else [self.outcome]
        for name, given in fields_of(self, ("entry", "weight", "cause")).items():
            require(self.outcome is None or given is None, name, given, "left out beside an outcome")
        for name, given in (("entry", self.entry), ("weight", self.weight)):
            require(given not in taken, name, given, "a column of its own")
            taken += [] if given is None else [given]
        require_cause(self.cause)
        coded = replace(self._given.part([self._coded])[1], levels={})
        for column in (*self._rules.mentioned, *coded.mentioned):
            place = f"levels, fill, center or scale of {column}"
            require(column not in (*taken, self.site, *self.leave), place, "given", "that of a feature")
        if self.held_out is not None:
            require_share(self.held_out)
            require(self.test is None, "held_out", self.held_out, "left out where `test` is given")

    def check(self, split: Split, *, may_look: bool = False) -> None:
        """Refuse a random split of private records under a promise, before reading them.

        One record more would change the whole split: many records would change at a site, and the promise
        covers one.
        """
        if isinstance(split, SplitByCount) and split.count > 1 and not may_look:
            raise Refused(
                f"[sites] count = {split.count} cannot keep a promise about single records of "
                f"{Path(self.path).name}: one more record would change the site of all others. Name real "
                'sites (kind = "by-column"), use one site (count = 1), or declare a rehearsal'
            )

    def open(self, split: Split, seed: int, *, may_look: bool = False) -> RowFederation:
        """The federation of these records."""
        column = split.column if isinstance(split, ByColumn) else self.site
        frame, place = self._read(self.path, column), Path(self.path).name
        leave = (*self.leave, *(() if column is None else (column,)))
        for name in leave:
            require_column(frame, name, place)
        encoding = self._encoding(frame, leave, place, may_look=may_look)
        named = isinstance(split, ByColumn)
        parts = by_site(frame, split.column, place) if named else {place: frame}
        tables = {
            name: self._table(part, leave, f"site {name}" if named else place, encoding)
            for name, part in parts.items()
        }
        test = self._test(encoding, next(iter(tables.values())).columns)
        if self.outcome is None:
            require_cause_events(self.cause, tables.values(), place)
        tables = {name: select_cause(table, self.cause) for name, table in tables.items()}
        share = self.held_out if self.held_out is not None else 0.2 if may_look and test is None else 0.0
        origin = {"data": describe(self), "sites": describe(split)}
        options = PartitionOptions(share=share, test=test, origin=origin, encoding=encoding)
        if isinstance(split, ByColumn):
            made = natural_federation(tables, Key(seed), options)
        else:
            made = horizontal_federation(tables[place], split, Key(seed), options)
        made.taken, made.files = self._pooled_statistics(split), self.paths
        # Without a promise nothing is charged.
        made.raw = () if may_look else sketch_frame(frame)
        made.repeated = tuple(
            name
            for name in self.leave
            if is_identifier(name) and bool(frame[name].dropna().duplicated().any())
        )
        return made

    @property
    def paths(self) -> tuple[str, ...]:
        """The file, beside which the book of the data lies."""
        return (self.path,)

    @property
    def place(self) -> str | None:
        """The file."""
        return self.path

    @property
    def public_files(self) -> Mapping[str, str]:
        """The file of public records to score models on, if there is one."""
        return {} if self.test is None else {"test": self.test}

    def _pooled_statistics(self, split: Split) -> tuple[str, ...]:
        """Describe the statistics that are taken from all records together, whatever the promise."""
        moments = (
            "means and standard deviations of all records, to standardize features",
        ) * self.standardize
        several = isinstance(split, SplitByCount) and split.count > 1
        return moments + ("the site of each record: all records are divided together",) * several

    @property
    def _given(self) -> Encoding:
        return Encoding(levels=self.levels, fill=self.fill, center=self.center, scale=self.scale)

    @property
    def _rules(self) -> Encoding:
        """The encoding of the features."""
        return self._given.part([self._coded])[0]

    @property
    def _coded(self) -> str:
        """The target that may hold words."""
        return self.event if self.outcome is None else self.outcome

    @property
    def _targets(self) -> dict[str, str]:
        """Return the columns of the targets, by their role."""
        if self.outcome is not None:
            return {"outcome": self.outcome}
        found = {"time": self.time, "event": self.event, "entry": self.entry, "weight": self.weight}
        return {name: column for name, column in found.items() if column is not None}

    def _read(self, path: str, column: str | None) -> "pd.DataFrame":
        # Levels are compared as they are written; NA may be one.
        return read(path, words=[*self.levels, *(() if column is None else (column,))])

    def _encoding(
        self, frame: "pd.DataFrame", leave: Sequence[str], place: str, *, may_look: bool
    ) -> Encoding:
        if not self.standardize:
            return self._rules
        if not may_look:
            raise Refused(
                "standardize = true needs means and standard deviations of all records, which would leave "
                "the sites unprotected: give public ones as `center` and `scale` in [data]"
            )
        features = frame.drop(columns=[*leave, *self._targets.values()], errors="ignore")
        return with_scaling(features, self._rules, place)

    def _test(self, encoding: Encoding, columns: tuple[str, ...]) -> Table | None:
        """Return the public records to score on; their features in the order of the others."""
        if self.test is None:
            return None
        frame, place = self._read(self.test, None), Path(self.test).name
        needed = [*encoding.raw(columns), *self._targets.values()]
        for name in needed:
            require_column(frame, name, place)
        return select_cause(self._table(frame[needed], (), place, encoding), self.cause)

    def _table(self, frame: "pd.DataFrame", leave: Sequence[str], place: str, encoding: Encoding) -> Table:
        columns = self._targets
        for name in columns.values():
            require_column(frame, name, place)
        targets = tuple(columns.values())
        coded = self._given.part([self._coded])[1].levels
        both = replace(encoding, levels={**encoding.levels, **coded})
        amounts = [column for name, column in columns.items() if name != "event"]
        found = from_frame(frame, targets=targets, leave=leave, place=place, encoding=both, amounts=amounts)
        named = {name: found.targets[column] for name, column in columns.items()}
        if self.outcome is None:
            entry, weight = named.get("entry"), named.get("weight")
            require_values(named["time"], named["event"], place, None, entry=entry, weight=weight)
        return Table(found.features, named, found.columns, place)


SOURCES: Mapping[str, type[Simulated] | type[Csv] | type[Published]] = {
    Simulated.kind: Simulated,
    Csv.kind: Csv,
    **PUBLISHED,
}
