"""Attacks on membership are judged by their exact ROC curve."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from tacit.audits.membership_statistics import attack, membership, membership_scores
from tacit.errors import InvalidValue

# Few values, so that ties are common.
SCORES = st.lists(st.integers(0, 6), min_size=1, max_size=30)


@given(SCORES, SCORES)
def test_an_attack_is_judged_as_scikit_learn_judges_it(members, others):
    found = attack(members, others)
    labels, scores = [1] * len(members) + [0] * len(others), members + others
    false, true, _ = roc_curve(labels, scores, drop_intermediate=False)
    assert found.auc == pytest.approx(roc_auc_score(labels, scores))
    assert found.advantage == pytest.approx((true - false).max())
    assert found.found == pytest.approx(true[false <= 0.1].max())
    assert (found.members, found.others) == (len(members), len(others))


def test_scores_that_part_members_from_others_find_all_and_equal_ones_find_none():
    perfect, blind = attack([2.0, 3.0], [0.0, 1.0]), attack([1.0, 1.0], [1.0, 1.0])
    assert (perfect.auc, perfect.advantage, perfect.found) == (1, 1, 1)
    assert (blind.auc, blind.advantage, blind.found) == (0.5, 0, 0)


def test_a_threshold_may_take_exactly_the_share_of_others_that_is_allowed():
    others = np.arange(30.0)
    # Two of the three highest others, and then all members, are above 26.5.
    assert attack(np.full(5, 26.5), others, alarms=0.1).found == 1
    assert attack(np.full(5, 26.5), others, alarms=0.099).found == 0


def test_subjects_are_scored_by_the_length_of_residuals_and_of_predictions():
    times = np.linspace(0, 4, 401)
    true, predicted = np.vstack([0 * times, 0 * times + 1]), np.vstack([0 * times + 2, 0 * times + 1])
    found = membership_scores(true, predicted, times)
    np.testing.assert_allclose(found["loss"], [-16, 0])
    np.testing.assert_allclose(found["confidence"], [16, 4])
    holes = true.copy()
    holes[:, 100:200] = np.nan
    np.testing.assert_allclose(membership_scores(holes, predicted, times)["loss"], [-16, 0])


def test_curves_are_scored_alike_in_whatever_unit_of_time():
    days = np.array([0.0, 90.0, 180.0])
    true = np.array([[1.0, np.nan, 3.0], [2.0, 2.0, 2.0]])
    predicted = np.array([[2.0, 2.0, 2.0], [1.0, 2.0, 4.0]])
    by_days, by_centuries = (membership_scores(true, predicted, times) for times in (days, days / 36500))
    for score in ("loss", "confidence"):
        np.testing.assert_allclose(by_centuries[score] * 36500, by_days[score])


def test_a_model_that_has_learnt_by_heart_is_found_out_by_loss():
    draws = np.random.default_rng(0)
    x, y = draws.normal(size=(40, 30)), draws.normal(size=(40, 5))
    weights, *_ = np.linalg.lstsq(x, y, rcond=None)
    fresh_x, fresh_y = draws.normal(size=(200, 30)), draws.normal(size=(200, 5))
    found = membership((y, x @ weights), (fresh_y, fresh_x @ weights))
    assert found.loss.auc > 0.9
    halves = [
        membership_scores(fresh_y[part], fresh_x[part] @ weights)["loss"]
        for part in (slice(100), slice(100, None))
    ]
    assert 0.3 < attack(*halves).auc < 0.7
    assert json.loads(json.dumps(found.as_dict()))["loss"]["auc"] == found.loss.auc
    assert set(found.as_dict()) == {"loss", "confidence"}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: attack([], [1.0]), "members = 'shape"),
        (lambda: attack([1.0], [np.nan]), "others = 'NaN"),
        (lambda: attack([1.0], [1.0], alarms=1.5), "alarms = 1.5"),
        (lambda: membership_scores([[1.0]], [[1.0, 2.0]]), "curves = 'shapes"),
        (lambda: membership_scores([[1.0, 2.0]], [[1.0, np.nan]]), "predicted = 'NaN"),
        (lambda: membership_scores([[1.0, 2.0]], [[1.0, 2.0]], [0.0, 1.0, 2.0]), "times = '3 of them'"),
        (lambda: membership_scores([[np.nan, np.nan]], [[1.0, 2.0]]), "without a value"),
    ],
)
def test_what_cannot_be_attacked_is_told_in_one_sentence(call, words):
    with pytest.raises(InvalidValue, match=words):
        call()
