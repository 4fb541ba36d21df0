"""Rules that weigh or choose whole updates, against plain versions of what their papers say."""

import itertools
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tacit import Open, Privacy
from tacit.aggregation.base import blocks
from tacit.aggregation.geometry import gram_of, paired_distances, squared_distances
from tacit.aggregation.mean import Mean
from tacit.aggregation.robust.coordinatewise import TrimmedMean
from tacit.aggregation.robust.krum import Bulyan, Krum, MultiKrum
from tacit.aggregation.robust.reweighted import CenteredClip, CovarianceFilter, GeometricMedian, Robust
from tacit.errors import InvalidValue, Refused, TooFewSites
from tacit.learning.task import Updates

WEIGHING = (
    Krum(f=1),
    MultiKrum(f=1),
    GeometricMedian(),
    CenteredClip(),
    CenteredClip(steps=4),
    CovarianceFilter(f=2),
)
ALL = (
    *WEIGHING,
    CenteredClip(radius=1.0),
    CenteredClip(radius=1.0, steps=3),
    Bulyan(f=1),
    Robust(),
    Robust(f=1),
)


def named(rule):
    fields = [f"{name}={value}" for name, value in vars(rule).items() if value is not None]
    return f"{rule.kind}({', '.join(fields)})"


def every(rules):
    return pytest.mark.parametrize("rule", rules, ids=named)


def updates_of(sites=9, width=12, *, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal((sites, width)).astype(dtype)


matrices = arrays.arrays(
    np.float64,
    st.tuples(st.integers(7, 12), st.integers(1, 5)),
    elements=st.floats(-100, 100).map(lambda value: round(value, 3)),
)


# Plain versions of the papers, with loops.


def plain_scores(rows, f):
    scores = []
    for row in rows:
        distances = sorted(float(((row - other) ** 2).sum()) for other in rows)
        scores.append(sum(distances[1 : len(rows) - f]))
    return np.array(scores)


def plain_krum(rows, f):
    return rows[plain_scores(rows, f).argmin()]


def plain_multi_krum(rows, f):
    return rows[plain_scores(rows, f).argsort()[: len(rows) - f]].mean(axis=0)


def plain_bulyan(rows, f):
    left, chosen = list(rows), []
    for _ in range(len(rows) - 2 * f):
        scores, sums = plain_scores(np.array(left), f), plain_scores(np.array(left), 0)
        # Two that are each other's nearest have the same score, but for rounding.
        best = min(range(len(left)), key=lambda place: (round(scores[place], 9), sums[place]))
        chosen.append(left.pop(best))
    result = []
    for column in np.array(chosen).T:
        middle = np.median(column)
        nearest = sorted(column, key=lambda value: (abs(value - middle), value))
        result.append(np.mean(nearest[: len(rows) - 4 * f]))
    return np.array(result)


def plain_filter(rows, f):
    weights, lowest, best = np.ones(len(rows)), np.inf, rows.mean(axis=0)
    while weights.sum() > len(rows) - 2 * f:
        mean = weights @ rows / weights.sum()
        apart = rows - mean
        values, vectors = np.linalg.eigh((weights[:, None] * apart).T @ apart / weights.sum())
        if values[-1] < lowest:
            lowest, best = values[-1], mean
        out = (apart @ vectors[:, -1]) ** 2
        weights = weights * np.clip(1 - out / out[weights > 0].max(), 0, None)
    return best


def plain_clip(rows, start, radius, steps):
    centre = start
    for _ in range(steps):
        apart = rows - centre
        lengths = np.linalg.norm(apart, axis=1, keepdims=True)
        centre = centre + (apart * np.minimum(1, radius / np.maximum(lengths, 1e-300))).mean(axis=0)
    return centre


PLAIN = (
    (Krum, plain_krum, 3),
    (MultiKrum, plain_multi_krum, 3),
    (Bulyan, plain_bulyan, 2),
    (CovarianceFilter, plain_filter, 4),
)


@pytest.mark.parametrize(("kind", "plain", "most"), PLAIN, ids=lambda part: getattr(part, "kind", None))
def test_it_equals_a_plain_version_of_its_paper(kind, plain, most):
    for seed, f in itertools.product(range(6), range(most + 1)):
        rows = updates_of(11 + seed, 2 + 5 * seed, seed=seed)
        rows[: min(f, seed)] *= 10
        np.testing.assert_allclose(kind(f=f)(rows), plain(rows, f), atol=1e-9)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_centred_clipping_equals_a_plain_version_from_zero_and_from_the_geometric_median(steps):
    rows = updates_of(10, 7) + 0.3
    public = plain_clip(rows, np.zeros(7), 1.5, steps)
    np.testing.assert_allclose(CenteredClip(radius=1.5, steps=steps)(rows), public, atol=1e-12)
    start = GeometricMedian()(rows)
    radius = np.median(np.linalg.norm(rows - start, axis=1)) / 2
    np.testing.assert_allclose(
        CenteredClip(steps=steps)(rows), plain_clip(rows, start, radius, steps), atol=1e-8
    )


@settings(max_examples=60)
@given(matrices)
def test_the_geometric_median_cannot_be_improved(rows):
    found = GeometricMedian()(rows)

    def total(point):
        return np.linalg.norm(rows - point, axis=1).sum()

    # The directions to all rows cancel, or what is left of them is held by rows that are right there.
    scale = np.abs(rows - found).max()
    lengths = np.linalg.norm(rows - found, axis=1)
    there = lengths <= 1e-6 * scale
    pull = np.linalg.norm(((rows - found)[~there] / lengths[~there, None]).sum(axis=0))
    assert pull <= there.sum() + 1e-3
    for row in (*rows, rows.mean(axis=0), np.median(rows, axis=0)):
        assert total(found) <= total(row) * (1 + 1e-8) + 1e-12


def test_the_geometric_median_converges_where_plain_steps_do_not():
    # Nearly at an update, which plain steps approach for ever.
    rows = np.array([[0.0, 0.0], [1.0, 0.0], [-0.5, 0.8661], [-0.5, -0.8662], [1e-3, 0.0]])
    found = GeometricMedian()(rows)
    lengths = np.linalg.norm(rows - found, axis=1)
    assert np.linalg.norm(((rows - found) / lengths[:, None]).sum(axis=0)) < 1e-6


def test_between_two_as_good_medians_it_is_half_way():
    assert GeometricMedian()([[0.0], [1.0]]).tolist() == [0.5]
    assert GeometricMedian()([[0.0], [1.0], [3.0], [100.0]]).tolist() == [2.0]
    assert GeometricMedian()([[0.0], [1.0], [100.0]]).tolist() == [1.0]


# What every rule keeps.


@every(ALL)
@settings(max_examples=20)
@given(rows=matrices, seed=st.integers(0, 9))
def test_with_names_the_order_of_the_rows_does_not_change_a_bit(rule, rows, seed):
    names = tuple(f"site{place}" for place in range(len(rows)))
    order = np.random.default_rng(seed).permutation(len(rows))
    given = Updates(names=names, matrix=rows)
    mixed = Updates(names=tuple(names[place] for place in order), matrix=rows[order])
    assert np.array_equal(rule(given), rule(mixed))
    if (shares := rule.shares(given)) is not None:
        np.testing.assert_array_equal(rule.shares(mixed), shares[order])


@every((*WEIGHING, CenteredClip(radius=1.0), Bulyan(f=1)))
def test_without_names_the_order_changes_rounding_at_most(rule):
    for seed in range(5):
        rows = updates_of(10, 6, seed=seed)
        order = np.random.default_rng(seed).permutation(len(rows))
        np.testing.assert_allclose(rule(rows[order]), rule(rows), atol=1e-9)


@every(WEIGHING)
@settings(max_examples=20)
@given(rows=matrices)
def test_the_shares_explain_the_result_and_are_parts_of_a_whole(rule, rows):
    shares = rule.shares(rows)
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(), 1)
    np.testing.assert_allclose(shares @ rows, rule(rows), atol=1e-10)


@every((*WEIGHING, Bulyan(f=1)))
@settings(max_examples=20)
@given(rows=matrices)
def test_no_coordinate_leaves_the_range_of_the_updates(rule, rows):
    found = rule(rows)
    slack = 1e-9 * (1 + np.abs(rows).max())
    assert (found >= rows.min(axis=0) - slack).all()
    assert (found <= rows.max(axis=0) + slack).all()


@every((*WEIGHING, Bulyan(f=1)))
def test_moving_all_updates_moves_the_result_and_stretching_them_stretches_it(rule):
    for seed in range(5):
        rows, shift = updates_of(10, 6, seed=seed), 10.0 ** (seed - 1)
        np.testing.assert_allclose(rule(3 * rows + shift), 3 * rule(rows) + shift, rtol=1e-7)


@every(ALL)
def test_the_updates_are_left_as_they_were_and_the_result_is_double(rule):
    for dtype in (np.float32, np.float64):
        rows = updates_of(dtype=dtype)
        before = rows.copy()
        assert rule(rows).dtype == np.float64
        rule.shares(rows)
        np.testing.assert_array_equal(rows, before)


@every(ALL)
def test_tensors_lists_and_whole_numbers_are_updates_too(rule):
    rows = np.arange(27).reshape(9, 3) % 7
    expected = rule(rows.astype(np.float64))
    assert np.array_equal(rule(rows), expected)
    assert np.array_equal(rule(rows.tolist()), expected)


@every(ALL)
def test_one_update_alike_updates_and_no_updates_at_all_are_themselves(rule):
    lone = replace(rule, f=0) if not isinstance(rule, Robust) else Robust()
    long = isinstance(rule, CenteredClip) and rule.radius is not None
    value = np.array([0.3, -0.2, 0.1])
    if not long or rule.steps == 1:
        for count in (1, 2, 3):
            np.testing.assert_allclose(lone(np.tile(value, (count, 1))), value, rtol=1e-14)
        np.testing.assert_allclose(rule(np.tile(value, (9, 1))), value, rtol=1e-14)
    assert rule(np.zeros((9, 3))).tolist() == [0, 0, 0]
    assert np.isfinite(rule(np.full((9, 3), 1e-300))).all()
    assert rule(np.zeros((9, 0))).tolist() == []
    with pytest.raises(TooFewSites):
        rule(np.zeros((0, 3)))


@every(ALL)
def test_sites_that_did_not_come_are_rows_of_zeros(rule):
    rows = updates_of(7, 4)
    everybody = np.concatenate([rows, np.zeros((3, 4))])
    np.testing.assert_allclose(rule(rows, sites=10), rule(everybody), atol=1e-12)
    assert rule(np.zeros((0, 4)), sites=10).tolist() == [0, 0, 0, 0]


# Liars.


@every(ALL)
def test_an_update_that_is_no_vector_is_named_and_refused(rule):
    for bad in (np.nan, np.inf, -np.inf, 1e160):
        rows = updates_of()
        rows[4, 7] = bad
        with pytest.raises(InvalidValue, match=r"updates\[4\] is not allowed"):
            rule(rows)
        names = tuple("ihgfedcba")
        with pytest.raises(InvalidValue, match=r"updates\[4\] of e"):
            rule(Updates(names=names, matrix=rows))


@every((Krum(f=3), MultiKrum(f=3), GeometricMedian(), CenteredClip(), CovarianceFilter(f=3), Bulyan(f=3)))
def test_a_liar_far_away_takes_nobody_elses_digits(rule):
    for far in (1e4, 1e8, 1e38, -1e38):
        rows = updates_of(15, 20, dtype=np.float32)
        near = rows.copy()
        rows[:3], near[:3] = far, np.sign(far) * 1e3
        found, expected = rule(rows), rule(near)
        assert np.abs(found).max() < 3
        # What is left of the liars is their direction alone.
        np.testing.assert_allclose(found, expected, atol=2e-3)


@every((Krum(f=3), MultiKrum(f=3), CovarianceFilter(f=3), Bulyan(f=3)))
def test_f_liars_far_away_have_no_part_in_the_result(rule):
    rows = updates_of(15, 20)
    rows[:3] = 1e6
    others = rows.copy()
    others[:3] = -1e7
    # The filter weighs the others in the first step by how near they are, compared with the liars.
    np.testing.assert_allclose(rule(rows), rule(others), rtol=0, atol=1e-5)
    if (shares := rule.shares(rows)) is not None:
        assert shares[:3].sum() == 0


@every((GeometricMedian(), CenteredClip(), CovarianceFilter(f=4)))
def test_liars_just_below_half_the_sites_do_not_take_the_result_with_them(rule):
    rows = updates_of(9, 20)
    rows[:4] = 1e9
    assert np.abs(rule(rows)).max() < 20


def test_without_liars_the_filter_is_the_mean():
    rows = updates_of()
    np.testing.assert_allclose(CovarianceFilter(f=0)(rows), Mean()(rows))


def test_directions_that_vary_alike_are_all_measured():
    # Corners of a simplex: no order of the rows may matter, though every direction is a top one.
    shares = CovarianceFilter(f=2).shares(np.eye(8))
    np.testing.assert_allclose(shares, 1 / 8, atol=1e-9)


@pytest.mark.parametrize("count", [70, 90])
def test_many_sites_are_filtered_like_few(count):
    rows = updates_of(count, 9)
    rows[:20] += 4
    np.testing.assert_allclose(CovarianceFilter(f=25)(rows), plain_filter(rows, 25), atol=1e-7)


def cosines(rule, width, noise, lie, *, repeats):
    """Return cosines with the honest direction: 14 honest sites with noise, among 6 liars."""
    generator = np.random.default_rng(5)
    found = []
    for _ in range(repeats):
        truth = generator.standard_normal(width)
        truth /= np.linalg.norm(truth)
        rows = truth + noise * generator.standard_normal((20, width))
        honest = rows[6:]
        if lie is not None:
            rows[:6] = lie(honest)
        result = rule(rows)
        found.append(result @ truth / np.linalg.norm(result))
    return float(np.mean(found))


LIES = (None, lambda honest: -honest.mean(axis=0), lambda honest: honest.mean(axis=0) - honest.std(axis=0))


@pytest.mark.parametrize(
    ("width", "noise", "mean", "caf"),
    [
        (20, 0.5, (0.89, 0.86, 0.79), (0.89, 0.84, 0.83)),
        (1000, 0.05, (0.94, 0.92, 0.85), (0.94, 0.92, 0.92)),
        (20000, 0.05, (0.54, 0.47, 0.33), (0.53, 0.47, 0.46)),
    ],
)
def test_under_noise_the_filter_keeps_what_was_measured_for_it(width, noise, mean, caf):
    # In few directions single draws differ by nearly 0.1.
    repeats, near = (60, 0.08) if width == 20 else (2, 0.04)
    for rule, expected in ((Mean(), mean), (CovarianceFilter(f=6), caf)):
        found = [cosines(rule, width, noise, lie, repeats=repeats) for lie in LIES]
        np.testing.assert_allclose(found, expected, atol=near)


def test_under_noise_krum_follows_the_liar():
    assert cosines(Krum(f=6), 1000, 0.05, LIES[1], repeats=6) < -0.8
    assert Krum().under_noise == "breaks"
    assert Krum(allow_fragile=True).under_noise == MultiKrum().under_noise == "suffers"
    assert CovarianceFilter().under_noise == GeometricMedian().under_noise == "stands"


# How many liars.


@pytest.mark.parametrize(
    ("rule", "fewest"),
    [
        (Krum(f=2), 7),
        (MultiKrum(f=2), 7),
        (Bulyan(f=2), 11),
        (GeometricMedian(f=2), 5),
        (CenteredClip(f=2), 5),
        (CovarianceFilter(f=2), 5),
        (Robust(f=2), 5),
    ],
    ids=lambda part: getattr(part, "kind", None),
)
def test_a_rule_refuses_more_liars_than_it_can_outvote(rule, fewest):
    rows = updates_of(fewest, 3)
    assert rule.tolerates(fewest) == 2
    assert np.isfinite(rule(rows)).all()
    with pytest.raises(TooFewSites, match=f"f = 2 is not allowed with {fewest - 1} sites"):
        rule(rows[1:])
    with pytest.raises(TooFewSites, match=f"needs at least {fewest}"):
        rule.resolve(fewest - 1, Open())


@every(ALL)
def test_f_is_decided_once_and_not_lowered_when_sites_stay_away(rule):
    settled = rule.resolve(20, Open())
    assert settled.f == rule.tolerates(20)
    with pytest.raises(TooFewSites):
        replace(settled, f=6)(updates_of(10))


@pytest.mark.parametrize("kind", [Krum, GeometricMedian, CovarianceFilter, Bulyan, Robust])
def test_f_is_a_number_of_sites(kind):
    for f in (-1, 1.5, True, "2"):
        with pytest.raises(InvalidValue, match="f = "):
            kind(f=f)


def test_a_radius_and_steps_are_positive():
    with pytest.raises(InvalidValue, match="radius"):
        CenteredClip(radius=0.0)
    with pytest.raises(InvalidValue, match="steps"):
        CenteredClip(steps=0)


# The default.


def promise(noise):
    return Privacy(unit="site", delta=1e-5, clip=0.8, epsilon=4.0, noise=noise)


def test_the_default_is_the_filter_if_f_is_known_and_the_geometric_median_if_not():
    for privacy in (Open(), promise("site")):
        assert Robust(f=2).resolve(9, privacy) == CovarianceFilter(f=2)
        assert Robust().resolve(9, privacy) == GeometricMedian(f=2)
    rows = updates_of()
    assert np.array_equal(Robust(f=2)(rows), CovarianceFilter(f=2)(rows))
    assert np.array_equal(Robust()(rows), GeometricMedian()(rows))


def test_where_the_server_adds_noise_the_default_has_a_bound():
    assert Robust(f=2).resolve(9, promise("server")) == TrimmedMean(f=2)
    settled = Robust().resolve(9, promise("server"))
    assert settled == CenteredClip(radius=0.4, f=2)
    assert settled.sensitivity(0.8, 9) == 0.4 / 9


def test_where_nobody_sees_updates_there_is_no_default():
    with pytest.raises(Refused, match="Use mean, or bucketing"):
        Robust().resolve(9, promise("secure"))


def test_one_public_step_is_a_sum_that_can_be_had_in_secret():
    names = ("a", "b", "c")
    assert CenteredClip(radius=1.0).parties(names, 3) == (names,)
    assert CenteredClip(radius=1.0, steps=2).parties(names, 3) is None
    assert CenteredClip().parties(names, 3) is None
    mean = Updates(names=("all",), matrix=np.array([[3.0, 4.0]]))
    assert CenteredClip(radius=1.0).combine_groups(mean).tolist() == [3.0, 4.0]


# The geometry itself.


def products(rows):
    return gram_of(rows, np.arange(len(rows)), rows)


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e4])
def test_distances_are_those_between_the_rows_wherever_zero_is(offset):
    rows = updates_of(8, 5000) * 1e-3 + offset
    expected = ((rows[:, None] - rows) ** 2).sum(axis=-1)
    np.testing.assert_allclose(squared_distances(products(rows)), expected, rtol=1e-8, atol=0)


def test_distances_in_pairs_depend_on_two_rows_to_the_last_bit():
    rows = updates_of(23, 3000, dtype=np.float32)
    before = paired_distances(rows)
    np.testing.assert_allclose(before, ((rows[:, None] - rows) ** 2).sum(axis=-1), rtol=1e-4, atol=1e-4)
    order = np.random.default_rng(1).permutation(23)
    np.testing.assert_array_equal(paired_distances(rows[order]), before[np.ix_(order, order)])
    rows[5] *= 1e6
    others = np.delete(np.arange(23), 5)
    np.testing.assert_array_equal(
        paired_distances(rows)[np.ix_(others, others)], before[np.ix_(others, others)]
    )
    assert paired_distances(np.zeros((3, 4))).tolist() == np.zeros((3, 3)).tolist()


def test_distances_in_pairs_are_exact_sums_in_whatever_order_columns_are_added():
    rows = np.random.default_rng(2).normal(size=(5, 3000))
    columns = np.random.default_rng(3).permutation(3000)
    np.testing.assert_array_equal(paired_distances(rows[:, columns]), paired_distances(rows))


def test_columns_are_cut_into_blocks_without_gaps():
    rows = np.zeros((100, 20000))
    parts = list(blocks(rows))
    assert len(parts) > 1
    assert [place for part in parts for place in range(20000)[part]] == list(range(20000))


@pytest.fixture(scope="module")
def large():
    return np.random.default_rng(0).random((100, 200_000), dtype=np.float32)


@every((CovarianceFilter(f=3), CenteredClip(radius=1.0)))
def test_nothing_as_large_as_the_updates_is_made(rule, large):
    rule(large[:, :100])
    tracemalloc.start()
    rule(large)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The result, and some blocks; the updates in double precision are 160 megabytes.
    assert peak < 16e6


def test_two_rows_agree_on_how_far_they_are_apart():
    for seed in range(20):
        rows = updates_of(13, 12, seed=seed)
        distances = squared_distances(gram_of(rows, np.arange(13), rows))
        assert np.array_equal(distances, distances.T), seed


def test_centred_clipping_has_a_bound_with_a_public_radius_and_one_step_alone():
    assert CenteredClip(radius=0.5, steps=1).sensitivity(2.0, 4) == 0.125
    assert CenteredClip(radius=0.5, steps=1).sensitivity(2.0, 4, "l1") == 0.5
    assert CenteredClip(radius=5.0, steps=1).sensitivity(2.0, 4) == 0.5
    for steps in (2, 3):
        assert CenteredClip(radius=0.5, steps=steps).sensitivity(2.0, 4) is None
    assert CenteredClip(steps=1).sensitivity(2.0, 4) is None


@pytest.mark.parametrize("far", [1.0, 1e4])
@pytest.mark.parametrize("width", [2, 4, 8, 16])
def test_at_the_geometric_median_the_directions_to_all_rows_cancel(width, far):
    """Their mean is shorter than 1e-9, after few steps and after many, in whatever unit distances are."""
    rows = np.random.default_rng(3).normal(size=(40, width))
    rows[0] *= far
    away = rows - GeometricMedian()(rows)
    assert np.linalg.norm((away / np.linalg.norm(away, axis=1, keepdims=True)).mean(axis=0)) < 1e-9


def test_one_step_from_a_public_centre_is_divided_by_the_expectation_as_it_is():
    """As the mean is: an expectation of 2.5 sites is not brought to whole ones."""
    rows = np.array([[3.0, 4.0], [0.0, 0.5], [0.0, 0.0]])
    found = CenteredClip(radius=1.0)(rows, sites=2.5)
    assert found == pytest.approx(np.array([0.6, 1.3]) / 2.5, rel=1e-12)
