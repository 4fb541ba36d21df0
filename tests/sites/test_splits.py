"""Every record goes to exactly one site, every site can take part, and sites differ as the split says."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tacit.errors import InvalidValue
from tacit.runtime.keys import Key
from tacit.sites.federation import FEWEST_RECORDS
from tacit.sites.splits import SPLITS, ByColumn, Dirichlet, Iid, NonIid, SplitByCount, TimeNonIid, hold_out
from tacit.sites.table import Table, from_arrays

DEALT = [
    Iid(count=6),
    NonIid(count=6),
    TimeNonIid(count=6),
    Dirichlet(count=6),
    Dirichlet(count=6, alpha=0.01),
]
every_split = pytest.mark.parametrize("split", DEALT, ids=repr)


def patients(records: int = 400, events: float = 0.6, seed: int = 0) -> Table:
    generator = np.random.default_rng(seed)
    return from_arrays(
        generator.standard_normal((records, 3)),
        time=generator.exponential(size=records) + 0.01,
        event=generator.permutation(np.arange(records) < round(events * records)),
    )


def dealt(split: SplitByCount, table: Table, key: Key = Key(3)) -> list[np.ndarray]:  # noqa: B008
    return list(split(table, key).values())


def shares_of_events(table: Table, parts: list[np.ndarray]) -> np.ndarray:
    return np.array([table.targets["event"][part].mean() for part in parts])


@st.composite
def cases(draw: st.DrawFn) -> tuple[SplitByCount, Table, Key]:
    count = draw(st.integers(1, 30))
    kind = draw(st.sampled_from([Iid, NonIid, TimeNonIid, Dirichlet]))
    options = {"alpha": draw(st.sampled_from([0.01, 0.3, 1.0, 100.0]))} if kind is Dirichlet else {}
    records = draw(st.integers(2 * count, 2 * count + 60))
    happened = draw(st.integers(count, records))
    table = patients(records, happened / records, draw(st.integers(0, 99)))
    return kind(count=count, **options), table, Key(draw(st.integers(0, 99)))


@given(cases())
@settings(max_examples=200)
def test_every_record_is_at_one_site_and_every_site_can_take_part(case: tuple[SplitByCount, Table, Key]):
    split, table, key = case
    parts = split(table, key)
    assert tuple(parts) == split.names
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(len(table)))
    for part in parts.values():
        assert len(part) >= 2
        assert table.targets["event"][part].sum() >= 1
        assert (np.diff(part) > 0).all()


@pytest.mark.parametrize("alpha", [1e-6, 0.01])
def test_extreme_splits_over_many_sites_leave_nobody_without_records_or_events(alpha: float):
    table = patients(500, 0.25)
    for seed in range(10):
        parts = dealt(Dirichlet(count=120, alpha=alpha), table, Key(seed))
        assert sum(map(len, parts)) == 500
        assert min(map(len, parts)) >= 2
        assert min(table.targets["event"][part].sum() for part in parts) >= 1


@given(st.integers(1, 40), st.data())
def test_iid_sites_have_the_same_size_and_the_same_number_of_events(count: int, data: st.DataObject):
    records = data.draw(st.integers(2 * count, 300))
    happened = data.draw(st.integers(0, records))
    table = patients(records, happened / records, data.draw(st.integers(0, 99)))
    parts = dealt(Iid(count=count), table, Key(data.draw(st.integers(0, 99))))
    sizes = [len(part) for part in parts]
    events = [int(table.targets["event"][part].sum()) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert max(events) - min(events) <= 1


def test_iid_sites_are_drawn_at_random():
    table = patients(4000)
    means = np.array([table.features[part].mean(axis=0) for part in dealt(Iid(count=4), table)])
    assert np.abs(means).max() < 6 / np.sqrt(1000)
    assert not np.array_equal(dealt(Iid(count=4), table)[0], np.arange(0, 4000, 4))


def test_non_iid_sites_differ_in_censoring_from_the_most_to_the_least():
    table = patients(8000, 0.5)
    shares = shares_of_events(table, dealt(NonIid(count=5), table))
    assert (np.diff(shares) > 0.05).all()
    assert shares[0] == pytest.approx(1 / 4, abs=0.05)
    assert shares[-1] == pytest.approx(3 / 4, abs=0.05)


def test_time_non_iid_sites_follow_one_another_in_time_with_equal_shares_of_events():
    table = patients(1003, 0.4)
    parts = dealt(TimeNonIid(count=7), table)
    time, event = table.targets["time"], table.targets["event"]
    for status in (0, 1):
        spans = [time[part[event[part] == status]] for part in parts]
        assert all(earlier.max() <= later.min() for earlier, later in pairwise(spans))
    assert np.ptp(shares_of_events(table, parts)) < 0.02
    medians = [np.median(time[part]) for part in parts]
    assert medians == sorted(medians)
    assert medians[-1] > 5 * medians[0]


def test_time_non_iid_needs_times():
    with pytest.raises(InvalidValue, match=r'kind = "time-non-iid" needs data with a time'):
        TimeNonIid(count=2)(from_arrays(np.ones((9, 1)), y=np.ones(9)), Key(1))


def test_a_smaller_alpha_makes_sites_more_unequal_in_size_and_in_patients():
    table = patients(2000)
    unequal, different = [], []
    for alpha in (0.05, 0.5, 5.0, 500.0):
        splits = [dealt(Dirichlet(count=8, alpha=alpha), table, Key(seed)) for seed in range(20)]
        unequal.append(np.mean([np.std([len(part) for part in parts]) for parts in splits]))
        different.append(np.mean([unlike(table, parts) for parts in splits]))
    assert unequal == sorted(unequal, reverse=True)
    assert different == sorted(different, reverse=True)
    assert unequal[0] > 5 * unequal[-1]
    assert different[0] > 20
    assert different[-1] < 2


def unlike(table: Table, parts: list[np.ndarray]) -> float:
    """Return the distance of larger sites' patients from the average; about 1 for random splits."""
    return float(
        np.mean([len(part) * table.features[part].mean(axis=0) ** 2 for part in parts if len(part) > 20])
    )


def test_dirichlet_bears_features_that_do_not_vary():
    table = from_arrays(np.full((40, 2), 7.0), time=np.ones(40), event=np.ones(40))
    assert sorted(np.concatenate(dealt(Dirichlet(count=4), table)).tolist()) == list(range(40))


@every_split
def test_the_same_key_gives_the_same_split_whatever_the_secrets(split: SplitByCount):
    table = patients()
    first, again = dealt(split, table, Key(3)), dealt(split, table, Key(3, rehearsal=True))
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))


@pytest.mark.parametrize("split", [split for split in DEALT if not isinstance(split, TimeNonIid)], ids=repr)
def test_another_key_gives_another_split(split: SplitByCount):
    table = patients()
    assert {tuple(part.tolist()) for part in dealt(split, table, Key(3))} != {
        tuple(part.tolist()) for part in dealt(split, table, Key(4))
    }


@every_split
def test_the_global_state_of_numpy_is_neither_used_nor_touched(split: SplitByCount):
    table = patients()
    before = np.random.get_state()
    first = dealt(split, table)
    after = np.random.get_state()
    assert before[0] == after[0]
    assert np.array_equal(before[1], after[1])
    assert before[2:] == after[2:]
    np.random.seed(1)
    try:
        again = dealt(split, table)
    finally:
        np.random.set_state(before)
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))


@every_split
def test_a_split_leaves_the_table_as_it_was(split: SplitByCount):
    table = patients()
    before = table.digest()
    dealt(split, table)
    assert table.digest() == before


@pytest.mark.parametrize("split", [Iid(count=4), NonIid(count=4), Dirichlet(count=4, alpha=0.01)], ids=repr)
def test_tables_without_events_can_be_dealt_out_too(split: SplitByCount):
    table = from_arrays(np.random.default_rng(0).standard_normal((30, 2)), y=np.ones(30))
    parts = dealt(split, table)
    assert sorted(np.concatenate(parts).tolist()) == list(range(30))
    assert min(map(len, parts)) >= 2


@every_split
def test_more_sites_than_pairs_of_records_are_refused(split: SplitByCount):
    assert len(dealt(split, patients(12, 1.0))) == 6
    with pytest.raises(InvalidValue, match=r"^count = 6 is not allowed: 11 records are too few"):
        split(patients(11, 1.0), Key(1))


@pytest.mark.parametrize("kind", [Iid, NonIid, TimeNonIid, Dirichlet])
@pytest.mark.parametrize("count", [0, -3, 2.0, True])
def test_a_number_of_sites_is_a_whole_number_of_at_least_one(kind: type[SplitByCount], count: object):
    with pytest.raises(InvalidValue, match=f"^count = {count} is not allowed"):
        kind(count=count)


@pytest.mark.parametrize("alpha", [0, -1.0, np.inf, np.nan])
def test_alpha_is_a_number_above_zero(alpha: float):
    with pytest.raises(InvalidValue, match=f"^alpha = {alpha} is not allowed"):
        Dirichlet(alpha=alpha)


def test_every_split_is_known_by_its_kind():
    assert [SPLITS[kind] for kind in ("iid", "non-iid", "time-non-iid")] == [Iid, NonIid, TimeNonIid]
    assert [SPLITS[kind] for kind in ("dirichlet", "by-column")] == [Dirichlet, ByColumn]
    assert Iid(count=3).names == ("site-1", "site-2", "site-3")
    assert ByColumn().names is None


@example(records=2, events=0.5, share=0.5, seed=0)
@example(records=3, events=0.4, share=0.99, seed=0)
@given(records=st.integers(1, 300), events=st.floats(0, 1), share=st.floats(0, 0.99), seed=st.integers(0, 99))
def test_held_out_records_are_apart_and_have_their_share_of_events(
    records: int, events: float, share: float, seed: int
):
    table = patients(records, events, seed)
    trained, apart = hold_out(table, share, Key(seed))
    assert sorted([*trained.tolist(), *apart.tolist()]) == list(range(records))
    # Training comes first: a table of two records has none to hold out, whatever the share.
    assert len(trained) >= min(FEWEST_RECORDS, records)
    spared = max(records - FEWEST_RECORDS, 0)
    assert abs(len(apart) - min(share * records, spared)) < 1
    happened, taken = table.targets["event"], len(apart) / records
    assert abs(happened[apart].sum() - taken * happened.sum()) < 1 + 1e-6
    assert abs((1 - happened[apart]).sum() - taken * (1 - happened).sum()) < 1 + 1e-6
    assert happened[trained].any() == happened.any()


def test_nothing_is_held_out_unless_a_share_is_asked_for():
    trained, apart = hold_out(patients(10), 0.0, Key(1))
    assert (trained.tolist(), apart.tolist()) == (list(range(10)), [])


def test_held_out_records_are_drawn_at_random_and_repeat_with_the_seed():
    table = patients(200)
    first, again, other = (hold_out(table, 0.2, key)[1] for key in (Key(1), Key(1), Key(2)))
    assert np.array_equal(first, again)
    assert len(np.intersect1d(first, other)) < 30


def test_who_is_held_out_tells_nothing_about_who_is_where():
    table = patients(100, 1.0)
    apart = hold_out(table, 0.5, Key(1))[1].tolist()
    assert apart != dealt(Iid(count=2), table, Key(1))[0].tolist()
    assert apart != dealt(Iid(count=2), table, Key(1))[1].tolist()
