"""Agreement of found groups with true ones, and clipping to unit directions."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from tacit.aggregation.defence import clustering, kmeans
from tacit.aggregation.defence.kmeans import agreement, clip_to_unit
from tacit.errors import InvalidValue
from tacit.runtime.keys import Key

SITES = "abcdefghijkl"
groupings = st.integers(1, 12).flatmap(
    lambda size: st.tuples(*(st.lists(st.integers(0, 3), min_size=size, max_size=size) for _ in range(2)))
)


@given(groupings)
def test_the_agreement_of_two_groupings_is_that_of_scikit_learn(both):
    labels, planets = both
    found = dict(zip(SITES, labels, strict=False))
    truth = {
        name: ("moon", "earth", "mars", "io")[planet] for name, planet in zip(SITES, planets, strict=False)
    }
    expected = adjusted_rand_score(planets, labels)
    assert agreement(found, truth) == pytest.approx(expected, abs=1e-12)
    assert agreement(dict(reversed(found.items())), truth) == pytest.approx(expected, abs=1e-12)


def test_sites_that_have_no_model_do_not_count():
    truth = {"a": "moon", "b": "moon", "c": "mars", "d": "mars", "e": "moon"}
    assert agreement({"a": 1, "b": 1, "c": 0, "d": 0}, truth) == 1.0
    assert agreement({}, truth) == 1.0


def test_sites_of_which_nothing_is_known_are_refused_by_name():
    with pytest.raises(
        InvalidValue, match=r"found = \['x'\] is not allowed: it must be of the sites \['a'\]"
    ):
        agreement({"a": 0, "x": 1}, {"a": "moon"})


def test_a_direction_forgives_length_but_what_hardly_moves_has_none():
    ways = np.array([[3.0, 0.0], [300.0, 0.0], [0.0, 3.0], [0.0, 0.003]])
    lengths = np.linalg.norm(clip_to_unit(ways), axis=1)
    assert (lengths[:3] > 0.7).all()
    assert lengths[3] < 0.01
    assert not clip_to_unit(np.zeros((3, 2))).any()


@pytest.mark.parametrize("shift", [0.0, 1e9])
def test_groups_do_not_depend_on_where_the_origin_is(shift):
    draws = np.random.default_rng(4)
    truth = np.repeat([0, 1, 2], 6)
    points = draws.normal(scale=3.0, size=(3, 4))[truth] + 0.01 * draws.normal(size=(18, 4))
    assert kmeans.kmeans(points + shift, 3, Key(0)).tolist() == truth.tolist()


def test_equal_points_are_one_group():
    assert kmeans.kmeans(np.full((5, 3), 7.0), 2, Key(0)).tolist() == [0] * 5
    assert kmeans.kmeans(np.zeros((1, 3)), 2, Key(0)).tolist() == [0]


@pytest.mark.parametrize("scale", [1e-200, 1e-9, 1.0, 1e150])
def test_groups_do_not_depend_on_the_unit(scale):
    draws = np.random.default_rng(4)
    truth = np.repeat([0, 1, 2], 4)
    points = draws.normal(scale=3.0, size=(3, 4))[truth] + 0.01 * draws.normal(size=(12, 4))
    assert kmeans.kmeans(scale * points, 3, Key(0)).tolist() == truth.tolist()


@pytest.mark.parametrize("apart", [1.0, 3.0, 1e-5, 0.1])
def test_points_on_a_line_are_apart_where_more_than_rounding_tells_them_apart(apart):
    """All differences have one direction, and every other eigenvalue is rounding."""
    way = np.random.default_rng(2).normal(size=(1, 6))
    assert kmeans.kmeans(apart * np.array([[0.0], [1.0]]) * way, 2, Key(0)).tolist() == [0, 1]
    three = apart * np.array([[0.0], [1e-12], [1.0]]) * way
    assert kmeans.kmeans(three, 3, Key(0)).tolist() == [0, 0, 1]


@pytest.mark.parametrize("seed", range(6))
def test_the_best_of_all_starts_is_kept(seed):
    """Eight points in three groups: few enough to try every grouping."""
    points = np.random.default_rng(seed).normal(size=(8, 2))

    def cost(labels: tuple[int, ...]) -> float:
        groups = [points[np.array(labels) == group] for group in set(labels)]
        return sum(float(((group - group.mean(axis=0)) ** 2).sum()) for group in groups)

    least = min(cost(labels) for labels in itertools.product(range(3), repeat=7) for labels in [(0, *labels)])
    assert cost(tuple(kmeans.kmeans(points, 3, Key(seed)).tolist())) <= least * (1 + 1e-9)


def test_what_others_import_from_clusters_is_still_there():
    for name in ("adjusted_rand", "agreement", "kmeans", "robust_kmeans"):
        assert getattr(clustering, name) is getattr(kmeans, name)


def test_groups_go_to_the_models_that_are_nearest_by_squared_distance():
    reached, models = np.array([[9.0], [12.0], [9.0]]), np.array([[0.0], [10.0]])
    assert kmeans.match_labels(np.array([0, 1, 0]), reached, models).tolist() == [0, 1, 0]
    assert kmeans.match_labels(np.array([0, 1, 0]), reached, models[::-1].copy()).tolist() == [1, 0, 1]


def test_liars_who_agree_form_no_group_and_join_the_nearest_one():
    draws = np.random.default_rng(1)
    honest = np.repeat([[0.0, 0.0], [10.0, 0.0]], 6, axis=0) + 0.1 * draws.normal(size=(12, 2))
    points = np.concatenate([honest, [[30.0, 1.0], [30.0, 1.0]]])
    assert kmeans.robust_kmeans(points, 2, Key(0), 2).tolist() == [0] * 6 + [1] * 8
