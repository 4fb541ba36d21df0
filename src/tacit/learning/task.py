"""Contract of a task: it trains a cohort of sites and knows nothing of the loop around it.

`TaskBase` has every hook that the loop, plans, reports and sites call, each with a default. A task that does
not inherit it needs the members of `Task` alone: `as_task` adapts it once, where a run takes it.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from tacit.errors import InvalidValue, Refused, hint
from tacit.learning.query import EvaluationQueryBase as EvaluationQueryBase
from tacit.learning.query import FinalQuery as FinalQuery
from tacit.learning.query import FinalQueryBase as FinalQueryBase
from tacit.learning.query import InitialQuery as InitialQuery
from tacit.learning.query import InitialQueryBase as InitialQueryBase
from tacit.learning.query import Query as Query
from tacit.learning.query import QueryBase as QueryBase
from tacit.learning.query import Updates as Updates
from tacit.learning.query import Work as Work
from tacit.learning.query import WorkKind as WorkKind
from tacit.learning.query import as_final_query as as_final_query
from tacit.learning.query import as_initial_query as as_initial_query
from tacit.learning.record import Round, Simplest
from tacit.privacy.contracts import Groups, Layout, TrainingSpec
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.policy import Provenance
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import Adapted
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort, Federation
from tacit.sites.table import Table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tacit.privacy.forecast import Forecast
    from tacit.privacy.policy import Open, Privacy

# A score that decides, and its good direction.
Goal = tuple[str, Literal["max", "min"]]
# Members of a class that can be hooks, and how close to one a name must be to be a misspelled one.
MEMBERS, CLOSE = (FunctionType, property, cached_property, classmethod, staticmethod), 0.8


class Task(TrainingSpec, Protocol):
    """Task: the model, its training, its scores. The state is one flat vector of doubles.

    These members are what a class of your own must have; `TaskBase` lists all hooks, with their defaults.
    """

    def bind(self, federation: Federation, provenance: Provenance) -> Self:
        """Bind the task to a federation: decide all that depends on the data, before anything is charged.

        Raises:
            InvalidValue: These data cannot be learned from; the message names site and field.
            Refused: Something would have to be taken from private records.
        """
        ...

    @property
    def identity(self) -> str | None:
        """Identity of the task's work apart from data and state; None if it cannot be written to a file."""
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
        """Return the initial state; public."""
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
        """Return the next state, after the server's step."""
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


class TaskBase(Work):
    """Base of tasks, with every hook that a run, a plan, a report or a site calls.

    A class of your own overrides `goal`, `start`, `train`, `score` and `model`, and of the other hooks those
    that it needs. A public method or property whose name is close to that of a hook is refused when the class
    is defined.
    """

    kind: ClassVar[str] = "own"
    # Layout of the data of the sites.
    layout: ClassVar[Layout] = "rows"
    # True if there is one round: every site is asked once.
    once: ClassVar[bool] = False
    # True if sums are added up unweighted: rules that weigh updates are refused.
    added: ClassVar[bool] = False
    # Defaults of an experiment file that learns this task.
    usual: ClassVar[Mapping[str, Any]] = {}
    # Local steps in a round; probability with which a record joins a step; the public number that sums of
    # sampled records are divided by.
    steps: int = 1
    sample: float = 1.0
    batch: int | None = None
    # Number of kinds of events in survival records; the end of the time grid, if it is public.
    causes: int = 1
    horizon: float | None = None
    # Interval of rounds at which the weights of every site are kept.
    snapshots: int | None = None
    # Bound of a record's contribution by construction: a promise needs no clip bound.
    own_bound: ClassVar[float | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a misspelled hook.

        Raises:
            InvalidValue: A public method or property is none of the hooks, and its name is close to one.
        """
        super().__init_subclass__(**options)
        inherited = {name for parent in cls.__mro__[1:] for name in vars(parent)}
        for name, member in vars(cls).items():
            if isinstance(member, MEMBERS) and name not in inherited and not name.startswith("_"):
                near = get_close_matches(name, [hook for hook in dir(TaskBase) if hook[0] != "_"], 1, CLOSE)
                told = f"{cls.__qualname__}.{name} is not a hook of a task{hint(name, near)}"
                if near:
                    raise InvalidValue(f"{told}: use the name of the hook, or begin yours with an underscore")

    @property
    def separable(self) -> bool:
        """Return True if the loss is a sum over records."""
        return True

    @property
    def groups(self) -> Groups:
        """Risk groups of the loss: none, or groups of which records or whole groups are sampled."""
        return "none"

    @property
    def shuffled(self) -> bool:
        """Return True if records come in shuffled batches instead of being sampled independently."""
        return False

    @property
    def cells_per_record(self) -> int | None:
        """The most cells that one record moves by 1 each, if it sends counts of records; otherwise None."""
        return None

    @property
    def exempt(self) -> tuple[str, ...]:
        """Return the descriptions of a record's parts that are left unprotected."""
        return ()

    @property
    def width(self) -> int | None:
        """Number of coordinates of an update; None if it is not known before the data are."""
        return None

    @property
    def blocks(self) -> tuple[int, ...] | None:
        """Sizes of the parts of an update that adaptive clipping gives bounds of their own; None for one."""
        return None

    @property
    def lengths(self) -> Mapping[str, float] | None:
        """Clip radius of each protected column; None where the policy sets one bound for all."""
        return None

    @property
    def identity(self) -> str | None:
        """Identity of the task's work apart from data and state; None if it cannot be written to a file."""
        return None

    @property
    @abstractmethod
    def goal(self) -> Goal:
        """The score that counts, and its good direction."""

    @property
    def initial_query(self) -> InitialQuery | None:
        """Query before the first round, if there is one; known once the task is bound."""
        return None

    @property
    def final_query(self) -> FinalQuery | None:
        """Query after the last round, if there is one."""
        return None

    def evaluation(self, epsilon: float, records: int | None) -> EvaluationQueryBase | None:
        """Query for scores on private held-out records; None where the task has none.

        Args:
            epsilon: The epsilon at which one noise would be as large as all noises in a count; infinite in an
                open run.
            records: The expected number of held-out records of all sites, if that is public.
        """
        return None

    @property
    def scores_clusters(self) -> bool:
        """True if it scores several models at once itself."""
        return type(self).score_each is not TaskBase.score_each

    @property
    def ends_itself(self) -> bool:
        """True if it ends a run by `stop_reason`."""
        return type(self).stop_reason is not TaskBase.stop_reason

    def resolve(self, privacy: "Privacy | Open") -> "TaskBase":
        """Resolve the task for a privacy policy; it may be one that needs no clip bound."""
        return self

    def choices(self, privacy: "Privacy | Open", rounds: int) -> list[str]:
        """Return sentences on what the task chose for a promise, and why, for a plan."""
        return []

    def forecast(
        self, mechanism: Mechanism, sites: int, records: int | None, features: int | None
    ) -> "Forecast | None":
        """Forecast the accuracy from public numbers, those of all sites; None if there is no forecast."""
        return None

    def round_shares(self, rounds: int) -> tuple[float, ...] | None:
        """Return the share of each round in the noise of a promise; None if all rounds are alike."""
        return None

    def with_privacy(self, privacy: "Privacy | Open") -> Self:
        """Return this task for a privacy policy, from public choices alone.

        Raises:
            Refused: The task cannot keep it.
        """
        return self

    def at_one_site(self, pooled: Federation) -> Self:
        """Return this task for a site that learns alone, for a baseline without protection."""
        return self

    def bind(self, federation: Federation, provenance: Provenance) -> Self:
        """Bind the task to a federation: decide all that depends on the data, before anything is charged.

        Raises:
            InvalidValue: These data cannot be learned from; the message names site and field.
            Refused: Something would have to be taken from private records.
        """
        return self

    def with_mechanism(self, mechanism: Mechanism) -> Self:
        """Return this task with the public parameters of the noise."""
        return self

    def with_answers(self, found: dict[str, Any]) -> Self:
        """Return this task with the answers to its initial query as its fields."""
        assert is_dataclass(self), "a task with an initial query is a dataclass, or overrides this"
        return replace(self, **found)

    def at_round(self, number: int, rounds: int) -> Self:
        """Return this task for a round, if rounds differ, as with an annealed learning rate."""
        return self

    @abstractmethod
    def start(self, federation: Federation, key: Key) -> Array:
        """Return the initial state; public."""

    def advance(self, state: Array, step: Array) -> Array:
        """Return the next state, after the server's step."""
        return state + step

    def stop_reason(self, state: Array) -> str | None:
        """Return the reason to stop, in words, once the task knows that it has converged."""
        return None

    @abstractmethod
    def score(self, state: Array, held_out: Any) -> dict[str, float]:  # noqa: ANN401
        """Score the state on held-out records of the kind that it learns from."""

    def simplest(self, start: Array, held_out: Any) -> "Simplest | None":  # noqa: ANN401
        """Score the simplest baseline on held-out records; None if there is none.

        Args:
            start: The state before the first round.
            held_out: The records that the model is scored on.
        """
        return None

    def score_each(self, states: Array, clusters: Mapping[str, int], held_out: Any) -> dict[str, float]:  # noqa: ANN401
        """Score several models, given the model of each site; by default each is scored by itself."""
        raise NotImplementedError

    def losses(self, state: Array, table: Any) -> "NDArray[np.float64]":  # noqa: ANN401
        """The loss of each record; stays at the site unless noise is added to its sum."""
        raise Refused(f"{self.kind} has no losses of single records, which this option needs: leave it out")

    @abstractmethod
    def model(self, state: Array) -> Any:  # noqa: ANN401
        """Return the prediction model."""

    def rivals(self, federation: Federation) -> "dict[str, Callable[[Any], dict[str, float]]]":
        """Train the baselines of a task on columns; return how each is scored."""
        return {}

    def join_columns(self, updates: Updates) -> Array:
        """Join the messages of the parties, for a task on columns."""
        raise NotImplementedError

    def join_products(self, updates: Updates) -> Array:
        """Join the result of a secure computation, for a task on columns."""
        raise NotImplementedError

    def require_records(self, federation: Federation, *, private: bool) -> None:
        """Refuse records that the task cannot learn from, before anything is charged.

        Args:
            federation: The sites; a deployed site gives its own records alone.
            private: True if nothing may be looked at without a price.
        """

    def advise(self, federation: Federation) -> list[str]:
        """Return advice about records, with counts and values, for their owner."""
        return []

    def findings(self, state: Array) -> list[str]:
        """Return the task's own sentences about its result."""
        return []

    def shortcomings(self, state: Array) -> list[str]:
        """Return the task's warnings against using its result as it stands."""
        return []

    def pictures(
        self, state: Array, rounds: Sequence[Round], read: "Callable[[str], bytes | None]"
    ) -> Sequence[Any]:
        """Return the figures of a report (`tacit.reports.page.blocks.Figure`)."""
        return []

    def archive(
        self, rounds: Sequence[Round], weights: "Mapping[int, Mapping[str, Array]]"
    ) -> dict[str, bytes]:
        """Return files to keep with a finished run, by their names."""
        return {}

    def illustrate(self, state: Array, held_out: Any) -> dict[str, bytes]:  # noqa: ANN401
        """Return files with predictions of held-out records, by name; called where these may be shown."""
        return {}

    @property
    def bytes_sent(self) -> Mapping[str, int]:
        """Bytes that each site sends in all, from the public sizes of its messages; empty if unknown."""
        return {}


class _AdaptedTask(Adapted, TaskBase):
    """A task of a user's own that does not inherit `TaskBase`."""

    @property
    def goal(self) -> Goal:
        """The score that counts, and its good direction."""
        return self.own.goal

    @property
    def initial_query(self) -> InitialQueryBase | None:
        """Query before the first round, if there is one."""
        return as_initial_query(self.member("initial_query"))

    @property
    def final_query(self) -> FinalQueryBase | None:
        """Query after the last round, if there is one."""
        return as_final_query(self.member("final_query"))

    @property
    def scores_clusters(self) -> bool:
        """True if it has `score_each`."""
        return self.has("score_each")

    @property
    def ends_itself(self) -> bool:
        """True if it has `stop_reason`."""
        return self.has("stop_reason")

    def resolve(self, privacy: "Privacy | Open") -> "_AdaptedTask":
        """Resolve the task for a privacy policy."""
        return self._after("resolve", privacy)

    def at_one_site(self, pooled: Federation) -> "_AdaptedTask":
        """Return this task for a site that learns alone."""
        return self._after("at_one_site", pooled)

    def with_privacy(self, privacy: "Privacy | Open") -> "_AdaptedTask":
        """Return this task for a privacy policy."""
        return self._after("with_privacy", privacy)

    def bind(self, federation: Federation, provenance: Provenance) -> "_AdaptedTask":
        """Bind the task to a federation."""
        return self._after("bind", federation, provenance)

    def with_mechanism(self, mechanism: Mechanism) -> "_AdaptedTask":
        """Return this task with the public parameters of the noise."""
        return self._after("with_mechanism", mechanism)

    def with_answers(self, found: dict[str, Any]) -> "_AdaptedTask":
        """Return this task with the answers to its initial query as its fields."""
        return _AdaptedTask(replace(self.own, **found))

    def at_round(self, number: int, rounds: int) -> "_AdaptedTask":
        """Return this task for a round."""
        return self._after("at_round", number, rounds)

    def _after(self, name: str, *given: object) -> "_AdaptedTask":
        change: Callable[..., Task] | None = self.member(name)
        return self if change is None else _AdaptedTask(change(*given))

    def start(self, federation: Federation, key: Key) -> Array:
        """Return the initial state."""
        return self.own.start(federation, key)

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Train each site locally and return its update."""
        return self.own.train(state, cohort, mechanism, key)

    def score(self, state: Array, held_out: Any) -> dict[str, float]:  # noqa: ANN401
        """Score the state on held-out records."""
        return self.own.score(state, held_out)

    def model(self, state: Array) -> Any:  # noqa: ANN401
        """Return the prediction model."""
        return self.own.model(state)


def as_task(task: Task) -> TaskBase:
    """Return a task with every hook: one that inherits `TaskBase` unchanged, a structural one adapted."""
    return task if isinstance(task, TaskBase) else _AdaptedTask(task)
