"""Survival data from a file, checked before training."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidFile, InvalidValue
from tacit.sites.table import from_frame
from tacit.sites.table_files import kind_of, read_plain

if TYPE_CHECKING:
    from pandas import DataFrame


class MissingFile(InvalidFile, FileNotFoundError):
    """A file that is not there; programs written for the original catch `FileNotFoundError`."""


class DataLoader:
    """Reads a file of patients: features, a time above 0 and a status of 0 or 1.

    The original took a status of 1 and 2 for events alone, and replaced the names of the features by x1, x2,
    ...; here the first is refused, and names stay.

    Args:
        feature_columns: New names of features, by the names in the file.
        time_column: The name of the time in the file.
        status_column: The name of the status in the file.
    """

    def __init__(
        self,
        feature_columns: Mapping[str, str] | None = None,
        time_column: str = "time",
        status_column: str = "status",
    ) -> None:
        self.feature_columns = dict(feature_columns or {})
        self.time_column, self.status_column = time_column, status_column

    def load(self, file_path: str | Path) -> "DataFrame":
        """The features, then `time` and `status`, all of them numbers.

        Args:
            file_path: A CSV file (any suffix will do), an Excel file, TSV or Parquet.

        Raises:
            MissingFile: It is not there; a `FileNotFoundError`.
            InvalidFile: It cannot be read.
            InvalidValue: A column is missing, or does not hold what it must; the message names it.
        """
        frame, place = _read(Path(file_path)), str(file_path)
        frame = frame.rename(columns=self.feature_columns)
        table = from_frame(frame, targets=(self.time_column, self.status_column), place=place)
        time, status = table.targets[self.time_column], table.targets[self.status_column]
        require_outcomes(time, status, place)
        made = frame[list(table.columns)].astype(np.float64).reset_index(drop=True)
        return made.assign(time=time, status=status.astype(np.int64))


def require_outcomes(time: NDArray[np.float64], status: NDArray[np.float64], place: str) -> None:
    """Refuse times that are not above 0, and a status that is neither 0 nor 1."""
    early = int((time <= 0).sum())
    if early:
        raise InvalidValue(f"time in {place} is not allowed: {early} of {len(time)} records are not above 0")
    odd = np.setdiff1d(status, (0, 1))
    if len(odd):
        raise InvalidValue(
            f"status in {place} is not allowed: {odd[0]:g} is there; it must be 1 (event) or 0 (censored)"
        )


def _read(path: Path) -> "DataFrame":
    if not path.exists():
        raise MissingFile(f"{path} cannot be read: No such file or directory")
    return read_plain(path, kind=kind_of(path) or ".csv")
