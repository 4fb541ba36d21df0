"""TOML files in which every table is a constructor call, and their canonical text.

The schema is the signatures, so a key that no constructor knows is refused, by name, with what is allowed.
Reading a file touches no data. A file may have any origin: its size, its nesting and its numbers are checked
before anything is made of them.

Plain data has one canonical text, however it was written: a ticket is a digest of what a round depends on,
and the same choice arrives as a tuple from Python, as a list from a file, and as a table in another order
from the directory of a run. Values that mean different things always have different texts.
"""

import copy
import dataclasses
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path, PurePath
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    Protocol,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

import msgspec

from tacit.errors import (
    LONGEST_FILE,
    LONGEST_TEXT,
    LONGEST_VALUE,
    MOST_DEPTH,
    MOST_DIGITS,
    InvalidFile,
    TacitError,
    choices,
    hint,
    quote,
    shorten,
)
from tacit.runtime import files, imports
from tacit.runtime.contracts import Listable, bound_fields

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Table = dict[str, Any]
Kinds = Mapping[str, type[Any]]
Made = TypeVar("Made")

# Keys of [data] that are paths.
PATHS = ("path", "test", "reference")
# The types of values, for people.
KINDS: Mapping[object, str] = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
LISTS = (list, tuple, set, frozenset, Sequence)
WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
# Strings, even unterminated ones, and comments, which hold no keys. The rest may have dotted keys.
_NO_KEYS = re.compile(
    r'''"""(?:[^"\\]+|\\.|"(?!""))*(?:""")?|"(?:[^"\\\n]+|\\[^\n])*"?'''
    r"""|'''(?:[^']+|'(?!''))*(?:''')?|'[^'\n]*'?|#[^\n]*""",
    re.DOTALL,
)
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){{{MOST_DEPTH}}}")


class NotToml(InvalidFile):
    """A text that is not TOML."""


_kept: ContextVar[bool] = ContextVar("kept", default=False)


def read_as(made: Callable[[Table, Path], Made], path: str | Path, changes: Sequence[str]) -> Made:
    """Read a file, or the one in a directory, and construct the result from its document and folder."""
    file = Path(path) / "experiment.toml" if Path(path).is_dir() else Path(path)
    document = load(file)
    try:
        for change in changes:
            override_value(document, change)
        # What a run has found out is in its own file alone.
        kept = _kept.set(Path(path).is_dir() or file.with_name("environment.json").is_file())
        try:
            with imports.reading_directory(Path(path).is_dir()):
                return made(document, file.resolve().parent)
        finally:
            _kept.reset(kept)
    except OSError as error:
        raise InvalidFile(f"{file} cannot be read: {files.explain(error)}") from error
    except TacitError as error:
        raise InvalidFile(f"{file}: {error}") from error


def load(file: Path) -> Table:
    """The document in a file of TOML.

    Raises:
        InvalidFile: It cannot be read, is not TOML, or is larger than such a file may be.
    """
    try:
        return parse(files.read_text(file, LONGEST_FILE), str(file))
    except OSError as error:
        raise InvalidFile(f"{file} cannot be read: {files.explain(error)}") from error
    except UnicodeDecodeError as error:
        raise InvalidFile(f"{file} is not TOML: {error}") from error


def parse(text: str, name: str) -> Table:
    """Parse TOML from an untrusted source.

    Args:
        text: The text.
        name: Its name in errors.

    Raises:
        InvalidFile: It is not TOML, or larger or deeper than such a text may be.
    """
    if len(text) > LONGEST_FILE:
        raise InvalidFile(f"{name} has {len(text):,} characters: at most {LONGEST_FILE:,} are read")
    # The parser takes the square of the parts of a key.
    if _LONG_KEY.search(_NO_KEYS.sub("q", text)):
        raise InvalidFile(f"{name} is not allowed: a key has more than {MOST_DEPTH} parts")
    try:
        document = tomllib.loads(text)
    except RecursionError as error:
        raise InvalidFile(f"{name} is not allowed: its lists or tables are nested too deep") from error
    except tomllib.TOMLDecodeError as error:
        raise NotToml(f"{name} is not TOML: {error}") from error
    except ValueError as error:
        # A number of thousands of digits.
        raise InvalidFile(f"{name} is not allowed: it holds a number that is too long ({error})") from error
    try:
        _require_plain(document)
    except TacitError as error:
        raise InvalidFile(f"{name}: {error}") from error
    return document


def _require_plain(document: Table) -> None:
    """Refuse what is nested too deep, numbers of too many digits, and texts that are too long."""
    left: list[tuple[object, int]] = [(document, 0)]
    while left:
        value, depth = left.pop()
        if depth > MOST_DEPTH:
            raise InvalidFile(f"its lists or tables are nested more than {MOST_DEPTH} deep")
        if isinstance(value, dict):
            table = cast(Table, value)
            left += [(part, depth + 1) for part in (*table, *table.values())]
        elif isinstance(value, list):
            left += [(entry, depth + 1) for entry in cast("list[object]", value)]
        elif isinstance(value, int) and value.bit_length() > 3.33 * MOST_DIGITS:
            raise InvalidFile(f"it holds a whole number of more than {MOST_DIGITS} digits")
        elif isinstance(value, str) and len(value) > LONGEST_TEXT:
            raise InvalidFile(f"it holds a text of {len(value):,} characters: at most {LONGEST_TEXT:,}")


def override_value(document: Table, change: str) -> None:
    """Change one value of a document: `table.key=value`, written as in TOML."""
    name, sign, text = change.partition("=")
    shown = shorten(change, LONGEST_VALUE)
    *tables, key = name.strip().split(".")
    if not sign or not all((*tables, key)) or len(tables) >= MOST_DEPTH:
        raise InvalidFile(f"--set {shown} is not allowed: it must be table.key=value")
    try:
        value = parse(f"value = {text}", f"--set {shown}")["value"]
    except NotToml:
        # A word on the command line need not be quoted.
        value = text.strip()
    place: Table = document
    for table in tables:
        inner = place.setdefault(table, {})
        if not isinstance(inner, dict):
            raise InvalidFile(f"--set {shown} is not allowed: {table} is not a table")
        place = cast(Table, inner)
    place[key] = value


def portable(document: Table, folder: Path) -> Table:
    """Return the document with absolute paths."""
    found = copy.deepcopy(document)
    data = found.get("data", {})
    for key in PATHS:
        if isinstance(data.get(key), str):
            data[key] = str(folder / data[key])
    return found


def resolve_paths(origin: Mapping[str, Any] | None) -> Table:
    """Resolve relative paths in tables of data against the working directory.

    A directory keeps them, and is read from anywhere.
    """
    found, data = dict(origin or {}), (origin or {}).get("data")
    paths = [cast(Table, data).get(key) for key in PATHS] if isinstance(data, dict) else []
    relative = any(isinstance(path, str) and not Path(path).is_absolute() for path in paths)
    return portable(found, Path.cwd()) if relative else found


def build(name: str, document: Table, folder: Path, known: Kinds) -> Any:  # noqa: ANN401
    """Build the object that a table describes; without a kind, the first known one."""
    table = _table(name, document.get(name, {}))
    constructor = _constructor(name, table.pop("kind", next(iter(known))), folder, known)
    if name == "aggregation" and "then" in table:
        # A step before a rule holds that rule.
        table["then"] = _build_inner(f"{name}.then", table["then"], folder, _fitting(constructor, known))
    env = table.get("env")
    if isinstance(env, str) and ":" in env:
        # Gymnasium imports the module that stands before a colon.
        imports.require_importable(f"[{name}] env", env, folder)
    for key in PATHS:
        # Relative paths are relative to the file that names them.
        if name == "data" and isinstance(table.get(key), str):
            table[key] = str(folder / table[key])
    return construct(constructor, name, table)


def _build_inner(name: str, given: object, folder: Path, known: Kinds) -> Any:  # noqa: ANN401
    """Construct the object of an inner table, whose `kind` has no default."""
    if "kind" not in _table(name, given):
        raise InvalidFile(f"[{name}] kind is missing: it must be {choices(known)}")
    return build(name, {name: given}, folder, known)


def _fitting(constructor: type[Any], known: Kinds) -> Kinds:
    """Return those kinds that a constructor takes as its `then`, by the type it asks for."""
    wanted = next((entry.type for entry in dataclasses.fields(constructor) if entry.name == "then"), None)
    # A protocol, or a type that is only named, cannot be asked: then the constructor decides. Python tells
    # protocols by this mark alone before 3.13.
    plain = isinstance(wanted, type) and not getattr(wanted, "_is_protocol", False)
    fits = {name: kind for name, kind in known.items() if plain and issubclass(kind, cast(type, wanted))}
    return fits or known


def _constructor(name: str, kind: object, folder: Path, known: Kinds) -> type[Any]:
    if isinstance(kind, str) and ":" in kind:
        return _own(name, kind, folder)
    if not isinstance(kind, str) or kind not in known:
        raise InvalidFile(
            f"[{name}] kind = {quote(kind)} is not allowed: it must be {choices(known)}, or "
            "package.module:Class"
            f"{hint(kind, known)}"
        )
    return known[kind]


def _own(name: str, kind: str, folder: Path) -> type[Any]:
    """Import a user's class; its module may lie beside the experiment file or in the working directory."""
    found = imports.import_object(f"[{name}] kind", kind, folder)
    if not isinstance(found, type) or not dataclasses.is_dataclass(found):
        raise InvalidFile(f"[{name}] kind = {quote(kind)} is not allowed: it must be a dataclass")
    return cast("type[Any]", found)


@runtime_checkable
class TableReader(Protocol):
    """A constructor whose table holds tables whose names the author chooses."""

    def from_table(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """Return the constructor arguments of a table."""
        ...


def _as_dataclass(kind: type[Any]) -> "type[DataclassInstance]":
    return kind


def construct(kind: type[Made], name: str, table: object) -> Made:
    """Call a constructor with the keys of a table; wrong keys and types are refused by name."""
    fields, place = _table(name, table), f"[{name}] " if name else ""
    # Some tables hold tables whose names the author chooses.
    reader: object = kind
    fields = reader.from_table(fields) if isinstance(reader, TableReader) else fields
    try:
        known = get_type_hints(kind)
    except NameError as error:
        raise InvalidFile(
            f"{place}{kind.__name__} needs objects that a file cannot hold: use Python"
        ) from error
    found = set[str]() if _kept.get() else bound_fields(kind)
    hints = {
        entry.name: known[entry.name]
        for entry in dataclasses.fields(_as_dataclass(kind))
        if entry.name not in found
    }
    refuse_unknown(place, fields, list(hints))
    try:
        return _convert(kind, fields, hints)
    except msgspec.ValidationError as error:
        raise InvalidFile(place + _explain(str(error), fields, hints, kind)) from error
    except TacitError as error:
        raise InvalidFile(f"{place}{error}") from error


def _convert(kind: type[Made], fields: Table, hints: Mapping[str, Any]) -> Made:
    """Convert the values to the parameter's types and call the constructor; objects stay as they are."""
    ready = {key: value for key, value in fields.items() if dataclasses.is_dataclass(value)}
    if not ready:
        return msgspec.convert(fields, type=kind)
    plain = {key: value for key, value in fields.items() if key not in ready}
    shape = msgspec.defstruct(kind.__name__, [(key, hints[key]) for key in plain])
    return kind(**msgspec.structs.asdict(msgspec.convert(plain, type=shape)), **ready)


def _explain(message: str, fields: Table, hints: Mapping[str, Any], kind: type[Any]) -> str:
    """Rephrase an error of msgspec as our sentence: the key, the given value, the allowed ones."""
    absent = re.fullmatch(r"Object missing required field `(\w+)`", message)
    if absent is not None and absent[1] in hints:
        return _missing_key(absent[1], hints[absent[1]], kind)
    found = re.fullmatch(r"(.+) - at `\$\.(\w+)(.*)`", message)
    if found is None or found[2] not in hints:
        return message
    key, (words, others) = found[2], _allowed_words(hints[found[2]])
    allowed = _in_words(found[1])
    if words:
        allowed = choices(words) + "".join(f", or {kind}" for kind in others) + hint(fields[key], words)
    if found[3].startswith("[") and not words:
        allowed = f"a list, each entry {allowed}"
    return f"{key} = {quote(fields[key])} is not allowed: it must be {allowed}"


def _missing_key(key: str, hinted: object, kind: type[Any]) -> str:
    """Name the key that a table lacks, with its type and what the docstring of the class says of it."""
    words, others = _allowed_words(hinted)
    own = KINDS.get(hinted, "a list" if (get_origin(hinted) or hinted) in LISTS else "a table")
    allowed = choices(words) if words else " or ".join(others) or own
    if get_origin(hinted) is not None and get_origin(hinted) in (list, Sequence, dict, Mapping):
        allowed = own
    said = re.search(rf"^\s+{key}: (.+?)\.?$", kind.__doc__ or "", re.MULTILINE)
    return f"{key} is missing: give {allowed}" + ("" if said is None else f" ({said[1]})")


def _allowed_words(kind: object) -> tuple[list[str], list[str]]:
    """Return the words that a type allows, and its other types, in words."""
    words, others = list[str](), list[str]()
    for part in get_args(kind):
        if isinstance(part, str):
            words.append(part)
        elif get_origin(part) is Literal:
            words += [word for word in get_args(part) if isinstance(word, str)]
        elif part is not NoneType:
            plain = get_origin(part) or part
            others.append(KINDS.get(plain, "a list" if plain in LISTS else "a table"))
    return words, list(dict.fromkeys(others))


def _in_words(expected: str) -> str:
    """Format msgspec's expected types for people."""
    found = re.search(r"`([^`]+)`", expected)
    types = [expected] if found is None else str(found[1]).split(" | ")
    return " or ".join(WORDS.get(word, word) for word in types if word != "null")


def _table(name: str, table: object) -> Table:
    if not isinstance(table, dict):
        raise InvalidFile(f"{name} = {quote(table)} is not allowed: it must be a table, [{name}]")
    return dict(cast(Table, table))


def refuse_unknown(place: str, fields: Mapping[str, Any], known: list[str]) -> None:
    """Refuse an unknown key and list the known ones."""
    for key in fields:
        if key not in known:
            near = hint(key, known)
            allowed = f": it must be {choices(sorted(known))}" if known else ": nothing can be set here"
            raise InvalidFile(f"{place}{shorten(key, LONGEST_VALUE)} is not known{near or allowed}")


class Unwritable(ValueError):
    """A value that no file can hold, such as a function or a network."""


def plain(value: object) -> Any:  # noqa: ANN401
    """Convert a value to what a file holds of it: text, numbers, truth values, lists and tables of these.

    Tuples, ranges and arrays become lists, scalars of NumPy numbers of Python, paths their text.

    Raises:
        Unwritable: It is, or holds, anything else.
    """
    if isinstance(value, Mapping):
        table = cast("Mapping[object, object]", value)
        if not all(isinstance(key, str) for key in table):
            raise Unwritable("a table whose keys are not text")
        return {str(key): plain(entry) for key, entry in table.items()}
    if isinstance(value, list | tuple | range):
        return [plain(entry) for entry in cast("list[object]", value)]
    # The exact types: a number of NumPy may be a subclass that prints otherwise.
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Listable):
        # Arrays and scalars of NumPy, which are no numbers of Python.
        return plain(value.tolist())
    raise Unwritable(f"a value of type {type(value).__name__}")


def canonical(value: object) -> str:
    """Write plain data as one line of JSON, tables sorted by their keys.

    Whole numbers and real ones stay apart, and every double keeps all its digits, so that values that differ
    have texts that differ.

    Raises:
        Unwritable: It holds what no file can.
    """
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"))
