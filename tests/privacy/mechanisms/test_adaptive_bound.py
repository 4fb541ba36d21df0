import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from tacit.errors import InvalidValue
from tacit.privacy.mechanisms.adaptive_clipping import AdaptiveBound
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key

REHEARSAL = Key(11, rehearsal=True)
# So little noise that what is counted shows through; far too little to protect anybody.
QUIET = 1e-6


def counted(adaptive: AdaptiveBound, bound: float, lengths: Array) -> float:
    """The noisy count behind a move of the bound, above or below one half of the expected number."""
    moved = adaptive.next(bound, lengths, REHEARSAL)
    return adaptive.expected * (adaptive.quantile - 0.5 - math.log(moved / bound) / adaptive.speed)


def test_the_bound_grows_when_too_many_contributions_are_clipped():
    adaptive = AdaptiveBound(rehearsal=True, expected=10, noise=QUIET)
    assert adaptive.next(1.0, np.full((10,), 2.0), REHEARSAL) == pytest.approx(math.exp(0.2 * 0.5))


def test_the_bound_shrinks_when_too_few_contributions_are_clipped():
    adaptive = AdaptiveBound(rehearsal=True, expected=10, noise=QUIET)
    assert adaptive.next(1.0, np.full((10,), 0.5), REHEARSAL) == pytest.approx(math.exp(-0.2 * 0.5))


def test_the_bound_rests_at_the_quantile():
    adaptive = AdaptiveBound(rehearsal=True, expected=10, noise=QUIET, quantile=0.3)
    assert adaptive.next(3.0, np.arange(1.0, 11.0), REHEARSAL) == pytest.approx(3.0)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.floats(), max_size=20), st.floats(1e-3, 1e3), st.floats(0.01, 0.99), st.floats(0.01, 3),
    st.floats(0.1, 100),
)  # fmt: skip
def test_the_bound_stays_positive_and_moves_by_at_most_the_speed(lengths, bound, quantile, speed, noise):
    adaptive = AdaptiveBound(rehearsal=True, expected=5, noise=noise, quantile=quantile, speed=speed)
    moved = adaptive.next(bound, np.array(lengths, dtype=np.float64), REHEARSAL)
    assert moved > 0
    assert abs(math.log(moved / bound)) <= speed * (1 + 1e-9)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("start", [1e-2, 1e2])
def test_the_bound_finds_the_quantile_of_the_lengths(quantile, start):
    adaptive = AdaptiveBound(rehearsal=True, expected=200, noise=5.0, quantile=quantile)
    bound, tail = start, []
    for number in range(400):
        lengths = np.exp(np.random.default_rng(0).normal(size=200))
        bound = adaptive.next(bound, lengths, REHEARSAL / number)
        tail.append(bound)
    settled = sum(map(math.log, tail[-50:])) / 50
    truth = ndtri(quantile)
    assert settled == pytest.approx(float(truth), abs=0.15)


def test_the_bound_finds_the_quantile_when_fewer_come_than_expected():
    # Missing contributions count as half above and half below: at the median that slows the bound and does
    # not shift it.
    adaptive = AdaptiveBound(rehearsal=True, expected=200, noise=QUIET)
    lengths = np.arange(1.0, 101.0)
    bound = 10.0
    for number in range(200):
        bound = adaptive.next(bound, lengths, REHEARSAL / number)
    assert bound == pytest.approx(50.0, rel=0.05)


def test_a_length_that_is_not_a_number_counts_as_long():
    adaptive = AdaptiveBound(rehearsal=True, expected=1000, noise=QUIET)
    broken, long = np.array([0.5, math.nan]), np.array([0.5, 7.0])
    assert counted(adaptive, 1.0, broken) == pytest.approx(counted(adaptive, 1.0, long), abs=1e-4)


lengths_of_a_round = st.lists(st.floats(0, 10), max_size=20)


@settings(deadline=None, max_examples=100)
@given(lengths_of_a_round, st.floats(0, 10), st.floats(0, 10), st.floats(0.1, 9))
def test_one_contribution_moves_the_count_by_no_more_than_it_is_charged_for(lengths, one, other, bound):
    adaptive = AdaptiveBound(rehearsal=True, expected=1000, noise=QUIET)
    without, first, second = (
        counted(adaptive, bound, np.array(values, dtype=np.float64))
        for values in (lengths, [*lengths, one], [*lengths, other])
    )
    room = 1e-6
    assert abs(first - without) <= adaptive.release().sensitivity + room
    assert abs(first - second) <= adaptive.release(relation="replace").sensitivity + room


def test_the_sensitivities_are_reached():
    adaptive = AdaptiveBound(rehearsal=True, expected=1000, noise=QUIET)
    none, short, long = (counted(adaptive, 1.0, np.array(values)) for values in ([], [0.5], [2.0]))
    assert abs(short - none) == pytest.approx(0.5, abs=1e-6)
    assert abs(long - none) == pytest.approx(0.5, abs=1e-6)
    assert abs(short - long) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("relation", "sensitivity"), [("add-remove", 0.5), ("replace", 1.0)])
def test_the_price_follows_the_relation(relation, sensitivity):
    release = AdaptiveBound(rehearsal=True, expected=10, noise=3.0).release(
        relation=relation, purpose="clip radius"
    )
    assert (release.law, release.scale, release.sensitivity) == ("gaussian", 3.0, sensitivity)
    assert (release.relation, release.purpose, release.count) == (relation, "clip radius", 1)


def test_an_unknown_relation_is_refused():
    with pytest.raises(InvalidValue, match="relation"):
        AdaptiveBound(rehearsal=True, expected=10, noise=3.0).release(relation="replace-one")


def test_the_noise_on_the_count_is_the_noise_that_is_charged():
    adaptive = AdaptiveBound(rehearsal=True, expected=10_000, noise=40.0)
    lengths = np.ones(100)
    counts = [
        adaptive.expected
        * (0.5 - 0.5 - math.log(adaptive.next(1.0, lengths, REHEARSAL / n)) / adaptive.speed)
        for n in range(4000)
    ]
    spread = np.array(counts, dtype=np.float64)
    # Of 4000 draws, the standard deviation lies within 5.6 per cent at a false-alarm rate of 1e-6.
    assert float(spread.std()) == pytest.approx(adaptive.release().scale, rel=0.056)
    assert float(spread.mean()) == pytest.approx(50.0, abs=4.9 * 40 / math.sqrt(4000))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("expected", 0), ("expected", -3), ("expected", 2.5), ("expected", True),
        ("noise", 0.0), ("noise", -1.0), ("noise", math.nan), ("noise", math.inf),
        ("quantile", 0.0), ("quantile", 1.0), ("quantile", math.nan),
        ("speed", 0.0), ("speed", -0.2), ("speed", math.inf),
    ],
)  # fmt: skip
def test_a_bad_field_is_refused(field, value):
    with pytest.raises(InvalidValue, match=field):
        AdaptiveBound(**{"expected": 10, "noise": 1.0, field: value})


@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_one_record_can_turn_the_half_of_its_group_around(rate):
    release = AdaptiveBound(expected=10, noise=3.0).release(sampled="group", rate=rate)
    assert (release.sensitivity, release.bound) == (1.0, 0.5)


def test_more_contributions_than_expected_move_the_bound_no_farther():
    adaptive = AdaptiveBound(rehearsal=True, expected=2, noise=QUIET, quantile=0.5, speed=0.2)
    many = np.concatenate([np.zeros(20), np.full(20, 9.0)])
    key = Key(0, rehearsal=True)
    assert adaptive.next(1.0, many[:20], key) == math.exp(-0.2 * 0.5)
    assert adaptive.next(1.0, many[20:], key) == math.exp(0.2 * 0.5)
