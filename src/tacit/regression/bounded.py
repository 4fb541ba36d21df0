"""Contributions of single records to a private regression, bounded by construction.

Columns are cut off at their public ranges and scaled to -1 up to 1; x is the result. A record gives

    moments      w (1, x, y)(1, x, y)'    with w = min(1, R / |(1, x, y)|^2), so of length at most R
    score        w z psi                  with w = min(1, C / (|z| b)) and |psi| <= b, so of length at most C
    information  a z z'                   with a = w v min(1, A / (w v |z|^2)), so of length at most A
    scale        t - E t                  of length at most 1; of a linear model alone

where z = (LEVEL, B (x - m)), and m, B, the parameters, R, C and A are published before. The upper half of a
matrix zz', its entries beside the diagonal times the root of 2, is as long as |z|^2. Each part is divided by
its bound and weighed; squares of the weights add up to 1, so a contribution has length 1 at most, whatever
the record and whatever was published. It is cut to length 1 at last, for the rounding.

Weights depend on x and on what was published, not on the outcome, so that the score has mean 0 at the truth:

    linear    psi = cut(r / s, -K, K), r the residual and s its published scale: errors are symmetric
    logistic  psi = y - p, within -1 and 1
    poisson   psi = min(y, k) - E min(Y, k) with k = ceil(mu + K sqrt(mu) + 1): Y is a Poisson variable
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincc

from tacit.errors import Refused, require
from tacit.learning.elementwise import exp, log, sigmoid
from tacit.learning.kernels import multiply_rows
from tacit.privacy.contracts import Norm
from tacit.privacy.mechanisms.clip import add_exactly, add_rows, lengths
from tacit.regression.designs import Variables, column_of
from tacit.runtime.arrays import Array
from tacit.runtime.jit import contiguous
from tacit.sites.table import Table

# Regressor of the intercept, beside columns of variance at most 1.
LEVEL = 0.7
# Residuals beyond so many deviations are cut off.
TUNING = 2.5
# Predictors beyond are cut off.
LARGEST = 30.0
CHUNK = 4096
# Normal residuals that are cut off at `TUNING` deviations: the share within, their second moment, the mean of
# their square over that of the cut, and how that grows with the log of the scale.
WITHIN = math.erf(TUNING / math.sqrt(2))
INNER = WITHIN - 2 * TUNING * math.exp(-(TUNING**2) / 2) / math.sqrt(2 * math.pi)
SECOND = INNER + (1 - WITHIN) * TUNING**2
SQUARE, GROWTH = SECOND / TUNING**2, 2 * INNER / TUNING**2


Ranges = Mapping[str, Sequence[float]]


def require_ranges(kind: str, variables: Variables, ranges: Ranges) -> dict[str, tuple[float, float]]:
    """Return the public ranges that a promise needs, once they are found valid.

    Raises:
        Refused: One is missing.
        InvalidValue: One is not finite and ascending, or of no variable.
    """
    require(variables.offset is None, "offset", variables.offset, "left out under a promise: use exposure")
    needed = [*variables.columns, *({} if kind == "logistic" else {variables.outcome: 0})]
    needed += [] if variables.exposure is None else [variables.exposure]
    missing = [name for name in needed if name not in ranges]
    if missing:
        raise Refused(
            f"the range of {', '.join(missing)} is not public, so that one record is not bounded: give "
            f"ranges, such as {missing[0]} = [0, 100]"
        )
    others = [name for name in ranges if name not in needed]
    require(not others, "ranges", others, f"those of {', '.join(needed)}")
    found: dict[str, tuple[float, float]] = {}
    for name in needed:
        own = tuple(float(end) for end in ranges[name])
        valid = len(own) == 2 and -math.inf < own[0] < own[1] < math.inf
        require(valid, f"ranges of {name}", list(ranges[name]), "two finite numbers, the lower one first")
        found[name] = (own[0], own[1])
    if kind == "poisson":
        name = variables.outcome
        require(found[name][0] == 0, f"ranges of {name}", list(found[name]), "from 0 on: they are counts")
    if variables.exposure is not None:
        name = variables.exposure
        require(found[name][0] > 0, f"ranges of {name}", list(found[name]), "above 0: it is an exposure")
    return found


@dataclass(frozen=True, eq=False)
class UnitRecords:
    """Records of a site, cut off at public ranges.

    Args:
        columns: The columns, each between -1 and 1 (records, columns).
        outcome: The outcome: between -1 and 1 if linear, 0 to 1 if logistic, at least 0 if Poisson.
        offset: Known part of the predictor (records,).
        unit: The largest outcome of the moments.
    """

    columns: Array
    outcome: Array
    offset: Array
    unit: float

    def __len__(self) -> int:
        return len(self.outcome)

    def chunk(self, start: int) -> "UnitRecords":
        """The records from there on, `CHUNK` of them."""
        rows = slice(start, start + CHUNK)
        return UnitRecords(self.columns[rows], self.outcome[rows], self.offset[rows], self.unit)


@dataclass(frozen=True, eq=False)
class UnitScale:
    """Public ranges of the variables.

    Args:
        kind: The family.
        variables: The names of the variables.
        low: The least value of each column (columns,).
        high: The largest (columns,).
        ends: Those of the outcome; of a logistic model 0 and 1.
        exposed: Those of the exposure; 1 and 1 without one.
    """

    kind: str
    variables: Variables
    low: Array
    high: Array
    ends: tuple[float, float]
    exposed: tuple[float, float] = (1.0, 1.0)

    @classmethod
    def of(cls, kind: str, variables: Variables, ranges: Mapping[str, tuple[float, float]]) -> "UnitScale":
        """Return the scale of the ranges by name."""
        ends = np.array([ranges[name] for name in variables.columns], dtype=np.float64)
        outcome = (0.0, 1.0) if kind == "logistic" else ranges[variables.outcome]
        exposed = (1.0, 1.0) if variables.exposure is None else ranges[variables.exposure]
        return cls(kind, variables, *ends.T, ends=outcome, exposed=exposed)

    @property
    def center(self) -> Array:
        """The middle of each column's range (columns,)."""
        return (self.low + self.high) / 2

    @property
    def half(self) -> Array:
        """Half the width of each column's range (columns,)."""
        return (self.high - self.low) / 2

    def records(self, table: Table) -> UnitRecords:
        """The records of a table in units of the ranges."""
        places = [table.columns.index(name) for name in self.variables.columns]
        columns = (np.clip(table.features[:, places], self.low, self.high) - self.center) / self.half
        outcome = np.clip(column_of(table, self.variables.outcome), *self.ends)
        offset, unit = np.zeros(len(table)), 1.0
        if self.kind == "linear":
            outcome = (outcome - sum(self.ends) / 2) / ((self.ends[1] - self.ends[0]) / 2)
        if self.kind == "poisson":
            unit = self.ends[1]
            if self.variables.exposure is not None:
                offset = log(np.clip(column_of(table, self.variables.exposure), *self.exposed))
        return UnitRecords(columns, outcome, offset, unit)


@dataclass(frozen=True, eq=False)
class Point:
    """Published numbers that the sites are asked at.

    Args:
        center: m (columns,).
        whitening: B (columns, columns).
        parameters: The parameters of z (1 + columns,).
        scale: s, the scale of residuals of a linear model.
        bounds: R, C and A.
    """

    center: Array
    whitening: Array
    parameters: Array
    scale: float
    bounds: tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class BoundedRecords:
    """Contributions of a site's records (`tacit.privacy.mechanisms.base.Contributions`).

    Args:
        kind: The family.
        records: The records.
        point: Published numbers.
        weights: Weights of moments, score, information and scale, whose squares add up to 1; parts of weight
            0 are left out.

    Guarantee:
        A contribution has length at most 1 (see the module), and its bits depend on that record alone.
    """

    kind: str
    records: UnitRecords
    point: Point
    weights: tuple[float, float, float, float]

    def lengths(self, norm: Norm) -> Array:
        """The length of each contribution (1, records)."""
        found = [lengths(self.rows(start)[None], norm=norm)[0] for start in self._starts]
        return np.concatenate([np.zeros(0), *found])[None]

    def total(self, factors: Array | None) -> Array:
        """The sum of the contributions, each times its factor (1, coordinates)."""
        total = np.zeros(width(self.records.columns.shape[1], self.weights))
        part, lost = np.zeros((1, total.size)), np.zeros_like(total)
        for start in self._starts:
            rows = self.rows(start)
            own = np.ones(len(rows)) if factors is None else factors[0, start : start + len(rows)]
            add_rows(contiguous(rows[None]), contiguous(own[None]), part)
            add_exactly(part[0], 1.0, total, lost)
        return (total + lost)[None]

    @property
    def _starts(self) -> range:
        return range(0, len(self.records), CHUNK)

    def rows(self, start: int) -> Array:
        """Some of the contributions (records, coordinates)."""
        own = self.records.chunk(start)
        with np.errstate(all="ignore"):
            parts = self._moments(own) if self.weights[0] else self._scores(own)
            made = np.column_stack(parts)
            # A number that is not finite is that of absurd published numbers: it counts nothing.
            made = np.where(np.isfinite(made), made, 0.0)
        length = np.sqrt(_row_sums(made**2))
        return made * ((1 - 1e-12) / np.maximum(length, 1.0))[:, None]

    def _moments(self, own: UnitRecords) -> list[Array]:
        vectors = np.column_stack([np.ones(len(own)), own.columns, own.outcome / own.unit])
        bound = self.point.bounds[0]
        weight = np.minimum(1.0, bound / _row_sums(vectors**2)) / bound
        return [self.weights[0] * upper_half(vectors) * weight[:, None]]

    def _scores(self, own: UnitRecords) -> list[Array]:
        point, (_, bound, most) = self.point, self.point.bounds
        moved = multiply_rows(own.columns - point.center, contiguous(point.whitening.T))
        regressors = np.column_stack([np.full(len(own), LEVEL), moved])
        predictor = multiply_rows(regressors, contiguous(point.parameters[:, None]))[:, 0] + own.offset
        psi, reach, variance, surprise = residuals(self.kind, predictor, own.outcome, point.scale)
        squared = _row_sums(regressors**2)
        weight = np.minimum(1.0, bound / (np.sqrt(squared) * reach))
        parts = [self.weights[1] / bound * regressors * (weight * psi)[:, None]]
        if self.weights[2]:
            informed = weight * variance
            informed = np.minimum(informed, most / squared) / most
            parts.append(self.weights[2] * upper_half(regressors) * informed[:, None])
        if self.weights[3]:
            parts.append(self.weights[3] * surprise[:, None])
        return parts


def residuals(kind: str, predictor: Array, outcome: Array, scale: float) -> tuple[Array, Array, Array, Array]:
    """Return bounded residuals, their bounds, their mean slopes, negative, and surprises of scale.

    Args:
        kind: The family.
        predictor: The linear predictor (records,).
        outcome: The outcome (records,).
        scale: The scale of residuals of a linear model.
    """
    ones = np.ones_like(predictor)
    if kind == "linear":
        own = (outcome - predictor) / scale
        cut = np.clip(own, -TUNING, TUNING)
        return cut, TUNING * ones, WITHIN / scale * ones, (cut / TUNING) ** 2 - SQUARE
    limited = np.clip(predictor, -LARGEST, LARGEST)
    if kind == "logistic":
        mean = sigmoid(limited)
        return outcome - mean, ones, mean * (1 - mean), 0 * ones
    mean = exp(limited)
    cap = np.ceil(mean + TUNING * np.sqrt(mean) + 1)
    # E min(Y, k) = mu P(Y <= k - 2) + k P(Y >= k), and k is at least 2.
    below, far = gammaincc(cap - 1, mean), 1 - gammaincc(cap, mean)
    expected = mean * below + cap * far
    reach = np.maximum(cap - expected, expected)
    psi = np.clip(np.minimum(outcome, cap) - expected, -reach, reach)
    return psi, reach, mean * (1 - far), 0 * ones


def upper_half(rows: Array) -> Array:
    """The upper half of each row's outer product, as long as the whole (records, entries)."""
    first, second = np.triu_indices(rows.shape[1])
    return rows[:, first] * rows[:, second] * np.where(first == second, 1.0, np.sqrt(2.0))


def from_upper_half(values: Array, size: int) -> Array:
    """Return the symmetric matrix of an upper half."""
    first, second = np.triu_indices(size)
    found = np.zeros((size, size))
    found[first, second] = found[second, first] = values / np.where(first == second, 1.0, np.sqrt(2.0))
    return found


def width(columns: int, weights: tuple[float, float, float, float]) -> int:
    """Return the number of coordinates of a contribution with these parts."""
    wide = columns + 1
    if weights[0]:
        return (wide + 1) * (wide + 2) // 2
    return wide + (wide * (wide + 1) // 2) * (weights[2] > 0) + (weights[3] > 0)


def _row_sums(rows: Array) -> Array:
    """The sum of each row, column by column, so that its bits do not depend on other rows."""
    total = np.zeros(len(rows))
    for column in range(rows.shape[1]):
        total = total + rows[:, column]
    return total
