"""The table [study] of a file: of what it is a study, and reading one again. Reading touches no data."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.errors import InvalidFile
from tacit.experiments.experiment import KINDS
from tacit.experiments.studies.base import Study, StudyResult, Table
from tacit.experiments.studies.rows import CELLS, rows_of
from tacit.privacy.contracts import layout_of
from tacit.runs.directory import Directory
from tacit.runtime.tables import build, read_as


def read(path: str | Path, changes: Sequence[str] = ()) -> Study[Any]:
    """Read an experiment file with a table [study].

    Args:
        path: The file, or the directory of an earlier study, which keeps its own.
        changes: What to change in it: `study.folds=5`, values written as in TOML.

    Raises:
        InvalidFile: The file, the table and the key at fault, and what is allowed instead.
    """
    return read_as(construct_study, path, changes)


def has_study_table(path: str | Path, changes: Sequence[str] = ()) -> bool:
    """Whether a file, or the one that a directory keeps, has a table [study]."""
    return read_as(lambda document, folder: "study" in document, path, changes)


def load(path: str | Path) -> StudyResult[Any] | None:
    """The study that a directory remembers, as far as it got; None if it holds none."""
    if not (Path(path) / CELLS).is_file() or not has_study_table(path):
        return None
    directory, study = Directory(path), read(path)
    return study.result(rows_of(study, directory), directory.path)


def construct_study(document: Table, folder: Path) -> Study[Any]:
    """The study that a document says: of worlds, or else of curves, by what its task learns from."""
    if "study" not in document:
        raise InvalidFile(
            "[study] is missing: give one, such as parties = [2, 4] and replicates = 10 for curves, or "
            'regimes = ["alone", "federated"] for worlds'
        )
    if layout_of(build("task", document, folder, KINDS["task"])) == "environments":
        from tacit.experiments.studies.environments.spec import construct_study as of_worlds

        return of_worlds(document, folder)
    from tacit.experiments.studies.curves.spec import construct_study as of_curves

    return of_curves(document, folder)
