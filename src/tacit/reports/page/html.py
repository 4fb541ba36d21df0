"""HTML report: one self-contained file, or a fragment for a notebook.

Nothing in it is fetched: styles, script and figures are inside, and a policy in its head forbids the rest.
All of it is there without the script, which only sorts tables, enlarges figures on a phone, opens what is
folded before it is printed, and renews the page of a run that goes on.
"""

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from tacit.errors import require
from tacit.reports.page import svg as drawn
from tacit.reports.page.blocks import (
    CELL,
    LONG,
    TONES,
    Block,
    Code,
    Facts,
    Figure,
    Grid,
    Page,
    Section,
    Text,
    cut,
    legible,
    numeric,
    one_line,
)
from tacit.reports.text import NAMES, header_of, score_table

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
        page: The report.
        refresh: Interval in seconds at which the page reloads, while a run goes on; by default never.
    """
    allowed = "a finite number of seconds above 0, or None"
    require(refresh is None or (math.isfinite(refresh) and refresh > 0), "refresh", refresh, allowed)
    script = _text("page.js")
    # Colours of figures on a dark page; paper is always light.
    night = f"@media screen and (prefers-color-scheme:dark){{.tacit-page{{{drawn.night()}}}}}\n"
    return _template("page.html.jinja").render(
        page=page,
        sections=list(zip(_anchors(section.title for section in page.sections), page.sections, strict=True)),
        styles=_safe(_text("blocks.css") + _text("page.css") + night),
        script=_safe(script),
        policy=_policy(script) + (ITSELF if refresh else ""),
        refresh=refresh,
    )


def fragment(page: Page) -> str:
    """The report as a part of another page, such as a notebook: no script, no head, styles for itself alone.

    Sections after the first are folded; small figures are included.
    """
    return _template("fragment.html.jinja").render(page=page, styles=_safe(_text("blocks.css")))


def _policy(script: str) -> str:
    """Return the content security policy: no loading, and one script, known by its digest."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def _anchors(titles: Iterable[str]) -> list[str]:
    """Return a unique anchor for each title."""
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

    def words_of(words: str) -> str:
        """Words for a paragraph: legible, and not without end."""
        return cut(one_line(words), LONG)

    made.filters.update(
        {"kind": lambda block: type(block).__name__.lower(), "words": words_of, "legible": legible}
    )
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
    """Return the figure, or nothing if it is too large for a notebook."""
    found = _figure(block)
    return found if len(found) <= SMALL else _safe("")


# Parts for a notebook


def tuned_html(tuned: Mapping[str, Any], run: Mapping[str, Any], sentences: Sequence[str]) -> str:
    """Render a tuning as HTML.

    Args:
        tuned: The result of `Tuned.as_dict`.
        run: The result of `Run.as_dict` of the chosen candidate.
        sentences: Those of its statement.
    """
    by, candidates = tuned["by"], tuned["candidates"]
    varied = list(dict.fromkeys(key for trial in candidates for key in trial["changes"]))
    rows = tuple(
        (
            trial["candidate"],
            *(str(trial["changes"].get(key, "-")) for key in varied),
            "-" if trial["score"] is None else f"{trial['score']:.4f}",
            trial["failed"] or "",
        )
        for trial in candidates
    )
    score = str(NAMES.get(by["score"], by["score"]))
    noisy = "" if by["noise"] is None else f", with noise of standard deviation {by['noise']:.4g}"
    caption = f"By {score} ({by['direction']}){noisy}: {tuned['chosen']} was chosen"
    grid = Grid(caption, ("candidate", *varied, score, "failed"), rows, sortable=True)
    return fragment(_page(f"tuning {run['name']}", [Section("Candidates", (grid,)), *_run(run, sentences)]))


def tried_html(tried: Mapping[str, Any]) -> str:
    """Every attack against every rule.

    Args:
        tried: Result of `Tried.as_dict`.
    """
    score = NAMES.get(tried["score"], tried["score"])
    sections = [
        Section(
            f"{score} when {tried['liars']} of {tried['sites']} sites lie, {noise} noise",
            (_attacks(table, tried["worst"][noise]), *_missing(tried["why"].get(noise, {}))),
        )
        for noise, table in tried["tables"].items()
    ]
    return fragment(_page(f"attacks on {tried['name']}", sections))


def text_html(title: str, text: str) -> str:
    """Render a summary with finished tables as HTML.

    Args:
        title: Title of the summary.
        text: The summary.
    """
    return fragment(_page(title, [Section("Summary", (Code(text),))]))


def _page(title: str, sections: Sequence[Section]) -> Page:
    return Page(title=title, lead="", sections=tuple(sections))


def _run(run: Mapping[str, Any], sentences: Sequence[str]) -> list[Section]:
    """The header, the scores and the statement."""
    header, rows = score_table(run)
    scores = Grid("Scores on held-out records", tuple(header), tuple(tuple(row) for row in rows))
    table: list[Block] = [scores] if len(header) > 1 else []
    told = [Text(words) for words in (run.get("how", ""),) if words]
    return [
        Section("Result", (Facts(tuple(header_of(run))), *table, *told)),
        Section("The promise", tuple(Text(words) for words in sentences)),
    ]


def _attacks(table: Mapping[str, Mapping[str, float | None]], worst: Mapping[str, float | None]) -> Grid:
    rules = list(worst)
    rows = tuple(
        (attack, *("-" if row.get(rule) is None else f"{row[rule]:.3f}" for rule in rules))
        for attack, row in {**table, "worst": worst}.items()
    )
    return Grid("A line for each attack, a column for each rule", ("attack", *rules), rows)


def _missing(why: Mapping[str, Mapping[str, str]]) -> list[Block]:
    return [
        Text(f"{rule}, {attack}: {reason}", "mind")
        for rule, reasons in why.items()
        for attack, reason in reasons.items()
    ]
