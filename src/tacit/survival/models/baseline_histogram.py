"""Baseline hazard from a histogram of exits by interval and state, exact or with noise.

A record leaves in one cell, so it moves the histogram by 1 (by the root of 2 if it also enters late). Without
a public horizon the intervals double every second time and fit any unit of time. Intervals are joined until
each holds clearly more events than its noise.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.runtime.arrays import Array
from tacit.survival.life_table import nearest_counts
from tacit.survival.models.newton_steps import FOLLOWED

# Intervals for an unknown horizon: two for each doubling of time.
DOUBLING = np.exp2(np.arange(-40, 41) / 2)
# Number of intervals up to a public horizon, and how much denser the early ones are.
USUAL, BEND = 6, 1.5
# Joined intervals hold this many deviations of noise, and no less than this share of the events.
CLEAR, LEAST = 4.0, 1 / 12
# The window of a histogram of unknown range exceeds the noise by this many deviations for each cell.
CERTAIN = 1.0


@dataclass(frozen=True, eq=False)
class BaselineEstimate:
    """Hazards by interval, as far as a histogram shows them.

    Args:
        ends: The ends of the intervals (intervals,).
        rates: Events expected in each interval of a record that is at risk throughout it (intervals,).
        expected: Events expected in each interval, of all records, each followed to one expected event.
        variance: The variance of the logarithm of each rate.
        records: About how many records there are.
        events: About how many events.
    """

    ends: Array
    rates: Array
    expected: Array
    variance: Array
    records: float
    events: float

    def as_dict(self) -> dict[str, list[float]]:
        """Return plain data."""
        return {name: [float(value) for value in np.atleast_1d(vars(self)[name])] for name in vars(self)}


def interval_ends(horizon: float, asked: int | None) -> Array:
    """Return the ends of intervals up to a public horizon; they are denser early on."""
    some = asked or USUAL
    return horizon * (np.arange(1, some + 1) / some) ** BEND


def estimate(cells: Array, ends: Array, noise: float, *, whole: bool) -> BaselineEstimate | None:
    """Estimate hazards from counts of exits; None if noise hides the exits.

    Args:
        cells: Censored and events of each interval, in turn, then those beyond the last; with late entries,
            entries in each interval and beyond after that.
        ends: The ends of the intervals.
        noise: The standard deviation of the noise in a count.
        whole: Whether the intervals end at a public horizon; if not, the records lie in some of them.
    """
    exits = cells[: 2 * len(ends)].reshape(-1, 2)
    entered = cells[2 * len(ends) + 1 :]
    first, last = 0, len(ends)
    if not whole:
        places = np.flatnonzero(main_window(exits.sum(axis=1), noise))
        if not len(places):
            return None
        first, last = int(places[0]), int(places[-1]) + 1
    beyond = max(float(cells[2 * len(ends)]), 0.0) if whole else 0.0
    left, edges = exits[first:last], np.concatenate([[0.0], ends])[first : last + 1]
    if not whole:
        edges = np.concatenate([[0.0], edges[1:]])
    came = entered[first : last + 1] if len(entered) else np.zeros(0)
    return _rates(left, came, beyond, edges, _join(left[:, 1], noise), noise)


def _join(events: Array, noise: float) -> list[slice]:
    """Join adjacent intervals until each group holds enough events."""
    total, found, start = float(events.sum()), list[slice](), 0
    for stop in range(1, len(events) + 1):
        clear = CLEAR * noise * np.sqrt(stop - start)
        if events[start:stop].sum() >= max(total * LEAST, clear, 1.0):
            found.append(slice(start, stop))
            start = stop
    # What is left at the end belongs to the last group.
    return [*found[:-1], slice(found[-1].start if found else 0, len(events))]


def _rates(
    left: Array, came: Array, beyond: float, edges: Array, groups: list[slice], noise: float
) -> BaselineEstimate:
    """Estimate the rate of each group of intervals."""
    sizes = np.array([own.stop - own.start for own in groups])
    doubt = noise * np.sqrt(sizes)
    counts = np.stack([left[own].sum(axis=0) for own in groups])
    flat = np.append(counts.ravel(), beyond)
    consistent = nearest_counts(flat) if noise > 0 else flat
    counts, beyond = consistent[:-1].reshape(-1, 2), float(consistent[-1])
    gone = counts.sum(axis=1)
    at_risk = np.cumsum(gone[::-1])[::-1] + beyond
    if len(came):
        coming = np.array([came[own].sum() for own in groups])
        later = np.cumsum(np.append(coming, came[-1])[::-1])[::-1]
        at_risk = np.maximum(at_risk - later[1:] - coming / 2, gone)
    lived = np.maximum(at_risk - gone / 2, 0.5)
    ends = edges[[own.stop for own in groups]]
    widths = np.diff(ends, prepend=0.0)
    # As if a few more had lived and died at the mean rate, as many as noise could hide.
    mean = max(float(counts[:, 1].sum()), 1.0) / max(float(lived @ widths), 1e-300) * widths
    more = doubt + 0.5
    happened = counts[:, 1] + more
    rates = happened / (lived + more / mean)
    return BaselineEstimate(
        ends=ends,
        rates=rates,
        expected=np.maximum(_expect_events(gone, beyond, rates), 0.5),
        variance=(doubt**2 + counts[:, 1] + 0.5) / happened**2,
        records=float(gone.sum() + beyond),
        events=float(counts[:, 1].sum()),
    )


def _expect_events(gone: Array, beyond: float, rates: Array) -> Array:
    """Events expected in each interval; records leave in the middle of one, or after one expected event."""
    intervals = len(rates)
    shares = np.tril(np.ones((intervals, intervals)), -1) + np.eye(intervals) / 2
    whole = np.concatenate([shares, np.ones((1, intervals))]) * rates
    before = np.cumsum(whole, axis=1) - whole
    return np.append(gone, beyond) @ np.clip(FOLLOWED - before, 0.0, whole)


def main_window(counts: Array, noise: float) -> NDArray[np.bool_]:
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
