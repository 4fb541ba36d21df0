"""Batches of runs: cells, worker processes, rows on disk, and resuming an interrupted batch.

A batch says which runs there are, and what to keep of each: sweeps, studies, attack trials and tunings are
specs and results on it. A cell is known by its name alone, so it can be run anywhere, in any order, and comes
out the same. Each row is synced before the next cell begins: a kill loses only the cells that were running.
"""

import math
import multiprocessing
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, lru_cache
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import msgspec
import numpy as np
import tomli_w

from tacit.errors import RunUnusable, TacitError, require
from tacit.experiments.experiment import Experiment
from tacit.learning.record import Simplest, plain_table
from tacit.runs.directory import Directory
from tacit.runs.run import judge
from tacit.runtime import files
from tacit.runtime.arrays import Array
from tacit.runtime.tables import Table, parse
from tacit.runtime.threads import one_thread

if TYPE_CHECKING:
    import pandas as pd

    from tacit.reports.page.blocks import Page

Row = dict[str, Any]
Announce = Callable[[str], None]
CELLS = "cells.jsonl"
LEVEL = 0.95
# Scores of a run, and its simplest baseline as its row keeps it.
Scored = tuple[Mapping[str, float | None], Mapping[str, Any] | None]
WORSE = "not better than"
# More conditions than these are counted in a sentence, and listed once.
FEW = 3
# The smallest number of runs whose interval says something about others.
ENOUGH = 3


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Cell of a batch: one run, with its description."""

    @property
    def row(self) -> Row:
        """Plain data for JSON."""
        return asdict(self)

    @property
    def group(self) -> Hashable:
        """Key shared by the cells that are averaged together."""
        return self

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """The cell that a row is about."""
        return cls(**{entry.name: row[entry.name] for entry in fields(cls)})


CellKind = TypeVar("CellKind", bound=Cell)
ResultKind = TypeVar("ResultKind", covariant=True)


def silent(line: str) -> None:
    """Discard a progress line."""


@dataclass(frozen=True, kw_only=True)
class CellBatch(ABC, Generic[CellKind, ResultKind]):
    """Many runs that one experiment file asks for.

    Args:
        experiment: The experiment that is repeated.
        document: The file as it was read, with absolute paths, without what does not change results.
        folder: The folder of the file.
        workers: The number of processes.
    """

    experiment: Experiment
    document: Table
    folder: Path = field(default=Path(), repr=False, compare=False)
    # True if a resumed batch tries failed cells again.
    retries: ClassVar[bool] = True
    workers: int = field(default=1, repr=False, compare=False)

    @classmethod
    @abstractmethod
    def construct(cls, document: Table, folder: Path) -> Self:
        """Make a batch of its document, in any process."""

    @property
    @abstractmethod
    def cells(self) -> tuple[CellKind, ...]:
        """Every run that is asked for."""

    @property
    def example(self) -> Experiment:
        """One of the runs, with a promise if any has one."""
        return self.experiment

    @property
    def size(self) -> str:
        """Number of runs by factor, in words."""
        return ""

    @abstractmethod
    def check(self) -> None:
        """Refuse options that no run of the batch could have, before data are drawn."""

    @abstractmethod
    def run_cell(self, cell: CellKind, place: Path | None) -> Row:
        """Run a cell and return its row: its name with its scores, or the reason that it has none.

        Args:
            cell: The cell.
            place: The directory of the batch, if it has one.
        """

    @abstractmethod
    def result(self, rows: Mapping[CellKind, Row], path: Path | None) -> ResultKind:
        """Collect what is known."""

    def outcome(self, row: Row) -> str:
        """Return the result of a cell that has a score, in a few words."""
        return ""

    def begin_line(self, cell: CellKind) -> str:
        """Return the line that announces a cell before it is run; empty for none."""
        return ""

    def end_line(self, cell: CellKind, row: Row) -> str:
        """Return the line that announces the result of a cell; empty for none."""
        failed = row["failed"]
        return f"{cell}: {self.outcome(row) if failed is None else f'failed: {failed}'}"

    def read_rows(self, directory: Directory) -> dict[CellKind, Row]:
        """The rows of a directory; a line that cannot be read does not count."""
        found: dict[CellKind, Row] = {}
        kind = type(self.cells[0])
        for line in (directory.read(CELLS) or b"").splitlines():
            try:
                row = msgspec.json.decode(line, type=dict[str, Any])
            except files.DAMAGED:
                continue
            found[kind.from_row(row)] = row
        return found

    def done_rows(self, directory: Directory) -> dict[CellKind, Row]:
        """The rows that need not be made again."""
        rows = self.read_rows(directory)
        return {cell: row for cell, row in rows.items() if row["failed"] is None or not self.retries}

    def begin(self, directory: Directory, rows: Mapping[CellKind, Row]) -> None:
        """Write the finished rows, without an incomplete last line."""
        directory.write(CELLS, b"".join(msgspec.json.encode(row) + b"\n" for row in rows.values()))

    def keep(self, directory: Directory, rows: Mapping[CellKind, Row], row: Row) -> None:
        """Add the newest of the rows to those on disk."""
        place = directory.file(CELLS)
        if place is None:
            return
        try:
            files.append(place, msgspec.json.encode(row) + b"\n")
        except OSError as error:
            raise RunUnusable(
                f"run {directory.path} cannot be written: {CELLS}: {error.strerror}; what was written before "
                "is intact"
            ) from error

    def run(
        self,
        out: str | os.PathLike[str] | None = None,
        *,
        resume: bool = False,
        announce: Announce = silent,
    ) -> ResultKind:
        """Run every cell that is not finished yet, and write its row.

        Results depend neither on how many processes there are nor on which cell comes first. In a rehearsal
        they are the same every time; without one, noise is fresh in every run. A cell that fails is told with
        its reason, stops no other, and is tried again when the batch is resumed.

        Args:
            out: The directory that remembers it; nothing is kept without one.
            resume: Continue the batch in `out`, if there is one.
            announce: Receives a line per finished cell.

        Raises:
            TacitError: No run of it is possible, or a process died. In a script, batches with several workers
                have to be started under `if __name__ == "__main__":`, since every process reads the script.
        """
        self.check()
        directory, every = Directory(out), self.cells
        with directory.claim(self.document, resume=resume):
            rows = self.done_rows(directory)
            self.begin(directory, rows)
            missing = [cell for cell in every if cell not in rows]

            def tell(number: int, line: str) -> None:
                if line:
                    announce(f"{number} of {len(every)}: {line}")

            def begin(cell: CellKind) -> None:
                tell(len(rows) + 1, self.begin_line(cell))

            with closing(_results(self, missing, directory.path, begin)) as results:
                for cell, row in results:
                    rows[cell] = row
                    self.keep(directory, rows, row)
                    tell(len(rows), self.end_line(cell, row))
        return self.result(rows, directory.path)


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchResult(ABC, Generic[CellKind]):
    """Results of a batch.

    Args:
        batch: The batch.
        rows: The row of each finished cell: its scores, or the reason that it has none.
        path: The directory of the batch.
    """

    batch: CellBatch[CellKind, Any]
    rows: Mapping[CellKind, Row]
    path: Path | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {len(self.rows)} of {len(self.batch.cells)} runs>"

    def _repr_html_(self) -> str:
        from tacit.reports.page.html import fragment

        return fragment(self.page())

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.batch.experiment.name

    @property
    def futile(self) -> bool:
        """True if every run so far has failed."""
        return bool(self.rows) and all(row["failed"] is not None for row in self.rows.values())

    @property
    def failures(self) -> dict[str, list[CellKind]]:
        """The cells that have no score, by the reason."""
        found: dict[str, list[CellKind]] = {}
        for cell in self.batch.cells:
            reason = self.rows[cell]["failed"] if cell in self.rows else None
            if reason is not None:
                found.setdefault(reason, []).append(cell)
        return found

    @cached_property
    def frame(self) -> "pd.DataFrame":
        """One row for each finished run; runs that are averaged are adjacent."""
        import pandas as pd

        known = [(cell, self.rows[cell]) for cell in self._in_order() if cell in self.rows]
        scores = list(dict.fromkeys(name for _, row in known for name in row.get("scores", {})))
        flat = [{**row, **self._factors(cell), **row.get("scores", {})} for cell, row in known]
        columns, numbers = self._columns
        found = pd.DataFrame(flat, columns=[*columns, *scores, "failed"])
        return found.astype(dict.fromkeys([*numbers, *scores], "float64"))

    @property
    @abstractmethod
    def _columns(self) -> tuple[list[str], list[str]]:
        """Columns of the frame other than scores, and the numeric ones among them."""

    def _factors(self, cell: CellKind) -> Row:
        """Return columns of a cell that its row does not have."""
        return {}

    def _in_order(self) -> list[CellKind]:
        """Order the cells so that repetitions are adjacent."""
        groups = dict.fromkeys(cell.group for cell in self.batch.cells)
        places = {group: place for place, group in enumerate(groups)}
        return sorted(self.batch.cells, key=lambda cell: places[cell.group])

    @abstractmethod
    def table(self) -> "pd.DataFrame":
        """Means of the runs that have scores."""

    @abstractmethod
    def summary(self) -> str:
        """Summarize the batch in text: the runs, the means, and the failures."""

    @abstractmethod
    def page(self) -> "Page":
        """The batch as a report."""

    @abstractmethod
    def figures(self, folder: str | Path, *, announce: Announce = silent) -> dict[str, Path]:
        """Draw the results as PNG; return the files by figure.

        Args:
            folder: The folder of the figures; created if missing.
            announce: Receives the names of omitted figures, with reasons.
        """

    def draw(self, folder: str | Path, *, announce: Announce = silent) -> dict[str, Path]:
        """Draw all figures into folders of their own, such as `figures`; return the files by kind.

        Args:
            folder: The parent folder; usually the directory of the batch.
            announce: Receives the names of omitted figures, with reasons.
        """
        return self.figures(Path(folder) / "figures", announce=announce)

    def as_dict(self) -> dict[str, Any]:
        """The batch as one document."""
        failures = {reason: [cell.row for cell in cells] for reason, cells in self.failures.items()}
        return {
            "run": None if self.path is None else str(self.path),
            "name": self.name,
            "task": self.batch.experiment.task.kind,
            "runs": len(self.rows),
            "of": len(self.batch.cells),
            "table": self._records(),
            "failures": failures,
        }

    @abstractmethod
    def _records(self) -> list[Row]:
        """Return the rows of the table as plain data."""

    @property
    def runs(self) -> str:
        """Number of runs, finished and in all, in words."""
        done, every = len(self.rows), len(self.batch.cells)
        many = f"{every}" if done == every else f"{done} of {every}"
        return f"{many}{f': {self.batch.size}' if self.batch.size else ''}"

    def failed_in_words(self) -> list[str]:
        """Return one sentence for each reason of failure."""
        return [
            f"failed, {len(cells)} runs, such as {cells[0]}: {reason}"
            for reason, cells in self.failures.items()
        ]


def row_of(cell: Cell, scored: Callable[[], Row]) -> Row:
    """Return the row of a cell: its name and its results, or the reason why there are none."""
    try:
        with one_thread():
            return {**cell.row, **scored(), "failed": None}
    except TacitError as error:
        return {**cell.row, "failed": str(error)}
    except Exception as error:
        # The others are worth having all the same.
        return {**cell.row, "failed": f"a bug of ours, {type(error).__name__}: {error}"}


def finite(value: float | None) -> float | None:
    """A number as JSON has it, which knows no infinity."""
    return None if value is None or not math.isfinite(value) else float(value)


def finite_scores(found: Mapping[str, float]) -> dict[str, float | None]:
    """Scores as JSON has them."""
    return {name: finite(value) for name, value in found.items()}


def student_interval(values: Sequence[float] | Array) -> tuple[float, float]:
    """The 95 % interval of the mean of two or more values (Student's t)."""
    from scipy.stats import t as student

    many = np.asarray(values, dtype=np.float64)
    reach = (
        float(student.ppf(0.5 + LEVEL / 2, len(many) - 1)) * float(many.std(ddof=1)) / math.sqrt(len(many))
    )
    return float(many.mean()) - reach, float(many.mean()) + reach


def interval_of(values: Sequence[float]) -> tuple[float | None, float | None, str | None]:
    """Return the ends of an interval of these values, and its kind, `t` or `range`; none for one value."""
    if len(values) < 2:
        return None, None, None
    if len(values) < ENOUGH:
        return float(min(values)), float(max(values)), "range"
    return *student_interval(values), "t"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Verdict on runs that differ in seeds, folds or replicates alone.

    Args:
        label: Their common condition, in words; empty if there is no other.
        simplest: The mean of their simplest baselines; None where the runs have none.
        words: Sentences on mean scores that are not better; none if all are.
    """

    label: str
    simplest: Simplest | None
    words: tuple[str, ...]

    @property
    def useless(self) -> bool:
        """True if some score is not better than the simplest baseline."""
        return any(words.startswith(WORSE) for words in self.words)

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        simplest = None if self.simplest is None else plain_table(self.simplest)
        return {"condition": self.label, "simplest": simplest, "verdict": list(self.words)}


def judge_runs(label: str, runs: Iterable[Scored]) -> Verdict:
    """Judge mean scores beside the mean of the simplest baselines.

    Of several runs the gain has the interval of the mean over them, of a single run that over other held-out
    records.
    """
    known = [(_known_scores(scores), _simplest(table)) for scores, table in runs if table]
    if not known:
        return Verdict(label=label, simplest=None, words=())
    first = known[0][1]
    names = [name for name in first.scores if all(name in one.scores for _, one in known)]
    names = [name for name in names if all(name in scores for scores, _ in known)]
    means = {name: float(np.mean([one.scores[name] for _, one in known])) for name in names}
    scores = {name: float(np.mean([own[name] for own, _ in known])) for name in names}
    gain = dict(first.gain)
    if len(known) > 1:
        gains = [one.gains(own) for own, one in known]
        ends = {name: interval_of([each[name] for each in gains]) for name in names}
        # Of two runs there is a range, and no interval.
        gain = {
            name: (low, high)
            for name, (low, high, kind) in ends.items()
            if kind == "t" and low is not None and high is not None
        }
    mean = replace(first, scores=means, gain=gain)
    return Verdict(label=label, simplest=mean, words=judge(mean, scores))


def verdict_sentences(verdicts: Sequence[Verdict]) -> list[tuple[str, str]]:
    """Return each verdict as a sentence with its tone; many of one kind share a sentence."""
    told: list[tuple[str, str]] = []
    for useless, tone in ((True, "stop"), (False, "mind")):
        found = [verdict for verdict in verdicts if verdict.words and verdict.useless is useless]
        if len(found) > FEW:
            told.append((tone, _shared(found, len(verdicts))))
        else:
            words = [f"{one.label}: {'; '.join(one.words)}.".removeprefix(": ") for one in found]
            told += [(tone, line[:1].upper() + line[1:]) for line in words]
    return told


def lead_verdict(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the sentence to begin a report with; none if all results are better than the baseline."""
    found = [verdict for verdict in verdicts if verdict.useless]
    if not found or found[0].simplest is None:
        return []
    if len(found) == len(verdicts):
        return [_shared(found, len(verdicts)) if len(found) > 1 else f"The model is {found[0].words[0]}."]
    labels = f": {'; '.join(one.label for one in found)}" if len(found) <= FEW else ""
    name = found[0].simplest.name
    many = f"{len(found)} of {len(verdicts)} results {'is' if len(found) == 1 else 'are'}"
    return [f"{many} {WORSE} {name}, the simplest baseline{labels}."]


def _shared(found: Sequence[Verdict], every: int) -> str:
    """Return one sentence for verdicts of one kind."""
    simplest = found[0].simplest
    assert simplest is not None
    if found[0].useless and len(found) == every:
        return f"None of {every} results is better than {simplest.name}, the simplest baseline."
    how = WORSE if found[0].useless else "not clearly better than"
    labels = "; ".join(one.label for one in found)
    return f"{len(found)} of {every} results are {how} {simplest.name}, the simplest baseline: {labels}."


def _known_scores(scores: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in scores.items() if value is not None and np.isfinite(value)}


def _simplest(table: Mapping[str, Any]) -> Simplest:
    """Return the baseline that a row keeps."""
    return Simplest(
        name=str(table["name"]),
        how=str(table["how"]),
        scores=_known_scores(table.get("scores", {})),
        lower=tuple(table.get("lower", ())),
        gain={name: (pair[0], pair[1]) for name, pair in table.get("gain", {}).items() if None not in pair},
    )


def count_words(count: int, word: str, rest: str = "") -> str:
    """Format a count with its noun: `1 seed`, `2 numbers of parties`."""
    return f"{count} {word}{'s' * (count != 1)}{rest}"


def join_words(words: Sequence[str]) -> str:
    """Join words to a list for people: `a, b and c`."""
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def require_distinct(**lists: Sequence[object] | None) -> None:
    """Refuse lists, by their names, that are empty or say something twice."""
    for name, given in lists.items():
        if given is not None:
            require(len(given) > 0, name, list(given), "a list of at least one, or left out")
            require(len(set(given)) == len(given), name, list(given), "a list of different ones")


def without_workers(document: Table) -> Table:
    """Return the document without the number of processes: a batch may be resumed on another machine."""
    document["study"].pop("workers", None)
    return document


def _results(
    batch: CellBatch[CellKind, Any],
    cells: Sequence[CellKind],
    place: Path | None,
    begin: Callable[[CellKind], None],
) -> Generator[tuple[CellKind, Row]]:
    """Yield cells with their rows in the order of completion."""
    workers = min(batch.workers, len(cells))
    if workers <= 1:
        for cell in cells:
            begin(cell)
            yield cell, batch.run_cell(cell, place)
        return
    text = tomli_w.dumps(batch.document)
    with _pool(workers) as pool:
        made = (type(batch), text, str(batch.folder))
        begun = {pool.submit(_work, made, cell, place): cell for cell in cells}
        for future in as_completed(begun):
            yield begun[future], _row(future)


@contextmanager
def _pool(workers: int) -> Generator[ProcessPoolExecutor]:
    """Start worker processes that end with this one; an interrupt cancels pending cells."""
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
            "a process of the study died, perhaps of lack of memory: use fewer workers (study.workers, or "
            '--workers), and resume. A script must start a study under if __name__ == "__main__":'
        ) from error


def _begin() -> None:
    """Leave interruptions to the process that started this one, and end when that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _work(made: tuple[type[CellBatch[Any, Any]], str, str], cell: Cell, place: Path | None) -> Row:
    """Run one cell, in a process of its own, from plain data."""
    return _construct(*made).run_cell(cell, place)


@lru_cache(maxsize=1)
def _construct(kind: type[CellBatch[Any, Any]], text: str, folder: str) -> CellBatch[Any, Any]:
    return kind.construct(parse(text, "the study"), Path(folder))
