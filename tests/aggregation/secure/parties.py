"""All parties of a sum in secret, one stage at a time, so that tests can come between them."""

from typing import TypeVar

import msgspec
import numpy as np

from tacit.aggregation.secure.coordinator import Coordinator, SumResult
from tacit.aggregation.secure.member import Member
from tacit.aggregation.secure.sealing import Identity, Message, Roster, Session

CITIES = ("bergen", "oslo", "stavanger", "tromso", "trondheim", "alta", "bodo", "hamar", "molde", "narvik")
Kind = TypeVar("Kind", bound=Message)


def session_of(sites: int, width: int = 8, **options) -> Session:
    return Session(**{"run": "trial", "round": 1, "names": CITIES[:sites], "width": width, **options})


def vectors_of(session: Session, seed: int = 0) -> dict[str, np.ndarray]:
    draws = np.random.default_rng(seed)
    return {name: draws.integers(0, 2**32, session.width, dtype=np.uint32) for name in session.names}


def added(vectors, names) -> np.ndarray:
    return np.add.reduce([vectors[name] for name in names], dtype=np.uint32)


def changed(message: bytes, kind: type[Kind], **fields) -> bytes:
    return msgspec.structs.replace(msgspec.msgpack.decode(message, type=kind), **fields).encode()


def read(message: bytes, kind: type[Kind]) -> Kind:
    return msgspec.msgpack.decode(message, type=kind)


class Parties:
    """Members and a server; each stage plays those before it, and remembers what was sent either way."""

    def __init__(self, session: Session, vectors=None, identities=None):
        self.session = session
        self.vectors = vectors_of(session) if vectors is None else vectors
        self.identities = identities or {name: Identity.fresh() for name in session.names}
        self.roster = Roster.of(self.identities)
        self.members = {name: self.member(name) for name in session.names}
        self.server = Coordinator(session, self.roster)
        # Sites that say nothing from now on.
        self.silent: set[str] = set()
        self.said: dict[str, dict[str, bytes]] = {}

    def member(self, name: str) -> Member:
        return Member(self.session, name, self.identities[name], self.roster)

    def offers(self) -> dict[str, bytes]:
        self.said["offer"] = {name: self.members[name].offer() for name in self._there(self.session.names)}
        return self.server.collect_offers(self.said["offer"])

    def envelopes(self) -> dict[str, bytes]:
        offers = self.offers()
        self.said["share"] = {name: self.members[name].share(offers[name]) for name in self._there(offers)}
        return self.server.collect_shares(self.said["share"])

    def survivors(self) -> dict[str, bytes]:
        envelopes = self.envelopes()
        self.said["mask"] = {
            name: self.members[name].mask(self.vectors[name], envelopes[name])
            for name in self._there(envelopes)
        }
        return self.server.collect_vectors(self.said["mask"])

    def agreements(self) -> dict[str, bytes]:
        survivors = self.survivors()
        self.said["agree"] = {
            name: self.members[name].agree(survivors[name]) for name in self._there(survivors)
        }
        return self.server.collect_signatures(self.said["agree"])

    def revealed(self) -> dict[str, bytes]:
        agreements = self.agreements()
        self.said["reveal"] = {
            name: self.members[name].reveal(agreements[name]) for name in self._there(agreements)
        }
        return self.said["reveal"]

    def summed(self) -> SumResult:
        return self.server.unmask(self.revealed())

    def _there(self, names):
        return [name for name in names if name not in self.silent]
