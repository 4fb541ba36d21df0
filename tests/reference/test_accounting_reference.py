"""Our prices against dp-accounting used directly, and against the numbers in the literature.

Ours go through the same library on a grid chosen for the answer. The tolerances are shares of the expected
number: `BELOW` is how far we may lie under the library, whose default grid rounds up where we have a finer
one or the closed form; `ABOVE` is what our grid may cost where it is the coarser one.
"""

import math

import dp_accounting
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld import privacy_loss_distribution as pld

from tacit.privacy import accounting
from tacit.privacy.accounting import calibrate, compare, epsilon, gaussian
from tacit.privacy.accounting import pld as distributions
from tacit.privacy.accounting.release import Release

DELTA = 1e-5
BELOW, ABOVE = 1e-7, 2e-3

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE


def theirs(*events, relation=ADD_REMOVE, grid=1e-4, delta=DELTA) -> float:
    accountant = PLDAccountant(relation, grid)
    for event, count in events:
        accountant.compose(event, count)
    return accountant.get_epsilon(delta)


def sampled(rate: float, multiplier: float) -> dp_event.DpEvent:
    return dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(multiplier))


def assert_close_from_above(ours: float, expected: float) -> None:
    assert expected * (1 - BELOW) <= ours <= expected * (1 + ABOVE)


# DP-SGD


@pytest.mark.parametrize(("steps", "known"), [(100, 0.71804), (1000, 1.82824), (10_000, 6.18774)])
def test_dp_sgd_agrees_with_the_library(steps, known):
    ours = epsilon([Release(scale=1.0, sensitivity=1.0, rate=0.01, count=steps)], DELTA)
    expected = theirs((sampled(0.01, 1.0), steps))
    assert expected == pytest.approx(known, abs=1e-5)
    assert_close_from_above(ours, expected)


def test_dp_sgd_is_never_below_the_same_computation_rounded_down():
    for steps in (10, 300):
        optimistic = pld.from_gaussian_mechanism(
            1.0,
            sampling_prob=0.1,
            pessimistic_estimate=False,
            use_connect_dots=False,
            value_discretization_interval=1e-3,
        )
        lower = optimistic.self_compose(steps).get_epsilon_for_delta(DELTA)
        assert epsilon([Release(scale=1.0, sensitivity=1.0, rate=0.1, count=steps)], DELTA) >= lower


@pytest.mark.parametrize(("steps", "known"), [(100, 1.2141), (1000, 2.1014), (10_000, 6.7128)])
def test_the_renyi_comparison_agrees_with_the_library(steps, known):
    release = Release(scale=1.0, sensitivity=1.0, rate=0.01, count=steps)
    assert compare([release], DELTA)["rdp"] == pytest.approx(known, abs=1e-3)


# Relations


def test_one_gaussian_agrees_with_the_library_under_both_relations():
    added = epsilon([Release(scale=1.0, sensitivity=1.0)], DELTA)
    assert added == pytest.approx(4.377, abs=1e-3)
    assert_close_from_above(added, theirs((dp_event.GaussianDpEvent(1.0), 1)))
    exchanged = epsilon([Release(scale=1.0, sensitivity=2.0, relation="replace")], DELTA)
    assert exchanged == pytest.approx(9.997, abs=1e-3)
    coarse = theirs((dp_event.GaussianDpEvent(1.0), 1), relation=REPLACE, grid=1e-3)
    assert_close_from_above(exchanged, coarse)


def test_a_drawn_gaussian_agrees_with_the_library_under_both_relations():
    added = epsilon([Release(scale=1.0, sensitivity=1.0, rate=0.1)], DELTA)
    assert added == pytest.approx(1.685, abs=1e-3)
    assert_close_from_above(added, theirs((sampled(0.1, 1.0), 1)))
    exchanged = epsilon([Release(scale=1.0, sensitivity=2.0, bound=1.0, rate=0.1, relation="replace")], DELTA)
    assert exchanged == pytest.approx(1.789, abs=1e-3)
    assert_close_from_above(exchanged, theirs((sampled(0.1, 1.0), 1), relation=REPLACE))


def test_many_drawn_exchanges_agree_with_the_library():
    ours = epsilon(
        [Release(scale=2.0, sensitivity=2.0, bound=1.0, rate=0.05, relation="replace", count=200)], DELTA
    )
    assert_close_from_above(ours, theirs((sampled(0.05, 2.0), 200), relation=REPLACE))


# Laplace


def test_one_laplace_agrees_with_the_library():
    ours = epsilon([Release(law="laplace", scale=1.0, sensitivity=1.0)], DELTA)
    assert_close_from_above(ours, theirs((dp_event.LaplaceDpEvent(1.0), 1)))
    assert 0.99998 - 1e-6 <= ours <= 1


def test_a_drawn_laplace_agrees_with_the_library():
    ours = epsilon([Release(law="laplace", scale=1.0, sensitivity=1.0, rate=0.1)], DELTA)
    expected = theirs((dp_event.PoissonSampledDpEvent(0.1, dp_event.LaplaceDpEvent(1.0)), 1))
    assert expected == pytest.approx(0.159, abs=1e-3)
    assert_close_from_above(ours, expected)


@pytest.mark.parametrize(
    ("each", "rounds", "known"),
    [
        (0.1, 10, 0.990),
        (0.1, 20, 1.592),
        (0.1, 50, 2.797),
        (0.5, 10, 4.990),
        (0.5, 20, 9.11),
        (0.5, 50, 17.5),
        (1.0, 20, 19.1),
        (1.0, 50, 39.6),
        (5.0, 50, 238.0),
        (10.0, 50, 488.0),
        (30.0, 50, 1489.0),
    ],
)
def test_rounds_of_laplace_noise_cost_less_than_their_sum(each, rounds, known):
    ours = epsilon([Release(law="laplace", scale=1.0, sensitivity=each, count=rounds)], DELTA)
    assert ours == pytest.approx(known, rel=3e-3)
    assert ours < each * rounds


def test_a_laplace_exchange_costs_what_twice_the_epsilon_costs():
    exchanged = Release(law="laplace", scale=20.0, sensitivity=2.0, relation="replace", count=50)
    assert epsilon([exchanged], DELTA) == epsilon(
        [Release(law="laplace", scale=1.0, sensitivity=0.1, count=50)], DELTA
    )


@pytest.mark.parametrize(("rounds", "known"), [(2, 18.6), (10, 90.9), (50, 321.0)])
def test_drawn_rounds_of_laplace_noise(rounds, known):
    release = Release(law="laplace", scale=1.0, sensitivity=10.0, rate=0.485, count=rounds)
    assert epsilon([release], DELTA) == pytest.approx(known, rel=3e-3)


# Mixtures


def test_unlike_releases_compose_as_in_the_library():
    ours = epsilon(
        [
            Release(scale=1.2, sensitivity=1.0, rate=0.05, count=200),
            Release(scale=20.0, sensitivity=1.0),
            Release(law="laplace", scale=20.0, sensitivity=1.0),
            Release(scale=30.0, sensitivity=1.0, count=10),
        ],
        DELTA,
    )
    expected = theirs(
        (sampled(0.05, 1.2), 200),
        (dp_event.GaussianDpEvent(20.0), 1),
        (dp_event.LaplaceDpEvent(20.0), 1),
        (dp_event.GaussianDpEvent(30.0), 10),
    )
    assert expected == pytest.approx(3.42467, abs=1e-5)
    assert_close_from_above(ours, expected)


# The formulas of others


@pytest.mark.parametrize("rounds", [10, 50, 100])
def test_the_noise_of_the_advanced_composition_rule_costs_less_than_it_claims(rounds):
    deviation = 4.8448 * math.sqrt(rounds)
    once = epsilon([Release(scale=deviation, sensitivity=1.0, count=rounds)], DELTA)
    assert once == pytest.approx(0.7510, abs=1e-4)
    doubled = epsilon([Release(scale=deviation, sensitivity=2.0, count=rounds)], DELTA)
    assert doubled == pytest.approx(1.610, abs=1e-3)


@pytest.mark.parametrize(("local_steps", "known"), [(5, 3.99), (50, 16.1)])
def test_local_steps_that_are_not_counted_cost_all_the_same(local_steps, known):
    release = Release(scale=4.8448 * math.sqrt(50), sensitivity=2.0, count=50 * local_steps)
    assert epsilon([release], DELTA) == pytest.approx(known, rel=2e-3)


@pytest.mark.parametrize(("rounds", "known"), [(10, 0.214), (50, 0.089), (100, 0.061)])
def test_the_noise_of_the_basic_composition_rule_is_far_too_much(rounds, known):
    release = Release(scale=4.8448 * rounds, sensitivity=1.0, count=rounds)
    assert epsilon([release], DELTA) == pytest.approx(known, abs=1e-3)


@pytest.mark.parametrize(("steps", "known"), [(1, 28.4), (50, 634.0), (250, 2801.0)])
def test_noise_divided_among_five_sites_that_the_server_sees_one_by_one(steps, known):
    release = Release(scale=1 / math.sqrt(5), sensitivity=2.0, count=steps)
    assert epsilon([release], DELTA) == pytest.approx(known, rel=2e-3)


@pytest.mark.parametrize(
    ("target", "classic", "known"),
    [(1, 4.845, 0.751), (10, 0.4845, 10.39), (20, 0.2423, 25.4), (50, 0.0969, 96.4)],
)
def test_the_classic_rule_promises_too_much_above_ten(target, classic, known):
    price = epsilon([Release(scale=classic, sensitivity=1.0)], DELTA)
    assert price == pytest.approx(known, rel=2e-3)
    assert (price > target) == (target >= 10)


# Calibration


@pytest.mark.parametrize(
    ("question", "known"),
    [
        ({"epsilon": 1.0, "delta": 1e-5}, 3.7306),
        ({"epsilon": 0.1, "delta": 1e-5}, 30.7),
        ({"epsilon": 5.0, "delta": 1e-5}, 0.892),
        ({"epsilon": 10.0, "delta": 1e-5}, 0.4999),
        ({"epsilon": 50.0, "delta": 1e-5}, 0.150),
        ({"epsilon": 1.0, "delta": 1e-5, "relation": "replace"}, 7.461),
        ({"epsilon": 1.0, "delta": 1e-5, "steps": 10_000, "rate": 0.01}, 3.814),
        ({"epsilon": 1.0, "delta": 1e-5, "steps": 100, "rate": 0.01}, 0.903),
        ({"epsilon": 3.0, "delta": 1e-4, "steps": 400, "rate": 0.1}, 2.60),
        ({"epsilon": 8.0, "delta": 1e-5, "steps": 400, "rate": 0.05}, 0.92),
    ],
    ids=repr,
)
def test_calibration_agrees_with_the_known_numbers(question, known):
    assert calibrate(**question) == pytest.approx(known, rel=4e-3, abs=5e-3)


# Risk groups


def test_group_sampling_costs_an_exchange_and_record_sampling_twice_the_bound():
    fields = {"scale": 1.0, "sensitivity": 2.0, "bound": 1.0, "rate": 0.01, "count": 1000}
    grouped = epsilon([Release(sampled="group", **fields)], DELTA)
    assert grouped == pytest.approx(2.84, abs=1e-2)
    assert_close_from_above(grouped, theirs((sampled(0.01, 1.0), 1000), relation=REPLACE))
    drawn = epsilon([Release(**fields)], DELTA)
    assert drawn == pytest.approx(13.36, abs=2e-2)
    assert_close_from_above(drawn, theirs((sampled(0.01, 0.5), 1000)))


# The closed form


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize("multiplier", [0.2, 0.7, 1.0, 3.0, 20.0, 300.0])
def test_the_closed_form_agrees_with_the_library(multiplier, delta):
    expected = dp_accounting.get_epsilon_gaussian(multiplier, delta)
    ours = gaussian.epsilon_of(multiplier, delta)
    assert ours == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert epsilon([Release(scale=multiplier, sensitivity=1.0)], delta) == ours


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-8])
@pytest.mark.parametrize("target", [0.05, 0.5, 1.0, 4.0, 30.0])
def test_the_inverse_closed_form_agrees_with_the_library(target, delta):
    expected = dp_accounting.get_sigma_gaussian(target, delta)
    assert gaussian.multiplier_of(target, delta) == pytest.approx(expected, rel=1e-5)
    assert calibrate(epsilon=target, delta=delta) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("grid", [pytest.param(4.0**-6, marks=pytest.mark.slow), 4.0**-4])
@pytest.mark.parametrize(
    ("multiplier", "rate"), [(1.0, 0.01), (0.5, 0.001), (2.0, 0.3), (0.4, 1e-6), (10.0, 0.9), (40.0, 0.1)]
)
def test_a_distribution_built_without_the_loop_is_the_one_of_the_library(multiplier, rate, grid):
    options = {"value_discretization_interval": grid, "log_mass_truncation_bound": distributions.CUT}
    theirs = pld.from_gaussian_mechanism(multiplier, sampling_prob=rate, **options)
    ours = distributions.single(accounting.Event("gaussian", multiplier, rate, False), grid)
    for target in (1e-3, 1e-6, 1e-9):
        exact = theirs.self_compose(100).get_epsilon_for_delta(target)
        found = max(side.self_compose(100).epsilon(target) for side in ours)
        # Fourier rounding alone moves the smallest delta by a hundred thousandth, of either.
        assert found == pytest.approx(exact, rel=1e-4, abs=1e-9)
