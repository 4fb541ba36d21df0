"""Sketches: the same people are recognized in part, and values that other people have too are not enough."""

import numpy as np
import pytest

from tacit.privacy.ledger.data_index import Index
from tacit.runtime.fingerprints import People, count_cells, sketch_table
from tacit.runtime.sketches import SKETCH, WHOLE, compare, mix, sketch, sketch_column


def judge(one, other):
    below = min(one.shape.below, other.shape.below)
    taken = one.elements[one.elements <= np.uint64(below - 1)]
    return compare(int(np.isin(taken, other.elements).sum()), one.shape, other.shape)


def drawn(seed, count, cells):
    return mix(np.random.default_rng(seed).integers(0, cells, count).astype(np.uint64))


@pytest.mark.parametrize("count", [100, 500, 5000])
@pytest.mark.parametrize("cells", [8, 96, 730, 20_000, 10**6])
@pytest.mark.parametrize("view", ["records", "part"])
def test_other_people_who_share_values_are_other_people(count, cells, view):
    found = [
        judge(sketch(drawn(2 * seed, count, cells), view), sketch(drawn(2 * seed + 1, count, cells), view))
        for seed in range(20)
    ]
    assert "same" not in found


@pytest.mark.parametrize("count", [100, 500, 5000])
@pytest.mark.parametrize("cells", [8, 96, 730, 20_000, 10**6])
def test_the_same_people_without_one_are_recognised_however_alike_they_look(count, cells):
    digests = drawn(1, count, cells)
    assert judge(sketch(digests), sketch(digests[1:])) == "same"
    assert judge(sketch(digests[1:], "part"), sketch(digests, "part")) == "same"


def test_a_few_against_many_who_share_their_days_are_other_people():
    for seed in range(50):
        few, many = sketch(drawn(seed, 20, 365), "part"), sketch(drawn(seed + 50, 500, 365), "part")
        assert judge(few, many) == judge(many, few) == "other"


def test_records_that_are_all_written_several_times_count_once():
    digests = drawn(0, 300, 10**9)
    assert sketch(np.repeat(digests, 3)).elements.tolist() == sketch(digests).elements.tolist()


def test_of_many_records_those_with_the_smallest_digests_stand_for_all():
    digests = drawn(3, 3 * SKETCH, 10**12)
    whole, part = sketch(digests), sketch(digests[: SKETCH // 2])
    assert (len(whole.elements), whole.shape.count, part.shape.below) == (SKETCH, 3 * SKETCH, WHOLE)
    assert judge(whole, part) == "same"
    assert judge(whole, sketch(drawn(4, SKETCH, 10**12))) == "other"


def test_columns_are_sketched_where_most_values_are_their_own():
    draws = np.random.default_rng(0)
    assert sketch_column(mix(draws.integers(0, 50, 200).astype(np.uint64)), 50.0, 1024) is None
    many = mix(draws.integers(0, 10**12, 100_000).astype(np.uint64))
    found = sketch_column(many, 1e12, 1024)
    assert len(found.elements) == 1024
    assert found.shape.count == pytest.approx(100_000, rel=0.1)
    assert found.elements.tolist() == np.sort(many)[:1024].tolist()


def test_how_finely_a_column_is_measured():
    assert count_cells(np.arange(500.0), 6) == 500
    assert count_cells(np.linspace(0, 1, 101), 6) == pytest.approx(101)
    assert count_cells(np.random.default_rng(0).normal(size=1000), 6) > 10_000
    assert count_cells(np.full(9, 3.0), 6) == count_cells(np.array([np.nan, np.inf]), 6) == 1


def hospital(seed, kind, count=500):
    """Records as hospitals have them: days, months, running numbers, rounded measurements, simulations."""
    draws = np.random.default_rng(seed)
    event = draws.integers(0, 2, count) * 1.0
    tables = {
        "days": (draws.integers(20, 90, (count, 1)) * 1.0, draws.integers(1, 366, count) * 1.0),
        "months": (draws.integers(0, 2, (count, 3)) * 1.0, draws.integers(1, 61, count) * 1.0),
        "numbers": (np.c_[np.arange(count), draws.normal(size=count)], draws.integers(1, 366, count) * 1.0),
        "grid": (np.c_[np.linspace(0, 1, count), draws.normal(size=count)], np.arange(1.0, count + 1)),
        "rounded": (draws.normal(27, 4, (count, 2)).round(1), draws.exponential(2, count).round(2)),
        "simulated": (draws.normal(size=(count, 5)), draws.exponential(2, count)),
    }
    features, time = tables[kind]
    return features, time, event


@pytest.mark.parametrize("kind", ["days", "months", "numbers", "grid", "rounded", "simulated"])
def test_hospitals_alike_are_not_one_and_one_hospital_is_itself_whatever_is_done_to_its_features(kind):
    for seed in range(5):
        index = Index()
        features, time, event = hospital(2 * seed, kind)
        with index.lock():
            entry = index.keep(People((), sketch_table(features, [time, event]), b""))
        other, later, happened = hospital(2 * seed + 1, kind)
        found = index.find(People((), sketch_table(other, [later, happened]), b""))
        assert entry not in (*found.same, *found.near)
        scaled = (features - features.mean(0)) / features.std(0)
        for part in (slice(1, None), np.random.default_rng(seed).random(500) < 0.75):
            folded = sketch_table(scaled[part], [time[part], event[part]])
            assert entry in index.find(People((), folded, b"")).same


def clinic(seed, count, *, levels):
    """Days and events that many people share, and features; a scaler changes every one of these."""
    draws = np.random.default_rng(seed)
    days, event = draws.integers(1, 366, count) * 1.0, draws.integers(0, 2, count) * 1.0
    binary = draws.integers(0, 2, (count, 6)) if levels else draws.normal(size=(count, 1))
    return binary * 1.0, days, event


def scaled(features, days, event, rows):
    some = features[rows]
    return People((), sketch_table((some - some.mean(0)) / some.std(0), [days[rows], event[rows]]), b"")


@pytest.mark.parametrize("order", ["kept", "shuffled"])
def test_folds_of_many_people_with_the_same_days_are_recognised_behind_a_scaler(order):
    # In a fold the order is kept; where it is not, the levels of features are left.
    count, draws = 8_000, np.random.default_rng(0)
    table, index = clinic(1, count, levels=order == "shuffled"), Index()
    fold = np.arange(count) % 4
    entry = None
    for part in (0, 1, 2, 3, None):
        rows = np.flatnonzero(fold != part)
        found = scaled(*table, draws.permutation(rows) if order == "shuffled" else rows)
        assert entry is None or entry in index.find(found).same
        with index.lock():
            entry = index.keep(found, entry)
    others = clinic(2, count, levels=order == "shuffled")
    for many in (count, 3 * count // 4, count // 3):
        assert not index.find(scaled(*others, np.arange(many))).same


def test_other_people_whose_records_are_sorted_by_time_are_other_people():
    index, found = Index(), list[People]()
    for seed in range(2):
        features, days, _ = clinic(seed, 20_000, levels=False)
        found.append(scaled(features, np.sort(days), np.ones(20_000), np.arange(20_000)))
    with index.lock():
        index.keep(found[0])
    assert not index.find(found[1]).same


def test_a_sample_of_few_values_does_not_make_others_the_same():
    for seed in range(5):
        one, other = drawn(2 * seed, 100_000, 1200), drawn(2 * seed + 1, 75_000, 1200)
        assert judge(sketch(one, "part", size=2**14), sketch(other, "part", size=2**14)) != "same"
