"""Noise laws, intervals, bins from public numbers, class tables and bounded sums of squares."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import accuracy_score, brier_score_loss, r2_score, roc_auc_score

from tacit.errors import InvalidValue
from tacit.learning.evaluation import (
    ClassTable,
    bin_predictions,
    bin_probabilities,
    class_table_of,
    score_classes,
)
from tacit.learning.noisy_scores import (
    SENSITIVITY,
    UNITS,
    Noise,
    Score,
    SquareSums,
    choose_bins,
    is_above,
    rank_concordance,
    score_of,
    score_squares,
    square_sums,
)


@pytest.mark.parametrize("law", ["discrete-laplace", "laplace", "gaussian"])
@pytest.mark.parametrize("copies", [1, 5])
def test_redrawn_noise_has_the_variance_that_it_states(law, copies):
    noise = Noise(law, 1.0, copies)
    drawn = noise.redraw(np.random.default_rng(0), (100_000,))
    assert drawn.mean() == pytest.approx(0, abs=0.05)
    assert drawn.var() == pytest.approx(noise.variance, rel=0.06)


def test_discrete_laplace_noise_is_whole_with_the_known_variance():
    noise = Noise("discrete-laplace", 1.0)
    a = math.exp(-1)
    assert noise.variance == pytest.approx(2 * a / (1 - a) ** 2)
    drawn = noise.redraw(np.random.default_rng(0), (50_000,))
    assert (drawn == np.rint(drawn)).all()
    assert (drawn == 0).mean() == pytest.approx((1 - a) / (1 + a), abs=0.01)
    assert Noise().variance == Noise("laplace").variance == 0


@pytest.mark.parametrize(
    ("records", "epsilon", "copies", "expected"),
    [
        (None, 1.0, 1, (6, 8)),
        (1000, 1.0, 1, (6, 8)),
        (300, math.inf, 1, (6, 4)),
        (1000, 0.25, 1, (6, 4)),
        (3000, 0.5, 1, (12, 8)),
        (3000, 0.5, 5, (6, 8)),
        (1000, 1.0, 20, (6, 4)),
    ],
)
def test_bins_follow_from_public_numbers(records, epsilon, copies, expected):
    assert choose_bins(records, epsilon, copies) == expected


def test_a_score_is_hidden_by_a_wide_interval_or_where_it_is_undefined():
    narrow, wide = np.array([0.7, 0.69, 0.71, 0.7]), np.array([0.7, 0.5, 0.9, 0.7])
    assert score_of(narrow, 0.2).value == 0.7
    assert score_of(wide, 0.2).value is None
    assert score_of(np.array([np.nan, 0.5, 0.5]), 0.2).hidden
    # Undefined bootstrap tables are the worst that they could be.
    assert score_of(np.array([0.7, np.nan, 0.7, 0.7]), 0.2).value is None
    assert str(Score(0.7, 0.6, 0.8)) == "0.700 (0.600 to 0.800)"
    assert is_above(narrow, 0.6)
    assert not is_above(wide, 0.6)


def test_pairs_within_a_bin_follow_their_neighbours():
    right, whole = rank_concordance(np.array([[6.0, 1.0], [3.0, 0.0]]))
    assert (right, whole) == (pytest.approx(3 + 6 * (0.5 + 0.25 / 3)), 10)


def classify(seed, records, classes=2, strength=1.0):
    random = np.random.default_rng(seed)
    logits = random.normal(0, 1.2 * strength, (records, classes))
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (chances.cumsum(axis=1) < random.uniform(size=(records, 1))).sum(axis=1)
    return labels, chances


@pytest.mark.parametrize("classes", [2, 3])
def test_a_class_table_comes_close_to_the_exact_scores(classes):
    labels, chances = classify(0, 20_000, classes)
    predicted = bin_predictions(classes, 10)
    assert predicted.sum(axis=1) == pytest.approx(np.ones(len(predicted)))
    counts = class_table_of(labels, bin_probabilities(chances, 10), classes, len(predicted))
    found = score_classes(ClassTable(counts, predicted))
    if classes == 2:
        assert found.auc.value == pytest.approx(roc_auc_score(labels, chances[:, 1]), abs=0.004)
        assert found.brier.value == pytest.approx(brier_score_loss(labels, chances[:, 1]), abs=0.003)
    assert found.accuracy.value == pytest.approx(accuracy_score(labels, chances.argmax(axis=1)))
    assert found.majority.value == pytest.approx(np.bincount(labels).max() / len(labels))
    gaps = found.calibration.value - predicted
    assert np.nanmax(np.abs(gaps[:, 0])) < 0.1
    assert found.verdict == ()


def test_the_class_verdict_names_a_useless_model():
    labels, _ = classify(0, 1000)
    _, chances = classify(1, 1000)
    noise = Noise("discrete-laplace", 1.0)
    counts = class_table_of(labels, bin_probabilities(chances), 2, 10)
    noisy = counts + noise.redraw(np.random.default_rng(0), counts.shape)
    found = score_classes(ClassTable(noisy, bin_predictions(2), noise))
    assert len(found.verdict) == 2
    assert found.auc.low <= 0.5 <= found.auc.high


@settings(max_examples=30, deadline=None)
@given(arrays(np.float64, (10, 2), elements=st.integers(-20, 60).map(float)))
def test_any_class_counts_give_scores_inside_their_bounds(counts):
    found = score_classes(ClassTable(counts, bin_predictions(2), Noise(scale=2.0)), repeats=10)
    for score in (found.auc, found.accuracy, found.brier, found.majority):
        assert 0 <= score.low <= score.high <= 1
        assert score.value is None or score.low <= score.value <= score.high


def regress(seed, records, signal=1.0):
    random = np.random.default_rng(seed)
    predicted = random.normal(0, 1.6, records)
    return signal * predicted + random.normal(0, 1.0, records), predicted


def test_bounded_sums_give_r2_and_the_mean_squared_error():
    true, predicted = regress(0, 5000)
    sums = square_sums(true, predicted, 0.0, 60.0)
    found = score_squares(SquareSums(sums, 60.0))
    assert found.r2.value == pytest.approx(r2_score(true, predicted), abs=0.005)
    assert found.r2.value + found.relative.value == pytest.approx(1)
    assert found.mse.value == pytest.approx(1, abs=0.05)
    assert found.verdict == ()


def test_intervals_of_r2_cover_it_under_noise():
    noise, covered = Noise("discrete-laplace", SENSITIVITY / 1.0), 0
    for seed in range(100):
        true, predicted = regress(seed, 600)
        noisy = square_sums(true, predicted, 0.0, 14.0) + noise.redraw(np.random.default_rng(seed), (3,))
        found = score_squares(SquareSums(noisy, 14.0, noise)).r2
        covered += found.low <= 0.719 <= found.high
    # Below 86 of 100 intervals of 95 % by a chance of one in a thousand.
    assert covered >= 86


def test_sums_of_a_useless_regression_are_no_better_than_the_mean():
    true, _ = regress(0, 600)
    _, predicted = regress(1, 600)
    assert not score_squares(SquareSums(square_sums(true, predicted, 0.0, 14.0), 14.0)).better_than_center
    few = score_squares(SquareSums([10.0, 10.0, 100.0], 14.0, Noise(scale=SENSITIVITY)))
    assert few.r2.hidden
    assert few.verdict


@given(arrays(np.float64, (5, 3), elements=st.floats(allow_nan=True)), st.integers(0, 4))
def test_a_record_moves_the_sums_by_at_most_their_sensitivity(true, left_out):
    sums = square_sums(true, np.zeros((5, 3)), 1.0, 2.0)
    less = square_sums(np.delete(true, left_out, 0), np.zeros((4, 3)), 1.0, 2.0)
    assert (sums == np.rint(sums)).all()
    assert np.abs(sums - less).sum() <= SENSITIVITY
    assert ((sums - less >= 0) & (sums - less <= UNITS)).all()


def test_what_does_not_fit_is_refused():
    with pytest.raises(InvalidValue, match="predicted"):
        ClassTable(np.zeros((10, 2)), np.zeros((9, 2)))
    with pytest.raises(InvalidValue, match="label"):
        class_table_of([2], [0], 2, 10)
    with pytest.raises(InvalidValue, match="bound"):
        square_sums([1.0], [1.0], 0.0, 0.0)
    with pytest.raises(InvalidValue, match="law"):
        Noise("normal", 1.0)
