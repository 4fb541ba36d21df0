"""Vertical mechanisms: columns of the same records, noised at each party, or as a Gram matrix at a server."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from tacit.errors import require_positive
from tacit.privacy.accounting.release import Release, clipped_release
from tacit.privacy.mechanisms.base import Array, NoPrivacy, add_noise, clip_factors
from tacit.privacy.mechanisms.secure_gram import SecureGram, matrix_order
from tacit.privacy.policy import LONGEST as LONGEST
from tacit.privacy.policy import require_bound
from tacit.runtime.keys import Key

# Holder of columns that are not known yet.
EVERYBODY = "every party"
# Of one histogram an exchange moves two counts by one.
EXCHANGED = math.sqrt(2)
# Relative slack for the rounding of a length: a record this close to the bound is shortened by as much.
SLACK = 1e-9
# Sums of doubles are rounded, and another record rounds them otherwise: this much more noise, as a share of
# it, covers the roundings of products over up to `MOST_ADDED` records; see `ColumnsTogether.at_server`.
ROUNDED, MOST_ADDED = 2.0**-20, 2**23


@dataclass(frozen=True, kw_only=True)
class ColumnMechanism(NoPrivacy):
    """Base of the vertical mechanisms.

    Args:
        multiplier: Total noise, in units of half the sensitivity.
        radii: Clip radius of a record in each protected column.
        holders: Party of each column.
        rehearsal: Whether the noise repeats.
    """

    multiplier: float
    radii: Mapping[str, float]
    holders: Mapping[str, str]
    rehearsal: bool = False

    def __post_init__(self) -> None:
        require_positive("multiplier", self.multiplier)
        for name, radius in self.radii.items():
            require_radius(f"radius of {name}", radius)

    def with_task(self, task: object) -> Self:
        """Return this mechanism with the bought radii."""
        return _with_task(self, task)


@dataclass(frozen=True, kw_only=True)
class LocalColumns(ColumnMechanism):
    """Local release of each column by its party: every record clipped to a radius, then noised.

    Args:
        widths: Number of coordinates of a record in each column, protected or not.
    """

    widths: Mapping[str, int]

    @cached_property
    def scales(self) -> dict[str, float]:
        """Noise deviation of each column; all of them together cost as much as one."""
        widths = {name: self.widths[name] for name in self.radii}
        return allocate_noise(self.radii, widths, self.multiplier)

    def noisy_rows(self, rows: Array, column: str, key: Key) -> Array:
        """Clip the records (records, numbers) of a column and add noise; unprotected columns pass unchanged.

        Guarantee:
            No record is longer than the radius before noise, its roundings included, so that an exchange
            moves its own row by at most twice that. All other rows keep their bits: rows are a function of
            their own record, of its place and of the number of records, which an exchange leaves as they are
            (`tacit.functional.curves.smoothing`). Nothing is added up.
        """
        if column not in self.radii:
            return rows
        short = clip_to_radius(rows, self.radii[column], unit=self.radii[column])
        return add_noise(short, "gaussian", self.scales[column], key, self.rehearsal)

    def release(self, number: int, names: Collection[str]) -> tuple[Release, ...]:
        """Return one release for each protected column of these parties, all about the same records."""
        return tuple(
            Release(
                scale=self.scales[column],
                sensitivity=2 * self.radii[column],
                bound=self.radii[column],
                relation="replace",
                subject="records",
                party=party,
                purpose=f"column {column}",
                rehearsal=self.rehearsal,
            )
            for column, party in self.holders.items()
            if party in {*names, EVERYBODY}
        )


@dataclass(frozen=True, kw_only=True)
class GramMatrix(ColumnMechanism):
    """A trusted server multiplies the columns of all parties, and adds noise to the products.

    With W = [1, rows of each column / its radius], every record is at most as long as the square root of the
    number of blocks, 1 included, and W'W moves by at most sqrt(2) times that number if one is exchanged.
    """

    @property
    def sensitivity(self) -> float:
        """Sensitivity of W'W in Frobenius norm if one record is replaced."""
        return math.sqrt(2) * (1 + len(self.radii))

    @property
    def sigma(self) -> float:
        """Noise deviation on the diagonal; entries beside it occur twice and have less."""
        return self.multiplier * self.sensitivity / 2

    def noisy_rows(self, rows: Array, column: str, key: Key) -> Array:
        """The records of a column, no longer than 1, as they leave its party for the server."""
        return clip_to_radius(rows, self.radii[column])

    def at_server(self, combined: Array, key: Key) -> Array:
        """The products (the upper triangle of W'W, row by row) with noise; their number is public.

        Guarantee:
            The noise is that of a symmetric matrix: sigma on the diagonal, sigma / sqrt(2) beside it, so that
            its density falls with the Frobenius norm, whatever the direction. Products are rounded: those of
            n records whose rows are at most `sqrt(blocks)` long are off by at most `260 * 2^-53 * n * blocks`
            in the Frobenius norm (`blocks.products`), twice that for two data sets, which is
            below `ROUNDED` times the sensitivity for n up to `MOST_ADDED`. Noise of `1 + ROUNDED` times what
            is charged covers it.
        """
        values = combined.copy()
        rows, columns = np.triu_indices(matrix_order(values))
        diagonal = (rows == columns) & (rows > 0)
        beside = rows != columns
        for where, scale, place in (
            (diagonal, self.sigma, "diagonal"),
            (beside, self.sigma / math.sqrt(2), "beside"),
        ):
            more = scale * (1 + ROUNDED)
            values[where] = add_noise(values[where], "gaussian", more, key / place, self.rehearsal)
        return values

    def release(self, number: int, names: Collection[str]) -> tuple[Release, ...]:
        """Return one release about the records of all parties."""
        return (
            Release(
                scale=self.sigma,
                sensitivity=self.sensitivity,
                relation="replace",
                subject="records",
                view="sites",
                party="server",
                purpose="products of all columns",
                rehearsal=self.rehearsal,
            ),
        )


@dataclass(frozen=True, kw_only=True)
class ClippedSecureGram(SecureGram):
    """Secure Gram matrix with clipped records: each party adds a noise share; the server sees the products.

    Args:
        radii: Clip radius of a record in each column.
    """

    radii: Mapping[str, float]

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, radius in self.radii.items():
            require_radius(f"radius of {name}", radius)

    def noisy_rows(self, rows: Array, column: str, key: Key) -> Array:
        """The records of a column, no longer than 1; they never leave their party as they are."""
        return clip_to_radius(rows, self.radii[column])

    def with_task(self, task: object) -> Self:
        """Return this mechanism with the bought radii."""
        return _with_task(self, task)


@dataclass(frozen=True, kw_only=True)
class NoisyHistograms(NoPrivacy):
    """Noisy histograms of columns, one each, from which clip radii are bought.

    Args:
        multiplier: Noise in units of half the sensitivity.
        holders: Party of each column.
        purpose: Purpose in words.
        rehearsal: Whether the noise repeats.
    """

    multiplier: float
    holders: Mapping[str, str]
    purpose: str
    rehearsal: bool = False

    def noisy_sum(self, rows: Array, key: Key) -> Array:
        """The counts of rows that each hold a single 1, with noise.

        Guarantee:
            Rows are made non-negative and no longer than 1, so that an exchange moves the sum by at most
            sqrt(2). Counts are whole numbers: they are added up without rounding.
        """
        positive = np.maximum(rows, 0.0)
        total = clip_to_bound(positive, 1.0).sum(axis=0)
        return add_noise(total, "gaussian", self.deviation(1), key, self.rehearsal)

    def deviation(self, sites: int) -> float:
        """Return the deviation of the noise in each count, divided by the number of parties."""
        return self.multiplier * EXCHANGED / 2 / sites

    def release(self, number: int, names: Collection[str]) -> tuple[Release, ...]:
        """One release for each column of these parties."""
        return tuple(
            clipped_release(
                self.multiplier,
                clip=EXCHANGED / 2,
                relation="replace",
                subject="records",
                party=party,
                purpose=self.purpose,
                rehearsal=self.rehearsal,
            )
            for party in self.holders.values()
            if party in {*names, EVERYBODY}
        )


def allocate_noise(
    radii: Mapping[str, float], widths: Mapping[str, int], multiplier: float
) -> dict[str, float]:
    """The deviation of the noise of each column that hurts least, at the price of one column of `multiplier`.

    The noise in all numbers together, the sum of widths times variances, is least where the variance is in
    proportion to the radius over the root of the width.

    Guarantee:
        The sum over columns of (radius / deviation)^2 is 1 / multiplier^2.
    """
    costs = {name: radius * math.sqrt(widths[name]) for name, radius in radii.items()}
    total = sum(costs.values())
    return {
        name: multiplier * math.sqrt(total * radius / math.sqrt(widths[name]))
        for name, radius in radii.items()
    }


def clip_to_bound(rows: Array, bound: float) -> Array:
    """Rows no longer than the bound; a broken one becomes zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        factors = clip_factors(np.linalg.norm(rows, axis=1), bound)
        return np.where(factors[:, None] == 0, 0.0, rows) * factors[:, None]


def require_radius(field: str, radius: object) -> None:
    """Refuse an invalid radius, or one whose square leaves double precision."""
    require_bound(field, radius)


def clip_to_radius(rows: Array, radius: float, unit: float = 1.0) -> Array:
    """Rows no longer than a radius, in units of which it is `unit`; a broken one becomes zero.

    Guarantee:
        No row is longer than `unit`, roundings of lengths and products included; one whose length is that,
        or less by `SLACK` of it, is shortened by that. A row depends on nothing but itself.
    """
    # A division may round up, and the unit is the bound.
    own = rows if unit == radius else np.asarray(rows / radius * unit)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.linalg.norm(own, axis=1)
        factors = clip_factors(lengths, unit)
        close = (lengths > unit * (1 - SLACK)) & (lengths <= unit)
        factors = np.where(close, 1 - SLACK, factors)[:, None]
        return np.where(factors == 0, 0.0, own) * factors


def _with_task(mechanism: Any, task: object) -> Any:  # noqa: ANN401
    found: Mapping[str, float] | None = getattr(task, "lengths", None)
    return mechanism if found is None else replace(mechanism, radii=dict(found))
