"""Sessions, keys, signatures, sealed envelopes and masks: the only door to `cryptography`.

A session is what all parties know before a secure sum starts: who takes part, when, how wide, how many must
stay. It is public. Its digest goes into every key, signature and envelope, so that nothing sent in one
session means anything in another.

Ed25519 signs, X25519 and HKDF-SHA256 agree on keys, ChaCha20-Poly1305 seals, the keystream of ChaCha20 masks.
Every derived key is used for one message or one mask, and its context names session, purpose, sender and
receiver. Whatever must not be foretold comes from the operating system, in rehearsals too: masks cancel, so
that the sum does not depend on them.

Messages are bytes: MessagePack rows with a name, the session and little else. Sites send `Offer`, `Shares`,
`Masked`, `Confirmation` and `Revealed`; the server answers with `Offers`, `Envelopes`, `Survivors` and
`Confirmations`. The session gives the largest size of a message; larger ones are not read.
"""

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self, TypeVar

import msgspec
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

from tacit.aggregation.secure.shamir import SHARE_BYTES
from tacit.errors import SecureAggregationFailed, require, require_count
from tacit.privacy.mechanisms.secure_sum import FEWEST, MOST, honest, threshold
from tacit.runtime import files

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
        """Return the secret key, to be stored by the site."""
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
                raise SecureAggregationFailed(
                    "a public key is weak: the shared secret would be public"
                ) from None
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
        raise SecureAggregationFailed("an envelope was changed or forged") from None


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


Stage = Literal["offer", "share", "mask", "agree", "reveal"]
STAGES: tuple[Stage, ...] = ("offer", "share", "mask", "agree", "reveal")
# A gibibyte of masked numbers from each site.
WIDEST = 2**28
LONGEST_NAME = 200
# Changes whenever the bytes of a message or the meaning of a key do.
FORMAT = "tacit secure sum 1"


@dataclass(frozen=True, kw_only=True)
class Session:
    """Session of one secure sum.

    Args:
        run: The run that it belongs to, and the name of the sum, if a round has several.
        round: Its round; a site agrees to one sum for a run and round, even if it fails.
        names: The sites; they are sorted.
        width: Coordinates of a vector.
        colluders: Number of sites that may work together with the server.
        least: Number of sites that must stay to the end; by default more than two thirds.

    Guarantee:
        With at most `colluders` sites on its side a server learns the sum of at least `honest` vectors of
        honest sites, once, or nothing, even if it says different things to different sites.

    Raises:
        Refused: This many colluders could unmask a site.
    """

    run: str
    round: int
    names: tuple[str, ...]
    width: int
    colluders: int = 1
    least: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(sorted(self.names)))
        require(_is_name(self.run), "run", self.run, f"1 to {LONGEST_NAME} printable characters")
        require(_is_whole(self.round, 0, 2**63), "round", self.round, "a whole number of at least 0")
        require(_is_whole(self.width, 1, WIDEST), "width", self.width, f"from 1 to {WIDEST:,}")
        require_count("colluders", self.colluders)
        count = len(self.names)
        allowed = f"{FEWEST} to {MOST} sites: two would know each other's vector, more are too slow"
        require(FEWEST <= count <= MOST, "names", f"{count} sites", allowed)
        require(len(set(self.names)) == count, "names", self.names, "different")
        for name in self.names:
            require(_is_name(name), "names", name, f"1 to {LONGEST_NAME} printable characters each")
        whole = self.least is None or _is_whole(self.least, 2, count)
        require(whole, "least", self.least, f"from 2 to the number of sites, {count}, or left out")
        honest(count, self.colluders, self.least)

    @property
    def threshold(self) -> int:
        """Number of sites that must stay to the end."""
        return threshold(len(self.names)) if self.least is None else self.least

    @property
    def honest(self) -> int:
        """Smallest number of honest vectors in any sum that is revealed."""
        return honest(len(self.names), self.colluders, self.least)

    @cached_property
    def points(self) -> dict[str, int]:
        """Point of each site's shares: its place among the names, from 1; at 0 is the secret."""
        return {name: place for place, name in enumerate(self.names, start=1)}

    @cached_property
    def digest(self) -> bytes:
        """Digest of all parameters, in 32 bytes."""
        numbers = (self.round, self.threshold, self.width, self.colluders)
        return hashlib.sha256(frame_parts(FORMAT, self.run, *map(str, numbers), *self.names)).digest()

    def context(self, purpose: str, *parts: str | bytes) -> bytes:
        """Return the context that binds a key, a signature or an envelope to this session."""
        return frame_parts(FORMAT, self.digest, purpose, *parts)

    def between(self, one: str, other: str) -> bytes:
        """Return the context of a pair's mask, the same for both."""
        return self.context("mask", *sorted((one, other)))

    def agreement(self, survivors: Iterable[str]) -> bytes:
        """Return the bytes that a site signs to agree to the set of survivors."""
        return self.context("survivors", *sorted(survivors))


def mask_sign(name: str, other: str) -> Literal[1, -1]:
    """Return the sign of a site's mask with another: one of the two adds, the other subtracts."""
    return 1 if name < other else -1


def frame_parts(*parts: str | bytes) -> bytes:
    """Concatenate the parts, each behind its length, so that no two lists have the same bytes."""
    raw = [part.encode() if isinstance(part, str) else part for part in parts]
    return b"".join(len(part).to_bytes(4, "big") + part for part in raw)


def _is_name(given: object) -> bool:
    return isinstance(given, str) and 0 < len(given) <= LONGEST_NAME and given.isprintable()


def _is_whole(given: object, low: int, high: int) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and low <= given <= high


SEALED_BYTES = 2 * SHARE_BYTES + TAG_BYTES
# Headers, the session and the like, generously; and the header of one entry.
FRAME, ENTRY = 512, 16

Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
PublicKey = Annotated[bytes, msgspec.Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
Signature = Annotated[bytes, msgspec.Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
Sealed = Annotated[bytes, msgspec.Meta(min_length=SEALED_BYTES, max_length=SEALED_BYTES)]
Share = Annotated[bytes, msgspec.Meta(min_length=SHARE_BYTES, max_length=SHARE_BYTES)]


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """Base of the messages of the protocol.

    Args:
        session: The digest of the session that it belongs to.
    """

    session: Digest
    # The most bytes for each site besides its name.
    each: ClassVar[int] = ENTRY

    def encode(self) -> bytes:
        """Encode the message as bytes."""
        return msgspec.msgpack.encode(self)


class SiteMessage(Message, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """Message of a site to the server.

    Args:
        site: Its sender.
    """

    site: str


class Offer(SiteMessage, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, tag="offer"):
    """A site's public keys for this session.

    Args:
        seal: The key that envelopes for the site are sealed with.
        mask: The key that masks between pairs come from.
        seed: Commitment of the site to the seed of its own mask.
        signature: The site's, on all of it.
    """

    seal: PublicKey
    mask: PublicKey
    seed: Digest
    signature: Signature

    def signature_content(self, session: Session) -> bytes:
        """Return the bytes to sign."""
        return session.context("offer", self.site, self.seal, self.mask, self.seed)


class Shares(
    SiteMessage, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, tag="shares"
):
    """Shares of a site's secrets, in an envelope for each of the others."""

    sealed: dict[str, Sealed]
    each: ClassVar[int] = ENTRY + SEALED_BYTES


class Masked(
    SiteMessage, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, tag="masked"
):
    """A site's vector under its masks: whole numbers of 32 bits, lowest byte first."""

    vector: memoryview


class Confirmation(
    SiteMessage, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, tag="agreement"
):
    """A site's signature on the set of survivors."""

    signature: Signature


class Revealed(
    SiteMessage, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, tag="revealed"
):
    """One share for each site: of the seed of a survivor, of the mask key of one that dropped out."""

    shares: dict[str, Share]
    each: ClassVar[int] = ENTRY + SHARE_BYTES


class Offers(Message, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, tag="offers"):
    """Public keys of all sites."""

    offers: list[Offer]
    each: ClassVar[int] = 8 * ENTRY + 32 + 2 * KEY_BYTES + 32 + SIGNATURE_BYTES


class Envelopes(
    Message, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, tag="envelopes"
):
    """The envelopes that the others have sealed for one site."""

    sealed: dict[str, Sealed]
    each: ClassVar[int] = ENTRY + SEALED_BYTES


class Survivors(
    Message, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, tag="survivors"
):
    """The sites whose vectors are in the sum."""

    names: list[str]


class Confirmations(
    Message, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, tag="agreements"
):
    """Signatures of the set of survivors."""

    signatures: dict[str, Signature]
    each: ClassVar[int] = ENTRY + SIGNATURE_BYTES


Kind = TypeVar("Kind", bound=Message)


def room(kind: type[Message], session: Session) -> int:
    """Return the largest size of a message of a kind, in bytes."""
    names = sum(len(name.encode()) + kind.each for name in session.names)
    return FRAME + names + (4 * session.width if kind is Masked else 0)


def decode_message(message: object, kind: type[Kind], session: Session) -> Kind:
    """Decode a message of a kind from bytes.

    Raises:
        SecureAggregationFailed: They are too many, or are no such message.
    """
    word = kind.__name__.lower()
    if not isinstance(message, bytes):
        raise SecureAggregationFailed(f"{word} came as {type(message).__name__} instead of bytes")
    size = len(message)
    if size > room(kind, session):
        raise SecureAggregationFailed(
            f"{word} came as {size:,} bytes, and has at most {room(kind, session):,}"
        )
    try:
        return msgspec.msgpack.decode(message, type=kind)
    except files.DAMAGED as error:
        raise SecureAggregationFailed(f"{word} came as bytes that cannot be read: {error}") from None
