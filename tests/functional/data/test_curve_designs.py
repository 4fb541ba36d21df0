"""Simulated curves are what their designs say, repeat with the seed, and keep their truth."""

import pickle

import numpy as np
import pytest

from tacit.errors import InvalidValue
from tacit.functional.curves.basis import BSplines, frame, whitening
from tacit.functional.data import DESIGNS, deal_predictors, simulate
from tacit.functional.metrics import quadrature, ril2

SPLINES = BSplines(size=20, domain=(0.0, 100.0))


def white(curves, basis=SPLINES):
    """The coordinates of curves in the orthonormal functions that the seed design draws in."""
    whole = frame(basis)
    root, _ = whitening(basis.gram())
    return curves.coordinates(whole) @ whole.mixing.T @ root


def explained(found):
    """Predict by the true surfaces, with integrals on a fine grid."""
    grid = found.response.times
    weights = quadrature(grid)
    parts = [
        (own.values * weights) @ found.surfaces[name](grid, grid) for name, own in found.predictors.items()
    ]
    return np.sum(parts, axis=0)


def test_the_seed_design_comes_back_exactly_from_its_samples():
    found = simulate("seed", records=40, predictors=3, active=2, seed=3)
    whole = frame(SPLINES)
    for own in (*found.predictors.values(), found.response):
        assert own.values.shape == (40, 101)
        again = own.coordinates(whole) @ whole.design(own.times).T
        np.testing.assert_allclose(again, own.values, atol=1e-10)


def test_the_seed_design_has_white_coordinates_and_orthonormal_operators_of_rank_three():
    found = simulate("seed", records=4000, predictors=4, active=2, snr=5.0)
    x = {name: white(own) for name, own in found.predictors.items()}
    for own in x.values():
        np.testing.assert_allclose(np.cov(own.T), np.eye(20), atol=0.15)
    root, _ = whitening(SPLINES.gram())
    rest = white(found.response)
    for name in found.predictors:
        operator = root @ found.surfaces[name].core @ root
        sizes = np.linalg.svd(operator, compute_uv=False)
        if name in found.active:
            assert np.linalg.norm(operator) == pytest.approx(np.sqrt(3))
            np.testing.assert_allclose(sizes[:3] / sizes[0], [1, 0.7, 0.4])
        np.testing.assert_allclose(sizes[3 * (name in found.active) :], 0, atol=1e-10)
        rest = rest - x[name] @ operator
    # Two operators of squared norm 3, a signal 5 times as strong as the noise of 20 coordinates.
    assert rest.std() == pytest.approx(np.sqrt(6 / (20 * 5)), rel=0.02)
    assert found.noise == pytest.approx(1 / 6)


@pytest.mark.parametrize("design", DESIGNS)
def test_nobody_predicts_better_than_the_truth_and_the_truth_leaves_the_noise(design):
    found = simulate(design, records=1200, points=401, seed=1)
    left = ril2(found.response.values, explained(found), found.response.times)
    assert left == pytest.approx(found.noise, rel=0.1)
    assert ril2(found.response.values, 0 * found.response.values) == 1


@pytest.mark.parametrize("design", DESIGNS)
def test_the_ratio_of_signal_to_noise_is_what_was_asked_for(design):
    found = simulate(design, records=1200, points=401, snr=2.0)
    assert found.noise == pytest.approx(1 / 3)
    left = ril2(found.response.values, explained(found), found.response.times)
    assert left == pytest.approx(1 / 3, rel=0.1)


def test_only_active_predictors_have_a_surface():
    for design, active in (("seed", 5), ("bumps", 2), ("smooth", 2)):
        found = simulate(design, records=2)
        assert found.active == tuple(f"x{number}" for number in range(1, active + 1))
        s, t = np.linspace(*found.response.domain, 13), np.linspace(*found.response.domain, 7)
        for name in found.predictors:
            values = found.surfaces[name](s, t)
            assert values.shape == (13, 7)
            assert values.any() == (name in found.active)


def test_bumps_stay_in_their_windows_and_vary_in_height():
    found = simulate("bumps", records=2000)
    for window, own in enumerate(found.predictors.values()):
        heights = own.values.std(axis=0)
        inside = (own.times > 25 * window) & (own.times < 25 * (window + 1))
        assert own.times[heights.argmax()] == pytest.approx(25 * window + 12.5, abs=1)
        assert heights.max() == pytest.approx(1, rel=0.1)
        assert heights[~inside].mean() < 0.06
    # The response of a local operator is high where its predictors are.
    assert found.response.values[:, 60:].std() < 0.2 * found.response.values[:, :40].std()
    assert 0 < found.noise < 1e-3


def test_smooth_predictors_have_the_covariance_that_was_asked_for():
    found = simulate("smooth", records=6000, points=11, length=0.3)
    times = found.response.times
    wanted = np.exp(-0.5 * ((times[:, None] - times) / 0.3) ** 2)
    for own in found.predictors.values():
        np.testing.assert_allclose(np.cov(own.values.T), wanted, atol=0.08)
    assert found.response.domain == (0, 1)
    other = simulate("smooth", records=5, points=11, length=0.3, domain=(0, 50))
    first = simulate("smooth", records=5, points=11, length=0.3)
    # Another unit of time gives the same curves, and surfaces for integrals in that unit.
    np.testing.assert_allclose(other.response.values, first.response.values, atol=1e-6)
    np.testing.assert_allclose(
        other.surfaces["x1"](50 * times, 50 * times) * 50, first.surfaces["x1"](times, times)
    )


@pytest.mark.parametrize("design", DESIGNS)
def test_the_same_seed_gives_the_same_curves_and_more_begin_with_the_same(design):
    found, again = simulate(design, records=9, seed=5), simulate(design, records=9, seed=5)
    longer = simulate(design, records=30, seed=5)
    for name in found.predictors:
        np.testing.assert_array_equal(found.predictors[name].values, again.predictors[name].values)
        np.testing.assert_allclose(
            longer.predictors[name].take(slice(9)).values, found.predictors[name].values, atol=1e-12
        )
    np.testing.assert_allclose(longer.response.values[:9], found.response.values, atol=1e-12)
    assert not np.allclose(simulate(design, records=9, seed=6).response.values, found.response.values)


@pytest.mark.parametrize("design", DESIGNS)
def test_replicates_are_new_subjects_of_the_same_truth(design):
    first, second = (simulate(design, records=400, replicate=number) for number in (0, 1))
    s = t = np.linspace(*first.response.domain, 9)
    for name in first.predictors:
        np.testing.assert_array_equal(first.surfaces[name](s, t), second.surfaces[name](s, t))
        pair = first.predictors[name].values.ravel(), second.predictors[name].values.ravel()
        assert abs(np.corrcoef(*pair)[0, 1]) < 0.1
    other = simulate(design, records=2, seed=1)
    changed = [
        not np.allclose(other.surfaces[name](s, t), first.surfaces[name](s, t)) for name in first.active
    ]
    assert all(changed) == (design != "bumps")


def test_more_predictors_leave_the_others_as_they_were():
    few, many = (simulate("seed", records=8, predictors=count, active=2) for count in (3, 6))
    for name, own in few.predictors.items():
        np.testing.assert_array_equal(own.values, many.predictors[name].values)
    np.testing.assert_array_equal(few.response.values, many.response.values)


def test_some_subjects_can_be_taken():
    found = simulate("smooth", records=20)
    part = found.take([3, 5])
    assert (len(found), len(part)) == (20, 2)
    np.testing.assert_array_equal(part.response.values, found.response.values[[3, 5]])
    np.testing.assert_array_equal(part.predictors["x2"].values, found.predictors["x2"].values[[3, 5]])
    assert part.active == found.active
    assert len(found.take(slice(5, 9))) == 4


def test_a_set_goes_to_another_process_and_back():
    found = simulate("seed", records=5, predictors=2, active=1)
    again = pickle.loads(pickle.dumps(found))
    s = np.linspace(0, 100, 5)
    np.testing.assert_array_equal(again.surfaces["x1"](s, s), found.surfaces["x1"](s, s))


def test_predictors_are_dealt_in_turn_and_subjects_are_not_divided():
    names = [f"x{number}" for number in range(1, 21)]
    for count in (1, 2, 6, 20):
        found = deal_predictors(names, count)
        assert list(found) == [f"party-{number}" for number in range(1, count + 1)]
        assert sorted(name for own in found.values() for name in own) == sorted(names)
        sizes = [len(own) for own in found.values()]
        assert max(sizes) - min(sizes) <= 1
        for place, name in enumerate(names):
            assert name in found[f"party-{place % count + 1}"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: simulate("sed"), 'did you mean "seed"'),
        (lambda: simulate(records=0), "records = 0"),
        (lambda: simulate(records=2.5), "records = 2.5"),
        (lambda: simulate(predictors=0), "predictors = 0"),
        (lambda: simulate(predictors=3, active=4), "active = 4 is not allowed: it must be at most 3"),
        (lambda: simulate(snr=0.0), "snr = 0.0"),
        (lambda: simulate(snr=float("nan")), "snr = nan"),
        (lambda: simulate(seed="a"), "seed = 'a'"),
        (lambda: simulate(replicate=0.5), "replicate = 0.5"),
        (lambda: simulate(points=1), "points = 1"),
        (lambda: simulate(domain=(1.0, 0.0)), "domain = "),
        (lambda: simulate(size=3), "size = 3"),
        (lambda: simulate("smooth", length=0.0), "length = 0.0"),
        (lambda: simulate("smooth", size=9), "size = 9 is not allowed: smooth takes length instead"),
        (lambda: simulate("seed", length=0.1), "length = 0.1 is not allowed: seed takes size instead"),
        (lambda: deal_predictors(["a", "b"], 3), "count = 3 is not allowed: it must be at most 2"),
        (lambda: deal_predictors(["a", "b"], 0), "count = 0"),
        (lambda: deal_predictors(["a", "a"], 1), "each of them once"),
    ],
)
def test_what_cannot_be_drawn_is_told_in_one_sentence(call, words):
    with pytest.raises(InvalidValue) as told:
        call()
    assert words in str(told.value)
