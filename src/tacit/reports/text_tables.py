"""Words and tables as lines for a terminal: as wide as they look, never wider than asked, and harmless.

Names come from files and from other people. Whatever in them would move the cursor, hide or turn letters
round is shown by its code, so that a name cannot be taken for a command to the terminal.
"""

from collections.abc import Sequence

from tacit.errors import escape

# What any terminal has.
WIDTH = 80
# The narrowest that a first column is made, and what stands for what is left out of it.
LEAST, OMITTED = 12, "..."
# What stands in a table of scores where a model was ruined.
BROKEN = "broken"


def plain(text: str) -> str:
    """Words with the code of everything that a terminal would obey, or not show, instead of itself."""
    return escape(text)


def display_width(text: str) -> int:
    """How many columns words take on a terminal: Chinese letters and pictures take two each."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrap_paragraph(text: str, *, width: int = WIDTH, indent: str = "", whole: bool = False) -> str:
    """A paragraph in lines of at most `width` columns.

    Args:
        text: What it says.
        width: How wide a line may be.
        indent: What the lines after the first begin with.
        whole: Whether words stay whole that are longer than a line, such as paths that somebody may copy.
    """
    found, line, room = list[str](), "", width
    for word in filter(None, plain(text).split(" ")):
        if line and display_width(line) + 1 + display_width(word) <= room:
            line = f"{line} {word}"
            continue
        if line:
            found.append(line)
            room = width - display_width(indent)
        while not whole and display_width(word) > room:
            part = _prefix(word, room)
            found.append(part)
            word, room = word[len(part) :], width - display_width(indent)
        line = word
    return f"\n{indent}".join([*found, line])


def format_rows(rows: Sequence[tuple[str, str]], *, width: int = WIDTH, whole: bool = True) -> str:
    """Labelled lines, the labels in one column.

    Args:
        rows: Labels, and what there is to say.
        width: How wide a line may be.
        whole: Whether words stay whole that are longer than a line.
    """
    shown = [(plain(label), text) for label, text in rows]
    beside = max((display_width(label) for label, _ in shown), default=0) + 2
    room = max(width - beside, LEAST)
    return "\n".join(
        _pad(label, beside) + wrap_paragraph(text, width=room, whole=whole).replace("\n", "\n" + " " * beside)
        if text
        else label
        for label, text in shown
    )


def align_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An aligned table, as wide as it takes; columns of numbers to the right."""
    header, rows = [plain(cell) for cell in header], [[plain(cell) for cell in row] for row in rows]
    widths = [max(display_width(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    numeric = [all(_is_number(cell) for cell in column) for column in zip(*rows, strict=True)]
    right = numeric or [False] * len(header)
    return "\n".join(
        "  ".join(
            _pad(cell, width, right=push) for cell, width, push in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in (header, ["-" * width for width in widths], *rows)
    )


def fit_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, width: int = WIDTH) -> str:
    """A table that fits: as it is, turned about its corner, with shorter names, or in parts."""
    table = align_table(header, rows)
    wide = widest_line(table)
    if wide <= width:
        return table
    turned = align_table([header[0], *(row[0] for row in rows)], list(zip(header, *rows, strict=True))[1:])
    if widest_line(turned) <= width:
        return turned
    first = max(display_width(plain(row[0])) for row in (header, *rows))
    room = width - (wide - first)
    if room >= LEAST:
        return align_table(header, _shorten_names(rows, room))
    return _in_parts(header, _shorten_names(rows, width // 3), width)


def widest_line(text: str) -> int:
    """How many columns the widest line takes."""
    return max(display_width(line) for line in text.split("\n"))


def shorten_middle(text: str, room: int) -> str:
    """Words in so many columns: what is too long keeps its beginning and more of its end."""
    text = plain(text)
    if display_width(text) <= room:
        return text
    # Names of runs and paths differ at their ends.
    last = 2 * (room - len(OMITTED)) // 3
    return _prefix(text, room - len(OMITTED) - last) + OMITTED + _prefix(text[::-1], last)[::-1]


def _in_parts(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """A table in several, each with the first column and as many others as fit, at least one."""
    groups, used = list[list[int]](), width
    first = max(display_width(row[0]) for row in (header, *rows))
    for place in range(1, len(header)):
        wide = max(display_width(plain(row[place])) for row in (header, *rows)) + 2
        if used + wide > width:
            groups.append([0])
            used = first
        groups[-1].append(place)
        used += wide
    room = width - first - 2
    return "\n\n".join(
        align_table(
            [header[at] for at in group], [[shorten_middle(row[at], room) for at in group] for row in rows]
        )
        for group in groups
    )


def _shorten_names(rows: Sequence[Sequence[str]], room: int) -> list[list[str]]:
    return [[shorten_middle(row[0], room), *row[1:]] for row in rows]


def _prefix(text: str, room: int) -> str:
    """The longest beginning that takes no more columns; one letter at least."""
    used = 0
    for place, char in enumerate(text):
        used += display_width(char)
        if used > room:
            return text[: max(place, 1)]
    return text


def _pad(text: str, width: int, *, right: bool = False) -> str:
    space = " " * (width - display_width(text))
    return space + text if right else text + space


def _is_number(cell: str) -> bool:
    if cell.startswith("[") and cell.endswith("]"):
        return all(_is_number(end) for end in cell[1:-1].split(", "))
    bare = cell.removeprefix("-").replace(".", "").replace("e-", "").replace("e+", "")
    return cell in ("", "-", BROKEN) or bare.isdigit()
