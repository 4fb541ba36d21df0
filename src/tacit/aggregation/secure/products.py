"""Secure products of columns of different parties (the Gram matrix), and secure sums in this process.

For each two parties a third deals random numbers; the two show each other their rows under those, sealed, and
end up with matrices that add up to their products and look like chance one by one. These never leave as they
are either: everybody's go into one secure sum, with what a party knows by itself and its share of noise. So
the total is all that appears, and the server, who carries every envelope, can open none.

A dealer draws U, V and Z for two parties (Beaver 1991): the first gets U and Z, the second V and U'V - Z. The
first shows X - U and the second Y - V, which tells nothing about X or Y; each can then work out a matrix of
its own, and the two add up to X'Y, modulo 2^32.

Threat model. The server and any one party may put together all they see, as long as that party keeps to the
protocol. They learn the total and what the party knows anyway:

- whoever multiplies sees the other's rows minus a uniform matrix that only the dealer knows;
- whoever deals knows the uniform matrices, and sees nothing that is hidden under them;
- everybody must stay: of a part of the parties there is no sum at all.

What it does not stand. A dealer that deals wrong numbers spoils the result, by something that depends on no
rows, and learns nothing. There are no proofs that rows are in range: a party that does not keep its blocks to
their bound, or shows other rows than its own, weighs the rows of others as it likes, and noise that is sized
for the bound does not hide them from it and the server. And two parties are too many: a dealer and one of its
two together read the rows of the other, because one holds them minus a matrix that the other knows. More than
one colluder is therefore refused.

`secure_sum` and `secure_products` run all parties in this process, the same bytes as over a network;
`sum_locally` and `multiply_locally` do so for the updates of a round.
"""

import secrets
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.aggregation.secure.coordinator import Coordinator, SumResult
from tacit.aggregation.secure.member import Member
from tacit.aggregation.secure.sealing import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    Identity,
    KeyExchange,
    Roster,
    Session,
    Vector,
    derive_key,
    fresh_bytes,
    mask,
    seal,
    unseal,
)
from tacit.aggregation.secure.sealing import STAGES as SUM_STAGES
from tacit.aggregation.secure.sealing import Stage as SumStage
from tacit.errors import Refused, SecureAggregationFailed, require, require_count, require_word
from tacit.learning.query import Updates
from tacit.learning.record import Fault
from tacit.privacy.mechanisms.secure_gram import SecureGram, shares_of, triangle_index
from tacit.privacy.mechanisms.secure_sum import SecureSum
from tacit.runtime.threads import one_thread

Matrix = NDArray[np.uint32]

# Rows that are multiplied at a time: sums of this many products of 16 bits stay far below 2^53.
ROWS = 2**16


def expand_seed(seed: bytes, context: bytes, shape: tuple[int, int]) -> Matrix:
    """Expand a seed to its random matrix.

    Guarantee:
        Without the seed it is uniform, as far as the keystream of ChaCha20 cannot be told from chance.
    """
    words = np.zeros(shape[0] * shape[1], dtype=np.uint32)
    mask(words, derive_key(seed, context), 1)
    return words.reshape(shape)


def product(left: Matrix, right: Matrix) -> Matrix:
    """The sums over rows of products of columns, modulo 2^32 (columns of the left, of the right)."""
    total = np.zeros((left.shape[1], right.shape[1]), dtype=np.uint64)
    for start in range(0, len(left), ROWS):
        # Whole numbers in halves of 16 bits: products in doubles are exact, and many times faster.
        low, high = _halves(left[start : start + ROWS])
        lower, higher = _halves(right[start : start + ROWS])
        total += (low.T @ lower).astype(np.uint64)
        total += (low.T @ higher + high.T @ lower).astype(np.uint64) << np.uint64(16)
    return total.astype(np.uint32)


def encode_matrix(matrix: Matrix) -> bytes:
    """Encode a matrix as little-endian bytes, row by row."""
    return matrix.astype("<u4", copy=False).tobytes()


def decode_matrix(content: bytes, shape: tuple[int, int]) -> Matrix:
    """Decode a matrix from bytes, refusing any other number than its shape needs."""
    return np.frombuffer(content, dtype="<u4").astype(np.uint32).reshape(shape)


def _halves(matrix: Matrix) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return (matrix & np.uint32(0xFFFF)).astype(np.float64), (matrix >> np.uint32(16)).astype(np.float64)


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
        """Shape of the products of a pair."""
        return self.shapes[pair[0]][1], self.shapes[pair[1]][1]

    def places(self, pair: Pair) -> NDArray[np.int64]:
        """Return the indices of a pair's products in the sum."""
        one, other = (self._columns(name) for name in pair)
        return triangle_index(one[:, None], other[None, :], self.order)

    def context(self, purpose: str, *parts: str | bytes) -> bytes:
        """Return the context that binds a key, a signature or an envelope to these products."""
        sizes = ",".join(map(str, (self.records, *self.widths)))
        # A session sorts its names; here their order assigns the columns.
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
        require(not missing, "roster", f"one without {', '.join(missing)}", "complete")
        require(roster[name] == identity.public, "identity", name, "the one in the roster")
        self.products, self.name = products, name
        self._rows, self._identity, self._roster = rows, identity, roster
        self._exchange = KeyExchange(fresh_bytes())
        self._keys: dict[str, bytes] = {}
        # By the other of the pair: the matrix that hides the own rows, and the one that is added to the own
        # matrix.
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
            _insist(len(seed) == KEY_BYTES, f"{dealer} sent too few random numbers")
            if side == 0:
                added = self._addend(seed, pair)
            else:
                size = 4 * shape[0] * shape[1]
                added, content = self._read(dealer, content[:size], shape), content[size:]
            self._dealt[pair[1 - side]] = self._hiding(seed, pair, side), added
        _insist(not content, f"{dealer} sent too many random numbers")

    def _hiding(self, seed: bytes, pair: Pair, side: int) -> Matrix:
        """Return the uniform matrix that the rows of one of a pair are hidden under."""
        return expand_seed(seed, self.products.context("hiding", *pair), self.products.shapes[pair[side]])

    def _addend(self, seed: bytes, pair: Pair) -> Matrix:
        """Return the uniform matrix that the first of a pair adds."""
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
        _insist(not silent, f"nothing has come from {silent}, and every party must stay")
        _insist(not strangers, f"{strangers} have sent messages without a request")

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
            _insist(self._stage == stage, f"it was asked to {stage}, which is not the next stage")
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


def secure_sum(
    vectors: Mapping[str, Vector],
    *,
    session: Session,
    identities: Mapping[str, Identity] | None = None,
    dropped: Mapping[str, SumStage] | None = None,
) -> SumResult:
    """Add up the vectors of all sites that stay, without any party seeing one of another.

    Args:
        vectors: By site (width,).
        session: The session of the sum.
        identities: By site; fresh ones unless given.
        dropped: Sites that fall silent, and the stage from which on nothing is heard of them.

    Raises:
        SecureAggregationFailed: Fewer than the threshold stay, in some stage; nothing was unmasked.
    """
    names, silent = session.names, dict(dropped or {})
    require(set(vectors) == set(names), "vectors", sorted(vectors), f"one for each site: {list(names)}")
    require(silent.keys() <= set(names), "dropped", sorted(silent), f"sites of the session: {list(names)}")
    for name, stage in silent.items():
        require_word(f"dropped.{name}", stage, SUM_STAGES)
    own = {name: Identity.fresh() for name in names} if identities is None else identities
    roster = Roster.of({name: own[name] for name in names})
    members = {name: Member(session, name, own[name], roster) for name in names}
    server = Coordinator(session, roster)

    def heard(stage: SumStage, sent: Iterable[str]) -> Iterator[str]:
        late = SUM_STAGES.index(stage)
        return (name for name in sent if name not in silent or late < SUM_STAGES.index(silent[name]))

    offers = server.collect_offers((name, members[name].offer()) for name in heard("offer", names))
    sealed = server.collect_shares(
        (name, members[name].share(offers[name])) for name in heard("share", offers)
    )
    survivors = server.collect_vectors(
        (name, members[name].mask(vectors[name], sealed[name])) for name in heard("mask", sealed)
    )
    signed = server.collect_signatures(
        (name, members[name].agree(survivors[name])) for name in heard("agree", survivors)
    )
    return server.unmask((name, members[name].reveal(signed[name])) for name in heard("reveal", signed))


def multiply_locally(updates: Updates, mechanism: SecureGram) -> Updates:
    """Return the one row that a server sees: noisy sums of products, with all parties in this process.

    Args:
        updates: The output of `mechanism.at_site` for each party, in the order of `mechanism.widths`.
        mechanism: The layout of the parties' columns, and the conversion of integers to numbers.

    Returns:
        One row of `order * (order + 1) / 2` numbers: the upper triangle, row by row and with the diagonal, of
        W'W + E, where W has a column of ones, then all parties' columns. The first entry is the number of
        records, without noise; `secure_gram.from_upper_triangle` makes it a matrix again.
    """
    (names,) = mechanism.groups(updates.names)
    products = ProductSession(
        run=secrets.token_hex(8),
        round=updates.round,
        names=names,
        widths=mechanism.columns,
        records=mechanism.records,
        colluders=mechanism.colluders,
    )
    with one_thread():
        brought = {
            name: mechanism.secure_input(party, row)
            for party, (name, row) in enumerate(zip(names, updates.matrix, strict=True))
        }
        total = secure_products(
            {name: rows.astype(np.uint32) for name, (rows, _) in brought.items()},
            {name: own for name, (_, own) in brought.items()},
            products=products,
        )
    return Updates(("all parties",), mechanism.decode(total)[None], round=updates.round)


def sum_locally(updates: Updates, mechanism: SecureSum) -> Updates:
    """Return the means over groups of sites, summed by the protocol with all its parties in this process.

    Args:
        updates: The updates of all sites, as integers, with their shares of the noise.
        mechanism: The mechanism, which converts integers to numbers.
    """
    steps = dict(zip(updates.names, updates.matrix, strict=True))
    run, rows, faults = secrets.token_hex(8), list[np.ndarray](), list[Fault]()
    groups = mechanism.groups(updates.names)
    for place, group in enumerate(groups, start=1):
        session = Session(
            run=f"{run}, group {place}",
            round=mechanism.number,
            names=group,
            width=int(updates.matrix.shape[1]),
            colluders=mechanism.colluders,
        )
        if session.honest < mechanism.shares:
            raise Refused(
                f"a sum over {len(group)} sites holds the noise of {session.honest} honest ones, and that of "
                f"{mechanism.shares} was paid for"
            )
        found = secure_sum({name: mechanism.on_ring(steps[name]) for name in group}, session=session)
        rows.append(mechanism.mean_of(found.total, len(group)))
        faults += found.faults
    names = tuple(f"group {place}" for place in range(1, len(groups) + 1))
    return Updates(names, np.stack(rows), round=updates.round, faults=tuple(faults))
