"""What a report is made of, whoever renders it: sections of a few kinds of blocks.

A block holds words and figures that are ready to be shown; it neither reads a run nor knows HTML. Words are
plain text: whatever stands in them is shown as it is, and never taken for markup.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tacit.reports.plots.style import Picture

# How words are meant: what forbids to rely on a result, what to bear in mind, and what is as it should be.
Tone = Literal["stop", "mind", "good"]


@dataclass(frozen=True)
class Text:
    """A paragraph.

    Args:
        words: What it says.
        tone: How it is meant, if that should catch the eye.
    """

    words: str
    tone: Tone | None = None


@dataclass(frozen=True)
class Items:
    """A list, under a few words of its own.

    Args:
        title: What the lines are.
        lines: One for each item.
    """

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """Things with their names: a name and what there is to say about it."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Grid:
    """A table of words and numbers; columns of numbers stand to the right.

    Args:
        caption: What the table shows.
        header: A name for each column.
        rows: Cells as they are shown.
        sortable: Whether a reader may want it in another order.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sortable: bool = False


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure, and the same in words for whoever cannot see it.

    Args:
        name: What to call it where a word is needed: letters, digits and hyphens.
        picture: What is seen.
        words: What there is to see, in a sentence or two.
    """

    name: str
    picture: "Picture"
    words: str


@dataclass(frozen=True)
class Code:
    """Text that is kept letter by letter: a command, a file."""

    text: str


@dataclass(frozen=True, eq=False)
class Folded:
    """Blocks that open when asked for; on paper they are open.

    Args:
        title: What is inside.
        blocks: What is inside.
    """

    title: str
    blocks: tuple["Block", ...]


Block = Text | Items | Facts | Grid | Figure | Code | Folded


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a report under a heading."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Page:
    """A report, ready to be rendered.

    Args:
        title: What it is about.
        lead: The one sentence to read.
        alerts: What has to be known before anything else.
        sections: Its parts, in order.
        document: The same as plain data, as `.json` has it.
    """

    title: str
    lead: str
    alerts: tuple[Text, ...] = ()
    sections: tuple[Section, ...] = ()
    document: Mapping[str, Any] = field(default_factory=dict[str, Any])
