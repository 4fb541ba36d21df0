"""Randomness by name: the same name gives the same draws, independent of the caller and of the order.

A key has two doors. `generator()` is repeatable: splits, initial weights, shuffles. `secret()` is for noise
and private sampling: it is unpredictable without the run's entropy, which comes from the operating system and
never leaves the site. Only a declared rehearsal repeats its secrets, and therefore protects no one.
"""

import hashlib
import hmac
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from threading import Lock
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tacit.errors import require

Part = str | int
WHOLE = (int, np.integer)
# Words of 63 bits below this are continued: below 2^-20 of the whole.
NEAR_ZERO = 2.0**43
# Inputs of more bytes than the first are digested before they are hashed, up to what a digest takes.
LONG, LONGEST = 512, 2**31 - 1
# Bytes enciphered at a time.
ZEROS = 1 << 16


def _fresh_entropy() -> bytes:
    return secrets.token_bytes(32)


@dataclass(frozen=True)
class Key:
    """A name for a source of randomness, extended by `/`: `Key(7) / round / site / "batches"`.

    Args:
        seed: The seed of `generator()`.
        rehearsal: True if `secret()` repeats too; then the noise can be recomputed and protects no one.
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

    def __truediv__(self, part: Part) -> Self:
        plain = part
        if type(part) is not int and type(part) is not str:
            # A number of numpy's names the same thing as a plain one.
            plain = int(part) if isinstance(part, WHOLE) else str(part)
        longer = object.__new__(type(self))
        # A longer name begins with the shorter one, which thousands of keys share; all else is the same, and
        # looked at once.
        longer.__dict__.update(self.__dict__, path=(*self.path, plain), name=self.name + _encode_part(plain))
        return longer

    def generator(self) -> np.random.Generator:
        """A repeatable generator; never for noise that protects someone."""
        digest = hashlib.sha256(b"public" + self.name).digest()
        return np.random.Generator(np.random.PCG64(np.frombuffer(digest, dtype=np.uint32)))

    def secret(self, *inputs: bytes) -> "Secret":
        """Return a stream that is unpredictable without the run's entropy.

        Args:
            inputs: The data to which the draws will be applied. The same name with other inputs gives
                unrelated draws, so that a run resumed on changed data cannot use one noise twice and reveal a
                difference.

        Guarantee:
            Draws are those of SHAKE-128 or, for noise, of AES-256, from HMAC-SHA256(entropy, name, inputs),
            where a long input is its length and a digest of it under a key of the run's own: that any two
            of 2^32 inputs of a million numbers have one digest has a probability of 2^-46. In a rehearsal
            draws depend on seed and name alone.
        """
        if self.rehearsal:
            return Secret(hashlib.sha256(b"rehearsal" + self.name).digest(), b"rehearsal")
        said = b"".join((_prefix(len(inputs)), self.name, *map(_encode_input(self.entropy), inputs)))
        return Secret(_hmac(self.entropy)(said), self.entropy)

    @cached_property
    def name(self) -> bytes:
        """Unique encoding of the whole name in bytes."""
        return b"".join(map(_encode_part, (self.seed, *self.path)))


# Typed: numbers of two types may be equal, and are two names.
@lru_cache(maxsize=4096, typed=True)
def _encode_part(part: Part) -> bytes:
    """Encode a part behind its type and length, so that ("a", "b") and ("ab",) or 1 and "1" differ."""
    word = f"{type(part).__name__}:{part}".encode()
    return len(word).to_bytes(8, "big") + word


class Secret:
    """A stream of draws out of 32 secret bytes; every call continues it.

    Args:
        seed: The seed of the stream.
        run: The entropy that all streams of a run share.
    """

    def __init__(self, seed: bytes, run: bytes = b"") -> None:
        self.run, self._seed = run, seed
        self._drawn, self._blocks = 0, 0

    def words(self, shape: tuple[int, ...]) -> NDArray[np.uint64]:
        """Numbers of 64 random bits, by SHAKE-128."""
        stream = hashlib.shake_128(self._seed + self._drawn.to_bytes(8, "big"))
        self._drawn += 1
        return np.frombuffer(stream.digest(8 * math.prod(shape)), dtype="<u8").reshape(shape)

    def uniform(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Numbers strictly between 0 and 1, on a lattice of 2^-52."""
        numbers = (self.words(shape) >> np.uint64(12)).view(np.int64).astype(np.float64)
        numbers += 0.5
        numbers *= 2.0**-52
        return numbers

    def skip(self, length: int) -> bytes:
        """Reserve `length` bytes of the cipher stream and return their position; see `random_words`.

        Streams are positions in the one sequence of blocks that a run's key makes (counter mode), each as far
        from the others as 128 bits of its seed say: that any two of 2^32 streams of a million numbers meet
        has a probability of 2^-45.
        """
        place = self._seed[:16]
        if self._blocks:
            place = ((int.from_bytes(place, "big") + self._blocks) % 2**128).to_bytes(16, "big")
        self._blocks += -(-length // 16)
        return place


@lru_cache(maxsize=16)
def _hmac(run: bytes) -> Callable[[bytes], bytes]:
    """Return the function that computes HMAC-SHA256 under a run's secret, with its key schedule cached."""
    block = (run if len(run) <= 64 else hashlib.sha256(run).digest()).ljust(64, b"\0")
    inner, outer = (bytes(byte ^ mask for byte in block) for mask in (0x36, 0x5C))
    sha256 = hashlib.sha256
    return lambda said: sha256(outer + sha256(inner + said).digest()).digest()


def _prefix(inputs: int) -> bytes:
    """Return the hash prefix with the number of inputs, so that no name with inputs is another name."""
    return b"secret" + bytes([inputs])


@lru_cache(maxsize=16)
def _encode_input(run: bytes) -> Callable[[bytes], bytes]:
    """Return the encoder of inputs for hashing: the length, and the input or, if long, its 16-byte digest.

    The digest is the polynomial of GCM under a key of this run, three times faster than SHA. Two inputs
    collide with no more than random probability, as long as no digest is seen: it is hashed, with the run's
    entropy, before any use.
    """
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    # The same nonce every time: no tag is ever revealed.
    tagged, nonce = AESGCM(hmac.digest(run, b"inputs", "sha256")).encrypt, bytes(12)

    def encode(part: bytes) -> bytes:
        long = LONG < len(part) <= LONGEST
        return len(part).to_bytes(8, "big") + (tagged(nonce, b"", part) if long else part)

    return encode


@lru_cache(maxsize=16)
def _cipher(run: bytes) -> Callable[[Sequence[bytes], memoryview], None]:
    """Return the function that fills memory with bytes of a run's cipher stream, from several positions."""
    # Not at the top: most of what is done with keys needs none of it.
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES256
    from cryptography.hazmat.primitives.ciphers.modes import CTR

    # To be made ready takes five times as long as to make a thousand numbers, so one is kept.
    sequence = Cipher(AES256(hmac.digest(run, b"noise", "sha256")), CTR(bytes(16))).encryptor()
    alone, nothing = Lock(), memoryview(bytes(ZEROS))

    def fill(places: Sequence[bytes], room: memoryview) -> None:
        size = len(room) // len(places)
        last = nothing[: size % ZEROS]
        with alone:
            for number, place in enumerate(places):
                sequence.reset_nonce(place)
                start, end = number * size, (number + 1) * size
                for _ in range(size // ZEROS):
                    sequence.update_into(nothing, room[start : start + ZEROS])
                    start += ZEROS
                sequence.update_into(last, room[start:end])

    return fill


def bind_rows(keys: Sequence[Key], rows: NDArray[np.float64], *others: bytes) -> list[Secret]:
    """Return `key.secret(row, *others)` of each key and its row; what all share is said once."""
    entropy = keys[0].entropy if keys else b""
    if any(key.rehearsal or key.entropy is not entropy for key in keys):
        return [key.secret(row.tobytes(), *others) for key, row in zip(keys, rows, strict=True)]
    told, hashed = _encode_input(entropy), _hmac(entropy)
    begin, end = _prefix(1 + len(others)), b"".join(map(told, others))
    return [
        Secret(hashed(b"".join((begin, key.name, told(row.tobytes()), end))), entropy)
        for key, row in zip(keys, rows, strict=True)
    ]


def random_words(streams: Sequence[Secret], count: int) -> NDArray[np.uint64]:
    """Draw `count` numbers of 64 random bits from each stream (streams, count), independent of the others.

    By AES, ten times faster than by SHAKE-128: most draws are noise.
    """
    words = np.empty((len(streams), count), dtype="<u8")
    if words.size == 0:
        return words
    run, room = streams[0].run, words.data.cast("B")
    if any(stream.run is not run for stream in streams):
        return np.concatenate([random_words([stream], count) for stream in streams])
    _cipher(run)([stream.skip(8 * count) for stream in streams], room)
    return words


def open_interval(
    words: NDArray[np.uint64], streams: Sequence[Secret], at: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Map the low 63 bits of words to numbers above 0 and at most 2^63, with extra precision near 0.

    The far tails of noise come from numbers near 0. On a coarse lattice they would have holes, and a value
    that can occur for one data set but not for its neighbor gives the difference away.

    Args:
        words: From `random_words` (streams, count).
        streams: Theirs; drawn from once more near 0, one time in a million.
        at: The words to map, as positions in the flat array.
    """
    numbers = (words.take(at) & np.uint64(2**63 - 1)).view(np.int64).astype(np.float64)
    near = numbers < NEAR_ZERO
    numbers += _rests(words, streams, at, near) if np.count_nonzero(near) else 0.5
    return numbers


def _rests(
    words: NDArray[np.uint64], streams: Sequence[Secret], at: NDArray[np.intp], near: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the digits below the lattice of 2^-63: drawn near 0; half a step elsewhere."""
    rests = np.full(len(at), 0.5)
    rows, columns = np.divmod(at, words.shape[1])
    for row in np.unique(rows[near]):
        own = near & (rows == row)
        more = random_words([streams[int(row)]], words.shape[1])[0, columns[own]]
        rests[own] = (more.astype(np.float64) + 0.5) * 2.0**-64
    return rests


def signed_uniform(streams: Sequence[Secret], count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw random signs and numbers strictly between 0 and 1 from each stream (both: streams, count).

    Of the first array only the sign has a meaning, as `np.copysign` reads it. The numbers are as fine near 0
    as those of `open_interval`.
    """
    words = random_words(streams, count)
    numbers = open_interval(words, streams, np.arange(words.size)).reshape(words.shape)
    numbers *= 2.0**-63
    return words.view(np.float64), np.minimum(numbers, 1 - 2.0**-53, out=numbers)
