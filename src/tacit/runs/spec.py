"""Options of one run as a single frozen object, which travels whole from a file or Python to the last round.

An option is a field of `RunSpec` and a class elsewhere. Everything else that has to know the options (tables
of an experiment file and of a run's directory, what a ticket depends on, what is refused beside columns)
reads them off the fields. A spec knows no data: what depends on data is decided in `runs.setup`, which makes
a `PreparedRun` of it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from typing import Any, Protocol, cast

from tacit.aggregation.attacks import Attack
from tacit.aggregation.base import Aggregator, user_choice
from tacit.aggregation.defence.clustering import Clusters
from tacit.aggregation.defence.quarantine import Quarantine
from tacit.aggregation.mean import Mean
from tacit.aggregation.server import Plain, ServerStep
from tacit.engines.base import Engine, Local
from tacit.learning.noisy_scores import EXACT, Noise
from tacit.learning.query import EvaluationQueryBase, QueryBase
from tacit.learning.record import describe
from tacit.learning.task import TaskBase, as_task
from tacit.privacy.accounting.release import Release
from tacit.privacy.contracts import Layout
from tacit.privacy.forecast import Forecast
from tacit.privacy.mechanisms.adaptive_clipping import AdaptiveClipping
from tacit.privacy.mechanisms.base import BoundedSum, Mechanism
from tacit.privacy.plan import Plan, PlannedPrice, plan
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.privacy.statement import Statement, released_in_words
from tacit.runs.evaluation import Evaluation
from tacit.runs.stopping import HeldOutWatch, Stopping
from tacit.runtime.keys import Key
from tacit.runtime.tables import Kinds
from tacit.sites.federation import Federation, RowFederation
from tacit.sites.sampling import Poisson, Sampling
from tacit.sites.table import Records

# The folders of the tasks.
WORKLOADS = ("survival", "functional", "control", "regression")
# The key of a field's metadata under which its constructors stand.
KINDS = "kinds"


class Augmenter(Protocol):
    """Protocol of synthetic data: sites add synthetic records to their own before the first round."""

    @property
    def epsilon(self) -> float | None:
        """Part of the budget that it spends; None in an open run."""
        ...

    def check(self, federation: Federation, privacy: Privacy | Open, provenance: Provenance) -> None:
        """Refuse what these records or this privacy policy do not allow, before anything is charged."""
        ...

    def reserve(self, privacy: Privacy | Open) -> Privacy | Open:
        """Return the privacy policy that is left for training after the synthetic records have their part."""
        ...

    def release(self, privacy: Privacy | Open, names: Collection[str]) -> tuple[Release, ...]:
        """Return the releases to charge before any synthetic record is drawn."""
        ...

    def augment(
        self, federation: Federation, privacy: Privacy | Open, provenance: Provenance, key: Key
    ) -> RowFederation:
        """The federation with synthetic records added."""
        ...


def _kinds(*places: str) -> Mapping[str, tuple[str, ...]]:
    """Name the constructors of an option: each `module:Class`, or `module:MAPPING` of several by kind."""
    return {KINDS: places}


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """All options of a run; those with constructors are tables of an experiment file, in this order.

    Args:
        task: The task, which says what is learned.
        privacy: The privacy policy: what may leave a site.
        aggregation: The aggregation rule.
        server: The server step, applied to the combined update.
        sampling: The sampling of the sites of a round.
        stop: Early stopping, which also chooses the round to keep.
        augment: Synthetic records that sites add to their own.
        quarantine: The rule that watches the sites and excludes suspects.
        attack: The attack of malicious sites, in a rehearsal.
        clusters: The clustering of sites, for several models.
        engine: The engine that runs the local work.
        rounds: The number of rounds.
        seed: The seed of everything repeatable.
        evaluate: Scores that are bought on private held-out records.
        spend_anyway: Run although the forecast says that nothing can be learned.
    """

    task: TaskBase = field(metadata=_kinds(*(f"tacit.{workload}.tasks:TASKS" for workload in WORKLOADS)))
    privacy: Privacy | Open = field(
        default=Open(), metadata=_kinds("tacit.privacy.policy:Privacy", "tacit.privacy.policy:Open")
    )
    aggregation: Aggregator = field(default=Mean(), metadata=_kinds("tacit.aggregation:AGGREGATORS"))
    server: ServerStep = field(
        default=Plain(),
        metadata=_kinds(*(f"tacit.aggregation.server:{step}" for step in ("Plain", "Momentum", "Adam"))),
    )
    sampling: Sampling = field(
        default=Poisson(), metadata=_kinds("tacit.sites.sampling:Poisson", "tacit.sites.sampling:Fixed")
    )
    stop: Stopping | None = field(default=None, metadata=_kinds("tacit.runs.stopping:Stopping"))
    augment: Augmenter | None = field(default=None, metadata=_kinds("tacit.survival.augment:AUGMENTATIONS"))
    quarantine: Quarantine | None = field(
        default=None, metadata=_kinds("tacit.aggregation.defence.quarantine:Quarantine")
    )
    attack: Attack | None = field(default=None, metadata=_kinds("tacit.aggregation.attacks:ATTACKS"))
    clusters: Clusters | None = field(
        default=None, metadata=_kinds("tacit.aggregation.defence.clustering:Clusters")
    )
    engine: Engine = field(
        default=Local(), metadata=_kinds("tacit.engines.base:Local", "tacit.engines.flower.nodes:Flower")
    )
    evaluate: Evaluation | None = field(default=None, metadata=_kinds("tacit.runs.evaluation:Evaluation"))
    rounds: int = 1
    seed: int = 0
    # Decides whether a run begins, not what it is.
    spend_anyway: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        # The one door of tasks: a user's own that does not inherit `TaskBase` is adapted here, and one that
        # cannot keep a promise without a clip bound becomes one that can.
        object.__setattr__(self, "task", as_task(self.task).resolve(self.privacy))

    def describe(self, **resolved: object) -> dict[str, object]:
        """Describe the choices, some resolved, as tables of an experiment file; None has no table."""
        parts: dict[str, Any] = {**self.choices(), **resolved}
        return {name: describe(part) for name, part in parts.items() if part}

    def choices(self) -> dict[str, Any]:
        """Return every option that is a table of a file, by its name."""
        return {name: vars(self)[name] for name in OPTIONS}

    def beside(self) -> list[str]:
        """Name the options in use beside task, privacy policy, rule and engine.

        Those that are absent unless they are asked for come first.
        """
        common = ("task", "privacy", "aggregation", "engine")
        chosen = self.choices()
        asked = [name for name in OPTIONS if name not in common and chosen[name] != OPTIONS[name]]
        return sorted(asked, key=lambda name: OPTIONS[name] is not None)


# Every option that is a table of a file, with its default.
OPTIONS: Mapping[str, Any] = {
    entry.name: entry.default for entry in fields(RunSpec) if KINDS in entry.metadata
}


def option_kinds() -> dict[str, Kinds]:
    """The constructors of every option by their kind; the first one is meant where none is named."""
    return {
        entry.name: dict(pair for place in entry.metadata[KINDS] for pair in _constructors(place))
        for entry in fields(RunSpec)
        if entry.name in OPTIONS
    }


def _constructors(place: str) -> list[tuple[str, type[Any]]]:
    """The constructors at a place, each with its kind."""
    module, _, name = place.partition(":")
    found: Any = vars(import_module(module))[name]
    return list(cast(Kinds, found).items()) if isinstance(found, Mapping) else [(found.kind, found)]


@dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """Public facts about a federation, known before it is opened.

    Args:
        names: The sites; None if the data decide them.
        records: The number of records of all sites, if that is public.
        public: True if the records are public data.
        distant: True if the sites hold their data on other machines.
        layout: The layout of the data; None if it has been checked already.
        features: The number of features, if it is known.
    """

    names: tuple[str, ...] | None = None
    records: int | None = None
    public: bool = False
    distant: bool = False
    layout: Layout | None = None
    features: int | None = None

    @classmethod
    def of(cls, federation: Federation) -> "PublicFacts":
        """Return the public facts of an open federation."""
        return cls(
            names=tuple(federation), records=federation.records, public=federation.public,
            distant=federation.distant, layout=federation.layout,
            features=len(federation.store.columns) if isinstance(federation, RowFederation) else None,
        )  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class PreparedRun:
    """A run before its first charge.

    Args:
        spec: The run's options.
        facts: Public facts about the sites.
        names: The sites; if the data decide them, the smallest number that the rule accepts.
        task: The bound task; everything that depends on the policy and the data is decided.
        aggregation: The aggregation rule, resolved for these sites.
        clusters: The clustering rule, resolved for these sites.
        training: The part of the privacy budget that is left for training.
        mechanism: The mechanism that enforces it.
        queries: The initial and final query.
        watched: The noisy loss that is bought after every round, if there is one.
        provenance: Public facts, and everything that leaves unprotected.
        warnings: Warnings about trust in single sites.
        packing: Adaptive clipping, if the policy has `clip_quantile`.
        federation: The sites' data; None in a plan, and everything below is then empty as well.
        watch: The scores that early stopping looks at.
        test: The records that the result is scored on.
    """

    spec: RunSpec
    facts: PublicFacts
    names: tuple[str, ...]
    task: TaskBase
    aggregation: Aggregator
    clusters: Clusters | None
    training: Privacy | Open
    mechanism: Mechanism
    queries: tuple[QueryBase, ...]
    watched: BoundedSum | None
    provenance: Provenance
    warnings: tuple[str, ...] = ()
    packing: AdaptiveClipping | None = None
    federation: Federation | None = None
    watch: HeldOutWatch | None = None
    test: Records | None = None

    def with_answers(self, found: dict[str, Any]) -> "PreparedRun":
        """Return the prepared run with the results of the queries before the first round."""
        task = self.task.with_answers(found)
        return replace(self, task=task, mechanism=self.mechanism.with_task(task))

    def solve_query(self, question: QueryBase) -> Mechanism:
        """The mechanism of a question."""
        return self.training.solve_query(question, self.mechanism)

    @property
    def evaluation(self) -> EvaluationQueryBase | None:
        """The query that scores the model on private held-out records; None without [evaluate]."""
        asked, spec = self.spec.evaluate, self.spec
        return (
            None
            if asked is None
            else asked.query(self.task, spec.privacy, self.facts.records, len(self.names))
        )

    def solve_evaluation(self) -> Mechanism:
        """The mechanism of that query."""
        assert self.spec.evaluate is not None, "there is an evaluation"
        privacy = self.spec.privacy
        return privacy.solve_evaluation(self.spec.evaluate.price(privacy), len(self.names))

    def cell_noise(self, sites: int) -> Noise:
        """Return the noise in each count of all held-out records, where `sites` sites have answered."""
        if isinstance(self.spec.privacy, Open) or self.spec.evaluate is None:
            return EXACT
        noise = Noise(scale=1 / self.spec.evaluate.price(self.spec.privacy))
        if not noise.variance:
            return EXACT
        # Shares of more sites than are counted on are more than one noise.
        deviation = sites * self.solve_evaluation().deviation(sites)
        return replace(noise, copies=deviation**2 / noise.variance)

    def evaluation_price(self) -> list[Release]:
        """Return the releases about held-out records."""
        asked = self.spec.evaluate
        return [] if asked is None else asked.release(self.solve_evaluation(), self.names)

    def price_of(self, question: QueryBase) -> list[Release]:
        """Return the releases that a query costs."""
        priced = self.solve_query(question).release(0, self.names)
        return [replace(release, purpose=question.kind) for release in priced]

    def releases_of_round(self, number: int, joining: Sequence[str] | None = None) -> list[Release]:
        """Return the releases of a round among the sites that join it (by default all)."""
        watched = () if self.watched is None else self.watched.release(number, self.names)
        trained = self.mechanism.release(number, self.names if joining is None else joining)
        return [*trained, *watched]

    def planned_releases(self, first: int = 1) -> list[Release]:
        """Return the releases of the rounds from `first` on, with every site in each."""
        rounds = range(first, self.spec.rounds + 1)
        return [release for number in rounds for release in self.releases_of_round(number)]

    def price(self) -> list[Release]:
        """Return all releases of the run, with every site in each round: its one price."""
        once = [release for part in self._once() for release in part]
        return [*once, *self.planned_releases(), *self.evaluation_price()]

    def _once(self) -> tuple[list[Release], ...]:
        """Return the releases outside the rounds: synthetic records, queries, the number of records."""
        spec = self.spec
        added = () if spec.augment is None else spec.augment.release(spec.privacy, self.names)
        asked = [release for question in self.queries for release in self.price_of(question)]
        return list(added), asked, list(self.mechanism.count_releases(self.names))

    def plan(self) -> Plan:
        """Return the price in numbers and words, with warnings."""
        once = [release for part in reversed(self._once()) for release in part]
        differ = self.spec.rounds if self.mechanism.rounds else 1
        each = tuple(tuple(self.releases_of_round(number + 1)) for number in range(differ))
        price = PlannedPrice(tuple(once), each, self.spec.rounds, tuple(self.evaluation_price()))
        models = 1 if self.clusters is None else self.clusters.models
        made = plan(
            self.spec.privacy, self.task, self.mechanism, price,
            sites=len(self.names), records=self.facts.records, models=models,
        )  # fmt: skip
        return replace(
            made,
            warnings=(*made.warnings, *self._few(), *self.warnings),
            statement=self._of_unknown(made),
            choices=(*self.task.choices(self.spec.privacy, self.spec.rounds), *self._evaluation_choice()),
            forecast=self.forecast(self.facts.records),
        )

    def _evaluation_choice(self) -> list[str]:
        asked = self.spec.evaluate
        return [] if asked is None else [asked.choice(self.spec.privacy)]

    def forecast(self, records: int | None) -> Forecast | None:
        """Forecast the accuracy with this number of records of all sites."""
        known = self.task.forecast(self.mechanism, len(self.names), records, self.facts.features)
        if known is None or self.facts.names is not None:
            return known
        return replace(known, sites=None)

    def _of_unknown(self, made: Plan) -> Statement:
        """Describe the releases of each site, if only the data name the sites; the plan has made names up."""
        if self.facts.names is not None or made.statement.unit != "record":
            return made.statement
        return replace(made.statement, released=tuple(released_in_words(made.releases, named=False)))

    def _few(self) -> list[str]:
        many = len(self.names)
        if self.facts.names is not None or many == 1:
            return []
        return [f"the data decide the number of sites: {many} are needed at least"]

    def describe(self, federation: Federation, **changed: object) -> dict[str, object]:
        """The choices of this run as tables of an experiment file, some of them changed."""
        resolved: dict[str, object] = {
            "task": self.task, "aggregation": user_choice(self.aggregation), "clusters": self.clusters,
            "engine": self.spec.engine.chosen, **changed,
        }  # fmt: skip
        return {**(federation.origin or {}), **self.spec.describe(**resolved)}
