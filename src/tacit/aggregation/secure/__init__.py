"""Secure aggregation: a sum of vectors, no single one of which the server or another site sees.

Secure aggregation after Bonawitz and others (2017), in the variant for a server that may lie. Every vector is
hidden under masks that cancel in the sum; masks of sites that drop out are recovered from shares, as long as
enough sites stay. In the order in which they build on one another:

    session   what everybody knows before: who, when, how wide, how many must stay
    sealing   keys, signatures, sealed envelopes, masks: the only door to `cryptography`
    shamir    a secret in shares
    messages  what is sent, as bytes
    member    the side of a site; coordinator: the side of the server
    sums      both in this process

What it does not do: it hides vectors, not sums. What a sum gives away of one site is a matter of noise. Nor
does anybody notice a site whose vector is nonsense. A site that lies can stop a sum or spoil it; it learns
nothing by that.

Names below are loaded on first use, so that nobody pays for what is not asked.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.aggregation.secure.coordinator import Coordinator as Coordinator
    from tacit.aggregation.secure.coordinator import SumResult as SumResult
    from tacit.aggregation.secure.member import Member as Member
    from tacit.aggregation.secure.sealing import Identity as Identity
    from tacit.aggregation.secure.sealing import Roster as Roster
    from tacit.aggregation.secure.session import Session as Session
    from tacit.aggregation.secure.session import Stage as Stage
    from tacit.aggregation.secure.sums import secure_sum as secure_sum

_HOMES = {
    "Coordinator": "coordinator",
    "Identity": "sealing",
    "Member": "member",
    "Roster": "sealing",
    "Session": "session",
    "Stage": "session",
    "SumResult": "coordinator",
    "secure_sum": "sums",
}

__all__ = [
    "Coordinator",
    "Identity",
    "Member",
    "Roster",
    "Session",
    "Stage",
    "SumResult",
    "secure_sum",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"tacit.aggregation.secure.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tacit.aggregation.secure' has no attribute {name!r}")
