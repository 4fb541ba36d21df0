"""Noise on columns: it is what is charged, and covers the roundings of as many records as are allowed."""

import math

import numpy as np
import pytest

from tacit.privacy.mechanisms.vertical import (
    MOST_ADDED,
    ROUNDED,
    SLACK,
    NoisyHistograms,
    allocate_noise,
    clip_to_radius,
)
from tacit.runtime.keys import Key


def test_roundings_are_covered_up_to_the_most_records_and_not_for_four_times_as_many():
    """Products of n records are off by 260 roundings each in either data set; see `GramMatrix.at_server`."""

    def off(records: int) -> float:
        return 2 * 260 * 2.0**-53 * records

    assert off(MOST_ADDED) <= ROUNDED * math.sqrt(2) < off(4 * MOST_ADDED)


@pytest.mark.parametrize("sites", [1, 4])
def test_the_noise_of_a_histogram_is_what_is_charged(sites):
    histograms = NoisyHistograms(multiplier=3.0, holders={"x": "oslo", "y": "bergen"}, purpose="radii")
    releases = histograms.release(0, ["oslo", "bergen"])
    assert [release.party for release in releases] == ["oslo", "bergen"]
    for release in releases:
        assert histograms.deviation(sites) == pytest.approx(release.scale / sites, rel=1e-12)
        assert release.sensitivity == pytest.approx(math.sqrt(2), rel=1e-12)
        assert release.scale == pytest.approx(3.0 * math.sqrt(2) / 2, rel=1e-12)


def test_noise_is_shared_at_the_price_of_one_column_and_hurts_least():
    radii, widths = {"x": 2.0, "y": 0.5}, {"x": 9, "y": 25}
    noise = allocate_noise(radii, widths, 4.0)
    assert sum((radii[name] / noise[name]) ** 2 for name in radii) == pytest.approx(1 / 16, rel=1e-12)

    def hurt(share: float) -> float:
        """The variance of all numbers where the first column gets this share of the price."""
        shares = {"x": share, "y": 1 - share}
        return sum(widths[name] * radii[name] ** 2 * 16 / shares[name] for name in radii)

    least = min(hurt(share / 1000) for share in range(1, 1000))
    assert sum(widths[name] * noise[name] ** 2 for name in radii) == pytest.approx(least, rel=1e-5)


def test_a_record_counts_once_in_a_histogram_whatever_its_row_holds():
    histograms = NoisyHistograms(multiplier=1e-9, holders={"x": "oslo"}, purpose="radii", rehearsal=True)
    total = histograms.noisy_sum(np.array([[3.0, 4.0], [0.25, -5.0]]), Key(0, rehearsal=True))
    np.testing.assert_allclose(total, [0.6 + 0.25, 0.8], atol=1e-7)


def test_a_row_as_long_as_the_radius_leaves_room_for_roundings_and_a_shorter_one_stays():
    rows = np.array([[3.0, 0.0], [0.0, 3.0 * (1 - SLACK / 2)], [2.0, 2.0]])
    kept = clip_to_radius(rows, 3.0, unit=3.0)
    assert (np.linalg.norm(kept, axis=1) <= 3.0 * (1 - SLACK / 2)).all()
    np.testing.assert_allclose(kept, rows, rtol=2 * SLACK)
    assert (kept[2] == rows[2]).all()
