"""Sums and products in secret where every party is on a machine of its own: the side of a site.

A site takes nothing on trust. It works out from its own experiment file which sum it expects and refuses any
other; it knows its colleagues by the keys in its own folder; its masked vector leaves once for a run and
round, in its whole life; and it answers every stage once, in order. What a server that lies can reach is that
there is no sum.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast, overload

import numpy as np

from tacit.aggregation.secure import Identity, Member, Roster, Session
from tacit.aggregation.secure.dealing import Matrix
from tacit.aggregation.secure.products import Partner, ProductSession
from tacit.aggregation.secure.sealing import Vector
from tacit.engines.secure import messages as parts
from tacit.engines.secure.messages import Parcel, shorten
from tacit.errors import Refused, SecureAggregationFailed, require

# Handlers of a site by stage, in order.
Steps = dict[str, Callable[[bytes], bytes]]
# A party's input to products: its rows, and its own part of the sum.
GramInput = Callable[[], tuple[Matrix, Vector]]


@dataclass(frozen=True, kw_only=True)
class ClientIdentity:
    """Identity of a site and the keys that it trusts; all of it from its own folder, nothing from a server.

    Args:
        name: The site.
        identity: Its own.
        roster: The public keys of all sites.
        remember: Called once for a session, before the masked vector leaves, with its occasion (run and
            round) and the digest of its terms. It writes both down for good, and raises if the occasion is
            there already, whatever its terms: two sums that hold a site and differ in another reveal that
            one. Earlier messages reveal nothing, so that a session that ended before can be tried again.
    """

    name: str
    identity: Identity = field(repr=False)
    roster: Roster = field(repr=False)
    remember: Callable[[str, str], None] = field(repr=False)


class SecureClient:
    """One session at one site, stage by stage.

    Args:
        which: The sum or the products that the site expects by its own computation.
        seat: Its identity.
        brings: Computes its input, when it is needed. For a sum, in the stage "mask": its numbers (width,).
            For products, in the stage "offer", so that a party without input says so before any party deals:
            its rows (records, columns), and its own part of the sum (entries,).
        occasion: The name of this masked vector in the site's life; by default run and round.

    Guarantee:
        Nothing leaves unless the server's terms are those that the site expects, and no masked vector unless
        `remember` has written the occasion down; then what `Member` and `Partner` let out, each stage once
        and in order.

    Raises:
        Refused: The site has no part in it, lacks a party's key, or products are too large.
    """

    @overload
    def __init__(
        self,
        which: Session,
        seat: ClientIdentity,
        brings: Callable[[], Vector],
        *,
        occasion: str | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self, which: ProductSession, seat: ClientIdentity, brings: GramInput, *, occasion: str | None = None
    ) -> None: ...
    def __init__(
        self,
        which: Session | ProductSession,
        seat: ClientIdentity,
        brings: Callable[[], Vector] | GramInput,
        *,
        occasion: str | None = None,
    ) -> None:
        _require_keys(which.names, seat)
        self.which, self.name = which, seat.name
        self.occasion = f"round {which.round} of {which.run}" if occasion is None else occasion
        self.left = False
        self._remember = seat.remember
        self._steps: Steps = (
            _sum_steps(which, seat, cast("Callable[[], Vector]", brings))
            if isinstance(which, Session)
            else _GramClient(which, seat, cast("GramInput", brings)).steps()
        )

    @property
    def commitment(self) -> str:
        """Digest of the session's terms, written down beside the occasion."""
        return parts.commitment(self.which)

    @property
    def is_over(self) -> bool:
        """True if the session answers nothing more, because it is complete or was aborted."""
        return not self._steps

    def answer(self, stage: str, content: bytes) -> bytes:
        """Answer a server's message in a stage.

        Raises:
            SecureAggregationFailed: No honest server sends that. A stage out of turn is not answered; an
                invalid message ends the session for this site.
        """
        due = next(iter(self._steps), None)
        if stage != due:
            raise SecureAggregationFailed(f"{self.name} refuses: {self._out_of_turn(stage, due)}")
        # Whatever goes wrong, nothing more is answered, and secrets and rows are let go of.
        steps, self._steps, self.left = self._steps, {}, True
        if stage == "offer":
            with _refusing(self.name):
                parts.require_same(content, self.which)
        said = steps.pop(stage)(content)
        if stage == "mask":
            self._remember(self.occasion, self.commitment)
        self._steps, self.left = steps, False
        return said

    def _out_of_turn(self, stage: str, due: str | None) -> str:
        if self.left:
            return "it has left the session after what it was sent before"
        then = "has answered all there is to ask" if due is None else f"is to {due} next"
        return f"it was asked to {shorten(stage)} and {then}"


def _sum_steps(session: Session, seat: ClientIdentity, vector: Callable[[], Vector]) -> Steps:
    """A site's part in a sum."""
    member = Member(session, seat.name, seat.identity, seat.roster)
    return {
        "offer": lambda _: member.offer(),
        "share": member.share,
        "mask": lambda content: member.mask(vector(), content),
        "agree": member.agree,
        "reveal": member.reveal,
    }


class _GramClient:
    """A party's part in products and its part in the sum that they end in, in step with each other."""

    def __init__(self, products: ProductSession, seat: ClientIdentity, brought: GramInput) -> None:
        parts.require_carriable(products)
        self._products, self._seat, self._brought = products, seat, brought
        self._member = Member(products.session, seat.name, seat.identity, seat.roster)

    def steps(self) -> Steps:
        return {
            "offer": self._offer,
            "deal": self._deal,
            "open": self._open,
            "mask": self._mask,
            "agree": self._member.agree,
            "reveal": self._member.reveal,
        }

    def _offer(self, content: bytes) -> bytes:
        products, seat = self._products, self._seat
        rows, self._own = self._brought()
        given, width = f"{self._own.dtype} of shape {self._own.shape}", products.session.width
        fits = self._own.dtype == np.uint32 and self._own.shape == (width,)
        require(fits, f"own of {seat.name}", given, f"uint32 of shape ({width},)")
        self._partner = Partner(products, seat.name, rows, seat.identity, seat.roster)
        offered = {seat.name: self._partner.offer()}
        return parts.parcel(products, "offer", self._member.offer(), offered)

    def _deal(self, content: bytes) -> bytes:
        parcel = self._unpack(content, "deal")
        shared = self._member.share(parcel.letter)
        return parts.parcel(self._products, "deal", shared, self._partner.deal(_envelopes(parcel)))

    def _open(self, content: bytes) -> bytes:
        parcel = self._unpack(content, "open")
        return parts.parcel(self._products, "open", b"", self._partner.mask_rows(_envelopes(parcel)))

    def _mask(self, content: bytes) -> bytes:
        parcel = self._unpack(content, "mask")
        vector = np.array(self._own)
        for pair, share in self._partner.shares(_envelopes(parcel)).items():
            vector[self._products.places(pair)] += share
        # Rows are of no further use.
        del self._partner, self._own
        return self._member.mask(vector, parcel.letter)

    def _unpack(self, content: bytes, stage: parts.Stage) -> Parcel:
        with _refusing(self._seat.name):
            most = parts.room_down(self._products, stage, self._seat.name)
            return parts.unpack(content, self._products, stage, most)


def _envelopes(parcel: Parcel) -> dict[str, bytes]:
    return {name: bytes(sealed) for name, sealed in parcel.sealed.items()}


def _require_keys(names: Sequence[str], seat: ClientIdentity) -> None:
    if seat.name not in names:
        raise Refused(f"{seat.name} has no part in a sum or products of {shorten(list(names))}")
    strangers = sorted(set(names) - set(seat.roster))
    if strangers:
        raise Refused(
            f"{shorten(strangers)} take part, and {seat.name} does not know their keys: they have to come "
            "from them, by another way than through the server"
        )


@contextmanager
def _refusing(name: str) -> Generator[None]:
    try:
        yield
    except SecureAggregationFailed as error:
        raise SecureAggregationFailed(f"{name} refuses: {error}") from None
