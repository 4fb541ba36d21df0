"""Keys, signatures, sealed envelopes and masks: the only door to `cryptography`.

Ed25519 signs, X25519 and HKDF-SHA256 agree on keys, ChaCha20-Poly1305 seals, the keystream of ChaCha20 masks.
Every derived key is used for one message or one mask, and its context names session, purpose, sender and
receiver. Whatever must not be foretold comes from the operating system, in rehearsals too: masks cancel, so
that the sum does not depend on them.
"""

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from typing import Literal, Self

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from tacit.aggregation.secure.session import frame_parts
from tacit.errors import SecureAggregationFailed, require

Vector = NDArray[np.uint32]
KEY_BYTES, SIGNATURE_BYTES, TAG_BYTES = 32, 64, 16
# Words that are masked at a time: few enough for the cache.
BLOCK = 2**15
_ZEROS = bytes(4 * BLOCK)
# Signatures that a roster has seen to be right.
REMEMBERED = 1024


def fresh_bytes() -> bytes:
    """A secret of 32 bytes."""
    return secrets.token_bytes(KEY_BYTES)


class Identity:
    """Signing key of a site, which identifies it to the others for good.

    Args:
        secret: 32 bytes, kept by the site and never sent.
    """

    def __init__(self, secret: bytes) -> None:
        require(len(secret) == KEY_BYTES, "secret", f"{len(secret)} bytes", f"{KEY_BYTES} bytes")
        self._secret = secret
        self._key = Ed25519PrivateKey.from_private_bytes(secret)
        self._sworn: dict[bytes, bytes] = {}
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def fresh(cls) -> Self:
        """Return a new identity."""
        return cls(fresh_bytes())

    @property
    def secret(self) -> bytes:
        """The secret, for the site's own safe."""
        return self._secret

    def sign(self, message: bytes) -> bytes:
        """A signature that only this identity can give."""
        return self._key.sign(message)

    def sign_once(self, occasion: bytes, message: bytes) -> bytes:
        """A signature on the only message that is ever signed for the occasion.

        It is remembered as long as this object lives: a site that is started again must not join a round
        again that it had joined before.

        Raises:
            SecureAggregationFailed: Another message was signed for it.
        """
        if self._sworn.setdefault(occasion, message) != message:
            raise SecureAggregationFailed("another set of survivors was signed for this run and round")
        return self.sign(message)


class Roster(Mapping[str, bytes]):
    """The public key of every site, exchanged before and by another way than through the server.

    Args:
        keys: By name; 32 bytes each, all different.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._raw = {name: bytes(key) for name, key in keys.items()}
        for name, key in self._raw.items():
            require(len(key) == KEY_BYTES, f"roster.{name}", f"{len(key)} bytes", f"{KEY_BYTES} bytes")
        different = len(set(self._raw.values())) == len(self._raw)
        require(different, "roster", sorted(self._raw), "sites with different keys")
        self._keys = {name: Ed25519PublicKey.from_public_bytes(key) for name, key in self._raw.items()}
        # In one process all sites ask one roster about the same signatures.
        self._verified: set[bytes] = set()

    @classmethod
    def of(cls, identities: Mapping[str, Identity]) -> Self:
        """The public side of identities."""
        return cls({name: identity.public for name, identity in identities.items()})

    def is_signed_by(self, name: str, signature: bytes, message: bytes) -> bool:
        """Return True if the site of that name has signed the message."""
        asked = hashlib.sha256(frame_parts(name, signature, message)).digest()
        if asked in self._verified:
            return True
        try:
            self._keys[name].verify(signature, message)
        except (InvalidSignature, KeyError):
            return False
        if len(self._verified) >= REMEMBERED:
            self._verified.clear()
        self._verified.add(asked)
        return True

    def __getitem__(self, name: str) -> bytes:
        return self._raw[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)


class KeyExchange:
    """One side of an agreement on secret keys, for one session.

    Args:
        secret: 32 bytes.
    """

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self._key = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._key.public_key().public_bytes_raw()
        self._agreed: dict[bytes, bytes] = {}

    def key(self, other: bytes, context: bytes) -> bytes:
        """Derive the key for the context that the owner of the other public key derives too.

        Raises:
            SecureAggregationFailed: The other key is one of the few that leave no secret.
        """
        if other not in self._agreed:
            try:
                self._agreed[other] = self._key.exchange(X25519PublicKey.from_public_bytes(other))
            except ValueError:
                raise SecureAggregationFailed("a public key leaves no secret") from None
        return derive_key(self._agreed[other], context)


def is_valid_public_key(public: bytes) -> bool:
    """Return True unless the key is one of the few that give the same secret with any other key."""
    try:
        KeyExchange(bytes(KEY_BYTES)).key(public, b"")
    except SecureAggregationFailed:
        return False
    return True


def derive_key(secret: bytes, context: bytes) -> bytes:
    """Derive a key for the context, which discloses nothing about the secret or about other keys."""
    return HKDF(SHA256(), KEY_BYTES, None, context).derive(secret)


def commitment(secret: bytes, context: bytes) -> bytes:
    """Return a commitment of its owner to a random secret of 32 bytes, which stays hidden."""
    return hashlib.sha256(derive_key(secret, context)).digest()


def seal(key: bytes, content: bytes, context: bytes) -> bytes:
    """Seal the content under the key, bound to the context; the key must seal nothing else.

    Guarantee:
        Without the key the content cannot be read, nor content or context changed unnoticed.
    """
    # A key of its own for each envelope makes the nonce a constant.
    return ChaCha20Poly1305(key).encrypt(bytes(12), content, context)


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Open a sealed envelope.

    Raises:
        SecureAggregationFailed: It was sealed by another key, for another context, or was changed.
    """
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), sealed, context)
    except InvalidTag:
        raise SecureAggregationFailed("an envelope was changed, or is not what it claims to be") from None


def mask(vector: Vector, key: bytes, sign: Literal[1, -1]) -> None:
    """Add the mask of a key to the vector, or take it off, modulo 2^32, in place.

    Guarantee:
        Without the key the result is uniform, as far as the keystream of ChaCha20 cannot be told from chance.
    """
    stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()
    buffer = bytearray(min(4 * BLOCK, vector.nbytes))
    words, zeros = np.frombuffer(buffer, dtype="<u4"), memoryview(_ZEROS)
    combine = np.add if sign == 1 else np.subtract
    for start in range(0, len(vector), BLOCK):
        part = vector[start : start + BLOCK]
        stream.update_into(zeros[: part.nbytes], buffer)
        combine(part, words[: len(part)], out=part)
