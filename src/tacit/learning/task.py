"""The contract of what is learnt: a task trains a cohort of sites and knows nothing of the loop around it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar

import numpy as np

from tacit.learning.record import Fault
from tacit.privacy.contracts import QuerySpec, TaskSpec
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.provenance import Provenance
from tacit.runtime.arrays import Array, as_numpy
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort, Federation
from tacit.sites.table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    # A task says what it costs without loading torch; only training needs it.


Made = TypeVar("Made")
# A score that decides, and its good direction.
Goal = tuple[str, Literal["max", "min"]]


@dataclass(frozen=True, eq=False)
class Updates:
    """What a cohort sends: one row per site.

    Args:
        names: The sites, in the order of the rows.
        matrix: Their updates (sites, coordinates).
        round: Which round they are of; what is drawn in public for a round is drawn by it.
        metrics: What each site tells of its work beside its update, in lists of numbers by their names. No
            promise covers it: a task tells nothing unless its provenance allows it.
        faults: Who was asked and is not among the rows, and why.
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


class Trainable(Protocol):
    """Whatever sends sites to work on their records."""

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """What each site makes of the state, by its own records."""
        ...


class Query(QuerySpec, Trainable, Protocol):
    """A question to all sites, asked once: `train` gives sums to which each record contributes something
    bounded. Only ratios of the sums may matter, not their size.
    """  # noqa: D205

    @property
    def width(self) -> int:
        """How many sums there are; public."""
        ...


class InitialQuery(Query, Protocol):
    """What must be known of the sites before the first round."""

    @property
    def placeholder(self) -> dict[str, Any]:
        """An answer like any other, to try out what comes later before anything is paid."""
        ...

    def decode(self, combined: Array, noise: float = 0.0) -> dict[str, Any]:
        """What the combined answers say: values of fields of the task, plain data; `noise` as for closing."""
        ...


class FinalQuery(Query, Protocol):
    """What a model needs to know of the sites once it is trained."""

    def apply(self, state: Array, combined: Array, noise: float = 0.0) -> Array:
        """The state with the combined answers in it; `noise` is the deviation of each of their numbers."""
        ...


class Task(TaskSpec, Protocol):
    """What a group of sites learns. The state is one flat vector of doubles."""

    def bind(self, federation: Federation, provenance: Provenance) -> Self:
        """This task with everything decided that depends on the federation, before anything is charged.

        Raises:
            InvalidValue: These data cannot be learnt from; the message names site and field.
            Refused: Something would have to be taken from private records.
        """
        ...

    @property
    def identity(self) -> str | None:
        """Everything that its work depends on beside data and state; None if that cannot be written down."""
        ...

    @property
    def goal(self) -> Goal:
        """The score that counts, and its good direction."""
        ...

    @property
    def initial_query(self) -> InitialQuery | None:
        """What has to be asked before the first round, if anything has; known once it is settled."""
        ...

    @property
    def final_query(self) -> FinalQuery | None:
        """What has to be asked after the last round, if anything has."""
        ...

    def start(self, federation: Federation, key: Key) -> Array:
        """The state before the first round; public."""
        ...

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """How far each site moves the state by its local work.

        Args:
            state: One state for all sites (coordinates), or one for each (sites, coordinates).
            cohort: The sites.
            mechanism: What may leave a record; whole updates are guarded by the engine.
            key: The key of the round; each site draws from `key / name`.
        """
        ...

    def advance(self, state: Array, step: Array) -> Array:
        """The next state, after the server's step."""
        ...

    def score(self, state: Array, held_out: Any) -> dict[str, float]:  # noqa: ANN401
        """How good the state is on records, of the kind that it learns from, that nobody trained on."""
        ...

    def losses(self, state: Array, table: Table) -> "NDArray[np.float64]":
        """The loss of each record; stays at the site unless noise is added to its sum."""
        ...

    def model(self, state: Array) -> Any:  # noqa: ANN401
        """What the user predicts with."""
        ...


def at_round(task: Made, number: int, rounds: int) -> Made:
    """The task as it is in a round, if that makes a difference to it: a pace that falls, say."""
    wanted = getattr(task, "at_round", None)
    return task if wanted is None else wanted(number, rounds)


def stop_reason(task: object, state: Array) -> str | None:
    """Why there is nothing left to learn, in words, if a task knows when it is done."""
    wanted = getattr(task, "stop_reason", None)
    return None if wanted is None or state.ndim != 1 or not len(state) else wanted(state)
