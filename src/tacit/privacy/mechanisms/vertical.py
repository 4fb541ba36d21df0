"""Vertical mechanisms: columns of the same records, noised at each party, or as a Gram matrix at a server.

`solve` finds the noise of a vertical promise. All parties release numbers about the same people, so the
prices of all columns add up, whichever party holds them. The number of records is public, and the relation is
replacement: one record is exchanged for any other, in all of its columns at once.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from tacit.errors import Refused, require_positive
from tacit.privacy.accounting.release import Law, Release, clipped_release
from tacit.privacy.contracts import QuerySpec, TaskSpec
from tacit.privacy.mechanisms.base import Array, Mechanism, NoPrivacy, add_noise, clip_factors
from tacit.privacy.mechanisms.secure_gram import SecureGram, matrix_order
from tacit.privacy.policy import LONGEST as LONGEST
from tacit.privacy.policy import require_bound
from tacit.runtime.keys import Key

if TYPE_CHECKING:
    from tacit.privacy.policy import Privacy

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

    def with_task(self, task: TaskSpec) -> Self:
        """Return this mechanism with the bought radii."""
        return _with_task(self, task)


@dataclass(frozen=True, kw_only=True)
class ClippedColumns(NoPrivacy):
    """Clipping of columns without noise: no protection, to compare a promise with.

    Args:
        radii: Clip radius of a record in each clipped column.
    """

    radii: Mapping[str, float]

    @classmethod
    def of_task(cls, task: "VerticalTaskSpec", bound: float) -> Self:
        """Return the mechanism that clips the columns that a promise would protect."""
        return cls(radii=dict(task.lengths or dict.fromkeys(task.holders, bound)))

    def with_task(self, task: TaskSpec) -> Self:
        """Return this mechanism with the radii that were asked for."""
        return _with_task(self, task)

    def noisy_rows(self, rows: Array, column: str, key: Key) -> Array:
        """Return clipped records (records, numbers), without noise; other columns pass unchanged."""
        return clip_to_bound(rows, self.radii[column]) if column in self.radii else rows


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

    def with_task(self, task: TaskSpec) -> Self:
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
    """Allocate noise to columns with the least error, at the price of one column of `multiplier`.

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


def _with_task(mechanism: Any, task: TaskSpec) -> Any:  # noqa: ANN401
    return mechanism if task.lengths is None else replace(mechanism, radii=dict(task.lengths))


class VerticalTaskSpec(TaskSpec, Protocol):
    """Public facts about a vertical task that a promise needs.

    Before the columns are known, as in a plan, there are none.
    """

    @property
    def release_moments(self) -> bool:
        """Return True if the products of all columns are released at once, not each column by itself."""
        ...

    @property
    def holdings(self) -> Mapping[str, Sequence[str]]:
        """The columns of each party, protected or not."""
        ...

    @property
    def holders(self) -> Mapping[str, str]:
        """The party that holds each protected column, by its name."""
        ...

    @property
    def records(self) -> int | None:
        """Number of records, once that is known."""
        ...

    @property
    def widths(self) -> Mapping[str, int]:
        """Number of coordinates of a record in each column, protected or not."""
        ...

    @property
    def lengths(self) -> Mapping[str, float] | None:
        """Largest norm of a record in each protected column; None where the clip applies to all."""
        ...


def solve(
    privacy: "Privacy",
    task: VerticalTaskSpec,
    names: Sequence[str],
    rounds: int,
    questions: Sequence[QuerySpec],
) -> Mechanism:
    """The mechanism that keeps a promise for work on columns.

    Raises:
        Refused: The promise cannot be kept for this combination; the message names a way out.
    """
    _require_promise(privacy, task, rounds)
    beside = [
        release
        for question in questions
        for release in solve_query(privacy, question).release(0, set(question.columns.values()))
    ]
    # The price is the same for however many columns: one stands for all that are not known yet.
    holders = task.holders or {"all columns": EVERYBODY}
    widths = task.widths or dict.fromkeys(holders, 1)
    radii = dict(task.lengths or dict.fromkeys(holders, privacy.bound))
    law: Law = "discrete" if privacy.noise == "secure" else "gaussian"
    multiplier = privacy.multiplier(1, 1.0, "replace", beside=beside, law=law)
    rehearsal = privacy.rehearsal
    if privacy.noise == "secure":
        held = [tuple(widths[name] for name in columns) for columns in task.holdings.values()]
        return ClippedSecureGram(
            # Here the unit is the sensitivity, not half of it.
            multiplier=multiplier / 2,
            widths=tuple(held) or ((1,),) * len(names),
            records=task.records or 1,
            colluders=privacy.colluders,
            purpose="products of all columns",
            radii=radii,
            rehearsal=rehearsal,
        )
    if task.release_moments:
        return GramMatrix(multiplier=multiplier, radii=radii, holders=holders, rehearsal=rehearsal)
    return LocalColumns(
        multiplier=multiplier, radii=radii, widths=widths, holders=holders, rehearsal=rehearsal
    )


def solve_query(privacy: "Privacy", question: QuerySpec) -> Mechanism:
    """Return the mechanism of a query about columns."""
    holders = question.columns
    solved = privacy.multiplier(len(holders), 1.0, "replace", share=question.share)
    if privacy.noise_multiplier is not None:
        # The histograms of all columns cost what one of the given noise would.
        solved *= math.sqrt(len(holders))
    return NoisyHistograms(
        multiplier=solved,
        holders=holders,
        purpose=question.kind,
        rehearsal=privacy.rehearsal,
    )


def _require_promise(privacy: "Privacy", task: VerticalTaskSpec, rounds: int) -> None:
    """Refuse promises without a proven price, with a way out."""
    if rounds != 1:
        raise Refused(
            f"rounds = {rounds} is not allowed: {task.kind} releases every column once, and everything else "
            "is free. Use rounds = 1"
        )
    if privacy.unit != "record":
        raise Refused(
            f'unit = "{privacy.unit}" does not go with columns: every party is needed, and every record is '
            'at all parties. Use unit = "record"'
        )
    if privacy.mechanism != "gaussian":
        raise Refused(f'mechanism = "{privacy.mechanism}" is not priced for columns: use "gaussian"')
    if privacy.participation < 1:
        raise Refused(
            f"participation = {privacy.participation:g} does not go with columns: every party is needed. "
            "Use participation = 1"
        )
    if task.release_moments == (privacy.noise == "site"):
        said = "moments" if task.release_moments else "local"
        other = '"server" or "secure"' if task.release_moments else '"site"'
        raise Refused(
            f'release = "{said}" does not go with noise = "{privacy.noise}": use noise = {other}, or leave '
            "the release out"
        )
