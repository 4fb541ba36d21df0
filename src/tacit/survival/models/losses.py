"""The losses of survival models on a grid of intervals, by their slopes, every record at once.

Each is a sum over records. What a loss knows of a record is where its event happened and how long it was at
risk in each interval; what a model needs of it is the hazard that an interval adds. A record that was seen
only from its `entry` on counts from there, and its `weight` says how much it counts.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.learning.batches import Marks
from tacit.learning.elementwise import exp, log, sigmoid, softplus
from tacit.runtime.arrays import Array
from tacit.sites.table import Table

# Columns that are prepared once for a table's records.
HAPPENED, EXPOSED = "happened in each interval", "exposed in each interval"
# Log-rates beyond this are no longer told apart: e^30 events in an interval are as certain as any.
LARGEST_LOG_RATE = 30.0


class GridLoss(ABC):
    """The negative log-likelihood of a model with one output for each interval.

    Args:
        ends: The ends of the intervals, ascending.
    """

    def __init__(self, ends: Sequence[float]) -> None:
        self.ends = np.asarray(ends, dtype=np.float64)

    def slopes(self, outputs: Array, targets: Mapping[str, Array], present: Marks) -> Array:
        """The gradient in the outputs (sites, units, members, outputs)."""
        found = self.gradients(outputs, targets)
        if "weight" in targets:
            found *= targets["weight"][..., None]
        return found

    def values(self, outputs: Array, targets: Mapping[str, Array]) -> Array:
        """The loss of each record."""
        found = self.likelihoods(outputs, targets)
        return found * targets["weight"] if "weight" in targets else found

    @abstractmethod
    def gradients(self, outputs: Array, targets: Mapping[str, Array]) -> Array:
        """The gradient of each record's negative log-likelihood in its outputs."""

    @abstractmethod
    def likelihoods(self, outputs: Array, targets: Mapping[str, Array]) -> Array:
        """The negative log-likelihood of each record."""

    @abstractmethod
    def increments(self, outputs: Array) -> Array:
        """The cumulative hazard that each interval adds (..., intervals)."""

    @staticmethod
    @abstractmethod
    def initial_output(hazard: float) -> float:
        """Return the output that gives this hazard in every interval."""

    def prepare(self, table: Table) -> Table:
        """Return the table with the loss's columns beside its targets: computed once for all steps."""
        happened, exposed = self._find_events(table.targets)
        known = {HAPPENED: happened.astype(np.float64), EXPOSED: exposed.astype(np.float64)}
        return Table(table.features, {**table.targets, **known}, table.columns, table.place)

    def events_at_risk(self, targets: Mapping[str, Array]) -> tuple[Array | Marks, Array | Marks]:
        """Return where the event happened, and where it could have (..., intervals)."""
        return (targets[HAPPENED], targets[EXPOSED]) if HAPPENED in targets else self._find_events(targets)

    @abstractmethod
    def _find_events(self, targets: Mapping[str, Array]) -> tuple[Marks, Array | Marks]:
        """Compute the result of `events_at_risk`."""

    def _own(self, time: Array, event: Array) -> tuple[NDArray[np.int64], Marks]:
        """Return the interval of a time, and whether an event is seen in it."""
        own = np.searchsorted(self.ends, time, side="left")
        return own, (event > 0) & (own < len(self.ends))


class HazardLoss(GridLoss):
    """Discrete-time hazards: the chance of the event in an interval is the logistic function of the output.

    A record is at risk in every interval up to its own. An event counts in the interval it falls into; a
    censored record has survived the intervals before its own, and its own if it left at the very end.
    """

    def gradients(self, outputs: Array, targets: Mapping[str, Array]) -> Array:
        """The gradient in the log-odds."""
        events, at_risk = self.events_at_risk(targets)
        return at_risk * (sigmoid(outputs) - events)

    def likelihoods(self, outputs: Array, targets: Mapping[str, Array]) -> Array:
        """The loss of each record."""
        events, at_risk = self.events_at_risk(targets)
        return (at_risk * (np.logaddexp(0.0, outputs) - events * outputs)).sum(axis=-1)

    def increments(self, outputs: Array) -> Array:
        """Minus the logarithm of the chance to get through."""
        return softplus(outputs)

    @staticmethod
    def initial_output(hazard: float) -> float:
        """Return the log-odds."""
        return float(np.log(np.expm1(hazard)))

    def _find_events(self, targets: Mapping[str, Array]) -> tuple[Marks, Marks]:
        """Return where the event happened, and where it could have (..., intervals)."""
        intervals, time = np.arange(len(self.ends)), targets["time"]
        own, happened = self._own(time, targets["event"])
        survived = np.searchsorted(self.ends, time, side="right")
        last = np.where(happened, own, survived - 1)
        at_risk = intervals <= last[..., None]
        if "entry" in targets:
            # A record that enters during an interval is counted in it.
            at_risk &= intervals >= np.searchsorted(self.ends, targets["entry"], side="right")[..., None]
        return (happened[..., None]) & (intervals == own[..., None]), at_risk


def exposures(ends: Array, targets: Mapping[str, Array]) -> Array:
    """The share of each interval that each record was at risk (..., intervals)."""
    starts = np.concatenate([[0.0], ends[:-1]])

    def share_until(until: Array) -> Array:
        return np.clip((until[..., None] - starts) / (ends - starts), 0.0, 1.0)

    found = share_until(targets["time"])
    return found - share_until(targets["entry"]) if "entry" in targets else found


class ExposureLoss(GridLoss):
    """Piecewise constant hazards, by the share of each interval that a record was at risk."""

    def _find_events(self, targets: Mapping[str, Array]) -> tuple[Marks, Array]:
        """Return where the event happened, and the share of each interval at risk (..., intervals)."""
        own, happened = self._own(targets["time"], targets["event"])
        events = happened[..., None] & (np.arange(len(self.ends)) == own[..., None])
        return events, exposures(self.ends, targets)


class PiecewiseLoss(ExposureLoss):
    """PC-Hazard: an interval adds softplus of its output (Kvamme and Borgan 2021)."""

    def gradients(self, outputs: Array, targets: Mapping[str, Array]) -> Array:
        """The gradient in the outputs."""
        events, shares = self.events_at_risk(targets)
        found = np.array(shares, dtype=np.float64)
        # Events are few: one interval of a record at most.
        seen = np.nonzero(events)
        found[seen] -= 1 / self.increments(outputs[seen])
        found *= sigmoid(outputs)
        return found

    def likelihoods(self, outputs: Array, targets: Mapping[str, Array]) -> Array:
        """The loss of each record."""
        events, shares = self.events_at_risk(targets)
        added = self.increments(outputs)
        return (shares * added - events * log(added)).sum(axis=-1)

    def increments(self, outputs: Array) -> Array:
        """Return softplus, always above 0."""
        found = softplus(outputs)
        return np.maximum(found, 1e-300, out=found)

    @staticmethod
    def initial_output(hazard: float) -> float:
        """Return the inverse of softplus."""
        return float(np.log(np.expm1(hazard)))


class PoissonLoss(ExposureLoss):
    """Piecewise exponential times: an interval adds e to its output, as events of a Poisson law would."""

    def gradients(self, outputs: Array, targets: Mapping[str, Array]) -> Array:
        """The gradient in the log-rates."""
        events, shares = self.events_at_risk(targets)
        return shares * self.increments(outputs) - events

    def likelihoods(self, outputs: Array, targets: Mapping[str, Array]) -> Array:
        """The loss of each record."""
        events, shares = self.events_at_risk(targets)
        return (shares * self.increments(outputs) - events * outputs).sum(axis=-1)

    def increments(self, outputs: Array) -> Array:
        """Return the rates."""
        return exp(np.minimum(outputs, LARGEST_LOG_RATE))

    @staticmethod
    def initial_output(hazard: float) -> float:
        """Return the log-rate."""
        return float(np.log(hazard))
