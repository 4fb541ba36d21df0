"""Plain data and plain words: what every format can hold, and what every reader can see.

Words come from files and from sites, and may be anything. What is made of them here is safe to lay out; it is
not yet escaped, for how to escape is the business of each format.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

# How tones are said: a colour alone would tell nothing to some, and to nobody on paper.
TONES = {"stop": "Do not rely on this.", "mind": "Bear in mind.", "good": "As it should be."}
# Letters of a paragraph and of a cell; nobody reads on.
LONG, CELL = 2_000, 120
# What neither XML nor HTML may hold, what stands for nothing, and what turns round the words beside it.
_UNFIT = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
_INSTEAD = "\N{REPLACEMENT CHARACTER}"
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
_DASHES = ("", "-", "\N{EN DASH}", "\N{EM DASH}", "broken")
_NUMBER = r"[-+\N{MINUS SIGN}]?(?:\d[\d,]*(?:\.\d*)?(?:[eE][-+]?\d+)?|inf)(?: ?%)?"
# A number, and perhaps its interval.
_TO = "(?:,| to|\N{EN DASH})"
_NUMERIC = re.compile(rf"{_NUMBER}(?: [(\[]{_NUMBER}{_TO} ?{_NUMBER}[)\]])?")


def finite(value: Any) -> Any:  # noqa: ANN401
    """Plain data with null for every number that is not finite: JSON has no word for those."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def legible(words: str) -> str:
    """The words with a mark for each character that no page can show, or that would turn its neighbours."""
    return _UNFIT.sub(_INSTEAD, words)


def one_line(words: str) -> str:
    """The words without breaks and needless spaces, all of them legible."""
    return " ".join(legible(words).split())


def cut(words: str, most: int) -> str:
    """The words, or as many letters of them as there is room for and how many more there are."""
    if len(words) <= most:
        return words
    return f"{words[:most].rstrip()}{_ELLIPSIS} [{len(words) - most:,} more letters]"


def numeric(rows: Sequence[Sequence[str]], columns: int) -> list[bool]:
    """Which columns of a table hold numbers, or dashes where there is none."""
    cells = [[row[place].strip() for row in rows if place < len(row)] for place in range(columns)]
    return [
        any(column) and all(cell in _DASHES or _NUMERIC.fullmatch(cell) is not None for cell in column)
        for column in cells
    ]
