"""Products of matrices of whole numbers modulo 2^32, and the random numbers that hide their factors.

A dealer draws U, V and Z for two parties (Beaver 1991): the first gets U and Z, the second V and U'V - Z. The
first shows X - U and the second Y - V, which tells nothing about X or Y; each can then work out a matrix of
its own, and the two add up to X'Y.
"""

import numpy as np
from numpy.typing import NDArray

from tacit.aggregation.secure.sealing import derive_key, mask

Matrix = NDArray[np.uint32]

# Rows that are multiplied at a time: sums of this many products of 16 bits stay far below 2^53.
ROWS = 2**16


def expand_seed(seed: bytes, context: bytes, shape: tuple[int, int]) -> Matrix:
    """Expand a seed to its random matrix.

    Guarantee:
        Without the seed it is uniform, as far as the keystream of ChaCha20 cannot be told from chance.
    """
    words = np.zeros(shape[0] * shape[1], dtype=np.uint32)
    mask(words, derive_key(seed, context), 1)
    return words.reshape(shape)


def product(left: Matrix, right: Matrix) -> Matrix:
    """The sums over rows of products of columns, modulo 2^32 (columns of the left, of the right)."""
    total = np.zeros((left.shape[1], right.shape[1]), dtype=np.uint64)
    for start in range(0, len(left), ROWS):
        # Whole numbers in halves of 16 bits: products in doubles are exact, and many times faster.
        low, high = _halves(left[start : start + ROWS])
        lower, higher = _halves(right[start : start + ROWS])
        total += (low.T @ lower).astype(np.uint64)
        total += (low.T @ higher + high.T @ lower).astype(np.uint64) << np.uint64(16)
    return total.astype(np.uint32)


def encode_matrix(matrix: Matrix) -> bytes:
    """As bytes, lowest first, row by row."""
    return matrix.astype("<u4", copy=False).tobytes()


def decode_matrix(content: bytes, shape: tuple[int, int]) -> Matrix:
    """Back from bytes, of which there must be as many as the shape needs."""
    return np.frombuffer(content, dtype="<u4").astype(np.uint32).reshape(shape)


def _halves(matrix: Matrix) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return (matrix & np.uint32(0xFFFF)).astype(np.float64), (matrix >> np.uint32(16)).astype(np.float64)
