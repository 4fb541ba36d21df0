"""Records as numbers: a matrix of features and the targets beside it.

A table is checked once, when it is made: every column named, every number finite. It stays where it lives.

Tables in files: their kind, their size and their header are checked before any record is read.

A table may have any origin: a small file can hold millions of rows, a header can name a column twice, and a
file that is not regular may never end.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import (
    LONGEST_LINE,
    LONGEST_TABLE,
    MOST_COLUMNS,
    MOST_NUMBERS,
    MOST_RECORDS,
    MOST_SITES,
    InvalidFile,
    InvalidValue,
    TacitError,
    choices,
    quote,
    require,
    require_extra,
)
from tacit.runtime import files
from tacit.runtime.arrays import Array
from tacit.runtime.silence import suppress_warnings
from tacit.sites.encoding import Encoding, named_columns, numbers, require_column

if TYPE_CHECKING:
    import pandas as pd


class Records(Protocol):
    """Protocol of several records of any kind: enough to set some apart."""

    @property
    def sites(self) -> NDArray[np.str_] | None:
        """The site that each is of, where that is known."""
        ...

    @property
    def at_a_glance(self) -> "Records | None":
        """Fewer of them to follow a run by, where looking uses nothing up; None where it does."""
        ...

    def __len__(self) -> int: ...

    def take(self, rows: ArrayLike | slice, place: str | None = None) -> Self:
        """The records at these positions."""
        ...

    def digest(self) -> bytes:
        """A fingerprint of every number; as private as the records."""
        ...


@dataclass(frozen=True, eq=False)
class Table:
    """Records of one kind: features (records, columns) and, for each target, one value or row per record.

    `sites` says which site each record is of, where records of several are together and that is known.
    """

    features: Array
    targets: Mapping[str, Array]
    columns: tuple[str, ...]
    place: str = field(default="data", repr=False)
    sites: NDArray[np.str_] | None = field(default=None, repr=False)

    @property
    def at_a_glance(self) -> None:
        """A choice by scores of records uses them up."""

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
        if self.sites is not None:
            given = f"shape {self.sites.shape} for {shape[0]} records"
            require(self.sites.shape == (shape[0],), "sites", given, "one name for each record")

    def __len__(self) -> int:
        return len(self.features)

    def take(self, rows: ArrayLike | slice, place: str | None = None) -> "Table":
        """The records at these positions."""
        chosen: Any = rows if isinstance(rows, slice) else np.asarray(rows)
        if not isinstance(rows, slice) and chosen.size == 0:
            chosen = chosen.astype(np.int64)
        taken = object.__new__(Table)
        # Checked already: what is valid together is valid apart.
        vars(taken).update(
            features=self.features[chosen],
            targets={name: values[chosen] for name, values in self.targets.items()},
            columns=self.columns,
            place=place or self.place,
            sites=None if self.sites is None else self.sites[chosen],
        )
        return taken

    def digest(self) -> bytes:
        """A fingerprint of every number; as private as the records, so it stays with them."""
        found = hashlib.sha256(repr((self.columns, sorted(self.targets))).encode())
        for values in (self.features, *(self.targets[name] for name in sorted(self.targets))):
            found.update(repr(values.shape).encode() + np.ascontiguousarray(values).tobytes())
        found.update(b"" if self.sites is None else repr(self.sites.tolist()).encode())
        return found.digest()


@suppress_warnings()
def from_arrays(
    features: ArrayLike, *, columns: Sequence[str] | None = None, place: str = "data", **targets: ArrayLike
) -> Table:
    """A table from arrays or tensors: `from_arrays(x, y=y)`, `from_arrays(x, time=t, event=d)`."""
    matrix = numbers("features", features, place)
    if matrix.ndim == 1:
        matrix = matrix[:, None]
    names = tuple(columns) if columns is not None else tuple(f"x{i}" for i in range(1, matrix.shape[-1] + 1))
    return Table(
        matrix, {name: numbers(name, values, place) for name, values in targets.items()}, names, place
    )


@suppress_warnings()
def from_frame(
    frame: "pd.DataFrame",
    *,
    targets: Sequence[str],
    leave: Sequence[str] = (),
    place: str = "data",
    encoding: Encoding | None = None,
) -> Table:
    """A table from a DataFrame: the named targets, and as features every other column but those in `leave`.

    Args:
        frame: The records.
        targets: The columns to learn about.
        leave: Columns that are neither targets nor features.
        place: The name of the records in errors.
        encoding: The encoding of features that are not plain numbers.

    Raises:
        InvalidValue: A column is missing or does not hold finite numbers; the message names it.
    """
    require(bool(targets), "targets", list(targets), "at least one column")
    for name in (*targets, *leave):
        require_column(frame, name, place)
    for name in targets:
        _require_one(frame, name, place)
    known = named_columns(frame, place)
    chosen = frame.loc[:, [str(name) not in targets and str(name) not in leave for name in frame.columns]]
    made = (encoding or Encoding()).apply(chosen, place)
    require(made.shape[1] > 0, "features", "no column", f"at least one column beside {choices(targets)}")
    return Table(
        made.to_numpy(dtype=np.float64),
        {name: numbers(name, known[name], place) for name in targets},
        tuple(str(name) for name in made.columns),
        place,
    )


def by_site(frame: "pd.DataFrame", column: str, place: str) -> "dict[str, pd.DataFrame]":
    """The records of each site, by the column that names it; in the order of the names.

    Raises:
        InvalidValue: A record has no site, or two names read the same.
    """
    require_column(frame, column, place)
    if bool(frame[column].isna().any()) or bool((frame[column] == "").any()):
        raise InvalidValue(
            f"column {column} in {place} is not allowed: some records have no site",
            rule=f"column {column} is not allowed: every record must have a site",
            rows=np.flatnonzero((frame[column].isna() | (frame[column] == "")).to_numpy()) + 1,
        )
    many = int(frame[column].nunique())
    require(
        many <= MOST_SITES,
        f"column {column} in {place}",
        f"{many:,} sites",
        f"at most {MOST_SITES:,}",
        about_records=True,
    )
    parts = [(str(name), part) for name, part in frame.groupby(column, observed=True)]
    names = [name for name, _ in parts]
    different = len(set(names)) == len(names)
    require(
        different, f"column {column} in {place}", names, "names that read differently", about_records=True
    )
    return dict(parts)


def concatenate(parts: Sequence[Table], place: str = "data") -> Table:
    """Tables of the same columns, one after the other."""
    if len(parts) == 1:
        return parts[0]
    targets = {name: np.concatenate([part.targets[name] for part in parts]) for name in parts[0].targets}
    return Table(np.concatenate([part.features for part in parts]), targets, parts[0].columns, place)


@suppress_warnings()
def read(path: str | Path, *, words: Sequence[str] = ()) -> "pd.DataFrame":
    """Read a CSV or Parquet file.

    Args:
        path: The file.
        words: Columns to take as they are written, such as the names of sites: 007 is not 7, NA is a name.

    Raises:
        InvalidFile: It is not there, not a plain file, not such a file, too large, or empty; or its header
            names a column twice.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise InvalidFile(f'{path} is not allowed: it must end in ".csv" or ".parquet"')
    return read_plain(path, parquet=suffix == ".parquet", words=words)


def _require_one(frame: "pd.DataFrame", name: str, place: str) -> None:
    """Refuse a second column of a target's name, numbered by the program that wrote the table."""
    for column in frame.columns:
        if re.fullmatch(re.escape(name) + r"\.\d+", str(column)):
            raise InvalidValue(
                f"column {column} in {place} is not allowed: it is a second {name}, which programs may take "
                "for the same column; rename it, or remove it"
            )


def _require_finite(name: str, values: Array, place: str) -> None:
    finite = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    broken = len(values) - int(finite.sum())
    if broken:
        raise InvalidValue(
            f"{name} in {place} is not allowed: {broken} of {len(values)} records hold NaN or infinity; it "
            "must hold finite numbers",
            rule=f"{name} is not allowed: it must hold finite numbers",
            rows=np.flatnonzero(~finite) + 1,
        )


# Bytes of a file read at a time.
BLOCK = 2**22


def read_plain(path: str | Path, *, parquet: bool, words: Sequence[str] = ()) -> "pd.DataFrame":
    """Read a table from a plain file.

    Args:
        path: The file.
        parquet: True for Parquet; CSV otherwise.
        words: Columns of CSV to take as they are written.

    Raises:
        InvalidFile: It cannot be read, is no such file, too large, or empty; or names a column twice.
    """
    try:
        with files.open_regular(path) as stream:
            frame = _parquet(stream) if parquet else _csv(stream, words)
    except TacitError as error:
        rule = None if error.rule is None else f"{path} cannot be read: {error.rule}"
        raise InvalidFile(f"{path} cannot be read: {error}", rule=rule) from error
    except OSError as error:
        told = f"{path} cannot be read: {files.explain(error)}"
        raise InvalidFile(told, rule=told) from error
    except Exception as error:
        # The readers are not ours, refuse a damaged file by any exception, and quote or count what is in it.
        rule = f"{path} cannot be read: it must be a CSV or Parquet file, every row as long as its heading"
        words = str(error).strip() or type(error).__name__
        raise InvalidFile(f"{path} cannot be read: {words}", rule=rule) from error
    if frame.empty:
        raise InvalidFile(f"{path} holds no records", rule=f"{path} holds no records")
    return frame


def _csv(stream: BinaryIO, words: Sequence[str]) -> "pd.DataFrame":
    import pandas as pd

    rows = _rows(stream)
    stream.seek(0)
    # Read the header as text: pandas would rename the second column of a name.
    header = pd.read_csv(stream, header=None, nrows=1, dtype=str, keep_default_na=False)
    names = [str(name) for name in header.iloc[0]]
    _require_size(rows, len(names))
    _require_different(name for name in names if name)
    stream.seek(0)
    return pd.read_csv(stream, low_memory=False, converters=dict.fromkeys(words, str))


def _parquet(stream: BinaryIO) -> "pd.DataFrame":
    import pandas as pd

    require_extra("pyarrow", "parquet", "a Parquet file")
    found: Any = import_module("pyarrow.parquet").ParquetFile(stream)
    _require_size(int(found.metadata.num_rows), int(found.metadata.num_columns))
    _require_different(str(name) for name in found.schema_arrow.names)
    stream.seek(0)
    return pd.read_parquet(stream)


def _rows(stream: BinaryIO) -> int:
    """Count the lines of a text; refuse one that is too long."""
    size, rows, length = 0, 0, 0
    while block := stream.read(BLOCK):
        size, end = size + len(block), max(block.rfind(b"\n"), block.rfind(b"\r"))
        rows += max(block.count(b"\n"), block.count(b"\r"))
        length = len(block) - 1 - end if end >= 0 else length + len(block)
        if size > LONGEST_TABLE:
            told = f"it is larger than {LONGEST_TABLE:,} bytes"
            raise InvalidFile(told, rule=told)
        if length > LONGEST_LINE:
            told = f"a line of it is longer than {LONGEST_LINE:,} bytes"
            raise InvalidFile(told, rule=told)
    return rows


def _require_size(rows: int, columns: int) -> None:
    """Refuse a table that memory could not hold."""
    for number, most, what in (
        (rows, MOST_RECORDS, "rows"),
        (columns, MOST_COLUMNS, "columns"),
        (rows * columns, MOST_NUMBERS, "values"),
    ):
        if number > most:
            rule = f"it may have at most {most:,} {what}"
            raise InvalidFile(f"it has {number:,} {what}, and may have {most:,}", rule=rule)


def _require_different(names: Iterable[str]) -> None:
    """Refuse a header that names a column twice: one of the two would be taken for the other.

    Blanks around a name do not make it another one: a reader would not see the difference.
    """
    for name, many in Counter(name.strip() for name in names).items():
        if many > 1:
            told = f"its header names the column {quote(name)} {many} times: rename all but one"
            raise InvalidFile(told, rule=told)
