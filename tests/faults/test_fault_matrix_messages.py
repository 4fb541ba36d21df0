"""The fault matrix, rows 25, 30 to 32 and 41 to 46: messages that lie, and sums in secret that go wrong.

What is said here of messages holds for those of a sum in secret and for the files of a run. The messages of
the Flower engine (its caps, its signatures, its deadlines) come with it.
"""

import io
import pickle
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from scipy import stats
from test_fault_matrix_sites import SEVEN, TASK, reply, screened

from tacit import Privacy, fit
from tacit.aggregation.mean import Mean
from tacit.aggregation.secure import Coordinator, Identity, Member, Roster, Session, products, secure_sum
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
    Shares,
    Survivors,
    decode_message,
    room,
)
from tacit.errors import InvalidValue, RunUnusable, SecureAggregationFailed
from tacit.privacy.mechanisms.lattice import DEVIATIONS, HALF, Lattice
from tacit.privacy.mechanisms.secure_sum import SecureSum
from tacit.runs.directory import STATE, Checkpoint, Directory
from tacit.runtime.keys import Key

NAMES = ("alta", "bergen", "oslo", "tromso", "voss")
SESSION = Session(run="trial", round=1, names=NAMES, width=6)
KINDS = (Offer, Offers, Shares, Envelopes, Masked, Survivors, Confirmation, Confirmations, Revealed)


def vectors(session=SESSION):
    draws = np.random.default_rng(1)
    return {name: draws.integers(0, 2**32, session.width, dtype=np.uint32) for name in session.names}


class Play:
    """A sum in secret, one stage after the other; what everybody says in it is kept."""

    def __init__(self):
        own = {name: Identity.fresh() for name in NAMES}
        self.roster = Roster.of(own)
        self.members = {name: Member(SESSION, name, own[name], self.roster) for name in NAMES}
        self.server = Coordinator(SESSION, self.roster)
        self.said = {}

    def until(self, stage):
        """Return the message to each site in a stage."""
        given = vectors()
        answers = {
            "offer": lambda member, message: member.offer(),
            "share": lambda member, message: member.share(message),
            "mask": lambda member, message: member.mask(given[member.name], message),
            "agree": lambda member, message: member.agree(message),
            "reveal": lambda member, message: member.reveal(message),
        }
        collect = [
            self.server.collect_offers,
            self.server.collect_shares,
            self.server.collect_vectors,
            self.server.collect_signatures,
        ]
        sent = dict.fromkeys(NAMES, b"")
        for earlier, collected in zip(STAGES, collect, strict=False):
            if earlier == stage:
                break
            self.said[earlier] = {name: answers[earlier](self.members[name], sent[name]) for name in sent}
            sent = collected(self.said[earlier])
        return sent


def changed(message, kind, **fields):
    return msgspec.structs.replace(msgspec.msgpack.decode(message, type=kind), **fields).encode()


def refuses(reason):
    return pytest.raises(SecureAggregationFailed, match=rf"oslo refuses: .*{reason}")


# Whose message it is, and what is in it.


def test_row_25_a_message_signed_by_another_or_in_its_name_is_rejected():
    play = Play()
    offers = {name: play.members[name].offer() for name in NAMES}
    stolen = {**offers, "oslo": offers["voss"]}
    play.server.collect_offers(stolen)
    assert [(fault.site, fault.reason) for fault in play.server.faults] == [("oslo", "unknown")]
    other = Play()
    signature = msgspec.msgpack.decode(offers["voss"], type=Offer).signature
    forged = {name: other.members[name].offer() for name in NAMES}
    other.server.collect_offers({**forged, "oslo": changed(forged["oslo"], Offer, signature=signature)})
    assert [fault.detail for fault in other.server.faults] == ["its offer is not signed by it"]
    assert screened(reply("somebody")) == ({}, [("somebody", "unknown")])


def test_row_30_what_is_too_large_or_lies_about_its_size_is_rejected_before_it_takes_memory():
    cap = room(Masked, SESSION)
    bomb = io.BytesIO()
    np.savez_compressed(bomb, update=np.zeros(4_000_000))
    # A list of two thousand million names in a dozen bytes.
    lie = (
        b"\x93" + msgspec.msgpack.encode("survivors") + b"\xc4\x20" + SESSION.digest + b"\xdd\x7f\xff\xff\xff"
    )
    cases = [(b"\x00" * (cap + 1), Masked), (lie, Survivors), (bomb.getvalue()[:cap], Masked)]
    tracemalloc.start()
    try:
        for message, kind in cases:
            with pytest.raises(SecureAggregationFailed, match=r"has at most|cannot be read"):
                decode_message(message, kind, SESSION)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


class Malicious:
    """Object that runs a command when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


def test_row_31_code_in_a_payload_is_rejected_and_does_not_run(tmp_path):
    marker, stream = tmp_path / "marker", io.BytesIO()
    torch.save({"state": Malicious(marker)}, stream)
    for payload in (pickle.dumps(Malicious(marker)), stream.getvalue()):
        for kind in KINDS:
            with pytest.raises(SecureAggregationFailed):
                decode_message(payload, kind, replace(SESSION, width=10_000))
        (tmp_path / STATE).write_bytes(payload)
        with pytest.raises(RunUnusable, match=f"{STATE} is damaged"):
            Directory(tmp_path).checkpoint()
    assert not marker.exists()
    # It would have run: the test can tell.
    pickle.loads(pickle.dumps(Malicious(marker)))
    assert marker.exists()


def fuzzed(folder, times):
    """Random bytes, and honest ones with bits flipped, as messages and as a checkpoint."""
    play, draws, directory = Play(), np.random.default_rng(32), Directory(folder)
    play.until("reveal")
    state = np.arange(5.0)
    directory.write_checkpoint(Checkpoint(2, state, state[:0], state, 1, "ab" * 32, "cd" * 32))
    honest = [(play.said[stage]["oslo"], kind) for stage, kind in zip(STAGES, SENT, strict=False)]
    kept = (folder / STATE).read_bytes()
    for number in range(times):
        message, kind = honest[number % len(honest)]
        spoilt = [flipped(message, draws), draws.bytes(int(draws.integers(0, 300)))]
        for given in spoilt:
            with suppress(SecureAggregationFailed):
                assert isinstance(decode_message(given, kind, SESSION), kind)
        (folder / STATE).write_bytes(flipped(kept, draws) if number % 2 else spoilt[1])
        with suppress(RunUnusable):
            assert np.array_equal(directory.checkpoint().state, state)


SENT = (Offer, Shares, Masked, Confirmation)


def flipped(message, draws):
    data = np.frombuffer(message, dtype=np.uint8).copy()
    data[draws.integers(0, len(data), size=draws.integers(1, 4))] ^= np.uint8(1 << draws.integers(0, 8))
    return data.tobytes()


def test_row_32_random_and_spoilt_bytes_are_refused_and_never_anything_else(tmp_path):
    fuzzed(tmp_path, 1000)


@pytest.mark.slow
def test_row_32_a_hundred_thousand_spoilt_messages_are_refused_and_never_anything_else(tmp_path):
    fuzzed(tmp_path, 100_000)


# Sums in secret.


@pytest.mark.parametrize("stage", STAGES)
def test_row_41_a_site_may_drop_out_in_any_stage_and_the_sum_of_the_others_is_exact(stage):
    given = vectors()
    summed = secure_sum(given, session=SESSION, dropped={"oslo": stage})
    # Whoever has sent its masked vector is in the sum, even if it is never heard of again.
    late = STAGES.index(stage) > STAGES.index("mask")
    assert summed.survivors == tuple(name for name in NAMES if late or name != "oslo")
    expected = np.add.reduce([given[name] for name in summed.survivors], dtype=np.uint32)
    assert (summed.total == expected).all()


@pytest.mark.parametrize("stage", STAGES)
def test_row_42_with_too_few_survivors_nothing_is_unmasked(stage):
    with pytest.raises(SecureAggregationFailed, match=r"4 are needed .*Nothing was unmasked"):
        secure_sum(vectors(), session=SESSION, dropped=dict.fromkeys(NAMES[:2], stage))


def test_row_42_a_round_whose_sum_failed_is_skipped_and_paid(monkeypatch):
    """It was paid before anybody was asked: a failed sum wastes budget, and never exceeds it."""

    def failing(given, *, session):
        silent = list(given)[:4] if session.round == 2 else []
        return secure_sum(given, session=session, dropped=dict.fromkeys(silent, "mask"))

    monkeypatch.setattr(products, "secure_sum", failing)
    promise = Privacy(unit="site", noise_multiplier=1.0, delta=1e-5, clip=5.0, noise="secure", rehearsal=True)
    run = fit(TASK, SEVEN, privacy=promise, aggregation=Mean(), rounds=3, seed=1)
    assert [entry.skipped is None for entry in run.record.rounds] == [True, False, True]
    assert "Nothing was unmasked" in run.record.rounds[1].skipped
    spent = [entry.epsilon for entry in run.record.rounds]
    assert spent[0] < spent[1] < spent[2]


def test_row_43_a_server_that_asks_for_both_shares_or_twice_or_names_two_sets_gets_none():
    play = Play()
    survivors = play.until("agree")["oslo"]
    oslo, fewer = play.members["oslo"], [name for name in NAMES if name != "bergen"]
    agreed = oslo.agree(survivors)
    with refuses("it was asked to agree and is to reveal next"):
        oslo.agree(changed(survivors, Survivors, names=fewer))
    twice = Play()
    agreements = twice.until("reveal")["oslo"]
    twice.members["oslo"].reveal(agreements)
    with refuses("it was asked to reveal and has answered every stage"):
        twice.members["oslo"].reveal(agreements)
    # One set for oslo, another for everybody else: neither has enough signatures.
    apart = Play()
    told = apart.until("agree")
    told["oslo"] = changed(told["oslo"], Survivors, names=fewer)
    signatures = {
        name: msgspec.msgpack.decode(apart.members[name].agree(message), type=Confirmation).signature
        for name, message in told.items()
    }
    mixed = Confirmations(session=SESSION.digest, signatures=signatures).encode()
    with pytest.raises(SecureAggregationFailed, match="voss refuses: oslo has not signed the same set"):
        apart.members["voss"].reveal(mixed)
    assert isinstance(agreed, bytes)


def test_row_44_swapped_keys_tampered_envelopes_and_bad_shares_are_noticed():
    play = Play()
    offers = play.until("share")["oslo"]
    swapped = [
        msgspec.structs.replace(offer, mask=KeyExchange(b"\x07" * 32).public)
        if offer.site == "voss"
        else offer
        for offer in msgspec.msgpack.decode(offers, type=Offers).offers
    ]
    with refuses("the offer of voss is not signed by voss"):
        play.members["oslo"].share(changed(offers, Offers, offers=swapped))
    tampered = Play()
    envelopes = tampered.until("mask")["oslo"]
    sealed = msgspec.msgpack.decode(envelopes, type=Envelopes).sealed
    sealed["voss"] = bytes([sealed["voss"][0] ^ 1]) + sealed["voss"][1:]
    with refuses("voss: "):
        tampered.members["oslo"].mask(vectors()["oslo"], changed(envelopes, Envelopes, sealed=sealed))
    lying = Play()
    agreements = lying.until("reveal")
    revealed = {name: lying.members[name].reveal(agreements[name]) for name in NAMES}
    shares = msgspec.msgpack.decode(revealed["alta"], type=Revealed).shares
    wrong = {owner: bytes(reversed(share)) for owner, share in shares.items()}
    summed = lying.server.unmask({**revealed, "alta": changed(revealed["alta"], Revealed, shares=wrong)})
    assert (summed.total == np.add.reduce(list(vectors().values()), dtype=np.uint32)).all()
    assert {fault.site for fault in summed.faults} == {"alta"}


@pytest.mark.parametrize(("sites", "multiplier"), [(3, 0.3), (10, 1.0), (100, 5.0)])
@pytest.mark.parametrize("width", [1, 1000])
def test_row_45_no_sum_leaves_the_ring(sites, multiplier, width):
    lattice = Lattice.fit(clip=2.5, width=width, sites=sites, multiplier=multiplier, honest=sites // 2 + 1)
    share = lattice.share(multiplier, sites // 2 + 1)
    assert sites * lattice.sensitivity + DEVIATIONS * share * np.sqrt(sites) < HALF
    for sign in (1, -1):
        longest = np.zeros(width, dtype=np.int64)
        longest[0] = sign * int(lattice.sensitivity)
        total = np.add.reduce([lattice.encode(longest)] * sites, dtype=np.uint32)
        assert (lattice.decode(total) * lattice.scale == sites * longest).all()
    with pytest.raises(InvalidValue, match="scale lower"):
        replace(lattice, scale=lattice.scale * 2.0**8)


def test_row_46_noise_suffices_without_those_who_dropped_out_or_collude():
    mechanism = SecureSum(clip=1.0, multiplier=1.5, colluders=2, sites=10, rehearsal=True)
    width, key = 4000, Key(46, rehearsal=True)
    silent = np.zeros(width)
    # As many as must stay, without the two that tell the server their shares.
    steps = sum(mechanism.at_site(silent, key / name) for name in range(mechanism.shares))
    promised = mechanism.multiplier * mechanism.lattice(width).sensitivity
    chance = stats.chi2.cdf(float((steps**2).sum()) / promised**2, width)
    assert 1e-5 < chance < 1 - 1e-5
    assert mechanism.shares == 5
