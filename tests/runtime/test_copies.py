"""Copies of records are found in any share; records that few-valued columns make equal are none."""

import numpy as np
import pytest

from tacit.privacy.ledger.data_index import Index
from tacit.runtime.fingerprints import People, digest_numbers, find_copies, mark_copied, sketch_table
from tacit.runtime.sketches import find_multiplicity, mix

COUNT = 200


def people(seed, kind, count=COUNT):
    """Features, time and event of people: (features, time, event)."""
    draws = np.random.default_rng(seed)
    event, binary = draws.integers(0, 2, count) * 1.0, draws.integers(0, 2, (count, 3)) * 1.0
    tables = {
        "measured": (draws.normal(60, 9, (count, 2)), draws.exponential(2, count)),
        "rounded": (draws.normal(27, 4, (count, 2)).round(1), draws.exponential(2, count).round(2)),
        "days and age": (draws.integers(20, 90, (count, 1)) * 1.0, draws.integers(1, 366, count) * 1.0),
        "one measured": (binary, draws.exponential(2, count)),
        "months": (binary, draws.integers(1, 61, count) * 1.0),
        "few-valued": (binary, draws.integers(1, 7, count) * 1.0),
        "constant": (np.zeros((count, 2)), draws.integers(1, 366, count) * 1.0),
    }
    return (*tables[kind], event)


def stages(seed, count=COUNT):
    """Few-valued columns that depend on each other, and times that end with the study."""
    draws = np.random.default_rng(seed)
    age = draws.normal(60, 10, count).round()
    stage = np.clip(((age - 40) / 15 + draws.normal(size=count)).round(), 0, 3)
    time = np.ceil(draws.exponential(40, count) / (1 + stage))
    return np.c_[age > 60, stage, stage > 1] * 1.0, np.minimum(time, 36), (time < 36) * 1.0


def repeat(count, how, seed=0):
    """Places of the records of `count` people that are written several times, in any order."""
    draws, once = np.random.default_rng(seed), np.arange(count)
    found = {
        "all thrice": np.repeat(once, 3),
        "all but one thrice": np.append(np.repeat(once[1:], 3), 0),
        "all but one twice": np.append(np.repeat(once[1:], 2), 0),
        "half of them twice": np.append(once, once[: count // 2]),
        "a fifth of them thrice": np.concatenate([once, once[: count // 5], once[: count // 5]]),
        "once to five times": np.repeat(once, draws.integers(1, 6, count)),
        "drawn with replacement": draws.integers(0, count, count),
    }[how]
    return draws.permutation(found)


HOWS = [
    "all thrice", "all but one thrice", "all but one twice", "half of them twice", "a fifth of them thrice",
    "once to five times", "drawn with replacement",
]  # fmt: skip
FINE = ["measured", "rounded", "days and age", "one measured"]


def take(table, places):
    return tuple(values[places] for values in table)


def verdict(one, other):
    """Return the answer of the index about other data: (same, near)."""
    index = Index()
    with index.lock():
        entry = index.keep(People((), sketch_table(one[0], one[1:]), b""))
    found = index.find(People((), sketch_table(other[0], other[1:]), b""))
    return entry in found.same, entry in found.near


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", FINE)
def test_copies_are_marked_whatever_their_share(kind, how):
    table, places = people(1, kind), repeat(COUNT, how)
    often = np.bincount(places, minlength=COUNT)[places]
    features, *targets = take(table, places)
    marked = mark_copied(features, targets)
    # Beside copies, a few people may be equal by chance.
    assert marked[often > 1].all()
    assert marked[often == 1].sum() < 0.2 * COUNT


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", FINE)
def test_people_are_recognised_whatever_share_of_them_is_written_again(kind, how):
    once = people(1, kind)
    again = take(once, repeat(COUNT, how))
    features, time, event = again
    scaled = ((features - features.mean(0)) / features.std(0), time, event)
    shown = take(once, repeat(COUNT, how, seed=1))
    for one, other in ((once, again), (again, once), (once, scaled), (again, shown)):
        assert verdict(one, other) == (True, False)
    assert not verdict(once, take(people(2, kind), repeat(COUNT, how)))[0]


@pytest.mark.parametrize("how", ["all but one thrice", "all but one twice", "half of them twice"])
def test_few_valued_people_are_recognised_where_most_of_them_are_written_equally_often(how):
    once = people(1, "months")
    assert verdict(once, take(once, repeat(COUNT, how)))[0]
    assert not verdict(once, take(people(2, "months"), repeat(COUNT, how)))[0]


@pytest.mark.parametrize("kind", ["measured", "rounded", "days and age"])
def test_people_are_recognised_where_every_copy_differs_in_one_column(kind):
    once = people(1, kind)
    for how in ("all but one twice", "all but one thrice", "once to five times"):
        features, time, event = (values.copy() for values in take(once, repeat(COUNT, how)))
        features[:, 0] += np.random.default_rng(0).choice([-0.1, 0.1], len(features))
        assert verdict(once, (features, time, event))[0]


@pytest.mark.parametrize("count", [30, 120, 2000])
def test_people_whom_few_values_make_equal_are_no_copies(count):
    for seed in range(10):
        for features, *targets in (
            *(people(seed, kind, count) for kind in ("months", "few-valued", "constant")),
            stages(seed, count),
        ):
            assert mark_copied(features, targets).mean() < 0.1


def test_a_design_that_is_run_several_times_has_no_copies():
    design = np.array(np.meshgrid(range(2), range(3), range(10))).reshape(3, -1).T * 1.0
    assert not mark_copied(np.repeat(design, 4, axis=0), []).any()
    # Without a tenth of its combinations, it is none.
    assert mark_copied(np.repeat(design[6:], 4, axis=0), []).all()


def test_what_follows_the_sixth_digit_makes_no_other_record():
    features, *targets = take(people(3, "measured"), np.repeat(np.arange(COUNT), 2))
    features[::2, 0] *= 1 + 1e-15
    assert mark_copied(features, targets).all()
    # Nor does the sixth, except where it changes the third.
    features[::2, 0] *= 1 + 1e-6
    assert mark_copied(features, targets).mean() > 0.9


def test_the_surplus_leaves_each_record_once():
    table = people(4, "measured")
    places = repeat(COUNT, "once to five times")
    features, *targets = take(table, places)
    columns = [mix(digest_numbers(values)) for values in (*features.T, *targets)]
    copies = find_copies(columns)
    assert sorted(places[~copies.surplus].tolist()) == sorted(set(places.tolist()))
    assert find_copies([values[~copies.surplus] for values in columns]) is None


@pytest.mark.parametrize("records", [0, 1, 2])
def test_a_few_records_are_not_marked(records):
    assert not mark_copied(np.zeros((records, 2)), [np.zeros(records)]).any()


def test_chance_draws_no_multiplicity_that_most_values_have():
    for seed in range(20):
        draws = np.random.default_rng(seed)
        for rates in (np.full(500, 0.5), np.full(500, 4.0), draws.exponential(3, 500), [300.0] * 50):
            counts = draws.poisson(rates)
            assert find_multiplicity(counts[counts > 0]) == 1
    assert find_multiplicity(np.array([1] + [3] * 199)) == 3
    assert find_multiplicity(np.array([1] * 20 + [2] * 60)) == 2
