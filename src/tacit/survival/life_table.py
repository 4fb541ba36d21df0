"""Life table: exits by interval and state at each site, exact or with noise, for curves and log-rank tests.

Each person leaves a study once: in one interval of time and in one state. One person more or less therefore
moves one cell by one, however fine the grid is, and post-processing of the noisy cells costs nothing more.
With delayed entry there is a second cell, of the interval of entry. Cells know no features and no exact
times, unless the grid is made of those times.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidValue, Refused, choices, hint, require
from tacit.learning.noisy_scores import nearest_counts as nearest_counts
from tacit.runtime.arrays import Array
from tacit.sites.encoding import Encoding
from tacit.sites.federation import RowFederation
from tacit.sites.table import Table
from tacit.survival.signed_table import CellNoise, SignedTable
from tacit.survival.targets import require_outcomes, require_values

Over = Literal["all", "site", "group", "each"]
# Axes of cells that are summed for each, of sites and groups.
SUMMED: Mapping[Over, tuple[int, ...]] = {"all": (0, 1), "site": (1,), "group": (0,), "each": ()}

# Groups of records: a column, or a column with the values that define its groups.
Grouping = str | Mapping[str, Sequence[float]]
# The largest number of groups that a test compares: a column of more values is a measurement.
MOST_GROUPS = 50

# A noisy number is used while it is at least this many standard deviations of its noise.
FIRM = 5.0


@dataclass(frozen=True, eq=False)
class LifeTable:
    """Life table: exits by interval and state, at each site and in each group.

    Args:
        grid: The ends of the intervals, ascending; the first begins at 0 (times,).
        cells: Counts as they left the sites (sites, groups, times * states + 1); state 0 is censored, and the
            last cell holds those who stayed beyond the grid. With delayed entry, counts of entries in each
            interval and beyond follow, without those at risk from 0 on (times + 1,).
        sites: The sites.
        by: The column that groups the records, if one does.
        variance: Of the noise in each cell; 0 for exact counts.
        exact: Whether the grid holds every exit time.
        provenance: Description of how the counts left.
        late: Whether there are delayed entries.
        labels: The groups that the column defines.
        noise: The law of the noise in each cell; by default Gaussian noise of that variance.
    """

    grid: Array
    cells: Array = field(repr=False)
    sites: tuple[str, ...]
    by: str | None
    variance: float
    exact: bool
    provenance: str
    late: bool = False
    labels: tuple[str, ...] = ("0", "1")
    noise: CellNoise | None = None

    @property
    def groups(self) -> tuple[str, ...]:
        """The values of that column; one nameless group without a column."""
        return ("",) if self.by is None else self.labels

    @property
    def causes(self) -> int:
        """Number of kinds of events."""
        return (self.cells.shape[2] - 1 - self.late) // len(self.grid) - 1 - self.late

    def exits(self, over: Over = "all") -> "Exits":
        """Return consistent counts: in total, by site, by group, or by site and group.

        Noisy counts are moved to the nearest ones that are not negative and have the same sum.
        """
        blocks = self.cells.sum(axis=SUMMED[over]).reshape(-1, self.cells.shape[2])
        summed = self.cells[..., 0].size // len(blocks)
        left = (self.causes + 1) * len(self.grid) + 1
        parts = [blocks[:, :left], blocks[:, left:]] if self.late else [blocks]
        if self.variance > 0:
            parts = [np.stack([nearest_counts(block) for block in part]) for part in parts]
        states = parts[0][:, :-1].reshape(len(blocks), len(self.grid), -1)
        return Exits(
            self.grid,
            states[..., 1:],
            states[..., 0],
            parts[0][:, -1],
            self.variance * summed,
            self.exact,
            parts[1] if self.late else None,
        )

    def signed(self, over: Over) -> "SignedTable":
        """Return the counts as they are, in blocks of groups to compare; `each` has one for each site."""
        blocks = self.cells.sum(axis=SUMMED[over])
        if over != "each":
            blocks = blocks.reshape(1, -1, self.cells.shape[2])
        summed = self.cells[..., 0].size // blocks[..., 0].size
        noise = self.noise or CellNoise.of_variance(self.variance)
        return SignedTable(blocks, len(self.grid), self.late, replace(noise, times=noise.times * summed))


@dataclass(frozen=True, eq=False)
class Exits:
    """Counts of one or more groups, none below 0.

    Args:
        times: The ends of the intervals (times,).
        events: (groups, times, causes).
        censored: (groups, times).
        beyond: Number of records beyond the grid (groups,).
        variance: Of the noise in each count; 0 for exact ones.
        exact: Whether the intervals end at the exit times themselves.
        entered: Number of entries in each interval and beyond (groups, times + 1), with delayed entry.
    """

    times: Array
    events: Array
    censored: Array
    beyond: Array
    variance: float
    exact: bool
    entered: Array | None = None

    @property
    def spread(self) -> bool:
        """Return True if exits are spread evenly over their interval; exact counts sit at its end."""
        return self.variance > 0

    @cached_property
    def happened(self) -> Array:
        """Events of any cause (groups, times)."""
        return self.events.sum(axis=2)

    @cached_property
    def at_risk(self) -> Array:
        """Return the number at risk when each interval began, or entering in it (groups, times)."""
        leaving = self.happened + self.censored
        still = np.cumsum(leaving[:, ::-1], axis=1)[:, ::-1] + self.beyond[:, None]
        if self.entered is None:
            return still
        # Noise may let more enter than leave; those who leave were at risk.
        coming = np.cumsum(self.entered[:, ::-1], axis=1)[:, ::-1]
        return np.maximum(still - coming[:, 1:], leaving)

    @property
    def started(self) -> Array:
        """Return the number at risk at time 0 (groups,)."""
        everybody = self.records
        return everybody if self.entered is None else np.maximum(everybody - self.entered.sum(axis=1), 0.0)

    @property
    def records(self) -> Array:
        """Return the number of records (groups,)."""
        return (self.happened + self.censored).sum(axis=1) + self.beyond

    @property
    def whole(self) -> bool:
        """Return True if all counts are whole numbers."""
        counts = (self.happened, self.censored, self.beyond)
        return all(bool((part == np.rint(part)).all()) for part in counts)

    @property
    def _stays(self) -> int:
        """Number of cells of an interval for records without an event that are at risk in a part of it."""
        return 1 if self.entered is None else 2

    @cached_property
    def exposed(self) -> Array:
        """Return the number exposed in each interval (groups, times).

        Where exits are spread, censored and entering records count for half an interval: the actuarial
        estimate.
        """
        if not self.spread:
            return self.at_risk
        partly = self.censored if self.entered is None else self.censored + self.entered[:, :-1]
        return np.maximum(self.at_risk - partly / 2, self.happened)

    @cached_property
    def reliable_intervals(self) -> int:
        """Number of intervals, from the first on, whose number at risk exceeds the noise."""
        left = (self.events.shape[2] + self._stays) * np.arange(len(self.times), 0, -1) + self._stays
        firm = self.at_risk.sum(axis=0) >= FIRM * np.sqrt(self.variance * len(self.at_risk) * left)
        return len(firm) if bool(firm.all()) else int(np.argmin(firm))

    def split(self, groups: int) -> list["Exits"]:
        """Split the counts into blocks of `groups` groups."""
        parts = range(0, len(self.beyond), groups)
        return [
            replace(
                self,
                events=self.events[part : part + groups],
                censored=self.censored[part : part + groups],
                beyond=self.beyond[part : part + groups],
                entered=None if self.entered is None else self.entered[part : part + groups],
            )
            for part in parts
        ]

    def noise(self, exposed: Array, steps: Array) -> Array:
        """The variance that noise alone gives to the sum of log(1 - steps / exposed), by the delta method.

        A count more in some interval is one more exposed in all before it, and in its own a step or, on
        average, half a person. One more who comes late is, the other way round, one less exposed before.
        """
        left, after = exposed - steps, np.arange(len(self.times), 0, -1) - 1
        pull = ratio(steps, exposed * left)
        total = np.cumsum(pull)
        cells = self._stays + self.events.shape[2]
        stepped = np.cumsum((total - ratio(np.ones_like(left), left)) ** 2)
        stayed = (cells - 1) * np.cumsum((total - pull / 2) ** 2)
        return self.variance * (stepped + stayed + (cells * after + self._stays) * total**2)


def ratio(part: Array, whole: Array) -> Array:
    """Return part / whole, at most 1; 0 / 0 is 0."""
    return np.divide(part, whole, out=np.zeros(np.broadcast_shapes(part.shape, whole.shape)), where=whole > 0)


def logrank_terms(exits: Exits) -> tuple[Array, Array, Array]:
    """Return events observed and expected under equal hazards (groups,), and covariance (groups, groups).

    Of exact counts; `SignedTable.logrank_terms` is for noisy ones. The covariance is hypergeometric (Mantel
    1966).
    """
    happened, exposed = exits.happened, exits.exposed
    events, everybody = happened.sum(axis=0), exposed.sum(axis=0)
    shares = ratio(exposed, everybody)
    finite = np.where(everybody > 1, ratio(everybody - events, everybody - 1), 1.0)
    weighed = shares * events * finite
    covariance = np.diag(weighed.sum(axis=1)) - shares @ weighed.T
    return happened.sum(axis=1), (shares * events).sum(axis=1), covariance


@dataclass(frozen=True)
class Groups:
    """Groups of records by the values of a column.

    Args:
        column: The column.
        labels: The groups, by name.
        values: The value of each group; empty if the column has levels, whose indicators are features.
    """

    column: str
    labels: tuple[str, ...]
    values: tuple[float, ...] = ()

    def places(self, table: Table) -> NDArray[np.int64]:
        """The group of each record of a site (records,)."""
        if self.values:
            given = table.features[:, table.columns.index(self.column)]
            return np.searchsorted(self.values, given).astype(np.int64)
        names = [f"{self.column}={label}" for label in self.labels[1:]]
        marks = table.features[:, [table.columns.index(name) for name in names]]
        return np.where(marks.any(axis=1), 1 + marks.argmax(axis=1), 0) if names else marks.sum(axis=1)

    def require_members(self, table: Table, place: str) -> None:
        """Refuse records of a site that belong to no group."""
        if not self.values:
            return
        strange = ~np.isin(table.features[:, table.columns.index(self.column)], self.values)
        if strange.any():
            allowed = f"{self.column} must hold {' or '.join(self.labels)}"
            raise InvalidValue(
                f"{self.column} in {place} is not allowed: {allowed} in every record",
                rule=f"{self.column} is not allowed: {allowed} in every record",
                rows=np.flatnonzero(strange) + 1,
            )


def define_groups(
    by: Grouping, federation: RowFederation, private: bool, *, example: str | None = None
) -> Groups:
    """The groups of a column: public levels, given values, or those of the records where that is allowed.

    Args:
        by: The column, with its values if these are given.
        federation: The sites.
        private: Whether the records may not be looked at.
        example: An example of given values, for messages; by default that of the statistics.

    Raises:
        InvalidValue: There is no such column, or a record belongs to no group.
    """
    given = None if isinstance(by, str) else dict(by)
    column = by if isinstance(by, str) else next(iter(by), "")
    require(given is None or len(given) == 1, "by", by, 'one column with its values, as {"grade": [1, 2, 3]}')
    levels = (federation.encoding or Encoding()).levels
    if column in levels and given is None:
        return Groups(column, tuple(str(level) for level in levels[column]))
    if column not in federation.store.columns:
        known = [*federation.store.columns, *levels]
        raise InvalidValue(f"by = {by!r} is not allowed: there is no such column{hint(column, known)}")
    shown = f'by={{"{column}": [1, 2, 3]}}' if example is None else example
    return _numbered_groups(column, None if given is None else given[column], federation, private, shown)


def _numbered_groups(
    column: str, given: Sequence[float] | None, federation: RowFederation, private: bool, example: str
) -> Groups:
    """The groups of a column of numbers."""
    rules, found = federation.encoding or Encoding(), federation.store.features
    found = found[:, federation.store.columns.index(column)]
    center, scale = rules.center.get(column, 0.0), rules.scale.get(column, 1.0)
    if given is None and not private and not np.isin(found, (0, 1)).all():
        values: list[float] = np.unique(found).tolist()
    else:
        values = [(value - center) / scale for value in sorted({float(value) for value in given or (0, 1)})]
    labels = tuple(f"{value * scale + center:g}" for value in values)
    allowed = f"a column of 2 to {MOST_GROUPS} values"
    require(2 <= len(values) <= MOST_GROUPS, "by", column, allowed, about_records=given is None)
    strange = ~np.isin(found, values)
    if strange.any():
        told = " or ".join(labels)
        mend = f"give all values that it may have, as in {example}"
        raise InvalidValue(
            f"by = {column!r} is not allowed: {column} holds other values than {told}; {mend}",
            rule=f"by = {column!r} is not allowed: {column} must hold {told}; {mend}",
            rows=np.flatnonzero(strange) + 1,
        )
    return Groups(column, labels, tuple(values))


def exit_cells(table: Table, grid: Array, states: int, by: Groups | None) -> Array:
    """Count a site's exits by cell, with the records' weights.

    Guarantee:
        Each record is in exactly one cell of exits, and in at most one of entries.
    """
    size, weights = len(grid) * states + 1, table.targets.get("weight")
    interval = np.searchsorted(grid, table.targets["time"], side="left")
    # Records that stay beyond the grid are in the last cell, whatever happens to them later.
    cell = np.minimum(interval * states + table.targets["event"].astype(np.int64), size - 1)
    groups = 1 if by is None else len(by.labels)
    part = np.zeros_like(cell) if by is None else by.places(table)
    left = np.bincount(cell + size * part, weights=weights, minlength=size * groups).reshape(groups, size)
    if "entry" not in table.targets:
        return left.astype(np.float64).ravel()
    entry, times = table.targets["entry"], len(grid)
    # An entry at the end of an interval is first at risk in the next; an entry beyond the grid stays there.
    came = np.minimum(np.searchsorted(grid, entry, side="right"), times) + (times + 1) * part
    late, own = entry > 0, None if weights is None else weights[entry > 0]
    coming = np.bincount(came[late], weights=own, minlength=(times + 1) * groups).reshape(groups, times + 1)
    return np.column_stack([left, coming]).astype(np.float64).ravel()


def require_grid(given: ArrayLike) -> Array:
    """Return the ends of intervals; refuse ends that are not finite, above 0 and ascending."""
    try:
        ends = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidValue(f"grid is not allowed: it must be a list of numbers ({error})") from error
    allowed = "a list of finite numbers above 0, ascending"
    require(ends.ndim == 1 and len(ends) > 0, "grid", f"shape {ends.shape}", allowed)
    rising = bool(np.isfinite(ends).all()) and bool((np.diff(ends, prepend=0.0) > 0).all())
    require(rising, "grid", ends.tolist(), allowed)
    return ends


def require_exits(table: Table, states: int, place: str) -> None:
    """Refuse a table whose times are not above 0, whose events are not states, or that ends before entry."""
    require_outcomes(table, place)
    entry, weight = table.targets.get("entry"), table.targets.get("weight")
    time, event = table.targets["time"], table.targets["event"]
    require_values(time, event, place, states - 1, entry=entry, weight=weight)


def select_names(known: tuple[str, ...], wanted: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the columns to regress on, by default all; refuse unknown ones."""
    names = known if wanted is None else tuple(wanted)
    missing = [name for name in names if name not in known]
    if missing or not names:
        raise InvalidValue(f"columns {missing} are not allowed: there are {choices(known)}")
    return names


def regression_table(table: Table, names: Sequence[str], place: str) -> Table:
    """Valid records with the columns of a regression alone."""
    require_exits(table, 2, place)
    columns = [table.columns.index(name) for name in names]
    return Table(table.features[:, columns], table.targets, tuple(names), table.place)


def refuse_weights(federation: RowFederation) -> None:
    """Refuse weights under a promise to records: an unknown weight has unbounded sensitivity."""
    if "weight" in federation.store.targets:
        raise Refused(
            "weight is not private: the sensitivity to one record is not bounded, so no noise is enough. "
            "Remove the weight from the targets, or compute without epsilon"
        )
