"""Noise in shares: what counts is what honest sites that stay have added, whoever drops out or tells."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InvalidValue, Refused
from tacit.privacy.accounting import calibrate, epsilon
from tacit.privacy.mechanisms.secure_sum import FEWEST, MOST, SecureSum, honest, threshold
from tacit.runtime.keys import Key

NAMES = [f"site-{number}" for number in range(10)]


def blind(**fields) -> SecureSum:
    usual = {"clip": 1.0, "multiplier": 2.0, "colluders": 1, "sites": 10, "rehearsal": True}
    return SecureSum(**{**usual, **fields})


@given(st.integers(FEWEST, MOST), st.integers(1, MOST))
def test_colluders_and_a_lying_server_never_get_two_sums_or_a_single_vector(sites, colluders):
    left = threshold(sites) - colluders
    if left < 2 or 2 * left <= sites - colluders:
        with pytest.raises(Refused, match="could unmask a site"):
            honest(sites, colluders)
    else:
        assert honest(sites, colluders) == left


@pytest.mark.parametrize("sites", [0, 1, 2, 101])
def test_too_few_or_too_many_sites_have_no_threshold(sites):
    with pytest.raises(InvalidValue, match="from 3 to 100"):
        threshold(sites)


def test_everybody_has_to_begin():
    with pytest.raises(Refused, match="4 sites cannot use secure aggregation whose noise is shared among 10"):
        blind().groups(NAMES[:4])


def test_groups_are_those_of_the_round_and_questions_are_answered_together():
    def halves(names, number):
        turned = [*names[number:], *names[:number]]
        return tuple(turned[:5]), tuple(turned[5:])

    grouped = blind(parties=halves)
    assert grouped.sizes == (5, 5)
    assert grouped.shares == honest(5, 1) == 3
    assert grouped.at_round(2).groups(NAMES) != grouped.groups(NAMES)
    assert grouped.with_one_group().groups(NAMES) == (tuple(NAMES),)
    assert grouped.with_one_group().shares == honest(10, 1) == 6


def test_a_group_of_two_is_refused():
    with pytest.raises(Refused, match="a group of 2 sites"):
        blind(parties=lambda names, number: (tuple(names[:2]), tuple(names[2:])))


def test_an_update_leaves_in_whole_steps_that_the_ring_gives_back():
    mechanism = blind(multiplier=1e-3)
    updates = [np.full((4,), 0.1 * place) for place in range(10)]
    steps = [
        mechanism.at_site(update, Key(1, rehearsal=True) / place) for place, update in enumerate(updates)
    ]
    assert all(np.array_equal(step, step.round()) for step in steps)
    total = np.zeros(4, dtype=np.uint32)
    for step in steps:
        total += mechanism.on_ring(step)
    clipped = [update / max(1.0, float(np.linalg.norm(update))) for update in updates]
    expected = np.stack(clipped).mean(axis=0)
    assert np.allclose(mechanism.mean_of(total, 10), expected, atol=0.005)


def test_the_noise_of_a_mean_is_as_long_as_it_says():
    mechanism = blind(multiplier=3.0)
    zeros = np.zeros(20_000)
    total = np.zeros(len(zeros), dtype=np.uint32)
    for name in NAMES:
        total += mechanism.on_ring(mechanism.at_site(zeros, Key(2, rehearsal=True) / name))
    spread = mechanism.mean_of(total, 10).std()
    # Four deviations of a standard deviation over so many draws; rounding adds half a step for each number.
    assert spread == pytest.approx(mechanism.deviation(10), rel=0.02)
    assert spread >= 3.0 * math.sqrt(10 / 6) / 10 * 0.98


def test_the_same_update_gets_the_same_noise_and_another_gets_another():
    key, mechanism = Key(3), blind(rehearsal=False)
    one, other = np.zeros(50), np.full((50,), 1e-6)
    assert np.array_equal(mechanism.at_site(one, key), mechanism.at_site(one, key))
    apart = mechanism.at_site(one, key) - mechanism.at_site(other, key)
    # Unrelated draws, not the shift between the two.
    assert float(apart.std()) > 0.5 * mechanism.lattice(50).share(2.0, mechanism.shares)


def test_a_rehearsal_key_is_refused_where_none_was_declared():
    with pytest.raises(Refused, match="rehearsal"):
        blind(rehearsal=False).at_site(np.zeros(3), Key(1, rehearsal=True))


def test_what_is_charged_is_what_was_solved_for():
    multiplier = calibrate(epsilon=2.0, delta=1e-4, steps=7, mechanism="discrete")
    releases = [blind(multiplier=multiplier).release(number, NAMES)[0] for number in range(7)]
    assert 1.99 < epsilon(releases, 1e-4) <= 2.0
    assert {(release.unit, release.subject, release.view) for release in releases} == {
        ("site", "sites", "server")
    }


def test_a_model_that_does_not_fit_the_ring_is_refused_beforehand():
    blind().check_width(100_000)
    with pytest.raises(InvalidValue, match="do not fit into 32 bits"):
        blind(multiplier=1e6).check_width(1_000)


@pytest.mark.parametrize("fields", [{"clip": 0.0}, {"multiplier": -1.0}, {"colluders": 0}])
def test_what_has_no_price_is_refused(fields):
    with pytest.raises(InvalidValue):
        blind(**fields)
