"""All cells of a study, over several processes. What is finished is on disk, and is not done again."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from functools import lru_cache
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import tomli_w

from tacit.errors import TacitError
from tacit.experiments.studies.base import (
    Announce,
    CellKind,
    Constructor,
    Row,
    Study,
    StudyCell,
    StudyResult,
    silent,
)
from tacit.experiments.studies.rows import append, rewrite, rows_of
from tacit.runs.directory import Directory
from tacit.runtime.tables import parse


def attempt(
    study: Study[CellKind],
    out: str | os.PathLike[str] | None,
    *,
    resume: bool = False,
    announce: Announce = silent,
) -> StudyResult[CellKind]:
    """Run every cell that is not known yet, and keep its scores.

    Results depend neither on how many processes there are nor on which cell comes first. In a rehearsal they
    are the same every time; without one, noise is fresh in every run. A cell that fails is told with its
    reason, stops no other, and is tried again when the study is resumed.

    Args:
        study: What is studied.
        out: The directory that remembers it; nothing is kept without one.
        resume: Whether to go on with the study in `out`, if there is one.
        announce: Told what is finished.

    Raises:
        TacitError: No run of it is possible, or a process died. In a script, studies with several workers
            have to be started under `if __name__ == "__main__":`, since every process reads the script.
    """
    study.check()
    directory = Directory(out)
    with directory.claim(study.document, resume=resume):
        known = {cell: row for cell, row in rows_of(study, directory).items() if row["failed"] is None}
        rewrite(directory, known.values())
        missing = [cell for cell in study.cells if cell not in known]
        with closing(_results(study, missing, directory.path)) as results:
            for number, (cell, row) in enumerate(results, start=len(known) + 1):
                known[cell] = row
                append(directory, row)
                announce(f"{number} of {len(study.cells)}: {cell}: {_outcome(study, row)}")
    return study.result(known, directory.path)


def _results(
    study: Study[CellKind], cells: Sequence[CellKind], place: Path | None
) -> Generator[tuple[CellKind, Row]]:
    """Cells with their rows, as they come."""
    workers = min(study.workers, len(cells))
    if workers <= 1:
        for cell in cells:
            yield cell, study.run_cell(cell, place)
        return
    text = tomli_w.dumps(study.document)
    with _pool(workers) as pool:
        made = (study.constructor, text, str(study.folder))
        begun = {pool.submit(_work, made, cell, place): cell for cell in cells}
        for future in as_completed(begun):
            yield begun[future], _row(future)


@contextmanager
def _pool(workers: int) -> Generator[ProcessPoolExecutor]:
    """Fresh processes, which end with this one; what has not begun is given up if this one is interrupted."""
    # A fork would copy locks that threads of numerical libraries hold.
    fresh = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=fresh, initializer=_begin)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _row(future: "Future[Row]") -> Row:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise TacitError(
            "a process of the study died, perhaps for want of memory: use fewer workers (study.workers, or "
            '--workers), and resume. A script has to start a study under if __name__ == "__main__":'
        ) from error


def _begin() -> None:
    """What a process does first: leave interruptions to the one that started it, and end when that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _work(made: tuple[Constructor, str, str], cell: StudyCell, place: Path | None) -> Row:
    """One cell, in a process of its own, from plain data."""
    return _construct(*made).run_cell(cell, place)


@lru_cache(maxsize=1)
def _construct(constructor: Constructor, text: str, folder: str) -> Study[Any]:
    return constructor(parse(text, "the study"), Path(folder))


def _outcome(study: Study[CellKind], row: Row) -> str:
    return study.outcome(row) if row["failed"] is None else f"failed: {row['failed']}"
