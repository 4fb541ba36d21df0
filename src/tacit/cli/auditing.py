"""The verb `audit`. Heavy imports happen here, after a verb was chosen."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.cli.running import under_runs
from tacit.errors import InvalidValue

if TYPE_CHECKING:
    from tacit.audits import Audit

REPORT = "report.html"


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
    from tacit import audits, experiment, reporting
    from tacit.directory import EXPERIMENT
    from tacit.reports.text import progress
    from tacit.reports.writing import write

    if file.is_dir() and audits.load(file) is not None:
        raise InvalidValue(f"{file} is an audit itself: name the experiment, or the run, that it is of")
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
    with progress(quiet=quiet) as watcher:
        done = audits.audit(read, **wanted, callbacks=[watcher]).write(place)
    write(reporting.page([place]), place / REPORT)
    return done


def show_audit(done: "Audit") -> None:
    """The audit for people."""
    print(done.summary(shutil.get_terminal_size().columns if sys.stdout.isatty() else 100))
