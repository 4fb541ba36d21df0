"""Prediction models of survival tasks: curves, risks and times from features.

Every model is hazard that the intervals of a grid add; inside an interval the hazard is constant, so curves
have no steps and no ties that are not in the records.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import Refused, require
from tacit.learning.elementwise import exp
from tacit.learning.record import Simplest
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import SeriesLike
from tacit.sites.encoding import Encoding
from tacit.sites.table import Table, from_arrays
from tacit.survival.metrics.brier_score import Brier, kaplan_meier, outcomes
from tacit.survival.metrics.concordance import Harrell, harrell

if TYPE_CHECKING:
    import pandas as pd

    from tacit.learning.perceptron import Perceptron
    from tacit.survival.models.cox import RelativeRiskLearner
    from tacit.survival.models.deephit import IncidenceLoss
    from tacit.survival.models.losses import GridLoss


# Brier scores are integrated between these quantiles of the held-out times: beyond, few records are at risk.
SCORED_SPAN = (0.05, 0.9)
SCORED_TIMES = 100
# Times later than the horizon by this share are the horizon, rounded.
ROUNDING = 1e-9


class GridModel(ABC):
    """A fitted survival model. Features are an array or a DataFrame, whose columns may be in any order.

    A DataFrame is encoded as the records were that the model is of; an array holds encoded numbers.
    """

    columns: tuple[str, ...]
    encoding: Encoding

    @property
    @abstractmethod
    def ends(self) -> Array:
        """The ends of the intervals, ascending; the first begins at 0."""

    @abstractmethod
    def increments(self, matrix: Array) -> Array:
        """The cumulative hazard that each interval adds (records, intervals), of encoded features."""

    def cumulative_hazard(self, features: "ArrayLike | pd.DataFrame", times: ArrayLike) -> Array:
        """The cumulative hazard at each time (records, times); NaN beyond the horizon, with a warning."""
        return self._within_horizon(self._at(self.cumulative(features), times), times)

    def survival(self, features: "ArrayLike | pd.DataFrame", times: ArrayLike) -> Array:
        """The chance of being event-free at each time (records, times); NaN beyond the horizon, with a
        warning.
        """  # noqa: D205
        return self._within_horizon(self._surviving(self.cumulative(features), times), times)

    def hazard(self, features: "ArrayLike | pd.DataFrame", times: ArrayLike) -> Array:
        """Return the hazard rate at each time (records, times); NaN beyond the horizon, with a warning."""
        moments = np.atleast_1d(np.asarray(times, dtype=np.float64))
        place, _ = self._within(moments)
        rates = self.increments(self.encode(features)) / np.diff(self.ends, prepend=0.0)
        return self._within_horizon(rates[:, place], moments)

    def median(self, features: "ArrayLike | pd.DataFrame") -> Array:
        """Return the median survival time (records,); infinite if the curve stays above half."""
        return self.quantile(features, 0.5)

    def quantile(self, features: "ArrayLike | pd.DataFrame", share: float) -> Array:
        """Return the time by which `share` had the event (records,); infinite if the curve ends before."""
        require(0 < share < 1, "share", share, "above 0 and below 1")
        hazard, wanted = self.cumulative(features), -np.log1p(-share)
        edges = np.concatenate([[0.0], self.ends])
        before = np.concatenate([np.zeros((len(hazard), 1)), hazard], axis=1)
        place = np.minimum((hazard < wanted).sum(axis=1), len(self.ends) - 1)
        rows = np.arange(len(hazard))
        low, added = before[rows, place], before[rows, place + 1] - before[rows, place]
        part = np.divide(wanted - low, added, out=np.ones_like(low), where=added > 0)
        found = edges[place] + part * (edges[place + 1] - edges[place])
        return np.where(hazard[:, -1] >= wanted, found, np.inf)

    def risk(self, features: "ArrayLike | pd.DataFrame") -> Array:
        """A score (records,), the higher, the earlier the event: cumulative hazard summed over the grid."""
        return self.cumulative(features).sum(axis=1)

    def cumulative(self, features: "ArrayLike | pd.DataFrame") -> Array:
        """The cumulative hazard at the end of each interval (records, intervals)."""
        return np.cumsum(self.increments(self.encode(features)), axis=1)

    def curves(self, features: "pd.DataFrame", times: ArrayLike) -> "pd.DataFrame":
        """Survival curves as lifelines has them: a row for each time, a column for each record."""
        import pandas as pd

        moments = np.atleast_1d(np.asarray(times, dtype=np.float64))
        found = self.survival(features, moments)
        return pd.DataFrame(found.T, index=pd.Index(moments, name="time"), columns=features.index)

    def encode(self, features: "ArrayLike | pd.DataFrame") -> Array:
        """Encode features for the network (records, columns)."""
        if getattr(features, "columns", None) is not None:
            return self.encoding.features(features, self.columns, "features")  # pyright: ignore
        if isinstance(features, SeriesLike):
            return self.encode(self._frame_of(features))
        table = from_arrays(np.atleast_2d(np.asarray(features)), place="features")
        fits = table.features.shape[1] == len(self.columns)
        require(fits, "features", f"{table.features.shape[1]} columns", f"{len(self.columns)} columns")
        return table.features

    def _frame_of(self, record: SeriesLike) -> "pd.DataFrame":
        """Convert one record, such as `frame.iloc[0]`, to a frame."""
        named = set(record.index)
        whole = all(name in named for name in self.encoding.raw(self.columns))
        allowed = "a DataFrame, as frame.iloc[[0]] for one record and frame[COLUMNS] for several"
        require(whole, "features", "a Series that is not one record", allowed)
        return record.to_frame().T.infer_objects()

    def risk_and_survival(self, matrix: Array, times: Array) -> tuple[Array, Array]:
        """Return risks (records,) and survival (records, times), from one pass over encoded features."""
        hazard = np.cumsum(self.increments(matrix), axis=1)
        return hazard.sum(axis=1), self._surviving(hazard, times)

    def _within_horizon(self, found: Array, times: ArrayLike) -> Array:
        """Replace predictions beyond the end of the grid by NaN, and warn: nothing was learnt there."""
        horizon = float(self.ends[-1])
        late = np.atleast_1d(np.asarray(times, dtype=np.float64)) > horizon * (1 + ROUNDING)
        if not late.any():
            return found
        warnings.warn(
            f"predictions beyond the horizon, {horizon:g}, are NaN: nothing was learnt there. Train with a "
            "later horizon, or hold the last value with np.minimum(times, model.ends[-1])",
            stacklevel=3,
        )
        return np.where(late, np.nan, found)

    def _surviving(self, hazard: Array, times: ArrayLike) -> Array:
        """Return survival at each time, from cumulative hazards at the ends; constant after the last."""
        return exp(-self._at(hazard, times))

    def _at(self, hazard: Array, times: ArrayLike) -> Array:
        """Return cumulative hazards at each time, from those at the ends of the intervals."""
        place, share = self._within(times)
        # Nothing has added up before the first interval. Not a product of matrices: a record's curve has the
        # same bits however many others are looked at.
        before = np.concatenate([np.zeros((len(hazard), 1)), hazard], axis=1)
        return before[:, place] * (1 - share) + before[:, place + 1] * share

    def _within(self, times: ArrayLike) -> tuple[NDArray[np.int64], Array]:
        """Return the interval of each time, and the elapsed share of it."""
        moments = np.atleast_1d(np.asarray(times, dtype=np.float64))
        require(bool((moments >= 0).all()), "times", "one below 0", "at least 0")
        edges = np.concatenate([[0.0], self.ends])
        place = np.clip(np.searchsorted(edges, moments, side="right") - 1, 0, len(edges) - 2)
        return place, np.clip((moments - edges[place]) / np.diff(edges)[place], 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class HazardModel(GridModel):
    """Hazards by a network with an output for each interval.

    Args:
        program: The network.
        loss: Loss that defines the meaning of its outputs.
        weights: Its weights, flat.
        columns: The names of the features.
        encoding: Encoding of raw columns as features.
    """

    program: "Perceptron"
    loss: "GridLoss"
    weights: Array
    columns: tuple[str, ...]
    encoding: Encoding = field(default_factory=Encoding)

    @property
    def ends(self) -> Array:
        """The ends of the intervals."""
        return self.loss.ends

    def increments(self, matrix: Array) -> Array:
        """The cumulative hazard that each interval adds (records, intervals)."""
        return self.loss.increments(self.outputs(matrix))

    def outputs(self, matrix: Array) -> Array:
        """Return the outputs of the network."""
        return self.program.outputs(self.weights[None], matrix[None])[0]


@dataclass(frozen=True, eq=False)
class IncidenceModel(HazardModel):
    """The chance of every interval and cause; all curves of survival are about having no event at all."""

    loss: "IncidenceLoss"

    def incidence(self, features: "ArrayLike | pd.DataFrame", times: ArrayLike, cause: int = 1) -> Array:
        """The chance of an event of this cause up to each time (records, times); NaN beyond the horizon.

        Inside an interval, events of all causes come as the hazard has it, each cause with a constant part.
        """
        require(cause in range(1, self.loss.causes + 1), "cause", cause, f"from 1 to {self.loss.causes}")
        place, _ = self._within(times)
        chances = self.loss.chances(self.outputs(self.encode(features)))
        own, every = chances[:, cause - 1], chances.sum(axis=1)
        part = np.divide(own, every, out=np.zeros_like(own), where=every > 0)
        before = np.concatenate([np.zeros((len(own), 1)), np.cumsum(own, axis=1)], axis=1)
        starts = np.concatenate([[0.0], self.ends])[place]
        hazard = self.cumulative(features)
        happened = self._surviving(hazard, starts) - self._surviving(hazard, times)
        return self._within_horizon(before[:, place] + part[:, place] * happened, times)

    def cause_risk(self, features: "ArrayLike | pd.DataFrame", cause: int = 1) -> Array:
        """A score (records,), the higher, the earlier an event of this cause: its incidence over the grid."""
        return self.incidence(features, self.ends, cause).sum(axis=1)


@dataclass(frozen=True, eq=False)
class RelativeModel(GridModel):
    """Relative risks by a network, and the hazard that all records share.

    Args:
        task: The task.
        state: Its weights.
        baseline: The hazard that each adds to a record whose log risk is 0; None before it has been asked.
    """

    task: "RelativeRiskLearner"
    state: Array
    baseline: Array | None

    @property
    def ends(self) -> Array:
        """The ends of the intervals."""
        return np.asarray(self.task.cuts, dtype=np.float64)

    @property
    def columns(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The names of the features."""
        return tuple(self.task.columns)

    @property
    def encoding(self) -> Encoding:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Encoding of raw columns as features."""
        return self.task.encoding

    def log_risk(self, features: "ArrayLike | pd.DataFrame") -> Array:
        """Log hazard ratios against a record of zeros (records, intervals); one column if they stay."""
        return self.task.log_risks(self.state, self.encode(features))

    def increments(self, matrix: Array) -> Array:
        """The cumulative hazard that each interval adds (records, intervals)."""
        return self._hazard_increments(self.task.log_risks(self.state, matrix))

    def risk(self, features: "ArrayLike | pd.DataFrame") -> Array:
        """Return the log hazard ratio where it is constant, else the cumulative hazard on the grid."""
        return self._risk_score(self.log_risk(features))

    def risk_and_survival(self, matrix: Array, times: Array) -> tuple[Array, Array]:
        """Return risks (records,) and survival (records, times), from one pass over encoded features."""
        ratios = self.task.log_risks(self.state, matrix)
        hazard = np.cumsum(self._hazard_increments(ratios), axis=1)
        return self._risk_score(ratios), self._surviving(hazard, times)

    def _hazard_increments(self, ratios: Array) -> Array:
        if self.baseline is None:
            raise Refused("curves need the baseline hazard, which a run computes at its end")
        return self.baseline * exp(np.minimum(ratios, 50.0))

    def _risk_score(self, ratios: Array) -> Array:
        if ratios.shape[1] == 1:
            return ratios[:, 0]
        shared = np.full(len(self.ends), 1 / len(self.ends)) if self.baseline is None else self.baseline
        return np.cumsum(shared * np.exp(np.minimum(ratios, 50.0)), axis=1).sum(axis=1)


def score(model: GridModel, held_out: Table) -> dict[str, float]:
    """Harrell's concordance, and the Brier score integrated over the bulk of the held-out times."""
    ordered, calibrated = _scorers(held_out)
    if isinstance(model, RelativeModel) and model.baseline is None:
        return {"c_index": ordered(model.risk(held_out.features))}
    risks, curves = model.risk_and_survival(held_out.features, calibrated.times)
    return {"c_index": ordered(risks), "ibs": calibrated.integrate(curves)}


def score_kaplan_meier(held_out: Table, causes: int = 1) -> Simplest:
    """Score the Kaplan-Meier curve of the held-out records themselves, which ranks no record."""
    _, calibrated = _scorers(held_out)
    times, events = outcomes(held_out.targets["time"], held_out.targets["event"] > 0)
    curve = kaplan_meier(times, events)(calibrated.times)
    ordered = {"c_index": 0.5, **{f"c_index_{cause}": 0.5 for cause in range(1, causes + 1) if causes > 1}}
    spread = np.broadcast_to(curve, (len(held_out), len(calibrated.times)))
    return Simplest(
        name="Kaplan-Meier",
        how="one curve for all records, estimated from the scored records themselves; no ranking",
        scores={**ordered, "ibs": calibrated.integrate(spread)},
        lower=("ibs",),
    )


@lru_cache(maxsize=4)
def _scorers(held_out: Table) -> tuple[Harrell, Brier]:
    """Return the scorers that all models on these records share."""
    time, event = held_out.targets["time"], held_out.targets["event"] > 0
    return Harrell(time, event), Brier(time, event, scoring_times(time))


def score_causes(model: IncidenceModel, held_out: Table) -> dict[str, float]:
    """The scores of having any event, and the concordance of each cause, others being censored."""
    found, time = score(model, held_out), held_out.targets["time"]
    if model.loss.causes == 1:
        return found
    for cause in range(1, model.loss.causes + 1):
        own = (held_out.targets["event"] == cause).astype(np.float64)
        if own.any():
            found[f"c_index_{cause}"] = harrell(time, own, model.cause_risk(held_out.features, cause))
    return found


def scoring_times(time: Array | Sequence[float]) -> Array:
    """Return the times of Brier scores: evenly over the bulk of the times."""
    first, last = (float(end) for end in np.quantile(time, SCORED_SPAN))
    return np.linspace(first, last, SCORED_TIMES)
