"""An audit of a real run: canaries train with it, through the same code, and say how much was given away."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from tacit.aggregation.base import Aggregator
from tacit.audits.canaries import Canaries, with_canaries
from tacit.audits.lower_bounds import FEWEST, Bounds, bounds
from tacit.errors import InvalidValue, Refused, TacitError, require
from tacit.learning.record import Round, Tell, silent
from tacit.privacy import accounting
from tacit.privacy.accounting.release import Release, by_subject
from tacit.privacy.contracts import AggregatorSpec, QuerySpec, TaskSpec
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.policy import Privacy
from tacit.runs.fit import withhold_results
from tacit.runtime.keys import Key

if TYPE_CHECKING:
    from tacit.experiments.experiment import Experiment
    from tacit.runs.run import Run
    from tacit.sites.federation import Federation

# The default number of canaries; and their number in all rounds together under secure aggregation: each
# then costs a sum of its own.
CANARIES, IN_SECRET = 20_000, 30_000
# The number of records is a single number, which has no room for canaries.
UNHEARD = "number of records"
# Fresh noise resembles other noise by more than this many deviations once in a billion.
ECHO = 6.0


class CanaryPool:
    """The canaries of one run; there are none before its sites are known."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed
        self.canaries: Canaries | None = None

    def for_sites(self, names: Sequence[str]) -> Canaries:
        """Return the canaries of a federation, drawn once."""
        if self.canaries is None:
            self.canaries = Canaries(self.count, names, Key(self.seed) / "canaries")
        return self.canaries


@dataclass(frozen=True, kw_only=True)
class RunBounds(Bounds):
    """Lower bounds from canaries in a run.

    Args:
        charged: The number of answers charged for one subject.
        heard: The number of answers with canaries in them: releases by another way have none.
        echo: The resemblance of noise to other noise in deviations; about 0 for correct code.
    """

    charged: int
    heard: int
    echo: float

    @property
    def kept(self) -> bool:
        """True if no bound exceeds the claim, and every answer had fresh noise from the mechanism."""
        return super().kept and self.heard >= self.charged and self.fresh

    @property
    def fresh(self) -> bool:
        """True if the canaries show no reuse of noise."""
        return self.echo <= ECHO

    def as_dict(self) -> dict[str, float | int | bool | None]:
        """Plain data."""
        return {**super().as_dict(), "fresh": self.fresh}


@dataclass(frozen=True, kw_only=True)
class AuditedPrivacy(Privacy):
    """A privacy policy whose mechanisms contain canaries; everything else is the same.

    Args:
        aviary: The canaries.
    """

    aviary: CanaryPool

    def solve(
        self,
        task: TaskSpec,
        federation: Collection[str],
        aggregation: AggregatorSpec,
        rounds: int,
        *,
        sampling: Literal["poisson", "fixed"] = "poisson",
        records: int | None = None,
        questions: Sequence[QuerySpec] = (),
        watched: bool = False,
    ) -> Mechanism:
        """The mechanism that keeps this promise, with canaries."""
        canaries = self.aviary.for_sites(list(federation))
        found = super().solve(
            task, federation, aggregation, rounds, sampling=sampling, records=records, questions=questions,
            watched=watched,
        )  # fmt: skip
        return with_canaries(
            found, canaries, aggregation=cast(Aggregator, aggregation), sites=len(federation)
        )

    def solve_query(self, question: QuerySpec, mechanism: Mechanism) -> Mechanism:
        """The mechanism of a question, with the same canaries."""
        found = super().solve_query(question, mechanism)
        if found is mechanism or self.aviary.canaries is None:
            return found
        return with_canaries(found, self.aviary.canaries)


def audit_run(
    experiment: "Experiment",
    *,
    federation: "Federation | None" = None,
    canaries: int = CANARIES,
    confidence: float = 0.95,
    seed: int = 0,
    tell: Tell = silent,
) -> "RunBounds":
    """Train once more, with canaries, and bound epsilon from below.

    The records are trained on as usual, and nothing of the result is kept. The canaries' evidence depends on
    no
    record: early stopping and quarantine are off, since their decisions would have to be paid for.

    Args:
        experiment: The experiment.
        federation: Its sites, if they are open already.
        canaries: The number of canaries.
        confidence: The probability with which all bounds hold.
        seed: The seed of the canaries' coins.
        tell: Receives progress, without scores: those are not paid for.

    Raises:
        Refused: There is no promise to audit.
    """
    require_power(canaries, confidence)
    promise = experiment.privacy
    if not isinstance(promise, Privacy):
        raise Refused("an open run has no promise to audit: give it a table [privacy]")
    sites = experiment.open_federation() if federation is None else federation
    if experiment.task.ends_itself and not (sites.public or promise.rehearsal):
        raise Refused(
            f"{experiment.task.kind} stops depending on its results, and the budget does not cover those of "
            "an audit: audit it on simulated or published data, or in a rehearsal"
        )
    aviary = CanaryPool(affordable(canaries, promise, experiment.rounds), seed)
    # Nothing of it is kept, and what canaries tell depends on no record: there is nothing to book.
    sites = withhold_results(sites)
    run = _train(_training_only(experiment, promise, aviary), sites, tell)
    assert aviary.canaries is not None
    releases = costliest_releases(run, promise.delta)
    found = bounds(aviary.canaries.evidence(), releases, promise.delta, confidence=confidence)
    # Of a run that ended by itself, the rounds that it did not take are paid for as well.
    taken = run.record.stopped is None
    charged = sum(part.count for part in releases if part.purpose != UNHEARD) if taken else 0
    return RunBounds(**vars(found), charged=charged, heard=aviary.canaries.times, echo=aviary.canaries.echo)


def require_power(canaries: int, confidence: float) -> None:
    """Refuse what proves nothing, before anything is done."""
    require(canaries >= FEWEST, "canaries", canaries, f"at least {FEWEST}")
    require(0.5 <= confidence < 1, "confidence", confidence, "from 0.5 to below 1")


def _train(experiment: "Experiment", sites: "Federation", tell: Tell) -> "Run":
    """The run; of records that are promised protection, why it failed is not paid for, and not told."""
    watcher, promise = _Counter(tell, experiment.rounds), experiment.privacy
    if sites.public or (isinstance(promise, Privacy) and promise.rehearsal):
        return experiment.run_on(sites, None, callbacks=[watcher])
    # Refusals that do not depend on the records keep their message.
    experiment.check()
    try:
        return experiment.run_on(sites, None, callbacks=[watcher])
    except Refused:
        raise
    except TacitError:
        raise InvalidValue(
            "the training with canaries failed; the reason is withheld, because the budget does not cover "
            "it: run the same experiment to see its error"
        ) from None


def _training_only(experiment: "Experiment", promise: Privacy, aviary: CanaryPool) -> "Experiment":
    """Return the experiment reduced to its training, with that part of the budget, and canaries in it.

    Early stopping, quarantine and synthetic records decide by results of this training, which are not paid
    for: the canaries' evidence would depend on them.
    """
    left: Any = promise
    for part in (experiment.augment, experiment.stop):
        left = left if part is None else part.reserve(left)
    given = {entry.name: getattr(left, entry.name) for entry in fields(left)}
    return replace(
        experiment, privacy=AuditedPrivacy(**given, aviary=aviary), stop=None, augment=None, quarantine=None,
        attack=None, baselines=False,
    )  # fmt: skip


def affordable(canaries: int, promise: Privacy, rounds: int) -> int:
    """Return the number of canaries, reduced if a run with them would take too long."""
    return min(canaries, max(IN_SECRET // rounds, FEWEST)) if promise.noise == "secure" else canaries


@dataclass(frozen=True)
class _Counter:
    """Counts rounds, and does not look at them."""

    tell: Tell
    rounds: int

    def __call__(self, entry: Round) -> None:
        self.tell("training with canaries", entry.number / self.rounds)


def costliest_releases(run: "Run", delta: float) -> Sequence[Release]:
    """Return the releases about the least protected subject."""
    return max(by_subject(run.charged).values(), key=lambda group: accounting.epsilon(group, delta))
