"""Concordance indices of Harrell, Uno and Antolini, and the concordance across sites.

All three count pairs of records and are exact, ties included, without looking at each pair: in O(n log n) for
n records, and for Antolini's as often as there are times. The concordance across sites is of pairs at the
same site: a site sends five sums over its pairs; no pair, and no risk, leaves it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import require, require_word
from tacit.runtime.arrays import Array
from tacit.sites.table import Table
from tacit.survival.metrics.brier_score import (
    Curve,
    Integers,
    Rule,
    increasing_times,
    inverse_probabilities,
    numbers,
    outcomes,
    probabilities,
    weighting,
)

Ties = Literal["half", "pycox", "adjusted"]
# Fewer pairs than this are compared one by one, which is faster than to be clever.
FEW_PAIRS = 2**17
# The same where each column of predictions would be looked at by itself.
SOME_PAIRS = 2**21


def harrell(time: ArrayLike, event: ArrayLike, risk: ArrayLike) -> float:
    """Harrell's C: the share of comparable pairs in which the record at higher risk has its event first.

    A pair counts if one record has its event before the other's time, or at the time the other is censored.
    Two events at one time do not count; a pair of equal risks counts one half.

    Args:
        time: Of the event or of censoring (records,).
        event: 1 where the event was seen, 0 where the record is censored (records,).
        risk: Any score that is higher for earlier events (records,).
    """
    return Harrell(time, event)(risk)


class Harrell:
    """Harrell's C of some records, ready for one risk after the other.

    Args:
        time: As for `harrell`.
        event: As for `harrell`.
    """

    def __init__(self, time: ArrayLike, event: ArrayLike) -> None:
        times, self._events = outcomes(time, event)
        self._line = _line_up(times, self._events)
        self._pairs = int(self._line.ahead.sum())

    def __call__(self, risk: ArrayLike) -> float:
        """Return the share of comparable pairs that the risks (records,) order correctly."""
        risks = numbers("risk", risk, self._events.shape, "one per record")
        _require_pairs(self._pairs > 0, self._events)
        line, values = self._line, risks[self._line.order]
        if len(values) * len(line.asking) > FEW_PAIRS:
            lower, equal = count_below(values, line.ahead, line.asking)
            return (2 * int(lower.sum()) + int(equal.sum())) / (2 * self._pairs)
        own = values[line.asking, None]
        lower = int(np.count_nonzero((values < own) & self._comparable))
        return (lower + int(np.count_nonzero((values <= own) & self._comparable))) / (2 * self._pairs)

    @cached_property
    def _comparable(self) -> NDArray[np.bool_]:
        """Mask of the records that are compared with each event (events, records)."""
        return np.arange(len(self._line.order)) < self._line.ahead[:, None]


def uno(
    time: ArrayLike,
    event: ArrayLike,
    risk: ArrayLike,
    *,
    censoring: Curve | None = None,
    tau: float | None = None,
    rule: Rule = "right",
) -> float:
    """Uno's C: Harrell's, each pair weighted by 1 / G(T)^2 where its event is at T and G is for censoring.

    The weights make up for the pairs that censoring hides, so that the score estimates the same number under
    any censoring (Uno et al. 2011).

    Args:
        time: As for `harrell`.
        event: As for `harrell`.
        risk: As for `harrell`.
        censoring: The curve to weight by, such as that of training data; by default that of these records.
        tau: Only events before this time count; by default all do.
        rule: An event at T is weighted by the curve at T (`right`), as in scikit-survival, or just before T
            (`left`), as the theory has it. They differ only where events and censorings tie.
    """
    times, events = outcomes(time, event)
    risks = numbers("risk", risk, times.shape, "one per record")
    weigh = weighting(times, events, censoring, rule)
    line = _line_up(times, events)
    happened = times[line.order][line.asking]
    counting = line.ahead > 0
    if tau is not None:
        counting &= happened < numbers("tau", tau, (), "one time")
    _require_pairs(bool(counting.any()), events)
    weights = inverse_probabilities(happened[counting], weigh) ** 2
    ahead = line.ahead[counting]
    lower, equal = count_below(risks[line.order], ahead, line.asking[counting])
    return float(weights @ (2 * lower + equal) / (2 * (weights @ ahead)))


def antolini(
    time: ArrayLike, event: ArrayLike, survival: ArrayLike, times: ArrayLike, *, ties: Ties = "half"
) -> float:
    """Antolini's C: at each event, the share of survivors whose predicted survival is higher.

    The same pairs as for `harrell`, but a pair is judged by what was predicted for the time T of its event:
    it is concordant if S(T) is lower for the record with the event (Antolini et al. 2005). Predictions whose
    curves never cross score what `harrell` gives them.

    Args:
        time: Of the event or of censoring (records,).
        event: 1 where the event was seen, 0 where the record is censored (records,).
        survival: Predicted probabilities of surviving each of `times` (records, times).
        times: Times of the curves' steps, in increasing order (times,). S(T) is the prediction for the last
            of `times` that is not after T; before the first of them it is the prediction for the first.
        ties: `half` counts a pair of equal predictions one half. `pycox` counts it as discordant, as
            `antolini` of pycox. `adjusted` counts it one half, and more, as its `adj_antolini`: pairs of an
            event and a censoring at one time count twice, and so do pairs of events at one time, as
            concordant if their predictions are equal and as one half if not.
    """
    records, events = outcomes(time, event)
    grid = increasing_times(times, "one")
    surviving = probabilities("survival", survival, (len(records), len(grid)), "(records, times)")
    require_word("ties", ties, ("half", "pycox", "adjusted"))
    line = _line_up(records, events)
    column = np.searchsorted(grid, records[line.order], side="right") - 1
    concordant, pairs = _twice_concordant(surviving, line, np.maximum(column, 0), ties)
    _require_pairs(pairs > 0, events)
    return concordant / pairs


@dataclass(frozen=True, eq=False)
class _Line:
    # Longest first, and censored records first among equals: all that outlive an event stand ahead of it.
    order: NDArray[np.intp]  # the records from the front of the line (records,)
    asking: NDArray[np.intp]  # place in the line of each record with an event (events,)
    later: Integers  # for each event, the number with a later time: they stand at the front (events,)
    ahead: Integers  # the same, and those censored at its time, who come next (events,)
    through: Integers  # the same and all events at its time, itself included (events,)


def _line_up(times: Array, events: Integers) -> _Line:
    steps, where = np.unique(times, return_inverse=True)
    groups = 2 * (len(steps) - 1 - where) + events
    order = np.argsort(groups)
    ends = np.cumsum(np.bincount(groups, minlength=2 * len(steps)))
    starts = np.append(0, ends)
    asking = np.flatnonzero(events[order])
    own = groups[order][asking]
    return _Line(order, asking, starts[own - 1], starts[own], ends[own])


def _require_pairs(there: bool, events: Integers) -> None:
    allowed = "1 for a record that another outlives: there is no comparable pair"
    require(there, "event", f"{int(events.sum())} events in {len(events)} records", allowed)


def count_below(values: Array, ahead: Integers, asking: NDArray[np.intp]) -> tuple[Integers, Integers]:
    """Count the first `ahead` values that are lower than, and equal to, the value at `asking`."""
    if len(values) * len(asking) <= FEW_PAIRS:
        first, own = np.arange(len(values)) < ahead[:, None], values[asking, None]
        return ((values < own) & first).sum(axis=1), ((values == own) & first).sum(axis=1)
    ranks = np.unique(values, return_inverse=True)[1]
    return _count_ranks(ranks, ahead, ranks[asking])


def _count_ranks(ranks: Integers, ahead: Integers, own: Integers) -> tuple[Integers, Integers]:
    # A wavelet matrix (Claude, Navarro and Ordonez 2015): one stable partition for each bit of the ranks,
    # highest first, while [low, high) follows the ranks that share the higher bits of `own`.
    small, mine, high = ranks.astype(np.int32), own.astype(np.int32), ahead.astype(np.int32)
    low, lower = np.zeros_like(high), np.zeros_like(high)
    zeros = np.zeros(len(ranks) + 1, dtype=np.int32)
    for bit in reversed(range(int(small.max()).bit_length())):
        clear = (small >> bit) & 1 == 0
        np.cumsum(clear, out=zeros[1:])
        upper = (mine >> bit) & 1 == 1
        low_zeros, high_zeros = zeros[low], zeros[high]
        lower += np.where(upper, high_zeros - low_zeros, 0)
        low = np.where(upper, zeros[-1] + low - low_zeros, low_zeros)
        high = np.where(upper, zeros[-1] + high - high_zeros, high_zeros)
        small = np.concatenate([small[clear], small[~clear]])
    return lower.astype(np.int64), (high - low).astype(np.int64)


def _twice_concordant(survival: Array, line: _Line, column: NDArray[np.intp], ties: Ties) -> tuple[int, int]:
    # Twice the concordant and twice the comparable pairs, to stay with whole numbers.
    fronts = [line.ahead] if ties != "adjusted" else [line.ahead, line.later, line.through]
    until = np.stack(fronts)
    lower, equal = _count_columns(survival, line, column, until)
    pairs = until.sum(axis=1)
    higher = pairs - lower - equal
    if ties == "pycox":
        return 2 * int(higher[0]), 2 * int(pairs[0])
    twice = 2 * higher + equal
    if ties == "half":
        return int(twice[0]), 2 * int(pairs[0])
    # Each event asked about all events at its time: it is one of them, and equal to itself.
    itself = len(line.asking)
    partners, alike = pairs[2] - pairs[0] - itself, equal[2] - equal[0] - itself
    concordant = 2 * twice[0] - twice[1] + partners + alike
    return int(concordant), 2 * int(2 * pairs[0] - pairs[1] + partners)


def _count_columns(
    survival: Array, line: _Line, column: NDArray[np.intp], until: Integers
) -> tuple[Integers, Integers]:
    # Count, summed over events, the first `until` (questions, events) of the line that survive each event's
    # own column with a lower, and an equal, probability than that event's record. Those with a later column
    # stand in front and are sorted; those with the same column are counted as for C.
    if len(column) * len(line.asking) <= SOME_PAIRS:
        return _count_all(survival, line, column, until)
    rows = np.ascontiguousarray(survival.T)
    lower, equal = np.zeros((2, len(until)), dtype=np.int64)
    descending = -column
    for index in np.unique(column[line.asking]):
        start, stop = np.searchsorted(descending, [-index, 1 - index])
        first, last = np.searchsorted(line.asking, [start, stop])
        row = rows[index][line.order[:stop]]
        front, asking = np.sort(row[:start]), line.asking[first:last]
        below = np.searchsorted(front, row[asking], side="left").sum()
        upto = np.searchsorted(front, row[asking], side="right").sum()
        asked = until[:, first:last] - start
        found = count_below(row[start:], asked.ravel(), np.tile(asking - start, len(until)))
        lower += below + found[0].reshape(asked.shape).sum(axis=1)
        equal += upto - below + found[1].reshape(asked.shape).sum(axis=1)
    return lower, equal


def _count_all(
    survival: Array, line: _Line, column: NDArray[np.intp], until: Integers
) -> tuple[Integers, Integers]:
    # The same by looking at every pair.
    seen = np.ascontiguousarray(survival[line.order].T)[column[line.asking]]
    own = seen[np.arange(len(line.asking)), line.asking][:, None]
    first = np.arange(len(column)) < until[:, :, None]
    lower, equal = (np.count_nonzero(which & first, axis=(1, 2)) for which in (seen < own, seen == own))
    return np.asarray(lower, dtype=np.int64), np.asarray(equal, dtype=np.int64)


@dataclass(frozen=True)
class Concordance:
    """Concordance with its standard error: risk is higher for the earlier event; NaN without pairs."""

    value: float
    error: float


def concordance(tables: Iterable[Table], beta: Array) -> Concordance:
    """Harrell's concordance over pairs at the same site, both at risk when the first has its event.

    The error is that of the infinitesimal jackknife over records (Therneau and Watson 2015).
    """
    return from_sums(np.sum([pair_sums(table, beta) for table in tables], axis=0))


def from_sums(sums: Array) -> Concordance:
    """Return the concordance from the sums of all sites (5,)."""
    # Over records: concordant and comparable pairs that each takes part in, and their products.
    right, pairs, squares, products, spreads = sums
    if not pairs:
        return Concordance(float("nan"), float("nan"))
    value = right / pairs
    # A pair is in the sums of both its records.
    variance = (squares - 2 * value * products + value**2 * spreads) / (pairs / 2) ** 2
    return Concordance(float(value), float(np.sqrt(max(variance, 0.0))))


def pair_sums(table: Table, beta: Array) -> Array:
    """The site's half: sums over its pairs (5,)."""
    found, pairs = _by_record(table, table.features @ beta)
    return np.array([found.sum(), pairs.sum(), found @ found, found @ pairs, pairs @ pairs])


def _by_record(table: Table, risk: Array) -> tuple[Array, Array]:
    """Return the concordant pairs of each record, ties counting one half, and all its pairs (records,)."""
    time, event = table.targets["time"], table.targets["event"] == 1
    first = np.flatnonzero(event)
    first = first[np.argsort(time[first], kind="stable")]
    # Comparable records of an event: those at risk after it, or censored at its time.
    until = np.where(event, time, np.nextafter(time, np.inf))
    last = np.argsort(-until, kind="stable")
    later = np.searchsorted(-until[last], -time[first], side="left")
    lower, equal = _below(risk[last], risk[first], later)
    # The others of any record: the events that it outlives.
    earlier = np.searchsorted(time[first], until, side="left")
    under, even = _below(risk[first], risk, earlier)
    if "entry" in table.targets:
        entry = table.targets["entry"]
        order = np.argsort(-entry, kind="stable")
        coming = np.searchsorted(-entry[order], -time[first], side="right")
        more = _below(risk[order], risk[first], coming)
        before = np.searchsorted(time[first], entry, side="right")
        less = _below(risk[first], risk, before)
        later, earlier = later - coming, earlier - before
        lower, equal, under, even = lower - more[0], equal - more[1], under - less[0], even - less[1]
    found, pairs = earlier - under - even / 2, earlier.astype(np.float64)
    found[first] += lower + equal / 2
    pairs[first] += later
    return found, pairs


def _below(values: Array, asked: Array, ahead: Integers) -> tuple[Integers, Integers]:
    """Count the first `ahead` values that are lower than, and equal to, each of `asked`."""
    places = len(values) + np.arange(len(asked))
    return count_below(np.concatenate([values, asked]), ahead, places)
