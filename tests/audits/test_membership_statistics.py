"""Attacks on membership: likelihood ratios of shadows, ROC curves for reports, and who is named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.metrics import roc_curve

from tacit.audits import membership_statistics
from tacit.audits.membership_statistics import (
    FEW_ALARMS,
    POINTS,
    TprAtFpr,
    _tpr,
    attack,
    lira,
    roc,
    tpr_at_fpr,
)
from tacit.errors import InvalidValue

SCORES = st.lists(st.integers(0, 6), min_size=1, max_size=30)


def drawn(models=17, records=200, shift=2.0, spread=5.0, seed=0):
    """Scores of records that are more or less hard; a member gains `shift`, in deviations of the models."""
    draws = np.random.default_rng(seed)
    present = draws.random((models, records)) < 0.5
    hard = spread * draws.normal(size=records)
    return hard + shift * present + draws.normal(size=(models, records)), present


@given(SCORES, SCORES)
def test_a_curve_for_reports_has_points_of_the_exact_one_from_none_to_all(members, others):
    found = roc(members, others)
    false, true, _ = roc_curve(
        [1] * len(members) + [0] * len(others), members + others, drop_intermediate=False
    )
    exact = set(zip(false.round(9).tolist(), true.round(9).tolist(), strict=True))
    points = list(zip(np.round(found["false"], 9).tolist(), np.round(found["true"], 9).tolist(), strict=True))
    assert set(points) <= exact
    assert points[0] == (0, 0)
    assert points[-1] == (1, 1)


def test_a_long_curve_is_thinned_and_keeps_the_end_of_few_false_alarms():
    draws = np.random.default_rng(0)
    members, others = draws.normal(1, 1, 4000), draws.normal(0, 1, 4000)
    found = roc(members, others)
    assert len(found["false"]) == len(found["true"]) <= POINTS
    few = sum(0 < false <= FEW_ALARMS for false in found["false"])
    assert few >= 30
    # Nobody who is named before the first false alarm is lost.
    assert max(true for false, true in zip(*found.values(), strict=True) if false == 0) == pytest.approx(
        (members > others.max()).mean()
    )


def test_ratios_tell_members_where_plain_scores_do_not():
    scores, present = drawn()
    ratios = lira(scores, present)
    plain, compared = (attack(found[present], found[~present]).auc for found in (scores, ratios))
    assert plain < 0.65
    # What the best attack on two normal laws two deviations apart has.
    assert compared == pytest.approx(norm.cdf(2 / np.sqrt(2)), abs=0.04)


def test_a_ratio_is_that_of_two_normal_laws_with_the_variance_of_all_records():
    scores, present = drawn(models=5, records=12)
    target, others, seen = scores[0], scores[1:], present[1:]
    laws = []
    for marks in (~seen, seen):
        groups = [column[chosen] for column, chosen in zip(others.T, marks.T, strict=True)]
        squares = sum(((group - group.mean()) ** 2).sum() for group in groups if len(group))
        free = sum(len(group) - 1 for group in groups if len(group))
        means = np.array([group.mean() if len(group) else np.nan for group in groups])
        laws.append(norm(means, np.sqrt(squares / free)))
    expected = laws[1].logpdf(target) - laws[0].logpdf(target)
    known = np.isfinite(expected)
    assert known.sum() > 6
    np.testing.assert_allclose(lira(scores, present)[0][known], expected[known])


def test_a_record_with_many_shadows_has_a_variance_of_its_own():
    scores, present = drawn(models=161, records=40)
    scores[:, 0] *= 10
    ratio = lira(scores, present)[0, 0]
    inside, outside = (scores[1:, 0][marks[1:, 0]] for marks in (present, ~present))
    laws = [norm(group.mean(), group.std(ddof=1)) for group in (outside, inside)]
    assert ratio == pytest.approx(laws[1].logpdf(scores[0, 0]) - laws[0].logpdf(scores[0, 0]))


def test_who_is_a_member_of_a_model_is_not_looked_at_to_attack_it():
    scores, present = drawn(models=6, records=30)
    other = present.copy()
    other[2] = ~other[2]
    np.testing.assert_array_equal(lira(scores, present)[2], lira(scores, other)[2])
    assert not np.array_equal(lira(scores, present)[0], lira(scores, other)[0])


def test_records_that_all_shadows_saw_or_none_and_scores_that_never_change_have_finite_ratios():
    scores, present = drawn(models=4, records=20)
    present[:, 0], present[:, 1], scores[:, 2] = True, False, 7.0
    assert np.isfinite(lira(scores, present)).all()
    same = lira(np.ones((4, 20)), present)
    assert np.isfinite(same).all()
    assert attack(same[present], same[~present]).found == 0
    assert np.isfinite(lira(scores, np.repeat([[True], [True], [False], [False]], 20, axis=1))).all()


def test_as_many_are_named_as_the_best_threshold_finds():
    scores, present = drawn(spread=0.0)
    found = tpr_at_fpr(scores, present)
    exact = attack(scores[present], scores[~present], alarms=FEW_ALARMS)
    assert found.found == pytest.approx(exact.found)
    assert found.low < found.found < found.high
    told = found.as_dict()
    assert (told["named"], told["alarms"]) == (round(100 * exact.found), 0.01)
    assert tpr_at_fpr(scores, present) == found


def test_who_guesses_names_as_many_members_as_others():
    held = [tpr_at_fpr(*drawn(shift=0.0, spread=1.0, seed=seed)) for seed in range(20)]
    assert np.mean([found.found for found in held]) == pytest.approx(FEW_ALARMS, abs=0.004)
    assert sum(found.low <= FEW_ALARMS <= found.high for found in held) >= 17


def test_models_that_differ_make_the_interval_longer():
    scores, present = drawn(spread=0.0)
    shifted = scores + 2 * np.random.default_rng(1).normal(size=(len(scores), 1))
    apart, alike = tpr_at_fpr(shifted, present), tpr_at_fpr(scores, present)
    binomial = 2 * 1.96 * np.sqrt(apart.found * (1 - apart.found) / present.sum())
    assert apart.high - apart.low > 3 * binomial
    assert (apart.high - apart.low) / apart.found > (alike.high - alike.low) / alike.found


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: lira(np.ones((2, 3)), np.eye(2, 3, dtype=bool)), "models = 2 .* at least 3"),
        (lambda: lira(np.ones((3, 3)), np.eye(3, 4, dtype=bool)), "scores and present = 'shapes"),
        (lambda: lira(np.ones((3, 3)), np.eye(3)), "of float64"),
        (lambda: lira(np.full((3, 3), np.nan), np.eye(3, dtype=bool)), "scores = 'NaN or infinity'"),
        (lambda: tpr_at_fpr(np.ones((3, 3)), np.ones((3, 3), dtype=bool)), "present = '9 of 9'"),
        (lambda: tpr_at_fpr(np.ones((3, 3)), np.eye(3, dtype=bool), alarms=2), "alarms = 2"),
        (lambda: roc([], [1.0]), "members = 'shape"),
    ],
)
def test_what_cannot_be_judged_is_told_in_one_sentence(call, words):
    with pytest.raises(InvalidValue, match=words):
        call()


def test_one_false_alarm_in_ten_is_one_of_ten_others_and_no_less():
    """The lowest score is another's: it counts among the ten."""
    members, others = [18.5, *range(10, 18), 9.5], [19.0, 18.0, *range(1, 9)]
    scores = np.array([[*others, *members]])
    present = np.array([[False] * 10 + [True] * 10])
    assert tpr_at_fpr(scores, present, alarms=0.09).found == 0.0
    assert tpr_at_fpr(scores, present, alarms=0.1).found == pytest.approx(1 / 10)
    assert tpr_at_fpr(scores, present, alarms=0.2).found == 1.0


def test_who_is_named_is_told_in_people_of_a_hundred():
    told = TprAtFpr(found=0.123, low=0.04, high=0.305, alarms=0.01).as_dict()
    assert told == {"found": 0.123, "alarms": 0.01, "named": 12, "low": 4, "high": 30}


def test_a_record_that_every_shadow_saw_gains_as_much_as_others_do():
    # Members gain 2; of the first record no shadow is without it, of the second none is with it.
    draws = np.random.default_rng(3)
    present = draws.random((9, 40)) < 0.5
    present[1:, 0], present[1:, 1] = True, False
    scores = 2.0 * present + 0.01 * draws.normal(size=(9, 40))
    for seen in (True, False):
        scores[0, :2] = 2.0 * seen
        ratios = lira(scores, present)[0]
        assert np.sign(ratios[:2]).tolist() == [1 if seen else -1] * 2


def test_a_weighting_without_members_or_without_others_finds_no_share():
    given, inside = np.array([[3.0, 2.0, 1.0]]), np.array([[True, True, False]])
    weights = [np.array([[1, 1, 1]]), np.array([[0, 0, 2]]), np.array([[1, 2, 0]])]
    assert _tpr(given, inside, weights, 0.5).tolist() == pytest.approx([1.0, np.nan, np.nan], nan_ok=True)


def test_ties_go_together_and_whoever_takes_everybody_finds_all_members():
    present = np.array([[False, True, False], [True, False, True]])
    scores = np.array([[2.0, 1.0, 1.0], [0.5, 2.0, 0.0]])
    assert tpr_at_fpr(scores, present, alarms=1.0).found == 1.0
    tied, of = np.array([[2.0, 1.0, 1.0]] * 2), np.array([[False, True, False]] * 2)
    assert tpr_at_fpr(tied, of, alarms=0.5).found == 0.0


def test_an_interval_leaves_out_as_much_below_as_above(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(membership_statistics, "_tpr", lambda *_: np.linspace(0.0, 1.0, 401))
    found = tpr_at_fpr(*drawn(3, 20))
    assert (found.low, found.high) == pytest.approx((0.025, 0.975), abs=1e-12)


def test_no_false_alarms_and_all_of_them_are_shares():
    scores, present = np.array([[1.0, 3.0, 2.0, 4.0]]), np.array([[False, True, False, True]])
    assert tpr_at_fpr(scores, present, alarms=0.0).found == 1.0
    assert tpr_at_fpr(-scores, present, alarms=0.0).found == 0.0
    assert tpr_at_fpr(-scores, present, alarms=1.0).found == 1.0
    for alarms in (-1e-9, 1 + 1e-9):
        with pytest.raises(InvalidValue, match="from 0 to 1"):
            tpr_at_fpr(scores, present, alarms=alarms)


def test_one_member_and_one_other_are_enough_for_a_share():
    given, inside = np.array([[2.0, 1.0]]), np.array([[True, False]])
    assert _tpr(given, inside, [np.ones((1, 2), dtype=np.int64)], 0.5).tolist() == [1.0]
