"""The hazard that all records share, asked of the sites once relative risks are known (Breslow 1974).

Sites answer with sums on a public grid, never with event times: how many events, and how much risk was there,
in each interval. The hazard that an interval adds is the ratio of the two.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.learning.elementwise import exp
from tacit.learning.task import Updates
from tacit.privacy.contracts import Norm
from tacit.privacy.mechanisms.base import Mechanism, Rows
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort
from tacit.sites.table import Table
from tacit.survival.life_table import nearest_counts
from tacit.survival.models.losses import exposures

if TYPE_CHECKING:
    from tacit.survival.models.cox import RelativeRiskLearner

Integers = NDArray[np.int64]

# Hazard ratios beyond which a record counts for less: under noise, so that none needs to be clipped; without
# it, so that a handful of outliers does not stand for everybody.
USUAL_RISK, LARGEST_RISK = math.e, math.exp(4)
# The smallest normal number.
TINY = float(np.finfo(np.float64).tiny)
# Where the risk in an interval is fewer deviations of the noise than this, the hazard before is taken.
FIRM = 3.0


@dataclass(frozen=True)
class BreslowQuery:
    """The question for the shared hazard of a model of relative risks (`tacit.learning.task.Closing`)."""

    task: "RelativeRiskLearner"
    kind: ClassVar[str] = "baseline hazard"
    share: ClassVar[float] = 0.2

    @property
    def width(self) -> int:
        """Events and risk, in each interval."""
        cuts = self.task.cuts
        return 2 * (cuts if isinstance(cuts, int) else len(cuts))

    def record_bound(self, norm: Literal["l2", "l1"]) -> float:
        """How far one record of usual risk moves the sums: its event, and its risk in every interval."""
        return math.sqrt(2) if norm == "l2" else 1 + math.sqrt(self.width // 2)

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Events and risk in every interval (sites, 2 x intervals), as the mechanism lets them out."""
        most = USUAL_RISK if mechanism.deviation(1) > 0 else LARGEST_RISK
        told = [
            mechanism.noisy_sums(part, [key / name / "noise"], 0)[0]
            for name, part in zip(cohort.names, self._parts(state, cohort, most), strict=True)
        ]
        return Updates(cohort.names, np.stack(told))

    def _parts(self, state: Array, cohort: Cohort, most: float) -> "list[AtRisk]":
        """What the records of each site contribute; looked at in one go where all have the same state."""
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
        """What each record adds: its event, and its risk while it was there (records, 2 x intervals).

        A record whose risk is above `most` counts for less in both. That depends on its features alone, so
        the ratio of events to risk stays right.
        """
        known = _follow_up(tuple(self._ends), self._unit, table)
        return AtRisk(self._risks(state, table.features), *known, most).rows

    def _risks(self, state: Array, features: Array) -> Array:
        """Hazard ratios (records, intervals), or one column where they stay the same."""
        return exp(np.minimum(self.task.log_risks(state, features), 50.0))

    def apply(self, state: Array, combined: Array, noise: float = 0.0) -> Array:
        """The state, followed by the hazard that each interval adds."""
        ends, sums = self._ends, combined
        events, at_risk = nearest_counts(sums[: len(ends)]), sums[len(ends) :] / self._unit
        widths = np.diff(ends, prepend=0.0)
        firm = at_risk > FIRM * noise / self._unit
        rates = np.divide(events, at_risk * widths, out=np.zeros_like(events), where=firm)
        # From where hardly anybody is left on, the last hazard that is known goes on.
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
    """The interval of each event, one beyond the last where there is none; exposures in units; weights."""
    found = np.asarray(ends)
    own = np.searchsorted(found, table.targets["time"], side="left")
    seen = np.where(table.targets["event"] > 0, own, len(ends))
    weight = table.targets.get("weight", np.ones(len(table)))
    return seen, unit * exposures(found, table.targets), weight


class AtRisk:
    """Events and risk of the records of a site (`tacit.privacy.mechanisms.base.Contributions`).

    They are written out where somebody asks how long they are, and only then.

    Args:
        risks: Hazard ratios (records, intervals), or one column.
        seen: The interval of each event; one beyond the last where there is none.
        exposed: How long each was there in each interval (records, intervals).
        weight: What each counts for.
        most: The risk above which a record counts for less.
    """

    def __init__(self, risks: Array, seen: Integers, exposed: Array, weight: Array, most: float) -> None:
        self._risks, self._seen, self._exposed = risks, seen, exposed
        # A risk too small for a number counts in full, and says nothing.
        self._weight = weight * np.minimum(most / np.maximum(risks.max(axis=1), TINY), 1.0)

    @cached_property
    def rows(self) -> Array:
        """What each record adds (records, 2 x intervals)."""
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
