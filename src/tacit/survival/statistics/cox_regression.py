"""Cox regression across sites, its test of proportional hazards, and Breslow's baseline hazard.

In the open, the regression takes Newton steps on sums that the sites send, and equals the regression of all
records in one place. With `epsilon` it is fitted from noisy sums, which `private_cox` takes; the partial
likelihood itself couples all records at risk and has no private version.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import chi2

from tacit.errors import Refused, is_between, require, require_word
from tacit.privacy.ledger.payment import PUBLIC, Payment, from_sites
from tacit.privacy.ledger.store import Ledger
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.runtime.silence import suppress_warnings
from tacit.sites.federation import RowFederation
from tacit.sites.record_checks import require_units
from tacit.sites.table import Table
from tacit.survival.life_table import (
    FIRM,
    LifeTable,
    ratio,
    refuse_weights,
    regression_table,
    require_grid,
    select_names,
)
from tacit.survival.metrics.concordance import concordance
from tacit.survival.statistics import cox_newton, private_cox
from tacit.survival.statistics.cox_fit import CoxFit, CoxOptions, PrivateCoxFit
from tacit.survival.statistics.cox_newton import TRANSFORMS, Ties, Transform
from tacit.survival.statistics.curves import (
    Estimate,
    HazardTest,
    estimate,
)
from tacit.survival.statistics.federated import life_table as life_table
from tacit.survival.statistics.federated import statistic


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


@statistic
def cox(
    federation: RowFederation,
    *,
    columns: Sequence[str] | None = None,
    strata: Literal["site"] | None = "site",
    ties: Ties = "efron",
    grid: ArrayLike | None = None,
    robust: bool | Literal["site"] = False,
    ridge: float = 0.0,
    level: float = 0.95,
    epsilon: float | None = None,
    delta: float = 0.0,
    bound: float | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    ledger: Ledger | None = None,
    key: Key | None = None,
) -> CoxFit:
    """Cox regression by Newton steps on sums that the sites send.

    Args:
        federation: Sites whose records have a `time` above 0 and an `event`, 0 or 1. They may have an
            `entry`, from when on they are at risk, and, in the open, a `weight`.
        columns: The features to regress on; by default all of them.
        strata: `site` gives each site a baseline hazard of its own, and no event time leaves it. None gives
            all sites one baseline: sums over the risk set of every event time leave.
        ties: Method for events at the same time.
        grid: The ends of public intervals that times are rounded up to; by default exact times.
        robust: Whether standard errors allow for a wrong model (True), or for sites as clusters (`site`).
        ridge: Half of it, times the squared length of the coefficients, is taken off the log-likelihood.
        level: Of the confidence intervals.
        epsilon: Cost of the fit for any one record; by default sums leave unprotected. With it, hazards are
            constant within the intervals of `grid`, and standard errors count the noise.
        delta: The probability with which epsilon may fail; above 0.
        bound: With epsilon, the longest a record's features may be; longer ones are shortened.
        ranges: With epsilon, the least and largest value of columns. Values beyond are cut off, and `bound`
            applies to features scaled to -1 up to 1; by default it is then their largest length.
        ledger: Charged with all releases of each site before any noise is drawn.
        key: Source of the noise, by default the operating system.

    Raises:
        InvalidValue: A column is constant, says what others say, or has a coefficient without bound.

    Guarantee:
        With `epsilon`, everything that leaves a site together is (epsilon, delta)-private for one record more
        or less at the site.
    """
    payment = Payment(epsilon=epsilon, delta=delta, ledger=ledger, key=key, records=federation)
    ends = None if grid is None else require_grid(grid)
    options = CoxOptions(strata=strata, ties=ties, grid=ends, ridge=ridge, robust=robust, level=level)
    tables = _regression_tables(federation, columns)
    if payment.protects:
        require_units(federation, delta)
    if payment.private:
        private_cox.refuse_options(federation, options)
        limit = private_cox.feature_bounds(tables, bound, ranges)
        return private_cox.fit(tables, options, payment, limit)
    require(
        bound is None and ranges is None,
        "epsilon",
        None,
        "given with bound or ranges, which apply only to it",
    )
    return _fit_open(federation, tables, options)


@suppress_warnings()
def proportional_hazards(
    federation: RowFederation, fit: CoxFit, *, transform: Transform = "rank"
) -> HazardTest:
    """Test for proportional hazards, by the trend of scaled Schoenfeld residuals.

    Time is transformed within each stratum: to the rank of an event among the stratum's, to the stratum's
    Kaplan-Meier estimate of the share that has had one, or not (`identity`, `log`).

    Args:
        federation: The sites that the fit is of.
        fit: A Cox regression.
        transform: The scale on which a trend is looked for.
    """
    require_word("transform", transform, TRANSFORMS)
    if isinstance(fit, PrivateCoxFit):
        raise Refused(
            "proportional_hazards has no private version: it would release sums of residuals without "
            "protection. Fit without epsilon if that is allowed"
        )
    tables = _regression_tables(federation, fit.columns)
    parts = cox_newton.strata_of(tables, fit.strata == "site", fit.ties, fit.grid)
    trend, spread = cox_newton.trend(parts, fit.coefficients, transform)
    scaled = trend @ fit.model_covariance
    statistics = scaled**2 / (fit.standard_errors**2 * spread)
    shown = {"statistic": statistics, "p": chi2.sf(statistics, 1)}
    table = pd.DataFrame(shown, index=pd.Index(fit.columns, name="covariate"))
    return HazardTest(
        table, transform, _provenance(federation, "sums of residuals by transformed event times")
    )


def _fit_open(federation: RowFederation, tables: Mapping[str, Table], options: CoxOptions) -> CoxFit:
    names, robust = next(iter(tables.values())).columns, options.robust
    fewer = robust != "site" or len(names) < len(tables)
    require(fewer, "robust", robust, "used with more sites than columns: it has one residual for each site")
    parts = cox_newton.strata_of(tables, options.strata == "site", options.ties, options.grid)
    optimum = cox_newton.maximise(parts, names, options.ridge)
    inverse, ordered = optimum.inverse(options.ridge), concordance(tables.values(), optimum.beta)
    by_site = robust == "site"
    what = _sums_in_words(options.strata, robust, sum(len(part.deaths) for part in parts))
    return options.fit(
        names,
        optimum,
        covariance=cox_newton.sandwich(parts, optimum.beta, inverse, by_site) if robust else inverse,
        records=sum(map(len, tables.values())),
        events=sum(int(part.deaths.sum()) for part in parts),
        concordance=ordered.value,
        concordance_error=ordered.error,
        provenance=_provenance(federation, what),
    )


def _regression_tables(federation: RowFederation, columns: Sequence[str] | None) -> dict[str, Table]:
    """The records of each site with these columns, once they are found valid."""
    names = select_names(federation.store.columns, columns)
    return {name: regression_table(federation.records_of(name), names, f"site {name}") for name in federation}


def _sums_in_words(strata: str | None, robust: object, times: int) -> str:
    alone = "a log-likelihood, a gradient and an information matrix in every round"
    together = f"sums of columns, and over the risk sets of {times} event times in every round"
    also = ", sums of squared residuals" * bool(robust)
    return (alone if strata else together) + also + ", counts of records, events and concordant pairs"


def _provenance(federation: RowFederation, what: str) -> str:
    return PUBLIC if federation.public else f"bare: {what}, {from_sites(len(federation))}"
