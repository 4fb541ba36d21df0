"""The verb `audit`. Heavy imports happen here, after a verb was chosen."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.cli import output
from tacit.cli.verbs.run import under_runs
from tacit.errors import InvalidValue
from tacit.runs.directory import AUDIT, EXPERIMENT, REPORT, Directory

if TYPE_CHECKING:
    from tacit.audits import Audit


def audit(
    file: Path, changes: Sequence[str], out: Path | None, wanted: Mapping[str, Any], *, quiet: bool
) -> "Audit":
    """Attack an experiment, or the one that a run was made from, and keep what was found with its report.

    Args:
        file: The experiment file, or the directory of a run, which keeps what was found.
        changes: What to change in it.
        out: The directory of the audit.
        wanted: What `tacit.audits.audit` is asked for.
        quiet: Whether to print results only.
    """
    from tacit import audits
    from tacit.cli import reporting
    from tacit.experiments import experiment
    from tacit.reports import audit as audited
    from tacit.reports.page import write
    from tacit.reports.text import progress
    from tacit.runs.verification import require_sound

    if file.is_dir() and audits.load(file) is not None:
        raise InvalidValue(f"{file} is an audit itself: name the experiment, or the run, that it is of")
    _require_data(file)
    if file.is_dir():
        require_sound(file)
    read = experiment.read(file, changes)
    of_run = file.is_dir() and not changes
    if file.is_dir() and changes and out is None:
        raise InvalidValue(
            "--set makes another experiment than the run was: say where to keep its audit, --out"
        )
    place = out or (
        file if of_run else under_runs(file, f"{read.name}-audit", repr((read, dict(wanted))), resume=False)
    )
    if out is not None and (out / EXPERIMENT).is_file():
        raise InvalidValue(f"--out {out} holds a run: name the run itself, or another directory")
    _require_room(place)
    # What was said there before is remembered, if it can be read; better to know that now.
    audited.read(Directory(place).read_json(AUDIT), place)
    with progress(quiet=quiet) as watcher:
        done = audits.audit(read, **wanted, callbacks=[watcher]).write(place)
    write(reporting.page([place]), place / REPORT)
    return done


def _require_data(file: Path) -> None:
    """Refuse a run whose sites are in no file: what would be audited is something else."""
    from tacit.runtime.tables import load

    kept = file / EXPERIMENT
    if kept.is_file() and "data" not in load(kept):
        raise InvalidValue(
            f"{file} was made in Python, and its sites are in no file: audit it there, with "
            "tacit.audits.audit(experiment, federation=...)"
        )


def _require_room(place: Path) -> None:
    """Refuse a place where nothing can be kept, before hours of work."""
    near = next(part for part in (place, *place.absolute().parents) if part.exists())
    room = near.is_dir() and os.access(near, os.W_OK) and not (place / REPORT).is_dir()
    if not room:
        raise InvalidValue(f"--out {place} cannot be written: name a directory of yours, or a new one")


def show_audit(done: "Audit") -> None:
    """The audit for people."""
    output.say(done.summary(shutil.get_terminal_size().columns if sys.stdout.isatty() else 100))
