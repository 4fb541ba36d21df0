"""What survival models learn, as tasks for the one loop."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from tacit.errors import require, require_count, require_positive, require_word
from tacit.keys import Key
from tacit.privacy.provenance import Provenance
from tacit.sites.site import Federation
from tacit.sites.tables import Table
from tacit.supervised import Learner
from tacit.survival.losses import GridLoss, HazardLoss, PiecewiseLoss, PoissonLoss
from tacit.survival.targets import grid, require_cuts, require_sites
from tacit.task import Goal

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.batched.perceptron import Perceptron
    from tacit.survival.models import HazardModel

Activation = Literal["relu", "tanh", "sigmoid", "silu", "gelu", "softplus", "elu"]
ACTIVATIONS: tuple[Activation, ...] = ("relu", "tanh", "sigmoid", "silu", "gelu", "softplus", "elu")


@dataclass(frozen=True, kw_only=True)
class OnGrid(Learner):
    """A network whose outputs are hazards on a grid of intervals; its loss is a sum over records.

    Args:
        hidden: The widths of the hidden layers; none at all gives a linear model.
        activation: What stands between layers.
        cuts: How many intervals, or their ends. Ends come from public reference records or a `horizon`;
            open runs and rehearsals may take quantiles of the event times.
        horizon: The end of the last interval, public.
        columns: The names of the features; filled in from the data.
    """

    hidden: Sequence[int] = (32, 32)
    activation: Activation = "relu"
    cuts: int | Sequence[float] = 20
    horizon: float | None = None
    columns: Sequence[str] = ()
    likelihood: ClassVar[type[GridLoss]]

    def __post_init__(self) -> None:
        super().__post_init__()
        for width in self.hidden:
            require_count("hidden", width)
        require_word("activation", self.activation, ACTIVATIONS)
        require_cuts(self.cuts)
        if self.horizon is not None:
            require_positive("horizon", self.horizon)

    @property
    def goal(self) -> Goal:
        """The concordance index."""
        return ("c_index", "max")

    def settle(self, federation: Federation, provenance: Provenance) -> Self:
        """This task with its time grid, once the data are found valid."""
        require_sites(federation)
        found = federation.store.columns
        require(
            tuple(self.columns) in ((), found), "columns", list(self.columns), f"{list(found)}, as the data"
        )
        ends = grid(self.cuts, self.horizon, federation, provenance)
        return replace(self, cuts=tuple(ends), columns=found)

    def program(self, columns: int) -> "Perceptron":
        """A perceptron with one output for each interval."""
        from tacit.batched.perceptron import stacked

        return stacked([columns, *self.hidden, len(self._ends)], self.activation, self._loss)

    def start(self, federation: Federation, key: Key) -> "Tensor":
        """Small random weights; every interval begins with the same small hazard."""
        import torch

        generator, program = key.generator(), self.program(len(self.columns))
        parts: list[NDArray[np.float64]] = []
        for layer in program.layers:
            bound = max(layer.inputs, 1) ** -0.5
            parts.append(generator.uniform(-bound, bound, layer.inputs * layer.outputs))
            parts.append(np.zeros(layer.outputs if layer.bias else 0))
        # One event over all intervals, before anything is known.
        parts[-1] += self._loss.resting(1 / len(self._ends))
        return torch.from_numpy(np.concatenate(parts))

    def score(self, state: "Tensor", held_out: Table) -> dict[str, float]:
        """Harrell's concordance and the integrated Brier score on held-out records."""
        from tacit.survival.models import score

        return score(self.model(state), held_out)

    def losses(self, state: "Tensor", table: Table) -> NDArray[np.float64]:
        """The negative log-likelihood of each record."""
        outputs = self.program(len(self.columns)).outputs(state.numpy()[None], table.features[None])[0]
        return self._loss.values(outputs, table.targets)

    def model(self, state: "Tensor") -> "HazardModel":
        """What to predict with: survival curves and risks."""
        from tacit.survival.models import HazardModel

        return HazardModel(self.program(len(self.columns)), self._loss, state.numpy(), tuple(self.columns))

    @property
    def _ends(self) -> tuple[float, ...]:
        assert not isinstance(self.cuts, int), "settle comes first"
        return tuple(self.cuts)

    @property
    def _loss(self) -> GridLoss:
        return self.likelihood(self._ends)


@dataclass(frozen=True, kw_only=True)
class LogisticHazard(OnGrid):
    """Discrete-time hazards by a network: the chance of the event in each interval, once it is reached.

    Gensheimer and Narasimhan 2019; Kvamme and Borgan 2021. For the options see `OnGrid`.
    """

    kind: ClassVar[str] = "logistic-hazard"
    likelihood: ClassVar[type[GridLoss]] = HazardLoss


@dataclass(frozen=True, kw_only=True)
class PCHazard(OnGrid):
    """Piecewise constant hazards by a network: a hazard of its own for every interval and record.

    Kvamme and Borgan 2021. For the options see `OnGrid`.
    """

    kind: ClassVar[str] = "pc-hazard"
    likelihood: ClassVar[type[GridLoss]] = PiecewiseLoss


@dataclass(frozen=True, kw_only=True)
class PoissonPH(OnGrid):
    """Proportional hazards by a Poisson likelihood: one risk for each record, one rate for each interval.

    The piecewise exponential form of Cox regression, which is a sum over records. For the options see
    `OnGrid`; without hidden layers the weights are log hazard ratios.
    """

    hidden: Sequence[int] = ()
    kind: ClassVar[str] = "poisson-ph"
    likelihood: ClassVar[type[GridLoss]] = PoissonLoss

    def program(self, columns: int) -> "Perceptron":
        """A perceptron with a single output, spread over the intervals."""
        from tacit.batched.perceptron import stacked

        intervals = len(self._ends)
        return stacked([columns, *self.hidden, 1], self.activation, self._loss, spread=intervals)


TASKS: Mapping[str, type[OnGrid]] = {task.kind: task for task in (LogisticHazard, PCHazard, PoissonPH)}
