"""The generalized Sylvester equation: the same answer as the dense system, whatever the penalties are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InvalidValue
from tacit.functional.solver import prepare, solve


def dense(moments, right, rough_x, rough_y, along_s, along_t, along_both):
    """One linear system of size q m."""
    rough_x, rough_y = (np.diag(one) if one.ndim == 1 else one for one in (rough_x, rough_y))
    q, m = right.shape
    system = np.kron(np.eye(m), moments + along_s * rough_x)
    system += along_t * np.kron(rough_y, np.eye(q)) + along_both * np.kron(rough_y, rough_x)
    return np.linalg.solve(system, right.T.ravel()).reshape(m, q).T


def equation(seed, q, m, diagonal=False):
    draws = np.random.default_rng(seed)
    rows = draws.normal(size=(4 * q, q))
    rough_x, rough_y = (np.diff(np.eye(n), 2, axis=0).T @ np.diff(np.eye(n), 2, axis=0) for n in (q, m))
    if diagonal:
        rough_x, rough_y = np.arange(q) ** 4.0, np.arange(m) ** 4.0
    return rows.T @ rows / (4 * q), draws.normal(size=(q, m)), rough_x, rough_y


def relative(one, other):
    return abs(one - other).max() / abs(other).max()


@given(
    st.integers(0, 1000),
    st.integers(2, 9),
    st.integers(2, 9),
    st.booleans(),
    st.tuples(*[st.sampled_from([0.0, 1e-4, 0.05, 3.0])] * 3),
)
def test_it_gives_what_the_dense_system_gives(seed, q, m, diagonal, weights):
    one = equation(seed, q, m, diagonal)
    assert relative(solve(*one, *weights), dense(*one, *weights)) < 1e-10


@pytest.mark.parametrize("weights", [(0.05, 0.05, 0.05), (0.05, 0.05, 0.0), (0.0, 0.0, 0.3), (0.0, 0.0, 0.0)])
def test_twenty_coordinates_agree_with_the_dense_system_to_ten_digits(weights):
    for diagonal in (False, True):
        one = equation(1, 20, 20, diagonal)
        assert relative(solve(*one, *weights), dense(*one, *weights)) < 1e-10


def test_a_stack_is_solved_as_each_of_it_alone_each_at_its_own_price():
    moments, right, rough_x, rough_y = (
        np.stack(parts) for parts in zip(*(equation(seed, 5, 4, True) for seed in range(6)), strict=True)
    )
    prices = np.random.default_rng(0).uniform(size=(3, 6))
    ready = prepare(moments, rough_x, rough_y[0], *prices)
    together = ready.solve(right)
    for place in range(6):
        alone = solve(moments[place], right[place], rough_x[place], rough_y[0], *prices[:, place])
        np.testing.assert_allclose(together[place], alone, rtol=1e-11, atol=1e-13)


def test_a_set_up_serves_many_right_hand_sides():
    moments, right, rough_x, rough_y = equation(3, 6, 5)
    ready = prepare(moments, rough_x, rough_y, 0.1, 0.2, 0.3)
    for scale in (1.0, -2.0):
        expected = dense(moments, scale * right, rough_x, rough_y, 0.1, 0.2, 0.3)
        assert relative(ready.solve(scale * right), expected) < 1e-10


def test_moments_that_are_no_variances_are_named():
    moments, right, rough_x, rough_y = equation(3, 4, 4)
    with pytest.raises(InvalidValue, match=r"smallest eigenvalue -1.* must be positive definite"):
        solve(moments - (1 + np.linalg.eigvalsh(moments)[0]) * np.eye(4), right, rough_x, rough_y, 0, 0, 0)
    with pytest.raises(InvalidValue, match="not finite"):
        solve(np.full((4, 4), np.nan), right, rough_x, rough_y, 0, 0, 0)


def test_what_does_not_fit_is_refused_by_name():
    moments, right, rough_x, rough_y = equation(3, 4, 4)
    with pytest.raises(InvalidValue, match="ls = -1"):
        solve(moments, right, rough_x, rough_y, -1.0, 0, 0)
    with pytest.raises(InvalidValue, match="Ox = "):
        solve(moments, right, rough_x[:3], rough_y, 0, 0, 0)
    with pytest.raises(InvalidValue, match="G = "):
        solve(moments[:3], right, rough_x, rough_y, 0, 0, 0)
    with pytest.raises(InvalidValue, match="Oy = "):
        solve(moments, right, rough_x, rough_y[:3], 0, 0, 0)
