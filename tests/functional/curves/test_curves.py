"""Curves come in many forms and are checked once; their coordinates are least squares, curve by curve."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline

from tacit.errors import InvalidFile, InvalidValue
from tacit.functional.curves import Curves, curves, long, read, require_same_subjects
from tacit.functional.curves.basis import BSplines, Fourier, frame
from tacit.functional.curves.smoothing import ROOM, smooth_curves

TIMES = np.linspace(0, 10, 41)
BASIS = BSplines(size=12, domain=(0, 10))
RNG = np.random.default_rng(8)
TRUE = RNG.normal(size=(6, 12))
VALUES = TRUE @ frame(BASIS).design(TIMES).T


def pairs(values: np.ndarray = VALUES) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(TIMES[~np.isnan(row)], row[~np.isnan(row)]) for row in values]


def holed(share: float, values: np.ndarray = VALUES) -> np.ndarray:
    marks = np.random.default_rng(1).uniform(size=values.shape) < share
    marks[:, 0] = False
    return np.where(marks, np.nan, values)


def ragged(count: int, least: int, most: int) -> list[tuple[np.ndarray, np.ndarray]]:
    generator = np.random.default_rng(count)
    times = [np.sort(generator.uniform(0, 10, generator.integers(least, most))) for _ in range(count)]
    return [(when, np.sin(when) + generator.normal(scale=0.1, size=len(when))) for when in times]


def same(first: Curves, second: Curves) -> bool:
    return first.domain == second.domain and first.digest() == second.digest()


# Forms.


def test_arrays_lists_tensors_and_masks_give_the_same_curves():
    by_array = curves(VALUES, name="x1", times=TIMES)
    assert same(by_array, curves(VALUES.tolist(), name="x1", times=TIMES.tolist()))
    assert same(by_array, curves(torch.tensor(VALUES), name="x1", times=torch.tensor(TIMES)))
    assert same(by_array, curves((TIMES, VALUES), name="x1"))
    masked = np.ma.masked_array(np.where(np.isnan(holed(0.2)), 99, VALUES), mask=np.isnan(holed(0.2)))
    assert same(curves(holed(0.2), name="x1", times=TIMES), curves(masked, name="x1", times=TIMES))
    assert (len(by_array), by_array.count, by_array.domain, by_array.place) == (6, 6, (0.0, 10.0), "x1")


def test_without_times_the_grid_is_equally_spaced_over_the_domain():
    assert curves(VALUES, name="x1").times == pytest.approx(np.linspace(0, 1, 41))
    assert curves(VALUES, name="x1", domain=(0, 10)).times == pytest.approx(TIMES)


def test_pairs_of_times_and_values_may_differ_in_length():
    found = curves(ragged(5, 3, 9), name="x1", domain=(0, 10))
    assert found.owners is not None
    assert len(found) == 5
    assert curves([([0, 1], [2, 3]), ([0, 4], [5, 6])], name="x1").owners.tolist() == [0, 0, 1, 1]
    assert curves((([0, 1], [2, 3]), ([0, 4], [5, 6])), name="x1").times.tolist() == [0, 1, 0, 4]


def test_a_value_that_is_missing_in_a_pair_is_no_observation():
    found = curves([([0, 1, 2], [1, np.nan, 3]), ([0, 2], [1, 1])], name="x1")
    assert found.times.tolist() == [0, 2, 0, 2]


def test_tables_have_times_as_names_of_columns():
    frame_of = pd.DataFrame(VALUES, columns=[str(when) for when in TIMES])
    assert same(curves(frame_of, name="x1"), curves(VALUES, name="x1", times=TIMES))
    words = pd.DataFrame(VALUES, columns=[f"h{place}" for place in range(41)])
    assert same(curves(words, name="x1", times=TIMES), curves(VALUES, name="x1", times=TIMES))
    nullable = frame_of.convert_dtypes().mask(np.isnan(holed(0.3)))
    assert same(curves(nullable, name="x1"), curves(holed(0.3), name="x1", times=TIMES))


def test_subjects_are_known_by_an_index_or_a_column():
    table = pd.DataFrame({"subject": ["b", "a"], 0.0: [1, 2], 1.0: [3, 4]})
    found = curves(table, name="x1")
    assert found.subjects == ("b", "a")
    assert found.values.tolist() == [[1, 3], [2, 4]]
    assert curves(table.set_index("subject"), name="x1").subjects == ("b", "a")
    assert found.reorder(["a", "b"]).values.tolist() == [[2, 4], [1, 3]]
    with pytest.raises(InvalidValue, match="subject c has no observation"):
        found.reorder(["a", "c"])
    with pytest.raises(InvalidValue, match="subjects of x1 are not known"):
        curves(VALUES, name="x1").reorder(["a"])


def test_long_tables_have_one_row_for_each_observation_in_any_order():
    table = pd.DataFrame({"id": [7, 3, 7, 3, 5], "when": [2, 1, 1, 3, 2], "dose": [1.0, 2, 3, 4, 9]})
    found = long(table, subject="id", time="when", value="dose")
    assert found.subjects == ("3", "5", "7")
    assert found.values.tolist() == [2, 4, 9, 3, 1]
    assert found.place == "dose"
    some = long(table, subject="id", time="when", value="dose", subjects=[7, 3], name="x9", domain=(0, 4))
    assert some.values.tolist() == [3, 1, 2, 4]
    assert (some.subjects, some.place, some.domain) == (("7", "3"), "x9", (0.0, 4.0))
    with pytest.raises(InvalidValue, match="dose is not allowed: subject 11 has no observation"):
        long(table, subject="id", time="when", value="dose", subjects=[3, 11])
    with pytest.raises(InvalidValue, match="column dos is missing in dos"):
        long(table, subject="id", time="when", value="dos")
    with pytest.raises(InvalidValue, match="2 comes after 2 for subject 7"):
        long(pd.concat([table, table.head(1)]), subject="id", time="when", value="dose")


def test_long_tables_and_grids_with_holes_are_the_same_curves():
    values = holed(0.4)
    rows, columns = np.nonzero(~np.isnan(values))
    table = pd.DataFrame({"subject": rows, "time": TIMES[columns], "value": values[rows, columns]})
    found = long(table.sample(frac=1, random_state=0), domain=(0, 10)).coordinates(frame(BASIS), 1e-3)
    assert found == pytest.approx(
        curves(values, name="x1", times=TIMES).coordinates(frame(BASIS), 1e-3), abs=1e-9
    )


def test_files_hold_one_row_for_each_subject(tmp_path):
    path = tmp_path / "x1.csv"
    pd.DataFrame(holed(0.2), columns=TIMES).assign(subject=[f"0{row}" for row in range(6)]).to_csv(
        path, index=False
    )
    found = read(path, "x1")
    assert found.times == pytest.approx(TIMES)
    assert found.values == pytest.approx(holed(0.2), nan_ok=True)
    assert found.subjects == ("00", "01", "02", "03", "04", "05")
    assert read(path, "x1", subjects=["03", "01"]).subjects == ("03", "01")
    pd.DataFrame(VALUES, columns=TIMES).to_csv(path, index=False)
    assert read(path, "x1", domain=(-1, 11)).subjects is None
    pd.DataFrame(VALUES).add_prefix("t").to_csv(path, index=False)
    with pytest.raises(
        InvalidValue, match=r"columns of x1 = 'words' is not allowed: it must be times, as 0, 0.5"
    ):
        read(path, "x1")
    with pytest.raises(InvalidFile, match="cannot be read"):
        read(tmp_path / "none.csv", "x1")


class Spline:
    """Stand-in for a `FDataBasis` of scikit-fda."""

    coefficients = TRUE
    basis = BASIS
    domain_range = ((0.0, 10.0),)

    def __call__(self, times: np.ndarray) -> np.ndarray:
        return (TRUE @ frame(BASIS).design(times).T)[:, :, None]


def test_objects_of_scikit_fda_are_known_by_what_they_have():
    grid = SimpleNamespace(data_matrix=VALUES[:, :, None], grid_points=(TIMES,), domain_range=((0.0, 10.0),))
    assert same(curves(grid, name="x1"), curves(VALUES, name="x1", times=TIMES))
    assert curves(Spline(), name="x1").coordinates(frame(BASIS)) == pytest.approx(TRUE, abs=1e-9)
    when, what = zip(*ragged(4, 5, 9), strict=True)
    starts = np.cumsum([0, *map(len, when)])[:-1]
    irregular = SimpleNamespace(
        start_indices=starts,
        points=np.concatenate(when)[:, None],
        values=np.concatenate(what)[:, None],
        domain_range=((0.0, 10.0),),
    )
    assert same(curves(irregular, name="x1"), curves(ragged(4, 5, 9), name="x1", domain=(0, 10)))
    plane = SimpleNamespace(
        data_matrix=VALUES[:, :, None], grid_points=(TIMES, TIMES), domain_range=((0, 1),) * 2
    )
    with pytest.raises(InvalidValue, match="it must be curves of one number over one time"):
        curves(plane, name="x1")


def test_curves_do_not_show_what_was_observed():
    assert repr(curves(pairs(), name="x1")) == "Curves(domain=(0.0, 10.0), place='x1')"


def test_curves_stay_as_they_are():
    found = curves(VALUES, name="x1", times=TIMES)
    assert curves(found, name="other") is found
    assert curves(found, name="other", domain=(-1, 11)).domain == (-1.0, 11.0)


def test_what_was_checked_does_not_change_behind_our_back():
    values = VALUES.copy()
    found = curves(values, name="x1")
    values[:] = np.nan
    assert np.isfinite(found.values).all()


# Coordinates.


@pytest.mark.parametrize("given_as", ["grid", "holes", "pairs"])
def test_a_curve_of_the_basis_is_found_again_exactly(given_as):
    values = VALUES if given_as == "grid" else holed(0.2)
    found = curves(pairs(values) if given_as == "pairs" else (TIMES, values), name="x1", domain=(0, 10))
    assert found.coordinates(frame(BASIS)) == pytest.approx(TRUE, abs=1e-8)
    assert found.coordinates(frame(BASIS, 5)) == pytest.approx(TRUE[:, :5], abs=1e-8)


@pytest.mark.parametrize(
    "basis", [BASIS, Fourier(size=11, domain=(0, 10)), BSplines(size=30, domain=(-1, 11))]
)
@pytest.mark.parametrize("smooth", [1e-5, 0.1, 10.0])
def test_smoothing_minimises_what_it_says(basis, smooth):
    whole = frame(basis)
    strength = smooth * whole.roughness / whole.roughness[whole.roughness > 0][0]
    given_curves = ragged(7, 12, 60)
    found = curves(given_curves, name="x1", domain=(0, 10)).coordinates(whole, smooth)
    for row, (when, what) in zip(found, given_curves, strict=True):
        design = whole.design(when)
        stacked = np.vstack([design / np.sqrt(len(when)), np.diag(np.sqrt(strength))])
        right = np.concatenate([what / np.sqrt(len(when)), np.zeros(whole.size)])
        assert row == pytest.approx(np.linalg.lstsq(stacked, right)[0], abs=1e-6)


def test_smoothing_shrinks_a_component_by_its_relative_roughness():
    found = frame(BASIS)
    dense = np.linspace(0, 10, 20_001)
    shrunk = curves((dense, found.design(dense).T), name="x1").coordinates(found, 0.01)
    relative = found.roughness / found.roughness[2]
    assert np.diag(shrunk)[:8] == pytest.approx(1 / (1 + 0.01 * relative[:8]), rel=1e-3)


@settings(max_examples=25)
@given(st.floats(0, 10), st.floats(-50, 50), st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
def test_smoothing_knows_no_units(smooth, center, scale, start):
    plain = curves((TIMES, holed(0.3)), name="x1").coordinates(frame(BASIS), smooth)
    length = 10 * scale
    moved = curves(
        (start + scale * TIMES, center + scale * holed(0.3)), name="x1", domain=(start, start + length)
    )
    found = moved.standardise(center, scale).coordinates(
        frame(BSplines(size=12, domain=(start, start + length))), smooth
    )
    assert found == pytest.approx(plain, abs=1e-4)


@pytest.mark.parametrize("smooth", [0.0, 1e-6, 1.0])
def test_one_observation_gives_a_constant_and_two_give_nearly_a_line(smooth):
    found = curves([([8.0], [2.0]), ([3.0, 9.0], [2.0, 5.0])], name="x1", domain=(0, 10))
    one, two = (
        found.coordinates(frame(BSplines(domain=(0, 10))), smooth)
        @ frame(BSplines(domain=(0, 10))).design(TIMES).T
    )
    assert one == pytest.approx(np.full(41, 2.0), abs=1e-3)
    assert two == pytest.approx(2 + (TIMES - 3) / 2, abs=0.1)


def test_few_observations_are_joined_as_smoothly_as_can_be():
    when, whole = np.array([0.5, 2, 3, 5.5, 8, 9]), frame(BSplines(size=40, domain=(0, 10)))
    found = curves([(when, np.sin(when))] * 2, name="x1", domain=(0, 10)).coordinates(whole)[0]
    assert whole.design(when) @ found == pytest.approx(np.sin(when), abs=1e-5)
    inside = np.linspace(0.5, 9, 50)
    natural = CubicSpline(when, np.sin(when), bc_type="natural")
    assert whole.design(inside) @ found == pytest.approx(natural(inside), abs=0.02)


def test_a_long_hole_is_bridged():
    values = np.tile(np.sin(TIMES), (2, 1))
    values[:, 10:25] = np.nan
    found = curves((TIMES, values), name="x1").coordinates(frame(BSplines(size=40, domain=(0, 10))))
    assert np.isfinite(found).all()
    assert np.abs(found @ frame(BSplines(size=40, domain=(0, 10))).design(TIMES).T).max() < 3


def test_the_coordinates_of_a_curve_depend_on_no_other():
    found, whole = ragged(40, 2, 30), frame(BASIS)
    together = curves(found, name="x1", domain=(0, 10)).coordinates(whole, 1e-4)
    changed = [(when, -5 * what) for when, what in found]
    changed[7] = found[7]
    alone = curves(changed, name="x1", domain=(0, 10)).coordinates(whole, 1e-4)
    assert np.array_equal(alone[7], together[7])
    values = holed(0.3)
    grid = curves((TIMES, values), name="x1")
    assert np.array_equal(grid.take([3]).coordinates(whole), grid.coordinates(whole)[3:4])


def test_curves_that_do_not_fit_at_once_are_smoothed_in_portions(monkeypatch):
    found, gaps = curves(ragged(40, 2, 30), name="x1", domain=(0, 10)), curves((TIMES, holed(0.3)), name="x1")
    at_once = found.coordinates(frame(BASIS)), gaps.coordinates(frame(BASIS))
    for room in (ROOM // 1000, 50, 1):
        monkeypatch.setattr("tacit.functional.curves.smoothing.ROOM", room)
        assert np.array_equal(found.coordinates(frame(BASIS)), at_once[0])
        assert np.array_equal(gaps.coordinates(frame(BASIS)), at_once[1])


def test_constant_curves_are_as_long_as_they_are_high():
    for domain in [(0, 1), (0, 100), (-3, 4)]:
        found = curves(np.full((2, 30), 3.0), name="x1", domain=domain)
        assert np.linalg.norm(found.coordinates(frame(BSplines(domain=domain))), axis=1) == pytest.approx(
            [3, 3]
        )


def test_nobody_has_no_coordinates():
    for given_curves in [curves(VALUES, name="x1"), curves(pairs(), name="x1")]:
        none = given_curves.take([])
        assert len(none) == 0
        assert none.coordinates(frame(BSplines(size=8, domain=(0, 10)))).shape == (0, 8)


@pytest.mark.parametrize("smooth", [-1.0, np.nan, np.inf, "much"])
def test_smooth_is_a_number_of_at_least_zero(smooth):
    with pytest.raises(
        InvalidValue, match=r"^smooth = .* is not allowed: it must be a finite number of at least 0"
    ):
        curves(VALUES, name="x1").coordinates(frame(BSplines()), smooth)


def test_a_basis_must_hold_the_domain_of_the_curves():
    with pytest.raises(
        InvalidValue, match=r"^domain of x1 = \(0.0, 10.0\) is not allowed: it must be inside"
    ):
        curves(VALUES, name="x1", times=TIMES).coordinates(frame(BSplines()))


# What can be done with them.


@pytest.mark.parametrize("rows", [[4, 0], [2, 2, 1], slice(1, 4), np.arange(6) % 2 == 0, []], ids=str)
def test_some_curves_are_those_of_some_subjects(rows):
    at = np.arange(6)[rows if len(np.shape(rows)) == 0 or len(rows) else np.array([], dtype=int)]
    grid = curves(holed(0.3), name="x1", times=TIMES)
    by_pairs = curves(pairs(holed(0.3)), name="x1", domain=(0, 10))
    assert np.array_equal(grid.take(rows).values, grid.values[at], equal_nan=True)
    assert grid.take(rows, "test").place == "test"
    taken = by_pairs.take(rows)
    assert taken.count == len(at)
    assert taken.owners is not None
    for place, row in enumerate(at):
        assert np.array_equal(taken.values[taken.owners == place], by_pairs.values[by_pairs.owners == row])


def test_a_fingerprint_knows_every_number():
    found = curves(VALUES, name="x1", times=TIMES)
    changed = VALUES.copy()
    changed[5, 40] += 1e-12
    others = [
        curves(changed, name="x1", times=TIMES),
        curves(VALUES, name="x1", times=TIMES, domain=(0, 11)),
        curves(pairs(), name="x1"),
        found.take([0, 1, 2, 3, 5, 4]),
    ]
    assert len({found.digest(), *(other.digest() for other in others)}) == 5
    assert found.digest() == curves(VALUES, name="y", times=TIMES).digest()


def test_curves_are_straight_between_the_times_of_their_grid():
    found = curves(([0, 1, 3], [[0, 2, 6], [1, np.nan, 5]]), name="x1")
    assert found.interpolate([0, 0.5, 1, 2, 3])[0] == pytest.approx([0, 1, 2, 4, 6])
    assert np.isnan(found.interpolate([0, 0.5, 1, 2, 3])[1]).tolist() == [False, True, True, True, False]
    assert np.array_equal(found.interpolate(found.times), found.values, equal_nan=True)
    with pytest.raises(InvalidValue, match="it must be inside its grid, 0 to 3"):
        found.interpolate([4])
    with pytest.raises(InvalidValue, match="x1 has no common grid"):
        curves(pairs(), name="x1").interpolate([1])


def test_public_constants_shift_and_scale_every_value():
    for found in (curves(holed(0.3), name="x1"), curves(pairs(), name="x1")):
        assert np.array_equal(found.standardise(2.0, 4.0).values, (found.values - 2) / 4, equal_nan=True)
    with pytest.raises(InvalidValue, match=r"^scale of x1 = 0 is not allowed"):
        found.standardise(0, 0)
    with pytest.raises(InvalidValue, match=r"^center of x1 = nan is not allowed"):
        found.standardise(np.nan, 1)


def test_the_same_curve_for_everybody_teaches_nothing():
    told = "^x1 is not allowed: all 3 subjects have the same curve"
    wave, shifts = np.sin(TIMES), np.arange(3)[:, None]
    for dull in (
        np.tile(wave, (3, 1)),
        np.full((3, 5), 0.1),
        [([0, 1], [2, 3])] * 3,
        [([0, 1], [2, 2]), ([0.3, 2], [2, 2]), ([0.5], [2])],
    ):
        with pytest.raises(InvalidValue, match=told):
            curves(dull, name="x1").require_varying()
    gap = np.tile(wave, (3, 1))
    gap[0, :5] = np.nan
    with pytest.raises(InvalidValue, match=told):
        curves(gap, name="x1").require_varying()
    curves(wave + 1e-6 * shifts, name="x1").require_varying()
    # Everybody starts at 0: one time in common says little.
    curves([([0, 1], [0, 3]), ([0, 2], [0, 1]), ([0, 3], [0, 2])], name="x1").require_varying()


def test_parties_hold_curves_of_the_same_subjects():
    table = pd.DataFrame({0: [1.0, 2], 1: [3.0, 5]}, index=["a", "b"])
    known = curves(table, name="x1")
    require_same_subjects({"x1": known, "x2": curves(np.eye(2), name="x2"), "y": known})
    require_same_subjects({})
    with pytest.raises(InvalidValue, match=r"^y has 6 subjects and x1 has 2: they must have the same"):
        require_same_subjects({"x1": known, "y": curves(VALUES, name="y")})
    with pytest.raises(
        InvalidValue, match=r"^y and x1 are of different subjects: row 0 is b and a; they must"
    ):
        require_same_subjects({"x1": known, "y": known.take([1, 0])})


# Refusals.

OFF = VALUES.copy()
OFF[2, 3] = np.inf
EMPTY = VALUES.copy()
EMPTY[4] = np.nan
INDEXED = pd.DataFrame(EMPTY, columns=TIMES, index=list("abcdef"))


@pytest.mark.parametrize(
    ("given_as", "options", "told"),
    [
        (VALUES, {"times": TIMES[::-1]}, "times of x1 are not allowed: 9.75 comes after 10; they must"),
        (VALUES, {"times": np.repeat(TIMES[:21], 2)[:41]}, "times of x1 are not allowed: 0 comes after 0;"),
        (VALUES, {"times": TIMES[:-1]}, "x1 = 'shape (6, 41) for 40 times' is not allowed: it must be"),
        (VALUES, {"times": [TIMES, TIMES]}, "times of x1 = 'shape (2, 41)' is not allowed: it must be one"),
        (VALUES, {"times": np.where(TIMES == 5, np.nan, TIMES)}, "times of x1 are not allowed: some are NaN"),
        (VALUES, {"times": TIMES, "domain": (0, 9)}, "times of x1 are not allowed: 9.25 is outside the"),
        (VALUES, {"domain": (9, 0)}, "domain of x1 = (9, 0) is not allowed: it must be two finite numbers"),
        (OFF, {}, "x1 is not allowed: the subject in row 2 has an infinite value; it must be finite, or"),
        (EMPTY, {}, "x1 is not allowed: the subject in row 4 has no observation; each needs at least one"),
        (INDEXED, {}, "x1 is not allowed: subject e has no observation; each needs at least one"),
        (VALUES[:1], {}, "x1 = '1 of them' is not allowed: it must be the curves of at least 2 subjects"),
        (VALUES[0], {}, "x1 = 'shape (41,)' is not allowed: it must be subjects by times"),
        (VALUES[None], {}, "x1 = 'shape (1, 6, 41)' is not allowed: it must be subjects by times"),
        ([], {}, "x1 = 'shape (0,)' is not allowed: it must be curves with observations"),
        (np.empty((3, 0)), {}, "x1 = 'shape (3, 0)' is not allowed: it must be curves with observations"),
        (pd.DataFrame(), {}, "x1 = 'shape (0, 0)' is not allowed: it must be curves with observations"),
        ([["a", "b"], ["c", "d"]], {}, "x1 in data does not hold numbers"),
        ([[1, 2], [3]], {}, "x1 in data does not hold numbers"),
        (None, {}, "x1 = 'shape ()' is not allowed: it must be subjects by times"),
        (np.ones((3, 1)), {"times": [2.0]}, "domain of x1 = 'missing' is not allowed: it must be given"),
        ([([0, 1], [1, 2]), ([1, 0], [1, 2])], {}, "times of x1 are not allowed: 0 comes after 1 for the"),
        ([([0, 1], [1, 2]), ([], [])], {}, "x1 is not allowed: the subject in row 1 has no observation"),
        ([([0, 1], [1, 2]), ([0, 1], [np.nan] * 2)], {}, "x1 is not allowed: the subject in row 1 has no"),
        ([([0, 1], [1, 2]), ([0, 1], [1, np.inf])], {}, "x1 is not allowed: the subject in row 1 has an"),
        ([([0, 1], [1, 2]), ([0], [1, 2])], {}, "x1, row 1, = 'times of shape (1,), values of shape (2,)'"),
        ([([0, 1], [1, 2])], {}, "x1 = '1 of them' is not allowed: it must be the curves of at least 2"),
        (pairs(), {"times": TIMES}, "times of x1 = 'some' is not allowed: it must be left out"),
        (pd.DataFrame({"0": [1], "1": [2], "b": [3]}), {}, "column of x1 = 'b' is not allowed: it must be"),
        (pd.DataFrame({"0": ["u", "v"], "1": [2, 3]}), {}, "0 in x1 does not hold numbers"),
        (pd.DataFrame({"subject": ["u", "u"], "1": [2, 3]}), {}, "subjects of x1 = 'u twice' is not allowed"),
        (pd.DataFrame({"subject": ["u", None], "1": [2, 3]}), {}, "subject in x1 = 'a row without' is not"),
    ],
)  # fmt: skip
def test_what_is_no_curve_is_refused_in_one_sentence(given_as, options, told):
    with pytest.raises(InvalidValue, match="^" + re.escape(told)):
        curves(given_as, name="x1", **options)


def test_one_subject_is_enough_to_predict_for():
    assert len(curves(VALUES[:1], name="x1", least=1)) == 1


def test_curves_that_are_put_together_by_hand_are_checked_too():
    made = {"times": np.arange(3.0), "values": np.arange(3.0), "domain": (0, 2), "place": "x1"}
    assert Curves(**made, owners=np.array([0, 0, 1])).count == 2
    for owners in ([1, 1, 2], [0, 2, 2], [0, 1, 0], [0, 1]):
        with pytest.raises(InvalidValue, match="x1"):
            Curves(**made, owners=np.array(owners))
    with pytest.raises(InvalidValue, match="subjects of x1 = '1 names for 2 subjects' is not allowed"):
        Curves(**made, owners=np.array([0, 0, 1]), subjects=("a",))


def test_many_irregular_curves_of_one_wave_are_alike():
    owners = np.repeat(np.arange(2000), 30)
    times = np.sort(np.random.default_rng(0).uniform(0, 10, (2000, 30)), axis=1).ravel()
    found = smooth_curves(times, np.sin(times), owners, frame(BASIS), 1e-6)
    known = curves((TIMES, np.sin(np.tile(TIMES, (2, 1)))), name="x1").coordinates(frame(BASIS))[0]
    assert np.abs(found.mean(axis=0) - known).max() < 0.02
