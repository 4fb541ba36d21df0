"""Where to cut time, asked of the sites: about when events happen, from one noisy histogram of each.

The cells of the histogram are public and fit any unit of time, from millionths to millions of it, so nobody
needs to know a horizon.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue
from tacit.learning.task import Updates
from tacit.privacy.mechanisms.base import Mechanism, Norm
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort
from tacit.survival.life_table import nearest_counts
from tacit.survival.targets import LAST_LEVEL

# Two cells for each doubling of time.
EDGES = np.exp2(np.arange(-40, 41) / 2)


@dataclass(frozen=True)
class TimeGridQuery:
    """The question for the ends of so many intervals (`tacit.learning.task.Opening`)."""

    cuts: int
    kind: ClassVar[str] = "time grid"
    share: ClassVar[float] = 0.2

    @property
    def placeholder(self) -> dict[str, Any]:
        """Intervals of length 1."""
        return {"cuts": [float(end) for end in range(1, self.cuts + 1)]}

    @property
    def width(self) -> int:
        """How many cells there are."""
        return len(EDGES) - 1

    def record_bound(self, norm: Literal["l2", "l1"]) -> float:
        """One record adds its event to one cell."""
        return 1.0

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """How many events fall into each cell (sites, cells), as the mechanism lets it out."""
        told: list[Array] = []
        for place, name in enumerate(cohort.names):
            targets = cohort.records_of(place).targets
            cells = EventCounts(targets["time"], targets["event"] > 0)
            told.append(mechanism.noisy_sums(cells, [key / name / "noise"], 0)[0])
        return Updates(cohort.names, np.stack(told))

    def decode(self, combined: Array, noise: float = 0.0) -> dict[str, Any]:
        """Quantiles of the event times: the ends of the intervals."""
        counts = _denoise_counts(combined)
        if not counts.any():
            raise InvalidValue(
                "cuts cannot be placed: the noise hides when events happen; give a public `horizon`, or the "
                "`cuts` themselves, in [task]"
            )
        below = np.concatenate([[0.0], np.cumsum(counts)]).astype(np.float64)
        levels = np.linspace(0, LAST_LEVEL * float(below[-1]), self.cuts + 1)[1:]
        cell = np.minimum(np.searchsorted(below[1:], levels, side="left"), len(counts) - 1)
        # Inside a cell, events are spread evenly on a log scale.
        part = np.clip((levels - below[cell]) / counts[cell], 0.0, 1.0)
        logs = np.log2(EDGES[cell]) + part * np.log2(EDGES[cell + 1] / EDGES[cell])
        ends = np.exp2(np.asarray(logs, dtype=np.float64))
        return {"cuts": [float(end) for end in np.unique(ends)]}


def _denoise_counts(noisy: Array) -> Array:
    """Counts that are not noise: the cells around the fullest one, and others that stand out."""
    counts = _main_body(nearest_counts(noisy))
    if not counts.any():
        return counts
    # Most cells hold nobody, so the middle of all sizes is that of the noise: 1.4826 times it is a deviation.
    sure = noisy > 4 * 1.4826 * float(np.median(np.abs(noisy)))
    return np.where(sure, np.maximum(noisy, 0.0), counts)


def _main_body(counts: Array) -> Array:
    """The cells around the fullest one, up to where two in a row are empty."""
    empty = np.flatnonzero((counts[:-1] == 0) & (counts[1:] == 0))
    top = int(np.argmax(counts))
    first = max([place + 1 for place in empty if place < top], default=0)
    last = min([place for place in empty if place >= top], default=len(counts) - 1)
    places = np.arange(len(counts))
    return np.where((places >= first) & (places <= last), counts, 0.0)


class EventCounts:
    """Events by the cell they fall into (`Contributions`): one record, one cell.

    Guarantee:
        Each record adds 1 to one cell, or nothing.
    """

    def __init__(self, time: Array, happened: NDArray[np.bool_]) -> None:
        cell = np.searchsorted(EDGES, time, side="left") - 1
        self._cell = np.clip(cell, 0, len(EDGES) - 2)
        self._happened = happened.astype(np.float64)

    def lengths(self, norm: Norm) -> Array:
        """1 for an event, 0 for a censored record (1, records)."""
        return self._happened[None]

    def total(self, factors: Array | None) -> Array:
        """The counts (1, cells)."""
        counted = self._happened if factors is None else self._happened * factors[0]
        found = np.bincount(self._cell, weights=counted, minlength=len(EDGES) - 1)
        return found.astype(np.float64)[None]
