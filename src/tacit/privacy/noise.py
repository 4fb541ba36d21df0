"""Noise from a cryptographic stream, bound to what it protects.

Nobody gets bare noise from here: each function takes the values and returns them noised, and the stream is
keyed by the values too, so no noise is ever used for two different values. It knows scales, not promises:
how much noise is enough is decided in `accounting`.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit.errors import Refused, require, require_positive
from tacit.keys import Key, tails

Array = NDArray[np.float64]

# Sums of doubles and noise have low bits that can give the values away (Mironov 2012). Results are therefore
# rounded to a public grid: a power of two, about 2^-30 of the scale, coarser than those bits.
GRID_BITS = 30


def gaussian(values: Array, scale: float, *keys: Key) -> Array:
    """The values plus independent normal noise of standard deviation `scale`.

    Args:
        values: What to protect.
        scale: How much noise.
        keys: One for all values; or one for each row, whose noise is then what the row would get alone.
    """
    signs, tails = _draws(values, scale, keys, b"gaussian")
    tails /= 2
    return _protected(values, scale, signs, np.asarray(ndtri(tails, out=tails), dtype=np.float64))


def laplace(values: Array, scale: float, *keys: Key) -> Array:
    """The values plus independent Laplace noise with density `exp(-|x| / scale) / (2 scale)`."""
    signs, tails = _draws(values, scale, keys, b"laplace")
    return _protected(values, scale, signs, np.log(tails, out=tails))


def refuse_undeclared(key: Key, rehearsal: bool) -> None:
    """Refuse draws that repeat where no rehearsal was declared: they would be charged, and protect nobody."""
    if key.rehearsal and not rehearsal:
        raise Refused("a rehearsal key repeats its noise; declare it with rehearsal=True, in Privacy or here")


def _draws(values: Array, scale: float, keys: Sequence[Key], law: bytes) -> tuple[Array, Array]:
    require_positive("scale", scale)
    # Noise hides nothing in a NaN or an infinity: whoever got here without clipping is stopped.
    finite = np.count_nonzero(np.isfinite(values)) == values.size
    require(finite, "values", "some that are not finite", "finite, that is, clipped")
    assert len(keys) == 1 or len(keys) == len(values), "one key for all values, or one for each row"
    rows, exact = values.reshape(len(keys), -1), np.float64(scale).tobytes()
    streams = [key.secret(law, row.tobytes(), exact) for key, row in zip(keys, rows, strict=True)]
    return tails(streams, rows.shape[1])


def _protected(values: Array, scale: float, signs: Array, noise: Array) -> Array:
    """The values plus noise of scale 1, each with a sign of its own, on the grid; `noise` is used up."""
    noise *= scale
    noised = np.copysign(noise, signs, out=noise).reshape(values.shape)
    np.subtract(values, noised, out=noised)
    step = 2.0 ** (math.floor(math.log2(scale)) - GRID_BITS)
    noised /= step
    return np.multiply(np.rint(noised, out=noised), step, out=noised)
