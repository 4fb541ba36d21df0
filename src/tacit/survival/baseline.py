"""The hazard that all records share, asked of the sites once relative risks are known (Breslow 1974).

Sites answer with sums on a public grid, never with event times: how many events, and how much risk was there,
in each interval. The hazard that an interval adds is the ratio of the two.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.keys import Key
from tacit.privacy.mechanism import Mechanism, Rows
from tacit.sites.site import Cohort
from tacit.sites.tables import Table
from tacit.survival.histograms import nearest_counts
from tacit.survival.losses import exposures
from tacit.task import Updates

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.survival.relative import Relative

Array = NDArray[np.float64]

# Hazard ratios beyond which a record counts for less: under noise, so that none needs to be clipped; without
# it, so that a handful of outliers does not stand for everybody.
USUAL_RISK, LARGEST_RISK = math.e, math.exp(4)
# Where the risk in an interval is fewer deviations of the noise than this, the hazard before is taken.
FIRM = 3.0


@dataclass(frozen=True)
class Breslow:
    """The question for the shared hazard of a model of relative risks (`tacit.task.Closing`)."""

    task: "Relative"
    kind: ClassVar[str] = "baseline hazard"
    share: ClassVar[float] = 0.2

    @property
    def width(self) -> int:
        """Events and risk, in each interval."""
        cuts = self.task.cuts
        return 2 * (cuts if isinstance(cuts, int) else len(cuts))

    def reach(self, norm: Literal["l2", "l1"]) -> float:
        """How far one record of usual risk moves the sums: its event, and its risk in every interval."""
        return math.sqrt(2) if norm == "l2" else 1 + math.sqrt(self.width // 2)

    def train(self, state: "Tensor", cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Events and risk in every interval (sites, 2 x intervals), as the mechanism lets them out."""
        import torch

        most = USUAL_RISK if mechanism.deviation(1) > 0 else LARGEST_RISK
        told = [
            mechanism.noisy_sums(Rows(torch.from_numpy(rows)[None]), [key / name / "noise"], 0)[0]
            for name, rows in zip(cohort.names, self._rows(state, cohort, most), strict=True)
        ]
        return Updates(cohort.names, torch.from_numpy(np.stack(told)))

    def _rows(self, state: "Tensor", cohort: Cohort, most: float) -> list[Array]:
        """What the records of each site contribute; in one go where all sites have the same state."""
        if state.ndim > 1:
            return [
                self.contributions(own, cohort.records_of(place), most) for place, own in enumerate(state)
            ]
        places = [
            np.arange(start, start + size, dtype=np.int64)
            for start, size in zip(cohort.starts.tolist(), cohort.sizes.tolist(), strict=True)
        ]
        rows = self.contributions(state, cohort.store.take(np.concatenate(places)), most)
        return np.split(rows, np.cumsum(cohort.sizes)[:-1])

    def contributions(self, state: "Tensor", table: Table, most: float = math.inf) -> Array:
        """What each record adds: its event, and its risk while it was there (records, 2 x intervals).

        A record whose risk is above `most` counts for less in both. That depends on its features alone, so
        the ratio of events to risk stays right.
        """
        ends = self._ends
        risks = np.exp(np.minimum(self.task.log_risks(state, table.features), 50.0))
        own = np.searchsorted(ends, table.targets["time"], side="left")
        events = (own[:, None] == np.arange(len(ends))) & (table.targets["event"] > 0)[:, None]
        weight = np.minimum(most / risks.max(axis=1, keepdims=True), 1.0)
        if "weight" in table.targets:
            weight = weight * table.targets["weight"][:, None]
        return weight * np.hstack([events, self._unit * exposures(ends, table.targets) * risks])

    def close(self, state: "Tensor", combined: "Tensor", noise: float = 0.0) -> "Tensor":
        """The state, followed by the hazard that each interval adds."""
        import torch

        ends, sums = self._ends, combined.double().numpy()
        events, at_risk = nearest_counts(sums[: len(ends)]), sums[len(ends) :] / self._unit
        widths = np.diff(ends, prepend=0.0)
        firm = at_risk > FIRM * noise / self._unit
        rates = np.divide(events, at_risk * widths, out=np.zeros_like(events), where=firm)
        # From where hardly anybody is left on, the last hazard that is known goes on.
        last = np.maximum.accumulate(np.where(firm, np.arange(len(ends)), -1))
        held = np.where(last >= 0, rates[np.maximum(last, 0)], 0.0)
        return torch.cat([state[: self._trained], torch.from_numpy(held * widths)])

    @property
    def _unit(self) -> float:
        return 1 / (USUAL_RISK * math.sqrt(len(self._ends)))

    @property
    def _ends(self) -> Array:
        return np.asarray(self.task.cuts, dtype=np.float64)

    @property
    def _trained(self) -> int:
        return self.task.program(len(self.task.columns)).size
