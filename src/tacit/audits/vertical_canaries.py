"""Canaries that are further records in every column: apart, multiplied, counted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.audits.canaries import LONG, Canaries
from tacit.audits.lower_bounds import sides
from tacit.privacy.accounting.release import Release
from tacit.privacy.mechanisms.secure_gram import SecureGram, shares_of, triangle_index
from tacit.privacy.mechanisms.vertical import (
    EXCHANGED,
    ClippedSecureGram,
    GramMatrix,
    LocalColumns,
    NoisyHistograms,
)
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key


@dataclass(frozen=True, kw_only=True)
class CanariedLocalColumns(LocalColumns):
    """Columns as they leave their parties, and canaries that are further records in every column."""

    canaries: Canaries

    def noisy_rows(self, rows: Array, column: str, key: Key) -> Array:
        """The noisy records; those of the canaries are kept."""
        if column not in self.radii:
            return super().noisy_rows(rows, column, key)
        price = next(part for part in self.release(0, set(self.holders.values())) if _is_of(part, column))
        everywhere = range(len(self.canaries.present))
        own = np.zeros((self.canaries.present.size, rows.shape[1]))
        own[:, 0] = self.canaries.values(price, everywhere).ravel()
        noisy = super().noisy_rows(np.concatenate([rows, own]), column, key)
        self.canaries.observe(price, noisy[len(rows) :, 0], own[:, 0] / LONG, {None: key.path})
        return noisy[: len(rows)]


def _is_of(release: Release, column: str) -> bool:
    return release.purpose == f"column {column}"


@dataclass(frozen=True, kw_only=True)
class CanariedGramMatrix(GramMatrix):
    """Products of all columns, and those of canaries alone, each exchanged for what is furthest from it."""

    canaries: Canaries

    def at_server(self, combined: Array, key: Key) -> Array:
        """The noisy products; those of the canaries are kept."""
        (price,) = self.release(0, ())
        rows = LONG * _directions(len(self.radii))
        pair = _join(
            [
                super(CanariedGramMatrix, self).noisy_rows(rows * self.radii[name], name, key)
                for name in self.radii
            ]
        )
        exact = [_triangle(row) for row in pair]
        noisy = [
            super(CanariedGramMatrix, self).at_server(exact[0 if there else 1], key / "canaries" / number)
            for number, there in enumerate(self.canaries.present.ravel())
        ]
        exact = np.where(self.canaries.present, price.sensitivity, 0.0)
        answers = _along(np.array(noisy), *pair) * price.sensitivity
        self.canaries.observe(price, answers, exact, {None: key.path})
        return super().at_server(combined, key)


@dataclass(frozen=True, kw_only=True)
class CanariedSecureGram(ClippedSecureGram):
    """Products that are taken in secret, and those of small federations of the same parties on one canary.

    The adversary knows the noise of the parties it works with, as many as the price allows for.
    """

    canaries: Canaries

    def at_site(self, update: Array, key: Key) -> Array:
        """The rows and the noise of a party; the canaries with it are multiplied by themselves."""
        (here,), (price,) = self.canaries.places([key]), self.release(0, ())
        columns = self.blocks - 1
        pair = _join([_directions(columns)] * columns)
        small = SecureGram(
            multiplier=self.multiplier, widths=tuple((2,) * len(blocks) for blocks in self.widths), records=1,
            colluders=self.colluders, rehearsal=self.rehearsal,
        )  # fmt: skip
        noisy = [
            _multiply(small, pair[0 if there else 1][1:], key / "canaries" / number)
            for number, there in enumerate(self.canaries.present[here])
        ]
        exact = np.where(self.canaries.present[here], price.sensitivity, 0.0)
        answers = _along(np.array(noisy), *pair) * price.sensitivity
        self.canaries.observe(price, answers, exact, {None: key.path[:-2]}, [here])
        return super().at_site(update, key)


def _multiply(small: SecureGram, row: Array, key: Key) -> Array:
    """The products of one record's columns, as a server would decode them, with the noise that counts."""
    ends = np.cumsum(small.columns)
    counted = shares_of(len(small.widths), small.colluders)
    rows, total = list[Array](), np.zeros(small.entries, dtype=np.uint32)
    for party, (columns, end) in enumerate(zip(small.columns, ends, strict=True)):
        padded = np.zeros(max(small.columns))
        padded[:columns] = row[end - columns : end]
        # A block may be too long as a whole; a number by itself would be cut, which turns a record round.
        blocks = padded[:columns].reshape(-1, 2)
        blocks /= np.abs(blocks).max(axis=1, keepdims=True)
        sent = small.at_site(padded, key / party)
        # Those beyond work with the adversary, who takes their noise away.
        sent[len(padded) :] *= party < counted
        steps, own = small.secure_input(party, sent)
        rows.append(steps[0].astype(np.float64))
        total += own
    whole = np.concatenate(rows)
    party_of = np.repeat(np.arange(len(rows)), small.columns)
    above, beside = np.triu_indices(len(whole), 1)
    across = party_of[above] != party_of[beside]
    above, beside = above[across], beside[across]
    products = (whole[above] * whole[beside]).astype(np.int64)
    total[triangle_index(above + 1, beside + 1, small.order)] += products.astype(np.uint32)
    return small.decode(total)


def _directions(columns: int) -> Array:
    """Two directions (2, 2): with a 1 before, and one of them in each column, two records are far apart."""
    angles = np.pi / 4 + np.array([0.0, np.arccos(-1 / columns)])
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _join(parts: Sequence[Array]) -> tuple[Array, Array]:
    """Two records, of what they have in each column (2, numbers), and a 1 before."""
    first, second = np.concatenate([np.ones((2, 1)), *parts], axis=1)
    return first, second


def _triangle(row: Array) -> Array:
    """The products of a record with itself: the upper triangle, row by row."""
    return np.outer(row, row)[np.triu_indices(len(row))]


def _along(noisy: Array, first: Array, second: Array) -> Array:
    """How far products (canaries, numbers) are from those of the second record to those of the first."""
    apart = _triangle(first) - _triangle(second)
    rows, columns = np.triu_indices(len(first))
    # Beside the diagonal each number stands twice.
    weights = np.where(rows == columns, 1.0, 2.0) * apart
    return (noisy - _triangle(second)) @ weights / float(weights @ apart)


@dataclass(frozen=True, kw_only=True)
class CanariedCounts(NoisyHistograms):
    """Histograms of columns, and those of canaries alone, each of which is counted in one of two places."""

    canaries: Canaries

    def noisy_sum(self, rows: Array, key: Key) -> Array:
        """The noisy counts; those of the canaries are kept."""
        price = self.release(0, set(self.holders.values()))[0]
        marks = np.eye(2) * LONG
        answers: list[float] = []
        for number, there in enumerate(self.canaries.present.ravel()):
            counts = super().noisy_sum(marks[[0 if there else 1]], key / "canaries" / number)
            answers.append(float(counts[0] - counts[1]) / EXCHANGED)
        there, gone = sides(price)
        exact = np.where(self.canaries.present, there, gone)
        self.canaries.observe(price, np.array(answers), exact, {None: key.path})
        return super().noisy_sum(rows, key)
