"""Criteria that choose among trained candidates: held-out records, or noisy comparisons from every site.

If held-out records may be looked at, one half of them decides and the other half scores the result. If not,
every site keeps records apart and sums by how much each of them prefers one candidate to another. Only a
sum of clipped comparisons plus noise leaves a site, so no trusted party has to choose.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, cast

import numpy as np

from tacit.errors import InvalidValue, Refused, require, require_positive
from tacit.learning.task import Goal, TaskBase
from tacit.privacy.accounting import calibrate
from tacit.privacy.accounting.release import Release, clipped_release
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.mechanisms.base import RecordLevel
from tacit.privacy.policy import Open, Privacy
from tacit.runs.queries import charge_sums, initial_query_of
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Federation
from tacit.sites.table import Records, Table
from tacit.survival.models.learner import SurvivalLearner
from tacit.survival.models.newton_ph import NewtonPH

# The default share of epsilon for the choice. Prices of noise add like squares, so that a quarter
# for the choice takes about a thirtieth from the training.
SHARE = 0.25
# A loss beyond this is as bad as any, and a chance below that as small: what diverged is not told apart.
WORST, LEAST = 1e6, 1e-12


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Options of the selection among candidates: the table [tune].

    Args:
        epsilon: The part of the budget for the choice when records that sites keep apart decide; by default a
            quarter. Held-out records that may be looked at decide for free, unless this is given.
        apart: The share of its records that a site then keeps apart; each is drawn in secret.
        bound: The clip norm of one record's comparison of the candidates.
    """

    epsilon: float | None = None
    apart: float = 0.2
    bound: float = 1.0
    kind: ClassVar[str] = "grid"

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            require_positive("epsilon", self.epsilon)
        require(0 < self.apart < 1, "apart", self.apart, "above 0 and below 1")
        require_positive("bound", self.bound)

    def price(self, privacy: Privacy) -> float:
        """Share of the budget for the choice."""
        whole, part = privacy.epsilon, self.epsilon
        if whole is None and part is None:
            raise InvalidValue(
                "[tune] epsilon is missing: the promise gives a noise multiplier, so give the price of the "
                "choice"
            )
        if whole is not None and part is not None:
            require(part < whole, "[tune] epsilon", part, f"below that of the promise, {whole:g}")
        return part if part is not None else SHARE * cast(float, whole)

    def pays(self, privacy: Privacy | Open, federation: Federation) -> bool:
        """Return True if records that sites keep apart decide, False if held-out records do.

        Raises:
            Refused: There is nothing that may decide; the message names a way out.
        """
        if self.epsilon is None and federation.held_out is not None:
            return False
        if isinstance(privacy, Open):
            raise Refused(
                "[tune] has no held-out records to choose by: hold some out"
                if self.epsilon is None
                else "[tune] epsilon pays for a choice in runs that protect records; this run makes no "
                "promise. Remove it, and choose by held-out records"
            )
        if privacy.unit != "record":
            raise Refused(
                "[tune] cannot choose by private records where whole sites are protected: noise would hide "
                "the answer of a single site. Choose by public records: [data] test, without [tune] epsilon"
            )
        _ = self.price(privacy)
        return True


class Choice(Protocol):
    """Protocol of the criterion that decides among trained candidates."""

    @property
    def goal(self) -> Goal:
        """The score that decides, and its good direction."""
        ...

    @property
    def noise(self) -> float | None:
        """The standard deviation of the noise on a score; None where scores are exact."""
        ...

    def release(self) -> tuple[Release, ...]:
        """The price."""
        ...

    def scores(
        self, trained: Mapping[str, "TrainedCandidate"], ledger: Ledger, key: Key, plan: str | None = None
    ) -> dict[str, float]:
        """Charge the ledger and return the score of each candidate."""
        ...


@dataclass(frozen=True, eq=False)
class TrainedCandidate:
    """A candidate after its training; post-processing of what has been paid for."""

    task: TaskBase
    state: Array


@dataclass(frozen=True, eq=False)
class ByHeldOut:
    """Choose by the score that counts, on held-out records; costs nothing."""

    records: Records
    goal: Goal

    @property
    def noise(self) -> float | None:
        """Scores are exact."""
        return None

    def check(self, task: TaskBase, federation: Federation) -> None:
        """Refuse records that no score can be computed on, before anything is charged."""
        if initial_query_of(task) is not None:
            # The task can be scored only after its initial query.
            return
        try:
            _ = task.score(task.start(federation, Key(0)), self.records)
        except InvalidValue as error:
            few = f"one half of the held-out records ({len(self.records)}) cannot be scored"
            raise InvalidValue(f"{few}: hold out more ({error})") from error

    def release(self) -> tuple[Release, ...]:
        """Nothing is charged."""
        return ()

    def scores(
        self, trained: Mapping[str, TrainedCandidate], ledger: Ledger, key: Key, plan: str | None = None
    ) -> dict[str, float]:
        """The score of each candidate; what diverged has none."""
        found = {
            name: one.task.score(one.state, self.records).get(self.goal[0], np.nan)
            for name, one in trained.items()
        }
        return {name: value for name, value in found.items() if np.isfinite(value)}


@dataclass(frozen=True, eq=False)
class ByReservedRecords:
    """Choose by noisy comparisons on records that sites keep apart.

    Args:
        apart: Those records.
        tuning: The options of the choice: its epsilon and its clip norm.
        privacy: The promise it is paid from.

    Guarantee:
        One record more or less moves what its site tells by at most the bound, in the norm of the noise,
        however many candidates there are.
    """

    apart: Federation
    tuning: Tuning
    privacy: Privacy

    @property
    def goal(self) -> Goal:
        """The noisy loss."""
        return ("noisy_loss", "min")

    @cached_property
    def multiplier(self) -> float:
        """Noise in units of the bound."""
        price, law = self.tuning.price(self.privacy), self.privacy.mechanism
        return calibrate(epsilon=price, delta=self.privacy.delta, mechanism=law)

    @property
    def noise(self) -> float | None:
        """Standard deviation of the noise in the sum over all sites."""
        each = self.multiplier * self.tuning.bound * (1.0 if self.privacy.mechanism == "gaussian" else 2**0.5)
        return each * len(self.apart) ** 0.5

    def release(self) -> tuple[Release, ...]:
        """One release for each site."""
        return tuple(
            clipped_release(
                self.multiplier,
                clip=self.tuning.bound,
                law=self.privacy.mechanism,
                subject=f"records@{name}",
                party=name,
                purpose="choice among candidates",
                rehearsal=self.privacy.rehearsal,
            )
            for name in self.apart
        )

    def scores(
        self, trained: Mapping[str, TrainedCandidate], ledger: Ledger, key: Key, plan: str | None = None
    ) -> dict[str, float]:
        """Return each candidate's total loss minus the average candidate's, with noise."""
        rows = {name: comparisons(list(trained.values()), self.apart.records_of(name)) for name in self.apart}
        charge_sums(ledger, self.release(), "choice", rows, key, plan)
        guard = RecordLevel(
            law=self.privacy.mechanism,
            clip=self.tuning.bound,
            multiplier=self.multiplier,
            steps=1,
            rate=1.0,
            rehearsal=self.privacy.rehearsal,
        )
        told = np.zeros(len(trained))
        for name, found in rows.items():
            told += guard.noisy_sum(found, key / name / "choice")
        return dict(zip(trained, told.tolist(), strict=True))


def comparisons(trained: Sequence[TrainedCandidate], table: Table) -> Array:
    """Return each candidate's loss minus the average candidate's, by record (records, candidates).

    What all candidates have in common says nothing about which is better, and would only need more noise.
    """
    if len(table) == 0:
        return np.zeros((0, len(trained)))
    losses = np.stack(_losses(trained, table), axis=1)
    bounded = np.clip(np.nan_to_num(losses, nan=WORST, posinf=WORST, neginf=-WORST), -WORST, WORST)
    return bounded - bounded.mean(axis=1, keepdims=True)


def require_comparable(tasks: Sequence[TaskBase]) -> None:
    """Refuse candidates whose losses mean different things, before anything is charged."""
    on_grids = all(isinstance(task, SurvivalLearner | NewtonPH) for task in tasks)
    alike = len({task.kind for task in tasks}) == 1 and all(task.separable for task in tasks)
    if not (on_grids or alike):
        raise Refused(
            "[tune] cannot compare these candidates record by record: their losses mean different things, or "
            "couple records. Choose by public records: [data] test, without [tune] epsilon"
        )


def _losses(trained: Sequence[TrainedCandidate], table: Table) -> list[Array]:
    """Return the loss of each record under each candidate, by one yardstick for all."""
    grids = [ends for one in trained if (ends := _time_grid(one.task)) is not None]
    if len(grids) < len(trained):
        return [one.task.losses(one.state, table) for one in trained]
    # Beyond its horizon a model predicts nothing: all are compared until the first one ends.
    last = min(ends[-1] for ends in grids)
    finest = [*(end for end in max(grids, key=len) if end < last), last]
    return [_on_grid(one.task.model(one.state), finest, table) for one in trained]


def _time_grid(task: TaskBase) -> Sequence[float] | None:
    """Return the public time grid of a survival model, bought or given; None for other tasks."""
    if isinstance(task, SurvivalLearner):
        return cast("Sequence[float]", task.cuts)
    return task.baseline["ends"] if isinstance(task, NewtonPH) else None


def _on_grid(model: Any, ends: Sequence[float], table: Table) -> Array:  # noqa: ANN401
    """Return the negative log-likelihood of survival curves of any model, on one public grid."""
    from tacit.learning.elementwise import expm1, log
    from tacit.survival.models.losses import HazardLoss

    curves = np.asarray(model.survival(table.features, ends), dtype=np.float64)
    with np.errstate(invalid="ignore"):
        heights = log(np.clip(curves, LEAST, 1.0))
        added = np.maximum(-np.diff(heights, axis=1, prepend=0.0), LEAST)
        # The log-odds of the event in an interval that adds so much hazard.
        return HazardLoss(ends).values(log(expm1(added)), table.targets)
