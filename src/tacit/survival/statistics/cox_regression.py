"""Cox regression across sites, in the open or with noise, and its test of proportional hazards.

In the open, the regression takes Newton steps on sums that the sites send, and equals the regression of all
records in one place.

The partial likelihood couples all records at risk and has no private version. With `epsilon`, hazards are
constant within intervals: their likelihood is a sum over records, and nearly the same. Each site first
releases a histogram of exits, from which the baseline takes its shape. Then, in every round, each record
contributes one bounded vector: its part of the score and of the information in three regressors, which are a
constant, a public function of time, and its features. A record is followed only until one event was to be
expected of it: that censors by known facts, biases nothing, and bounds every part, whatever the record. The
server takes Newton steps on the noisy sums and averages the estimates of all later rounds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import chi2

from tacit.errors import InvalidValue, NotSeparable, Refused, choices, require, require_positive, require_word
from tacit.learning.kernels import multiply_rows
from tacit.privacy.accounting import calibrate
from tacit.privacy.ledger.payment import PUBLIC, Payment, from_sites
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.mechanisms.base import ROUNDED
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.runtime.silence import suppress_warnings
from tacit.sites.federation import RowFederation
from tacit.sites.record_checks import require_units
from tacit.sites.table import Table
from tacit.survival.life_table import (
    Exits,
    LifeTable,
    exit_cells,
    refuse_weights,
    regression_table,
    require_grid,
    select_names,
)
from tacit.survival.metrics.concordance import concordance
from tacit.survival.models.newton_steps import CHUNK, FollowUp, follow_up
from tacit.survival.statistics import cox_newton
from tacit.survival.statistics.cox_fit import CoxFit, CoxOptions, PrivateCoxFit
from tacit.survival.statistics.cox_newton import TRANSFORMS, Ties, Transform
from tacit.survival.statistics.curves import (
    HazardTest,
)
from tacit.survival.statistics.federated import life_table as life_table
from tacit.survival.statistics.federated import statistic

# Number of rounds, and the share of the budget that the histogram before takes.
ROUNDS, HISTOGRAM = 8, 0.12
# With less information than this, in units of the noise's own, nothing is shown.
USABLE = 0.5
WHAT = "exits by interval and state, then in every round a score and an information matrix"
# The rounds that each round averages from: the first are far away, and left out as soon as possible.
FIRST = (0, 0, 1, 2)
# A step changes the log hazard of a record at the bound by this at most.
STRIDE = 3.0
# Length of the constant and of the function of time beside features of length 1.
CONSTANT = 1 / 3
# The longest regressor, squared: features of length 1, a constant, and a function of time between -1 and 1.
LONGEST = 1 + 2 * CONSTANT**2


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
        refuse_options(federation, options)
        limit = feature_bounds(tables, bound, ranges)
        return _fit_private(tables, options, payment, limit)
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


@dataclass(frozen=True, eq=False)
class FeatureBounds:
    """Scaling of features into the unit ball, by public numbers alone.

    Args:
        low: The least value of each column (columns,).
        high: The largest (columns,).
        centre: The center, which is subtracted (columns,).
        scale: The divisor of the rest (columns,).
        bound: The longest that the result may be.
    """

    low: Array
    high: Array
    centre: Array
    scale: Array
    bound: float

    def scale_to_unit(self, features: Array) -> Array:
        """Features of length 1 at most (records, columns); huge ones keep their direction."""
        moved = (np.clip(features, self.low, self.high) - self.centre) / self.scale
        peak = np.maximum(np.abs(moved).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        way = moved / peak
        # A way is 1 long at least, so that whatever is larger than the bound is beyond it anyway.
        return way * np.minimum(
            np.minimum(peak, self.bound) / self.bound,
            1 / np.maximum(np.linalg.norm(way, axis=1, keepdims=True), 1),
        )


def refuse_options(federation: RowFederation, options: CoxOptions) -> None:
    """Refuse options without a private version, and name the alternative."""
    refuse_weights(federation)
    if options.grid is None:
        raise NotSeparable(
            "grid = None would fit the partial likelihood, which couples all records at risk and cannot "
            "protect single ones: give the ends of public intervals, such as numpy.linspace(0, horizon, "
            "11)[1:]"
        )
    allowed = "False with epsilon: standard errors account for the noise, not for a wrong model"
    require(not options.robust, "robust", options.robust, allowed)
    require(options.ridge == 0, "ridge", options.ridge, "0 with epsilon")


def feature_bounds(
    tables: Mapping[str, Table], bound: float | None, ranges: Mapping[str, tuple[float, float]] | None
) -> FeatureBounds:
    """Return the agreed bounds of features; the records are not read."""
    columns = next(iter(tables.values())).columns
    if ranges is None:
        if bound is None:
            raise Refused(
                "bound = None is not private: the features of one record are not bounded. Give the ranges of "
                'all columns, such as ranges={"age": (18, 100)}, or a bound on the norm of standardized '
                "ones"
            )
        require_positive("bound", bound)
        everywhere, still = np.full(len(columns), np.inf), np.zeros(len(columns))
        return FeatureBounds(-everywhere, everywhere, still, np.ones(len(columns)), bound)
    if set(ranges) != set(columns):
        raise InvalidValue(f"ranges of {choices(ranges)} are not allowed: give those of {choices(columns)}")
    for name in columns:
        low, high = (float(end) for end in ranges[name])
        require(0 < high - low < np.inf, f"ranges of {name}", ranges[name], "finite and ascending")
    ends = np.array([ranges[name] for name in columns], dtype=np.float64)
    widest = np.sqrt(len(columns)) if bound is None else bound
    require_positive("bound", widest)
    low, high = ends.T
    return FeatureBounds(low, high, (low + high) / 2, (high - low) / 2, float(widest))


def _fit_private(
    tables: Mapping[str, Table],
    options: CoxOptions,
    payment: Payment,
    limit: FeatureBounds,
) -> PrivateCoxFit:
    """Fit from noisy sums that have been charged for.

    Guarantee:
        All that leaves a site is one histogram and `ROUNDS` sums of vectors no longer than 1, one for each
        record, with Gaussian noise; together (epsilon, delta)-private for one record more or less. All of it
        is charged before any noise is drawn.
    """
    assert options.grid is not None
    sites = _Sites(tables, options.grid, limit, payment)
    exits = sites.histogram()
    path = NewtonPath.begin(exits, Scales(sites.steps.scale, len(limit.scale)), options.strata == "site")
    for number in range(ROUNDS):
        levels, slopes = path.query_point()
        path = path.step(sites.answers(levels, path.trend, slopes, number))
    units = limit.bound * limit.scale
    found, model, noisy = path.estimate()
    # Noise that hides everything is not to be read as a number.
    signal, count = path.signal, exits.exits()
    units = units if signal >= USABLE else np.full(len(units), np.nan)
    return PrivateCoxFit(
        **vars(replace(options, ties="breslow")),
        columns=next(iter(tables.values())).columns,
        coefficients=found / units,
        covariance=(model + noisy) / np.outer(units, units),
        model_covariance=model / np.outer(units, units),
        noise_covariance=noisy / np.outer(units, units),
        signal=signal,
        table=exits,
        **dict.fromkeys(("log_likelihood", "null_log_likelihood", "score", "concordance"), float("nan")),
        records=round(float(count.records.sum())),
        events=round(float(count.happened.sum())),
        iterations=ROUNDS,
        provenance=sites.paid.provenance,
    )


class _Sites:
    """Sites of a private fit: their answers are paid for and carry noise."""

    def __init__(
        self, tables: Mapping[str, Table], grid: Array, limit: FeatureBounds, payment: Payment
    ) -> None:
        if payment.delta == 0:
            raise Refused(
                "delta = 0 takes Laplace noise, which is too much for a regression: give delta "
                "above 0, such as 1e-5"
            )
        assert payment.epsilon is not None
        self.tables, self.grid = tables, grid
        self.late = any("entry" in table.targets for table in tables.values())
        self.records = {
            name: follow_up(table, grid, limit.scale_to_unit(table.features))
            for name, table in tables.items()
        }
        # Gaussians add up by the inverse squares of their multipliers: each has its share of the budget.
        multiplier = calibrate(epsilon=payment.epsilon, delta=payment.delta)
        self.counts = payment.release(
            float(np.sqrt(1.0 + self.late)),
            "Cox regression: exits by interval",
            multiplier=multiplier / HISTOGRAM**0.5,
        )
        self.steps = payment.release(
            1.0,
            "Cox regression: score and information",
            multiplier=multiplier * (ROUNDS / (1 - HISTOGRAM)) ** 0.5,
            count=ROUNDS,
        )
        self.paid = payment.pay([self.counts, self.steps], tables, f"{WHAT}, with gaussian noise")

    def histogram(self) -> LifeTable:
        """Exits by interval and state, with noise."""
        noisy = [
            self.paid.add_noise(exit_cells(table, self.grid, 2, None), self.counts, "exits", name)
            for name, table in self.tables.items()
        ]
        counted, variance = np.stack(noisy)[:, None], self.counts.scale**2
        return LifeTable(
            self.grid, counted, tuple(self.tables), None, variance, False, self.paid.provenance, self.late
        )

    def answers(self, levels: Array, trend: Array, slopes: Array, number: int) -> Array:
        """Return the noisy sum of the record vectors at each site (sites, `vector_size` of the columns).

        Args:
            levels: The log hazard of each interval at each site (sites, intervals).
            trend: The function of time beside the constant (intervals,).
            slopes: The coefficients of unit features (columns,).
            number: The round.
        """
        told: list[Array] = []
        for (name, records), level in zip(self.records.items(), levels, strict=True):
            summed = _site_sum(records, level, trend, slopes)
            # A little more noise than is charged, for the rounding of the sums (`mechanisms.base`).
            told.append(self.paid.add_noise(summed, self.steps, "round", number, name, rounded=ROUNDED))
        return np.stack(told)


def _site_sum(records: FollowUp, level: Array, trend: Array, slopes: Array) -> Array:
    """The sum over a site's records, a few at a time."""
    total = np.zeros(vector_size(len(slopes)))
    for start in range(0, len(records), CHUNK):
        total += record_vectors(records.chunk(start), level, trend, slopes).sum(axis=0)
    return total


@dataclass(frozen=True)
class Scales:
    """The noise of one site's answer in one round.

    Args:
        noise: The standard deviation in each entry of a sum of unit vectors.
        columns: Number of features.
    """

    noise: float
    columns: int

    @property
    def score(self) -> float:
        """In each entry of the score."""
        return self.noise * largest_norm()

    @property
    def information(self) -> float:
        """In each entry on the diagonal of the information; beside it, less by the root of 2."""
        return self.noise * largest_norm() * float(np.sqrt(LONGEST))

    def decode(self, answers: Array) -> tuple[Array, Array]:
        """Scores (sites, regressors) and information matrices (sites, regressors, regressors)."""
        regressors = self.columns + 2
        scores = answers[:, :regressors] * largest_norm()
        rows, others = np.triu_indices(regressors)
        weights = np.where(rows == others, 1.0, np.sqrt(0.5)) * largest_norm() * np.sqrt(LONGEST)
        matrices = np.zeros((len(answers), regressors, regressors))
        matrices[:, rows, others] = matrices[:, others, rows] = answers[:, regressors:] * weights
        return scores, matrices


@dataclass(frozen=True, eq=False)
class NewtonRound:
    """Answers of the sites in one round, and their point in the function of time and the features."""

    point: Array
    scores: Array
    matrices: Array


@dataclass(frozen=True, eq=False)
class NewtonPath:
    """The rounds so far.

    Args:
        scales: The noise.
        base: The log of the events expected in each interval, at level 0 (intervals,).
        trend: The function of time beside a constant that corrects it (intervals,).
        levels: Level added for each site (sites,).
        shared: Number of sites that share a level.
        point: The coefficients of the function of time and of the features (1 + columns,).
        rounds: Points and answers of past rounds.
    """

    scales: Scales
    base: Array
    trend: Array
    levels: Array
    shared: int
    point: Array
    rounds: tuple[NewtonRound, ...] = ()

    @classmethod
    def begin(cls, table: LifeTable, scales: Scales, by_site: bool) -> "NewtonPath":
        """From no effect, and hazards as the noisy histogram has them."""
        everybody, each = table.exits(), table.exits("site")
        spread = np.sqrt(everybody.variance)
        happened, lived = everybody.happened[0], _person_intervals(everybody)[0]
        rate = max(happened.sum(), 1.0) / max(lived.sum(), 1.0)
        # As if a few more had lived and died at the mean rate, as many as noise could hide.
        hazard = (happened + spread) / (lived + spread / rate)
        doubt = np.sqrt(each.variance * len(hazard))
        due = (_person_intervals(each) * hazard).sum(axis=1)
        ratio = (each.happened.sum(axis=1) + doubt) / (due + doubt)
        smooth = happened + spread / 3
        middle = (np.cumsum(smooth) - smooth / 2) / smooth.sum()
        sites = len(table.sites)
        return cls(
            scales,
            np.log(hazard),
            2 * middle - 1,
            np.log(ratio) if by_site else np.zeros(sites),
            1 if by_site else sites,
            np.zeros(scales.columns + 1),
        )

    def query_point(self) -> tuple[Array, Array]:
        """The log hazards (sites, intervals) and slopes (columns,) to ask the sites at."""
        return self.levels[:, None] + self.base + CONSTANT * self.point[0] * self.trend, self.point[1:]

    def step(self, answers: Array) -> "NewtonPath":
        """Advance by one round."""
        scores, matrices = self.scales.decode(answers)
        if self.shared > 1:
            scores, matrices = scores.sum(axis=0, keepdims=True), matrices.sum(axis=0, keepdims=True)
        here = replace(self, rounds=(*self.rounds, NewtonRound(self.point, scores, matrices)))
        found, means, events = here._average_steps(damped=True)
        step = found - self.point
        step *= min(1.0, STRIDE / max(float(np.linalg.norm(step)), 1e-12))
        # The level absorbs the remaining events, as if as many more as noise could hide were expected.
        doubt = self.scales.score * np.sqrt(self.shared) / CONSTANT
        ratio = np.maximum(events + doubt + scores[:, 0] / CONSTANT, doubt / 2) / (events + doubt)
        change = np.log(np.clip(ratio, 1 / 3, 3.0)) - CONSTANT * (means @ step)
        return replace(here, point=self.point + step, levels=self.levels + change)

    @property
    def signal(self) -> float:
        """The least information about any combination of features, in units of that which noise pretends."""
        matrix, _, _, pretended = self._information()
        own = np.linalg.inv(np.linalg.inv(matrix)[1:, 1:])
        return float(np.linalg.eigvalsh((own + own.T) / 2)[0] / pretended)

    def estimate(self) -> tuple[Array, Array, Array]:
        """Return the coefficients, their covariance by the model, and the addition of the noise."""
        found, means, _ = self._average_steps(damped=False)
        matrix = self._information()[0]
        inverse = np.linalg.inv(matrix)
        alike = np.eye(len(matrix)) * len(means) + means.T @ means
        variance = self.scales.score**2 * self.shared / len(self._used)
        noisy = np.asarray(variance * inverse @ alike @ inverse, dtype=np.float64)
        return found[1:], np.asarray(inverse[1:, 1:], dtype=np.float64), noisy[1:, 1:]

    @property
    def _used(self) -> tuple[NewtonRound, ...]:
        return self.rounds[FIRST[min(len(self.rounds), len(FIRST)) - 1] :]

    def _average_steps(self, damped: bool) -> tuple[Array, Array, Array]:
        """Return the average Newton step over rounds; mean regressors and expected events of each stratum."""
        matrix, means, events, pretended = self._information()
        values, vectors = np.linalg.eigh(matrix)
        # Directions that noise may have made up are followed with care.
        inverse = vectors / (np.abs(values) + pretended * damped) @ vectors.T
        steps = [(one.scores[:, 1:] - means * one.scores[:, :1]).sum(axis=0) for one in self._used]
        found = [one.point + inverse @ step for one, step in zip(self._used, steps, strict=True)]
        return np.mean(found, axis=0), means, events

    def _information(self) -> tuple[Array, Array, Array, float]:
        """Return the information with profiled levels; means, events, and the noise's contribution."""
        mean = np.mean([one.matrices for one in self._used], axis=0)
        noise = self.scales.information * np.sqrt(self.shared / len(self._used))
        corner = np.maximum(mean[:, 0, 0], noise)
        means = mean[:, 0, 1:] / corner[:, None]
        size = means.shape[1]
        # The square of a noisy mean is too large by the variance of its noise.
        excess = np.eye(size) * (noise**2 / 2 / corner).sum()
        matrix = (mean[:, 1:, 1:] - corner[:, None, None] * means[:, :, None] * means[:, None, :]).sum(axis=0)
        # The spectral norm of a symmetric matrix of noise, and the function of time held to 0 by as much.
        pretended = float(noise * np.sqrt(2 * size * len(mean)))
        held = np.zeros((size, size))
        held[0, 0] = pretended
        return matrix + excess + held, means, corner / CONSTANT**2, pretended


def _person_intervals(exits: Exits) -> Array:
    """Return person-intervals (groups, intervals); leaving and entering records count for half of one."""
    partly = exits.happened + exits.censored
    partly = partly if exits.entered is None else partly + exits.entered[:, :-1]
    return np.maximum(exits.at_risk - partly / 2, 0.0)


def vector_size(columns: int) -> int:
    """The length of a record's vector: a score and the upper half of a matrix."""
    regressors = columns + 2
    return regressors + regressors * (regressors + 1) // 2


def largest_norm() -> float:
    """Bound of score and information together, before they are divided by it.

    With m events expected and d seen, the score is at its longest for m = 0 or m = 1, as its square is
    convex in m: `LONGEST` for d + m = 1, and 4 `CONSTANT`^2, which is less, for d = m = 1. The information is
    m `LONGEST` long at most, and weighed to be as long as the score.
    """
    return float(np.sqrt(2 * LONGEST))


def record_vectors(records: FollowUp, level: Array, trend: Array, slopes: Array) -> Array:
    """Return the vector of each record (records, `vector_size` of the columns).

    Args:
        records: Some of a site's records.
        level: The log of the events expected of a record with features 0 in each interval (intervals,).
        trend: The function of time, between -1 and 1 (intervals,).
        slopes: The coefficients of the features (columns,).

    Guarantee:
        Each row has length 1 at most, and its bits depend on one record alone: whether an event is still seen
        is decided by a comparison, which another rounding would turn over.
    """
    expected, seen = records.expect(level + multiply_rows(records.features, slopes[:, None]))
    left = seen - expected
    moments = multiply_rows(expected, np.stack([np.ones_like(trend), trend, trend**2], axis=1))
    score = [CONSTANT * left.sum(axis=1), CONSTANT * multiply_rows(left, trend[:, None])[:, 0]]
    rows = np.column_stack([*score, records.features * left.sum(axis=1)[:, None], _squares(records, moments)])
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    # They are within it already, up to rounding.
    return rows / np.maximum(length * (1 + 1e-12), largest_norm())


def _squares(records: FollowUp, moments: Array) -> Array:
    """The upper half of each record's information, as long as the matrix, over the longest regressor."""
    columns = records.features.shape[1]
    plain = np.column_stack(
        [np.full(len(records), CONSTANT), np.full(len(records), CONSTANT), records.features]
    )
    rows, others = np.triu_indices(columns + 2)
    # The function of time is in an entry as often as the second regressor is.
    often = (rows == 1).astype(np.int64) + (others == 1)
    weights = np.where(rows == others, 1.0, np.sqrt(2.0)) / np.sqrt(LONGEST)
    return plain[:, rows] * plain[:, others] * moments[:, often] * weights
