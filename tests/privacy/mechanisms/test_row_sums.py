"""Sums over rows: what one addition rounds away, the next gives back."""

import math

import numpy as np
import pytest

from tacit.privacy.mechanisms.clip import add_rows


def summed(rows: np.ndarray, factors: np.ndarray) -> np.ndarray:
    found = np.empty((len(rows), rows.shape[2]))
    add_rows(rows, factors, found)
    return found


def test_what_cancels_leaves_what_was_small():
    rows = np.array([[[1e16], [1.0], [1.0], [-1e16], [0.25]]])
    assert summed(rows, np.ones((1, 5))).tolist() == [[2.25]]


@pytest.mark.parametrize("seed", range(5))
def test_sums_are_those_of_forty_digits(seed):
    draws = np.random.default_rng(seed)
    rows = draws.normal(size=(2, 200, 3)) * 10.0 ** draws.uniform(-8, 8, size=(2, 200, 3))
    factors = draws.choice([0.0, 0.5, 1.0], size=(2, 200))
    for site, found in enumerate(summed(rows, factors)):
        for column, value in enumerate(found):
            parts = (rows[site, :, column] * factors[site]).tolist()
            assert abs(value - math.fsum(parts)) <= 2**-52 * abs(value) + 2**-100 * sum(map(abs, parts))


def test_a_row_without_a_factor_is_passed_over_however_broken_it_is():
    rows = np.array([[[np.nan, 1.0], [2.0, 3.0], [np.inf, -np.inf]]])
    assert summed(rows, np.array([[0.0, 1.0, 0.0]])).tolist() == [[2.0, 3.0]]
