import itertools
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from tacit.aggregation.robust import coordinatewise
from tacit.aggregation.robust.coordinatewise import CoordinatewiseRule, MeanAroundMedian, Median, TrimmedMean
from tacit.errors import InvalidValue, TooFewSites
from tacit.learning.task import Updates
from tacit.privacy.policy import Open

RULES = [Median(), TrimmedMean(), MeanAroundMedian()]
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.kind)
# A few sites with ties, or any doubles of ordinary size.
values = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6))
matrices = arrays.arrays(
    np.float64, st.tuples(st.integers(1, 13), st.integers(0, 9)), elements=values, fill=st.nothing()
)
# Whether a network or a sort is taken, and how many numbers are worked on at a time.
paths = st.tuples(st.sampled_from([0, 64]), st.sampled_from([1, 7, 40, 1 << 20]))


def found(rule: CoordinatewiseRule, updates, path: tuple[int, int] = (64, 1 << 20), **words) -> np.ndarray:
    with patch.multiple(coordinatewise, NETWORK=path[0], BLOCK=path[1]):
        result = rule(updates, **words)
    assert result.dtype == np.float64
    return result


def around_the_median(matrix: np.ndarray, f: int) -> np.ndarray:
    """The mean around the median as one would write it down."""
    result = []
    for column in matrix.T:
        centre = np.median(column)
        kept = sorted(column, key=lambda value: (abs(value - centre), value))[: len(column) - f]
        result.append(np.mean(kept))
    return np.array(result)


def most(rows: int) -> int:
    return (rows - 1) // 2


@given(matrices, paths)
def test_the_median_is_that_of_numpy(matrix, path):
    np.testing.assert_allclose(found(Median(), matrix, path), np.median(matrix, axis=0), atol=1e-300)


@given(matrices, paths, st.data())
def test_the_trimmed_mean_is_that_of_scipy(matrix, path, data):
    f = data.draw(st.integers(0, most(len(matrix))))
    share = (f + 0.5) / len(matrix) if f else 0.0
    expected = stats.trim_mean(matrix, min(share, 0.49999), axis=0)
    close = {"rtol": 1e-12, "atol": 1e-9}
    np.testing.assert_allclose(found(TrimmedMean(f=f), matrix, path), expected, **close)
    np.testing.assert_allclose(found(TrimmedMean(trim=min(share, 0.4999)), matrix, path), expected, **close)


@given(matrices, paths, st.data())
def test_the_mean_around_the_median_leaves_out_what_is_farthest_from_it(matrix, path, data):
    # Whole halves: distances are exact, so that ties are ties for both.
    matrix = np.round(matrix * 2) / 2
    f = data.draw(st.integers(0, most(len(matrix))))
    expected = around_the_median(matrix, f)
    np.testing.assert_allclose(found(MeanAroundMedian(f=f), matrix, path), expected, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("sites", range(1, 12))
def test_every_network_orders_all_columns_of_zeros_and_ones(sites):
    """By the 0-1 principle it then orders everything: ranks are monotone in the values, as are sums."""
    columns = np.array(list(itertools.product([0.0, 1.0], repeat=sites))).T
    np.testing.assert_array_equal(Median()(columns), np.median(columns, axis=0))
    for f in range(most(sites) + 1):
        kept = np.sort(columns, axis=0)[f : sites - f]
        np.testing.assert_allclose(TrimmedMean(f=f)(columns), kept.mean(axis=0), rtol=1e-15)


@pytest.mark.parametrize("sites", [17, 31, 32, 33, 49, 50, 51, 64, 100])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_many_sites_in_either_precision_agree_with_numpy(sites, kind):
    matrix = np.random.default_rng(sites).standard_normal((sites, 500)).astype(kind)
    f = (sites - 1) // 3
    wide = matrix.astype(np.float64)
    ordered = np.sort(wide, axis=0)
    np.testing.assert_allclose(Median()(matrix), np.median(wide, axis=0), rtol=1e-15)
    np.testing.assert_allclose(TrimmedMean()(matrix), ordered[f : sites - f].mean(axis=0), atol=1e-14)
    np.testing.assert_allclose(MeanAroundMedian()(matrix), around_the_median(wide, f), atol=1e-14)


@pytest.mark.parametrize("sites", [10, 50])
def test_a_network_leaves_out_comparisons_that_the_rule_does_not_depend_on(sites):
    every = 2 * len(coordinatewise._batcher(sites))
    f = (sites - 1) // 3

    def steps(uses: list[str]) -> int:
        return sum(smaller + larger for *_, smaller, larger in coordinatewise._network(tuple(uses)))

    middle = ["needed" if rank in (sites // 2 - 1, sites // 2) else "dropped" for rank in range(sites)]
    assert steps(middle) < 0.8 * every
    assert steps(["dropped"] * f + ["added"] * (sites - 2 * f) + ["dropped"] * f) < 0.85 * every
    assert steps(["added"] * sites) == 0


@each_rule
@given(matrix=matrices, path=paths, random=st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(rule, matrix, path, random):
    order = list(range(len(matrix)))
    random.shuffle(order)
    np.testing.assert_allclose(
        found(rule, matrix[order], path), found(rule, matrix, path), rtol=1e-12, atol=1e-9
    )


@each_rule
def test_with_names_the_order_of_the_sites_changes_no_bit(rule):
    draws = np.random.default_rng(5)
    matrix = np.array(draws.standard_normal((13, 200)), dtype=np.float32)
    names = tuple(f"site-{i}" for i in range(13))
    order = draws.permutation(13).tolist()
    shuffled = Updates(names=tuple(names[i] for i in order), matrix=matrix[order])
    assert np.array_equal(rule(Updates(names=names, matrix=matrix)), rule(shuffled))


@each_rule
@pytest.mark.parametrize("path", [(64, 40), (0, 40)])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_the_updates_are_left_as_they_were(rule, path, layout):
    matrix = np.asarray(np.random.default_rng(0).standard_normal((9, 30)), order=layout)
    kept = matrix.copy()
    matrix.flags.writeable = False
    found(rule, matrix, path)
    found(rule, matrix, path, sites=11)
    np.testing.assert_array_equal(matrix, kept)


@each_rule
@pytest.mark.parametrize("count", [1, 2, 5, 80])
def test_sites_that_agree_are_taken_at_their_word(rule, count):
    row = np.array([0.0, 1.5, -3e38, 1e-40, 0.1], dtype=np.float32)
    result = rule(np.tile(row, (count, 1)))
    np.testing.assert_allclose(result, row.astype(np.float64), rtol=1e-15)
    assert (rule(np.zeros((count, 3))) == 0).all()


@each_rule
def test_absent_sites_count_as_rows_of_zeros(rule):
    matrix = np.random.default_rng(1).standard_normal((7, 5))
    whole = np.concatenate([matrix, np.zeros((3, 5))])
    np.testing.assert_array_equal(rule(matrix, sites=10), rule(whole))
    np.testing.assert_array_equal(rule(matrix, sites=9.6), rule(whole))
    np.testing.assert_array_equal(rule(np.zeros((0, 5)), sites=10), np.zeros(5))


@each_rule
def test_more_sites_than_were_expected_are_refused(rule):
    with pytest.raises(InvalidValue, match="sites = 3 is not allowed: it must be at least 4"):
        rule(np.zeros((4, 2)), sites=3)


@each_rule
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_is_named(rule, poison):
    matrix = np.zeros((5, 4))
    matrix[1, 2] = poison
    with pytest.raises(InvalidValue, match=r"updates\[1\] is not allowed: it must be finite"):
        rule(matrix)
    with pytest.raises(InvalidValue, match=r"updates\[1\] of oslo is not allowed"):
        rule(Updates(names=("x", "oslo", "a", "b", "c"), matrix=matrix))


@each_rule
@pytest.mark.parametrize("path", [(64, 40), (0, 40)])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_largest_numbers_there_are_do_not_overflow(rule, path, kind):
    largest = np.finfo(kind).max
    shares = np.array([[0.5, 1], [0.25, 1], [1, 1], [-1, 1], [1, 1]], dtype=kind)
    expected = found(rule, shares, path) * float(largest)
    np.testing.assert_allclose(found(rule, shares * largest, path), expected, rtol=1e-6)


@each_rule
@given(st.integers(3, 20), st.floats(-1e30, 1e30), st.integers(0, 100))
def test_liars_do_not_move_a_coordinate_beyond_the_honest(rule, sites, lie, seed):
    f = rule.default_f(sites)
    honest = np.random.default_rng(seed).standard_normal((sites - f, 6))
    combined = rule(np.concatenate([honest, np.full((f, 6), lie)]))
    # Around a median between honest values, what is kept is no farther from it than some honest value.
    reach = 1e-12 + (np.ptp(honest, axis=0) if isinstance(rule, MeanAroundMedian) else 0.0)
    assert (combined >= honest.min(axis=0) - reach).all()
    assert (combined <= honest.max(axis=0) + reach).all()


@each_rule
def test_f_is_decided_below_a_third_and_then_kept(rule):
    settled = rule.resolve(10, Open())
    assert settled.f == 3
    assert settled.tolerates(7) == 3
    with pytest.raises(TooFewSites, match="f = 3 is not allowed with 6 sites"):
        settled(np.zeros((6, 2)))
    with pytest.raises(TooFewSites, match=r"f = 0 is not allowed with 0 sites: .* at least 1 to"):
        rule(np.zeros((0, 2)))


def test_a_share_is_settled_as_a_number_of_sites():
    rule = TrimmedMean(trim=0.29)
    assert rule.resolve(100, Open()) == TrimmedMean(f=29)
    assert rule.resolve(10, Open()) == TrimmedMean(f=2)
    assert rule.tolerates(1) == 0
    assert TrimmedMean(trim=np.nextafter(0.5, 0)).tolerates(10) == 4
    with pytest.raises(TooFewSites, match="nothing to trim"):
        rule.tolerates(0)


@pytest.mark.parametrize("trim", [-0.1, 0.5, 1, float("nan"), True, "a"])
def test_what_is_no_share_is_refused(trim):
    with pytest.raises(InvalidValue, match="trim = "):
        TrimmedMean(trim=trim)


def test_a_share_beside_a_number_is_refused():
    with pytest.raises(InvalidValue, match=r"trim = 0.1 .*left out where f is given \(f = 2\)"):
        TrimmedMean(f=2, trim=0.1)


def test_only_the_trimmed_mean_has_a_sensitivity():
    assert TrimmedMean(f=3).sensitivity(2.0, 10) == 0.5
    assert TrimmedMean(f=3).sensitivity(2.0, 10, "l1") == 0.5
    assert TrimmedMean(trim=0.2).sensitivity(1.0, 9.7) == 1 / 6
    assert TrimmedMean(f=0).sensitivity(1.0, 4) == 0.25
    assert Median().sensitivity(1.0, 10) is None
    assert MeanAroundMedian().sensitivity(1.0, 10) is None
    assert {rule.under_noise for rule in RULES} == {"suffers"}
    with pytest.raises(TooFewSites):
        TrimmedMean(f=3).sensitivity(1.0, 6)


def moved(rule: TrimmedMean, rows: np.ndarray, order: int, sites: int) -> float:
    """Return the distance by which the result moves without the first site."""
    with_it = rule(rows, sites=sites)
    return float(np.linalg.norm(with_it - rule(rows[1:], sites=sites), ord=order))


def bounded(rows: np.ndarray, clip: float, order: int) -> np.ndarray:
    lengths = np.linalg.norm(rows, ord=order, axis=1, keepdims=True)
    return rows * np.minimum(1.0, clip / np.maximum(lengths, 1e-300))


@settings(max_examples=200)
@given(
    arrays.arrays(np.float64, st.tuples(st.integers(1, 9), st.integers(1, 4)), elements=st.floats(-2, 2)),
    st.integers(0, 3),
    st.floats(0.1, 2),
    st.sampled_from([1, 2]),
    st.data(),
)
def test_one_site_more_or_less_moves_the_trimmed_mean_by_at_most_its_sensitivity(
    rows, absent, clip, order, data
):
    sites = len(rows) + absent
    rule = TrimmedMean(f=data.draw(st.integers(0, most(sites))))
    reach = rule.sensitivity(clip, sites, "l1" if order == 1 else "l2")
    assert moved(rule, bounded(rows, clip, order), order, sites) <= reach * (1 + 1e-9)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(("sites", "f"), [(5, 0), (5, 2), (10, 3), (15, 4)])
def test_a_search_for_the_worst_case_comes_up_to_the_sensitivity_and_not_beyond(sites, f, order):
    draws = np.random.default_rng(sites + f)
    rule, norm = TrimmedMean(f=f), "l1" if order == 1 else "l2"
    reach = rule.sensitivity(1.0, sites, norm)
    worst = 0.0
    for start in range(4):
        # Every site but one at an end of the range of the first coordinate, or anywhere.
        rows = draws.standard_normal((sites, 3)) * (0.1 if start % 2 else 1)
        rows[:, 0] = np.where(np.arange(sites) % 2, 0, 1.0) if start % 2 else rows[:, 0]
        best = moved(rule, bounded(rows, 1.0, order), order, sites)
        for step in range(150):
            tried = rows + draws.standard_normal(rows.shape) * 0.5 * 0.97**step
            far = moved(rule, bounded(tried, 1.0, order), order, sites)
            if far > best:
                best, rows = far, tried
        worst = max(worst, best)
    # One coordinate, the others out of its way on both sides: the bound is reached.
    apart = np.zeros((sites, 3))
    apart[0, 0] = 1.0
    apart[1 : 1 + sites // 2, 0] = 1.0
    assert worst <= reach * (1 + 1e-9)
    assert worst > 0.5 * reach
    assert moved(rule, apart, order, sites) == pytest.approx(reach)
