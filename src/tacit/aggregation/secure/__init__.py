"""Secure aggregation: a sum of vectors, each hidden from the server and from all other sites.

Secure aggregation after Bonawitz and others (2017), in the variant for a server that may lie. Every vector is
hidden under masks that cancel in the sum; masks of sites that drop out are recovered from shares, as long as
enough sites stay. In the order in which they build on one another:

    session   the public parameters: sites, round, width, threshold
    sealing   keys, signatures, sealed envelopes, masks: the only door to `cryptography`
    shamir    a secret in shares
    messages  messages as bytes
    member    the side of a site; coordinator: the side of the server
    sums      both in this process

Limits: it hides vectors, not sums. Noise has to limit what a sum discloses of one site. A nonsensical vector
goes unnoticed. A site that lies can stop a sum or spoil it; it learns nothing by that.

Names below are loaded on first use, so that unused ones cost nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.aggregation.secure.coordinator import Coordinator as Coordinator
    from tacit.aggregation.secure.coordinator import SumResult as SumResult
    from tacit.aggregation.secure.member import Member as Member
    from tacit.aggregation.secure.products import secure_sum as secure_sum
    from tacit.aggregation.secure.sealing import Identity as Identity
    from tacit.aggregation.secure.sealing import Roster as Roster
    from tacit.aggregation.secure.sealing import Session as Session
    from tacit.aggregation.secure.sealing import Stage as Stage

_HOMES = {
    "Coordinator": "coordinator",
    "Identity": "sealing",
    "Member": "member",
    "Roster": "sealing",
    "Session": "sealing",
    "Stage": "sealing",
    "SumResult": "coordinator",
    "secure_sum": "products",
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
