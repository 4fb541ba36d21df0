"""A time grid that is bought: near the quantiles of the event times, in whatever unit time is told."""

from contextlib import suppress
from itertools import pairwise

import numpy as np
import pytest

from tacit import Federation, Key, Privacy, fit
from tacit.errors import InvalidValue
from tacit.privacy.mechanisms.base import NoPrivacy
from tacit.sites.table import Table, from_arrays
from tacit.survival import LogisticHazard
from tacit.survival.models.learner import EDGES, EventCounts, TimeGridQuery

PROMISE = Privacy(unit="record", epsilon=1.0, delta=1e-5, clip=1.0, rehearsal=True)
SITES = 5

# Times of about 1, as far apart as survival times are.
SHAPES = {
    "exponential": lambda draw, size: draw.exponential(size=size),
    "weibull, late": lambda draw, size: draw.weibull(3.0, size),
    "weibull, early": lambda draw, size: draw.weibull(0.6, size),
    "lognormal": lambda draw, size: draw.lognormal(0.0, 0.8, size),
    "narrow": lambda draw, size: draw.uniform(1.0, 1.1, size),
    "two waves": lambda draw, size: np.where(
        draw.random(size) < 0.5, draw.uniform(0.1, 0.2, size), draw.uniform(2.0, 3.0, size)
    ),
    "whole units": lambda draw, size: np.ceil(draw.exponential(size=size) * 12) / 12,
}
UNITS = (1e-3, 1.0, 365.0, 1e5)


def records(time: np.ndarray, event: np.ndarray | None = None) -> Table:
    happened = np.ones(len(time)) if event is None else event
    return from_arrays(np.zeros((len(time), 1)), time=time, event=happened)


def asked(data: Federation, cuts: int, privacy: Privacy | None = PROMISE, seed: int = 0) -> list[float]:
    """The grid that sites tell, as a run asks for it."""
    question = TimeGridQuery(cuts)
    mechanism = NoPrivacy() if privacy is None else privacy.solve_query(question, NoPrivacy())
    nothing = np.zeros(0)
    told = question.train(nothing, data.cohort(list(data)), mechanism, Key(seed, rehearsal=True)).matrix
    return question.decode(told.mean(axis=0))["cuts"]


def federation(shape: str, unit: float, size: int = 600, censored: float = 0.3) -> Federation:
    draw, tables = np.random.default_rng(7), {}
    for site in range(SITES):
        time = SHAPES[shape](draw, size) * unit
        # Censored ones at odd times: they must not matter.
        event = (draw.random(size) >= censored).astype(float)
        time = np.where(event > 0, time, time * draw.choice([1e-4, 1e4], size))
        tables[f"site-{site}"] = records(np.maximum(time, 1e-9 * unit), event)
    return Federation(tables)


def events(data: Federation) -> np.ndarray:
    return np.sort(data.store.targets["time"][data.store.targets["event"] > 0])


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "two waves"])
def test_a_bought_grid_follows_the_quantiles_of_the_event_times(shape, unit):
    data = federation(shape, unit)
    happened = events(data)
    assert len(happened) > 2000
    for seed in range(4):
        cuts = np.array(asked(data, 10, seed=seed))
        assert 5 <= len(cuts) <= 10
        assert all(low < high for low, high in pairwise([0.0, *cuts]))
        # Inside the range of the events, up to the width of two cells of the histogram.
        assert happened[0] / 2 <= cuts[0]
        assert cuts[-2] <= 2 * happened[-1]
        # Each end has about the share of the events before it that it should have; cells are coarse.
        if shape != "narrow":
            before = np.searchsorted(happened, cuts) / len(happened)
            assert np.abs(before - np.linspace(0, 0.99, 11)[1:]).max() < 0.25


def test_with_much_to_spend_it_follows_them_closely():
    data = federation("lognormal", 365.0)
    happened = events(data)
    generous = Privacy(unit="record", epsilon=8.0, delta=1e-5, clip=1.0, rehearsal=True)
    before = np.searchsorted(happened, asked(data, 10, generous)) / len(happened)
    assert np.abs(before - np.linspace(0, 0.99, 11)[1:]).max() < 0.04


@pytest.mark.parametrize("privacy", [None, PROMISE], ids=["without noise", "epsilon 1"])
def test_events_in_two_waves_are_both_seen(privacy):
    data = federation("two waves", 365.0)
    cuts = np.array(asked(data, 10, privacy))
    # From 36 to 73 days, and from 730 to 1095: half of them in each.
    assert 2 <= (cuts < 150).sum() <= 7
    assert 2 <= (cuts > 500).sum() <= 7


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("shape", SHAPES)
def test_without_noise_ends_fall_into_the_cells_of_the_quantiles(shape, unit):
    data = federation(shape, unit, censored=0.0)
    happened, cuts = events(data), asked(data, 8, None)
    assert happened[0] / np.sqrt(2) <= cuts[0]
    assert cuts[-1] <= happened[-1] * np.sqrt(2)
    if shape != "two waves":
        wanted = np.quantile(happened, np.linspace(0, 0.99, 9)[1:])
        assert np.abs(np.searchsorted(EDGES, cuts) - np.searchsorted(EDGES, wanted)).max() <= 1


def test_events_of_a_single_moment_give_cuts_around_it():
    data = Federation({"oslo": records(np.full(1000, 700.0))})
    for privacy in (None, PROMISE):
        cuts = asked(data, 20, privacy)
        assert 700 / np.sqrt(2) <= cuts[0] < cuts[-1] <= 700 * np.sqrt(2)


def test_a_change_of_unit_changes_the_grid_by_that_unit():
    """Powers of the base of the cells move everything by whole cells."""
    data = {scale: federation("exponential", scale) for scale in (1.0, 2.0**9)}
    one, other = (np.array(asked(part, 10, None)) for part in data.values())
    np.testing.assert_allclose(other, one * 2.0**9, rtol=1e-12)


def test_censored_records_do_not_matter():
    time = np.random.default_rng(0).exponential(size=500)
    alone = Federation({"oslo": records(time)})
    event = np.concatenate([np.ones(500), np.zeros(500)])
    beside = Federation({"oslo": records(np.concatenate([time, np.full(500, 40.0)]), event)})
    assert asked(alone, 6, None) == asked(beside, 6, None)


def test_only_the_shape_of_the_answers_matters_not_their_size():
    question = TimeGridQuery(6)
    told = EventCounts(np.random.default_rng(0).exponential(size=900), np.ones(900, bool)).total(None)[0]
    one, other = (question.decode(scale * told)["cuts"] for scale in (1.0, 1e-4))
    np.testing.assert_allclose(other, one, rtol=1e-9)


def test_times_beyond_all_cells_fall_into_the_outermost():
    counts = EventCounts(np.array([1e-300, 1e-9, 1e9, 1e300]), np.ones(4, dtype=bool)).total(None)[0]
    assert (counts[0], counts[-1], counts.sum()) == (2, 2, 4)
    data = Federation({"oslo": records(np.full(100, 1e12))})
    cuts = asked(data, 4, None)
    assert all(low < high for low, high in pairwise([0.0, *cuts]))


@pytest.mark.parametrize("cuts", [1, 2, 50])
def test_any_number_of_intervals_may_be_asked_for(cuts):
    found = asked(federation("exponential", 1.0), cuts, None)
    assert 1 <= len(found) <= cuts


# Where noise hides everything


def test_where_noise_hides_everything_the_error_says_so():
    question = TimeGridQuery(5)
    cells = len(EDGES) - 1
    for told in (np.zeros(cells), np.full(cells, -3.0), -np.random.default_rng(0).random(cells)):
        with pytest.raises(InvalidValue, match=r"^cuts cannot be placed: the noise hides.*public `horizon`"):
            question.decode(told)


@pytest.mark.parametrize("seed", range(8))
def test_noise_alone_gives_that_error_or_a_grid(seed):
    told = np.random.default_rng(seed).normal(size=len(EDGES) - 1) * 20
    cuts: list[float] = []
    with suppress(InvalidValue):
        cuts = TimeGridQuery(5).decode(told)["cuts"]
    assert all(low < high for low, high in pairwise([0.0, *cuts]))
    assert all(EDGES[0] <= cut <= EDGES[-1] for cut in cuts)


def test_a_run_on_a_bought_grid_learns():
    draw, tables = np.random.default_rng(1), {}
    for name in "abcd":
        features = draw.normal(size=(500, 2))
        time = draw.exponential(size=500) * np.exp(-1.2 * features[:, 0]) * 365
        tables[name] = from_arrays(features, time=time, event=(draw.random(500) < 0.8).astype(float))
    held_out = tables.pop("d")
    data = Federation(tables, held_out=held_out, held_out_public=True)
    task = LogisticHazard(hidden=(), cuts=8, steps=5, sample=0.3, lr=0.5)
    run = fit(task, data, privacy=Privacy(unit="record", epsilon=6.0, delta=1e-5, clip=1.0), rounds=15)
    assert run.scores["c_index"] > 0.65
    assert run.scores["ibs"] < 0.25
