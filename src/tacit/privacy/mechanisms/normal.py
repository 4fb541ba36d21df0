"""Normal draws out of random words: the inverse of the normal distribution, as a polynomial for each piece.

Of a word of 64 bits the highest is the sign, the next twelve choose a piece of the distribution, and the
others are the place in it. On a piece, a polynomial of degree 4 is as near to the inverse as double precision
lets it be: 2e-15, about what scipy's own is. The outermost sixteenth is too steep for that: it has as many
pieces of its own, chosen by the twelve bits after the next four, and so has its outermost sixteenth, four
times. All that is done with a word is to look up, to multiply and to add, so that a number does not depend on
those beside it. What lies beyond, one in a million, is left to scipy.

Loading this loads numba: import it only to draw noise.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit.runtime.arrays import Array
from tacit.runtime.jit import compiled
from tacit.runtime.keys import Secret, open_interval

Words = NDArray[np.uint64]

DEGREE, PIECES, STEEP, LEVELS = 4, 2**12, 2**8, 5
# A word without its lowest bits is its sign and its piece; the others are the place there.
PIECE, SIGN, REST = np.uint64(51), np.uint64(63), np.uint64(2**63 - 1)
PLACE, UNIT, ONE, FOUR = np.uint64(2**51 - 1), 2.0**-52, np.uint64(1), np.uint64(4)
# Below the first the next level begins; below the last there is none.
EDGE, FAR = np.uint64(2**59), np.uint64(2 ** (63 - 4 * LEVELS))


def normal(words: Words, streams: Sequence[Secret]) -> Array:
    """A standard normal number for each word (streams, count), by `keys.random_words` from these streams."""
    flat, found = words.reshape(-1), np.empty(words.size)
    if _invert(flat, _table(), found):
        far = np.flatnonzero((flat & REST) < FAR)
        # Half of the numbers between 0 and 1: there the inverse is negative, as is a number without a sign.
        found[far] = -np.copysign(
            ndtri(open_interval(words, streams, far) * 2.0**-64), flat[far].view(np.float64)
        )
    return found.reshape(words.shape)


@compiled
def scale_to_grid(noise: Array, values: Array, scale: float, step: float) -> None:
    """Turn noise of scale 1 into the values plus noise of this scale, in multiples of a power of two."""
    for place in range(len(noise)):
        noise[place] = np.rint((noise[place] * scale + values[place]) / step) * step


@compiled
def _invert(words: Words, table: Array, found: Array) -> int:
    """Write the normal quantile at each word, except beyond all pieces; return the number of words beyond."""
    beyond = 0
    for place in range(len(words)):
        word, first = words[place] & REST, 0
        if word < EDGE:
            if word < FAR:
                beyond += 1
                continue
            # The middle of the interval of 63 bits; on the first level, it is less than a rounding.
            middle = ONE
            while word < EDGE:
                word, middle, first = word << FOUR, middle << FOUR, first + PIECES
            word += middle >> ONE
        at, row = 1.0 + np.int64(word & PLACE) * UNIT, (first + np.int64(word >> PIECE)) * (DEGREE + 1)
        number = (table[row] * at + table[row + 1]) * at + table[row + 2]
        number = (number * at + table[row + 3]) * at + table[row + 4]
        found[place] = number * (1.0 - 2.0 * np.int64(words[place] >> SIGN))
    return beyond


@lru_cache(maxsize=1)
def _table() -> Array:
    """Return the coefficients of all pieces, level by level, piece by piece, from the highest degree down."""
    nodes = np.cos(np.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1))
    shares = (np.arange(PIECES)[:, None] + (nodes + 1) / 2) / (2 * PIECES)
    values = ndtri(shares * 16.0 ** -np.arange(LEVELS)[:, None, None])
    around = values @ np.linalg.inv(np.vander(nodes, increasing=True)).T
    # From -1 to 1 and from 1 to 1.5 are the same piece: a node is 4 times the place, less 5.
    powers = [
        np.pad(polynomial.polypow([-5.0, 4.0], power), (0, DEGREE - power)) for power in range(DEGREE + 1)
    ]
    return (around @ np.array(powers))[:, :, ::-1].ravel()
