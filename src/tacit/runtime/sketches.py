"""Sketches of data sets: they count common records, and distinguish them from coincidences.

A sketch is a bottom-k sample: the records with the smallest digests, the same ones in every data set that
holds them. The second record of a digest, the third and so on are elements of their own, so that records that
look alike count as often as they occur. Two data sets about different people also share values: integer days,
few-valued features. How many is estimated from how often values repeat within each of them. Records that were
written several times pass for common values; so it is also bounded by how little values repeat in the other
data set, where the same people may have been written once.
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Digests = NDArray[np.uint64]

WHOLE = 2**64
# Of larger data, the records with the smallest digests stand for all.
SKETCH = 2**16
# Data sets that share such a part of the smaller one, beyond coincidence, are about the same people. More is
# asked for of a part of a record, less of records in a row: few of those are left in a part of the data.
SAME, SAME_IN_PART, SAME_IN_ORDER = 0.1, 0.25, 0.05
# With many coincidences, a shared part above this is recognized without a test.
NEARLY_ALL = 0.9
# Fewer elements in common than these may be a coincidence, whatever the estimate says.
FEWEST_SHARED = 2
# With fewer different records than these, or fewer expected to differ, nothing can be told apart.
FEWEST_DIFFERENT = 8
# More possible values than these are as good as infinitely many.
MANY_CELLS = 1e15
# The estimate of coincidences may be wrong by such a part of itself and, where nearly everything is shared by
# coincidence, by such a part of the rest.
MISJUDGED, MISJUDGED_SHARE = 0.02, 0.1
# Standard deviations above coincidence that count; more if views are many, or a little is enough.
CLEARLY, VERY_CLEARLY = 4.0, 6.0
# Standard deviations of the root of a count of pairs (each is 1/2) by which repetitions may be undercounted.
UNDERCOUNTED = 3.0
# Standard deviations beyond chance from which a multiplicity shows that values were written again.
REWRITTEN = 5.0

View = Literal["records", "part", "column", "order"]
Verdict = Literal["same", "near", "other"]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Size of a data set in one view, and the coincidences to expect between data of different people.

    Args:
        view: Whole records, a part of what they say, a single column, or records that follow each other.
        count: The number of elements: records, or the different values of a column.
        below: The sketch has every element whose digest is below this.
        repeats: Pairs of a multiplicity and the number of digests with it.
        cells: The number of possible values: of a column, its range over its smallest gap.
    """

    view: View = "records"
    count: int = 0
    below: int = WHOLE
    repeats: tuple[tuple[int, float], ...] = ()
    cells: float | None = None

    @property
    def records(self) -> float:
        """Number of records."""
        return sum(times * many for times, many in self.repeats) or float(self.count)

    def coincide(self, others: float, bound: float = math.inf) -> float:
        """Estimate how many elements `others` records of other people, drawn alike, share with these.

        The rate of a value that was seen once is estimated by Good and Turing's rule, from those that were
        seen twice; the rest of the rate is shared among values in proportion to how often they were seen.

        Args:
            others: The number of other records.
            bound: An upper bound on what values that were drawn share.
        """
        many, total = dict(self.repeats), self.records
        once, twice = many.get(1, 0.0), many.get(2, 0.0)
        # Of a part of a record there is always some chance: as if one more had been seen twice.
        pairs = twice + (self.view != "records")
        left = max(0.0, 1 - 2 * twice / (total - once)) if total > once else 0.0
        ratio, shared = others / total, 0.0
        for times, digests in self.repeats:
            rate = (2 * pairs / once if times == 1 else times * left) * ratio
            most = 1 if self.view == "column" else times
            shared += digests * (-math.expm1(-rate) if most == 1 else _smaller(most, rate, ratio))
        shared = min(shared, bound)
        if 4 * self.cells_or_many * self.pairs < total**2:
            # There are fewer repetitions than among draws: values were not drawn but given out in turn.
            shared = max(shared, min(total, others) * max(total, others) / self.cells_or_many)
        return shared

    @property
    def cells_or_many(self) -> float:
        """Number of possible values; infinite if it is not known."""
        return math.inf if self.cells is None else self.cells

    @property
    def pairs(self) -> float:
        """Number of pairs of records with the same digest."""
        return sum(many * times * (times - 1) / 2 for times, many in self.repeats)


@dataclass(frozen=True, eq=False)
class Sketch:
    """The elements with the smallest digests, in order, the shape of all, and a digest of all.

    There are no elements where records cannot be told apart, and no digest of a part of what records say.
    """

    elements: Digests
    shape: Shape
    content: bytes = b""


def compare(shared: int, one: Shape, other: Shape) -> Verdict:
    """Judge whether two data sets are about the same people.

    Args:
        shared: The number of elements below the smaller `below` that both sketches have.
        one: The shape of one.
        other: The shape of the other.

    Returns:
        `same` if a sizeable part of the smaller one is in both, `near` if some clearly is, or `other`.
    """
    if shared < FEWEST_SHARED:
        return "other"
    part, size = min(one.below, other.below) / WHOLE, min(one.count, other.count)
    bound = _bound_coincidences(one, other)
    chance = max(one.coincide(other.records, bound), other.coincide(one.records, bound))
    most, expected = size * part, min(chance, size) * part
    excess, room = shared - expected, most - expected
    if room <= 0:
        return "other"
    views = {one.view, other.view}
    strict = not views.isdisjoint(("column", "order"))
    # Of a sample, how much of the smaller one is in it varies as well.
    noise = math.sqrt(most) if part < 1 else 0.0
    spread = math.hypot(math.sqrt(min(expected, most / 4)), MISJUDGED * expected)
    spread = max(spread, math.sqrt(expected)) if part < 1 else spread
    clear = excess >= (VERY_CLEARLY if strict else CLEARLY) * spread
    least = SAME if views == {"records"} else SAME_IN_ORDER if views == {"order"} else SAME_IN_PART
    if clear and excess >= (least + MISJUDGED_SHARE * expected / most) * room:
        return "same"
    if excess >= NEARLY_ALL * room and room >= max(FEWEST_DIFFERENT, VERY_CLEARLY * noise):
        return "same"
    return "near" if clear and not strict else "other"


def sketch(digests: Digests, view: View = "records", cells: float = math.inf, size: int = SKETCH) -> Sketch:
    """Sketch all records, given their digests in one view, in any order."""
    ordered = np.sort(digests)
    content = hashlib.blake2b(ordered.tobytes()).digest() if view == "records" and len(ordered) else b""
    starts, counts = find_runs(ordered)
    if len(starts) < FEWEST_DIFFERENT:
        return Sketch(ordered[:0], Shape(view=view), content)
    # Records that were written equally often count once, be it all or most of them.
    often = int(np.gcd.reduce(counts))
    often = often if often > 1 else find_multiplicity(counts)
    if often > 1:
        counts = -(-counts // often)
        ordered = np.repeat(ordered[starts], counts)
    elements = ordered
    if len(starts) < len(ordered):
        turn = np.arange(len(ordered)) - np.repeat(np.cumsum(counts) - counts, counts)
        again = turn > 0
        elements = ordered.copy()
        elements[again] = mix(ordered[again] + turn[again].astype(np.uint64) * TURN)
        elements.sort()
    taken = elements[:size].copy()
    below = WHOLE if len(taken) == len(elements) else int(taken[-1]) + 1
    known = None if cells > MANY_CELLS else cells
    shape = Shape(view=view, count=len(elements), below=below, repeats=_count_repeats(counts), cells=known)
    return Sketch(taken, shape, content)


def sketch_column(digests: Digests, cells: float, size: int) -> Sketch | None:
    """Sketch the different values of one column; None unless at least half of the records have their own."""
    # Sorting a sample that is known to suffice is faster than sorting everything.
    part = min(1.0, 4 * size / max(len(digests), 1))
    limit = WHOLE if part == 1 else int(part * WHOLE)
    ordered = np.sort(digests if part == 1 else digests[digests < np.uint64(limit)])
    starts, counts = find_runs(ordered)
    if len(starts) < max(FEWEST_DIFFERENT, len(ordered) / 2):
        return None
    taken = ordered[starts[:size]]
    below = limit if len(taken) == len(starts) else int(taken[-1]) + 1
    repeats = tuple((times, many / part) for times, many in _count_repeats(counts))
    count, known = round(len(starts) / part), None if cells > MANY_CELLS else cells
    shape = Shape(view="column", count=count, below=below, repeats=repeats, cells=known)
    return Sketch(taken, shape)


def find_multiplicity(counts: NDArray[np.int64]) -> int:
    """Find how often values were written that chance cannot have repeated that often; 1 if there are none.

    The numbers n_k of values that were drawn k times follow a mixture of Poisson distributions, so that
    k! n_k is log-convex in k: of all values drawn k - 1, k or k + 1 times, at most one in
    1 + 2 sqrt(k / (k + 1)) was drawn k times. Where most values are written k times, more are.

    Args:
        counts: How often each value occurs (values,).
    """
    many = np.bincount(counts, minlength=3).astype(float)
    times = np.arange(2, len(many))
    around = np.convolve(many, np.ones(3), mode="same")[2:]
    most = 1 / (1 + 2 * np.sqrt(times / (times + 1)))
    clear = (many[2:] - most * around) / np.sqrt(np.maximum(most * (1 - most) * around, 1.0))
    return int(times[np.argmax(clear)]) if len(times) and clear.max() >= REWRITTEN else 1


def choose_columns(found: Iterable[Sketch | None], most: int) -> list[Sketch]:
    """Choose the columns that stand for all: those of the smallest digests, the same ones in other data."""
    some = [one for one in found if one is not None]
    return sorted(some, key=lambda one: int(one.elements[0]))[:most]


def mix(values: Digests) -> Digests:
    """Scatter 64 bits over 64 bits (the finalizer of SplitMix64)."""
    with np.errstate(over="ignore"):
        found = values + TURN
        found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return found ^ (found >> np.uint64(31))


TURN = np.uint64(0x9E3779B97F4A7C15)


def _bound_coincidences(one: Shape, other: Shape) -> float:
    """Bound how many records of one set equal one of the other, from how many are equal within each.

    By Cauchy and Schwarz's inequality, two draws from different distributions are equal at most as often as
    the geometric mean of how often two draws from either are.
    """
    most = (math.sqrt(shape.pairs) + UNDERCOUNTED / 2 for shape in (one, other))
    return 2 * math.prod(most)


def _smaller(most: int, rate: float, ratio: float) -> float:
    """Estimate the mean of the smaller of `most` and a count with this rate, itself estimated from `most`."""
    spread = math.sqrt(rate * (1 + ratio))
    if spread == 0:
        return 0.0
    above = (most - rate) / spread
    below = (most - rate) * (1 + math.erf(above / math.sqrt(2))) / 2
    density = math.exp(-above * above / 2) / math.sqrt(2 * math.pi)
    return min(max(most - below - spread * density, 0.0), most, rate)


def find_runs(ordered: Digests) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find where each different digest begins, and how often it occurs."""
    if len(ordered) == 0:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return starts, np.diff(np.append(starts, len(ordered)))


def _count_repeats(counts: NDArray[np.int64]) -> tuple[tuple[int, float], ...]:
    times, many = np.unique(counts, return_counts=True)
    return tuple(zip(times.tolist(), many.astype(float).tolist(), strict=True))
