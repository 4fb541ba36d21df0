"""Update histories of sites while there is one model for all, and clusters by them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.aggregation.defence.clustering import Clusters, UpdateHistory, agreement
from tacit.errors import InvalidValue
from tacit.learning.record import describe
from tacit.learning.task import Updates
from tacit.runtime.keys import Key

NAMES = tuple(f"site {letter}" for letter in "abcdefghi")
KEY = Key(3)


def blank(by="direction", names=NAMES, width=3):
    return UpdateHistory(by, tuple(names), np.full((len(names), width), np.nan))


def sent(rows, names):
    return Updates(tuple(names), np.array(np.asarray(rows), dtype=np.float64))


def followed(trails, rows, names=NAMES, handed=None, f=0):
    rows = np.asarray(rows, dtype=np.float64)
    handed = np.zeros(rows.shape) if handed is None else handed
    return trails.with_round(sent(rows, names), handed, f)


def worlds(groups=3, width=60, seed=0):
    """Directions of the sites of some groups, and the group of each site."""
    centres = np.random.default_rng(seed).normal(size=(groups, width))
    return {name: centres[place % groups] for place, name in enumerate(NAMES)}, {
        name: place % groups for place, name in enumerate(NAMES)
    }


# What is remembered.


def test_a_trail_is_the_sum_of_directions_seen_from_the_middle_of_those_who_came():
    trails = followed(blank(), [[6.0, 0, 0], [0, 6.0, 0], [0, 0, 0]], NAMES[:3])
    away = np.array([[4.0, -2.0, 0.0], [-2.0, 4.0, 0.0], [-2.0, -2.0, 0.0]])
    ways = away / np.linalg.norm(away, axis=1, keepdims=True)
    assert np.allclose(trails.rows[:3], ways, rtol=1e-15)
    assert np.isnan(trails.rows[3:]).all()
    again = followed(trails, [[0, 0, 1.0], [0, 0, 3.0]], [NAMES[1], NAMES[5]])
    assert np.allclose(again.rows[1], ways[1] + [0.0, 0.0, -1.0], rtol=1e-15)
    assert again.rows[5].tolist() == [0.0, 0.0, 1.0]
    assert np.array_equal(again.rows[0], trails.rows[0])
    # Who sends what the middle is has gone nowhere.
    assert not followed(blank(), np.ones((3, 3)), NAMES[:3]).rows[:3].any()


def test_by_weights_a_trail_is_where_a_site_came_to_when_it_last_came():
    handed = np.array([[1.0, 1.0, 1.0]] * 2, dtype=np.float64)
    trails = followed(blank("weights"), [[1.0, 0, 0], [0, 1.0, 0]], NAMES[:2], handed)
    assert trails.rows[:2].tolist() == [[2.0, 1.0, 1.0], [1.0, 2.0, 1.0]]
    later = followed(trails, [[0, 0, 5.0]], NAMES[:1], handed[:1])
    assert later.rows[:2].tolist() == [[1.0, 1.0, 6.0], [1.0, 2.0, 1.0]]


def test_a_round_to_which_nobody_came_leaves_no_trail():
    trails = blank()
    assert trails.with_round(Updates((), np.zeros((0, 3))), np.zeros((0, 3))) is trails
    assert trails.groups(2, KEY) == {}


def test_nothing_that_is_given_is_changed():
    trails = followed(blank(), [[1.0, 0, 0], [0, 1.0, 0]], NAMES[:2])
    kept = trails.rows.copy()
    followed(trails, [[5.0, 0, 0], [0, 5.0, 0]], NAMES[:2])
    assert np.array_equal(trails.rows, kept, equal_nan=True)


@given(st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_trails_do_not_depend_on_the_order_in_which_sites_answered(chance):
    rows, order = np.random.default_rng(1).normal(size=(9, 3)), list(range(9))
    chance.shuffle(order)
    shuffled = followed(blank(), rows[order], [NAMES[place] for place in order])
    assert np.array_equal(shuffled.rows, followed(blank(), rows).rows)


def test_liars_do_not_say_where_the_middle_is():
    rows = np.random.default_rng(8).normal(size=(9, 3))
    honest = rows[1:] - rows[1:].mean(axis=0)
    rows[0] = 1e6
    for f, fits in ((1, True), (0, False)):
        found = followed(blank(), rows, f=f).rows
        cosines = (found[1:] * honest).sum(axis=1) / np.linalg.norm(honest, axis=1)
        assert bool(cosines.min() > 0.6) is fits


def test_where_all_who_came_may_lie_the_middle_is_that_of_all():
    rows = np.random.default_rng(8).normal(size=(4, 3))
    found = followed(blank(), rows, NAMES[:4], f=2)
    assert np.array_equal(found.rows, followed(blank(), rows, NAMES[:4]).rows, equal_nan=True)


# Telling apart.


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_what_no_single_round_shows_adds_up(scale):
    """Each update is mostly chance; what is common to all rounds is not."""
    going, truth = worlds()
    chance, trails, single = np.random.default_rng(2), blank(width=60), []
    for _ in range(25):
        common = chance.normal(size=60) * 3
        rows = scale * (common + np.stack([going[name] + 3.0 * chance.normal(size=60) for name in NAMES]))
        trails = followed(trails, rows)
        single.append(agreement(followed(blank(width=60), rows).groups(3, KEY), truth))
    assert agreement(trails.groups(3, KEY), truth) == 1.0
    assert np.mean(single) < 0.5


def test_early_rounds_of_long_updates_do_not_drown_later_ones():
    going, truth = worlds()
    chance, trails = np.random.default_rng(5), blank(width=60)
    for number in range(25):
        size = 1000.0 if number == 0 else 1.0
        rows = size * np.stack([going[name] + 1.5 * chance.normal(size=60) for name in NAMES])
        trails = followed(trails, rows)
    assert agreement(trails.groups(3, KEY), truth) == 1.0


def test_sites_that_came_to_some_rounds_alone_are_told_apart_as_well():
    going, truth = worlds()
    chance, trails = np.random.default_rng(4), blank(width=60)
    for _ in range(40):
        names = [NAMES[place] for place in chance.permutation(9)[:5]]
        trails = followed(trails, [going[name] + 1.5 * chance.normal(size=60) for name in names], names)
    assert agreement(trails.groups(3, KEY), truth) == 1.0


def test_groups_of_as_many_as_may_lie_are_none():
    going, _ = worlds(groups=2)
    rows = np.stack([going[name] for name in NAMES])
    rows += 0.3 * np.random.default_rng(6).normal(size=rows.shape)
    rows[4] = 50 * np.random.default_rng(7).normal(size=60)
    honest = [place for place in range(9) if place != 4]
    found = followed(blank(width=60), rows, f=1).groups(2, KEY, f=1)
    assert (
        agreement(
            {NAMES[place]: found[NAMES[place]] for place in honest},
            dict(zip(NAMES, [0, 1] * 5, strict=False)),
        )
        == 1.0
    )


def test_trails_of_one_direction_are_alike_however_many_rounds_they_are_of():
    """A site that came to eight rounds has gone eight times as far as one that came to one."""
    rows = np.array([[1.0, 0.1], [8.0, -0.5], [0.0, 1.0], [0.1, 9.0]])
    assert list(UpdateHistory("direction", NAMES[:4], rows).groups(2, KEY).values()) == [0, 0, 1, 1]
    assert list(UpdateHistory("weights", NAMES[:4], rows).groups(2, KEY).values()) != [0, 0, 1, 1]


# Who comes later.


def trodden(by="direction", width=60):
    going, truth = worlds(width=width)
    trails = blank(by, width=width)
    names = [name for name in NAMES if name not in ("site a", "site h")]
    for number in range(5):
        chance = np.random.default_rng(number)
        rows = [going[name] + chance.normal(size=width) for name in names]
        trails = followed(trails, rows, names)
    return trails, going, truth


@pytest.mark.parametrize("by", ["direction", "weights"])
def test_one_that_comes_later_joins_those_who_went_where_it_goes(by):
    trails, going, truth = trodden(by)
    before = trails.groups(3, KEY)
    assert "site a" not in before
    # Whoever came with it, or nobody: it is seen from the middle of those who are known.
    for names in (NAMES, ("site a", "site h", "site b"), ("site a", "site h"), ("site a",)):
        found = trails.assign_new(sent([going[name] for name in names], names), before)
        assert agreement(found, truth) == 1.0
        assert {name: found[name] for name in before} == before
        assert set(found) == {*before, *names}


def test_those_who_have_a_model_stay_with_it_whatever_they_send():
    trails, going, _ = trodden()
    before = trails.groups(3, KEY)
    rows = [-going[name] for name in before]
    assert trails.assign_new(sent(rows, list(before)), before) == before


def test_clusters_ask_the_trails_where_there_are_some():
    trails, going, truth = trodden()
    clusters, models = Clusters(count=3, by="direction", warm=5), np.zeros((3, 60))
    updates, handed = sent([going["site a"]], ["site a"]), models[:1]
    before = trails.groups(3, KEY)
    found = clusters.reassign(updates, handed, models, before, KEY, 0, trails)
    assert agreement(found, truth) == 1.0
    # Nobody came while there was one model for all: whoever comes first is told apart by that.
    assert clusters.reassign(updates, handed, models, {}, KEY, 0, trails) == before


# Choices.


def test_before_the_first_round_everybody_has_the_one_model_or_its_own_or_none():
    names = NAMES[:3]
    assert Clusters(count=2, by="direction", warm=2).initial_assignment(names) == dict.fromkeys(names, 0)
    assert Clusters(by="site").initial_assignment(names) == {"site a": 0, "site b": 1, "site c": 2}
    assert Clusters(count=2).initial_assignment(names) == {}


def test_every_site_has_a_model_once_the_sites_are_known():
    assert Clusters(by="site").resolve(NAMES) == Clusters(by="site", count=9)
    assert Clusters(by="site", count=9).resolve(NAMES).models == 9
    assert (Clusters(by="site").min_models, Clusters(count=3).min_models) == (2, 3)
    assert describe(Clusters(by="site")) == {"kind": "clusters", "by": "site", "warm": 0}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {},
            "count = 'nothing' is not allowed: it must be a whole number of at least 2, unless by = \"site\"",
        ),
        ({"count": 2, "by": "direction", "warm": -1}, "warm = -1 is not allowed"),
        ({"count": 2, "by": "direction", "warm": 1.5}, "warm = 1.5 is not allowed"),
        ({"count": 2, "warm": 3}, 'warm = 3 is not allowed: it must be 0, or left out, with by = "loss"'),
        ({"by": "site", "warm": 3}, 'warm = 3 is not allowed: it must be 0, or left out, with by = "site"'),
        ({"by": "site", "count": 1}, "count = 1 is not allowed: it must be at least 2"),
        ({"by": "sites"}, "count = 'nothing'"),
    ],
)
def test_choices_that_make_no_sense_are_refused(given, sentence):
    with pytest.raises(InvalidValue) as refused:
        Clusters(**given)
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize(
    ("clusters", "sites", "sentence"),
    [
        (
            Clusters(by="site", count=4),
            9,
            "[clusters] count = 4 is not allowed: it must be 9, the number of sites, or left out, with "
            'by = "site"',
        ),
        (
            Clusters(by="site"),
            1,
            "[clusters] by = 'site' is not allowed: it must be left out: there is one site",
        ),
        (
            Clusters(count=4, by="weights"),
            3,
            "[clusters] count = 4 is not allowed: it must be at most 3, the number of sites",
        ),
    ],
    ids=["count", "one site", "few"],
)
def test_a_federation_that_does_not_fit_is_refused(clusters, sites, sentence):
    with pytest.raises(InvalidValue) as refused:
        clusters.resolve(NAMES[:sites])
    assert str(refused.value) == sentence


def test_where_nobody_says_how_many_lie_nobody_is_taken_to():
    rows = np.random.default_rng(1).normal(size=(9, 3)) * [[1], [1], [1], [1], [1], [1], [1], [1], [50]]
    handed = np.zeros((9, 3))
    usual = blank().with_round(sent(rows, NAMES), handed).rows
    assert np.array_equal(usual, followed(blank(), rows, f=0).rows)
    assert not np.allclose(usual, followed(blank(), rows, f=1).rows)
