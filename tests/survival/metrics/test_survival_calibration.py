from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lifelines import KaplanMeierFitter
from lifelines.datasets import load_lung, load_rossi
from scipy import stats
from sklearn.metrics import roc_auc_score
from sksurv.datasets import load_gbsg2, load_veterans_lung_cancer, load_whas500
from sksurv.metrics import cumulative_dynamic_auc
from sksurv.util import Surv

from tacit.errors import InvalidValue
from tacit.survival.metrics import Curve, auc, censoring, d_calibration, mean_auc
from tacit.survival.metrics.brier_score import kaplan_meier

tied_records = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 4)), max_size=24)
TIES = pytest.mark.parametrize("ties", [False, True], ids=["continuous", "tied"])
SETS = pytest.mark.parametrize("name", ["gbsg2", "veteran", "whas500", "rossi", "lung"])
NEVER = Curve(np.array([]), np.array([]))


@cache
def real(name):
    """Times, events and one measurement that goes with early events: real ties in real places."""
    loaders = {"gbsg2": load_gbsg2, "veteran": load_veterans_lung_cancer, "whas500": load_whas500}
    if name in loaders:
        features, outcome = loaders[name]()
        event, time = (outcome[field] for field in outcome.dtype.names)
        column, sign = {"gbsg2": ("pnodes", 1), "veteran": ("Karnofsky_score", -1), "whas500": ("age", 1)}[
            name
        ]
        return time.astype(float), event.astype(int), sign * features[column].to_numpy(dtype=float)
    table, columns = {
        "rossi": (load_rossi(), ("week", "arrest", "prio")),
        "lung": (load_lung(), ("time", "status", "age")),
    }[name]
    time, event, risk = (table[column].to_numpy(dtype=float) for column in columns)
    return time, event.astype(int), risk


def sample(seed, records, ties):
    draw = np.random.default_rng(seed)
    risk = draw.normal(size=records)
    events, censorings = draw.exponential(np.exp(-risk)), draw.exponential(1.5, size=records)
    time, noisy = np.minimum(events, censorings), risk + draw.normal(size=records)
    if ties:
        time, noisy = np.ceil(time * 10) / 10, np.round(noisy, 1)
    return time, (events < censorings).astype(int), noisy


def grid(time, event, count=12):
    """Times of records, so that they tie with events, from the first event on."""
    inside = np.unique(time[(time >= time[event == 1].min()) & (time < np.quantile(time, 0.95))])
    return np.unique(inside[np.linspace(0, len(inside) - 1, count).astype(int)])


def changing(risk, times):
    """A risk for each time whose order is not the same at all times."""
    return np.round(np.sin(risk[:, None] + np.linspace(0, 3, len(times))), 2)


def columns(records):
    return tuple(np.array(column) for column in zip(*records, strict=True))


def outcome(event, time):
    return Surv.from_arrays(event == 1, time)


# The area under the curve


def auc_by_definition(time, event, risk, now, weights):
    above = below = 0.0
    for i in range(len(time)):
        for j in range(len(time)):
            if event[i] and time[i] <= now < time[j]:
                above += weights[i] * ((risk[i] > risk[j]) + (risk[i] == risk[j]) / 2)
                below += weights[i]
    return above / below


@settings(max_examples=80)
@given(tied_records, st.sampled_from(["left", "right"]), st.booleans())
def test_areas_are_what_weighing_all_pairs_gives(records, rule, each):
    assume(any(event for _, event, _ in records))
    time, event, risk = columns(records)
    times = np.arange(time[event == 1].min(), time.max(), 0.5)
    curve = Curve(np.array([1.0, 3.0, 4.0]), np.array([0.8, 0.5, 0.25]))
    weights = 1 / (curve.before if rule == "left" else curve)(time)
    risks = changing(risk, times) if each else np.repeat(risk[:, None], len(times), axis=1)
    expected = [
        auc_by_definition(time, event, column, now, weights)
        for column, now in zip(risks.T, times, strict=True)
    ]
    ours = auc(time, event, risks if each else risk, times, censoring=curve, rule=rule)
    assert ours == pytest.approx(expected, abs=1e-12)


@TIES
@pytest.mark.parametrize("records", [20, 300, 3000])
def test_areas_and_their_mean_are_those_of_scikit_survival(records, ties):
    time, event, risk = sample(records, records, ties)
    times = grid(time, event)
    for risks in (risk, changing(risk, times)):
        theirs, mean = cumulative_dynamic_auc(outcome(event, time), outcome(event, time), risks, times)
        assert auc(time, event, risks, times) == pytest.approx(theirs, abs=1e-12)
        assert mean_auc(time, event, risks, times) == pytest.approx(mean, abs=1e-12)


@SETS
def test_on_real_data_areas_are_those_of_scikit_survival(name):
    time, event, risk = real(name)
    # The weights of events at the very end may be infinite there; they are needed at no time that is scored.
    kept = (event == 0) | (time < time.max())
    time, event, risk = time[kept], event[kept], risk[kept]
    times = grid(time, event)
    for risks in (risk, changing(risk, times)):
        theirs, mean = cumulative_dynamic_auc(outcome(event, time), outcome(event, time), risks, times)
        assert auc(time, event, risks, times) == pytest.approx(theirs, abs=1e-12)
        assert mean_auc(time, event, risks, times) == pytest.approx(mean, abs=1e-12)


@TIES
def test_the_censoring_of_training_data_weights_areas_as_in_scikit_survival(ties):
    time, event, risk = sample(1, 300, ties)
    train_time, train_event, _ = sample(2, 900, ties)
    train_time, train_event = np.append(train_time, time.max() + 1), np.append(train_event, 1)
    times, curve = grid(time, event), censoring(train_time, train_event)
    train, test = outcome(train_event, train_time), outcome(event, time)
    theirs, mean = cumulative_dynamic_auc(train, test, risk, times)
    assert auc(time, event, risk, times, censoring=curve) == pytest.approx(theirs, abs=1e-12)
    assert mean_auc(time, event, risk, times, censoring=curve) == pytest.approx(mean, abs=1e-12)


def test_events_after_the_last_time_scored_need_no_weight():
    # At week 52 all who are left are censored, and four are arrested: scikit-survival answers for no week.
    time, event, risk = real("rossi")
    with pytest.raises(ValueError, match="zero at one or more time points"):
        cumulative_dynamic_auc(outcome(event, time), outcome(event, time), risk, [20, 40])
    areas = auc(time, event, risk, [20, 40])
    assert ((areas > 0.5) & (areas < 0.8)).all()


def test_without_censoring_the_area_is_that_of_a_classifier():
    time, _, risk = sample(3, 200, ties=True)
    for now, area in zip((0.3, 0.9), auc(time, np.ones(200), risk, [0.3, 0.9]), strict=True):
        assert area == pytest.approx(roc_auc_score(time <= now, risk), abs=1e-12)


def test_a_small_table_has_the_areas_a_pencil_says():
    # By time 2 the first and the third have had their events, and those left are at risks 2 and 1.
    time, event, risk = [1, 1.5, 2, 3, 4], [1, 0, 1, 1, 0], [3, 9, 1, 2, 1]
    assert auc(time, event, risk, [2], censoring=NEVER) == pytest.approx([(2 + 0.5) / 4])
    # Of three left at 1.5, one was censored: the later event stands for more than itself.
    assert auc(time, event, risk, [2]) == pytest.approx([(2 + 4 / 3 * 0.5) / (2 + 4 / 3 * 2)])


def test_the_rules_differ_only_where_events_and_censorings_tie():
    for ties in (False, True):
        time, event, risk = sample(4, 300, ties)
        times = grid(time, event)
        left, right = (auc(time, event, risk, times, rule=rule) for rule in ("left", "right"))
        assert np.allclose(left, right, atol=1e-9) != ties


@settings(max_examples=50)
@given(tied_records, st.randoms(use_true_random=False))
def test_only_the_order_of_risks_matters_and_not_that_of_records(records, random):
    assume(any(event for _, event, _ in records))
    time, event, risk = columns(records)
    times = np.arange(time[event == 1].min(), time.max(), 0.5)
    areas = auc(time, event, risk, times, rule="left")
    assert auc(time, event, np.exp(3 * risk) - 7, times, rule="left").tolist() == areas.tolist()
    assert auc(time, event, -risk, times, rule="left") == pytest.approx(1 - areas, abs=1e-12)
    random.shuffle(records)
    assert auc(*columns(records), times, rule="left") == pytest.approx(areas, abs=1e-12)


def test_times_are_scored_in_the_order_given_and_no_times_have_no_areas():
    time, event, risk = sample(5, 100, ties=False)
    times = grid(time, event)
    risks = changing(risk, times)
    backwards = auc(time, event, risks[:, ::-1], times[::-1])
    assert backwards[::-1].tolist() == auc(time, event, risks, times).tolist()
    assert auc(time, event, risk, []).shape == (0,)


def test_risks_of_one_column_may_stand_for_one_time():
    time, event, risk = sample(6, 50, ties=False)
    assert auc(time, event, torch.tensor(risk)[:, None], [0.5]) == auc(time, event, risk, [0.5])
    assert mean_auc(time, event, risk, [0.5]) == pytest.approx(auc(time, event, risk, [0.5])[0], abs=1e-15)


def test_the_mean_is_weighted_by_the_drops_of_survival():
    time, event, risk = [1, 2, 3, 4, 5], [1, 1, 0, 1, 1], [2, 4, 3, 1, 5]
    first, second = auc(time, event, risk, [1, 4])
    drops = [1 / 5, 4 / 5 - 3 / 5 * 1 / 2]
    expected = (first * drops[0] + second * drops[1]) / sum(drops)
    assert mean_auc(time, event, risk, [1, 4]) == pytest.approx(expected, abs=1e-15)


@SETS
def test_the_curve_of_survival_is_that_of_lifelines(name):
    time, event, _ = real(name)
    theirs = KaplanMeierFitter().fit(time, event).predict(np.unique(time)).to_numpy()
    assert kaplan_meier(time, event)(np.unique(time)) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"times": [0.5]}, r"times = '\[0.5\]'.*at or after the first event"),
        ({"times": [1, 3]}, r"times = '\[3.\]'.*before the last time of a record"),
        ({"event": [0, 0, 0]}, "at or after the first event"),
        ({"times": [1, np.inf]}, "times = 'NaN or infinity'"),
        ({"risk": [1, 2]}, "risk .*one per record"),
        ({"risk": [[1, 2], [3, 4]]}, "risk .*records, times"),
        ({"risk": [[1], [2, 3], [4]]}, "risk is not allowed"),
        ({"risk": [1, 2, np.nan]}, "risk = 'NaN or infinity'"),
        ({"rule": "middle"}, 'rule .*"left" or "right"'),
        ({"censoring": Curve(np.array([0.5]), np.array([0.0]))}, "censoring = '0 at time 1'"),
    ],
)
def test_what_has_no_area_is_refused_by_name(change, message):
    usual = {"time": [1, 2, 3], "event": [1, 1, 0], "risk": [3, 2, 1], "times": [1, 2]}
    with pytest.raises(InvalidValue, match=message):
        auc(**{**usual, **change})


@pytest.mark.parametrize("times", [[], [2, 1], [1, 1]])
def test_a_mean_needs_times_in_order(times):
    with pytest.raises(InvalidValue, match="at least one, in increasing order"):
        mean_auc([1, 2, 3], [1, 1, 0], [3, 2, 1], times)


# D-calibration


def shares_by_definition(event, survival, bins):
    """Record by record, in fractions: an event falls into one bin, a censored record covers 0 to S."""
    mass = [Fraction(0)] * bins
    for seen, chance in zip(event, survival, strict=True):
        for index in range(bins):
            low, high = Fraction(index, bins), Fraction(index + 1, bins)
            if seen or chance == 0:
                mass[index] += low <= chance < high or (index == bins - 1 and chance == 1)
            else:
                mass[index] += max(min(high, chance) - low, Fraction(0)) / chance
    return [part / len(event) for part in mass]


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 24)), min_size=1, max_size=30), st.integers(2, 12)
)
def test_shares_are_what_spreading_each_record_gives(records, bins):
    # Twenty-fourths fall on the ends of many bins.
    event, parts = columns(records)
    survival = [Fraction(int(part), 24) for part in parts]
    expected = shares_by_definition(event, survival, bins)
    found = d_calibration(np.arange(len(event)), event, parts / 24, bins)
    assert found.shares == pytest.approx([float(share) for share in expected], abs=1e-12)
    statistic = sum(len(event) * bins * (share - Fraction(1, bins)) ** 2 for share in expected)
    assert found.statistic == pytest.approx(float(statistic), abs=1e-9)


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 200), st.integers(2, 40))
def test_the_test_is_pearsons(seed, records, bins):
    draw = np.random.default_rng(seed)
    event, survival = draw.integers(0, 2, records), draw.random(records) ** 2
    statistic, p_value, shares = d_calibration(np.ones(records), event, survival, bins)
    assert shares.sum() == pytest.approx(1, abs=1e-12)
    theirs = stats.chisquare(shares * records)
    assert statistic == pytest.approx(theirs.statistic, abs=1e-9)
    assert p_value == pytest.approx(theirs.pvalue, abs=1e-12)


@pytest.mark.parametrize("bins", [2, 3, 10, 11, 100, 501])
def test_the_tail_is_that_of_scipy_from_end_to_end(bins):
    for power in (1.01, 1.1, 1.5, 3, 9):
        survival = np.linspace(0, 1, 400) ** power
        statistic, p_value, _ = d_calibration(np.ones(400), np.ones(400), survival, bins)
        assert p_value == pytest.approx(stats.chi2.sf(statistic, bins - 1), rel=1e-9, abs=1e-300)


def test_evenly_spread_events_are_perfectly_calibrated():
    found = d_calibration(np.ones(50), np.ones(50), (np.arange(50) + 0.5) / 50)
    assert found.statistic == pytest.approx(0, abs=1e-12)
    assert found.p_value == pytest.approx(1, abs=1e-12)
    assert found.shares == pytest.approx(0.1)


def test_who_is_censored_at_the_start_says_nothing():
    found = d_calibration(np.zeros(7), np.zeros(7), np.ones(7))
    assert found.shares == pytest.approx(0.1)
    assert found.statistic == pytest.approx(0, abs=1e-12)


def test_who_is_censored_after_all_hope_is_gone_falls_into_the_lowest_bin():
    for nothing in (0.0, 5e-324, 1e-300):
        assert d_calibration([1, 2], [0, 0], [nothing, nothing], 4).shares.tolist() == [1, 0, 0, 0]


def test_a_bin_includes_its_lower_end_and_the_last_one_both():
    shares = d_calibration(np.ones(11), np.ones(11), np.arange(11) / 10).shares
    assert shares == pytest.approx([1 / 11] * 9 + [2 / 11])
    # 3/10 is below the third end of linspace(0, 1, 11), which is not the nearest number to 3/10.
    assert d_calibration([1], [1], [0.3]).shares.tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]


def test_a_censored_record_is_split_as_a_pencil_says():
    assert d_calibration([1], [0], [0.6], 4).shares == pytest.approx([5 / 12, 5 / 12, 1 / 6, 0])


def test_true_predictions_pass_and_wrong_ones_fail():
    draw = np.random.default_rng(0)
    passes, fails = [], []
    for _ in range(200):
        rate = np.exp(draw.normal(size=500))
        events, censorings = draw.exponential(1 / rate), draw.exponential(2, size=500)
        time, event = np.minimum(events, censorings), events < censorings
        passes.append(d_calibration(time, event, np.exp(-rate * time)).p_value)
        fails.append(d_calibration(time, event, np.exp(-2 * rate * time)).p_value)
    # Spread censored records make the test lenient, so that at 5 % fewer than 5 % are refused.
    assert np.mean(np.array(passes) < 0.05) < 0.05
    assert max(fails) < 1e-6


def test_without_censoring_true_predictions_have_evenly_spread_p_values():
    draw = np.random.default_rng(1)
    found = [d_calibration(np.ones(400), np.ones(400), draw.random(400)).p_value for _ in range(400)]
    assert stats.kstest(found, "uniform").pvalue > 0.01


@SETS
def test_kaplan_meier_is_calibrated_on_real_data_by_and_large(name):
    time, event, _ = real(name)
    curve = kaplan_meier(time, event)
    found = d_calibration(time, event, (curve(time) + curve.before(time)) / 2)
    assert found.shares == pytest.approx(0.1, abs=0.03)


def test_single_precision_is_let_through():
    above = np.nextafter(np.float32(1), np.float32(2))
    assert d_calibration([1], [1], [above], 2).shares.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"survival_at_time": [0.5]}, "survival_at_time .*one per record"),
        ({"survival_at_time": [0.5, 1.1]}, "survival_at_time .*probabilities"),
        ({"survival_at_time": [0.5, np.nan]}, "survival_at_time = 'NaN or infinity'"),
        ({"event": [1, 2]}, "event = '2'"),
        ({"bins": 1}, "bins = 1"),
        ({"bins": 2.5}, "bins = 2.5"),
    ],
)
def test_what_cannot_be_tested_is_refused_by_name(change, message):
    usual = {"time": [1, 2], "event": [1, 0], "survival_at_time": [0.9, 0.5]}
    with pytest.raises(InvalidValue, match=message):
        d_calibration(**{**usual, **change})
