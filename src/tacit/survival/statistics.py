"""The statistics of a survival paper, across sites: curves, log-rank tests and Cox regression.

Open, they equal what all records in one place would give. With `epsilon`, curves and log-rank tests come from
one noisy histogram of each site, charged before its noise is drawn; a histogram that was paid for once, a
`life_table`, serves them all. Cox regression has no private version here: its sums couple the records.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import chi2

from tacit.errors import InvalidValue, NotSeparable, Refused, between, choices, require, require_word
from tacit.keys import Key
from tacit.privacy.ledger import Ledger
from tacit.sites.site import Federation
from tacit.sites.tables import Table
from tacit.survival import newton
from tacit.survival.histograms import (
    FIRM,
    PUBLIC,
    LifeTable,
    Payment,
    compared,
    ratio,
    require_exits,
    require_grid,
)
from tacit.survival.histograms import life_table as life_table
from tacit.survival.newton import Ties, Transform
from tacit.survival.summaries import (
    CoxFit,
    Estimate,
    HazardTest,
    LogRank,
    concordance,
    deviations,
    estimate,
    product_limit,
    summed_hazard,
)

Array = NDArray[np.float64]


def kaplan_meier(
    federation: Federation | LifeTable,
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
        grid: The ends of public intervals; if not said, every exit time leaves the sites.
        epsilon: What the curve may cost any one record; if not said, counts leave bare. The band allows for
            the noise too.
        delta: As for `life_table`.
        ledger: As for `life_table`.
        key: As for `life_table`.
        level: Of the band.
    """
    deviations(level)
    table = _counted(federation, grid=grid, epsilon=epsilon, delta=delta, ledger=ledger, key=key)
    exits = table.exits()
    curve = product_limit(exits, exits.exposed[0], exits.happened[0], "survival", level)
    return estimate("Kaplan-Meier survival", table, exits, curve, level)


def censoring(
    federation: Federation | LifeTable,
    *,
    grid: ArrayLike | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    ledger: Ledger | None = None,
    key: Key | None = None,
    level: float = 0.95,
) -> Estimate:
    """The probability of being uncensored for longer than each time; whoever has an event then has left.

    Its `curve` is what Brier scores are weighted by. The arguments are those of `kaplan_meier`.
    """
    deviations(level)
    table = _counted(federation, grid=grid, epsilon=epsilon, delta=delta, ledger=ledger, key=key)
    exits = table.exits()
    exposed = exits.at_risk[0] - exits.happened[0] / (2 if exits.spread else 1)
    curve = product_limit(exits, exposed, exits.censored[0], "uncensored", level)
    return estimate("Kaplan-Meier of the censoring", table, exits, curve, level)


def nelson_aalen(
    federation: Federation | LifeTable,
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
    deviations(level)
    table = _counted(federation, grid=grid, epsilon=epsilon, delta=delta, ledger=ledger, key=key)
    exits = table.exits()
    curve = summed_hazard(exits, level)
    return estimate("Nelson-Aalen cumulative hazard", table, exits, curve, level)


def aalen_johansen(
    federation: Federation | LifeTable,
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
        causes: How many there are; if not said, the records tell, which only an open run may ask.
        grid: The ends of public intervals.
        epsilon: What the curves may cost any one record.
        delta: As for `life_table`.
        ledger: As for `life_table`.
        key: As for `life_table`.
    """
    known = federation.causes if isinstance(federation, LifeTable) and causes is None else causes
    table = _counted(
        federation, grid=grid, causes=known, epsilon=epsilon, delta=delta, ledger=ledger, key=key
    )
    exits = table.exits()
    hazards = ratio(exits.events[0], exits.exposed[0][:, None])
    survival = np.cumprod(1 - hazards.sum(axis=1), dtype=np.float64)
    incidences = np.cumsum(np.append(1.0, survival[:-1])[:, None] * hazards, axis=0)
    curves = {f"incidence_{cause}": part for cause, part in enumerate(incidences.T, start=1)}
    return estimate("Aalen-Johansen incidence", table, exits, curves)


def logrank(
    federation: Federation | LifeTable,
    *,
    by: str = "site",
    strata: Literal["site"] | None = None,
    grid: ArrayLike | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    ledger: Ledger | None = None,
    key: Key | None = None,
) -> LogRank:
    """Test whether groups have the same hazard at every time.

    Args:
        federation: The sites, or the exits that a `life_table` has counted already, by the same column.
        by: What makes the groups: `site`, or a column of 0 and 1.
        strata: `site` to compare the groups of a column within each site alone.
        grid: The ends of public intervals.
        epsilon: What the test may cost any one record; its variance allows for the noise too.
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
    table = _counted(federation, grid=grid, by=column, epsilon=epsilon, delta=delta, ledger=ledger, key=key)
    groups = sites if column is None else table.groups
    exits = table.exits("site" if column is None else "each" if strata else "group")
    seen, due, spread = (sum(part) for part in zip(*map(compared, exits.split(len(groups))), strict=True))
    observed, expected, covariance = (np.asarray(part) for part in (seen, due, spread))
    lead = (observed - expected)[:-1]
    statistic = float(lead @ np.linalg.pinv(covariance[:-1, :-1]) @ lead)
    records = exits.at_risk[:, 0].reshape(-1, len(groups)).sum(axis=0)
    shown = {"records": records, "observed": observed, "expected": expected}
    return LogRank(
        statistic=statistic,
        degrees=len(groups) - 1,
        p=float(chi2.sf(statistic, len(groups) - 1)),
        table=pd.DataFrame(shown, index=pd.Index(groups, name=by)),
        by=by + (" within sites" if strata else ""),
        provenance=table.provenance,
    )


def breslow(
    federation: Federation,
    log_risk: Callable[[Array], Array],
    table: LifeTable,
    *,
    bound: float | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    ledger: Ledger | None = None,
    key: Key | None = None,
) -> Estimate:
    """The cumulative hazard of a record whose log risk is 0, under a model that is public.

    Args:
        federation: The sites.
        log_risk: From features (records, columns) to log hazard ratios (records,): `CoxFit.log_risk`, say.
        table: Their exits as a `life_table` has counted them, which are not paid for again.
        bound: Log risks are cut off there and at its negative.
        epsilon: What the risks may cost any one record, beside what the table has cost.
        delta: As for `life_table`.
        ledger: As for `life_table`.
        key: As for `life_table`.

    Guarantee:
        With `epsilon`, what leaves a site is one histogram that one record more or less moves by at most
        e^bound (L1 and L2), plus noise of the scale that was charged.
    """
    payment, private = Payment(epsilon=epsilon, delta=delta, ledger=ledger, key=key), epsilon is not None
    if private != (table.variance > 0):
        raise Refused("exits and risks leave both bare or both with noise: give epsilon for both, or none")
    if private and bound is None:
        raise Refused("bound = None is not private: one record's risk has no limit. Give one, such as 2")
    require(bound is None or between(bound, 0, 700), "bound", bound, "above 0")
    limit = np.inf if bound is None else bound
    sums = {name: _masses(federation.records_of(name), log_risk, limit, table.grid) for name in federation}
    taken = payment.take(sums, float(np.exp(bound or 0.0)), "sums of risks by interval of exit")
    leaving, exits = taken.cells.sum(axis=0), table.exits()
    staying = np.cumsum(leaving[::-1])[::-1][:-1] - (leaving[:-1] / 2 if private else 0)
    firm = staying >= FIRM * np.sqrt(taken.variance * len(sums) * np.arange(len(staying) + 1, 1, -1))
    known = len(firm) if bool(firm.all()) else int(np.argmin(firm))
    curve = {"hazard": np.cumsum(ratio(exits.happened[0], staying))}
    found = estimate("Breslow baseline hazard", table, exits, curve, known=min(known, exits.known))
    if table.provenance == PUBLIC:
        return found
    return replace(found, provenance=f"{table.provenance}; {taken.provenance}")


def cox(
    federation: Federation,
    *,
    columns: Sequence[str] | None = None,
    strata: Literal["site"] | None = "site",
    ties: Ties = "efron",
    grid: ArrayLike | None = None,
    robust: bool | Literal["site"] = False,
    ridge: float = 0.0,
    level: float = 0.95,
    epsilon: float | None = None,
) -> CoxFit:
    """Cox regression by Newton steps on sums that the sites send.

    Args:
        federation: Sites whose records have a `time` above 0 and an `event`, 0 or 1.
        columns: The features to regress on; all of them if not said.
        strata: `site` gives each site a baseline hazard of its own, and no event time leaves it. None gives
            all sites one baseline: sums over the risk set of every event time leave.
        ties: How events at the same time are counted.
        grid: The ends of public intervals that times are rounded up to; as they are if not said.
        robust: Whether standard errors allow for a wrong model (True), or for sites as clusters (`site`).
        ridge: Half of it, times the squared length of the coefficients, is taken off the log-likelihood.
        level: Of the confidence intervals.
        epsilon: There is no private version; it is refused, and the message names what there is.

    Raises:
        InvalidValue: A column is constant, says what others say, or has a coefficient without bound.
    """
    if epsilon is not None:
        raise NotSeparable(
            f"cox cannot protect single records (epsilon = {epsilon!r}): its sums couple everybody at risk. "
            "Train poisson-ph or logistic-hazard with Privacy, or test one column by logrank with epsilon"
        )
    require(strata in ("site", None), "strata", strata, '"site" or None')
    require_word("ties", ties, ("efron", "breslow"))
    require(robust in (False, True, "site"), "robust", robust, 'True, False or "site"')
    require(ridge == 0 or between(ridge, 0, np.inf), "ridge", ridge, "0 or a finite number above it")
    deviations(level)
    tables = _regressed(federation, columns)
    names = next(iter(tables.values())).columns
    fewer = robust != "site" or len(names) < len(tables)
    require(fewer, "robust", robust, "used with more sites than columns: it has one residual for each site")
    ends = None if grid is None else require_grid(grid)
    parts = newton.strata(tables, strata == "site", ties, ends)
    optimum = newton.maximise(parts, names, ridge)
    curvature = optimum.slope.information + ridge * np.eye(len(optimum.beta))
    inverse = np.asarray(np.linalg.inv(curvature), dtype=np.float64)
    return CoxFit(
        columns=names,
        coefficients=optimum.beta,
        covariance=newton.sandwich(parts, optimum.beta, inverse, robust == "site") if robust else inverse,
        model_covariance=inverse,
        log_likelihood=optimum.slope.log_likelihood,
        null_log_likelihood=optimum.null.log_likelihood,
        score=optimum.null.rise,
        records=sum(map(len, tables.values())),
        events=sum(int(part.deaths.sum()) for part in parts),
        concordance=concordance(tables.values(), optimum.beta),
        iterations=optimum.asked,
        strata=strata,
        ties=ties,
        grid=ends,
        ridge=ridge,
        robust=robust,
        level=level,
        provenance=_bare(federation, _sums_in_words(strata, robust, sum(len(p.deaths) for p in parts))),
    )


def proportional_hazards(federation: Federation, fit: CoxFit, *, transform: Transform = "rank") -> HazardTest:
    """Test whether effects stay the same over time, by the trend of scaled Schoenfeld residuals.

    Time is transformed within each stratum: to the rank of an event among the stratum's, to the stratum's
    Kaplan-Meier estimate of the share that has had one, or not (`identity`, `log`).

    Args:
        federation: The sites that the fit is of.
        fit: A Cox regression.
        transform: The scale on which a trend is looked for.
    """
    require_word("transform", transform, newton.TRANSFORMS)
    tables = _regressed(federation, fit.columns)
    parts = newton.strata(tables, fit.strata == "site", fit.ties, fit.grid)
    trend, spread = newton.trend(parts, fit.coefficients, transform)
    scaled = trend @ fit.model_covariance
    statistics = fit.events * scaled**2 / (fit.standard_errors**2 * spread)
    shown = {"statistic": statistics, "p": chi2.sf(statistics, 1)}
    table = pd.DataFrame(shown, index=pd.Index(fit.columns, name="covariate"))
    return HazardTest(table, transform, _bare(federation, "sums of residuals by transformed event times"))


def _counted(
    federation: Federation | LifeTable,
    *,
    grid: ArrayLike | None,
    epsilon: float | None,
    delta: float,
    ledger: Ledger | None,
    key: Key | None,
    by: str | None = None,
    causes: int | None = 1,
) -> LifeTable:
    """The exits of the sites, counted now unless they have been."""
    if isinstance(federation, LifeTable):
        new = bool(delta) or any(given is not None for given in (grid, epsilon, ledger, key))
        require(not new, "life table", "a new grid or epsilon", "used as it was counted and paid for")
        require(by in (None, federation.by), "by", by, f"{federation.by!r}, as the table was counted")
        return federation
    return life_table(
        federation, grid=grid, by=by, causes=causes, epsilon=epsilon, delta=delta, ledger=ledger, key=key
    )


def _masses(table: Table, log_risk: Callable[[Array], Array], limit: float, grid: Array) -> Array:
    """The site's half of Breslow's estimate: risks by interval of exit, those beyond the grid last."""
    risks = np.exp(np.clip(np.asarray(log_risk(table.features), dtype=np.float64), -limit, limit))
    require(bool(np.isfinite(risks).all()), "log_risk", "NaN or infinity for some records", "finite")
    interval = np.searchsorted(grid, table.targets["time"], side="left")
    return np.bincount(interval, weights=risks, minlength=len(grid) + 1).astype(np.float64)


def _regressed(federation: Federation, columns: Sequence[str] | None) -> dict[str, Table]:
    """The records of each site with these columns, once they are found valid."""
    names = federation.store.columns if columns is None else tuple(columns)
    known = federation.store.columns
    missing = [name for name in names if name not in known]
    if missing or not names:
        raise InvalidValue(f"columns {missing} are not allowed: there are {choices(known)}")
    places = [known.index(name) for name in names]
    tables: dict[str, Table] = {}
    for name in federation:
        table = federation.records_of(name)
        require_exits(table, 2, f"site {name}")
        tables[name] = Table(table.features[:, places], table.targets, names, table.place)
    return tables


def _sums_in_words(strata: str | None, robust: object, times: int) -> str:
    alone = "a log-likelihood, a gradient and an information matrix in every round"
    together = f"sums of columns, and over the risk sets of {times} event times in every round"
    also = ", sums of squared residuals" * bool(robust)
    return (alone if strata else together) + also + ", counts of records, events and concordant pairs"


def _bare(federation: Federation, what: str) -> str:
    return PUBLIC if federation.public else f"bare: {what}, from each of {len(federation)} sites"
