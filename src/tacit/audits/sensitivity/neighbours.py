"""Data sets that differ in one record, drawn at random and then made worse.

Records are rows of numbers here: nothing is known of tasks, clipping or noise. A search finds bad neighbours,
not the worst: what it does not find may be there all the same.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.accounting.release import Relation
from tacit.sites.federation import FEWEST_RECORDS

Array = NDArray[np.float64]

# What is tried in a column beside what it holds, as far as its bounds allow.
EXTREMES = (0.0, 1.0, -1.0, 1e-8, 1e3, -1e3, 1e8, -1e8, 1e150, -1e150, 1e300, -1e300)
# How many records both neighbours have: few, so that one counts, and some, so that many can change with it.
SHARED = (FEWEST_RECORDS, 3, 5, 10, 25)
# How many pairs are made worse, in turns.
CLIMBERS = 5


@dataclass(frozen=True)
class Movement:
    """How far an answer moves between two neighbours.

    Args:
        moved: Its distance; infinite where an answer is not finite, or tells of records in another way.
        claim: How far it may move.
        what: Which answer, in words.
    """

    moved: float
    claim: float
    what: str

    @property
    def ratio(self) -> float:
        """The distance as a part of what is claimed."""
        return self.moved / self.claim


@dataclass(frozen=True, eq=False)
class NeighbourCandidate:
    """Neighbours that a search looks at.

    Args:
        rows: The records of both sides together; the last is on one side alone.
        draws: A number that names whatever else is drawn, the same on both sides.
    """

    rows: Array
    draws: int

    def sides(self, relation: Relation) -> tuple[Array, Array]:
        """Without the last record and with it; or with the last but one, and the last in its place."""
        if relation == "add-remove":
            return self.rows[:-1], self.rows
        return self.rows[:-1], np.delete(self.rows, -2, axis=0)


@dataclass(frozen=True, eq=False)
class Domain:
    """What records may be.

    Args:
        pool: Records as they are (records, columns).
        low: The least that each column may hold.
        high: The most.
        kept: Columns that hold nothing but values of the pool.
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
        """The same records with one of them changed, mostly one that differs."""
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
        """Another value: that of another record, an extreme, or one that is larger, smaller or beside it."""
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
    """The neighbours that an answer moves furthest between, of as many as asked for.

    Half of them are drawn, the others come from changing the worst of those as long as that makes them worse.
    """

    def measured(rows: Array, draws: int) -> tuple[Movement, NeighbourCandidate]:
        candidate = NeighbourCandidate(rows, draws)
        return measure(candidate), candidate

    half = math.ceil(neighbours / 2)
    found = [measured(domain.sample(relation, draw), number) for number in range(half)]
    leaders = sorted(found, key=lambda one: -one[0].ratio)[:CLIMBERS]
    for turn in range(neighbours - half):
        movement, candidate = leaders[turn % len(leaders)]
        tried = measured(domain.perturb(candidate.rows, draw), candidate.draws)
        if tried[0].ratio >= movement.ratio:
            leaders[turn % len(leaders)] = tried
    return max(leaders, key=lambda one: one[0].ratio)
