"""A report as HTML: one file that needs nothing else, or a part for a notebook.

Nothing in it is fetched: styles, script and figures are inside, and a policy in its head forbids the rest.
All of it is there without the script, which only sorts tables, enlarges figures on a phone, opens what is
folded before it is printed, and renews the page of a run that goes on.
"""

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, cast

from tacit.errors import require
from tacit.reports.page import svg as drawn
from tacit.reports.page.blocks import Block, Figure, Page
from tacit.reports.page.sanitize import CELL, LONG, TONES, cut, legible, numeric, one_line

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from markupsafe import Markup

# Letters of what is seen when a cell that was cut is pointed at.
WHOLE = 1_000
# A cell and a header of more letters may be broken into lines, a table of more columns be pushed to and fro.
UNBROKEN, UNBROKEN_HEADER, NARROW = 24, 12, 3
# The interval in a cell with a number.
INTERVAL = re.compile(r" ([(\[].*)")
# Letters of a figure that a notebook is to keep with it.
SMALL = 60_000
# Names that the page has given to parts of its own.
TAKEN = ("main", "state")
# The only thing that a page may ask for: itself.
ITSELF = "; connect-src 'self'"


def html(page: Page, *, refresh: float | None = None) -> str:
    """The report as one HTML file.

    Args:
        page: What it says.
        refresh: After how many seconds it asks for itself again, while a run goes on; never, if not said.
    """
    allowed = "a finite number of seconds above 0, or None"
    require(refresh is None or (math.isfinite(refresh) and refresh > 0), "refresh", refresh, allowed)
    script = _text("page.js")
    return _template("page.html.jinja").render(
        page=page,
        sections=list(zip(_anchors(section.title for section in page.sections), page.sections, strict=True)),
        styles=_safe(_text("blocks.css") + _text("page.css") + _night()),
        script=_safe(script),
        policy=_policy(script) + (ITSELF if refresh else ""),
        refresh=refresh,
    )


def fragment(page: Page) -> str:
    """The report as a part of another page, such as a notebook: no script, no head, styles for itself alone.

    Sections are folded, but for the first; figures are there if they are small.
    """
    return _template("fragment.html.jinja").render(page=page, styles=_safe(_text("blocks.css")))


def _policy(script: str) -> str:
    """What the page may load: nothing, and it may run one script, known by its digest."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def _night() -> str:
    """The colours of figures on a dark page; paper is always light."""
    return f"@media screen and (prefers-color-scheme:dark){{.tacit-page{{{drawn.night()}}}}}\n"


def _anchors(titles: Iterable[str]) -> list[str]:
    """A name for each title that an address can hold; no two are the same."""
    found: list[str] = []
    for title in titles:
        name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40] or "part"
        others = (name, *(f"{name}-{number}" for number in range(2, len(found) + 4)))
        found.append(next(other for other in others if other not in (*found, *TAKEN)))
    return found


@cache
def _text(name: str) -> str:
    from importlib.resources import files

    return files("tacit.reports.page").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    made = Environment(
        loader=PackageLoader("tacit.reports.page", "templates"),
        autoescape=select_autoescape(enabled_extensions=("jinja",), default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update({"kind": _kind, "words": _words, "legible": legible})
    words = {"tones": TONES, "narrow": NARROW, "unbroken": UNBROKEN_HEADER}
    makers = {"numeric": numeric, "row": _row, "figure": _figure, "small_figure": _small_figure}
    cast("dict[str, object]", made.globals).update({**words, **makers})
    return made


@cache
def _template(name: str) -> "Template":
    return _environment().get_template(name)


def _safe(text: str) -> "Markup":
    """Text of ours, which is markup."""
    from markupsafe import Markup

    return Markup(text)


def _kind(block: Block) -> str:
    return type(block).__name__.lower()


def _words(words: str) -> str:
    """Words for a paragraph: legible, and not without end."""
    return cut(one_line(words), LONG)


def _row(cells: Sequence[str], numbers: Sequence[bool]) -> "Markup":
    """The cells of a row; the first one names it."""
    from markupsafe import escape

    parts: list[str] = []
    for place, (cell, number) in enumerate(zip(cells, numbers, strict=True)):
        words = one_line(cell)
        kind = " class=n" if number else " class=w" if len(words) > UNBROKEN else ""
        rest = f' title="{escape(cut(words, WHOLE))}"' if len(words) > CELL else ""
        shown = str(escape(cut(words, CELL)))
        if number and " " in words:
            # An interval comes below its number where there is no room beside it.
            shown = INTERVAL.sub(r" <span>\1</span>", shown)
        # Letters that run from right to left keep to themselves.
        shown = shown if words.isascii() else f"<bdi>{shown}</bdi>"
        parts.append(f"<td{kind}{rest}>{shown}</td>" if place else f"<th scope=row{kind}{rest}>{shown}</th>")
    return _safe("".join(parts))


def _figure(block: Figure) -> "Markup":
    return _safe(drawn.inline(block.picture, block.name, block.words))


def _small_figure(block: Figure) -> "Markup":
    """The figure, or nothing if it is too large to be kept in a notebook."""
    found = _figure(block)
    return found if len(found) <= SMALL else _safe("")
