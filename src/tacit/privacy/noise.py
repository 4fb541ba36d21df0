"""Noise from a cryptographic stream, bound to what it protects.

Nobody gets bare noise from here: each function takes the values and returns them noised, and the stream is
keyed by the values too, so no noise is ever used for two different values. It knows scales, not promises:
how much noise is enough is decided in `accounting`.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from tacit.errors import Refused, require, require_positive
from tacit.keys import Key

Array = NDArray[np.float64]

# Sums of doubles and noise have low bits that can give the values away (Mironov 2012). Results are therefore
# rounded to a public grid: a power of two, about 2^-30 of the scale, coarser than those bits.
GRID_BITS = 30


def gaussian(values: Array, scale: float, key: Key) -> Array:
    """The values plus independent normal noise of standard deviation `scale`."""
    signs, tails = _draws(values, scale, key, b"gaussian")
    noise = np.asarray(ndtri(tails / 2), dtype=np.float64)
    noise *= scale * signs
    noise += values
    return _on_grid(noise, scale)


def laplace(values: Array, scale: float, key: Key) -> Array:
    """The values plus independent Laplace noise with density `exp(-|x| / scale) / (2 scale)`."""
    signs, tails = _draws(values, scale, key, b"laplace")
    return _on_grid(values + scale * signs * np.log(tails), scale)


def refuse_undeclared(key: Key, rehearsal: bool) -> None:
    """Refuse draws that repeat where no rehearsal was declared: they would be charged, and protect nobody."""
    if key.rehearsal and not rehearsal:
        raise Refused("a rehearsal key repeats its noise; declare it with rehearsal=True, in Privacy or here")


def _draws(values: Array, scale: float, key: Key, law: bytes) -> tuple[Array, Array]:
    require_positive("scale", scale)
    # Noise hides nothing in a NaN or an infinity: whoever got here without clipping is stopped.
    require(bool(np.isfinite(values).all()), "values", "some that are not finite", "finite, that is, clipped")
    return key.secret(law, values.tobytes(), np.float64(scale).tobytes()).tails(values.shape)


def _on_grid(noised: Array, scale: float) -> Array:
    step = 2.0 ** (math.floor(math.log2(scale)) - GRID_BITS)
    noised /= step
    return np.multiply(np.rint(noised, out=noised), step, out=noised)
