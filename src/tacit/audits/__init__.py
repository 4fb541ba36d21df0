"""Attacks on our own promise: lower bounds on epsilon, membership inference, sensitivity tests.

`audit` is the whole audit of an experiment: its mechanisms, its run, and its models. Each part can be run by
itself.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.audits.episodes import episodes
from tacit.audits.inversion import demonstrate
from tacit.audits.mechanisms import audit_mechanisms
from tacit.audits.membership import SHADOWS, membership
from tacit.audits.membership_statistics import FEWEST_MODELS
from tacit.audits.running import CANARIES, audit_run, require_power
from tacit.errors import InvalidValue, Refused, TacitError, require, require_word
from tacit.experiments.experiment import read as read_experiment
from tacit.learning.record import Tell, describe, notify
from tacit.privacy.policy import Privacy
from tacit.reports import audit as audited
from tacit.reports.data import fingerprint
from tacit.reports.page.blocks import finite
from tacit.reports.text import format_rows
from tacit.runs.directory import AUDIT, EXPERIMENT, Directory
from tacit.runtime.silence import suppress_warnings
from tacit.runtime.tables import canonical

if TYPE_CHECKING:
    from tacit.experiments.experiment import Experiment
    from tacit.learning.record import Callback
    from tacit.reports.page.blocks import Page
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
        """The audit for people."""
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
    parts = {entry.name: getattr(experiment, entry.name) for entry in fields(experiment)}
    plain = str | int | None
    told = {name: part if isinstance(part, plain) else describe(part) for name, part in parts.items()}
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
    """The audit that a directory remembers by itself; None if it is that of a run, or of anything else."""
    place = Path(path)
    if not place.is_dir():
        return None
    directory = Directory(place)
    kept = None if directory.read(EXPERIMENT) is not None else directory.read_json(AUDIT)
    found = audited.read(kept, place)
    return None if found is None else Audit(found, place)
