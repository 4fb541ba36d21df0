"""Statistics of returns agree with SciPy's, and their intervals hold what they should."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, trim_mean

from tacit.control.agents.evaluation import (
    interquartile_mean,
    mean,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    stratified_bootstrap,
)
from tacit.errors import InvalidValue
from tacit.runtime.keys import Key

numbers = st.lists(st.integers(-5, 5), min_size=1, max_size=12)


@given(numbers)
def test_the_interquartile_mean_is_scipys_trimmed_mean(scores):
    assert interquartile_mean(scores) == pytest.approx(trim_mean(np.array(scores, float), 0.25))


def test_the_interquartile_mean_is_over_all_tasks_together():
    scores = np.random.default_rng(0).standard_t(2, size=(7, 5))
    assert interquartile_mean(scores) == pytest.approx(trim_mean(scores, 0.25, axis=None))
    assert interquartile_mean(list(scores.T)) == pytest.approx(trim_mean(scores, 0.25, axis=None))
    uneven = [scores[:3, 0], scores[:, 1]]
    assert interquartile_mean(uneven) == pytest.approx(trim_mean(np.concatenate(uneven), 0.25))


@given(numbers, numbers)
def test_the_probability_of_improvement_is_mann_and_whitneys(first, second):
    expected = mannwhitneyu(first, second).statistic / (len(first) * len(second))
    assert probability_of_improvement(first, second) == pytest.approx(expected)
    assert probability_of_improvement(second, first) == pytest.approx(1 - expected)


def test_the_probability_of_improvement_is_averaged_over_tasks():
    better, worse = np.array([[1.0, 5.0], [2.0, 6.0]]), np.array([[3.0, 0.0], [4.0, 0.0], [9.0, 0.0]])
    assert probability_of_improvement(better, worse) == pytest.approx(0.5)
    with pytest.raises(InvalidValue, match="as many tasks"):
        probability_of_improvement(better, worse[:, :1])


def test_the_mean_counts_every_task_the_same():
    assert mean([[1.0, 3.0], [10.0]]) == pytest.approx(6.0)
    assert mean(np.array([[1.0, 3.0], [3.0, 5.0]])) == pytest.approx(3.0)
    assert mean([1.0, 3.0]) == pytest.approx(2.0)


def test_the_optimality_gap_is_what_is_missing_to_the_target():
    scores = np.array([[100.0, 250.0], [200.0, 150.0]])
    assert optimality_gap(scores, 200.0) == pytest.approx(200 - np.minimum(scores, 200).mean())
    assert optimality_gap(scores, 50.0) == 0


def test_the_profile_is_the_share_above_each_threshold():
    scores, thresholds = np.random.default_rng(1).integers(0, 9, size=(6, 3)), np.arange(-1, 10)
    expected = [(scores > threshold).mean() for threshold in thresholds]
    np.testing.assert_allclose(performance_profile(scores, thresholds), expected)


@pytest.mark.parametrize("statistic", [mean, interquartile_mean, partial(optimality_gap, target=0.5)])
def test_the_bootstrap_repeats_by_its_key_and_holds_the_estimate(statistic):
    scores = np.random.default_rng(2).normal(size=(12, 4))
    found = stratified_bootstrap(scores, statistic, key=Key(1) / "a")
    assert found == stratified_bootstrap(scores, statistic, key=Key(1) / "a")
    assert found != stratified_bootstrap(scores, statistic, key=Key(1) / "b")
    estimate, low, high = found
    assert estimate == pytest.approx(float(statistic(scores)))
    assert low < estimate < high


def test_the_bootstrap_draws_within_tasks():
    # Two tasks far apart, each without spread: nothing else can be drawn.
    assert stratified_bootstrap([[0.0] * 5, [100.0] * 3], mean, key=Key(0)) == (50.0, 50.0, 50.0)


def test_the_bootstrap_is_the_same_in_parts(monkeypatch):
    from tacit.control.agents import evaluation

    scores = [np.arange(4.0), np.arange(9.0)]
    whole = stratified_bootstrap(scores, mean, key=Key(3), draws=4000)
    monkeypatch.setattr(evaluation, "AT_ONCE", 500)
    parts = stratified_bootstrap(scores, mean, key=Key(3), draws=4000)
    np.testing.assert_allclose(whole, parts, atol=0.1)


@pytest.mark.parametrize("statistic", [mean, interquartile_mean])
def test_intervals_hold_the_truth_about_as_often_as_they_say(statistic):
    generator, trials, held = np.random.default_rng(4), 200, 0
    shifts = np.array([0.0, 0.5, 1.0])
    truth = float(statistic(generator.normal(size=(200_000, 3)) + shifts))
    for trial in range(trials):
        scores = generator.normal(size=(25, 3)) + shifts
        _, low, high = stratified_bootstrap(scores, statistic, key=Key(trial), draws=300)
        held += low <= truth <= high
    assert 0.89 <= held / trials <= 0.99


@pytest.mark.parametrize("scores", [[], [[]], [[1.0], []], np.zeros((2, 2, 2)), [np.nan], [[1.0], [np.inf]]])
def test_scores_that_are_none_are_refused(scores):
    with pytest.raises(InvalidValue, match="scores"):
        mean(scores)


@pytest.mark.parametrize("change", [{"draws": 0}, {"level": 1.0}, {"level": 0}])
def test_intervals_that_are_none_are_refused(change):
    with pytest.raises(InvalidValue, match="is not allowed"):
        stratified_bootstrap([1.0, 2.0], mean, key=Key(0), **change)
