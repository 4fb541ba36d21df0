"""Attacks on our own promise: lower bounds on epsilon, membership inference, sensitivity tests.

`audit` is the whole audit of an experiment: its mechanisms, its run, and its models. Each part can be run by
itself. The audit of a run trains
canaries with it, through the same code, and bounds how much was given away.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from tacit.aggregation.base import Aggregator
from tacit.audits.canaries import Canaries, with_canaries
from tacit.audits.episodes import episodes
from tacit.audits.inversion import demonstrate
from tacit.audits.lower_bounds import FEWEST, Bounds, bounds
from tacit.audits.mechanisms import audit_mechanisms
from tacit.audits.membership import SHADOWS, membership
from tacit.audits.membership_statistics import FEWEST_MODELS
from tacit.errors import InvalidValue, Refused, TacitError, require, require_word
from tacit.experiments.experiment import read as read_experiment
from tacit.learning.record import Round, Tell, describe, notify, silent
from tacit.privacy import accounting
from tacit.privacy.accounting.release import Release, by_subject
from tacit.privacy.contracts import AggregatorSpec, QuerySpec, TaskSpec
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.policy import Privacy
from tacit.reports import audit as audited
from tacit.reports.data import fingerprint
from tacit.reports.page.blocks import finite
from tacit.reports.text import format_rows
from tacit.runs.directory import AUDIT, EXPERIMENT, Directory
from tacit.runs.fit import withhold_results
from tacit.runtime.contracts import fields_of
from tacit.runtime.keys import Key
from tacit.runtime.silence import suppress_warnings
from tacit.runtime.tables import canonical

if TYPE_CHECKING:
    from tacit.experiments.experiment import Experiment
    from tacit.learning.record import Callback
    from tacit.reports.page.blocks import Page
    from tacit.runs.run import Run
    from tacit.sites.federation import Federation

__all__ = [
    "Audit",
    "audit",
    "audit_mechanisms",
    "audit_run",
    "demonstrate",
    "episodes",
    "load",
    "membership",
]

# The default number of canaries; and their number in all rounds together under secure aggregation: each
# then costs a sum of its own.
CANARIES, IN_SECRET = 20_000, 30_000
# The number of records is a single number, which has no room for canaries.
UNHEARD = "number of records"
# Fresh noise resembles other noise by more than this many deviations once in a billion.
ECHO = 6.0


PARTS = ("mechanisms", "run", "attacks")


@dataclass(frozen=True)
class Audit:
    """Result of an audit: the findings of attacks on a privacy promise.

    Args:
        found: Plain data, as in `audit.json`.
        path: The directory of the audit.
    """

    found: Mapping[str, Any]
    path: Path | None = None

    @property
    def name(self) -> str:
        """Name of the audited experiment."""
        return self.found["name"]

    @property
    def kept(self) -> bool | None:
        """True if no attack broke the promise; None if the run itself was not attacked."""
        return audited.is_upheld(self.found)

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**self.found, "kept": self.kept, "path": None if self.path is None else str(self.path)}

    def summary(self, width: int = 100) -> str:
        """Summarize the audit in text."""
        run, rows = self.found["run"], [("kept?", audited.verdict(self.found)[1])]
        if run is not None:
            rows.append(("claimed", f"epsilon {run['claim']:.4g} at delta {run['delta']:g}"))
            rows += [
                ("at least", f"{run[name]:.4g} by {words}, {run['canaries']:,} canaries")
                for name, words in audited.METHODS.items()
            ]
        rows += [
            (
                "broken",
                f"{each['name']}: at least {audited.largest_bound(each):.4g}, claimed {each['claim']:.4g}",
            )
            for each in self.found["mechanisms"]
            if not each["kept"]
        ]
        rows += [("models", words) for words in audited.sentences(self.found)]
        rows += [("not tried", note) for note in self.found["notes"]]
        return format_rows(rows, width=width)

    def page(self) -> "Page":
        """The report of the audit by itself."""
        return audited.page(self.as_dict())

    def _repr_html_(self) -> str:
        from tacit.reports.page.html import fragment

        return fragment(self.page())

    def write(self, path: str | Path) -> "Audit":
        """Keep it in a directory; in that of a run it becomes a part of its report.

        What an earlier audit of the same run said is remembered: to toss the coins again until nothing is
        found proves nothing.

        Raises:
            InvalidValue: It is of another experiment than the run is.
        """
        place = Path(path)
        place.mkdir(parents=True, exist_ok=True)
        directory, found = Directory(place), dict(self.found)
        of = directory.text(EXPERIMENT)
        if of:
            if found["of"] != _identity(read_experiment(place)):
                raise InvalidValue(f"{place} is the run of another experiment, not of the audited one")
            found["experiment"] = fingerprint(of)
        old = audited.read(directory.read_json(AUDIT), place)
        if old is not None and old.get("of") == found["of"]:
            past = {"seed": old["seed"], "kept": audited.is_upheld(old), "words": audited.verdict(old)[1]}
            found["earlier"] = [*old.get("earlier", []), past]
        directory.write_json(AUDIT, finite(found))
        return Audit(found, place)


@suppress_warnings()
def audit(
    experiment: "Experiment",
    *,
    federation: "Federation | None" = None,
    canaries: int = CANARIES,
    shadows: int = SHADOWS,
    confidence: float = 0.95,
    seed: int = 0,
    skip: Collection[str] = (),
    callbacks: "Sequence[Callback]" = (),
) -> Audit:
    """Audit an experiment by every known attack, and report what they prove.

    Nothing is charged, because nothing is let out that would have to be paid for: canaries depend on no
    record, and models of records that are promised protection are not attacked.

    Args:
        experiment: The experiment; it is run again, with canaries, and many times over for its models.
        federation: Its sites, if they are open already.
        canaries: The number of canaries in the run.
        shadows: The number of shadow models.
        confidence: With which probability all bounds together are to hold.
        seed: The seed.
        skip: Parts to leave out: `mechanisms`, `run`, `attacks`.
        callbacks: Those with a method `stage` are told what is done.

    Raises:
        TacitError: Whatever the experiment itself would be refused for.
    """
    for part in skip:
        require_word("skip", part, PARTS)
    require_power(canaries, confidence)
    require(shadows + 1 >= FEWEST_MODELS, "shadows", shadows, f"at least {FEWEST_MODELS - 1}")
    experiment.check()
    say, notes, promise = partial(notify, callbacks), list[str](), experiment.privacy
    sites = _require_local(experiment.open_federation() if federation is None else federation)
    # Two verdicts share the doubt.
    sure = 1 - (1 - confidence) / 2
    mechanisms: list[dict[str, Any]] = []
    if "mechanisms" not in skip:
        each = audit_mechanisms(confidence=sure, seed=seed, tell=say)
        mechanisms = [{"name": name, **found.as_dict()} for name, found in each.items()]
    run = None
    if not isinstance(promise, Privacy):
        notes.append("the run: it is open, so there is no promise to break")
    elif "run" not in skip:
        asked = partial(audit_run, experiment, federation=sites, canaries=canaries, confidence=sure)
        run = asked(seed=seed, tell=say).as_dict()
    attacks = {} if "attacks" in skip else _attacks(experiment, sites, shadows, seed, say, notes)
    found = {
        "schema": 1, "kind": "audit", "name": experiment.name, "task": experiment.task.kind,
        "of": _identity(experiment), "rehearsal": isinstance(promise, Privacy) and promise.rehearsal,
        "confidence": confidence, "seed": seed, "mechanisms": mechanisms, "run": run,
        "membership": attacks.get("membership"), "inversion": attacks.get("inversion"),
        "notes": [*notes, *(f"{part}, as was asked" for part in PARTS if part in skip)],
    }  # fmt: skip
    return Audit(found)


def _attacks(
    experiment: "Experiment", federation: "Federation", shadows: int, seed: int, say: Tell, notes: list[str]
) -> dict[str, Any]:
    """Run membership inference and gradient inversion, as far as the task allows them."""
    from tacit.audits.episodes import episodes
    from tacit.audits.inversion import demonstrate
    from tacit.audits.membership import membership
    from tacit.sites.federation import RowFederation

    who = episodes if experiment.task.layout == "environments" else membership
    found = {
        "membership": _try_attack(
            lambda: who(experiment, federation, shadows=shadows, seed=seed, tell=say), "membership", notes
        )
    }
    if isinstance(federation, RowFederation):
        asked = partial(demonstrate, experiment, federation, seed=seed)
        found["inversion"] = _try_attack(asked, "gradient inversion", notes)
    return found


def _identity(experiment: "Experiment") -> str:
    """Fingerprint an experiment, without its task's bound results."""
    task: Any = experiment.task
    plain = str | int | None
    told: dict[str, Any] = {
        name: part if isinstance(part, plain) else describe(part)
        for name, part in fields_of(experiment).items()
    }
    told |= {"task": [task.kind, task.steps, task.sample], "baselines": None, "engine": None}
    return fingerprint(canonical({name: part for name, part in told.items() if part is not None}))


def _require_local(found: "Federation") -> "Federation":
    if found.distant:
        raise Refused(
            "the data are at the sites, and an audit needs them on this machine: audit the same experiment "
            "on simulated or published data; the code is the same"
        )
    return found


def _try_attack(asked: Callable[[], Any], what: str, notes: list[str]) -> Any:  # noqa: ANN401
    """Return the result of an attack as plain data; None, with a note, if it was refused."""
    try:
        return asked().as_dict()
    except TacitError as error:
        notes.append(f"{what}: {error}")
        return None


def load(path: str | Path) -> Audit | None:
    """Load the audit in a directory; None if the directory holds a run, or anything else."""
    place = Path(path)
    if not place.is_dir():
        return None
    directory = Directory(place)
    kept = None if directory.read(EXPERIMENT) is not None else directory.read_json(AUDIT)
    found = audited.read(kept, place)
    return None if found is None else Audit(found, place)


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
    """Train again with canaries, and bound epsilon from below.

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
    """Refuse an audit without power, before anything is trained."""
    require(canaries >= FEWEST, "canaries", canaries, f"at least {FEWEST}")
    require(0.5 <= confidence < 1, "confidence", confidence, "from 0.5 to below 1")


def _train(experiment: "Experiment", sites: "Federation", tell: Tell) -> "Run":
    """Train the run; withhold the reason of a failure on protected records, which no charge covers."""
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
    return replace(
        experiment, privacy=AuditedPrivacy(**fields_of(left), aviary=aviary), stop=None, augment=None,
        quarantine=None, attack=None, baselines=False,
    )  # fmt: skip


def affordable(canaries: int, promise: Privacy, rounds: int) -> int:
    """Return the number of canaries, reduced if a run with them would take too long."""
    return min(canaries, max(IN_SECRET // rounds, FEWEST)) if promise.noise == "secure" else canaries


@dataclass(frozen=True)
class _Counter:
    """Callback that counts rounds and reads nothing of them."""

    tell: Tell
    rounds: int

    def __call__(self, entry: Round) -> None:
        self.tell("training with canaries", entry.number / self.rounds)


def costliest_releases(run: "Run", delta: float) -> Sequence[Release]:
    """Return the releases about the least protected subject."""
    return max(by_subject(run.charged).values(), key=lambda group: accounting.epsilon(group, delta))
