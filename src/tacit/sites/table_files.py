"""Files of tables: their kind, size, encoding and header are checked before any record is read.

A table may have any origin: a small file can hold millions of rows, a header can name a column twice, and a
file that is not regular may never end. A file is never guessed at: one in another encoding or with other
separators is refused, with a command that converts it.
"""

import gzip
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from tacit.errors import (
    LONGEST_LINE,
    LONGEST_TABLE,
    MOST_COLUMNS,
    MOST_NUMBERS,
    MOST_RECORDS,
    InvalidFile,
    TacitError,
    choices,
    quote,
    require_extra,
)
from tacit.runtime import files
from tacit.runtime.silence import suppress_warnings
from tacit.sites.encoding import MISSING

if TYPE_CHECKING:
    import pandas as pd

# Endings of files: of texts, with their separator; of sheets; and of those that pandas converts, by
# its reader.
TEXTS = {".csv": ",", ".tsv": "\t"}
SHEETS = (".xlsx", ".xlsm")
CONVERTED = {".dta": "read_stata", ".sas7bdat": "read_sas", ".xpt": "read_sas", ".sav": "read_spss"}
# Packages that these readers need beside pandas.
NEEDED = {"read_spss": "pyreadstat"}
# Separators of columns other than that of the file's kind.
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
# The first bytes of UTF-16.
MARKS = (b"\xff\xfe", b"\xfe\xff")
# A path that can stand in a command as it is.
PLAIN = re.compile(r"[\w./+-]+")


@suppress_warnings()
def read(path: str | Path, *, words: Sequence[str] = ()) -> "pd.DataFrame":
    """Read a table from a file: CSV, TSV (both also compressed by gzip), Excel or Parquet.

    Args:
        path: The file.
        words: Columns to take as they are written, such as the names of sites: 007 is not 7, NA is a name.

    Raises:
        InvalidFile: It is not there, not a plain file, not such a file, too large, or empty; or its header
            names a column twice.
    """
    kind = kind_of(path)
    if kind is None:
        told = f"{path} is not allowed: {_other_kind(Path(path))}"
        raise InvalidFile(told, rule=told)
    return read_plain(path, kind=kind, words=words)


def kind_of(path: str | Path) -> str | None:
    """The kind of a table's file by its ending, such as `.csv` of `patients.csv.gz`; None for all others."""
    name = Path(path).name.lower()
    plain = name.removesuffix(".gz")
    known = next((end for end in (*TEXTS, *SHEETS, ".parquet") if plain.endswith(end)), None)
    return None if plain != name and known not in TEXTS else known


def _other_kind(path: Path) -> str:
    """Say how a file of another kind becomes one that is read."""
    reader = CONVERTED.get(path.suffix.lower())
    allowed = f"it must end in {choices((*TEXTS, *(f'{end}.gz' for end in TEXTS), *SHEETS, '.parquet'))}"
    if reader is None:
        if path.suffix.lower() in (".xls", ".ods"):
            return f"{allowed}; save the sheet as .xlsx or CSV"
        return allowed
    need = f"pip install {NEEDED[reader]}, then " if reader in NEEDED else ""
    return f"{allowed}; convert it: {need}{_command(path, f'pandas.{reader}(FILE).to_csv(NEW, index=False)')}"


def _command(path: str | Path, code: str, ending: str = ".csv") -> str:
    """Return a command of Python that writes a table anew, with the names of the old and the new file."""
    old = str(path) if PLAIN.fullmatch(str(path)) else "FILE"
    stem = re.sub(r"(\.csv|\.tsv)?(\.\w+)$", "", old)
    filled = code.replace("FILE", f"'{old}'").replace("NEW", f"'{stem}-new{ending}'")
    return f'python -c "import pandas; {filled}"'


# Bytes of a file read at a time.
BLOCK = 2**22


def read_plain(path: str | Path, *, kind: str, words: Sequence[str] = ()) -> "pd.DataFrame":
    """Read a table from a plain file.

    Args:
        path: The file.
        kind: Its kind, an ending such as `.csv`.
        words: Columns of a text or a sheet to take as they are written.

    Raises:
        InvalidFile: It cannot be read, is no such file, too large, or empty; or names a column twice.
    """
    try:
        with files.open_regular(path) as stream:
            frame = _frame(stream, path, kind, words)
    except TacitError as error:
        rule = None if error.rule is None else f"{path} cannot be read: {error.rule}"
        raise InvalidFile(f"{path} cannot be read: {error}", rule=rule) from error
    except UnicodeDecodeError as error:
        told = f"{path} cannot be read: {_not_utf8(path)}"
        raise InvalidFile(told, rule=told) from error
    except OSError as error:
        told = f"{path} cannot be read: {files.explain(error)}"
        raise InvalidFile(told, rule=told) from error
    except Exception as error:
        # The readers are not ours, refuse a damaged file by any exception, and quote or count what is in it.
        rule = f"{path} cannot be read: it must be a table of its kind, every row as long as its heading"
        words = str(error).strip() or type(error).__name__
        raise InvalidFile(f"{path} cannot be read: {words}", rule=rule) from error
    if frame.empty:
        raise InvalidFile(f"{path} holds no records", rule=f"{path} holds no records")
    return frame


def _frame(stream: BinaryIO, path: str | Path, kind: str, words: Sequence[str]) -> "pd.DataFrame":
    """Read the table in an open file."""
    if kind == ".parquet":
        return _parquet(stream)
    if kind in SHEETS:
        return _sheet(stream, words)
    if str(path).lower().endswith(".gz"):
        with gzip.GzipFile(fileobj=stream) as unpacked:
            return _text(cast(BinaryIO, unpacked), path, kind, words)
    return _text(stream, path, kind, words)


def _text(stream: BinaryIO, path: str | Path, kind: str, words: Sequence[str]) -> "pd.DataFrame":
    import pandas as pd

    rows = _rows(stream)
    stream.seek(0)
    if stream.read(2) in MARKS:
        told = _not_utf8(path, "UTF-16", "utf-16")
        raise InvalidFile(told, rule=told)
    separator = TEXTS.get(kind, ",")
    stream.seek(0)
    # Read the header as text: pandas would rename the second column of a name.
    header = pd.read_csv(stream, header=None, nrows=1, dtype=str, keep_default_na=False, sep=separator)
    names = [str(name) for name in header.iloc[0]]
    _require_separator(names, separator, path)
    _require_size(rows, len(names))
    _require_different(name for name in names if name)
    stream.seek(0)
    return pd.read_csv(stream, low_memory=False, converters=dict.fromkeys(words, str), sep=separator)


def _not_utf8(path: str | Path, written: str = "Latin-1", codec: str = "latin-1") -> str:
    """Say how a text becomes UTF-8; any bytes are Latin-1, and that is the usual one."""
    code = f"open(NEW, 'w', encoding='utf-8').write(open(FILE, encoding='{codec}').read())"
    is_it = f"it is {written}" if codec == "utf-16" else f"if it is {written}"
    return f"its text must be UTF-8; {is_it}, convert it: {_command(path, code)}"


def _require_separator(names: Sequence[str], separator: str, path: str | Path) -> None:
    """Refuse a header in which another separator is more frequent than that of the file's kind."""
    for other, word in SEPARATORS.items():
        if other != separator and sum(name.count(other) for name in names) >= max(len(names), 1):
            # Where columns have semicolons between them, decimals mostly have commas.
            how = ", decimal=','" if other == ";" else ""
            code = f"pandas.read_csv(FILE, sep={other!r}{how}).to_csv(NEW, index=False)".replace("\\", "\\\\")
            told = (
                f"its columns have {word} between them, and must have {SEPARATORS[separator]}; convert it: "
            )
            raise InvalidFile(told + _command(path, code), rule=told + _command(path, code))


def _sheet(stream: BinaryIO, words: Sequence[str]) -> "pd.DataFrame":
    """Read the first sheet of an Excel file."""
    import pandas as pd

    require_extra("openpyxl", "excel", "an Excel file")
    with zipfile.ZipFile(stream) as packed:
        # A small file can unpack to more than memory holds.
        if sum(part.file_size for part in packed.infolist()) > LONGEST_TABLE:
            told = f"it is larger than {LONGEST_TABLE:,} bytes"
            raise InvalidFile(told, rule=told)
    stream.seek(0)
    whole = pd.read_excel(stream, header=None, dtype=object, engine="openpyxl", na_filter=False)
    _require_size(len(whole), whole.shape[1])
    if whole.empty:
        return whole
    names = [str(name) for name in whole.iloc[0]]
    _require_different(name for name in names if name)
    named = whole.iloc[1:].set_axis([name or f"Unnamed: {at}" for at, name in enumerate(names)], axis=1)
    found = named.reset_index(drop=True)
    for name in found:
        # As in a text: some columns are taken as they are written, in all others NA is a missing value.
        as_written = name in words
        found[name] = found[name].map(str if as_written else _present)
    return found.infer_objects()


def _present(value: Any) -> Any:  # noqa: ANN401
    """Return the value of a cell; NaN for a spelling of a missing one."""
    return float("nan") if isinstance(value, str) and value in MISSING else value


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
