"""Scaling of features into the unit ball, by public numbers or by histograms that the sites release.

A record adds 1 to one cell of each column's histogram, so a record moves the joint histogram of p columns by
the root of p, however many cells there are. Limits, center and scale come from the noisy cells at no further
price. Scaled features have length at most 1: longer ones keep their direction. That bounds what a record can
do to any sum over records that is weighed by its features, with no gradient to clip.

A query releases these histograms and the exits by interval together, before the first round. The two parts
are weighed so that a record's contribution has length 1, and each has half of the budget of the query.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue
from tacit.learning.query import InitialQueryBase, Updates
from tacit.privacy.contracts import Norm, ShareOf
from tacit.privacy.mechanisms.base import Mechanism
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.encoding import Encoding
from tacit.sites.federation import Cohort
from tacit.sites.table import Table
from tacit.survival.life_table import exit_cells
from tacit.survival.models.baseline_histogram import estimate, main_window

# Cells of a column with a public range, in parts of it: most columns crowd near their lower end.
PARTS = np.array([0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, *(np.arange(2, 9) / 8)])
# Cells of a column without one: two for each doubling, on either side of 0.
POWERS = np.exp2(np.arange(-20, 61) / 2)
SIGNED = np.concatenate([[-np.inf], -POWERS[::-1], POWERS, [np.inf]])
# A cell of a range counts if it stands this many deviations out of the noise, and holds this share of all
# records.
CLEAR, SHARE = 1.5, 0.005
# Bounds of the share of ones in a column of 0 and 1, and the least deviation it is divided by.
ONES, LEAST = (0.05, 0.95), 0.3
# Features that came with a public center and scale are cut off here, in units of that scale.
FARTHEST = 4.0
# Hinges bend at this many deviations, and are this long beside the linear part (see `hinges`).
BEND, WEIGHT = 0.8, 0.7
# Share of the promise.
QUERIED = 0.2


@dataclass(frozen=True)
class ColumnCells:
    """Cells of the histogram of one column; public.

    Args:
        kind: `indicator` for a column of 0 and 1, `range` for one with a public range, `unknown` for others.
        edges: The edges of the cells, ascending; values beyond belong to the first and last cell.
    """

    kind: str
    edges: Array

    def __len__(self) -> int:
        return len(self.edges) - 1

    def place(self, values: Array) -> NDArray[np.int64]:
        """Return the cell of each value; NaN belongs to the last."""
        found = np.searchsorted(self.edges, values, side="left").astype(np.int64)
        return np.clip(found - 1, 0, len(self) - 1)


@dataclass(frozen=True, eq=False)
class FeatureScale:
    """Scaling of features: limits, center, scale (columns,); in training and in prediction alike.

    Args:
        low: Values below are raised to this.
        high: Values above are lowered to this.
        center: The number that is subtracted then.
        scale: The number that the rest is divided by.
    """

    low: Array
    high: Array
    center: Array
    scale: Array

    @classmethod
    def of(cls, told: Mapping[str, Sequence[float]]) -> "FeatureScale":
        """From plain data."""
        return cls(*(np.asarray(told[name], dtype=np.float64) for name in ("low", "high", "center", "scale")))

    def as_dict(self) -> dict[str, list[float]]:
        """Return plain data."""
        return {name: [float(value) for value in vars(self)[name]] for name in vars(self)}

    @property
    def radius(self) -> float:
        """The length, in deviations, that becomes length 1."""
        return float(np.sqrt(max(len(self.scale), 1)))

    def deviations(self, features: Array) -> Array:
        """Features within their limits, in deviations from their centers (records, columns)."""
        # A broken value says nothing: it becomes the center.
        known = np.where(np.isfinite(features), features, self.center)
        return (np.clip(known, self.low, self.high) - self.center) / self.scale

    def unit(self, features: Array) -> Array:
        """Features of length at most 1 (records, columns).

        Guarantee:
            Every row has length at most 1, and its bits depend on that record alone.
        """
        return shorten(self.deviations(features) / self.radius)

    def hinges(self, features: Array, bent: Sequence[int]) -> Array:
        """The same, beside hinges of the columns `bent` (records, columns + bent): effects that bend.

        Guarantee:
            Every row has length at most 1, and its bits depend on that record alone.
        """
        straight = self.unit(features)
        moved = WEIGHT * (np.abs(straight[:, list(bent)] * self.radius) - BEND) / self.radius
        return shorten(np.concatenate([straight, moved], axis=1))


def shorten(rows: Array) -> Array:
    """Rows of length at most 1; shorter ones stay as they are."""
    length = np.zeros(len(rows))
    # Column by column: a product of matrices could round a record by the number of others.
    for column in range(rows.shape[1]):
        length = length + rows[:, column] ** 2
    return rows / np.maximum(np.sqrt(length) * (1 + 1e-12), 1.0)[:, None]


def column_cells(
    columns: Sequence[str], encoding: Encoding, ranges: Mapping[str, Sequence[float]]
) -> tuple[ColumnCells | None, ...]:
    """Return the cells of each column; None where center and scale are public.

    Args:
        columns: The names of the features.
        encoding: Their encoding: columns of levels hold 0 and 1, and some have a public center and scale.
        ranges: Public ranges, by the name of the feature.
    """
    words = {f"{name}={level}" for name, levels in encoding.levels.items() for level in map(str, levels)}
    found: list[ColumnCells | None] = []
    for name in columns:
        if name in ranges:
            low, high = (float(end) for end in ranges[name])
            moved, divided = encoding.center.get(name, 0.0), encoding.scale.get(name, 1.0)
            ends = (np.array([low, high]) - moved) / divided
            found.append(ColumnCells("range", ends[0] + PARTS * (ends[1] - ends[0])))
        elif name in words or name.partition("=")[0] in encoding.levels:
            found.append(ColumnCells("indicator", np.array([-0.5, 0.5, 1.5])))
        elif name in encoding.scale:
            found.append(None)
        else:
            found.append(ColumnCells("unknown", SIGNED))
    return tuple(found)


def estimate_scale(
    cells: Sequence[ColumnCells | None], counts: Sequence[Array], noise: float, records: float
) -> FeatureScale:
    """Estimate limits, centers and scales from noisy histograms.

    Args:
        cells: The cells of each column; None where center and scale are public.
        counts: The noisy counts of each column that has cells, in order.
        noise: The standard deviation of the noise in a count.
        records: About how many records there are.
    """
    left = iter(counts)
    rows = [
        (-FARTHEST, FARTHEST, 0.0, 1.0) if own is None else _column_scale(own, next(left), noise, records)
        for own in cells
    ]
    return FeatureScale(*np.array(rows, dtype=np.float64).reshape(-1, 4).T)


def _column_scale(
    cells: ColumnCells, counts: Array, noise: float, records: float
) -> tuple[float, float, float, float]:
    """Limits, center and scale of one column."""
    if cells.kind == "indicator":
        share = float(np.clip(counts[1] / max(records, 1.0), *ONES))
        return 0.0, 1.0, share, max(np.sqrt(share * (1 - share)), LEAST)
    kept = counts > max(CLEAR * noise, SHARE * records)
    if cells.kind == "unknown":
        kept = main_window(counts, max(noise, SHARE * records))
    elif counts[kept].sum() < records / 2:
        kept = np.ones(len(counts), dtype=np.bool_)
    places = np.flatnonzero(kept)
    edges = np.clip(cells.edges, -POWERS[-1], POWERS[-1])
    if not len(places):
        # Noise hides the column: it says nothing.
        return 0.0, 0.0, 0.0, 1.0
    low, high = float(edges[places[0]]), float(edges[places[-1] + 1])
    whole = slice(int(places[0]), int(places[-1]) + 1)
    held = np.maximum(counts[whole], 0.0) * kept[whole]
    middle, width = (edges[1:] + edges[:-1])[whole] / 2, np.diff(edges)[whole]
    total = max(float(held.sum()), 1e-9)
    center = float(held @ middle) / total
    spread = float(held @ ((middle - center) ** 2 + width**2 / 12)) / total
    return low, high, center, max(float(np.sqrt(spread)), (high - low) / 100, 1e-9)


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
