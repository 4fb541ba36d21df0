"""Documents made of blocks: HTML, Markdown, notebooks and SVG, written into files.

The ending of a file says of which kind it is, and a file is there as a whole or not at all.
"""

import json
from pathlib import Path

from tacit.errors import InvalidValue, require
from tacit.reports.page.blocks import Page, finite
from tacit.runtime import files

KINDS = (".html", ".md", ".json")


def write(page: Page, path: str | Path) -> Path:
    """Write a report; an existing file is replaced once the new one is complete.

    Args:
        page: The report.
        path: A file in a folder that exists, ending in `.html`, `.md` or `.json`.
    """
    place = require_place(path)
    content = render(page, place.suffix.lower())
    try:
        files.replace(place, content)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidValue(
            f"path = {str(path)!r} cannot be written: {reason}; choose another place"
        ) from error
    return place


def require_place(path: str | Path) -> Path:
    """Refuse an invalid path of a report, before any work."""
    place = Path(path)
    fits = place.suffix.lower() in KINDS
    require(fits, "path", str(path), f"a file that ends in {', '.join(KINDS)}")
    require(place.parent.is_dir(), "path", str(path), "in a folder that exists")
    require(not place.is_dir(), "path", str(path), "a file, not a folder")
    return place


def render(page: Page, kind: str) -> bytes:
    """A report as a file of this kind has it."""
    if kind == ".json":
        return document(page)
    if kind == ".md":
        from tacit.reports.page.markdown import markdown

        return markdown(page).encode()
    from tacit.reports.page.html import html

    return html(page).encode()


def document(page: Page) -> bytes:
    """Encode a report as JSON; NaN and infinity become null."""
    text = json.dumps(finite(page.document), indent=2, ensure_ascii=False, allow_nan=False)
    # Half a character, which UTF-8 cannot hold, becomes the escape that JSON has for it.
    return (text + "\n").encode(errors="backslashreplace")
