"""Neighbours that rounding tells apart: many alike records at an edge of an answer, and one more.

Where an answer jumps, as at a rectifier whose input cancels to 0, the last bit of a sum decides on which side
a record is. If that bit depends on how many records there are, one record more turns all of them at once.
"""

from collections.abc import Callable, Iterator

import numpy as np

from tacit.audits.sensitivity.neighbours import Array, Domain

# How many alike records: libraries change their kernels at some of these numbers.
COPIES = (2, 3, 12, 24, 37)
# By what features are multiplied: the larger they are, the more the last bit of a cancelling sum weighs.
SIZES = (1.0, 1e8, 1e15, 1e17)
# As often is the way between two records cut in half: then they are neighbouring numbers.
HALVINGS = 64
# So many records are drawn until one is on the other side of an edge.
DRAWN = 8
# Where records are put, in steps from one side of the edge to the other: rounding reaches a bit beyond both.
STEPS = (-2, 0, 1, 3)
# A jump is at least this share of the answers beside it.
JUMP = 1e-3


def edge_records(
    answer: Callable[[Array], Array], domain: Domain, tries: int, draw: np.random.Generator
) -> Iterator[Array]:
    """Yield records (records, columns), all alike but for the last one, that lie at an edge of an answer.

    Args:
        answer: What is let out of some records.
        domain: What records may be.
        tries: How many edges to look for.
        draw: What to draw from.
    """
    for _ in range(tries):
        low, high = _ends(answer, domain, draw)
        below, above = answer(low[None]), answer(high[None])
        for _ in range(HALVINGS):
            middle = _within(domain, (low + high) / 2, low)
            between = answer(middle[None])
            if _relative_distance(below, between) >= _relative_distance(between, above):
                high, above = middle, between
            else:
                low, below = middle, between
        if _relative_distance(below, above) == 0:
            continue
        # Zeros, where they are allowed, are as far from an edge as anything.
        last = _within(domain, np.zeros_like(low), low)
        for step in STEPS:
            row = _within(domain, low + step * (high - low), low)
            for copies in COPIES:
                yield np.vstack([np.repeat(row[None], copies, axis=0), last])


def _ends(answer: Callable[[Array], Array], domain: Domain, draw: np.random.Generator) -> tuple[Array, Array]:
    """Two records whose answers differ, if such are found soon: there is an edge between them."""
    low = _record(domain, draw)
    high = _record(domain, draw)
    for _ in range(DRAWN):
        if _relative_distance(answer(low[None]), answer(high[None])) > 0:
            break
        high = _record(domain, draw)
    return low, high


def _record(domain: Domain, draw: np.random.Generator) -> Array:
    """A record of the pool, its free columns larger or smaller."""
    row = domain.pool[int(draw.integers(len(domain.pool)))]
    moved = row * float(draw.choice(SIZES)) * draw.normal(size=len(row))
    return _within(domain, moved, row)


def _within(domain: Domain, row: Array, known: Array) -> Array:
    """A record as the domain allows it; columns that hold nothing but known values keep theirs."""
    return np.where(domain.kept, known, np.clip(row, domain.low, domain.high))


def _relative_distance(one: Array, other: Array) -> float:
    """How far two answers are apart, as a share of them; nothing where that is not worth a jump."""
    with np.errstate(all="ignore"):
        size = max(float(np.abs(one).max(initial=0.0)), float(np.abs(other).max(initial=0.0)))
        far = float(np.abs(one - other).max(initial=0.0))
    return far / size if np.isfinite(far) and far > JUMP * size > 0 else 0.0
