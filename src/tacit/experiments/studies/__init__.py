"""Studies: one experiment, repeated over all factors that its table [study] varies.

curves                studies of curves: subjects, parties, folds and promises; means and a summary
environments          studies in environments: training regimes, promises and seeds
regimes               ways to train in the same environments
environment_results   their results: means with intervals, a summary
figures               figures of both, and films
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.errors import InvalidFile
from tacit.experiments.batch import CELLS, BatchResult, CellBatch
from tacit.experiments.experiment import KINDS
from tacit.runs.directory import Directory
from tacit.runtime.tables import Table, build, read_as

Study = CellBatch[Any, BatchResult[Any]]


def read(path: str | Path, changes: Sequence[str] = ()) -> Study:
    """Read an experiment file with a table [study].

    Args:
        path: The file, or the directory of an earlier study, which keeps its own.
        changes: Changes to it: `study.folds=5`, values written as in TOML.

    Raises:
        InvalidFile: The file, the table and the key at fault, and what is allowed instead.
    """
    return read_as(construct_study, path, changes)


def has_study_table(path: str | Path, changes: Sequence[str] = ()) -> bool:
    """Return True if a file, or the one that a directory keeps, has a table [study]."""
    return read_as(lambda document, folder: "study" in document, path, changes)


def load(path: str | Path) -> BatchResult[Any] | None:
    """The study that a directory remembers, as far as it got; None if it holds none."""
    if not (Path(path) / CELLS).is_file() or not has_study_table(path):
        return None
    directory, study = Directory(path), read(path)
    return study.result(study.read_rows(directory), directory.path)


def construct_study(document: Table, folder: Path) -> Study:
    """Construct the study of a document: of environments or of curves, depending on its task."""
    if "study" not in document:
        raise InvalidFile(
            "[study] is missing: give one, such as parties = [2, 4] and replicates = 10 for curves, or "
            'regimes = ["alone", "federated"] for worlds'
        )
    if build("task", document, folder, KINDS["task"]).layout == "environments":
        from tacit.experiments.studies.environments import WorldStudy

        return WorldStudy.construct(document, folder)
    from tacit.experiments.studies.curves import CurveStudy

    return CurveStudy.construct(document, folder)
