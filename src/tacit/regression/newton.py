"""Newton's method for generalized linear models, from sums that sites send.

In a round a site sends a log-likelihood, a score and an information matrix at the tried coefficients, and no
record. Sites share one intercept, or have one each; then the information is an arrow matrix.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue
from tacit.regression.designs import DesignMatrix
from tacit.regression.families import ResponseFamily
from tacit.runtime.arrays import Array

Integers = NDArray[np.int64]
Squares = Literal["none", "records", "site"]

MOST_STEPS, MOST_HALVINGS = 60, 30
# A smaller step, in standard deviations of a column, changes nothing.
SETTLED = 1e-9
# A column that varies less than this share of its square is constant up to rounding.
CONSTANT = 1e-13
# Least share of a column's information that the other columns must leave.
OWN = 1e-10
# The share of the information without columns that no finite coefficient leaves of a combination.
GONE = 1e-9
# Combinations with a smaller share of the largest information at the start are rounding.
CLEAR = 1e-5
# Relative rounding error allowed in the likelihood.
SLACK = 1e-13


@dataclass(frozen=True)
class Layout:
    """Layout of the sums: intercepts first, then coefficients; entries of an arrow matrix.

    Args:
        groups: Number of intercepts.
        columns: Number of columns.
        squared: Whether sums of squared scores follow the information.
    """

    groups: int
    columns: int
    squared: bool = False

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.groups + self.columns

    @property
    def entries(self) -> tuple[Integers, Integers]:
        """Entries of the upper half of a matrix that may differ from 0."""
        rows, columns = np.triu_indices(self.size)
        kept = (rows == columns) | (columns >= self.groups)
        return rows[kept].astype(np.int64), columns[kept].astype(np.int64)

    @property
    def width(self) -> int:
        """Number of coordinates of a slope."""
        return 2 + self.size + (1 + self.squared) * len(self.entries[0])

    def places(self, group: int) -> Integers:
        """Return the parameters that the records of a group depend on."""
        return np.concatenate([[group], self.groups + np.arange(self.columns)]).astype(np.int64)

    def encode(self, slope: "LocalSlope") -> Array:
        """Encode a slope as one vector."""
        entries = self.entries
        squares = [slope.squares[entries]] if self.squared else []
        head = np.array([slope.records, slope.log_likelihood])
        return np.concatenate([head, slope.score, slope.information[entries], *squares])

    def decode(self, values: Array) -> "LocalSlope":
        """Decode a slope from a vector."""
        size, entries = self.size, self.entries
        matrices = [np.zeros((size, size)), np.zeros((size, size))]
        parts = np.split(values[2 + size :], 1 + self.squared)
        for matrix, upper in zip(matrices, parts, strict=False):
            matrix[entries] = upper
            matrix += np.triu(matrix, 1).T
        return LocalSlope(float(values[0]), float(values[1]), values[2 : 2 + size], *matrices)


@dataclass(frozen=True, eq=False)
class LocalSlope:
    """Sums over records at some coefficients.

    Args:
        records: Number of records.
        log_likelihood: The log-likelihood.
        score: Its gradient (parameters,).
        information: Its negative curvature (parameters, parameters).
        squares: Sum of outer products of scores, of records or of whole sites; 0 if not asked for.
    """

    records: float
    log_likelihood: float
    score: Array
    information: Array
    squares: Array = field(repr=False)

    def __add__(self, other: "LocalSlope") -> "LocalSlope":
        """The sums over the records of both."""
        return LocalSlope(
            self.records + other.records,
            self.log_likelihood + other.log_likelihood,
            self.score + other.score,
            self.information + other.information,
            self.squares + other.squares,
        )


def slope_of(
    design: DesignMatrix,
    family: ResponseFamily,
    beta: Array,
    layout: Layout,
    group: int,
    squares: Squares = "none",
) -> LocalSlope:
    """Return the slope of one site's records, finite or not.

    Args:
        design: The records.
        family: The family of the outcome.
        beta: The coefficients, all intercepts first (parameters,).
        layout: The layout of the parameters.
        group: The intercept of this site.
        squares: Outer products of scores to add: of records, or of the site.
    """
    places, matrix = layout.places(group), design.matrix
    # A step too far overflows; numbers that are not finite count as downhill, and the step is halved.
    with np.errstate(all="ignore"):
        predictor = matrix @ beta[places] + design.offset
        mean = family.mean(predictor)
        residuals = design.outcome - mean
        score, information = np.zeros(layout.size), np.zeros((layout.size, layout.size))
        score[places] = matrix.T @ residuals
        information[np.ix_(places, places)] = (matrix * family.variance(mean)[:, None]).T @ matrix
        squared = np.zeros_like(information)
        if squares == "records":
            scores = matrix * residuals[:, None]
            squared[np.ix_(places, places)] = scores.T @ scores
        elif squares == "site":
            squared = np.outer(score, score)
        likelihood = float(family.log_likelihood(predictor, design.outcome).sum())
    return LocalSlope(float(len(design)), likelihood, score, information, squared)


@dataclass(frozen=True, eq=False)
class AscentState:
    """State of Newton's method; every slope advances it.

    Args:
        beta: The coefficients accepted so far (parameters,).
        step: The step that is tried from there (parameters,).
        here: The slope there; None before the first slope.
        null: The slope at the best intercepts without columns; None before the second slope.
        asked: Number of slopes asked for.
        taken: Number of steps taken.
        halved: Number of halvings of the tried step.
        settled: Whether it has converged.
    """

    beta: Array
    step: Array
    here: LocalSlope | None = None
    null: LocalSlope | None = None
    asked: int = 0
    taken: int = 0
    halved: int = 0
    settled: bool = False

    @classmethod
    def begin(cls, layout: Layout) -> "AscentState":
        """At coefficients of 0."""
        return cls(np.zeros(layout.size), np.zeros(layout.size))

    @property
    def trial(self) -> Array:
        """The coefficients to ask the sites about (parameters,)."""
        return self.beta + self.step


@dataclass(frozen=True)
class Ascent:
    """Rule by which a state advances.

    Args:
        layout: The layout of the parameters.
        family: The family of the outcome.
        columns: The names of the columns.
        groups: The names of the groups with an intercept of their own; empty if there is one for all.
        ridge: Half of it, times the squared length of the columns' coefficients, is taken off the
            log-likelihood.
    """

    layout: Layout
    family: ResponseFamily
    columns: tuple[str, ...]
    groups: tuple[str, ...] = ()
    ridge: float = 0.0

    def penalty(self) -> Array:
        """Return the curvature that the ridge adds (parameters,): none to intercepts."""
        penalized = np.arange(self.layout.size) >= self.layout.groups
        return np.where(penalized, self.ridge, 0.0).astype(np.float64)

    def advance(self, state: AscentState, slope: LocalSlope) -> AscentState:
        """Return the next state: the trial is accepted, or its step is halved.

        Raises:
            InvalidValue: A column is constant, says what others say, or has a coefficient without bound.
        """
        if state.here is None:
            self._require_identifiable(slope)
            return replace(state, here=slope, step=self._intercepts(slope), asked=1)
        if state.null is None:
            return self._accept(replace(state, null=slope, taken=1), slope)
        floor = self._objective(state.here, state.beta) - SLACK * abs(state.here.log_likelihood)
        if self._objective(slope, state.trial) >= floor:
            return self._accept(replace(state, taken=state.taken + 1), slope)
        if state.halved + 1 >= MOST_HALVINGS:
            raise InvalidValue(self._divergence(state.beta, np.abs(state.beta) * self._units(state)))
        return replace(state, step=state.step / 2, asked=state.asked + 1, halved=state.halved + 1)

    def covariance(self, state: AscentState) -> Array:
        """Return the inverse of the penalized information at the accepted coefficients."""
        assert state.here is not None
        curvature = state.here.information + np.diag(self.penalty())
        unit = np.sqrt(np.diag(curvature))
        scales = np.outer(unit, unit)
        return np.asarray(np.linalg.inv(curvature / scales) / scales, dtype=np.float64)

    def suspects(self, state: AscentState) -> list[str]:
        """Return columns that have lost nearly all information on the way, as separating ones do."""
        if state.here is None or state.null is None or self.ridge > 0:
            return []
        way, left = self._flattest(state.here, state.null)
        return self._worst(np.abs(way) * self._units(state)) if left < 1e-2 else []

    def _accept(self, state: AscentState, slope: LocalSlope) -> AscentState:
        """The state at its trial, and the step from there."""
        assert state.null is not None
        beta = state.trial
        here = replace(state, beta=beta, here=slope, asked=state.asked + 1, halved=0)
        units, finite = self._units(here), bool(np.isfinite(slope.information).all())
        if not finite or state.taken >= MOST_STEPS:
            raise InvalidValue(self._divergence(beta, np.abs(beta) * units))
        if self.ridge == 0:
            way, left = self._flattest(slope, state.null)
            if left < GONE:
                raise InvalidValue(self._divergence(beta, np.abs(way) * units))
        penalty = self.penalty()
        step = _solve(slope.information + np.diag(penalty), slope.score - penalty * beta)
        settled = bool(
            (np.abs(step) * units).max() <= SETTLED * max(1.0, float((np.abs(beta) * units).max()))
        )
        return replace(here, step=np.zeros_like(step) if settled else step, settled=settled)

    def _objective(self, slope: LocalSlope, beta: Array) -> float:
        found = slope.log_likelihood - float(self.penalty() @ beta**2) / 2
        return found if np.isfinite(found) and bool(np.isfinite(slope.information).all()) else -np.inf

    def _units(self, state: AscentState) -> Array:
        """Return the standard deviation of each column, 1 for intercepts (parameters,)."""
        assert state.null is not None
        inner, level = self._within(state.null), np.trace(state.null.information[: self.layout.groups])
        spread = np.sqrt(np.maximum(np.diag(inner), 0.0) / level)
        return np.concatenate([np.ones(self.layout.groups), spread])

    def _within(self, slope: LocalSlope) -> Array:
        """The information of the columns beside the intercepts (columns, columns)."""
        groups, information = self.layout.groups, slope.information
        level = np.maximum(np.diag(information)[:groups], np.finfo(np.float64).tiny)
        mixed = information[:groups, groups:]
        return information[groups:, groups:] - mixed.T @ (mixed / level[:, None])

    def _require_identifiable(self, null: LocalSlope) -> None:
        """Refuse constant columns, and columns that depend linearly on others."""
        if not null.records:
            raise InvalidValue("no site has a record, so nothing can be estimated")
        inner, groups = self._within(null), self.layout.groups
        whole = np.diag(null.information)[groups:]
        for name, left, all_of_it in zip(self.columns, np.diag(inner).tolist(), whole.tolist(), strict=True):
            if left <= CONSTANT * all_of_it:
                place = " at every site" if groups > 1 else ""
                raise InvalidValue(
                    f"column {name} is not allowed: it is constant{place}, as the intercept is. Remove it"
                )
        unit = np.sqrt(np.diag(inner))
        values, vectors = np.linalg.eigh(inner / np.outer(unit, unit))
        if values[0] < OWN and self.ridge == 0:
            shares = np.abs(vectors[:, 0])
            alike = [name for name, part in zip(self.columns, shares.tolist(), strict=True) if part > 1e-3]
            raise InvalidValue(
                f"columns {', '.join(alike)} are not allowed together: each can be computed from the others. "
                "Leave one out, or give a ridge"
            )

    def _intercepts(self, start: LocalSlope) -> Array:
        """Return the best intercepts without columns, as a first step; refuse outcomes that are all alike."""
        groups, found = self.layout.groups, np.zeros(self.layout.size)
        found[:groups] = self.family.intercept(np.diag(start.information)[:groups], start.score[:groups])
        alike = np.flatnonzero(~np.isfinite(found[:groups]))
        if alike.size:
            where = f" at site {self.groups[int(alike[0])]}" if self.groups else ""
            raise InvalidValue(
                f"the outcome is not allowed: it is the same in all records{where}, so no finite intercept "
                "fits"
            )
        return found

    def _flattest(self, here: LocalSlope, null: LocalSlope) -> tuple[Array, float]:
        """Return the combination of parameters that has lost most of its information, and the share left."""
        unit = np.sqrt(np.maximum(np.diag(null.information), np.finfo(np.float64).tiny))
        scales = np.outer(unit, unit)
        now, before = here.information / scales, null.information / scales
        values, vectors = np.linalg.eigh(before)
        kept = values > CLEAR * values[-1]
        told = vectors[:, kept] / np.sqrt(values[kept])
        left, turned = np.linalg.eigh(told.T @ now @ told)
        return told @ turned[:, 0] / unit, float(left[0])

    def _worst(self, lengths: Array) -> list[str]:
        """Return the names of the columns, or of an intercept, that a combination mostly consists of."""
        groups = self.layout.groups
        own = lengths[groups:]
        if not own.size or not np.isfinite(own).all() or own.max() <= 0:
            return list(self.columns)
        return [name for name, part in zip(self.columns, own.tolist(), strict=True) if part > own.max() / 2]

    def _divergence(self, beta: Array, lengths: Array) -> str:
        worst = self._worst(lengths)
        values = ", ".join(f"{beta[self.layout.groups + self.columns.index(name)]:.3g}" for name in worst)
        kind = "column" if len(worst) == 1 else "columns"
        return (
            f"{kind} {', '.join(worst)} cannot be fitted: outcomes are separated, and the coefficient "
            f"diverges (so far {values}). Leave a column out, merge categories, or give a ridge"
        )


def _solve(matrix: Array, values: Array) -> Array:
    """Solve linear equations whose unknowns may differ in size by orders of magnitude."""
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(np.float64).tiny))
    return np.linalg.lstsq(matrix / np.outer(scale, scale), values / scale, rcond=None)[0] / scale


def add_slopes(slopes: Sequence[LocalSlope]) -> LocalSlope:
    """Return the sum of slopes."""
    total = slopes[0]
    for slope in slopes[1:]:
        total = total + slope
    return total
