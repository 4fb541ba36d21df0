"""Digests of records, by which the same people are recognized in another file.

A digest depends on the values of one record alone: not on the order of records or columns, on the names of
columns, nor on how numbers are written beyond six significant digits. It is as private as the record, so it
stays in memory; what is kept of it is keyed (`tacit.privacy.ledger.data_index`).

A data set has several views, so that people are recognized when some of what is known of them has changed:
whole records, the same rounded to three digits, their targets alone, and single columns. Where many have the
same targets, there are two more, which a scaler leaves as they are: targets with the levels of few-valued
features, and targets of records that follow each other.

Copies, records of one person that were written several times, are sketched once. Few-valued columns make
records of different people equal too. Then there are many more records that differ in one column alone: of
two people who are equal in all other columns, the share that is equal in this one too is that of any two
people, as far as the column is independent of the others. Copies are equal in every column, and few records
are almost equal.
"""

import hashlib
import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from tacit.runtime.arrays import Array
from tacit.runtime.sketches import (
    Digests,
    Sketch,
    choose_columns,
    find_multiplicity,
    find_runs,
    mix,
    sketch,
    sketch_column,
)

if TYPE_CHECKING:
    import pandas as pd

# Numbers are compared by this many significant digits: single precision and `%.6g` keep them.
DIGITS = 6
# And by this many, where they were rounded.
FEWER_DIGITS = 3
# Powers of ten from 10^-LARGEST on: to look one up is faster than to compute it.
LARGEST = 340
with np.errstate(over="ignore", under="ignore"):
    POWERS = 10.0 ** np.arange(-LARGEST, LARGEST + 1)
# Records per block, so that a block stays in the processor's cache.
BLOCK = 2**14
MISSING = np.uint64(0x9E3779B97F4A7C15)
# Elements in the sketch of a part of the columns, and of a small part of at most this many columns.
PART_SKETCH, COLUMN_SKETCH, MOST_COLUMNS = 2**14, 2**10, 64
# Values of a column that show its precision, and if it has at most this many levels.
LOOKED_AT, MOST_LEVELS = 2**14, 32
# Targets are compared over this many records in a row, where those of one are not unique.
IN_A_ROW = (2, 8)
# Records above this share of sortedness by time have similar runs of targets for any people.
SORTED = 0.9
# Pairs of equal records are copies if there are this many times those that any column explains by chance:
# columns depend on each other.
BEYOND_CHANCE = 5.0
# Values of a column that show how often two of them are equal.
SAMPLED = 2**14
# Of more columns, those with the most equal values explain the most by chance.
COMPARED = 64


@dataclass(frozen=True, eq=False)
class People:
    """The identity of a data set: the files that it came from, and sketches of its records.

    Args:
        files: The files; none of what came as arrays.
        views: A sketch of all records for each view of them.
        whole: A digest of what has no records, such as worlds.
    """

    files: tuple[Path, ...]
    views: tuple[Sketch, ...]
    whole: bytes


@dataclass(frozen=True, eq=False)
class _Column:
    """The digests of one column, mixed, with six digits and with three, and how many values it could have."""

    fine: Digests
    coarse: Digests
    fine_cells: float = math.inf
    coarse_cells: float = math.inf
    words: bool = False


class _Sums:
    """Digests of records, as sums over columns: their order does not matter."""

    def __init__(self, count: int) -> None:
        self.fine, self.coarse = np.zeros(count, dtype=np.uint64), np.zeros(count, dtype=np.uint64)
        self.fine_cells, self.coarse_cells, self.columns = 1.0, 1.0, 0

    def add(self, column: _Column) -> None:
        """Add a column."""
        self.fine += column.fine
        self.coarse += column.coarse
        self.fine_cells *= column.fine_cells
        self.coarse_cells *= column.coarse_cells
        self.columns += 1


def sketch_table(features: Array, targets: Iterable[Array]) -> tuple[Sketch, ...]:
    """Sketch the records of a table: all of them, rounded, by their targets alone, and by single columns."""
    whole, outcome, single = _Sums(len(features)), _Sums(len(features)), list[Sketch | None]()
    known, columns = tuple(targets), list[Digests]()
    for number, values in enumerate((features, *known)):
        for column in _split_columns(values):
            digested = _digest_column(column)
            for sums in (whole, outcome) if number else (whole,):
                sums.add(digested)
            columns.append(digested.fine)
            single.append(sketch_column(digested.fine, digested.fine_cells, COLUMN_SKETCH))
    copies = find_copies(columns)
    if copies is not None:
        once = ~copies.surplus
        return sketch_table(features[once], [values[once] for values in known])
    found = _sketch_sums(whole)
    if 0 < outcome.columns < whole.columns:
        own = sketch(mix(outcome.fine), "part", outcome.fine_cells, PART_SKETCH)
        found += [own, sketch(mix(outcome.coarse), "part", outcome.coarse_cells, PART_SKETCH)]
        if dict(own.shape.repeats).get(1, 0) < len(features) / 2:
            found += _sketch_alike(features, outcome, known[0])
    return (*found, *choose_columns(single, MOST_COLUMNS))


def sketch_frame(frame: "pd.DataFrame") -> tuple[Sketch, ...]:
    """Sketch the rows of a DataFrame: all of them, rounded, and by single columns of numbers."""
    whole, single, columns = _Sums(len(frame)), list[Sketch | None](), list[Digests]()
    for column in _digest_columns(frame):
        whole.add(column)
        columns.append(column.fine)
        # Words may be running numbers of another spelling.
        if not column.words:
            single.append(sketch_column(column.fine, column.fine_cells, COLUMN_SKETCH))
    copies = find_copies(columns)
    if copies is not None:
        return sketch_frame(frame.loc[~copies.surplus])
    return (*_sketch_sums(whole), *choose_columns(single, MOST_COLUMNS))


def _sketch_alike(features: Array, outcome: _Sums, first: Array) -> list[Sketch]:
    """Sketch records whose targets look alike: by the levels of features as well, and by who follows whom."""
    total, cells, place = outcome.fine.copy(), outcome.fine_cells, 0
    for column in _split_columns(features):
        levels = np.unique(column[:LOOKED_AT])
        if 1 < len(levels) <= MOST_LEVELS:
            place += 1
            codes = np.searchsorted(levels, column) + place * (MOST_LEVELS + 1)
            total, cells = total + mix(codes.astype(np.uint64)), cells * len(levels)
    found = [sketch(mix(total), "part", cells, PART_SKETCH)] if place else []
    rising = np.mean(np.diff(first.reshape(len(first), -1)[:, 0]) >= 0) if len(first) > 1 else 1.0
    if 1 - SORTED < rising < SORTED:
        found += [
            sketch(_digest_rows_in_turn(outcome.fine, many), "order", size=PART_SKETCH) for many in IN_A_ROW
        ]
    return found


def _digest_rows_in_turn(digests: Digests, many: int) -> Digests:
    """Digest each record with those that follow it, `many` in all."""
    count = max(len(digests) - many + 1, 0)
    total = np.zeros(count, dtype=np.uint64)
    for turn in range(many):
        # Mixed after each, so that it matters which is the first.
        total = mix(total + digests[turn : turn + count])
    return total


def _sketch_sums(sums: _Sums) -> list[Sketch]:
    return [
        sketch(mix(sums.fine), "records", sums.fine_cells),
        sketch(mix(sums.coarse), "part", sums.coarse_cells, PART_SKETCH),
    ]


def mark_copied(features: Array, targets: Iterable[Array]) -> NDArray[np.bool_]:
    """Mark each record of a table that is equal to another one, in six digits or in three (records,).

    None where chance explains that records are equal.
    """
    columns = [_digest_column(column) for values in (features, *targets) for column in _split_columns(values)]
    copied = np.zeros(len(features), dtype=np.bool_)
    for copies in (find_copies([one.fine for one in columns]), find_copies([one.coarse for one in columns])):
        if copies is not None:
            copied |= copies.copied
    return copied


def digest_table(features: Array, targets: Iterable[Array]) -> Digests:
    """Digest each record of a table (records,)."""
    total = np.zeros(len(features), dtype=np.uint64)
    for values in (features, *targets):
        for column in _split_columns(values):
            total += mix(digest_numbers(column))
    return mix(total)


def digest_frame(frame: "pd.DataFrame") -> Digests:
    """Digest each row of a DataFrame (rows,); words that read as numbers count as numbers."""
    total = np.zeros(len(frame), dtype=np.uint64)
    for column in _digest_columns(frame):
        total += column.fine
    return mix(total)


def digest_observations(values: Array, owners: NDArray[np.int64], count: int) -> Digests:
    """Digest the observations of each of `count` owners (owners,)."""
    total = np.zeros(count, dtype=np.uint64)
    np.add.at(total, owners, mix(digest_numbers(values)))
    return mix(total)


def digest_numbers(values: Array) -> Digests:
    """Digest each number by its sign, its first digits and its power of ten (numbers,)."""
    found = np.empty(len(values), dtype=np.uint64)
    for block in _split_blocks(len(values)):
        found[block] = _digest_block(values[block])[0]
    return found


def count_cells(values: Array, digits: int) -> float:
    """Estimate how many different values a column could have: its range over its smallest gap.

    Numbers that were given out in turn, and grids, repeat in data about other people.
    """
    with np.errstate(all="ignore"):
        some = np.unique(values[:LOOKED_AT])
        some = some[np.isfinite(some)]
        gaps = np.diff(some)
        least = np.abs(some).max(initial=0.0) * 10.0**-digits
        gaps = gaps[gaps > least]
        return float((some[-1] - some[0]) / gaps.min() + 1) if len(gaps) else 1.0


def _split_columns(values: Array) -> Iterable[Array]:
    return values.reshape(len(values), -1).T if len(values) else ()


def _split_blocks(count: int) -> Iterable[slice]:
    return (slice(start, start + BLOCK) for start in range(0, count, BLOCK))


def _digest_column(values: Array) -> _Column:
    fine, coarse = np.empty(len(values), dtype=np.uint64), np.empty(len(values), dtype=np.uint64)
    for block in _split_blocks(len(values)):
        both = _digest_block(values[block])
        fine[block], coarse[block] = mix(both[0]), mix(both[1])
    return _Column(fine, coarse, count_cells(values, DIGITS), count_cells(values, FEWER_DIGITS))


def _digest_columns(frame: "pd.DataFrame") -> Generator[_Column]:
    import pandas as pd

    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column):
            yield _digest_column(np.asarray(column, dtype=np.float64))
        else:
            yield _digest_words(column)


def _digest_words(column: "pd.Series[str]") -> _Column:
    """Digest words, each different one once; blanks around them do not count, nor does the empty word."""
    import pandas as pd

    codes, known = pd.factorize(column)
    # Missing values have the code -1, the last of these.
    words = [str(word).strip() for word in cast("Iterable[object]", known)]
    values = np.append(np.asarray(pd.to_numeric(pd.Series(words, dtype=str), errors="coerce")), np.nan)
    numbers = _digest_column(values.astype(np.float64))
    spelt = np.flatnonzero(np.isnan(values[:-1]))
    digests = mix(np.array([_word(words[place]) for place in spelt.tolist()], dtype=np.uint64))
    numbers.fine[spelt], numbers.coarse[spelt] = digests, digests
    if len(spelt):
        return _Column(numbers.fine[codes], numbers.coarse[codes], words=True)
    return replace(numbers, fine=numbers.fine[codes], coarse=numbers.coarse[codes])


def _word(word: str) -> int:
    if not word:
        return int(MISSING)
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")


def _digest_block(values: Array) -> tuple[Digests, Digests]:
    """Digest numbers with six digits, and with three."""
    with np.errstate(all="ignore"):
        known = np.isfinite(values) & (values != 0)
        power = np.floor(np.log10(np.abs(np.where(known, values, 1.0)))).astype(np.int64)
        digits = np.rint(values * POWERS[DIGITS - 1 - power + LARGEST])
        # Digits that round up to the next power of ten become that power.
        over = np.abs(digits) >= 10.0**DIGITS
        power += over
        digits[over] /= 10
        known &= np.isfinite(digits)
        fine = np.where(known, digits * 2048 + power, 0.0).astype(np.int64).view(np.uint64)
        digits = np.rint(digits / 10.0 ** (DIGITS - FEWER_DIGITS))
        over = np.abs(digits) >= 10.0**FEWER_DIGITS
        power += over
        digits[over] /= 10
        coarse = np.where(known, digits * 2048 + power, 0.0).astype(np.int64).view(np.uint64)
    missing = ~np.isfinite(values)
    fine[missing], coarse[missing] = MISSING, MISSING
    return fine, coarse


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
    varied = [one for one in equal if one[0] < 1][:COMPARED]
    for share, place in varied:
        almost = _count_pairs(find_runs(np.sort(total - columns[place]))[1]) - pairs
        if pairs < BEYOND_CHANCE * almost * share / (1 - share):
            return False
    return bool(varied) and pairs > 0


def _share_equal(column: Digests) -> float:
    """Estimate the probability that two records have the same value of a column; 1 for a constant."""
    some = np.sort(column[:: -(-len(column) // SAMPLED)])
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
