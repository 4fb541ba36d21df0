"""The verbs that train: `run`, `tune` and `sweep`. Heavy imports happen here, after a verb was chosen."""

import hashlib
import shlex
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import output
from tacit.cli.output import Changes, Console, under_runs, verb
from tacit.errors import InvalidValue

if TYPE_CHECKING:
    from tacit.experiments.attacks import AttackScores
    from tacit.experiments.batch import BatchResult
    from tacit.experiments.experiment import Experiment
    from tacit.experiments.sweep_results import SweepResult
    from tacit.experiments.sweeps import Sweep
    from tacit.experiments.tuning import TuningResult
    from tacit.experiments.tuning.grid import Candidate
    from tacit.runs.run import Run
    from tacit.sites.federation import Federation

REPORT = "report.html"


@dataclass(frozen=True)
class RunRequest:
    """Request to run an experiment: its file and the options of the command line.

    Args:
        file: An experiment file, or the directory of an interrupted run.
        changes: Changes to the file.
        out: The directory of the run.
        resume: Continue an interrupted run.
        quiet: Print results only.
        spend_anyway: Run although the forecast says that nothing can be learned.
    """

    file: Path
    changes: Sequence[str] = ()
    out: Path | None = None
    resume: bool = False
    quiet: bool = False
    spend_anyway: bool = False

    def log(self, line: str) -> None:
        """Say something that is not a result."""
        output.log(line, quiet=self.quiet)

    def place(self, name: str, read: object) -> Path:
        """Return the run's directory: the requested one, or one under `runs` by its name and its options."""
        return self.out or under_runs(self.file, name, repr(read), resume=self.resume)


@verb(trust="always")
def run(
    console: Console,
    file: Annotated[
        Path,
        typer.Argument(
            help="An experiment file, a coordinator's folder, or the directory of a run to resume."
        ),
    ],
    changes: Changes = None,
    out: Annotated[
        Path | None, typer.Option(help="The directory of the run; under runs/ by default.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="Engine: local, or flower in a coordinator's folder.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted run.")] = False,
    spend_anyway: Annotated[
        bool,
        typer.Option("--spend-anyway", help="Run although the forecast says that nothing can be learned."),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Serve the report on this machine during the run.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of the served report; 0 for any free port.")] = 0,
) -> None:
    """Run an experiment, within its privacy budget."""
    chosen = [*(changes or []), *([] if engine is None else [f"engine.kind={engine}"])]
    asked = RunRequest(file, chosen, out, resume, console.quiet, spend_anyway)
    done = _run(asked, port if watch else None)
    console.answer(done.as_dict, lambda: output.say(done.summary()))
    console.log(f"saved {done.path}")
    if done.path is not None and (report := done.path / REPORT).is_file():
        console.log(f"report {report}")
    from tacit.experiments.batch import BatchResult

    if isinstance(done, BatchResult) and done.futile:
        raise SystemExit(output.BAD_USAGE)


def _run(asked: RunRequest, watch: int | None) -> "Run | AttackScores | BatchResult[Any]":
    """Run a file, or all cells of its [attack] or [study]; `watch` is the port of the live report."""
    from tacit.experiments import attacks, studies

    file, changes = asked.file, asked.changes
    federation = coordinator_folder(file)
    studied = federation is None and studies.has_study_table(file, changes)
    tried = federation is None and not studied and attacks.has_attack_table(file, changes)
    if watch is not None and (federation is not None or studied or tried):
        raise InvalidValue("--watch is for a single run on this machine: leave it out")
    if federation is not None:
        if changes not in ([], ["engine.kind=flower"]):
            raise InvalidValue(
                "--set is not allowed in a deployment, to which sites have agreed: change the file, and "
                "deploy again"
            )
        return _run_deployment(federation, asked)
    if studied:
        return _run_study(asked)
    return _run_attacks(asked) if tried else _run_single(asked, watch)


def coordinator_folder(file: Path) -> Path | None:
    """The coordinator's folder that a path is, or is the experiment of; None if it is neither."""
    from tacit.deploy.site.config import COORDINATOR_FILE

    folder = file if file.is_dir() else file.parent
    ours = file.is_dir() or file.name == "experiment.toml"
    return folder if ours and (folder / COORDINATOR_FILE).is_file() else None


def _run_deployment(folder: Path, asked: RunRequest) -> "Run":
    from tacit.deploy.coordinator.run import default_place, launch
    from tacit.reports.text import progress

    place = asked.out or default_place(folder, resume=asked.resume)
    with progress(quiet=asked.quiet) as watcher:
        return launch(folder, place, resume=asked.resume, callbacks=[watcher], told=asked.log)


def _run_study(asked: RunRequest) -> "BatchResult[Any]":
    from tacit.experiments import studies

    study = studies.read(asked.file, asked.changes)
    place = asked.place(f"{study.experiment.name}-study", study)
    with _resumable("run", place):
        done = study.run(place, resume=asked.resume, announce=asked.log)
    for drawn in done.draw(place, announce=asked.log).values():
        asked.log(f"drawn {drawn}")
    from tacit.reports.page import write

    _ = write(done.page(), place / REPORT)
    return done


def _run_attacks(asked: RunRequest) -> "AttackScores":
    from tacit.experiments import attacks

    read = attacks.read(asked.file, asked.changes)
    place = asked.place(f"{read.experiment.name}-attacks", read)
    with _resumable("run", place):
        return read.run(place, resume=asked.resume, announce=asked.log)


def _run_single(asked: RunRequest, watch: int | None) -> "Run":
    from tacit.experiments import experiment
    from tacit.reports.text import progress

    read = replace(experiment.read(asked.file, asked.changes), spend_anyway=asked.spend_anyway)
    if read.data.distant:
        raise InvalidValue(
            f"[data] kind = {read.data.kind!r} is at the sites: make their folders (tacit deploy "
            f"{asked.file}), and run the coordinator's (tacit run FOLDER)"
        )
    for caution in read.warnings():
        asked.log(f"warning: {caution}")
    place = asked.place(read.name, read)
    served = nullcontext() if watch is None else _serve_report(read, place, watch, asked)
    with _resumable("run", place), served:
        with progress(quiet=asked.quiet) as watcher:
            watcher.stage("opening the data")
            federation = read.open_federation()
        for words in [] if place.exists() else read.advise(federation):
            asked.log(f"warning: {words}")
        _warn_of_others(read, federation, place, asked)
        with progress(quiet=asked.quiet) as watcher:
            done = read.run_on(federation, place, resume=asked.resume, callbacks=[watcher])
        _ = done.report()
    return done


@contextmanager
def _serve_report(read: "Experiment", place: Path, port: int, asked: RunRequest) -> Generator[None]:
    """Serve the report of a run on this machine while it goes on."""
    from tacit.cli import reporting
    from tacit.reports.live import serve_page

    with serve_page(lambda: reporting.current_page(read, place), port=port) as live:
        asked.log(f"watch {live.url}")
        yield


def _warn_of_others(read: "Experiment", federation: "Federation", place: Path, asked: RunRequest) -> None:
    """State the price of other runs on the same people, before this one begins."""
    from tacit.privacy.ledger.total import so_far
    from tacit.privacy.policy import Privacy
    from tacit.runs.fit import book_of

    book = book_of(federation, read.privacy)
    if book is None or place.exists():
        return
    assert isinstance(read.privacy, Privacy)
    total = book.total(read.privacy.delta, read.privacy.unit)
    if total.runs:
        asked.log(f"warning: {so_far(total.as_dict())}")
    for note in total.notes:
        asked.log(f"warning: {note}")


@contextmanager
def _resumable(verb: str, place: Path, how: str = " --resume") -> Generator[None]:
    """State how to resume an interrupted run."""
    try:
        yield
    except KeyboardInterrupt:
        words = f"tacit {verb} {shlex.quote(str(place))}{how}"
        output.log(f"tacit: interrupted; resume with: {words}", quiet=False)
        raise


@verb(trust="always")
def tune(
    console: Console,
    file: Annotated[
        Path, typer.Argument(help="An experiment file with a table [tune], or a tuning to resume.")
    ],
    changes: Changes = None,
    out: Annotated[
        Path | None, typer.Option(help="The directory of the tuning; under runs/ by default.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted tuning.")] = False,
) -> None:
    """Choose among candidates within one promise.

    One budget pays for all candidates and for the choice.
    """
    from tacit.experiments import tuning
    from tacit.reports.text import progress

    asked = RunRequest(file, changes or [], out, resume, console.quiet)
    grid = tuning.read(file, asked.changes)
    many = len(grid.candidates)
    place = asked.place(f"{grid.common.name}-tuning", grid)

    def announce(candidate: "Candidate") -> None:
        console.log(f"{candidate.name} of {many}: {_in_words(candidate.changes)}")

    with _resumable("tune", place), progress(quiet=console.quiet) as watcher:
        done = tuning.tune(grid, place, resume=resume, announce=announce, callbacks=[watcher])
    console.answer(done.as_dict, lambda: _show_tuning(done))
    console.log(f"saved {done.path}")


def _show_tuning(done: "TuningResult") -> None:
    from tacit.reports.text import NAMES as SCORES

    score = SCORES.get(done.by[0], done.by[0])
    varied = list(dict.fromkeys(key for trial in done.trials for key in trial.changes))
    by = f"the best {score} on one half of the held-out records; the scores below are on the other half"
    told = {trial.candidate: trial.score for trial in done.trials if trial.score is not None}
    if done.noise is not None:
        # Only differences mean something.
        score, least = "loss above", told[done.chosen]
        told = {name: value - least for name, value in told.items()}
        by = f"the smallest loss on reserved records; its noise has standard deviation {done.noise:.4g}"
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


@verb(trust="always")
def sweep(
    console: Console,
    file: Annotated[Path, typer.Argument(help="An experiment file, or the directory of a sweep to resume.")],
    changes: Changes = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds for each value; 3 by default.")] = None,
    workers: Annotated[int | None, typer.Option(help="Number of processes.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The directory of the sweep; under runs/ by default.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Resume an interrupted sweep and begin no new one; by default, either."
        ),
    ] = False,
) -> None:
    """Run an experiment at several values, such as epsilons.

    For example --set privacy.epsilon=1,3,inf, each with several seeds.
    """
    asked = RunRequest(file, changes or [], out, resume, console.quiet)
    done = run_sweep(asked, seeds=seeds, workers=workers)
    console.answer(done.as_dict, lambda: output.say(done.summary()))
    console.log(f"saved {done.path}")
    if done.futile:
        raise SystemExit(output.BAD_USAGE)


def run_sweep(asked: RunRequest, *, seeds: int | None = None, workers: int | None = None) -> "SweepResult":
    """Run the unfinished cells of a sweep, and write its report beside it.

    Args:
        asked: The sweep; keys with several values, separated by commas, are swept. The same one goes on where
            it is by itself.
        seeds: The number of seeds.
        workers: The number of processes.
    """
    from tacit.experiments import sweeps
    from tacit.reports.page import write
    from tacit.runs.directory import EXPERIMENT

    read = sweeps.read(asked.file, asked.changes, seeds=seeds, workers=workers)
    again = asked.file.is_dir() and not asked.changes and seeds is None
    place = asked.out or (asked.file if again else _sweep_place(read))
    if asked.resume and not (place / EXPERIMENT).is_file():
        raise InvalidValue(
            f"--resume is not allowed here: there is no sweep in {place} yet; leave it out to begin one"
        )
    known, every = len(read.finished_rows(place)), len(read.cells)
    if known < every:
        goes_on = f", {known} of them known" if known else ""
        asked.log(f"{every} runs: {read.size}{goes_on}; kept in {place}")
    with _resumable("sweep", place, how=""), sweep_progress(known, every, quiet=asked.quiet) as announce:
        done = read.run(place, announce=announce)
    if known < every or not (place / REPORT).is_file():
        asked.log(f"report {write(done.page(), place / REPORT)}")
    return done


def _sweep_place(read: "Sweep") -> Path:
    """Return the directory of a sweep under `runs`, by its name and a fingerprint of its options."""
    import tomli_w

    choices = hashlib.sha256(tomli_w.dumps(read.document).encode()).hexdigest()[:6]
    return Path("runs") / f"{read.experiment.name}-sweep-{choices}"


@contextmanager
def sweep_progress(known: int, every: int, *, quiet: bool = False) -> Generator[Callable[[str], None]]:
    """Show runs as they end, on stderr: one line each, and on a terminal a live bar below them.

    Args:
        known: The number of finished runs.
        every: The number of all runs.
        quiet: Show nothing.
    """
    began, rest, ended = time.monotonic(), every - known, 0
    if quiet or not rest:
        yield lambda line: None
        return
    with _bar() as bar:
        words = f"sweep, {rest} runs"
        bar(words, 0.0)

        def announce(line: str) -> None:
            nonlocal ended
            ended += 1
            took, left = time.monotonic() - began, rest - ended
            # The progress bar keeps lines above itself.
            output.log(f"{line}; {left} left, {_span(took / ended * left)}" if left else line, quiet=False)
            bar(words, ended / rest)

        yield announce


@contextmanager
def _bar() -> Generator[Callable[[str, float], None]]:
    """Show a live progress line on a terminal; yield the function that updates it."""
    if not sys.stderr.isatty():
        yield lambda words, share: None
        return
    from tacit.reports.text import show_live_line

    with show_live_line(sys.stderr) as watcher:
        yield (lambda words, share: None) if watcher is None else watcher.stage


def _span(seconds: float) -> str:
    """Format a duration roughly."""
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
