"""Messages of secure aggregation between machines: the terms of a session, and parcels of sealed envelopes.

Terms are plain data. A site compares the received ones with its own, field by field, and uses its own: the
received ones decide nothing except whether it takes part. A parcel holds a message of the sum and envelopes
of products side by side, so that both advance in one exchange.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal, cast

import msgspec

from tacit.aggregation.secure.products import ProductSession
from tacit.aggregation.secure.sealing import (
    ENTRY,
    FORMAT,
    FRAME,
    KEY_BYTES,
    SIGNATURE_BYTES,
    TAG_BYTES,
    Envelopes,
    Message,
    Offers,
    Session,
    Shares,
    room,
)
from tacit.aggregation.secure.sealing import Offer as SumOffer
from tacit.errors import Refused, SecureAggregationFailed
from tacit.privacy.contracts import SiteGroups
from tacit.privacy.mechanisms.secure_gram import SecureGram
from tacit.privacy.mechanisms.secure_sum import SecureSum
from tacit.runtime import files

Terms = dict[str, str | int | list[str | int]]
# The stages of products: those of the parties' envelopes and those of the sum share messages.
Stage = Literal["offer", "deal", "open", "mask", "agree", "reveal"]
STAGES: tuple[Stage, ...] = ("offer", "deal", "open", "mask", "agree", "reveal")
# The most bytes that a server carries at once, hence also of one message.
CARRIED = 2**31
# Characters of a value or a reason that go into a log.
TOLD = 300


def sessions(groups: SiteGroups, width: int, colluders: int, number: int, run: str) -> list[Session]:
    """Return the sessions of a round, one for each group; no site is in two of them.

    Args:
        groups: The groups of sites to sum over.
        width: Coordinates of a vector.
        colluders: The number of sites that may collude with the server.
        number: The round.
        run: The run, and its sum if a round has several.

    Raises:
        Refused: A site is in two groups, or a group is too small to hide a site.
    """
    names = [name for group in groups for name in group]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Refused(f"{twice} are in two groups: two sums with the same site reveal more about it than one")
    return [
        Session(run=f"{run}, group {place}", round=number, names=group, width=width, colluders=colluders)
        for place, group in enumerate(groups, start=1)
    ]


def sums_of(
    mechanism: SecureSum, names: Sequence[str], *, run: str, number: int, width: int
) -> list[Session]:
    """Return the sums that a mechanism needs in a round, derived from the shared experiment.

    Raises:
        Refused: A sum would hold less noise than was paid for.
    """
    groups = mechanism.at_round(number).groups(names)
    found = sessions(groups, width, mechanism.colluders, number, run)
    for session in found:
        if session.honest < mechanism.shares:
            raise Refused(
                f"a sum over {len(session.names)} sites holds the noise of {session.honest} honest ones, and "
                f"that of {mechanism.shares} was paid for"
            )
    return found


def products_of(mechanism: SecureGram, names: Sequence[str], *, run: str, number: int) -> ProductSession:
    """Return the products that a mechanism needs, derived from the shared experiment.

    Raises:
        Refused: A party is missing, or the products are more than a server can carry.
    """
    (parties,) = mechanism.groups(names)
    products = ProductSession(
        run=run,
        round=number,
        names=parties,
        widths=mechanism.columns,
        records=mechanism.records,
        colluders=mechanism.colluders,
    )
    require_carriable(products)
    return products


def require_carriable(products: ProductSession) -> None:
    """Refuse products whose envelopes are too large for a server, before any is sent."""
    for stage in ("deal", "open"):
        total = sum(sum(parcel_sizes(products, stage, name).values()) for name in products.names)
        if total > CARRIED:
            raise Refused(
                f"products of {products.records:,} rows and {products.order - 1:,} columns of "
                f"{len(products.names)} parties need {total:,} bytes of envelopes, and a server accepts "
                f"{CARRIED:,}: fewer records or fewer columns are needed"
            )


def terms(which: Session | ProductSession) -> Terms:
    """Return the terms of a session as plain data: everything that its parties must agree on."""
    common: Terms = {
        "format": FORMAT,
        "run": which.run,
        "round": which.round,
        "names": list(which.names),
        "colluders": which.colluders,
    }
    if isinstance(which, Session):
        return common | {"what": "sum", "width": which.width, "threshold": which.threshold}
    widths: list[str | int] = list(which.widths)
    return common | {"what": "products", "widths": widths, "records": which.records}


def encode_terms(which: Session | ProductSession) -> bytes:
    """Encode terms as canonical bytes."""
    return msgspec.msgpack.encode(terms(which), order="sorted")


def commitment(which: Session | ProductSession) -> str:
    """Return the digest of a session's terms."""
    return hashlib.sha256(encode_terms(which)).hexdigest()


def require_same(told: bytes, which: Session | ProductSession) -> None:
    """Refuse terms that are not those that are expected.

    Raises:
        SecureAggregationFailed: With the first field that differs, what is told and what is expected.
    """
    own = terms(which)
    # A name too long or too many would not be the same anyway.
    if len(told) > 2 * len(encode_terms(which)) + FRAME:
        raise SecureAggregationFailed(f"the server's terms are {len(told):,} bytes, more than terms can have")
    try:
        given = msgspec.msgpack.decode(told, type=Terms)
    except files.DAMAGED as error:
        raise SecureAggregationFailed(f"the server's terms cannot be read: {error}") from None
    for field in ("format", "what", *sorted({*own, *given})):
        if field not in given:
            raise SecureAggregationFailed(
                f"the terms of the server lack {field}: here it is {shorten(own[field])}"
            )
        if field not in own:
            raise SecureAggregationFailed(
                f"the terms of the server have {shorten(field)}, which is not known here"
            )
        if given[field] != own[field]:
            raise SecureAggregationFailed(
                f"the terms of the server have {field} = {shorten(given[field])}, and here it is "
                f"{shorten(own[field])}"
            )


def shorten(value: object) -> str:
    """Shorten a value for a log to at most three lines."""
    text = repr(value)
    return text if len(text) <= TOLD else f"{text[:TOLD]}..."


class Parcel(Message, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True, tag="parcel"):
    """A message of the sum, and envelopes that parties have sealed for each other.

    Args:
        letter: The message; empty where the sum has none in the stage.
        sealed: By receiver on the way to the server, by sender on the way from it. Offers are not sealed, and
            are under the name of their sender.
    """

    letter: bytes = b""
    sealed: Mapping[str, memoryview]


def parcel(
    products: ProductSession, stage: Stage, letter: bytes, sealed: Mapping[str, bytes | memoryview]
) -> bytes:
    """Encode a parcel as bytes."""
    content = cast("Mapping[str, memoryview]", sealed)
    return Parcel(session=_mark(products, stage), letter=letter, sealed=content).encode()


def unpack(content: object, products: ProductSession, stage: Stage, most: int) -> Parcel:
    """Decode a parcel of a stage from bytes.

    Raises:
        SecureAggregationFailed: They are more than there can be, or are no such parcel.
    """
    if not isinstance(content, bytes):
        raise SecureAggregationFailed(f"a parcel came as {type(content).__name__} instead of bytes")
    if len(content) > most:
        raise SecureAggregationFailed(f"a parcel came as {len(content):,} bytes, and has at most {most:,}")
    try:
        found = msgspec.msgpack.decode(content, type=Parcel)
    except files.DAMAGED as error:
        raise SecureAggregationFailed(f"a parcel came as bytes that cannot be read: {error}") from None
    if found.session != _mark(products, stage):
        raise SecureAggregationFailed("a parcel is of another session, round or stage")
    return found


def parcel_sizes(products: ProductSession, stage: Stage, name: str) -> dict[str, int]:
    """Return the bytes that a party puts into its parcel in a stage, by receiver."""
    if stage == "offer":
        return {name: KEY_BYTES + SIGNATURE_BYTES}
    if stage == "open":
        rows, columns = products.shapes[name]
        return {other: TAG_BYTES + 4 * rows * columns for other in products.names if other != name}
    hands: dict[str, int] = {}
    for pair, dealer in products.dealers.items():
        if dealer == name:
            rows, columns = products.product_shape(pair)
            # Both get a seed, and the second of a pair a matrix.
            for receiver, more in zip(pair, (0, 4 * rows * columns), strict=True):
                hands[receiver] = hands.get(receiver, TAG_BYTES) + KEY_BYTES + more
    return hands


def room_up(products: ProductSession, stage: Stage, name: str) -> int:
    """Return the largest size of a party's parcel in a stage, in bytes."""
    kinds: dict[str, type[Message]] = {"offer": SumOffer, "deal": Shares}
    return _room(products, parcel_sizes(products, stage, name), kinds.get(stage))


def room_down(products: ProductSession, stage: Stage, name: str) -> int:
    """Return the largest size of the server's parcel for a party in a stage, in bytes."""
    if stage == "deal":
        return _room(products, dict.fromkeys(products.names, KEY_BYTES + SIGNATURE_BYTES), Offers)
    before: Stage = "deal" if stage == "open" else "open"
    sizes = {sender: parcel_sizes(products, before, sender).get(name, 0) for sender in products.names}
    return _room(products, sizes, Envelopes if stage == "mask" else None)


def _room(products: ProductSession, sizes: Mapping[str, int], kind: type[Message] | None) -> int:
    entries = sum(len(name.encode()) + ENTRY + size for name, size in sizes.items())
    return FRAME + entries + (0 if kind is None else room(kind, products.session))


def _mark(products: ProductSession, stage: Stage) -> bytes:
    """Return the digest that binds a parcel to its products and stage."""
    return hashlib.sha256(products.context("parcel", stage)).digest()
