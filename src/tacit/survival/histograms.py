"""Exits by interval and state at each site: all that curves and log-rank tests need, bare or with noise.

Everybody leaves a study once: in one interval of time and in one state. One person more or less therefore
moves one cell by one, however fine the grid is, and whatever is computed from the noisy cells costs nothing
more. Cells know no features and no exact times, unless the grid is made of those times.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidValue, Refused, require, require_count, require_positive
from tacit.keys import Key
from tacit.privacy import noise
from tacit.privacy.accounting import calibrate
from tacit.privacy.ledger import Ledger
from tacit.privacy.release import Release, clipped_release, require_delta
from tacit.sites.site import Federation
from tacit.sites.tables import Table, require_outcomes

Array = NDArray[np.float64]
Over = Literal["all", "site", "group", "each"]

# A noisy number is used as long as it is so many standard deviations of its noise.
FIRM = 10.0


@dataclass(frozen=True, kw_only=True)
class Payment:
    """What noisy sums cost and who books it; without epsilon nothing is promised, and sums leave bare.

    Args:
        epsilon: What one release per site costs.
        delta: The probability with which that may fail; 0 takes Laplace noise, more takes Gaussian noise.
        ledger: Charged before any noise is drawn.
        key: Where noise comes from; the operating system unless it is a rehearsal's.
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

    def release(self, name: str, sensitivity: float, purpose: str) -> Release:
        """The release of one site's sums, which one record moves by at most `sensitivity`."""
        assert self.epsilon is not None
        law = "gaussian" if self.delta else "laplace"
        return clipped_release(
            calibrate(epsilon=self.epsilon, delta=self.delta, mechanism=law),
            clip=sensitivity,
            law=law,
            subject=f"records@{name}",
            party=name,
            purpose=purpose,
            rehearsal=self.key is not None and self.key.rehearsal,
        )

    def take(self, sums: dict[str, Array], sensitivity: float, what: str) -> "Taken":
        """Sums as they leave the sites: bare, or with noise, once all of them are charged for.

        Guarantee:
            With epsilon, no noise is drawn before the ledger has accepted one release for every site.
        """
        if self.epsilon is None:
            return Taken(np.stack(list(sums.values())), 0.0, f"bare: {what}, from each of {len(sums)} sites")
        releases = {name: self.release(name, sensitivity, what) for name in sums}
        assert self.ledger is not None
        self.ledger.charge(releases.values())
        key = (Key(0) if self.key is None else self.key) / what
        first = next(iter(releases.values()))
        add = noise.gaussian if first.law == "gaussian" else noise.laplace
        told = [add(part, releases[name].scale, key / name) for name, part in sums.items()]
        spread = first.scale**2 * (1 if first.law == "gaussian" else 2)
        words = (
            f"released: epsilon {self.epsilon:g} at delta {self.delta:g} for any one record; {what}, with "
            f"{first.law} noise of scale {first.scale:.4g} over a sensitivity of {first.sensitivity:.4g} at "
            f"each of {len(sums)} sites"
        )
        again = "; REHEARSAL: the noise repeats with the seed and protects nobody" if first.rehearsal else ""
        return Taken(np.stack(told), spread, words + again)


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
        groups: The values of the column that parts the records; one nameless group without a column.
        variance: Of the noise in each cell; 0 for bare counts.
        provenance: How the counts left, in words.
        exact: Whether the grid holds every exit time.
    """

    grid: Array
    cells: Array = field(repr=False)
    sites: tuple[str, ...]
    groups: tuple[str, ...]
    variance: float
    provenance: str
    exact: bool = False

    @property
    def causes(self) -> int:
        """How many kinds of events there are."""
        return (self.cells.shape[2] - 1) // len(self.grid) - 1

    def exits(self, over: Over = "all") -> "Exits":
        """Counts that fit together: for everybody, by site, by group, or by site and group.

        Noisy counts are moved, no farther than needed, to the nearest ones that are not negative and have
        the same sum.
        """
        axes = {"all": (0, 1), "site": (1,), "group": (0,), "each": ()}[over]
        blocks = self.cells.sum(axis=axes).reshape(-1, self.cells.shape[2])
        if self.variance > 0:
            blocks = np.stack([_nearest_counts(block) for block in blocks])
        added = self.cells[..., 0].size // len(blocks)
        states = blocks[:, :-1].reshape(len(blocks), len(self.grid), -1)
        return Exits(
            self.grid, states[:, :, 1:], states[:, :, 0], blocks[:, -1], self.variance * added, self.exact
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
        exact: Whether the intervals are exit times.
    """

    times: Array
    events: Array
    censored: Array
    beyond: Array
    variance: float
    exact: bool

    @property
    def spread(self) -> bool:
        """Whether exits are taken as spread evenly over their interval; exact counts sit at its end."""
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

        Where exits are spread, the censored were there for half of it (the actuarial estimate).
        """
        return self.at_risk - (self.censored / 2 if self.spread else 0)

    @cached_property
    def known(self) -> int:
        """How many intervals, from the first on, have numbers at risk that stand out from the noise."""
        after = np.arange(len(self.times), 0, -1)
        deviation = np.sqrt(self.variance * len(self.at_risk) * ((self.events.shape[2] + 1) * after + 1))
        firm = self.at_risk.sum(axis=0) >= FIRM * deviation
        return len(firm) if firm.all() else int(np.argmin(firm))

    @property
    def until(self) -> float:
        """The time up to which curves are known."""
        if self.exact or (self.variance == 0 and not self.beyond.any()):
            return np.inf
        return float(self.times[self.known - 1]) if self.known else 0.0


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
        federation: Sites whose records have a `time` above 0 and an `event`: 0 censored, 1 and so on causes.
        grid: The ends of the intervals, public; if not said, every exit time leaves the sites.
        by: A column of 0 and 1 that parts the records.
        causes: How many kinds of events there are; None looks at the records.
        epsilon: What the counts may cost any one record; if not said, they leave bare.
        delta: 0 for Laplace noise, more for Gaussian noise.
        ledger: Where that is charged, one release for each site, before noise is drawn.
        key: Where the noise comes from, if not from the operating system.

    Guarantee:
        With `epsilon`, what leaves a site is one histogram of sensitivity 1 (add or remove one record) plus
        noise of the charged scale.
    """
    payment = Payment(epsilon=epsilon, delta=delta, ledger=ledger, key=key)
    states = _causes(federation, causes, payment) + 1
    tables = {name: federation.records_of(name) for name in federation}
    for name, table in tables.items():
        _require_exits(table, states, by, f"site {name}")
    ends = _grid(grid, tables, payment)
    sums = {name: _cells(table, ends, states, by) for name, table in tables.items()}
    exact, what = grid is None, "counts of exits by interval and state"
    taken = payment.take(sums, 1.0, f"{what}, at every exit time" if exact else what)
    groups = ("",) if by is None else ("0", "1")
    cells = taken.cells.reshape(len(tables), len(groups), -1)
    words = "public: the records are simulated or published" if federation.public else taken.provenance
    provenance = taken.provenance if taken.variance else words
    return LifeTable(ends, cells, tuple(tables), groups, taken.variance, provenance, exact)
