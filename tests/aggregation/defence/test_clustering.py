"""Several models for one federation: sites that learn alike find each other, by each of the three ways."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score
from torch import nn

from tacit import Federation, Open
from tacit.aggregation.defence.clustering import (
    ClusterChoice,
    Clusters,
    _middle,
    _Places,
    adjusted_rand,
    kmeans,
)
from tacit.aggregation.mean import Mean
from tacit.engines.base import Local
from tacit.errors import InvalidValue
from tacit.learning.record import describe
from tacit.learning.supervised import Supervised
from tacit.learning.task import Updates
from tacit.privacy.mechanisms.base import NoPrivacy
from tacit.privacy.mechanisms.site_level import SiteLevel
from tacit.privacy.policy import Provenance
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.table import from_arrays
from tacit.survival import CoxPH, LogisticHazard

OPEN, KEY = NoPrivacy(), Key(2, rehearsal=True)
WAYS = ("loss", "direction", "weights")
HAZARD = LogisticHazard(hidden=(), cuts=5, horizon=3.0, steps=8, sample=0.5, lr=0.3)
NETWORK = replace(HAZARD, hidden=(6,))
COX = CoxPH(steps=8, sample=0.5, lr=0.3)
# Effects that tell groups apart: opposites, or each its own.
EFFECTS = {2: ((0.8, -0.8, 0.4), (-0.8, 0.8, -0.4)), 3: ((1.2, 0, 0), (0, 1.2, 0), (0, 0, 1.2))}
NAMES = tuple(f"site {letter}" for letter in "abcdefghi")


def patients(effects, seed, number=80):
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(number, len(effects)))
    event, censored = (generator.exponential(size=number) for _ in range(2))
    event, censored = event * np.exp(-features @ np.array(effects)) + 0.01, 3 * censored
    return from_arrays(features, time=np.minimum(event, censored), event=(event <= censored).astype(float))


@cache
def hospitals(groups, sites=9):
    effects = EFFECTS[groups]
    tables = {name: patients(effects[place % groups], place) for place, name in enumerate(NAMES[:sites])}
    return Federation(tables, public=True)


def groups_of(groups):
    return {name: place % groups for place, name in enumerate(NAMES)}


def noisy(multiplier):
    return SiteLevel(law="gaussian", clip=1.0, multiplier=multiplier, where="site", reach=1.0, rehearsal=True)


@dataclass(frozen=True)
class Learnt:
    """Results of some rounds: the models, and who belonged to which after each round."""

    models: Array
    rounds: list[dict[str, int]]


def learnt(clusters, task, federation, *, mechanism=OPEN, rounds=4, who=None, seed=1):
    """The loop of a clustered run, as short as it can be."""
    key = Key(seed, rehearsal=True)
    task = task.bind(federation, Provenance(Open(), public=True))
    models, standing, past = clusters.initial_models(task.start(federation, key / "start")), {}, []
    for number in range(1, rounds + 1):
        names, turn = who(number) if who else list(federation), key / number
        handed = clusters.models_for(models, standing, names)
        if clusters.by == "loss":
            sent = Local().train(
                ClusterChoice(task, clusters.count), federation, models, names, mechanism, turn
            )
            updates, chosen, faults = clusters.decode_choices(sent)
            assert not faults
            standing |= chosen
            handed = clusters.models_for(models, standing, names)
        else:
            updates = Local().train(task, federation, handed, names, mechanism, turn)
        standing = clusters.reassign(updates, handed, models, standing, turn / "groups")
        models = advanced(models, updates, standing)
        past.append(standing)
    return Learnt(models, past)


def advanced(models, updates, standing):
    moved = models.copy()
    for number in range(len(models)):
        mine = [place for place, name in enumerate(updates.names) if standing[name] == number]
        if mine:
            moved[number] += Mean()(updates.matrix[mine])
    return moved


# Groups that are there are found.


@pytest.mark.parametrize("by", WAYS)
@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("task", [HAZARD, NETWORK, COX], ids=["hazard", "network", "cox"])
def test_sites_that_learn_alike_find_each_other_and_stay_together(by, groups, task):
    found = learnt(Clusters(count=groups, by=by), task, hospitals(groups))
    assert adjusted_rand(found.rounds[-1], groups_of(groups)) == 1.0
    # Models keep their numbers: nobody moves from one round to the next.
    assert all(standing == found.rounds[0] for standing in found.rounds)


@pytest.mark.parametrize("by", WAYS)
def test_each_model_fits_its_own_group_better_than_the_others_do(by):
    federation, clusters = hospitals(2), Clusters(count=2, by=by)
    task = HAZARD.bind(federation, Provenance(Open(), public=True))
    found = learnt(clusters, HAZARD, federation)
    for name, number in found.rounds[-1].items():
        own, other = (
            task.losses(found.models[k], federation[name].table).mean() for k in (number, 1 - number)
        )
        assert own < other


@pytest.mark.parametrize("by", WAYS)
def test_a_network_of_the_users_own_is_clustered_as_well(by):
    generator, tables = np.random.default_rng(0), {}
    for place, name in enumerate(NAMES):
        features = generator.normal(size=(40, 2))
        tables[name] = from_arrays(features, y=features @ [1.0, (-1.0, 1.0)[place % 2]])
    module = nn.Linear(2, 1)
    task = Supervised(module=module, loss="squared", steps=6, sample=0.5, lr=0.05)
    found = learnt(Clusters(count=2, by=by), task, Federation(tables, public=True), rounds=8)
    assert adjusted_rand(found.rounds[-1], groups_of(2)) == 1.0


@pytest.mark.parametrize("by", ["direction", "weights"])
@pytest.mark.parametrize(("groups", "multiplier"), [(2, 0.1), (3, 0.05)])
def test_groups_are_found_through_moderate_noise_of_the_sites(by, groups, multiplier):
    agreement = [
        adjusted_rand(
            learnt(
                Clusters(count=groups, by=by),
                HAZARD,
                hospitals(groups),
                mechanism=noisy(multiplier),
                seed=seed,
            ).rounds[-1],
            groups_of(groups),
        )
        for seed in range(3)
    ]
    assert min(agreement) >= 0.8


@pytest.mark.parametrize("by", ["direction", "weights"])
def test_much_noise_hides_the_groups(by):
    """Groups that noise hides from the server cannot be found: that is the meaning of a strong promise."""
    found = [
        learnt(Clusters(count=2, by=by), HAZARD, hospitals(2), mechanism=noisy(3.0), seed=seed, rounds=2)
        for seed in range(4)
    ]
    assert np.mean([adjusted_rand(each.rounds[-1], groups_of(2)) for each in found]) < 0.5


@pytest.mark.parametrize("by", WAYS)
def test_groups_are_found_where_only_some_sites_come_to_each_round(by):
    chance = np.random.default_rng(3)
    draws = [sorted(chance.permutation(9)[:5].tolist()) for _ in range(9)]
    found = learnt(
        Clusters(count=3, by=by), HAZARD, hospitals(3), rounds=9,
        who=lambda number: [NAMES[place] for place in draws[number - 1]],
    )  # fmt: skip
    assert set(found.rounds[-1]) == set(NAMES)
    assert adjusted_rand(found.rounds[-1], groups_of(3)) == 1.0


def test_a_site_in_the_wrong_group_is_noticed_by_its_direction_even_if_models_are_far_apart():
    federation, clusters = hospitals(2), Clusters(count=2, by="direction")
    found = learnt(clusters, HAZARD, federation, rounds=6)
    wrong = {**found.rounds[-1], "site a": 1 - found.rounds[-1]["site a"]}
    handed = clusters.models_for(found.models, wrong, NAMES)
    task = HAZARD.bind(federation, Provenance(Open(), public=True))
    updates = Local().train(task, federation, handed, NAMES, OPEN, KEY)
    assert float(np.linalg.norm(updates.matrix, axis=1).max()) < 0.5 * float(
        np.linalg.norm(found.models[0] - found.models[1])
    )
    assert clusters.reassign(updates, handed, found.models, wrong, Key(6)) == found.rounds[-1]


# The start.


@pytest.mark.parametrize("by", WAYS)
def test_all_models_are_the_same_before_the_first_round(by):
    state = np.arange(4.0)
    models = Clusters(count=3, by=by).initial_models(state)
    assert models.shape == (3, 4)
    assert all(np.array_equal(model, state) for model in models)
    models[0] += 1
    assert state.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_models_that_are_drawn_apart_would_leave_one_without_a_site():
    """All models start alike, since random initial models would leave one without a site."""
    federation, clusters = hospitals(3), Clusters(count=3)
    task = HAZARD.bind(federation, Provenance(Open(), public=True))
    lost = 0
    for seed in range(6):
        key = Key(seed, rehearsal=True)
        models = clusters.initial_models(task.start(federation, key / "start"))
        models += 0.1 * (key / "apart").generator().normal(size=tuple(models.shape))
        for number in range(3):
            sent = Local().train(
                ClusterChoice(task, 3), federation, models, list(federation), NoPrivacy(), key / number
            )
            updates, chosen, _ = clusters.decode_choices(sent)
            models = advanced(models, updates, chosen)
        lost += len(set(chosen.values())) < 3
    assert lost >= 2


def test_a_site_that_is_new_starts_between_all_models():
    models = np.array([[0.0, 0.0], [2.0, 4.0]], dtype=np.float64)
    handed = Clusters(count=2, by="weights").models_for(models, {"a": 1, "b": 0}, ["b", "new", "a"])
    assert handed.tolist() == [[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]]
    assert Clusters(count=2).models_for(models, {}, []).shape == (0, 2)


# Choices at the sites.


def test_a_site_picks_the_model_with_the_smallest_loss_and_of_equal_ones_the_first():
    federation = hospitals(2)
    task = HAZARD.bind(federation, Provenance(Open(), public=True))
    start = task.start(federation, Key(1))
    better = learnt(Clusters(count=2, by="weights"), HAZARD, federation).models
    models = np.stack([start, better[0], better[1], better[0], np.full_like(start, np.nan)])
    sent = ClusterChoice(task, 5).train(models, federation.cohort(NAMES), OPEN, KEY)
    updates, chosen, faults = Clusters(count=5).decode_choices(sent)
    losses = {
        name: [task.losses(model, federation[name].table).mean() for model in models[:3]] for name in NAMES
    }
    assert chosen == {name: int(np.argmin(means)) for name, means in losses.items()}
    assert set(chosen.values()) == {1, 2}
    assert faults == ()
    handed = Clusters(count=5).models_for(models, chosen, NAMES)
    trained = task.train(handed, federation.cohort(NAMES), OPEN, KEY)
    assert np.array_equal(updates.matrix, trained.matrix)
    assert updates.names == NAMES


def test_models_may_come_as_one_vector():
    federation = hospitals(2)
    task = HAZARD.bind(federation, Provenance(Open(), public=True))
    models = learnt(Clusters(count=2, by="weights"), HAZARD, federation).models
    one, other = (
        ClusterChoice(task, 2).train(state, federation.cohort(NAMES), OPEN, KEY).matrix
        for state in (models, models.reshape(-1))
    )
    assert np.array_equal(one, other)


def test_a_choice_that_names_no_model_is_told_and_left_out():
    matrix = np.array([[1.0, 5.0], [2.0, 6.0], [-1.0, 7.0], [0.5, 8.0], [np.nan, 9.0], [0.0, 10.0]])
    updates, chosen, faults = Clusters(count=2).decode_choices(Updates(tuple("abcdef"), matrix, round=3))
    assert (updates.names, updates.matrix.tolist(), updates.round) == (("a", "f"), [[5.0], [10.0]], 3)
    assert chosen == {"a": 1, "f": 0}
    assert [(fault.site, fault.reason) for fault in faults] == [(site, "schema") for site in "bcde"]
    assert faults[0].detail == "model 2 is not allowed: it must be from 0 to 1"


def test_nobody_who_came_is_no_fault():
    updates, chosen, faults = Clusters(count=2).decode_choices(Updates((), np.zeros((0, 3))))
    assert (updates.names, chosen, faults) == ((), {}, ())


def test_choices_by_loss_stand_once_the_models_differ():
    updates = Updates(("a", "b"), np.array([[9.0], [-9.0]], dtype=np.float64))
    models = np.array([[0.0], [1.0]], dtype=np.float64)
    chosen = {"a": 1, "b": 1}
    assert Clusters(count=2).reassign(updates, models[[1, 1]], models, chosen, Key(0)) == chosen
    alike = models[[0, 0]]
    assert Clusters(count=2).reassign(updates, alike, alike, chosen, Key(0)) == {"a": 0, "b": 1}


# Groups of the server's.


def regrouped(clusters, rows, names=None, *, models=None, before=(), key=0):
    """The groups of sites that start from a common point, or from their models."""
    moved = np.array(rows, dtype=np.float64)
    names = tuple(names or NAMES[: len(moved)])
    models = np.zeros((clusters.count, moved.shape[1])) if models is None else np.array(models)
    models, before = models, dict(before)
    handed = clusters.models_for(models, before, names)
    return clusters.reassign(Updates(names, moved), handed, models, before, Key(key))


rows_of_some = st.integers(2, 7).flatmap(
    lambda sites: st.lists(
        st.lists(st.floats(-100, 100).map(lambda value: round(value, 3)), min_size=3, max_size=3),
        min_size=sites,
        max_size=sites,
    )
)


@given(rows_of_some, st.sampled_from(["direction", "weights"]), st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_groups_do_not_depend_on_the_order_in_which_sites_answered(rows, by, chance):
    clusters, order = Clusters(count=2, by=by), list(range(len(rows)))
    chance.shuffle(order)
    shuffled = regrouped(clusters, [rows[place] for place in order], [NAMES[place] for place in order])
    assert shuffled == regrouped(clusters, rows)


@given(rows_of_some, st.sampled_from(["direction", "weights"]), st.integers(2, 4))
@settings(max_examples=25)
def test_sites_that_send_the_same_are_in_one_group(rows, by, count):
    found = regrouped(Clusters(count=count, by=by), [*rows, rows[0]])
    assert found[NAMES[len(rows)]] == found[NAMES[0]]
    assert set(found.values()) <= set(range(count))


@pytest.mark.parametrize("by", ["direction", "weights"])
def test_sites_that_all_send_the_same_are_one_group_and_the_other_models_stay(by):
    for row in ([0.0, 0.0], [3.0, -1.0]):
        assert set(regrouped(Clusters(count=3, by=by), [row] * 5).values()) == {0}


@pytest.mark.parametrize("by", ["direction", "weights"])
def test_more_models_than_sites_that_came_leave_some_without_a_site(by):
    assert regrouped(Clusters(count=3, by=by), [[1.0, 0.0]]) == {NAMES[0]: 0}
    assert regrouped(Clusters(count=3, by=by), [[1.0, 0.0], [0.0, 1.0]]) == {NAMES[0]: 0, NAMES[1]: 1}


@pytest.mark.parametrize("by", WAYS)
def test_a_round_to_which_nobody_came_changes_nothing(by):
    models, before = np.zeros((2, 3)), {"a": 1}
    nobody = Updates((), np.zeros((0, 3)))
    assert Clusters(count=2, by=by).reassign(nobody, models[:0], models, before, Key(0)) == before


@pytest.mark.parametrize("by", ["direction", "weights"])
def test_models_keep_their_numbers_whatever_order_the_groups_are_found_in(by):
    models, before = (
        [[5.0, 0.0], [0.0, 5.0], [-5.0, -5.0]],
        {NAMES[0]: 2, NAMES[1]: 2, NAMES[2]: 0, NAMES[3]: 1},
    )
    small = [[0.1, 0.0], [0.0, 0.1], [0.1, 0.1], [-0.1, 0.1]]
    for key in range(5):
        assert regrouped(Clusters(count=3, by=by), small, models=models, before=before, key=key) == before


@pytest.mark.parametrize("by", ["direction", "weights"])
def test_who_comes_alone_is_not_spread_over_the_models_of_those_who_did_not(by):
    """Two sites of one group come, no one of the others: they stay together."""
    models = [[5.0, 0.0], [0.0, 5.0]]
    before = {NAMES[0]: 0, NAMES[1]: 0, NAMES[2]: 1, NAMES[3]: 1}
    found = regrouped(Clusters(count=2, by=by), [[0.2, 0.0], [-0.2, 0.1]], models=models, before=before)
    assert found == before


def test_one_that_comes_alone_is_judged_by_its_own_step():
    """Sites that did not come have made none, and there are more of them."""
    models = [[5.0, 0.0], [0.0, 5.0]]
    before = {name: place % 2 for place, name in enumerate(NAMES[:5])}
    clusters = Clusters(count=2, by="direction")
    assert regrouped(clusters, [[0.3, 0.1]], NAMES[:1], models=models, before=before) == before


def test_a_group_that_does_not_differ_from_the_middle_is_a_group_of_its_own():
    """Opposites and, between them, sites that hardly move: their direction would be chance."""
    chance = np.random.default_rng(4)
    rows = np.repeat([[3.0, 0, 0, 0], [0.0, 0, 0, 0], [-3.0, 0, 0, 0]], 3, axis=0) + chance.normal(
        scale=0.2, size=(9, 4)
    )
    found = regrouped(Clusters(count=3, by="direction"), rows.tolist())
    assert list(found.values()) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_direction_forgives_length_where_weights_do_not():
    rows = [[3.0, 0.1], [12.0, -0.5], [0.0, 3.0], [0.1, 4.0]]
    assert list(regrouped(Clusters(count=2, by="direction"), rows).values()) == [0, 0, 1, 1]
    assert list(regrouped(Clusters(count=2, by="weights"), rows).values()) != [0, 0, 1, 1]


def test_nothing_that_is_given_is_changed():
    chance = np.random.default_rng(5)
    moved, models = chance.normal(size=(4, 3)), chance.normal(size=(2, 3))
    before = {NAMES[0]: 0, NAMES[8]: 1}
    for by in ("direction", "weights"):
        clusters = Clusters(count=2, by=by)
        handed = clusters.models_for(models, before, NAMES[:4])
        kept = [part.copy() for part in (moved, models, handed)]
        clusters.reassign(Updates(NAMES[:4], moved), handed, models, before, Key(1))
        assert all(np.array_equal(*pair) for pair in zip(kept, (moved, models, handed), strict=True))
        assert before == {NAMES[0]: 0, NAMES[8]: 1}


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_updates_that_are_not_finite_are_refused(broken):
    models = np.zeros((2, 2))
    updates = Updates(("a", "b"), np.array([[broken, 1.0], [0.0, 1.0]]))
    with pytest.raises(InvalidValue, match="updates"):
        Clusters(count=2, by="weights").reassign(updates, models, models, {}, Key(0))


# k-means.


def test_points_in_clear_groups_are_grouped_however_many_coordinates_they_have():
    chance = np.random.default_rng(6)
    for columns in (1, 3, 500):
        centres = 20 * chance.normal(size=(4, columns))
        points = np.repeat(centres, 6, axis=0) + chance.normal(size=(24, columns)) / np.sqrt(columns)
        shuffled = chance.permutation(24)
        found = kmeans(points[shuffled], 4, Key(3))
        assert adjusted_rand(found.tolist(), (shuffled // 6).tolist()) == 1.0
        assert list(dict.fromkeys(found.tolist())) == [0, 1, 2, 3]


@given(rows_of_some, st.integers(2, 4), st.floats(1e-6, 1e6), st.integers(0, 5))
@settings(max_examples=25)
def test_no_site_is_nearer_to_the_middle_of_another_group(rows, count, scale, key):
    points = scale * np.array(rows)
    found = kmeans(points, count, Key(key))
    assert found.max() < count
    centres = np.stack([points[found == group].mean(axis=0) for group in range(found.max() + 1)])
    squares = ((points[:, None] - centres) ** 2).sum(axis=2)
    own = np.take_along_axis(squares, found[:, None], axis=1)[:, 0]
    assert (own <= squares.min(axis=1) + 1e-12 * (1 + squares.max())).all()


# How well groups agree.

groupings = st.integers(0, 12).flatmap(
    lambda size: st.tuples(*(st.lists(st.integers(0, 3), min_size=size, max_size=size) for _ in range(2)))
)


@given(groupings)
def test_the_adjusted_rand_index_is_that_of_scikit_learn(both):
    labels, known = both
    expected = adjusted_rand_score(known, labels) if labels else 1.0
    assert adjusted_rand(labels, known) == pytest.approx(expected, abs=1e-12)
    named = [dict(zip("abcdefghijkl", part, strict=False)) for part in both]
    backwards = dict(reversed(named[0].items()))
    assert adjusted_rand(backwards, named[1]) == pytest.approx(expected, abs=1e-12)


def test_groups_of_other_sites_are_refused():
    with pytest.raises(InvalidValue, match="labels"):
        adjusted_rand({"a": 1}, {"b": 1})
    with pytest.raises(InvalidValue, match="1 of them"):
        adjusted_rand([1], [1, 2])
    with pytest.raises(InvalidValue, match="like known"):
        adjusted_rand({"a": 1}, [1])


# What is refused.


@pytest.mark.parametrize("count", [1, 0, -2, 1.5, True, "two"])
def test_fewer_than_two_models_are_refused(count):
    with pytest.raises(InvalidValue, match="count"):
        Clusters(count=count)


def test_a_way_that_is_not_known_is_refused():
    with pytest.raises(InvalidValue, match='did you mean "weights"'):
        Clusters(count=2, by="weight")


def test_more_models_than_sites_are_refused():
    Clusters(count=3).check(NAMES[:3])
    with pytest.raises(InvalidValue, match=r"\[clusters\] count = 4 .* at most 3, the number of sites"):
        Clusters(count=4).check(NAMES[:3])


def test_clusters_are_a_table_of_a_file():
    table = {"kind": "clusters", "count": 2, "by": "weights", "warm": 0}
    assert describe(Clusters(count=2, by="weights")) == table


@pytest.mark.parametrize(("width", "part"), [(4, 1 / 3), (36, 1.0), (900, 2.0)])
def test_updates_are_drawn_out_to_a_known_part_of_half_the_way_to_the_next_model(width, part):
    models = np.zeros((2, width))
    models[1, 0] = 8.0
    moved = np.zeros((4, width))
    moved[:, 1] = 0.01
    places = _Places(NAMES[:4], models[[0, 0, 1, 1]], moved, models)
    assert places._stretch() * 0.01 == pytest.approx(8.0 / 2 * part)


def test_a_mean_without_outliers_is_the_plain_one_where_none_would_be_left():
    rows = np.array([[1.0], [2.0], [4.0], [9.0]])
    assert _middle(rows, 2).tolist() == [4.0]
    assert _middle(rows, 1).tolist() == [3.0]
