"""Tampering: what a site refuses, what the server does not count, and that neither breaks the other."""

import secrets
from contextlib import suppress
from hashlib import sha256

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parties import Parties, added, changed, read, session_of

from tacit.aggregation.secure import Coordinator, Member, Roster
from tacit.aggregation.secure.sealing import (
    Confirmation,
    Confirmations,
    Envelopes,
    Identity,
    KeyExchange,
    Masked,
    Offer,
    Offers,
    Revealed,
    Shares,
    Survivors,
    decode_message,
    room,
)
from tacit.errors import InvalidValue, SecureAggregationFailed

FIVE = session_of(5)


@pytest.fixture
def parties() -> Parties:
    return Parties(FIVE)


def refuses(reason: str):
    return pytest.raises(SecureAggregationFailed, match=f"oslo refuses: .*{reason}")


def with_offer(message: bytes, whose: str, **fields) -> bytes:
    """The offers with one of them changed."""
    offers = read(message, Offers).offers
    return changed(
        message,
        Offers,
        offers=[
            msgspec.structs.replace(offer, **fields) if offer.site == whose else offer for offer in offers
        ],
    )


# --- offers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["seal", "mask", "seed"])
def test_a_swapped_key_is_noticed(parties: Parties, field: str):  # fault 44: a server in the middle
    offers = parties.offers()["oslo"]
    own = KeyExchange(b"the server's own key............").public
    with refuses("the offer of bergen is not signed by bergen"):
        parties.members["oslo"].share(with_offer(offers, "bergen", **{field: own}))


def test_an_offer_that_another_site_has_signed_is_noticed(parties: Parties):
    offers = parties.offers()["oslo"]
    found = {offer.site: offer for offer in read(offers, Offers).offers}["bergen"]
    forged = parties.identities["tromso"].sign(found.signature_content(FIVE))
    with refuses("the offer of bergen is not signed by bergen"):
        parties.members["oslo"].share(with_offer(offers, "bergen", signature=forged))


def test_an_offer_under_another_name_is_noticed(parties: Parties):
    offers = parties.offers()["oslo"]
    with refuses("'alta' is not a site of the session"):
        parties.members["oslo"].share(with_offer(offers, "bergen", site="alta"))


@pytest.mark.parametrize("other", [session_of(5, round=2), session_of(5, run="other"), session_of(5, 9)])
def test_an_offer_of_another_session_is_noticed(parties: Parties, other):
    offers = parties.offers()["oslo"]
    foreign = read(Member(other, "bergen", parties.identities["bergen"], parties.roster).offer(), Offer)
    rest = [offer for offer in read(offers, Offers).offers if offer.site != "bergen"]
    with refuses("the offer of bergen is of another session"):
        parties.members["oslo"].share(changed(offers, Offers, offers=[*rest, foreign]))


def test_an_old_offer_relabelled_for_this_session_is_noticed(parties: Parties):
    offers = parties.offers()["oslo"]
    old = Member(session_of(5, round=0), "bergen", parties.identities["bergen"], parties.roster).offer()
    relabelled = msgspec.structs.replace(read(old, Offer), session=FIVE.digest)
    rest = [offer for offer in read(offers, Offers).offers if offer.site != "bergen"]
    with refuses("the offer of bergen is not signed by bergen"):
        parties.members["oslo"].share(changed(offers, Offers, offers=[*rest, relabelled]))


def test_two_offers_of_one_site_are_noticed(parties: Parties):
    offers = parties.offers()["oslo"]
    second = read(parties.member("bergen").offer(), Offer)
    with refuses("there are two offers of bergen"):
        parties.members["oslo"].share(
            changed(offers, Offers, offers=[*read(offers, Offers).offers[1:], second, second])
        )


def test_equal_keys_are_noticed(parties: Parties):
    offers = parties.offers()["oslo"]
    copied = {offer.site: offer for offer in read(offers, Offers).offers}["tromso"]
    text = FIVE.context("offer", "bergen", copied.seal, copied.mask, copied.seed)
    copy = msgspec.structs.replace(copied, site="bergen", signature=parties.identities["bergen"].sign(text))
    rest = [offer for offer in read(offers, Offers).offers if offer.site != "bergen"]
    with refuses("two of the offered keys are equal"):
        parties.members["oslo"].share(changed(offers, Offers, offers=[*rest, copy]))


def test_a_key_that_leaves_no_secret_is_noticed_by_sites_and_server(parties: Parties):
    offers = parties.offers()["oslo"]
    one = {offer.site: offer for offer in read(offers, Offers).offers}["bergen"]
    signature = parties.identities["bergen"].sign(
        FIVE.context("offer", "bergen", bytes(32), one.mask, one.seed)
    )
    weak = {"seal": bytes(32), "signature": signature}
    with refuses("bergen: a public key is weak: the shared secret would be public"):
        parties.members["oslo"].share(with_offer(offers, "bergen", **weak))
    server = Coordinator(FIVE, parties.roster)
    sent = {**parties.said["offer"], "bergen": changed(parties.said["offer"]["bergen"], Offer, **weak)}
    assert "bergen" not in server.collect_offers(sent)
    assert server.faults[0].site == "bergen"
    assert "offers a weak key" in server.faults[0].detail


def test_a_site_whose_own_offer_is_missing_or_too_few_others_are_there_leaves(parties: Parties):
    offers = parties.offers()["oslo"]
    found = read(offers, Offers).offers
    without = [offer for offer in found if offer.site != "oslo"]
    with refuses("its own offer is missing"):
        parties.members["oslo"].share(changed(offers, Offers, offers=without))
    few = [offer for offer in found if offer.site in ("bergen", "tromso", "trondheim")]
    with pytest.raises(
        SecureAggregationFailed, match="tromso refuses: 3 have offered keys, and 4 are needed"
    ):
        parties.members["tromso"].share(changed(offers, Offers, offers=few))


# --- envelopes -------------------------------------------------------------------------------------------


def masked_with(parties: Parties, message: bytes) -> bytes:
    return parties.members["oslo"].mask(parties.vectors["oslo"], message)


@given(bit=st.integers(0, 8 * 82 - 1))
@settings(max_examples=20)
def test_a_tampered_envelope_is_noticed(bit: int):  # fault 44
    parties = Parties(FIVE)
    envelopes = parties.envelopes()["oslo"]
    sealed = read(envelopes, Envelopes).sealed
    spoilt = bytearray(sealed["bergen"])
    spoilt[bit // 8] ^= 1 << bit % 8
    with refuses("bergen: an envelope was changed"):
        masked_with(parties, changed(envelopes, Envelopes, sealed={**sealed, "bergen": bytes(spoilt)}))


@pytest.mark.parametrize(("reader", "sender"), [("tromso", "bergen"), ("oslo", "tromso"), ("bergen", "oslo")])
def test_an_envelope_for_another_or_from_another_is_noticed(parties: Parties, reader: str, sender: str):
    envelopes = parties.envelopes()
    misdirected = read(envelopes[reader], Envelopes).sealed[sender]
    sealed = {**read(envelopes["oslo"], Envelopes).sealed, "bergen": misdirected}
    with refuses("bergen: an envelope was changed or forged"):
        masked_with(parties, changed(envelopes["oslo"], Envelopes, sealed=sealed))


def test_an_envelope_of_an_earlier_session_is_noticed(parties: Parties):
    earlier = Parties(session_of(5, round=0), identities=parties.identities)
    old = read(earlier.envelopes()["oslo"], Envelopes).sealed["bergen"]
    envelopes = parties.envelopes()["oslo"]
    sealed = {**read(envelopes, Envelopes).sealed, "bergen": old}
    with refuses("bergen: an envelope was changed"):
        masked_with(parties, changed(envelopes, Envelopes, sealed=sealed))


@pytest.mark.parametrize("sender", ["oslo", "alta"])
def test_an_envelope_of_somebody_who_cannot_have_sent_one_is_noticed(parties: Parties, sender: str):
    envelopes = parties.envelopes()["oslo"]
    sealed = read(envelopes, Envelopes).sealed
    with refuses("which cannot have sent any"):
        masked_with(parties, changed(envelopes, Envelopes, sealed={**sealed, sender: sealed["bergen"]}))


def test_no_vector_is_sent_if_too_few_have_shared(parties: Parties):
    envelopes = parties.envelopes()["oslo"]
    few = dict(list(read(envelopes, Envelopes).sealed.items())[:2])
    with refuses("3 have shared secrets, and 4 are needed"):
        masked_with(parties, changed(envelopes, Envelopes, sealed=few))


# --- survivors and shares --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("bergen", "oslo", "tromso"), "3 survivors are named, and 4 are needed"),
        (("bergen", "stavanger", "tromso", "trondheim"), "it has sent its vector and is not named"),
        (
            ("alta", "bergen", "oslo", "tromso", "trondheim"),
            "'alta'. are named as survivors and have shared no",
        ),
        (("bergen", "bergen", "oslo", "tromso"), "a survivor is named twice"),
    ],
)
def test_a_set_of_survivors_that_no_honest_server_names_is_refused(parties: Parties, names, reason: str):
    survivors = parties.survivors()["oslo"]
    with refuses(reason):
        parties.members["oslo"].agree(changed(survivors, Survivors, names=list(names)))


def test_a_second_set_of_survivors_is_refused(parties: Parties):  # fault 43: both shares of one site
    survivors = parties.survivors()["oslo"]
    parties.members["oslo"].agree(survivors)
    smaller = [name for name in FIVE.names if name != "bergen"]
    with refuses("it was asked to agree and is to reveal next"):
        parties.members["oslo"].agree(changed(survivors, Survivors, names=smaller))


def test_a_server_that_names_two_sets_gets_the_shares_for_neither(parties: Parties):  # fault 43: differing U2
    survivors = parties.survivors()
    smaller = [name for name in FIVE.names if name != "bergen"]
    told = {**survivors, "oslo": changed(survivors["oslo"], Survivors, names=smaller)}
    signatures = {
        name: read(parties.members[name].agree(message), Confirmation).signature
        for name, message in told.items()
    }
    # Three signatures on one set besides the reader's own are enough; one on another is not.
    mixed = Confirmations(session=FIVE.digest, signatures=signatures).encode()
    with pytest.raises(SecureAggregationFailed, match="tromso refuses: oslo has not signed the same set"):
        parties.members["tromso"].reveal(mixed)
    alone = Confirmations(session=FIVE.digest, signatures={"oslo": signatures["oslo"]}).encode()
    with refuses("1 have signed the set of survivors, and 4 are needed"):
        parties.members["oslo"].reveal(alone)


@pytest.mark.parametrize(
    ("given_ones", "reason"),
    [
        (lambda all_: dict(list(all_.items())[:3]), "3 have signed the set of survivors, and 4 are needed"),
        (lambda all_: {**all_, "bergen": all_["tromso"]}, "bergen has not signed the same set of survivors"),
        (lambda all_: {**all_, "alta": all_["tromso"]}, "'alta'. have signed, but are not survivors"),
    ],
)
def test_too_few_or_wrong_or_foreign_signatures_reveal_nothing(parties: Parties, given_ones, reason: str):
    agreements = parties.agreements()["oslo"]
    signatures = given_ones(read(agreements, Confirmations).signatures)
    with refuses(reason):
        parties.members["oslo"].reveal(changed(agreements, Confirmations, signatures=signatures))


def test_shares_are_revealed_once(parties: Parties):  # fault 43: asks twice
    agreements = parties.agreements()["oslo"]
    member = parties.members["oslo"]
    member.reveal(agreements)
    assert not member._held
    assert not member._seed
    with refuses("it was asked to reveal and has answered every stage"):
        member.reveal(agreements)


def test_stages_out_of_order_are_refused_and_do_no_harm(parties: Parties):
    member = parties.member("oslo")
    for call in (
        lambda: member.share(b""),
        lambda: member.mask(parties.vectors["oslo"], b""),
        lambda: member.agree(b""),
        lambda: member.reveal(b""),
    ):
        with refuses("and is to offer next"):
            call()
    member.offer()
    with refuses("it was asked to offer and is to share next"):
        member.offer()


def test_a_site_that_raised_an_alarm_takes_no_further_part(parties: Parties):
    offers = parties.offers()["oslo"]
    with refuses("cannot be read"):
        parties.members["oslo"].share(b"nonsense")
    with refuses("it aborted this session, because an earlier step failed"):
        parties.members["oslo"].share(offers)


@pytest.mark.parametrize(
    ("stage", "kind", "answer"),
    [
        ("offers", Offers, "share"),
        ("envelopes", Envelopes, "mask"),
        ("survivors", Survivors, "agree"),
        ("agreements", Confirmations, "reveal"),
    ],
)
def test_a_message_of_another_session_is_refused_in_every_stage(parties: Parties, stage, kind, answer):
    message = changed(getattr(parties, stage)()["oslo"], kind, session=session_of(5, round=2).digest)
    vector = [parties.vectors["oslo"]] if answer == "mask" else []
    with refuses("a message is of another session or round"):
        getattr(parties.members["oslo"], answer)(*vector, message)


# --- the server ------------------------------------------------------------------------------------------


def spoilt_shares(message: bytes, owners) -> bytes:
    shares = read(message, Revealed).shares
    wrong = {owner: bytes([shares[owner][0] ^ 1]) + shares[owner][1:] for owner in owners}
    return changed(message, Revealed, shares={**shares, **wrong})


@pytest.mark.parametrize("liar", ["bergen", "oslo", "tromso"])
def test_a_wrong_share_is_named_and_the_sum_is_right_all_the_same(liar: str):  # fault 44: bad share
    session = session_of(10)
    parties = Parties(session)
    sent = parties.revealed()
    sent[liar] = spoilt_shares(sent[liar], session.names)
    summed = parties.server.unmask(sent)
    assert (summed.total == added(parties.vectors, session.names)).all()
    # After the first wrong share the liar is not asked any more; one that comes late in the row never is.
    assert {fault.site for fault in summed.faults} <= {liar}
    assert (liar in session.names[: session.threshold]) == bool(summed.faults)


def test_a_wrong_share_of_the_mask_key_of_a_site_that_dropped_out_is_named(parties: Parties):
    answers = parties.envelopes()
    parties.envelopes = lambda: answers
    parties.silent = {"trondheim"}
    sent = parties.revealed()
    # Nobody is left to spare.
    with pytest.raises(
        SecureAggregationFailed, match=r"the shares of trondheim do not give back.*Nothing was"
    ):
        parties.server.unmask({**sent, "oslo": spoilt_shares(sent["oslo"], ["trondheim"])})
    assert parties.server._total.size == 0


def test_one_spare_site_is_enough_to_name_one_that_lies(parties: Parties):
    sent = parties.revealed()
    summed = parties.server.unmask({**sent, "oslo": spoilt_shares(sent["oslo"], ["bergen"])})
    assert [fault.site for fault in summed.faults] == ["oslo"]
    assert "its share of a secret of bergen is wrong" in summed.faults[0].detail
    assert (summed.total == added(parties.vectors, FIVE.names)).all()


def test_a_site_that_deals_shares_of_another_secret_is_named_and_nothing_is_unmasked(parties: Parties):
    parties.members["bergen"]._masking.secret = bytes(range(32))
    answers = parties.envelopes()
    parties.envelopes = lambda: answers
    parties.silent = {"bergen"}
    with pytest.raises(SecureAggregationFailed, match="the shares of bergen do not give back what it had"):
        parties.summed()


def garbled(stage: str, message: bytes):
    """One message, spoilt in every way, and the reason for which the server does not count it."""
    kind = STAGES[stage][1]
    largest = room(kind, FIVE)
    yield b"", "schema", "cannot be read"
    yield message[:-1], "schema", "cannot be read"
    yield message + b"\0", "schema", "cannot be read"
    yield message + bytes(largest), "schema", f"has at most {largest:,}"
    yield changed(message, kind, session=bytes(32)), "replay", "another session"
    yield changed(message, kind, site="tromso"), "unknown", "one of 'tromso'"


STAGES = {
    "offer": ("collect_offers", Offer),
    "share": ("collect_shares", Shares),
    "mask": ("collect_vectors", Masked),
    "agree": ("collect_signatures", Confirmation),
    "reveal": ("unmask", Revealed),
}


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("stage", list(STAGES))
def test_the_server_counts_a_site_that_sends_nonsense_as_silent(parties: Parties, stage: str, number: int):
    method = STAGES[stage][0]
    true, seen = getattr(parties.server, method), []

    def garble(replies):
        bad, *why = list(garbled(stage, replies["oslo"]))[number]
        seen.extend(why)
        return true({**replies, "oslo": bad})

    setattr(parties.server, method, garble)
    summed = parties.summed()
    reason, detail = seen
    assert [(fault.site, fault.reason) for fault in summed.faults] == [("oslo", reason)]
    assert detail in summed.faults[0].detail
    assert ("oslo" in summed.survivors) == (stage in ("agree", "reveal"))
    assert (summed.total == added(parties.vectors, summed.survivors)).all()


@pytest.mark.parametrize(
    ("stage", "fields", "detail"),
    [
        ("offer", {"mask": b"m" * 32}, "not signed by it"),
        ("share", {"sealed": {}}, "not send shares to every other"),
        ("share", {"sealed": dict.fromkeys(FIVE.names, bytes(82))}, "not send shares to every other"),
        ("mask", {"vector": memoryview(bytes(28))}, "28 bytes instead of 32"),
        ("agree", {"signature": bytes(64)}, "did not sign the set of survivors"),
        ("reveal", {"shares": {}}, "not reveal one share for each"),
    ],
)
def test_what_is_incomplete_or_of_the_wrong_size_is_not_counted(parties: Parties, stage, fields, detail):
    parties.revealed()
    server = Coordinator(FIVE, parties.roster)
    for now, (method, kind) in STAGES.items():
        replies = dict(parties.said[now])
        if now == stage:
            replies["oslo"] = changed(replies["oslo"], kind, **fields)
        getattr(server, method)(replies)
        if now == stage:
            break
    assert [fault.site for fault in server.faults] == ["oslo"]
    assert detail in server.faults[0].detail


def test_strangers_repeats_and_latecomers_are_not_counted(parties: Parties):
    parties.silent = {"bergen"}
    parties.envelopes()
    said = parties.said
    server = Coordinator(FIVE, parties.roster)
    repeated = [*said["offer"].items(), ("oslo", said["offer"]["oslo"]), ("alta", said["offer"]["oslo"])]
    server.collect_offers(iter(repeated))
    server.collect_shares([*said["share"].items(), ("bergen", said["share"]["oslo"])])
    assert [(fault.site, fault.reason) for fault in server.faults] == [
        ("oslo", "duplicate"),
        ("alta", "unknown"),
        ("bergen", "late"),
    ]


def test_a_site_that_offers_the_keys_of_another_is_not_counted(parties: Parties):
    parties.offers()
    one = read(parties.said["offer"]["bergen"], Offer)
    text = FIVE.context("offer", "oslo", one.seal, one.mask, one.seed)
    copy = msgspec.structs.replace(one, site="oslo", signature=parties.identities["oslo"].sign(text)).encode()
    server = Coordinator(FIVE, parties.roster)
    assert "oslo" not in server.collect_offers({**parties.said["offer"], "oslo": copy})
    assert server.faults[0].reason == "equivocation"


def test_the_server_keeps_its_stages_in_order(parties: Parties):
    with pytest.raises(
        SecureAggregationFailed, match="the stage 'share' is not due: the stage 'offer' is next"
    ):
        parties.server.collect_shares({})
    parties.summed()
    with pytest.raises(SecureAggregationFailed, match="the session is over"):
        parties.server.collect_offers({})


def test_a_party_without_a_key_in_the_roster_cannot_take_part(parties: Parties):
    partial = Roster({name: key for name, key in parties.roster.items() if name != "bergen"})
    for party in (
        lambda: Coordinator(FIVE, partial),
        lambda: Member(FIVE, "oslo", parties.identities["oslo"], partial),
    ):
        with pytest.raises(InvalidValue, match="roster = 'one without bergen'"):
            party()
    with pytest.raises(InvalidValue, match="identity = 'oslo'"):
        Member(FIVE, "oslo", Identity.fresh(), parties.roster)
    with pytest.raises(InvalidValue, match="name = 'alta'"):
        Member(FIVE, "alta", parties.identities["oslo"], parties.roster)


# --- bytes -----------------------------------------------------------------------------------------------

KINDS = [Offer, Offers, Shares, Envelopes, Masked, Survivors, Confirmation, Confirmations, Revealed]


@given(kind=st.sampled_from(KINDS), noise=st.binary(max_size=300))
@settings(max_examples=300)
def test_random_bytes_are_refused_and_never_anything_else(kind, noise: bytes):
    with pytest.raises(SecureAggregationFailed):
        decode_message(noise, kind, FIVE)


def all_said() -> dict[str, dict[str, bytes]]:
    parties = Parties(FIVE)
    parties.revealed()
    return parties.said


SAID = all_said()


@given(st.data())
@settings(max_examples=200)
def test_spoilt_messages_are_read_as_what_they_are_or_refused(data: st.DataObject):
    stage = data.draw(st.sampled_from(sorted(SAID)))
    kind = STAGES[stage][1]
    message = bytearray(SAID[stage]["oslo"])
    for _ in range(data.draw(st.integers(1, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    with suppress(SecureAggregationFailed):
        assert isinstance(decode_message(bytes(message), kind, FIVE), kind)


def test_a_header_that_promises_more_than_there_is_takes_no_memory():
    # A list of two thousand million names, and a map of as many, in a dozen bytes.
    digest = b"\xc4\x20" + FIVE.digest
    for kind, head in ((Survivors, b"\xdd"), (Envelopes, b"\xdf")):
        lie = b"\x93" + msgspec.msgpack.encode(kind.__name__.lower()) + digest + head + b"\x7f\xff\xff\xff"
        with pytest.raises(SecureAggregationFailed, match="cannot be read"):
            decode_message(lie, kind, FIVE)


def test_what_is_not_bytes_is_refused():
    with pytest.raises(SecureAggregationFailed, match="offer came as str instead of bytes"):
        decode_message("text", Offer, FIVE)


@pytest.mark.parametrize("sites", [3, 10])
def test_every_honest_message_fits_the_room_that_is_kept_for_it(sites: int):
    names = tuple("\N{LATIN SMALL LETTER O WITH STROKE}" * 100 + str(number) for number in range(sites))
    session = session_of(sites, width=1, names=names)
    parties = Parties(session)
    answers = {
        Offers: parties.offers,
        Envelopes: parties.envelopes,
        Survivors: parties.survivors,
        Confirmations: parties.agreements,
    }
    for kind, play in answers.items():
        fresh = Parties(session)
        for message in getattr(fresh, play.__name__)().values():
            assert len(message) <= room(kind, session)
    parties.summed()
    for kind, stage in ((Offer, "offer"), (Shares, "share"), (Masked, "mask"), (Revealed, "reveal")):
        assert all(len(message) <= room(kind, session) for message in parties.said[stage].values())


def test_the_upload_is_the_vector_and_little_more():
    session = session_of(10, width=10_000)
    parties = Parties(session)
    parties.revealed()
    sent = sum(len(messages["oslo"]) for messages in parties.said.values())
    assert 4 * session.width < sent < 4 * session.width + 3000


def test_the_bytes_of_a_sum_stay_what_they_are(monkeypatch: pytest.MonkeyPatch):
    # Whoever changes one of these must change FORMAT in session.py too: sites of two versions do not mix.
    drawn = iter(range(1, 1000))
    monkeypatch.setattr(secrets, "token_bytes", lambda size: next(drawn).to_bytes(size, "big"))
    monkeypatch.setattr(secrets, "randbelow", lambda below: next(drawn) ** 30 % below)
    session = session_of(4, width=3)
    identities = {name: Identity(name.encode().ljust(32)) for name in session.names}
    vectors = {name: np.arange(3, dtype=np.uint32) for name in session.names}
    parties = Parties(session, vectors, identities)
    offers = parties.envelopes()
    parties.envelopes = lambda: offers
    parties.silent = {"bergen"}
    summed = parties.summed()
    assert summed.total.tolist() == [0, 3, 6]
    assert session.digest.hex() == "1dfc5b3b2cb3c78412abe56ca1756dc21f0cb25e741387af7d1e6f790db73cb4"
    assert {stage: sha256(said["oslo"]).hexdigest() for stage, said in parties.said.items()} == {
        "offer": "7acc59a38e25bb60833a6874e8265cc2be706843305ccb5af88c60a1d0d27cbf",
        "share": "6f6ea0af52ed439dc75054bfe1a9c59349b24bcfdcfe5b78cdd4962cc943ac47",
        "mask": "5ee203a1731da4f9af727b1248914509c10942ffe9ae14ad9795fe24eff8278b",
        "agree": "968d09a18c3a816797907cd2da27ae295678c2b36fbf1fd5fa1d00230c91f930",
        "reveal": "165b42f7316799fdec89b95a571402110743b7fe9fa5cdb88e1ed58d97924eb6",
    }
    assert parties.said["agree"]["oslo"].hex() == (
        "94a961677265656d656e74c4201dfc5b3b2cb3c78412abe56ca1756dc21f0cb25e741387af7d1e6f790db73cb4a46f73"
        "6c6fc4400b5a45417fd9b03710a2fe03aed3e76aa9e99ef1f6e52cfd1ff30523c1e4dff7cf7d9d4afb00896c19764b0d"
        "59dae23ed591aaabac422b4e12cdc2f8772fb307"
    )
