"""Words become the normal numbers that they stand for, everywhere, and on all pieces."""

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from tacit.privacy.mechanisms.normal import EDGE, LEVELS, PIECES, STEEP, normal, scale_to_grid
from tacit.runtime.keys import Key, random_words

STREAM = (Key(7, rehearsal=True) / "normal").secret()


def of(*words: int) -> np.ndarray:
    return normal(np.array([words], dtype=np.uint64), [STREAM])[0]


def exact(word: int) -> float:
    """The inverse at the middle of what 63 bits leave open, in forty digits; the highest bit is the sign."""
    with mpmath.workdps(40):
        share = (mpmath.mpf(word % 2**63) + mpmath.mpf(1) / 2) / 2**63
        found = mpmath.sqrt(2) * mpmath.erfinv(1 - share)
        return float(found if word >= 2**63 else -found)


@settings(deadline=None, max_examples=200)
@given(st.integers(2**43, 2**64 - 1))
def test_a_word_is_the_number_that_it_stands_for(word):
    if word % 2**63 >= 2**43:
        assert of(word)[0] == pytest.approx(exact(word), rel=2e-15, abs=2e-15)


def test_the_next_level_begins_where_pieces_get_too_steep():
    assert int(EDGE) == STEEP << 51
    assert PIECES == 16 * STEEP


@pytest.mark.parametrize("level", range(LEVELS))
def test_pieces_meet_where_they_end(level):
    edges = np.arange(STEEP + (level == LEVELS - 1), PIECES, dtype=np.uint64) << np.uint64(51 - 4 * level)
    ends = normal(np.stack([edges - np.uint64(1), edges]), [STREAM] * 2)
    # On the last level 2^43 words are left, so that the next is not as near.
    assert np.abs(ends[1] - ends[0]).max() < max(8e-15, 2.0 ** (4 * level - 57))
    # From the outermost of a side inwards, without a step back that rounding does not explain.
    assert (np.diff(ends[1]) > 0).all()


@pytest.mark.parametrize("level", range(LEVELS))
def test_on_every_piece_the_inverse_is_that_of_scipy(level):
    inside = (np.arange(STEEP, PIECES, dtype=np.uint64) << np.uint64(51)) + np.uint64(0x1234567890ABC)
    words = np.concatenate([inside >> np.uint64(4 * level), (inside >> np.uint64(4 * level)) + 2**63])
    shares = ((words & np.uint64(2**63 - 1)).astype(float) + 0.5) * 2.0**-64
    signs = np.where(words >= 2**63, -1.0, 1.0)
    np.testing.assert_allclose(of(*words.tolist()), signs * ndtri(shares), rtol=0, atol=4e-15)


def test_the_slope_is_that_of_the_density():
    """On pieces as in between: what noise hides rests on its density, not on its values."""
    begin = np.arange(STEEP, PIECES, dtype=np.uint64) << np.uint64(51)
    steps = np.uint64(2**46)
    for part in range(0, 32, 5):
        words = begin + np.uint64(part) * steps
        pair = normal(np.stack([words, words + steps]), [STREAM] * 2)
        # 2^46 of 2^64 words, between two numbers.
        density = 2.0**-18 / (pair[1] - pair[0])
        middle = pair.mean(axis=0)
        np.testing.assert_allclose(density, np.exp(-(middle**2) / 2) / np.sqrt(2 * np.pi), rtol=2e-9)


def test_a_number_does_not_depend_on_those_beside_it():
    words = random_words([(Key(7, rehearsal=True) / site).secret() for site in range(3)], 1000)
    whole = normal(words, [STREAM] * 3)
    for start in (0, 1, 63, 500):
        assert (normal(words[1:2, start:], [STREAM]) == whole[1:2, start:]).all()


def test_values_with_noise_are_those_of_plain_arithmetic():
    draws = np.random.default_rng(0)
    values, noise, step = draws.normal(size=1000), draws.normal(size=1000), 2.0**-31
    expected = np.rint((noise * 0.37 + values) / step) * step
    scale_to_grid(noise, values, 0.37, step)
    assert (noise == expected).all()


def test_what_is_beyond_all_pieces_is_scipys_and_finer_than_its_words():
    rare = np.array([[0, 1, 2**43 - 1, 2**63, 2**63 + 2**43 - 1, 2**62]], dtype=np.uint64)
    found = normal(rare, [(Key(7, rehearsal=True) / "rare").secret()])[0]
    shares = (rare[0, :5] % 2**63).astype(float)
    # Where the word alone says -8.6 or less, the place within it is drawn.
    low, high = (ndtri((shares + more) * 2.0**-64) for more in (1e-9, 1))
    assert ((low <= np.abs(found[:5]) * -1) & (np.abs(found[:5]) * -1 <= high)).all()
    assert np.signbit(found).tolist() == [True, True, True, False, False, True]
    assert found[5] == pytest.approx(ndtri(0.25))


def test_no_words_are_no_numbers():
    assert normal(np.zeros((1, 0), dtype=np.uint64), [STREAM]).shape == (1, 0)
