"""A noisy Gram matrix of columns that different parties hold, by secure products with noise in shares.

Parties hold different columns of the same records, in blocks of bounded length, one for each curve. A server
learns W'W + E alone, where a row of W is 1 and then all parties' columns of a record, and E is noise that
every party adds a part of. Sums are taken in whole numbers modulo 2^32, so rows are rounded to steps of 2^-f
and products come in steps of 4^-f; f is as large as the ring allows.

One record, exchanged for another, moves W'W by at most sqrt(2) R in Frobenius norm, where R is the number of
blocks and the 1: |ww' - vv'|^2 = |w|^4 + |v|^4 - 2 (w'v)^2 <= 2 R^2. Noise that is fair to a symmetric matrix
has standard deviation sigma on the diagonal and sigma / sqrt(2) beside it. That is the same noise in all
numbers of the vector that is added up: the diagonal over sqrt(2), and what is above it, which moves by R.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue, Refused, require, require_count, require_positive
from tacit.privacy.accounting.release import FEWEST_STEPS, ROUNDED, Release
from tacit.privacy.contracts import SiteGroups
from tacit.privacy.mechanisms import noise
from tacit.privacy.mechanisms.base import NoPrivacy
from tacit.privacy.mechanisms.discrete import discrete_gaussian
from tacit.privacy.mechanisms.lattice import DEVIATIONS, HALF
from tacit.privacy.mechanisms.secure_sum import FEWEST, MOST, honest
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key

Steps = NDArray[np.int64]
Ring = NDArray[np.uint32]

# Fineness of a row's steps, as powers of two: fewer would show in the products, more do not fit.
COARSE, FINE = 5, 15


def shares_of(parties: int, colluders: int) -> int:
    """Return the number of noise shares that count among `parties` parties, of which all must stay.

    Raises:
        Refused: There are too few parties, or the colluders could read another's rows.
    """
    if not FEWEST <= parties <= MOST:
        who = "1 party" if parties == 1 else f"{parties} parties"
        raise Refused(
            f"{who} cannot use secure products: from {FEWEST} to {MOST} can. Each pair needs a third party "
            "as dealer of random numbers"
        )
    require_count("colluders", colluders)
    if colluders > 1:
        raise Refused(
            f"colluders = {colluders} is not allowed with secure products: the dealer of the random numbers "
            "of two parties, colluding with one, could read the rows of the other. Use colluders = 1: the "
            "server and any one party"
        )
    return honest(parties, colluders, parties)


def triangle_index(row: Steps | int, column: Steps | int, order: int) -> Steps:
    """Return the index of an entry of a symmetric matrix in the vector that is summed.

    The vector is the upper triangle row by row, with the diagonal and without the first entry of all.

    Args:
        row: Counted from 0.
        column: At least the row.
        order: Number of rows of the matrix.
    """
    rows, columns = np.asarray(row, dtype=np.int64), np.asarray(column, dtype=np.int64)
    return rows * (2 * order - rows + 1) // 2 + columns - rows - 1


def matrix_order(entries: Array) -> int:
    """Return the number of rows of a matrix from its upper triangle, row by row."""
    order = (math.isqrt(8 * entries.size + 1) - 1) // 2
    fits = entries.ndim == 1 and order * (order + 1) // 2 == entries.size
    require(fits, "entries", f"shape {entries.shape}", "the upper triangle of a matrix, in a row")
    return order


def from_upper_triangle(entries: Array) -> Array:
    """Return the symmetric matrix (order, order) with this upper triangle, row by row."""
    order = matrix_order(entries)
    matrix = np.zeros((order, order))
    matrix[np.triu_indices(order)] = entries
    return matrix + np.triu(matrix, 1).T


@dataclass(frozen=True, kw_only=True)
class SecureGram(NoPrivacy):
    """Secure Gram matrix: each party rounds its rows and adds its noise share to securely computed products.

    Args:
        multiplier: The noise that counts, in units of what one record exchanged for another moves W'W by:
            sigma is at least `multiplier * sqrt(2) * blocks`, so that 1 / multiplier is the mu of Gaussian
            differential privacy.
        widths: For each party the columns of each of its blocks; public.
        records: Number of records, the same at all parties; public.
        colluders: Number of parties that may work together with the server; more than one is refused.
        purpose: Purpose of the products; by default the number of the round.
        rehearsal: Whether the noise repeats.

    Guarantee:
        Whatever is given, no block of a record is longer than 1 when products are taken. The shares that
        count cost no more than Gaussian noise of `multiplier` times the sensitivity would, rounding included.
    """

    multiplier: float
    widths: tuple[tuple[int, ...], ...]
    records: int
    colluders: int = 1
    purpose: str = ""
    rehearsal: bool = False

    def __post_init__(self) -> None:
        require_positive("multiplier", self.multiplier)
        require_count("records", self.records)
        shares_of(len(self.widths), self.colluders)
        for party, blocks in enumerate(self.widths):
            require(bool(blocks), f"widths[{party}]", blocks, "the columns of at least one block")
            for width in blocks:
                require_count(f"widths[{party}]", width)
        deviation, allowed = self.share, f"more: a share of noise needs {FEWEST_STEPS:g} steps"
        require(deviation >= FEWEST_STEPS, "multiplier", self.multiplier, allowed)

    @property
    def blocks(self) -> int:
        """Number of blocks in a record, with the constant 1: the bound of its squared length."""
        return 1 + sum(len(blocks) for blocks in self.widths)

    @property
    def columns(self) -> tuple[int, ...]:
        """Number of columns of each party."""
        return tuple(sum(blocks) for blocks in self.widths)

    @property
    def order(self) -> int:
        """Number of rows of the matrix: one for the constant, one for each column."""
        return 1 + sum(self.columns)

    @property
    def entries(self) -> int:
        """Number of summed entries: those of `triangle_index`."""
        return self.order * (self.order + 1) // 2 - 1

    @cached_property
    def bits(self) -> int:
        """Rounding bits of a row, in steps of 2^-bits: the finest whose sums stay inside the ring.

        Raises:
            InvalidValue: They would be coarse.
        """
        for bits in range(FINE, COARSE - 1, -1):
            spread = self._share(bits) * math.sqrt(len(self.widths))
            # No product of two columns is beyond the number of records: no coordinate is beyond 1.
            if self.records * 4.0**bits + DEVIATIONS * spread < HALF * (1 - 1e-9):
                return bits
        raise InvalidValue(
            f"products over {self.records:,} records and {self.blocks - 1} curves, with noise of "
            f"{self.multiplier:.4g} times their sensitivity, do not fit into 32 bits in steps of "
            f"1/{2**COARSE}: fewer records, fewer curves or a larger epsilon are needed"
        )

    @property
    def unit(self) -> float:
        """Number of steps of a product that make 1."""
        return 4.0**self.bits

    @property
    def sensitivity(self) -> float:
        """Sensitivity, in steps, of the summed vector to one record."""
        return self._sensitivity(self.bits)

    @property
    def scale(self) -> float:
        """The standard deviation of the noise that counts, in each number that is added up, in steps."""
        return self._scale(self.bits)

    @property
    def share(self) -> float:
        """The standard deviation of each party's share of noise, in steps."""
        return self._share(self.bits)

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise on the diagonal, as decoded; beside it, sqrt(2) times less.

        It is that of all shares, and larger than what is counted on: colluders add theirs as well.
        """
        return math.sqrt(2 * len(self.widths)) * self.share / self.unit

    def deviation(self, sites: int) -> float:
        """Standard deviation of the noise off the diagonal, for any number of parties."""
        return self.sigma / math.sqrt(2)

    def groups(self, names: Sequence[str]) -> SiteGroups:
        """Return one group of all parties: the server sees one row.

        Raises:
            Refused: A party is missing, and its columns with it.
        """
        if len(names) != len(self.widths):
            raise Refused(
                f"{len(names)} parties cannot use secure products that were set up for {len(self.widths)}: "
                "every party must stay"
            )
        return (tuple(names),)

    def release(self, number: int, names: Collection[str]) -> tuple[Release, ...]:
        """One release about the records, by all parties together.

        Guarantee:
            It costs no more than Gaussian noise of `multiplier` times the sensitivity would.
        """
        return (
            Release(
                law="discrete",
                scale=self.scale,
                sensitivity=self.sensitivity,
                relation="replace",
                unit="record",
                subject="records",
                view="server",
                party="every party",
                purpose=self.purpose or f"round {number}",
                rehearsal=self.rehearsal,
            ),
        )

    def at_site(self, update: Array, key: Key) -> Array:
        """Round a party's rows to whole steps and append its noise share; neither leaves it in the clear.

        Args:
            update: Its rows (records, columns) one after the other, then zeros up to the longest party's.
            key: Source of rounding and noise.

        Guarantee:
            Numbers are rounded at random and without bias; NaN and infinities become 0.
        """
        noise.require_rehearsal(key, self.rehearsal)
        values = np.ascontiguousarray(update)
        length = self.records * max(self.columns)
        allowed = f"{length} numbers: {self.records} rows of the {max(self.columns)} columns of the widest"
        require(values.shape == (length,), "update", f"shape {values.shape}", allowed)
        inputs = (values.tobytes(), repr(self).encode())
        steps = np.clip(np.where(np.isfinite(values), values, 0.0), -1.0, 1.0) * 2.0**self.bits
        below = np.floor(steps)
        rounded = below + ((key / "rounding").secret(*inputs).uniform(steps.shape) < steps - below)
        shares = discrete_gaussian(self.share, self.entries, (key / "share").secret(*inputs))
        return np.concatenate([rounded, shares.astype(np.float64)])

    def secure_input(self, party: int, row: Array) -> tuple[Steps, Ring]:
        """Return the input of a party to the secure products, from the result of its `at_site`.

        Args:
            party: Its place among all.
            row: Its rows in steps, then its share of noise.

        Returns:
            Its rows (records, columns), and the vector that it adds up by itself: products of its own columns
            with each other and with the constant, and noise.
        """
        length, columns = self.records * max(self.columns), self.columns[party]
        allowed = f"{length + self.entries} numbers: rows in steps, and noise"
        require(row.shape == (length + self.entries,), "row", f"shape {row.shape}", allowed)
        own = self.records * columns
        blank = not row[own:length].any()
        require(blank, f"row of party {party}", "longer", f"{columns} columns, and zeros behind them")
        rows = self.clip_blocks(party, row[:own].reshape(self.records, columns).astype(np.int64))
        total = row[length:].astype(np.int64)
        self._add_own(total, rows.astype(np.float64), 1 + sum(self.columns[:party]))
        return rows, total.astype(np.uint32)

    def clip_blocks(self, party: int, rows: Steps) -> Steps:
        """The rows of a party with blocks that are too long shortened, to whole steps again.

        Guarantee:
            No block is longer than 2^bits steps, exactly; those that are not stay as they are.
        """
        start, reach = 0, 2**self.bits
        # Squares of the bounded numbers fit into 64 bits.
        bounded = np.clip(rows, -reach, reach)
        for width in self.widths[party]:
            block = bounded[:, start : start + width]
            long = np.flatnonzero((block**2).sum(axis=1) > reach**2)
            exact = block[long] * (reach / np.linalg.norm(block[long], axis=1, keepdims=True))
            nearest = np.rint(exact).astype(np.int64)
            fits = (nearest**2).sum(axis=1, keepdims=True) <= reach**2
            # Toward zero no vector grows, and its squared length is whole: a rounding of doubles is too small
            # to lift it above the bound.
            block[long] = np.where(fits, nearest, np.trunc(exact).astype(np.int64))
            start += width
        return bounded

    def decode(self, total: Ring) -> Array:
        """Decode the sum of all parties' vectors as the upper triangle of W'W + E, row by row, all of it."""
        values = total.view(np.int32) / self.unit
        diagonal = np.arange(1, self.order)
        values[triangle_index(diagonal, diagonal, self.order)] *= math.sqrt(2)
        return np.concatenate([[float(self.records)], values])

    def _add_own(self, total: Steps, rows: Array, first: int) -> None:
        """Products of a party's columns with each other and the constant; `first` is where they begin."""
        columns = np.arange(first, first + rows.shape[1], dtype=np.int64)
        # Sums of whole numbers below 2^53 are exact in doubles, in whatever order.
        total[triangle_index(0, columns, self.order)] += (rows.sum(axis=0) * 2.0**self.bits).astype(np.int64)
        products = rows.T @ rows
        products[np.diag_indices_from(products)] /= math.sqrt(2)
        above, beside = np.triu_indices(len(columns))
        where = triangle_index(columns[above], columns[beside], self.order)
        total[where] += np.rint(products[above, beside]).astype(np.int64)

    def _sensitivity(self, bits: int) -> float:
        # Each entry of the diagonal is rounded once, in either of two neighbors; and divided before, in
        # doubles, by less than 2^-20 of a step too much or too little.
        rounding = math.sqrt(self.order - 1) * (1 + 2.0**-20)
        return (self.blocks * 4.0**bits + rounding) * (1 + 2.0**-50)

    def _scale(self, bits: int) -> float:
        # The variance that rounding takes from a Gaussian is added first, so that the multiplier holds on any
        # lattice.
        return math.hypot(self.multiplier * self._sensitivity(bits), math.sqrt(ROUNDED)) * (1 + 2.0**-40)

    def _share(self, bits: int) -> float:
        # As for sums: `counted` shares of 16 steps or more are as good as one draw (see Lattice.share).
        counted = shares_of(len(self.widths), self.colluders)
        return self._scale(bits) / math.sqrt(counted) * (1 + 2.0**-48)
