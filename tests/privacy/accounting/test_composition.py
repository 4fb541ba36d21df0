"""Losses on a grid are composed and read as `dp-accounting` does it, and as sums written out say."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as library
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.privacy.accounting import pld
from tacit.privacy.accounting.pld import TAIL, PrivacyLoss, compose_all
from tacit.privacy.accounting.release import Event

GRID = 4.0**-5


def made(*chances: float, lowest: int = -2, infinite: float = 0.0, grid: float = 0.5) -> PrivacyLoss:
    return PrivacyLoss(grid, lowest, np.array(chances), infinite)


@st.composite
def losses(draw: st.DrawFn) -> PrivacyLoss:
    chances = np.array(draw(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=6)))
    infinite = draw(st.sampled_from([0.0, 1e-6, 0.1]))
    return made(
        *(chances / chances.sum() * (1 - infinite)), lowest=draw(st.integers(-4, 3)), infinite=infinite
    )


def written_out(loss: PrivacyLoss, epsilon: float) -> float:
    """Return the delta of an epsilon, by the definition."""
    steps = (np.arange(len(loss.chances)) + loss.lowest) * loss.grid
    return loss.infinite + float(np.sum(loss.chances * np.maximum(0, 1 - np.exp(epsilon - steps))))


@settings(deadline=None, max_examples=60)
@given(losses(), st.integers(1, 5))
def test_repeating_is_adding_up_in_every_way(loss, times):
    sums: dict[int, float] = {}
    for steps in itertools.product(range(len(loss.chances)), repeat=times):
        place = sum(steps) + times * loss.lowest
        sums[place] = sums.get(place, 0.0) + math.prod(loss.chances[step] for step in steps)
    found = loss.self_compose(times)
    here = {place + found.lowest: chance for place, chance in enumerate(found.chances)}
    for place, chance in sums.items():
        assert here.get(place, 0.0) == pytest.approx(chance, abs=1e-14)
    assert found.infinite == pytest.approx(1 - (1 - loss.infinite) ** times, abs=2 * TAIL)
    assert found.infinite >= loss.infinite


@settings(deadline=None, max_examples=60)
@given(losses(), losses())
def test_putting_two_together_is_adding_up_pairs(one, other):
    found = one.compose(other)
    np.testing.assert_allclose(found.chances, np.convolve(one.chances, other.chances), atol=1e-15)
    assert found.lowest == one.lowest + other.lowest
    assert found.infinite == pytest.approx(1 - (1 - one.infinite) * (1 - other.infinite))
    again = compose_all([one, other, one])
    np.testing.assert_allclose(again.chances, np.convolve(found.chances, one.chances), atol=1e-15)


@settings(deadline=None, max_examples=200)
@given(losses(), st.floats(1e-9, 0.9))
def test_epsilon_is_the_smallest_that_holds_but_for_delta(loss, delta):
    found = loss.epsilon(delta)
    if math.isinf(found):
        assert loss.infinite > delta
        return
    assert written_out(loss, found) <= delta * (1 + 1e-9) + 1e-15
    if found > 0:
        assert written_out(loss, found - 1e-6) >= delta


@settings(deadline=None, max_examples=100)
@given(losses(), st.lists(st.floats(-5, 5), min_size=1, max_size=5))
def test_deltas_are_those_of_the_definition(loss, epsilons):
    found = loss.deltas(np.sort(epsilons))
    np.testing.assert_allclose(found, [written_out(loss, one) for one in np.sort(epsilons)], atol=1e-13)


def test_losses_beyond_what_exponentials_can_tell_are_read():
    # e^-3000 is no number, and e^3000 is none either.
    near, far = (made(0.5, 0.3, 0.2, lowest=lowest) for lowest in (40, 6000))
    assert far.epsilon(0.3) - near.epsilon(0.3) == pytest.approx(2980)
    # Too much is said there, but not too little.
    with np.errstate(all="ignore"):
        assert (far.deltas(np.array([2999.0, 3000.4, 3001.5])) >= [1 - math.exp(-1), 0.1, 0.0]).all()


def test_no_epsilon_is_proven_where_everything_may_be_told():
    assert made(0.5, 0.4, infinite=0.1).epsilon(0.05) == math.inf
    assert made(0.5, 0.4, infinite=math.nan).epsilon(0.05) == math.inf


def test_no_epsilon_is_proven_by_chances_that_are_no_numbers():
    assert made(0.5, math.nan, 0.2).epsilon(0.05) == math.inf
    assert made(math.nan, 0.5, 0.2).epsilon(0.9) == math.inf


def test_nothing_is_told_by_losses_that_are_none():
    assert made(0.5, 0.5, lowest=-1).epsilon(1e-9) == 0


def test_what_is_cut_is_counted_as_lost():
    once = made(*np.full(200, 1 / 200), lowest=-100, grid=0.01)
    many = once.self_compose(1000)
    assert len(many.chances) < 199 * 1000 / 2
    assert many.infinite == TAIL
    assert many.chances.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("kind", "times"),
    [
        (Event("gaussian", 1.0, 0.01, False), 1000),
        (Event("gaussian", 0.7, 0.2, False), 7),
        (Event("gaussian", 2.0, 0.1, True), 100),
        (Event("gaussian", 9.0, 0.3, False), 20_000),
        (Event("laplace", 2.0, 1.0, False), 30),
        (Event("laplace", 5.0, 0.1, False), 300),
        (Event("selection", 8.0, 1.0, False), 40),
    ],
    ids=str,
)
def test_compositions_are_those_of_the_library(kind, times):
    beside = Event("gaussian", 3.0, 0.2, False), 50
    ours = pld.compose(((kind, times), beside), GRID)
    other = library.from_gaussian_mechanism(3.0, sampling_prob=0.2, value_discretization_interval=GRID)
    if kind.law == "gaussian" and not kind.two_sided:
        once = library.from_gaussian_mechanism(
            kind.multiplier, sampling_prob=kind.rate, value_discretization_interval=GRID,
            log_mass_truncation_bound=pld.CUT,
        )  # fmt: skip
    else:
        once = pld._by_library(kind, GRID)
    theirs = once.self_compose(times).compose(other.self_compose(50))
    for delta in (1e-3, 1e-6):
        found = max(side.epsilon(delta) for side in ours)
        assert found == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=1e-6)
    epsilons = np.array([0.0, 0.5, 3.0])
    found = np.max([side.deltas(epsilons) for side in ours], axis=0)
    np.testing.assert_allclose(found, theirs.get_delta_for_epsilon(epsilons), atol=1e-10)


def test_two_grids_do_not_add_up():
    with pytest.raises(AssertionError, match="two grids"):
        made(1.0).compose(made(1.0, grid=0.25))
