"""Two releases out of one: noise of a known law is split into two that have nothing to do with each other.

With M = T + E, and E' another draw of the law of E, M + g E' and M - E' / g are the truth T with independent
noise: one is learnt from, the other judges. This is known as data fission, or as the coupled bootstrap
(Oliveira, Lei and Tibshirani 2021). Whatever follows from a release that was paid for is free: so there are
many such pairs.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tacit.runtime.keys import Key

Array = NDArray[np.float64]

# g, how much noise is added to learn from: with little of it the judge is noisy, with much of it the learner
# learns less than it will from all there is.
GAIN = 0.7
# How many times the deviation of the noise what is learnt from and what judges have.
LEARNT, JUDGED = math.sqrt(1 + GAIN**2), math.sqrt(1 + 1 / GAIN**2)
PAIRS = 16


def symmetric(size: int, sigma: float, generator: np.random.Generator) -> Array:
    """A symmetric matrix of noise: deviation sigma on the diagonal, sigma / sqrt 2 beside it."""
    square = sigma * generator.standard_normal((size, size))
    return (square + square.T) / 2


def fission(noisy: Array, sigma: float, key: Key, pairs: int = PAIRS) -> Iterator[tuple[Array, Array]]:
    """Pairs of what was let out, with independent noise of `LEARNT` and `JUDGED` times the deviation.

    Args:
        noisy: A symmetric matrix with the noise of `symmetric`.
        sigma: Its deviation.
        key: Names the noise that splits; it protects nobody, and repeats.
        pairs: How many.
    """
    for number in range(pairs):
        other = symmetric(len(noisy), sigma, (key / "fission" / number).generator())
        yield noisy + GAIN * other, noisy - other / GAIN
