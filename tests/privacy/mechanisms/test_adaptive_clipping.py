import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import InvalidValue
from tacit.privacy.mechanisms.adaptive_clipping import COUNTED, SPEED, AdaptiveClipping
from tacit.privacy.mechanisms.clip import lengths

NUMBERS = st.floats(-1e6, 1e6) | st.just(math.nan) | st.just(math.inf)


def packing(blocks=(3, 2), **choices):
    return AdaptiveClipping(blocks=blocks, quantile=0.5, start=0.1, **choices)


@given(
    st.lists(NUMBERS, min_size=5, max_size=5),
    st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)),
    st.sampled_from(["l2", "l1"]),
    st.sampled_from([(), (3.0, 1.0)]),
)
@settings(max_examples=300)
def test_what_a_site_sends_is_never_longer_than_one_whatever_its_update_is(update, bounds, norm, weights):
    row = np.array([update], dtype=np.float64)
    sent = packing(norm=norm, weights=weights).encode(row, np.array(bounds, dtype=np.float64))
    assert sent.shape == (1, 7)
    assert bool(np.isfinite(sent).all())
    assert float(lengths(sent, norm=norm).item()) <= 1 + 1e-12


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_the_longest_of_all_is_as_long_as_one(norm):
    made = packing(norm=norm)
    row = np.array([[5.0, 0, 0, 7.0, 0]], dtype=np.float64)
    sent = made.encode(row, np.array([0.1, 0.2], dtype=np.float64))
    assert float(lengths(sent, norm=norm).item()) == pytest.approx(1.0, abs=1e-9)


def test_short_updates_come_back_as_their_mean():
    made, chance = packing(), np.random.default_rng(0)
    rows = chance.normal(size=(50, 5)) * 0.01
    bounds = made.initial()
    mean, _ = made.decode(made.encode(rows, bounds).mean(axis=0), bounds)
    assert np.allclose(mean, rows.mean(axis=0), atol=1e-12)


def test_bounds_find_the_quantile_of_lengths_that_differ_by_block():
    made, chance = AdaptiveClipping(blocks=(3, 2), quantile=0.7, start=1e-3), np.random.default_rng(1)
    rows = np.concatenate([chance.normal(size=(400, 3)), 50 * chance.normal(size=(400, 2))], 1)
    bounds = made.initial()
    for _ in range(120):
        _, bounds = made.decode(made.encode(rows, bounds).mean(axis=0), bounds)
    shares = [
        float((np.linalg.norm(rows[:, part], axis=1) <= bound).mean())
        for part, bound in zip((slice(0, 3), slice(3, 5)), bounds, strict=True)
    ]
    assert shares == pytest.approx([0.7, 0.7], abs=0.03)


def test_a_bound_moves_by_a_bounded_factor_however_large_the_noise():
    made = packing()
    sent = np.array([0.0] * 5 + [1e9, -1e9], dtype=np.float64)
    _, bounds = made.decode(sent, made.initial())
    assert float(bounds[0]) == pytest.approx(0.1 * math.exp(-SPEED * 0.5))
    assert float(bounds[1]) == pytest.approx(0.1 * math.exp(SPEED * 0.5))


def test_a_bound_goes_a_million_times_up_or_down_and_no_farther():
    sent = np.array([0.0] * 5 + [-1e9, 1e9], dtype=np.float64)
    _, bounds = packing().decode(sent, np.array([0.95e5, 1.05e-7], dtype=np.float64))
    assert bounds.tolist() == pytest.approx([1e5, 1e-7], rel=1e-12)


def test_parts_that_count_for_more_get_more_of_the_whole():
    actor, critic = packing(weights=(2.0, 1.0)).shares
    assert actor == pytest.approx(2 * critic)
    assert actor**2 + critic**2 + 2 * COUNTED**2 == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("choices", "named"),
    [
        ({"blocks": ()}, "blocks"),
        ({"blocks": (0,)}, "blocks"),
        ({"quantile": 1.0}, "clip_quantile"),
        ({"start": 0.0}, "clip"),
        ({"weights": (1.0,)}, "weights"),
        ({"blocks": (1,) * 6, "norm": "l1"}, "at most 5"),
        ({"blocks": (1,) * 51}, "at most 50"),
        ({"quantile": 0.0}, "clip_quantile"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(choices, named):
    with pytest.raises(InvalidValue, match=named):
        AdaptiveClipping(**{"blocks": (3, 2), "quantile": 0.5, "start": 0.1, **choices})


def test_an_update_and_a_count_for_each_block_are_sent():
    assert packing(blocks=(5, 2, 9)).width == 19


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_an_update_of_exactly_its_bound_counts_as_short(norm):
    bounds = np.array([3.0, 5.0])
    sent = packing(norm=norm).encode(np.array([[3.0, 0, 0, 0, 5.0], [3.1, 0, 0, 0, 5.1]]), bounds)
    assert sent[:, 5:].tolist() == [[COUNTED, COUNTED], [-COUNTED, -COUNTED]]


def test_as_many_blocks_are_taken_as_leave_their_counts_half_of_the_whole():
    assert packing(blocks=(1,) * 50).shares == pytest.approx((0.1,) * 50)
    assert packing(blocks=(1,) * 5, norm="l1").shares == pytest.approx((0.1,) * 5)
