"""Cox regression as a task for the one loop: Newton's method on sums that the sites send.

Each site has a baseline hazard of its own, so what it sends in a round is a number, a gradient and a matrix,
and no event time. Nothing of it is protected: under a promise the task is refused. After enough rounds the
fit is that of `tacit.survival.statistics.cox` with all records in one place.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tacit.errors import InvalidValue, Refused, choices, is_between, require, require_word
from tacit.learning.query import Updates
from tacit.learning.record import Simplest
from tacit.learning.task import Goal, TaskBase
from tacit.privacy.ledger.payment import PUBLIC, from_sites
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import BOUND
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort, Federation, require_rows
from tacit.sites.table import Table
from tacit.survival.life_table import require_exits, require_grid
from tacit.survival.metrics.concordance import from_sums, pair_sums
from tacit.survival.statistics import cox_newton
from tacit.survival.statistics.cox_newton import Slope, Ties, strata_of
from tacit.survival.statistics.sum_task import SumTask, site_indicators

if TYPE_CHECKING:
    from tacit.learning.record import Round
    from tacit.reports.page.blocks import Figure
    from tacit.survival.statistics.cox_fit import CoxFit


WHAT = (
    "a log-likelihood, a gradient and an information matrix in every round, counts of records, events and "
    "concordant pairs"
)
INSTEAD = (
    "use cox-ph with groups_per_site, or poisson-ph, which is the same model on a grid; or protect single "
    'records (unit = "record", mechanism = "gaussian") without clip, where it is learned as private-cox'
)
# Beside a slope a site sends its records, its events, sums over pairs, and whether its numbers overflowed.
TALLIES, PAIRS = 8, slice(2, 7)
# Counters of a state: slopes asked for, steps taken and halved; converged; rounds with a missing site.
COUNTERS = 5


@dataclass(frozen=True, kw_only=True)
class Cox(SumTask):
    """Cox regression stratified by site, with standard errors; under a promise to records, `private-cox`.

    Args:
        columns: The features to regress on; by default all of them.
        ties: Method for tied event times.
        grid: The ends of public intervals that times are rounded up to; by default exact times.
        ridge: Half of it, times the squared length of the coefficients, is taken off the log-likelihood.
        level: Confidence level of the intervals.
        horizon: Under a promise, the public end of follow-up, in place of a grid.
        ranges: Under a promise, the public range of features, low and high, by name.
        followed: Under a promise, expected events up to which a typical record is followed.
        sites: The sites; filled in.
        public: The records are public; filled in.
    """

    columns: Sequence[str] = ()
    ties: Ties = "efron"
    grid: Sequence[float] | None = None
    ridge: float = 0.0
    level: float = 0.95
    horizon: float | None = None
    ranges: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    followed: float | None = None
    sites: Sequence[str] = field(default=(), metadata=BOUND)
    public: bool = field(default=False, metadata=BOUND)
    kind: ClassVar[str] = "cox"
    # Defaults of an experiment file. A site alone, or all records in one place, would take their steps by
    # themselves.
    usual: ClassVar[Mapping[str, Any]] = {"rounds": 12, "baselines": False}

    def __post_init__(self) -> None:
        require_word("ties", self.ties, ("efron", "breslow"))
        if self.grid is not None:
            require_grid(self.grid)
        allowed = "0 or a finite number above it"
        require(self.ridge == 0 or is_between(self.ridge, 0, np.inf), "ridge", self.ridge, allowed)
        require(is_between(self.level, 0, 1), "level", self.level, "above 0 and below 1")

    @property
    def separable(self) -> bool:
        """Return False: the partial likelihood couples all records at risk."""
        return False

    @property
    def goal(self) -> Goal:
        """Return the concordance index as the goal."""
        return ("c_index", "max")

    def resolve(self, privacy: Privacy | Open) -> TaskBase:
        """This task; under a promise to records without a clip bound, `private-cox`.

        Raises:
            InvalidValue: An option has no private version.
        """
        if isinstance(privacy, Open) or privacy.unit != "record" or privacy.clip is not None:
            return self
        from tacit.survival.statistics.private_cox_task import PrivateCox

        require(self.ridge == 0, "ridge", self.ridge, "0 under a promise: the fit offers shrunken estimates")
        return PrivateCox(
            columns=self.columns, grid=self.grid, horizon=self.horizon, ranges=self.ranges,
            followed=self.followed, level=self.level,
        )  # fmt: skip

    def with_privacy(self, privacy: Privacy | Open) -> Self:
        """Return this task in an open run; refuse any promise.

        Raises:
            Refused: Something is.
        """
        if isinstance(privacy, Privacy):
            raise Refused(
                f"{self.kind} cannot keep a promise: it releases {WHAT}, all of it unprotected: {INSTEAD}"
            )
        self.require_all_sites(privacy)
        return self

    def bind(self, federation: Federation, provenance: Provenance) -> Self:
        """Bind the task to valid data, with its columns.

        Raises:
            InvalidValue: There is no such column, or the records of some site are not valid.
            Refused: Something was promised.
        """
        provenance.look(WHAT, instead=INSTEAD)
        known = require_rows(federation).store.columns
        names = tuple(self.columns) or known
        missing = [name for name in names if name not in known]
        if missing or not names:
            raise InvalidValue(f"columns {missing} are not allowed: there are {choices(known)}")
        for name in () if federation.distant else federation:
            require_exits(federation.records_of(name), 2, f"site {name}")
        if isinstance(federation.held_out, Table):
            require_exits(federation.held_out, 2, "the held-out records")
        ends = None if self.grid is None else tuple(float(end) for end in self.grid)
        return replace(self, columns=names, grid=ends, sites=tuple(federation), public=federation.public)

    def start(self, federation: Federation, key: Key) -> Array:
        """Return the initial state: coefficients 0, and no slope yet."""
        return self._shape.encode(cox_newton.initial_state(self.columns), np.zeros(TALLIES), 0)

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Compute each site's slope at the tried coefficients (sites, coordinates)."""
        if state.ndim > 1:
            raise Refused(f"{self.kind} has one state for all sites: remove baselines and [clusters]")
        shape = self._shape
        climb, told = shape.decode(state), np.zeros((len(cohort), shape.size))
        told[:, shape.indicators] = site_indicators(cohort.names, self.sites)
        for place, name in enumerate(cohort.names):
            table = self._select_columns(cohort.records_of(place), f"site {name}")
            if not climb.settled:
                told[place, shape.sums] = self._site_sums(table, climb.trial)
        return Updates(cohort.names, told)

    def _site_sums(self, table: Table, beta: Array) -> Array:
        """Compute a site's tallies and the slope of its likelihood; an overflow is flagged, not sent."""
        parts = strata_of({"own": table}, True, self.ties, self._ends)
        tallies = np.zeros(TALLIES)
        tallies[:2] = len(table), sum(int(part.deaths.sum()) for part in parts)
        slope = flatten(cox_newton.slope_at(parts, beta)) if parts else np.zeros(slope_size(len(beta)))
        if not np.isfinite(slope).all():
            tallies[-1] = 1.0
            return np.concatenate([tallies, np.zeros_like(slope)])
        tallies[PAIRS] = pair_sums(table, beta)
        return np.concatenate([tallies, slope])

    def advance(self, state: Array, step: Array) -> Array:
        """Take the next Newton step, halved if the last led down; do nothing if a site is missing.

        Raises:
            InvalidValue: A column is constant, says what others say, or has a coefficient without bound.
        """
        shape = self._shape
        climb, tallies, missed = shape.decode(state), shape.tallies(state), shape.missed_rounds(state)
        came = self.present_sites(step[shape.indicators], tuple(self.sites))
        if not came:
            raise self.not_a_mean()
        if len(came) < len(self.sites):
            return shape.encode(climb, tallies, missed + 1)
        if climb.settled:
            return state
        told = step[shape.sums] * len(came)
        after = self._newton_step(climb, told)
        # Tallies are those of the coefficients that were accepted.
        kept = told[:TALLIES] if after.here is not climb.here else tallies
        return shape.encode(after, kept, missed)

    def _newton_step(self, climb: cox_newton.NewtonState, told: Array) -> cox_newton.NewtonState:
        broken, events = told[TALLIES - 1] > 0, round(float(told[1]))
        slope = unflatten(told[TALLIES:], len(self.columns))
        if broken:
            # A slope that is not finite counts as downhill.
            slope = replace(slope, log_likelihood=-np.inf)
        elif not events:
            raise InvalidValue(cox_newton.EVENTLESS)
        return climb.update(slope, events, self.columns, self.ridge)

    def stop_reason(self, state: Array) -> str | None:
        """Return the reason to stop if the next step would change nothing."""
        climb = self._shape.decode(state)
        return f"the estimate has converged, after {climb.asked} rounds" if climb.settled else None

    def score(self, state: Array, held_out: Table) -> dict[str, float]:
        """Harrell's concordance on held-out records."""
        from tacit.survival.metrics import harrell

        table = self._select_columns(held_out, "the held-out records")
        time, happened = table.targets["time"], table.targets["event"] > 0
        risk = table.features @ self._shape.decode(state).beta
        return {"c_index": harrell(time, happened, risk)}

    def simplest(self, start: Array, held_out: Table) -> Simplest:
        """Ranking by chance: a concordance of one half."""
        return Simplest(name="ranking by chance", how="pairs in random order", scores={"c_index": 0.5})

    def losses(self, state: Array, table: Table) -> Array:
        """The negative log partial likelihood, as a single loss, over the number of records."""
        own = self._select_columns(table, "records")
        parts = strata_of({"own": own}, True, self.ties, self._ends)
        beta = self._shape.decode(state).beta
        found = cox_newton.slope_at(parts, beta).log_likelihood if parts else 0.0
        return np.array([-found / max(len(own), 1)])

    def model(self, state: Array) -> "CoxFit":
        """The fit: coefficients, standard errors, tests.

        Raises:
            InvalidValue: No round had all sites in it, so nothing is known.
        """
        from tacit.survival.statistics.cox_fit import CoxFit

        climb, tallies = self._shape.decode(state), self._shape.tallies(state)
        if climb.here is None or climb.null is None:
            raise InvalidValue(f"{self.kind} has no fit yet: no round had all sites")
        curvature = climb.here.information + self.ridge * np.eye(len(climb.beta))
        inverse, ordered = np.asarray(np.linalg.inv(curvature), dtype=np.float64), from_sums(tallies[PAIRS])
        return CoxFit(
            columns=tuple(self.columns),
            coefficients=climb.beta,
            covariance=inverse,
            model_covariance=inverse,
            log_likelihood=climb.here.log_likelihood,
            null_log_likelihood=climb.null.log_likelihood,
            score=climb.null.score_statistic,
            records=round(float(tallies[0])),
            events=round(float(tallies[1])),
            concordance=ordered.value,
            concordance_error=ordered.error,
            iterations=climb.asked,
            strata="site",
            ties=self.ties,
            grid=self._ends,
            ridge=self.ridge,
            robust=False,
            level=self.level,
            provenance=PUBLIC if self.public else f"bare: {WHAT}, {from_sites(len(self.sites))}",
        )

    def findings(self, state: Array) -> list[str]:
        """Return a sentence on convergence, once the fit has converged."""
        climb = self._shape.decode(state)
        return [f"converged in {climb.asked} rounds"] if climb.settled else []

    def shortcomings(self, state: Array) -> list[str]:
        """Return warnings: the fit has not converged, and the number of incomplete rounds."""
        climb, missed = self._shape.decode(state), self._shape.missed_rounds(state)
        moving = f"NOT CONVERGED after {climb.asked} rounds: coefficients still change; use more rounds"
        in_vain = f"{missed} rounds were skipped: a site was missing"
        return [moving] * (not climb.settled) + [in_vain] * bool(missed)

    def pictures(
        self, state: Array, rounds: "Sequence[Round]", read: "Callable[[str], bytes | None]"
    ) -> "list[Figure]":
        """The figure of a report: hazard ratios with their intervals."""
        from tacit.survival.figures.report import pictures

        return pictures(self, state, rounds, read)

    @property
    def _shape(self) -> "StateLayout":
        return StateLayout(len(self.columns), len(self.sites))

    @property
    def _ends(self) -> Array | None:
        return None if self.grid is None else np.asarray(self.grid, dtype=np.float64)

    def _select_columns(self, table: Table, place: str) -> Table:
        """Valid records with the columns of the regression alone."""
        require_exits(table, 2, place)
        places = [table.columns.index(name) for name in self.columns]
        return Table(table.features[:, places], table.targets, tuple(self.columns), table.place)


@dataclass(frozen=True)
class StateLayout:
    """Layout of a state: indicators and sums of the sites, then the state of Newton's method.

    The sums at the last accepted coefficients stay in their place.

    Args:
        columns: Number of features.
        sites: Number of sites.
    """

    columns: int
    sites: int

    @property
    def indicators(self) -> slice:
        """Slice of the indicators of participating sites."""
        return slice(0, self.sites)

    @property
    def sums(self) -> slice:
        """Tallies, and the slope of the likelihood."""
        return slice(self.sites, self.sites + TALLIES + self._slope)

    @property
    def size(self) -> int:
        """Number of coordinates of a state."""
        return self.sums.stop + 2 * self.columns + self._slope + COUNTERS

    def encode(self, climb: cox_newton.NewtonState, tallies: Array, missed: int) -> Array:
        """Encode a Newton state, its tallies, and the number of incomplete rounds as one vector."""
        nothing, counted = np.zeros(self._slope), (climb.asked, climb.taken, climb.halved, climb.settled)
        here, null = (nothing if part is None else flatten(part) for part in (climb.here, climb.null))
        parts = (np.zeros(self.sites), tallies, here, climb.beta, climb.step, null, [*counted, missed])
        return np.concatenate(parts).astype(np.float64)

    def decode(self, state: Array) -> cox_newton.NewtonState:
        """Decode the state of Newton's method."""
        values, width = state, self.columns
        beta, step, null, counted = np.split(values[self.sums.stop :], np.cumsum([width, width, self._slope]))
        asked, taken, halved, settled, _ = (round(float(number)) for number in counted)
        begun = asked > 0
        return cox_newton.NewtonState(
            beta=beta,
            step=step,
            here=unflatten(values[self.sums][TALLIES:], width) if begun else None,
            null=unflatten(null, width) if begun else None,
            asked=asked,
            taken=taken,
            halved=halved,
            settled=bool(settled),
        )

    def tallies(self, state: Array) -> Array:
        """Return the sums beside the slope at the last accepted coefficients."""
        return state[self.sums][:TALLIES]

    def missed_rounds(self, state: Array) -> int:
        """Return the number of rounds with a missing site."""
        return round(float(state[-1]))

    @property
    def _slope(self) -> int:
        return slope_size(self.columns)


def slope_size(columns: int) -> int:
    """Return the number of coordinates of a slope."""
    return 1 + columns + columns * (columns + 1) // 2


def flatten(slope: Slope) -> Array:
    """A slope as one vector: the likelihood, its gradient, and the upper half of the information."""
    upper = slope.information[np.triu_indices(len(slope.gradient))]
    return np.concatenate([[slope.log_likelihood], slope.gradient, upper])


def unflatten(values: Array, columns: int) -> Slope:
    """Unflatten the slope from a vector."""
    information = np.zeros((columns, columns))
    information[np.triu_indices(columns)] = values[1 + columns :]
    whole = information + np.triu(information, 1).T
    return Slope(float(values[0]), values[1 : 1 + columns], whole)
