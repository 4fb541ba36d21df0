"""The concordance of a fit across sites, from pairs of records at the same site, with its standard error.

A site sends five sums over its pairs; no pair, and no risk, leaves it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.sites.table import Table
from tacit.survival.metrics.concordance import count_below

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Concordance:
    """How often the record at higher risk has its event first, and how sure that is; NaN without pairs."""

    value: float
    error: float


def concordance(tables: Iterable[Table], beta: Array) -> Concordance:
    """Harrell's concordance of pairs at the same site, both at risk when the first of them has its event.

    The error is that of the infinitesimal jackknife over records (Therneau and Watson 2015).
    """
    return from_sums(np.sum([pair_sums(table, beta) for table in tables], axis=0))


def from_sums(sums: Array) -> Concordance:
    """The concordance that the sums of all sites tell (5,)."""
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
    """The concordant pairs of each record, ties counting one half, and all its pairs (records,)."""
    time, event = table.targets["time"], table.targets["event"] == 1
    first = np.flatnonzero(event)
    first = first[np.argsort(time[first], kind="stable")]
    # The others of an event: whoever is at risk after it, or is censored at its time.
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
    """How many of the first `ahead` values are lower than each that is asked for, and how many are equal."""
    places = len(values) + np.arange(len(asked))
    return count_below(np.concatenate([values, asked]), ahead, places)
