"""The losses of survival models on a grid of intervals, by their slopes; numpy alone, every record at once.

Each is a sum over records. What a loss knows of a record is where its event happened and how long it was at
risk in each interval; what a model needs of it is the hazard that an interval adds.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit

from tacit.batched.batches import Marks

Array = NDArray[np.float64]

# Log-rates beyond this are no longer told apart: e^30 events in an interval are as certain as any.
LARGEST_LOG_RATE = 30.0


class GridLoss(ABC):
    """The negative log-likelihood of a model with one output for each interval.

    Args:
        ends: The ends of the intervals, ascending.
    """

    def __init__(self, ends: Sequence[float]) -> None:
        self.ends = np.asarray(ends, dtype=np.float64)

    @abstractmethod
    def slopes(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The gradient in the outputs (sites, units, members, intervals)."""

    @abstractmethod
    def values(self, outputs: Array, targets: Mapping[str, Array]) -> Array:
        """The loss of each record."""

    @abstractmethod
    def increments(self, outputs: Array) -> Array:
        """The cumulative hazard that each interval adds (..., intervals)."""

    @staticmethod
    @abstractmethod
    def resting(hazard: float) -> float:
        """The output that stands for this hazard in every interval."""

    def _own(self, time: Array, event: Array) -> tuple[NDArray[np.int64], Marks]:
        """The interval that a time falls into, and whether an event is seen in it."""
        own = np.searchsorted(self.ends, time, side="left")
        return own, (event == 1) & (own < len(self.ends))


class HazardLoss(GridLoss):
    """Discrete-time hazards: the chance of the event in an interval is the logistic function of the output.

    A record is at risk in every interval up to its own. An event counts in the interval it falls into; a
    censored record has survived the intervals before its own, and its own if it left at the very end.
    """

    def slopes(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The gradient in the log-odds."""
        events, at_risk = self._seen(targets["time"], targets["event"])
        return at_risk * (np.asarray(expit(outputs), dtype=np.float64) - events)

    def values(self, outputs: Array, targets: Mapping[str, Array]) -> Array:
        """The loss of each record."""
        events, at_risk = self._seen(targets["time"], targets["event"])
        return (at_risk * (np.logaddexp(0.0, outputs) - events * outputs)).sum(axis=-1)

    def increments(self, outputs: Array) -> Array:
        """Minus the logarithm of the chance to get through."""
        return -np.asarray(log_expit(-outputs), dtype=np.float64)

    @staticmethod
    def resting(hazard: float) -> float:
        """The log-odds."""
        return float(np.log(np.expm1(hazard)))

    def _seen(self, time: Array, event: Array) -> tuple[Marks, Marks]:
        """Where the event happened, and where it could have (..., intervals)."""
        intervals = np.arange(len(self.ends))
        own, happened = self._own(time, event)
        survived = np.searchsorted(self.ends, time, side="right")
        last = np.where(happened, own, survived - 1)
        return (happened[..., None]) & (intervals == own[..., None]), intervals <= last[..., None]


class ExposureLoss(GridLoss):
    """Piecewise constant hazards: what counts is the share of each interval that a record was at risk."""

    def _seen(self, time: Array, event: Array) -> tuple[Marks, Array]:
        """Where the event happened, and the share of each interval lived through (..., intervals)."""
        starts = np.concatenate([[0.0], self.ends[:-1]])
        shares = np.clip((time[..., None] - starts) / (self.ends - starts), 0.0, 1.0)
        own, happened = self._own(time, event)
        return happened[..., None] & (np.arange(len(self.ends)) == own[..., None]), shares


class PiecewiseLoss(ExposureLoss):
    """PC-Hazard: an interval adds softplus of its output (Kvamme and Borgan 2021)."""

    def slopes(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The gradient in the outputs."""
        events, shares = self._seen(targets["time"], targets["event"])
        return np.asarray(expit(outputs), dtype=np.float64) * (shares - events / self.increments(outputs))

    def values(self, outputs: Array, targets: Mapping[str, Array]) -> Array:
        """The loss of each record."""
        events, shares = self._seen(targets["time"], targets["event"])
        added = self.increments(outputs)
        return (shares * added - events * np.log(added)).sum(axis=-1)

    def increments(self, outputs: Array) -> Array:
        """Softplus."""
        return np.maximum(np.logaddexp(0.0, outputs), 1e-300)

    @staticmethod
    def resting(hazard: float) -> float:
        """The inverse of softplus."""
        return float(np.log(np.expm1(hazard)))


class PoissonLoss(ExposureLoss):
    """Piecewise exponential times: an interval adds e to its output, as events of a Poisson law would."""

    def slopes(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The gradient in the log-rates."""
        events, shares = self._seen(targets["time"], targets["event"])
        return shares * self.increments(outputs) - events

    def values(self, outputs: Array, targets: Mapping[str, Array]) -> Array:
        """The loss of each record."""
        events, shares = self._seen(targets["time"], targets["event"])
        return (shares * self.increments(outputs) - events * outputs).sum(axis=-1)

    def increments(self, outputs: Array) -> Array:
        """The rates."""
        return np.exp(np.minimum(outputs, LARGEST_LOG_RATE))

    @staticmethod
    def resting(hazard: float) -> float:
        """The log-rate."""
        return float(np.log(hazard))
