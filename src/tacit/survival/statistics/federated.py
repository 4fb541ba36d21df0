"""Survival curves, log-rank tests and Breslow's baseline hazard across sites, from life tables.

Open, they equal what all records in one place would give. With `epsilon`, curves and log-rank tests come from
one noisy histogram of each site, charged before its noise is drawn; a histogram that was paid for once, a
`life_table`, serves them all. Records may have an `entry`, from when on they are at risk, and in the open a
`weight`, as often as which they count.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, ParamSpec, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import chi2

from tacit.errors import Refused, is_between, require, require_count, require_positive
from tacit.privacy.ledger.payment import PUBLIC, Payment, is_paid
from tacit.privacy.ledger.store import Ledger
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.runtime.refusals import withholding
from tacit.runtime.silence import suppress_warnings
from tacit.sites.federation import RowFederation
from tacit.sites.record_checks import require_units
from tacit.sites.table import Table
from tacit.survival.life_table import (
    FIRM,
    Exits,
    Grouping,
    LifeTable,
    Over,
    define_groups,
    exit_cells,
    logrank_terms,
    ratio,
    refuse_weights,
    require_exits,
    require_grid,
)
from tacit.survival.signed_table import CellNoise
from tacit.survival.statistics.curves import (
    Estimate,
    LogRank,
    RestrictedMean,
    cumulative_hazard,
    estimate,
    product_limit,
    restricted_means,
    z_value,
)

P = ParamSpec("P")
Result = TypeVar("Result")


def statistic(function: Callable[P, Result]) -> Callable[P, Result]:
    """Decorate a statistic of a `federation`: warnings and refusals disclose nothing of its records."""
    return suppress_warnings()(withholding(is_paid)(function))


@dataclass(frozen=True, kw_only=True)
class CountOptions:
    """Options of counting exits, and of its price; the arguments of `life_table`."""

    grid: ArrayLike | None = None
    by: Grouping | None = None
    causes: int | None = 1
    epsilon: float | None = None
    delta: float = 0.0
    ledger: Ledger | None = None
    key: Key | None = None

    def count(self, federation: RowFederation | LifeTable) -> LifeTable:
        """Count the exits of the sites, unless they have been counted already."""
        if isinstance(federation, LifeTable):
            return self._require_same_table(federation)
        payment = Payment(
            epsilon=self.epsilon, delta=self.delta, ledger=self.ledger, key=self.key, records=federation
        )
        tables = {name: federation.records_of(name) for name in federation}
        states = 1 + _causes(self.causes, tables, payment.private)
        for name, table in tables.items():
            require_exits(table, states, f"site {name}")
        groups = None if self.by is None else define_groups(self.by, federation, payment.private)
        late = "entry" in federation.store.targets
        if payment.private:
            refuse_weights(federation)
        if payment.protects:
            require_units(federation, self.delta)
        ends, exact = _grid(self.grid, tables, payment.private), self.grid is None
        what = "counts of exits by interval and state" + ", at every exit time" * exact
        sums = {name: exit_cells(table, ends, states, groups) for name, table in tables.items()}
        left = payment.release_counts(sums, what, cells=1 + late)
        by, labels = (None, ()) if groups is None else (groups.column, groups.labels)
        cells = left.cells.reshape(len(tables), max(len(labels), 1), -1)
        provenance = PUBLIC if federation.public and not payment.private else left.provenance
        noise = None if left.release is None else CellNoise.of_release(left.release)
        return LifeTable(
            ends, cells, tuple(tables), by, left.variance, exact, provenance, late, labels, noise
        )

    def _require_same_table(self, table: LifeTable) -> LifeTable:
        """Return the table itself; refuse options by which it would have to be counted anew."""
        paid = (self.grid, self.epsilon, self.ledger, self.key)
        new = bool(self.delta) or any(given is not None for given in paid)
        require(not new, "life table", "a new grid or epsilon", "used with its own grid and price")
        by = self.by if self.by is None or isinstance(self.by, str) else next(iter(self.by), None)
        require(by in (None, table.by), "by", self.by, f"{table.by!r}, as the table was counted")
        return table


@statistic
def life_table(
    federation: RowFederation,
    *,
    grid: ArrayLike | None = None,
    by: Grouping | None = None,
    causes: int | None = 1,
    epsilon: float | None = None,
    delta: float = 0.0,
    ledger: Ledger | None = None,
    key: Key | None = None,
) -> LifeTable:
    """Count exits once, for any number of curves and tests.

    Args:
        federation: Sites whose records have a `time` above 0 and an `event`: 0 censored, else its cause. They
            may have an `entry`, from when on they are at risk, and, in the open, a `weight`.
        grid: The ends of the intervals, public; by default every exit time leaves the sites.
        by: A column whose values group the records: words by their public levels, numbers of an open count
            by all values that there are. With `epsilon`, 0 and 1, or the values as in
            `{"grade": [1, 2, 3]}`.
        causes: Number of kinds of events; None looks at the records.
        epsilon: Cost of the counts for any one record; by default they leave unprotected.
        delta: 0 for discrete Laplace noise, more for Gaussian noise.
        ledger: Charged with one release for each site before any noise is drawn.
        key: Source of the noise, by default the operating system.

    Guarantee:
        With `epsilon`, what leaves a site is one histogram that one record more or less moves by 1 (L1 and
        L2), or in two cells by 1 each if records have an `entry`, plus noise of the scale that was charged.
    """
    return CountOptions(
        grid=grid, by=by, causes=causes, epsilon=epsilon, delta=delta, ledger=ledger, key=key
    ).count(federation)


@statistic
def kaplan_meier(
    federation: RowFederation | LifeTable,
    *,
    grid: ArrayLike | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    ledger: Ledger | None = None,
    key: Key | None = None,
    level: float = 0.95,
) -> Estimate:
    """The probability of no event up to each time, with Greenwood's log-log band.

    Args:
        federation: The sites, or the exits that a `life_table` has counted already.
        grid: The ends of public intervals; by default every exit time leaves the sites.
        epsilon: Cost of the curve for any one record; by default counts leave unprotected. The band allows
            for the noise too.
        delta: As for `life_table`.
        ledger: As for `life_table`.
        key: As for `life_table`.
        level: Of the band.
    """
    z_value(level)
    options = CountOptions(grid=grid, epsilon=epsilon, delta=delta, ledger=ledger, key=key)
    exits = (table := options.count(federation)).exits()
    curve = product_limit(exits, exits.exposed[0], exits.happened[0], "survival", level)
    return estimate("Kaplan-Meier survival", table, exits, curve, level)


@statistic
def censoring(
    federation: RowFederation | LifeTable,
    *,
    grid: ArrayLike | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    ledger: Ledger | None = None,
    key: Key | None = None,
    level: float = 0.95,
) -> Estimate:
    """Estimate the censoring distribution: the probability of being uncensored for longer than each time.

    An event counts as leaving the risk set. Its `curve` weights Brier scores. The arguments are those of
    `kaplan_meier`.
    """
    z_value(level)
    options = CountOptions(grid=grid, epsilon=epsilon, delta=delta, ledger=ledger, key=key)
    table = options.count(federation)
    exits = table.exits()
    exposed = exits.at_risk[0] - exits.happened[0] / (2 if exits.spread else 1)
    curve = product_limit(exits, exposed, exits.censored[0], "uncensored", level)
    return estimate("Kaplan-Meier of the censoring", table, exits, curve, level)


@statistic
def nelson_aalen(
    federation: RowFederation | LifeTable,
    *,
    grid: ArrayLike | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    ledger: Ledger | None = None,
    key: Key | None = None,
    level: float = 0.95,
) -> Estimate:
    """The cumulative hazard up to each time, as if the events of one time followed each other.

    The arguments are those of `kaplan_meier`.
    """
    z_value(level)
    options = CountOptions(grid=grid, epsilon=epsilon, delta=delta, ledger=ledger, key=key)
    exits = (table := options.count(federation)).exits()
    curve = cumulative_hazard(exits, level)
    return estimate("Nelson-Aalen cumulative hazard", table, exits, curve, level)


@statistic
def aalen_johansen(
    federation: RowFederation | LifeTable,
    *,
    causes: int | None = None,
    grid: ArrayLike | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    ledger: Ledger | None = None,
    key: Key | None = None,
) -> Estimate:
    """The probability of an event of each cause up to each time, all causes competing.

    Args:
        federation: The sites, or the exits that a `life_table` has counted already, with their causes.
        causes: Number of causes; by default counted in the records, which only an open run may do.
        grid: The ends of public intervals.
        epsilon: Cost of the curves for any one record.
        delta: As for `life_table`.
        ledger: As for `life_table`.
        key: As for `life_table`.
    """
    known = federation.causes if isinstance(federation, LifeTable) and causes is None else causes
    options = CountOptions(grid=grid, causes=known, epsilon=epsilon, delta=delta, ledger=ledger, key=key)
    table = options.count(federation)
    exits = table.exits()
    hazards = ratio(exits.events[0], exits.exposed[0][:, None])
    survival = np.cumprod(1 - hazards.sum(axis=1), dtype=np.float64)
    incidences = np.cumsum(np.append(1.0, survival[:-1])[:, None] * hazards, axis=0)
    curves = {f"incidence_{cause}": part for cause, part in enumerate(incidences.T, start=1)}
    return estimate("Aalen-Johansen incidence", table, exits, curves)


@statistic
def logrank(
    federation: RowFederation | LifeTable,
    *,
    by: Grouping = "site",
    strata: Literal["site"] | None = None,
    grid: ArrayLike | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    ledger: Ledger | None = None,
    key: Key | None = None,
) -> LogRank:
    """Log-rank test: do groups have the same hazard at every time?

    Args:
        federation: The sites, or the exits that a `life_table` has counted already, by the same column.
        by: The groups: `site`, or a column, whose values are the groups. Words have their public levels; the
            values of numbers are found in the open, and with `epsilon` are 0 and 1 unless they are given, as
            in `{"grade": [1, 2, 3]}`.
        strata: `site` to compare the groups of a column within each site alone.
        grid: The ends of public intervals.
        epsilon: Cost of the test for any one record; its variance allows for the noise too.
        delta: As for `life_table`.
        ledger: As for `life_table`.
        key: As for `life_table`.
    """
    column = None if by == "site" else by
    require(
        strata is None or (strata == "site" and column is not None), "strata", strata, "None where by is site"
    )
    sites = federation.sites if isinstance(federation, LifeTable) else tuple(federation)
    require(column is not None or len(sites) > 1, "by", by, "a column, as there is one site alone")
    options = CountOptions(grid=grid, by=column, epsilon=epsilon, delta=delta, ledger=ledger, key=key)
    table = options.count(federation)
    groups = sites if column is None else table.groups
    over = "site" if column is None else "each" if strata else "group"
    exits = table.exits(over)
    observed, expected, covariance = _logrank_terms(table, exits, over, len(groups))
    lead = (observed - expected)[:-1]
    statistic = float(lead @ np.linalg.pinv(covariance[:-1, :-1]) @ lead)
    records = exits.at_risk[:, 0].reshape(-1, len(groups)).sum(axis=0)
    shown = {"records": records, "observed": observed, "expected": expected}
    named = "site" if column is None or table.by is None else table.by
    return LogRank(
        statistic=statistic,
        degrees=len(groups) - 1,
        p=float(chi2.sf(statistic, len(groups) - 1)),
        table=pd.DataFrame(shown, index=pd.Index(groups, name=named)),
        by=named + (" within sites" if strata else ""),
        provenance=table.provenance,
    )


def _logrank_terms(table: LifeTable, exits: Exits, over: Over, groups: int) -> tuple[Array, Array, Array]:
    """Return observed and expected events (groups,), and covariance, summed over strata."""
    if table.variance:
        return table.signed(over).logrank_terms()
    terms = [logrank_terms(part) for part in exits.split(groups)]
    observed, expected, covariance = (np.sum(part, axis=0) for part in zip(*terms, strict=True))
    return observed, expected, covariance


@statistic
def restricted_mean(
    federation: RowFederation | LifeTable,
    *,
    until: float,
    by: Grouping | None = None,
    grid: ArrayLike | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    ledger: Ledger | None = None,
    key: Key | None = None,
    level: float = 0.95,
) -> RestrictedMean:
    """The mean time without an event up to a horizon, and its difference between two groups.

    Args:
        federation: The sites, or the exits that a `life_table` has counted already, by the same column.
        until: The horizon.
        by: The groups: `site`, a column as for `logrank`, or None.
        grid: The ends of public intervals.
        epsilon: Cost of the means for any one record; their errors allow for the noise too.
        delta: As for `life_table`.
        ledger: As for `life_table`.
        key: As for `life_table`.
        level: Of the confidence intervals.
    """
    z_value(level)
    require_positive("until", until)
    column = None if by == "site" else by
    options = CountOptions(grid=grid, by=column, epsilon=epsilon, delta=delta, ledger=ledger, key=key)
    table = options.count(federation)
    over: Over = "all" if by is None else "site" if column is None else "group"
    groups = {"all": ("everybody",), "site": table.sites, "group": table.groups}[over]
    named = table.by if column is not None else "site" if by else None
    return restricted_means(table, over, groups, until, named, level)


@statistic
def breslow(
    federation: RowFederation,
    log_risk: Callable[[Array], Array],
    table: LifeTable,
    *,
    bound: float | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    ledger: Ledger | None = None,
    key: Key | None = None,
) -> Estimate:
    """Breslow's estimate: the cumulative hazard of a record whose log risk is 0, under a public model.

    Args:
        federation: The sites.
        log_risk: From features (records, columns) to log hazard ratios (records,): `CoxFit.log_risk`, say.
        table: Their exits as a `life_table` has counted them, which are not paid for again.
        bound: Log risks are cut off there and at its negative.
        epsilon: Cost of the risks for any one record, beside that of the table.
        delta: As for `life_table`.
        ledger: As for `life_table`.
        key: As for `life_table`.

    Guarantee:
        With `epsilon`, what leaves a site is one histogram that one record more or less moves by at most
        e^bound (L1 and L2), or in two cells by that if records have an `entry`, plus noise of the scale that
        was charged.
    """
    payment = Payment(epsilon=epsilon, delta=delta, ledger=ledger, key=key, records=federation)
    private = payment.private
    if private != (table.variance > 0):
        raise Refused(
            "exits and risks must both be private or both be open: give epsilon for both, or for none"
        )
    if private and bound is None:
        raise Refused(
            "bound = None is not private: the risk of one record is not bounded. Give a bound, such as 2"
        )
    require(bound is None or is_between(bound, 0, 700), "bound", bound, "above 0")
    limit, late = np.inf if bound is None else bound, "entry" in federation.store.targets
    if private:
        refuse_weights(federation)
    sums = {name: _risk_sums(federation.records_of(name), log_risk, limit, table.grid) for name in federation}
    taken = payment.release_sums(
        sums, float(np.exp(bound or 0.0)), "sums of risks by interval of exit", 1 + late
    )
    staying, exits = _risk_by_interval(taken.cells.sum(axis=0).reshape(1 + late, -1), private), table.exits()
    noisy = taken.variance * len(sums) * (1 + late) * np.arange(len(staying) + 1, 1, -1)
    firm = staying >= FIRM * np.sqrt(noisy)
    known = len(firm) if bool(firm.all()) else int(np.argmin(firm))
    curve = {"hazard": np.cumsum(ratio(exits.happened[0], staying))}
    found = estimate(
        "Breslow baseline hazard", table, exits, curve, known=min(known, exits.reliable_intervals)
    )
    if table.provenance == PUBLIC:
        return found
    return replace(found, provenance=f"{table.provenance}; {taken.provenance}")


def _risk_sums(table: Table, log_risk: Callable[[Array], Array], limit: float, grid: Array) -> Array:
    """Compute a site's sums of Breslow's estimate: risks by interval of exit, those beyond the grid last.

    Behind them, if records have an entry, risks by the interval in which they come.
    """
    risks = np.exp(np.clip(np.asarray(log_risk(table.features), dtype=np.float64), -limit, limit))
    require(bool(np.isfinite(risks).all()), "log_risk", "NaN or infinity for some records", "finite")
    weighed = risks * table.targets.get("weight", 1.0)
    interval = np.searchsorted(grid, table.targets["time"], side="left")
    leaving = np.bincount(interval, weights=weighed, minlength=len(grid) + 1)
    if "entry" not in table.targets:
        return leaving.astype(np.float64)
    entry = table.targets["entry"]
    came, late = np.searchsorted(grid, entry, side="right"), entry > 0
    coming = np.bincount(came[late], weights=weighed[late], minlength=len(grid) + 1)
    return np.concatenate([leaving, coming]).astype(np.float64)


def _risk_by_interval(moves: Array, spread: bool) -> Array:
    """Return the risk in each interval, from leaving and entering risks (1 or 2, times + 1)."""
    later = np.cumsum(moves[:, ::-1], axis=1)[:, ::-1]
    # Records that leave later are at risk, unless they have not entered yet.
    found = later[0, :-1] - (later[1, 1:] if len(moves) > 1 else 0.0)
    return found - moves[:, :-1].sum(axis=0) / 2 if spread else found


def _causes(given: int | None, tables: Mapping[str, Table], private: bool) -> int:
    if given is not None:
        require_count("causes", given)
        return given
    if private:
        raise Refused("causes = None would read them from private records: give their number")
    seen = [int(table.targets["event"].max()) for table in tables.values() if "event" in table.targets]
    return max([1, *seen])


def _grid(given: ArrayLike | None, tables: Mapping[str, Table], private: bool) -> Array:
    if given is not None:
        return require_grid(given)
    if private:
        raise Refused(
            "grid = None uses every exit time, which noise on counts does not hide: give the ends of public "
            "intervals, such as numpy.linspace(0, horizon, 31)[1:]"
        )
    return np.unique(np.concatenate([table.targets["time"] for table in tables.values()]))
