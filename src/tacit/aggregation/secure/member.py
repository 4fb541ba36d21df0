"""The client in secure aggregation: it trusts no keys except those in its roster.

Five stages, each an answer to what the server sent: offer keys, share secrets, mask the vector, agree on who
is in the sum, reveal shares. A member that is asked what no honest server asks refuses with the reason, and
takes no further part. It signs one set of survivors, of at least the threshold, and reveals once. Two sums of
a round that differ in a site would give its vector away: that is why an identity signs one set for a round.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

import numpy as np

from tacit.aggregation.secure.sealing import (
    STAGES,
    Confirmation,
    Confirmations,
    Envelopes,
    Identity,
    KeyExchange,
    Kind,
    Masked,
    Offer,
    Offers,
    Revealed,
    Roster,
    Session,
    Shares,
    Stage,
    Survivors,
    Vector,
    commitment,
    decode_message,
    derive_key,
    frame_parts,
    fresh_bytes,
    mask,
    mask_sign,
    seal,
    unseal,
)
from tacit.aggregation.secure.shamir import SHARE_BYTES, split_secret
from tacit.errors import SecureAggregationFailed, require


class Member:
    """One site in one session.

    Args:
        session: The session.
        name: The site.
        identity: The site's own.
        roster: Public keys of all sites.

    Guarantee:
        Nothing but masked numbers, sealed shares and signatures leaves before the threshold of sites has
        signed the same set of survivors; then, of each site, one of two shares, never both.
    """

    def __init__(self, session: Session, name: str, identity: Identity, roster: Roster) -> None:
        require(name in session.names, "name", name, "one of the session's sites")
        missing = sorted(set(session.names) - set(roster))
        require(not missing, "roster", f"one without {', '.join(missing)}", "complete")
        require(roster[name] == identity.public, "identity", name, "the one in the roster")
        self.session, self.name = session, name
        self._identity, self._roster = identity, roster
        self._sealing, self._masking = KeyExchange(fresh_bytes()), KeyExchange(fresh_bytes())
        self._seed = fresh_bytes()
        self._offers: dict[str, Offer] = {}
        # Shares by owner: of the seed, and of the mask key.
        self._held: dict[str, tuple[bytes, bytes]] = {}
        self._survivors: frozenset[str] = frozenset()
        self._stage: Stage | Literal["over", "left"] = "offer"

    def offer(self) -> bytes:
        """Stage 0: fresh public keys, signed."""
        with self._turn("offer"):
            session, seal, mask = self.session, self._sealing.public, self._masking.public
            seed = commitment(self._seed, session.context("seed", self.name))
            signature = self._identity.sign(session.context("offer", self.name, seal, mask, seed))
            own = Offer(
                session=session.digest, site=self.name, seal=seal, mask=mask, seed=seed, signature=signature
            )
            self._offers[self.name] = own
            return own.encode()

    def share(self, offers: bytes) -> bytes:
        """Stage 1: shares of the mask key and of the seed, sealed for every site that has offered keys.

        Args:
            offers: Offers that the server collected.
        """
        with self._turn("share"):
            self._offers = self._check_offers(self._decode(offers, Offers).offers)
            holders = {name: self.session.points[name] for name in self._offers}
            seeds, keys = (
                split_secret(secret, holders.values(), self.session.threshold)
                for secret in (self._seed, self._masking.secret)
            )
            dealings = {name: (seeds[point], keys[point]) for name, point in holders.items()}
            self._held[self.name] = dealings.pop(self.name)
            sealed = {name: self._seal(name, b"".join(shares)) for name, shares in dealings.items()}
            return Shares(session=self.session.digest, site=self.name, sealed=sealed).encode()

    def mask(self, vector: Vector, envelopes: bytes) -> bytes:
        """Stage 2: the vector under the site's own mask and one for each site that has shared.

        Args:
            vector: The numbers to be added up (width,).
            envelopes: Envelopes that the others have sealed for this site.
        """
        given = f"{vector.dtype} of shape {vector.shape}"
        fits = vector.dtype == np.uint32 and vector.shape == (self.session.width,)
        require(fits, "vector", given, f"uint32 of shape ({self.session.width},)")
        with self._turn("mask"):
            self._held |= self._unseal(self._decode(envelopes, Envelopes).sealed)
            total = np.array(vector)
            mask(total, derive_key(self._seed, self.session.context("own mask", self.name)), 1)
            for other in self._held.keys() - {self.name}:
                with _about(other):
                    key = self._masking.key(self._offers[other].mask, self.session.between(self.name, other))
                mask(total, key, mask_sign(self.name, other))
            # A view: vectors may be large, and the message is a copy already.
            content = total.astype("<u4", copy=False).data.cast("B")
            return Masked(session=self.session.digest, site=self.name, vector=content).encode()

    def agree(self, survivors: bytes) -> bytes:
        """Stage 3: a signature on the one set of survivors that this site will ever sign for the round.

        Args:
            survivors: Sites whose vectors the server claims to have.
        """
        with self._turn("agree"):
            names = self._decode(survivors, Survivors).names
            _insist(len(set(names)) == len(names), "a survivor is named twice")
            strangers = sorted(set(names) - set(self._held))
            _insist(not strangers, f"{strangers} are named as survivors and have shared no secrets")
            _insist(self.name in names, "it has sent its vector and is not named as a survivor")
            self._enough(len(names), "survivors are named")
            self._survivors = frozenset(names)
            occasion = frame_parts(self.session.run, str(self.session.round))
            signature = self._identity.sign_once(occasion, self.session.agreement(names))
            return Confirmation(session=self.session.digest, site=self.name, signature=signature).encode()

    def reveal(self, agreements: bytes) -> bytes:
        """Stage 4: shares of the seeds of survivors and of the mask keys of those who dropped out.

        Args:
            agreements: Signatures of the set of survivors.
        """
        with self._turn("reveal"):
            signatures = self._decode(agreements, Confirmations).signatures
            strangers = sorted(set(signatures) - self._survivors)
            _insist(not strangers, f"{strangers} have signed, but are not survivors")
            signed = self.session.agreement(self._survivors)
            for name, signature in signatures.items():
                right = self._roster.is_signed_by(name, signature, signed)
                _insist(right, f"{name} has not signed the same set of survivors")
            self._enough(len(signatures), "have signed the set of survivors")
            shares = {owner: held[owner not in self._survivors] for owner, held in self._held.items()}
            # Erased secrets cannot be disclosed later.
            self._held.clear()
            self._seed = b""
            return Revealed(session=self.session.digest, site=self.name, shares=shares).encode()

    def _check_offers(self, offers: list[Offer]) -> dict[str, Offer]:
        own, found = self._offers[self.name], dict[str, Offer]()
        for offer in offers:
            site = offer.site
            _insist(site in self.session.names, f"{site!r} is not a site of the session")
            _insist(site not in found, f"there are two offers of {site}")
            _insist(offer.session == self.session.digest, f"the offer of {site} is of another session")
            # Its own offer need not be verified.
            right = offer == own or self._roster.is_signed_by(
                site, offer.signature, offer.signature_content(self.session)
            )
            _insist(right, f"the offer of {site} is not signed by {site}")
            found[site] = offer
        _insist(found.get(self.name) == own, "its own offer is missing or was changed")
        keys = [key for offer in offers for key in (offer.seal, offer.mask)]
        _insist(len(set(keys)) == len(keys), "two of the offered keys are equal")
        self._enough(len(found), "have offered keys")
        return found

    def _seal(self, receiver: str, content: bytes) -> bytes:
        route = self.session.context("envelope", self.name, receiver)
        with _about(receiver):
            return seal(self._sealing.key(self._offers[receiver].seal, route), content, route)

    def _unseal(self, envelopes: dict[str, bytes]) -> dict[str, tuple[bytes, bytes]]:
        strangers = sorted(set(envelopes) - (set(self._offers) - {self.name}))
        _insist(not strangers, f"there are envelopes of {strangers}, which cannot have sent any")
        self._enough(len(envelopes) + 1, "have shared secrets")
        found: dict[str, tuple[bytes, bytes]] = {}
        for sender, envelope in envelopes.items():
            route = self.session.context("envelope", sender, self.name)
            with _about(sender):
                content = unseal(self._sealing.key(self._offers[sender].seal, route), envelope, route)
            found[sender] = (content[:SHARE_BYTES], content[SHARE_BYTES:])
        return found

    def _decode(self, message: bytes, kind: type[Kind]) -> Kind:
        found = decode_message(message, kind, self.session)
        _insist(found.session == self.session.digest, "a message is of another session or round")
        return found

    def _enough(self, count: int, what: str) -> None:
        least = self.session.threshold
        _insist(count >= least, f"{count} {what}, and {least} are needed")

    @contextmanager
    def _turn(self, stage: Stage) -> Generator[None]:
        """Run a stage in its turn; if it fails, there are no further turns."""
        with _about(f"{self.name} refuses"):
            _insist(
                self._stage != "left",
                "it aborted this session, because an earlier step failed",
            )
            asked = "has answered every stage" if self._stage == "over" else f"is to {self._stage} next"
            _insist(self._stage == stage, f"it was asked to {stage} and {asked}")
            self._stage = "left"
            yield
            self._stage = (*STAGES, "over")[STAGES.index(stage) + 1]


def _insist(condition: bool, reason: str) -> None:
    if not condition:
        raise SecureAggregationFailed(reason)


@contextmanager
def _about(what: str) -> Generator[None]:
    try:
        yield
    except SecureAggregationFailed as error:
        raise SecureAggregationFailed(f"{what}: {error}") from None
