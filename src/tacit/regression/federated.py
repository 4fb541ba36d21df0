"""Linear, logistic and Poisson regression across sites.

In the open, the regressions take Newton steps (iteratively reweighted least squares) on sums that the sites
send, and equal the regressions of all records in one place. With `epsilon` they are fitted from noisy sums of
bounded records, and standard errors count the noise.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, ParamSpec, TypeVar

import numpy as np

from tacit.errors import Refused, require
from tacit.privacy.accounting import calibrate
from tacit.privacy.ledger.payment import PUBLIC, Payment, from_sites, is_paid
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.mechanisms.base import ROUNDED
from tacit.regression.bounded import BoundedRecords, Ranges, UnitScale, require_ranges
from tacit.regression.designs import OUTCOME, DesignMatrix, Variables, column_of, designs_of
from tacit.regression.families import FAMILIES, ResponseFamily
from tacit.regression.fit import RegressionFit, RegressionOptions, Robust
from tacit.regression.newton import Ascent, AscentState, Layout, LocalSlope, Squares, add_slopes, slope_of
from tacit.regression.private_fit import private_fit
from tacit.regression.private_path import Parts, PrivatePath
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.runtime.refusals import withholding
from tacit.runtime.silence import suppress_warnings
from tacit.sites.federation import RowFederation
from tacit.sites.record_checks import require_units

P = ParamSpec("P")
Result = TypeVar("Result")

# Rounds of a private regression.
ROUNDS = 10
PRIVATE = "noisy moments, then in every round a noisy score, and once an information matrix"
WHAT = "a log-likelihood, a score and an information matrix in every round, and counts of records"


def statistic(function: Callable[P, Result]) -> Callable[P, Result]:
    """Decorate a statistic of a `federation`: warnings and refusals disclose nothing of its records."""
    return suppress_warnings()(withholding(is_paid)(function))


def regress(
    federation: RowFederation,
    variables: Variables,
    family: ResponseFamily,
    options: RegressionOptions,
    payment: Payment,
    ranges: Ranges | None,
) -> RegressionFit:
    """Fit in the open, or from noisy sums that are paid for."""
    if payment.private:
        return fit_private(federation, variables, family, options, payment, ranges)
    require(ranges is None, "epsilon", None, "given with ranges, which apply only to it")
    return fit_open(federation, variables, family, options)


def fit_open(
    federation: RowFederation, variables: Variables, family: ResponseFamily, options: RegressionOptions
) -> RegressionFit:
    """Fit by Newton's method on sums that leave the sites as they are."""
    store = federation.store
    variables = variables.resolve(store.columns, tuple(store.targets))
    designs = designs_of({name: federation.records_of(name) for name in federation}, variables, family)
    names = tuple(designs) if options.strata == "site" else ()
    layout = Layout(len(names) or 1, len(variables.columns))
    require_clusters(options, layout, len(designs))
    ascent = Ascent(layout, family, variables.columns, names, options.ridge)
    state = AscentState.begin(layout)
    while not state.settled:
        state = ascent.advance(state, _sum(designs, family, state.trial, layout))
    squares = None
    if options.robust:
        kind: Squares = "site" if options.robust == "site" else "records"
        squares = _sum(designs, family, state.beta, layout, kind).squares
    provenance = PUBLIC if federation.public else f"bare: {WHAT}, {from_sites(len(designs))}"
    return build_fit(ascent, state, variables, options, len(designs), squares, provenance)


def fit_private(
    federation: RowFederation,
    variables: Variables,
    family: ResponseFamily,
    options: RegressionOptions,
    payment: Payment,
    ranges: Ranges | None,
) -> RegressionFit:
    """Fit from noisy sums of bounded records.

    Guarantee:
        All that leaves a site is `ROUNDS` sums of vectors no longer than 1, one for each record
        (`tacit.regression.bounded`), with Gaussian noise; together (epsilon, delta)-private for one record
        more or less. All of it is charged before any noise is drawn.
    """
    refuse_options(options)
    if payment.delta == 0:
        raise Refused(
            "delta = 0 takes Laplace noise, which is too much for a regression: give delta above 0, such as "
            "1e-5"
        )
    store = federation.store
    variables = variables.resolve(store.columns, tuple(store.targets))
    scale = UnitScale.of(family.kind, variables, require_ranges(family.kind, variables, ranges or {}))
    tables = {name: federation.records_of(name) for name in federation}
    for name, table in tables.items():
        family.require_outcome(column_of(table, variables.outcome), f"site {name}")
    if payment.protects:
        require_units(federation, payment.delta)
    assert payment.epsilon is not None
    # A little more than is charged: shares and their roots are rounded.
    whole = calibrate(epsilon=payment.epsilon, delta=payment.delta) * (1 + 1e-9)
    parts = [Parts.of(family.kind, number, ROUNDS) for number in range(1, ROUNDS + 1)]
    releases = [
        payment.release(
            1.0, f"{family.kind} regression: round {number}", multiplier=whole / np.sqrt(part.share)
        )
        for number, part in enumerate(parts, start=1)
    ]
    path = PrivatePath(scale, tuple(one.scale * np.sqrt(len(tables)) for one in releases))
    paid = payment.pay(releases, tables, f"{PRIVATE}, with gaussian noise")
    records, state = {name: scale.records(table) for name, table in tables.items()}, path.begin()
    for number, (part, release) in enumerate(zip(parts, releases, strict=True), start=1):
        summed: Array = np.zeros(1)
        for name, own in records.items():
            total = BoundedRecords(family.kind, own, state.point, part.weights).total(None)[0]
            # A little more noise than is charged, for the rounding of the sums (`mechanisms.base`).
            summed = summed + paid.add_noise(total, release, "round", number, name, rounded=ROUNDED)
        state = path.advance(state, summed)
    return private_fit(path, state, options.level, paid.provenance)


def refuse_options(options: RegressionOptions) -> None:
    """Refuse options without a private version."""
    require(options.strata is None, "strata", options.strata, "None under a promise: one intercept for all")
    allowed = "False under a promise: standard errors count the noise, not a wrong model"
    require(not options.robust, "robust", options.robust, allowed)
    require(options.ridge == 0, "ridge", options.ridge, "0 under a promise")


def require_clusters(options: RegressionOptions, layout: Layout, sites: int) -> None:
    """Refuse clusters that are too few for a covariance."""
    enough = options.robust != "site" or layout.size < sites
    require(enough, "robust", options.robust, "used with more sites than coefficients: each has one score")


def build_fit(
    ascent: Ascent,
    state: AscentState,
    variables: Variables,
    options: RegressionOptions,
    sites: int,
    squares: Array | None,
    provenance: str,
) -> RegressionFit:
    """Build the fit from the final state of Newton's method.

    Args:
        ascent: The rule of the steps.
        state: The final state.
        variables: The variables.
        options: The options.
        sites: Number of sites.
        squares: Outer products of scores, for robust standard errors.
        provenance: How the sums left the sites.
    """
    assert state.here is not None
    assert state.null is not None
    family, records, size = ascent.family, state.here.records, ascent.layout.size
    inverse = ascent.covariance(state)
    dispersion, likelihoods = 1.0, [state.here.log_likelihood, state.null.log_likelihood]
    if family.dispersed:
        dispersion = -2 * likelihoods[0] / max(records - size, 1)
        likelihoods = [-records / 2 * (np.log(-4 * np.pi * one / records) + 1) for one in likelihoods]
    model = dispersion * inverse
    covariance = model if squares is None else inverse @ squares @ inverse
    if options.robust == "site":
        covariance = covariance * sites / (sites - 1) * (records - 1) / max(records - size, 1)
    intercepts = tuple(f"intercept {name}" for name in ascent.groups) or ("intercept",)
    return RegressionFit(
        **vars(options),
        kind=family.kind,
        outcome=variables.outcome,
        columns=(*intercepts, *variables.columns),
        intercepts=len(intercepts),
        coefficients=state.beta,
        covariance=covariance,
        model_covariance=model,
        log_likelihood=float(likelihoods[0]),
        null_log_likelihood=float(likelihoods[1]),
        dispersion=dispersion,
        records=round(records),
        iterations=state.asked,
        provenance=provenance,
    )


def _sum(
    designs: Mapping[str, DesignMatrix],
    family: ResponseFamily,
    beta: Array,
    layout: Layout,
    squares: Squares = "none",
) -> LocalSlope:
    """Return the sum of the sites' slopes."""
    groups = range(len(designs)) if layout.groups > 1 else [0] * len(designs)
    slopes = [
        slope_of(design, family, beta, layout, group, squares)
        for group, design in zip(groups, designs.values(), strict=True)
    ]
    return add_slopes(slopes)


@statistic
def linear(
    federation: RowFederation,
    outcome: str = OUTCOME,
    *,
    columns: Sequence[str] | None = None,
    strata: Literal["site"] | None = None,
    robust: Robust = False,
    ridge: float = 0.0,
    level: float = 0.95,
    epsilon: float | None = None,
    delta: float = 0.0,
    ranges: Ranges | None = None,
    ledger: Ledger | None = None,
    key: Key | None = None,
) -> RegressionFit:
    """Linear regression by least squares, on sums that the sites send.

    Args:
        federation: The sites.
        outcome: The target, or the feature, that is regressed.
        columns: The features to regress on; by default all that have no other part.
        strata: `site` gives each site an intercept of its own; None gives all sites one.
        robust: Whether standard errors allow for a wrong model (True: sandwich, HC0), or for sites as
            clusters (`site`).
        ridge: Half of it, times the squared length of the columns' coefficients, is added to half of the
            squared residuals.
        level: Confidence level of the intervals.
        epsilon: Cost of the fit for any one record; by default sums leave unprotected. Standard errors count
            the noise.
        delta: The probability with which epsilon may fail; above 0.
        ranges: With epsilon, the public least and largest value of each column and of the
            outcome; values beyond are cut off.
        ledger: Charged with all releases of each site before any noise is drawn.
        key: Source of the noise, by default the operating system.

    Raises:
        InvalidValue: A column is constant, or says what others say.

    Guarantee:
        With `epsilon`, everything that leaves a site together is (epsilon, delta)-private for one record more
        or less at the site.
    """
    options = RegressionOptions(strata=strata, robust=robust, ridge=ridge, level=level)
    variables = Variables(outcome=outcome, columns=tuple(columns or ()))
    payment = Payment(epsilon=epsilon, delta=delta, ledger=ledger, key=key, records=federation)
    return regress(federation, variables, FAMILIES["linear"], options, payment, ranges)


@statistic
def logistic(
    federation: RowFederation,
    outcome: str = OUTCOME,
    *,
    columns: Sequence[str] | None = None,
    strata: Literal["site"] | None = None,
    robust: Robust = False,
    ridge: float = 0.0,
    level: float = 0.95,
    epsilon: float | None = None,
    delta: float = 0.0,
    ranges: Ranges | None = None,
    ledger: Ledger | None = None,
    key: Key | None = None,
) -> RegressionFit:
    """Logistic regression of an outcome of 0 and 1, by Newton steps on sums that the sites send.

    Args:
        federation: The sites.
        outcome: As for `linear`.
        columns: As for `linear`.
        strata: As for `linear`.
        robust: As for `linear`.
        ridge: Half of it, times the squared length of the columns' coefficients, is taken off the
            log-likelihood.
        level: Confidence level of the intervals.
        epsilon: Cost of the fit for any one record; by default sums leave unprotected. Standard errors count
            the noise.
        delta: The probability with which epsilon may fail; above 0.
        ranges: With epsilon, the public least and largest value of each column; values beyond are cut
            off.
        ledger: Charged with all releases of each site before any noise is drawn.
        key: Source of the noise, by default the operating system.

    Raises:
        InvalidValue: A column is constant, says what others say, or separates the outcomes, so that its
            coefficient has no bound.
    """
    options = RegressionOptions(strata=strata, robust=robust, ridge=ridge, level=level)
    variables = Variables(outcome=outcome, columns=tuple(columns or ()))
    payment = Payment(epsilon=epsilon, delta=delta, ledger=ledger, key=key, records=federation)
    return regress(federation, variables, FAMILIES["logistic"], options, payment, ranges)


@statistic
def poisson(
    federation: RowFederation,
    outcome: str = OUTCOME,
    *,
    columns: Sequence[str] | None = None,
    exposure: str | None = None,
    offset: str | None = None,
    strata: Literal["site"] | None = None,
    robust: Robust = False,
    ridge: float = 0.0,
    level: float = 0.95,
    epsilon: float | None = None,
    delta: float = 0.0,
    ranges: Ranges | None = None,
    ledger: Ledger | None = None,
    key: Key | None = None,
) -> RegressionFit:
    """Poisson regression of counts, by Newton steps on sums that the sites send.

    Args:
        federation: The sites.
        outcome: As for `linear`.
        columns: As for `linear`.
        exposure: The column of exposures, above 0: coefficients are of log rates, counts over exposure.
        offset: The column that is added to the log of the expected count as it is.
        strata: As for `linear`.
        robust: As for `linear`.
        ridge: As for `logistic`.
        level: Confidence level of the intervals.
        epsilon: Cost of the fit for any one record; by default sums leave unprotected. Standard errors count
            the noise.
        delta: The probability with which epsilon may fail; above 0.
        ranges: With epsilon, the public least and largest value of each column, of the outcome and of
            the exposure; values beyond are cut
            off.
        ledger: Charged with all releases of each site before any noise is drawn.
        key: Source of the noise, by default the operating system.

    Raises:
        InvalidValue: As for `logistic`.
    """
    options = RegressionOptions(strata=strata, robust=robust, ridge=ridge, level=level)
    variables = Variables(outcome=outcome, columns=tuple(columns or ()), exposure=exposure, offset=offset)
    payment = Payment(epsilon=epsilon, delta=delta, ledger=ledger, key=key, records=federation)
    return regress(federation, variables, FAMILIES["poisson"], options, payment, ranges)
