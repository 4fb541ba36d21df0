"""Exits as each record adds to them, and counts of them that stand out of their noise.

A record is in one cell of exits and, if it comes late, in one of entries. That bounds what noise has to hide.
"""

import math
from dataclasses import replace

import numpy as np

from tacit.privacy.contracts import Norm
from tacit.runtime.arrays import Array
from tacit.sites.table import Table
from tacit.survival.life_table import LifeTable, exit_cells

# Counts that are on average fewer deviations of their noise than this are joined. Counts cannot be negative,
# and to make those so that noise has made negative moves exits from early intervals to late ones: with 1.4
# deviations a band of 95 % held in 78 % of all runs, with 3 in about 95 %.
CLEAR = 3.0


class ExitCounts:
    """Exits by the cell they fall into (`tacit.privacy.mechanisms.base.Contributions`).

    Args:
        table: The records of one site.
        ends: The ends of the intervals.
        states: How many states a record can leave in.
        one: What one record counts for.

    Guarantee:
        Each record adds `one` to one cell of exits, and to one of entries if it comes late.
    """

    def __init__(self, table: Table, ends: Array, states: int, one: float) -> None:
        self._table, self._ends, self._states, self._one = table, ends, states, one

    def lengths(self, norm: Norm) -> Array:
        """How far each record moves the counts (1, records)."""
        entry = self._table.targets.get("entry", np.zeros(len(self._table)))
        weight = self._table.targets.get("weight", np.ones(len(self._table)))
        return (self._one * weight * np.where(entry > 0, sensitivity(2, norm), sensitivity(1, norm)))[None]

    def total(self, factors: Array | None) -> Array:
        """The counts (1, cells)."""
        targets = dict(self._table.targets)
        if factors is not None:
            targets["weight"] = targets.get("weight", 1.0) * factors[0]
        return (
            self._one
            * exit_cells(replace(self._table, targets=targets), self._ends, self._states, None)[None]
        )


def sensitivity(moved: int, norm: Norm) -> float:
    """How far a record moves counts if it is in so many cells."""
    return math.sqrt(moved) if norm == "l2" else float(moved)


def coarsen(table: LifeTable) -> LifeTable:
    """The counts of all sites with so many intervals joined that they stand out of their noise."""
    counts, times, states = table.cells[0, 0], len(table.grid), 1 + table.causes
    left, records = states * times + 1, float(counts[: states * times + 1].sum())
    joined = 1
    while joined < times and records < _required_records(table, states, joined):
        joined += 1
    if joined == 1:
        return table
    starts = np.arange(0, times, joined)
    exits = np.add.reduceat(counts[: left - 1].reshape(times, states), starts, axis=0)
    parts = [exits.ravel(), counts[left - 1 : left]]
    if table.late:
        parts += [np.add.reduceat(counts[left:-1], starts), counts[-1:]]
    told = f"{table.provenance}; every {joined} intervals are taken together, to stand out of the noise"
    return replace(
        table,
        grid=table.grid[np.minimum(starts + joined, times) - 1],
        cells=np.concatenate(parts).reshape(1, 1, -1),
        # What lies beyond the grid was not joined, nor all of the last interval: they have less.
        variance=joined * table.variance,
        provenance=told,
    )


def _required_records(table: LifeTable, states: int, joined: int) -> float:
    """How many records it takes to fill the cells of joined intervals, each clearly."""
    cells_left = states * math.ceil(len(table.grid) / joined) + 1
    return CLEAR * cells_left * math.sqrt(joined * table.variance)
