"""Survival models that learn relative risks: Cox regression, linear or by a network, and its relatives.

Their losses couple records, so single records are protected in risk groups alone. They know nothing of the
hazard that all records share; that is asked of the sites once training is over (`breslow`).
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tacit.errors import require_count
from tacit.runtime.arrays import Array
from tacit.runtime.limits import MOST_RECORDS
from tacit.sites.table import Table
from tacit.survival.models.learner import SurvivalLearner
from tacit.survival.models.losses import exposures

if TYPE_CHECKING:
    from tacit.learning.perceptron import Layer, Perceptron
    from tacit.survival.models.breslow import BreslowQuery
    from tacit.survival.models.prediction import RelativeModel


@dataclass(frozen=True, kw_only=True)
class RelativeRiskLearner(SurvivalLearner):
    """A network for the log hazard ratio of a record.

    For the other options see `SurvivalLearner`; the grid of time is for the hazard that all share.

    Args:
        groups_per_site: The public number of risk groups at a site, drawn as wholes, in which the loss is
            formed; groups of 4 to 8 records work best. If not said, the records of a step are one group, and
            single records cannot be protected.
    """

    groups_per_site: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups_per_site is not None:
            require_count("groups_per_site", self.groups_per_site, MOST_RECORDS)

    @property
    def separable(self) -> bool:
        """The loss couples everybody at risk."""
        return False

    @property
    def risk_groups(self) -> int | None:
        """In how many groups a site forms its loss, if it does."""
        return self.groups_per_site

    @property
    def final_query(self) -> "BreslowQuery":
        """The last question to the sites: the hazard that all records share."""
        from tacit.survival.models.breslow import BreslowQuery

        return BreslowQuery(self)

    @abstractmethod
    def program(self, columns: int) -> "Perceptron":
        """The network and its loss."""

    def log_risks(self, state: Array, features: Array) -> Array:
        """Log hazard ratios (records, intervals), from those of a record of zeros on; one column where risks
        stay the same over time.
        """  # noqa: D205
        program = self.program(len(self.columns))
        weights = state[None, : program.size]
        both = np.concatenate([features, np.zeros((1, features.shape[1]))])
        told = program.outputs(weights, both[None])[0]
        return told[:-1] - told[-1:]

    def losses(self, state: Array, table: Table) -> Array:
        """The negative log partial likelihood on the grid, as a single loss, over the number of records."""
        if len(table) == 0:
            return np.empty(0)
        ends = np.asarray(self._ends)
        risks = np.broadcast_to(self.log_risks(state, table.features), (len(table), len(ends)))
        weight = table.targets.get("weight", np.ones(len(table)))
        at_risk = (weight[:, None] * exposures(ends, table.targets) * np.exp(risks)).sum(axis=0)
        own = np.searchsorted(ends, table.targets["time"], side="left")
        seen = np.flatnonzero((table.targets["event"] > 0) & (own < len(ends)))
        terms = np.log(at_risk[own[seen]]) - risks[seen, own[seen]]
        return np.array([float(weight[seen] @ terms) / len(table)])

    def model(self, state: Array) -> "RelativeModel":
        """What to predict with; curves need the hazard that all share, which closes a run."""
        from tacit.survival.models.prediction import RelativeModel

        known = state[self.program(len(self.columns)).size :]
        return RelativeModel(self, state, known if len(known) else None)


@dataclass(frozen=True, kw_only=True)
class DeepSurv(RelativeRiskLearner):
    """Cox regression by a network (Katzman and others 2018).

    For the options see `RelativeRiskLearner`.
    """

    kind: ClassVar[str] = "deep-surv"

    def program(self, columns: int) -> "Perceptron":
        """A perceptron with a single output, and the partial likelihood of a batch or risk group."""
        from tacit.learning.perceptron import Perceptron
        from tacit.survival.models.cox_loss import PartialLikelihood

        return Perceptron(_layers(columns, self.hidden, self.activation), PartialLikelihood())


@dataclass(frozen=True, kw_only=True)
class CoxPH(DeepSurv):
    """Linear Cox regression, by steps on batches; its weights are log hazard ratios.

    For the options see `RelativeRiskLearner`. For exact estimates with standard errors there is
    `tacit.survival.statistics.cox`.
    """

    hidden: Sequence[int] = ()
    kind: ClassVar[str] = "cox-ph"


@dataclass(frozen=True, kw_only=True)
class CoxCC(RelativeRiskLearner):
    """Cox regression by a network on case-control pairs (Kvamme and others 2019).

    Options as `RelativeRiskLearner`.
    """

    kind: ClassVar[str] = "cox-cc"

    def program(self, columns: int) -> "Perceptron":
        """A perceptron with a single output, and the loss of pairs."""
        from tacit.survival.models.cox_loss import Pairs

        return Pairs(_layers(columns, self.hidden, self.activation))


@dataclass(frozen=True, kw_only=True)
class CoxTime(RelativeRiskLearner):
    """Relative risks that change over time, by a network on case-control pairs (Kvamme and others 2019).

    For the options see `RelativeRiskLearner`.
    """

    kind: ClassVar[str] = "cox-time"

    def program(self, columns: int) -> "Perceptron":
        """A perceptron that is told the time beside the features, and the loss of pairs."""
        from tacit.survival.models.cox_loss import Pairs

        return Pairs(_layers(columns + 1, self.hidden, self.activation), self._ends)

    def log_risks(self, state: Array, features: Array) -> Array:
        """Log hazard ratios (records, intervals) in the middle of each interval."""
        from tacit.survival.models.cox_loss import Pairs

        program = self.program(len(self.columns))
        assert isinstance(program, Pairs)
        edges = np.concatenate([[0.0], self._ends])
        middles = (edges[1:] + edges[:-1]) / 2
        both = np.concatenate([features, np.zeros((1, features.shape[1]))])
        shape = (len(both), len(middles))
        told = program.append_time(
            np.broadcast_to(both[:, None], (*shape, both.shape[1])), np.broadcast_to(middles, shape)
        )
        weights = state[None, : program.size]
        found = program.outputs(weights, told.reshape(1, -1, told.shape[-1]))[0].reshape(shape)
        return found[:-1] - found[-1:]


def _layers(columns: int, hidden: Sequence[int], activation: str) -> "tuple[Layer, ...]":
    from tacit.learning.perceptron import build_layers

    # A shift of all log risks changes nothing.
    return build_layers([columns, *hidden, 1], activation, bias=False)
