"""Scores of curves are the formulas they say they are, and agree with scikit-learn where it has them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import (
    mean_absolute_error,
    mean_absolute_percentage_error,
    r2_score,
    root_mean_squared_error,
)

from tacit.errors import InvalidValue
from tacit.functional import metrics

TIMES = np.linspace(0, 2, 201)


def drawn(seed=0, shape=(30, 12)):
    draws = np.random.default_rng(seed)
    true = draws.normal(size=shape) + np.linspace(-1, 3, shape[1])
    return true, true + 0.3 * draws.normal(size=shape)


def test_distances_are_integrals_over_the_domain():
    true = np.vstack([np.sin(np.pi * TIMES), np.cos(np.pi * TIMES)])
    # Each squared curve has the integral 1 over [0, 2]; the predictions are off by 0.5 and by 0.
    predicted = true + np.array([[0.5], [0.0]])
    assert metrics.il2(true, predicted, TIMES) == pytest.approx(0.25 * 2 / 2)
    assert metrics.ril2(true, predicted, TIMES) == pytest.approx(0.5 / 2, rel=1e-4)
    middle = true.mean(axis=0)
    whole = np.trapezoid((true - middle) ** 2, TIMES, axis=1).sum()
    assert metrics.r2(true, predicted, TIMES) == pytest.approx(1 - 0.5 / whole)


def test_coordinates_in_orthonormal_functions_give_the_scores_of_their_curves():
    order = np.arange(4)
    functions = np.cos(np.pi * order[:, None] * TIMES / 2) * np.where(order[:, None] > 0, 1.0, np.sqrt(0.5))
    true, predicted = drawn(shape=(30, 4))
    curves, fits = true @ functions, predicted @ functions
    for score in (metrics.il2, metrics.ril2, metrics.r2):
        assert score(true, predicted) == pytest.approx(score(curves, fits, TIMES), rel=1e-3)


def test_scores_agree_with_scikit_learn():
    true, predicted = drawn()
    flat = true.ravel(), predicted.ravel()
    assert metrics.rmse(true, predicted) == pytest.approx(root_mean_squared_error(*flat))
    assert metrics.mae(true, predicted) == pytest.approx(mean_absolute_error(*flat))
    assert metrics.mape(true, predicted) == pytest.approx(100 * mean_absolute_percentage_error(*flat))
    weighted = r2_score(true, predicted, multioutput="variance_weighted")
    assert metrics.r2(true, predicted) == pytest.approx(weighted)


def test_percentages_follow_their_formulas():
    true, predicted = np.array([[1.0, -2.0, 0.0]]), np.array([[2.0, -2.0, 0.0]])
    assert metrics.wmape(true, predicted) == pytest.approx(100 / 3)
    assert metrics.smape(true, predicted) == pytest.approx(100 * (2 * 1 / 3) / 3)
    assert metrics.mape(true, predicted) == pytest.approx(50)
    spread = true.std(ddof=1)
    assert metrics.nrmse(true, predicted) == pytest.approx(np.sqrt(1 / 3) / spread)


def test_scores_by_name_are_those_of_each_function():
    true, predicted = drawn(shape=(30, 201))
    found = metrics.scores(true, predicted, TIMES)
    assert list(found) == ["r2", "ril2", "il2", "rmse", "nrmse", "mae", "smape", "wmape", "mape"]
    for name, value in found.items():
        score = getattr(metrics, name)
        own = score(true, predicted, TIMES) if name in ("r2", "ril2", "il2") else score(true, predicted)
        assert value == own
    names = [f"x{number}" for number in range(1, 7)]
    found = metrics.scores(
        true, predicted, TIMES, selected=["x1", "x6"], active=["x1", "x2"], predictors=names
    )
    assert (found["sensitivity"], found["specificity"]) == (0.5, 0.75)


@given(st.integers(0, 2**32 - 1))
def test_points_that_are_not_known_do_not_count(seed):
    draws = np.random.default_rng(seed)
    true, predicted = drawn(seed, (6, 9))
    times = np.sort(draws.uniform(0, 5, 9))
    holes = true.copy()
    holes[draws.random(true.shape) < 0.4] = np.nan
    holes[:, 4] = true[:, 4]
    wild = np.where(np.isnan(holes), np.nan, predicted)
    found, again = metrics.scores(holes, predicted, times), metrics.scores(holes, wild, times)
    assert found == again
    known = ~np.isnan(holes)
    assert found["rmse"] == pytest.approx(np.sqrt(((true - predicted)[known] ** 2).mean()))
    # An error that is the same everywhere is the same with holes and without.
    off = np.where(known, true, 0.0) + 0.5
    assert metrics.il2(holes, off, times) == pytest.approx(0.25 * (times[-1] - times[0]))


def test_perfect_and_empty_predictions_have_known_scores():
    true, _ = drawn()
    assert metrics.ril2(true, true) == 0
    assert metrics.r2(true, true) == 1
    assert metrics.ril2(true, np.zeros_like(true)) == pytest.approx(1)
    assert metrics.r2(true, np.broadcast_to(true.mean(axis=0), true.shape)) == pytest.approx(0)


def test_a_score_without_meaning_is_refused_alone_and_not_a_number_among_others():
    flat = np.ones((3, 201))
    with pytest.raises(InvalidValue, match="same curve for all subjects"):
        metrics.r2(flat, flat, TIMES)
    found = metrics.scores(flat, flat, TIMES)
    assert np.isnan([found["r2"], found["nrmse"]]).all()
    assert found["ril2"] == 0
    for score in (metrics.ril2, metrics.wmape, metrics.mape):
        with pytest.raises(InvalidValue, match="0 everywhere"):
            score(0 * flat, flat)


def test_selection_is_judged_by_what_was_found_and_what_was_left():
    names = [f"x{number}" for number in range(1, 21)]
    active = names[:5]
    assert metrics.sensitivity(active, active) == metrics.specificity(active, active, names) == 1
    assert metrics.sensitivity(names[3:7], active) == 2 / 5
    assert metrics.specificity(names[3:7], active, names) == 13 / 15
    assert metrics.sensitivity([], []) == metrics.specificity(names, names, names) == 1
    with pytest.raises(InvalidValue, match="selected = \\['x99'\\]"):
        metrics.specificity(["x99"], active, names)


def test_traffic_is_what_the_reference_reports():
    megabytes = [metrics.bytes_reference(750, [20 // parties] * parties, 20) / 2**20 for parties in (2, 10)]
    np.testing.assert_allclose(megabytes, [2.90, 2.41], atol=0.005)


def test_moments_send_the_same_whatever_the_number_of_subjects():
    assert metrics.bytes_local(750, [6] * 20) == 750 * 120 * 8
    assert metrics.bytes_moments([6, 6, 4]) == 17 * 18 // 2 * 8
    assert metrics.bytes_moments([20] * 21) / 2**20 == pytest.approx(0.68, abs=0.01)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.ril2([1.0, 2.0], [1.0, 2.0]), "true = 'shape"),
        (lambda: metrics.ril2([[1.0, 2.0]], [[1.0]]), "predicted = 'shape"),
        (lambda: metrics.ril2([["a"]], [[1.0]]), "true is not allowed: it must be an array of numbers"),
        (lambda: metrics.ril2([[1.0, np.nan]], [[1.0, 1.0]]), "known in every coordinate"),
        (lambda: metrics.rmse([[np.nan, np.nan]], [[1.0, 1.0]]), "a curve without a value"),
        (lambda: metrics.rmse([[1.0, np.inf]], [[1.0, 1.0]]), "true = 'infinity'"),
        (lambda: metrics.rmse([[1.0, 1.0]], [[1.0, np.nan]]), "predicted = 'NaN"),
        (lambda: metrics.il2([[1.0, 1.0]], [[1.0, 1.0]], [0.0, 1.0, 2.0]), "times = '3 of them'"),
        (lambda: metrics.il2([[1.0, 1.0]], [[1.0, 1.0]], [1.0, 0.0]), "at least two, ascending"),
        (lambda: metrics.bytes_local(0, [3]), "records = 0"),
        (lambda: metrics.bytes_moments([]), "at least one"),
        (lambda: metrics.bytes_reference(10, [3, 0], 2), "parties = 0"),
    ],
)
def test_what_cannot_be_scored_is_told_in_one_sentence(call, words):
    with pytest.raises(InvalidValue, match=words.replace("(", "\\(").replace("[", "\\[")):
        call()
