"""Exits by interval and state at each site: all that curves and log-rank tests need, bare or with noise.

Everybody leaves a study once: in one interval of time and in one state. One person more or less therefore
moves one cell by one, however fine the grid is, and whatever is computed from the noisy cells costs nothing
more. Cells know no features and no exact times, unless the grid is made of those times.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidValue, Refused, hint, require, require_count, require_positive
from tacit.keys import Key
from tacit.privacy import noise
from tacit.privacy.accounting import calibrate
from tacit.privacy.ledger import Ledger
from tacit.privacy.release import Law, Release, clipped_release, require_delta
from tacit.sites.site import Federation
from tacit.sites.tables import Table

Array = NDArray[np.float64]
Over = Literal["all", "site", "group", "each"]

# A noisy number is used as long as it is so many standard deviations of its noise.
FIRM = 5.0
PUBLIC = "public: the records are simulated or published"


@dataclass(frozen=True, kw_only=True)
class Payment:
    """What noisy sums cost and who books it; without epsilon nothing is promised, and sums leave bare.

    Args:
        epsilon: What one release of each site costs any one record.
        delta: The probability with which that may fail; 0 takes Laplace noise, more takes Gaussian noise.
        ledger: Charged before any noise is drawn.
        key: Where the noise comes from, if not from the operating system; a rehearsal's says so everywhere.
    """

    epsilon: float | None = None
    delta: float = 0.0
    ledger: Ledger | None = None
    key: Key | None = None

    def __post_init__(self) -> None:
        if self.epsilon is None:
            idle = self.delta == 0 and self.ledger is None and self.key is None
            require(idle, "epsilon", None, "given with delta, ledger or key: without it nothing is protected")
            return
        require_positive("epsilon", self.epsilon)
        require_delta(self.delta)
        if self.ledger is None:
            raise Refused(
                f"epsilon = {self.epsilon:g} has no ledger to be charged on: give ledger=Ledger(path), or "
                "Ledger() to keep it in memory"
            )

    def release(self, sensitivity: float, purpose: str) -> Release:
        """The release of one site's sums, which one record moves by at most `sensitivity`."""
        assert self.epsilon is not None
        law: Law = "gaussian" if self.delta else "laplace"
        multiplier = calibrate(epsilon=self.epsilon, delta=self.delta, mechanism=law)
        rehearsal = self.key is not None and self.key.rehearsal
        return clipped_release(multiplier, clip=sensitivity, law=law, purpose=purpose, rehearsal=rehearsal)

    def take(self, sums: Mapping[str, Array], sensitivity: float, what: str) -> "Taken":
        """Sums as they leave the sites: bare, or with noise once the ledger has been charged for all sites.

        Guarantee:
            With epsilon, no noise is drawn before the ledger has accepted one release for every site.
        """
        if self.epsilon is None:
            return Taken(np.stack(list(sums.values())), 0.0, f"bare: {what}, from each of {len(sums)} sites")
        assert self.ledger is not None
        one = self.release(sensitivity, what)
        self.ledger.charge(replace(one, subject=f"records@{name}", party=name) for name in sums)
        key = (Key(0) if self.key is None else self.key) / what
        add = noise.gaussian if one.law == "gaussian" else noise.laplace
        told = np.stack([add(part, one.scale, key / name) for name, part in sums.items()])
        words = (
            f"released: epsilon {self.epsilon:g} at delta {self.delta:g} for any one record; {what}, with "
            f"{one.law} noise of scale {one.scale:.4g} over a sensitivity of {one.sensitivity:.4g}, from "
            f"each of {len(sums)} sites"
        )
        again = "; REHEARSAL: the noise repeats with the seed and protects nobody" if one.rehearsal else ""
        return Taken(told, one.scale**2 * (1 if one.law == "gaussian" else 2), words + again)


@dataclass(frozen=True, eq=False)
class Taken:
    """Sums that have left the sites (sites, cells), the variance of their noise, and their provenance."""

    cells: Array
    variance: float
    provenance: str


@dataclass(frozen=True, eq=False)
class LifeTable:
    """How many left in which interval and state, at each site and in each group.

    Args:
        grid: The ends of the intervals, ascending; the first begins at 0 (times,).
        cells: Counts as they left the sites (sites, groups, times * states + 1); state 0 is censored, and the
            last cell holds those who stayed beyond the grid.
        sites: The sites.
        by: The column that parts the records, if one does.
        variance: Of the noise in each cell; 0 for bare counts.
        exact: Whether the grid holds every exit time.
        provenance: How the counts left, in words.
    """

    grid: Array
    cells: Array = field(repr=False)
    sites: tuple[str, ...]
    by: str | None
    variance: float
    exact: bool
    provenance: str

    @property
    def groups(self) -> tuple[str, ...]:
        """The values of that column; one nameless group without a column."""
        return ("",) if self.by is None else ("0", "1")

    @property
    def causes(self) -> int:
        """How many kinds of events there are."""
        return (self.cells.shape[2] - 1) // len(self.grid) - 1

    def exits(self, over: Over = "all") -> "Exits":
        """Counts that fit together: of everybody, by site, by group, or by site and group.

        Noisy counts are moved to the nearest ones that are not negative and have the same sum.
        """
        axes = {"all": (0, 1), "site": (1,), "group": (0,), "each": ()}[over]
        blocks = self.cells.sum(axis=axes).reshape(-1, self.cells.shape[2])
        summed = self.cells[..., 0].size // len(blocks)
        if self.variance > 0:
            blocks = np.stack([_nearest_counts(block) for block in blocks])
        states = blocks[:, :-1].reshape(len(blocks), len(self.grid), -1)
        return Exits(
            self.grid, states[..., 1:], states[..., 0], blocks[:, -1], self.variance * summed, self.exact
        )


@dataclass(frozen=True, eq=False)
class Exits:
    """Counts of one or more groups, none below 0.

    Args:
        times: The ends of the intervals (times,).
        events: (groups, times, causes).
        censored: (groups, times).
        beyond: How many stayed longer (groups,).
        variance: Of the noise in each count; 0 for exact ones.
        exact: Whether the intervals end at the exit times themselves.
    """

    times: Array
    events: Array
    censored: Array
    beyond: Array
    variance: float
    exact: bool

    @property
    def spread(self) -> bool:
        """Whether exits are taken as spread evenly over their interval; bare counts sit at its end."""
        return self.variance > 0

    @cached_property
    def happened(self) -> Array:
        """Events of any cause (groups, times)."""
        return self.events.sum(axis=2)

    @cached_property
    def at_risk(self) -> Array:
        """How many were there when each interval began (groups, times); it never rises."""
        leaving = self.happened + self.censored
        return np.cumsum(leaving[:, ::-1], axis=1)[:, ::-1] + self.beyond[:, None]

    @cached_property
    def exposed(self) -> Array:
        """How many could have had an event in each interval (groups, times).

        Where exits are spread, the censored were there for half of it: the actuarial estimate.
        """
        return self.at_risk - (self.censored / 2 if self.spread else 0)

    @cached_property
    def known(self) -> int:
        """How many intervals, from the first on, begin with a number at risk that stands out of the noise."""
        left = (self.events.shape[2] + 1) * np.arange(len(self.times), 0, -1) + 1
        firm = self.at_risk.sum(axis=0) >= FIRM * np.sqrt(self.variance * len(self.at_risk) * left)
        return len(firm) if bool(firm.all()) else int(np.argmin(firm))

    def split(self, groups: int) -> list["Exits"]:
        """The same counts, so many groups at a time."""
        parts = range(0, len(self.beyond), groups)
        return [
            replace(
                self,
                events=self.events[part : part + groups],
                censored=self.censored[part : part + groups],
                beyond=self.beyond[part : part + groups],
            )
            for part in parts
        ]

    def noise(self, exposed: Array, steps: Array) -> Array:
        """The variance that noise alone gives to the sum of log(1 - steps / exposed), by the delta method.

        A count more in some interval is one more exposed in all before it, and in its own a step or, on
        average, half a person.
        """
        left, after = exposed - steps, np.arange(len(self.times), 0, -1) - 1
        pull = ratio(steps, exposed * left)
        total = np.cumsum(pull)
        cells = 1 + self.events.shape[2]
        stepped = np.cumsum((total - ratio(np.ones_like(left), left)) ** 2)
        stayed = (cells - 1) * np.cumsum((total - pull / 2) ** 2)
        return self.variance * (stepped + stayed + (cells * after + 1) * total**2)


def ratio(part: Array, whole: Array) -> Array:
    """The share of a whole, at most all of it; nothing of nothing is 0."""
    return np.divide(part, whole, out=np.zeros(np.broadcast_shapes(part.shape, whole.shape)), where=whole > 0)


def compared(exits: Exits) -> tuple[Array, Array, Array]:
    """Events seen and expected under equal hazards (groups,), and their covariance (groups, groups).

    The covariance is hypergeometric (Mantel 1966), plus what noise adds by the delta method.
    """
    known = slice(0, exits.known)
    happened, exposed = exits.happened[:, known], exits.exposed[:, known]
    events, everybody = happened.sum(axis=0), exposed.sum(axis=0)
    shares = ratio(exposed, everybody)
    finite = np.where(everybody > 1, ratio(everybody - events, everybody - 1), 1.0)
    weighed = shares * events * finite
    covariance = np.diag(weighed.sum(axis=1)) - shares @ weighed.T
    observed, expected = happened.sum(axis=1), (shares * events).sum(axis=1)
    if not exits.variance:
        return observed, expected, covariance
    # What one more in group h, exposed in an interval, takes off the lead of group g (times, g, h).
    lead = np.eye(len(shares)) - shares.T[:, :, None]
    pull = ratio(events, everybody)[:, None, None] * lead
    total = np.cumsum(pull, axis=0)
    last = total[-1:] if len(total) else np.zeros((1, *covariance.shape))
    later = 2 * (len(exits.times) - exits.known) + 1
    moved = np.concatenate([lead - total, pull / 2 - total, np.sqrt(later) * last])
    return observed, expected, covariance + exits.variance * np.einsum("kgh,kfh->gf", moved, moved)


def life_table(
    federation: Federation,
    *,
    grid: ArrayLike | None = None,
    by: str | None = None,
    causes: int | None = 1,
    epsilon: float | None = None,
    delta: float = 0.0,
    ledger: Ledger | None = None,
    key: Key | None = None,
) -> LifeTable:
    """Count exits once, for as many curves and tests as you like.

    Args:
        federation: Sites whose records have a `time` above 0 and an `event`: 0 censored, else its cause.
        grid: The ends of the intervals, public; if not said, every exit time leaves the sites.
        by: A column of 0 and 1 that parts the records.
        causes: How many kinds of events there are; None looks at the records.
        epsilon: What the counts may cost any one record; if not said, they leave bare.
        delta: 0 for Laplace noise, more for Gaussian noise.
        ledger: Charged with one release for each site before any noise is drawn.
        key: Where the noise comes from, if not from the operating system.

    Guarantee:
        With `epsilon`, what leaves a site is one histogram that one record more or less moves by 1 (L1 and
        L2), plus noise of the scale that was charged.
    """
    payment = Payment(epsilon=epsilon, delta=delta, ledger=ledger, key=key)
    private = epsilon is not None
    tables = {name: federation.records_of(name) for name in federation}
    states = 1 + _causes(causes, tables, private)
    for name, table in tables.items():
        _require_exits(table, states, by, f"site {name}")
    ends = _grid(grid, tables, private)
    what = "counts of exits by interval and state" + (", at every exit time" if grid is None else "")
    sums = {name: cells(table, ends, states, by) for name, table in tables.items()}
    taken = payment.take(sums, 1.0, what)
    shape = (len(tables), 1 if by is None else 2, -1)
    provenance = PUBLIC if federation.public and not private else taken.provenance
    return LifeTable(
        ends, taken.cells.reshape(shape), tuple(tables), by, taken.variance, grid is None, provenance
    )


def cells(table: Table, grid: Array, states: int, by: str | None) -> Array:
    """The site's half: how many of its records are in each cell.

    Guarantee:
        Each record is in exactly one cell.
    """
    size = len(grid) * states + 1
    interval = np.searchsorted(grid, table.targets["time"], side="left")
    # Whoever stays beyond the grid is in the last cell, whatever happened then.
    cell = np.minimum(interval * states + table.targets["event"].astype(np.int64), size - 1)
    if by is not None:
        cell = cell + size * table.features[:, table.columns.index(by)].astype(np.int64)
    return np.bincount(cell, minlength=size * (1 if by is None else 2)).astype(np.float64)


def _nearest_counts(given: Array) -> Array:
    """The nearest numbers, by least squares, that are not negative and have the same sum (Duchi 2008)."""
    total = max(float(given.sum()), 0.0)
    falling = np.sort(given)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(given) + 1)
    kept = np.flatnonzero(falling > excess)
    return np.maximum(given - excess[kept[-1]], 0.0) if len(kept) else np.zeros_like(given)


def _causes(given: int | None, tables: Mapping[str, Table], private: bool) -> int:
    if given is not None:
        require_count("causes", given)
        return given
    if private:
        raise Refused("causes = None would look for them in private records: say how many there are")
    seen = [int(table.targets["event"].max()) for table in tables.values() if "event" in table.targets]
    return max([1, *seen])


def _grid(given: ArrayLike | None, tables: Mapping[str, Table], private: bool) -> Array:
    if given is not None:
        return require_grid(given)
    if private:
        raise Refused(
            "grid = None takes every exit time as it is, and noise on counts does not hide when they are: "
            "give the ends of public intervals, such as numpy.linspace(0, horizon, 31)[1:]"
        )
    return np.unique(np.concatenate([table.targets["time"] for table in tables.values()]))


def require_grid(given: ArrayLike) -> Array:
    """The ends of intervals; refuse what is not finite, above 0 and ascending."""
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
    """Refuse a table whose times are not above 0, or whose events are not states."""
    for name in ("time", "event"):
        if name not in table.targets:
            raise InvalidValue(f"{name} is missing in {place}: survival data have a time and an event")
    time, event = table.targets["time"], table.targets["event"]
    require(bool((time > 0).all()), f"time in {place}", "some of 0 or less", "above 0 everywhere")
    allowed = "0 (censored) or 1 (seen)" if states == 2 else f"0 (censored) or a cause from 1 to {states - 1}"
    require(bool(np.isin(event, np.arange(states)).all()), f"event in {place}", "something else", allowed)


def _require_exits(table: Table, states: int, by: str | None, place: str) -> None:
    require_exits(table, states, place)
    if by is None:
        return
    if by not in table.columns:
        raise InvalidValue(f"by = {by!r} is not allowed: {place} has no such column{hint(by, table.columns)}")
    values = table.features[:, table.columns.index(by)]
    require(bool(np.isin(values, (0, 1)).all()), f"{by} in {place}", "something else", "0 or 1, to part by")
