"""Contracts of what sites are sent and send back: updates, work, and queries that are asked once.

`QueryBase` has every hook of a query; a structural one is adapted once by `as_initial_query` and
`as_final_query`, where a task is prepared.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol

from tacit.learning.noisy_scores import Noise
from tacit.learning.record import Evaluated, Fault
from tacit.privacy.contracts import Layout, Norm, ShareOf
from tacit.privacy.mechanisms.base import Mechanism
from tacit.runtime.arrays import Array, as_numpy
from tacit.runtime.contracts import Adapted
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort

# Messages that sites answer: a round of training, the initial query ("opening"), the final one ("closing"),
# training after the choice of a model ("choosing"), the number of records, and scores on held-out records.
WorkKind = Literal["round", "choosing", "opening", "closing", "count", "evaluation"]


@dataclass(frozen=True, eq=False)
class Updates:
    """Updates of a cohort: one row per site.

    Args:
        names: The sites, in the order of the rows.
        matrix: Their updates (sites, coordinates).
        round: Their round; public draws of a round depend on it.
        metrics: Metrics of each site beside its update, in lists of numbers by their names. No promise covers
            them: a task leaves them out unless its provenance allows them.
        faults: Sites that were asked and are not among the rows, and why.
    """

    names: tuple[str, ...]
    matrix: Array
    round: int = 0
    metrics: Mapping[str, Mapping[str, list[float]]] = field(
        default_factory=dict[str, Mapping[str, list[float]]]
    )
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        # A user's own task may send tensors.
        object.__setattr__(self, "matrix", as_numpy(self.matrix))


class Query(Protocol):
    """Query to all sites, once: sums of bounded contributions of records.

    Args:
        kind: Its name.
        share: Share of a record-level promise that it may cost.
    """

    kind: ClassVar[str]
    share: ClassVar[float]

    @property
    def width(self) -> int:
        """Number of sums; public."""
        ...

    def record_bound(self, norm: Norm) -> float:
        """Return the bound of one record's contribution to the answer; longer ones are clipped."""
        ...

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Compute each site's answer, through the mechanism."""
        ...


class InitialQuery(Query, Protocol):
    """Query of facts about the sites that must be known before the first round."""

    @property
    def placeholder(self) -> dict[str, Any]:
        """Return an answer of the right shape, to try out later steps before anything is paid."""
        ...

    def decode(self, combined: Array, noise: float = 0.0) -> dict[str, Any]:
        """Decode the combined answers as fields of the task, plain data; `noise` as in `FinalQuery.apply`."""
        ...


class FinalQuery(Query, Protocol):
    """Query of facts about the sites that a trained model needs."""

    def apply(self, state: Array, combined: Array, noise: float = 0.0) -> Array:
        """Add the combined answers to the state; `noise` is the deviation of each of their numbers."""
        ...


class Work(ABC):
    """Base of what an engine sends to the sites: a task, a query, or work around a task."""

    work_kind: ClassVar[WorkKind] = "round"

    @property
    def sent(self) -> int | None:
        """Count of numbers that each site sends; None if it sends as many as the state has."""
        return None

    @abstractmethod
    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Train at each site, on its own records, and return the updates."""


class QueryBase(Work):
    """Base of the queries; `Query` says what its members are."""

    kind: ClassVar[str] = "query"
    share: ClassVar[float] = 0.1
    share_of: ClassVar[ShareOf] = "epsilon"
    layout: ClassVar[Layout] = "rows"
    # True if it is asked even where the records may be looked at.
    always: ClassVar[bool] = False
    # The columns that it asks about, each with its holder; none for rows.
    columns: Mapping[str, str] = MappingProxyType({})
    # The most cells that one record moves by 1 each, where the answer counts records.
    cells_per_record: int | None = None

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of sums; public."""

    @property
    def sent(self) -> int | None:
        """Count of numbers that each site sends: one for each sum."""
        return self.width

    @abstractmethod
    def record_bound(self, norm: Norm) -> float:
        """Return the bound of one record's contribution to the answer; longer ones are clipped."""


class InitialQueryBase(QueryBase):
    """Base of initial queries, of facts that must be known before the first round."""

    work_kind: ClassVar[WorkKind] = "opening"

    @property
    @abstractmethod
    def placeholder(self) -> dict[str, Any]:
        """Return an answer of the right shape, to try out later steps before anything is paid."""

    @abstractmethod
    def decode(self, combined: Array, noise: float = 0.0) -> dict[str, Any]:
        """Decode the combined answers as fields of the task, plain data; `noise` as in `FinalQuery.apply`."""


class FinalQueryBase(QueryBase):
    """Base of final queries, of facts that a trained model needs."""

    work_kind: ClassVar[WorkKind] = "closing"

    @abstractmethod
    def apply(self, state: Array, combined: Array, noise: float = 0.0) -> Array:
        """Add the combined answers to the state; `noise` is the deviation of each of their numbers."""


class EvaluationQueryBase(QueryBase):
    """Base of evaluation queries: a table of counts of held-out records, from which a model is scored.

    Each held-out record is in one cell of the table, so that one record more or less moves it by 1 in every
    norm, however many cells there are. Cells are chosen by public numbers and by the model alone.
    """

    kind: ClassVar[str] = "evaluation"
    work_kind: ClassVar[WorkKind] = "evaluation"
    cells_per_record: int | None = 1

    def record_bound(self, norm: Norm) -> float:
        """Return 1: a record is in one cell."""
        return 1.0

    @abstractmethod
    def scores(self, state: Array, counts: Array, noise: Noise) -> Evaluated:
        """Score a model.

        Args:
            state: The model.
            counts: The noisy counts of all sites (cells,).
            noise: Noise in each count.
        """


class _AdaptedInitialQuery(Adapted, InitialQueryBase):
    """An initial query of a user's own that does not inherit our base."""

    @property
    def width(self) -> int:
        """Number of sums."""
        return self.own.width

    @property
    def placeholder(self) -> dict[str, Any]:
        """Return an answer of the right shape."""
        return self.own.placeholder

    def record_bound(self, norm: Norm) -> float:
        """Return the bound of one record's contribution."""
        return self.own.record_bound(norm)

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Compute each site's answer."""
        return self.own.train(state, cohort, mechanism, key)

    def decode(self, combined: Array, noise: float = 0.0) -> dict[str, Any]:
        """Decode the combined answers."""
        return self.own.decode(combined, noise)


class _AdaptedFinalQuery(Adapted, FinalQueryBase):
    """A final query of a user's own that does not inherit our base."""

    @property
    def width(self) -> int:
        """Number of sums."""
        return self.own.width

    def record_bound(self, norm: Norm) -> float:
        """Return the bound of one record's contribution."""
        return self.own.record_bound(norm)

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Compute each site's answer."""
        return self.own.train(state, cohort, mechanism, key)

    def apply(self, state: Array, combined: Array, noise: float = 0.0) -> Array:
        """The state with the combined answers in it."""
        return self.own.apply(state, combined, noise)


def as_initial_query(query: InitialQuery | None) -> InitialQueryBase | None:
    """Return an initial query with every hook; None if there is none."""
    return query if query is None or isinstance(query, InitialQueryBase) else _AdaptedInitialQuery(query)


def as_final_query(query: FinalQuery | None) -> FinalQueryBase | None:
    """Return a final query with every hook; None if there is none."""
    return query if query is None or isinstance(query, FinalQueryBase) else _AdaptedFinalQuery(query)
