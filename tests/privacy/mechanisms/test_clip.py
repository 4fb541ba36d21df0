import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import InvalidValue
from tacit.privacy.mechanisms.clip import clip_rows, count_broken, lengths
from tacit.runtime.arrays import Array

DTYPES = [np.float32, np.float64]
NORMS = ["l2", "l1"]


# A row that double precision cannot tell from one at the bound stays as it is.
ONE_ROUNDING = 1 + Fraction(1, 2**50)


def within(row: Array, bound: float, norm: str = "l2") -> bool:
    """Return True if a row has length at most `bound`, exactly, up to one rounding of doubles."""
    entries = [Fraction(value) for value in row.tolist()]
    if norm == "l1":
        return sum(map(abs, entries)) <= Fraction(bound) * ONE_ROUNDING
    return sum(entry**2 for entry in entries) <= (Fraction(bound) * ONE_ROUNDING) ** 2


def finite_rows(width: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(allow_nan=False, allow_infinity=False, width=width), min_size=1, max_size=6)


bounds = st.floats(1e-6, 1e6)
dtypes = st.sampled_from(DTYPES)
norms = st.sampled_from(NORMS)


@settings(deadline=None, max_examples=300)
@given(st.one_of(finite_rows(32), finite_rows(64)), bounds, dtypes, norms)
def test_a_clipped_row_is_never_longer_than_the_bound(row, bound, dtype, norm):
    with np.errstate(over="ignore"):
        rows = np.array(row, dtype=np.float64).astype(dtype)
    clipped = clip_rows(rows, bound, norm=norm)
    assert np.isfinite(clipped).all()
    assert within(clipped, bound, norm)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10**6), st.floats(-3, 3), st.floats(1e-3, 1e3), dtypes, norms)
def test_ordinary_rows_are_never_longer_than_the_bound(seed, magnitude, bound, dtype, norm):
    rows = (np.random.default_rng(seed).normal(size=(16, 5)) * bound * 10**magnitude).astype(dtype)
    assert all(within(row, bound, norm) for row in clip_rows(rows, bound, norm=norm))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_at_the_bound_stays_bit_identical(dtype):
    row = np.array([3.0, -4.0], dtype=dtype)
    assert np.array_equal(clip_rows(row, 5.0), row)


@pytest.mark.parametrize("bound", [1.0, 0.1, 1e-3, 1e-6])
@pytest.mark.parametrize(("dtype", "huge"), [(np.float32, 3e38), (np.float64, 1.5e308)])
def test_a_row_at_the_edge_of_its_type_is_clipped_to_the_bound(bound, dtype, huge):
    rows = (np.linspace(0.5, 1, 50) * huge).astype(dtype)[..., None]
    assert all(within(row, bound) for row in clip_rows(rows, bound))


@pytest.mark.parametrize("norm", NORMS)
def test_a_model_of_a_million_weights_is_clipped_to_the_bound(norm):
    row = np.random.default_rng(1).random(1_000_000)
    clipped = clip_rows(row, 1.0, norm=norm)
    terms, rest = np.abs(clipped), np.zeros(1)
    if norm == "l2":
        # Each square as a double and its exact remainder (Dekker 1971).
        terms = clipped * clipped
        high = clipped * 134217729.0
        high = high - (high - clipped)
        low = clipped - high
        rest = ((high * high - terms) + 2 * high * low) + low * low
    excess = math.fsum(np.concatenate([terms, rest, [-1.0]]).tolist())
    assert excess <= 0


@settings(deadline=None, max_examples=100)
@given(finite_rows(32), bounds, dtypes, norms)
def test_a_short_row_stays_bit_identical(row, bound, dtype, norm):
    short = np.array(row, dtype=dtype)
    short = (short * min(1.0, bound / (4 * float(lengths(short, norm=norm)) + 1e-300))).astype(dtype)
    clipped = clip_rows(short, bound, norm=norm)
    assert clipped.dtype == dtype
    assert clipped.tobytes() == short.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", NORMS)
def test_a_row_shorter_than_the_bound_by_a_hair_stays_bit_identical(dtype, norm):
    row = np.array([3.0, 4.0], dtype=dtype)
    bound = (5.0 if norm == "l2" else 7.0) * (1 + 1e-9)
    assert np.array_equal(clip_rows(row, bound, norm=norm), row)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=6).filter(
        lambda row: max(map(abs, row)) > 1
    ),
    st.floats(1e-3, 1.0),
    norms,
)
def test_clipping_keeps_the_direction_and_loses_next_to_nothing(row, bound, norm):
    long = np.array(row, dtype=np.float64)
    clipped = clip_rows(long, bound, norm=norm)
    size = float(lengths(long, norm=norm))
    np.testing.assert_allclose(clipped / bound, long / size, rtol=1e-12, atol=1e-12)
    assert float(lengths(clipped, norm=norm)) == pytest.approx(bound, rel=1e-12)


def test_float32_loses_no_more_than_a_few_roundings():
    clipped = clip_rows(np.array([30.0, 40.0], dtype=np.float32), 1.0)
    assert float(lengths(clipped)) == pytest.approx(1.0, rel=2e-6)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", NORMS)
def test_a_broken_row_becomes_zero_and_its_neighbours_do_not_notice(broken, dtype, norm):
    rows = np.array([[0.1, 0.2], [broken, 0.3], [0.3, 0.1]], dtype=dtype)
    clipped = clip_rows(rows, 1.0, norm=norm)
    assert clipped[1].tolist() == [0, 0]
    assert np.array_equal(clipped[[0, 2]], rows[[0, 2]])
    assert count_broken(rows) == 1


def test_broken_rows_are_counted_once_each():
    rows = np.array([[math.nan, math.inf], [1.0, 2.0], [math.inf, 0.0]])
    assert count_broken(rows) == 2
    assert count_broken(np.zeros((0, 3))) == 0


@pytest.mark.parametrize(("dtype", "huge"), [(np.float32, 1e30), (np.float64, 1e200)])
@pytest.mark.parametrize("norm", NORMS)
def test_a_row_whose_square_would_overflow_keeps_its_direction(dtype, huge, norm):
    clipped = clip_rows(np.array([huge, -huge], dtype=dtype), 1.0, norm=norm)
    share = 0.5 if norm == "l1" else math.sqrt(0.5)
    assert clipped.tolist() == pytest.approx([share, -share], rel=1e-5)


@pytest.mark.parametrize(("dtype", "tiny"), [(np.float32, 1e-45), (np.float64, 5e-324)])
@pytest.mark.parametrize("norm", NORMS)
def test_a_subnormal_row_stays_bit_identical_and_has_a_length(dtype, tiny, norm):
    row = np.array([tiny, 0.0], dtype=dtype)
    assert np.array_equal(clip_rows(row, 1.0, norm=norm), row)
    assert 0 < float(lengths(row, norm=norm)) < 1e-40


def test_a_row_whose_square_would_vanish_keeps_its_length():
    assert float(lengths(np.array([3e-200, 4e-200], dtype=np.float64))) == pytest.approx(5e-200, abs=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_zero_row_stays_zero(dtype):
    assert clip_rows(np.zeros((2, 3), dtype=dtype), 1.0).tolist() == [[0] * 3] * 2


@pytest.mark.parametrize("norm", NORMS)
def test_no_rows_at_all_are_no_rows_at_all(norm):
    assert clip_rows(np.zeros((0, 3)), 1.0, norm=norm).shape == (0, 3)


@pytest.mark.parametrize("norm", NORMS)
def test_a_vector_is_one_row(norm):
    vector = np.array([3.0, -4.0])
    assert np.array_equal(clip_rows(vector, 1.0, norm=norm), clip_rows(vector[None], 1.0, norm=norm)[0])


def test_every_leading_axis_is_clipped_row_by_row():
    rows = np.random.default_rng(0).normal(size=(2, 3, 4))
    whole = clip_rows(rows, 0.5)
    assert np.array_equal(whole.reshape(6, 4), clip_rows(rows.reshape(6, 4), 0.5))


def test_clipping_does_not_touch_its_input():
    rows = np.array([[3.0, 4.0], [math.nan, 0.0]])
    before = rows.copy()
    clip_rows(rows, 1.0)
    assert np.array_equal(rows, before, equal_nan=True)


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, math.inf])
def test_a_bound_that_bounds_nothing_is_refused(bound):
    with pytest.raises(InvalidValue, match="bound"):
        clip_rows(np.ones(2), bound)


def test_a_misspelt_norm_is_refused():
    with pytest.raises(InvalidValue, match='must be "l2" or "l1"'):
        clip_rows(np.ones(2), 1.0, norm="L2")  # type: ignore[arg-type]
