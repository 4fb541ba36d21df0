"""Kaplan-Meier curves as a task: each site counts its exits by interval and state, once.

Each record leaves a study once, so one record more or less moves one cell by one, however fine the grid is.
All results from the counts of all sites, curves and their bands, incidences and restricted means, are those
of `tacit.survival.statistics` and cost nothing more. With `by`, records are counted by arm as well: curves of
each arm, the log-rank test and the difference of restricted means come from the same table, at the same
price. Other features play no part in it.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from tacit.errors import (
    MOST_CAUSES,
    MOST_CUTS,
    InvalidValue,
    Refused,
    is_between,
    require,
    require_count,
    require_positive,
)
from tacit.learning.query import Updates
from tacit.learning.task import Goal
from tacit.privacy.ledger.payment import PUBLIC, from_sites
from tacit.privacy.mechanisms.base import NORMS, Mechanism
from tacit.privacy.mechanisms.counts import NoisyCounts, SecureCounts
from tacit.privacy.mechanisms.discrete import discrete_laplace_variance
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import BOUND
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort, Federation, RowFederation, require_rows
from tacit.sites.table import Table
from tacit.survival.life_table import (
    Groups,
    LifeTable,
    define_groups,
    ratio,
    refuse_weights,
    require_exits,
    require_grid,
)
from tacit.survival.signed_table import CellNoise
from tacit.survival.statistics.sum_task import ExitCounts, SumTask, coarsen, sensitivity, site_indicators

if TYPE_CHECKING:
    from tacit.learning.record import Round
    from tacit.reports.page.blocks import Figure
    from tacit.survival.statistics.curves import Estimate, LogRank, RestrictedMean


WHAT = "counts of exits by interval and state"
# Counts that are no further than this from whole ones are whole: means are rounded.
WHOLE = 1e-9
# Odds beyond this are as good as certain.
CERTAIN = 1e-9


@dataclass(frozen=True, kw_only=True)
class CountTerms:
    """Terms of the release of counts, found by the task, never given.

    Args:
        sites: The sites.
        late: Whether records have an entry.
        public: Whether the records are public.
        unit: The protected unit, if there is one.
        law: The noise, if there is any.
        clip: The bound of the protected unit.
        noise: The deviation of the noise in each count of all sites together.
        rehearsal: Whether that noise repeats.
        summed: Whether only the sum over all sites is seen.
        groups: The arms, if records are counted by arm.
        scale: The scale of one discrete Laplace noise, if that is the noise.
    """

    sites: Sequence[str] = ()
    late: bool = False
    public: bool = False
    unit: Literal["record", "site"] | None = None
    law: Literal["gaussian", "laplace"] | None = None
    clip: float | None = None
    noise: float = 0.0
    rehearsal: bool = False
    summed: bool = False
    groups: Groups | None = None
    scale: float | None = None

    @property
    def has_indicators(self) -> bool:
        """True if sites send indicators: not under site-level protection, where absent sites count too.

        Nor in secure sums over records, where every site sends its noisy counts and nothing else.
        """
        return self.unit != "site" and not self.summed

    @property
    def record_unit(self) -> float:
        """Weight of one record in a site's counts, such that no record is longer than the clip.

        Discrete Laplace noise is for whole counts.
        """
        if self.unit != "record" or self.law == "laplace":
            return 1.0
        assert self.clip is not None
        assert self.law is not None
        return self.clip / sensitivity(1 + self.late, NORMS[self.law])


@dataclass(frozen=True, kw_only=True)
class KaplanMeier(SumTask):
    """Kaplan-Meier curves, log-rank test and restricted means, from one table of counts of each site.

    Args:
        grid: Public ends of the intervals in which exits are counted. Without `grid` and `horizon` every exit
            time leaves the sites; only an open run in one process may do that.
        cuts: Number of intervals of equal length up to the horizon.
        horizon: End of the last interval; a public number.
        causes: Number of causes: events 1, 2, ... in the records.
        level: Confidence level of the bands and intervals.
        by: A column whose values are the arms: curves of each, a log-rank test of equal hazards, and
            restricted means cost nothing more than the curve of all records.
        values: The values of that column; public. By default 0 and 1, or the levels of a column of words.
        until: Horizon of the restricted means; by default the end up to which the curves are known.
        known: Release of the counts; filled in.
    """

    grid: Sequence[float] | None = None
    cuts: int = 30
    horizon: float | None = None
    causes: int = 1
    level: float = 0.95
    by: str | None = None
    values: Sequence[float] | None = None
    until: float | None = None
    known: CountTerms = field(default_factory=CountTerms, metadata=BOUND)
    kind: ClassVar[str] = "kaplan-meier"
    once: ClassVar[bool] = True
    own_bound: ClassVar[float | None] = 1.0
    # Defaults of an experiment file. The curve of a site alone is nothing to compare with.
    usual: ClassVar[Mapping[str, Any]] = {"rounds": 1, "baselines": False}

    def __post_init__(self) -> None:
        if self.grid is not None:
            require_grid(self.grid)
            require(self.horizon is None, "horizon", self.horizon, "left out where grid gives the ends")
        require_count("cuts", self.cuts, MOST_CUTS)
        if self.horizon is not None:
            require_positive("horizon", self.horizon)
        require_count("causes", self.causes, MOST_CAUSES)
        require(is_between(self.level, 0, 1), "level", self.level, "above 0 and below 1")
        require(self.by is not None or self.values is None, "values", self.values, "left out without by")
        if self.until is not None:
            require_positive("until", self.until)

    @property
    def separable(self) -> bool:
        """Counts are sums over records."""
        return True

    @property
    def goal(self) -> Goal:
        """Return the integrated Brier score: that of one curve for all records, which models have to beat."""
        return ("ibs", "min")

    def with_privacy(self, privacy: Privacy | Open) -> Self:
        """This as a promise wants it: in units of its clip, and with public intervals."""
        self.require_all_sites(privacy)
        if isinstance(privacy, Open):
            return replace(self, known=CountTerms())
        if self.grid is None and self.horizon is None:
            raise Refused(
                f"{self.kind} needs public intervals: noise on counts does not hide the times of exits. Give "
                "[task] grid, their ends, or a horizon"
            )
        if privacy.clip_quantile is not None:
            raise Refused(
                f"clip_quantile does not go with {self.kind}: counts are sent once, so clip bounds cannot "
                "adapt. Use a fixed clip"
            )
        known = CountTerms(
            unit=privacy.unit, law=privacy.mechanism, clip=self._clip(privacy), rehearsal=privacy.rehearsal,
            summed=privacy.unit == "record" and privacy.noise == "secure",
        )  # fmt: skip
        return replace(self, known=known)

    @property
    def cells_per_record(self) -> int | None:
        """One cell of exits, and one of entries if records come late; a whole site moves any number."""
        return 1 + self.known.late if self.known.unit == "record" else None

    def round_shares(self, rounds: int) -> tuple[float, ...] | None:
        """Return one share, in secure sums over records; None otherwise."""
        return (1.0,) if self.known.summed else None

    def _clip(self, privacy: Privacy) -> float:
        """Return the bound of the protected unit: counts of single records are bounded by construction."""
        return 1.0 if privacy.clip is None and privacy.unit == "record" else privacy.bound

    def bind(self, federation: Federation, provenance: Provenance) -> Self:
        """Bind the task to valid data, with its intervals.

        Raises:
            InvalidValue: Times, events or entries of some site are not valid.
            Refused: Every exit time would have to be known where it cannot be, or records have weights.
        """
        rows = require_rows(federation)
        if self.known.unit == "record":
            refuse_weights(rows)
        for name in () if federation.distant else federation:
            require_exits(federation.records_of(name), self._states, f"site {name}")
        if isinstance(federation.held_out, Table):
            require_exits(federation.held_out, self._states, "the held-out records")
        groups = self._groups(rows)
        if groups is not None and not federation.distant:
            for name in federation:
                groups.require_members(federation.records_of(name), f"site {name}")
        known = replace(
            self.known,
            groups=groups,
            sites=tuple(federation),
            late="entry" in rows.store.targets,
            public=federation.public,
            # The noise is found later; a given one is ignored.
            noise=0.0,
        )
        return replace(self, grid=self._cut(rows, provenance), horizon=None, known=known)

    def _groups(self, federation: RowFederation) -> Groups | None:
        """Return the arms, from public facts wherever records are private or elsewhere."""
        if self.by is None:
            return None
        by = self.by if self.values is None else {self.by: self.values}
        private = self.known.unit is not None or federation.distant
        return define_groups(by, federation, private, example="values = [1, 2, 3]")

    def _cut(self, federation: RowFederation, provenance: Provenance) -> tuple[float, ...]:
        """Return the ends of the intervals: given, equidistant, or every exit time."""
        if self.grid is not None:
            return tuple(float(end) for end in self.grid)
        if self.horizon is not None:
            return tuple(float(end) for end in np.linspace(0, self.horizon, self.cuts + 1)[1:])
        if federation.distant:
            raise Refused(
                f"{self.kind} needs public intervals where the records are at the sites: give [task] grid, "
                "their ends, or a horizon"
            )
        provenance.look("every exit time", instead="give [task] grid, the ends of public intervals")
        return tuple(float(end) for end in np.unique(federation.store.targets["time"]))

    def with_mechanism(self, mechanism: Mechanism) -> Self:
        """Return this task with the public parameters of the noise."""
        sites = len(self.known.sites)
        noise = sites * mechanism.deviation(sites) / self.known.record_unit
        counts = isinstance(mechanism, NoisyCounts | SecureCounts)
        return replace(
            self, known=replace(self.known, noise=noise, scale=mechanism.scale if counts else None)
        )

    def at_round(self, number: int, rounds: int) -> Self:
        """Return this task; there is one round."""
        require(
            rounds == 1,
            "rounds",
            rounds,
            f"1: {self.kind} counts all records once, and everything else is free",
        )
        return self

    @property
    def _states(self) -> int:
        return 1 + self.causes

    @property
    def _ends(self) -> Array:
        assert self.grid is not None, "settle comes first"
        return np.asarray(self.grid, dtype=np.float64)

    @property
    def _prefix_size(self) -> int:
        """Number of coordinates before the counts: a mark of noise, and the sites' indicators."""
        return 1 + len(self.known.sites) if self.known.has_indicators else 0

    def start(self, federation: Federation, key: Key) -> Array:
        """Return counts of 0."""
        intervals, late = len(self._ends), int(self.known.late)
        cells = (self._states + late) * intervals + 1 + late
        return np.zeros(self._prefix_size + self._arms * cells, dtype=np.float64)

    @property
    def _arms(self) -> int:
        return 1 if self.known.groups is None else len(self.known.groups.labels)

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Return the indicators and the counts of each site, through the mechanism (sites, marks + cells)."""
        told: list[Array] = []
        for place, name in enumerate(cohort.names):
            table = cohort.records_of(place)
            # Remote records have not been checked before.
            require_exits(table, self._states, f"site {name}")
            if self.known.groups is not None:
                self.known.groups.require_members(table, f"site {name}")
            one = self.known.record_unit
            counted = ExitCounts(table, self._ends, self._states, one, self.known.groups)
            told.append(mechanism.noisy_sums(counted, [key / name / "noise"], 0)[0])
        noisy = np.full((len(cohort), 1), float(mechanism.deviation(1) > 0))
        marked = np.hstack([noisy, site_indicators(cohort.names, self.known.sites)])[:, : self._prefix_size]
        return Updates(cohort.names, np.hstack([marked, np.stack(told)]))

    def advance(self, state: Array, step: Array) -> Array:
        """Return the counts, as a mean over the participating sites."""
        after = state + step
        if self.known.has_indicators and not self._present_sites(after) and bool(step.any()):
            raise self.not_a_mean()
        return after

    def score(self, state: Array, held_out: Table) -> dict[str, float]:
        """Return the integrated Brier score of the curve on held-out records."""
        from tacit.survival.metrics import censoring, integrated_brier
        from tacit.survival.models.prediction import scoring_times

        time, happened = held_out.targets["time"], held_out.targets["event"] > 0
        times = scoring_times(time)
        curves = np.broadcast_to(self.model(state).at(times), (len(held_out), len(times)))
        uncensored = censoring(time, happened)
        return {"ibs": integrated_brier(time, happened, curves, times, censoring=uncensored)}

    def losses(self, state: Array, table: Table) -> Array:
        """The negative log-likelihood of each record, by the interval it left in."""
        from tacit.survival.models.losses import HazardLoss

        counted = self.life_table(state)
        exits = counted.exits()
        chances = np.clip(ratio(exits.happened[0], exits.exposed[0]), CERTAIN, 1 - CERTAIN)
        outputs = np.broadcast_to(np.log(chances / (1 - chances)), (len(table), len(chances)))
        return HazardLoss(tuple(counted.grid)).values(outputs, table.targets)

    def model(self, state: Array) -> "KaplanMeierFit":
        """The curves of all sites together."""
        counted = self.counted(state)
        return KaplanMeierFit(
            coarsen(counted) if counted.variance else counted, self.level, counted, self.until
        )

    def findings(self, state: Array) -> list[str]:
        """The curve in a sentence, and the comparison of the arms."""
        fitted = self.model(state)
        found, last = fitted.survival, fitted.survival.table.iloc[-1]
        return [
            f"median {found.median:g}; at {float(found.table.index[-1]):g} survival is "
            f"{last['survival']:.3f}, between {last['lower']:.3f} and {last['upper']:.3f}",
            *(fitted.comparison() if self.by is not None else []),
        ]

    def shortcomings(self, state: Array) -> list[str]:
        """Return a warning that names the sites missing from the curve."""
        missing = [name for name in self.known.sites if name not in self._present_sites(state)]
        return [f"not counted: {', '.join(missing)}"] if missing else []

    def pictures(
        self, state: Array, rounds: "Sequence[Round]", read: "Callable[[str], bytes | None]"
    ) -> "list[Figure]":
        """The figures of a report: the curve with its band, and incidences."""
        from tacit.survival.figures.report import pictures

        return pictures(self, state, rounds, read)

    def life_table(self, state: Array) -> LifeTable:
        """Return the exits of all participating sites; with noise, in intervals that stand out of it."""
        found = self.counted(state)
        return coarsen(found) if found.variance else found

    def counted(self, state: Array) -> LifeTable:
        """Return the counts of all participating sites as they are, in all intervals."""
        known, came = self.known, self._present_sites(state)
        counts = state[self._prefix_size :] * len(came) / known.record_unit
        # A baseline, of one site or of all in one place, is computed without noise.
        noise = known.noise if bool(state[0] > 0) or not known.has_indicators else 0.0
        variance = noise**2 * len(came) / len(known.sites)
        if not variance:
            near = np.rint(counts)
            counts = np.where(np.abs(counts - near) < WHOLE * np.maximum(near, 1.0), near, counts)
        law = None
        if known.scale is not None and variance:
            times = variance / discrete_laplace_variance(known.scale)
            law = CellNoise(law="discrete-laplace", scale=known.scale, times=times)
        by, labels = (None, ()) if known.groups is None else (known.groups.column, known.groups.labels)
        whole, told = counts.reshape(1, self._arms, -1), self._provenance(came)
        return LifeTable(
            self._ends, whole, ("all sites",), by, variance, False, told, known.late, labels, law
        )

    def _present_sites(self, state: Array) -> tuple[str, ...]:
        """Return the sites whose counts are in a state."""
        sites = tuple(self.known.sites)
        if not self.known.has_indicators:
            return sites
        return self.present_sites(state[1 : self._prefix_size], sites)

    def _provenance(self, came: Sequence[str]) -> str:
        """Describe in words how the counts left the sites."""
        known = self.known
        everybody = len(came) == len(known.sites)
        whom = from_sites(len(came)) if everybody else f"from {len(came)} of {len(known.sites)} sites"
        if not known.noise:
            return PUBLIC if known.public else f"bare: {WHAT}, {whom}"
        less = f"; sites with counts longer than {known.clip:g} are clipped" if known.unit == "site" else ""
        again = (
            "; REHEARSAL: the noise repeats with the seed and gives no protection" if known.rehearsal else ""
        )
        return (
            f"released: {WHAT}, {whom}, with noise of deviation {known.noise:.4g} in each count of all sites "
            f"together, for any one {known.unit}{less}; the statement of the run has the price{again}"
        )


@dataclass(frozen=True, eq=False)
class KaplanMeierFit:
    """Results from counts of exits: curves, their bands and restricted means of all sites together.

    Args:
        table: The counts, which serve every statistic of `tacit.survival.statistics` as well; with noise, in
            intervals that stand out of it.
        level: Of the bands.
        counted: The counts in all intervals, which tests and restricted means take; by default the same.
        until: Horizon of the restricted means.
    """

    table: LifeTable
    level: float = 0.95
    counted: LifeTable | None = None
    until: float | None = None

    @cached_property
    def survival(self) -> "Estimate":
        """The probability of no event of any cause, by Kaplan and Meier."""
        from tacit.survival.statistics.federated import kaplan_meier

        return kaplan_meier(self.table, level=self.level)

    @cached_property
    def hazard(self) -> "Estimate":
        """The cumulative hazard, by Nelson and Aalen."""
        from tacit.survival.statistics.federated import nelson_aalen

        return nelson_aalen(self.table, level=self.level)

    @cached_property
    def incidence(self) -> "Estimate":
        """The probability of an event of each cause, by Aalen and Johansen."""
        from tacit.survival.statistics.federated import aalen_johansen

        return aalen_johansen(self.table)

    @cached_property
    def survival_by(self) -> "Mapping[str, Estimate]":
        """The survival of each arm."""
        from tacit.survival.statistics.federated import kaplan_meier

        return {label: kaplan_meier(part, level=self.level) for label, part in self._by_arm().items()}

    @cached_property
    def incidence_by(self) -> "Mapping[str, Estimate]":
        """The probability of an event of each cause in each arm, by Aalen and Johansen."""
        from tacit.survival.statistics.federated import aalen_johansen

        return {label: aalen_johansen(part) for label, part in self._by_arm().items()}

    def _by_arm(self) -> dict[str, LifeTable]:
        """Return the table of each arm."""
        require(self.table.by is not None, "by", None, "a column: records were not counted by arm")
        return {
            label: replace(self.table, cells=self.table.cells[:, [place]], by=None, labels=())
            for place, label in enumerate(self.table.groups)
        }

    @property
    def _all_intervals(self) -> LifeTable:
        return self.table if self.counted is None else self.counted

    @cached_property
    def logrank(self) -> "LogRank":
        """The log-rank test of equal hazards in all arms."""
        from tacit.survival.statistics.federated import logrank

        by = self.table.by
        require(by is not None, "by", by, "a column: records were not counted by arm")
        return logrank(self._all_intervals, by=str(by))

    def restricted_mean(self, until: float | None = None) -> "RestrictedMean":
        """The mean time without an event up to a horizon; where there are arms, of each of them.

        Args:
            until: The horizon; by default that of the task, or the end up to which the curves are known.
        """
        from tacit.survival.statistics.federated import restricted_mean

        table = self._all_intervals
        return restricted_mean(table, until=until or self._horizon, by=table.by, level=self.level)

    @property
    def _horizon(self) -> float:
        """Return the horizon of the restricted means."""
        if self.until is not None:
            return self.until
        known = self._all_intervals.exits("group").reliable_intervals
        require(known > 0, "until", None, "given: no interval stands out of the noise")
        return float(self._all_intervals.grid[known - 1])

    def comparison(self) -> list[str]:
        """Describe the comparison of the arms in sentences."""
        test = self.logrank
        degrees = f"{test.degrees} degree{'s' * (test.degrees != 1)} of freedom"
        found = [f"log-rank test by {test.by}: {test.statistic:.2f} on {degrees}, p = {test.p:.3g}"]
        try:
            mean = self.restricted_mean()
        except InvalidValue as error:
            return [*found, f"no restricted means: {error}"]
        parts = [
            f"{label} {value:.4g}" for label, value in mean.table["mean"].items() if label != "difference"
        ]
        found.append(f"mean time without an event up to {mean.until:g} by {test.by}: {', '.join(parts)}")
        if "difference" in mean.table.index:
            last = mean.table.loc["difference"]
            found.append(
                f"their difference is {last['mean']:.4g}, between {last['lower']:.4g} and "
                f"{last['upper']:.4g} (p = {last['p']:.3g})"
            )
        return found

    def at(self, times: Array) -> Array:
        """Return the survival at these times (times,); constant beyond the known end."""
        return self.survival.at(np.minimum(times, self.survival.until))

    def summary(self) -> str:
        """The survival curve as text; with arms, the comparison of these as well."""
        if self.table.by is None:
            return self.survival.summary()
        parts = [self.survival.summary(), self.logrank.summary()]
        with contextlib.suppress(InvalidValue):
            # Where nothing stands out of the noise, there are no means.
            parts.append(self.restricted_mean().summary())
        return "\n\n".join(parts)

    def __str__(self) -> str:
        return self.summary()
