"""Messages of secure aggregation, as bytes: MessagePack rows with a name, the session and little else.

Sites send `Offer`, `Shares`, `Masked`, `Confirmation` and `Revealed`; the server answers with `Offers`,
`Envelopes`, `Survivors` and `Confirmations`. The session gives the largest size of a message; larger ones are
not read.
"""

from typing import Annotated, ClassVar, TypeVar

import msgspec

from tacit.aggregation.secure.sealing import KEY_BYTES, SIGNATURE_BYTES, TAG_BYTES, Session
from tacit.aggregation.secure.shamir import SHARE_BYTES
from tacit.errors import SecureAggregationFailed
from tacit.runtime import files

SEALED_BYTES = 2 * SHARE_BYTES + TAG_BYTES
# Headers, the session and the like, generously; and the header of one entry.
FRAME, ENTRY = 512, 16

Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
PublicKey = Annotated[bytes, msgspec.Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
Signature = Annotated[bytes, msgspec.Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]
Sealed = Annotated[bytes, msgspec.Meta(min_length=SEALED_BYTES, max_length=SEALED_BYTES)]
Share = Annotated[bytes, msgspec.Meta(min_length=SHARE_BYTES, max_length=SHARE_BYTES)]


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """Anything that is sent.

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
    """The most bytes that a message of the kind can have."""
    names = sum(len(name.encode()) + kind.each for name in session.names)
    return FRAME + names + (4 * session.width if kind is Masked else 0)


def decode_message(message: object, kind: type[Kind], session: Session) -> Kind:
    """The bytes as a message of the kind.

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
