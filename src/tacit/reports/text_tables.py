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


def cells(text: str) -> int:
    """How many columns words take on a terminal: Chinese letters and pictures take two each."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def folded(text: str, *, width: int = WIDTH, indent: str = "", whole: bool = False) -> str:
    """A paragraph in lines of at most `width` columns.

    Args:
        text: What it says.
        width: How wide a line may be.
        indent: What the lines after the first begin with.
        whole: Whether words stay whole that are longer than a line, such as paths that somebody may copy.
    """
    found, line, room = list[str](), "", width
    for word in filter(None, plain(text).split(" ")):
        if line and cells(line) + 1 + cells(word) <= room:
            line = f"{line} {word}"
            continue
        if line:
            found.append(line)
            room = width - cells(indent)
        while not whole and cells(word) > room:
            part = _beginning(word, room)
            found.append(part)
            word, room = word[len(part) :], width - cells(indent)
        line = word
    return f"\n{indent}".join([*found, line])


def labelled(rows: Sequence[tuple[str, str]], *, width: int = WIDTH, whole: bool = True) -> str:
    """Labelled lines, the labels in one column.

    Args:
        rows: Labels, and what there is to say.
        width: How wide a line may be.
        whole: Whether words stay whole that are longer than a line.
    """
    shown = [(plain(label), text) for label, text in rows]
    beside = max((cells(label) for label, _ in shown), default=0) + 2
    room = max(width - beside, LEAST)
    return "\n".join(
        _padded(label, beside) + folded(text, width=room, whole=whole).replace("\n", "\n" + " " * beside)
        if text
        else label
        for label, text in shown
    )


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An aligned table, as wide as it takes; columns of numbers to the right."""
    header, rows = [plain(cell) for cell in header], [[plain(cell) for cell in row] for row in rows]
    widths = [max(cells(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    numeric = [all(_is_number(cell) for cell in column) for column in zip(*rows, strict=True)]
    right = numeric or [False] * len(header)
    return "\n".join(
        "  ".join(
            _padded(cell, width, right=push) for cell, width, push in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in (header, ["-" * width for width in widths], *rows)
    )


def fitted(header: Sequence[str], rows: Sequence[Sequence[str]], *, width: int = WIDTH) -> str:
    """A table that fits: as it is, turned about its corner, with shorter names, or in parts."""
    table = aligned(header, rows)
    wide = across(table)
    if wide <= width:
        return table
    turned = aligned([header[0], *(row[0] for row in rows)], list(zip(header, *rows, strict=True))[1:])
    if across(turned) <= width:
        return turned
    first = max(cells(plain(row[0])) for row in (header, *rows))
    room = width - (wide - first)
    if room >= LEAST:
        return aligned(header, _named(rows, room))
    return _in_parts(header, _named(rows, width // 3), width)


def across(text: str) -> int:
    """How many columns the widest line takes."""
    return max(cells(line) for line in text.split("\n"))


def shortened(text: str, room: int) -> str:
    """Words in so many columns: what is too long keeps its beginning and more of its end."""
    text = plain(text)
    if cells(text) <= room:
        return text
    # Names of runs and paths differ at their ends.
    last = 2 * (room - len(OMITTED)) // 3
    return _beginning(text, room - len(OMITTED) - last) + OMITTED + _beginning(text[::-1], last)[::-1]


def _in_parts(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    """A table in several, each with the first column and as many others as fit, at least one."""
    groups, used = list[list[int]](), width
    first = max(cells(row[0]) for row in (header, *rows))
    for place in range(1, len(header)):
        wide = max(cells(plain(row[place])) for row in (header, *rows)) + 2
        if used + wide > width:
            groups.append([0])
            used = first
        groups[-1].append(place)
        used += wide
    room = width - first - 2
    return "\n\n".join(
        aligned([header[at] for at in group], [[shortened(row[at], room) for at in group] for row in rows])
        for group in groups
    )


def _named(rows: Sequence[Sequence[str]], room: int) -> list[list[str]]:
    return [[shortened(row[0], room), *row[1:]] for row in rows]


def _beginning(text: str, room: int) -> str:
    """The longest beginning that takes no more columns; one letter at least."""
    used = 0
    for place, char in enumerate(text):
        used += cells(char)
        if used > room:
            return text[: max(place, 1)]
    return text


def _padded(text: str, width: int, *, right: bool = False) -> str:
    space = " " * (width - cells(text))
    return space + text if right else text + space


def _is_number(cell: str) -> bool:
    if cell.startswith("[") and cell.endswith("]"):
        return all(_is_number(end) for end in cell[1:-1].split(", "))
    bare = cell.removeprefix("-").replace(".", "").replace("e-", "").replace("e+", "")
    return cell in ("", "-", BROKEN) or bare.isdigit()
