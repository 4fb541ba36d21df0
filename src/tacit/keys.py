"""Randomness by name: the same name gives the same draws, whoever asks and in whatever order.

A key has two doors. `generator()` is repeatable: splits, initial weights, shuffles. `secret()` is for noise
and private sampling: it cannot be foretold without the run's entropy, which comes from the operating system
and never leaves the site. Only a declared rehearsal repeats its secrets, and therefore protects nobody.
"""

import hashlib
import hmac
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.errors import require

Part = str | int
WHOLE = (int, np.integer)
# Words of 63 bits below this are continued: below 2^-20 of the whole.
NEAR_ZERO = 2.0**43


def _fresh_entropy() -> bytes:
    return secrets.token_bytes(32)


@dataclass(frozen=True)
class Key:
    """A name for a source of randomness, extended by `/`: `Key(7) / round / site / "batches"`.

    Args:
        seed: What `generator()` repeats.
        rehearsal: Whether `secret()` repeats too; then the noise can be recomputed and protects nobody.
        entropy: The run's secret (32 bytes); drawn from the operating system unless a run is resumed.
        path: The name so far.
    """

    seed: int
    rehearsal: bool = False
    entropy: bytes = field(default_factory=_fresh_entropy, repr=False, compare=False)
    path: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        if len(self.entropy) < 32:
            require(False, "entropy", f"{len(self.entropy)} bytes", "at least 32 bytes")

    def __truediv__(self, part: Part) -> "Key":
        # A number of numpy's names the same thing as a plain one.
        plain = int(part) if isinstance(part, WHOLE) else str(part)
        longer = Key(self.seed, self.rehearsal, self.entropy, (*self.path, plain))
        # A longer name begins with the shorter one, which thousands of keys share.
        longer.__dict__["_name"] = self._name + _marked(plain)
        return longer

    def generator(self) -> np.random.Generator:
        """A repeatable generator; never for noise that protects someone."""
        digest = hashlib.sha256(b"public" + self._name).digest()
        return np.random.Generator(np.random.PCG64(np.frombuffer(digest, dtype=np.uint32)))

    def secret(self, *inputs: bytes) -> "Secret":
        """A stream that nobody without the run's entropy can foretell.

        Args:
            inputs: What the draws will be applied to. The same name with other inputs gives unrelated draws,
                so that a run resumed on changed data cannot use one noise twice and reveal a difference.

        Guarantee:
            Draws are the output of SHAKE-128 under HMAC-SHA256(entropy, name, inputs); in a rehearsal they
            depend on seed and name alone.
        """
        if self.rehearsal:
            return Secret(hashlib.sha256(b"rehearsal" + self._name).digest())
        digest = hashlib.sha256()
        for part in inputs:
            digest.update(len(part).to_bytes(8, "big") + part)
        return Secret(hmac.digest(self.entropy, b"secret" + self._name + digest.digest(), "sha256"))

    @cached_property
    def _name(self) -> bytes:
        return b"".join(map(_marked, (self.seed, *self.path)))


def _marked(part: Part) -> bytes:
    """A part with type and length in front, so that ("a", "b") and ("ab",) or 1 and "1" differ."""
    word = f"{type(part).__name__}:{part}".encode()
    return len(word).to_bytes(8, "big") + word


class Secret:
    """A stream of unpredictable draws; two draws from one stream never overlap."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._drawn = 0

    def block(self, length: int) -> bytes:
        """So many random bytes."""
        stream = hashlib.shake_128(self._seed + self._drawn.to_bytes(8, "big"))
        self._drawn += 1
        return stream.digest(length)

    def words(self, shape: tuple[int, ...]) -> NDArray[np.uint64]:
        """Numbers of 64 random bits."""
        return _words([self], math.prod(shape)).reshape(shape)

    def uniform(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Numbers strictly between 0 and 1, on a lattice of 2^-52."""
        return ((self.words(shape) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def tails(streams: Sequence[Secret], count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """From each stream so many random signs and numbers that are fine near 0; both (streams, count).

    Of the first array nothing means anything but the sign, as `np.copysign` reads it. The numbers are
    strictly between 0 and 1, on a lattice of 2^-127: the far tails of noise come from numbers near 0. On a
    coarse lattice they would have holes, and a value that can occur for one data set but not for its
    neighbour gives the difference away. Each row is what its stream gives alone.
    """
    words = _words(streams, count)
    # The highest bit is the sign, the others are the number.
    numbers = (words & np.uint64(2**63 - 1)).view(np.int64).astype(np.float64)
    near = numbers < NEAR_ZERO
    numbers += _rests(streams, near) if np.count_nonzero(near) else 0.5
    numbers *= 2.0**-63
    return words.view(np.float64), np.minimum(numbers, 1 - 2.0**-53, out=numbers)


def _rests(streams: Sequence[Secret], near: NDArray[np.bool_]) -> NDArray[np.float64]:
    """What follows the lattice of 2^-63: drawn too near 0, one time in a million; half a step elsewhere."""
    rests = np.full(near.shape, 0.5)
    for row in np.flatnonzero(near.any(axis=1)).tolist():
        fine = _words([streams[row]], near.shape[1])[0, near[row]]
        rests[row, near[row]] = (fine.astype(np.float64) + 0.5) * 2.0**-64
    return rests


def _words(streams: Sequence[Secret], count: int) -> NDArray[np.uint64]:
    block = b"".join([stream.block(8 * count) for stream in streams])
    return np.frombuffer(block, dtype="<u8").reshape(len(streams), count)
