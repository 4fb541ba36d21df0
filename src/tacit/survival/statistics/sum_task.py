"""Sum tasks: statistics as sums over sites, and exit counts that exceed their noise.

The mean of what sites send does not say how many have sent something. So every site marks a place of its own
beside its sums; who takes part is public. A record is in one cell of exits and, if it comes late, in one of
entries. That bounds what noise has to hide.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from tacit.errors import InvalidValue, require
from tacit.learning.record import identity_of
from tacit.learning.task import TaskBase
from tacit.privacy.contracts import Norm
from tacit.privacy.policy import Open, Privacy
from tacit.runtime.arrays import Array
from tacit.sites.federation import Federation, require_rows
from tacit.sites.table import Table
from tacit.survival.life_table import Groups, LifeTable, exit_cells
from tacit.survival.record_checks import advise

# Rounding error allowed in an indicator.
SLACK = 1e-9
# Counts that are on average fewer deviations of their noise than this are joined. Counts cannot be negative,
# and to make those so that noise has made negative moves exits from early intervals to late ones: with 1.4
# deviations a band of 95 % held in 78 % of all runs, with 3 in about 95 %.
CLEAR = 3.0


@dataclass(frozen=True, kw_only=True)
class SumTask(TaskBase):
    """A task whose sites send sums over all of their records, once in a round."""

    # Sums are added up unweighted: rules that weigh updates are refused.
    added: ClassVar[bool] = True

    # Sums are not divided.
    batch = 1

    @property
    def identity(self) -> str | None:
        """The choices of the task."""
        return identity_of(self)

    def advise(self, federation: Federation) -> list[str]:
        """Advice about the records: constant columns, copies, sites whose times differ."""
        return advise(require_rows(federation))

    def require_all_sites(self, privacy: Privacy | Open) -> None:
        """Refuse to draw sites: a sum is one of all of them."""
        allowed = f"1: {self.kind} sums the counts of all sites"
        require(privacy.participation == 1, "participation", privacy.participation, allowed)

    def present_sites(self, mean: Array, sites: Sequence[str]) -> tuple[str, ...]:
        """Return the sites in a mean of indicators (sites,); none where nothing was sent.

        Raises:
            InvalidValue: It is no plain mean, so that nothing can be added up.
        """
        there = np.abs(mean) > SLACK
        many = int(there.sum())
        if many and not np.allclose(mean[there], 1 / many, rtol=0, atol=SLACK):
            raise self.not_a_mean()
        return tuple(name for name, here in zip(sites, there.tolist(), strict=True) if here)

    def not_a_mean(self) -> InvalidValue:
        """Return the error for indicators of an aggregate other than a mean."""
        return InvalidValue(
            f"{self.kind} adds up what the sites send, which needs a plain mean: remove [aggregation] and "
            "[server]"
        )


def site_indicators(names: Sequence[str], sites: Sequence[str]) -> Array:
    """Return the indicators of these sites among all (names, sites); an unknown name counts as the first."""
    found = np.zeros((len(names), len(sites)))
    found[np.arange(len(names)), [sites.index(name) if name in sites else 0 for name in names]] = 1.0
    return found


class ExitCounts:
    """Exits by the cell they fall into (`tacit.privacy.mechanisms.base.Contributions`).

    Args:
        table: The records of one site.
        ends: The ends of the intervals.
        states: Number of states in which a record can leave.
        one: Weight of one record.
        groups: The groups by which they are counted, if there are any.

    Guarantee:
        Each record adds `one` to one cell of exits, and to one of entries if it comes late.
    """

    def __init__(
        self, table: Table, ends: Array, states: int, one: float, groups: Groups | None = None
    ) -> None:
        self._table, self._ends, self._states, self._one = table, ends, states, one
        self._groups = groups

    def lengths(self, norm: Norm) -> Array:
        """Return the sensitivity of the counts to each record (1, records)."""
        entry = self._table.targets.get("entry", np.zeros(len(self._table)))
        weight = self._table.targets.get("weight", np.ones(len(self._table)))
        return (self._one * weight * np.where(entry > 0, sensitivity(2, norm), sensitivity(1, norm)))[None]

    def total(self, factors: Array | None) -> Array:
        """Return the counts (1, cells)."""
        targets = dict(self._table.targets)
        if factors is not None:
            targets["weight"] = targets.get("weight", 1.0) * factors[0]
        table = replace(self._table, targets=targets)
        return self._one * exit_cells(table, self._ends, self._states, self._groups)[None]


def sensitivity(moved: int, norm: Norm) -> float:
    """Return the norm of a change of `moved` cells by one."""
    return math.sqrt(moved) if norm == "l2" else float(moved)


def coarsen(table: LifeTable) -> LifeTable:
    """Merge intervals until the counts of all sites exceed their noise."""
    counts, times, states = table.cells[0], len(table.grid), 1 + table.causes
    left, groups = states * times + 1, len(counts)
    records = float(counts[:, :left].sum())
    joined = 1
    while joined < times and records < _required_records(table, states, joined):
        joined += 1
    if joined == 1:
        return table
    starts = np.arange(0, times, joined)
    exits = np.add.reduceat(counts[:, : left - 1].reshape(groups, times, states), starts, axis=1)
    parts = [exits.reshape(groups, -1), counts[:, left - 1 : left]]
    if table.late:
        parts += [np.add.reduceat(counts[:, left:-1], starts, axis=1), counts[:, -1:]]
    told = f"{table.provenance}; every {joined} intervals are merged, because of the noise"
    return replace(
        table,
        grid=table.grid[np.minimum(starts + joined, times) - 1],
        cells=np.concatenate(parts, axis=1)[None],
        # Cells beyond the grid were not joined, nor all of the last interval: they have less noise.
        variance=joined * table.variance,
        noise=None,
        provenance=told,
    )


def _required_records(table: LifeTable, states: int, joined: int) -> float:
    """Return the number of records that fills each cell of joined intervals clearly."""
    cells_left = states * math.ceil(len(table.grid) / joined) + 1
    return CLEAR * len(table.groups) * cells_left * math.sqrt(joined * table.variance)
