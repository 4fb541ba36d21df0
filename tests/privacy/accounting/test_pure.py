"""Many alike pure releases, in closed form."""

import math

import pytest
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st

from tacit.privacy.accounting import theorems


@pytest.mark.parametrize(
    ("single", "times", "delta"), [(0.1, 100, 1e-5), (0.5, 50, 1e-5), (1, 10, 1e-5), (0.01, 10_000, 1e-6)]
)
def test_it_agrees_with_privacy_loss_distributions_and_is_never_below(single, times, delta):
    parameters = common.DifferentialPrivacyParameters(single, 0)
    once = pld.from_privacy_parameters(parameters, value_discretization_interval=single / 64)
    reference = once.self_compose(times).get_epsilon_for_delta(delta)
    assert reference * (1 - 1e-9) <= theorems.pure_composition(single, times, delta) <= reference * (1 + 1e-6)


@given(st.floats(1e-3, 5), st.integers(1, 300), st.floats(1e-9, 1e-2))
def test_it_is_positive_and_at_most_the_sum(single, times, delta):
    assert 0 < theorems.pure_composition(single, times, delta) <= times * single


@given(st.floats(1e-3, 2), st.integers(1, 100), st.floats(1e-9, 1e-3))
def test_more_releases_and_a_smaller_delta_never_cost_less(single, times, delta):
    cost = theorems.pure_composition(single, times, delta)
    assert theorems.pure_composition(single, times + 1, delta) >= cost * (1 - 1e-9)
    assert theorems.pure_composition(single, times, delta / 2) >= cost * (1 - 1e-9)


def test_too_many_to_compose_are_added_up():
    assert theorems.pure_composition(1e-3, 10**8, 1e-5) == pytest.approx(1e5)
    assert math.isfinite(theorems.pure_composition(1e-6, 10**6, 1e-5))
