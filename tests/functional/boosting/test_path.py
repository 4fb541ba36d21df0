"""Degrees of freedom: the exact trace against the whole hat matrix."""

import numpy as np
import pytest
from plain_evidence import evidence, moments

from tacit.functional.boosting.boost import boost_path, degrees_of_freedom
from tacit.functional.boosting.moments import Penalty, design
from tacit.functional.solver import solve

SIZES = (3, 4, 3)
RATE = 0.3
PRICES = [Penalty(), Penalty(s=0.1), Penalty(t=0.2), Penalty(s=0.1, t=0.05, st=0.2)]


def curves(records=60, m=3, seed=0):
    draws = np.random.default_rng(seed)
    x = draws.normal(size=(records, sum(SIZES)))
    y = x @ draws.normal(size=(sum(SIZES), m)) + draws.normal(size=(records, m))
    rough = [np.arange(size) ** 2.0 for size in SIZES]
    return x, y, evidence(x, y, SIZES, folds=0, roughness=rough, roughness_y=np.arange(m) ** 2.0)


def walked(given, penalty, steps=25):
    return boost_path(design(given, [(given.whole,)], penalty), steps=steps, rate=RATE, weights=np.ones(1))


def by_hand(given, chosen, penalty, xy):
    """The coefficients of a path whose choices are made, from the equation of each step."""
    found = np.zeros_like(xy)
    mean_y = given.roughness_y.mean()
    for place in chosen:
        block = given.blocks[place]
        own, rough = given.whole.xx[block, block], given.roughness[place]
        per = np.trace(own) / len(own)
        prices = (
            per / rough.mean() * penalty.s,
            per / mean_y * penalty.t,
            per / rough.mean() / mean_y * penalty.st,
        )
        right = xy[block] - given.whole.xx[block] @ found + own @ found[block]
        best = solve(own, right, rough, given.roughness_y, *prices)
        found[block] = (1 - RATE) * found[block] + RATE * best
    return found


def hat_trace(x, y, given, chosen, penalty):
    """The trace of the map from responses to fitted responses, one unit response after the other."""
    records, m = y.shape
    centred, total = x - x.mean(axis=0), 0.0
    for row in range(records):
        for coordinate in range(m):
            unit = np.zeros((records, m))
            unit[row, coordinate] = 1.0
            fitted = centred @ by_hand(given, chosen, penalty, moments(x, unit).xy)
            total += fitted[row, coordinate]
    return total


@pytest.mark.parametrize("penalty", PRICES)
def test_a_walk_is_the_damped_recursion_of_each_predictor_s_equation(penalty):
    _, _, given = curves()
    found = walked(given, penalty)
    expected = by_hand(given, found.chosen[:, 0], penalty, given.whole.xy)
    own = np.concatenate([own[:size] for own, size in zip(found.coefficients(25)[0], SIZES, strict=True)])
    np.testing.assert_allclose(own, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("penalty", PRICES)
def test_the_exact_trace_is_that_of_the_hat_matrix(penalty):
    x, y, given = curves(records=25)
    found = walked(given, penalty, steps=12)
    chosen = found.chosen[:, 0]
    assert degrees_of_freedom(found.ground, chosen, RATE)[-1].sum() == pytest.approx(
        hat_trace(x, y, given, chosen, penalty), rel=1e-7
    )


def test_a_walk_that_has_arrived_uses_every_coefficient_and_before_less():
    _, _, given = curves()
    found = walked(given, Penalty(), steps=400)
    used = degrees_of_freedom(found.ground, found.chosen[:, 0], RATE).sum(axis=(1, 2))
    assert used[0] == 0
    assert used[-1] == pytest.approx(sum(SIZES) * 3, rel=1e-4)
    assert used[10] < used[-1]


def test_prices_along_the_response_leave_rough_coordinates_fewer_degrees():
    _, _, given = curves()
    found = walked(given, Penalty(t=1.0))
    by_coordinate = degrees_of_freedom(found.ground, found.chosen[:, 0], RATE)[-1].sum(axis=0)
    assert (np.diff(by_coordinate) < 0).all()


def test_a_walk_of_no_steps_uses_nothing():
    _, _, given = curves()
    found = walked(given, Penalty(), steps=0)
    assert degrees_of_freedom(found.ground, found.chosen[:, 0], RATE).sum() == 0
