"""Keys, signatures, envelopes and masks: against the standards' own vectors, and against tampering."""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.aggregation.secure import sealing
from tacit.aggregation.secure.sealing import (
    Identity,
    KeyExchange,
    Roster,
    commitment,
    derive_key,
    is_valid_public_key,
    mask,
    seal,
    unseal,
)
from tacit.errors import InvalidValue, SecureAggregationFailed

SOURCES = Path(sealing.__file__).parents[2]


def test_cryptography_has_a_door_for_secrets_one_for_certificates_and_one_for_noise():
    users = {path.name for path in SOURCES.rglob("*.py") if "from cryptography" in path.read_text()}
    assert users == {"sealing.py", "certificates.py", "keys.py"}


def test_the_package_of_secure_sums_loads_no_cryptography_before_it_is_needed():
    code = "import sys, tacit.aggregation.secure; print('cryptography' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_signature_is_that_of_rfc_8032():
    secret = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    identity = Identity(secret)
    assert identity.public.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert (
        identity.sign(b"")
        .hex()
        .startswith("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155")
    )
    assert identity.secret == secret


def test_a_public_key_is_that_of_rfc_7748():
    nine = bytes([9]) + bytes(31)
    assert (
        KeyExchange(nine).public.hex() == "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
    )


def test_a_derived_key_is_that_of_rfc_5869():
    expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert derive_key(b"\x0b" * 22, b"").hex() == expected


def test_a_mask_is_the_keystream_of_rfc_8439():
    expected = bytes.fromhex(
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    )
    vector = np.zeros(16, dtype=np.uint32)
    mask(vector, bytes(32), 1)
    assert vector.astype("<u4").tobytes() == expected


def test_envelopes_and_commitments_keep_their_bytes():
    key = bytes(range(32))
    sealed = seal(key, b"content", b"context")
    assert sealed.hex() == "7bd72c45c888d2903109671b74f5096d5d5ed48520ef50"
    assert (
        commitment(key, b"context").hex()
        == "72c03f16f89b623eb877c0100266b9806d691d657d8adfc34f5cf581de308788"
    )


def test_both_sides_come_to_one_key_for_each_context():
    ours, theirs = KeyExchange(b"a" * 32), KeyExchange(b"b" * 32)
    assert ours.key(theirs.public, b"one") == theirs.key(ours.public, b"one")
    assert ours.key(theirs.public, b"one") != ours.key(theirs.public, b"two")


@pytest.mark.parametrize("public", [bytes(32), bytes([1]) + bytes(31)])
def test_a_key_that_leaves_no_secret_is_refused(public: bytes):
    assert not is_valid_public_key(public)
    with pytest.raises(SecureAggregationFailed, match="a public key is weak"):
        KeyExchange(b"a" * 32).key(public, b"context")
    assert is_valid_public_key(KeyExchange(b"b" * 32).public)


def test_an_envelope_opens_for_its_key_and_context_alone():
    sealed = seal(b"k" * 32, b"shares", b"oslo to bergen")
    assert unseal(b"k" * 32, sealed, b"oslo to bergen") == b"shares"
    assert b"shares" not in sealed
    for key, context in ((b"x" * 32, b"oslo to bergen"), (b"k" * 32, b"bergen to oslo")):
        with pytest.raises(SecureAggregationFailed, match="changed"):
            unseal(key, sealed, context)


@given(st.integers(0, 8 * (6 + 16) - 1))
def test_no_bit_of_an_envelope_can_be_changed(bit: int):
    sealed = bytearray(seal(b"k" * 32, b"shares", b"context"))
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(SecureAggregationFailed, match="changed"):
        unseal(b"k" * 32, bytes(sealed), b"context")


@pytest.mark.parametrize("width", [1, 7, sealing.BLOCK, sealing.BLOCK + 1, 2 * sealing.BLOCK + 3])
def test_a_mask_comes_off_again_and_does_not_depend_on_blocks(width: int):
    vector = np.arange(width, dtype=np.uint32)
    whole, part = vector.copy(), vector[: width // 2].copy()
    mask(whole, b"k" * 32, 1)
    mask(part, b"k" * 32, 1)
    assert (whole[: len(part)] == part).all()
    assert width < 7 or (whole != vector).any()
    mask(whole, b"k" * 32, -1)
    assert (whole == vector).all()


def test_masked_numbers_are_uniform_and_tell_nothing_of_what_is_under_them():
    # The most telling input: all numbers small and equal to their place.
    plain = np.arange(200_000, dtype=np.uint32)
    hidden = plain.copy()
    mask(hidden, hashlib.sha256(b"a fixed key, so that the test is").digest(), 1)
    counts = np.bincount(np.frombuffer(hidden.astype("<u4").tobytes(), dtype=np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-4
    assert stats.kstest(hidden / 2**32, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(plain, hidden)[0, 1]) < 5 / np.sqrt(len(plain))


def test_a_signature_holds_for_its_site_and_message_alone():
    identities = {"oslo": Identity.fresh(), "bergen": Identity.fresh()}
    roster, signature = Roster.of(identities), identities["oslo"].sign(b"message")
    assert roster.is_signed_by("oslo", signature, b"message")
    assert not roster.is_signed_by("bergen", signature, b"message")
    assert not roster.is_signed_by("oslo", signature, b"another")
    assert not roster.is_signed_by("oslo", signature[:-1], b"message")
    assert not roster.is_signed_by("nobody", signature, b"message")
    assert dict(roster) == {name: identity.public for name, identity in identities.items()}
    assert len(roster) == 2


def test_an_identity_signs_one_message_for_an_occasion():
    identity = Identity.fresh()
    first = identity.sign_once(b"round 1", b"these")
    assert identity.sign_once(b"round 1", b"these") == first
    with pytest.raises(SecureAggregationFailed, match="another set of survivors"):
        identity.sign_once(b"round 1", b"others")
    assert identity.sign_once(b"round 2", b"others")


def test_an_identity_does_not_show_its_secret():
    identity = Identity(b"secret secret secret secret 1234")
    assert "secret secret" not in repr(identity) + str(identity)
    assert Identity(identity.secret).public == identity.public
    assert Identity.fresh().public != Identity.fresh().public


def test_keys_of_a_wrong_length_or_shared_by_two_sites_are_refused():
    with pytest.raises(InvalidValue, match="secret = '31 bytes' is not allowed"):
        Identity(b"x" * 31)
    with pytest.raises(InvalidValue, match=r"roster\.oslo = '5 bytes'"):
        Roster({"oslo": b"short"})
    with pytest.raises(InvalidValue, match="different keys"):
        Roster({"oslo": b"k" * 32, "bergen": b"k" * 32})
