"""Experiment files: their options, price and execution. Reading a file touches no data."""

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tacit.control.sources import REMOTE_SOURCES as HELD_WORLDS
from tacit.control.sources import SOURCES as WORLD_SOURCES
from tacit.errors import (
    MOST_RELEASES,
    MOST_ROUNDS,
    InvalidFile,
    InvalidValue,
    TacitError,
    require,
    require_count,
    require_name,
)
from tacit.functional.data.remote import SOURCES as HELD_CURVES
from tacit.functional.data.sources import SOURCES as CURVE_SOURCES
from tacit.learning.record import notify
from tacit.learning.task import Task, TaskBase, as_task
from tacit.privacy.contracts import Layout
from tacit.privacy.plan import Plan
from tacit.privacy.policy import Open, Privacy
from tacit.reports.dpia_form import TABLE, Answers, construct_answers
from tacit.runs.queries import with_saved_answers
from tacit.runs.setup import prepare, resolve_aggregator, resolve_sites, sites_warnings
from tacit.runs.spec import OPTIONS, PublicFacts, RunSpec, option_kinds
from tacit.runtime.imports import trusting
from tacit.runtime.refusals import Withheld, withhold_details
from tacit.runtime.silence import suppress_warnings
from tacit.runtime.tables import Kinds, Table, build, construct, read_as, refuse_unknown
from tacit.sites.environments import Variants
from tacit.sites.source import SourceBase, as_source
from tacit.sites.splits import SPLITS, NamedSites, SplitBase, as_split
from tacit.sites.vertical import ByParty
from tacit.survival.data.remote import SOURCES as HELD_RECORDS
from tacit.survival.data.sources import SOURCES

if TYPE_CHECKING:
    from tacit.learning.record import Callback
    from tacit.runs.run import Run
    from tacit.sites.federation import Federation

# The constructors that a table may call, by their kind; the first one is meant if no kind is given.
KINDS: Mapping[str, Kinds] = {
    "data": {
        **SOURCES,
        **CURVE_SOURCES,
        **WORLD_SOURCES,
        **HELD_RECORDS,
        **HELD_CURVES,
        **HELD_WORLDS,
    },
    "sites": {**SPLITS, ByParty.kind: ByParty, Variants.kind: Variants},
    **option_kinds(),
}


@dataclass(frozen=True, kw_only=True)
class Header:
    """Keys of an experiment file outside its tables.

    Args:
        name: The name of the experiment.
        seed: The seed of everything repeatable.
        rounds: The number of rounds.
        baselines: Train each site alone and on pooled records too, if the policy allows it.
    """

    name: str = "experiment"
    seed: int = 0
    rounds: int = 10
    baselines: bool = True

    def __post_init__(self) -> None:
        require_count("rounds", self.rounds, MOST_ROUNDS)
        require_name("name", self.name)


NO_ANSWERS = Answers()


@dataclass(frozen=True, kw_only=True)
class Experiment(Header, RunSpec):
    """Experiment of a file: the options of a run, and the source of its data.

    Args:
        data: The source of the data, a kind of [data].
        sites: The split of the data, a kind of [sites].
        task: The model to train, a kind of [task].
        dpia: Answers for the data-protection page of the run, the table [dpia].
    """

    data: SourceBase
    sites: SplitBase
    task: TaskBase
    dpia: Answers = NO_ANSWERS

    def __post_init__(self) -> None:
        Header.__post_init__(self)
        RunSpec.__post_init__(self)
        # The doors of a user's own classes, as `RunSpec` is that of tasks.
        object.__setattr__(self, "data", as_source(self.data))
        object.__setattr__(self, "sites", as_split(self.sites))

    def plan(self) -> Plan:
        """Return the plan: the promise and its price; touches no data."""
        self.check()
        task = self.data.size_task(self.task, self.sites)
        return prepare(dataclasses.replace(self, task=task), self.facts).plan()

    def warnings(self) -> list[str]:
        """Return warnings about trust in single sites, as far as the sites are known."""
        _, _, aggregation = resolve_sites(self, resolve_aggregator(self, self.task), self.names)
        return sites_warnings(self, aggregation, self.names)

    @property
    def facts(self) -> PublicFacts:
        """Public facts of the file about the sites and their data."""
        return PublicFacts(
            names=self.names, records=self.data.public_records, public=self.public, distant=self._is_remote,
            features=self.data.public_features,
        )  # fmt: skip

    @property
    def names(self) -> tuple[str, ...] | None:
        """The sites; None where the data decide."""
        return tuple(self.sites.names) if self.sites.names else None

    @property
    def public(self) -> bool:
        """True if the records are public data."""
        return self.data.public

    @property
    def _is_remote(self) -> bool:
        """True if the sites hold their data on other machines."""
        return self.data.distant

    def check(self) -> None:
        """Refuse data and rules that do not fit these sites or this promise, before anything is read."""
        parts = {"data": self.data, "sites": self.sites, "task": self.task}
        kinds: dict[str, Layout] = {name: part.layout for name, part in parts.items()}
        if isinstance(self.sites, NamedSites):
            here = f"another one: [data] {self.data.kind} is on this machine, and must be divided among sites"
            require(self._is_remote, "[sites] kind", NamedSites.kind, here)
            kinds |= {"sites": kinds["data"]} if kinds["data"] in NamedSites.layouts else {}
        if len(set(kinds.values())) > 1:
            told = ", ".join(f"[{name}] {parts[name].kind} is of {kind}" for name, kind in kinds.items())
            raise InvalidValue(f"data, sites and task do not go together: {told}")
        rule = resolve_aggregator(self, self.task)
        self.data.check(self.sites, may_look=self._may_look)
        names, _, _ = resolve_sites(self, rule, self.names)
        require_releases(self.privacy, self.rounds, len(names), MOST_RELEASES)

    @property
    def _may_look(self) -> bool:
        return not self.privacy.protects

    def run(
        self, out: str | Path | None, *, resume: bool = False, callbacks: "Sequence[Callback]" = ()
    ) -> "Run":
        """Open the data and run."""
        notify(callbacks, "opening the data")
        return self.run_on(self.open_federation(), out, resume=resume, callbacks=callbacks)

    @suppress_warnings()
    def open_federation(self) -> "Federation":
        """The sites with their data."""
        self.check()
        with self.withhold_details(opening=True):
            return self.data.open(self.sites, self.seed, may_look=self._may_look)

    def withhold_details(self, *, opening: bool = False) -> AbstractContextManager[None]:
        """Withhold details of refusals about private records from all but their owner."""
        private = self.privacy.protects and not self.public
        return withhold_details(private, self.data.place, opening=opening)

    def advise(self, federation: "Federation") -> list[str]:
        """Return advice about the opened records, or where it is kept for their owner."""
        from tacit.runs.setup import advice

        place = None if self.data.place is None else Path(self.data.place)
        private = self.privacy.protects and not self.public
        return advice(
            self.task, federation, Withheld(place), private=private, room=self._most_records(federation)
        )

    def _most_records(self, federation: "Federation") -> int | None:
        """Return the most records of a site that secure sums of records hold; None without a limit."""
        from tacit.runs.setup import most_records

        if self.privacy.noise != "secure" or self.privacy.unit != "record":
            return None
        try:
            return most_records(prepare(self, federation))
        except TacitError:
            # The run is refused, and says why.
            return None

    def run_on(
        self,
        federation: "Federation",
        out: str | Path | None,
        *,
        resume: bool = False,
        callbacks: "Sequence[Callback]" = (),
    ) -> "Run":
        """Run on sites that are open already."""
        from tacit.runs.fit import run_spec

        return run_spec(
            self, federation, baselines=self.baselines, name=self.name, out=out, resume=resume,
            callbacks=callbacks, answers=self.dpia,
        )  # fmt: skip


def require_releases(privacy: Privacy | Open, rounds: int, sites: int, most: int) -> None:
    """Refuse more releases under a promise than can be listed and priced."""
    many = 0 if isinstance(privacy, Open) else rounds * sites
    require(many <= most, "rounds", rounds, f"at most {most // max(sites, 1):,} with {sites:,} sites")


def read(path: str | Path, changes: Sequence[str] = (), *, trust: bool = False) -> Experiment:
    """Read an experiment file.

    Args:
        path: The file, or the directory of a run, which keeps its own.
        changes: Changes to it: `privacy.epsilon=1`, values written as in TOML.
        trust: Import code that a run's directory names; importing executes it.

    Raises:
        InvalidFile: The file, the table and the key at fault, and what is allowed instead.
    """
    with trusting() if trust else nullcontext():
        return read_as(construct_experiment, path, changes)


def load(path: str | Path, task: Task | None = None, *, trust: bool = False) -> "Run":
    """Load the run in a directory.

    Args:
        path: The directory.
        task: The task, for runs of your own network, which no file can hold.
        trust: Import code that the directory names; importing executes it.
    """
    from tacit.runs.directory import Directory
    from tacit.runs.run import read as read_run

    if not (Path(path) / "experiment.toml").is_file():
        raise InvalidFile(f"{path} is not a run: it has no experiment.toml")
    directory = Directory(path)
    known = read(path, trust=trust).task if task is None else as_task(task)
    return read_run(directory, with_saved_answers(known, directory))


def construct_experiment(document: Table, folder: Path) -> Experiment:
    """Construct the experiment of a document; relative paths are relative to `folder`."""
    if "tune" in document:
        raise InvalidFile("it has a table [tune]: choose among its candidates with tacit tune")
    if "sweep" in document:
        raise InvalidFile("it has a table [sweep], which asks for many runs: use tacit sweep, show or report")
    if "study" in document:
        raise InvalidFile(
            "it has a table [study], which asks for many runs: use tacit run, or tacit.experiments.studies"
        )
    asked = document.get("attack")
    if isinstance(asked, dict) and ("kinds" in asked or "against" in asked):
        raise InvalidFile(
            "its table [attack] asks for more than one run: use tacit run, or tacit.experiments.attacks"
        )
    header = [entry.name for entry in dataclasses.fields(Header)]
    refuse_unknown("", document, [*header, *KINDS, TABLE])
    if "task" not in document:
        raise InvalidFile('[task] is missing: an experiment needs one, at least kind = "logistic-hazard"')
    document = _with_defaults(document)
    head = construct(Header, "", {key: value for key, value in document.items() if key in header})
    # An option that the file does not have is as `RunSpec` has it; all else is made with its own defaults.
    parts = {
        name: build(name, document, folder, kinds)
        for name, kinds in KINDS.items()
        if name in document or name not in OPTIONS
    }
    if "rounds" not in document:
        learned = as_task(parts["task"]).resolve(parts.get("privacy", Open()))
        head = dataclasses.replace(head, rounds=learned.usual.get("rounds", head.rounds))
    return Experiment(**vars(head), **parts, dpia=construct_answers(document))


def _with_defaults(document: Table) -> Table:
    """Fill in the defaults that the task kind implies (`Task.usual`)."""
    task: object = document["task"]
    named = cast(Table, task).get("kind") if isinstance(task, dict) else None
    kind = KINDS["task"].get(named) if isinstance(named, str) else None
    found = dict(document)
    usual: Mapping[str, Any] = kind.usual if kind is not None and issubclass(kind, TaskBase) else {}
    for name, value in usual.items():
        if name == "rounds":
            # The task that learns under a promise may need others: `construct_experiment` asks it.
            continue
        given = found.setdefault(name, {} if name in KINDS else value)
        if name in KINDS and isinstance(given, dict):
            found[name] = {"kind": value, **cast(Table, given)}
    return found
