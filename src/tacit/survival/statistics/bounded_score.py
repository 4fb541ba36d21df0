"""Bounded contributions of records to a private Cox regression: moments, information, score.

Hazards are constant within the intervals of a public grid, so the likelihood is a sum over records. A record
has the regressors z(t) = (omega phi(t), W): functions of time, the first of which is the level of its site,
and whitened features W = B (x - m). With s^2 = |W|^2 + omega^2 max |phi(t)|^2 it contributes

    moments       one cell of exits, and of its site; (1, x)(1, x)' with x cut to length `cut`
    information   w min(1, R / (w s^2)) z(t) z(t)' at its event, of length at most R
    score         w times the integral of z (dN - dL) while L <= c, cut to length C

where L is the number of events expected of it so far, w = min(1, C / (c0 s)) and c = C / (w s), so that c is
at least c0. A typical record is followed until many events were expected of it, an outlying one until c0
were, and with less weight: one bound C holds both long features and long follow-up. Neither w nor c depend
on the outcome: the integral up to a predictable stop is a martingale at the truth, which biases nothing where
the model holds.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tacit.errors import require
from tacit.learning.elementwise import exp
from tacit.learning.kernels import multiply_rows
from tacit.privacy.contracts import Norm
from tacit.privacy.mechanisms.clip import add_exactly, add_rows, clip_rows, lengths
from tacit.runtime.arrays import Array
from tacit.runtime.jit import contiguous
from tacit.sites.table import Table
from tacit.survival.models.newton_steps import CHUNK, LARGEST, FollowUp, follow_up, sum_columns

# Length of functions of time beside features of length 1, and their number, with the level.
OMEGA, TRENDS = 0.35, 4
# Events up to which a record is followed at least.
LEAST_FOLLOWED = 5 / 4
# Features are cut off here, in units of their scale; below the root of the largest number by far.
FARTHEST = 1e6
# Shares of the promise: of exits, of moments, of the information; the rest is for scores.
EXITS, MOMENTS, INFORMATION = 0.05, 0.13, 0.12
# The part of the exits that tells sites apart, where each has a level.
BY_SITE = 0.3


@dataclass(frozen=True, eq=False)
class FeatureLimits:
    """Public limits, center and scale of each feature.

    Args:
        low: Values below are raised to this (columns,).
        high: Values above are lowered to this.
        center: The number that is subtracted then.
        scale: The number that the rest is divided by.
        cut: Length of scaled features in the release of their moments; longer ones are shortened there.
    """

    low: Array
    high: Array
    center: Array
    scale: Array
    cut: float

    @classmethod
    def of(cls, told: Mapping[str, Sequence[float]]) -> "FeatureLimits":
        """From plain data."""
        names = ("low", "high", "center", "scale")
        return cls(*(np.asarray(told[name], dtype=np.float64) for name in names), cut=float(told["cut"][0]))

    def as_dict(self) -> dict[str, list[float]]:
        """Return plain data."""
        return {name: [float(value) for value in np.atleast_1d(vars(self)[name])] for name in vars(self)}

    def scaled(self, features: Array) -> Array:
        """Features within their limits, in units of their scale (records, columns); a broken one is 0."""
        known = np.where(np.isfinite(features), features, self.center)
        found = (np.clip(known, self.low, self.high) - self.center) / self.scale
        return np.clip(found, -FARTHEST, FARTHEST)


@dataclass(frozen=True, eq=False)
class Regressors:
    """Public regressors of a fit: the baseline, functions of time, and the whitening of features.

    Args:
        ends: The ends of the intervals (intervals,).
        log_rates: The log of the events expected in whole intervals at each site (levels, intervals).
        trends: Functions of time after the level (intervals, trends - 1), of mean square 1.
        center: m (columns,), of scaled features.
        whitening: B (columns, columns).
        bound: C.
        information_bound: R.
    """

    ends: Array
    log_rates: Array
    trends: Array
    center: Array
    whitening: Array
    bound: float
    information_bound: float

    @property
    def levels(self) -> int:
        """Number of levels: of sites, or one of all."""
        return len(self.log_rates)

    @property
    def size(self) -> int:
        """Number of regressors."""
        return self.levels + self.trends.shape[1] + len(self.center)

    @property
    def longest_trend(self) -> float:
        """The largest squared length of the functions of time, the level included."""
        return 1.0 + float((self.trends**2).sum(axis=1).max())

    def require_finite(self) -> None:
        """Refuse numbers that no honest server sends."""
        parts = (self.log_rates, self.trends, self.center, self.whitening)
        finite = all(bool(np.isfinite(part).all()) for part in parts)
        require(finite, "regressors", "not finite", "finite numbers")
        require(0 < self.bound < np.inf, "bound", self.bound, "above 0")
        require(0 < self.information_bound < np.inf, "bound", self.information_bound, "above 0")


@dataclass(frozen=True, eq=False)
class RegressionRecords:
    """Records of a site with scaled features, and the level that they have."""

    follow_up: FollowUp
    level: int

    @classmethod
    def of(cls, table: Table, ends: Array, limits: FeatureLimits, level: int) -> "RegressionRecords":
        """From the table of a site."""
        return cls(follow_up(table, ends, limits.scaled(table.features)), level)

    def __len__(self) -> int:
        return len(self.follow_up)


class ChunkedRows(ABC):
    """Contributions that are written out a few at a time (`tacit.privacy.mechanisms.base.Contributions`)."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of coordinates."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of records."""

    @abstractmethod
    def rows(self, start: int) -> Array:
        """The contributions of `CHUNK` records from there on (records, coordinates)."""

    def lengths(self, norm: Norm) -> Array:
        """The length of each contribution (1, records)."""
        found = [lengths(self.rows(start)[None], norm=norm)[0] for start in self._starts]
        return np.concatenate([np.zeros(0), *found])[None]

    def total(self, factors: Array | None) -> Array:
        """The sum of the contributions, each times its factor (1, coordinates)."""
        total = np.zeros(self.width)
        part, lost = np.zeros((1, total.size)), np.zeros_like(total)
        for start in self._starts:
            rows = self.rows(start)
            own = np.ones(len(rows)) if factors is None else factors[0, start : start + len(rows)]
            add_rows(contiguous(rows[None]), contiguous(own[None]), part)
            add_exactly(part[0], 1.0, total, lost)
        return (total + lost)[None]

    @property
    def _starts(self) -> range:
        return range(0, len(self), CHUNK)


@dataclass(frozen=True, eq=False)
class MomentLayout:
    """Layout of the first release: exits by interval and state, by site, and moments of features.

    Args:
        intervals: Number of intervals.
        columns: Number of features.
        levels: Number of levels.
        late: Whether records enter late.
        cut: Length that features are cut to.
    """

    intervals: int
    columns: int
    levels: int
    late: bool
    cut: float

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Number of cells of exits (and entries), of sites, and of moments."""
        exits = 2 * self.intervals + 1 + (self.intervals + 1) * self.late
        moments = (self.columns + 1) * (self.columns + 2) // 2
        return exits, 2 * self.levels * (self.levels > 1), moments

    @property
    def width(self) -> int:
        """Number of sums."""
        return sum(self.sizes)

    @property
    def units(self) -> tuple[float, float, float]:
        """The contribution of a record to a cell of exits, of sites, and the unit of moments.

        Squared and times their largest lengths, they add up to 1.
        """
        by_site = BY_SITE if self.levels > 1 else 0.0
        exits, whole = EXITS * (1 - by_site) / (1 + self.late), EXITS + MOMENTS
        bound = 1 + self.cut**2
        parts = (exits / whole, EXITS * by_site / whole, MOMENTS / whole / bound**2)
        return float(np.sqrt(parts[0])), float(np.sqrt(parts[1])), float(np.sqrt(parts[2]))

    def split(self, sums: Array) -> list[Array]:
        """Split a vector of sums into exits, sites and moments, in units of one record."""
        parts = np.split(sums, np.cumsum(self.sizes)[:-1])
        return [part / unit if unit else part for part, unit in zip(parts, self.units, strict=True)]


@dataclass(frozen=True, eq=False)
class MomentRows(ChunkedRows):
    """Contributions to exits, sites and moments.

    Args:
        table: The records of a site.
        records: The same, with scaled features.
        layout: The layout of the sums.
        ends: The ends of the intervals.

    Guarantee:
        A contribution has length at most 1: it adds its unit to one cell of exits (and one of entries), one
        of sites, and a product z z' of length |z|^2 <= 1 + cut^2. Its bits depend on that record alone.
    """

    table: Table
    records: RegressionRecords
    layout: MomentLayout
    ends: Array

    @property
    def width(self) -> int:
        """Number of sums."""
        return self.layout.width

    def __len__(self) -> int:
        return len(self.table)

    def rows(self, start: int) -> Array:
        """Some of the contributions (records, coordinates)."""
        own, chosen = self.records.follow_up.chunk(start), slice(start, start + CHUNK)
        targets = {name: values[chosen] for name, values in self.table.targets.items()}
        exits, sites, moments = self.layout.units
        parts = [exits * mark_exits(targets, self.ends)]
        if self.layout.levels > 1:
            place = 2 * self.records.level + (targets["event"] > 0).astype(np.int64)
            parts.append(sites * (place[:, None] == np.arange(2 * self.layout.levels)))
        features = clip_rows(own.features, self.layout.cut)
        parts.append(moments * outer_products(np.column_stack([np.ones(len(own)), features])))
        return clip_rows(np.column_stack(parts), 1.0)


@dataclass(frozen=True, eq=False)
class InformationRows(ChunkedRows):
    """Contributions of events to the information.

    Guarantee:
        A contribution has length at most 1, and its bits depend on that record alone.
    """

    records: RegressionRecords
    regressors: Regressors

    @property
    def width(self) -> int:
        """Number of sums."""
        return self.regressors.size * (self.regressors.size + 1) // 2

    def __len__(self) -> int:
        return len(self.records)

    def rows(self, start: int) -> Array:
        """Some of the contributions (records, coordinates)."""
        own, public = self.records.follow_up.chunk(start), self.regressors
        features, squared = whitened(own.features, public)
        weights, followed = weights_of(squared, public)
        rates = exp(np.minimum(public.log_rates[self.records.level], LARGEST))
        _, seen = own.expect_at(rates[None], followed[:, None])
        happened = np.flatnonzero(seen.any(axis=1))
        made = np.zeros((len(own), self.width))
        trends = OMEGA * public.trends[own.own[happened]]
        regressors = _regressors(features[happened], trends, self.records.level, public.levels, OMEGA)
        scale = np.minimum(weights, public.information_bound / squared)[happened, None]
        made[happened] = clip_rows(scale / public.information_bound * outer_products(regressors), 1.0)
        return made


@dataclass(frozen=True, eq=False)
class ScoreRows(ChunkedRows):
    """Contributions to the score at some coefficients, over the bound C.

    Args:
        records: The records of a site.
        regressors: The public regressors.
        point: Coefficients of all regressors (regressors,).

    Guarantee:
        A contribution has length at most 1, and its bits depend on that record alone. Without an event its
        length is at most w s c = C by construction; with one, the part of the functions of time may exceed
        it, as they change sign: rows are cut to length 1 at last, whatever they hold.
    """

    records: RegressionRecords
    regressors: Regressors
    point: Array

    @property
    def width(self) -> int:
        """Number of sums."""
        return self.regressors.size

    def __len__(self) -> int:
        return len(self.records)

    def rows(self, start: int) -> Array:
        """Some of the contributions (records, coordinates)."""
        own, public = self.records.follow_up.chunk(start), self.regressors
        features, squared = whitened(own.features, public)
        weights, followed = weights_of(squared, public)
        levels, middle = public.levels, public.levels + public.trends.shape[1]
        level = public.log_rates[self.records.level] + OMEGA * self.point[self.records.level]
        base = level + OMEGA * (public.trends @ self.point[levels:middle])
        ratio = exp(np.clip(multiply_rows(features, self.point[middle:, None]), -LARGEST, LARGEST))
        expected, seen = own.expect_at(ratio * exp(np.minimum(base, LARGEST)), followed[:, None])
        left = seen - expected
        total = sum_columns(left)
        trends = OMEGA * multiply_rows(left, public.trends)
        rows = _regressors(features * total[:, None], trends, self.records.level, levels, OMEGA * total)
        return clip_rows(weights[:, None] / public.bound * rows, 1.0)


def whitened(features: Array, public: Regressors) -> tuple[Array, Array]:
    """Whitened features (records, columns), and s^2 (records,)."""
    found = multiply_rows(features - public.center, public.whitening.T)
    return found, sum_columns(found**2) + OMEGA**2 * public.longest_trend


def weights_of(squared: Array, public: Regressors) -> tuple[Array, Array]:
    """Return w and c of records with these s^2 (records,)."""
    length = np.sqrt(squared)
    weights = np.minimum(1.0, public.bound / (LEAST_FOLLOWED * length))
    return weights, public.bound / (weights * length)


def _regressors(features: Array, trends: Array, level: int, levels: int, value: float | Array) -> Array:
    """Levels, of which one has this value, functions of time and features (records, regressors)."""
    marks = np.zeros((len(features), levels))
    marks[:, level] = value
    return np.column_stack([marks, trends, features])


def outer_products(rows: Array) -> Array:
    """The upper half of z z' of each row, off-diagonals times the root of 2: of length |z|^2."""
    above, beside = np.triu_indices(rows.shape[1])
    return rows[:, above] * rows[:, beside] * np.where(above == beside, 1.0, np.sqrt(2.0))


def symmetric_matrix(upper: Array, size: int) -> Array:
    """Return the symmetric matrix of a sum of `outer_products`."""
    above, beside = np.triu_indices(size)
    found = np.zeros((size, size))
    found[above, beside] = found[beside, above] = upper / np.where(above == beside, 1.0, np.sqrt(2.0))
    return found


def mark_exits(targets: Mapping[str, Array], ends: Array) -> Array:
    """Mark the cell of exit of each record, and that of its entry, as `exit_cells` counts them."""
    interval = np.searchsorted(ends, targets["time"], side="left")
    size = 2 * len(ends) + 1
    cell = np.minimum(2 * interval + (targets["event"] > 0).astype(np.int64), size - 1)
    left = cell[:, None] == np.arange(size)
    if "entry" not in targets:
        return left.astype(np.float64)
    came = np.searchsorted(ends, targets["entry"], side="right")
    late = (came[:, None] == np.arange(len(ends) + 1)) & (targets["entry"] > 0)[:, None]
    return np.column_stack([left, late]).astype(np.float64)
