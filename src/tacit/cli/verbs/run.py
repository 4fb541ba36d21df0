"""The verbs that train: `run` and `tune`. Heavy imports happen here, after a verb was chosen."""

import hashlib
import shlex
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.cli import output
from tacit.errors import InvalidValue

if TYPE_CHECKING:
    from tacit.experiments.attacks import AttackScores
    from tacit.experiments.batch import BatchResult
    from tacit.experiments.experiment import Experiment
    from tacit.experiments.tuning import Candidate, TuningResult
    from tacit.runs.run import Run
    from tacit.sites.federation import Federation


def run(
    file: Path,
    *,
    changes: Sequence[str],
    out: Path | None,
    resume: bool,
    quiet: bool,
    watch: int | None = None,
) -> "Run | AttackScores | BatchResult[Any]":
    """Run an experiment file, or go on with what was cut off; with [attack] or [study], all they ask for.

    Args:
        file: The file, or the directory of what was cut off.
        changes: What to change in it.
        out: The directory of the run.
        resume: Whether to go on.
        quiet: Whether to print results only.
        watch: The port at which to serve the report meanwhile, if anybody wants to look.
    """
    from tacit.cli.verbs import deploy
    from tacit.experiments import attacks, studies

    federation = deploy.coordinator_folder(file)
    studied = federation is None and studies.has_study_table(file, changes)
    tried = federation is None and not studied and attacks.has_attack_table(file, changes)
    if watch is not None and (federation is not None or studied or tried):
        raise InvalidValue("--watch is for a single run on this machine: leave it out")
    if federation is not None:
        if changes not in ([], ["engine.kind=flower"]):
            raise InvalidValue(
                "--set is not allowed where sites have agreed: change the file, and deploy anew"
            )
        return deploy.run(federation, out=out, resume=resume, quiet=quiet)
    if studied:
        return _study(file, changes, out, resume=resume, quiet=quiet)
    if tried:
        return _trials(file, changes, out, resume=resume, quiet=quiet)
    return _single(file, changes, out, resume=resume, quiet=quiet, watch=watch)


def _study(
    file: Path, changes: Sequence[str], out: Path | None, *, resume: bool, quiet: bool
) -> "BatchResult[Any]":
    from tacit.experiments import studies

    study = studies.read(file, changes)
    place = out or under_runs(file, f"{study.experiment.name}-study", repr(study), resume=resume)
    with _resumable("run", place):
        done = study.run(place, resume=resume, announce=lambda line: output.log(line, quiet=quiet))
    for drawn in done.draw(place, announce=lambda line: output.log(line, quiet=quiet)).values():
        output.log(f"drawn {drawn}", quiet=quiet)
    return done


def _trials(
    file: Path, changes: Sequence[str], out: Path | None, *, resume: bool, quiet: bool
) -> "AttackScores":
    from tacit.experiments import attacks

    asked = attacks.read(file, changes)
    place = out or under_runs(file, f"{asked.experiment.name}-attacks", repr(asked), resume=resume)
    with _resumable("run", place):
        return asked.run(place, resume=resume, announce=lambda line: output.log(line, quiet=quiet))


def _single(
    file: Path, changes: Sequence[str], out: Path | None, *, resume: bool, quiet: bool, watch: int | None
) -> "Run":
    from tacit.cli.verbs.report import serve_report
    from tacit.experiments import experiment
    from tacit.reports.text import progress

    read = experiment.read(file, changes)
    if getattr(read.data, "distant", False):
        raise InvalidValue(
            f"[data] kind = {read.data.kind!r} is at the sites: make their folders (tacit deploy {file}), "
            "and run the coordinator's (tacit run FOLDER)"
        )
    for caution in read.warnings():
        output.log(f"warning: {caution}", quiet=quiet)
    place = out or under_runs(file, read.name, repr(read), resume=resume)
    served = nullcontext() if watch is None else serve_report(read, place, port=watch, quiet=quiet)
    with _resumable("run", place), served:
        with progress(quiet=quiet) as watcher:
            watcher.stage("opening the data")
            federation = read.open_federation()
        _warn_of_others(read, federation, place, quiet=quiet)
        with progress(quiet=quiet) as watcher:
            done = read.run_on(federation, place, resume=resume, callbacks=[watcher])
        _ = done.report()
    return done


def _warn_of_others(read: "Experiment", federation: "Federation", place: Path, *, quiet: bool) -> None:
    """Say what other runs on the same people have cost, before this one begins."""
    from tacit.privacy.ledger.total import so_far
    from tacit.privacy.policy import Privacy
    from tacit.runs.data_books import book_of

    book = book_of(federation, read.privacy)
    if book is None or place.exists():
        return
    assert isinstance(read.privacy, Privacy)
    total = book.total(read.privacy.delta, read.privacy.unit)
    if total.runs:
        output.log(f"warning: {so_far(total.as_dict())}", quiet=quiet)
    for note in total.notes:
        output.log(f"warning: {note}", quiet=quiet)


def tune(
    file: Path, *, changes: Sequence[str], out: Path | None, resume: bool, quiet: bool
) -> "TuningResult":
    """Choose among the candidates of an experiment file, or go on with a tuning that was cut off."""
    from tacit.experiments import tuning
    from tacit.reports.text import progress

    grid = tuning.read(file, changes)
    name, many = f"{grid.common.name}-tuning", len(grid.candidates)
    place = out or under_runs(file, name, repr(grid), resume=resume)

    def announce(candidate: "Candidate") -> None:
        output.log(f"{candidate.name} of {many}: {_in_words(candidate.changes)}", quiet=quiet)

    with _resumable("tune", place), progress(quiet=quiet) as watcher:
        return tuning.tune(grid, place, resume=resume, announce=announce, callbacks=[watcher])


@contextmanager
def _resumable(verb: str, place: Path) -> Generator[None]:
    """Say how to go on with what is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        words = f"tacit {verb} {shlex.quote(str(place))} --resume"
        output.log(f"tacit: interrupted; go on with: {words}", quiet=False)
        raise


def show_tuning(done: "TuningResult") -> None:
    """The candidates, the choice and its price, for people."""
    from tacit.reports.text import NAMES as SCORES

    score = SCORES.get(done.by[0], done.by[0])
    varied = list(dict.fromkeys(key for trial in done.trials for key in trial.changes))
    by = f"the best {score} on one half of the held-out records; what follows is scored on the other"
    told = {trial.candidate: trial.score for trial in done.trials if trial.score is not None}
    if done.noise is not None:
        # Only differences mean something.
        score, least = "loss above", told[done.chosen]
        told = {name: value - least for name, value in told.items()}
        by = f"the least loss of records kept apart; its noise has standard deviation {done.noise:.4g}"
    output.print_table(
        ("candidate", *varied, score),
        [
            (
                trial.candidate,
                *(str(trial.changes.get(key, "-")) for key in varied),
                f"{told[trial.candidate]:.4f}" if trial.candidate in told else "-",
            )
            for trial in done.trials
        ],
    )
    output.say("")
    failures = [("failed", f"{trial.candidate}: {trial.failed}") for trial in done.trials if trial.failed]
    chosen = next(trial for trial in done.trials if trial.candidate == done.chosen)
    what = f"{done.chosen}: {_in_words(chosen.changes)}"
    output.print_rows([*failures, ("chosen", what), ("by", by), ("lies in", str(done.run.path))])
    output.say("")
    output.say(done.run.summary())


def _in_words(changes: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in changes.items())


def under_runs(file: Path, name: str, read: str, *, resume: bool) -> Path:
    """Where a run lies: under `runs` here, by its name and a fingerprint of its choices.

    The same experiment twice gives two directories; to resume is to go on with the last one.
    """
    from tacit.runs.directory import place_for

    if file.is_dir():
        return file
    choices = hashlib.sha256(read.encode()).hexdigest()[:6]
    place = place_for(Path("runs") / f"{name}-{choices}", resume=resume)
    if resume and not place.is_dir():
        raise InvalidValue(
            "--resume: there is no run of this experiment to go on with; leave it out to begin"
        )
    return place
