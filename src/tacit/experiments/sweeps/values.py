"""The lists of a command line: `table.key=value,value,...`, parted into values as they were written.

A value is written as in TOML, and a word need not be quoted. What stands between quotes or brackets is one
value, whatever commas are in it.
"""

import math
from collections.abc import Iterable, Sequence

from tacit.errors import InvalidFile, InvalidValue
from tacit.runtime.tables import Table, override_value

Value = str | float
# What says little without the name of its table.
KIND = ".kind"


def split_lists(changes: Iterable[str]) -> tuple[list[str], list[str]]:
    """Those changes of a single value, and those of several, in their order."""
    plain, lists = list[str](), list[str]()
    for change in changes:
        (lists if len(parse_list(change)[1]) > 1 else plain).append(change)
    return plain, lists


def parse_list(change: str) -> tuple[str, tuple[str, ...]]:
    """The key of a change and its values, as they were written.

    Raises:
        InvalidFile: It is not `table.key=value`, or a value is missing between commas.
    """
    name, _, text = change.partition("=")
    override_value({}, change)
    values = tuple(piece.strip() for piece in _pieces(text))
    if len(values) > 1 and not all(values):
        raise InvalidFile(
            f"--set {change} is not allowed: there must be a value on both sides of every comma"
        )
    return name.strip(), values


def _pieces(text: str) -> list[str]:
    """The text, parted at commas that are in no quotes and no brackets."""
    pieces, depth, quote, escaped = [""], 0, "", False
    for letter in text:
        if letter == "," and not depth and not quote:
            pieces.append("")
            continue
        if quote:
            quote = "" if letter == quote and not escaped else quote
            escaped = letter == "\\" and quote == '"' and not escaped
        elif letter in "\"'" and (depth or not pieces[-1].strip()):
            # Within a word it is an apostrophe.
            quote = letter
        else:
            depth += (letter in "[{") - (letter in "]}")
        pieces[-1] += letter
    return pieces


def values_by_key(lists: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The values of each key, as they were written.

    Raises:
        InvalidFile: There is no list, or a key has two.
        InvalidValue: A list says a value twice.
    """
    found: dict[str, tuple[str, ...]] = {}
    for key, values in map(parse_list, lists):
        if key in found:
            raise InvalidFile(f"--set {key} is said twice: give all of its values in one list")
        found[key] = values
        meant = [repr(_number(text)) for text in values]
        if len(set(meant)) < len(meant):
            raise InvalidValue(f"--set {key}={','.join(values)} is not allowed: a value is in it twice")
    if all(len(values) < 2 for values in found.values()):
        raise InvalidFile(
            "there is nothing to sweep: give a key several values, such as --set privacy.epsilon=1,3,inf"
        )
    return found


def value_of(text: str) -> object:
    """What a text stands for."""
    document: Table = {}
    override_value(document, f"value={text}")
    return document["value"]


def sort_value(text: str) -> Value:
    """A value to sort and to draw by: a number where it is one, or else as it was written."""
    found = _number(text)
    return found if isinstance(found, float) and not math.isnan(found) else text.strip("\"'")


def _number(text: str) -> object:
    """What a text stands for; whole numbers are numbers like others."""
    found = value_of(text)
    return float(found) if isinstance(found, int) and not isinstance(found, bool) else found


def labels(keys: Sequence[str]) -> dict[str, str]:
    """What keys are called among each other: by their last part, or a kind by its table, if that will do."""
    last = {key: key.removesuffix(KIND).rpartition(".")[2] for key in keys}
    seen = list(last.values())
    return {key: name if seen.count(name) == 1 else key for key, name in last.items()}


def in_words(changes: Iterable[tuple[str, str]]) -> str:
    """Some values, for people: `epsilon 0.5, lr 2`."""
    pairs = list(changes)
    names = labels([key for key, _ in pairs])
    return ", ".join(f"{names[key]} {text}" for key, text in pairs)
