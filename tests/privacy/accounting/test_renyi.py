"""Divergences of single releases against privacy loss distributions and integrals of another kind."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as library
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import norm

from tacit.privacy.accounting import filters
from tacit.privacy.accounting.release import Event

ORDERS = (2, 3, 5, 8)


def by_integral(kind, order):
    """The divergence by adaptive quadrature, from the densities themselves, in the worse direction."""
    noise, rate = kind.multiplier, kind.rate
    one, other = (0.5, -0.5) if kind.two_sided else (1.0, 0.0)

    def log_density(place, centre):
        apart = (norm.logpdf(place, 0, noise), norm.logpdf(place, centre, noise))
        return np.logaddexp(math.log1p(-rate) + apart[0], math.log(rate) + apart[1])

    def moment(first, second):
        inside = lambda x: math.exp(order * log_density(x, first) + (1 - order) * log_density(x, second))  # noqa: E731
        ends = (-12 * noise, order + 12 * noise)
        return quad(inside, *ends, limit=2000, points=list(range(order)), epsabs=1e-13, epsrel=1e-11)[0]

    return math.log(max(moment(one, other), moment(other, one))) / (order - 1)


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize(("noise", "rate"), [(0.8, 0.01), (1.5, 0.2), (4.0, 0.05), (10.0, 0.5)])
def test_a_drawn_gaussian_costs_what_its_integral_says(noise, rate, two_sided):
    kind = Event("gaussian", noise, rate, two_sided)
    found = [filters.divergence(kind, order) for order in ORDERS]
    assert found == pytest.approx([by_integral(kind, order) for order in ORDERS], rel=2e-5, abs=1e-9)


@pytest.mark.parametrize("noise", [0.15, 0.5, 1.0, 3.0, 30.0, 1000.0])
def test_an_exchange_costs_what_a_finer_and_wider_sum_says(noise):
    """To 13 digits of the integral; the error that is stated is added to it."""
    for rate, order in itertools.product([1e-6, 0.01, 0.5, 0.99, 1 - 1e-9], [2, 3, 8, 32]):
        exact = by_finer_sum(noise, rate, order)
        found = filters._replacement_divergence(noise, rate, order) * (order - 1)
        stated = found - 1e-11 * (order + exact)
        assert stated == pytest.approx(exact, rel=1e-12, abs=1e-13), (rate, order)


def by_finer_sum(noise, rate, order):
    step = min(noise, noise**2) / 8
    places = np.arange(-20 * noise - 1, order + 20 * noise + 1, step)
    one, other = (
        np.logaddexp(math.log1p(-rate), math.log(rate) + (side * places - 0.25) / (2 * noise**2))
        for side in (1, -1)
    )
    logs = norm.logpdf(places, 0, noise) + order * one + (1 - order) * other
    return max(float(logsumexp(logs)) + math.log(step), 0.0)


kinds = st.one_of(
    st.builds(Event, st.just("gaussian"), st.floats(0.7, 30), st.floats(0.001, 1.0), st.booleans()),
    st.builds(Event, st.just("laplace"), st.floats(0.3, 200), st.floats(0.001, 1.0), st.booleans()),
    st.builds(Event, st.just("selection"), st.floats(0.3, 200), st.floats(0.001, 1.0), st.just(False)),
)


def optimistic(kind):
    """A privacy loss distribution of the library that is never above the truth, in both directions."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import common

    grid = 1e-3 / max(kind.multiplier, 1.0)
    if kind.law == "gaussian":
        relation = (
            NeighboringRelation.REPLACE_ONE if kind.two_sided else NeighboringRelation.ADD_OR_REMOVE_ONE
        )
        found = library.from_gaussian_mechanism(
            kind.multiplier,
            sensitivity=0.5 if kind.two_sided else 1.0,
            pessimistic_estimate=False,
            value_discretization_interval=grid,
            sampling_prob=kind.rate,
            neighboring_relation=relation,
        )
    elif kind.pure_only:
        found = library.from_privacy_parameters(
            common.DifferentialPrivacyParameters(kind.pure, 0.0), value_discretization_interval=grid
        )
    else:
        found = library.from_laplace_mechanism(
            kind.multiplier,
            pessimistic_estimate=False,
            value_discretization_interval=grid,
            sampling_prob=kind.rate,
        )
    parts = vars(found)
    return [
        vars(parts[name].to_dense_pmf()) for name in ("_pmf_remove", "_pmf_add")[: 2 - parts["_symmetric"]]
    ]


@settings(max_examples=40, deadline=None)
@given(kinds, st.sampled_from(ORDERS))
def test_no_divergence_is_below_what_an_optimistic_distribution_has(kind, order):
    if kind.two_sided and kind.rate == 1:
        kind = kind._replace(two_sided=False)
    for side in optimistic(kind):
        chances = np.asarray(side["_probs"])
        losses = (np.arange(len(chances)) + side["_lower_loss"]) * side["_discretization"]
        below = math.log(float(chances @ np.exp((order - 1) * losses))) / (order - 1)
        # Generic distributions of the library are pessimistic by their grid.
        slack = 1.01 * side["_discretization"] if kind.pure_only else 0.0
        assert filters.divergence(kind, order) >= below - slack - 1e-9


@settings(max_examples=60, deadline=None)
@given(kinds, st.integers(2, 60))
def test_divergences_grow_with_their_order_and_draws_make_them_smaller(kind, order):
    here, above = filters.divergence(kind, order), filters.divergence(kind, order + 1)
    assert 0 < here <= above * (1 + 1e-8)
    assert here <= filters.divergence(kind._replace(rate=1.0, two_sided=False), order) * (1 + 1e-8)


@pytest.mark.parametrize("law", ["gaussian", "laplace", "selection"])
def test_extreme_releases_have_a_divergence_that_is_no_claim_of_nothing(law):
    noises, rates = [1e-160, 1e-9, 1.0, 1e9, 1e160], [1e-300, 1e-9, 0.5, 1.0]
    for noise, rate, order in itertools.product(noises, rates, [2, 100, filters.HIGHEST]):
        given = (noise, rate, order)
        assert filters.divergence(Event(law, noise, rate, False), order) >= 0, given
        assert not math.isnan(filters.divergence(Event(law, noise, rate, rate < 1), order)), given


@pytest.mark.parametrize("order", [-1, 0, 1, filters.HIGHEST + 1])
def test_orders_without_a_formula_cost_infinitely_much(order):
    assert filters.divergence(Event("gaussian", 1.0, 0.5, False), order) == math.inf
