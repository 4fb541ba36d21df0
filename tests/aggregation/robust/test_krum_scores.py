"""The lowest scores of Krum: single precision chooses as double precision does, or leaves it to it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.aggregation.base import rows_of
from tacit.aggregation.geometry import gram_of, require_usable, squared_distances
from tacit.aggregation.robust import krum as module
from tacit.aggregation.robust.krum import WIDE, Krum, MultiKrum, krum_scores, lowest_scores
from tacit.aggregation.screening import LONGEST
from tacit.errors import InvalidValue

WIDTH = 2 * WIDE + 300


def noise(sites, *, seed=0, dtype=np.float32, offset=0.0, scale=1.0):
    draws = np.random.default_rng(seed)
    common = offset * draws.standard_normal(WIDTH)
    return (scale * (draws.standard_normal((sites, WIDTH)) + common)).astype(dtype)


def in_double(rows, f):
    matrix, order = rows_of(rows)
    return krum_scores(squared_distances(gram_of(matrix, order, rows)), f)


@settings(max_examples=10, deadline=None)
@given(
    sites=st.integers(5, 30),
    seed=st.integers(0, 1000),
    offset=st.sampled_from([0.0, 1.0, 10.0]),
    dtype=st.sampled_from([np.float32, np.float64]),
    data=st.data(),
)
def test_the_choice_is_that_of_double_precision(sites, seed, offset, dtype, data):
    f = data.draw(st.integers(0, (sites - 3) // 2))
    rows = noise(sites, seed=seed, offset=offset, dtype=dtype)
    order = in_double(rows, f).argsort(kind="stable")
    for kept in (1, sites - f):
        found = lowest_scores(rows, f, kept)
        assert found is not None
        np.testing.assert_array_equal(found, np.sort(order[:kept]))


@pytest.mark.parametrize("offset", [0.0, 10.0])
@pytest.mark.parametrize("doubt", [2e-4, 5e-4, 1e-3])
def test_with_more_doubt_more_is_measured_in_double_and_the_choice_is_the_same(doubt, offset, monkeypatch):
    monkeypatch.setattr(module, "DOUBT", doubt)
    measured = []
    kept_function = module._distances_of

    def counted(rows, some, about):
        measured.append(len(some))
        return kept_function(rows, some, about)

    monkeypatch.setattr(module, "_distances_of", counted)
    chosen = 0
    for seed in range(3):
        rows = noise(30, seed=seed, offset=offset)
        order = in_double(rows, 9).argsort(kind="stable")
        for kept in (1, 21):
            found = lowest_scores(rows, 9, kept)
            if found is not None:
                chosen += 1
                np.testing.assert_array_equal(found, np.sort(order[:kept]))
    assert chosen
    assert measured


@pytest.mark.parametrize("apart", [1e-3, 1e-5, 1e-7, 1e-9])
def test_scores_that_single_precision_cannot_tell_apart_are_measured_in_double(apart):
    rows = noise(12, dtype=np.float64)
    # The winner and a copy that is a little farther from all others.
    best = int(in_double(rows, 3).argmin())
    away = rows[best] - rows.mean(axis=0)
    rows = np.concatenate([rows, [rows[best] + apart * away]])
    expected = in_double(rows, 3).argsort(kind="stable")
    assert set(expected[:2]) == {best, 12}
    np.testing.assert_array_equal(lowest_scores(rows, 3, 1), expected[:1])
    shares = MultiKrum(f=3).shares(rows)
    assert shares is not None
    np.testing.assert_array_equal(np.flatnonzero(shares), np.sort(expected[:10]))


def test_two_that_are_each_others_nearest_are_as_near_and_the_first_is_chosen():
    rows = noise(12, dtype=np.float64)
    rows[7] = rows[1] + 0.1 * noise(1, seed=3, dtype=np.float64)[0]
    # With f = 10 of twelve, a score is the distance to the nearest other alone.
    np.testing.assert_array_equal(lowest_scores(rows, 10, 1), [1])
    rows[[1, 7]] = rows[[7, 1]]
    np.testing.assert_array_equal(lowest_scores(rows, 10, 1), [1])


@pytest.mark.parametrize("rule", [Krum(f=3), MultiKrum(f=3)])
@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1e-6, 1e6, 1e30])
def test_numbers_whose_squares_leave_single_precision_choose_the_same(rule, scale):
    rows = noise(11, dtype=np.float64)
    small = rule.shares((rows * scale).astype(np.float32))
    np.testing.assert_array_equal(small, rule.shares(rows.astype(np.float32)))


@pytest.mark.parametrize("far", [1e3, 1e18, 1e30])
def test_liars_far_away_take_nobody_elses_digits(far):
    rows = noise(11, dtype=np.float64)
    honest = in_double(rows[:8], 0).argsort(kind="stable")
    rows[8:] *= far
    np.testing.assert_array_equal(np.flatnonzero(MultiKrum(f=3).shares(rows)), np.arange(8))
    # Beside three that are never near, the scores are those without them.
    np.testing.assert_array_equal(np.flatnonzero(Krum(f=3).shares(rows)), honest[:1])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", [0, WIDTH - 1])
def test_what_is_not_finite_is_left_to_double_precision_which_names_it(bad, column):
    rows = noise(7)
    rows[4, column] = bad
    assert lowest_scores(rows, 2, 1) is None
    with pytest.raises(InvalidValue, match=r"updates\[4\]"):
        Krum(f=2)(rows)


def test_few_columns_and_rows_that_are_all_alike_are_left_to_double_precision():
    assert lowest_scores(noise(7)[:, : WIDE - 1], 2, 1) is None
    alike = np.tile(noise(1), (9, 1))
    assert lowest_scores(alike, 3, 1) is None
    np.testing.assert_array_equal(Krum(f=3)(alike), alike[0])


@pytest.mark.parametrize("make", [noise, lambda sites: np.abs(noise(sites))], ids=["noise", "positive"])
def test_the_doubt_is_far_above_the_errors_of_single_precision(make):
    rows = make(20)
    exact = rows.astype(np.float64) @ rows.astype(np.float64).T
    lengths = np.sqrt(np.outer(exact.diagonal(), exact.diagonal()))
    apart = np.abs(module._in_single(rows, None) - exact) / lengths
    assert apart.max() < module.DOUBT / 16


def test_even_constants_are_within_the_doubt():
    rows = np.linspace(0.1, 0.3, 20, dtype=np.float32)[:, None] * np.ones(WIDTH, dtype=np.float32)
    exact = rows.astype(np.float64) @ rows.astype(np.float64).T
    assert (np.abs(module._in_single(rows, None) / exact - 1)).max() < module.DOUBT


@pytest.mark.parametrize("columns", [1, 2, 9])
def test_an_update_may_be_as_long_as_can_be_squared_and_no_longer(columns):
    longest = np.full((1, columns), LONGEST / np.sqrt(columns))
    require_usable(longest * (1 - 1e-9), np.arange(1), None)
    with pytest.raises(InvalidValue, match="screen updates first"):
        require_usable(longest * (1 + 1e-9), np.arange(1), None)
