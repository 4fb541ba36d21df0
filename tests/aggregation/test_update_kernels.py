"""Compiled sums and products over updates are those of double precision, for any number of sites."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.aggregation import kernels
from tacit.aggregation.kernels import COLUMNS, HIGH, SHORT, SUMMED

WIDTHS = (0, 1, 7, SHORT, SHORT + 5, COLUMNS + 1)


def rows(sites: int, columns: int, precision: type = np.float64) -> np.ndarray:
    return np.random.default_rng(sites).normal(size=(sites, columns)).astype(precision)


@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [*WIDTHS, 2 * SUMMED + 3])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 6, 9])
def test_a_sum_of_some_rows_is_that_of_numpy_to_the_bit(count, columns, precision):
    given, some, total = rows(9, columns, precision), np.arange(9)[::-1][:count], np.full(columns, np.nan)
    expected = np.zeros(columns)
    for row in some:
        expected += given[row]
    for factor, over in ((1.0, 1.0), (0.3, 1.0), (2.0, 1.0), (1.0, 7.0), (1.0, 2.0)):
        kernels.sum_rows(given, some, factor, over, total)
        assert (total == expected * factor / over).all()


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_a_scaled_row_and_its_square_are_in_double_precision(precision):
    row, total = rows(1, 5000, precision)[0], np.ones(5000)
    kernels.add_multiple(row, 0.3, total)
    assert (total == 1 + row.astype(float) * 0.3).all()
    assert kernels.square_of(row) == pytest.approx(float((row.astype(float) ** 2).sum()), rel=1e-13)


@settings(max_examples=30)
@given(st.integers(1, 3 * HIGH + 1), st.sampled_from(WIDTHS))
def test_products_of_all_pairs_are_near_to_those_of_double_precision(sites, columns):
    given, gram = rows(sites, columns, np.float32), np.zeros((sites + HIGH, sites + HIGH))
    kernels.add_products(given, gram)
    expected = given.astype(float) @ given.T.astype(float)
    apart = np.abs(np.tril(gram[:sites, :sites] - expected))
    assert (apart <= 1e-5 * max(columns, 1)).all()


@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize("columns", WIDTHS)
def test_products_with_some_are_those_of_double_precision(columns, precision):
    given, some, centre = rows(9, columns, precision), np.array([8, 2]), rows(1, columns)[0]
    squares, inner = np.zeros(9), np.zeros((2, 9))
    kernels.add_some_products(given, some, centre, squares, inner)
    apart = given.astype(float) - centre
    np.testing.assert_allclose(squares, (apart**2).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(inner, apart[some] @ apart.T, atol=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_shows(bad):
    given = rows(6, 3000, np.float32)
    given[4, 2999] = bad
    gram = np.zeros((6 + HIGH, 6 + HIGH))
    kernels.add_products(given, gram)
    assert not np.isfinite(gram[4, 4])
    assert np.isfinite(np.tril(gram[:4, :4])).all()
    assert not np.isfinite(kernels.square_of(given[4]))
