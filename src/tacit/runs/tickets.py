"""Tickets: the names of single charges, by which what was cut off is recognised and not paid for again.

A ticket is a keyed digest of everything that a release depends on, in its canonical form: it is the same
whether the experiment came from Python, from its file or from the directory of its run.
"""

import hmac
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tacit.runtime.arrays import Array
from tacit.runtime.canonical import Unwritable, canonical

if TYPE_CHECKING:
    from tacit.runtime.keys import Key


def ticket_of(key: "Key", data: str, work: Sequence[str], tensors: "Iterable[Array]") -> str:
    """Name the charge of one release.

    Args:
        key: The key of the release; its path says which one of the run it is.
        data: What tells the data of the run from any other.
        work: What is done with them, and where, in words.
        tensors: The state that the work begins with, and whatever else is remembered.
    """
    inputs = canonical([key.path, data, work])
    return digest(key, inputs, b"".join(part.tobytes() for part in tensors))


def choices_of(tables: Mapping[str, Any], augment: object) -> str | None:
    """The canonical text of all choices of a run.

    None where it cannot be written, or where synthetic records are made by the user's own code, which may be
    other code after a crash.
    """
    if augment is not None and type(augment).__module__.partition(".")[0] != "tacit":
        return None
    try:
        return canonical(tables)
    except Unwritable:
        return None


def digest(key: "Key", purpose: str, content: bytes) -> str:
    """A fingerprint that tells nothing to those who do not know the run's secret."""
    return hmac.digest(key.entropy, repr(purpose).encode() + content, "sha256").hex()
