"""Learning from records: any network and loss, a cohort of sites as one batched program.

Multilayer perceptrons take the closed form, other modules `torch.func`; both give the same numbers. What a
loss couples is one unit: a record where it is a sum over records, a group of records where it is not.
"""

import math
from abc import abstractmethod
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from tacit.errors import (
    LEAST_RATE,
    MOST_RECORDS,
    MOST_STEPS,
    InvalidValue,
    Refused,
    require,
    require_count,
    require_positive,
    require_rate,
    require_word,
)
from tacit.learning.elementwise import exp
from tacit.learning.query import EvaluationQueryBase, Updates
from tacit.learning.record import describe, identity_of
from tacit.learning.task import Goal, TaskBase
from tacit.privacy.contracts import Groups
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.policy import Provenance
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.runtime.tables import canonical
from tacit.sites.federation import Cohort, Federation, require_rows
from tacit.sites.table import Table

if TYPE_CHECKING:
    from tacit.learning.optimizers import Program
    from tacit.learning.perceptron import LossName
    from tacit.learning.torch_modules import LossFunction, Module


# Log odds beyond this are as good as certain.
LARGEST = 30.0


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """Local training: the work of a site on its own records in a round.

    Args:
        steps: Local steps in a round.
        sample: Probability with which each record, or risk group, joins a step (Poisson sampling); the draw
            is secret.
        epochs: Passes over the records in shuffled batches, instead of steps; for open runs and site-level
            privacy.
        batch: Records in a step. With epochs, the size of a shuffled batch, by default 32. With steps, the
            public number that sums over drawn records are divided by; by default what `sample` draws at a
            site of average size.
        lr: Learning rate.
        optimizer: `sgd`, `momentum` (0.9) or `adam`; its state starts afresh in every round.
        proximal: Pull toward the state of the round (FedProx).
        decay: Weight decay: pull of all weights toward 0.
    """

    steps: int = 10
    sample: float = 0.1
    epochs: int | None = None
    batch: int | None = None
    lr: float = 0.05
    optimizer: Literal["sgd", "momentum", "adam"] = "sgd"
    proximal: float = 0.0
    decay: float = 0.0

    def __post_init__(self) -> None:
        require_count("steps", self.steps, MOST_STEPS)
        require_rate("sample", self.sample, LEAST_RATE)
        for name, given, most in (("epochs", self.epochs, MOST_STEPS), ("batch", self.batch, MOST_RECORDS)):
            if given is not None:
                require_count(name, given, most)
        require_positive("lr", self.lr)
        require_word("optimizer", self.optimizer, ("sgd", "momentum", "adam"))
        for name, given in (("proximal", self.proximal), ("decay", self.decay)):
            require(0 <= given < math.inf, name, given, "finite and at least 0")

    @property
    def shuffled(self) -> bool:
        """Return True if records come in shuffled batches instead of being sampled independently."""
        return self.epochs is not None


@dataclass(frozen=True, kw_only=True)
class Learner(LocalTraining, TaskBase):
    """A task that learns a network from records; a kind of network and loss makes it concrete."""

    kind: ClassVar[str]

    @property
    def identity(self) -> str | None:
        """Identity by the options of the task, if its code is ours: a user's code may have changed."""
        return identity_of(self) if self._ours else None

    @property
    def _ours(self) -> bool:
        return type(self).__module__.partition(".")[0] == "tacit"

    @property
    def risk_groups(self) -> int | None:
        """Number of risk groups at a site, if the loss is formed in groups."""
        return None

    @property
    def groups(self) -> Groups:
        """Return the unit of sampling: whole risk groups, or none."""
        return "none" if self.risk_groups is None else "groups"

    @abstractmethod
    def program(self, columns: int) -> "Program":
        """Return the network and its loss for `columns` features."""

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Train at each site and return the updates (`tacit.learning.task.Task.train`)."""
        from tacit.learning.optimizers import descend

        program = self.program(cohort.store.features.shape[1])
        starts = np.broadcast_to(state, (len(cohort), program.size))
        keys = [key / name for name in cohort.names]
        moved = descend(self, program, starts, cohort, mechanism, keys)
        return Updates(cohort.names, moved)


@dataclass(frozen=True, kw_only=True, eq=False)
class Supervised(Learner):
    """Your own network and loss.

    Args:
        module: Any module without running state; its weights are the start, and it is not touched.
        loss: `squared`, `logistic` or `cross-entropy` for a target `y`; or your own, written with torch:
            `loss(output, **targets)` of one record, or `loss(outputs, present, **targets)` of a group, where
            `present` marks the members that are there; it must be finite for an empty group.
        coupled: Whether the loss couples records; then it is formed in groups.
        groups_per_site: For a coupled loss: the public number of risk groups at a site, sampled as wholes. By
            default the records of a step are one group, and single records cannot be protected.
        metrics: `metrics(outputs, **targets) -> dict` of scores on held-out records, from arrays of numpy.
        maximize: The metric that counts; by default the loss, the smaller the better.
    """

    module: "Module"
    loss: "LossFunction | LossName"
    coupled: bool = False
    groups_per_site: int | None = None
    metrics: Any = None
    maximize: str | None = None
    kind: ClassVar[str] = "supervised"

    def __post_init__(self) -> None:
        from tacit.learning.torch_modules import refuse_running_state

        super().__post_init__()
        if isinstance(self.loss, str):
            require_word("loss", self.loss, ("squared", "logistic", "cross-entropy"))
            require(not self.coupled, "loss", self.loss, "your own function if coupled = True")
        refuse_running_state(self.module)
        if self.groups_per_site is not None:
            require_count("groups_per_site", self.groups_per_site, MOST_RECORDS)
            require(self.coupled, "groups_per_site", self.groups_per_site, "left out unless coupled = True")

    @property
    def identity(self) -> str | None:
        """The layers and the choices, where the network has a closed form and the loss a name."""
        from tacit.learning.perceptron import Perceptron

        if not isinstance(self._program, Perceptron) or callable(self.loss) or not self._ours:
            return None
        # Weights are in the state, and scores are no part of the work.
        return canonical([[asdict(layer) for layer in self._program.layers], describe(self)])

    @property
    def separable(self) -> bool:
        """Return True if the loss is a sum over records."""
        return not self.coupled

    @property
    def risk_groups(self) -> int | None:
        """Number of risk groups at a site, if the loss is formed in groups."""
        return self.groups_per_site

    @property
    def goal(self) -> Goal:
        """The metric to maximize, or the loss to minimize."""
        return (self.maximize, "max") if self.maximize is not None else ("loss", "min")

    def program(self, columns: int) -> "Program":
        """Return the closed form where there is one, `torch.func` otherwise."""
        return self._program

    @cached_property
    def _program(self) -> "Program":
        from tacit.learning.torch_modules import program_of

        return program_of(self.module, self.loss, coupled=self.coupled)

    def bind(self, federation: Federation, provenance: Provenance) -> Self:
        """Bind the task, after trying network and loss on a record of zeros."""
        from tacit.learning.batches import Batch

        store = require_rows(federation).store
        zeros = {name: np.zeros((1, *values.shape[1:])) for name, values in store.targets.items()}
        blank = Table(np.zeros((1, len(store.columns))), zeros, store.columns)
        batch = Batch(np.zeros((1, 1, 1), dtype=np.int64), np.ones((1, 1, 1), dtype=np.bool_))
        try:
            weights = self.start(federation, Key(0))[None]
            _ = self._program.contributions(weights, batch, blank).lengths("l2")
        except Refused:
            raise
        except Exception as error:
            # Network and loss are the user's: whatever they raise is theirs to mend.
            raise InvalidValue(
                f"module and loss do not fit the data, {len(store.columns)} columns and targets "
                f"{', '.join(store.targets)}: {error}"
            ) from error
        return self

    def start(self, federation: Federation, key: Key) -> Array:
        """Return the initial weights of the module."""
        from tacit.learning.torch_modules import weights_of

        return weights_of(self.module)

    def evaluation(self, epsilon: float, records: int | None) -> EvaluationQueryBase | None:
        """Query for scores on private held-out records: of classifiers, by `logistic` or `cross-entropy`."""
        from tacit.learning.evaluation import ClassEvaluation

        classes = self._classes
        return None if classes is None else ClassEvaluation(self._probabilities, classes)

    @property
    def _classes(self) -> int | None:
        """Number of classes, for a loss of classes whose network has a closed form."""
        from tacit.learning.perceptron import Perceptron

        if not isinstance(self._program, Perceptron) or self.loss not in ("logistic", "cross-entropy"):
            return None
        return 2 if self.loss == "logistic" else self._program.layers[-1].outputs

    def _probabilities(self, state: Array, features: Array) -> Array:
        """Return the probability of each class (records, classes)."""
        outputs = self._program.outputs(state[None], features[None])[0]
        if self.loss == "logistic":
            ones = 1 / (1 + exp(-np.clip(outputs.reshape(len(features)), -LARGEST, LARGEST)))
            return np.column_stack([1 - ones, ones])
        weights = exp(outputs - outputs.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def score(self, state: Array, held_out: Table) -> dict[str, float]:
        """The given metrics and the mean loss."""
        outputs = self._program.outputs(state[None], held_out.features[None])[0]
        found = cast("dict[str, Any]", self.metrics(outputs, **held_out.targets)) if self.metrics else {}
        scores = {str(name): float(value) for name, value in found.items()}
        return {**scores, "loss": float(self.losses(state, held_out).mean())}

    def model(self, state: Array) -> "Module":
        """A copy of the module with the weights of this state."""
        from tacit.learning.torch_modules import with_weights

        return with_weights(self.module, state)

    def losses(self, state: Array, table: Table) -> NDArray[np.float64]:
        """The loss of each record; of all together, as a single one, where the loss couples them."""
        from tacit.learning.torch_modules import record_losses

        if len(table) == 0:
            return np.empty(0)
        outputs = self._program.outputs(state[None], table.features[None])[0]
        return record_losses(self.loss, outputs, table.targets, coupled=self.coupled)
