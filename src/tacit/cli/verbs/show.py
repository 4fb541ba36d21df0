"""Verbs on runs: `show`, `report`, `export` and `audit`. Heavy imports happen in them."""

import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from tacit.cli import output
from tacit.cli.output import Changes, Console, under_runs, verb
from tacit.cli.verbs.ledger import require_sound
from tacit.errors import InvalidFile, InvalidValue, escape

if TYPE_CHECKING:
    from tacit.audits import Audit
    from tacit.runs.run import Run

# Parts of an audit.
PARTS = ("mechanisms", "run", "attacks")
DPIA, COMPARISON = "data-protection.html", "comparison.html"


@verb(trust="if asked")
def show(console: Console, runs: Annotated[list[Path], typer.Argument(help="Directories of runs.")]) -> None:
    """Show the summary of a run, or of several side by side."""
    # Attack tables and studies have tables of their own.
    done = [_load(path) for path in runs]
    console.answer(lambda: {"runs": [each.as_dict() for each in done]}, lambda: output.say(_summary(done)))
    require_sound(runs)


def _load(path: Path) -> Any:  # noqa: ANN401
    """Load the result in a directory; a run with contradicting files loses its price."""
    from tacit.experiments import attacks, experiment, studies, sweeps
    from tacit.runs.directory import AUDIT
    from tacit.runs.run import Run

    found: Any = sweeps.load(path) or studies.load(path) or attacks.load(path)
    if found is None and (path / AUDIT).is_file():
        from tacit.audits import load

        found = load(path)
    found = found or experiment.load(path)
    return _void_unsound_price(found) if isinstance(found, Run) else found


def _void_unsound_price(run: "Run") -> "Run":
    from tacit.runs.run import verify_run

    if run.path is None or run.privacy.unit is None or not verify_run(run.path).problems:
        return run
    prices = dict.fromkeys(run.privacy.subjects, math.inf)
    return replace(run, privacy=replace(run.privacy, epsilon=math.inf, subjects=prices))


def _summary(done: Sequence[Any]) -> str:
    """Summarize runs: compare several, and report audits that found a promise broken."""
    from tacit.reports.audit import verdict
    from tacit.reports.text import side_by_side
    from tacit.runs.run import Run

    runs = [each for each in done if isinstance(each, Run)]
    beside = [side_by_side([run.as_dict() for run in runs])] if len(runs) > 1 else []
    alone = [each.summary() for each in done if not beside or not isinstance(each, Run)]
    audits = [(run.name, run.report_data().audit) for run in runs]
    told = [(name, verdict(found)) for name, found in audits if found is not None]
    broken = [f"audit of {name}: {words}" for name, (tone, words) in told if tone == "stop"]
    return "\n\n".join([*beside, *alone, *broken])


@verb(trust="if asked")
def report(
    console: Console,
    runs: Annotated[list[Path], typer.Argument(help="Directories of runs; several are compared.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write: .html, .md or .json; in the run by default."),
    ] = None,
    dpia: Annotated[
        bool, typer.Option("--dpia", help="Write the data-protection page, a form for the officer.")
    ] = False,
    answers: Annotated[
        Path | None, typer.Option(help="A TOML file whose table [dpia] fills in the form; needs --dpia.")
    ] = None,
) -> None:
    """Write the report of a run, or of several side by side.

    One file with the promise, the data that left the sites, and the result.
    """
    from tacit.cli import reporting
    from tacit.reports.page import require_place, write
    from tacit.runs.directory import REPORT

    if dpia and len(runs) > 1:
        raise InvalidValue(f"--dpia is not allowed with {len(runs)} runs: name one run")
    if answers is not None and not dpia:
        raise InvalidValue("--answers is not allowed here: it fills in the form of --dpia, so give both")
    usual = Path(COMPARISON) if len(runs) > 1 else runs[0] / (DPIA if dpia else REPORT)
    place = out or usual
    if out is None and not place.parent.is_dir():
        raise InvalidFile(f"{runs[0]} is not the directory of a run")
    require_place(place)
    page = reporting.data_protection(runs[0], answers) if dpia else reporting.page(runs)
    written = write(page, place)
    console.answer(lambda: {"report": str(written)}, lambda: output.say(str(written)))
    require_sound(runs)


@verb(trust="if asked")
def export(
    console: Console,
    run: Annotated[Path, typer.Argument(help="The directory of a run.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder to write to; export in the run by default.")
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Write the network as ONNX as well.")] = False,
) -> None:
    """Export the model for other programs.

    Writes the weights, a description of the tensors, and a model card.
    """
    from tacit.compat.export import export
    from tacit.experiments.experiment import load

    written = export(load(run), out or run / "export", onnx=onnx)
    console.answer(lambda: {"files": [str(path) for path in written]}, lambda: _show_paths(written))
    require_sound([run])


def _show_paths(written: Sequence[Path]) -> None:
    output.say("\n".join(escape(str(path)) for path in written))


@verb(trust="if asked")
def audit(
    console: Console,
    file: Annotated[Path, typer.Argument(help="An experiment file, or the directory of a run.")],
    changes: Changes = None,
    canaries: Annotated[
        int | None, typer.Option(help="Number of canaries in the run; 20,000 by default.")
    ] = None,
    shadows: Annotated[
        int | None, typer.Option(help="Number of shadow models that the attacker trains; 16 by default.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="Confidence level of all bounds together.")] = 0.95,
    skip: Annotated[
        list[str] | None,
        typer.Option(click_type=click.Choice(PARTS), help="Part to leave out; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the canaries and of the random halves.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="The directory of the audit; the run, or under runs/ by default.")
    ] = None,
) -> None:
    """Attack a run: an empirical lower bound on epsilon.

    Exits with 4 if an attack disproves the promise.
    """
    wanted = {"canaries": canaries, "shadows": shadows, "confidence": confidence, "seed": seed}
    chosen = {name: value for name, value in wanted.items() if value is not None}
    done = _audit(file, changes or [], out, {**chosen, "skip": skip or []}, quiet=console.quiet)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100
    console.answer(done.as_dict, lambda: output.say(done.summary(width)))
    console.log(f"report {done.path}/report.html")
    if done.kept is False:
        raise SystemExit(output.VERIFICATION_FAILED)


def _audit(
    file: Path, changes: Sequence[str], out: Path | None, wanted: Mapping[str, Any], *, quiet: bool
) -> "Audit":
    """Attack an experiment, or the one of a run, and write the findings with their report.

    Args:
        file: The experiment file, or the directory of a run, which keeps what was found.
        changes: Changes to it.
        out: The directory of the audit.
        wanted: Options of `tacit.audits.audit`.
        quiet: Print results only.
    """
    from tacit import audits
    from tacit.cli import reporting
    from tacit.experiments import experiment
    from tacit.reports import audit as audited
    from tacit.reports.page import write
    from tacit.reports.text import progress
    from tacit.runs.directory import AUDIT, EXPERIMENT, REPORT, Directory

    if file.is_dir():
        _require_auditable(file)
    read = experiment.read(file, changes)
    of_run = file.is_dir() and not changes
    if file.is_dir() and changes and out is None:
        raise InvalidValue("--set changes the experiment of the run: give a directory for its audit, --out")
    place = out or (
        file if of_run else under_runs(file, f"{read.name}-audit", repr((read, dict(wanted))), resume=False)
    )
    if out is not None and (out / EXPERIMENT).is_file():
        raise InvalidValue(f"--out {out} holds a run: name the run itself, or another directory")
    _require_room(place)
    # An earlier audit there is merged; refuse an unreadable one before the work.
    audited.read(Directory(place).read_json(AUDIT), place)
    with progress(quiet=quiet) as watcher:
        done = audits.audit(read, **wanted, callbacks=[watcher]).write(place)
    write(reporting.page([place]), place / REPORT)
    return done


def _require_auditable(run: Path) -> None:
    """Refuse an audit, a run whose sites are in no file (another would be audited), and an unsound one."""
    from tacit import audits
    from tacit.runs.directory import EXPERIMENT
    from tacit.runs.run import require_sound
    from tacit.runtime.tables import load

    if audits.load(run) is not None:
        raise InvalidValue(f"{run} is an audit: name the run, or the experiment file, that it attacked")
    kept = run / EXPERIMENT
    if kept.is_file() and "data" not in load(kept):
        raise InvalidValue(
            f"{run} was made in Python, and its sites are in no file: audit it there, with "
            "tacit.audits.audit(experiment, federation=...)"
        )
    require_sound(run)


def _require_room(place: Path) -> None:
    """Refuse a folder that cannot be written, before hours of work."""
    from tacit.runs.directory import REPORT

    near = next(part for part in (place, *place.absolute().parents) if part.exists())
    room = near.is_dir() and os.access(near, os.W_OK) and not (place / REPORT).is_dir()
    if not room:
        raise InvalidValue(f"--out {place} cannot be written: name a directory of yours, or a new one")
