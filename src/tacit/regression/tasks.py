"""Linear, logistic and Poisson regression as tasks for the one loop.

In the open each site sends a slope in every round, of which nothing is protected, and the fit is that of
`tacit.regression` with all records in one place.

Under a promise to single records the rounds share one Gaussian noise: noisy moments first, then scores of
bounded records (`tacit.regression.bounded`), at the sites or in secure sums. The server keeps what left them
(`tacit.regression.private_path`); the fit counts the noise in its standard errors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from tacit.errors import InvalidValue, Refused, require
from tacit.learning.query import Updates
from tacit.learning.record import Simplest, identity_of
from tacit.learning.task import Goal, TaskBase
from tacit.privacy.ledger.payment import PUBLIC, from_sites
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.regression.bounded import BoundedRecords, UnitScale, require_ranges, width
from tacit.regression.designs import OUTCOME, Variables, column_of, design_of
from tacit.regression.families import FAMILIES, ResponseFamily, goal_of, score_predictions
from tacit.regression.federated import PRIVATE, ROUNDS, WHAT, build_fit, refuse_options, require_clusters
from tacit.regression.fit import RegressionFit, RegressionOptions, Robust
from tacit.regression.newton import Ascent, AscentState, Layout, LocalSlope, Squares, slope_of
from tacit.regression.private_fit import PrivateRegressionFit, private_fit
from tacit.regression.private_path import FEWEST_ROUNDS, Parts, PathState, PrivatePath, estimate
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import BOUND, fields_of
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort, Federation, require_rows
from tacit.sites.table import Table

INSTEAD = 'protect single records: [privacy] unit = "record" without clip'
# Counters of a state: slopes asked for, steps taken and halved; converged; rounds with a missing site.
COUNTERS = 5
# Rounding error allowed in an indicator.
SLACK = 1e-9


@dataclass(frozen=True, kw_only=True)
class Regression(TaskBase):
    """Base of regressions by iteratively reweighted least squares across sites.

    Args:
        outcome: The target, or the feature, that is regressed; by default that of `[data] outcome`.
        columns: The features to regress on; by default all that have no other part.
        exposure: For counts: the column of exposures, above 0.
        offset: For counts: the column that is added to the log of the expected count.
        strata: `site` gives each site an intercept of its own.
        robust: Whether standard errors allow for a wrong model (true), or for sites as clusters (`site`).
        ridge: Half of it, times the squared length of the columns' coefficients, is taken off the
            log-likelihood.
        level: Confidence level of the intervals.
        ranges: Under a promise: the public range of each column, of an exposure, and of an outcome that is a
            number or a count; low and high, by name.
        sites: The sites; filled in.
        public: The records are public; filled in.
        noises: The standard deviation of the noise in the sum of each round; filled in.
        number: The round that it works in, from 1; filled in.
    """

    outcome: str = OUTCOME
    columns: Sequence[str] = ()
    exposure: str | None = None
    offset: str | None = None
    strata: Literal["site"] | None = None
    robust: Robust = False
    ridge: float = 0.0
    level: float = 0.95
    ranges: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    sites: Sequence[str] = field(default=(), metadata=BOUND)
    public: bool = field(default=False, metadata=BOUND)
    noises: Sequence[float] = field(default=(), metadata=BOUND)
    number: int = field(default=0, metadata=BOUND)
    kind: ClassVar[str]
    # The server adds sums up unweighted, and they are not divided.
    added: ClassVar[bool] = True
    batch = 1
    # Defaults of an experiment file: it stops by itself.
    usual: ClassVar[Mapping[str, Any]] = {"rounds": 30, "baselines": False}

    def __post_init__(self) -> None:
        _ = self.options
        for name, given in (("exposure", self.exposure), ("offset", self.offset)):
            require(given is None or self.kind == "poisson", name, given, "left out: it is for counts")

    @property
    def family(self) -> ResponseFamily:
        """The family of the outcome."""
        return FAMILIES[self.kind]

    @property
    def options(self) -> RegressionOptions:
        """Intercepts, penalty and standard errors."""
        return RegressionOptions(strata=self.strata, robust=self.robust, ridge=self.ridge, level=self.level)

    @property
    def variables(self) -> Variables:
        """The names of the variables."""
        return Variables(
            outcome=self.outcome, columns=tuple(self.columns), exposure=self.exposure, offset=self.offset
        )

    @property
    def identity(self) -> str | None:
        """The choices of the task."""
        return identity_of(replace(self, number=0))

    @property
    def goal(self) -> Goal:
        """The score that counts, and its good direction."""
        return goal_of(self.kind)

    def resolve(self, privacy: Privacy | Open) -> TaskBase:
        """The task that learns this under a promise to records: the same kind, with noise."""
        if isinstance(privacy, Open):
            return self
        return _private_task(self)

    def with_privacy(self, privacy: Privacy | Open) -> Self:
        """This task in an open run.

        Raises:
            Refused: Something is promised, or sites are drawn.
        """
        if isinstance(privacy, Privacy):
            raise Refused(f"{self.kind} releases {WHAT}, all of it unprotected: {INSTEAD}")
        self.require_all_sites(privacy)
        return self

    def require_all_sites(self, privacy: Privacy | Open) -> None:
        """Refuse to draw sites: a sum is one of all of them."""
        allowed = f"1: {self.kind} sums over all sites"
        require(privacy.participation == 1, "participation", privacy.participation, allowed)

    def bind(self, federation: Federation, provenance: Provenance) -> Self:
        """This with its columns, once the data are found valid.

        Raises:
            InvalidValue: There is no such column, or the outcomes of some site are not valid.
        """
        provenance.look(WHAT, instead=INSTEAD)
        bound = self._bind_columns(federation)
        layout = bound._layout
        require_clusters(self.options, layout, len(federation))
        return bound

    def _bind_columns(self, federation: Federation) -> Self:
        """This with its columns and sites, once the data are found valid."""
        rows = require_rows(federation)
        variables = self.variables.resolve(rows.store.columns, tuple(rows.store.targets))
        for name in () if federation.distant else federation:
            _ = design_of(federation.records_of(name), variables, self.family, f"site {name}")
        if isinstance(federation.held_out, Table):
            _ = design_of(federation.held_out, variables, self.family, "the held-out records")
        return replace(self, columns=variables.columns, sites=tuple(federation), public=federation.public)

    def start(self, federation: Federation, key: Key) -> Array:
        """Return the initial state: coefficients 0, and no slope yet."""
        return self._encode(AscentState.begin(self._layout), 0)

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Compute each site's slope at the tried coefficients (sites, coordinates)."""
        if state.ndim > 1:
            raise Refused(f"{self.kind} has one state for all sites: remove baselines and [clusters]")
        layout, (climb, _) = self._layout, self._decode(state)
        told = np.zeros((len(cohort), len(state)))
        squares: Squares = "none" if not self.robust else "site" if self.robust == "site" else "records"
        for place, name in enumerate(cohort.names):
            at = list(self.sites).index(name) if name in self.sites else 0
            told[place, at] = 1.0
            if climb.settled:
                continue
            design = design_of(cohort.records_of(place), self.variables, self.family, f"site {name}")
            group = at if layout.groups > 1 else 0
            slope = layout.encode(slope_of(design, self.family, climb.trial, layout, group, squares))
            # An overflow is flagged, not sent.
            whole = bool(np.isfinite(slope).all())
            told[place, self._sums] = np.append(slope if whole else np.zeros_like(slope), float(not whole))
        return Updates(cohort.names, told)

    def advance(self, state: Array, step: Array) -> Array:
        """Take the next Newton step, halved if the last led down; do nothing if a site is missing.

        Raises:
            InvalidValue: A column is constant, says what others say, or has a coefficient without bound.
        """
        climb, missed = self._decode(state)
        marks = step[: len(self.sites)]
        there = np.abs(marks) > SLACK
        many = int(there.sum())
        if not many or not np.allclose(marks[there], 1 / many, rtol=0, atol=SLACK):
            raise InvalidValue(
                f"{self.kind} adds up what the sites send, which needs a plain mean: remove [aggregation] "
                "and [server]"
            )
        if many < len(self.sites):
            return self._encode(climb, missed + 1)
        if climb.settled:
            return state
        told = step[self._sums] * many
        slope = self._layout.decode(told[:-1])
        if told[-1] > 0:
            # A slope that is not finite counts as downhill.
            slope = replace(slope, log_likelihood=-np.inf)
        return self._encode(self._ascent.advance(climb, slope), missed)

    def stop_reason(self, state: Array) -> str | None:
        """Return the reason to stop if the next step would change nothing."""
        climb, _ = self._decode(state)
        return f"the estimate has converged, after {climb.asked} rounds" if climb.settled else None

    def score(self, state: Array, held_out: Table) -> dict[str, float]:
        """Score the predictions of held-out records."""
        beta = self._decode(state)[0].beta
        intercept = float(beta[: self._layout.groups].mean())
        design = design_of(held_out, self.variables, self.family, "the held-out records")
        predictor = intercept + design.matrix[:, 1:] @ beta[self._layout.groups :] + design.offset
        return score_predictions(self.family, predictor, design.outcome)

    def simplest(self, start: Array, held_out: Table) -> Simplest | None:
        """The mean of the outcome for everybody."""
        outcome = column_of(held_out, self.outcome)
        if self.exposure is not None or self.offset is not None or not 0 < float(outcome.mean()) < np.inf:
            return None
        level = self.family.intercept(np.ones(1), np.array([float(outcome.mean())]))
        if self.kind != "linear":
            mean = float(outcome.mean())
            level = np.array([np.log(mean) - (np.log1p(-mean) if self.kind == "logistic" else 0.0)])
        if not np.isfinite(level).all():
            return None
        scores = score_predictions(self.family, np.full(len(held_out), float(level[0])), outcome)
        lower = tuple(name for name in scores if name in ("log_loss", "deviance", "rmse"))
        return Simplest(name="the mean", how="the same prediction for everybody", scores=scores, lower=lower)

    def losses(self, state: Array, table: Table) -> Array:
        """The negative log-likelihood of each record."""
        beta = self._decode(state)[0].beta
        design = design_of(table, self.variables, self.family, "records")
        groups = self._layout.groups
        predictor = beta[:groups].mean() + design.matrix[:, 1:] @ beta[groups:] + design.offset
        return -self.family.log_likelihood(predictor, design.outcome)

    def model(self, state: Array) -> RegressionFit:
        """The fit: coefficients, standard errors, tests.

        Raises:
            InvalidValue: Two rounds with all sites are needed before anything is known.
        """
        climb, _ = self._decode(state)
        if climb.here is None or climb.null is None:
            raise InvalidValue(f"{self.kind} has no fit yet: it needs two rounds with all sites")
        squares = climb.here.squares if self.robust else None
        provenance = PUBLIC if self.public else f"bare: {WHAT}, {from_sites(len(self.sites))}"
        return build_fit(
            self._ascent, climb, self.variables, self.options, len(self.sites), squares, provenance
        )

    def findings(self, state: Array) -> list[str]:
        """That the fit is done, once it is."""
        climb, _ = self._decode(state)
        return [f"converged in {climb.asked} rounds"] if climb.settled else []

    def shortcomings(self, state: Array) -> list[str]:
        """Return warnings: the fit has not converged, and the number of incomplete rounds."""
        climb, missed = self._decode(state)
        moving = f"NOT CONVERGED after {climb.asked} rounds: coefficients still change; use more rounds"
        if suspects := self._ascent.suspects(climb):
            moving += f", or leave out {', '.join(suspects)}, which may separate the outcomes"
        in_vain = f"{missed} rounds were skipped: a site was missing"
        return [moving] * (not climb.settled) + [in_vain] * bool(missed)

    @property
    def _groups(self) -> tuple[str, ...]:
        return tuple(self.sites) if self.strata == "site" else ()

    @property
    def _layout(self) -> Layout:
        return Layout(len(self._groups) or 1, len(self.columns), bool(self.robust))

    @property
    def _ascent(self) -> Ascent:
        return Ascent(self._layout, self.family, tuple(self.columns), self._groups, self.ridge)

    @property
    def _sums(self) -> slice:
        """Places of a site's numbers behind the indicators: a slope, and whether it overflowed."""
        return slice(len(self.sites), len(self.sites) + self._layout.width + 1)

    def _encode(self, climb: AscentState, missed: int) -> Array:
        """Encode the state: room for what sites send, then the climb and the number of incomplete rounds."""
        layout = self._layout
        nothing = np.zeros(layout.width)
        here, null = (nothing if part is None else layout.encode(part) for part in (climb.here, climb.null))
        counted = [climb.asked, climb.taken, climb.halved, climb.settled, missed]
        parts = (np.zeros(self._sums.stop), here, null, climb.beta, climb.step, counted)
        return np.concatenate(parts).astype(np.float64)

    def _decode(self, state: Array) -> tuple[AscentState, int]:
        """Decode the climb and the number of incomplete rounds."""
        layout, values = self._layout, state[self._sums.stop :]
        here, null, beta, step, counted = np.split(
            values, np.cumsum([layout.width, layout.width, layout.size, layout.size])
        )
        asked, taken, halved, settled, missed = (round(float(number)) for number in counted)
        slopes: list[LocalSlope | None] = [layout.decode(here), layout.decode(null)]
        climb = AscentState(
            beta, step, slopes[0] if asked else None, slopes[1] if asked > 1 else None, asked, taken, halved,
            bool(settled),
        )  # fmt: skip
        return climb, missed


@dataclass(frozen=True, kw_only=True)
class LinearRegression(Regression):
    """Linear regression by least squares. For the options see `Regression`."""

    kind: ClassVar[str] = "linear"


@dataclass(frozen=True, kw_only=True)
class LogisticRegression(Regression):
    """Logistic regression of an outcome of 0 and 1. For the options see `Regression`."""

    kind: ClassVar[str] = "logistic"


@dataclass(frozen=True, kw_only=True)
class PoissonRegression(Regression):
    """Poisson regression of counts. For the options see `Regression`."""

    kind: ClassVar[str] = "poisson"


@dataclass(frozen=True, kw_only=True)
class PrivateRegression(Regression):
    """Base of regressions under a promise. For the options see `Regression`."""

    kind: ClassVar[str]
    own_bound: ClassVar[float | None] = 1.0
    usual: ClassVar[Mapping[str, Any]] = {"rounds": ROUNDS, "baselines": False}

    def resolve(self, privacy: Privacy | Open) -> TaskBase:
        """This under a promise; the open regression without one."""
        if isinstance(privacy, Privacy):
            return self
        return KINDS[self.kind][0](**fields_of(self))

    def with_privacy(self, privacy: Privacy | Open) -> Self:
        """This task under a promise to records.

        Raises:
            Refused: The promise is about sites, has another noise or a clip bound, or draws sites; or a range
                is missing.
        """
        if isinstance(privacy, Open):
            raise Refused(f"{self.kind} under a promise needs one: use the open regression instead")
        if privacy.unit != "record":
            raise Refused(f'{self.kind} protects single records: use unit = "record"')
        if privacy.mechanism != "gaussian":
            raise Refused(f'{self.kind} adds Gaussian noise: use mechanism = "gaussian" and delta above 0')
        if privacy.clip is not None:
            raise Refused(
                f"clip = {privacy.clip:g} does not go with {self.kind}: its records are bounded by "
                "construction. Leave it out"
            )
        self.require_all_sites(privacy)
        refuse_options(self.options)
        return self

    def round_shares(self, rounds: int) -> tuple[float, ...]:
        """Return the share of the promise of each round."""
        return tuple(Parts.of(self.kind, number, rounds).share for number in range(1, rounds + 1))

    def choices(self, privacy: Privacy | Open, rounds: int) -> list[str]:
        """Return sentences on what was chosen, and why."""
        return [
            f"{self.kind} regression; each record is bounded by construction, so that nothing is clipped",
            f"{rounds} rounds with all records: noisy moments first, then scores with growing shares",
        ]

    def bind(self, federation: Federation, provenance: Provenance) -> Self:
        """This task with its columns, once the data are found valid.

        Raises:
            Refused: A range is missing.
        """
        bound = self._bind_columns(require_rows(federation))
        _ = bound._scale
        return bound

    def with_mechanism(self, mechanism: Mechanism) -> Self:
        """This task with the noise of each round."""
        sites = len(self.sites)
        rounds = range(1, mechanism.rounds + 1)
        noises = tuple(mechanism.at_round(number).deviation(sites) * sites for number in rounds)
        return replace(self, noises=noises)

    def at_round(self, number: int, rounds: int) -> Self:
        """This task in a round."""
        return replace(self, number=number)

    @property
    def _scale(self) -> UnitScale:
        variables = self.variables
        return UnitScale.of(self.kind, variables, require_ranges(self.kind, variables, self.ranges))

    @property
    def _path(self) -> PrivatePath:
        return PrivatePath(self._scale, tuple(self.noises))

    @property
    def sent(self) -> int | None:
        """Count of numbers that each site sends."""
        return width(len(self.columns), self._path.parts(max(self.number, 1)).weights)

    def start(self, federation: Federation, key: Key) -> Array:
        """Return the state before the first round."""
        return self._path.begin().encode()

    def _state(self, state: Array) -> PathState:
        return PathState.decode(state, len(self.columns), len(self.noises))

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Compute each site's noisy sum of contributions."""
        if state.ndim > 1:
            raise Refused(f"{self.kind} has one state for all sites: remove baselines and [clusters]")
        path, known, found = self._path, self._state(state), list[Array]()
        weights = path.parts(max(self.number, 1)).weights
        for place, name in enumerate(cohort.names):
            records = path.scale.records(cohort.records_of(place))
            rows = BoundedRecords(self.kind, records, known.point, weights)
            found.append(mechanism.noisy_sums(rows, [key / name / "noise"], 0)[0])
        return Updates(cohort.names, np.stack(found))

    def advance(self, state: Array, step: Array) -> Array:
        """Move to the next point; `step` is a mean over sites."""
        return self._path.advance(self._state(state), step * len(self.sites)).encode()

    def stop_reason(self, state: Array) -> str | None:
        """Return None: the rounds are those that were planned."""
        return None

    def score(self, state: Array, held_out: Table) -> dict[str, float]:
        """Score the predictions of held-out records."""
        beta = estimate(self._path, self._state(state)).coefficients
        design = design_of(held_out, self.variables, self.family, "the held-out records")
        return score_predictions(self.family, design.matrix @ beta + design.offset, design.outcome)

    def losses(self, state: Array, table: Table) -> Array:
        """The negative log-likelihood of each record."""
        beta = estimate(self._path, self._state(state)).coefficients
        design = design_of(table, self.variables, self.family, "records")
        return -self.family.log_likelihood(design.matrix @ beta + design.offset, design.outcome)

    def model(self, state: Array) -> PrivateRegressionFit:
        """The fit: coefficients, with standard errors that count the noise."""
        told = f"released: {PRIVATE}, {from_sites(len(self.sites))}; the statement of the run has the price"
        return private_fit(self._path, self._state(state), self.level, told)

    def findings(self, state: Array) -> list[str]:
        """Return the number of records, as far as it was released."""
        return [f"about {max(self.model(state).records, 0):,} records, as the noisy sums have it"]

    def shortcomings(self, state: Array) -> list[str]:
        """Return the coefficients that the noise hides."""
        hidden, few = self.model(state).hidden, len(self.noises) < FEWEST_ROUNDS
        told = [f"{len(self.noises)} rounds are too few: use {FEWEST_ROUNDS} or more, by default {ROUNDS}"]
        return told * few + [f"hidden by noise: {', '.join(hidden)}"] * bool(hidden)


@dataclass(frozen=True, kw_only=True)
class PrivateLinear(PrivateRegression):
    """Linear regression under a promise. For the options see `Regression`."""

    kind: ClassVar[str] = "linear"


@dataclass(frozen=True, kw_only=True)
class PrivateLogistic(PrivateRegression):
    """Logistic regression under a promise. For the options see `Regression`."""

    kind: ClassVar[str] = "logistic"


@dataclass(frozen=True, kw_only=True)
class PrivatePoisson(PrivateRegression):
    """Poisson regression under a promise. For the options see `Regression`."""

    kind: ClassVar[str] = "poisson"


KINDS: Mapping[str, tuple[type[Regression], type[PrivateRegression]]] = {
    "linear": (LinearRegression, PrivateLinear),
    "logistic": (LogisticRegression, PrivateLogistic),
    "poisson": (PoissonRegression, PrivatePoisson),
}


def _private_task(task: Regression) -> PrivateRegression:
    """Return a regression under a promise, with the same options."""
    return KINDS[task.kind][1](**fields_of(task))


TASKS: Mapping[str, type[Any]] = {
    task.kind: task for task in (LinearRegression, LogisticRegression, PoissonRegression)
}
