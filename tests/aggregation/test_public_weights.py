"""A mean by public weights: who weighs more counts more, and the price follows the heaviest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.aggregation.mean import Mean
from tacit.errors import InvalidValue, Refused
from tacit.learning.supervised import LocalTraining
from tacit.learning.task import Updates
from tacit.privacy.mechanisms.clip import clip_rows
from tacit.privacy.policy import Privacy
from tacit.runtime.arrays import Array

NAMES = ("oslo", "bergen", "tromso", "bodo")
weights_of_all = st.lists(st.floats(1e-3, 1e3), min_size=4, max_size=4).map(
    lambda values: dict(zip(NAMES, values, strict=True))
)
updates_of_all = st.lists(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3), min_size=4, max_size=4).map(
    lambda rows: np.array(rows, dtype=np.float64)
)
who_came = st.lists(st.sampled_from(NAMES), unique=True)


def came(updates: Array, names: list[str]) -> Updates:
    return Updates(tuple(names), updates[[NAMES.index(name) for name in names]])


def size(moved: Array, norm: str) -> float:
    return float(np.linalg.norm(moved, ord=2 if norm == "l2" else 1))


# The mean


def test_a_heavier_site_counts_more():
    updates = Updates(("oslo", "bergen"), np.array([[1.0, 2.0], [4.0, 8.0]]))
    assert Mean(weights={"oslo": 1.0, "bergen": 3.0})(updates).tolist() == [3.25, 6.5]


def test_weights_go_by_name_and_not_by_place():
    mean = Mean(weights={"oslo": 1.0, "bergen": 3.0})
    one = mean(Updates(("oslo", "bergen"), np.array([[1.0], [4.0]])))
    other = mean(Updates(("bergen", "oslo"), np.array([[4.0], [1.0]])))
    assert np.array_equal(one, other)


@given(updates_of_all, st.floats(1e-3, 1e3), who_came.filter(bool))
def test_equal_weights_are_the_uniform_mean(updates, weight, names):
    equal = Mean(weights=dict.fromkeys(NAMES, weight))(came(updates, names))
    np.testing.assert_allclose(equal, Mean()(came(updates, names)), rtol=1e-9, atol=1e-9)


@given(updates_of_all, weights_of_all, st.floats(0.1, 10))
def test_only_the_ratios_of_weights_count(updates, weights, factor):
    scaled = {name: factor * weight for name, weight in weights.items()}
    for sites in (None, 3.2):
        one, other = (
            Mean(weights=given)(came(updates, list(NAMES)), sites=sites) for given in (weights, scaled)
        )
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@given(updates_of_all, weights_of_all, who_came.filter(bool))
def test_a_mean_over_those_who_came_lies_between_them(updates, weights, names):
    there = came(updates, names)
    found = Mean(weights=weights)(there)
    assert bool((found >= there.matrix.min(axis=0) - 1e-9).all())
    assert bool((found <= there.matrix.max(axis=0) + 1e-9).all())


def test_the_public_denominator_is_the_weight_that_so_many_sites_are_expected_to_bring():
    weights = {"oslo": 1.0, "bergen": 3.0}
    updates = Updates(("bergen",), np.array([[4.0]]))
    # On average a site weighs 2, so that 1.5 expected sites weigh 3.
    assert Mean(weights=weights)(updates, sites=1.5).tolist() == [4.0]


@given(updates_of_all, weights_of_all)
def test_if_everybody_comes_and_is_expected_it_is_the_plain_weighted_mean(updates, weights):
    everybody = came(updates, list(NAMES))
    expected = Mean(weights=weights)(everybody, sites=len(NAMES))
    np.testing.assert_allclose(Mean(weights=weights)(everybody), expected, rtol=1e-9, atol=1e-9)


def test_the_public_denominator_ignores_who_came():
    weights = dict(zip(NAMES, (1.0, 2.0, 3.0, 4.0), strict=True))
    updates = np.ones((4, 1))
    found = {name: float(Mean(weights=weights)(came(updates, [name]), sites=4)[0]) for name in NAMES}
    assert found == pytest.approx({"oslo": 0.1, "bergen": 0.2, "tromso": 0.3, "bodo": 0.4})


def test_nobody_came():
    weights = dict.fromkeys(NAMES, 2.0)
    empty = Updates((), np.zeros((0, 3)))
    assert Mean(weights=weights)(empty, sites=2).tolist() == [0, 0, 0]
    assert Mean(weights=weights)(empty).tolist() == [0, 0, 0]


# The price


@pytest.mark.parametrize("norm", ["l2", "l1"])
@given(
    updates=updates_of_all,
    weights=weights_of_all,
    names=who_came.filter(bool),
    clip=st.floats(1e-3, 1e3),
    sites=st.floats(0.5, 8),
    data=st.data(),
)
def test_one_site_more_or_less_moves_the_mean_by_at_most_its_sensitivity(
    norm, updates, weights, names, clip, sites, data
):
    mean, gone = Mean(weights=weights), data.draw(st.sampled_from(names))
    clipped = clip_rows(updates, clip, norm=norm)
    without = [name for name in names if name != gone]
    moved = mean(came(clipped, names), sites=sites) - mean(came(clipped, without), sites=sites)
    claimed = mean.sensitivity(clip, sites)
    assert claimed is not None
    assert size(moved, norm) <= claimed * (1 + 1e-9) + 1e-12


@given(weights_of_all, st.floats(1e-3, 1e3), st.floats(0.5, 8))
def test_the_heaviest_site_reaches_the_sensitivity(weights, clip, sites):
    heaviest = max(weights, key=lambda name: weights[name])
    update = np.array([[0.6 * clip, 0.8 * clip]], dtype=np.float64)
    moved = Mean(weights=weights)(Updates((heaviest,), update), sites=sites)
    assert float(np.linalg.norm(moved)) == pytest.approx(
        Mean(weights=weights).sensitivity(clip, sites), rel=1e-9
    )


@given(weights_of_all, st.floats(0.5, 8))
def test_unequal_weights_cost_at_least_as_much_as_equal_ones(weights, sites):
    unequal, equal = (Mean(weights=given).sensitivity(1.0, sites) or 0 for given in (weights, "uniform"))
    assert unequal >= equal * (1 - 1e-12)


def test_weights_over_those_who_came_would_break_the_sensitivity():
    weights = {"oslo": 3.0, "bergen": 1.0}
    updates = np.array([[1.0], [-1.0]], dtype=np.float64)
    moved = Mean(weights=weights)(Updates(("oslo", "bergen"), updates)) - Mean(weights=weights)(
        Updates(("bergen",), updates[1:])
    )
    claimed = Mean(weights=weights).sensitivity(1.0, 2)
    assert claimed is not None
    assert float(np.abs(moved).item()) == pytest.approx(2 * claimed)


# The promise


class Task(LocalTraining):
    kind, separable, groups = "own", True, "none"
    layout, exempt, width, lengths = "rows", (), None, None


def solved(weights: dict[str, float] | str, **fields):
    promise = Privacy(unit="site", noise="server", delta=1e-5, clip=2.0, noise_multiplier=3.0, **fields)
    return promise.solve(Task(), NAMES, Mean(weights=weights), 1)


def test_the_noise_of_the_server_follows_the_heaviest_site():
    weights = dict(zip(NAMES, (1.0, 2.0, 3.0, 4.0), strict=True))
    mechanism = solved(weights, participation=0.5)
    (release,) = mechanism.release(1, NAMES)
    # Four parts of ten, of which half are expected.
    assert release.sensitivity == pytest.approx(4 * 2.0 / (0.5 * 10))
    assert release.scale == pytest.approx(3 * release.sensitivity)
    assert mechanism.denominator(4) == 2


@pytest.mark.parametrize(
    "weights",
    [
        {"oslo": 1.0},
        dict.fromkeys((*NAMES, "moss"), 1.0),
        dict.fromkeys(("oslo", "bergen", "tromso", "moss"), 1.0),
    ],
    ids=["some are missing", "one too many", "another name"],
)
@pytest.mark.parametrize("unit", ["record", "site"])
def test_a_promise_needs_a_weight_for_every_site_and_for_nobody_else(weights, unit):
    promise = Privacy(unit=unit, delta=1e-5, clip=2.0, noise_multiplier=3.0)
    with pytest.raises(InvalidValue, match="one for each site"):
        promise.solve(Task(), NAMES, Mean(weights=weights), 1)


def test_weights_by_record_counts_are_refused():
    class ByRecords:
        weights = "records"

        def sensitivity(self, clip: float, sites: float) -> float | None:
            return clip / sites

    promise = Privacy(unit="site", delta=1e-5, clip=2.0, noise_multiplier=3.0)
    with pytest.raises(Refused, match="the number of records of a site is private"):
        promise.solve(Task(), NAMES, ByRecords(), 1)


# Mistakes


def test_weights_by_name_need_names():
    with pytest.raises(InvalidValue, match="give Updates"):
        Mean(weights={"oslo": 1.0})(np.ones((1, 2)))


def test_a_site_without_a_weight_is_named():
    with pytest.raises(InvalidValue, match=r"weights\.bergen"):
        Mean(weights={"oslo": 1.0})(Updates(("oslo", "bergen"), np.ones((2, 2))))


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_must_be_a_positive_number(weight):
    with pytest.raises(InvalidValue, match=r"weights\.bergen"):
        Mean(weights={"oslo": 1.0, "bergen": weight})


def test_there_must_be_weights():
    with pytest.raises(InvalidValue, match="weights"):
        Mean(weights={})
