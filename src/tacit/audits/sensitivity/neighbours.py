"""Data sets that differ in one record, drawn at random and then made worse.

Records are rows of numbers here: nothing is known of tasks, clipping or noise. A search finds bad neighbors,
not the worst: what it does not find may be there all the same.

Rounding tells some of them apart: many alike records at an edge of an answer, and one more. Where an answer
jumps, as at a rectifier whose input cancels to 0, the last bit of a sum decides on which side a record is. If
that bit depends on how many records there are, one record more turns all of them at once.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.accounting.release import Relation
from tacit.runtime.arrays import Array
from tacit.sites.federation import FEWEST_RECORDS

# Values tried in a column beside its own, within its bounds.
EXTREMES = (0.0, 1.0, -1.0, 1e-8, 1e3, -1e3, 1e8, -1e8, 1e150, -1e150, 1e300, -1e300)
# Numbers of records that both neighbors share: few, so that one counts, and some, so that many can change.
SHARED = (FEWEST_RECORDS, 3, 5, 10, 25)
# The number of pairs that are made worse in turns.
CLIMBERS = 5


@dataclass(frozen=True)
class Movement:
    """Distance of an answer between two neighbors, with its claim.

    Args:
        moved: The distance; infinite where an answer is not finite, or reveals records in another way.
        claim: The claimed sensitivity.
        what: The answer, in words.
    """

    moved: float
    claim: float
    what: str

    @property
    def ratio(self) -> float:
        """Distance divided by the claimed sensitivity."""
        return self.moved / self.claim


@dataclass(frozen=True, eq=False)
class NeighbourCandidate:
    """Candidate neighbors of the search.

    Args:
        rows: The records of both sides together; the last is on one side alone.
        draws: A number that names whatever else is drawn, the same on both sides.
    """

    rows: Array
    draws: int

    def sides(self, relation: Relation) -> tuple[Array, Array]:
        """Both data sets: without and with the last record, or with the last replaced by the one before."""
        if relation == "add-remove":
            return self.rows[:-1], self.rows
        return self.rows[:-1], np.delete(self.rows, -2, axis=0)


@dataclass(frozen=True, eq=False)
class Domain:
    """Domain of records.

    Args:
        pool: Actual records (records, columns).
        low: The least that each column may hold.
        high: The most.
        kept: True for columns that hold nothing but values of the pool.
    """

    pool: Array
    low: Array
    high: Array
    kept: NDArray[np.bool_]

    def sample(self, relation: Relation, draw: np.random.Generator) -> Array:
        """Records of the pool, some of them wild; now and then all alike in a column."""
        apart = 1 if relation == "add-remove" else 2
        size = int(draw.choice(SHARED)) + apart
        rows = self.pool[draw.integers(len(self.pool), size=size)]
        wild = draw.random(size) < float(draw.choice([0.0, 0.3, 1.0]))
        # The records that differ are what it is about.
        wild[-apart:] |= draw.random(apart) < 0.7
        for place in np.flatnonzero(wild):
            self._change(rows, int(place), draw, share=0.5)
        if draw.random() < 0.3:
            column = int(draw.integers(len(self.kept)))
            rows[:, column] = rows[0, column]
        return rows

    def perturb(self, rows: Array, draw: np.random.Generator) -> Array:
        """Change one record, mostly one in which the data sets differ."""
        changed = rows.copy()
        last = draw.random() < 0.5
        place = len(rows) - 1 if last else int(draw.integers(len(rows)))
        self._change(changed, place, draw, share=float(draw.choice([0.0, 0.5])))
        return changed

    def _change(self, rows: Array, place: int, draw: np.random.Generator, *, share: float) -> None:
        """Change about this share of a record's columns in place, and one at least."""
        columns = draw.random(len(self.kept)) < share
        columns[draw.integers(len(self.kept))] = True
        for column in np.flatnonzero(columns):
            rows[place, column] = self._value(int(column), float(rows[place, column]), draw)

    def _value(self, column: int, value: float, draw: np.random.Generator) -> float:
        """Draw another value: another record's, an extreme, or one nearby."""
        values = self.pool[:, column]
        way = 0 if self.kept[column] else int(draw.integers(4))
        if way == 0:
            return float(draw.choice(values))
        if way == 1:
            value = float(draw.choice(EXTREMES))
        elif way == 2:
            value = value * float(draw.choice([-1.0, 1.0]) * 10 ** draw.normal())
        else:
            value = value + float(draw.normal()) * float(np.std(values) or 1.0)
        return float(np.clip(value, self.low[column], self.high[column]))


def search_worst(
    measure: Callable[[NeighbourCandidate], Movement],
    domain: Domain,
    relation: Relation,
    neighbours: int,
    draw: np.random.Generator,
) -> tuple[Movement, NeighbourCandidate]:
    """Search the neighboring data sets between which an answer differs most.

    Half of them are drawn, the others come from changing the worst of those as long as that makes them worse.
    """

    def attempt(rows: Array, draws: int) -> tuple[Movement, NeighbourCandidate]:
        candidate = NeighbourCandidate(rows, draws)
        return measure(candidate), candidate

    half = math.ceil(neighbours / 2)
    found = [attempt(domain.sample(relation, draw), number) for number in range(half)]
    leaders = sorted(found, key=lambda one: -one[0].ratio)[:CLIMBERS]
    for turn in range(neighbours - half):
        movement, candidate = leaders[turn % len(leaders)]
        tried = attempt(domain.perturb(candidate.rows, draw), candidate.draws)
        if tried[0].ratio >= movement.ratio:
            leaders[turn % len(leaders)] = tried
    return max(leaders, key=lambda one: one[0].ratio)


# Numbers of equal records: libraries change their kernels at some of them.
COPIES = (2, 3, 12, 24, 37)
# By what features are multiplied: the larger they are, the more the last bit of a canceling sum weighs.
SIZES = (1.0, 1e8, 1e15, 1e17)
# As often is the way between two records cut in half: then they are neighboring numbers.
HALVINGS = 64
# Draws until a record is on the other side of an edge.
DRAWN = 8
# Positions of records, in steps from one side of the edge to the other: rounding reaches beyond both.
STEPS = (-2, 0, 1, 3)
# A jump is at least this share of the answers beside it.
JUMP = 1e-3


def edge_records(
    answer: Callable[[Array], Array], domain: Domain, tries: int, draw: np.random.Generator
) -> Iterator[Array]:
    """Yield records (records, columns), all alike except for the last one, that lie at an edge of an answer.

    Args:
        answer: The release of some records.
        domain: The domain of records.
        tries: The number of edges to look for.
        draw: The random generator.
    """
    for _ in range(tries):
        low, high = _ends(answer, domain, draw)
        below, above = answer(low[None]), answer(high[None])
        for _ in range(HALVINGS):
            middle = _within(domain, (low + high) / 2, low)
            between = answer(middle[None])
            if _relative_distance(below, between) >= _relative_distance(between, above):
                high, above = middle, between
            else:
                low, below = middle, between
        if _relative_distance(below, above) == 0:
            continue
        # Zeros, where they are allowed, are as far from an edge as anything.
        last = _within(domain, np.zeros_like(low), low)
        for step in STEPS:
            row = _within(domain, low + step * (high - low), low)
            for copies in COPIES:
                yield np.vstack([np.repeat(row[None], copies, axis=0), last])


def _ends(answer: Callable[[Array], Array], domain: Domain, draw: np.random.Generator) -> tuple[Array, Array]:
    """Find two records whose answers differ: there is an edge between them."""
    low = _record(domain, draw)
    high = _record(domain, draw)
    for _ in range(DRAWN):
        if _relative_distance(answer(low[None]), answer(high[None])) > 0:
            break
        high = _record(domain, draw)
    return low, high


def _record(domain: Domain, draw: np.random.Generator) -> Array:
    """Return a record of the pool, its free columns larger or smaller."""
    row = domain.pool[int(draw.integers(len(domain.pool)))]
    moved = row * float(draw.choice(SIZES)) * draw.normal(size=len(row))
    return _within(domain, moved, row)


def _within(domain: Domain, row: Array, known: Array) -> Array:
    """Project a record onto the domain; columns with only known values keep theirs."""
    return np.where(domain.kept, known, np.clip(row, domain.low, domain.high))


def _relative_distance(one: Array, other: Array) -> float:
    """Return the distance of two answers relative to their size; 0 below that of a jump."""
    with np.errstate(all="ignore"):
        size = max(float(np.abs(one).max(initial=0.0)), float(np.abs(other).max(initial=0.0)))
        far = float(np.abs(one - other).max(initial=0.0))
    return far / size if np.isfinite(far) and far > JUMP * size > 0 else 0.0
