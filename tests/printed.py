"""Comparison of printed output with the expected one: same words, and close numbers."""

import math
import re

# A sign belongs to a number only where it begins a word, so that 1e-05 and site-1 stay whole.
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?(?![\w.]*\w)")


def difference(found: str, expected: str, tolerance: float) -> str | None:
    """The first line that differs by more than blanks and the tolerance, relative or in units of 1."""
    ours, theirs = _lines(found), _lines(expected)
    for mine, yours in zip(ours, theirs, strict=False):
        if not _alike(mine, yours, tolerance):
            return f"found    {mine}\nexpected {yours}"
    if len(ours) != len(theirs):
        longer = ours if len(ours) > len(theirs) else theirs
        return f"{len(ours)} lines, not {len(theirs)}: {longer[min(len(ours), len(theirs))]}"
    return None


def _lines(text: str) -> list[str]:
    """Lines that say something, however wide their columns are."""
    lines = (" ".join(re.sub(r"-{3,}", "---", line).split()) for line in text.splitlines())
    return [line for line in lines if line]


def _alike(mine: str, yours: str, tolerance: float) -> bool:
    plain = [NUMBER.sub("#", line).replace("[ ", "[").replace(" ]", "]") for line in (mine, yours)]
    if plain[0] != plain[1]:
        return False
    pairs = zip(_numbers(mine), _numbers(yours), strict=True)
    return all(math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance) for a, b in pairs)


def _numbers(line: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(line)]
