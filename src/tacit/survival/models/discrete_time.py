"""Survival models with hazards or chances of their own for every interval of time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.errors import MOST_CAUSES, MOST_RECORDS, is_between, require, require_count, require_positive
from tacit.learning.query import Updates
from tacit.privacy.mechanisms.base import Mechanism
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort
from tacit.sites.table import Table
from tacit.survival.models.deephit import IncidenceLoss
from tacit.survival.models.learner import SurvivalLearner
from tacit.survival.models.losses import GridLoss, HazardLoss, PiecewiseLoss, PoissonLoss

if TYPE_CHECKING:
    from tacit.learning.perceptron import Perceptron
    from tacit.survival.models.prediction import HazardModel, IncidenceModel


@dataclass(frozen=True, kw_only=True)
class GridLearner(SurvivalLearner):
    """Network whose outputs are hazards on a grid of intervals; its loss is a sum over records.

    For the options see `SurvivalLearner`.
    """

    likelihood: ClassVar[type[GridLoss]]

    def program(self, columns: int) -> "Perceptron":
        """A perceptron with one output for each interval."""
        from tacit.learning.perceptron import build_perceptron

        return build_perceptron([columns, *self.hidden, len(self._ends)], self.activation, self._loss)

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Train at each site and return the updates (`tacit.learning.task.Task.train`)."""
        known = replace(cohort, store=_prepare_store(self.likelihood, self._parts, cohort.store))
        return super().train(state, known, mechanism, key)

    def losses(self, state: Array, table: Table) -> NDArray[np.float64]:
        """The negative log-likelihood of each record."""
        outputs = self.program(len(self.columns)).outputs(state[None], table.features[None])[0]
        return self._loss.values(outputs, table.targets)

    def model(self, state: Array) -> "HazardModel":
        """Return the prediction model: survival curves and risks."""
        from tacit.survival.models.prediction import HazardModel

        program = self.program(len(self.columns))
        return HazardModel(program, self._loss, state, tuple(self.columns), self.encoding)

    @property
    def _initial_bias(self) -> float:
        """Initial bias: one event over all intervals."""
        return self._loss.initial_output(1 / len(self._ends))

    @property
    def _parts(self) -> tuple[Any, ...]:
        """Return the parts of the loss."""
        return (self._ends,)

    @property
    def _loss(self) -> GridLoss:
        return self.likelihood(*self._parts)


@dataclass(frozen=True, kw_only=True)
class LogisticHazard(GridLearner):
    """Discrete-time hazards by a network: the probability of the event in each interval, given survival.

    Gensheimer and Narasimhan 2019; Kvamme and Borgan 2021. For the options see `SurvivalLearner`.
    """

    kind: ClassVar[str] = "logistic-hazard"
    likelihood: ClassVar[type[GridLoss]] = HazardLoss


@dataclass(frozen=True, kw_only=True)
class PCHazard(GridLearner):
    """Piecewise constant hazards by a network: one hazard for every interval and record.

    Kvamme and Borgan 2021. For the options see `SurvivalLearner`.
    """

    kind: ClassVar[str] = "pc-hazard"
    likelihood: ClassVar[type[GridLoss]] = PiecewiseLoss


@dataclass(frozen=True, kw_only=True)
class PoissonPH(GridLearner):
    """Proportional hazards by a Poisson likelihood: one risk for each record, one rate for each interval.

    The piecewise exponential form of Cox regression, which is a sum over records. For the options see
    `SurvivalLearner`; without hidden layers the weights are log hazard ratios.
    """

    hidden: Sequence[int] = ()
    kind: ClassVar[str] = "poisson-ph"
    likelihood: ClassVar[type[GridLoss]] = PoissonLoss

    def program(self, columns: int) -> "Perceptron":
        """A perceptron with a single output, spread over the intervals."""
        from tacit.learning.perceptron import build_perceptron

        intervals = len(self._ends)
        return build_perceptron([columns, *self.hidden, 1], self.activation, self._loss, spread=intervals)


@dataclass(frozen=True, kw_only=True)
class DeepHit(GridLearner):
    """The probability of every interval and cause by a network, competing risks included.

    Lee and others 2018. For the other options see `SurvivalLearner`.

    Args:
        causes: Number of causes: events 1, 2, ... in the records.
        ranking: Weight of the ranking term in the loss. The term compares records with each other, so
            record-level privacy needs 0, or risk groups.
        spread: Difference between incidences at which a pair counts as ranked.
        groups_per_site: Public number of risk groups at a site; only the ranking term needs them.
    """

    causes: int = 1  # pyright: ignore[reportIncompatibleVariableOverride]
    ranking: float = 0.2
    spread: float = 0.1
    groups_per_site: int | None = None
    kind: ClassVar[str] = "deep-hit"
    likelihood: ClassVar[type[GridLoss]] = IncidenceLoss

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("causes", self.causes, MOST_CAUSES)
        require(0 <= self.ranking < 1, "ranking", self.ranking, "at least 0 and below 1")
        require_positive("spread", self.spread)
        require(is_between(self.spread, 0.001, 1000), "spread", self.spread, "between 0.001 and 1000")
        if self.groups_per_site is not None:
            require_count("groups_per_site", self.groups_per_site, MOST_RECORDS)
            require(self.ranking > 0, "groups_per_site", self.groups_per_site, "left out where ranking is 0")

    @property
    def separable(self) -> bool:
        """Return True if the loss is a sum over records: without ranking."""
        return self.ranking == 0

    @property
    def risk_groups(self) -> int | None:
        """Number of risk groups at a site, if the loss is formed in groups."""
        return self.groups_per_site

    def program(self, columns: int) -> "Perceptron":
        """A perceptron with one output for each interval of each cause."""
        from tacit.learning.perceptron import build_perceptron

        widths = [columns, *self.hidden, self.causes * len(self._ends)]
        return build_perceptron(widths, self.activation, self._loss)

    def model(self, state: Array) -> "IncidenceModel":
        """Return the prediction model: survival curves, risks, and the cumulative incidence of each cause."""
        from tacit.survival.models.prediction import IncidenceModel

        program = self.program(len(self.columns))
        return IncidenceModel(program, self._loss, state, tuple(self.columns), self.encoding)

    def score(self, state: Array, held_out: Table) -> dict[str, float]:
        """Concordance and Brier score of having any event, and the concordance of each of several causes."""
        from tacit.survival.models.prediction import score_causes

        return score_causes(self.model(state), held_out)

    @property
    def _initial_bias(self) -> float:
        """Every interval of every cause as likely, and with each other as likely as the time beyond."""
        return -float(np.log(self.causes * len(self._ends)))

    @property
    def _parts(self) -> tuple[Any, ...]:
        return (self._ends, self.causes, self.ranking, self.spread)

    @property
    def _loss(self) -> IncidenceLoss:  # pyright: ignore[reportIncompatibleVariableOverride]
        return IncidenceLoss(*self._parts)


@lru_cache(maxsize=4)
def _prepare_store(likelihood: type[GridLoss], parts: tuple[Any, ...], store: Table) -> Table:
    """Return a store with the prepared columns of a loss; cached for the same store."""
    return likelihood(*parts).prepare(store)
