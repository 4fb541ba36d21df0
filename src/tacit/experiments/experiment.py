"""Experiments: what a file asks for, what that will cost, and running it. Reading one touches no data."""

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tacit.aggregation import AGGREGATORS
from tacit.aggregation.attacks.base import Attack
from tacit.aggregation.attacks.model import ATTACKS
from tacit.aggregation.base import Aggregator, as_aggregator
from tacit.aggregation.defence.clustering import Clusters
from tacit.aggregation.defence.quarantine import Quarantine
from tacit.aggregation.server import Adam, Momentum, Plain
from tacit.aggregation.warnings import aggregation_warnings, min_sites_for
from tacit.control.sources import REMOTE_SOURCES as HELD_WORLDS
from tacit.control.sources import SOURCES as WORLD_SOURCES
from tacit.control.tasks import TASKS as WORLD_TASKS
from tacit.engines.flower.nodes import Flower
from tacit.engines.local import Local
from tacit.errors import InvalidFile, InvalidValue, require, require_count, require_name
from tacit.functional.data.remote import SOURCES as HELD_CURVES
from tacit.functional.data.sources import SOURCES as CURVE_SOURCES
from tacit.functional.tasks import TASKS as CURVE_TASKS
from tacit.learning.progress import notify
from tacit.learning.task import Query
from tacit.privacy.accounting.release import Release
from tacit.privacy.contracts import layout_of
from tacit.privacy.plan import Plan, plan
from tacit.privacy.policy import Open, Privacy
from tacit.runs.checks import require_plain, resolve_aggregator
from tacit.runs.clusters import require_compatible_clusters, resolve_for_clusters
from tacit.runs.queries import Augmenter, final_query_of, initial_query_of, with_saved_answers
from tacit.runs.stopping import Stopping
from tacit.runtime.imports import trusting
from tacit.runtime.limits import MOST_RELEASES, MOST_ROUNDS
from tacit.runtime.refusals import withhold_details
from tacit.runtime.silence import suppress_warnings
from tacit.runtime.tables import Kinds, Table, build, construct, read_as, refuse_unknown
from tacit.sites.environments import Variants
from tacit.sites.sampling import Fixed, Poisson
from tacit.sites.splits import SPLITS, NamedSites
from tacit.sites.vertical import ByParty
from tacit.survival.augment import AUGMENTATIONS
from tacit.survival.data.remote import SOURCES as HELD_RECORDS
from tacit.survival.data.sources import SOURCES
from tacit.survival.tasks import TASKS

if TYPE_CHECKING:
    from tacit.learning.progress import Callback
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
    "task": {**TASKS, **CURVE_TASKS, **WORLD_TASKS},
    "privacy": {promise.kind: promise for promise in (Privacy, Open)},
    "aggregation": AGGREGATORS,
    "server": {step.kind: step for step in (Plain, Momentum, Adam)},
    "sampling": {draw.kind: draw for draw in (Poisson, Fixed)},
    "stop": {Stopping.kind: Stopping},
    "augment": AUGMENTATIONS,
    "quarantine": {Quarantine.kind: Quarantine},
    "attack": ATTACKS,
    "clusters": {Clusters.kind: Clusters},
    "engine": {engine.kind: engine for engine in (Local, Flower)},
}


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a file says outside its tables.

    Args:
        name: What to call the experiment.
        seed: What repeats.
        rounds: How many rounds.
        baselines: Whether to train each site alone and on pooled records too, where that may be known.
    """

    name: str = "experiment"
    seed: int = 0
    rounds: int = 10
    baselines: bool = True

    def __post_init__(self) -> None:
        require_count("rounds", self.rounds, MOST_ROUNDS)
        require_name("name", self.name)


@dataclass(frozen=True, kw_only=True)
class Experiment(Header):
    """An experiment, as its file says it: one object for each table."""

    data: Any
    sites: Any
    task: Any
    privacy: Privacy | Open
    aggregation: Any
    server: Any
    sampling: Any
    stop: Stopping | None
    augment: Augmenter | None
    quarantine: Quarantine | None
    attack: Attack | None
    clusters: Clusters | None
    engine: Any

    def plan(self) -> Plan:
        """What it promises and costs; touches no data."""
        self.check()
        task = (
            self.task if not hasattr(self.data, "size_task") else self.data.size_task(self.task, self.sites)
        )
        paid = self.stop is not None and self.stop.epsilon is not None
        require_compatible_clusters(
            self.clusters, self.privacy, watched=self.quarantine is not None, paid=paid, rounds=self.rounds
        )
        require_plain(self.privacy, clusters=self.clusters, quarantine=self.quarantine)
        names, aggregation = self._resolve_sites()
        stop, watched = self.stop or Stopping(), list[Release]()
        training = stop.reserve(self.privacy if self.augment is None else self.augment.reserve(self.privacy))
        if isinstance(self.privacy, Privacy) and stop.epsilon is not None:
            noise = stop.noise(self.privacy, self.rounds)
            watched = [stop.release(self.privacy, noise, name, 1) for name in names]
        added = () if self.augment is None else self.augment.release(self.privacy, names)
        made = plan(
            self.privacy,
            task,
            names,
            aggregation,
            self.rounds,
            sampling=self.sampling.kind,
            records=self.data.public_records,
            training=training,
            also=watched,
            once=added,
            questions=self._questions(task),
            watched=self.quarantine is not None,
            models=1 if self.clusters is None else self.clusters.resolve(names).models,
        )
        few = () if self.sites.names or len(names) == 1 else (
            f"the data decide how many sites there are: {len(names)} are needed at least",
        )  # fmt: skip
        return dataclasses.replace(made, warnings=(*made.warnings, *few, *self.warnings()))

    def warnings(self) -> list[str]:
        """What its author may want to reconsider about who is believed, as far as sites are known."""
        names, aggregation = self._resolve_sites()
        if layout_of(self.task) == "columns":
            # Nobody's columns are outvoted by others.
            return []
        known = len(names) if self.sites.names else None
        return aggregation_warnings(aggregation, known, self.privacy, self.quarantine)

    def _resolve_sites(self) -> tuple[tuple[str, ...], Aggregator]:
        """The sites, and how their updates are combined; where the data decide, as few sites as will do."""
        aggregation = as_aggregator(self.aggregation)
        models = 1 if self.clusters is None else self.clusters.min_models
        fewest = 0 if self.sites.names else models * min_sites_for(aggregation, self.privacy)
        names = self.sites.names or tuple(f"site-{number}" for number in range(1, fewest + 1))
        return names, resolve_for_clusters(aggregation, self.clusters, names, self.privacy)

    def _questions(self, task: Any) -> list[Query]:  # noqa: ANN401
        """What is asked of the sites once; data that are public, or may be looked at, need not be opened."""
        opening, closing = initial_query_of(task), final_query_of(task)
        # Nobody looks at what is elsewhere, whoever may.
        public = not self._is_remote and (self._may_look or getattr(self.data, "public", False))
        known = public or getattr(task, "horizon", None) is not None
        known = known and not getattr(opening, "always", False)
        return [part for part in (None if known else opening, closing) if part is not None]

    def check(self) -> None:
        """Refuse what these sites and this promise cannot have, data and rules, before anything is read."""
        kinds = {"data": layout_of(self.data), "sites": layout_of(self.sites), "task": layout_of(self.task)}
        if isinstance(self.sites, NamedSites):
            here = f"another one: [data] {self.data.kind} is here, to be dealt out"
            require(self._is_remote, "[sites] kind", NamedSites.kind, here)
            kinds |= {"sites": kinds["data"]} if kinds["data"] in NamedSites.layouts else {}
        if len(set(kinds.values())) > 1:
            told = ", ".join(
                f"[{name}] {getattr(self, name).kind} is of {kind}" for name, kind in kinds.items()
            )
            raise InvalidValue(f"data, sites and task do not go together: {told}")
        beside = ("stop", "augment", "quarantine", "attack", "clusters", "server", "sampling")
        resolve_aggregator(self.task, self.aggregation, **{name: getattr(self, name) for name in beside})
        if hasattr(self.data, "check"):
            self.data.check(self.sites, may_look=self._may_look)
        names, _ = self._resolve_sites()
        require_releases(self.privacy, self.rounds, len(names), MOST_RELEASES)

    @property
    def _is_remote(self) -> bool:
        """Whether the sites hold their data themselves."""
        return getattr(self.data, "distant", False)

    @property
    def _may_look(self) -> bool:
        return isinstance(self.privacy, Open) or self.privacy.rehearsal

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
        """Keep what refusals would tell about the records of this experiment for their owner, if private."""
        private = not self._may_look and not getattr(self.data, "public", False)
        return withhold_details(private, getattr(self.data, "path", None), opening=opening)

    def run_on(
        self,
        federation: "Federation",
        out: str | Path | None,
        *,
        resume: bool = False,
        callbacks: "Sequence[Callback]" = (),
    ) -> "Run":
        """Run on sites that are open already."""
        from tacit.runs.trainer import fit

        return fit(
            self.task,
            federation,
            privacy=self.privacy,
            aggregation=self.aggregation,
            server=self.server,
            sampling=self.sampling,
            stop=self.stop,
            augment=self.augment,
            quarantine=self.quarantine,
            attack=self.attack,
            clusters=self.clusters,
            engine=self.engine,
            rounds=self.rounds,
            seed=self.seed,
            baselines=self.baselines,
            name=self.name,
            out=out,
            resume=resume,
            callbacks=callbacks,
        )


def require_releases(privacy: Privacy | Open, rounds: int, sites: int, most: int) -> None:
    """Refuse more releases under a promise than can be listed and priced."""
    many = 0 if isinstance(privacy, Open) else rounds * sites
    require(many <= most, "rounds", rounds, f"at most {most // max(sites, 1):,} with {sites:,} sites")


def read(path: str | Path, changes: Sequence[str] = (), *, trust: bool = False) -> Experiment:
    """Read an experiment file.

    Args:
        path: The file, or the directory of a run, which keeps its own.
        changes: What to change in it: `privacy.epsilon=1`, values written as in TOML.
        trust: Whether to import code that a run's directory names; importing executes it.

    Raises:
        InvalidFile: The file, the table and the key at fault, and what is allowed instead.
    """
    with trusting() if trust else nullcontext():
        return read_as(construct_experiment, path, changes)


def load(path: str | Path, task: Any = None, *, trust: bool = False) -> "Run":  # noqa: ANN401
    """The run that a directory remembers.

    Args:
        path: The directory.
        task: What was learnt, for runs of your own network, which no file can hold.
        trust: Whether to import code that the directory names; importing executes it.
    """
    from tacit.runs.directory import Directory
    from tacit.runs.run import read as read_run

    if not (Path(path) / "experiment.toml").is_file():
        raise InvalidFile(f"{path} is not a run: it has no experiment.toml")
    directory, known = Directory(path), task if task is not None else read(path, trust=trust).task
    return read_run(directory, with_saved_answers(known, directory))


def construct_experiment(document: Table, folder: Path) -> Experiment:
    """The experiment that a document says, its files beside `folder`."""
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
    refuse_unknown("", document, [*header, *KINDS])
    if "task" not in document:
        raise InvalidFile('[task] is missing: an experiment needs one, at least kind = "logistic-hazard"')
    document = _with_defaults(document)
    head = construct(Header, "", {key: value for key, value in document.items() if key in header})
    absent = {"privacy": Open(), **dict.fromkeys(("stop", "augment", "quarantine", "attack", "clusters"))}
    parts: dict[str, Any] = {
        name: absent[name]
        if name in absent and name not in document
        else build(name, document, folder, KINDS[name])
        for name in KINDS
    }
    return Experiment(**vars(head), **parts)


def _with_defaults(document: Table) -> Table:
    """A document with what it means by what it does not say, because of what it learns."""
    task: object = document["task"]
    named = cast(Table, task).get("kind") if isinstance(task, dict) else None
    kind = KINDS["task"].get(named) if isinstance(named, str) else None
    found = dict(document)
    for name, value in getattr(kind, "usual", {}).items():
        given = found.setdefault(name, {} if name in KINDS else value)
        if name in KINDS and isinstance(given, dict):
            found[name] = {"kind": value, **cast(Table, given)}
    return found
