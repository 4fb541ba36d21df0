"""Secrets in shares: given back by enough, hidden from fewer, wrong ones named."""

import itertools
import secrets
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.aggregation.secure import shamir
from tacit.aggregation.secure.shamir import PRIME, Reconstructor, decode_polynomial, split_secret, value_at

secret_bytes = st.binary(min_size=32, max_size=32)


def joined(shares, threshold, secret):
    return Reconstructor(threshold).reconstruct(shares, lambda found: found == secret)


def spoilt(share: bytes) -> bytes:
    return ((int.from_bytes(share, "big") + 1) % PRIME).to_bytes(33, "big")


def test_the_modulus_is_a_prime_above_every_secret():
    assert 2**256 < PRIME < 2**257
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 60):  # Miller and Rabin
        powers = [pow(base, odd * 2**twice, PRIME) for twice in range(twos)]
        assert powers[0] == 1 or PRIME - 1 in powers


@given(secret_bytes, st.data())
@settings(max_examples=30)
def test_any_threshold_of_shares_gives_the_secret_back(secret: bytes, data: st.DataObject):
    count = data.draw(st.integers(2, 30))
    threshold = data.draw(st.integers(2, count))
    shares = split_secret(secret, range(1, count + 1), threshold)
    kept = data.draw(st.lists(st.sampled_from(sorted(shares)), min_size=threshold, unique=True))
    assert joined({holder: shares[holder] for holder in kept}, threshold, secret) == shamir.Reconstruction(
        secret
    )


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32, b"\x00" * 31 + b"\x01"])
def test_secrets_at_the_ends_come_back(secret: bytes):
    assert joined(split_secret(secret, range(1, 101), 67), 67, secret).secret == secret


def test_shares_are_fresh_each_time_and_of_one_size():
    secret = secrets.token_bytes(32)
    first, second = split_secret(secret, range(1, 6), 3), split_secret(secret, range(1, 6), 3)
    assert all(first[holder] != second[holder] for holder in first)
    assert {len(share) for share in first.values()} == {33}


def test_fewer_shares_than_the_threshold_give_nothing():
    secret = secrets.token_bytes(32)
    shares = split_secret(secret, range(1, 8), 5)
    assert joined({holder: shares[holder] for holder in (1, 2, 3, 4)}, 5, secret).secret is None


def test_every_secret_is_equally_likely_to_whoever_holds_one_share_too_few(monkeypatch: pytest.MonkeyPatch):
    # All polynomials over a small field, one by one: the joint distribution of any two of the shares is
    # exactly uniform, whatever the secret.
    monkeypatch.setattr(shamir, "PRIME", 11)
    for holders in itertools.combinations((1, 2, 3, 4), 2):
        for secret in range(11):
            seen = Counter(
                tuple(value_at([secret, *rest], holder) for holder in holders)
                for rest in itertools.product(range(11), repeat=2)
            )
            assert len(seen) == 11**2
            assert set(seen.values()) == {1}


def test_one_share_too_few_can_be_completed_to_any_secret():
    secret, other = secrets.token_bytes(32), secrets.token_bytes(32)
    shares = split_secret(secret, range(1, 8), 5)
    known = {holder: int.from_bytes(shares[holder], "big") for holder in (2, 3, 5, 7)}
    # The polynomial through the four shares and the other secret is as good as the true one.
    through = decode_polynomial({**known, 0: int.from_bytes(other, "big")}, 5)
    assert through is not None
    assert all(value_at(through, holder) == value for holder, value in known.items())
    assert value_at(through, 0) == int.from_bytes(other, "big")


def test_shares_spread_over_the_whole_field():
    values = [int.from_bytes(split_secret(bytes(32), [1], 2)[1], "big") / PRIME for _ in range(2000)]
    counts = Counter(int(8 * value) for value in values)
    # Chi-square with 7 degrees of freedom, at one in a million.
    assert sum((counts[part] - 250) ** 2 / 250 for part in range(8)) < 40


@given(secret_bytes, st.data())
@settings(max_examples=25)
def test_wrong_shares_are_named_up_to_half_of_the_spare_ones(secret: bytes, data: st.DataObject):
    threshold = data.draw(st.integers(2, 12))
    count = data.draw(st.integers(threshold + 2, threshold + 9))
    shares = split_secret(secret, range(1, count + 1), threshold)
    most = (count - threshold) // 2
    wrong = data.draw(st.sets(st.integers(1, threshold), min_size=1, max_size=most))
    given_back = {h: spoilt(share) if h in wrong else share for h, share in shares.items()}
    assert joined(given_back, threshold, secret) == shamir.Reconstruction(secret, frozenset(wrong))


@pytest.mark.parametrize("wrong", [1, 3, 5])
def test_one_spare_share_is_enough_to_name_one_wrong_one(wrong: int):
    secret = secrets.token_bytes(32)
    shares = split_secret(secret, range(1, 6), 4)
    shares[wrong] = spoilt(shares[wrong])
    found = joined(shares, 4, secret)
    assert found.secret == secret
    # The last share was spare: nobody had to look at it.
    assert found.wrong == (frozenset() if wrong == 5 else {wrong})


def test_a_wrong_share_without_a_spare_one_gives_nothing():
    secret = secrets.token_bytes(32)
    shares = split_secret(secret, range(1, 5), 4)
    assert joined({**shares, 2: spoilt(shares[2])}, 4, secret).secret is None


def test_a_share_that_is_no_number_of_the_field_is_wrong():
    secret = secrets.token_bytes(32)
    shares = {**split_secret(secret, range(1, 8), 4), 1: b"\xff" * 33}
    assert joined(shares, 4, secret) == shamir.Reconstruction(secret, frozenset({1}))


def test_whoever_was_caught_is_not_asked_first_again():
    joiner, first, second = Reconstructor(3), secrets.token_bytes(32), secrets.token_bytes(32)
    dealings = [split_secret(secret, range(1, 7), 3) for secret in (first, second)]
    for shares, secret, wrong in zip(dealings, (first, second), ({1}, set()), strict=True):
        shares[1] = spoilt(shares[1])
        found = joiner.reconstruct(shares, lambda found, secret=secret: found == secret)
        assert found == shamir.Reconstruction(secret, frozenset(wrong))


def test_who_was_caught_by_one_spare_share_is_not_asked_first_again():
    joiner, asked = Reconstructor(2), 0
    for turn in range(2):
        secret = secrets.token_bytes(32)
        shares = split_secret(secret, range(1, 4), 2)
        shares[1] = spoilt(shares[1])

        def fits(found: bytes, secret: bytes = secret) -> bool:
            nonlocal asked
            asked += 1
            return found == secret

        asked = 0
        found = joiner.reconstruct(shares, fits)
        assert found == shamir.Reconstruction(secret, frozenset() if turn else frozenset({1}))
    assert asked == 1


def test_shares_of_zero_lie_on_the_polynomial_without_terms():
    assert decode_polynomial({1: 0, 2: 0, 3: 0}, 2) == []
    zeros = dict.fromkeys((1, 2, 3), bytes(33))
    assert Reconstructor(2).reconstruct(zeros, lambda found: found == bytes(32)).secret == bytes(32)


def test_known_shares_of_a_known_polynomial(monkeypatch: pytest.MonkeyPatch):
    drawn = iter([7, 2**256 + 1])
    monkeypatch.setattr(secrets, "randbelow", lambda below: next(drawn))
    shares = split_secret(bytes(31) + b"\x05", (1, 2, 100), 3)
    expected = {1: 5 + 7 + 2**256 + 1, 2: 5 + 14 + 4 * (2**256 + 1), 100: 705 + 10_000 * (2**256 + 1)}
    assert shares == {holder: (value % PRIME).to_bytes(33, "big") for holder, value in expected.items()}
