"""Steps before a rule: what nearest neighbors and buckets make of it."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tacit import Open
from tacit.aggregation.mean import Mean
from tacit.aggregation.robust.coordinatewise import MeanAroundMedian, Median, TrimmedMean
from tacit.aggregation.robust.krum import Bulyan, Krum, MultiKrum
from tacit.aggregation.robust.mixing import Bucketing, Mixing, mixing_matrix
from tacit.aggregation.robust.reweighted import CenteredClip, CovarianceFilter, GeometricMedian, Robust
from tacit.errors import InvalidValue, TooFewSites
from tacit.learning.task import Updates

RULES = (
    TrimmedMean(f=2),
    Median(f=2),
    MeanAroundMedian(f=2),
    Krum(f=2),
    MultiKrum(f=2),
    GeometricMedian(f=2),
    CovarianceFilter(f=2),
    CenteredClip(f=2),
    CenteredClip(f=2, radius=1.0),
    CenteredClip(f=2, radius=1.0, steps=3),
    Bulyan(f=2),
)
every = pytest.mark.parametrize("then", RULES, ids=lambda rule: f"{rule.kind}-{getattr(rule, 'radius', '')}")


def updates_of(sites=12, width=9, *, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal((sites, width)).astype(dtype)


def plain_mixes(rows, f):
    mixes = []
    for own, row in enumerate(rows):
        far = [(float(((row - other) ** 2).sum()), place) for place, other in enumerate(rows)]
        far[own] = (-1.0, own)
        mixes.append(np.mean([rows[place] for _, place in sorted(far)[: len(rows) - f]], axis=0))
    return np.array(mixes)


matrices = arrays.arrays(
    np.float64, st.tuples(st.integers(11, 13), st.integers(1, 4)), elements=st.integers(-9, 9).map(float)
)


@every
def test_mixing_is_the_rule_on_mixes(then):
    for seed in range(4):
        rows = updates_of(11 + seed, 3 + 4 * seed, seed=seed)
        rows[:seed] *= 10
        mixed = then(plain_mixes(rows, 2))
        np.testing.assert_allclose(Mixing(then=then)(rows), mixed, rtol=0, atol=1e-6)


# Which of two values is the nearer to a median can hang on the last digit; these rules have no such edge.
@pytest.mark.parametrize("then", [TrimmedMean(f=2), Median(f=2), *RULES[3:8]], ids=lambda rule: rule.kind)
def test_in_single_precision_it_is_the_same_to_single_precision(then):
    rows = updates_of(12, 5000, dtype=np.float32)
    mixed = then(plain_mixes(rows.astype(np.float64), 2))
    np.testing.assert_allclose(Mixing(then=then)(rows), mixed, rtol=0, atol=2e-6)


@settings(max_examples=40)
@given(matrices)
def test_every_mix_holds_its_own_update_and_equal_parts_of_n_minus_f(rows):
    # Whole numbers: many are equally near, and some are the same.
    distances = ((rows[:, None] - rows) ** 2).sum(axis=-1)
    mix = mixing_matrix(distances, 3)
    assert (np.count_nonzero(mix, axis=1) == len(rows) - 3).all()
    assert (mix.diagonal() > 0).all()
    np.testing.assert_allclose(mix.sum(axis=1), 1)
    np.testing.assert_allclose(mix @ rows, plain_mixes(rows, 3), atol=1e-12)


@pytest.mark.parametrize("step", [Mixing, lambda then: Bucketing(then=then, size=1)])
@every
def test_with_names_the_order_of_the_rows_does_not_change_a_bit(step, then):
    rows = np.round(updates_of())
    names = tuple(f"site{place:02}" for place in range(12))
    order = np.random.default_rng(2).permutation(12)
    given = Updates(names=names, matrix=rows, round=4)
    mixed = Updates(names=tuple(names[at] for at in order), matrix=rows[order], round=4)
    rule = step(then=then)
    assert np.array_equal(rule(given), rule(mixed))
    if (shares := rule.shares(given)) is not None:
        np.testing.assert_array_equal(rule.shares(mixed), shares[order])


@pytest.mark.parametrize("step", [Mixing, Bucketing])
@pytest.mark.parametrize("then", RULES[3:8], ids=lambda rule: rule.kind)
def test_the_shares_explain_the_result_and_are_parts_of_a_whole(step, then):
    rule, rows = step(then=then), updates_of(16)
    shares = rule.shares(rows)
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(), 1)
    np.testing.assert_allclose(shares @ rows, rule(rows), atol=1e-10)
    assert step(then=TrimmedMean(f=1)).shares(rows) is None


@every
def test_alike_updates_and_no_updates_are_themselves(then):
    rule, value = Mixing(then=then), np.array([0.3, -0.2])
    if getattr(then, "steps", 1) == 1:
        np.testing.assert_allclose(rule(np.tile(value, (12, 1))), value, rtol=1e-14)
    assert rule(np.zeros((12, 2))).tolist() == [0, 0]
    lone = Mixing(then=type(then)())
    np.testing.assert_allclose(lone(value[None]), value, rtol=1e-14)


@every
@pytest.mark.parametrize("step", [Mixing, Bucketing])
def test_an_update_that_is_no_vector_is_named_and_refused(step, then):
    rows = updates_of(24)
    rows[5, 3] = np.nan
    with pytest.raises(InvalidValue, match=r"updates\[5\] is not allowed"):
        step(then=then)(rows)


@pytest.mark.parametrize("then", [TrimmedMean(f=3), GeometricMedian(f=3), Krum(f=3), CovarianceFilter(f=3)])
@pytest.mark.parametrize("far", [1e5, 1e38])
def test_liars_far_away_are_in_no_mix_of_others(then, far):
    rows = updates_of(12, 30, dtype=np.float32)
    rows[:3] = far
    found = Mixing(then=then)(rows)
    np.testing.assert_allclose(found, rows[3:].astype(np.float64).mean(axis=0), atol=1e-4)


def test_mixing_counts_liars_as_its_rule_does():
    rule = Mixing(then=TrimmedMean(f=3))
    assert (rule.min_sites(3), rule.default_f(12), rule.tolerates(12)) == (7, 3, 3)
    with pytest.raises(TooFewSites, match="f = 3 is not allowed with 6 sites"):
        rule(updates_of(6))
    assert Mixing(then=TrimmedMean()).resolve(12, Open()) == rule
    assert Mixing(then=Krum(f=3)).min_sites(3) == 9


def test_more_sites_than_were_expected_are_refused():
    with pytest.raises(InvalidValue, match="sites"):
        Mixing(then=TrimmedMean(f=1))(updates_of(6), sites=5)


def test_mixes_average_noise():
    assert Mixing(then=TrimmedMean()).under_noise == "stands"
    assert Mixing(then=Krum()).under_noise == "suffers"
    assert Bucketing(then=Krum()).under_noise == "breaks"
    assert Bucketing(then=TrimmedMean()).under_noise == "suffers"


@pytest.mark.parametrize("then", [Mean(), Robust(), "trimmed-mean", Mixing(then=Median())])
@pytest.mark.parametrize("step", [Mixing, Bucketing])
def test_only_a_rule_can_follow(step, then):
    with pytest.raises(InvalidValue, match=r"then = .* a rule"):
        step(then=then)


# Buckets.


def drawn(rule, rows, number=0):
    """The means of buckets, in their order."""
    names = tuple(f"site{place:02}" for place in range(len(rows)))
    return np.array(
        [rows[[names.index(name) for name in part]].mean(axis=0) for part in rule.parties(names, number)]
    )


@every
def test_bucketing_is_the_rule_on_the_means_of_buckets(then):
    for size in (1, 2, 3):
        rows, rule = updates_of(38), Bucketing(then=then, size=size, seed=7)
        np.testing.assert_allclose(rule(rows), then(drawn(rule, rows)), rtol=0, atol=1e-8)
        names = tuple(f"site{place:02}" for place in range(len(rows)))
        updates = Updates(names=names, matrix=rows, round=3)
        np.testing.assert_allclose(rule(updates), then(drawn(rule, rows, 3)), rtol=0, atol=1e-8)


@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 5))
def test_everybody_is_in_one_bucket_and_no_bucket_is_smaller_than_it_may_be(sites, size, number):
    names = [f"site{place}" for place in range(sites)]
    parts = Bucketing(then=Median(), size=size).parties(names, number)
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert all(len(part) >= min(size, sites) for part in parts)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_buckets_are_drawn_anew_in_every_round_and_repeat_with_the_seed():
    names = [f"site{place}" for place in range(12)]
    rule = Bucketing(then=Median(), size=3)
    assert rule.parties(names, 1) == rule.parties(names[::-1], 1)
    assert rule.parties(names, 1) != rule.parties(names, 2)
    assert rule.parties(names, 1) != Bucketing(then=Median(), size=3, seed=1).parties(names, 1)


def test_the_means_of_buckets_can_be_had_in_secret():
    rule = Bucketing(then=TrimmedMean(f=1), size=3)
    means = updates_of(4, 5)
    named = Updates(names=("a", "b", "c", "d"), matrix=means, round=2)
    np.testing.assert_allclose(rule.combine_groups(named), TrimmedMean(f=1)(means))
    with pytest.raises(TooFewSites, match="f = 1 is not allowed with 2 sites"):
        rule.combine_groups(Updates(names=("a", "b"), matrix=means[:2]))


def test_liars_that_spoil_half_the_buckets_are_refused_with_the_numbers():
    rule = Bucketing(then=GeometricMedian(f=6), size=2)
    with pytest.raises(TooFewSites, match=r"f \* size = 12 must be below 10"):
        rule.tolerates(20)
    with pytest.raises(TooFewSites, match="f = 6 is not allowed with 20 sites in buckets of 2"):
        rule(updates_of(20))
    assert rule.tolerates(26) == 6
    assert np.isfinite(rule(updates_of(26))).all()


def test_without_f_as_many_are_stood_as_a_third_of_the_buckets():
    rule = Bucketing(then=TrimmedMean(), size=3)
    assert rule.tolerates(30) == rule.default_f(30) == 3
    settled = rule.resolve(30, Open())
    assert settled == Bucketing(then=TrimmedMean(f=3), size=3)
    with pytest.raises(TooFewSites):
        settled(updates_of(20))
    assert Bucketing(then=TrimmedMean(trim=0.2), size=2).resolve(20, Open()).then == TrimmedMean(f=2)


def test_a_bucket_has_at_least_one_site():
    with pytest.raises(InvalidValue, match="size"):
        Bucketing(then=Median(), size=0)


@pytest.mark.parametrize("step", [Mixing, Bucketing])
def test_nothing_as_large_as_the_updates_is_made(step):
    rows = np.random.default_rng(0).random((60, 100_000), dtype=np.float32)
    rule = step(then=TrimmedMean())
    rule(rows[:, :100])
    tracemalloc.start()
    rule(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The updates are 24 megabytes, and mixed one by one as in other libraries 40 times that.
    assert peak < 12e6


@pytest.mark.parametrize(("sites", "f"), [(5, 1), (7, 2), (12, 3)])
def test_the_sensitivity_before_a_trimmed_mean_is_that_of_the_proof(sites, f):
    rule, clip = Mixing(then=TrimmedMean(f=f)), 2.0
    weight, own, other = 1 / (sites - 2 * f), (1 + 2 * f) * clip / (sites - f), 2 * clip / (sites - f)
    assert rule.sensitivity(clip, sites, "l1") == pytest.approx(weight * (own + (sites - 1) * other))
    assert rule.sensitivity(clip, sites) == pytest.approx(
        weight * own + other * np.sqrt((sites - 1) * weight)
    )


def test_without_liars_mixing_has_the_sensitivity_of_the_mean_and_before_other_rules_none():
    assert Mixing(then=TrimmedMean(f=0)).sensitivity(2.0, 8) == 0.25
    assert Mixing(then=Median()).sensitivity(2.0, 8) is None


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_no_exchange_of_a_row_for_zeros_moves_the_mixed_trimmed_mean_further_than_is_claimed(norm):
    draws, rule = np.random.default_rng(5), Mixing(then=TrimmedMean(f=1))
    order, claimed = {"l1": 1, "l2": 2}[norm], rule.sensitivity(1.0, 6, norm)
    furthest = 0.0
    for _ in range(300):
        rows = draws.normal(size=(6, 4)) ** 3
        rows /= np.linalg.norm(rows, ord=order, axis=1, keepdims=True)
        without = rows.copy()
        without[draws.integers(6)] = 0.0
        moved = rule(rows, sites=6) - rule(without, sites=6)
        furthest = max(furthest, float(np.linalg.norm(moved, ord=order)))
    assert 0.1 * claimed < furthest <= claimed
