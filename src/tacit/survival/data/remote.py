"""Remote survival data: the agreement on tables that sites hold on machines of their own.

The experiment file lists the columns and how they become numbers; paths and local column names are the site's
own business. Nothing here discloses a record.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tacit.errors import InvalidValue, choices, require, require_count, require_word
from tacit.learning.record import describe
from tacit.learning.task import TaskBase
from tacit.runtime.contracts import fields_of
from tacit.runtime.tables import construct, refuse_unknown
from tacit.sites.encoding import Encoding, Value, require_column
from tacit.sites.federation import RowFederation
from tacit.sites.remote import (
    RemoteRowFederation,
    blank_tables,
    read_site_file,
    require_member,
    require_named_sites,
)
from tacit.sites.source import SourceBase
from tacit.sites.splits import NamedSites, SplitBase
from tacit.sites.table import Table, from_frame, is_identifier
from tacit.sites.table_files import read
from tacit.survival.data.partition import Cause, require_cause, select_cause
from tacit.survival.models.learner import SurvivalLearner
from tacit.survival.models.newton_ph import NewtonPH
from tacit.survival.record_checks import require_horizon
from tacit.survival.statistics.private_cox_task import PrivateCox
from tacit.survival.targets import require_survival, require_values

if TYPE_CHECKING:
    import pandas as pd

MEND = "a site without events cannot take part"


@dataclass(frozen=True, kw_only=True)
class SiteRecordsConfig:
    """A site's own settings for its records.

    Args:
        path: The file, CSV or Parquet, relative to the folder of the settings.
        columns: This site's name of a column, by its name in the experiment; by default the same.
    """

    path: str
    columns: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, kw_only=True)
class RemoteRecords(SourceBase):
    """Remote survival tables: the agreement with sites that hold them on machines of their own.

    Args:
        columns: The raw features, in their order.
        time: The column of times.
        event: The column of events: 0 for censored, 1 for the event, or the number of its cause.
        outcome: The column that a regression learns (linear, logistic, poisson), in place of times and
            events.
        entry: The column of entry times (left truncation), from which on a record is at risk; 0 by default.
        weight: The column of case weights; 1 by default.
        cause: The cause to learn about, of several; events of other causes then count as censored. "any"
            counts all causes as the event.
        levels: The levels of each column of words; each but the first becomes a feature of 0 and 1. For the
            event column, the words in the order of their codes, first the word for censored.
        fill: The value for missing entries of a column: a number, or a level.
        center: The public number that is subtracted from a column.
        scale: The public number that a column is divided by after that.
        records: Number of records at all sites, if that number is public.
        test: A file of records for scoring, at the coordinator; ignored where it does not exist.
        site: The column of that file that names the site of each record, if there is one.
        test_public: The records of the test file are public; if not, only a rehearsal may use them.
        reference: A file of public records like those of the sites, at the coordinator.
        public: The records of the sites are public.
    """

    columns: Sequence[str]
    time: str = "time"
    event: str = "event"
    outcome: str | None = None
    entry: str | None = None
    weight: str | None = None
    cause: Cause | None = None
    levels: Mapping[str, Sequence[Value]] = field(default_factory=dict[str, Sequence[Value]])
    fill: Mapping[str, Value] = field(default_factory=dict[str, Value])
    center: Mapping[str, float] = field(default_factory=dict[str, float])
    scale: Mapping[str, float] = field(default_factory=dict[str, float])
    records: int | None = None
    test: str | None = None
    site: str | None = None
    test_public: bool = True
    reference: str | None = None
    public: bool = False
    kind: ClassVar[str] = "held-records"
    distant: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(len(self.columns) > 0, "columns", list(self.columns), "the names of the features")
        everything = [*self.columns, *self._targets.values()]
        twice = [name for name in everything if everything.count(name) > 1]
        require(not twice, "columns", twice[0] if twice else "", "different for each column")
        require_cause(self.cause)
        for name, given in fields_of(self, ("entry", "weight", "cause")).items():
            require(self.outcome is None or given is None, name, given, "left out beside an outcome")
        for name, rules in fields_of(self, ("levels", "fill", "center", "scale")).items():
            for column in rules:
                require_word(name, column, (*self.columns, self._coded) if name == "levels" else self.columns)
        if self.records is not None:
            require_count("records", self.records)
        if self.site is not None:
            require(self.site not in everything, "site", self.site, "a column of its own, in `test`")
        for name in self.columns:
            require(
                not is_identifier(name),
                "columns",
                name,
                "features: by its name it is an identifier; leave it out",
            )
        require(len(self._features) > 0, "columns", list(self.columns), "such that a number comes of them")

    @property
    def public_features(self) -> int | None:
        """The number of features that the columns become."""
        return len(self._rules.names(self.columns))

    @property
    def public_records(self) -> int | None:
        """Number of training records, if the file says it."""
        return self.records

    @property
    def public_files(self) -> Mapping[str, str]:
        """The files of public records, to score models on and to place time grids."""
        found = {"test": self.test, "reference": self.reference}
        return {key: path for key, path in found.items() if path is not None}

    def check(self, split: SplitBase, *, may_look: bool = False) -> None:
        """Refuse a split of records that are at the sites already."""
        require_named_sites(split, self.kind)

    def open(self, split: NamedSites, seed: int, *, may_look: bool = False) -> RemoteRowFederation:
        """The sites, without their records."""
        test = None if self.test is None else self._public_file(self.test, self.site)
        reference = None if self.reference is None else self._public_file(self.reference)
        return RemoteRowFederation(
            blank_tables(split.names, self._features, tuple(self._targets)),
            held_out=None if test is None else replace(test, sites=None),
            held_out_sites=None if test is None or test.sites is None else test.sites.tolist(),
            held_out_public=self.test_public,
            public=self.public,
            records=self.records,
            reference=reference,
            origin={"data": describe(self), "sites": describe(split)},
            encoding=self._rules,
        )

    def at_site(
        self,
        name: str,
        holding: Mapping[str, Any],
        folder: Path,
        *,
        sites: NamedSites | None = None,
        task: TaskBase | None = None,
    ) -> RowFederation:
        """Return the federation of one site, with the records that its settings point to.

        Args:
            name: The site.
            holding: The table [data] of its settings.
            folder: Their folder.
            sites: The participating sites, if they are to be checked.
            task: The task, if the records are to be checked for it.

        Raises:
            TacitError: An error that its administrator can mend, by the names of fields and columns; no value
                of a record is in it.
        """
        require_member(name, sites)
        held = construct(SiteRecordsConfig, "data", dict(holding))
        table = self._own(held, folder, f"site {name}")
        _require_valid(table, None)
        table = select_cause(table, self.cause)
        if task is not None:
            _require_valid(table, task.causes)
        if isinstance(task, SurvivalLearner | NewtonPH | PrivateCox):
            require_survival(table, table.place, MEND, task.causes)
            if task.last_end is not None:
                require_horizon(table, task.last_end, table.place)
        return RowFederation({name: table}, public=self.public, encoding=self._rules)

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
    def _features(self) -> tuple[str, ...]:
        """The features as models see them."""
        return self._rules.names(self.columns)

    @property
    def _targets(self) -> dict[str, str]:
        """Return the columns of the targets, by their role."""
        if self.outcome is not None:
            return {"outcome": self.outcome}
        found = {"time": self.time, "event": self.event, "entry": self.entry, "weight": self.weight}
        return {name: column for name, column in found.items() if column is not None}

    def _public_file(self, path: str, site: str | None = None) -> Table | None:
        """Read public records of the coordinator; None where the file is missing, as at the sites."""
        if not Path(path).is_file():
            return None
        place = Path(path).name
        frame = read(path, words=[*self.levels, *(() if site is None else (site,))])
        for name in (*self.columns, *self._targets.values(), *(() if site is None else (site,))):
            require_column(frame, name, place)
        table = select_cause(self._table(frame, place), self.cause)
        return table if site is None else replace(table, sites=frame[site].to_numpy(dtype=np.str_))

    def _own(self, held: SiteRecordsConfig, folder: Path, place: str) -> Table:
        """Return the records of a site, its columns under the names that are agreed."""
        import pandas as pd

        known = [*self.columns, *self._targets.values()]
        refuse_unknown("[data.columns] ", held.columns, known)
        own = {name: held.columns.get(name, name) for name in known}
        for name, theirs in own.items():
            twice = list(own.values()).count(theirs) > 1
            require(not twice, f"[data.columns] {name}", theirs, "a column of its own")
        frame = read_site_file("[data] path", held.path, folder, words=[own[name] for name in self.levels])
        there = {str(column) for column in frame.columns}
        for name, theirs in own.items():
            if theirs not in there:
                # Other columns stay unsaid: in a file without headings, they are a record.
                told = (
                    f'{place}: its file has no column "{theirs}", which is {name} in the experiment; give '
                    f"its name there, as in [data.columns] {name} = ..."
                )
                raise InvalidValue(told, rule=told)
        named = pd.DataFrame({name: frame[theirs] for name, theirs in own.items()})
        try:
            return self._table(named, place)
        except InvalidValue as error:
            told = self._explain_mismatch(named, own, place)
            raise InvalidValue(told, rule=told, rows=error.rows) from None

    def _table(self, frame: "pd.DataFrame", place: str) -> Table:
        targets = self._targets
        chosen = frame[[*self.columns, *targets.values()]]
        amounts = [column for name, column in targets.items() if name != "event"]
        found = from_frame(
            chosen, targets=tuple(targets.values()), place=place, encoding=self._given, amounts=amounts
        )
        named = {name: found.targets[column] for name, column in targets.items()}
        return Table(found.features, named, found.columns, place)

    def _explain_mismatch(self, frame: "pd.DataFrame", own: Mapping[str, str], place: str) -> str:
        """Return a message that names the column at odds with the agreement, without any of its values."""
        for name, theirs in own.items():
            if not self._fits(name, frame):
                words = self._given.levels.get(name)
                allowed = "finite numbers" if words is None else choices([str(word) for word in words])
                missing = " or nothing" if name in self.fill else ", and nothing may be missing"
                return (
                    f'{place}: column "{theirs}", which is {name} in the experiment, does not match the '
                    f"agreement: it must hold {allowed}{missing}"
                )
        return f"{place}: its columns do not match the agreement"

    def _fits(self, name: str, frame: "pd.DataFrame") -> bool:
        rules: dict[str, Mapping[str, Any]] = {
            "levels": self.levels, "fill": self.fill, "center": self.center, "scale": self.scale,
        }  # fmt: skip
        alone: dict[str, Any] = {
            part: {name: rule[name]} if name in rule else {} for part, rule in rules.items()
        }
        try:
            if name in self._targets.values():
                return bool(np.isfinite(self._given.codes(name, frame[name], "")).all())
            return bool(np.isfinite(Encoding(**alone).apply(frame[[name]]).to_numpy(dtype=np.float64)).all())
        except InvalidValue:
            return False


def _require_valid(table: Table, causes: int | None) -> None:
    """Refuse invalid times and events, and causes beyond `causes` if given; the message holds no value."""
    if "time" not in table.targets:
        # An outcome is checked by the task that learns it.
        return
    entry, weight = table.targets.get("entry"), table.targets.get("weight")
    time, event = table.targets["time"], table.targets["event"]
    require_values(time, event, table.place, causes, entry=entry, weight=weight)


SOURCES: Mapping[str, type[RemoteRecords]] = {RemoteRecords.kind: RemoteRecords}
