import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tacit.errors import InvalidValue
from tacit.privacy.mechanisms.clip import Geometry, clip_groups, clip_rows, count_broken, lengths

DTYPES = [torch.float32, torch.float64]
NORMS = ["l2", "l1"]


# A row that double precision cannot tell from one at the bound stays as it is.
ONE_ROUNDING = 1 + Fraction(1, 2**50)


def within(row: Tensor, bound: float, norm: str = "l2") -> bool:
    """Whether a row is at most `bound` long, computed exactly, but for one rounding of double precision."""
    entries = [Fraction(value) for value in row.tolist()]
    if norm == "l1":
        return sum(map(abs, entries)) <= Fraction(bound) * ONE_ROUNDING
    return sum(entry**2 for entry in entries) <= (Fraction(bound) * ONE_ROUNDING) ** 2


def within_geometry(row: Tensor, bound: float, geometry: Geometry) -> bool:
    """Whether a row is at most `bound` long once whitened, without any rounding."""
    entries = [Fraction(value) for value in row.tolist()]
    columns = geometry.root.T.tolist()
    whitened = [sum(a * Fraction(b) for a, b in zip(entries, column, strict=True)) for column in columns]
    return sum(value**2 for value in whitened) <= Fraction(bound) ** 2


def random_geometry(seed: int, size: int, condition: float) -> Geometry:
    generator = torch.Generator().manual_seed(seed)
    axes, _ = torch.linalg.qr(torch.randn(size, size, dtype=torch.float64, generator=generator))
    matrix = axes @ torch.diag(torch.logspace(0, math.log10(condition), size, dtype=torch.float64)) @ axes.T
    return Geometry((matrix + matrix.T) / 2)


def finite_rows(width: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(allow_nan=False, allow_infinity=False, width=width), min_size=1, max_size=6)


bounds = st.floats(1e-6, 1e6)
dtypes = st.sampled_from(DTYPES)
norms = st.sampled_from(NORMS)


@settings(deadline=None, max_examples=300)
@given(st.one_of(finite_rows(32), finite_rows(64)), bounds, dtypes, norms)
def test_a_clipped_row_is_never_longer_than_the_bound(row, bound, dtype, norm):
    clipped = clip_rows(torch.tensor(row, dtype=torch.float64).to(dtype), bound, norm=norm)
    assert clipped.isfinite().all()
    assert within(clipped, bound, norm)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10**6), st.floats(-3, 3), st.floats(1e-3, 1e3), dtypes, norms)
def test_ordinary_rows_are_never_longer_than_the_bound(seed, magnitude, bound, dtype, norm):
    generator = torch.Generator().manual_seed(seed)
    rows = (torch.randn(16, 5, dtype=torch.float64, generator=generator) * bound * 10**magnitude).to(dtype)
    assert all(within(row, bound, norm) for row in clip_rows(rows, bound, norm=norm))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_at_the_bound_stays_bit_identical(dtype):
    row = torch.tensor([3.0, -4.0], dtype=dtype)
    assert torch.equal(clip_rows(row, 5.0), row)


@pytest.mark.parametrize("bound", [1.0, 0.1, 1e-3, 1e-6])
@pytest.mark.parametrize(("dtype", "huge"), [(torch.float32, 3e38), (torch.float64, 1.5e308)])
def test_a_row_at_the_edge_of_its_type_is_clipped_to_the_bound(bound, dtype, huge):
    rows = torch.linspace(0.5, 1, 50, dtype=torch.float64).mul(huge).to(dtype).unsqueeze(-1)
    assert all(within(row, bound) for row in clip_rows(rows, bound))


@pytest.mark.parametrize("norm", NORMS)
def test_a_model_of_a_million_weights_is_clipped_to_the_bound(norm):
    row = torch.rand(1_000_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    clipped = clip_rows(row, 1.0, norm=norm).numpy()
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
    short = torch.tensor(row, dtype=dtype)
    short = short * min(1.0, bound / (4 * float(lengths(short, norm=norm)) + 1e-300))
    clipped = clip_rows(short, bound, norm=norm)
    assert clipped.dtype == dtype
    assert clipped.numpy().tobytes() == short.numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", NORMS)
def test_a_row_shorter_than_the_bound_by_a_hair_stays_bit_identical(dtype, norm):
    row = torch.tensor([3.0, 4.0], dtype=dtype)
    bound = (5.0 if norm == "l2" else 7.0) * (1 + 1e-9)
    assert torch.equal(clip_rows(row, bound, norm=norm), row)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=6).filter(
        lambda row: max(map(abs, row)) > 1
    ),
    st.floats(1e-3, 1.0),
    norms,
)
def test_clipping_keeps_the_direction_and_loses_next_to_nothing(row, bound, norm):
    long = torch.tensor(row, dtype=torch.float64)
    clipped = clip_rows(long, bound, norm=norm)
    size = float(lengths(long, norm=norm))
    torch.testing.assert_close(clipped / bound, long / size, rtol=1e-12, atol=1e-12)
    assert float(lengths(clipped, norm=norm)) == pytest.approx(bound, rel=1e-12)


def test_float32_loses_no_more_than_a_few_roundings():
    clipped = clip_rows(torch.tensor([30.0, 40.0]), 1.0)
    assert float(lengths(clipped)) == pytest.approx(1.0, rel=2e-6)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", NORMS)
def test_a_broken_row_becomes_zero_and_its_neighbours_do_not_notice(broken, dtype, norm):
    rows = torch.tensor([[0.1, 0.2], [broken, 0.3], [0.3, 0.1]], dtype=dtype)
    clipped = clip_rows(rows, 1.0, norm=norm)
    assert clipped[1].tolist() == [0, 0]
    assert torch.equal(clipped[[0, 2]], rows[[0, 2]])
    assert count_broken(rows) == 1


def test_broken_rows_are_counted_once_each():
    rows = torch.tensor([[math.nan, math.inf], [1.0, 2.0], [math.inf, 0.0]])
    assert count_broken(rows) == 2
    assert count_broken(torch.zeros(0, 3)) == 0


def test_a_broken_row_becomes_zero_in_a_geometry_too():
    geometry = random_geometry(0, 2, 10.0)
    assert clip_rows(torch.tensor([[math.nan, 1.0]]), 1.0, geometry=geometry).tolist() == [[0, 0]]


@pytest.mark.parametrize(("dtype", "huge"), [(torch.float32, 1e30), (torch.float64, 1e200)])
@pytest.mark.parametrize("norm", NORMS)
def test_a_row_whose_square_would_overflow_keeps_its_direction(dtype, huge, norm):
    clipped = clip_rows(torch.tensor([huge, -huge], dtype=dtype), 1.0, norm=norm)
    share = 0.5 if norm == "l1" else math.sqrt(0.5)
    assert clipped.tolist() == pytest.approx([share, -share], rel=1e-5)


@pytest.mark.parametrize(("dtype", "tiny"), [(torch.float32, 1e-45), (torch.float64, 5e-324)])
@pytest.mark.parametrize("norm", NORMS)
def test_a_subnormal_row_stays_bit_identical_and_has_a_length(dtype, tiny, norm):
    row = torch.tensor([tiny, 0.0], dtype=dtype)
    assert torch.equal(clip_rows(row, 1.0, norm=norm), row)
    assert 0 < float(lengths(row, norm=norm)) < 1e-40


def test_a_row_whose_square_would_vanish_keeps_its_length():
    assert float(lengths(torch.tensor([3e-200, 4e-200], dtype=torch.float64))) == pytest.approx(5e-200, abs=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_zero_row_stays_zero(dtype):
    assert clip_rows(torch.zeros(2, 3, dtype=dtype), 1.0).tolist() == [[0] * 3] * 2


@pytest.mark.parametrize("norm", NORMS)
def test_no_rows_at_all_are_no_rows_at_all(norm):
    assert clip_rows(torch.zeros(0, 3), 1.0, norm=norm).shape == (0, 3)


@pytest.mark.parametrize("norm", NORMS)
def test_a_vector_is_one_row(norm):
    vector = torch.tensor([3.0, -4.0])
    assert torch.equal(
        clip_rows(vector, 1.0, norm=norm), clip_rows(vector.unsqueeze(0), 1.0, norm=norm).squeeze(0)
    )


def test_every_leading_axis_is_clipped_row_by_row():
    rows = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    whole = clip_rows(rows, 0.5)
    assert torch.equal(whole.reshape(6, 4), clip_rows(rows.reshape(6, 4), 0.5))


def test_clipping_does_not_touch_its_input():
    rows = torch.tensor([[3.0, 4.0], [math.nan, 0.0]])
    before = rows.clone()
    clip_rows(rows, 1.0)
    assert torch.equal(rows.nan_to_num(7), before.nan_to_num(7))


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, math.inf])
def test_a_bound_that_bounds_nothing_is_refused(bound):
    with pytest.raises(InvalidValue, match="bound"):
        clip_rows(torch.ones(2), bound)


def test_a_misspelt_norm_is_refused():
    with pytest.raises(InvalidValue, match='must be "l2" or "l1"'):
        clip_rows(torch.ones(2), 1.0, norm="L2")  # type: ignore[arg-type]


def test_a_geometry_does_not_go_with_l1():
    with pytest.raises(InvalidValue, match="geometry"):
        clip_rows(torch.ones(2), 1.0, norm="l1", geometry=random_geometry(0, 2, 10.0))


# Groups


@settings(deadline=None, max_examples=100)
@given(st.data(), dtypes, norms)
def test_one_record_moves_one_group_by_at_most_twice_the_bound(data, dtype, norm):
    groups, width = 3, 2
    entries = st.floats(-1e3, 1e3, width=32)
    row = st.lists(entries, min_size=width, max_size=width)
    rows = torch.tensor(data.draw(st.lists(row, min_size=1, max_size=6)), dtype=dtype)
    labels = torch.tensor(
        data.draw(st.lists(st.integers(0, groups - 1), min_size=len(rows), max_size=len(rows)))
    )
    bound = data.draw(st.floats(1e-3, 1e3))
    whole = clip_groups(rows, labels, groups, bound, norm=norm)
    without = clip_groups(rows[:-1], labels[:-1], groups, bound, norm=norm)
    moved = (whole.double() - without.double()).abs()
    assert moved[[group for group in range(groups) if group != int(labels[-1])]].sum() == 0
    assert float(lengths(moved, norm=norm).max()) <= 2 * bound * (1 + 1e-12)


def test_one_record_can_turn_a_group_into_its_opposite():
    rows = torch.tensor([[1.0], [-2.0]])
    labels = torch.tensor([0, 0])
    moved = clip_groups(rows, labels, 1, 1.0) - clip_groups(rows[:1], labels[:1], 1, 1.0)
    assert float(moved.abs()) == pytest.approx(2.0, rel=1e-5)


def test_an_empty_group_contributes_zero():
    sums = clip_groups(torch.tensor([[3.0, 4.0], [0.1, 0.1]]), torch.tensor([2, 0]), 4, 1.0)
    assert sums.shape == (4, 2)
    assert sums[[1, 3]].tolist() == [[0, 0], [0, 0]]


def test_no_records_leave_all_groups_empty():
    assert clip_groups(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), 3, 1.0).tolist() == [[0, 0]] * 3


def test_a_broken_record_empties_its_own_group_alone():
    rows = torch.tensor([[math.nan], [0.2], [0.3]])
    assert clip_groups(rows, torch.tensor([0, 0, 1]), 2, 1.0).flatten().tolist() == pytest.approx([0, 0.3])


def test_group_sums_are_added_before_they_are_clipped():
    sums = clip_groups(torch.tensor([[3.0], [-2.5]]), torch.tensor([0, 0]), 1, 1.0)
    assert sums.tolist() == [[0.5]]


@pytest.mark.parametrize("label", [-1, 2, 7])
def test_a_label_outside_is_refused(label):
    with pytest.raises(InvalidValue, match=r"labels.*from 0 to 1"):
        clip_groups(torch.ones(1, 1), torch.tensor([label]), 2, 1.0)


@pytest.mark.parametrize("groups", [0, -1, 1.5, True])
def test_a_number_of_groups_that_is_no_count_is_refused(groups):
    with pytest.raises(InvalidValue, match="groups"):
        clip_groups(torch.ones(1, 1), torch.tensor([0]), groups, 1.0)


# Geometries


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.floats(1, 1e4), st.floats(1e-3, 1e3), dtypes)
def test_a_row_clipped_in_a_geometry_is_never_longer_than_the_bound(seed, condition, bound, dtype):
    geometry = random_geometry(seed, 4, condition)
    generator = torch.Generator().manual_seed(seed + 1)
    rows = (torch.randn(8, 4, dtype=torch.float64, generator=generator) * 10 * bound).to(dtype)
    # Rows along the axis that the geometry shortens most are where rounding hurts most.
    flat = torch.linalg.eigh(geometry.matrix).eigenvectors[:, 0] * torch.linspace(2, 50, 8).unsqueeze(-1)
    rows = torch.cat([rows, (flat * bound).to(dtype)])
    assert all(within_geometry(row, bound, geometry) for row in clip_rows(rows, bound, geometry=geometry))


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.floats(1, 1e4))
def test_lengths_in_a_geometry_are_roots_of_quadratic_forms(seed, condition):
    geometry = random_geometry(seed, 4, condition)
    rows = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1))
    form = torch.einsum("ni,ij,nj->n", rows, geometry.matrix, rows).sqrt()
    torch.testing.assert_close(lengths(rows, geometry=geometry), form, rtol=1e-9, atol=0)
    torch.testing.assert_close(lengths(geometry.whiten(rows)), form, rtol=1e-9, atol=0)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.floats(1, 1e4))
def test_whitening_there_and_back_changes_nothing(seed, condition):
    geometry = random_geometry(seed, 4, condition)
    rows = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1))
    torch.testing.assert_close(geometry.unwhiten(geometry.whiten(rows)), rows, rtol=0, atol=1e-9)
    torch.testing.assert_close(geometry.whiten(geometry.unwhiten(rows)), rows, rtol=0, atol=1e-9)


def test_isotropic_noise_in_whitened_coordinates_has_the_inverse_geometry_as_its_covariance():
    geometry = random_geometry(3, 3, 50.0)
    back = geometry.unwhiten(torch.eye(3, dtype=torch.float64))
    torch.testing.assert_close(back.T @ back, torch.linalg.inv(geometry.matrix))


def test_the_ordinary_geometry_is_the_identity():
    rows = torch.tensor([[3.0, 4.0], [0.1, 0.1]])
    assert torch.equal(clip_rows(rows, 1.0, geometry=Geometry(torch.eye(2))), clip_rows(rows, 1.0))


def test_a_short_row_stays_bit_identical_in_a_geometry():
    geometry = random_geometry(0, 3, 100.0)
    row = torch.tensor([1e-3, -2e-3, 3e-3])
    assert torch.equal(clip_rows(row, 1.0, geometry=geometry), row)


@pytest.mark.parametrize(
    "matrix",
    [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]],
        [1.0, 2.0],
        [[1.0, 0.5], [0.0, 1.0]],
        [[1.0, 2.0], [2.0, 1.0]],
        [[0.0, 0.0], [0.0, 1.0]],
        [[-1.0]],
        [[math.nan, 0.0], [0.0, 1.0]],
        [[math.inf, 0.0], [0.0, 1.0]],
        [[1e-9, 0.9e-9], [0.0, 1e-9]],
    ],
    ids=[
        "oblong", "a vector", "asymmetric", "indefinite", "singular", "negative", "NaN", "infinite",
        "small and asymmetric",
    ],
)  # fmt: skip
def test_a_matrix_that_measures_no_length_is_refused(matrix):
    with pytest.raises(InvalidValue, match="matrix"):
        Geometry(torch.tensor(matrix, dtype=torch.float64))
