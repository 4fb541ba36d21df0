"""Cox regression across sites, in the open or with noise, and its test of proportional hazards.

In the open, the regression takes Newton steps on sums that the sites send, and equals the regression of all
records in one place.

With `epsilon` it is fitted from noisy sums of bounded contributions (`private_cox`): the partial likelihood
itself couples all records at risk and has no private version.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import chi2

from tacit.errors import Refused, is_between, require, require_word
from tacit.privacy.ledger.payment import PUBLIC, Payment, from_sites
from tacit.privacy.ledger.store import Ledger
from tacit.runtime.keys import Key
from tacit.runtime.silence import suppress_warnings
from tacit.sites.encoding import Encoding
from tacit.sites.federation import RowFederation
from tacit.sites.record_checks import require_units
from tacit.sites.table import Table
from tacit.survival.life_table import (
    regression_table,
    require_grid,
    select_names,
)
from tacit.survival.metrics.concordance import concordance
from tacit.survival.statistics import cox_newton, private_cox
from tacit.survival.statistics.cox_fit import CoxFit, CoxOptions, PrivateCoxFit
from tacit.survival.statistics.cox_newton import TRANSFORMS, Ties, Transform
from tacit.survival.statistics.curves import (
    HazardTest,
)
from tacit.survival.statistics.federated import life_table as life_table
from tacit.survival.statistics.federated import statistic


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
    followed: float | None = None,
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
        bound: With epsilon, features are cut to this length in the release of their moments, 1.5 times the
            root of their number by default. With a bound, columns without a range count as centered and in
            units of their deviation; nothing else depends on their lengths, and long ones are not cut.
        ranges: With epsilon, the least and largest value of columns. Values beyond are cut off. Columns with
            levels, and with a public center and scale, need none.
        followed: With epsilon, the number of expected events up to which a typical record is followed; by
            default between 1.5 and 12, as many as keep the noise near half a standard error. More means less
            bias of effects that are not log-linear, and more noise.
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
        return private_cox.fit(
            tables, options, payment, _private_design(federation, tables, options, (bound, ranges, followed))
        )
    idle = bound is None and ranges is None and followed is None
    require(idle, "epsilon", None, "given with bound, ranges or followed, which apply only to it")
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


def _private_design(
    federation: RowFederation,
    tables: Mapping[str, Table],
    options: CoxOptions,
    choices: tuple[float | None, Mapping[str, tuple[float, float]] | None, float | None],
) -> private_cox.CoxDesign:
    """Return the public design of a private fit."""
    assert options.grid is not None
    columns, (bound, ranges, followed) = next(iter(tables.values())).columns, choices
    if followed is not None:
        require(is_between(followed, 1, 100), "followed", followed, "above 1 and below 100")
    encoding = federation.encoding or Encoding()
    return private_cox.CoxDesign(
        columns=columns,
        ends=options.grid,
        limits=private_cox.feature_limits(columns, encoding, ranges or {}, bound),
        sites=tuple(tables),
        by_site=options.strata == "site" and len(tables) > 1,
        late="entry" in federation.store.targets,
        followed=followed,
    )


def _regression_tables(federation: RowFederation, columns: Sequence[str] | None) -> dict[str, Table]:
    """Return the valid records of each site, with these columns."""
    names = select_names(federation.store.columns, columns)
    return {name: regression_table(federation.records_of(name), names, f"site {name}") for name in federation}


def _sums_in_words(strata: str | None, robust: object, times: int) -> str:
    alone = "a log-likelihood, a gradient and an information matrix in every round"
    together = f"sums of columns, and over the risk sets of {times} event times in every round"
    also = ", sums of squared residuals" * bool(robust)
    return (alone if strata else together) + also + ", counts of records, events and concordant pairs"


def _provenance(federation: RowFederation, what: str) -> str:
    return PUBLIC if federation.public else f"bare: {what}, {from_sites(len(federation))}"
