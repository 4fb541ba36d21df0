"""All cells of a study, over several processes. What is finished is on disk, and is not done again."""

import multiprocessing
import os
import signal
import threading
import tomllib
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from functools import lru_cache
from multiprocessing.connection import wait
from pathlib import Path

import msgspec
import tomli_w

from tacit.directory import Directory
from tacit.errors import RunUnusable, TacitError
from tacit.studies.asked import Study, construct_study
from tacit.studies.cells import Cell, Row, worked_out
from tacit.studies.studied import CELLS, Studied, rows_of


def attempt(
    study: Study,
    out: str | os.PathLike[str] | None,
    *,
    resume: bool = False,
    announce: Callable[[str], None] = lambda line: None,
) -> Studied:
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
    with directory.claimed(study.document, resume=resume):
        known = {cell: row for cell, row in rows_of(directory).items() if row["failed"] is None}
        _rewrite(directory, known.values())
        missing = [cell for cell in study.cells if cell not in known]
        with closing(_results(study, missing)) as results:
            for number, (cell, row) in enumerate(results, start=len(known) + 1):
                known[cell] = row
                _append(directory, row)
                announce(f"{number} of {len(study.cells)}: {cell}: {_outcome(row)}")
    return Studied(study=study, rows=known, path=directory.path)


def _results(study: Study, cells: Sequence[Cell]) -> Generator[tuple[Cell, Row]]:
    """Cells with their rows, as they come."""
    workers = min(study.workers, len(cells))
    if workers <= 1:
        for cell in cells:
            yield cell, worked_out(study.experiment, cell, study.folds)
        return
    text = tomli_w.dumps(study.document)
    with _pool(workers) as pool:
        begun = {pool.submit(_work, text, str(study.folder), cell): cell for cell in cells}
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
            "a process of the study died, perhaps for want of memory: use fewer workers (study.workers), and "
            'resume. A script has to start a study under if __name__ == "__main__":'
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


def _work(text: str, folder: str, cell: Cell) -> Row:
    """One cell, in a process of its own, from plain data."""
    study = _constructed(text, folder)
    return worked_out(study.experiment, cell, study.folds)


@lru_cache(maxsize=1)
def _constructed(text: str, folder: str) -> Study:
    return construct_study(tomllib.loads(text), Path(folder))


def _outcome(row: Row) -> str:
    if row["failed"] is not None:
        return f"failed: {row['failed']}"
    error = "unknown" if row["ril2"] is None else f"{row['ril2']:.4f}"
    return f"RIL2 {error}, {row['seconds']:.1f} s"


def _rewrite(directory: Directory, rows: Iterable[Row]) -> None:
    """Begin the list anew with what is known: a line that was cut off is gone."""
    lines = [msgspec.json.encode(row) + b"\n" for row in rows]
    directory.write(CELLS, b"".join(lines))


def _append(directory: Directory, row: Row) -> None:
    """Add a row to the list, on disk."""
    place = directory.file(CELLS)
    if place is None:
        return
    try:
        with place.open("ab") as stream:
            stream.write(msgspec.json.encode(row) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise RunUnusable(
            f"run {directory.path} cannot be written: {CELLS}: {error.strerror}; what was written before is "
            "intact"
        ) from error
