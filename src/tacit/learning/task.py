"""Contract of a task: it trains a cohort of sites and knows nothing of the loop around it."""

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

    # A task states its price without loading torch; only training needs it.


Made = TypeVar("Made")
# A score that decides, and its good direction.
Goal = tuple[str, Literal["max", "min"]]


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


class Trainable(Protocol):
    """Whatever sends sites to work on their records."""

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Train at each site, on its own records, and return the updates."""
        ...


class Query(QuerySpec, Trainable, Protocol):
    """A question to all sites, asked once: `train` gives sums to which each record contributes something
    bounded. Only ratios of the sums may matter, not their size.
    """  # noqa: D205

    @property
    def width(self) -> int:
        """Number of sums; public."""
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
        """The state with the combined answers in it; `noise` is the deviation of each of their numbers."""
        ...


class Task(TaskSpec, Protocol):
    """Task: the model, its training, its scores. The state is one flat vector of doubles."""

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
        """Query before the first round, if there is one; known once the task is bound."""
        ...

    @property
    def final_query(self) -> FinalQuery | None:
        """Query after the last round, if there is one."""
        ...

    def start(self, federation: Federation, key: Key) -> Array:
        """The state before the first round; public."""
        ...

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Train each site locally and return its update.

        Args:
            state: One state for all sites (coordinates), or one for each (sites, coordinates).
            cohort: The sites.
            mechanism: The mechanism that protects records; the engine protects whole updates.
            key: The key of the round; each site draws from `key / name`.
        """
        ...

    def advance(self, state: Array, step: Array) -> Array:
        """The next state, after the server's step."""
        ...

    def score(self, state: Array, held_out: Any) -> dict[str, float]:  # noqa: ANN401
        """Score the state on held-out records of the kind that it learns from."""
        ...

    def losses(self, state: Array, table: Table) -> "NDArray[np.float64]":
        """The loss of each record; stays at the site unless noise is added to its sum."""
        ...

    def model(self, state: Array) -> Any:  # noqa: ANN401
        """Return the prediction model."""
        ...


def at_round(task: Made, number: int, rounds: int) -> Made:
    """Return the task for a round, if the round makes a difference, as for an annealed learning rate."""
    wanted = getattr(task, "at_round", None)
    return task if wanted is None else wanted(number, rounds)


def stop_reason(task: object, state: Array) -> str | None:
    """Return the reason to stop, in words, if a task knows when it has converged."""
    wanted = getattr(task, "stop_reason", None)
    return None if wanted is None or state.ndim != 1 or not len(state) else wanted(state)
