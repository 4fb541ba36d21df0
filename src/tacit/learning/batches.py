"""Batches of records for local steps: Poisson sampling of records or risk groups, and shuffled epochs.

Poisson draws are independent and secret, because amplification needs that; nothing is truncated, an empty
batch stays empty. Shuffled batches are for work whose price counts on no draw.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.runtime.keys import Key, Secret
from tacit.sites.federation import Cohort

Integers = NDArray[np.int64]
Marks = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Batch:
    """Batch of one step, as positions in the store; all (sites, units, members).

    Args:
        rows: Positions; position 0 for padding.
        present: Mask of the members, False for padding.
        chance: Source of random draws of a step, beside its records.
        whole: The batch that this is a piece of, and which of its units.
        grouped: Whether units are risk groups; else they are single records, or one unit is all of them.
    """

    rows: Integers
    present: Marks
    chance: "SiteStreams | None" = None
    whole: "tuple[Batch, slice] | None" = None
    grouped: bool = False

    def units(self, chosen: slice) -> "Batch":
        """Return the batch with these units alone."""
        return replace(self, rows=self.rows[:, chosen], present=self.present[:, chosen], whole=(self, chosen))

    @cached_property
    def uniforms(self) -> NDArray[np.float64]:
        """Draw a number between 0 and 1 for every member, independent of the other sites of a cohort.

        The draws are secret: a draw for one record must not disclose that another one, before it, is missing.
        """
        if self.whole is not None:
            return self.whole[0].uniforms[:, self.whole[1]]
        assert self.chance is not None, "a step with sampling needs a key"
        drawn = np.zeros(self.present.shape)
        for site, here, stream in zip(drawn, self.present, self.chance.streams, strict=False):
            site[here] = stream.uniform((int(here.sum()),))
        return drawn

    @property
    def counts(self) -> NDArray[np.float64]:
        """Number of units of each site in this step; at least 1, so that means are defined."""
        return np.maximum(self.present.any(axis=2).sum(axis=1), 1).astype(np.float64)


class SiteStreams:
    """A secret stream of draws for each site; every step of a round draws once, one after the other."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = keys

    @cached_property
    def streams(self) -> list[Secret]:
        """Random streams of the sites, opened upon the first draw."""
        return [(key / "luck").secret() for key in self._keys]


def poisson(
    cohort: Cohort, steps: int, rate: float, keys: Sequence[Key], *, coupled: bool
) -> Iterator[Batch]:
    """Draw the batch of each step by Poisson sampling: every record of every site with probability `rate`.

    Args:
        cohort: The sites.
        steps: Number of steps.
        rate: The probability.
        keys: One for each site.
        coupled: Whether the records drawn at a site are the members of one unit, instead of a unit each.
    """
    rows, present = _draw(cohort, steps, rate, keys)
    widths = np.maximum(present.sum(axis=2).max(axis=1), 1).tolist()
    chance = SiteStreams(keys)
    for number, width in enumerate(widths):
        yield _batch(rows[number, :, :width], present[number, :, :width], chance, coupled=coupled)


def shuffle(cohort: Cohort, epochs: int, size: int, keys: Sequence[Key], *, coupled: bool) -> Iterator[Batch]:
    """Every record once in each epoch, in batches of `size`; the last of an epoch may be smaller.

    A site with fewer records has fewer steps: a batch holds the sites that still work, which come first as
    long as the cohort has its larger sites first.
    """
    chance, counts = SiteStreams(keys), -(-cohort.sizes // size)
    dealt = np.full((len(cohort), epochs * int(counts.max()), size), -1, dtype=np.int64)
    for records in np.unique(cohort.sizes).tolist():
        # Sites of one size are dealt together: a call of numpy costs more than sorting a small site.
        alike = np.flatnonzero(cohort.sizes == records)
        streams = [(keys[site] / "batches").secret() for site in alike.tolist()]
        order = np.argsort(np.stack([stream.uniform((epochs, records)) for stream in streams]), axis=2)
        steps = -(-records // size)
        room = np.full((len(alike), epochs, steps * size), -1, dtype=np.int64)
        room[:, :, :records] = order + cohort.starts[alike, None, None]
        dealt[alike, : epochs * steps] = room.reshape(len(alike), epochs * steps, size)
    present = dealt >= 0
    dealt[~present] = 0
    widths = np.maximum(present.sum(axis=2).max(axis=0), 1).tolist()
    for step, width in enumerate(widths):
        working = epochs * counts > step
        rows, here = dealt[working, step, :width], present[working, step, :width]
        yield _batch(rows, here, chance, coupled=coupled)


def poisson_groups(
    cohort: Cohort, steps: int, rate: float, groups: int, keys: Sequence[Key]
) -> Iterator[Batch]:
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
    chance = SiteStreams(keys)
    for step in range(steps):
        chosen = [
            [site[group] for group in np.flatnonzero(drawn[step])]
            for site, drawn in zip(members, draws, strict=True)
        ]
        yield _padded_groups(chosen, chance)


def _draw(cohort: Cohort, steps: int, rate: float, keys: Sequence[Key]) -> tuple[Integers, Marks]:
    """Return the positions of sampled records, and their mask (steps, sites, the most that a site draws).

    All steps at once: a call of numpy costs more than its work for one step.
    """
    sites = np.repeat(np.arange(len(cohort)), cohort.sizes)
    firsts = np.repeat(cohort.starts - np.cumsum(cohort.sizes) + cohort.sizes, cohort.sizes)
    positions = np.arange(len(sites)) + firsts
    step, found = np.nonzero(_draw_marks(cohort, steps, rate, keys))
    places = step * len(cohort) + sites[found]
    # Number of sampled records of each site and step, and the place of a record among them.
    sizes = np.bincount(places, minlength=steps * len(cohort))
    columns = np.arange(len(found)) - (np.cumsum(sizes) - sizes)[places]
    rows = np.zeros((len(sizes), max(int(sizes.max()), 1)), dtype=np.int64)
    rows[places, columns] = positions[found]
    shape = (steps, len(cohort), rows.shape[1])
    return rows.reshape(shape), (np.arange(rows.shape[1]) < sizes[:, None]).reshape(shape)


def _draw_marks(cohort: Cohort, steps: int, rate: float, keys: Sequence[Key]) -> Marks:
    """Draw the mask of sampled records (steps, records of all sites, one site after the other)."""
    if rate >= 1:
        return np.ones((steps, int(cohort.sizes.sum())), dtype=np.bool_)
    drawn = [
        (key / "batches").secret().uniform((steps, int(size)))
        for key, size in zip(keys, cohort.sizes, strict=True)
    ]
    return np.concatenate(drawn, axis=1) < rate


def _batch(rows: Integers, present: Marks, chance: SiteStreams, *, coupled: bool) -> Batch:
    """Return a batch of records: units of one member each, or one unit of all."""
    if coupled:
        return Batch(rows[:, None], present[:, None], chance)
    return Batch(rows[:, :, None], present[:, :, None], chance)


def _padded_groups(chosen: list[list[Integers]], chance: SiteStreams) -> Batch:
    units = max(1, *(len(site) for site in chosen))
    size = max([1, *(len(group) for site in chosen for group in site)])
    rows = np.zeros((len(chosen), units, size), dtype=np.int64)
    present = np.zeros(rows.shape, dtype=np.bool_)
    for site, groups in enumerate(chosen):
        for unit, group in enumerate(groups):
            rows[site, unit, : len(group)] = group
            present[site, unit, : len(group)] = True
    return Batch(rows, present, chance, grouped=True)
