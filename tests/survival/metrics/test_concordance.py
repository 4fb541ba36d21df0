from fractions import Fraction
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from lifelines.datasets import load_lung, load_rossi
from lifelines.utils import concordance_index
from sksurv.datasets import load_gbsg2, load_veterans_lung_cancer, load_whas500
from sksurv.metrics import concordance_index_censored, concordance_index_ipcw
from sksurv.util import Surv

from tacit.errors import InvalidValue
from tacit.survival.metrics import Curve, antolini, censoring, concordance, harrell, uno

# Few distinct values, so that times, risks and both together tie.
tied_records = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 4)), max_size=24)
seeds = st.integers(0, 2**32 - 1)
counting = st.sampled_from([0, 2**16])
TIES = pytest.mark.parametrize("ties", [False, True], ids=["continuous", "tied"])
MODES = pytest.mark.parametrize("mode", ["half", "pycox", "adjusted"])
SETS = pytest.mark.parametrize("name", ["gbsg2", "veteran", "whas500", "rossi", "lung"])


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


def crossing(time, risk, ties, count=20):
    """Weibull curves whose shape depends on the risk, so that they cross, and a grid inside of the times."""
    times = np.unique(np.quantile(time, np.linspace(0.03, 0.9, count)))
    scaled = (risk - risk.mean()) / (risk.std() + 1e-9)
    scale = np.quantile(time, 0.6) + 1e-9
    survival = np.exp(
        -np.exp(0.4 * scaled)[:, None] * (times / scale) ** (1 + 0.3 * np.tanh(scaled))[:, None]
    )
    return (np.round(survival, 1) if ties else survival), times


def columns(records):
    return tuple(np.array(column) for column in zip(*records, strict=True)) if records else ([], [], [])


def outlives(time, event, other_time, other_event):
    return event and (time < other_time or (time == other_time and not other_event))


def outcome(event, time):
    return Surv.from_arrays(event == 1, time)


# Harrell's


@SETS
def test_on_real_data_harrell_is_that_of_lifelines_and_of_scikit_survival(name):
    time, event, risk = real(name)
    ours = harrell(time, event, risk)
    assert ours == pytest.approx(concordance_index(time, -risk, event), abs=1e-12)
    assert ours == pytest.approx(concordance_index_censored(event == 1, time, risk)[0], abs=1e-12)


@settings(max_examples=50)
@given(tied_records)
def test_few_pairs_and_many_are_counted_alike(records):
    time, event, risk = columns(records)
    assume(any(outlives(*one[:2], *other[:2]) for one in records for other in records))
    with patch.object(concordance, "FEW_PAIRS", 0):
        many = harrell(time, event, risk)
    assert harrell(time, event, risk) == many


# Uno's


def uno_by_definition(time, event, risk, weights, tau):
    above = below = 0.0
    for i in range(len(time)):
        for j in range(len(time)):
            if outlives(time[i], event[i], time[j], event[j]) and time[i] < tau:
                above += weights[i] * ((risk[i] > risk[j]) + (risk[i] == risk[j]) / 2)
                below += weights[i]
    return above / below if below else None


@settings(max_examples=80)
@given(
    tied_records.filter(bool),
    st.sampled_from(["left", "right"]),
    st.sampled_from([None, 2, 2.5, 9]),
    counting,
)
def test_uno_is_what_weighing_all_pairs_gives(records, rule, tau, few):
    time, event, risk = columns(records)
    curve = Curve(np.array([1.0, 3.0, 4.0]), np.array([0.8, 0.5, 0.25]))
    weights = 1 / (curve.before if rule == "left" else curve)(time) ** 2
    expected = uno_by_definition(time, event, risk, weights, np.inf if tau is None else tau)
    assume(expected is not None)
    with patch.object(concordance, "FEW_PAIRS", few):
        ours = uno(time, event, risk, censoring=curve, tau=tau, rule=rule)
    assert ours == pytest.approx(expected, abs=1e-12)


@settings(max_examples=50)
@given(tied_records.filter(bool))
def test_by_default_uno_weights_by_the_censoring_of_the_records_themselves(records):
    time, event, risk = columns(records)
    assume(any(outlives(*one[:2], *other[:2]) for one in records for other in records))
    assert uno(time, event, risk, rule="left") == uno(
        time, event, risk, rule="left", censoring=censoring(time, event)
    )


@TIES
@pytest.mark.parametrize("records", [3, 64, 300, 2000])
def test_uno_is_that_of_scikit_survival(records, ties):
    time, event, risk = sample(records, records, ties)
    event[np.argmin(time)] = 1
    tau = np.quantile(time, 0.9) if records > 3 else time.max()
    theirs = concordance_index_ipcw(outcome(event, time), outcome(event, time), risk, tau=tau)[0]
    assert uno(time, event, risk, tau=tau) == pytest.approx(theirs, abs=1e-12)


@TIES
def test_the_censoring_of_training_data_weights_as_in_scikit_survival(ties):
    time, event, risk = sample(1, 400, ties)
    train_time, train_event, _ = sample(2, 900, ties)
    train_time, train_event = np.append(train_time, time.max() + 1), np.append(train_event, 1)
    theirs = concordance_index_ipcw(outcome(train_event, train_time), outcome(event, time), risk)[0]
    ours = uno(time, event, risk, censoring=censoring(train_time, train_event))
    assert ours == pytest.approx(theirs, abs=1e-12)


@SETS
@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
def test_on_real_data_uno_is_that_of_scikit_survival(name, share):
    time, event, risk = real(name)
    tau = time.min() + share * (time.max() - time.min())
    theirs = concordance_index_ipcw(outcome(event, time), outcome(event, time), risk, tau=tau)[0]
    assert uno(time, event, risk, tau=tau) == pytest.approx(theirs, abs=1e-12)


def test_where_scikit_survival_has_no_weight_we_have_none_by_its_rule_but_one_by_the_other():
    # Of those released in Rossi's study, some are arrested in the very week in which all others are censored.
    time, event, risk = real("rossi")
    with pytest.raises(ValueError, match="zero at one or more time points"):
        concordance_index_ipcw(outcome(event, time), outcome(event, time), risk)
    with pytest.raises(InvalidValue, match="censoring = '0 at time 52'"):
        uno(time, event, risk)
    assert 0.5 < uno(time, event, risk, rule="left") < 0.7


def test_without_censoring_uno_is_harrell():
    time, _, risk = sample(3, 200, ties=True)
    assert uno(time, np.ones(200), risk) == pytest.approx(harrell(time, np.ones(200), risk), abs=1e-14)


def test_the_rules_of_uno_differ_only_where_events_and_censorings_tie():
    for ties in (False, True):
        time, event, risk = sample(4, 300, ties)
        tau = np.quantile(time, 0.9)
        left, right = (uno(time, event, risk, tau=tau, rule=rule) for rule in ("left", "right"))
        assert (abs(left - right) > 1e-6) == ties


def test_events_count_before_tau_and_not_at_it():
    time, event, risk = [1, 2, 3], [1, 1, 0], [3, 1, 2]
    assert uno(time, event, risk) == uno(time, event, risk, tau=2.5) == 2 / 3
    assert uno(time, event, risk, tau=2) == 1


@settings(max_examples=50)
@given(tied_records.filter(bool), st.randoms(use_true_random=False))
def test_only_the_order_of_risks_matters_to_uno_and_not_that_of_records(records, random):
    assume(any(outlives(*one[:2], *other[:2]) for one in records for other in records))
    time, event, risk = columns(records)
    expected = uno(time, event, risk, rule="left")
    assert uno(time, event, np.exp(3 * risk) - 7, rule="left") == expected
    assert uno(time, event, -risk, rule="left") == pytest.approx(1 - expected, abs=1e-12)
    random.shuffle(records)
    assert uno(*columns(records), rule="left") == pytest.approx(expected, abs=1e-12)


def test_uno_finds_the_concordance_that_censoring_hides_from_harrell():
    draw = np.random.default_rng(5)
    risk = draw.normal(size=20_000)
    events, censorings = draw.exponential(np.exp(-1.5 * risk)), draw.exponential(0.4, size=20_000)
    truth = uno(events, np.ones(20_000), risk, tau=1)
    time, event = np.minimum(events, censorings), events < censorings
    assert uno(time, event, risk, tau=1) == pytest.approx(truth, abs=5e-3)
    assert uno(time, event, risk, tau=1, censoring=Curve(np.array([]), np.array([]))) > truth + 1e-2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"event": [0, 0, 0]}, "no comparable pair"),
        ({"tau": 1}, "no comparable pair"),
        ({"tau": np.nan}, "tau = 'NaN or infinity'"),
        ({"tau": "late"}, "tau is not allowed"),
        ({"tau": [1, 2]}, "tau .*one time"),
        ({"rule": "middle"}, 'rule = \'middle\'.*"left" or "right"'),
        ({"risk": [1, 2]}, "risk .*one per record"),
        ({"time": [1, 2, np.inf]}, "time = 'NaN or infinity'"),
        ({"censoring": Curve(np.array([0.5]), np.array([0.0]))}, "censoring = '0 at time 1'"),
    ],
)
def test_what_uno_cannot_score_is_refused_by_name(change, message):
    usual = {"time": [1, 2, 3], "event": [1, 0, 1], "risk": [3, 2, 1]}
    with pytest.raises(InvalidValue, match=message):
        uno(**{**usual, **change})


# Antolini's


def at(times, time):
    return max(int(np.searchsorted(times, time, side="right")) - 1, 0)


def antolini_by_definition(time, event, survival, times, mode):
    """Pair by pair; the modes of pycox as its `_is_comparable` and `_is_concordant` have them."""
    above, below = Fraction(0), 0
    for i in range(len(time)):
        for j in range(len(time)):
            if i == j:
                continue
            own, other = survival[i][at(times, time[i])], survival[j][at(times, time[i])]
            lower = (own < other) + Fraction(1, 2) * (own == other)
            if outlives(time[i], event[i], time[j], event[j]):
                above += lower if mode != "pycox" else own < other
                below += 1
            elif mode == "adjusted" and time[i] == time[j] and (event[i] or event[j]):
                both = Fraction(1, 2) * (1 + (own == other))
                above += both if event[i] else 1 - lower
                below += 1
    return above / below if below else None


@settings(max_examples=100)
@given(tied_records.filter(bool), seeds, st.sampled_from(["half", "pycox", "adjusted"]), counting, counting)
def test_antolini_is_what_comparing_all_pairs_gives(records, seed, mode, few, some):
    time, event, _ = columns(records)
    draw = np.random.default_rng(seed)
    times = np.sort(draw.choice(np.arange(-1, 7, 0.5), size=draw.integers(1, 6), replace=False))
    survival = draw.integers(0, 4, size=(len(time), len(times))) / 3
    expected = antolini_by_definition(time, event, survival, times, mode)
    assume(expected is not None)
    with patch.multiple(concordance, FEW_PAIRS=few, SOME_PAIRS=some):
        assert antolini(time, event, survival, times, ties=mode) == float(expected)


def antolini_by_matrix(time, event, survival, times, mode):
    column = np.maximum(np.searchsorted(times, time, side="right") - 1, 0)
    own, other = survival[np.arange(len(time)), column][:, None], survival[:, column].T
    lower = (own < other) + (0.0 if mode == "pycox" else 0.5) * (own == other)
    seen, tied = (event == 1)[:, None], (time[:, None] == time) & ~np.eye(len(time), dtype=bool)
    usual = seen & ((time[:, None] < time) | (tied & (event == 0)))
    above, below = (lower * usual).sum(), usual.sum()
    if mode == "adjusted":
        both, one = tied & seen & (event == 1), tied & ~seen & (event == 1)
        above += ((1 + (own == other)) / 2 * both).sum() + ((1 - lower) * one).sum()
        below += (both | one).sum()
    return above / below


@SETS
@MODES
@TIES
def test_on_real_data_antolini_is_what_comparing_all_pairs_gives(name, mode, ties):
    time, event, risk = real(name)
    survival, times = crossing(time, risk, ties)
    ours = antolini(time, event, survival, times, ties=mode)
    assert ours == pytest.approx(antolini_by_matrix(time, event, survival, times, mode), abs=1e-12)


@TIES
@MODES
@pytest.mark.parametrize("count", [1, 3, 1200])
def test_neither_few_times_nor_many_change_what_antolini_counts(mode, ties, count):
    time, event, risk = sample(6, 1200, ties)
    survival, times = crossing(time, risk, ties, count)
    ours = antolini(time, event, survival, times, ties=mode)
    assert ours == pytest.approx(antolini_by_matrix(time, event, survival, times, mode), abs=1e-12)


@TIES
def test_curves_that_never_cross_score_what_harrell_says(ties):
    time, event, risk = sample(7, 500, ties)
    times = np.unique(np.quantile(time, np.linspace(0.1, 0.9, 15)))
    survival = np.exp(-np.exp(0.3 * risk)[:, None] * times)
    assert antolini(time, event, survival, times) == harrell(time, event, risk)


def test_with_one_time_antolini_is_harrell_of_the_survival_then():
    time, event, risk = sample(8, 300, ties=True)
    survival = np.exp(-np.exp(risk))[:, None]
    assert antolini(time, event, survival, [0.7]) == harrell(time, event, risk)


def test_curves_that_cross_are_judged_at_the_time_of_the_event():
    time, event, times = [1, 3, 4], [1, 1, 0], [0, 2]
    # The first record is worst off early, the second one late.
    assert antolini(time, event, [[0.1, 0.9], [0.8, 0.2], [0.9, 0.3]], times) == 1
    assert antolini(time, event, [[0.9, 0.1], [0.8, 0.2], [0.1, 0.3]], times) == 1 / 3


def test_a_prediction_holds_from_its_time_on_and_the_first_one_before_as_well():
    event, survival, times = [1, 0], [[0.1, 0.9], [0.9, 0.1]], [1, 2]
    scores = {time: antolini([time, 5], event, survival, times) for time in (0.5, 1, 1.9, 2, 4)}
    assert scores == {0.5: 1, 1: 1, 1.9: 1, 2: 0, 4: 0}


def test_without_ties_all_ways_to_treat_them_agree():
    time, event, risk = sample(9, 400, ties=False)
    survival, times = crossing(time, risk, ties=False)
    half, pycox, adjusted = (
        antolini(time, event, survival, times, ties=mode) for mode in ("half", "pycox", "adjusted")
    )
    assert half == pycox == adjusted


def test_one_prediction_for_all_is_a_coin_toss_and_nothing_to_pycox():
    time, event, _ = sample(10, 100, ties=False)
    same, times = np.full((100, 3), 0.5), [0.1, 0.2, 0.3]
    assert antolini(time, event, same, times) == antolini(time, event, same, times, ties="adjusted") == 0.5
    assert antolini(time, event, same, times, ties="pycox") == 0


def test_events_at_one_time_count_only_when_adjusted():
    time, event, times = [2, 2, 3], [1, 1, 0], [0]
    assert antolini(time, event, [[0.1], [0.2], [0.3]], times) == 1
    assert antolini(time, event, [[0.1], [0.2], [0.3]], times, ties="adjusted") == 3 / 4
    assert antolini(time, event, [[0.2], [0.2], [0.3]], times, ties="adjusted") == 1
    assert antolini([2, 2], [1, 1], [[0.1], [0.2]], times, ties="adjusted") == 1 / 2


@settings(max_examples=50)
@given(tied_records.filter(bool), seeds)
def test_only_the_order_of_survival_at_each_time_matters_to_antolini(records, seed):
    assume(any(outlives(*one[:2], *other[:2]) for one in records for other in records))
    time, event, _ = columns(records)
    draw, times = np.random.default_rng(seed), np.array([0, 1.5, 3])
    survival = draw.integers(0, 5, size=(len(time), 3)) / 4
    expected = antolini(time, event, survival, times)
    assert antolini(time, event, survival ** np.array([1, 2, 3]), times) == expected
    assert antolini(time, event, 1 - survival, times) == pytest.approx(1 - expected, abs=1e-12)
    order = draw.permutation(len(time))
    assert antolini(time[order], event[order], survival[order], times) == expected


@pytest.mark.parametrize("form", [np.asfortranarray, torch.from_numpy, np.float32, np.ndarray.tolist])
def test_survival_is_read_whatever_its_layout(form):
    time, event, risk = sample(11, 100, ties=True)
    survival, times = crossing(time, risk, ties=True)
    before = survival.copy()
    assert antolini(time, event, form(survival), times) == antolini(time, event, survival, times)
    assert np.array_equal(survival, before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"event": [0, 0, 0]}, "no comparable pair"),
        ({"time": [2, 2, 2], "event": [1, 1, 1]}, "no comparable pair"),
        ({"times": [1.0]}, r"survival = 'shape \(3, 2\)'"),
        ({"times": []}, "at least one, in increasing order"),
        ({"times": [2.0, 1.0]}, "at least one, in increasing order"),
        ({"times": [1.0, 1.0]}, "at least one, in increasing order"),
        ({"survival": [[0.5, 1.1]] * 3}, "probabilities, from 0 to 1"),
        ({"survival": [[0.5, np.nan]] * 3}, "survival = 'NaN or infinity'"),
        ({"ties": "halves"}, 'did you mean "half"'),
    ],
)
def test_what_antolini_cannot_score_is_refused_by_name(change, message):
    usual = {"time": [1, 2, 3], "event": [1, 0, 1], "survival": [[0.9, 0.5]] * 3, "times": [1.0, 2.0]}
    with pytest.raises(InvalidValue, match=message):
        antolini(**{**usual, **change})
