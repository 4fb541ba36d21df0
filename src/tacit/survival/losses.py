"""The losses of survival models, by their slopes; numpy alone, every record at once."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from tacit.batched.batches import Marks

Array = NDArray[np.float64]


class HazardLoss:
    """The negative log-likelihood of discrete-time hazards.

    A record is at risk in every interval up to its own. An event counts in the interval it falls into; a
    censored record has survived the intervals before its own, and its own if it left at the very end.

    Args:
        ends: The ends of the intervals, ascending.
    """

    def __init__(self, ends: Sequence[float]) -> None:
        self._ends = np.asarray(ends, dtype=np.float64)

    def slopes(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The gradient in the log-odds (sites, units, members, intervals)."""
        events, at_risk = self._seen(targets["time"], targets["event"])
        return at_risk * (np.asarray(expit(outputs), dtype=np.float64) - events)

    def values(self, outputs: Array, targets: Mapping[str, Array]) -> Array:
        """The loss of each record."""
        events, at_risk = self._seen(targets["time"], targets["event"])
        return (at_risk * (np.logaddexp(0.0, outputs) - events * outputs)).sum(axis=-1)

    def _seen(self, time: Array, event: Array) -> tuple[Marks, Marks]:
        """Where the event happened, and where it could have (..., intervals)."""
        intervals = np.arange(len(self._ends))
        own = np.searchsorted(self._ends, time, side="left")
        happened = (event == 1) & (own < len(self._ends))
        survived = np.searchsorted(self._ends, time, side="right")
        last = np.where(happened, own, survived - 1)
        return (happened[..., None]) & (intervals == own[..., None]), intervals <= last[..., None]
