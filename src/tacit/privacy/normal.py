"""Normal draws out of random words: the inverse of the normal distribution, as a polynomial for each piece.

Of a word of 64 bits the highest is the sign, the next twelve choose a piece of the distribution, and the
others are the place in it. On a piece, a polynomial of degree 4 is as near to the inverse as double precision
lets it be: 2e-15, about what scipy's own is. All that is done with a word is to look up, to multiply and to
add, so that a number does not depend on those beside it. The outermost sixteenth is too steep for that and
left to scipy.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit.keys import Secret, fine

Array = NDArray[np.float64]
Words = NDArray[np.uint64]

DEGREE, PIECES, STEEP = 4, 2**12, 2**8
# The bits that say where in a piece, and those of a 1 that has them as its fraction: from 1 to 1.5.
PLACE, ONE = np.uint64(2**51 - 1), np.uint64(0x3FF << 52)
# So many at a time stay in the cache.
BLOCK = 1 << 13


def normal(words: Words, streams: Sequence[Secret]) -> Array:
    """A standard normal number for each word (streams, count), by `tacit.keys.flooded` from these streams."""
    flat, found = words.reshape(-1), np.empty(words.size)
    for start in range(0, len(flat), BLOCK):
        _inverse(flat[start : start + BLOCK], found[start : start + BLOCK])
    steep = np.flatnonzero(np.isnan(found))
    # Half of what lies between 0 and 1: there the inverse is negative, and so is a number without a sign.
    far = fine(words, streams, steep)
    far *= 2.0**-64
    ndtri(far, out=far)
    found[steep] = -np.copysign(far, flat.take(steep).view(np.float64))
    return found.reshape(words.shape)


def _inverse(words: Words, found: Array) -> None:
    """Write the inverse at each word to `found`; NaN where it is steep."""
    pieces, room = (words >> np.uint64(51)).view(np.int64), np.empty(len(words))
    places = ((words & PLACE) | ONE).view(np.float64)
    highest, *lower = _table()
    # Every index is inside; "clip" is what spares numpy a copy.
    highest.take(pieces, out=found, mode="clip")
    for coefficients in lower:
        found *= places
        found += coefficients.take(pieces, out=room, mode="clip")


@lru_cache(maxsize=1)
def _table() -> Array:
    """The coefficients of all pieces (degrees from the highest, pieces of both signs)."""
    nodes = np.cos(np.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1))
    values = ndtri((np.arange(PIECES)[:, None] + (nodes + 1) / 2) / (2 * PIECES))
    around = np.linalg.solve(np.vander(nodes, increasing=True), values.T)
    # From -1 to 1 and from 1 to 1.5 are the same piece: a node is 4 times the place, less 5.
    powers = [
        np.pad(polynomial.polypow([-5.0, 4.0], power), (0, DEGREE - power)) for power in range(DEGREE + 1)
    ]
    one_sign = np.array(powers).T @ around
    one_sign[:, :STEEP] = np.nan
    table = np.hstack([one_sign, -one_sign])[::-1].copy()
    table.flags.writeable = False
    return table
