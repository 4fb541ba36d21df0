"""The verb `sweep`: an experiment at every one of several values, with several seeds."""

import hashlib
import shlex
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.cli import output

if TYPE_CHECKING:
    from tacit.experiments.sweep_results import SweepResult
    from tacit.experiments.sweeps import Sweep

REPORT = "report.html"


def sweep(
    file: Path,
    *,
    changes: Sequence[str] = (),
    seeds: int | None = None,
    workers: int | None = None,
    out: Path | None = None,
    quiet: bool = False,
) -> "SweepResult":
    """Run whatever of a sweep is not known yet, and keep its report beside it.

    Args:
        file: The experiment file, or the directory of a sweep to go on with.
        changes: What to change in it; keys with several values, separated by commas, are swept.
        seeds: How many seeds.
        workers: How many processes share the work.
        out: The directory of the sweep; under `runs` if not said. The same sweep goes on there by itself.
        quiet: Whether to print results only.
    """
    from tacit.experiments import sweeps

    asked = sweeps.read(file, changes, seeds=seeds, workers=workers)
    again = file.is_dir() and not changes and seeds is None
    place = out or (file if again else _place(asked))
    known, every = len(asked.finished_rows(place)), len(asked.cells)
    if known < every:
        goes_on = f", {known} of them known" if known else ""
        output.log(f"{every} runs: {asked.size}{goes_on}; kept in {place}", quiet=quiet)
    with _interruptible(place), progress(known, every, quiet=quiet) as announce:
        done = asked.run(place, announce=announce)
    if known < every or not (place / REPORT).is_file():
        _report(done, place / REPORT, quiet=quiet)
    return done


def show_sweep(done: "SweepResult") -> None:
    """The sweep for people."""
    output.say(done.summary())


def _place(asked: "Sweep") -> Path:
    """Where a sweep lies: under `runs` here, by its name and a fingerprint of its choices."""
    import tomli_w

    choices = hashlib.sha256(tomli_w.dumps(asked.document).encode()).hexdigest()[:6]
    return Path("runs") / f"{asked.experiment.name}-sweep-{choices}"


def _report(done: "SweepResult", path: Path, *, quiet: bool) -> None:
    from tacit.reports.page import write

    output.log(f"report {write(done.page(), path)}", quiet=quiet)


@contextmanager
def _interruptible(place: Path) -> Generator[None]:
    """Say how to go on with what is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        words = f"tacit sweep {shlex.quote(str(place))}"
        output.log(f"tacit: interrupted; go on with: {words}", quiet=False)
        raise


@contextmanager
def progress(known: int, every: int, *, quiet: bool = False) -> Generator[Callable[[str], None]]:
    """Show runs as they end, on stderr: one line each, and on a terminal a live bar below them.

    Args:
        known: How many runs are known already.
        every: How many there are.
        quiet: Whether to show nothing.
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
            # Whoever draws the bar sees to it that lines stand above it.
            output.log(f"{line}; {left} left, {_span(took / ended * left)}" if left else line, quiet=False)
            bar(words, ended / rest)

        yield announce


@contextmanager
def _bar() -> Generator[Callable[[str, float], None]]:
    """A live line where there is a terminal for it; told what goes on and how much of it is done."""
    if not sys.stderr.isatty():
        yield lambda words, share: None
        return
    from tacit.reports.text import show_live_line

    with show_live_line(sys.stderr) as watcher:
        yield (lambda words, share: None) if watcher is None else watcher.stage


def _span(seconds: float) -> str:
    """How long something takes, roughly."""
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
