"""Private Cox regression as a task for the one loop, with noise at the sites or one noise in secure sums.

Before the first round the sites answer one query, with exits and moments of features. The first round sums
the information of events, all others a score. The state holds what was released; sites and server work out
the same regressors and the same point from it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tacit.errors import MOST_CUTS, Refused, is_between, require, require_count, require_positive
from tacit.learning.query import InitialQueryBase, Updates
from tacit.learning.record import Simplest, identity_of
from tacit.learning.task import Goal, TaskBase
from tacit.privacy.contracts import Norm, ShareOf
from tacit.privacy.mechanisms.base import Mechanism, NoPrivacy
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import BOUND
from tacit.runtime.keys import Key
from tacit.sites.encoding import Encoding
from tacit.sites.federation import Cohort, Federation, require_rows
from tacit.sites.table import Table
from tacit.survival.life_table import refuse_weights, regression_table, require_grid, select_names
from tacit.survival.models.baseline_histogram import interval_ends
from tacit.survival.record_checks import advise, require_horizon
from tacit.survival.statistics.bounded_score import EXITS, MOMENTS, InformationRows, ScoreRows
from tacit.survival.statistics.cox_fit import CoxOptions, PrivateCoxFit
from tacit.survival.statistics.private_cox import ROUNDS, CoxDesign, feature_limits, round_shares
from tacit.survival.statistics.score_path import ScorePath, Start
from tacit.survival.targets import require_sites

if TYPE_CHECKING:
    from tacit.learning.record import Round
    from tacit.reports.page.blocks import Figure

# Number of intervals up to a public horizon; the most rounds of scores.
INTERVALS, MOST_ROUNDS = 20, 32


@dataclass(frozen=True, kw_only=True)
class PrivateCox(TaskBase):
    """Cox regression with noise: hazard ratios with intervals under a promise to single records.

    Args:
        columns: The features to regress on; by default all of them.
        grid: The ends of public intervals, in which hazards are constant.
        horizon: Public end of follow-up, in place of a grid: 20 intervals, denser early on.
        ranges: Public range of a feature, low and high, by its name. Columns with levels, or with a public
            center and scale, need none.
        by_site: Give each site a level of its own.
        followed: Expected events up to which a typical record is followed; by default as many as keep the
            noise near half a standard error.
        level: Confidence level of the intervals.
        names: The sites; filled in.
        encoding: Encoding of raw columns as features; filled in.
        late: Whether records enter late; filled in.
        noises: The standard deviation of the noise in the sum of each round; filled in.
        released: What the initial query has released; filled in.
        number: The round that it works in, from 1; filled in.
        rounds: The number of rounds; filled in.
    """

    columns: Sequence[str] = ()
    grid: Sequence[float] | None = None
    horizon: float | None = None
    ranges: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    by_site: bool = True
    followed: float | None = None
    level: float = 0.95
    names: Sequence[str] = field(default=(), metadata=BOUND)
    encoding: Encoding = field(default_factory=Encoding, metadata=BOUND)
    late: bool = field(default=False, metadata=BOUND)
    noises: Sequence[float] = field(default=(), metadata=BOUND)
    released: Mapping[str, Sequence[float]] = field(
        default_factory=dict[str, Sequence[float]], metadata=BOUND
    )
    # Both are 0 before the first round.
    number: int = field(default=0, metadata=BOUND)
    rounds: int = field(default=0, metadata=BOUND)
    kind: ClassVar[str] = "private-cox"
    # The server adds sums up unweighted.
    added: ClassVar[bool] = True
    usual: ClassVar[Mapping[str, Any]] = {"rounds": ROUNDS, "baselines": False}
    own_bound: ClassVar[float | None] = 1.0
    batch = 1

    def __post_init__(self) -> None:
        if self.grid is not None:
            require_grid(self.grid)
            require_count("intervals of grid", len(self.grid), MOST_CUTS)
            require(self.horizon is None, "horizon", self.horizon, "left out where grid gives the ends")
        if self.horizon is not None:
            require_positive("horizon", self.horizon)
        require(is_between(self.level, 0, 1), "level", self.level, "above 0 and below 1")
        if self.followed is not None:
            require(is_between(self.followed, 1, 100), "followed", self.followed, "above 1 and below 100")
        for name, given in self.ranges.items():
            valid = len(given) == 2 and -np.inf < given[0] < given[1] < np.inf
            require(valid, f"ranges of {name}", list(given), "two finite numbers, the lower one first")
        for name, given in self.released.items():
            finite = bool(np.isfinite(np.asarray(given, dtype=np.float64)).all())
            require(finite, f"released {name}", "not finite", "finite numbers")

    @property
    def identity(self) -> str | None:
        """The choices of the task."""
        return identity_of(replace(self, number=0, rounds=0))

    @property
    def goal(self) -> Goal:
        """Return the concordance index as the goal."""
        return ("c_index", "max")

    def round_shares(self, rounds: int) -> tuple[float, ...]:
        """Return the share of each round: the information, then growing scores."""
        require(rounds <= MOST_ROUNDS, "rounds", rounds, f"{MOST_ROUNDS} or fewer")
        return round_shares(rounds)

    def with_privacy(self, privacy: Privacy | Open) -> Self:
        """This task under a promise to records, or in an open run.

        Raises:
            Refused: There are no public intervals; or the promise is about sites, has another noise or a clip
                bound, or draws sites.
        """
        allowed = f"1: {self.kind} sums over all sites"
        require(privacy.participation == 1, "participation", privacy.participation, allowed)
        if self.grid is None and self.horizon is None:
            raise Refused(
                f"{self.kind} needs public intervals: give [task] horizon, the end of follow-up, or grid, "
                "the ends of intervals"
            )
        if isinstance(privacy, Open):
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
        return self

    def choices(self, privacy: Privacy | Open, rounds: int) -> list[str]:
        """Return sentences on what was chosen, and why."""
        if isinstance(privacy, Open):
            return []
        return [
            "Cox regression with hazards constant within public intervals; each record is bounded by "
            "construction, so that nothing is clipped",
            f"{rounds} rounds with all records: one for the information, the others for scores",
            f"{EXITS + MOMENTS:.0%} of the promise buys times of exits, and the moments of features",
        ]

    def bind(self, federation: Federation, provenance: Provenance) -> Self:
        """This task with its columns, once the data are found valid."""
        rows = require_rows(federation)
        require_sites(rows, causes=1)
        refuse_weights(rows)
        names, encoding = select_names(rows.store.columns, tuple(self.columns) or None), rows.encoding
        bound = replace(
            self, columns=names, encoding=encoding or Encoding(), names=tuple(federation),
            late="entry" in rows.store.targets,
        )  # fmt: skip
        # Columns that nothing public bounds are refused before anything is charged.
        _ = bound._design
        self.require_records(rows, private=not provenance.allowed)
        return bound

    def require_records(self, federation: Federation, *, private: bool) -> None:
        """Refuse another unit of time than the horizon; the scale of features does not matter."""
        rows = require_rows(federation)
        if not federation.distant:
            require_horizon(rows.store, self.last_end, "all sites together")

    def advise(self, federation: Federation) -> list[str]:
        """Advice about these records, with counts and values: for their owner, or where they are public."""
        return advise(require_rows(federation))

    def with_mechanism(self, mechanism: Mechanism) -> Self:
        """This task with the noise of each round."""
        rounds, sites = range(1, mechanism.rounds + 1), len(self.names)
        return replace(
            self, noises=tuple(mechanism.at_round(number).deviation(sites) * sites for number in rounds)
        )

    def at_one_site(self, pooled: Federation) -> Self:
        """This task where one site learns from its own records, without noise."""
        alone = replace(self, noises=(), by_site=False, names=self.names[:1])
        asked = alone.initial_query.train(
            np.zeros(0), pooled.cohort(list(pooled)), NoPrivacy(), Key(0)
        ).matrix
        return alone.with_answers(alone.initial_query.decode(asked.mean(axis=0)))

    def at_round(self, number: int, rounds: int) -> Self:
        """This task in a round; the first one is asked for the information."""
        return replace(self, number=number, rounds=rounds)

    @property
    def initial_query(self) -> "MomentQuery":
        """The query for exits and moments."""
        return MomentQuery(design=self._design)

    @property
    def sent(self) -> int | None:
        """Count of numbers that each site sends."""
        size = self._size
        return size * (size + 1) // 2 if self.number <= 1 else size

    def start(self, federation: Federation, key: Key) -> Array:
        """Nothing released yet."""
        size = self._size
        return Released(np.zeros(size * (size + 1) // 2), np.zeros((MOST_ROUNDS, size)), 0).encode()

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Compute each site's noisy sum of information, or of scores."""
        if not self.released:
            raise Refused(f"{self.kind} cannot train before the query for {MomentQuery.kind} is answered")
        states = np.broadcast_to(state, (len(cohort), state.shape[-1]))
        found: list[Array] = []
        for place, name in enumerate(cohort.names):
            table = regression_table(cohort.records_of(place), tuple(self.columns), f"site {name}")
            records = self._design.records(table, name)
            rows: InformationRows | ScoreRows
            if self.number <= 1:
                rows = InformationRows(records, self._begun.regressors)
            else:
                path = self._path(states[place])
                rows = ScoreRows(records, path.public, path.points[-1])
            rows.regressors.require_finite()
            found.append(mechanism.noisy_sums(rows, [key / name / "noise"], 0)[0])
        return Updates(cohort.names, np.stack(found))

    def advance(self, state: Array, step: Array) -> Array:
        """Keep what was released; `step` is a mean over sites."""
        before, summed = Released.decode(state, self._size), step * len(self.names)
        if not before.rounds:
            return replace(before, information=summed, rounds=1).encode()
        scores = before.scores.copy()
        scores[before.rounds - 1] = summed
        return replace(before, scores=scores, rounds=before.rounds + 1).encode()

    def score(self, state: Array, held_out: Table) -> dict[str, float]:
        """Harrell's concordance on held-out records."""
        from tacit.survival.metrics import harrell

        table = regression_table(held_out, tuple(self.columns), "the held-out records")
        # Nothing is known before the first score.
        beta = self.model(state).coefficients if state[0] >= 2 else np.zeros(len(self.columns))
        risk = table.features @ beta
        return {"c_index": harrell(table.targets["time"], table.targets["event"] > 0, risk)}

    def simplest(self, start: Array, held_out: Table) -> Simplest:
        """Ranking by chance: a concordance of one half."""
        return Simplest(name="ranking by chance", how="pairs in random order", scores={"c_index": 0.5})

    def model(self, state: Array) -> PrivateCoxFit:
        """The fit: coefficients, standard errors, reasons for what is hidden.

        Raises:
            Refused: There was no round of scores yet.
        """
        if state[0] < 2:
            raise Refused(f"{self.kind} has no fit yet: no score was released")
        provenance = f"released: in rounds of {self.kind}; the statement of the run has the price"
        sums, noise = self._answers
        table = self._design.exits([sums], noise, ("all sites",), provenance)
        options = CoxOptions(
            strata="site" if self._design.by_site else None, grid=self._ends, level=self.level
        )
        return self._design.fit(options, self._begun, self._path(state), table, provenance)

    def findings(self, state: Array) -> list[str]:
        """Return the numbers of records and events, as they were released, and the notes on the fit."""
        base = self._begun.baseline
        found = [
            f"about {base.records:,.0f} records and {base.events:,.0f} events, as the sites released them"
        ]
        return [*found, *self.model(state).notes()] if state[0] >= 2 else found

    def pictures(
        self, state: Array, rounds: "Sequence[Round]", read: "Callable[[str], bytes | None]"
    ) -> "Sequence[Figure]":
        """The figure of a report: hazard ratios with their intervals."""
        from tacit.survival.figures.report import pictures

        return pictures(self, state, rounds, read)

    @property
    def last_end(self) -> float:
        """The end of the time grid."""
        return float(self._ends[-1])

    @property
    def _ends(self) -> Array:
        if self.grid is not None:
            return np.asarray(self.grid, dtype=np.float64)
        return interval_ends(1.0 if self.horizon is None else self.horizon, INTERVALS)

    @property
    def _design(self) -> CoxDesign:
        # Before a federation is known, a plan needs no columns.
        columns: tuple[str, ...] = tuple(self.columns) if self.names else ()
        ranges: Mapping[str, Sequence[float]] = self.ranges if self.names else {}
        return CoxDesign(
            columns=columns,
            ends=self._ends,
            limits=feature_limits(columns, self.encoding, ranges, None),
            sites=tuple(self.names),
            by_site=self.by_site and len(self.names) > 1,
            late=self.late,
            followed=self.followed,
        )

    @property
    def _size(self) -> int:
        return self._design.regressors

    @property
    def _answers(self) -> tuple[Array, float]:
        return np.asarray(self.released["sums"], dtype=np.float64), float(self.released["noise"][0])

    @property
    def _begun(self) -> Start:
        return self._design.start(*self._answers, self.noises or (0.0,) * max(self.rounds, ROUNDS))

    def _path(self, state: Array) -> ScorePath:
        """The path so far, from what was released."""
        held = Released.decode(state, self._size)
        noises = self.noises or (0.0,) * (held.rounds + 1)
        path = ScorePath.begin(self._begun, held.information, noises[0])
        for place, scores in enumerate(held.scores[: held.rounds - 1], start=1):
            path = path.step(scores, noises[min(place, len(noises) - 1)])
        return path


@dataclass(frozen=True, eq=False)
class Released:
    """State between rounds: what was released, and is public.

    Args:
        information: Sums of the information.
        scores: Sums of scores (`MOST_ROUNDS`, regressors); 0 in rounds to come.
        rounds: Number of finished rounds.
    """

    information: Array
    scores: Array
    rounds: int

    def encode(self) -> Array:
        """As a flat vector."""
        return np.concatenate([[float(self.rounds)], self.information, self.scores.ravel()])

    @classmethod
    def decode(cls, state: Array, size: int) -> "Released":
        """From a flat vector."""
        end = 1 + size * (size + 1) // 2
        return cls(state[1:end], state[end:].reshape(-1, size), round(float(state[0])))


@dataclass(frozen=True, kw_only=True, eq=False)
class MomentQuery(InitialQueryBase):
    """Query for exits by interval and the moments of features, in one release.

    Args:
        design: The public choices of the regression.
    """

    design: CoxDesign
    kind: ClassVar[str] = "exits and moments"
    share: ClassVar[float] = EXITS + MOMENTS
    share_of: ClassVar[ShareOf] = "noise"
    always: ClassVar[bool] = True

    @property
    def placeholder(self) -> dict[str, Any]:
        """Return moments of one record."""
        return {"released": {"sums": [1.0] * self.width, "noise": [1.0]}}

    @property
    def width(self) -> int:
        """Number of sums."""
        return self.design.layout.width

    def record_bound(self, norm: Norm) -> float:
        """A contribution has length 1 at most."""
        return 1.0 if norm == "l2" else np.inf

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Return the sums of each site (sites, sums), through the mechanism."""
        found: list[Array] = []
        for place, name in enumerate(cohort.names):
            table = regression_table(cohort.records_of(place), self.design.columns, f"site {name}")
            rows = self.design.moments(table, name)
            found.append(mechanism.noisy_sums(rows, [key / name / "noise"], 0)[0])
        return Updates(cohort.names, np.stack(found))

    def decode(self, combined: Array, noise: float = 0.0) -> dict[str, Any]:
        """Return the sums over all sites and the deviation of their noise."""
        sites = len(self.design.sites)
        sums: list[float] = (combined * sites).tolist()
        return {"released": {"sums": sums, "noise": [noise * sites]}}
