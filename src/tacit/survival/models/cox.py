"""Survival models that learn relative risks: Cox regression, linear or by a network, and its relatives.

Their losses couple records, so single records are protected in risk groups alone. They know nothing of the
hazard that all records share, which is asked of the sites once training is over (Breslow 1974): sites answer
with sums on a public grid, never with event times, and the hazard that an interval adds is the ratio of its
events to its risk.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.errors import MOST_RECORDS, require_count
from tacit.learning.elementwise import exp
from tacit.learning.query import FinalQueryBase, Updates
from tacit.privacy.contracts import Norm
from tacit.privacy.mechanisms.base import Mechanism, Rows
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort
from tacit.sites.table import Table
from tacit.survival.life_table import nearest_counts
from tacit.survival.models.learner import SurvivalLearner
from tacit.survival.models.losses import exposures

if TYPE_CHECKING:
    from tacit.learning.perceptron import Layer, Perceptron
    from tacit.survival.models.prediction import RelativeModel

Integers = NDArray[np.int64]

# Hazard ratios beyond which a record counts for less: under noise, so that none needs to be clipped; without
# it, so that a handful of outliers does not dominate.
USUAL_RISK, LARGEST_RISK = math.e, math.exp(4)
# The smallest normal number.
TINY = float(np.finfo(np.float64).tiny)
# Number of noise deviations below which the risk of an interval takes over the hazard before.
FIRM = 3.0


@dataclass(frozen=True, kw_only=True)
class RelativeRiskLearner(SurvivalLearner):
    """A network for the log hazard ratio of a record.

    For the other options see `SurvivalLearner`; the grid of time is for the hazard that all share.

    Args:
        groups_per_site: Public number of risk groups at a site. The loss is formed inside groups, which join
            a step as wholes; groups of 4 to 8 records work best. Without it the records of a step are one
            group, and record-level privacy is refused.
    """

    groups_per_site: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups_per_site is not None:
            require_count("groups_per_site", self.groups_per_site, MOST_RECORDS)

    @property
    def separable(self) -> bool:
        """Return False: the partial likelihood couples all records at risk."""
        return False

    @property
    def risk_groups(self) -> int | None:
        """Number of risk groups at a site, if the loss is formed in groups."""
        return self.groups_per_site

    @property
    def final_query(self) -> "BreslowQuery":
        """The last question to the sites: the hazard that all records share."""
        return BreslowQuery(self)

    @abstractmethod
    def program(self, columns: int) -> "Perceptron":
        """The network and its loss."""

    def log_risks(self, state: Array, features: Array) -> Array:
        """Return log hazard ratios (records, intervals), relative to a zero record; one column where risks
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
        """Return the prediction model; curves need the baseline hazard, which the final query finds."""
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
        """Return a perceptron with the time as an input beside the features, and the loss of pairs."""
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


@dataclass(frozen=True)
class BreslowQuery(FinalQueryBase):
    """The question for the shared hazard of a model of relative risks (`tacit.learning.task.FinalQuery`)."""

    task: "RelativeRiskLearner"
    kind: ClassVar[str] = "baseline hazard"
    share: ClassVar[float] = 0.2

    @property
    def width(self) -> int:
        """Events and risk, in each interval."""
        cuts = self.task.cuts
        return 2 * (cuts if isinstance(cuts, int) else len(cuts))

    def record_bound(self, norm: Literal["l2", "l1"]) -> float:
        """Bound of one record of usual risk on the sums: its event, and its risk in every interval."""
        return math.sqrt(2) if norm == "l2" else 1 + math.sqrt(self.width // 2)

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Return events and risk in every interval (sites, 2 x intervals), as released by the mechanism."""
        most = USUAL_RISK if mechanism.deviation(1) > 0 else LARGEST_RISK
        told = [
            mechanism.noisy_sums(part, [key / name / "noise"], 0)[0]
            for name, part in zip(cohort.names, self._parts(state, cohort, most), strict=True)
        ]
        return Updates(cohort.names, np.stack(told))

    def _parts(self, state: Array, cohort: Cohort, most: float) -> "list[AtRisk]":
        """Return the contributions of each site's records; compute them together under one state."""
        store = cohort.store
        seen, exposed, weight = _follow_up(tuple(self._ends), self._unit, store)
        spans = [slice(start, start + size) for start, size in zip(cohort.starts, cohort.sizes, strict=True)]
        if state.ndim > 1:
            risks = [self._risks(own, store.features[span]) for own, span in zip(state, spans, strict=True)]
        else:
            together = self._risks(state, np.concatenate([store.features[span] for span in spans]))
            risks = np.split(together, np.cumsum(cohort.sizes)[:-1])
        return [
            AtRisk(own, seen[span], exposed[span], weight[span], most)
            for own, span in zip(risks, spans, strict=True)
        ]

    def contributions(self, state: Array, table: Table, most: float = math.inf) -> Array:
        """Return each record's contribution: its event, and its risk over time (records, 2 x intervals).

        A record whose risk is above `most` counts for less in both. That depends on its features alone, so
        the ratio of events to risk stays right.
        """
        known = _follow_up(tuple(self._ends), self._unit, table)
        return AtRisk(self._risks(state, table.features), *known, most).rows

    def _risks(self, state: Array, features: Array) -> Array:
        """Return hazard ratios (records, intervals), or one column where they are constant."""
        return exp(np.minimum(self.task.log_risks(state, features), 50.0))

    def apply(self, state: Array, combined: Array, noise: float = 0.0) -> Array:
        """The state, followed by the hazard that each interval adds."""
        ends, sums = self._ends, combined
        events, at_risk = nearest_counts(sums[: len(ends)]), sums[len(ends) :] / self._unit
        widths = np.diff(ends, prepend=0.0)
        firm = at_risk > FIRM * noise / self._unit
        rates = np.divide(events, at_risk * widths, out=np.zeros_like(events), where=firm)
        # From the last interval with enough records on, the last known hazard continues.
        last = np.maximum.accumulate(np.where(firm, np.arange(len(ends)), -1))
        held = np.where(last >= 0, rates[np.maximum(last, 0)], 0.0)
        return np.concatenate([state[: self._trained], held * widths])

    @property
    def _unit(self) -> float:
        return 1 / (USUAL_RISK * math.sqrt(len(self._ends)))

    @property
    def _ends(self) -> Array:
        return np.asarray(self.task.cuts, dtype=np.float64)

    @property
    def _trained(self) -> int:
        return self.task.program(len(self.task.columns)).size


@lru_cache(maxsize=2)
def _follow_up(ends: tuple[float, ...], unit: float, table: Table) -> tuple[Integers, Array, Array]:
    """Return the interval of each event (one beyond the last without one), exposures in units, weights."""
    found = np.asarray(ends)
    own = np.searchsorted(found, table.targets["time"], side="left")
    seen = np.where(table.targets["event"] > 0, own, len(ends))
    weight = table.targets.get("weight", np.ones(len(table)))
    return seen, unit * exposures(found, table.targets), weight


class AtRisk:
    """Events and risk of the records of a site (`tacit.privacy.mechanisms.base.Contributions`).

    They are written out only to compute their lengths.

    Args:
        risks: Hazard ratios (records, intervals), or one column.
        seen: The interval of each event; one beyond the last where there is none.
        exposed: Time at risk of each in each interval (records, intervals).
        weight: Weight of each.
        most: The risk above which a record counts for less.
    """

    def __init__(self, risks: Array, seen: Integers, exposed: Array, weight: Array, most: float) -> None:
        self._risks, self._seen, self._exposed = risks, seen, exposed
        # A risk too small for a number counts in full, and says nothing.
        self._weight = weight * np.minimum(most / np.maximum(risks.max(axis=1), TINY), 1.0)

    @cached_property
    def rows(self) -> Array:
        """Return the contribution of each record (records, 2 x intervals)."""
        intervals = int(self._exposed.shape[1])
        events = (self._seen[:, None] == np.arange(intervals)).astype(np.float64)
        return self._weight[:, None] * np.hstack([events, self._exposed * self._risks])

    def lengths(self, norm: Norm) -> Array:
        """The length of each row (1, records)."""
        return self._written.lengths(norm)

    def total(self, factors: Array | None) -> Array:
        """The sums over records (1, 2 x intervals), each times its factor."""
        if factors is not None:
            return self._written.total(factors)
        intervals = self._exposed.shape[1]
        seen = np.bincount(self._seen, self._weight, minlength=intervals + 1)
        events = np.asarray(seen[:intervals], dtype=np.float64)
        if self._risks.shape[1] == 1:
            at_risk = (self._weight * self._risks[:, 0]) @ self._exposed
        else:
            at_risk = np.einsum("r,ri,ri->i", self._weight, self._exposed, self._risks)
        return np.concatenate([events, at_risk])[None]

    @property
    def _written(self) -> Rows:
        return Rows(self.rows[None])
