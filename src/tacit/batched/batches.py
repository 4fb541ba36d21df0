"""Which records take part in which local step.

Poisson draws are independent and secret, because amplification needs that; nothing is truncated, an empty
batch stays empty. Shuffled batches are for work whose price counts on no draw.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.keys import Key
from tacit.sites.site import Cohort

Integers = NDArray[np.int64]
Marks = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Batch:
    """The records of one step, as positions in the store; all (sites, units, members).

    Args:
        rows: Positions; where nobody is, position 0.
        present: Where somebody is.
    """

    rows: Integers
    present: Marks

    @property
    def counts(self) -> NDArray[np.float64]:
        """How many units each site has in this step; at least 1, so that means are defined."""
        return np.maximum(self.present.any(axis=2).sum(axis=1), 1).astype(np.float64)


def poisson(
    cohort: Cohort, steps: int, rate: float, keys: Sequence[Key], *, coupled: bool
) -> Iterator[Batch]:
    """For each step, every record of every site with probability `rate`.

    Args:
        cohort: The sites.
        steps: How many steps.
        rate: The probability.
        keys: One for each site.
        coupled: Whether the records drawn at a site are the members of one unit, instead of a unit each.
    """
    draws = [
        (key / "batches").secret().uniform((steps, int(size))) < rate
        for key, size in zip(keys, cohort.sizes, strict=True)
    ]
    sites = np.repeat(np.arange(len(cohort)), cohort.sizes)
    firsts = np.repeat(cohort.starts - np.cumsum(cohort.sizes) + cohort.sizes, cohort.sizes)
    positions = np.arange(len(sites)) + firsts
    for drawn in np.concatenate(draws, axis=1):
        found = np.flatnonzero(drawn)
        yield _padded(sites[found], positions[found], len(cohort), coupled=coupled)


def shuffled(
    cohort: Cohort, epochs: int, size: int, keys: Sequence[Key], *, coupled: bool
) -> Iterator[Batch]:
    """Every record once in each epoch, in batches of `size`; the last of an epoch may be smaller.

    A site with fewer records has fewer steps: a batch holds the sites that still work, which come first as
    long as the cohort has its larger sites first.
    """
    dealt = [
        _dealt(int(start), int(records), epochs, size, (key / "batches").generator())
        for start, records, key in zip(cohort.starts, cohort.sizes, keys, strict=True)
    ]
    for step in range(max(len(site) for site in dealt)):
        working = [site[step] for site in dealt if step < len(site)]
        rows = np.stack(working)
        present = rows >= 0
        rows = np.where(present, rows, 0)
        axis = 1 if coupled else 2
        yield Batch(np.expand_dims(rows, axis), np.expand_dims(present, axis))


def grouped(cohort: Cohort, steps: int, rate: float, groups: int, keys: Sequence[Key]) -> Iterator[Batch]:
    """For each step, every risk group of every site with probability `rate`.

    A record's group is drawn without looking at the data, independently of all other records, so that one
    record more or less changes one group.
    """
    labels = [
        np.floor((key / "groups").secret().uniform((int(size),)) * groups).astype(np.int64)
        for key, size in zip(keys, cohort.sizes, strict=True)
    ]
    draws = [(key / "batches").secret().uniform((steps, groups)) < rate for key in keys]
    members = [
        [np.flatnonzero(site == group) + int(start) for group in range(groups)]
        for site, start in zip(labels, cohort.starts, strict=True)
    ]
    for step in range(steps):
        chosen = [
            [site[group] for group in np.flatnonzero(drawn[step])]
            for site, drawn in zip(members, draws, strict=True)
        ]
        yield _padded_groups(chosen)


def _padded(sites: Integers, positions: Integers, count: int, *, coupled: bool) -> Batch:
    """Positions site after site, each site padded to the longest."""
    sizes = np.bincount(sites, minlength=count)
    columns = np.arange(len(sites)) - (np.cumsum(sizes) - sizes)[sites]
    rows = np.zeros((count, max(int(sizes.max()), 1)), dtype=np.int64)
    rows[sites, columns] = positions
    present = np.arange(rows.shape[1]) < sizes[:, None]
    axis = 1 if coupled else 2
    return Batch(np.expand_dims(rows, axis), np.expand_dims(present, axis))


def _padded_groups(chosen: list[list[Integers]]) -> Batch:
    units = max(1, *(len(site) for site in chosen))
    size = max([1, *(len(group) for site in chosen for group in site)])
    rows = np.zeros((len(chosen), units, size), dtype=np.int64)
    present = np.zeros(rows.shape, dtype=np.bool_)
    for site, groups in enumerate(chosen):
        for unit, group in enumerate(groups):
            rows[site, unit, : len(group)] = group
            present[site, unit, : len(group)] = True
    return Batch(rows, present)


def _dealt(start: int, records: int, epochs: int, size: int, generator: np.random.Generator) -> Integers:
    """Positions (steps, size) of a site; -1 where the last batch of an epoch is short."""
    steps = -(-records // size)
    dealt = np.full((epochs, steps * size), -1, dtype=np.int64)
    for epoch in range(epochs):
        dealt[epoch, :records] = generator.permutation(records) + start
    return dealt.reshape(epochs * steps, size)
