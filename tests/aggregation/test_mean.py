import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.aggregation.mean import Mean
from tacit.errors import InvalidValue
from tacit.privacy.mechanisms.clip import clip_rows

updates_of_a_round = st.lists(
    st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3), min_size=1, max_size=8
).map(lambda rows: np.array(rows, dtype=np.float64))


def test_the_mean_is_taken_over_the_sites():
    assert Mean()(np.array([[1.0, 2.0], [3.0, 6.0]])).tolist() == [2, 4]


def test_the_mean_over_a_public_denominator_ignores_how_many_came():
    updates = np.array([[1.0, 2.0], [3.0, 6.0]])
    assert Mean()(updates, sites=8).tolist() == [0.5, 1.0]


def test_the_public_denominator_may_be_an_expectation():
    assert Mean()(np.array([[3.0]]), sites=1.5).tolist() == [2.0]


def test_a_round_to_which_nobody_came_is_zero_over_a_public_denominator():
    assert Mean()(np.zeros((0, 3)), sites=4).tolist() == [0, 0, 0]


def test_the_updates_are_left_as_they_were():
    updates = np.ones((3, 2))
    Mean()(updates, sites=2)
    assert np.array_equal(updates, np.ones((3, 2)))


@settings(deadline=None, max_examples=100)
@given(updates_of_a_round, st.randoms(use_true_random=False))
def test_the_order_of_the_sites_does_not_matter(updates, random):
    order = list(range(len(updates)))
    random.shuffle(order)
    np.testing.assert_allclose(Mean()(updates[order]), Mean()(updates), rtol=0, atol=1e-10)


@settings(deadline=None, max_examples=150)
@given(updates_of_a_round, st.floats(1e-3, 1e3), st.floats(0.5, 20))
def test_one_site_more_or_less_moves_the_mean_by_at_most_its_sensitivity(updates, clip, sites):
    clipped = clip_rows(updates, clip)
    moved = Mean()(clipped, sites=sites) - Mean()(clipped[:-1], sites=sites)
    claimed = Mean().sensitivity(clip, sites)
    assert claimed is not None
    assert float(np.linalg.norm(moved)) <= claimed * (1 + 1e-12)


@settings(deadline=None, max_examples=100)
@given(updates_of_a_round, st.floats(1e-3, 1e3), st.floats(0.5, 20))
def test_it_does_so_in_l1_too(updates, clip, sites):
    clipped = clip_rows(updates, clip, norm="l1")
    moved = Mean()(clipped, sites=sites) - Mean()(clipped[:-1], sites=sites)
    claimed = Mean().sensitivity(clip, sites)
    assert claimed is not None
    assert float(np.abs(moved).sum()) <= claimed * (1 + 1e-12)


@pytest.mark.parametrize("count", [10, 1000, 10_000])
def test_the_sensitivity_holds_for_many_sites_in_single_precision(count):
    # A site weighs one in `count`, so what the sum loses to rounding is as large as a share of its update.
    claimed = Mean().sensitivity(1.0, count)
    assert claimed is not None
    for _ in range(20):
        updates = clip_rows(np.random.default_rng(0).random((count, 1)) * 3 + 0.3, 1.0)
        moved = Mean()(updates, sites=count) - Mean()(updates[:-1], sites=count)
        assert float(np.abs(moved).item()) <= claimed * (1 + 1e-6)


def test_the_sensitivity_is_reached():
    update = np.array([[0.6, 0.8]], dtype=np.float64)
    moved = Mean()(update, sites=4) - Mean()(update[:0], sites=4)
    assert float(np.linalg.norm(moved)) == pytest.approx(Mean().sensitivity(1.0, 4))


def test_the_realised_count_would_break_the_sensitivity():
    # Why the denominator must be public: with the count of those who came, one site moves the others too.
    updates = np.array([[1.0], [-1.0]])
    moved = Mean()(updates) - Mean()(updates[:1])
    claimed = Mean().sensitivity(1.0, 2)
    assert claimed is not None
    assert float(np.abs(moved).item()) == 2 * claimed


def test_weights_are_uniform_and_nothing_else():
    assert Mean().weights == "uniform"
    with pytest.raises(InvalidValue, match="weights"):
        Mean(weights="records")  # type: ignore[arg-type]


def test_the_sensitivity_is_a_number():
    assert math.isclose(Mean().sensitivity(2.0, 8) or 0, 0.25)
