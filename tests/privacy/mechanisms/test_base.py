"""Clip, noise and price of a mechanism belong together.

In a rehearsal noise depends on the key alone, so the difference of two answers under one key is the
difference of what was answered. Draws are fixed; `FALSE_ALARM` is the share of seeds on which right noise
would be accused.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tacit.aggregation.mean import Mean
from tacit.errors import InvalidValue, Refused
from tacit.privacy.accounting.release import Release, clipped_release
from tacit.privacy.mechanisms.base import (
    NORMS,
    TINY,
    BoundedSum,
    CountNoise,
    NoPrivacy,
    RecordLevel,
    Rows,
    add_noise,
    clip_factors,
    noisy_answer,
)
from tacit.privacy.mechanisms.clip import clip_rows
from tacit.privacy.mechanisms.noise import GRID_BITS
from tacit.privacy.mechanisms.site_level import SiteLevel
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key

FALSE_ALARM = 1e-6
DRAWS = 100_000
REHEARSAL = Key(5, rehearsal=True)
LAWS = {"gaussian": stats.norm, "laplace": stats.laplace}
ORDER = {"gaussian": 2, "laplace": 1}


def records(**fields) -> RecordLevel:
    given = {"law": "gaussian", "clip": 1.0, "multiplier": 2.0, "steps": 1, "rate": 1.0, "rehearsal": True}
    return RecordLevel(**{**given, **fields})


def sites(**fields) -> SiteLevel:
    given = {
        "law": "gaussian",
        "clip": 1.0,
        "multiplier": 2.0,
        "where": "site",
        "rehearsal": True,
    }
    merged = {**given, **fields}
    return SiteLevel(**{"reach": merged["clip"] if merged["where"] == "site" else 0.25, **merged})


def price(mechanism):
    (release,) = mechanism.release(1, ["oslo"])
    return release


def size(moved: Array, law: str) -> float:
    return float(np.linalg.norm(moved, ord=ORDER[law]))


def room(scale: float, coordinates: int) -> float:
    """Return the most that the public grid and rounding may add to a difference of two answers."""
    return coordinates * scale * 2.0**-GRID_BITS + 1e-9


def accused(draws: Array, law: str, scale: float) -> bool:
    return bool(stats.kstest(draws, LAWS[law](scale=scale).cdf).pvalue < FALSE_ALARM)


laws = st.sampled_from(sorted(LAWS))
clips = st.floats(1e-2, 1e2)
rows_of_a_step = st.lists(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=3), min_size=1, max_size=6).map(
    lambda rows: np.array(rows, dtype=np.float64)
)
one_row = st.lists(st.floats(-1e4, 1e4), min_size=3, max_size=3).map(
    lambda row: np.array([row], dtype=np.float64)
)


# No protection


def test_the_null_mechanism_changes_nothing_and_costs_nothing():
    rows = np.array([[3.0, 4.0], [100.0, math.inf]])
    free = NoPrivacy()
    assert free.noisy_sum(rows, Key(0)).tolist() == [103.0, math.inf]
    assert np.array_equal(free.at_site(rows[0], Key(0)), rows[0])
    assert np.array_equal(free.at_server(rows[0], Key(0)), rows[0])
    assert free.release(1, ["oslo", "bergen"]) == ()


# Records


@settings(deadline=None, max_examples=100)
@given(rows_of_a_step, laws, clips)
def test_one_record_more_or_less_moves_a_sum_by_at_most_the_charged_sensitivity(rows, law, clip):
    mechanism = records(law=law, clip=clip, multiplier=1e-3)
    moved = mechanism.noisy_sum(rows, REHEARSAL) - mechanism.noisy_sum(rows[:-1], REHEARSAL)
    release = price(mechanism)
    assert release.relation == "add-remove"
    assert size(moved, law) <= release.sensitivity * (1 + 1e-12) + room(release.scale, 3)


@settings(deadline=None, max_examples=100)
@given(rows_of_a_step, one_row, laws, clips)
def test_one_record_exchanged_moves_a_sum_by_at_most_twice_that(rows, other, law, clip):
    mechanism = records(law=law, clip=clip, multiplier=1e-3)
    exchanged = np.concatenate([rows[:-1], other])
    moved = mechanism.noisy_sum(rows, REHEARSAL) - mechanism.noisy_sum(exchanged, REHEARSAL)
    release = price(mechanism).under_replacement()
    assert size(moved, law) <= release.sensitivity * (1 + 1e-12) + room(release.scale, 3)


@pytest.mark.parametrize("law", LAWS)
def test_the_sensitivity_of_a_sum_is_reached(law):
    mechanism = records(law=law, clip=0.5, multiplier=1e-3)
    rows = np.array([[30.0, 40.0]], dtype=np.float64)
    moved = mechanism.noisy_sum(rows, REHEARSAL) - mechanism.noisy_sum(rows[:0], REHEARSAL)
    assert size(moved, law) == pytest.approx(price(mechanism).sensitivity, rel=1e-6)


@settings(deadline=None, max_examples=100)
@given(rows_of_a_step, one_row, laws, clips)
def test_one_record_moves_a_sum_of_groups_by_at_most_the_charged_sensitivity(groups, change, law, clip):
    # A record can turn the row of its group into any other row; it cannot touch another group.
    mechanism = records(law=law, clip=clip, multiplier=1e-3, grouped=True)
    changed = np.concatenate([groups[:-1], groups[-1:] + change])
    moved = mechanism.noisy_sum(groups, REHEARSAL) - mechanism.noisy_sum(changed, REHEARSAL)
    release = price(mechanism)
    assert release.sensitivity == 2 * clip
    assert size(moved, law) <= release.sensitivity * (1 + 1e-12) + room(release.scale, 3)


def test_a_group_turned_into_its_opposite_reaches_twice_the_bound():
    mechanism = records(grouped=True, multiplier=1e-3)
    group = np.array([[30.0, 40.0]], dtype=np.float64)
    moved = mechanism.noisy_sum(group, REHEARSAL) - mechanism.noisy_sum(-group, REHEARSAL)
    assert size(moved, "gaussian") == pytest.approx(price(mechanism).sensitivity, rel=1e-6)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("clip", "multiplier"), [(1.0, 2.0), (0.1, 0.7), (30.0, 1.1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_empty_batch_is_noise_of_the_charged_law_and_scale(law, clip, multiplier, dtype):
    mechanism = records(law=law, clip=clip, multiplier=multiplier)
    answer = mechanism.noisy_sum(np.zeros((0, DRAWS), dtype=dtype), REHEARSAL)
    release = price(mechanism)
    assert release.law == law
    assert release.scale == multiplier * clip
    assert not accused(answer, law, release.scale)
    assert accused(answer, law, 1.06 * release.scale)


@pytest.mark.parametrize("law", LAWS)
def test_a_sum_is_the_clipped_rows_and_noise_of_the_charged_scale(law):
    mechanism = records(law=law, clip=2.0, multiplier=1.5)
    rows = np.random.default_rng(0).normal(size=(5, DRAWS))
    expected = clip_rows(rows, 2.0, norm="l2" if law == "gaussian" else "l1").sum(axis=0)
    assert not accused(mechanism.noisy_sum(rows, REHEARSAL) - expected, law, price(mechanism).scale)


@pytest.mark.parametrize("law", LAWS)
def test_sites_that_work_side_by_side_get_the_noise_that_each_would_get_alone(law):
    mechanism, keys = records(law=law), [REHEARSAL / site for site in ("oslo", "bergen", "rome")]
    rows = np.random.default_rng(0).normal(size=(3, 5, 4))
    together = mechanism.noisy_sums(Rows(rows), keys, 2)
    alone = [mechanism.noisy_sums(Rows(own[None]), [key], 2)[0] for own, key in zip(rows, keys, strict=True)]
    assert (together == np.array(alone)).all()


def test_noise_of_one_site_that_repeats_is_refused_among_others_that_do_not():
    mechanism, keys = records(rehearsal=False), [Key(0) / "oslo", REHEARSAL / "bergen"]
    with pytest.raises(Refused, match="rehearsal"):
        mechanism.noisy_sums(Rows(np.zeros((2, 5, 4))), keys, 0)


def test_the_noise_of_two_steps_differs():
    mechanism = records()
    rows = np.zeros((0, 4))
    assert not np.array_equal(
        mechanism.noisy_sum(rows, REHEARSAL / 1), mechanism.noisy_sum(rows, REHEARSAL / 2)
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_sum_is_in_double_precision_whatever_the_rows_are(dtype):
    answer = records().noisy_sum(np.ones((3, 2), dtype=dtype), REHEARSAL)
    assert (answer.dtype, answer.shape) == (np.float64, (2,))


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_broken_row_contributes_zero(broken):
    rows = np.array([[0.1, 0.2], [broken, 0.0], [0.3, 0.1]])
    mechanism = records()
    assert np.array_equal(mechanism.noisy_sum(rows, REHEARSAL), mechanism.noisy_sum(rows[[0, 2]], REHEARSAL))


def test_each_site_is_charged_for_its_own_records():
    mechanism = records(steps=5, rate=0.1, sampled="group", grouped=True)
    releases = mechanism.release(3, ["oslo", "bergen"])
    assert [release.subject for release in releases] == ["records@oslo", "records@bergen"]
    assert [release.party for release in releases] == ["oslo", "bergen"]
    for release in releases:
        assert (release.unit, release.relation, release.view) == ("record", "add-remove", "server")
        assert (release.count, release.rate, release.sampled) == (5, 0.1, "group")
        assert (release.purpose, release.rehearsal) == ("round 3", True)


def test_a_round_without_sites_costs_nothing():
    assert records().release(1, []) == ()


def test_what_a_site_made_of_noisy_sums_leaves_it_unchanged():
    update = np.array([30.0, 40.0])
    assert np.array_equal(records().at_site(update, REHEARSAL), update)
    assert np.array_equal(records().at_server(update, REHEARSAL), update)


@pytest.mark.parametrize("law", LAWS)
def test_one_record_more_moves_a_noisy_count_by_the_charged_sensitivity(law):
    mechanism = records(counts=CountNoise(law=law, scale=0.5))
    (release,) = mechanism.count_releases(["oslo"])
    moved = mechanism.noisy_count(41, REHEARSAL) - mechanism.noisy_count(40, REHEARSAL)
    assert moved == pytest.approx(release.sensitivity, abs=release.scale * 2.0**-GRID_BITS + 1e-9)
    assert (release.law, release.scale, release.rate, release.count) == (law, 0.5, 1.0, 1)


@pytest.mark.parametrize("law", LAWS)
def test_a_count_has_noise_of_the_charged_law_and_scale(law):
    mechanism = records(counts=CountNoise(law=law, scale=3.0))
    (release,) = mechanism.count_releases(["oslo"])
    told = np.array([mechanism.noisy_count(40, REHEARSAL / number) for number in range(2000)])
    assert not accused(told - 40, law, release.scale)
    assert accused(told - 40, law, 1.5 * release.scale)


def test_each_site_pays_for_its_own_count_and_none_where_nothing_is_bought():
    paid = records(counts=CountNoise(law="laplace", scale=2.0)).count_releases(["oslo", "bergen"])
    assert [(one.subject, one.party) for one in paid] == [
        ("records@oslo", "oslo"), ("records@bergen", "bergen")
    ]  # fmt: skip
    assert records().count_releases(["oslo", "bergen"]) == ()


@settings(deadline=None, max_examples=100)
@given(st.floats(1e-49, 1e49), st.floats(-330, 308))
def test_a_factor_is_a_normal_number_or_nothing(bound, exponent):
    # A subnormal factor has few digits: a long contribution times it could be longer than the bound.
    lengths = np.array([10.0**exponent, bound, bound * 1e200, np.finfo(np.float64).max, np.inf, np.nan])
    factors = clip_factors(lengths, bound)
    assert all(factor == 0 or TINY <= factor <= 1 for factor in factors)
    assert factors[-2:].tolist() == [0.0, 0.0]
    assert (lengths[:-2] * factors[:-2] <= bound).all()


def test_a_contribution_that_only_a_subnormal_factor_would_shorten_is_left_out():
    assert clip_factors(np.array([1e300]), 1e-10).tolist() == [0.0]
    assert clip_factors(np.array([1e290]), 1e-10)[0] == pytest.approx(1e-300, rel=1e-8)


# Sites


@settings(deadline=None, max_examples=100)
@given(one_row, one_row, laws, clips)
def test_an_exchanged_site_moves_its_noisy_update_by_at_most_the_charged_sensitivity(one, other, law, clip):
    mechanism = sites(law=law, clip=clip, multiplier=1e-3)
    moved = mechanism.at_site(one[0], REHEARSAL) - mechanism.at_site(other[0], REHEARSAL)
    release = price(mechanism)
    assert (release.relation, release.sensitivity) == ("replace", 2 * clip)
    assert size(moved, law) <= release.sensitivity * (1 + 1e-12) + room(release.scale, 3)


@pytest.mark.parametrize("law", LAWS)
def test_the_sensitivity_of_an_update_is_reached(law):
    mechanism = sites(law=law, multiplier=1e-3)
    update = np.array([30.0, 40.0], dtype=np.float64)
    moved = mechanism.at_site(update, REHEARSAL) - mechanism.at_site(-update, REHEARSAL)
    assert size(moved, law) == pytest.approx(price(mechanism).sensitivity, rel=1e-6)


@pytest.mark.parametrize("law", LAWS)
def test_noise_at_the_site_has_the_charged_law_and_scale(law):
    mechanism = sites(law=law, clip=3.0, multiplier=1.5)
    answer = mechanism.at_site(np.zeros(DRAWS), REHEARSAL)
    assert price(mechanism).scale == 4.5
    assert not accused(answer, law, 4.5)
    assert accused(answer, law, 1.06 * 4.5)


def test_a_server_that_sees_noisy_updates_adds_nothing():
    combined = np.array([30.0, 40.0])
    assert np.array_equal(sites(where="site").at_server(combined, REHEARSAL), combined)


def test_a_site_that_trusts_the_server_only_clips():
    mechanism = sites(where="server", clip=2.0)
    update = np.array([30.0, 40.0])
    assert np.array_equal(mechanism.at_site(update, Key(0)), clip_rows(update, 2.0))
    short = np.array([0.3, 0.4])
    assert np.array_equal(mechanism.at_site(short, Key(0)), short)


@pytest.mark.parametrize("law", LAWS)
def test_noise_at_the_server_is_scaled_by_the_reach_of_one_site(law):
    mechanism = sites(law=law, where="server", clip=4.0, reach=0.5, multiplier=3.0)
    answer = mechanism.at_server(np.zeros(DRAWS), REHEARSAL)
    release = price(mechanism)
    assert (release.scale, release.sensitivity, release.relation) == (1.5, 0.5, "add-remove")
    assert not accused(answer, law, release.scale)
    assert accused(answer, law, 1.06 * release.scale)


@settings(deadline=None, max_examples=100)
@given(rows_of_a_step, laws, clips, st.floats(0.5, 20))
def test_one_site_moves_the_mean_by_at_most_the_charged_sensitivity(updates, law, clip, expected):
    reach = Mean().sensitivity(clip, expected)
    assert reach is not None
    mechanism = sites(law=law, where="server", clip=clip, reach=reach, multiplier=1e-3)

    def answer(rows: Array) -> Array:
        clipped = [mechanism.at_site(row, REHEARSAL) for row in rows]
        stacked = np.stack(clipped) if clipped else rows
        return mechanism.at_server(Mean()(stacked, sites=expected), REHEARSAL)

    release = price(mechanism)
    moved = answer(updates) - answer(updates[:-1])
    assert size(moved, law) <= release.sensitivity * (1 + 1e-12) + room(release.scale, 3)


@pytest.mark.parametrize("where", ["site", "server"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_updates_leave_in_double_precision_and_a_broken_one_becomes_zero(where, dtype):
    mechanism = sites(where=where)
    broken = mechanism.at_site(np.array([math.nan, 1.0], dtype=dtype), REHEARSAL)
    assert broken.dtype == np.float64
    assert np.array_equal(broken, mechanism.at_site(np.zeros(2, dtype=dtype), REHEARSAL))


def test_a_release_of_noisy_updates_says_who_sees_what():
    release = price(sites(where="site"))
    assert (release.unit, release.subject, release.relation) == ("site", "sites", "replace")
    assert (release.view, release.rate, release.count) == ("server", 1.0, 1)
    assert release.rehearsal


def test_a_release_of_the_aggregate_says_who_sees_what():
    release = price(sites(where="server", rate=0.3, rehearsal=False))
    assert (release.unit, release.subject, release.relation) == ("site", "sites", "add-remove")
    assert (release.view, release.rate, release.party) == ("sites", 0.3, "server")
    assert not release.rehearsal


def test_the_price_of_a_round_does_not_depend_on_who_takes_part():
    mechanism = sites(where="server")
    assert (
        mechanism.release(2, ["oslo"]) == mechanism.release(2, ["bergen", "oslo"]) == mechanism.release(2, [])
    )


# Both


STEPS = [
    (records(), lambda mechanism, key: mechanism.noisy_sum(np.zeros((1, 2)), key)),
    (sites(where="site"), lambda mechanism, key: mechanism.at_site(np.zeros(2), key)),
    (sites(where="server"), lambda mechanism, key: mechanism.at_server(np.zeros(2), key)),
]
NAMES = ["records", "at the site", "at the server"]


@pytest.mark.parametrize(("mechanism", "step"), STEPS, ids=NAMES)
def test_noise_that_repeats_is_refused_unless_it_was_declared(mechanism, step):
    with pytest.raises(Refused, match=r"rehearsal=True"):
        step(replace(mechanism, rehearsal=False), REHEARSAL)


@pytest.mark.parametrize(("mechanism", "step"), STEPS, ids=NAMES)
def test_secret_noise_differs_from_run_to_run(mechanism, step):
    private = replace(mechanism, rehearsal=False)
    assert not np.array_equal(step(private, Key(5)), step(private, Key(5)))


@pytest.mark.parametrize(("mechanism", "step"), STEPS, ids=NAMES)
def test_a_resumed_run_repeats_its_noise_on_the_same_values(mechanism, step):
    private = replace(mechanism, rehearsal=False)
    keys = [Key(5, entropy=bytes(32)) / 1 for _ in range(2)]
    assert np.array_equal(step(private, keys[0]), step(private, keys[1]))


def test_a_resumed_run_on_other_values_gets_other_noise():
    # The same noise on both would give the difference of the two away.
    private = records(rehearsal=False)
    key = Key(5, entropy=bytes(32))
    one = private.noisy_sum(np.zeros((1, 100)), key)
    other = private.noisy_sum(np.full((1, 100), 1e-9), key)
    assert float(np.abs(one - other).max()) > 0.1


@pytest.mark.parametrize(("mechanism", "step"), STEPS, ids=NAMES)
@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.nan, math.inf])
def test_noise_that_protects_nobody_is_refused(mechanism, step, multiplier):
    with pytest.raises(InvalidValue, match="multiplier"):
        replace(mechanism, multiplier=multiplier)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("where", ["site", "server"])
@pytest.mark.parametrize("rehearsal", [True, False])
def test_updates_that_leave_together_leave_as_they_would_alone(law, where, rehearsal):
    mechanism = sites(law=law, where=where, rehearsal=rehearsal)
    rows = 3 * np.random.default_rng(1).normal(size=(4, 7))
    rows[2, 3] = np.nan
    keys = [Key(5, rehearsal=rehearsal, entropy=bytes(32)) / name / "update" for name in "abcd"]
    alone = np.stack([mechanism.at_site(row, key) for row, key in zip(rows, keys, strict=True)])
    assert np.array_equal(mechanism.at_sites(rows, keys), alone)
    if where == "site":
        # Nobody's noise is somebody else's.
        noise = mechanism.at_sites(np.zeros_like(rows), keys)
        assert len({tuple(row) for row in noise.tolist()}) == len(rows)


def test_the_deviation_of_noise_on_records_is_that_of_one_sum_in_a_mean_over_sites():
    assert records(multiplier=2.0, clip=3.0).deviation(4) == pytest.approx(3.0)
    assert records(law="laplace", multiplier=2.0, clip=3.0).deviation(4) == pytest.approx(3.0 * math.sqrt(2))
    assert NoPrivacy().deviation(4) == 0.0


def test_the_plain_sums_of_several_sites_are_over_their_records():
    rows = np.arange(12.0).reshape(2, 3, 2)
    assert NoPrivacy().noisy_sums(Rows(rows), [Key(0), Key(0)], 0).tolist() == [[6.0, 9.0], [24.0, 27.0]]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("clip", [0.5, 100.0])
def test_an_answer_is_clipped_to_what_its_release_says_and_gets_the_noise_that_is_charged(law, clip):
    values = np.array([3.0, -4.0, 0.25])
    price = clipped_release(1.5, clip=clip, law=law, rehearsal=True)
    short = clip_rows(values, clip, norm=NORMS[law])
    expected = add_noise(short, law, 1.5 * clip, REHEARSAL, True)
    np.testing.assert_array_equal(noisy_answer(values, price, REHEARSAL), expected)


@pytest.mark.parametrize("law", LAWS)
def test_a_total_of_bounded_numbers_has_the_noise_that_covers_its_rounding(law):
    """Whatever a record says, it moves the total by at most the bound."""
    watched = BoundedSum(law=law, bound=2.0, multiplier=3.0, purpose="losses", rehearsal=True)
    values = np.array([0.5, 1.25, math.nan, 1e300, -math.inf, -7.0])
    expected = add_noise(np.array([0.5 + 1.25 + 2.0 + 2.0]), law, 6.0 * (1 + 2.0**-20), REHEARSAL, True)
    assert watched.noisy_total(values, REHEARSAL) == float(expected[0])
    assert watched.noisy_total(np.zeros(0), REHEARSAL) == float(expected[0]) - 5.75


def test_an_answer_without_a_bound_is_the_claim_of_whoever_asks():
    values, price = np.array([3.0, -4.0]), Release(law="laplace", scale=2.0, sensitivity=1.0, rehearsal=True)
    expected = add_noise(values, "laplace", 2.0, REHEARSAL, True)
    np.testing.assert_array_equal(noisy_answer(values, price, REHEARSAL), expected)


def test_an_answer_is_not_noised_by_another_law_than_is_charged_nor_by_noise_that_repeats_unsaid():
    choice = Release(law="selection", scale=1.0, sensitivity=1.0, rehearsal=True)
    with pytest.raises(InvalidValue, match="law"):
        noisy_answer(np.zeros(2), choice, REHEARSAL)
    with pytest.raises(Refused, match="repeats its noise"):
        noisy_answer(np.zeros(2), clipped_release(1.0), REHEARSAL)
