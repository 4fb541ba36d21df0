"""Products in secret: exact in total, chance to whoever looks at a part, and nothing once tampered with."""

import hashlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.aggregation.secure import Identity, Roster, products
from tacit.aggregation.secure.products import (
    Partner,
    ProductSession,
    decode_matrix,
    encode_matrix,
    expand_seed,
    product,
    route_envelopes,
    secure_products,
)
from tacit.errors import InvalidValue, Refused, SecureAggregationFailed

CITIES = ("oslo", "bergen", "alta", "molde", "hamar")


def setting(widths=(2, 3, 1), records=20, **options) -> ProductSession:
    names = CITIES[: len(widths)]
    return ProductSession(
        **{"run": "trial", "round": 1, "names": names, "widths": widths, "records": records, **options}
    )


def rows_of(which: ProductSession, seed: int = 0) -> dict[str, np.ndarray]:
    draws = np.random.default_rng(seed)
    return {name: draws.integers(0, 2**32, shape, dtype=np.uint32) for name, shape in which.shapes.items()}


def crossed(which: ProductSession, rows) -> np.ndarray:
    """The products of columns of different parties, in exact integers, where the sum has them."""
    nothing = np.zeros((which.records, 1), dtype=np.uint32)
    columns = np.hstack([nothing, *(rows[name] for name in which.names)]).astype(object)
    whole = columns.T @ columns
    start = 1
    for width in which.widths:
        whole[start : start + width, start : start + width] = 0
        start += width
    entries = whole[np.triu_indices(which.order)][1:]
    return np.array([int(entry) % 2**32 for entry in entries], dtype=np.uint32)


class Partners:
    """All parties, stage by stage, so that tests can come between them and look into envelopes."""

    def __init__(self, which: ProductSession, rows=None):
        self.which, self.rows = which, rows_of(which) if rows is None else rows
        self.identities = {name: Identity.fresh() for name in which.names}
        self.roster = Roster.of(self.identities)
        self.partners = {name: self.partner(name) for name in which.names}

    def partner(self, name: str) -> Partner:
        return Partner(self.which, name, self.rows[name], self.identities[name], self.roster)

    def offers(self):
        self.offered = {name: partner.offer() for name, partner in self.partners.items()}
        return self.offered

    def dealings(self):
        offers = self.offers()
        self.dealt = {name: partner.deal(offers) for name, partner in self.partners.items()}
        return self.dealt

    def openings(self):
        dealt = self.dealings()
        self.opened = {
            name: partner.mask_rows(route_envelopes(dealt, name)) for name, partner in self.partners.items()
        }
        return self.opened

    def shares(self):
        opened = self.openings()
        return {
            name: partner.shares(route_envelopes(opened, name)) for name, partner in self.partners.items()
        }

    def shown(self, sender: str, receiver: str) -> np.ndarray:
        """Return the content that the receiver finds in an opening."""
        content = self.partners[receiver]._unseal("open", sender, self.opened[sender][receiver])
        return decode_matrix(content, self.which.shapes[sender])


def looks_uniform(words: np.ndarray) -> bool:
    """Bytes of all four places, and single bits, as even as chance makes them."""
    found = np.frombuffer(np.ascontiguousarray(words, dtype="<u4").tobytes(), dtype=np.uint8)
    even = [stats.chisquare(np.bincount(found[place::4], minlength=256)).pvalue for place in range(4)]
    bits = np.unpackbits(found).reshape(-1, 32).mean(axis=0)
    far = np.abs(bits - 0.5).max() * 2 * np.sqrt(words.size)
    return min(even) > 1e-9 and far < 7


# --- the total -------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 4), min_size=3, max_size=5), st.integers(1, 30), st.integers(0, 2**32))
@settings(max_examples=20)
def test_the_total_is_the_plain_product(widths, records, seed):
    which = setting(tuple(widths), records)
    rows = rows_of(which, seed)
    nothing = {name: np.zeros(which.session.width, dtype=np.uint32) for name in which.names}
    assert (secure_products(rows, nothing, products=which) == crossed(which, rows)).all()


def test_what_a_party_adds_by_itself_is_in_the_total_and_left_alone():
    which = setting()
    rows, draws = rows_of(which), np.random.default_rng(3)
    own = {name: draws.integers(0, 2**32, which.session.width, dtype=np.uint32) for name in which.names}
    before = {name: (rows[name].copy(), own[name].copy()) for name in which.names}
    total = secure_products(rows, own, products=which)
    assert (total == crossed(which, rows) + sum(own.values())).all()
    for name in which.names:
        assert (rows[name] == before[name][0]).all()
        assert (own[name] == before[name][1]).all()


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 5), st.integers(1, 40))
def test_products_in_halves_are_exact_modulo_the_ring(seed, left, right, records):
    draws = np.random.default_rng(seed)
    one, other = (draws.integers(0, 2**32, (records, width), dtype=np.uint32) for width in (left, right))
    expected = (one.astype(object).T @ other.astype(object)) % 2**32
    assert (product(one, other) == expected.astype(np.uint32)).all()


def test_products_over_many_rows_of_the_largest_numbers_are_exact():
    records = 2**17 + 3
    one = np.full((records, 1), 2**32 - 1, dtype=np.uint32)
    assert int(product(one, one)[0, 0]) == records % 2**32


def test_a_party_deals_in_its_turn_and_never_for_itself():
    for count in range(3, 12):
        names = tuple(f"party-{place}" for place in range(count))
        dealers = ProductSession(run="a", round=0, names=names, widths=(1,) * count, records=2).dealers
        assert len(dealers) == count * (count - 1) // 2
        assert all(dealer not in pair for pair, dealer in dealers.items())
        often = Counter(dealers.values())
        assert max(often.values()) - min(often[name] for name in names) <= 1


# --- who sees what ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 1, 2**32 - 1])
def test_what_one_party_sees_of_anothers_rows_is_chance_whatever_they_are(value):
    which = setting((4, 4, 4), records=3000)
    rows = {name: np.full(shape, value, dtype=np.uint32) for name, shape in which.shapes.items()}
    parties = Partners(which, rows)
    parties.openings()
    views = {
        (one, other): parties.shown(one, other) for one in CITIES[:3] for other in CITIES[:3] if one != other
    }
    for view in views.values():
        assert looks_uniform(view)
    # No two parties are shown the same, or they could take the difference.
    assert len({view.tobytes() for view in views.values()}) == 6
    assert looks_uniform(views["oslo", "bergen"] - views["oslo", "alta"])


def test_what_the_server_sees_of_openings_and_vectors_is_chance(monkeypatch):
    which = setting((30, 30, 30), records=200)
    rows = {name: np.zeros(shape, dtype=np.uint32) for name, shape in which.shapes.items()}
    seen: list[np.ndarray] = []
    plain = products.Coordinator.collect_vectors

    def watched(server, replies):
        messages = dict(replies)
        seen.extend(
            np.frombuffer(bytes(message)[-4 * which.session.width :], "<u4") for message in messages.values()
        )
        return plain(server, messages)

    monkeypatch.setattr(products.Coordinator, "collect_vectors", watched)
    nothing = {name: np.zeros(which.session.width, dtype=np.uint32) for name in which.names}
    assert not secure_products(rows, nothing, products=which).any()
    assert len(seen) == 3
    assert all(looks_uniform(vector) for vector in seen)
    parties = Partners(which, rows)
    parties.openings()
    for sent in (parties.dealt, parties.opened):
        for envelopes in sent.values():
            for envelope in envelopes.values():
                body = envelope[: len(envelope) // 4 * 4]
                if len(body) > 10_000:
                    assert looks_uniform(np.frombuffer(body, "<u4"))


def test_the_share_of_one_party_is_chance_whatever_the_others_rows():
    which = setting((2, 2, 1), records=4)
    mine = rows_of(which)["bergen"]
    for value in (0, 7):
        rows = {name: np.full(shape, value, dtype=np.uint32) for name, shape in which.shapes.items()}
        rows["bergen"] = mine
        found = [Partners(which, rows).shares()["bergen"]["oslo", "bergen"] for _ in range(150)]
        words = np.array(found).ravel()
        # Too few for single bytes: the four highest bits, evenly.
        assert stats.chisquare(np.bincount(words >> 28, minlength=16)).pvalue > 1e-9


def test_every_other_rows_would_have_looked_the_same_to_the_second_of_a_pair():
    """For whatever the first might hold, there are cards by which the second sees the very same."""
    draws = np.random.default_rng(5)
    first, instead, second = (draws.integers(0, 2**32, (9, 2), dtype=np.uint32) for _ in range(3))
    hiding, other_hiding = (draws.integers(0, 2**32, (9, 2), dtype=np.uint32) for _ in range(2))
    added = draws.integers(0, 2**32, (2, 2), dtype=np.uint32)
    shown, rest = first - hiding, product(hiding, other_hiding) - added
    # The same cards for the second, other cards for the first.
    hiding_instead = instead - shown
    added_instead = product(hiding_instead, other_hiding) - rest
    assert (instead - hiding_instead == shown).all()
    theirs = product(shown, second) + rest
    mine = product(hiding_instead, second - other_hiding) + added_instead
    assert (mine + theirs == product(instead, second)).all()


def test_protocol_secrets_are_fresh_every_time():
    which = setting()
    rows = rows_of(which)
    once, again = Partners(which, rows), Partners(which, rows)
    assert once.openings()["oslo"]["bergen"] != again.openings()["oslo"]["bergen"]
    assert (once.shown("oslo", "bergen") != again.shown("oslo", "bergen")).any()


def test_seeds_stand_for_other_matrices_in_other_contexts():
    seed = hashlib.sha256(b"seed").digest()
    one, other = (expand_seed(seed, context, (5, 3)) for context in (b"one", b"other"))
    assert (one != other).any()
    assert (decode_matrix(encode_matrix(one), (5, 3)) == one).all()


# --- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [0, 40, -1])
@pytest.mark.parametrize("stage", ["dealings", "openings"])
def test_a_tampered_envelope_stops_it(stage, place):
    parties = Partners(setting())
    sent = getattr(parties, stage)()
    dealer = parties.which.dealers["oslo", "bergen"]
    sender = dealer if stage == "dealings" else "oslo"
    envelope = bytearray(sent[sender]["bergen"])
    envelope[place] ^= 1
    sent[sender]["bergen"] = bytes(envelope)
    bergen = parties.partners["bergen"]
    answer = bergen.mask_rows if stage == "dealings" else bergen.shares
    with pytest.raises(
        SecureAggregationFailed, match=rf"bergen refuses: {sender}: .*changed.*Nothing was unmasked"
    ):
        answer(route_envelopes(sent, "bergen"))
    with pytest.raises(SecureAggregationFailed, match="which is not the next stage"):
        answer(route_envelopes(sent, "bergen"))


def test_an_envelope_for_another_or_of_another_session_stops_it():
    parties = Partners(setting((2, 2, 2)))
    opened = parties.openings()
    swapped = {"oslo": opened["oslo"]["alta"], "alta": opened["alta"]["bergen"]}
    with pytest.raises(SecureAggregationFailed, match="bergen refuses: oslo"):
        parties.partners["bergen"].shares(swapped)
    other = Partners(setting((2, 2, 2), round=2))
    other.offers()
    with pytest.raises(SecureAggregationFailed, match="not signed"):
        other.partners["bergen"].deal(parties.offered)


@pytest.mark.parametrize("change", [b"", b"short", None])
def test_offers_that_are_not_signed_stop_it(change):
    parties = Partners(setting())
    offers = parties.offers()
    offers["oslo"] = offers["bergen"] if change is None else change
    with pytest.raises(
        SecureAggregationFailed, match="alta refuses: the offer of oslo is not signed by oslo"
    ):
        parties.partners["alta"].deal(offers)


def test_a_key_offered_twice_stops_it():
    parties = Partners(setting())
    offers, key = parties.offers(), parties.offered["bergen"][:32]
    offers["oslo"] = key + parties.identities["oslo"].sign(parties.which.context("offer", "oslo", key))
    with pytest.raises(SecureAggregationFailed, match="two of the offered keys are equal"):
        parties.partners["alta"].deal(offers)


def test_everybody_has_to_stay_and_nobody_else_may_come():
    parties = Partners(setting())
    offers = parties.offers()
    with pytest.raises(
        SecureAggregationFailed, match=r"nothing has come from \['oslo'\], and every party must stay"
    ):
        parties.partners["alta"].deal({name: offers[name] for name in ("alta", "bergen")})
    with pytest.raises(SecureAggregationFailed, match=r"\['rome'\] have sent messages without a request"):
        parties.partners["bergen"].deal({**offers, "rome": b""})


@pytest.mark.parametrize(
    ("more", "reason"), [(b"", "bytes of numbers"), (b"1234", "alta sent too many random numbers")]
)
def test_a_dealer_that_deals_too_little_or_too_much_is_named(monkeypatch, more, reason):
    parties = Partners(setting())
    monkeypatch.setattr(
        products, "encode_matrix", lambda matrix: encode_matrix(matrix) + more if more else b""
    )
    dealt = parties.dealings()
    monkeypatch.undo()
    with pytest.raises(SecureAggregationFailed, match=f"bergen refuses: .*{reason}"):
        parties.partners["bergen"].mask_rows(route_envelopes(dealt, "bergen"))


def test_a_dealer_that_deals_wrong_numbers_spoils_the_total_by_what_depends_on_no_rows(monkeypatch):
    which = setting((1, 1, 1), records=6)
    nothing = {name: np.zeros(which.session.width, dtype=np.uint32) for name in which.names}
    monkeypatch.setattr(
        products, "encode_matrix", lambda m: encode_matrix(m + np.uint32(5) if m.shape == (1, 1) else m)
    )
    for seed in (1, 2):
        rows = rows_of(which, seed)
        off = secure_products(rows, nothing, products=which) - crossed(which, rows)
        assert off.tolist() == [0, 0, 0, 0, 5, 5, 0, 5, 0]


def test_fewer_than_three_parties_are_refused():
    with pytest.raises(Refused, match=r"2 parties cannot use secure products.*needs a third party as dealer"):
        setting((2, 2))


def test_two_colluders_are_refused_with_what_they_could_do():
    with pytest.raises(Refused, match="could read the rows of the other"):
        setting((1, 1, 1, 1, 1), colluders=2)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"widths": (1, 1, 0)}, "widths of alta = 0"),
        ({"names": CITIES}, "widths = '3 numbers'"),
        ({"records": 0}, "records = 0"),
        ({"names": ("oslo", "oslo", "alta")}, "different"),
    ],
)
def test_what_cannot_be_multiplied_is_refused(options, reason):
    with pytest.raises(InvalidValue, match=reason):
        setting(**options)


def test_rows_of_another_shape_are_refused():
    which = setting()
    rows = rows_of(which)
    nothing = {name: np.zeros(which.session.width, dtype=np.uint32) for name in which.names}
    with pytest.raises(InvalidValue, match=r"rows of oslo = 'uint32 of shape \(20, 3\)'"):
        secure_products({**rows, "oslo": rows["bergen"]}, nothing, products=which)
    with pytest.raises(InvalidValue, match="rows of oslo = 'int64"):
        secure_products({**rows, "oslo": rows["oslo"].astype(np.int64)}, nothing, products=which)
    with pytest.raises(InvalidValue, match="one for each party"):
        secure_products({"oslo": rows["oslo"]}, nothing, products=which)


def test_a_party_answers_each_stage_once():
    parties = Partners(setting())
    parties.shares()
    with pytest.raises(SecureAggregationFailed, match="asked to offer, which is not the next stage"):
        parties.partners["oslo"].offer()
