"""What a study is, whatever is studied: cells that are worked out one by one, and what came of them.

A cell is known by its name alone, so it can be worked out anywhere, in any order, and comes out the same.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tacit.errors import TacitError
from tacit.experiments.experiment import Experiment
from tacit.runtime.threads import one_thread

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
Table = dict[str, Any]
Announce = Callable[[str], None]
# What makes a study of its document and its folder.
Constructor = Callable[[Table, Path], "Study[Any]"]


class StudyCell(Protocol):
    """Where a run stands in a study; in words it is what people are told."""

    @property
    def row(self) -> Row:
        """Plain data for JSON."""
        ...

    def __hash__(self) -> int: ...


CellKind = TypeVar("CellKind", bound=StudyCell)


def silent(line: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, kw_only=True)
class Study(ABC, Generic[CellKind]):
    """What an experiment file with a table [study] asks for.

    Args:
        experiment: What is repeated.
        document: The file as it was read, with absolute paths, without what does not change results.
        folder: Where the file lies.
        workers: How many processes share the work.
    """

    experiment: Experiment
    document: Table
    folder: Path = field(default=Path(), repr=False, compare=False)
    workers: int = field(default=1, repr=False, compare=False)

    @property
    @abstractmethod
    def cells(self) -> tuple[CellKind, ...]:
        """Every run that is asked for."""

    @property
    @abstractmethod
    def example(self) -> Experiment:
        """One of the runs, with a promise if any has one."""

    @property
    @abstractmethod
    def size(self) -> str:
        """What the runs are of, in words."""

    @property
    def constructor(self) -> Constructor:
        """What makes the same study of its document, in another process."""
        from tacit.experiments.studies.spec import construct_study

        return construct_study

    @abstractmethod
    def check(self) -> None:
        """Refuse what no run of it could have, before anything is drawn."""

    @abstractmethod
    def run_cell(self, cell: CellKind, place: Path | None) -> Row:
        """The row of a cell: its name and its scores, or why it has none.

        Args:
            cell: Which one.
            place: The directory of the study, if it has one.
        """

    @abstractmethod
    def outcome(self, row: Row) -> str:
        """What came of a cell that has a score, in a few words."""

    @abstractmethod
    def cell_of(self, row: Row) -> CellKind:
        """The cell that a row is about."""

    @abstractmethod
    def result(self, rows: Mapping[CellKind, Row], path: Path | None) -> "StudyResult[CellKind]":
        """What came of it, as far as it is known."""

    def run(
        self,
        out: str | os.PathLike[str] | None = None,
        *,
        resume: bool = False,
        announce: Announce = silent,
    ) -> "StudyResult[CellKind]":
        """Run every cell that is not known yet; see `attempt`."""
        from tacit.experiments.studies.workers import attempt

        return attempt(self, out, resume=resume, announce=announce)


@dataclass(frozen=True, eq=False, kw_only=True)
class StudyResult(ABC, Generic[CellKind]):
    """What came of a study.

    Args:
        study: What was asked for.
        rows: What is known of each cell: its scores, or why it has none.
        path: The directory that remembers it.
    """

    study: Study[CellKind]
    rows: Mapping[CellKind, Row]
    path: Path | None = None

    def __repr__(self) -> str:
        return f"<Studied {self.name}: {len(self.rows)} of {len(self.study.cells)} runs>"

    def _repr_html_(self) -> str:
        from tacit.reports.page.notebook import text_html

        return text_html(f"study {self.name}", self.summary())

    @property
    def name(self) -> str:
        """What the experiment is called."""
        return self.study.experiment.name

    @property
    def futile(self) -> bool:
        """Whether no run has come to anything."""
        return bool(self.rows) and all(row["failed"] is not None for row in self.rows.values())

    @property
    def failures(self) -> dict[str, list[CellKind]]:
        """The cells that have no score, by the reason."""
        found: dict[str, list[CellKind]] = {}
        for cell in self.study.cells:
            reason = self.rows[cell]["failed"] if cell in self.rows else None
            if reason is not None:
                found.setdefault(reason, []).append(cell)
        return found

    @cached_property
    def frame(self) -> "pd.DataFrame":
        """One row for each run that is known, in the order of the file."""
        return self._build_frame()

    @abstractmethod
    def _build_frame(self) -> "pd.DataFrame": ...

    @abstractmethod
    def table(self) -> "pd.DataFrame":
        """Means of the runs that have scores."""

    @abstractmethod
    def summary(self) -> str:
        """The study for people: what was run, the means, and what failed."""

    @abstractmethod
    def figures(self, folder: str | Path, *, announce: Announce = silent) -> dict[str, Path]:
        """Draw what came of it, as PNG; files by what they show.

        Args:
            folder: Where to keep them; made if it is not there.
            announce: Told what is left out, and why.
        """

    def draw(self, folder: str | Path, *, announce: Announce = silent) -> dict[str, Path]:
        """Draw everything there is to see into folders of its own, such as `figures`; files by what they are.

        Args:
            folder: Where these are; usually the directory of the study.
            announce: Told what is left out, and why.
        """
        return self.figures(Path(folder) / "figures", announce=announce)

    def as_dict(self) -> dict[str, Any]:
        """The study as one document."""
        failures = {reason: [cell.row for cell in cells] for reason, cells in self.failures.items()}
        return {
            "run": None if self.path is None else str(self.path),
            "name": self.name,
            "task": self.study.experiment.task.kind,
            "runs": len(self.rows),
            "of": len(self.study.cells),
            "table": self._records(),
            "failures": failures,
        }

    @abstractmethod
    def _records(self) -> list[Row]:
        """The rows of the table as plain data."""

    @property
    def runs(self) -> str:
        """How many runs there are, and of what."""
        done, every = len(self.rows), len(self.study.cells)
        many = f"{every}" if done == every else f"{done} of {every}"
        return f"{many}{f': {self.study.size}' if self.study.size else ''}"

    def failed_in_words(self) -> list[str]:
        """What failed, in words."""
        return [
            f"failed, {len(cells)} runs, such as {cells[0]}: {reason}"
            for reason, cells in self.failures.items()
        ]


def row_of(cell: StudyCell, scored: Callable[[], Row]) -> Row:
    """The row of a cell: its name and what is found, or why nothing is."""
    try:
        with one_thread():
            return {**cell.row, **scored(), "failed": None}
    except TacitError as error:
        return {**cell.row, "failed": str(error)}
    except Exception as error:
        # The others are worth having all the same.
        return {**cell.row, "failed": f"a bug of ours, {type(error).__name__}: {error}"}
