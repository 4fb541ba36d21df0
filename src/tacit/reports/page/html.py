"""HTML report: one self-contained file, or a fragment for a notebook.

Nothing in it is fetched: styles, script and figures are inside, and a policy in its head forbids the rest.
All of it is there without the script, which only sorts tables, enlarges figures on a phone, opens what is
folded before it is printed, and renews the page of a run that goes on.

Figure as one inline SVG: small, deterministic, readable in light and in dark.

Matplotlib draws; what it writes is taken apart and put together anew, with what a page needs and no more.
Text stays text, so it can be searched; names in it are not ours, and stay text too. Colors of our own style
become variables of the page, and what an artist with the id `as-drawn` draws keeps its colors: words on the
ground of a color map, say.
"""

import base64
import hashlib
import math
import re
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from io import StringIO
from typing import TYPE_CHECKING, Any, cast
from xml.etree import ElementTree

from tacit.errors import require
from tacit.reports.page.blocks import (
    CELL,
    LONG,
    TONES,
    Block,
    Facts,
    Figure,
    Film,
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
    from xml.etree.ElementTree import Element

    from jinja2 import Environment, Template
    from markupsafe import Markup

    from tacit.reports.plots.style import Picture

# Most letters of the full text of a truncated cell, shown under the pointer.
WHOLE = 1_000
# A cell and a header of more letters may be broken into lines, a table of more columns be pushed to and fro.
UNBROKEN, UNBROKEN_HEADER, NARROW = 24, 12, 3
# The interval in a cell with a number.
INTERVAL = re.compile(r" ([(\[].*)")
# Letters of a figure that a notebook is to keep with it.
SMALL = 60_000
# Beginning of an animated GIF.
GIF = b"GIF8"
# Names that the page has given to parts of its own.
TAKEN = ("main", "state")
# The only request of a page: itself.
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
    # Colors of figures on a dark page; paper is always light.
    night = f"@media screen and (prefers-color-scheme:dark){{.tacit-page{{{night_styles()}}}}}\n"
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
        """Return the words of a paragraph: legible, and not without end."""
        return cut(one_line(words), LONG)

    made.filters.update(
        {"kind": lambda block: type(block).__name__.lower(), "words": words_of, "legible": legible}
    )
    words = {"tones": TONES, "narrow": NARROW, "unbroken": UNBROKEN_HEADER}
    makers = {
        "numeric": numeric,
        "row": _row,
        "figure": _figure,
        "small_figure": _small_figure,
        "film": _film,
    }
    cast("dict[str, object]", made.globals).update({**words, **makers})
    return made


@cache
def _template(name: str) -> "Template":
    return _environment().get_template(name)


def _safe(text: str) -> "Markup":
    """Mark our own text as safe markup."""
    from markupsafe import Markup

    return Markup(text)


def _row(cells: Sequence[str], numbers: Sequence[bool]) -> "Markup":
    """Render the cells of a row; the first one names it."""
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
    return _safe(inline(block.picture, block.name, block.words))


def _film(block: Film) -> "Markup":
    """Return the film inside the page, or nothing if it is only named."""
    from markupsafe import escape

    if not block.content.startswith(GIF):
        return _safe("")
    inside = base64.b64encode(block.content).decode()
    return _safe(f'<img alt="{escape(one_line(block.words))}" src="data:image/gif;base64,{inside}">')


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
            f"{score} when {tried['liars']} of {tried['sites']} sites are dishonest, {noise} noise",
            (_attacks(table, tried["worst"][noise]), *_missing(tried["why"].get(noise, {}))),
        )
        for noise, table in tried["tables"].items()
    ]
    return fragment(_page(f"attacks on {tried['name']}", sections))


def _page(title: str, sections: Sequence[Section]) -> Page:
    return Page(title=title, lead="", sections=tuple(sections))


def _run(run: Mapping[str, Any], sentences: Sequence[str]) -> list[Section]:
    """Render the header, the scores and the statement."""
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


AS_DRAWN = "as-drawn"
WHITE, PAPER = "#ffffff", "--paper"
# Our colors, and their forms for text, on a dark page.
DARK = {
    "#000000": "#f2f4f6", "#222222": "#e4e7ea", "#5f5f5f": "#a9b1b8", "#aaaaaa": "#7d868e",
    "#dddddd": "#363c43", "#0072b2": "#4ea6e6", "#d55e00": "#f28c4f", "#c05500": "#f28c4f",
    "#009e73": "#3cc597", "#008561": "#3cc597", "#cc79a7": "#e79ac6", "#a36186": "#e79ac6",
    "#56b4e9": "#a2dbff", "#3a7a9e": "#a2dbff", "#e69f00": "#f4bd48", "#9c6c00": "#f4bd48",
}  # fmt: skip
# Verdana is as wide as the font that was measured.
FONT = "DejaVu Sans,Verdana,Geneva,sans-serif"
# Default attributes of an element.
USUAL = {
    "stroke-dashoffset": "0", "stroke-linejoin": "round", "stroke-linecap": "butt", "text-anchor": "start",
    "opacity": "1", "stroke-opacity": "1", "fill-opacity": "1",
}  # fmt: skip
NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
NUMBER = re.compile(r"-?\d*\.?\d+(?:[eE][-+]?\d+)?")
REFERENCE = re.compile(r"(?:(?<=^)|(?<=url\())#([^)\s]+)")
# Points that figures leave free at either side, where the page has a margin of its own.
EDGE = 4.0
# Numbers of a path that is long: in it, a tenth of a point is fine enough.
LONG_PATH = 150
# Placeholder for a name until it is known; no word holds it.
BLANK = "\x00"
# Matplotlib has one set of settings for all threads.
_DRAWING = threading.Lock()


def inline(picture: "Picture", name: str, words: str) -> str:
    """Render the picture as an SVG element that can stand in a page beside others.

    Args:
        picture: The picture.
        name: Prefix of its parts' names in the page: letters, digits and hyphens.
        words: Its content in words, for readers who cannot see it.
    """
    require(NAME.fullmatch(name) is not None, "name", name, "letters, digits and hyphens, a letter first")
    found = _without_background(_bare(ElementTree.fromstring(_matplotlib_svg(picture))))
    _restyle(found, as_drawn=False)
    _rename(found)
    parts = list(_flat(found))
    root = ElementTree.Element("svg", _frame(found, one_line(picture.get_suptitle()) or name))
    ElementTree.SubElement(root, "desc", {"id": f"{BLANK}-words"}).text = one_line(words)
    root.extend(parts)
    text = ElementTree.tostring(root, encoding="unicode").replace(" />", "/>")
    # Two figures of one name may stand in one page.
    return text.replace(BLANK, f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:6]}")


def night_styles() -> str:
    """Our colors on a dark page, as the style sheet of the page has them."""
    return "".join(f"{_variable(light)}:{dark};" for light, dark in DARK.items())


def _matplotlib_svg(picture: "Picture") -> str:
    """Return Matplotlib's SVG; the picture stays unchanged."""
    from matplotlib import rc_context  # pyright: ignore[reportUnknownVariableType]
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    stream, canvas, dots = StringIO(), picture.canvas, picture.dpi
    with _DRAWING, rc_context({"svg.fonttype": "none", "svg.hashsalt": "tacit"}), warnings.catch_warnings():
        # The browser has fonts for letters that ours lack.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        try:
            # Not by `savefig`, which draws twice.
            FigureCanvasSVG(picture).print_svg(stream, metadata={"Date": None})
        finally:
            picture.set_canvas(canvas)
            picture.dpi = dots
    return legible(stream.getvalue())


def _bare(given: "Element") -> "Element":
    """Strip name spaces, metadata and global styles from an SVG element."""
    found = ElementTree.Element(_local(given.tag), {_local(key): value for key, value in given.items()})
    found.text = given.text if found.tag in ("text", "tspan") else None
    found.extend(_bare(child) for child in given if _local(child.tag) not in ("metadata", "style"))
    return found


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _without_background(root: "Element") -> "Element":
    """Remove the white background: the page has its own."""
    for figure in root.findall("g"):
        for patch in figure.findall("g[@id='patch_1']"):
            if f"fill: {WHITE}" in "".join(path.get("style", "") for path in patch):
                figure.remove(patch)
    return root


def _restyle(element: "Element", *, as_drawn: bool) -> None:
    """Shorten the style of an element and its parts, and replace our colors by the page's."""
    kept = as_drawn or element.get("id", "").startswith(AS_DRAWN)
    if kept and not as_drawn:
        element.set("style", "fill:#000")
    elif "style" in element.attrib:
        element.set("style", _style(element.tag, element.attrib["style"], as_drawn=kept))
    _place(element)
    # Nothing is fetched and nothing leads away.
    if not element.get("href", "#").startswith(("#", "data:image/png;base64,")):
        del element.attrib["href"]
    for child in element:
        _restyle(child, as_drawn=kept)
    _hoist(element)


def _place(element: "Element") -> None:
    """Shorten position and transform of an element."""
    for key in ("x", "y", "width", "height"):
        if key in element.attrib:
            element.set(key, NUMBER.sub(lambda found: _short(float(found[0])), element.attrib[key]))
    if "d" in element.attrib:
        element.set("d", _path(element.attrib["d"]))
    turned = element.get("transform", "")
    if re.fullmatch(r"rotate\(-?0 [^)]*\)", turned):
        del element.attrib["transform"]
    elif turned:
        element.set("transform", NUMBER.sub(lambda found: f"{float(found[0]):.6g}", turned))


def _style(tag: str, given: str, *, as_drawn: bool) -> str:
    """Remove default values from a style."""
    rules = dict(rule.strip().split(":", 1) for rule in given.split(";") if ":" in rule)
    shown = {key: value.strip() for key, value in rules.items() if USUAL.get(key) != value.strip()}
    if shown.get("font-family", "").startswith("'DejaVu Sans',"):
        del shown["font-family"]
    for key in ("fill", "stroke"):
        if key in shown:
            # White words stand on a color, and stay white.
            fixed = as_drawn or (tag in ("text", "tspan") and shown[key] == WHITE)
            shown[key] = _colour(shown[key], fixed=fixed)
    return ";".join(f"{key}:{value}" for key, value in shown.items())


def _colour(given: str, *, fixed: bool) -> str:
    short = re.sub(r"^#(.)\1(.)\2(.)\3$", r"#\1\2\3", given)
    if fixed or (given not in DARK and given != WHITE):
        return short
    return f"var({_variable(given)},{short})"


def _variable(light: str) -> str:
    return PAPER if light == WHITE else f"--c{light[1:]}"


def _path(given: str) -> str:
    """Shorten a path: visible decimals only, and relative coordinates."""
    parts, last, here = list[str](), "", [0, 0]
    scale = 100 if given.count(" ") < LONG_PATH else 10
    for command, numbers in re.findall(r"([A-Za-z])([^A-Za-z]*)", given):
        # Whole numbers: rounding errors do not add up along the path.
        ends = [round(scale * float(one)) for one in numbers.split()]
        told = [end - start for end, start in zip(ends, here, strict=True)] if command == "L" else ends
        said = command.lower() if command == "L" else command
        parts.append((" " if said == last else said) + " ".join(_short(one / scale) for one in told))
        last, here = "" if said in "MZz" else said, ends[-2:] or here
    return "".join(parts).replace(" -", "-")


def _short(number: float) -> str:
    shown = re.sub(r"^(-?)0\.", r"\1.", f"{number:.2f}").rstrip("0").rstrip(".")
    return shown if shown not in ("", "-") else "0"


def _hoist(group: "Element") -> None:
    """Move the common style of a group's marks to the group."""
    styles = {child.get("style") for child in group}
    if group.tag == "g" and "style" not in group.attrib and len(group) > 1 and len(styles) == 1:
        shared = styles.pop()
        if shared and all(child.tag == "use" for child in group):
            group.set("style", shared)
            for child in group:
                del child.attrib["style"]


def _rename(root: "Element") -> None:
    """Give unique names to referenced elements, and remove all others."""
    values = [value for element in root.iter() for value in element.attrib.values()]
    meant = {name for value in values if not value.startswith("data:") for name in REFERENCE.findall(value)}
    order = [element.attrib["id"] for element in root.iter() if element.get("id") in meant]
    names = {given: f"{BLANK}-{place}" for place, given in enumerate(dict.fromkeys(order))}
    for element in root.iter():
        for key, value in list(element.attrib.items()):
            if key == "id" and value in names:
                element.set(key, names[value])
            elif key == "id":
                del element.attrib[key]
            elif not value.startswith("data:") and "#" in value:
                element.set(key, REFERENCE.sub(lambda found: f"#{names.get(found[1], found[1])}", value))


def _flat(group: "Element") -> "Iterator[Element]":
    """Yield the parts of a group, and of its plain subgroups."""
    for child in list(group):
        if child.tag in ("g", "defs", "a"):
            within = list(_flat(child))
            if child.tag == "a" or (child.tag == "g" and not child.attrib):
                yield from within
                continue
            child[:] = within
            if not within:
                continue
        yield child


def _frame(drawn: "Element", title: str) -> dict[str, str]:
    """Return the attributes of the root element."""
    black = _colour("#000000", fixed=False)
    left, top, width, height = (float(end) for end in drawn.attrib["viewBox"].split())
    return {
        "viewBox": " ".join(f"{end:g}" for end in (left + EDGE, top, width - 2 * EDGE, height)),
        "role": "img",
        "aria-label": title,
        "aria-describedby": f"{BLANK}-words",
        "font-family": FONT,
        "stroke-linejoin": "round",
        "style": f"width:100%;max-width:50rem;height:auto;overflow:visible;fill:{black}",
    }
