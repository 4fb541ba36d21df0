"""The closed form of the Gaussian mechanism, against itself and against forty digits."""

import math

import mpmath
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tacit.privacy.accounting import gaussian


def powers_of_ten(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda power: 10.0**power)


MULTIPLIERS = powers_of_ten(-3, 5)
DELTAS = powers_of_ten(-15, -0.1)
EPSILONS = powers_of_ten(-4, 4)


def exact_delta(multiplier: float, epsilon: float) -> mpmath.mpf:
    with mpmath.workdps(40):
        z, e = mpmath.mpf(multiplier), mpmath.mpf(epsilon)
        return mpmath.ncdf(1 / (2 * z) - e * z) - mpmath.exp(e) * mpmath.ncdf(-1 / (2 * z) - e * z)


@given(MULTIPLIERS, DELTAS)
@settings(max_examples=150, deadline=None)
def test_epsilon_keeps_its_delta(multiplier, delta):
    epsilon = gaussian.epsilon_of(multiplier, delta)
    assert epsilon >= gaussian.SMALLEST
    assert gaussian.delta_of(multiplier, epsilon) <= delta
    assert exact_delta(multiplier, epsilon) <= delta


@given(MULTIPLIERS, DELTAS)
@settings(max_examples=150, deadline=None)
def test_epsilon_is_tight(multiplier, delta):
    epsilon = gaussian.epsilon_of(multiplier, delta)
    assume(epsilon > 1e-5)
    assert exact_delta(multiplier, epsilon * (1 - 1e-6)) > delta


@given(powers_of_ten(5, 12), powers_of_ten(-30, -1))
@settings(max_examples=100, deadline=None)
def test_huge_noise_and_tiny_deltas_stay_on_the_safe_side(multiplier, delta):
    assert exact_delta(multiplier, gaussian.epsilon_of(multiplier, delta)) <= delta


@given(EPSILONS, DELTAS)
@settings(max_examples=150, deadline=None)
def test_the_least_noise_priced_again_is_just_within_the_target(epsilon, delta):
    priced = gaussian.epsilon_of(gaussian.multiplier_of(epsilon, delta), delta)
    assert epsilon - 1e-6 * max(epsilon, 1) <= priced <= epsilon


@given(MULTIPLIERS, st.floats(1, 10), DELTAS)
@settings(max_examples=100, deadline=None)
def test_more_noise_never_costs_more(multiplier, factor, delta):
    priced = gaussian.epsilon_of(multiplier, delta)
    assert gaussian.epsilon_of(multiplier * factor, delta) <= priced * (1 + 1e-9)


@given(MULTIPLIERS, DELTAS, st.floats(1e-3, 1))
@settings(max_examples=100, deadline=None)
def test_a_smaller_delta_never_costs_less(multiplier, delta, factor):
    priced = gaussian.epsilon_of(multiplier, delta)
    assert gaussian.epsilon_of(multiplier, delta * factor) >= priced * (1 - 1e-9)


@given(MULTIPLIERS, st.floats(0, 20), st.floats(0, 10))
@settings(max_examples=100, deadline=None)
def test_delta_falls_as_epsilon_grows(multiplier, deviations, more):
    # Epsilon in standard deviations of the privacy loss, which is about normal with mean 1 / (2 z^2).
    near = 0.5 / multiplier**2 + deviations / multiplier
    far = near + more / multiplier
    assert gaussian.delta_of(multiplier, far) <= gaussian.delta_of(multiplier, near) * (1 + 1e-9)


@given(EPSILONS, st.floats(1, 10), DELTAS)
@settings(max_examples=100, deadline=None)
def test_a_larger_epsilon_never_needs_more_noise(epsilon, factor, delta):
    needed = gaussian.multiplier_of(epsilon, delta)
    assert gaussian.multiplier_of(epsilon * factor, delta) <= needed * (1 + 1e-9)


@given(MULTIPLIERS, st.floats(-5, 15))
@settings(max_examples=100, deadline=None)
def test_delta_agrees_with_forty_digits(multiplier, deviations):
    epsilon = max(0.5 / multiplier**2 + deviations / multiplier, 0.0)
    exact = float(exact_delta(multiplier, epsilon))
    assert gaussian.delta_of(multiplier, epsilon) == pytest.approx(exact, rel=1e-7, abs=0)


@given(MULTIPLIERS, st.floats(0, 1000))
@settings(max_examples=100, deadline=None)
def test_delta_in_the_far_tail_errs_on_the_safe_side(multiplier, epsilon):
    assert gaussian.delta_of(multiplier, epsilon) >= float(exact_delta(multiplier, epsilon)) * (1 - 1e-7)


@pytest.mark.parametrize(("multiplier", "epsilon"), [(1.0, 1e200), (1e5, 1e9), (1.0, 1e154)])
def test_an_epsilon_beyond_any_loss_fails_never(multiplier, epsilon):
    """Both probabilities are too small for the logarithm of a double."""
    assert gaussian.delta_of(multiplier, epsilon) == 0.0


@pytest.mark.parametrize(
    ("multiplier", "epsilon"), [(1.0, 4.37718), (3.7306, 1.0), (4.8448, 0.7510), (0.5, 9.9973)]
)
def test_epsilon_agrees_with_the_known_numbers(multiplier, epsilon):
    assert gaussian.epsilon_of(multiplier, 1e-5) == pytest.approx(epsilon, abs=5e-4)


def test_zero_is_never_claimed():
    assert gaussian.epsilon_of(1e9, 0.1) == gaussian.SMALLEST > 0


@pytest.mark.parametrize("multiplier", [1e-200, 1e-160])
def test_no_noise_to_speak_of_costs_everything(multiplier):
    assert gaussian.epsilon_of(multiplier, 1e-5) == math.inf


@given(MULTIPLIERS, DELTAS)
@settings(max_examples=50, deadline=None)
def test_the_zcdp_conversion_is_never_below_the_exact_value(multiplier, delta):
    loose = gaussian.zcdp_epsilon(0.5 / multiplier**2, delta)
    assert gaussian.epsilon_of(multiplier, delta) <= max(loose * (1 + 1e-9), gaussian.SMALLEST) + 1e-11
