from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines.datasets import load_lung
from sksurv.datasets import load_whas500

from tacit.errors import InvalidValue
from tacit.runtime.keys import Key
from tacit.survival import metrics
from tacit.survival.metrics import (
    antolini,
    bootstrap,
    d_calibration,
    harrell,
    integrated_brier,
    mean_auc,
    uno,
)


def sample(seed, records):
    draw = np.random.default_rng(seed)
    risk = draw.normal(size=records)
    events, censorings = draw.exponential(np.exp(-risk)), draw.exponential(1.5, size=records)
    time = np.minimum(events, censorings)
    return time, (events < censorings).astype(int), risk + draw.normal(size=records)


def seen_by(*arrays, repeats=20, **options):
    """The columns a metric is called with, first as given and then for every draw."""
    calls = []

    def metric(*columns):
        calls.append(columns)
        return 0.5

    bootstrap(metric, *arrays, repeats=repeats, **options)
    return calls[0], calls[1:]


def test_what_the_module_offers_is_complete_sorted_and_there():
    assert metrics.__all__ == sorted(metrics.__all__)
    for name in metrics.__all__:
        assert getattr(metrics, name).__name__ == name
    wanted = {"harrell", "uno", "antolini", "brier", "integrated_brier", "auc", "d_calibration", "bootstrap"}
    assert wanted <= set(metrics.__all__)


def test_the_same_seed_gives_the_same_interval_and_another_seed_another():
    records = sample(0, 150)
    assert bootstrap(harrell, *records, repeats=40) == bootstrap(harrell, *records, repeats=40, seed=0)
    assert bootstrap(harrell, *records, repeats=40) != bootstrap(harrell, *records, repeats=40, seed=1)


def test_an_interval_lies_around_the_score_and_a_wider_level_around_it():
    records = sample(1, 300)
    low, high = bootstrap(harrell, *records)
    assert low < harrell(*records) < high
    wider, narrower = (bootstrap(harrell, *records, level=level) for level in (0.99, 0.5))
    assert wider[0] < low < narrower[0] < narrower[1] < high < wider[1]


@settings(max_examples=40)
@given(st.lists(st.integers(0, 1), min_size=1, max_size=20), st.integers(0, 2**32))
def test_every_draw_has_as_many_events_and_keeps_records_whole(event, seed):
    time = np.arange(len(event)) + 0.5
    table = np.stack([time, 10 * time], axis=1)
    given, draws = seen_by(time, event, table, seed=seed, repeats=5)
    assert [column.tolist() for column in given] == [time.tolist(), event, table.tolist()]
    for drawn_time, drawn_event, drawn_table in draws:
        assert drawn_event.sum() == sum(event)
        assert len(drawn_time) == len(event)
        assert (np.array(event)[(drawn_time - 0.5).astype(int)] == drawn_event).all()
        assert np.array_equal(drawn_table, np.stack([drawn_time, 10 * drawn_time], axis=1))


def test_each_record_of_its_kind_is_drawn_equally_often():
    _, draws = seen_by(np.arange(10), [1] * 4 + [0] * 6, repeats=2000)
    often = np.bincount(np.concatenate([time for time, _ in draws]), minlength=10) / 2000
    assert often == pytest.approx(1, abs=0.1)


def test_the_draws_are_those_of_the_key_named_bootstrap():
    time, event, risk = sample(2, 40)
    draws, groups = (Key(7) / "bootstrap").generator(), [np.flatnonzero(event == kind) for kind in (0, 1)]
    scores = []
    for _ in range(30):
        rows = np.concatenate([draws.choice(group, len(group)) for group in groups])
        scores.append(harrell(time[rows], event[rows], risk[rows]))
    expected = np.quantile(scores, [0.05, 0.95])
    assert bootstrap(harrell, time, event, risk, repeats=30, seed=7, level=0.9) == pytest.approx(expected)


def test_the_interval_of_a_mean_is_the_one_of_the_textbook():
    draw = np.random.default_rng(3)
    value = draw.normal(5, 2, size=400)
    low, high = bootstrap(lambda time, event: float(time.mean()), value, np.ones(400), repeats=4000)
    error = 1.96 * value.std() / 20
    assert (low, high) == pytest.approx((value.mean() - error, value.mean() + error), abs=0.03)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    truth = harrell(*sample(4, 100_000))
    covered = 0
    for seed in range(60):
        low, high = bootstrap(harrell, *sample(100 + seed, 120), repeats=60, level=0.9)
        covered += low <= truth <= high
    assert 46 <= covered <= 60


@pytest.mark.parametrize("name", ["whas500", "lung"])
def test_every_score_of_real_data_has_an_interval(name):
    if name == "whas500":
        features, outcome = load_whas500()
        time, event, risk = outcome["lenfol"], outcome["fstat"], features["age"].to_numpy(dtype=float)
    else:
        table = load_lung()
        time, event, risk = (table[column].to_numpy(dtype=float) for column in ("time", "status", "age"))
    times = np.quantile(time, [0.1, 0.3, 0.5])
    scaled = (risk - risk.mean()) / risk.std()
    survival = np.exp(-np.exp(0.3 * scaled)[:, None] * times / time.mean())
    reached = np.exp(-np.exp(0.3 * scaled) * time / time.mean())
    scores = {
        "harrell": (harrell, risk),
        "uno": (partial(uno, tau=times[-1]), risk),
        "antolini": (partial(antolini, times=times), survival),
        "integrated_brier": (partial(integrated_brier, times=times), survival),
        "mean_auc": (partial(mean_auc, times=times), risk),
        "d_calibration": (lambda *columns: d_calibration(*columns).statistic, reached),
    }
    for name, (metric, prediction) in scores.items():
        low, high = bootstrap(metric, time, event, prediction, repeats=30)
        assert low < high, name
        assert name == "d_calibration" or low <= metric(time, event, prediction) <= high


@pytest.mark.parametrize("form", [list, torch.tensor, lambda given: pd.Series(given, index=range(50, 0, -1))])
def test_lists_series_and_tensors_are_read(form):
    records = sample(5, 50)
    expected = bootstrap(harrell, *records, repeats=10)
    assert bootstrap(harrell, *(form(column) for column in records), repeats=10) == expected


def test_records_of_one_kind_are_enough():
    low, high = bootstrap(lambda time, event: float(time.mean()), [1, 2, 3], [0, 0, 0], repeats=50)
    assert 1 <= low < high <= 3


def test_a_draw_that_cannot_be_scored_is_skipped():
    # Only if the earlier event is drawn is there a pair: three draws in four.
    low, high = bootstrap(harrell, [1, 3, 2], [1, 1, 0], [3, 1, 2], repeats=100)
    assert (low, high) == (1, 1)

    def sometimes(time, event):
        return float("nan") if 1 not in time else float(time.mean())

    assert bootstrap(sometimes, [1, 2, 3], [1, 1, 1], repeats=50)[0] >= 1


def test_if_most_draws_cannot_be_scored_there_is_no_interval():
    def whole(time, event):
        if len(set(time)) < 6:
            raise InvalidValue("time: there is no comparable pair")
        return 1.0

    with pytest.raises(InvalidValue, match=r"metric = '. scores of 100 draws'.*at least half"):
        bootstrap(whole, np.arange(6), np.ones(6), repeats=100)


def test_what_is_wrong_with_the_records_themselves_is_not_skipped():
    with pytest.raises(InvalidValue, match="no comparable pair"):
        bootstrap(harrell, [1, 2], [0, 0], [1, 2])
    with pytest.raises(InvalidValue, match="risk = 'NaN or infinity'"):
        bootstrap(harrell, [1, 2], [1, 0], [1, np.nan])
    with pytest.raises(InvalidValue, match="metric = 'NaN or infinity'"):
        bootstrap(lambda time, event: float("nan"), [1, 2], [1, 0])


def test_a_bug_of_the_metric_is_not_hidden():
    calls = []

    def broken(time, event):
        calls.append(1)
        return 1.0 if len(calls) == 1 else 1 / 0

    with pytest.raises(ZeroDivisionError):
        bootstrap(broken, [1, 2], [1, 0])


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        (([1, 2],), {}, "arrays = '1 of them'.*time and event"),
        (([1, 2], [1, 0], [1, 2, 3]), {}, r"array 2 = 'shape \(3,\)'.*by functools.partial"),
        (([1, 2], [1, 0], 5), {}, "array 2 = .*of 2 records"),
        (([1, 2], [1, 0], [[1], [2, 3]]), {}, "array 2 is not allowed"),
        (([1, 2], [1, 3]), {}, "event = '3'"),
        (([], []), {}, "at least one record"),
        (([1, 2], [1, 0]), {"repeats": 0}, "repeats = 0"),
        (([1, 2], [1, 0]), {"repeats": 2.5}, "repeats = 2.5"),
        (([1, 2], [1, 0]), {"level": 1.0}, "level = 1.0"),
        (([1, 2], [1, 0]), {"level": 95}, "level = 95"),
    ],
)
def test_what_cannot_be_drawn_from_is_refused_by_name(arrays, options, message):
    with pytest.raises(InvalidValue, match=message):
        bootstrap(lambda *columns: 0.5, *arrays, **options)
