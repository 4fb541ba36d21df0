"""The canonical form of plain data: one text for one value, however it was written.

A ticket is a digest of what a round depends on. The same choice arrives as a tuple from Python, as a list
from a file, and as a table in another order from the directory of a run: none of that may make another
ticket. Values that mean different things always have different texts.
"""

import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, cast


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
            raise Unwritable("a table whose keys are no text")
        return {str(key): plain(entry) for key, entry in table.items()}
    if isinstance(value, list | tuple | range):
        return [plain(entry) for entry in cast("list[object]", value)]
    # The exact types: a number of NumPy may be a subclass that prints otherwise.
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "tolist"):
        # Arrays and scalars of NumPy, which are no numbers of Python.
        return plain(cast(Any, value).tolist())
    raise Unwritable(f"a value of type {type(value).__name__}")


def canonical(value: object) -> str:
    """Write plain data as one line of JSON, tables sorted by their keys.

    Whole numbers and real ones stay apart, and every double keeps all its digits, so that values that differ
    have texts that differ.

    Raises:
        Unwritable: It holds what no file can.
    """
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"))
