"""Boosting from moments: what it chooses, where it stops, whom it keeps, and what it makes of noise."""

from dataclasses import replace

import numpy as np
import pytest
from plain_evidence import evidence, left_over, moments, seed_design

from tacit.errors import InvalidValue
from tacit.functional.boosting.boost import BoostingConfig, boost, boost_path, held_out
from tacit.functional.boosting.moments import Penalty, design

TRAIN, TEST = slice(0, 750), slice(750, 1000)


def small(records=200, sizes=(3, 3, 3, 3), active=2, m=4, noise=0.5, seed=0):
    """Predictors of which the first ones count."""
    draws = np.random.default_rng(seed)
    x = draws.normal(size=(records, sum(sizes)))
    known = sum(sizes[:active])
    y = x[:, :known] @ draws.normal(size=(known, m)) + noise * draws.normal(size=(records, m))
    return x, y


def test_the_seed_design_is_fitted_well_with_exactly_the_predictors_that_count():
    # The reference is left with 0.165; nobody can be left with less than 0.091.
    for seed in (101, 102, 103):
        x, y = seed_design(seed)
        found = boost(evidence(x[TRAIN], y[TRAIN], [20] * 20), BoostingConfig())
        assert left_over(found.coefficients, x, y, TRAIN, TEST) < 0.12
        assert found.selected == found.screened == (0, 1, 2, 3, 4)


def test_without_a_screen_predictors_that_do_not_count_are_moved_too_and_it_costs():
    x, y = seed_design(101)
    given = evidence(x[TRAIN], y[TRAIN], [20] * 20)
    everyone, screened = boost(given, BoostingConfig(selection="all")), boost(given, BoostingConfig())
    assert everyone.screened is None
    assert set(everyone.selected) > {0, 1, 2, 3, 4}
    lost, kept = (left_over(fit.coefficients, x, y, TRAIN, TEST) for fit in (everyone, screened))
    assert kept < lost < 0.13


def reference_scores(z, r, found, blocks, noise):
    """Score as the reference system: subtract the noise of a candidate, not that of others."""
    scores = []
    for block in blocks:
        partial = r + z[:, block] @ found[block]
        own = moments(z[:, block], partial, noise)
        step = np.linalg.solve(own.xx, own.xy)
        rest = ((z[:, block] @ step - partial) ** 2).sum()
        scores.append(rest - (len(z) - 1) * noise**2 * (step**2).sum())
    return np.array(scores)


def test_the_corrected_score_picks_the_right_predictor_where_the_reference_picks_the_wrong_one():
    draws = np.random.default_rng(4)
    x = draws.normal(size=(4000, 6))
    y = 3 * x[:, :2] + 0.8 * x[:, 2:4] + 0.1 * draws.normal(size=(4000, 2))
    z = x + draws.normal(size=x.shape)
    given = evidence(z, y, [2, 2, 2], folds=0, noise=1.0)
    first = boost(given, BoostingConfig(rate=1.0, stop=1, selection="all", ridge=0.0))
    assert first.path == (0,)
    z, y, x = z - z.mean(axis=0), y - y.mean(axis=0), x - x.mean(axis=0)
    rest = y - z @ first.coefficients
    truth = reference_scores(x, y - x @ first.coefficients, first.coefficients, given.blocks, 0.0)
    assert truth.argmin() == 1
    assert reference_scores(z, rest, first.coefficients, given.blocks, 1.0).argmin() == 0
    assert boost(given, BoostingConfig(rate=1.0, stop=2, selection="all", ridge=0.0)).path == (0, 1)


def test_in_the_end_all_coefficients_are_those_of_least_squares():
    x, y = small(sizes=(2, 4, 3), active=3)
    given = evidence(x, y, (2, 4, 3), folds=0)
    found = boost(given, BoostingConfig(stop=500, selection="all"))
    np.testing.assert_allclose(
        found.coefficients, np.linalg.solve(given.whole.xx, given.whole.xy), rtol=1e-4, atol=1e-5
    )
    assert found.degrees == pytest.approx(9 * 4, rel=1e-3)


def test_the_slope_of_a_predictor_chosen_again_and_again_does_not_grow_beyond_its_best_fit():
    x, y = small(sizes=(3,), active=1)
    given = evidence(x, y, (3,), folds=0)
    best = np.linalg.solve(given.whole.xx, given.whole.xy)
    for steps in (1, 5, 12):
        found = boost(given, BoostingConfig(stop=steps, selection="all")).coefficients
        np.testing.assert_allclose(found, (1 - 0.7**steps) * best, rtol=1e-6)


def test_judgements_are_losses_on_what_was_held_back_and_their_mean_decides():
    x, y = small()
    given = evidence(x, y, [3] * 4)
    recipe = BoostingConfig(selection="all", patience=100, steps=30)
    found = boost(given, recipe)
    place = design(given, given.splits, Penalty())
    taken = boost_path(place, steps=30, rate=0.3, weights=np.full(5, 0.2))
    for steps in (0, 7, 30):
        for split, (_, judge) in enumerate(given.splits):
            own = taken.coefficients(steps)[split].reshape(12, -1)
            assert taken.judged[steps, split].sum() == pytest.approx(judge.loss(own), rel=1e-9)
    np.testing.assert_allclose(found.curve, held_out(taken, np.full(5, 0.2)))
    assert found.steps == found.curve.argmin() == len(found.path)
    assert found.losses[-1] == pytest.approx(given.whole.loss(found.coefficients), rel=1e-9)


def test_the_order_of_predictors_does_not_matter_nor_that_one_has_fewer_coordinates():
    sizes, order = (3, 5, 2, 4), (2, 0, 3, 1)
    x, y = small(sizes=sizes)
    columns = [np.arange(sum(sizes[:row]), sum(sizes[: row + 1])) for row in range(4)]
    found = boost(evidence(x, y, sizes), BoostingConfig())
    moved = x[:, np.concatenate([columns[row] for row in order])]
    turned = boost(evidence(moved, y, [sizes[row] for row in order]), BoostingConfig())
    assert tuple(order[row] for row in turned.path) == found.path
    own = np.concatenate([found.coefficients[columns[row]] for row in order])
    np.testing.assert_allclose(turned.coefficients, own, rtol=1e-9, atol=1e-12)


def test_a_walk_ends_when_nothing_has_improved_for_a_while():
    x, y = small(noise=3.0, active=1)
    given = evidence(x, y, [3] * 4)
    found = boost(given, BoostingConfig(selection="all", patience=4))
    assert len(found.curve) == found.curve.argmin() + 5 < 100


@pytest.mark.parametrize("rule", ["aic", "aicc", "mv"])
def test_information_stops_by_loss_and_exact_degrees_of_freedom(rule):
    x, y = small(records=60, noise=2.0)
    given = evidence(x, y, [3] * 4, folds=0)
    found = boost(given, BoostingConfig(stop=rule, selection="all"))
    assert 0 < found.steps == found.curve.argmin() < 100
    longer = boost(given, BoostingConfig(stop=found.steps + 5, selection="all"))
    residuals = (y - y.mean(axis=0)) - (x - x.mean(axis=0)) @ longer.coefficients
    covariance, numbers = residuals.T @ residuals / 59, y.size
    fit = (
        60 * np.linalg.slogdet(covariance)[1] if rule == "mv" else numbers * np.log(np.trace(covariance) / 4)
    )
    fair = numbers / (numbers - longer.degrees - 1) if rule == "aicc" else 1.0
    assert found.curve[found.steps + 5] == pytest.approx(fit + 2 * longer.degrees * fair, rel=1e-9)


def test_information_can_be_screened_too():
    x, y = small(sizes=(3,) * 8)
    found = boost(evidence(x, y, (3,) * 8), BoostingConfig(stop="aicc"))
    assert found.screened == found.selected == (0, 1)


def test_nothing_is_kept_of_pure_noise_and_the_fit_says_so():
    draws = np.random.default_rng(2)
    x, y = draws.normal(size=(80, 12)), draws.normal(size=(80, 3))
    found = boost(evidence(x, y, [3] * 4), BoostingConfig())
    assert found.screened == ()
    assert found.steps <= 1


def test_a_screen_that_would_do_harm_is_not_used():
    # Each of many helps by less than can be seen over splits; together they are all there is.
    draws = np.random.default_rng(5)
    x = draws.normal(size=(150, 40))
    y = 0.25 * x.sum(axis=1, keepdims=True) + draws.normal(size=(150, 1))
    given = evidence(x, y, [1] * 40)
    strict, everyone = (
        boost(given, BoostingConfig(margin=30.0)),
        boost(given, BoostingConfig(selection="all")),
    )
    assert strict.screened == ()
    np.testing.assert_allclose(strict.coefficients, everyone.coefficients)


def test_a_constant_predictor_is_never_moved():
    x, y = small()
    x[:, 3:6] = 7.0
    found = boost(evidence(x, y, [3] * 4), BoostingConfig())
    assert 1 not in found.selected
    assert np.isfinite(found.coefficients).all()


def test_fewer_subjects_than_coordinates_still_give_a_fit():
    x, y = small(records=20, sizes=(15, 15), active=1, noise=0.1)
    found = boost(evidence(x, y, (15, 15), folds=4), BoostingConfig())
    assert np.isfinite(found.coefficients).all()


def smooth(records, seed, size=12):
    """Smooth surfaces under much noise, in coordinates that get rougher."""
    draws = np.random.default_rng(seed)
    decay = np.exp(-0.8 * np.arange(size))
    x = draws.normal(size=(records, 2 * size))
    y = x[:, :size] @ np.outer(decay, decay) * 2 + 0.7 * draws.normal(size=(records, size))
    return x, y, np.arange(size) ** 4.0


def test_prices_of_roughness_are_chosen_where_they_help():
    x, y, rough = smooth(1200, 3)
    given = evidence(x[:120], y[:120], (12, 12), roughness=(rough, rough), roughness_y=rough)
    priced, free = boost(given, BoostingConfig()), boost(given, BoostingConfig(smooth_s=0.0, smooth_t=0.0))
    assert max(priced.smooth) > 0
    train, test = slice(0, 120), slice(120, None)
    assert left_over(priced.coefficients, x, y, train, test) < left_over(free.coefficients, x, y, train, test)
    assert priced.degrees < free.degrees


def test_a_number_is_taken_as_it_is_and_of_a_grid_the_best():
    x, y, rough = smooth(120, 3)
    given = evidence(x, y, (12, 12), roughness=(rough, rough), roughness_y=rough)
    grid = (0.0, 0.1, 10.0)
    fits = {
        price: boost(given, BoostingConfig(selection="all", smooth_s=price, smooth_t=0.0)) for price in grid
    }
    assert all(fit.smooth == (price, 0.0, 0.0) for price, fit in fits.items())
    best = min(fits.values(), key=lambda fit: fit.curve.min())
    assert boost(given, BoostingConfig(selection="all", smooth_s=grid, smooth_t=0.0)).smooth == best.smooth


def test_noise_in_curves_is_taken_off_and_what_it_broke_is_repaired():
    x, y = seed_design(7, records=1000, predictors=6, active=3, size=8)
    z = x[TRAIN] + np.random.default_rng(8).normal(size=x[TRAIN].shape)
    given = evidence(z, y[TRAIN], [8] * 6, noise=1.0)
    assert np.linalg.eigvalsh(given.splits[0][0].xx)[0] < 0.1
    found = boost(given, BoostingConfig())
    assert found.selected == (0, 1, 2)
    blind = boost(evidence(z, y[TRAIN], [8] * 6), BoostingConfig())
    corrected, attenuated = (left_over(fit.coefficients, x, y, TRAIN, TEST) for fit in (found, blind))
    assert corrected < 0.25 < attenuated


def test_moments_with_negative_variances_give_finite_fits_that_do_not_explode():
    x, y = seed_design(9, records=400, predictors=8, active=3, size=8)
    z = x[:150] + 3 * np.random.default_rng(9).normal(size=(150, 64))
    given = evidence(z, y[:150], [8] * 8, noise=3.0)
    assert np.linalg.eigvalsh(given.whole.xx)[0] < 0
    found = boost(given, BoostingConfig())
    assert left_over(found.coefficients, x, y, slice(0, 150), slice(150, 400)) < 1.1
    assert found.degrees >= 0


def test_splits_that_share_subjects_are_judged_by_degrees_of_freedom_as_well():
    x, y = small(records=100, sizes=(3,) * 10, noise=1.5)
    given = evidence(x, y, (3,) * 10, optimism=True)
    bare = boost(replace(given, optimism=False), BoostingConfig(selection="all", patience=100))
    fair = boost(given, BoostingConfig(selection="all", patience=100))
    assert bare.steps == 100
    assert fair.steps < 60
    penalty = fair.curve - bare.curve[: len(fair.curve)]
    assert penalty[0] == 0
    assert (np.diff(penalty) > -1e-12).all()
    # Of all there is to explain beyond the truth, twice its share: 2 df s2 / n.
    long = boost(given, BoostingConfig(stop=100, selection="all"))
    per = (long.curve[-1] - bare.curve[-1]) / (2 * long.degrees / 100)
    assert per == pytest.approx(1.5**2, rel=0.25)
    assert boost(given, BoostingConfig()).selected == (0, 1)


def test_wrong_choices_are_named():
    for wrong, told in (
        ({"rate": 0.0}, "rate = 0.0"),
        ({"steps": 0}, "steps = 0"),
        ({"stop": "bic"}, 'stop = \'bic\' is not allowed: it must be "cv", "aic", "aicc" or "mv"'),
        ({"stop": 0}, "stop = 0"),
        ({"selection": "none"}, "selection = 'none'"),
        ({"patience": 0}, "patience = 0"),
        ({"margin": -1.0}, "margin = -1.0"),
        ({"smooth_s": (0.0, -1.0)}, "smooth_s = "),
        ({"smooth_t": ()}, "smooth_t = "),
        ({"ridge": float("nan")}, "ridge = nan"),
    ):
        with pytest.raises(InvalidValue, match=told.replace("(", r"\(")):
            BoostingConfig(**wrong)


def test_without_anything_held_back_a_number_of_steps_has_to_be_said():
    x, y = small()
    given = evidence(x, y, [3] * 4, folds=0)
    with pytest.raises(InvalidValue, match="there are no held-out subjects"):
        boost(given, BoostingConfig())
    assert boost(given, BoostingConfig(stop=7)).steps == 7
