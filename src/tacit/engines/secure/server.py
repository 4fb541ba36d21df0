"""Secure sums and products with every party on a machine of its own: the side of the server.

The protocol is that of `tacit.aggregation.secure`, bytes in and bytes out; this module schedules its
messages. All groups of a round advance together: a sum takes five exchanges and products take six, whatever
the number of groups and parties. The server continues without a site that falls silent, down to the
threshold; products need all parties. Nothing here protects the sites: `tacit.engines.secure.client` does.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

from tacit.aggregation.secure import Coordinator, Roster, SumResult
from tacit.aggregation.secure.products import ProductSession
from tacit.aggregation.secure.sealing import Vector
from tacit.aggregation.secure.session import STAGES
from tacit.engines.messages import NoReply
from tacit.engines.secure import messages as parts
from tacit.engines.secure.messages import Parcel
from tacit.errors import SecureAggregationFailed
from tacit.learning.record import Fault
from tacit.privacy.contracts import SiteGroups

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
    """The answers of those who gave one; why the others did not is written down."""
    for name, answer in answers:
        if isinstance(answer, bytes):
            yield name, answer
            continue
        silence = answer or NoReply("absent", f"nothing has come from it in the stage {stage!r}")
        server.faults.append(Fault(site=name, reason=silence.reason, detail=silence.detail[: parts.TOLD]))


def _parcels(
    server: Coordinator, products: ProductSession, stage: parts.Stage, sent: dict[str, bytes], talk: Talk
) -> dict[str, Parcel]:
    """The parcel of every party."""
    found: dict[str, Parcel] = {}
    for name, answer in _usable(server, stage, _answers(stage, sent, talk, len(sent))):
        try:
            parcel = parts.unpack(answer, products, stage, parts.room_up(products, stage, name))
            sizes = {receiver: sealed.nbytes for receiver, sealed in parcel.sealed.items()}
            if sizes != parts.parcel_sizes(products, stage, name):
                raise SecureAggregationFailed("its parcel does not hold what everybody else needs")
            found[name] = parcel
        except SecureAggregationFailed as error:
            server.faults.append(Fault(site=name, reason="schema", detail=str(error)))
    with _explain_failure(server):
        if len(found) < len(products.names):
            raise SecureAggregationFailed(
                f"{len(found)} of {len(products.names)} parties are left after the stage {stage!r}, and "
                f"everybody has to stay. Nothing was unmasked"
            )
    return found


def _letters(parcels: Mapping[str, Parcel]) -> Iterator[tuple[str, bytes]]:
    return ((name, parcel.letter) for name, parcel in parcels.items())


def _envelopes_for(parcels: Mapping[str, Parcel], receiver: str) -> dict[str, memoryview]:
    """The envelopes for one party, by sender."""
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
