"""Clip radii from noisy counts of lengths: private counts, quantiles that noise does not mislead."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import InvalidValue
from tacit.functional.tasks import EDGES, SENSITIVITY, clip_correction, histogram, radius, shares

BINS = len(EDGES) - 1
STEP = EDGES[1] / EDGES[0]
# Epsilon 1 at delta 1e-5 is this mu; 3 % of it, for one curve, is this much noise in each bin.
NOISE = SENSITIVITY / (0.2681 * np.sqrt(0.03))
any_length = st.floats(allow_nan=True, allow_infinity=True)


def normal_lengths(seed, count, columns=4, scale=1.0):
    variances = np.array([0.44, 0.3, 0.15, 0.07])[:columns]
    return scale * np.linalg.norm(
        np.random.default_rng(seed).normal(size=(count, columns)) * np.sqrt(variances), axis=1
    )


def noisy_counts(lengths, deviation, seed):
    return histogram(lengths) + deviation * np.random.default_rng([seed, 1]).normal(size=BINS)


@given(st.lists(any_length, min_size=1, max_size=8), any_length, st.data())
def test_a_replaced_curve_moves_counts_by_no_more_than_the_sensitivity(lengths, other, data):
    place = data.draw(st.integers(0, len(lengths) - 1))
    replaced = [*lengths[:place], other, *lengths[place + 1 :]]
    assert np.linalg.norm(histogram(lengths) - histogram(replaced)) <= SENSITIVITY + 1e-12
    assert histogram(lengths).sum() == len(lengths)


def test_bins_are_public_and_cover_whatever_a_curve_may_be():
    counts = histogram([0.0, 1e-9, 1e-3, 1e9, np.inf, np.nan, 5e5, -1.0])
    assert counts[0] == 6
    assert counts[-1] == 1
    assert counts.sum() == 8
    assert STEP < 1.16
    assert not EDGES.flags.writeable


@given(st.integers(0, 1000), st.floats(0.05, 0.95), st.floats(0.01, 100))
def test_without_noise_a_radius_is_the_end_of_the_bin_that_holds_the_quantile(seed, quantile, scale):
    lengths = normal_lengths(seed, 400, scale=scale)
    found = radius(histogram(lengths), quantile, deviation=0.0, count=400)
    assert (lengths <= found).mean() >= quantile
    assert (lengths <= found / STEP * (1 - 1e-9)).mean() < quantile


@pytest.mark.parametrize("scale", [0.05, 1.0, 1500.0])
def test_at_epsilon_one_and_a_thousand_curves_a_radius_misses_by_about_a_bin(scale):
    missed = []
    for seed in range(30):
        lengths = normal_lengths(seed, 1000, scale=scale)
        found = radius(noisy_counts(lengths, NOISE, seed), 0.9, deviation=NOISE, count=1000)
        missed.append(found / np.quantile(lengths, 0.9))
    assert 0.95 < np.median(missed) < 1.2
    # One bin to either side, from the end of the right one.
    low, high = np.quantile(missed, [0.1, 0.9])
    assert low > 1 / STEP
    assert high < STEP**2


def test_empty_bins_full_of_noise_do_not_make_a_radius_large():
    # The noise of all bins together is many times the number of curves.
    lengths = np.full(500, 2.0)
    for seed in range(20):
        found = radius(noisy_counts(lengths, 60.0, seed), 0.95, deviation=60.0, count=500)
        assert 2.0 / STEP < found < 2.0 * STEP**2


def test_what_no_law_expects_is_believed_when_it_is_far_above_noise():
    lengths = np.concatenate([normal_lengths(0, 4000), normal_lengths(1, 1000, scale=300.0)])
    found = radius(noisy_counts(lengths, 20.0, 2), 0.9, deviation=20.0, count=5000)
    assert found == pytest.approx(np.quantile(lengths, 0.9), rel=0.3)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(0.1, 500), st.integers(1, 3000))
def test_shares_are_shares_whatever_the_noise_says(seed, deviation, count):
    noise = deviation * np.random.default_rng(seed).normal(size=BINS)
    found = shares(noise, deviation=deviation, count=count)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1)
    assert EDGES[1] <= radius(noise, 0.9, deviation=deviation, count=count) <= EDGES[-1]


@pytest.mark.parametrize("quantile", [0.3, 0.5, 0.8])
def test_stretch_is_what_clipping_does_to_coefficients(quantile):
    draws = np.random.default_rng(0)
    curves = draws.normal(size=(20_000, 5))
    response = curves @ draws.normal(size=(5, 2))
    lengths = np.linalg.norm(curves, axis=1)
    bound = radius(histogram(lengths), quantile, deviation=0.0, count=20_000)
    clipped = curves * np.minimum(1, bound / lengths)[:, None]
    too_large = np.linalg.lstsq(clipped, response, rcond=None)[0]
    right = np.linalg.lstsq(curves, response, rcond=None)[0]
    exact = clip_correction(histogram(lengths), bound, deviation=0.0, count=20_000)
    noisy = clip_correction(noisy_counts(lengths, 50.0, 1), bound, deviation=50.0, count=20_000)
    assert np.linalg.norm(too_large) / np.linalg.norm(right) == pytest.approx(exact, rel=0.02)
    assert noisy == pytest.approx(exact, rel=0.05)


def test_a_radius_beyond_all_curves_stretches_nothing():
    counts = histogram(normal_lengths(0, 300))
    assert clip_correction(counts, 1e3, deviation=0.0, count=300) == pytest.approx(1)
    assert 1 <= clip_correction(counts, 1e-2, deviation=0.0, count=300) <= 3


def test_what_makes_no_sense_is_refused():
    counts = np.ones(BINS)
    with pytest.raises(InvalidValue, match="lengths"):
        histogram([])
    with pytest.raises(InvalidValue, match="quantile"):
        radius(counts, 1.0, deviation=1.0, count=10)
    with pytest.raises(InvalidValue, match="noisy"):
        radius(np.ones(3), 0.5, deviation=1.0, count=10)
    with pytest.raises(InvalidValue, match="deviation"):
        radius(counts, 0.5, deviation=-1.0, count=10)
    with pytest.raises(InvalidValue, match="count"):
        shares(counts, deviation=1.0, count=0)
    with pytest.raises(InvalidValue, match="bound"):
        clip_correction(counts, 0.0, deviation=1.0, count=10)
