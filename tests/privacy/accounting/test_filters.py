"""Filters: budgets that hold though each plan is chosen by the results of the last."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from tacit.errors import BudgetExhausted
from tacit.privacy import accounting
from tacit.privacy.accounting import filters
from tacit.privacy.accounting.release import Release, clipped_release, group_events
from tacit.privacy.ledger.store import Ledger

LIFETIME, DELTA = 3.0, 1e-5


def gaussian_delta(mu, epsilon):
    """Balle and Wang (2018), theorem 8, for arrays."""
    return norm.cdf(mu / 2 - epsilon / mu) - np.exp(np.minimum(epsilon, 700)) * norm.cdf(
        -mu / 2 - epsilon / mu
    )


def drawn_delta(mu, rate, epsilon):
    """The hockey-stick divergence of (1 - rate) N(0, 1) + rate N(mu, 1) from N(0, 1), exactly."""
    reached = epsilon > math.log1p(-rate)
    inner = np.log1p(np.expm1(np.where(reached, epsilon, 1.0)) / rate)
    return np.where(reached, rate * np.maximum(gaussian_delta(mu, inner), 0.0), -np.expm1(epsilon))


def response_delta(pure, epsilon):
    """The hockey-stick divergence of randomized response, exactly."""
    truth = 1 / (1 + math.exp(-pure))
    up = truth * -np.expm1(np.minimum(epsilon - pure, 0.0))
    return up + (1 - truth) * -np.expm1(np.minimum(epsilon + pure, 0.0))


# One release first. Then, by its result, either a choice, which adds little for certain, or a rarely drawn
# release with little noise, which adds much with little probability.
FIRST = Release(scale=1.6, sensitivity=1.0)
CHOICE = Release(law="selection", scale=1 / 0.505, sensitivity=1.0)
DRAWN = Release(scale=0.3665, sensitivity=1.0, rate=0.001)


def adaptive_epsilon(delta):
    """The true epsilon of the strategy, from below: exact conditional deltas, a sum over the first loss."""
    mu = 1 / FIRST.multiplier
    losses = np.linspace(-14.0, 16.0, 60001)
    weights = norm.pdf(losses, mu**2 / 2, mu) * (losses[1] - losses[0])

    def lost(epsilon):
        left = epsilon - losses
        best = np.maximum(
            response_delta(1 / CHOICE.multiplier, left), drawn_delta(1 / DRAWN.multiplier, 0.001, left)
        )
        return float(weights @ best)

    low, high = 0.0, 10.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if lost(middle) > delta else (low, middle)
    return low


def test_composing_along_each_path_claims_less_than_the_strategy_costs():
    paths = [accounting.epsilon([FIRST, second], DELTA) for second in (CHOICE, DRAWN)]
    assert max(paths) <= LIFETIME
    assert adaptive_epsilon(DELTA) > 3.18


def test_a_lifetime_refuses_the_strategy_that_composition_would_let_pass():
    refused = []
    for second in (CHOICE, DRAWN):
        with Ledger() as ledger:
            ledger.allow(epsilon=LIFETIME, delta=DELTA)
            ledger.charge([FIRST], ticket="first")
            assert accounting.affordable([FIRST, second], LIFETIME, DELTA)
            try:
                ledger.charge([second], ticket="second")
            except BudgetExhausted:
                refused.append(second)
                assert ledger.spent() == accounting.epsilon([FIRST], DELTA)
    assert refused, "the strategy costs more than the lifetime, and was paid for"


def test_what_is_spent_by_such_plans_is_at_least_what_the_strategy_costs():
    spent = []
    for second in (CHOICE, DRAWN):
        with Ledger() as ledger:
            ledger.charge([FIRST])
            ledger.charge([second])
            assert ledger.spent_as_planned(DELTA) <= LIFETIME < ledger.spent(DELTA)
            spent.append(ledger.spent(DELTA))
    assert max(spent) >= adaptive_epsilon(DELTA)


def register_before_the_budget(ledger):
    ledger.register([FIRST, CHOICE, DRAWN], plan="plan")
    ledger.allow(epsilon=LIFETIME, delta=DELTA)


def lower_the_budget(ledger):
    ledger.allow(epsilon=9.0, delta=DELTA)
    ledger.register([FIRST, CHOICE, DRAWN], plan="plan")
    ledger.allow(epsilon=LIFETIME, delta=DELTA)


@pytest.mark.parametrize("prepare", [register_before_the_budget, lower_the_budget])
def test_a_plan_that_no_budget_has_borne_as_a_whole_is_held_against_the_filter(prepare):
    """Otherwise a plan that offers both branches of the strategy is composed along the branch taken."""
    paid = []
    for second in (CHOICE, DRAWN):
        with Ledger() as ledger:
            prepare(ledger)
            try:
                ledger.charge([FIRST], plan="plan")
                ledger.charge([second], plan="plan")
            except BudgetExhausted:
                continue
            paid.append(second)
    assert len(paid) < 2, f"the strategy costs {adaptive_epsilon(DELTA):.4g}, and was paid for"


def test_a_plan_that_no_budget_has_borne_is_still_paid_as_far_as_the_filter_goes():
    rounds = clipped_release(20.0, count=100)
    with Ledger() as ledger:
        ledger.register([rounds], plan="plan")
        ledger.allow(epsilon=1.0, delta=DELTA)
        assert accounting.epsilon([rounds], DELTA) > 1.0
        first = group_events([rounds])
        bears = [
            count
            for count in range(1, 101)
            if filters.admits(group_events([clipped_release(20.0, count=count)]), first, 1.0, DELTA)
        ]
        for _ in bears:
            ledger.charge([clipped_release(20.0)], plan="plan")
        assert 10 < len(bears) < 100
        with pytest.raises(BudgetExhausted, match=f"would be {accounting.epsilon([rounds], DELTA):.4g} at"):
            ledger.charge([clipped_release(20.0)], plan="plan")


# What a strategy may choose from: exact losses of each under the neighbor that has the record.
MENU = [
    Release(scale=2.0, sensitivity=1.0),
    Release(scale=6.0, sensitivity=1.0),
    Release(law="selection", scale=2.0, sensitivity=1.0),
    Release(law="selection", scale=10.0, sensitivity=1.0),
    Release(scale=0.8, sensitivity=1.0, rate=0.01),
    Release(scale=1.0, sensitivity=1.0, rate=0.1),
]


def draw_loss(release, rng, size):
    """Privacy losses of a release, drawn under the neighbor with the record."""
    mu = 1 / release.multiplier
    if release.law == "selection":
        return np.where(rng.random(size) < 1 / (1 + math.exp(-mu)), mu, -mu)
    drawn = rng.random(size) < release.rate
    place = rng.standard_normal(size) + mu * drawn
    return np.log1p(release.rate * np.expm1(mu * place - mu**2 / 2))


@pytest.mark.parametrize("seed", range(6))
def test_no_simulated_strategy_exceeds_its_budget(seed):
    """Strategies choose by the loss so far, in favor of whoever attacks, and stop when the filter
    refuses."""
    rng = np.random.default_rng(seed)
    epsilon, delta, paths = 1.5, 0.02, 20_000
    first = MENU[seed % len(MENU)]
    counts = group_events([first])
    losses = draw_loss(first, rng, paths)
    states = {(first,): np.arange(paths)}
    for _ in range(12):
        following: dict[tuple[Release, ...], list] = {}
        for before, members in states.items():
            # Which releases are still admitted is known from those before; which is taken, from the losses.
            open_to = [
                row for row in MENU if filters.admits(group_events([*before, row]), counts, epsilon, delta)
            ]
            if not open_to:
                following.setdefault(before, []).append(members)
                continue
            pick = np.clip(
                ((losses[members] - losses.mean()) * (1 + seed) + rng.random(len(members))), 0, None
            )
            for place, row in enumerate(open_to):
                chosen = members[(pick.astype(int) % len(open_to)) == place]
                if len(chosen):
                    losses[chosen] += draw_loss(row, rng, len(chosen))
                    key = tuple(sorted([*before, row], key=repr))
                    following.setdefault(key, []).append(chosen)
        states = {key: np.concatenate(parts) for key, parts in following.items()}
    gains = np.maximum(-np.expm1(epsilon - losses), 0.0)
    slack = 4 * gains.std() / math.sqrt(paths)
    assert gains.mean() <= delta + slack
    assert len(states) > 1, "nothing was chosen"


kinds = st.one_of(
    st.builds(lambda z: Release(scale=z, sensitivity=1.0), st.floats(0.7, 50)),
    st.builds(
        lambda z, q: Release(scale=z, sensitivity=1.0, rate=q), st.floats(0.7, 20), st.floats(0.001, 0.9)
    ),
    st.builds(lambda b: Release(law="laplace", scale=b, sensitivity=1.0), st.floats(0.5, 50)),
    st.builds(lambda b: Release(law="selection", scale=b, sensitivity=1.0), st.floats(0.5, 50)),
    st.builds(
        lambda z, q: clipped_release(z, rate=q, sampled="group"), st.floats(0.7, 20), st.floats(0.001, 0.9)
    ),
)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(kinds, st.integers(1, 200)), min_size=1, max_size=3))
def test_a_filter_never_says_less_than_composition(rows):
    counts = group_events(release for row, times in rows for release in [row] * times)
    fixed = accounting.epsilon_of(counts, DELTA)
    # Composition is found on a grid, up to a thousandth.
    assert filters.epsilon(counts, counts, DELTA) >= fixed * (1 - 2e-3)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(kinds, st.integers(1, 50)), min_size=2, max_size=4))
def test_more_releases_never_cost_less(rows):
    first, *_ = rows
    spent = []
    for upto in range(1, len(rows) + 1):
        counts = group_events(release for row, times in rows[:upto] for release in [row] * times)
        spent.append(filters.epsilon(counts, group_events([first[0]] * first[1]), DELTA))
    assert spent == sorted(spent)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 10.0, 30.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
def test_the_conversion_is_right_for_a_gaussian_that_uses_the_budget_up(epsilon, delta):
    """The order, its allowance and the exact epsilon of the Gaussian that they admit."""
    one = group_events([Release(scale=1.0, sensitivity=1.0)])
    order = filters.order_of(one, epsilon, delta)
    noise = math.sqrt(order / 2 / filters.allowance(epsilon, delta, order))
    exact = accounting.epsilon([Release(scale=noise * (1 + 1e-6), sensitivity=1.0)], delta)
    assert 0.8 * epsilon <= exact <= epsilon
    assert filters.epsilon(
        group_events([Release(scale=noise * (1 + 1e-6), sensitivity=1.0)]), one, delta
    ) <= epsilon * (1 + 1e-5)


def test_a_total_that_is_read_off_afterwards_may_fail_with_more_than_delta():
    """Twenty equal runs, stopped when the loss is well above the total so far: drawn with importance."""
    step, runs, draws = 0.02, 20, 100_000
    row = Release(scale=step**-0.5, sensitivity=1.0)
    totals = [
        filters.epsilon(group_events([row] * k), group_events([row]), DELTA) for k in range(1, runs + 1)
    ]
    rng = np.random.default_rng(0)
    places = np.linspace(0, runs - 1, 8).astype(int)
    tilts = np.array([*(1.02 * totals[k] / (step * (k + 1)) - 0.5 for k in places), 0.0])
    tilt, loss, going = tilts[rng.integers(0, len(tilts), draws)], np.zeros(draws), np.ones(draws, dtype=bool)
    gain = np.zeros(draws)
    for number, epsilon in enumerate(totals, start=1):
        loss += rng.normal(step / 2 + tilt * step, step**0.5)
        ratio = np.exp(np.outer(loss - number * step / 2, tilts) - number * step * tilts**2 / 2).mean(axis=1)
        stops = going & (loss - epsilon > (0 if number == runs else 0.04 * epsilon))
        gain[stops] = (-np.expm1(epsilon - loss) / ratio)[stops]
        going &= ~stops
    assert gain.mean() - 4 * gain.std() / math.sqrt(draws) > 1.4 * DELTA
    # Had the last total been the budget from the beginning, it would have held.
    with Ledger() as ledger:
        ledger.allow(epsilon=totals[-1] * (1 + 1e-6), delta=DELTA)
        for _ in range(runs):
            ledger.charge([row])
        with pytest.raises(BudgetExhausted):
            ledger.charge([row])


def test_pure_releases_are_admitted_by_their_sum():
    rows = group_events([Release(law="laplace", scale=4.0, sensitivity=1.0)] * 4)
    assert filters.epsilon(rows, rows, 0.0) == pytest.approx(1.0, rel=1e-5)
    assert filters.admits(rows, rows, 1.001, 0.0)
    assert not filters.admits(rows, rows, 0.999, 0.0)
    gaussian = group_events([Release(scale=100.0, sensitivity=1.0)])
    assert filters.epsilon(gaussian, gaussian, 0.0) == math.inf


@pytest.mark.parametrize(("rate", "each"), [(0.01, 0.3), (0.01, 1.0), (0.05, 1.0), (0.1, 1.0), (0.1, 3.0)])
def test_ten_equal_experiments_cost_at_most_a_tenth_more_than_if_they_had_been_planned(rate, each):
    noise = accounting.calibrate(each, DELTA, 400, rate=rate)
    with Ledger() as ledger:
        for number in range(10):
            ledger.charge([clipped_release(noise, rate=rate, count=400)], plan=f"experiment {number}")
        fixed, lifetime = ledger.spent_as_planned(DELTA), ledger.spent(DELTA)
    assert fixed == accounting.epsilon([clipped_release(noise, rate=rate, count=4000)], DELTA)
    assert fixed < lifetime <= 1.1 * fixed


def test_the_order_follows_the_first_plan_and_not_those_after_it():
    heavy = group_events([Release(scale=0.75, sensitivity=1.0, rate=0.01)] * 400)
    light = group_events([Release(law="laplace", scale=0.5, sensitivity=1.0)])
    plain = group_events([Release(scale=3.0, sensitivity=1.0)])
    by_plain = filters.order_of(plain, 8.0, DELTA)
    assert filters.order_of(heavy, 8.0, DELTA) < by_plain
    # A first plan with light tails says nothing about those that follow.
    assert filters.order_of(light, 8.0, DELTA) == by_plain
