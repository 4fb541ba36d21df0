"""Query for what a model of bounded records needs before its first round: scales of features, and exits.

Both leave in one release. A record adds to one cell of each column's histogram and to one cell of exits; the
two parts are weighed so that its contribution has length 1, and each has half of the share of the promise.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tacit.errors import InvalidValue
from tacit.learning.query import InitialQueryBase, Updates
from tacit.privacy.contracts import Norm, ShareOf
from tacit.privacy.mechanisms.base import Mechanism
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort
from tacit.sites.table import Table
from tacit.survival.life_table import exit_cells
from tacit.survival.models.baseline_histogram import estimate
from tacit.survival.models.feature_scaling import ColumnCells, estimate_scale

# Share of the promise.
QUERIED = 0.2


@dataclass(frozen=True, kw_only=True, eq=False)
class ScaleQuery(InitialQueryBase):
    """Query for the scales of features and for exits by interval, in one release.

    Args:
        features: The names of the features.
        cells: The cells of their histograms; None where center and scale are public.
        ends: The ends of the intervals of exits.
        late: Whether records enter late.
        whole: Whether the intervals end at a public horizon.
        sites: The number of sites.
    """

    features: tuple[str, ...]
    cells: tuple[ColumnCells | None, ...]
    ends: Array
    late: bool
    whole: bool
    sites: int
    kind: ClassVar[str] = "scales and exits"
    share: ClassVar[float] = QUERIED
    share_of: ClassVar[ShareOf] = "noise"
    always: ClassVar[bool] = True

    @property
    def _histograms(self) -> tuple[ColumnCells, ...]:
        return tuple(own for own in self.cells if own is not None)

    @property
    def _units(self) -> tuple[float, float]:
        """The contribution of a record to a cell of a column, and to one of exits: together of length 1."""
        bought, exits = len(self._histograms), 1 + self.late
        if not bought:
            return 0.0, 1 / math.sqrt(exits)
        return math.sqrt(0.5 / bought), math.sqrt(0.5 / exits)

    @property
    def placeholder(self) -> dict[str, Any]:
        """Return scales of 1, and one interval."""
        ones, wide = [1.0] * len(self.features), [30.0] * len(self.features)
        scaling = {
            "low": [-30.0] * len(self.features),
            "high": wide,
            "center": [0.0] * len(ones),
            "scale": ones,
        }
        last = float(self.ends[-1])
        baseline = {"ends": [last], "rates": [1.0], "expected": [1.0], "variance": [1.0], "records": [1.0],
                    "events": [1.0]}  # fmt: skip
        return {"scaling": scaling, "baseline": baseline}

    @property
    def width(self) -> int:
        """Number of cells."""
        exits = 2 * len(self.ends) + 1 + (len(self.ends) + 1) * self.late
        return sum(len(own) for own in self._histograms) + exits

    def record_bound(self, norm: Norm) -> float:
        """One record adds to one cell of each column and to one of exits: a vector of length 1."""
        return 1.0 if norm == "l2" else math.inf

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Return the counts in each cell (sites, cells), through the mechanism."""
        found: list[Array] = []
        for place, name in enumerate(cohort.names):
            cells = CellCounts(self, cohort.records_of(place))
            found.append(mechanism.noisy_sums(cells, [key / name / "noise"], 0)[0])
        return Updates(cohort.names, np.stack(found))

    def counts(self, table: Table) -> list[Array]:
        """Return the exact counts of each column's cells, and of exits."""
        numbers = [
            np.bincount(own.place(table.features[:, column]), minlength=len(own)).astype(np.float64)
            for column, own in enumerate(self.cells)
            if own is not None
        ]
        happened = (table.targets["event"] > 0).astype(np.float64)
        known = Table(table.features, {**table.targets, "event": happened}, table.columns, table.place)
        return [*numbers, exit_cells(known, self.ends, 2, None)]

    @property
    def units(self) -> Array:
        """The contribution of one record to each cell (cells,)."""
        number, exits = self._units
        bought = sum(len(own) for own in self._histograms)
        return np.concatenate([np.full(bought, number), np.full(self.width - bought, exits)])

    def decode(self, combined: Array, noise: float = 0.0) -> dict[str, Any]:
        """Scales of the features, and the baseline hazard."""
        counts, sizes = combined * self.sites / self.units, [len(own) for own in self._histograms]
        parts = np.split(counts, np.cumsum(sizes))
        number, exits = (noise * self.sites / unit if unit else 0.0 for unit in self._units)
        base = estimate(parts[-1], self.ends, exits, whole=self.whole)
        if base is None:
            raise InvalidValue(
                "the noise hides the times of the records: give a public `horizon` in [task], or a larger "
                "epsilon"
            )
        scale = estimate_scale(self.cells, parts[:-1], number, base.records)
        return {"scaling": scale.as_dict(), "baseline": base.as_dict()}


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Counts of a site's records by cell (`tacit.privacy.mechanisms.base.Contributions`).

    Guarantee:
        A record's contribution has length 1: it adds one unit to one cell of each column and to one of exits
        (and to one of entries if it comes late). Counts are exact, and multiplied by their units once.
    """

    query: ScaleQuery
    table: Table

    def lengths(self, norm: Norm) -> Array:
        """Return the length of each contribution (1, records)."""
        return np.full((1, len(self.table)), self.query.record_bound(norm))

    def total(self, factors: Array | None) -> Array:
        """Return the counts in units (1, cells); a contribution with factor 0 is left out."""
        kept = (
            self.table
            if factors is None or bool(factors.all())
            else self.table.take(np.flatnonzero(factors[0]))
        )
        return (np.concatenate(self.query.counts(kept)) * self.query.units)[None]
