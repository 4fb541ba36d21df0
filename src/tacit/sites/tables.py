"""Records as numbers: a matrix of features and the targets beside it.

A table is checked once, when it is made: every column named, every number finite. It stays where it lives.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidFile, InvalidValue, choices, hint, require

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Table:
    """Records of one kind: features (records, columns) and, for each target, one value or row per record."""

    features: Array
    targets: Mapping[str, Array]
    columns: tuple[str, ...]
    place: str = field(default="data", repr=False)

    def __post_init__(self) -> None:
        shape = self.features.shape
        given = f"shape {shape} for {len(self.columns)} columns"
        require(len(shape) == 2 and shape[1] == len(self.columns), "features", given, "records by columns")
        for index, column in enumerate(self.columns):
            _require_finite(column, self.features[:, index], self.place)
        for name, values in self.targets.items():
            fits = values.ndim >= 1 and len(values) == shape[0]
            require(
                fits, name, f"shape {values.shape} for {shape[0]} records", "as long as there are records"
            )
            _require_finite(name, values, self.place)

    def __len__(self) -> int:
        return len(self.features)

    def take(self, rows: ArrayLike | slice, place: str | None = None) -> "Table":
        """The records at these positions."""
        chosen: Any = rows if isinstance(rows, slice) else np.asarray(rows)
        if not isinstance(rows, slice) and chosen.size == 0:
            chosen = chosen.astype(np.int64)
        targets = {name: values[chosen] for name, values in self.targets.items()}
        return Table(self.features[chosen], targets, self.columns, place or self.place)

    def digest(self) -> bytes:
        """A fingerprint of every number; as private as the records, so it stays with them."""
        found = hashlib.sha256(repr((self.columns, sorted(self.targets))).encode())
        for values in (self.features, *(self.targets[name] for name in sorted(self.targets))):
            found.update(repr(values.shape).encode() + np.ascontiguousarray(values).tobytes())
        return found.digest()


def from_arrays(
    features: ArrayLike, *, columns: Sequence[str] | None = None, place: str = "data", **targets: ArrayLike
) -> Table:
    """A table from arrays or tensors: `from_arrays(x, y=y)`, `from_arrays(x, time=t, event=d)`."""
    matrix = _numbers("features", features, place)
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    names = tuple(columns) if columns is not None else tuple(f"x{i}" for i in range(1, matrix.shape[-1] + 1))
    return Table(
        matrix, {name: _numbers(name, values, place) for name, values in targets.items()}, names, place
    )


def from_frame(
    frame: "pd.DataFrame", *, targets: Sequence[str], leave: Sequence[str] = (), place: str = "data"
) -> Table:
    """A table from a DataFrame: the named targets, and as features every other column but those in `leave`.

    Raises:
        InvalidValue: A column is missing or does not hold finite numbers; the message names it.
    """
    require(bool(targets), "targets", list(targets), "at least one column")
    for name in (*targets, *leave):
        require_column(frame, name, place)
    known = {str(name): frame.loc[:, name] for name in frame.columns}
    require(len(known) == frame.shape[1], f"columns in {place}", "two of one name", "different names")
    columns = [name for name in known if name not in targets and name not in leave]
    require(bool(columns), "features", "no column", f"at least one column beside {choices(targets)}")
    features = np.column_stack([_numbers(name, known[name], place) for name in columns])
    return Table(
        features, {name: _numbers(name, known[name], place) for name in targets}, tuple(columns), place
    )


def by_site(frame: "pd.DataFrame", column: str, place: str) -> "dict[str, pd.DataFrame]":
    """The records of each site, by the column that names it; in the order of the names.

    Raises:
        InvalidValue: A record has no site, or two names read the same.
    """
    require_column(frame, column, place)
    if bool(frame[column].isna().any()) or bool((frame[column] == "").any()):
        raise InvalidValue(f"column {column} in {place} is not allowed: some records have no site")
    parts = [(str(name), part) for name, part in frame.groupby(column, observed=True)]
    names = [name for name, _ in parts]
    require(
        len(set(names)) == len(names), f"column {column} in {place}", names, "names that read differently"
    )
    return dict(parts)


def joined(parts: Sequence[Table], place: str = "data") -> Table:
    """Tables of the same columns, one after the other."""
    if len(parts) == 1:
        return parts[0]
    targets = {name: np.concatenate([part.targets[name] for part in parts]) for name in parts[0].targets}
    return Table(np.concatenate([part.features for part in parts]), targets, parts[0].columns, place)


def read(path: str | Path, *, words: str | None = None) -> "pd.DataFrame":
    """Read a CSV or Parquet file.

    Args:
        path: The file.
        words: A column to take as it is written, such as the names of sites: 007 is not 7, NA is a name.

    Raises:
        InvalidFile: It is not there, not such a file, or empty.
    """
    import pandas as pd

    suffix = Path(path).suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise InvalidFile(f'{path} is not allowed: it must end in ".csv" or ".parquet"')
    try:
        if suffix == ".parquet":
            frame = pd.read_parquet(path)
        else:
            frame = pd.read_csv(path, low_memory=False, converters={} if words is None else {words: str})
    except OSError as error:
        raise InvalidFile(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, UnicodeError) as error:
        raise InvalidFile(f"{path} cannot be read: {str(error).strip()}") from error
    if frame.empty:
        raise InvalidFile(f"{path} holds no records")
    return frame


def require_column(frame: "pd.DataFrame", name: str, place: str) -> None:
    """Refuse a table without this column; suggest the nearest."""
    known = [str(column) for column in frame.columns]
    if name not in known:
        near = hint(name, known) or f": it has {choices(known)}"
        raise InvalidValue(f"column {name} is missing in {place}{near}")


def _numbers(name: str, values: ArrayLike, place: str) -> Array:
    try:
        found = np.asarray(values)
        if found.dtype.kind in "mMc":
            raise TypeError(f"it holds {found.dtype}")
        # A copy: what was checked must not change behind our back.
        return np.array(found, dtype=np.float64)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidValue(
            f"{name} in {place} does not hold numbers ({error}); encode it, or leave it out"
        ) from error


def _require_finite(name: str, values: Array, place: str) -> None:
    finite = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    broken = len(values) - int(finite.sum())
    if broken:
        raise InvalidValue(
            f"{name} in {place} is not allowed: {broken} of {len(values)} records hold NaN or infinity; it "
            "must hold finite numbers"
        )
