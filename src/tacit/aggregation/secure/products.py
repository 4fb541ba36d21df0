"""Secure Gram matrix: inner products of columns that different parties hold.

For each two parties a third deals random numbers; the two show each other their rows under those, sealed, and
end up with matrices that add up to their products and look like chance one by one. These never leave in the
clear either: all of them go into one secure sum, with each party's own products and its share of noise. So
the total is all that appears, and the server, who carries every envelope, can open none.

Threat model. The server and any one party may put together all they see, as long as that party keeps to the
protocol. They learn the total and what the party knows anyway:

- a multiplying party sees the other's rows minus a uniform matrix that only the dealer knows;
- a dealer knows the uniform matrices, and sees nothing that is hidden under them;
- all parties must stay: over a part of the parties there is no sum at all.

Not covered: a dealer that deals wrong numbers spoils the result, by an amount that depends on no rows, and
learns nothing. There are no proofs that rows are in range: a party that exceeds the bound of its blocks, or
shows other rows than its own, weighs the rows of others as it likes, and noise that is sized for the bound
does not hide them from it and the server. And two parties are too many: a dealer and one of its two together
read the rows of the other, because one holds them minus a matrix that the other knows. More than one colluder
is therefore refused.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.aggregation.secure.dealing import Matrix, decode_matrix, encode_matrix, expand_seed, product
from tacit.aggregation.secure.sealing import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    Identity,
    KeyExchange,
    Roster,
    Vector,
    fresh_bytes,
    seal,
    unseal,
)
from tacit.aggregation.secure.session import Session
from tacit.aggregation.secure.sums import secure_sum
from tacit.errors import SecureAggregationFailed, require, require_count
from tacit.privacy.mechanisms.secure_gram import shares_of, triangle_index

Stage = Literal["offer", "deal", "open", "share"]
STAGES: tuple[Stage, ...] = ("offer", "deal", "open", "share")
Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class ProductSession:
    """Public parameters of secure products, known to all parties beforehand.

    Args:
        run: The run that they belong to.
        round: Its round.
        names: The parties, in the order of their columns.
        widths: Number of columns of each.
        records: Number of rows, the same for all.
        colluders: Number of parties that may work together with the server.

    Raises:
        Refused: Fewer than three parties, or more than one colluder.
    """

    run: str
    round: int
    names: tuple[str, ...]
    widths: tuple[int, ...]
    records: int
    colluders: int = 1

    def __post_init__(self) -> None:
        shares_of(len(self.names), self.colluders)
        given = f"{len(self.widths)} numbers"
        require(len(self.widths) == len(self.names), "widths", given, f"one for each of {len(self.names)}")
        for name, width in zip(self.names, self.widths, strict=True):
            require_count(f"widths of {name}", width)
        require_count("records", self.records)
        _ = self.session

    @property
    def order(self) -> int:
        """Number of rows of the Gram matrix: one for the constant 1, one for each column."""
        return 1 + sum(self.widths)

    @cached_property
    def session(self) -> Session:
        """Session of the final sum: of the upper triangle without its first entry, over all parties."""
        return Session(
            run=self.run,
            round=self.round,
            names=self.names,
            width=self.order * (self.order + 1) // 2 - 1,
            colluders=self.colluders,
            least=len(self.names),
        )

    @cached_property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """The rows and columns of each party."""
        return {name: (self.records, width) for name, width in zip(self.names, self.widths, strict=True)}

    @cached_property
    def dealers(self) -> dict[Pair, str]:
        """Dealer for each two parties: all the others in turn."""
        pairs = list(combinations(range(len(self.names)), 2))
        found: dict[Pair, str] = {}
        for one, other in pairs:
            third = [name for place, name in enumerate(self.names) if place not in (one, other)]
            found[self.names[one], self.names[other]] = third[(one + other) % len(third)]
        return found

    def dealt_by(self, dealer: str, receiver: str) -> Iterator[Pair]:
        """Yield the pairs with the receiver that a party deals for, always in the same order."""
        return (pair for pair, name in self.dealers.items() if name == dealer and receiver in pair)

    def product_shape(self, pair: Pair) -> tuple[int, int]:
        """Of the products of a pair."""
        return self.shapes[pair[0]][1], self.shapes[pair[1]][1]

    def places(self, pair: Pair) -> NDArray[np.int64]:
        """Return the indices of a pair's products in the sum."""
        one, other = (self._columns(name) for name in pair)
        return triangle_index(one[:, None], other[None, :], self.order)

    def context(self, purpose: str, *parts: str | bytes) -> bytes:
        """Return the context that binds a key, a signature or an envelope to these products."""
        sizes = ",".join(map(str, (self.records, *self.widths)))
        # A session sorts its names; here their order says whose columns are where.
        return self.session.context("products", sizes, *self.names, purpose, *parts)

    def _columns(self, name: str) -> NDArray[np.int64]:
        """Return the columns of a party in the matrix; the constant comes first."""
        party = self.names.index(name)
        first = 1 + sum(self.widths[:party])
        return np.arange(first, first + self.widths[party], dtype=np.int64)


class Partner:
    """One party: four stages, each an answer to the messages of the others through the server.

    Args:
        products: The session of products.
        name: The party.
        rows: Its own (records, columns), modulo 2^32.
        identity: The party's own.
        roster: Public keys of all parties.

    Guarantee:
        Only keys leave, and envelopes for one other party each. Their content is uniform to all except its
        dealer, whatever the rows are.
    """

    def __init__(
        self, products: ProductSession, name: str, rows: Matrix, identity: Identity, roster: Roster
    ) -> None:
        require(name in products.names, "name", name, "one of the parties")
        given = f"{rows.dtype} of shape {rows.shape}"
        fits = rows.dtype == np.uint32 and rows.shape == products.shapes[name]
        require(fits, f"rows of {name}", given, f"uint32 of shape {products.shapes[name]}")
        missing = sorted(set(products.names) - set(roster))
        require(not missing, "roster", missing, "missing nobody")
        require(roster[name] == identity.public, "identity", name, "the one in the roster")
        self.products, self.name = products, name
        self._rows, self._identity, self._roster = rows, identity, roster
        self._exchange = KeyExchange(fresh_bytes())
        self._keys: dict[str, bytes] = {}
        # By the other of the pair: what hides the own rows, and what is added to the own matrix.
        self._dealt: dict[str, tuple[Matrix, Matrix]] = {}
        self._stage: Stage | Literal["over", "left"] = "offer"

    def offer(self) -> bytes:
        """Stage 0: return a fresh public key, signed, for all parties."""
        with self._turn("offer"):
            own = self._exchange.public
            return own + self._identity.sign(self.products.context("offer", self.name, own))

    def deal(self, offers: Mapping[str, bytes]) -> dict[str, bytes]:
        """Stage 1: deal random numbers, sealed, to the parties that this one deals for.

        Args:
            offers: Offer of each party.
        """
        with self._turn("deal"):
            self._keys = self._check_offers(offers)
            hands: dict[str, bytes] = {}
            for pair, dealer in self.products.dealers.items():
                if dealer != self.name:
                    continue
                seeds = fresh_bytes(), fresh_bytes()
                one, other = (self._hiding(seed, pair, side) for side, seed in enumerate(seeds))
                rest = product(one, other) - self._addend(seeds[0], pair)
                for name, content in zip(pair, (seeds[0], seeds[1] + encode_matrix(rest)), strict=True):
                    hands[name] = hands.get(name, b"") + content
            return {name: self._seal("deal", name, content) for name, content in hands.items()}

    def mask_rows(self, envelopes: Mapping[str, bytes]) -> dict[str, bytes]:
        """Stage 2: for each of the others, the own rows minus a uniform matrix, sealed.

        Args:
            envelopes: Envelopes that the dealers have sealed for this party.
        """
        with self._turn("open"):
            dealers = {name for pair, name in self.products.dealers.items() if self.name in pair}
            self._all_of(envelopes, dealers)
            for dealer in sorted(dealers):
                self._take(dealer, self._unseal("deal", dealer, envelopes[dealer]))
            hidden = {other: self._rows - hiding for other, (hiding, _) in self._dealt.items()}
            return {other: self._seal("open", other, encode_matrix(shown)) for other, shown in hidden.items()}

    def shares(self, envelopes: Mapping[str, bytes]) -> dict[Pair, Matrix]:
        """Stage 3: for each pair with this party in it, a matrix that adds up with the other's to products.

        Args:
            envelopes: Envelopes that the others have sealed for this party.
        """
        with self._turn("share"):
            self._all_of(envelopes, set(self._dealt))
            found: dict[Pair, Matrix] = {}
            for pair in self.products.dealers:
                if self.name not in pair:
                    continue
                other = pair[0] if self.name == pair[1] else pair[1]
                content = self._unseal("open", other, envelopes[other])
                shown = self._read(other, content, self.products.shapes[other])
                hiding, added = self._dealt.pop(other)
                # (X - U)'Y and U'(Y - V) and U'V are X'Y.
                first = self.name == pair[0]
                found[pair] = added + (product(hiding, shown) if first else product(shown, self._rows))
            return found

    def _take(self, dealer: str, content: bytes) -> None:
        """Read a dealer's message: a seed for each pair, and for the second of a pair a matrix."""
        for pair in self.products.dealt_by(dealer, self.name):
            side, shape = pair.index(self.name), self.products.product_shape(pair)
            seed, content = content[:KEY_BYTES], content[KEY_BYTES:]
            _insist(len(seed) == KEY_BYTES, f"{dealer} has dealt too little")
            if side == 0:
                added = self._addend(seed, pair)
            else:
                size = 4 * shape[0] * shape[1]
                added, content = self._read(dealer, content[:size], shape), content[size:]
            self._dealt[pair[1 - side]] = self._hiding(seed, pair, side), added
        _insist(not content, f"{dealer} has dealt too much")

    def _hiding(self, seed: bytes, pair: Pair, side: int) -> Matrix:
        """The uniform matrix that the rows of one of a pair are hidden under."""
        return expand_seed(seed, self.products.context("hiding", *pair), self.products.shapes[pair[side]])

    def _addend(self, seed: bytes, pair: Pair) -> Matrix:
        """The uniform matrix that the first of a pair adds."""
        return expand_seed(seed, self.products.context("added", *pair), self.products.product_shape(pair))

    def _read(self, sender: str, content: bytes, shape: tuple[int, int]) -> Matrix:
        right = 4 * shape[0] * shape[1]
        _insist(
            len(content) == right, f"{sender} has sent {len(content):,} bytes of numbers instead of {right:,}"
        )
        return decode_matrix(content, shape)

    def _check_offers(self, offers: Mapping[str, bytes]) -> dict[str, bytes]:
        self._all_of(offers, set(self.products.names) - {self.name}, but=self.name)
        keys: dict[str, bytes] = {}
        for name in self.products.names:
            if name == self.name:
                continue
            offer = offers[name]
            key, signature = offer[:KEY_BYTES], offer[KEY_BYTES:]
            right = len(signature) == SIGNATURE_BYTES and self._roster.is_signed_by(
                name, signature, self.products.context("offer", name, key)
            )
            _insist(right, f"the offer of {name} is not signed by {name}")
            keys[name] = key
        different = {self._exchange.public, *keys.values()}
        _insist(len(different) == len(self.products.names), "two of the offered keys are equal")
        return keys

    def _all_of(self, given: Mapping[str, bytes], expected: set[str], but: str = "") -> None:
        silent, strangers = sorted(expected - set(given)), sorted(set(given) - expected - {but})
        _insist(not silent, f"nothing has come from {silent}, and everybody has to stay")
        _insist(not strangers, f"{strangers} have sent what nobody asked for")

    def _seal(self, purpose: Stage, receiver: str, content: bytes) -> bytes:
        route = self.products.context(purpose, self.name, receiver)
        return seal(self._exchange.key(self._keys[receiver], route), content, route)

    def _unseal(self, purpose: Stage, sender: str, envelope: bytes) -> bytes:
        route = self.products.context(purpose, sender, self.name)
        try:
            return unseal(self._exchange.key(self._keys[sender], route), envelope, route)
        except SecureAggregationFailed as error:
            raise SecureAggregationFailed(f"{sender}: {error}") from None

    @contextmanager
    def _turn(self, stage: Stage) -> Generator[None]:
        """Run a stage in its turn and once: a key seals one envelope, and no second one."""
        try:
            _insist(self._stage == stage, f"it was asked to {stage}, and that is not due")
            self._stage = "left"
            yield
        except SecureAggregationFailed as error:
            self._stage = "left"
            raise SecureAggregationFailed(f"{self.name} refuses: {error}. Nothing was unmasked") from None
        self._stage = (*STAGES, "over")[STAGES.index(stage) + 1]


def secure_products(
    rows: Mapping[str, Matrix],
    own: Mapping[str, Vector],
    *,
    products: ProductSession,
    identities: Mapping[str, Identity] | None = None,
) -> Vector:
    """Compute the products of all parties' columns, plus each party's own addend, modulo 2^32.

    All parties are in this process: the same bytes as over a network, nothing skipped.

    Args:
        rows: By party (records, its columns).
        own: By party, its addend (entries,): products of its own columns, and noise.
        products: The session of products.
        identities: By party; fresh ones unless given.

    Returns:
        The upper triangle of the matrix row by row, without its first entry.

    Raises:
        SecureAggregationFailed: A party sent an invalid message; nothing was unmasked.
    """
    names = products.names
    for field, given in (("rows", rows), ("own", own)):
        require(set(given) == set(names), field, sorted(given), f"one for each party: {list(names)}")
    known = {name: Identity.fresh() for name in names} if identities is None else dict(identities)
    roster = Roster.of(known)
    partners = {name: Partner(products, name, rows[name], known[name], roster) for name in names}
    offers = {name: partner.offer() for name, partner in partners.items()}
    dealt = {name: partner.deal(offers) for name, partner in partners.items()}
    opened = {name: partner.mask_rows(route_envelopes(dealt, name)) for name, partner in partners.items()}
    vectors: dict[str, Vector] = {}
    for name, partner in partners.items():
        vectors[name] = np.array(own[name])
        for pair, share in partner.shares(route_envelopes(opened, name)).items():
            vectors[name][products.places(pair)] += share
    return secure_sum(vectors, session=products.session, identities=known).total


def route_envelopes(sent: Mapping[str, Mapping[str, bytes]], receiver: str) -> dict[str, bytes]:
    """The envelopes for one party, by sender: all that the server does before the sum."""
    return {sender: envelopes[receiver] for sender, envelopes in sent.items() if receiver in envelopes}


def _insist(condition: bool, reason: str) -> None:
    if not condition:
        raise SecureAggregationFailed(reason)
