import math
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lifelines.utils import concordance_index
from sksurv.metrics import brier_score, concordance_index_censored, integrated_brier_score
from sksurv.nonparametric import CensoringDistributionEstimator
from sksurv.util import Surv

from tacit.errors import InvalidValue
from tacit.survival.metrics import Curve, brier, censoring, harrell, integrated_brier

# Few distinct values, so that times, risks and both together tie.
tied_records = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 4)), max_size=24)
free_records = st.lists(
    st.tuples(st.floats(0, 1e6), st.integers(0, 1), st.floats(-1e300, 1e300)), max_size=24
)  # fmt: skip
TIES = pytest.mark.parametrize("ties", [False, True], ids=["continuous", "tied"])


def columns(records):
    return tuple(np.array(column) for column in zip(*records, strict=True)) if records else ([], [], [])


def counts(records):
    """Comparable pairs and twice the concordant ones, straight from the definition."""
    pairs = twice = 0
    for time, event, risk in records:
        for other_time, other_event, other_risk in records:
            if event and (time < other_time or (time == other_time and not other_event)):
                pairs += 1
                twice += 2 * (risk > other_risk) + (risk == other_risk)
    return pairs, twice


def sample(seed, records, ties):
    """Times, events and risks that have something to do with each other."""
    draw = np.random.default_rng(seed)
    risk = draw.normal(size=records)
    events, censorings = draw.exponential(np.exp(-risk)), draw.exponential(1.5, size=records)
    time = np.minimum(events, censorings)
    noisy = risk + draw.normal(size=records)
    if ties:
        time, noisy = np.ceil(time * 10) / 10, np.round(noisy, 1)
    return time, (events < censorings).astype(int), noisy


def forecast(time, risk, ties, count=25):
    times = np.quantile(time, np.linspace(0.05, 0.9, count))
    times = np.unique(np.round(times, 1)) if ties else times
    return np.exp(-np.exp(0.5 * risk)[:, None] * times), times


# Concordance


@settings(max_examples=200)
@given(st.one_of(tied_records, free_records))
def test_concordance_is_what_counting_all_pairs_gives(records):
    pairs, twice = counts(records)
    assume(pairs > 0)
    assert harrell(*columns(records)) == float(Fraction(twice, 2 * pairs))


@TIES
@pytest.mark.parametrize("records", [2, 3, 64, 65, 300, 3000])
def test_concordance_is_that_of_lifelines_and_of_scikit_survival(records, ties):
    time, event, risk = sample(records, records, ties)
    event[np.argmin(time)] = 1
    ours = harrell(time, event, risk)
    assert ours == pytest.approx(concordance_index(time, -risk, event), abs=1e-12)
    assert ours == pytest.approx(concordance_index_censored(event == 1, time, risk)[0], abs=1e-12)


def test_twenty_thousand_records_agree_with_lifelines():
    time, event, risk = sample(1, 20_000, ties=False)
    assert harrell(time, event, risk) == pytest.approx(concordance_index(time, -risk, event), abs=1e-12)


@pytest.mark.parametrize(
    ("time", "event", "risk", "expected"),
    [
        ([1, 2, 3], [1, 1, 1], [3, 2, 1], 1),
        ([1, 2, 3], [1, 1, 1], [1, 2, 3], 0),
        ([1, 2, 3], [1, 1, 1], [3, 1, 2], 2 / 3),
        ([1, 2, 3], [1, 0, 1], [1, 9, 0], 1 / 2),
        ([1, 2], [1, 0], [5, 5], 1 / 2),
        ([2, 2], [1, 0], [1, 0], 1),
        ([2, 2, 3], [1, 1, 0], [0, 9, 5], 1 / 2),
        ([0, 5, 5, 7], [0, 1, 0, 0], [9, 2, 2, 1], 3 / 4),
    ],
    ids=[
        "perfect", "reversed", "one pair wrong", "a censored record has no later partner", "equal risks",
        "censored at the time of an event", "two events at once do not compare", "everything",
    ],
)  # fmt: skip
def test_small_tables_score_what_a_pencil_says(time, event, risk, expected):
    assert harrell(time, event, risk) == expected


@given(tied_records, st.randoms(use_true_random=False))
def test_the_order_of_records_does_not_matter(records, random):
    assume(counts(records)[0] > 0)
    shuffled = records.copy()
    random.shuffle(shuffled)
    assert harrell(*columns(shuffled)) == harrell(*columns(records))


@given(tied_records)
def test_only_the_order_of_risks_and_of_times_matters(records):
    assume(counts(records)[0] > 0)
    time, event, risk = columns(records)
    assert harrell(np.exp(time), event, np.exp(3 * risk) - 7) == harrell(time, event, risk)


@given(tied_records)
def test_opposite_risks_score_the_opposite(records):
    assume(counts(records)[0] > 0)
    time, event, risk = columns(records)
    assert harrell(time, event, -risk) == pytest.approx(1 - harrell(time, event, risk), abs=1e-15)


def test_one_risk_for_all_is_a_coin_toss():
    time, event, _ = sample(0, 100, ties=True)
    assert harrell(time, event, np.zeros(100)) == 0.5


def test_times_at_both_ends_of_the_floats_can_be_compared():
    assert harrell([-1.7e308, 1.7e308, 5e-324, 0.0], [1, 1, 1, 1], [4, 1, 2, 3]) == 1


def test_zero_has_no_sign():
    assert harrell([0.0, -0.0, 1.0], [1, 0, 0], [0.0, -0.0, 0.0]) == 0.5


@pytest.mark.parametrize(
    "form",
    [list, tuple, np.array, torch.tensor, lambda given: pd.Series(given, index=[7, 7, 1, 0][: len(given)])],
    ids=["list", "tuple", "array", "tensor", "series"],
)
def test_lists_arrays_series_and_tensors_are_all_read(form):
    time, event, risk = [1.0, 2.0, 3.0, 4.0], [True, False, True, False], [0.5, 0.25, 0.75, 0.0]
    assert harrell(form(time), form(event), form(risk)) == 3 / 4
    assert brier(form(time), form(event), [[0.5]] * 4, form([2.5])) == pytest.approx([0.25])
    assert censoring(form(time), form(event))(form([1, 2])).tolist() == pytest.approx([1, 2 / 3])


@pytest.mark.parametrize("form", [np.asfortranarray, pd.DataFrame, torch.from_numpy, np.float32])
def test_predictions_are_read_whatever_their_layout(form):
    time, event, risk = sample(2, 60, ties=False)
    survival, times = forecast(time, risk, ties=False)
    scores = brier(time, event, form(survival), times)
    assert scores == pytest.approx(brier(time, event, survival, times), abs=1e-6)


def test_scores_leave_their_inputs_alone():
    time, event, risk = sample(3, 50, ties=False)
    survival, times = forecast(time, risk, ties=False)
    before = [array.copy() for array in (time, event, risk, survival, times)]
    harrell(time, event, risk)
    integrated_brier(time, event, survival, times)
    for array, copy in zip((time, event, risk, survival, times), before, strict=True):
        assert np.array_equal(array, copy)


@pytest.mark.parametrize(
    ("time", "event", "risk"),
    [([1, 2, 3], [0, 0, 0], [1, 2, 3]), ([1], [1], [1]), ([1, 2], [0, 1], [1, 2]), ([2, 2], [1, 1], [1, 2])],
    ids=["all censored", "one record", "only the last has an event", "only tied events"],
)
def test_records_without_a_comparable_pair_have_no_concordance(time, event, risk):
    with pytest.raises(InvalidValue, match="no comparable pair"):
        harrell(time, event, risk)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["time", "event", "risk"])
def test_a_number_that_is_not_finite_is_refused_by_name(field, broken):
    given = {"time": [1.0, 2.0], "event": [1.0, 0.0], "risk": [1.0, 0.0], field: [1.0, broken]}
    with pytest.raises(InvalidValue, match=f"{field} = 'NaN or infinity'"):
        harrell(**given)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("time", [[1.0, 2.0]]),
        ("time", 3.0),
        ("time", []),
        ("event", [1]),
        ("event", [1, 0, 1]),
        ("risk", [1.0]),
        ("risk", [[1.0], [0.0]]),
        ("risk", ["high", "low"]),
        ("risk", [[1.0], [0.0, 2.0]]),
        ("risk", torch.tensor([1.0, 0.0], requires_grad=True)),
        ("event", [1, 2]),
        ("event", [1, -1]),
        ("event", [1, 0.5]),
    ],
)
def test_what_does_not_describe_each_record_once_is_refused_by_name(field, given):
    with pytest.raises(InvalidValue, match=f"^{field} .*must be"):
        harrell(**{"time": [1.0, 2.0], "event": [1, 0], "risk": [1.0, 0.0], field: given})


# The curve of the censoring times


def test_events_leave_before_the_censored_of_the_same_time():
    curve = censoring([1, 1, 2, 3], [1, 0, 0, 1])
    assert curve([0.5, 1, 1.5, 2, 9]) == pytest.approx([1, 2 / 3, 2 / 3, 1 / 3, 1 / 3])
    assert curve.before([0.5, 1, 1.5, 2, 9]) == pytest.approx([1, 1, 2 / 3, 2 / 3, 1 / 3])


def test_without_censoring_the_curve_stays_at_one():
    curve = censoring([1, 2, 3], [1, 1, 1])
    assert len(curve.times) == 0
    assert curve([0, 2, 5]).tolist() == curve.before([0, 2, 5]).tolist() == [1, 1, 1]


def test_a_single_time_is_answered_with_a_single_value():
    assert float(censoring([1, 2], [0, 1])(1.0)) == 0.5


@settings(max_examples=100)
@given(tied_records.filter(bool))
def test_the_curve_is_the_product_of_staying_uncensored(records):
    time, event, _ = columns(records)
    curve = censoring(time, event)
    for now in np.arange(-0.5, 6.5, 0.5):
        staying = Fraction(1)
        for step in sorted({int(t) for t in time[event == 0] if t <= now}):
            censored = int(((time == step) & (event == 0)).sum())
            staying *= 1 - Fraction(censored, int((time > step).sum()) + censored)
        assert float(curve(now)) == pytest.approx(float(staying), abs=1e-14)
        assert float(curve.before(now)) == float(curve(now - 0.25))


@TIES
def test_the_curve_is_that_of_scikit_survival(ties):
    time, event, _ = sample(5, 400, ties)
    theirs = CensoringDistributionEstimator().fit(Surv.from_arrays(event == 1, time))
    assert censoring(time, event)(time) == pytest.approx(theirs.predict_proba(time), abs=1e-14)


def test_a_curve_cannot_be_changed():
    steps = np.array([1.0, 2.0])
    curve = Curve(steps, np.array([0.5, 0.25]))
    steps[0] = 9.0
    assert curve.times.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        curve.values[0] = 0.1
    with pytest.raises(AttributeError):
        curve.values = steps


@pytest.mark.parametrize(
    ("times", "values", "field"),
    [
        ([2.0, 1.0], [0.5, 0.4], "times"),
        ([1.0, 1.0], [0.5, 0.4], "times"),
        ([1.0, math.nan], [0.5, 0.4], "times"),
        ([1.0, 2.0], [0.5], "values"),
        ([1.0], [1.5], "values"),
        ([1.0], [-0.1], "values"),
    ],
)
def test_a_curve_that_is_none_is_refused(times, values, field):
    with pytest.raises(InvalidValue, match=field):
        Curve(np.array(times), np.array(values))


# Brier scores


def brier_by_definition(time, event, survival, times, before, at):
    scores = []
    for column, now in enumerate(times):
        total = 0.0
        for record in range(len(time)):
            if time[record] <= now and event[record]:
                total += survival[record][column] ** 2 / before(time[record])
            elif time[record] > now:
                total += (1 - survival[record][column]) ** 2 / at(now)
        scores.append(total / len(time))
    return scores


@settings(max_examples=100)
@given(tied_records.filter(bool), st.integers(0, 2**32 - 1), st.sampled_from(["left", "right"]))
def test_brier_scores_are_what_their_definition_says(records, seed, rule):
    time, event, _ = columns(records)
    times = np.arange(-0.5, time.max(), 0.5)
    survival = np.random.default_rng(seed).random((len(time), len(times)))
    curve = censoring(time, event)
    weigh = curve.before if rule == "left" else curve
    expected = brier_by_definition(time, event, survival, times, weigh, curve)
    assert brier(time, event, survival, times, rule=rule) == pytest.approx(expected, abs=1e-12)


@TIES
def test_many_predictions_are_scored_as_few_are(ties):
    time, event, risk = sample(10, 400, ties)
    survival, times = forecast(time, risk, ties)
    few = brier(time, event, survival, times)
    with patch("tacit.survival.metrics.brier_score.FEW_PREDICTIONS", 0):
        assert brier(time, event, survival, times) == pytest.approx(few, abs=1e-14)


@TIES
def test_by_the_right_rule_brier_scores_are_those_of_scikit_survival(ties):
    time, event, risk = sample(11, 500, ties)
    survival, times = forecast(time, risk, ties)
    outcome = Surv.from_arrays(event == 1, time)
    ours = brier(time, event, survival, times, rule="right")
    assert ours == pytest.approx(brier_score(outcome, outcome, survival, times)[1], abs=1e-12)
    integrated = integrated_brier(time, event, survival, times, rule="right")
    expected = integrated_brier_score(outcome, outcome, survival, times)
    assert integrated == pytest.approx(expected, abs=1e-12)


@TIES
def test_the_curve_of_training_data_weights_as_in_scikit_survival(ties):
    time, event, risk = sample(12, 300, ties)
    train_time, train_event, _ = sample(13, 900, ties)
    train_time, train_event = np.append(train_time, time.max() + 1), np.append(train_event, 1)
    survival, times = forecast(time, risk, ties)
    ours = brier(
        time, event, survival, times, censoring=censoring(train_time, train_event), rule="right"
    )  # fmt: skip
    train, test = Surv.from_arrays(train_event == 1, train_time), Surv.from_arrays(event == 1, time)
    assert ours == pytest.approx(brier_score(train, test, survival, times)[1], abs=1e-12)


def test_without_ties_the_rules_agree_and_with_ties_they_do_not():
    for ties in (False, True):
        time, event, risk = sample(14, 300, ties)
        survival, times = forecast(time, risk, ties)
        left = brier(time, event, survival, times)
        assert np.allclose(left, brier(time, event, survival, times, rule="right"), atol=1e-12) != ties


@settings(max_examples=100)
@given(tied_records.filter(bool))
def test_a_constant_half_scores_a_quarter_as_the_weights_add_up_to_one(records):
    time, event, _ = columns(records)
    times = np.arange(-0.5, time.max(), 0.5)
    assert brier(time, event, np.full((len(time), len(times)), 0.5), times) == pytest.approx(0.25)


def test_without_censoring_the_score_is_the_mean_squared_error():
    time, _, risk = sample(15, 200, ties=False)
    survival, times = forecast(time, risk, ties=False)
    alive = time[:, None] > times
    expected = ((alive - survival) ** 2).mean(axis=0)
    assert brier(time, np.ones(200), survival, times) == pytest.approx(expected, abs=1e-14)


def test_a_small_table_scores_what_a_pencil_says():
    # The curve is 1 before time 2 and 2/3 from there on; one record had its event, one is censored.
    scores = brier([1, 2, 3, 4], [1, 0, 1, 1], [[0.5], [0.9], [0.8], [0.6]], [2.5])
    assert scores == pytest.approx([(0.25 + 0.04 * 1.5 + 0.16 * 1.5) / 4])


def test_who_knows_everything_scores_zero():
    time, event, _ = sample(16, 100, ties=True)
    times = np.array([0.1, 0.3, 0.7])
    assert brier(time, event, time[:, None] > times, times).tolist() == [0, 0, 0]


def test_times_are_scored_in_the_order_given():
    time, event, risk = sample(17, 100, ties=False)
    survival, times = forecast(time, risk, ties=False)
    backwards = brier(time, event, survival[:, ::-1], times[::-1])
    assert backwards[::-1] == pytest.approx(brier(time, event, survival, times), abs=1e-15)


def test_no_times_have_no_scores():
    assert brier([1, 2], [1, 0], np.zeros((2, 0)), []).shape == (0,)


def test_records_in_another_order_score_the_same():
    time, event, risk = sample(18, 100, ties=True)
    survival, times = forecast(time, risk, ties=True)
    order = np.random.default_rng(0).permutation(100)
    shuffled = brier(time[order], event[order], survival[order], times)
    assert shuffled == pytest.approx(brier(time, event, survival, times), abs=1e-14)


def test_the_integral_is_the_mean_height_of_the_trapezoids():
    time, event, survival = [1, 2, 3], [1, 1, 1], [[1, 0.5, 0], [1, 0.5, 0.5], [1, 1, 0]]
    heights = brier(time, event, survival, [0, 1, 3])
    expected = ((heights[0] + heights[1]) / 2 * 1 + (heights[1] + heights[2]) / 2 * 2) / 3
    assert integrated_brier(time, event, survival, [0, 1, 3]) == pytest.approx(expected)


def test_beyond_the_last_record_only_events_are_scored():
    assert brier([1, 2], [1, 1], [[0.5], [0.1]], [5.0]) == pytest.approx([(0.25 + 0.01) / 2])
    # The curve ends at 0 here, but nobody is left to be weighted by it.
    assert brier([1, 2], [1, 0], [[0.5], [0.1]], [5.0]) == pytest.approx([0.25 / 2])


def test_where_nobody_is_uncensored_there_is_no_score():
    gone = Curve(np.array([1.5]), np.array([0.0]))
    with pytest.raises(InvalidValue, match="censoring = '0 at time 3'"):
        brier([1, 3, 4], [1, 1, 1], np.zeros((3, 1)), [3.0], censoring=gone)
    with pytest.raises(InvalidValue, match="censoring = '0 at time 2'"):
        brier([1, 3, 4], [1, 1, 1], np.zeros((3, 1)), [2.0], censoring=gone)
    assert brier([1, 3, 4], [1, 1, 1], np.ones((3, 1)), [1.0], censoring=gone) == pytest.approx([1 / 3])


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("survival", np.zeros((2, 3))),
        ("survival", np.zeros(3)),
        ("survival", [[0.5, math.nan]] * 3),
        ("survival", [[0.5, 1.1]] * 3),
        ("survival", [[-0.5, 0.5]] * 3),
        ("times", [1.0, math.inf]),
        ("times", [[1.0, 2.0]]),
        ("event", [1, 0, 2]),
        ("time", [1.0, 2.0, math.nan]),
        ("rule", "middle"),
    ],
)
def test_what_cannot_be_scored_is_refused_by_name(field, given):
    usual = {"time": [1, 2, 3], "event": [1, 0, 1], "survival": [[0.9, 0.5]] * 3, "times": [1.0, 2.0]}
    with pytest.raises(InvalidValue, match=f"^{field} .*must be"):
        brier(**{**usual, field: given})


@pytest.mark.parametrize("times", [[1.0], [2.0, 1.0], [1.0, 1.0]])
def test_an_integral_needs_two_times_in_order(times):
    with pytest.raises(InvalidValue, match="at least two, in increasing order"):
        integrated_brier([1, 2, 3], [1, 0, 1], np.full((3, len(times)), 0.5), times)


def test_probabilities_that_single_precision_rounds_up_are_let_through():
    survival = np.full((3, 1), np.nextafter(np.float32(1), np.float32(2)))
    assert brier([1, 2, 3], [1, 1, 1], survival, [0.5]) == pytest.approx([0.0], abs=1e-12)
