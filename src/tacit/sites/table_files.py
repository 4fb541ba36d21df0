"""Tables in files: their kind, their size and their header are checked before any record is read.

A table may have any origin: a small file can hold millions of rows, a header can name a column twice, and a
file that is not regular may never end.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tacit.errors import InvalidFile, TacitError, quote, require_extra
from tacit.runtime import files
from tacit.runtime.limits import LONGEST_LINE, LONGEST_TABLE, MOST_COLUMNS, MOST_NUMBERS, MOST_RECORDS

if TYPE_CHECKING:
    import pandas as pd

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
