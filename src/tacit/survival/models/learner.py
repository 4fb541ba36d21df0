"""What all survival models share: a network, a public grid of time, how they are settled and scored."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from tacit.errors import require, require_hidden, require_positive, require_word
from tacit.learning.supervised import Learner
from tacit.learning.task import Goal
from tacit.privacy.provenance import Provenance
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.encoding import Encoding
from tacit.sites.federation import Federation
from tacit.sites.table import Table
from tacit.survival.targets import require_cuts, require_sites, time_grid

if TYPE_CHECKING:
    from tacit.learning.perceptron import Perceptron
    from tacit.learning.record import Round
    from tacit.reports.page.blocks import Figure
    from tacit.survival.models.prediction import GridModel
    from tacit.survival.models.time_grid import TimeGridQuery

Activation = Literal["relu", "tanh", "sigmoid", "silu", "gelu", "softplus", "elu"]
ACTIVATIONS: tuple[Activation, ...] = ("relu", "tanh", "sigmoid", "silu", "gelu", "softplus", "elu")


@dataclass(frozen=True, kw_only=True)
class SurvivalLearner(Learner):
    """A network for times and events; a kind of loss makes it concrete.

    Args:
        hidden: The widths of the hidden layers; none at all gives a linear model.
        activation: What stands between layers.
        cuts: How many intervals, or their ends. Ends come from public reference records or a `horizon`;
            open runs and rehearsals may take quantiles of the event times, private ones buy them.
        horizon: The end of the last interval, public.
        columns: The names of the features; filled in from the data.
        encoding: How raw columns become features; filled in from the data.
    """

    hidden: Sequence[int] = (32, 32)
    activation: Activation = "relu"
    cuts: int | Sequence[float] = 20
    horizon: float | None = None
    columns: Sequence[str] = ()
    encoding: Encoding = field(default_factory=Encoding)
    # How many kinds of events the records may tell of.
    causes: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_hidden(self.hidden)
        require_word("activation", self.activation, ACTIVATIONS)
        require_cuts(self.cuts)
        if self.horizon is not None:
            require_positive("horizon", self.horizon)

    @property
    def goal(self) -> Goal:
        """The concordance index."""
        return ("c_index", "max")

    def bind(self, federation: Federation, provenance: Provenance) -> Self:
        """This task with its time grid, once the data are found valid."""
        require_sites(federation, causes=self.causes)
        found = federation.store.columns
        require(
            tuple(self.columns) in ((), found), "columns", list(self.columns), f"{list(found)}, as the data"
        )
        ends = time_grid(self.cuts, self.horizon, federation, provenance)
        cuts = self.cuts if ends is None else tuple(ends)
        return replace(self, cuts=cuts, columns=found, encoding=federation.encoding)

    @property
    def initial_query(self) -> "TimeGridQuery | None":
        """The question for the time grid, as long as it is not known."""
        from tacit.survival.models.time_grid import TimeGridQuery

        return TimeGridQuery(self.cuts) if isinstance(self.cuts, int) else None

    @abstractmethod
    def program(self, columns: int) -> "Perceptron":
        """The network and its loss for features of so many columns."""

    @abstractmethod
    def losses(self, state: Array, table: Table) -> NDArray[np.float64]:
        """The loss of each record, or of all together."""

    @abstractmethod
    def model(self, state: Array) -> "GridModel":
        """What to predict with: survival curves and risks."""

    def start(self, federation: Federation, key: Key) -> Array:
        """Small random weights."""
        generator, program = key.generator(), self.program(len(self.columns))
        parts: list[NDArray[np.float64]] = []
        for layer in program.layers:
            bound = max(layer.inputs, 1) ** -0.5
            parts.append(generator.uniform(-bound, bound, layer.inputs * layer.outputs))
            parts.append(np.zeros(layer.outputs if layer.bias else 0))
        parts[-1] += self._initial_bias
        return np.concatenate(parts)

    def score(self, state: Array, held_out: Table) -> dict[str, float]:
        """Harrell's concordance and the integrated Brier score on held-out records."""
        from tacit.survival.models.prediction import score

        return score(self.model(state), held_out)

    def pictures(
        self, state: Array, rounds: "Sequence[Round]", read: "Callable[[str], bytes | None]"
    ) -> "list[Figure]":
        """The figures of a report: survival curves, and what features do."""
        from tacit.survival.figures.report import pictures

        return pictures(self, state, rounds, read)

    @property
    def _initial_bias(self) -> float:
        """What the last biases begin with."""
        return 0.0

    @property
    def _ends(self) -> tuple[float, ...]:
        assert not isinstance(self.cuts, int), "settle comes first"
        return tuple(self.cuts)
