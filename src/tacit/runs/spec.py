"""Options of one run as a single frozen object, which travels whole from a file or Python to the last round.

An option is a field of `RunSpec` and a class elsewhere. Everything else that has to know the options (tables
of an experiment file and of a run's directory, what a ticket depends on, what is refused beside columns)
reads them off the fields. A spec knows no data: what depends on data is decided in `runs.setup`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import Any, Protocol, cast

from tacit.aggregation.attacks import Attack
from tacit.aggregation.base import Aggregator
from tacit.aggregation.defence.clustering import Clusters
from tacit.aggregation.defence.quarantine import Quarantine
from tacit.aggregation.mean import Mean
from tacit.aggregation.server import Plain, ServerStep
from tacit.engines.base import Engine
from tacit.engines.local import Local
from tacit.learning.record import describe
from tacit.learning.task import TaskBase, as_task
from tacit.privacy.accounting.release import Release
from tacit.privacy.policy import Open, Privacy
from tacit.privacy.provenance import Provenance
from tacit.runs.stopping import Stopping
from tacit.runtime.keys import Key
from tacit.runtime.tables import Kinds
from tacit.sites.federation import Federation, RowFederation
from tacit.sites.sampling import Poisson, Sampling

# The key of a field's metadata under which its constructors stand.
KINDS = "kinds"


class Augmenter(Protocol):
    """Protocol of synthetic data: sites add synthetic records to their own before the first round."""

    @property
    def epsilon(self) -> float | None:
        """Part of the budget that it spends; None in an open run."""
        ...

    def check(self, federation: Federation, privacy: Privacy | Open, provenance: Provenance) -> None:
        """Refuse what cannot be done with these records and this promise, before anything is charged."""
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
    """

    task: TaskBase = field(
        metadata=_kinds(
            *(f"tacit.{workload}.tasks:TASKS" for workload in ("survival", "functional", "control"))
        )
    )
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
        default=Local(), metadata=_kinds("tacit.engines.local:Local", "tacit.engines.flower.nodes:Flower")
    )
    rounds: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        # The one door of tasks: a user's own that does not inherit `TaskBase` is adapted here.
        object.__setattr__(self, "task", as_task(self.task))

    def describe(self, **resolved: object) -> dict[str, object]:
        """The choices, some of them resolved, as tables of an experiment file; what is None has no table."""
        parts: dict[str, Any] = {**self.choices(), **resolved}
        return {name: describe(part) for name, part in parts.items() if part}

    def choices(self) -> dict[str, Any]:
        """Return every option that is a table of a file, by its name."""
        return {name: vars(self)[name] for name in OPTIONS}

    def beside(self) -> list[str]:
        """The options that were asked for beside a task, a promise, a rule and an engine, by name.

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
