"""Copies: records of one person that were written several times, told from records that are equal by chance.

Few-valued columns make records of different people equal. Then there are many more records that differ in
one column alone: of two people who are equal in all other columns, the share that is equal in this one too is
that of any two people, as far as the column is independent of the others. Copies are equal in every column,
and few records are almost equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.runtime.sketches import Digests, find_multiplicity, find_runs, mix

# Pairs of equal records are copies if there are this many times those that any column explains by chance:
# columns depend on each other.
BEYOND_CHANCE = 5.0
# Values of a column that show how often two of them are equal.
LOOKED_AT = 2**14
# Of more columns, those with the most equal values explain the most by chance.
MOST_COLUMNS = 64


@dataclass(frozen=True, eq=False)
class Copies:
    """The records of a table that have copies.

    Args:
        copied: True for each record that is equal to another one (records,).
        surplus: True for each of them beyond the first, or beyond as many as chance made equal (records,).
    """

    copied: NDArray[np.bool_]
    surplus: NDArray[np.bool_]


def find_copies(columns: Sequence[Digests]) -> Copies | None:
    """Find records that are equal to others beyond chance.

    Args:
        columns: Digests of the values of each column (columns, records).

    Returns:
        The copies; None if there are none, or if chance explains that records are equal.
    """
    if not columns or not _has_equal(_add_up(columns)):
        return None
    # What values are in which column matters here.
    salts = mix(np.arange(len(columns), dtype=np.uint64))
    salted = [mix(column + salt) for column, salt in zip(columns, salts[:, None], strict=True)]
    total = _add_up(salted)
    order = np.argsort(total, kind="stable")
    starts, counts = find_runs(total[order])
    often = find_multiplicity(counts)
    if not (_exceed_chance(salted, total, counts) or (often > 1 and not _is_design(salted, len(counts)))):
        return None
    kept = -(-counts // often) if often > 1 else np.ones_like(counts)
    turn = np.arange(len(total)) - np.repeat(starts, counts)
    copied, surplus = np.zeros(len(total), dtype=np.bool_), np.zeros(len(total), dtype=np.bool_)
    copied[order] = np.repeat(counts > 1, counts)
    surplus[order] = turn >= np.repeat(kept, counts)
    return Copies(copied, surplus) if surplus.any() else None


def _add_up(columns: Sequence[Digests]) -> Digests:
    total = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        total += column
    return total


def _has_equal(digests: Digests) -> bool:
    ordered = np.sort(digests)
    return bool((ordered[1:] == ordered[:-1]).any())


def _exceed_chance(columns: Sequence[Digests], total: Digests, counts: NDArray[np.int64]) -> bool:
    """Return True if more pairs of records are equal than any column explains by chance.

    Args:
        columns: Digests of the values of each column (columns, records).
        total: Their sum (records,).
        counts: How often each different record occurs.
    """
    pairs = _count_pairs(counts)
    equal = sorted(((_share_equal(column), place) for place, column in enumerate(columns)), reverse=True)
    varied = [one for one in equal if one[0] < 1][:MOST_COLUMNS]
    for share, place in varied:
        almost = _count_pairs(find_runs(np.sort(total - columns[place]))[1]) - pairs
        if pairs < BEYOND_CHANCE * almost * share / (1 - share):
            return False
    return bool(varied) and pairs > 0


def _share_equal(column: Digests) -> float:
    """Estimate the probability that two records have the same value of a column; 1 for a constant."""
    some = np.sort(column[:: -(-len(column) // LOOKED_AT)])
    starts, counts = find_runs(some)
    if len(starts) == 1:
        return 1.0 if (column == column[0]).all() else 1 - 1 / len(some)
    return _count_pairs(counts) / (len(some) * (len(some) - 1) / 2)


def _is_design(columns: Sequence[Digests], different: int) -> bool:
    """Return True if every combination of values occurs, as in a design; a single column is no design."""
    varied = [many for many in (len(np.unique(column)) for column in columns) if many > 1]
    return len(varied) > 1 and float(np.prod(np.array(varied, dtype=float))) <= different


def _count_pairs(counts: NDArray[np.int64]) -> float:
    many = counts.astype(float)
    return float((many * (many - 1)).sum() / 2)
