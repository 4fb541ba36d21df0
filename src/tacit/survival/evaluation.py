"""Evaluation of a survival model on private held-out records: one table of risk bin by interval by state.

A record is in one cell, so the table has sensitivity 1, however many cells it has. All scores follow from it:
concordance, Brier scores, calibration, Kaplan-Meier curves of risk groups, and Kaplan-Meier alone as the
simplest baseline (`tacit.survival.metrics.exit_table`). The edges of risk bins and intervals are functions of
the model, which was released: quantiles of the risk of simulated features, and interval ends with equal
numbers of expected events.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.learning.evaluation import TableCounts, collect_scores, list_band, shift, values_of
from tacit.learning.noisy_scores import Noise, choose_bins
from tacit.learning.query import EvaluationQueryBase, Updates
from tacit.learning.record import Evaluated, Simplest
from tacit.privacy.mechanisms.base import Mechanism
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.encoding import Encoding
from tacit.sites.federation import Cohort
from tacit.survival.life_table import require_exits
from tacit.survival.models.feature_scaling import FeatureScale, column_cells
from tacit.survival.models.prediction import GridModel

# Simulated records, from whose risks the bins are cut, and the records whose risk is computed at once.
SIMULATED, CHUNK = 4096, 4096
# Share of the expected events that intervals reach to.
SPAN = 0.9
# Share of ones in a column of 0 and 1, where none is known.
HALF = 0.5


class ScoredTask(Protocol):
    """A survival task that an evaluation can score."""

    @property
    def columns(self) -> Sequence[str]:
        """The names of the features."""
        ...

    @property
    def causes(self) -> int:
        """Return the number of kinds of events."""
        ...

    @property
    def encoding(self) -> Encoding:
        """Encoding of raw columns as features."""
        ...

    def model(self, state: Array) -> GridModel:
        """Return the prediction model."""
        ...


@dataclass(frozen=True, eq=False)
class RiskGrid:
    """Cells of the table; functions of a released model, hence public.

    Args:
        edges: Risks between the bins (bins - 1,).
        ends: The ends of the intervals (intervals,).
        predicted: Mean predicted survival of each bin at each end (bins, intervals).
        spread: Variance of predicted survival within each bin at each end (bins, intervals).
    """

    edges: Array
    ends: Array
    predicted: Array
    spread: Array

    @classmethod
    def of(cls, model: GridModel, features: Array, events: Array, bins: int, intervals: int) -> "RiskGrid":
        """Cut bins with equal numbers of simulated records, and intervals with equal numbers of events.

        Args:
            model: The model.
            features: Simulated features (records, columns).
            events: Expected events of each interval of the model, or equal numbers (intervals of it,).
            bins: Number of risk bins.
            intervals: Number of intervals of the table.
        """
        ends = cut_intervals(model.ends, events, intervals)
        risks, curves = predict(model, features, ends)
        edges = np.quantile(risks, np.arange(1, bins) / bins)
        own = np.searchsorted(edges, risks, side="right")
        # A bin without simulated records predicts what all predict together.
        parts = [curves[own == number] if (own == number).any() else curves for number in range(bins)]
        predicted = np.stack([part.mean(axis=0) for part in parts])
        return cls(edges, ends, predicted, np.stack([part.var(axis=0) for part in parts]))


@dataclass(frozen=True)
class SurvivalEvaluation(EvaluationQueryBase):
    """Query for the table that scores a survival model.

    Args:
        task: The task, with everything known that its model needs.
        epsilon: The epsilon at which one noise would be as large as all noises in a count; infinite in
            an open run.
        records: Expected number of held-out records of all sites, if that is public.
        scaling: Limits, center and scale of each feature, where they were bought.
        events: Expected events of each interval of the model, where they were bought.
    """

    task: ScoredTask
    epsilon: float
    records: int | None
    scaling: FeatureScale | None = None
    events: Array | None = field(default=None, compare=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of risk bins and of intervals; from public numbers alone."""
        return choose_bins(self.records, self.epsilon)

    @property
    def width(self) -> int:
        """Number of cells: in each bin two states in each interval and beyond the last one."""
        bins, intervals = self.shape
        return bins * (intervals + 1) * 2

    def grid(self, model: GridModel) -> RiskGrid:
        """Return the cells for a model."""
        features = simulate_features(self.task.columns, self.task.encoding, self.scaling)
        events = np.ones(len(model.ends)) if self.events is None else self.events
        return RiskGrid.of(model, features, events, *self.shape)

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Count the held-out records of each site by cell, through the mechanism (sites, cells)."""
        model = self.task.model(state)
        grid = self.grid(model)
        told: list[Array] = []
        for place, name in enumerate(cohort.names):
            table = cohort.records_of(place)
            # An event of any cause is one.
            require_exits(table, 1 + self.task.causes, f"site {name}")
            risks, _ = predict(model, table.features, grid.ends)
            time, event = table.targets["time"], table.targets["event"] > 0
            counted = TableCounts(cells_of(risks, time, event, grid), self.width)
            told.append(mechanism.noisy_sums(counted, [key / name / "noise"], 0)[0])
        return Updates(cohort.names, np.stack(told))

    def scores(self, state: Array, counts: Array, noise: Noise) -> Evaluated:
        """Score a model by the noisy counts of all sites."""
        from tacit.survival.metrics.exit_table import ExitTable, score_table

        grid, (bins, intervals) = self.grid(self.task.model(state)), self.shape
        cells = counts.reshape(bins, intervals + 1, 2).copy()
        # Who stays longer is censored there: no record is in the last cell of events.
        cells[:, -1, 0] = 0.0
        table = ExitTable(cells, grid.ends, grid.predicted, noise, grid.spread)
        found = score_table(table, at=[intervals // 2])
        evaluated = collect_scores(
            {"c_index": found.harrell, "ibs": found.brier, "uno": found.uno, "auc": found.auc[0]},
            Simplest(
                name="Kaplan-Meier",
                how="one curve for all records, estimated from the same table; no ranking",
                scores={"c_index": 0.5, **values_of({"ibs": found.kaplan_meier})},
                lower=("ibs",),
            ),
            {"c_index": shift(found.harrell, 0.5), "ibs": found.gain},
            table.records,
            {"observed": found.calibration, "groups": found.risk_groups},
        )
        fixed = {"ends": list_band(grid.ends[None]), "predicted": list_band(grid.predicted)}
        tested = [[found.d_calibration.statistic, found.d_calibration.p_value]]
        return replace(evaluated, curves={**fixed, **evaluated.curves, "d_calibration": tested})


def cells_of(risks: Array, time: Array, event: NDArray[np.bool_], grid: RiskGrid) -> NDArray[np.int64]:
    """Return the cell of each record: by its own risk, time and state alone (records,).

    An exit at an end belongs to the interval that ends there; a risk that is no number, to the last bin.
    """
    intervals = len(grid.ends)
    own = np.searchsorted(grid.edges, risks, side="right")
    interval = np.searchsorted(grid.ends, time, side="left")
    censored = (interval == intervals) | ~event
    return ((own * (intervals + 1) + interval) * 2 + censored).astype(np.int64)


def predict(model: GridModel, features: Array, times: Array) -> tuple[Array, Array]:
    """Return risks (records,) and survival (records, times), some records at a time."""
    parts = [
        model.risk_and_survival(features[start : start + CHUNK], times)
        for start in range(0, len(features), CHUNK)
    ]
    if not parts:
        return np.zeros(0), np.zeros((0, len(times)))
    risks, curves = zip(*parts, strict=True)
    return np.concatenate(risks), np.clip(np.nan_to_num(np.concatenate(curves)), 0.0, 1.0)


def cut_intervals(ends: Array, events: Array, intervals: int) -> Array:
    """Return the ends of `intervals` intervals with equal numbers of expected events.

    They reach to `SPAN` of the events: few records are at risk after that.

    Args:
        ends: The ends of the intervals of a model.
        events: Expected events of each.
        intervals: Number of intervals.
    """
    below = np.append(0.0, np.cumsum(np.maximum(events, 1e-9 * max(float(events.max()), 1e-300))))
    levels = SPAN * float(below[-1]) * np.arange(1, intervals + 1) / intervals
    return np.asarray(np.interp(levels, below, np.append(0.0, ends)), dtype=np.float64)


def simulate_features(columns: Sequence[str], encoding: Encoding, scaling: FeatureScale | None) -> Array:
    """Draw features of simulated records by public numbers: independent, normal, or 0 and 1.

    Args:
        columns: The names of the features.
        encoding: Their encoding: columns of levels hold 0 and 1, others have a center of 0 and a scale of 1.
        scaling: Limits, center and scale of each feature, where they were bought.
    """
    random, kinds = (Key(0) / "simulated features").generator(), column_cells(columns, encoding, {})
    drawn = random.standard_normal((SIMULATED, len(columns)))
    chance = random.uniform(size=drawn.shape)
    for place, kind in enumerate(kinds):
        center = 0.0 if scaling is None else float(scaling.center[place])
        if kind is not None and kind.kind == "indicator":
            ones = HALF if scaling is None else min(max(center, 0.0), 1.0)
            drawn[:, place] = chance[:, place] < ones
        elif scaling is not None:
            spread = center + float(scaling.scale[place]) * drawn[:, place]
            drawn[:, place] = np.clip(spread, scaling.low[place], scaling.high[place])
    return drawn
