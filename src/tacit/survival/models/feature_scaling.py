"""Scaling of features into the unit ball, by public numbers or by histograms that the sites release.

A record adds 1 to one cell of each column's histogram, so a record moves the joint histogram of p columns by
the root of p, however many cells there are. Limits, center and scale come from the noisy cells at no further
price. Scaled features have length at most 1: longer ones keep their direction. That bounds what a record can
do to any sum over records that is weighed by its features, with no gradient to clip.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.runtime.arrays import Array
from tacit.sites.encoding import Encoding

Marks = NDArray[np.bool_]
# Cells of a column with a public range, in parts of it: most columns crowd near their lower end.
PARTS = np.array([0, 1 / 64, 1 / 32, 1 / 16, 1 / 8, *(np.arange(2, 9) / 8)])
# Cells of a column without one: two for each doubling, on either side of 0.
POWERS = np.exp2(np.arange(-20, 61) / 2)
SIGNED = np.concatenate([[-np.inf], -POWERS[::-1], POWERS, [np.inf]])
# A cell of a range counts if it stands this many deviations out of the noise, and holds this share of all
# records; a window of the many cells of an unknown range exceeds the noise by this many for each cell.
CLEAR, CERTAIN, SHARE = 1.5, 1.0, 0.005
# Bounds of the share of ones in a column of 0 and 1, and the least deviation it is divided by.
ONES, LEAST = (0.05, 0.95), 0.3
# Features that came with a public center and scale are cut off here, in units of that scale.
FARTHEST = 4.0
# Hinges bend at this many deviations, and are this long beside the linear part (see `hinges`).
BEND, WEIGHT = 0.8, 0.7


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


def main_window(counts: Array, noise: float) -> Marks:
    """Mark the adjacent cells whose counts exceed the noise by most: those of the records.

    The sum of counts, less `CERTAIN` deviations for each cell, is largest there: sums of noise stay short.
    """
    above = np.concatenate([[0.0], np.cumsum(counts - CERTAIN * noise)])
    least = np.minimum.accumulate(above)
    end = int(np.argmax(above - least))
    found = np.zeros(len(counts), dtype=np.bool_)
    if end:
        found[int(np.argmin(above[:end])) : end] = True
    return found
