"""Newton's method on the Cox partial likelihood, and what is computed where it is largest.

The likelihood and its slopes come from the strata; here are the steps, the refusals of what has no answer,
robust covariances and the trend of residuals over time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue
from tacit.survival.statistics.cox_information import Slope, Stratum, Transform, sum_arrays

Array = NDArray[np.float64]

MOST_STEPS, MOST_HALVINGS = 50, 30
# A step that is smaller than this, in units of what a column varies by among those at risk, changes nothing.
SETTLED = 1e-9
# The share of its information at 0 that no coefficient but an unbounded one takes from a column.
GONE = 1e-10
# What the other columns leave of a column's information, at least, if it says anything of its own.
OWN = 1e-10
# What rounding may take off the likelihood, as a share of it.
SLACK = 1e-13
EVENTLESS = "event is not allowed: no record has one, and nothing can be learnt about them"


@dataclass(frozen=True, eq=False)
class Optimum:
    """Where the likelihood is largest (columns,), its slope there and at 0, and how often it was asked."""

    beta: Array
    slope: Slope
    null: Slope
    asked: int


@dataclass(frozen=True, eq=False)
class NewtonState:
    """Where Newton's method stands; every slope that it is told takes it on.

    Args:
        beta: The coefficients it has come to (columns,).
        step: What is tried from there (columns,).
        here: The slope there; None before the first is told.
        null: The slope at 0.
        asked: How often the sites were.
        taken: How many steps led up.
        halved: How often the step that is tried was halved.
        settled: Whether it is over.
    """

    beta: Array
    step: Array
    here: Slope | None = None
    null: Slope | None = None
    asked: int = 0
    taken: int = 0
    halved: int = 0
    settled: bool = False

    @property
    def trial(self) -> Array:
        """The coefficients to ask the sites about (columns,)."""
        return self.beta + self.step

    def update(self, slope: Slope, events: float, columns: Sequence[str], ridge: float) -> "NewtonState":
        """This with the slope of the trial known: accepted, with the next step, or with a shorter one.

        Args:
            slope: The slope of the trial, finite or not.
            events: How many events there are.
            columns: The names of the features.
            ridge: The penalty.

        Raises:
            InvalidValue: A column is constant, says what others say, or has a coefficient without bound.
        """
        if self.here is None:
            return replace(self, null=slope)._accept(slope, events, columns, ridge)
        floor = _penalised_likelihood(self.here, self.beta, ridge) - SLACK * abs(self.here.log_likelihood)
        if _penalised_likelihood(slope, self.trial, ridge) >= floor:
            return replace(self, taken=self.taken + 1)._accept(slope, events, columns, ridge)
        if self.halved + 1 >= MOST_HALVINGS:
            raise InvalidValue(
                _divergence_message(columns, self.beta, np.abs(self.beta) * self._units(events))
            )
        return replace(self, step=self.step / 2, asked=self.asked + 1, halved=self.halved + 1)

    def _accept(self, slope: Slope, events: float, columns: Sequence[str], ridge: float) -> "NewtonState":
        """The climb at its trial, and the step from there."""
        assert self.null is not None
        beta, asked = self.trial, self.asked + 1
        if self.here is None:
            _require_identifiable(self.null.information, columns, ridge)
        if not _has_maximum(slope, self.null, ridge) or self.taken >= MOST_STEPS:
            raise InvalidValue(_divergence_message(columns, beta, np.abs(beta) * self._units(events)))
        uphill = slope.gradient - ridge * beta
        step = _solve(slope.information + ridge * np.eye(len(beta)), uphill)
        settled = bool((np.abs(step) * self._units(events)).max() <= SETTLED)
        step = np.zeros_like(step) if settled else step
        return replace(self, beta=beta, step=step, here=slope, asked=asked, halved=0, settled=settled)

    def _units(self, events: float) -> Array:
        """What each column varies by among those at risk (columns,)."""
        assert self.null is not None
        return np.sqrt(np.maximum(np.diag(self.null.information), 0.0)) / np.sqrt(events)


def initial_state(columns: Sequence[str]) -> NewtonState:
    """A climb that starts at 0."""
    return NewtonState(np.zeros(len(columns)), np.zeros(len(columns)))


def maximise(parts: Sequence[Stratum], columns: Sequence[str], ridge: float) -> Optimum:
    """Newton's method from 0, with steps halved that lead down.

    Raises:
        InvalidValue: A column is constant, says what others say, or has a coefficient without bound.
    """
    if not parts:
        raise InvalidValue(EVENTLESS)
    climb, events = initial_state(columns), float(sum(part.deaths.sum() for part in parts))
    while not climb.settled:
        climb = climb.update(slope_at(parts, climb.trial), events, columns, ridge)
    assert climb.here is not None
    assert climb.null is not None
    return Optimum(climb.beta, climb.here, climb.null, climb.asked)


def sandwich(parts: Sequence[Stratum], beta: Array, inverse: Array, by_site: bool) -> Array:
    """The robust covariance of the coefficients (Lin and Wei 1989), over records or over whole sites."""
    return inverse @ sum_arrays([part.squared_scores(beta, by_site) for part in parts]) @ inverse


def trend(parts: Sequence[Stratum], beta: Array, transform: Transform) -> tuple[Array, float]:
    """How residuals go with time: the sum of their products (columns,), and the mean spread of time."""
    times = [part.transform_times(transform) for part in parts]
    weights = np.concatenate([part.weights for part in parts])
    centred = np.concatenate(times) - weights @ np.concatenate(times) / weights.sum()
    residuals = np.concatenate([part.schoenfeld(beta) for part in parts])
    return centred @ residuals, float(weights @ centred**2 / weights.sum())


def slope_at(parts: Sequence[Stratum], beta: Array) -> Slope:
    """The likelihood of all strata and its derivatives, finite or not."""
    # A step too far overflows; what is not finite is not uphill, and the step is halved.
    with np.errstate(all="ignore"):
        found = [part.slope(beta) for part in parts]
    return Slope(
        sum(own.log_likelihood for own in found),
        sum_arrays([own.gradient for own in found]),
        sum_arrays([own.information for own in found]),
    )


def _penalised_likelihood(slope: Slope, beta: Array, ridge: float) -> float:
    return slope.log_likelihood - ridge / 2 * float(beta @ beta)


def _solve(matrix: Array, values: Array) -> Array:
    """The solution of linear equations whose unknowns may differ in size by orders of magnitude."""
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(np.float64).tiny))
    return np.linalg.lstsq(matrix / np.outer(scale, scale), values / scale, rcond=None)[0] / scale


def _require_identifiable(information: Array, columns: Sequence[str], ridge: float) -> None:
    """Refuse columns that say nothing, or nothing of their own."""
    found = np.sqrt(np.maximum(np.diag(information), 0.0))
    for name, unit in zip(columns, found, strict=True):
        if unit == 0:
            raise InvalidValue(
                f"column {name} is not allowed: it is constant among those at risk, within every stratum, "
                "and says nothing about who has an event. Leave it out"
            )
    values, vectors = np.linalg.eigh(information / np.outer(found, found))
    if values[0] < OWN and ridge == 0:
        alike = [name for name, part in zip(columns, np.abs(vectors[:, 0]), strict=True) if part > 1e-3]
        raise InvalidValue(
            f"columns {', '.join(alike)} are not allowed together: each can be computed from the others. "
            "Leave one out, or give a ridge"
        )


def _has_maximum(here: Slope, null: Slope, ridge: float) -> bool:
    """Whether anything is left to step by: a separating column empties risk sets, and may overflow."""
    left = np.diag(here.information) > GONE * np.diag(null.information)
    return bool(np.isfinite(here.information).all() and (ridge > 0 or left.all()))


def _divergence_message(columns: Sequence[str], beta: Array, lengths: Array) -> str:
    worst = [place for place, length in enumerate(lengths) if length > lengths.max() / 2]
    names = ", ".join(columns[place] for place in worst)
    values = ", ".join(f"{beta[place]:.3g}" for place in worst)
    kind = "column" if len(worst) == 1 else "columns"
    return (
        f"{kind} {names} cannot be fitted: whoever has an event is separated from those at risk, and the "
        f"coefficient grows beyond all bounds (by now {values}). Leave a column out, merge categories, or "
        "give a ridge"
    )
