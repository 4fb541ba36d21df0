"""Sums and products in secret over messages: as in one process, and no further than an honest server gets."""

import tracemalloc
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.aggregation.secure import Identity, Roster, Session, secure_sum
from tacit.aggregation.secure.products import ProductSession, secure_products
from tacit.aggregation.secure.sealing import (
    STAGES,
    Confirmation,
    Confirmations,
    Envelopes,
    Masked,
    Offers,
    Survivors,
)
from tacit.engines.base import server_view
from tacit.engines.messages import NoReply
from tacit.engines.secure import messages
from tacit.engines.secure import round as server
from tacit.engines.secure.messages import STAGES as PRODUCT_STAGES
from tacit.engines.secure.messages import Parcel, encode_terms, sessions, sums_of
from tacit.engines.secure.messages import products_of as expected_products
from tacit.engines.secure.round import ClientIdentity, SecureClient, multiply_columns, sum_groups
from tacit.errors import InvalidValue, Refused, SecureAggregationFailed, TacitError
from tacit.learning.task import Updates
from tacit.privacy.mechanisms.secure_gram import SecureGram
from tacit.privacy.mechanisms.secure_sum import SecureSum
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key

CITIES = ("bergen", "oslo", "stavanger", "tromso", "trondheim", "alta", "bodo", "hamar", "molde", "narvik")
IDENTITIES = {name: Identity.fresh() for name in CITIES}


class Safe(dict[str, str]):
    """Store of a site that outlives its process."""

    def remember(self, occasion: str, commitment: str) -> None:
        if occasion in self:
            raise Refused(f"{occasion} was joined before")
        self[occasion] = commitment


def seat_of(name: str, safe: Safe | None = None, roster: Roster | None = None) -> ClientIdentity:
    # A new object for each life of a site: what an identity has signed is forgotten with it.
    identity = Identity(IDENTITIES[name].secret)
    roster = Roster.of(IDENTITIES) if roster is None else roster
    return ClientIdentity(
        name=name, identity=identity, roster=roster, remember=(Safe() if safe is None else safe).remember
    )


def vectors_of(names, width: int, seed: int = 0) -> dict[str, np.ndarray]:
    draws = np.random.default_rng(seed)
    return {name: draws.integers(0, 2**32, width, dtype=np.uint32) for name in names}


class Sites:
    """All sites of a session in this process, and what was said either way.

    Whoever is in `silent` says nothing from that stage on.
    """

    def __init__(self, joined: dict[str, SecureClient], silent: Mapping[str, str] | None = None):
        self.joined, self.silent = joined, dict(silent or {})
        self.sent: list[tuple[str, dict[str, bytes]]] = []
        self.said: dict[str, dict[str, bytes]] = {}
        self.refused: dict[str, str] = {}
        self.gone: set[str] = set()

    def __call__(self, stage: str, sent: Mapping[str, bytes]) -> dict[str, bytes | NoReply]:
        self.sent.append((stage, dict(sent)))
        self.gone |= {name for name, last in self.silent.items() if last == stage}
        answers: dict[str, bytes | NoReply] = {}
        for name, content in self.carried(stage, dict(sent)).items():
            if name in self.gone:
                continue
            try:
                answers[name] = self.joined[name].answer(stage, content)
                self.said.setdefault(stage, {})[name] = answers[name]
            except TacitError as error:
                self.refused[name] = str(error)
                answers[name] = NoReply("refused", str(error))
        return self.brought(stage, answers)

    def carried(self, stage: str, sent: dict[str, bytes]) -> dict[str, bytes]:
        """Return the messages as the server sends them; liars override this."""
        return sent

    def brought(self, stage: str, answers: dict[str, bytes | NoReply]) -> dict[str, bytes | NoReply]:
        """Return the answers as they arrive; liars override this."""
        return answers


def in_groups(groups, vectors, width: int, number: int = 1, kind: type[Sites] = Sites, **options) -> Sites:
    found = {
        name: SecureClient(session, seat_of(name), lambda name=name: vectors[name])
        for session in sessions(groups, width, 1, number, "trial")
        for name in session.names
    }
    return kind(found, **options)


def added_up(groups, width: int, talk, number: int = 1):
    return sum_groups(groups, width, 1, number, "trial", Roster.of(IDENTITIES), talk)


FIVE = CITIES[:5]


# --- sums ------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(3, 5), min_size=1, max_size=2), st.integers(1, 40), st.data())
@settings(max_examples=25)
def test_sums_over_messages_are_those_of_one_process_whoever_drops_out(sizes, width, data):
    starts = np.cumsum([0, *sizes])
    groups = tuple(CITIES[start:stop] for start, stop in pairwise(starts))
    vectors = vectors_of(CITIES, width, data.draw(st.integers(0, 1000)))
    silent: dict[str, str] = {}
    for group in groups:
        most = len(group) - (2 * len(group) // 3 + 1)
        for name in data.draw(st.lists(st.sampled_from(group), max_size=most, unique=True)):
            silent[name] = data.draw(st.sampled_from(STAGES))
    talk = in_groups(groups, vectors, width, silent=silent)
    found = added_up(groups, width, talk)
    for session, one in zip(sessions(groups, width, 1, 1, "trial"), found, strict=True):
        own = {name: vectors[name] for name in session.names}
        dropped = {name: stage for name, stage in silent.items() if name in own}
        expected = secure_sum(own, session=session, dropped=dropped)
        assert one.survivors == expected.survivors
        assert (one.total == expected.total).all()
        assert {fault.site for fault in one.faults} == set(dropped)
        assert all(fault.reason == "absent" for fault in one.faults)
    # Five exchanges, however many groups.
    assert [stage for stage, _ in talk.sent] == list(STAGES)


@pytest.mark.parametrize("stage", STAGES)
def test_one_site_too_few_in_any_stage_stops_the_sum_with_the_reasons(stage):
    groups = (CITIES[:3], CITIES[3:8])
    talk = in_groups(groups, vectors_of(CITIES, 4), 4, silent={"alta": stage, "hamar": stage})
    needed = rf"trial, group 2, round 1: 3 of 5 sites are left after the stage '{stage}', and 4 are needed .*"
    with pytest.raises(
        SecureAggregationFailed, match=needed + r"Nothing was unmasked \(alta: nothing has come"
    ):
        added_up(groups, 4, talk)
    # Nobody is asked anything after that.
    assert talk.sent[-1][0] == stage


def test_a_site_that_drops_out_is_not_asked_again():
    talk = in_groups((FIVE,), vectors_of(FIVE, 4), 4, silent={"oslo": "share"})
    added_up((FIVE,), 4, talk)
    assert [("oslo" in sent) for _, sent in talk.sent] == [True, True, False, False, False]


def test_what_a_site_says_for_itself_is_written_down_beside_the_sum():
    class Told(Sites):
        def brought(self, stage, answers):
            gone = {"oslo": NoReply("late", "x" * 5000)} if stage == "mask" else {}
            return {**answers, **gone, "stranger": b"?"}

    (found,) = added_up((FIVE,), 4, in_groups((FIVE,), vectors_of(FIVE, 4), 4, kind=Told))
    assert [(fault.site, fault.reason, len(fault.detail)) for fault in found.faults] == [
        ("oslo", "late", 300)
    ]
    assert "oslo" not in found.survivors


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("nonsense", [b"", b"\xc1", bytes(10_000)])
def test_a_site_that_answers_nonsense_counts_as_silent(stage, nonsense):
    class Garbled(Sites):
        def brought(self, now, answers):
            return {**answers, "oslo": nonsense} if now == stage else answers

    vectors = vectors_of(FIVE, 4)
    talk = in_groups((FIVE,), vectors, 4, kind=Garbled)
    (found,) = added_up((FIVE,), 4, talk)
    assert [fault.site for fault in found.faults] == ["oslo"]
    expected = np.add.reduce([vectors[name] for name in found.survivors], dtype=np.uint32)
    assert (found.total == expected).all()


def test_a_site_in_two_groups_is_refused_before_anybody_is_asked():
    with pytest.raises(Refused, match=r"\['stavanger'\] are in two groups"):
        added_up((CITIES[:3], CITIES[2:6]), 4, lambda stage, sent: pytest.fail("asked"))


def test_large_vectors_are_asked_for_in_parts(monkeypatch):
    width, groups = 1000, (CITIES[:4], CITIES[4:])
    monkeypatch.setattr(server, "AT_ONCE", 3 * 4 * width)
    vectors = vectors_of(CITIES, width)
    talk = in_groups(groups, vectors, width)
    found = added_up(groups, width, talk)
    assert Counter(stage for stage, _ in talk.sent) == {
        "offer": 1, "share": 1, "mask": 4, "agree": 1, "reveal": 1,
    }  # fmt: skip
    assert max(len(sent) for stage, sent in talk.sent if stage == "mask") == 3
    for group, one in zip(groups, found, strict=True):
        assert (one.total == np.add.reduce([vectors[name] for name in group], dtype=np.uint32)).all()


def test_a_server_holds_no_more_vectors_than_it_asked_for_at_once(monkeypatch):
    width, names = 250_000, CITIES[:8]
    size = 4 * width
    monkeypatch.setattr(server, "AT_ONCE", size)
    vector = np.ones(width, dtype=np.uint32)
    talk = in_groups((names,), dict.fromkeys(names, vector), width)
    # The sites' side of it and the record of what was said are not the server's.
    plain = talk.__call__

    def forgetful(stage, sent):
        answers = plain(stage, sent)
        talk.said.clear()
        return answers

    tracemalloc.start()
    (found,) = added_up((names,), width, forgetful)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found.total == len(names)).all()
    # The sum, one answer, and what a site needs to mask its own; eight answers would be more.
    assert peak < 6 * size


# --- what a site checks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"width": 5}, "the terms of the server have width = 5, and here it is 4"),
        (
            {"names": CITIES[:4]},
            r"the terms of the server have names = \['bergen', 'oslo', 'stavanger', 'tromso'\], and here",
        ),
        ({"names": (*FIVE, "mallory")}, "the terms of the server have names = .*mallory"),
        ({"round": 2}, "the terms of the server have round = 2, and here it is 1"),
        ({"run": "another"}, "the terms of the server have run = 'another', and here it is 'trial'"),
        ({"colluders": 2, "least": 5}, "the terms of the server have colluders = 2, and here it is 1"),
        ({"least": 5}, "the terms of the server have threshold = 5, and here it is 4"),
    ],
)
def test_a_site_joins_the_session_that_it_expects_and_no_other(change, reason):
    options = {"run": "trial", "round": 1, "names": FIVE, "width": 4}
    safe = Safe()
    site = SecureClient(Session(**options), seat_of("oslo", safe), lambda: pytest.fail("looked at"))
    with pytest.raises(SecureAggregationFailed, match="oslo refuses: " + reason):
        site.answer("offer", encode_terms(Session(**{**options, **change})))
    assert site.is_over
    assert not safe
    with pytest.raises(SecureAggregationFailed, match="oslo refuses: it aborted this session"):
        site.answer("offer", encode_terms(site.which))


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (b"", "cannot be read"),
        (b"\xc1", "cannot be read"),
        (bytes(100_000), "100,000 bytes, more than terms can have"),
        (msgspec.msgpack.encode({"what": "sum"}), "lack format"),
        (b"\x91" * 600, "cannot be read"),
    ],
)
def test_terms_that_are_none_are_refused(told, reason):
    site = SecureClient(
        Session(run="trial", round=1, names=FIVE, width=4), seat_of("oslo"), lambda: pytest.fail("looked at")
    )
    with pytest.raises(SecureAggregationFailed, match=f"oslo refuses: the .*server.*{reason}"):
        site.answer("offer", told)


def test_terms_with_more_than_terms_have_are_refused():
    session = Session(run="trial", round=1, names=FIVE, width=4)
    site = SecureClient(session, seat_of("oslo"), lambda: pytest.fail("looked at"))
    more = msgspec.msgpack.encode(messages.terms(session) | {"please": "unmask"})
    with pytest.raises(SecureAggregationFailed, match="have 'please', which is not known here"):
        site.answer("offer", more)


def test_a_masked_vector_leaves_once_for_a_run_and_round_in_the_life_of_a_site():
    safe, vectors = Safe(), vectors_of(FIVE, 4)
    (session,) = sessions((FIVE,), 4, 1, 1, "trial")

    def life(last: str) -> Sites:
        """A session in which everybody else starts afresh, and oslo as well, but for what it wrote down."""
        talk = in_groups((FIVE,), vectors, 4, silent={"oslo": last})
        talk.joined["oslo"] = SecureClient(
            session, seat_of("oslo", safe), lambda: vectors["oslo"], occasion="round 1 of trial"
        )
        added_up((FIVE,), 4, talk)
        return talk

    # It was stopped before its vector left: it can try again.
    for stage in ("share", "mask"):
        assert "oslo" not in life(stage).said.get("mask", {})
        assert not safe
    first = life("agree")
    assert "oslo" in first.said["mask"]
    assert safe == {"round 1 of trial": first.joined["oslo"].commitment}
    again = life("never")
    assert again.refused == {"oslo": "round 1 of trial was joined before"}
    assert "oslo" not in again.said["mask"]
    assert again.joined["oslo"].left


def test_terms_that_differ_come_to_another_commitment():
    changes = [{}, {"width": 5}, {"round": 2}, {"run": "another"}, {"names": CITIES[:4]}, {"least": 5}]
    options = {"run": "trial", "round": 1, "names": FIVE, "width": 4}
    found = [messages.commitment(Session(**{**options, **change})) for change in changes]
    found += [messages.commitment(one) for one in (products_of(), products_of(records=7))]
    assert len(set(found)) == len(found)


def test_no_masked_vector_leaves_that_could_not_be_written_down():
    def full(occasion: str, commitment: str) -> None:
        raise OSError("no space left")

    talk = in_groups((FIVE,), vectors_of(FIVE, 4), 4)
    seat = ClientIdentity(
        name="oslo", identity=IDENTITIES["oslo"], roster=Roster.of(IDENTITIES), remember=full
    )
    site = SecureClient(talk.joined["oslo"].which, seat, lambda: np.zeros(4, dtype=np.uint32))
    talk.joined["oslo"] = site
    with pytest.raises(OSError, match="no space"):
        added_up((FIVE,), 4, talk)
    assert site.is_over
    assert "oslo" not in talk.said["mask"]


def test_a_site_knows_its_colleagues_by_its_own_roster():
    session = Session(run="trial", round=1, names=FIVE, width=4)
    known = Roster({name: IDENTITIES[name].public for name in FIVE if name != "bergen"})
    with pytest.raises(Refused, match=r"\['bergen'\] take part, and oslo does not know their keys"):
        SecureClient(session, seat_of("oslo", roster=known), lambda: pytest.fail("looked at"))
    with pytest.raises(Refused, match="molde has no part"):
        SecureClient(session, seat_of("molde"), lambda: pytest.fail("looked at"))
    mine = ClientIdentity(
        name="oslo", identity=Identity.fresh(), roster=Roster.of(IDENTITIES), remember=Safe().remember
    )
    with pytest.raises(InvalidValue, match="identity = 'oslo'"):
        SecureClient(session, mine, lambda: pytest.fail("looked at"))


def test_a_server_that_plays_a_colleague_itself_is_found_out():
    # The server has a key of its own for bergen, in its own roster, and hands it on.
    forged = dict(IDENTITIES) | {"bergen": Identity.fresh()}
    vectors = vectors_of(FIVE, 4)
    (session,) = sessions((FIVE,), 4, 1, 1, "trial")
    found = {name: SecureClient(session, seat_of(name), lambda name=name: vectors[name]) for name in FIVE}
    mallory = ClientIdentity(
        name="bergen", identity=forged["bergen"], roster=Roster.of(forged), remember=Safe().remember
    )
    found["bergen"] = SecureClient(session, mallory, lambda: vectors["bergen"])
    talk = Sites(found)
    with pytest.raises(
        SecureAggregationFailed, match="oslo refuses: the offer of bergen is not signed by bergen"
    ):
        sum_groups((FIVE,), 4, 1, 1, "trial", Roster.of(forged), talk)
    assert "mask" not in talk.said


# --- a server that lies ----------------------------------------------------------------------------------


def contents_for_oslo() -> list[bytes]:
    honest = in_groups((FIVE,), vectors_of(FIVE, 4), 4)
    added_up((FIVE,), 4, honest)
    return [sent["oslo"] for _, sent in honest.sent]


CONTENTS = contents_for_oslo()


@given(st.lists(st.tuples(st.sampled_from([*STAGES, "deal", "unmask", ""]), st.integers(0, 4)), max_size=14))
@settings(max_examples=60)
def test_whatever_the_order_of_stages_each_is_answered_once_and_in_turn(asked):
    """A server that has everything that is said in an honest session asks a site in any order."""
    looked = list[bool]()
    (session,) = sessions((FIVE,), 4, 1, 1, "trial")

    def vector():
        looked.append(True)
        return np.zeros(4, dtype=np.uint32)

    site, answered = SecureClient(session, seat_of("oslo"), vector), list[str]()
    for stage, which in asked:
        with suppress(SecureAggregationFailed):
            site.answer(stage, CONTENTS[which])
            answered.append(stage)
    # Its own keys are not those of the session before: beyond its offer nothing fits.
    assert answered in ([], ["offer"])
    assert not looked


def test_a_stage_that_is_asked_twice_is_refused_and_the_session_goes_on():
    class Twice(Sites):
        def carried(self, stage, sent):
            if self.sent[:-1]:
                before, old = self.sent[-2]
                for name, content in old.items():
                    with pytest.raises(
                        SecureAggregationFailed, match=f"{name} refuses: .*{before}.* is to {stage} next"
                    ):
                        self.joined[name].answer(before, content)
            return sent

    vectors = vectors_of(FIVE, 4)
    talk = in_groups((FIVE,), vectors, 4, kind=Twice)
    (found,) = added_up((FIVE,), 4, talk)
    assert found.survivors == FIVE
    last, old = talk.sent[-1]
    for name, site in talk.joined.items():
        assert site.is_over
        assert not site.left
        with pytest.raises(SecureAggregationFailed, match="has answered every stage"):
            site.answer(last, old[name])


@pytest.mark.parametrize("stage", STAGES[1:])
def test_messages_of_another_round_are_refused_and_end_the_session(stage):
    before = in_groups((FIVE,), vectors_of(FIVE, 4), 4, number=1)
    added_up((FIVE,), 4, before)
    old = dict(before.sent)

    class Replayed(Sites):
        def carried(self, now, sent):
            return {**sent, "oslo": old[stage]["oslo"]} if now == stage else sent

    talk = in_groups((FIVE,), vectors_of(FIVE, 4), 4, number=2, kind=Replayed)
    (found,) = added_up((FIVE,), 4, talk, number=2)
    assert talk.refused == {"oslo": "oslo refuses: a message is of another session or round"}
    # The reason is in the server's record as well.
    (fault,) = found.faults
    assert (fault.site, fault.reason, fault.detail) == ("oslo", "refused", talk.refused["oslo"])
    assert talk.joined["oslo"].left


def replaced(content: bytes, kind, **fields) -> bytes:
    return msgspec.structs.replace(msgspec.msgpack.decode(content, type=kind), **fields).encode()


@pytest.mark.parametrize("signatures", ["all that there are", "those that fit"])
def test_two_sets_of_survivors_are_not_both_signed_by_enough(signatures):
    """The classical lie: some are told that oslo is in the sum, and some that it is not."""
    misled = ("bergen", "tromso")

    class Forked(Sites):
        def carried(self, stage, sent):
            if stage == "agree":
                lie = replaced(sent["bergen"], Survivors, names=[name for name in FIVE if name != "oslo"])
                return {**sent, **dict.fromkeys(misled, lie)}
            return sent

    talk = in_groups((FIVE,), vectors_of(FIVE, 4), 4, kind=Forked)
    with pytest.raises(SecureAggregationFailed, match=r"3 of 5 sites are left after the stage 'agree'"):
        added_up((FIVE,), 4, talk)
    # A server that lies does not stop there.
    signed = {
        name: msgspec.msgpack.decode(said, type=Confirmation) for name, said in talk.said["agree"].items()
    }
    assert set(signed) == set(FIVE)
    for name, site in talk.joined.items():
        fits = [other for other in FIVE if (other in misled) == (name in misled)]
        told = {other: signed[other].signature for other in (fits if signatures[0] == "t" else FIVE)}
        message = Confirmations(session=site.which.digest, signatures=told).encode()
        with pytest.raises(
            SecureAggregationFailed,
            match=f"{name} refuses: .*(same set|are not survivors|[23] have signed the set.*, and 4)",
        ):
            site.answer("reveal", message)
        assert site.left


def test_a_site_that_has_nothing_to_bring_leaves():
    def broken():
        raise ValueError("the disk is gone")

    talk = in_groups((FIVE,), vectors_of(FIVE, 4), 4)
    (session,) = sessions((FIVE,), 4, 1, 1, "trial")
    talk.joined["oslo"] = SecureClient(session, seat_of("oslo"), broken)
    with pytest.raises(ValueError, match="disk is gone"):
        added_up((FIVE,), 4, talk)
    with pytest.raises(SecureAggregationFailed, match="oslo refuses: it aborted this session"):
        talk.joined["oslo"].answer("agree", b"")


def test_survivors_that_are_too_few_strangers_or_leave_the_site_out_are_not_signed():
    for names, reason in [
        (FIVE[:3], "3 survivors are named, and 4 are needed"),
        ((*FIVE, "mallory"), r"\['mallory'\] are named as survivors"),
        (("bergen", "stavanger", "tromso", "trondheim"), "not named as a survivor"),
        ((*FIVE, "oslo"), "named twice"),
    ]:

        class Lying(Sites):
            told = names

            def carried(self, stage, sent):
                return (
                    {**sent, "oslo": replaced(sent["oslo"], Survivors, names=list(self.told))}
                    if stage == "agree"
                    else sent
                )

        talk = in_groups((FIVE,), vectors_of(FIVE, 4), 4, kind=Lying)
        (found,) = added_up((FIVE,), 4, talk)
        assert "oslo" in talk.refused
        with pytest.raises(AssertionError, match=reason):
            raise AssertionError(talk.refused["oslo"])
        assert [fault.reason for fault in found.faults] == ["refused"]


def test_offers_that_differ_from_site_to_site_unmask_nobody():
    """Bergen is told that trondheim has not offered: what it shares is incomplete, and not counted."""

    class Split(Sites):
        def carried(self, stage, sent):
            if stage == "share":
                offers = msgspec.msgpack.decode(sent["bergen"], type=Offers).offers
                kept = [offer for offer in offers if offer.site != "trondheim"]
                return {**sent, "bergen": replaced(sent["bergen"], Offers, offers=kept)}
            return sent

    vectors = {name: np.zeros(64, dtype=np.uint32) for name in FIVE}
    talk = in_groups((FIVE,), vectors, 64, kind=Split)
    (found,) = added_up((FIVE,), 64, talk)
    assert found.survivors == tuple(name for name in FIVE if name != "bergen")
    assert not found.total.any()
    assert [fault.site for fault in found.faults] == ["bergen"]


def test_an_envelope_that_was_opened_changed_or_swapped_is_refused():
    class Swapped(Sites):
        def carried(self, stage, sent):
            if stage != "mask":
                return sent
            inbox = msgspec.msgpack.decode(sent["oslo"], type=Envelopes).sealed
            one, other = sorted(inbox)[:2]
            return {
                **sent, "oslo": replaced(sent["oslo"], Envelopes, sealed=inbox | {one: inbox[other]}),
            }  # fmt: skip

    talk = in_groups((FIVE,), vectors_of(FIVE, 4), 4, kind=Swapped)
    (found,) = added_up((FIVE,), 4, talk)
    assert "oslo refuses: bergen: an envelope was changed" in talk.refused["oslo"]
    assert "oslo" not in talk.said["mask"]
    assert "oslo" not in found.survivors


@given(st.data())
@settings(max_examples=30)
def test_whatever_bytes_a_server_sends_a_site_answers_or_refuses_with_a_reason(data):
    stage = data.draw(st.sampled_from(STAGES))
    noise = data.draw(st.binary(max_size=200))

    class Noisy(Sites):
        def carried(self, now, sent):
            if now != stage:
                return sent
            content, place = sent["oslo"], data.draw(st.integers(0, len(sent["oslo"])))
            return {**sent, "oslo": content[:place] + noise + content[place + len(noise) :]}

    talk = in_groups((FIVE,), vectors_of(FIVE, 4), 4, kind=Noisy)
    added_up((FIVE,), 4, talk)
    assert all(reason.startswith("oslo refuses: ") for reason in talk.refused.values())


# --- products --------------------------------------------------------------------------------------------


def products_of(widths=(2, 3, 1), records: int = 20, **options) -> ProductSession:
    names = CITIES[: len(widths)][::-1]
    return ProductSession(
        **{"run": "trial", "round": 1, "names": names, "widths": widths, "records": records, **options}
    )


def brought_by(products: ProductSession, seed: int = 0):
    draws = np.random.default_rng(seed)
    return {
        name: (
            draws.integers(0, 2**32, products.shapes[name], dtype=np.uint32),
            draws.integers(0, 2**32, products.session.width, dtype=np.uint32),
        )
        for name in products.names
    }


def partners(products: ProductSession, brought, kind: type[Sites] = Sites, **options) -> Sites:
    found = {
        name: SecureClient(products, seat_of(name), lambda name=name: brought[name])
        for name in products.names
    }
    return kind(found, **options)


@given(st.lists(st.integers(1, 4), min_size=3, max_size=5), st.integers(1, 30), st.integers(0, 1000))
@settings(max_examples=20)
def test_products_over_messages_are_those_of_one_process(widths, records, seed):
    products = products_of(tuple(widths), records)
    brought = brought_by(products, seed)
    talk = partners(products, brought)
    total = multiply_columns(products, Roster.of(IDENTITIES), talk)
    rows, own = ({name: pair[place] for name, pair in brought.items()} for place in (0, 1))
    assert (total == secure_products(rows, own, products=products)).all()
    assert [stage for stage, _ in talk.sent] == list(PRODUCT_STAGES)
    assert all(site.is_over and not site.left for site in talk.joined.values())


@pytest.mark.parametrize("stage", PRODUCT_STAGES)
def test_products_need_everybody_in_every_stage(stage):
    products = products_of((1, 2, 1, 2))
    talk = partners(products, brought_by(products), silent={"oslo": stage})
    needed = (
        f"3 of 4 (parties|sites) are left after the stage '{stage}'.*Nothing was unmasked .*oslo: nothing has"
    )
    with pytest.raises(SecureAggregationFailed, match=needed):
        multiply_columns(products, Roster.of(IDENTITIES), talk)
    assert talk.sent[-1][0] == stage


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"records": 21}, "the terms of the server have records = 21, and here it is 20"),
        (
            {"widths": (3, 2, 1)},
            r"the terms of the server have widths = \[3, 2, 1\], and here it is \[2, 3, "
            r"1\]",
        ),
        ({"names": CITIES[:3]}, "the terms of the server have names = "),
        ({"round": 0}, "the terms of the server have round = 0, and here it is 1"),
    ],
)
def test_a_party_joins_the_products_that_it_expects_and_no_others(change, reason):
    site = SecureClient(products_of(), seat_of("oslo"), lambda: pytest.fail("looked at"))
    with pytest.raises(SecureAggregationFailed, match="oslo refuses: " + reason):
        site.answer("offer", encode_terms(products_of(**change)))
    site = SecureClient(products_of(), seat_of("oslo"), lambda: pytest.fail("looked at"))
    with pytest.raises(
        SecureAggregationFailed, match="the terms of the server have what = 'sum', and here it is 'products'"
    ):
        site.answer("offer", encode_terms(products_of().session))


@pytest.mark.parametrize("stage", ["deal", "open", "mask"])
@pytest.mark.parametrize("lie", ["replayed", "too large", "unreadable", "incomplete", "swapped", "next"])
def test_a_parcel_that_no_honest_server_sends_is_refused(stage, lie):
    products = products_of((2, 2, 2, 2))
    before = partners(products_of((2, 2, 2, 2), round=0), brought_by(products))
    multiply_columns(products_of((2, 2, 2, 2), round=0), Roster.of(IDENTITIES), before)
    old = dict(before.sent)

    class Lying(Sites):
        def carried(self, now, sent):
            if now != stage:
                return sent
            content = sent["oslo"]
            found = msgspec.msgpack.decode(content, type=Parcel)
            first, second, *_ = sorted(set(found.sealed) - {"oslo"})
            fewer = {name: sealed for name, sealed in found.sealed.items() if name != first}
            other = messages.parcel(products, "mask" if now == "open" else "open", b"", found.sealed)
            lies = {
                "replayed": old[stage]["oslo"],
                "too large": content + bytes(100_000),
                "unreadable": content[:-1],
                "incomplete": replaced(content, Parcel, sealed=fewer),
                "swapped": replaced(content, Parcel, sealed={**found.sealed, first: found.sealed[second]}),
                "next": other,
            }
            return {**sent, "oslo": lies[lie]}

    talk = partners(products, brought_by(products), kind=Lying)
    with pytest.raises(SecureAggregationFailed, match=r"oslo: oslo refuses: "):
        multiply_columns(products, Roster.of(IDENTITIES), talk)
    reasons = {
        "replayed": "a parcel is of another session, round or stage",
        "next": "a parcel is of another session, round or stage",
        "too large": "and has at most",
        "unreadable": "cannot be read",
        "incomplete": "nothing has come from",
        "swapped": "not signed by" if stage == "deal" else "an envelope was changed",
    }
    assert reasons[lie] in talk.refused["oslo"]
    assert "reveal" not in talk.said
    assert talk.joined["oslo"].left


@pytest.mark.parametrize("stage", PRODUCT_STAGES)
@pytest.mark.parametrize("nonsense", [b"", bytes(100_000), "short"])
def test_a_party_that_answers_nonsense_is_named(stage, nonsense):
    class Garbled(Sites):
        def brought(self, now, answers):
            if now != stage:
                return answers
            return {**answers, "oslo": answers["oslo"][:-3] if nonsense == "short" else nonsense}

    products = products_of()
    with pytest.raises(
        SecureAggregationFailed, match=r"\(oslo: (a parcel|masked|confirmation|revealed) came as"
    ):
        multiply_columns(
            products, Roster.of(IDENTITIES), partners(products, brought_by(products), kind=Garbled)
        )


@pytest.mark.parametrize("stage", ["offer", "deal", "open"])
def test_a_party_that_leaves_somebody_without_an_envelope_is_named(stage):
    class Sparing(Sites):
        def brought(self, now, answers):
            if now != stage:
                return answers
            return {**answers, "oslo": replaced(answers["oslo"], Parcel, sealed={})}

    products = products_of()
    with pytest.raises(SecureAggregationFailed, match="oslo: its parcel lacks messages for other parties"):
        multiply_columns(
            products, Roster.of(IDENTITIES), partners(products, brought_by(products), kind=Sparing)
        )


def test_every_honest_parcel_fits_the_room_that_is_kept_for_it():
    names = tuple("\N{LATIN SMALL LETTER O WITH STROKE}" * 99 + str(number) for number in range(5))
    known = {name: Identity.fresh() for name in names}
    products = ProductSession(run="trial", round=1, names=names, widths=(1, 1, 2, 1, 1), records=1)
    brought, roster = brought_by(products), Roster.of(known)
    talk = Sites(
        {
            name: SecureClient(
                products,
                ClientIdentity(name=name, identity=known[name], roster=roster, remember=Safe().remember),
                lambda name=name: brought[name],
            )
            for name in names
        }
    )
    multiply_columns(products, roster, talk)
    assert not talk.refused


def test_products_that_no_server_can_carry_are_refused_before_anybody_deals():
    products = products_of((100, 100, 100), records=2**20)
    with pytest.raises(Refused, match="bytes of envelopes, and a server accepts 2,147,483,648"):
        multiply_columns(products, Roster.of(IDENTITIES), lambda stage, sent: pytest.fail("asked"))
    with pytest.raises(Refused, match="bytes of envelopes"):
        SecureClient(products, seat_of("oslo"), lambda: pytest.fail("looked at"))


def test_a_party_with_other_rows_than_agreed_says_so_before_anybody_deals():
    products = products_of()
    rows, own = brought_by(products)["oslo"]
    for wrong in [(rows[:-1], own), (rows, own[:-1]), (rows, own.astype(np.int64))]:
        site = SecureClient(products, seat_of("oslo"), lambda wrong=wrong: wrong)
        with pytest.raises(InvalidValue, match=r"(rows|own) of oslo"):
            site.answer("offer", encode_terms(products))
        assert site.is_over


# --- with mechanisms -------------------------------------------------------------------------------------


def of_pairs(names, number):
    """Two groups, others in every round."""
    turned = tuple(names[number:]) + tuple(names[:number])
    return tuple(sorted(turned[:4])), tuple(sorted(turned[4:]))


@pytest.mark.parametrize("parties", [None, of_pairs])
def test_a_server_sees_the_means_that_it_sees_in_one_process(parties):
    names, width, number = CITIES[:8], 12, 3
    mechanism = SecureSum(clip=1.0, multiplier=2.0, colluders=1, sites=8, parties=parties, rehearsal=True)
    now, key = mechanism.at_round(number), Key(7)
    rows = {
        name: now.at_site(np.random.default_rng(place).normal(size=width), key / name)
        for place, name in enumerate(names)
    }
    expected = server_view(Updates(names, np.stack([rows[name] for name in names])), now)
    expects = sums_of(mechanism, names, run="trial", number=number, width=width)
    talk = Sites(
        {
            name: SecureClient(session, seat_of(name), lambda name=name: now.on_ring(rows[name]))
            for session in expects
            for name in session.names
        }
    )
    found = sum_groups(now.groups(names), width, 1, number, "trial", Roster.of(IDENTITIES), talk)
    means = [now.mean_of(one.total, len(one.survivors)) for one in found]
    assert (np.stack(means) == expected.matrix).all()


def test_a_server_sees_the_products_that_it_sees_in_one_process():
    names = ("oslo", "alta", "bergen")
    mechanism = SecureGram(multiplier=1.0, widths=((2,), (3, 1), (2,)), records=15, rehearsal=True)
    length, key = mechanism.records * max(mechanism.columns), Key(7)
    rows = dict[str, Array]()
    for place, name in enumerate(names):
        update = np.zeros(length)
        own = mechanism.records * mechanism.columns[place]
        draws = np.random.default_rng(place)
        update[:own] = draws.random(own) / 2
        rows[name] = mechanism.at_site(update, key / name)
    expected = server_view(Updates(names, np.stack([rows[name] for name in names]), round=1), mechanism)
    expects = expected_products(mechanism, names, run="trial", number=1)

    def brought(name):
        steps, own = mechanism.secure_input(names.index(name), rows[name])
        return steps.astype(np.uint32), own

    talk = Sites(
        {name: SecureClient(expects, seat_of(name), lambda name=name: brought(name)) for name in names}
    )
    found = mechanism.decode(multiply_columns(expects, Roster.of(IDENTITIES), talk))
    assert (found == expected.matrix[0]).all()


def test_a_site_expects_the_group_that_its_own_mechanism_puts_it_in():
    names = CITIES[:8]
    mechanism = SecureSum(clip=1.0, multiplier=2.0, colluders=1, sites=8, parties=of_pairs)
    options = {"run": "trial", "number": 3, "width": 5}
    (own,) = (one for one in sums_of(mechanism, names, **options) if "oslo" in one.names)
    assert own.names == of_pairs(names, 3)[1]
    # The group of another round, with everything else right, is another session.
    other = sessions(of_pairs(names, 4), 5, 1, 3, "trial")
    site = SecureClient(own, seat_of("oslo"), lambda: pytest.fail("looked at"))
    with pytest.raises(SecureAggregationFailed, match="the terms of the server have names"):
        site.answer("offer", encode_terms(next(one for one in other if "oslo" in one.names)))
    with pytest.raises(Refused, match="7 sites cannot use secure aggregation"):
        sums_of(mechanism, names[:7], **options)


def test_a_sum_that_holds_less_noise_than_was_paid_for_is_refused():
    def shrinking(names, number):
        return (tuple(names),) if number == 0 else of_pairs(names, 0)

    mechanism = SecureSum(clip=1.0, multiplier=2.0, colluders=1, sites=8, parties=shrinking)
    assert len(sums_of(mechanism, CITIES[:8], run="trial", number=0, width=5)) == 1
    with pytest.raises(
        Refused, match="a sum over 4 sites holds the noise of 2 honest ones, and that of 5 was paid"
    ):
        sums_of(mechanism, CITIES[:8], run="trial", number=1, width=5)


def test_masked_vectors_look_like_chance_to_the_server():
    width = 20_000
    vectors = {name: np.zeros(width, dtype=np.uint32) for name in FIVE}
    talk = in_groups((FIVE,), vectors, width)
    (found,) = added_up((FIVE,), width, talk)
    assert not found.total.any()
    for message in talk.said["mask"].values():
        words = np.frombuffer(msgspec.msgpack.decode(message, type=Masked).vector, dtype="<u4")
        bits = np.unpackbits(words.view(np.uint8)).reshape(-1, 32).mean(axis=0)
        assert np.abs(bits - 0.5).max() * 2 * np.sqrt(width) < 6
