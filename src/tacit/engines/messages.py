"""Signed messages between a coordinator and its sites.

A message is plain data and arrays, never code. Opening one verifies its sender, its recipient, and the
message that it answers: altered, misdirected and replayed messages are rejected.
"""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from tacit.errors import TacitError
from tacit.learning.record import Reason
from tacit.runtime import files
from tacit.runtime.arrays import Array
from tacit.sites.names import COORDINATOR as COORDINATOR

if TYPE_CHECKING:
    from tacit.aggregation.secure.sealing import Identity, Roster

# Changes whenever the meaning of a letter does: sites and coordinators of two formats do not talk.
FORMAT = "tacit letter 1"


class Unreadable(TacitError):
    """A message that does not have the claimed form."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason: Reason = reason


@dataclass(frozen=True)
class NoReply:
    """Reason that a site sent no usable reply."""

    reason: Reason
    detail: str


class Transport(Protocol):
    """Protocol of a transport: carries bytes to sites and back."""

    def __call__(self, sent: Mapping[str, bytes], seconds: float) -> dict[str, bytes | NoReply]:
        """Return each site's answer, or the reason that it has none, within the timeout."""
        ...


class SignedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Content of a signed message.

    Args:
        format: The version of the message format.
        writer: The sender.
        reader: The recipient; empty for any.
        about: The kind of request or answer.
        content: Plain data.
        numbers: Arrays, as the bytes of a safetensors file.
        answers: The digest of the message that this one answers.
        nonce: Random bytes that make every message unique.
    """

    format: str = FORMAT
    writer: str
    reader: str
    about: str
    content: dict[str, Any] = {}
    numbers: bytes = b""
    answers: bytes = b""
    nonce: bytes = msgspec.field(default_factory=lambda: secrets.token_bytes(16))

    @property
    def arrays(self) -> "dict[str, Array]":
        """The arrays in it."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            return load(self.numbers) if self.numbers else {}
        except (SafetensorError, KeyError, ValueError) as error:
            raise Unreadable("schema", f"its arrays cannot be read ({error})") from error

    @property
    def request_digest(self) -> str:
        """Digest of the request without its nonce, so that a retry is recognized."""
        told = (self.format, self.writer, self.reader, self.about, self.content, self.numbers)
        return hashlib.sha256(msgspec.msgpack.encode(told, order="sorted")).hexdigest()


class Envelope(msgspec.Struct, frozen=True):
    """A signed message, encoded."""

    letter: bytes
    signature: bytes


def encode_arrays(numbers: "Mapping[str, Array]") -> bytes:
    """Encode arrays as bytes."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(values) for name, values in numbers.items()})


def sign_message(letter: SignedMessage, identity: "Identity") -> bytes:
    """Sign and encode a message."""
    content = msgspec.msgpack.encode(letter)
    return msgspec.msgpack.encode(Envelope(content, identity.sign(_signing_input(content))))


def run_digest(experiment: str, run: str) -> str:
    """Digest of (experiment text, run id); equal at every party of one run."""
    return hashlib.sha256(msgspec.msgpack.encode((FORMAT, experiment, run))).hexdigest()[:32]


def digest(sent: bytes) -> bytes:
    """Return the digest of a sent message, which its answer must quote."""
    return hashlib.sha256(sent).digest()


def open_message(
    sent: bytes, roster: "Roster", *, reader: str, answers: bytes | None = None
) -> SignedMessage:
    """Verify and decode a message from a party in the roster.

    Args:
        sent: The received bytes.
        roster: The known parties and their public keys.
        reader: The recipient, that is, this party.
        answers: The digest of the message that it must answer, if it must.

    Raises:
        Unreadable: It is no message, or not signed by its writer, or for another party, or answers another.
    """
    try:
        outer = msgspec.msgpack.decode(sent, type=Envelope)
        letter = msgspec.msgpack.decode(outer.letter, type=SignedMessage)
    except files.DAMAGED as error:
        raise Unreadable("schema", f"it cannot be read ({error})") from error
    if letter.format != FORMAT:
        raise Unreadable("schema", f"it is of format {letter.format!r}, and {FORMAT!r} is required")
    if not roster.is_signed_by(letter.writer, outer.signature, _signing_input(outer.letter)):
        raise Unreadable("unknown", f"it is not signed by {letter.writer!r}")
    if letter.reader not in ("", reader):
        raise Unreadable("unknown", f"it is for {letter.reader!r}")
    if answers is not None and letter.answers != answers:
        raise Unreadable("replay", "it answers another question")
    return letter


def _signing_input(content: bytes) -> bytes:
    return FORMAT.encode() + b"\0" + content
