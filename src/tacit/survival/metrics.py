"""How good a survival prediction is: Harrell's concordance, and Brier scores weighted for censoring.

Definitions are the textbook ones, ties included; where a popular package departs from them, an argument says
so by name. Every score is computed in double precision from plain arrays, lists, series or tensors. Nothing
here fits a model, and nothing is private: a score of held-out records is a release like any other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidValue, require, require_word

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Rule = Literal["left", "right"]


def harrell(time: ArrayLike, event: ArrayLike, risk: ArrayLike) -> float:
    """Harrell's C: how often, of two records, the one at higher risk has its event first.

    A pair counts if one record has its event before the other's time, or at the time the other is censored.
    Two events at one time do not count; a pair of equal risks counts one half.

    Args:
        time: Of the event or of censoring (records,).
        event: 1 where the event was seen, 0 where the record is censored (records,).
        risk: Any score that is higher for earlier events (records,).
    """
    times, events = _outcomes(time, event)
    risks = _numbers("risk", risk, times.shape, "one per record")
    # Longest first, and the censored first among equals: whoever outlives an event stands ahead of it.
    order = np.lexsort((events, -times))
    times, events = times[order], events[order]
    ranks = np.unique(risks[order], return_inverse=True)[1]
    changed = (times[1:] != times[:-1]) | (events[1:] != events[:-1])
    starts = np.where(np.append(True, changed), np.arange(len(times)), 0)
    happened = events == 1
    ahead = np.maximum.accumulate(starts)[happened]
    pairs = int(ahead.sum())
    allowed = "1 for a record that another outlives: there is no comparable pair"
    require(pairs > 0, "event", f"{len(ahead)} events in {len(times)} records", allowed)
    lower, equal = _count_below(ranks, ahead, ranks[happened])
    return (2 * lower + equal) / (2 * pairs)


@dataclass(frozen=True, eq=False)
class Curve:
    """A step function of time that starts at 1: `curve(t)` is its value at t, `curve.before(t)` just before.

    Args:
        times: Where it steps, in increasing order (steps,).
        values: Its probabilities from each step on (steps,).
    """

    times: Floats
    values: Floats

    def __post_init__(self) -> None:
        times = _numbers("times", self.times, None, "one per step").copy()
        values = _numbers("values", self.values, times.shape, "one per step").copy()
        require(_rising(times), "times", _shown(times), "in increasing order")
        _require_probabilities("values", values)
        for name, array in (("times", times), ("values", values)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __call__(self, time: ArrayLike) -> Floats:
        """The values at these times, steps at exactly these times included."""
        return self._after(np.searchsorted(self.times, np.asarray(time, dtype=np.float64), side="right"))

    def before(self, time: ArrayLike) -> Floats:
        """The limits from the left: the values just before these times."""
        return self._after(np.searchsorted(self.times, np.asarray(time, dtype=np.float64), side="left"))

    def _after(self, steps: NDArray[np.intp]) -> Floats:
        return np.append(1.0, self.values)[steps]


def censoring(time: ArrayLike, event: ArrayLike) -> Curve:
    """The Kaplan-Meier curve of the censoring times: the probability of being uncensored for longer than t.

    Events come before censorings at the same time and have left the risk set by then, as in R.

    Args:
        time: Of the event or of censoring (records,).
        event: 1 where the event was seen, 0 where the record is censored (records,).
    """
    return _censoring(*_outcomes(time, event))


def brier(
    time: ArrayLike,
    event: ArrayLike,
    survival: ArrayLike,
    times: ArrayLike,
    *,
    censoring: Curve | None = None,
    rule: Rule = "left",
) -> Floats:
    """Brier scores: mean squared errors of predicted survival, weighted for censoring (Graf et al. 1999).

    Args:
        time: Of the event or of censoring (records,).
        event: 1 where the event was seen, 0 where the record is censored (records,).
        survival: Predicted probabilities of surviving each of `times` (records, times).
        times: When to score (times,).
        censoring: The curve to weight by, such as that of training data; by default that of these records.
        rule: An event at T is weighted by the curve just before T (`left`), as it should be, or at T
            (`right`), as scikit-survival does. They differ only where events and censorings tie.

    Returns:
        One score for each of `times` (times,): 0 is perfect, and 0.25 is what a constant 1/2 gets.
    """
    outcomes = _outcomes(time, event)
    grid = _numbers("times", times, None, "a list of them")
    surviving = _numbers("survival", survival, (len(outcomes[0]), len(grid)), "(records, times)")
    # Single precision may round a sum of probabilities to slightly more than 1.
    _require_probabilities("survival", surviving, rounding=1e-5)
    require_word("rule", rule, ("left", "right"))
    curve = _censoring(*outcomes) if censoring is None else censoring
    return _brier(*outcomes, surviving, grid, curve, rule)


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
        times: When to score (times,): at least two, in increasing order.
        censoring: As for `brier`.
        rule: As for `brier`.
    """
    grid = _numbers("times", times, None, "a list of them")
    require(len(grid) > 1 and _rising(grid), "times", _shown(grid), "at least two, in increasing order")
    scores = brier(time, event, survival, grid, censoring=censoring, rule=rule)
    return float(np.diff(grid) @ (scores[1:] + scores[:-1]) / 2 / (grid[-1] - grid[0]))


def _count_below(ranks: Integers, ahead: Integers, own: Integers) -> tuple[int, int]:
    # How many of the first `ahead` ranks are lower than `own`, and how many are equal, summed over all
    # questions. A wavelet matrix (Claude, Navarro and Ordonez 2015): one stable partition for each bit of the
    # ranks, highest first, while [low, high) follows the ranks that share the higher bits of `own`.
    lower = 0
    low, high = np.zeros_like(ahead), ahead
    for bit in reversed(range(int(ranks.max()).bit_length())):
        ones = (ranks >> bit) & 1 == 1
        zeros = np.append(0, np.cumsum(~ones))
        upper = (own >> bit) & 1 == 1
        low_zeros, high_zeros = zeros[low], zeros[high]
        lower += int((high_zeros - low_zeros)[upper].sum())
        low = np.where(upper, zeros[-1] + low - low_zeros, low_zeros)
        high = np.where(upper, zeros[-1] + high - high_zeros, high_zeros)
        ranks = np.concatenate([ranks[~ones], ranks[ones]])
    return lower, int((high - low).sum())


def _censoring(times: Floats, events: Integers) -> Curve:
    steps, where = np.unique(times, return_inverse=True)
    leaving = np.bincount(where, minlength=len(steps))
    censored = np.bincount(where, weights=1 - events, minlength=len(steps))
    # The number at risk of being censored: all who are left, less the events at this very time.
    left = np.cumsum(leaving[::-1])[::-1] - (leaving - censored)
    stepping = censored > 0
    staying = 1 - censored[stepping] / left[stepping]
    return Curve(steps[stepping], np.cumprod(staying, dtype=np.float64))


def _brier(
    times: Floats, events: Integers, survival: Floats, grid: Floats, curve: Curve, rule: Rule
) -> Floats:
    order = np.argsort(times, kind="stable")
    times, events = times[order], events[order]
    # One row for each time, records in the order of theirs: the past and the future are two slices of it.
    rows = survival.T[:, order]
    past = np.searchsorted(times, grid, side="right")
    reached = int(past.max(initial=0))
    happened = (events == 1) & (np.arange(len(times)) < reached)
    weights = np.zeros_like(times)
    weights[happened] = _inverse(times[happened], curve.before if rule == "left" else curve)
    ongoing = np.zeros_like(grid)
    followed = past < len(times)
    ongoing[followed] = _inverse(grid[followed], curve)
    scores = np.empty_like(grid)
    for index, (row, split) in enumerate(zip(rows, past, strict=True)):
        early, late = row[:split], 1 - row[split:]
        scores[index] = (weights[:split] * early) @ early + ongoing[index] * (late @ late)
    return scores / len(times)


def _inverse(times: Floats, curve: Callable[[ArrayLike], Floats]) -> Floats:
    values = curve(times)
    gone = times[values == 0]
    allowed = "above 0 at every event and every time that is scored: score no times from there on"
    require(len(gone) == 0, "censoring", f"0 at time {gone.min(initial=np.inf):g}", allowed)
    return 1 / values


def _outcomes(time: ArrayLike, event: ArrayLike) -> tuple[Floats, Integers]:
    times = _numbers("time", time, None, "one per record")
    require(len(times) > 0, "time", "no record", "of at least one record")
    events = _numbers("event", event, times.shape, "one per record")
    other = events[(events != 0) & (events != 1)]
    require(len(other) == 0, "event", f"{other.max(initial=0):g}", "0 (censored) or 1 (seen)")
    return times, events.astype(np.int64)


def _numbers(field: str, given: ArrayLike, shape: tuple[int, ...] | None, meaning: str) -> Floats:
    try:
        numbers = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidValue(f"{field} is not allowed: it must be numbers, {meaning} ({error})") from error
    wanted = "one axis" if shape is None else f"shape {shape}"
    fits = numbers.ndim == 1 if shape is None else numbers.shape == shape
    require(fits, field, f"shape {numbers.shape}", f"numbers of {wanted}, {meaning}")
    require(bool(np.isfinite(numbers).all()), field, "NaN or infinity", f"finite numbers, {meaning}")
    return numbers


def _require_probabilities(field: str, given: Floats, rounding: float = 0.0) -> None:
    low, high = given.min(initial=1), given.max(initial=0)
    inside = bool(low >= -rounding and high <= 1 + rounding)
    require(inside, field, f"{low:g} to {high:g}", "probabilities, from 0 to 1")


def _rising(times: Floats) -> bool:
    return bool((times[1:] > times[:-1]).all())


def _shown(times: Floats) -> str:
    return np.array2string(times, threshold=6, edgeitems=2)
