"""Noise from a cryptographic stream, bound to the protected values.

No function returns noise alone: each takes the values and returns them noised, and the stream is
keyed by the values too, so no noise is ever used for two different values. It knows scales, not promises:
how much noise is enough is decided in `accounting`.
"""

import math
from collections.abc import Sequence

import numpy as np

from tacit.errors import Refused, require, require_positive
from tacit.runtime.arrays import Array
from tacit.runtime.jit import contiguous
from tacit.runtime.keys import Key, Secret, bind_rows, random_words, signed_uniform

# Sums of doubles and noise have low bits that can give the values away (Mironov 2012). Results are therefore
# rounded to a public grid: a power of two, about 2^-30 of the scale, coarser than those bits.
GRID_BITS = 30


def gaussian(values: Array, scale: float, *keys: Key) -> Array:
    """The values plus independent normal noise of standard deviation `scale`.

    Args:
        values: Values to protect.
        scale: Standard deviation of the noise.
        keys: One for all values; or one for each row, whose noise is then what the row would get alone.
    """
    from tacit.privacy.mechanisms.normal import normal

    streams, count = _streams(values, scale, keys, b"gaussian")
    return _add_on_grid(values, scale, normal(random_words(streams, count), streams))


def laplace(values: Array, scale: float, *keys: Key) -> Array:
    """The values plus independent Laplace noise with density `exp(-|x| / scale) / (2 scale)`."""
    signs, numbers = signed_uniform(*_streams(values, scale, keys, b"laplace"))
    np.log(numbers, out=numbers)
    return _add_on_grid(values, scale, -np.copysign(numbers, signs, out=numbers))


def require_rehearsal(key: Key, rehearsal: bool) -> None:
    """Refuse repeatable draws outside a declared rehearsal: they would be charged without protecting."""
    if key.rehearsal and not rehearsal:
        raise Refused("a rehearsal key repeats its noise; declare it with rehearsal=True, in Privacy or here")


def _streams(values: Array, scale: float, keys: Sequence[Key], law: bytes) -> tuple[list[Secret], int]:
    """Return a stream for each key, bound to values, scale and law, and the length of each stream."""
    require_positive("scale", scale)
    # Noise hides nothing in a NaN or an infinity: values that were not clipped are refused.
    finite = np.count_nonzero(np.isfinite(values)) == values.size
    require(finite, "values", "some that are not finite", "finite, that is, clipped")
    assert len(keys) == 1 or len(keys) == len(values), "one key for all values, or one for each row"
    rows, exact = values.reshape(len(keys), -1), np.float64(scale).tobytes()
    return bind_rows(keys, rows, law, exact), rows.shape[1]


def _add_on_grid(values: Array, scale: float, noise: Array) -> Array:
    """Return the values plus noise of scale 1, on the grid; `noise` is used up."""
    from tacit.privacy.mechanisms.normal import scale_to_grid

    step = 2.0 ** (math.floor(math.log2(scale)) - GRID_BITS)
    scale_to_grid(noise.reshape(-1), contiguous(values).reshape(-1), scale, step)
    return noise.reshape(values.shape)
