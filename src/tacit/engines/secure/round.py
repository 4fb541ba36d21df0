"""Secure rounds where every party is on a machine of its own: the side of the server, and the side of a site.

The protocol is that of `tacit.aggregation.secure`, bytes in and bytes out; here is who is sent what when. All
groups of a round advance together: a sum takes five exchanges and products take six, however many groups and
parties there are. The server goes on without a site that falls silent, down to the threshold; products need
everybody. The server protects no site.

A site protects itself: `SecureClient` takes nothing on trust. It works out from its own experiment file which
sum it expects and refuses any other; it knows its colleagues by the keys in its own folder; its masked vector
leaves once for a run and round, in its whole life; and it answers every stage once, in order. What a server
that lies can reach is that there is no sum.
"""

import secrets
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np

from tacit.aggregation.secure.coordinator import Coordinator, SumResult
from tacit.aggregation.secure.member import Member
from tacit.aggregation.secure.products import Matrix, Partner, ProductSession
from tacit.aggregation.secure.sealing import STAGES, Identity, Roster, Session, Vector
from tacit.engines.messages import NoReply, SignedMessage
from tacit.engines.secure import messages as parts
from tacit.engines.secure.messages import Parcel, products_of, shorten, sums_of
from tacit.errors import Refused, SecureAggregationFailed, require
from tacit.learning.query import Updates
from tacit.learning.record import Fault
from tacit.privacy.contracts import SiteGroups
from tacit.privacy.mechanisms.secure_gram import SecureGram
from tacit.privacy.mechanisms.secure_sum import SecureSum

if TYPE_CHECKING:
    from tacit.engines.remote import Remote
    from tacit.privacy.mechanisms.base import Mechanism

# The word of a stage and what each site is sent in it; back come the answers, or why there is none.
Talk = Callable[[str, Mapping[str, bytes]], Mapping[str, "bytes | NoReply"]]
# Bytes of masked vectors that a server asks for at a time: beyond, it takes several exchanges.
AT_ONCE = 2**30


def sum_groups(
    groups: SiteGroups, width: int, colluders: int, number: int, run: str, roster: Roster, talk: Talk
) -> list[SumResult]:
    """Return the sum over each group, of all its sites that stay.

    Args:
        groups: The groups of sites to sum over; no site is in two.
        width: Coordinates of a vector.
        colluders: The number of sites of a group that may collude with the server.
        number: The round.
        run: The run, and its sum if a round has several.
        roster: All parties' public keys.
        talk: Carries a stage to sites and back; a site missing from its answers is silent.

    Raises:
        SecureAggregationFailed: Of some group fewer than the threshold are left. Nothing of it was unmasked,
            and nothing of any other unless it was the last stage.
    """
    servers = [
        Coordinator(session, roster) for session in parts.sessions(groups, width, colluders, number, run)
    ]
    sent = {name: parts.encode_terms(server.session) for server in servers for name in server.session.names}
    for stage in STAGES[:-1]:
        heard = _receive_stage(servers, stage, sent, talk)
        sent = {
            name: told for server, answers in heard for name, told in _next(server, stage, answers).items()
        }
    found = list[SumResult]()
    for server, answers in _receive_stage(servers, "reveal", sent, talk):
        with _explain_failure(server):
            found.append(server.unmask(answers))
    return found


def multiply_columns(products: ProductSession, roster: Roster, talk: Talk) -> Vector:
    """Return the products of all parties' columns with each other's, plus their own parts, modulo 2^32.

    Args:
        products: The session.
        roster: All parties' public keys.
        talk: As for sums.

    Returns:
        The upper triangle of the matrix row by row, without its first entry.

    Raises:
        SecureAggregationFailed: A party is silent or has sent an invalid message; nothing was unmasked.
    """
    parts.require_carriable(products)
    server, names = Coordinator(products.session, roster), products.names
    offers = _parcels(server, products, "offer", dict.fromkeys(names, parts.encode_terms(products)), talk)
    letters = _next(server, "offer", _letters(offers))
    shown = {name: found.sealed[name] for name, found in offers.items()}
    sent = {name: parts.parcel(products, "deal", letters[name], shown) for name in names}
    dealt = _parcels(server, products, "deal", sent, talk)
    letters = _next(server, "share", _letters(dealt))
    sent = {name: parts.parcel(products, "open", b"", _envelopes_for(dealt, name)) for name in names}
    del dealt
    opened = _parcels(server, products, "open", sent, talk)
    sent = {
        name: parts.parcel(products, "mask", letters[name], _envelopes_for(opened, name)) for name in names
    }
    # Large, and of no further use.
    del opened
    for stage in STAGES[2:-1]:
        ((_, answers),) = _receive_stage([server], stage, sent, talk)
        sent = _next(server, stage, answers)
    ((_, answers),) = _receive_stage([server], "reveal", sent, talk)
    with _explain_failure(server):
        return server.unmask(answers).total


def _next(server: Coordinator, stage: str, answers: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """Return the message to each remaining site after a stage."""
    turns = {
        "offer": server.collect_offers,
        "share": server.collect_shares,
        "mask": server.collect_vectors,
        "agree": server.collect_signatures,
    }
    with _explain_failure(server):
        return turns[stage](answers)


def _receive_stage(
    servers: Sequence[Coordinator], stage: str, sent: Mapping[str, bytes], talk: Talk
) -> Iterator[tuple[Coordinator, Iterator[tuple[str, bytes]]]]:
    """Yield the answers of each group in a stage; to be read in this order."""
    asked = {server: [name for name in server.session.names if name in sent] for server in servers}
    at_once = len(sent)
    if stage == "mask":
        at_once = max(1, AT_ONCE // (4 * max(server.session.width for server in servers)))
    answers = _answers(stage, {name: sent[name] for names in asked.values() for name in names}, talk, at_once)
    for server, names in asked.items():
        yield server, _usable(server, stage, islice(answers, len(names)))


def _answers(
    stage: str, sent: dict[str, bytes], talk: Talk, at_once: int
) -> Iterator[tuple[str, bytes | NoReply | None]]:
    """Yield each site's answer in the given order, `at_once` requests at a time."""
    while sent:
        asked = {name: sent.pop(name) for name in list(islice(sent, at_once))}
        found = dict(talk(stage, asked))
        for name in asked:
            # Drop each answer once it is read.
            yield name, found.pop(name, None)


def _usable(
    server: Coordinator, stage: str, answers: Iterable[tuple[str, bytes | NoReply | None]]
) -> Iterator[tuple[str, bytes]]:
    """Return the answers without refusals; why the others did not is written down."""
    for name, answer in answers:
        if isinstance(answer, bytes):
            yield name, answer
            continue
        silence = answer or NoReply("absent", f"nothing has come from it in the stage {stage!r}")
        server.faults.append(Fault(site=name, reason=silence.reason, detail=silence.detail[: parts.TOLD]))


def _parcels(
    server: Coordinator, products: ProductSession, stage: parts.Stage, sent: dict[str, bytes], talk: Talk
) -> dict[str, Parcel]:
    """Return the parcel of every party."""
    found: dict[str, Parcel] = {}
    for name, answer in _usable(server, stage, _answers(stage, sent, talk, len(sent))):
        try:
            parcel = parts.unpack(answer, products, stage, parts.room_up(products, stage, name))
            sizes = {receiver: sealed.nbytes for receiver, sealed in parcel.sealed.items()}
            if sizes != parts.parcel_sizes(products, stage, name):
                raise SecureAggregationFailed("its parcel lacks messages for other parties")
            found[name] = parcel
        except SecureAggregationFailed as error:
            server.faults.append(Fault(site=name, reason="schema", detail=str(error)))
    with _explain_failure(server):
        if len(found) < len(products.names):
            raise SecureAggregationFailed(
                f"{len(found)} of {len(products.names)} parties are left after the stage {stage!r}, and "
                "every party must stay. Nothing was unmasked"
            )
    return found


def _letters(parcels: Mapping[str, Parcel]) -> Iterator[tuple[str, bytes]]:
    return ((name, parcel.letter) for name, parcel in parcels.items())


def _envelopes_for(parcels: Mapping[str, Parcel], receiver: str) -> dict[str, memoryview]:
    """Return the envelopes for one party, by sender."""
    return {name: parcel.sealed[receiver] for name, parcel in parcels.items() if receiver in parcel.sealed}


@contextmanager
def _explain_failure(server: Coordinator) -> Generator[None]:
    """Add the sites' faults to the error of a failed sum."""
    try:
        yield
    except SecureAggregationFailed as error:
        why = "; ".join(f"{fault.site}: {fault.detail}" for fault in server.faults)
        told = f"{server.session.run}, round {server.session.round}: {error}"
        raise SecureAggregationFailed(f"{told} ({why})" if why else told) from None


# Handlers of a site by stage, in order.
Steps = dict[str, Callable[[bytes], bytes]]
# A party's input to products: its rows, and its own part of the sum.
GramInput = Callable[[], tuple[Matrix, Vector]]


@dataclass(frozen=True, kw_only=True)
class ClientIdentity:
    """Identity of a site and the keys that it trusts, from its own folder and never from a server.

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
            return "it aborted this session, because an earlier step failed"
        then = "has answered every stage" if due is None else f"is to {due} next"
        return f"it was asked to {shorten(stage)} and {then}"


def _sum_steps(session: Session, seat: ClientIdentity, vector: Callable[[], Vector]) -> Steps:
    """Run a site's side of a secure sum, stage by stage."""
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
            f"{shorten(strangers)} take part, and {seat.name} does not know their keys: obtain them from "
            "these sites directly, not through the server"
        )


@contextmanager
def _refusing(name: str) -> Generator[None]:
    try:
        yield
    except SecureAggregationFailed as error:
        raise SecureAggregationFailed(f"{name} refuses: {error}") from None


# The request to each site, as plain data and as arrays.
Questions = Mapping[str, tuple[dict[str, Any], bytes]]


def secure_round(
    remote: "Remote", asked: Questions, names: Sequence[str], width: int, mechanism: "Mechanism"
) -> Updates:
    """Return the server's view of a round: means over groups of sites, or products of all parties' columns.

    Args:
        remote: The engine that carries the stages.
        asked: The request to each site.
        names: The sites.
        width: The length of an update.
        mechanism: The mechanism of the sums.

    Raises:
        SecureAggregationFailed: Too few are left; nothing was unmasked.
    """
    number, session = mechanism.number if isinstance(mechanism, SecureSum) else 0, secrets.token_hex(8)
    run = f"{session} {remote.run_digest}"

    def talk(stage: str, sent: Mapping[str, bytes]) -> Mapping[str, bytes | NoReply]:
        # The work is sent once, in the first stage; later stages name the session.
        questions = {
            name: (
                "secret",
                {"stage": stage, "session": session, "said": said, "work": asked[name][0]},
                asked[name][1] if stage == "offer" else b"",
            )
            for name, said in sent.items()
        }
        return {name: _content(answer) for name, answer in remote.ask(questions, needed=False).items()}

    if isinstance(mechanism, SecureGram):
        products = products_of(mechanism, names, run=run, number=number)
        total = multiply_columns(products, remote.roster, talk)
        return Updates(("all parties",), mechanism.decode(total)[None])
    blind = cast(SecureSum, mechanism)
    sums = sums_of(blind, names, run=run, number=number, width=width)
    groups = blind.groups(names)
    found = sum_groups(groups, width, blind.colluders, number, run, remote.roster, talk)
    rows, faults = list[np.ndarray](), list[Fault]()
    for group, total in zip(groups, found, strict=True):
        rows.append(blind.mean_of(total.total, len(group)))
        faults += total.faults
    places = tuple(f"group {place}" for place in range(1, len(sums) + 1))
    return Updates(places, np.stack(rows), faults=tuple(faults))


def _content(answer: SignedMessage | NoReply) -> bytes | NoReply:
    if isinstance(answer, NoReply):
        return answer
    said = answer.content.get("said")
    return said if isinstance(said, bytes) else NoReply("schema", "its answer is empty")
