"""Newton's method on the Cox partial likelihood, and what is computed where it is largest.

The likelihood and its slopes come from the strata; here are the steps, the refusals of what has no answer,
robust covariances and the trend of residuals over time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue
from tacit.survival.partial_likelihood import Slope, Stratum, Transform, added

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


@dataclass(frozen=True, eq=False)
class Optimum:
    """Where the likelihood is largest (columns,), its slope there and at 0, and how often it was asked."""

    beta: Array
    slope: Slope
    null: Slope
    asked: int


def maximise(parts: Sequence[Stratum], columns: Sequence[str], ridge: float) -> Optimum:
    """Newton's method from 0, with steps halved that lead down.

    Raises:
        InvalidValue: A column is constant, says what others say, or has a coefficient without bound.
    """
    if not parts:
        raise InvalidValue("event is not allowed: no record has one, and nothing can be learnt about them")
    beta, asked = np.zeros(len(columns)), 1
    null = here = _slope(parts, beta)
    units = _units(null.information, columns, ridge) / np.sqrt(sum(part.deaths.sum() for part in parts))
    for _ in range(MOST_STEPS):
        if not _bounded(here, null, ridge):
            break
        uphill = here.gradient - ridge * beta
        step = _solved(here.information + ridge * np.eye(len(beta)), uphill)
        lengths = np.abs(step) * units
        if lengths.max() <= SETTLED:
            return Optimum(beta, here, null, asked)
        floor = _penalised(here, beta, ridge) - SLACK * abs(here.log_likelihood)
        for _ in range(MOST_HALVINGS):
            here, asked = _slope(parts, beta + step), asked + 1
            if _penalised(here, beta + step, ridge) >= floor:
                break
            step = step / 2
        else:
            break
        beta = beta + step
    raise InvalidValue(_unbounded(columns, beta, np.abs(beta) * units))


def sandwich(parts: Sequence[Stratum], beta: Array, inverse: Array, by_site: bool) -> Array:
    """The robust covariance of the coefficients (Lin and Wei 1989), over records or over whole sites."""
    return inverse @ added([part.squared_scores(beta, by_site) for part in parts]) @ inverse


def trend(parts: Sequence[Stratum], beta: Array, transform: Transform) -> tuple[Array, float]:
    """How residuals go with time: the sum of their products (columns,), and the mean spread of time."""
    times = [part.transformed(transform) for part in parts]
    weights = np.concatenate([part.weights for part in parts])
    centred = np.concatenate(times) - weights @ np.concatenate(times) / weights.sum()
    residuals = np.concatenate([part.schoenfeld(beta) for part in parts])
    return centred @ residuals, float(weights @ centred**2 / weights.sum())


def _slope(parts: Sequence[Stratum], beta: Array) -> Slope:
    # A step too far overflows; what is not finite is not uphill, and the step is halved.
    with np.errstate(all="ignore"):
        found = [part.slope(beta) for part in parts]
    return Slope(
        sum(slope.log_likelihood for slope in found),
        added([slope.gradient for slope in found]),
        added([slope.information for slope in found]),
    )


def _penalised(slope: Slope, beta: Array, ridge: float) -> float:
    return slope.log_likelihood - ridge / 2 * float(beta @ beta)


def _solved(matrix: Array, values: Array) -> Array:
    """The solution of linear equations whose unknowns may differ in size by orders of magnitude."""
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(np.float64).tiny))
    return np.linalg.lstsq(matrix / np.outer(scale, scale), values / scale, rcond=None)[0] / scale


def _units(information: Array, columns: Sequence[str], ridge: float) -> Array:
    """What each column varies by among those at risk, over all events; refuse those that say nothing."""
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
    return found


def _bounded(here: Slope, null: Slope, ridge: float) -> bool:
    """Whether anything is left to step by: a separating column empties risk sets, and may overflow."""
    left = np.diag(here.information) > GONE * np.diag(null.information)
    return bool(np.isfinite(here.information).all() and (ridge > 0 or left.all()))


def _unbounded(columns: Sequence[str], beta: Array, lengths: Array) -> str:
    worst = [place for place, length in enumerate(lengths) if length > lengths.max() / 2]
    names = ", ".join(columns[place] for place in worst)
    values = ", ".join(f"{beta[place]:.3g}" for place in worst)
    kind = "column" if len(worst) == 1 else "columns"
    return (
        f"{kind} {names} cannot be fitted: whoever has an event is separated from those at risk, and the "
        f"coefficient grows beyond all bounds (by now {values}). Leave a column out, merge categories, or "
        "give a ridge"
    )
