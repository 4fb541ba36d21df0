"""Figure as one inline SVG: small, deterministic, readable in light and in dark.

Matplotlib draws; what it writes is taken apart and put together anew, with what a page needs and no more.
Text stays text, so it can be searched; names in it are not ours, and stay text too. Colours of our own style
become variables of the page, and what an artist with the id `as-drawn` draws keeps its colours: words on the
ground of a colour map, say.
"""

import hashlib
import re
import threading
import warnings
from collections.abc import Iterator
from io import StringIO
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from tacit.errors import require
from tacit.reports.page.blocks import legible, one_line

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from tacit.reports.plots.style import Picture

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
LONG = 150
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
    # Two figures of one name may come to stand in one page.
    return text.replace(BLANK, f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:6]}")


def night() -> str:
    """Our colours on a dark page, as the style sheet of the page has them."""
    return "".join(f"{_variable(light)}:{dark};" for light, dark in DARK.items())


def _matplotlib_svg(picture: "Picture") -> str:
    """Return Matplotlib's SVG; the picture stays unchanged."""
    from matplotlib import rc_context  # pyright: ignore[reportUnknownVariableType]
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    stream, canvas, dots = StringIO(), picture.canvas, picture.dpi
    with _DRAWING, rc_context({"svg.fonttype": "none", "svg.hashsalt": "tacit"}), warnings.catch_warnings():
        # The browser has fonts for what ours cannot write.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        try:
            # Not by `savefig`, which draws twice.
            FigureCanvasSVG(picture).print_svg(stream, metadata={"Date": None})
        finally:
            picture.set_canvas(canvas)
            picture.dpi = dots
    return legible(stream.getvalue())


def _bare(given: "Element") -> "Element":
    """The element without name spaces, without words about itself, and without a style for all pages."""
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
            # White words stand on a colour, and stay white.
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
    scale = 100 if given.count(" ") < LONG else 10
    for command, numbers in re.findall(r"([A-Za-z])([^A-Za-z]*)", given):
        # Whole numbers: what is rounded does not add up on the way.
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
