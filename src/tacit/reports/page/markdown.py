"""A report as Markdown, in the flavour of GitHub: for a repository, a wiki, a mail.

Every word is escaped, so that what a site calls itself is shown and not obeyed. Figures stand in it as words.
"""

import re
from html import escape

from tacit.reports.page.blocks import (
    BLANK,
    CELL,
    LONG,
    TONES,
    Block,
    Code,
    Facts,
    Figure,
    Film,
    Folded,
    Grid,
    Items,
    Page,
    Questionnaire,
    Text,
    cut,
    legible,
    numeric,
    one_line,
)

# Characters that are markup anywhere; an underscore between letters, and an ampersand that begins no entity,
# are not.
_MARKUP = re.compile(r"[\\`*\[\]<>|~#$^]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)|:(?=//)|(?<=www)\.")
# Characters that are markup at the beginning of a line: lists, rules, underlines of headings.
_FIRST = re.compile(r"^(?:([-+=:])|(\d+)([.)]))")


def markdown(page: Page) -> str:
    """Render the report as Markdown."""
    parts = [f"# {_words(page.title)}", _words(page.lead)]
    parts += [_text(Text(alert.words, alert.tone or "mind")) for alert in page.alerts]
    for section in page.sections:
        parts += [f"## {_words(section.title)}", *map(_block, section.blocks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(block: Block) -> str:
    match block:
        case Text():
            return _text(block)
        case Items():
            return _items(block)
        case Facts() | Questionnaire():
            return _facts(block)
        case Grid():
            return _grid(block)
        case Figure() | Film():
            return _seen(block)
        case Code():
            return _code(block)
        case Folded():
            return _details(block)


def _seen(block: Figure | Film) -> str:
    """Return a figure or a film in words."""
    kind = "Figure" if isinstance(block, Figure) else f"Film ({_inline(block.path)})"
    return f"*{kind}: {_inline(block.words)}*"


def _text(block: Text) -> str:
    if block.tone is None:
        return _words(block.words)
    return f"> **{TONES[block.tone]}** {_inline(block.words)}".rstrip()


def _items(block: Items) -> str:
    head = [f"**{_inline(block.title)}**"] * bool(block.title.strip())
    lines = [f"- {_words(line)}".rstrip() for line in block.lines] or ["Nothing."]
    return "\n\n".join([*head, "\n".join(lines)])


def _facts(block: Facts | Questionnaire) -> str:
    if isinstance(block, Questionnaire):
        pairs = tuple((label, answer.strip() or BLANK) for _, label, answer in block.fields)
    else:
        pairs = block.rows
    # Without a header there would be no table.
    rows = [f"| {_cell(name)} | {_cell(words)} |" for name, words in pairs]
    return "\n".join(["|  |  |", "| --- | --- |", *rows])


def _grid(block: Grid) -> str:
    numbers = numeric(block.rows, len(block.header))
    rows = [_row(row) for row in block.rows] or [_row(["Nothing."] + [""] * (len(block.header) - 1))]
    rules = " | ".join("---:" if number else "---" for number in numbers)
    head = [f"**{_inline(block.caption)}**", ""] * bool(block.caption.strip())
    return "\n".join([*head, _row(block.header), f"| {rules} |", *rows])


def _row(cells: "tuple[str, ...] | list[str]") -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _code(block: Code) -> str:
    """Text in a fence that is longer than any that is in it."""
    text = legible(block.text)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip(chr(10))}\n{fence}"


def _details(block: Folded) -> str:
    inside = "\n\n".join(map(_block, block.blocks))
    title = escape(cut(one_line(block.title), LONG), quote=False)
    return f"<details>\n<summary>{title}</summary>\n\n{inside}\n\n</details>"


def _words(words: str) -> str:
    """Words where a line begins."""
    return _FIRST.sub(lambda found: f"{found[2] or ''}\\{found[1] or found[3]}", _inline(words))


def _inline(words: str) -> str:
    """Escape words inside a line."""
    return _MARKUP.sub(r"\\\g<0>", cut(one_line(words), LONG))


def _cell(words: str) -> str:
    return _MARKUP.sub(r"\\\g<0>", cut(one_line(words), CELL))
