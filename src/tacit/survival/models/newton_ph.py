"""Proportional hazards that protect single records without a clip bound, by Newton's method on noisy sums.

Gradient descent with clipped gradients needs a clip bound, a learning rate, a sampling rate and a number of
steps, and clipping biases what it learns. Here every record is bounded by construction (`newton_steps`), all
records take part in every round, and the few rounds follow from the noise: the later ones, near the estimate,
have most of the budget. The estimate is the posterior mean under the known noise, so noise that hides an
effect shrinks it instead of inventing one.

Before the first round the sites answer one query, with the scale of each feature and the exits by interval.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from tacit.errors import (
    MOST_CUTS,
    Refused,
    require,
    require_count,
    require_positive,
    require_word,
)
from tacit.learning.elementwise import exp
from tacit.learning.query import Updates
from tacit.learning.record import Simplest, identity_of
from tacit.learning.task import Goal, TaskBase
from tacit.privacy.forecast import Forecast
from tacit.privacy.mechanisms.base import Mechanism, NoPrivacy
from tacit.privacy.mechanisms.secure_records import SecureSumRounds
from tacit.privacy.mechanisms.secure_sum import least_shares
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import BOUND
from tacit.runtime.keys import Key
from tacit.sites.encoding import Encoding
from tacit.sites.federation import Cohort, Federation, require_rows
from tacit.sites.table import Table
from tacit.survival.life_table import refuse_weights, require_grid
from tacit.survival.models import newton_steps as steps
from tacit.survival.models.baseline_histogram import DOUBLING, interval_ends
from tacit.survival.models.feature_scaling import QUERIED, ColumnCells, FeatureScale, ScaleQuery, column_cells
from tacit.survival.models.prediction import GridModel, score, score_kaplan_meier
from tacit.survival.record_checks import advise, require_horizon
from tacit.survival.targets import require_sites

if TYPE_CHECKING:
    from tacit.learning.query import EvaluationQueryBase
    from tacit.learning.record import Round
    from tacit.reports.page.blocks import Figure

# Shares of the promise of the information matrices, in the first round and in the middle one. What they and
# the query leave is for scores, of which the last round has `GROWTH` times as much as the first.
INFORMED, GROWTH = (0.03, 0.07), 32.0
ROUNDS = 6
# Lists in the answers to the query: of scales, and of the baseline.
PARTS = ("low", "high", "center", "scale", "ends", "rates", "expected", "variance")
# Rest of the last step, as a part of the longest, from which a model counts as not converged.
UNFINISHED = 0.01
# Events expected of a record that is followed to one, where half of the records have an event.
HALF_EVENTS = 0.315


@dataclass(frozen=True, kw_only=True)
class NewtonPH(TaskBase):
    """Proportional hazards with piecewise constant baseline, for record-level privacy without a clip bound.

    Args:
        effects: `linear` in each feature, or with a `hinge`: effects that may bend at 0.8 deviations on
            either side of the center.
        horizon: End of follow-up that is modeled; a public number. Without it, the sites are asked for the
            span of times.
        cuts: Number of intervals up to the horizon, or the ends of public intervals; intervals with too few
            events for the noise are merged.
        ranges: Public range of a feature, low and high, by its name. Without one, and without a public center
            and scale, the sites are asked for it, which costs accuracy with few records.
        asked: The kind of task that the experiment asked for; filled in.
        columns: The names of the features; filled in.
        encoding: Encoding of raw columns as features; filled in.
        late: Whether records enter late; filled in.
        sites: The number of sites; filled in.
        noises: The standard deviation of the noise in the sum of each round; filled in.
        scaling: Limits, center and scale of each feature; filled in.
        baseline: The baseline hazard by interval; filled in.
        number: The round that it works in, from 1; filled in.
        rounds: The number of rounds; filled in.
    """

    effects: Literal["linear", "hinge"] = "linear"
    horizon: float | None = None
    cuts: int | Sequence[float] | None = None
    ranges: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    asked: str = field(default="", metadata=BOUND)
    columns: Sequence[str] = field(default=(), metadata=BOUND)
    encoding: Encoding = field(default_factory=Encoding, metadata=BOUND)
    late: bool = field(default=False, metadata=BOUND)
    sites: int = field(default=1, metadata=BOUND)
    noises: Sequence[float] = field(default=(), metadata=BOUND)
    scaling: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]], metadata=BOUND)
    baseline: Mapping[str, Sequence[float]] = field(
        default_factory=dict[str, Sequence[float]], metadata=BOUND
    )
    # Both are 0 before the first round.
    number: int = field(default=0, metadata=BOUND)
    rounds: int = field(default=0, metadata=BOUND)
    kind: ClassVar[str] = "newton-ph"
    # The server adds sums up unweighted.
    added: ClassVar[bool] = True
    usual: ClassVar[Mapping[str, Any]] = {"rounds": ROUNDS}
    own_bound: ClassVar[float | None] = 1.0
    batch = 1

    def __post_init__(self) -> None:
        require_word("effects", self.effects, ("linear", "hinge"))
        if self.horizon is not None:
            require_positive("horizon", self.horizon)
        if isinstance(self.cuts, int):
            require_count("cuts", self.cuts, MOST_CUTS)
        elif self.cuts is not None:
            require_grid(self.cuts)
            require(self.horizon is None, "horizon", self.horizon, "left out where cuts gives the ends")
        self._require_answers()
        for name, given in self.ranges.items():
            valid = len(given) == 2 and -math.inf < given[0] < given[1] < math.inf
            require(valid, f"ranges of {name}", list(given), "two finite numbers, the lower one first")

    def _require_answers(self) -> None:
        """Refuse answers that no query gives: a coordinator may send a site any."""
        parts = {
            "scaling": (self.scaling, PARTS[:4], ()),
            "baseline": (self.baseline, PARTS[4:], ("records", "events")),
        }
        for name, (given, columns, single) in parts.items():
            if not given:
                continue
            require(
                set(given) == {*columns, *single}, name, sorted(given), f"{', '.join((*columns, *single))}"
            )
            rows = [np.asarray(given[part], dtype=np.float64) for part in columns]
            alike = len({row.shape for row in rows}) == 1 and rows[0].ndim == 1 and rows[0].size > 0
            require(alike, name, "of several lengths", "lists of one length")
            require(bool(np.isfinite(rows).all()), name, "not finite", "finite numbers")
            # All of the baseline is above 0, and so is a scale.
            above = rows if name == "baseline" else rows[3:]
            require(all(bool((row > 0).all()) for row in above), name, "0 or less", "above 0")
        if self.baseline:
            require_grid(self.baseline["ends"])
        if self.scaling and self.columns:
            many = len(self.scaling["scale"])
            require(many == len(self.columns), "scaling", f"{many} columns", f"{len(self.columns)} columns")

    @property
    def identity(self) -> str | None:
        """The choices of the task."""
        return identity_of(replace(self, number=0, rounds=0))

    @property
    def goal(self) -> Goal:
        """Return the concordance index as the goal."""
        return ("c_index", "max")

    def round_shares(self, rounds: int) -> tuple[float, ...]:
        """Return the share of the promise of each round: growing scores, and two information matrices."""
        return tuple(sum(self._shares(number, rounds)) for number in range(1, rounds + 1))

    def _shares(self, number: int, rounds: int) -> tuple[float, float]:
        """Return the shares of score and information in a round."""
        grown = np.geomspace(1.0, GROWTH, rounds) if rounds > 1 else np.ones(1)
        scores = (1 - QUERIED - sum(INFORMED)) * grown / grown.sum()
        informed = INFORMED[0] * (number == 1) + INFORMED[1] * (number == rounds // 2 + 1)
        return float(scores[min(number, rounds) - 1]), informed

    def with_privacy(self, privacy: Privacy | Open) -> Self:
        """This task under a promise to records, or in an open run.

        Raises:
            Refused: The promise is about sites, has another noise or a clip bound, or draws sites.
        """
        if isinstance(privacy, Open):
            require(privacy.participation == 1, "participation", privacy.participation, self._all_sites)
            return self
        if privacy.unit != "record":
            raise Refused(
                f'{self.kind} protects single records: use unit = "record", or poisson-ph to protect whole '
                "sites"
            )
        if privacy.mechanism != "gaussian":
            raise Refused(f'{self.kind} adds Gaussian noise: use mechanism = "gaussian" and delta above 0')
        if privacy.clip is not None:
            raise Refused(
                f"clip = {privacy.clip:g} does not go with {self.kind}: its records are bounded by "
                "construction. Leave it out, or use poisson-ph, which clips gradients"
            )
        require(privacy.participation == 1, "participation", privacy.participation, self._all_sites)
        return self

    @property
    def _all_sites(self) -> str:
        return f"1: {self.kind} sums over all sites"

    def choices(self, privacy: Privacy | Open, rounds: int) -> list[str]:
        """Return sentences on what was chosen, and why."""
        model = "proportional hazards, with effects that may bend" if self._bends else "proportional hazards"
        asked = [self._instead] if self.asked else []
        if isinstance(privacy, Open):
            return asked
        return [
            *asked,
            f"{model}; each record is bounded by construction, so that nothing is clipped",
            f"{rounds} rounds with all records; the last has {GROWTH:g} times the share of the first",
            f"{QUERIED:.0%} of the promise buys times of exits, and scales of features without a public one",
        ]

    @property
    def _bends(self) -> bool:
        return self.effects == "hinge"

    @property
    def _instead(self) -> str:
        return (
            f"{self.asked} is learned as {self.kind}; give clip in [privacy] to train it by gradients instead"
        )

    def forecast(
        self, mechanism: Mechanism, sites: int, records: int | None, features: int | None
    ) -> Forecast | None:
        """Forecast by the noise of the linear predictor, if half of the records have an event."""
        if not mechanism.rounds:
            return None
        last = mechanism.at_round(mechanism.rounds).deviation(sites) * sites
        whole = last * math.sqrt(self.round_shares(mechanism.rounds)[-1])
        scored = 1 - QUERIED - sum(INFORMED)
        noise = steps.SCORE_BOUND * whole / math.sqrt(scored) / HALF_EVENTS
        if isinstance(mechanism, SecureSumRounds):
            secure = noise
        else:
            shares = least_shares(sites, 1)
            secure = None if shares is None else noise / math.sqrt(shares)
        return Forecast(per_feature=noise, sites=sites, features=features, records=records, secure=secure)

    def bind(self, federation: Federation, provenance: Provenance) -> Self:
        """Bind the task to valid data, with its columns."""
        rows = require_rows(federation)
        require_sites(rows, causes=1)
        refuse_weights(rows)
        known = rows.store.columns
        require(
            tuple(self.columns) in ((), known), "columns", list(self.columns), f"{list(known)}, as the data"
        )
        encoding = rows.encoding or Encoding()
        unknown = [name for name in self.ranges if name not in known]
        require(not unknown, "ranges", unknown, f"the features, which are {', '.join(known)}")
        self.require_records(rows, private=not provenance.allowed)
        late = "entry" in rows.store.targets
        return replace(self, columns=known, encoding=encoding, sites=len(federation), late=late)

    def require_records(self, federation: Federation, *, private: bool) -> None:
        """Refuse another unit of time than the horizon; the scale of features does not matter."""
        rows = require_rows(federation)
        if not federation.distant and self.last_end is not None:
            require_horizon(rows.store, self.last_end, "all sites together")

    @property
    def last_end(self) -> float | None:
        """The end of the time grid as far as it was given; None if records decide."""
        return self.horizon if self.cuts is None or isinstance(self.cuts, int) else float(self.cuts[-1])

    def advise(self, federation: Federation) -> list[str]:
        """Advice about these records, with counts and values: for their owner, or where they are public."""
        return advise(require_rows(federation))

    def with_mechanism(self, mechanism: Mechanism) -> Self:
        """This task with the noise of each round."""
        rounds = range(1, mechanism.rounds + 1)
        noises = tuple(mechanism.at_round(number).deviation(self.sites) * self.sites for number in rounds)
        return replace(self, noises=noises)

    def at_one_site(self, pooled: Federation) -> Self:
        """This task where one site learns from its own records, without noise.

        Scales and the histogram of exits are those of all records, which favors the site.
        """
        alone, question = replace(self, sites=1, noises=()), replace(self.initial_query, sites=1)
        asked = question.train(np.zeros(0), pooled.cohort(list(pooled)), NoPrivacy(), Key(0)).matrix
        return alone.with_answers(question.decode(asked.mean(axis=0)))

    def at_round(self, number: int, rounds: int) -> Self:
        """Return this task for a round; some rounds request an information matrix too."""
        return replace(self, number=number, rounds=rounds)

    @property
    def initial_query(self) -> ScaleQuery:
        """The query for scales and exits."""
        return ScaleQuery(
            features=tuple(self.columns), cells=self._cells, ends=self._histogram_ends, late=self.late,
            whole=self.last_end is not None, sites=self.sites,
        )  # fmt: skip

    @property
    def _cells(self) -> tuple[ColumnCells | None, ...]:
        return column_cells(self.columns, self.encoding, self.ranges)

    @property
    def _histogram_ends(self) -> Array:
        if self.cuts is not None and not isinstance(self.cuts, int):
            return np.asarray(self.cuts, dtype=np.float64)
        return DOUBLING if self.horizon is None else interval_ends(self.horizon, self.cuts)

    @property
    def _ends(self) -> Array:
        return np.asarray(self.baseline["ends"], dtype=np.float64)

    @property
    def _log_base(self) -> Array:
        return np.log(np.asarray(self.baseline["rates"], dtype=np.float64))

    @property
    def _bent(self) -> list[int]:
        """Columns with a hinge: all but those of 0 and 1."""
        if self.effects == "linear":
            return []
        return [place for place, own in enumerate(self._cells) if own is None or own.kind != "indicator"]

    @property
    def _regressors(self) -> int:
        return 1 + len(self.columns) + len(self._bent)

    @property
    def _informed(self) -> bool:
        """True if the round is asked for an information matrix; without noise, every round is."""
        return not any(self.noises) or self._shares(self.number, self.rounds)[1] > 0

    @property
    def _weights(self) -> tuple[float, float]:
        """Weights of score and information, together of length 1, as their shares have it."""
        scored, informed = self._shares(self.number, self.rounds)
        if not any(self.noises):
            return math.sqrt(0.5), math.sqrt(0.5)
        return math.sqrt(scored / (scored + informed)), math.sqrt(informed / (scored + informed))

    @property
    def sent(self) -> int | None:
        """Count of numbers that each site sends."""
        return steps.vector_size(len(self._ends), self._regressors, self._informed)

    def unit_features(self, features: Array) -> Array:
        """Features of length at most 1, as in training."""
        scale = FeatureScale.of(self.scaling)
        return scale.hinges(features, self._bent) if self._bent else scale.unit(features)

    def start(self, federation: Federation, key: Key) -> Array:
        """No effect, and the baseline of the histogram."""
        return PosteriorState.begin(len(self._ends), self._regressors).encode()

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Compute each site's noisy sum of scores, and of information where the round asks for it."""
        if not self.baseline:
            raise Refused(f"{self.kind} cannot train before the query for {ScaleQuery.kind} is answered")
        states = np.broadcast_to(state, (len(cohort), state.shape[-1]))
        found: list[Array] = []
        for place, name in enumerate(cohort.names):
            table = cohort.records_of(place)
            records = steps.follow_up(table, self._ends, self.unit_features(table.features))
            point = PosteriorState.decode(states[place], len(self._ends), self._regressors).point
            rows = steps.BoundedRows(records, self._log_base, point, self._informed, self._weights)
            found.append(mechanism.noisy_sums(rows, [key / name / "noise"], 0)[0])
        return Updates(cohort.names, np.stack(found))

    def advance(self, state: Array, step: Array) -> Array:
        """Move to the posterior mean, by at most one unit of the log hazard; `step` is a mean over sites."""
        intervals, regressors = len(self._ends), self._regressors
        before = PosteriorState.decode(state, intervals, regressors)
        number = before.rounds + 1
        noise = float(self.noises[number - 1]) if number <= len(self.noises) else 0.0
        now = replace(self, number=number, rounds=max(len(self.noises), number))
        weights, summed = now._weights, step * self.sites
        size = intervals + regressors
        scores = summed[:size] * steps.SCORE_BOUND / weights[0]
        after = replace(before, rounds=number)
        if len(step) > size:
            upper, doubt = summed[size:] / weights[1], noise / weights[1] * steps.INFORMATION_BOUND
            after = after.with_information(steps.decode_information(upper, regressors), doubt)
        arrow = steps.Curvature(self._expected, after.matrix, after.doubt).arrow()
        after = after.with_score(scores, noise / weights[0] * steps.SCORE_BOUND, arrow)
        moved = steps.limit_step(self._step_left(after, arrow), arrow, float(self._expected.sum()))
        return replace(after, values=before.values + moved).encode()

    def _step_left(self, state: "PosteriorState", arrow: Array) -> Array:
        """Return the way from the values of a state to the posterior mean by its scores."""
        found = steps.posterior(arrow, self._prior, state.moved / state.weight, 1 / state.weight)
        return found - state.values

    def shortcomings(self, state: Array) -> list[str]:
        """Return that the last step was cut off at its limit, if it was: the state was released."""
        if not self.baseline:
            return []
        known = PosteriorState.decode(state, len(self._ends), self._regressors)
        if not known.weight:
            return []
        arrow = steps.Curvature(self._expected, known.matrix, known.doubt).arrow()
        size = steps.step_size(self._step_left(known, arrow), arrow, float(self._expected.sum()))
        if size <= UNFINISHED * steps.STRIDE:
            return []
        why, mend = (
            ("the noise is large", "a larger epsilon")
            if known.doubt
            else ("effects are large", "more rounds")
        )
        return [
            f"{self.kind} has not converged: its last step, cut off at a change of log hazards by "
            f"{steps.STRIDE:g}, would have gone on by {size:.2g}, as where {why}; give {mend}"
        ]

    @property
    def _expected(self) -> Array:
        return np.asarray(self.baseline["expected"], dtype=np.float64)

    @property
    def _prior(self) -> Array:
        """The precision of each parameter before the rounds: of shape and level by the histogram."""
        variance = np.asarray(self.baseline["variance"], dtype=np.float64)
        weight = self._expected / self._expected.sum()
        level = float(weight**2 @ variance) + steps.LEVEL_DOUBT**2
        effects = np.full(self._regressors - 1, steps.EFFECT**-2)
        return np.concatenate([steps.SHAPE**2 / variance, [steps.LEVEL**2 / level], effects])

    def evaluation(self, epsilon: float, records: int | None) -> "EvaluationQueryBase | None":
        """Query for scores on private held-out records: a table of risk bin by exit interval by state."""
        from tacit.survival.evaluation import SurvivalEvaluation

        if not self.baseline:
            return SurvivalEvaluation(self, epsilon, records)
        return SurvivalEvaluation(self, epsilon, records, FeatureScale.of(self.scaling), self._expected)

    def score(self, state: Array, held_out: Table) -> dict[str, float]:
        """Harrell's concordance and the integrated Brier score on held-out records."""
        return score(self.model(state), held_out)

    def simplest(self, start: Array, held_out: Table) -> Simplest:
        """Kaplan-Meier: one curve for all held-out records, and a concordance of one half."""
        return score_kaplan_meier(held_out, self.causes)

    def losses(self, state: Array, table: Table) -> Array:
        """The negative log-likelihood of each record."""
        model = self.model(state)
        records = steps.follow_up(table, self._ends, self.unit_features(table.features))
        rates = model.increments(table.features)
        seen = records.own[:, None] == np.arange(len(self._ends))
        return (records.shares * rates - seen * np.log(rates)).sum(axis=1)

    def model(self, state: Array) -> "NewtonModel":
        """Return the prediction model: survival curves and risks."""
        own = state if state.ndim == 1 else state[0]
        return NewtonModel(self, PosteriorState.decode(own, len(self._ends), self._regressors).point)

    def findings(self, state: Array) -> list[str]:
        """Return the numbers of records and events, as they were released, and hidden features."""
        found = [self._instead] if self.asked else []
        found += [
            f"about {self.baseline['records'][0]:,.0f} records and {self.baseline['events'][0]:,.0f} events, "
            "as the sites released them"
        ]
        scale = FeatureScale.of(self.scaling)
        hidden = [
            name for name, low, high in zip(self.columns, scale.low, scale.high, strict=True) if low == high
        ]
        if hidden:
            found.append(
                f"the noise hides the range of {', '.join(hidden)}, which the model therefore leaves out: "
                "give public `ranges` in [task], or a public center and scale in [data]"
            )
        return found

    def pictures(
        self, state: Array, rounds: "Sequence[Round]", read: "Callable[[str], bytes | None]"
    ) -> "Sequence[Figure]":
        """Return the figures of a report: survival curves, and effects of features."""
        from tacit.survival.figures.report import pictures

        return pictures(self, state, rounds, read)


@dataclass(frozen=True, eq=False)
class PosteriorState:
    """State between rounds: all of it was released, and is public.

    Args:
        values: Shape, level and effects (parameters,).
        moved: Scores with their points moved back, summed by precision since the last information matrix.
        weight: Sum of these precisions.
        matrix: The last information matrix.
        doubt: The standard deviation of its noise.
        rounds: Number of finished rounds.
        intervals: Number of intervals.
    """

    values: Array
    moved: Array
    weight: float
    matrix: Array
    doubt: float
    rounds: int
    intervals: int

    @classmethod
    def begin(cls, intervals: int, regressors: int) -> "PosteriorState":
        """Before the first round."""
        size = intervals + regressors
        return cls(np.zeros(size), np.zeros(size), 0.0, np.zeros((regressors, regressors)), 0.0, 0, intervals)

    @classmethod
    def decode(cls, state: Array, intervals: int, regressors: int) -> "PosteriorState":
        """From a flat vector."""
        size = intervals + regressors
        weight, doubt, rounds = (float(value) for value in state[:3])
        values, moved, matrix = state[3 : 3 + size], state[3 + size : 3 + 2 * size], state[3 + 2 * size :]
        return cls(
            values, moved, weight, matrix.reshape(regressors, regressors), doubt, round(rounds), intervals
        )

    def encode(self) -> Array:
        """As a flat vector."""
        head = np.array([self.weight, self.doubt, float(self.rounds)])
        return np.concatenate([head, self.values, self.moved, self.matrix.ravel()])

    @property
    def point(self) -> steps.NewtonPoint:
        """Parameters at which the sites compute their sums."""
        return steps.NewtonPoint(self.values[: self.intervals], self.values[self.intervals :])

    def with_information(self, matrix: Array, doubt: float) -> "PosteriorState":
        """With a new information matrix; scores before it are forgotten, as their curvature was another."""
        return replace(self, matrix=matrix, doubt=doubt, moved=np.zeros_like(self.moved), weight=0.0)

    def with_score(self, scores: Array, noise: float, arrow: Array) -> "PosteriorState":
        """With the noisy scores of a round."""
        precision = 1 / max(noise**2, 1e-9)
        moved = self.moved + precision * (scores + arrow @ self.values)
        return replace(self, moved=moved, weight=self.weight + precision)


@dataclass(frozen=True, eq=False)
class NewtonModel(GridModel):
    """Fitted proportional hazards.

    Args:
        task: The task, with scaling and baseline.
        point: The estimate.
    """

    task: NewtonPH
    point: steps.NewtonPoint

    @property
    def ends(self) -> Array:
        """The ends of the intervals."""
        return self.task._ends  # pyright: ignore[reportPrivateUsage]

    @property
    def columns(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The names of the features."""
        return tuple(self.task.columns)

    @property
    def encoding(self) -> Encoding:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Encoding of raw columns as features."""
        return self.task.encoding

    @property
    def scale(self) -> FeatureScale:
        """Limits, center and scale of each feature."""
        return FeatureScale.of(self.task.scaling)

    @property
    def bent(self) -> list[int]:
        """The columns whose effects may bend."""
        return self.task._bent  # pyright: ignore[reportPrivateUsage]

    @property
    def log_baseline(self) -> Array:
        """The log of the hazard that each interval adds to a record whose features are all 0 (intervals,)."""
        log_base = self.task._log_base  # pyright: ignore[reportPrivateUsage]
        return log_base + steps.SHAPE * self.point.shape + steps.LEVEL * self.point.effects[0]

    def increments(self, matrix: Array) -> Array:
        """The cumulative hazard that each interval adds (records, intervals)."""
        features = self.task.unit_features(matrix)
        log_base = self.task._log_base  # pyright: ignore[reportPrivateUsage]
        return exp(np.minimum(self.point.log_rates(log_base, features), steps.LARGEST))
