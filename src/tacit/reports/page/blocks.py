"""Blocks of a report, for any renderer: sections of a few kinds of blocks.

A block holds words and figures that are ready to be shown; it neither reads a run nor knows HTML. Words are
plain text: they are shown unchanged, and never taken for markup.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tacit.reports.plots.style import Picture

# Tone of words: a reason not to rely on a result, a warning, or a confirmation.
Tone = Literal["stop", "mind", "good"]


@dataclass(frozen=True)
class Text:
    """A paragraph.

    Args:
        words: The words.
        tone: Tone that catches the eye, if any.
    """

    words: str
    tone: Tone | None = None


@dataclass(frozen=True)
class Items:
    """A list, under a few words of its own.

    Args:
        title: Title of the lines.
        lines: One for each item.
    """

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """Names and their facts."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Questionnaire:
    """Fields to fill in on the page: for each, its name, its label and its answer so far.

    Args:
        fields: The fields, in order; an empty answer is a blank.
    """

    fields: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Grid:
    """A table of words and numbers; numbers are right-aligned.

    Args:
        caption: Caption of the table.
        header: A name for each column.
        rows: Cells, ready to be shown.
        sortable: Whether a reader may want it in another order.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sortable: bool = False


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure, and the same in words for readers who cannot see it.

    Args:
        name: Its name where a word is needed: letters, digits and hyphens.
        picture: The picture.
        words: Its content, in a sentence or two.
    """

    name: str
    picture: "Picture"
    words: str


@dataclass(frozen=True, eq=False)
class Film:
    """A film as an animated GIF, and the same in words.

    Args:
        name: Its name where a word is needed.
        path: Its place beside the report, as people find it.
        content: The bytes of the GIF; empty for a film that is named and not shown.
        words: Its content, in a sentence or two.
    """

    name: str
    path: str
    content: bytes
    words: str


@dataclass(frozen=True)
class Code:
    """Text that is kept letter by letter: a command, a file."""

    text: str


@dataclass(frozen=True, eq=False)
class Folded:
    """Blocks that unfold on a click; on paper they are open.

    Args:
        title: Title of the content.
        blocks: The content.
    """

    title: str
    blocks: tuple["Block", ...]


Block = Text | Items | Facts | Questionnaire | Grid | Figure | Film | Code | Folded


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a report under a heading."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Page:
    """A report, ready to be rendered.

    Args:
        title: Its title.
        lead: The one sentence to read.
        alerts: Alerts, shown before anything else.
        sections: Its parts, in order.
        document: The same as plain data, as `.json` has it.
    """

    title: str
    lead: str
    alerts: tuple[Text, ...] = ()
    sections: tuple[Section, ...] = ()
    document: Mapping[str, Any] = field(default_factory=dict[str, Any])


# Text from any source, safe to lay out; escaping is left to each format


# Words for tones: a color alone tells nothing to some readers, or on paper.
TONES = {"stop": "Do not rely on this.", "mind": "Note.", "good": "Good."}
# Most letters of a paragraph and of a cell.
LONG, CELL = 2_000, 120
# Characters that XML or HTML must not hold, the placeholder, and those that reverse the words beside them.
_UNFIT = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
# Mark of a blank field where it cannot be filled in on the page.
BLANK = "(to be filled in by the controller)"
_INSTEAD = "\N{REPLACEMENT CHARACTER}"
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"
_DASHES = ("", "-", "\N{EN DASH}", "\N{EM DASH}", "broken")
_NUMBER = r"[-+\N{MINUS SIGN}]?(?:\d[\d,]*(?:\.\d*)?(?:[eE][-+]?\d+)?|inf)(?: ?%)?"
# A number, and perhaps its interval.
_TO = "(?:,| to|\N{EN DASH})"
_NUMERIC = re.compile(rf"{_NUMBER}(?: [(\[]{_NUMBER}{_TO} ?{_NUMBER}[)\]])?")


def finite(value: Any) -> Any:  # noqa: ANN401
    """Replace every number that is not finite by None: JSON has no word for those."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def legible(words: str) -> str:
    """The words with a mark for each character that no page can show, or that would turn its neighbors."""
    return _UNFIT.sub(_INSTEAD, words)


def one_line(words: str) -> str:
    """The words without breaks and needless spaces, all of them legible."""
    return " ".join(legible(words).split())


def cut(words: str, most: int) -> str:
    """Truncate the words to `most` letters, and say how many follow."""
    if len(words) <= most:
        return words
    return f"{words[:most].rstrip()}{_ELLIPSIS} [{len(words) - most:,} more letters]"


def numeric(rows: Sequence[Sequence[str]], columns: int) -> list[bool]:
    """Return True for each column of a table that holds numbers, or dashes where there is none."""
    cells = [[row[place].strip() for row in rows if place < len(row)] for place in range(columns)]
    return [
        any(column) and all(cell in _DASHES or _NUMERIC.fullmatch(cell) is not None for cell in column)
        for column in cells
    ]
