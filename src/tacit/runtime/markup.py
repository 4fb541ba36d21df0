"""Short HTML of words and numbers, for the output of notebook cells.

It lies below everything that has something to show. Words are escaped here, and nowhere else has to be.
"""

import html
import unicodedata
from collections.abc import Iterable

LEFT = ' style="text-align:left;vertical-align:top"'
# Breaks that words may have, and what letters and pictures are joined by.
USUAL = "\n\t\u200c\u200d"
UNFIT = ("Cc", "Cf", "Cs", "Zl", "Zp")


def words(text: str) -> str:
    """Escape text for HTML; invisible and bidirectional control characters are replaced by a mark."""
    seen = (
        char if char in USUAL or unicodedata.category(char) not in UNFIT else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )
    return html.escape("".join(seen), quote=True)


def facts(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Things with their names, under a title."""
    told = "".join(
        f"<tr><th{LEFT} scope=row>{words(name)}</th><td{LEFT}>{words(text)}</td></tr>" for name, text in rows
    )
    return f"<div><p><strong>{words(title)}</strong></p><table><tbody>{told}</tbody></table></div>"
