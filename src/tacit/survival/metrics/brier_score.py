"""Brier scores weighted for censoring, the censoring curve, and the reading of outcomes.

Definitions are the textbook ones, ties included; where a popular package departs from them, an argument says
so by name. What the other scores need as well, checked arrays and inverse probabilities, is at the end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidValue, require, require_word
from tacit.runtime.arrays import Array

Integers = NDArray[np.int64]
Rule = Literal["left", "right"]
# Number of predictions up to which all are scored at once; beyond, slices save memory.
FEW_PREDICTIONS = 2**18


@dataclass(frozen=True, eq=False)
class Curve:
    """A step function of time that starts at 1: `curve(t)` is its value at t, `curve.before(t)` just before.

    Args:
        times: Times of its steps, in increasing order (steps,).
        values: Its probabilities from each step on (steps,).
    """

    times: Array
    values: Array

    def __post_init__(self) -> None:
        times = numbers("times", self.times, None, "one per step").copy()
        values = numbers("values", self.values, times.shape, "one per step").copy()
        require(is_increasing(times), "times", ShortTimes(times), "in increasing order")
        require_probabilities("values", values)
        for name, array in (("times", times), ("values", values)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __call__(self, time: ArrayLike) -> Array:
        """The values at these times, steps at exactly these times included."""
        return self._after(np.searchsorted(self.times, np.asarray(time, dtype=np.float64), side="right"))

    def before(self, time: ArrayLike) -> Array:
        """The limits from the left: the values just before these times."""
        return self._after(np.searchsorted(self.times, np.asarray(time, dtype=np.float64), side="left"))

    def _after(self, steps: NDArray[np.intp]) -> Array:
        return np.append(1.0, self.values)[steps]


def censoring(time: ArrayLike, event: ArrayLike) -> Curve:
    """The Kaplan-Meier curve of the censoring times: the probability of being uncensored for longer than t.

    Events come before censorings at the same time and have left the risk set by then, as in R.

    Args:
        time: Of the event or of censoring (records,).
        event: 1 where the event was seen, 0 where the record is censored (records,).
    """
    return _censoring(*outcomes(time, event))


def brier(
    time: ArrayLike,
    event: ArrayLike,
    survival: ArrayLike,
    times: ArrayLike,
    *,
    censoring: Curve | None = None,
    rule: Rule = "left",
) -> Array:
    """Brier scores: mean squared errors of predicted survival, weighted for censoring (Graf et al. 1999).

    Args:
        time: Of the event or of censoring (records,).
        event: 1 where the event was seen, 0 where the record is censored (records,).
        survival: Predicted probabilities of surviving each of `times` (records, times).
        times: Times to score at (times,).
        censoring: The curve to weight by, such as that of training data; by default that of these records.
        rule: An event at T is weighted by the curve just before T (`left`), as it should be, or at T
            (`right`), as scikit-survival does. They differ only where events and censorings tie.

    Returns:
        One score for each of `times` (times,): 0 is perfect, and 0.25 is what a constant 1/2 gets.
    """
    grid = numbers("times", times, None, "a list of them")
    return Brier(time, event, grid, censoring=censoring, rule=rule)(survival)


def integrated_brier(
    time: ArrayLike,
    event: ArrayLike,
    survival: ArrayLike,
    times: ArrayLike,
    *,
    censoring: Curve | None = None,
    rule: Rule = "left",
) -> float:
    """The mean of the Brier score over the span of `times`, by the trapezoid rule.

    Args:
        time: As for `brier`.
        event: As for `brier`.
        survival: As for `brier`.
        times: Times to score at (times,): at least two, in increasing order.
        censoring: As for `brier`.
        rule: As for `brier`.
    """
    return Brier(time, event, times, censoring=censoring, rule=rule).integrate(survival)


class Brier:
    """The Brier scores of some records, ready for one prediction after the other.

    Args:
        time: As for `brier`.
        event: As for `brier`.
        times: As for `brier`.
        censoring: As for `brier`.
        rule: As for `brier`.
    """

    def __init__(
        self,
        time: ArrayLike,
        event: ArrayLike,
        times: ArrayLike,
        *,
        censoring: Curve | None = None,
        rule: Rule = "left",
    ) -> None:
        self._time, self._event = outcomes(time, event)
        self.times = numbers("times", times, None, "a list of them")
        self._curve = _censoring(self._time, self._event) if censoring is None else censoring
        self._weigh = weighting(self._time, self._event, self._curve, rule)

    def __call__(self, survival: ArrayLike) -> Array:
        """The score at each of the times (times,) of predictions for them (records, times)."""
        shape = (len(self._time), len(self.times))
        predicted = probabilities("survival", survival, shape, "(records, times)")
        if predicted.size > FEW_PREDICTIONS:
            return self._score_slices(predicted)
        surviving, weights = self._everything
        errors = predicted - surviving
        errors *= errors
        return np.einsum("rt,rt->t", errors, weights) / len(self._time)

    def integrate(self, survival: ArrayLike) -> float:
        """The mean of the score over the span of the times, by the trapezoid rule."""
        grid = increasing_times(self.times, "two")
        scores = self(survival)
        return float(np.diff(grid) @ (scores[1:] + scores[:-1]) / 2 / (grid[-1] - grid[0]))

    @cached_property
    def _everything(self) -> tuple[Array, Array]:
        """Return survival indicators at each of the times, and their weights (records, times)."""
        surviving = self._time[:, None] > self.times
        happened = (self._time <= self.times.max(initial=-np.inf)) & (self._event == 1)
        weights = np.where(surviving, self._ongoing(self.times < self._time.max()), 0.0)
        early = inverse_probabilities(self._time[happened], self._weigh)[:, None]
        weights[happened] = np.where(surviving[happened], weights[happened], early)
        return surviving.astype(np.float64), weights

    def _ongoing(self, followed: NDArray[np.bool_]) -> Array:
        """Return the weights of survivors of each of the times (times,), where there are survivors."""
        weights = np.zeros_like(self.times)
        weights[followed] = inverse_probabilities(self.times[followed], self._curve)
        return weights

    def _score_slices(self, survival: Array) -> Array:
        """Return the scores by slices, without an array of all records and times."""
        order = np.argsort(self._time, kind="stable")
        times, events = self._time[order], self._event[order]
        # One row for each time, records in the order of theirs: the past and the future are two slices of it.
        rows = survival.T[:, order]
        past = np.searchsorted(times, self.times, side="right")
        happened = (events == 1) & (np.arange(len(times)) < int(past.max(initial=0)))
        weights = np.zeros_like(times)
        weights[happened] = inverse_probabilities(times[happened], self._weigh)
        ongoing, scores = self._ongoing(past < len(times)), np.empty_like(self.times)
        for index, (row, split) in enumerate(zip(rows, past, strict=True)):
            early, late = row[:split], 1 - row[split:]
            scores[index] = (weights[:split] * early) @ early + ongoing[index] * (late @ late)
        return scores / len(times)


def _censoring(times: Array, events: Integers) -> Curve:
    steps, seen, censored, left = _tally(times, events)
    # The number at risk of being censored: all who are left, less the events at this time.
    return _product_limit(steps, censored, left - seen)


def kaplan_meier(times: Array, events: Integers) -> Curve:
    """Estimate the survival curve; records censored at the time of an event count as at risk."""
    steps, seen, _, left = _tally(times, events)
    return _product_limit(steps, seen, left)


def _tally(times: Array, events: Integers) -> tuple[Array, Integers, Integers, Integers]:
    # Distinct times; events at each, censored at each, and left until each.
    steps, where = np.unique(times, return_inverse=True)
    seen = np.bincount(where[events == 1], minlength=len(steps))
    leaving = np.bincount(where, minlength=len(steps))
    return steps, seen, leaving - seen, len(times) - np.cumsum(leaving, dtype=np.int64) + leaving


def _product_limit(steps: Array, leaving: Integers, left: Integers) -> Curve:
    stepping = leaving > 0
    staying = 1 - leaving[stepping] / left[stepping]
    return Curve(steps[stepping], np.cumprod(staying, dtype=np.float64))


def weighting(
    times: Array, events: Integers, curve: Curve | None, rule: Rule
) -> Callable[[ArrayLike], Array]:
    """Return the censoring curve that weights events: the given one or that of these records."""
    require_word("rule", rule, ("left", "right"))
    chosen = _censoring(times, events) if curve is None else curve
    return chosen.before if rule == "left" else chosen


def inverse_probabilities(times: Array, curve: Callable[[ArrayLike], Array]) -> Array:
    """One over the curve at these times; a curve that has reached 0 by then is refused."""
    values = curve(times)
    gone = times[values == 0]
    allowed = "above 0 at every event and every time that is scored: score no times from there on"
    require(len(gone) == 0, "censoring", f"0 at time {gone.min(initial=np.inf):g}", allowed)
    return 1 / values


def outcomes(time: ArrayLike, event: ArrayLike) -> tuple[Array, Integers]:
    """Times and events of at least one record (records,) each, checked."""
    times = numbers("time", time, None, "one per record")
    require(len(times) > 0, "time", "no record", "of at least one record")
    events = numbers("event", event, times.shape, "one per record")
    other = events[(events != 0) & (events != 1)]
    require(len(other) == 0, "event", f"{other.max(initial=0):g}", "0 (censored) or 1 (seen)")
    return times, events.astype(np.int64)


def probabilities(field: str, given: ArrayLike, shape: tuple[int, ...], meaning: str) -> Array:
    """Predicted probabilities of this shape, checked."""
    found = numbers(field, given, shape, meaning)
    # Single precision may round a sum of probabilities to slightly more than 1.
    require_probabilities(field, found, rounding=1e-5)
    return found


def numbers(field: str, given: ArrayLike, shape: tuple[int, ...] | None, meaning: str) -> Array:
    """Finite numbers of this shape, or of one axis where there is none, checked."""
    found = as_floats(field, given, meaning)
    wanted = "one axis" if shape is None else f"shape {shape}"
    fits = found.ndim == 1 if shape is None else found.shape == shape
    require(fits, field, f"shape {found.shape}", f"numbers of {wanted}, {meaning}")
    require(bool(np.isfinite(found).all()), field, "NaN or infinity", f"finite numbers, {meaning}")
    return found


def as_floats(field: str, given: ArrayLike, meaning: str) -> Array:
    """Numbers of any shape in double precision."""
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidValue(f"{field} is not allowed: it must be numbers, {meaning} ({error})") from error


def require_probabilities(field: str, given: Array, rounding: float = 0.0) -> None:
    """Refuse probabilities outside 0 to 1 by more than `rounding`."""
    low, high = given.min(initial=1), given.max(initial=0)
    inside = bool(low >= -rounding and high <= 1 + rounding)
    require(inside, field, f"{low:g} to {high:g}", "probabilities, from 0 to 1")


def increasing_times(given: ArrayLike, fewest: Literal["one", "two"]) -> Array:
    """Convert times to score at (times,); refuse too few, or any order but increasing."""
    times = numbers("times", given, None, "a list of them")
    enough = len(times) >= ("one", "two").index(fewest) + 1
    allowed = f"at least {fewest}, in increasing order"
    require(enough and is_increasing(times), "times", ShortTimes(times), allowed)
    return times


def is_increasing(times: Array) -> bool:
    """Return True if each time is later than the one before."""
    return bool((times[1:] > times[:-1]).all())


class ShortTimes:
    """The times, shortened, for a message; written only when the message is printed."""

    def __init__(self, times: Array) -> None:
        self._times = times

    def __repr__(self) -> str:
        return repr(np.array2string(self._times, threshold=6, edgeitems=2))
