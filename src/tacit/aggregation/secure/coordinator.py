"""The server in secure aggregation: it carries messages, and at the end learns a sum.

A server that follows this loses nothing by a site that falls silent, in whatever stage, as long as the
threshold stays; otherwise it stops, and nothing is unmasked. A site that sends what cannot be right counts as
silent from then on, and its fault is written down. Nothing here protects the sites: they see to that.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeVar, cast

import numpy as np

from tacit.aggregation.secure.sealing import (
    STAGES,
    Confirmation,
    Confirmations,
    Envelopes,
    KeyExchange,
    Masked,
    Offer,
    Offers,
    Revealed,
    Roster,
    Session,
    Shares,
    SiteMessage,
    Stage,
    Survivors,
    Vector,
    commitment,
    decode_message,
    derive_key,
    is_valid_public_key,
    mask,
    mask_sign,
)
from tacit.aggregation.secure.shamir import Reconstructor
from tacit.errors import SecureAggregationFailed, require
from tacit.learning.record import Fault, Reason

# Replies of sites, by name; pairs may come one at a time, so that not all need be in memory.
Replies = Mapping[str, bytes] | Iterable[tuple[str, bytes]]
# Fault of an answer, as a word and for people.
Misfit = tuple[Reason, str]
Sent = TypeVar("Sent", bound=SiteMessage)


@dataclass(frozen=True, kw_only=True)
class SumResult:
    """Result of a secure sum.

    Args:
        total: The sum modulo 2^32 of the vectors of all survivors (width,).
        survivors: The sites in it, sorted.
        faults: Invalid messages of sites.
    """

    total: Vector
    survivors: tuple[str, ...]
    faults: tuple[Fault, ...] = ()


class Coordinator:
    """The server in one session: each method takes the sites' messages and returns the next ones to them.

    Args:
        session: The session.
        roster: Public keys of all sites.
    """

    def __init__(self, session: Session, roster: Roster) -> None:
        missing = sorted(set(session.names) - set(roster))
        require(not missing, "roster", f"one without {', '.join(missing)}", "complete")
        self.session = session
        self.faults: list[Fault] = []
        self.survivors: tuple[str, ...] = ()
        self._roster = roster
        self._stages = list(STAGES)
        self._offers: dict[str, Offer] = {}
        self._sharing: frozenset[str] = frozenset()
        self._total: Vector = np.zeros(0, dtype=np.uint32)

    def collect_offers(self, replies: Replies) -> dict[str, bytes]:
        """Stage 0: collect offers and return all public keys."""
        self._turn("offer")
        keys: set[bytes] = set()

        def wrong(offer: Offer) -> Misfit | None:
            if not self._roster.is_signed_by(
                offer.site, offer.signature, offer.signature_content(self.session)
            ):
                return "unknown", "its offer is not signed by it"
            if len({offer.seal, offer.mask} - keys) < 2:
                return "equivocation", "it offers keys that were offered before"
            if not (is_valid_public_key(offer.seal) and is_valid_public_key(offer.mask)):
                return "schema", "it offers a weak key, which would make the shared secret public"
            keys.update((offer.seal, offer.mask))
            return None

        self._offers = dict(self._accept(replies, Offer, self.session.names, wrong))
        self._enough("offer", self._offers)
        offers = Offers(session=self.session.digest, offers=list(self._offers.values())).encode()
        return dict.fromkeys(self._offers, offers)

    def collect_shares(self, replies: Replies) -> dict[str, bytes]:
        """Stage 1: for each site that has shared, the envelopes of the others."""
        self._turn("share")

        def wrong(shares: Shares) -> Misfit | None:
            complete = set(shares.sealed) == set(self._offers) - {shares.site}
            return None if complete else ("schema", "it did not send shares to every other site")

        shares = dict(self._accept(replies, Shares, self._offers, wrong))
        self._enough("share", shares)
        self._sharing = frozenset(shares)
        inboxes = {
            name: {sender: sent.sealed[name] for sender, sent in shares.items() if sender != name}
            for name in shares
        }
        digest = self.session.digest
        return {name: Envelopes(session=digest, sealed=inbox).encode() for name, inbox in inboxes.items()}

    def collect_vectors(self, replies: Replies) -> dict[str, bytes]:
        """Stage 2: the survivors, for each of them."""
        self._turn("mask")
        self._total = np.zeros(self.session.width, dtype=np.uint32)

        def wrong(masked: Masked) -> Misfit | None:
            size, right = masked.vector.nbytes, 4 * self.session.width
            if size != right:
                return "schema", f"its vector has {size:,} bytes instead of {right:,}"
            return None

        survivors: list[str] = []
        for site, masked in self._accept(replies, Masked, self._sharing, wrong):
            # Only the sum is kept: of all the vectors, one is in memory at a time.
            self._total += np.frombuffer(masked.vector, dtype="<u4")
            survivors.append(site)
        self._enough("mask", survivors)
        self.survivors = tuple(sorted(survivors))
        names = Survivors(session=self.session.digest, names=list(self.survivors)).encode()
        return dict.fromkeys(self.survivors, names)

    def collect_signatures(self, replies: Replies) -> dict[str, bytes]:
        """Stage 3: the signatures, for each site that has signed."""
        self._turn("agree")
        text = self.session.agreement(self.survivors)

        def wrong(agreement: Confirmation) -> Misfit | None:
            right = self._roster.is_signed_by(agreement.site, agreement.signature, text)
            return None if right else ("unknown", "it did not sign the set of survivors")

        found = dict(self._accept(replies, Confirmation, self.survivors, wrong))
        self._enough("agree", found)
        signatures = {name: agreement.signature for name, agreement in found.items()}
        return dict.fromkeys(
            found, Confirmations(session=self.session.digest, signatures=signatures).encode()
        )

    def unmask(self, replies: Replies) -> SumResult:
        """Stage 4: recover the masks and return the sum.

        Raises:
            SecureAggregationFailed: Too few have revealed their shares, or too many of them are wrong.
        """
        self._turn("reveal")

        def wrong(revealed: Revealed) -> Misfit | None:
            complete = revealed.shares.keys() == self._sharing
            return None if complete else ("schema", "it did not reveal one share for each site")

        found = dict(self._accept(replies, Revealed, self.survivors, wrong))
        self._enough("reveal", found)
        secrets = self._recover({name: revealed.shares for name, revealed in found.items()})
        total, self._total = self._total, np.zeros(0, dtype=np.uint32)
        self._remove_masks(total, secrets)
        return SumResult(total=total, survivors=self.survivors, faults=tuple(self.faults))

    def _recover(self, shares: Mapping[str, Mapping[str, bytes]]) -> dict[str, bytes]:
        """Return the seed of each survivor and the mask key of each other, all checked before any is used."""
        joiner, points, found = Reconstructor(self.session.threshold), self.session.points, dict[str, bytes]()
        names = {point: name for name, point in points.items()}
        for owner in sorted(self._sharing):
            held = {points[holder]: given[owner] for holder, given in shares.items()}
            joined = joiner.reconstruct(held, lambda secret, owner=owner: self._fits(owner, secret))
            for holder in sorted(names[point] for point in joined.wrong):
                self._fault(
                    holder, "failed", f"its share of a secret of {owner} is wrong, or was from the start"
                )
            if joined.secret is None:
                self._stop(
                    f"the shares of {owner} do not give back what it had offered: {owner}, or some who hold "
                    "them, have sent wrong ones"
                )
            found[owner] = joined.secret
        return found

    def _fits(self, owner: str, secret: bytes) -> bool:
        offer = self._offers[owner]
        if owner in self.survivors:
            return commitment(secret, self.session.context("seed", owner)) == offer.seed
        return KeyExchange(secret).public == offer.mask

    def _remove_masks(self, total: Vector, secrets: Mapping[str, bytes]) -> None:
        for owner, secret in secrets.items():
            if owner in self.survivors:
                mask(total, derive_key(secret, self.session.context("own mask", owner)), -1)
                continue
            exchange = KeyExchange(secret)
            for name in self.survivors:
                key = exchange.key(self._offers[name].mask, self.session.between(name, owner))
                mask(total, key, mask_sign(owner, name))

    def _accept(
        self,
        replies: Replies,
        kind: type[Sent],
        expected: Iterable[str],
        wrong: Callable[[Sent], Misfit | None],
    ) -> Iterator[tuple[str, Sent]]:
        """Yield the valid replies of the sites that were asked; record faults of the others."""
        waiting, heard = frozenset(expected), set[str]()
        for site, message in _pairs(replies):
            misfit = self._sender_misfit(site, waiting, heard)
            if misfit is None:
                heard.add(site)
                try:
                    letter = decode_message(message, kind, self.session)
                except SecureAggregationFailed as error:
                    misfit = ("schema", str(error))
                else:
                    misfit = self._address_misfit(letter, site) or wrong(letter)
                    if misfit is None:
                        yield site, letter
            if misfit is not None:
                self._fault(site, *misfit)

    def _sender_misfit(self, site: str, waiting: frozenset[str], heard: set[str]) -> Misfit | None:
        if site not in self.session.points:
            return "unknown", "it is not a site of the session"
        if site not in waiting:
            return "late", "it had dropped out of the session before"
        return ("duplicate", "it answered before; the first answer counts") if site in heard else None

    def _address_misfit(self, letter: SiteMessage, site: str) -> Misfit | None:
        if letter.session != self.session.digest:
            return "replay", "its message is of another session or round"
        return None if letter.site == site else ("unknown", f"its message is one of {letter.site!r}")

    def _fault(self, site: str, reason: Reason, detail: str) -> None:
        self.faults.append(Fault(site=site, reason=reason, detail=detail))

    def _enough(self, stage: Stage, answered: Iterable[str]) -> None:
        there = set(answered)
        if len(there) < self.session.threshold:
            silent = ", ".join(sorted(set(self.session.names) - there))
            self._stop(
                f"{len(there)} of {len(self.session.names)} sites are left after the stage {stage!r}, and "
                f"{self.session.threshold} are needed (without {silent})"
            )

    def _turn(self, stage: Stage) -> None:
        if not self._stages or self._stages[0] != stage:
            left = f"the stage {self._stages[0]!r} is next" if self._stages else "the session is over"
            raise SecureAggregationFailed(f"the stage {stage!r} is not due: {left}")
        self._stages.pop(0)

    def _stop(self, reason: str) -> NoReturn:
        self._stages.clear()
        self._total = np.zeros(0, dtype=np.uint32)
        raise SecureAggregationFailed(f"{reason}. Nothing was unmasked")


def _pairs(replies: Replies) -> Iterable[tuple[str, bytes]]:
    return cast("Mapping[str, bytes]", replies).items() if isinstance(replies, Mapping) else replies
