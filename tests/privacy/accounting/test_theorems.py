"""The composition theorems that are printed beside the claim."""

import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.privacy.accounting import gaussian, theorems
from tacit.privacy.accounting.release import Release

DELTA = 1e-5
GAUSSIAN = Release(scale=1.0, sensitivity=1.0)
LAPLACE = Release(law="laplace", scale=2.0, sensitivity=1.0)
SELECTION = Release(law="selection", scale=2.0, sensitivity=1.0)
SAMPLED = Release(scale=1.0, sensitivity=1.0, rate=0.1)

EPSILONS = st.floats(-9, 5).map(lambda power: 10.0**power)
RATES = st.floats(-15, 0).map(lambda power: 10.0**power)


@given(EPSILONS, RATES)
@settings(max_examples=200, deadline=None)
def test_a_draw_makes_it_cheaper_but_never_free(epsilon, rate):
    assert 0 < theorems.amplify(epsilon, rate) <= epsilon * (1 + 1e-15)


@given(EPSILONS, RATES)
@settings(max_examples=200, deadline=None)
def test_amplification_agrees_with_fifty_digits(epsilon, rate):
    with mpmath.workdps(50):
        exact = float(mpmath.log1p(mpmath.mpf(rate) * mpmath.expm1(mpmath.mpf(epsilon))))
    assert theorems.amplify(epsilon, rate) == pytest.approx(exact, rel=1e-12, abs=0)


@given(EPSILONS)
@settings(max_examples=50, deadline=None)
def test_without_a_draw_nothing_is_amplified(epsilon):
    assert theorems.amplify(epsilon, 1.0) == pytest.approx(epsilon, rel=1e-15, abs=0)


@given(EPSILONS, RATES, st.floats(1, 10))
@settings(max_examples=100, deadline=None)
def test_amplification_grows_with_epsilon_and_with_the_rate(epsilon, rate, factor):
    amplified = theorems.amplify(epsilon, rate)
    assert theorems.amplify(epsilon * factor, rate) >= amplified * (1 - 1e-12)
    assert theorems.amplify(epsilon, min(rate * factor, 1.0)) >= amplified * (1 - 1e-12)


@pytest.mark.parametrize("rate", [1e-12, 0.01, 1.0])
def test_a_huge_epsilon_does_not_overflow(rate):
    assert theorems.amplify(1e5, rate) == pytest.approx(1e5 + math.log(rate), rel=1e-12)


def test_basic_composition_adds_up():
    assert theorems.basic_composition(0.1, 30) == pytest.approx(3.0)


@pytest.mark.parametrize(("times", "expected"), [(10, 5.9747), (50, 5.8700), (100, 5.8487)])
def test_advanced_composition_agrees_with_the_formula_of_the_book(times, expected):
    assert theorems.advanced_composition(times**-0.5, times, DELTA) == pytest.approx(expected, abs=1e-2)
    by_hand = math.sqrt(2 * math.log(1 / DELTA)) + times**0.5 * math.expm1(times**-0.5)
    assert theorems.advanced_composition(times**-0.5, times, DELTA) == pytest.approx(by_hand, rel=1e-12)


def test_advanced_composition_at_ten_rounds():
    assert theorems.advanced_composition(10**-0.5, 10, 1e-5) == pytest.approx(5.9747, abs=5e-5)


def test_advanced_composition_of_huge_epsilons_is_infinite_and_no_error():
    assert theorems.advanced_composition(1e5, 10, DELTA) == math.inf


def test_advanced_beats_basic_over_many_small_releases_and_loses_over_few_large_ones():
    assert theorems.advanced_composition(0.01, 10_000, DELTA) < theorems.basic_composition(0.01, 10_000)
    assert theorems.advanced_composition(1.0, 2, DELTA) > theorems.basic_composition(1.0, 2)


def test_zcdp_of_one_gaussian():
    assert theorems.zcdp([GAUSSIAN], DELTA) == pytest.approx(5.2985, abs=5e-5)


def test_zcdp_adds_up_over_releases_and_counts():
    four = Release(scale=2.0, sensitivity=1.0, count=4)
    assert theorems.zcdp([four], DELTA) == pytest.approx(theorems.zcdp([GAUSSIAN], DELTA))
    assert theorems.rho(GAUSSIAN) == 0.5
    assert theorems.rho(LAPLACE) == 0.125
    assert theorems.rho(SELECTION) == 0.125


def test_zcdp_is_silent_about_draws_and_about_delta_zero():
    assert theorems.zcdp([SAMPLED], DELTA) is None
    assert theorems.zcdp([GAUSSIAN, SAMPLED], DELTA) is None
    assert theorems.zcdp([LAPLACE], 0) is None


def test_advanced_is_silent_about_delta_zero():
    assert theorems.advanced_epsilon([LAPLACE], 0) is None
    assert theorems.advanced_epsilon([LAPLACE], DELTA) is not None


def test_half_of_delta_is_the_slack_of_advanced_composition_and_half_is_for_the_gaussians():
    pure = Release(law="laplace", scale=20.0, sensitivity=1.0, count=200)
    assert theorems.advanced_epsilon([pure], DELTA) == theorems.advanced_composition(0.05, 200, DELTA / 2)
    noisy = Release(scale=50.0, sensitivity=1.0, count=100)
    single = gaussian.epsilon_of(50.0, DELTA / 2 / 100)
    expected = theorems.advanced_composition(single, 100, DELTA / 2)
    assert theorems.advanced_epsilon([noisy], DELTA) == pytest.approx(expected, rel=1e-9)


def test_a_pure_release_has_an_epsilon_at_delta_zero_and_a_gaussian_has_none():
    assert theorems.pure_epsilon(LAPLACE) == 0.5
    assert theorems.pure_epsilon(SELECTION) == 0.5
    assert theorems.pure_epsilon(GAUSSIAN) == math.inf
    sampled = Release(law="laplace", scale=2.0, sensitivity=1.0, rate=0.1)
    assert theorems.pure_epsilon(sampled) == pytest.approx(math.log1p(0.1 * math.expm1(0.5)))


def test_basic_shares_delta_among_the_gaussians_alone():
    ten = Release(scale=5.0, sensitivity=1.0, count=10)
    shared = 10 * gaussian.epsilon_of(5.0, DELTA / 10)
    assert theorems.basic_epsilon([ten], DELTA) == pytest.approx(shared)
    assert theorems.basic_epsilon([ten, LAPLACE], DELTA) == pytest.approx(shared + 0.5)


def test_basic_at_delta_zero_is_the_pure_sum_or_infinite():
    assert theorems.basic_epsilon([LAPLACE, SELECTION], 0) == pytest.approx(1.0)
    assert theorems.basic_epsilon([GAUSSIAN], 0) == math.inf


def test_a_draw_lends_a_gaussian_its_delta():
    expected = math.log1p(0.1 * math.expm1(gaussian.epsilon_of(1.0, DELTA / 0.1)))
    assert theorems.basic_epsilon([SAMPLED], DELTA) == pytest.approx(expected)


@pytest.mark.parametrize("name", list(theorems.THEOREMS))
def test_no_theorem_is_below_the_exact_value_of_gaussians(name):
    many = Release(scale=10.0, sensitivity=1.0, count=40)
    assert theorems.THEOREMS[name]([many], DELTA) >= gaussian.epsilon_of(10 / math.sqrt(40), DELTA)


@pytest.mark.parametrize("rho", [1e-3, 0.1, 1.0, 50.0, 1e4])
def test_the_renyi_conversion_at_its_best_order_is_never_above_that_of_zcdp(rho):
    assert theorems.rdp_epsilon(rho, DELTA) <= gaussian.zcdp_epsilon(rho, DELTA)
