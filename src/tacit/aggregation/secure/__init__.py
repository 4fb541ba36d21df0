"""Secure aggregation: a sum of vectors, each hidden from the server and from all other sites.

Secure aggregation after Bonawitz and others (2017), in the variant for a server that may lie. Every vector is
hidden under masks that cancel in the sum; masks of sites that drop out are recovered from shares, as long as
enough sites stay. In the order in which they build on one another:

    sealing   the public session; keys, signatures, envelopes, masks, messages; the door to `cryptography`
    shamir    a secret in shares
    member    the side of a site; coordinator: the side of the server
    products  sums and products, and both sides in this process

Limits: it hides vectors, not sums. Noise has to limit what a sum discloses of one site. A nonsensical vector
goes unnoticed. A site that lies can stop a sum or spoil it; it learns nothing by that.

Names below are loaded on first use, so that unused ones cost nothing.
"""

from typing import TYPE_CHECKING

from tacit.runtime.imports import lazy

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
    "Coordinator": "tacit.aggregation.secure.coordinator",
    "Identity": "tacit.aggregation.secure.sealing",
    "Member": "tacit.aggregation.secure.member",
    "Roster": "tacit.aggregation.secure.sealing",
    "Session": "tacit.aggregation.secure.sealing",
    "Stage": "tacit.aggregation.secure.sealing",
    "SumResult": "tacit.aggregation.secure.coordinator",
    "secure_sum": "tacit.aggregation.secure.products",
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

__getattr__ = lazy(__name__, _HOMES)
