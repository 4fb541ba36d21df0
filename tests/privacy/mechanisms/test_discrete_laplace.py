"""Discrete Laplace noise and its shares have their laws exactly, and sums of shares cost what one noise does.

Draws come from rehearsal keys, so every verdict repeats; `FALSE_ALARM` is the share of seeds on which a right
implementation would be accused.
"""

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy import stats

from tacit.errors import InvalidValue
from tacit.privacy.accounting import calibrate, clipped_release, compare, deltas, epsilon, filters
from tacit.privacy.accounting.release import Release, from_dict, group_events
from tacit.privacy.mechanisms import discrete
from tacit.privacy.mechanisms.discrete import (
    discrete_laplace,
    discrete_laplace_share,
    discrete_laplace_variance,
)
from tacit.privacy.statement import released_in_words
from tacit.runtime.keys import Key, Secret

FALSE_ALARM = 1e-6
REHEARSAL = Key(28, rehearsal=True)


def secret(*names: str | int) -> Secret:
    key = REHEARSAL
    for name in names:
        key = key / name
    return key.secret()


def counted(scale: float, **fields) -> Release:
    return Release(law="discrete-laplace", scale=scale, sensitivity=1.0, **fields)


# The sampler


def accused(draws: np.ndarray, law, size: int) -> bool:
    """Whether draws have other frequencies than a law of the integers (chi-square)."""
    values, seen = np.unique(draws, return_counts=True)
    expected = size * law(values)
    likely = expected >= 10
    rest = [size - expected[likely].sum(), size - seen[likely].sum()]
    observed, wanted = np.append(seen[likely], rest[1]), np.append(expected[likely], rest[0])
    if rest[0] < 1:
        assert rest[1] < 10
        observed, wanted = observed[:-1], wanted[:-1]
    statistic = float(((observed - wanted) ** 2 / wanted).sum())
    return bool(stats.chi2.sf(statistic, observed.size - 1) < FALSE_ALARM)


@pytest.mark.parametrize("scale", [0.2, 1.0, 4.0, 33.3])
def test_draws_have_the_law_of_scipy(scale):
    size = 200_000
    draws = discrete_laplace(scale, size, secret("law", str(scale)))
    assert draws.dtype == np.int64
    assert not accused(draws, stats.dlaplace(1 / scale).pmf, size)
    assert accused(draws, stats.dlaplace(1 / (1.05 * scale)).pmf, size)
    assert draws.var() == pytest.approx(discrete_laplace_variance(scale), rel=0.03)
    assert discrete_laplace_variance(scale) == pytest.approx(float(stats.dlaplace(1 / scale).var()), rel=1e-9)


@pytest.mark.parametrize(("scale", "shares"), [(1.0, 2), (1.0, 13), (20.0, 5)])
def test_shares_add_up_to_the_law(scale, shares):
    size = 100_000
    draws = [
        discrete_laplace_share(scale, shares, size, secret("share", shares, site)) for site in range(shares)
    ]
    law = stats.dlaplace(1 / scale).pmf
    assert not accused(np.sum(draws, axis=0), law, size)
    assert accused(np.sum(draws[1:], axis=0), law, size)


@pytest.mark.parametrize(("scale", "shares"), [(0.1, 1), (0.7, 3), (2.5, 1), (2.5, 20), (20.0, 100)])
def test_the_table_is_the_exact_distribution_function(scale, shares):
    """Of the negative binomial law, from its definition by the gamma function, in high precision."""
    table = discrete._negative_binomial(scale, shares)
    ends = (0, *table.ends)
    with mpmath.workdps(120):
        a, r = mpmath.exp(-1 / mpmath.mpf(scale)), mpmath.mpf(1) / shares
        wanted = [mpmath.rf(r, k) / mpmath.factorial(k) * (1 - a) ** r * a**k for k in range(len(table.ends))]
        drawn = [mpmath.mpf(high - low) / 2**256 for low, high in pairwise(ends)]
        apart = mpmath.fsum(abs(one - other) for one, other in zip(drawn, wanted, strict=True))
        left_out = 1 - mpmath.fsum(wanted)
        assert apart + left_out < mpmath.mpf(2) ** -230
    if len(table.ends) < 500:
        law = stats.nbinom(1 / shares, -math.expm1(-1 / scale))
        assert np.allclose(np.array(drawn, dtype=float), law.pmf(np.arange(len(drawn))), atol=1e-12)
    assert list(table.ends) == sorted(table.ends)
    assert table.ends[-1] == 2**256


class Scripted(Secret):
    """Words in a given order, and no others."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)

    def words(self, shape):
        words = np.array(self.answers.pop(0), dtype=np.uint64)
        assert words.shape == shape
        return words


def test_a_word_on_an_edge_is_decided_by_the_bits_that_follow():
    table = discrete._negative_binomial(1.0, 1)
    edge, rest = table.ends[3] >> 192, table.ends[3] & 2**192 - 1

    def bits(number: int) -> list[int]:
        return [number >> 128 & 2**64 - 1, number >> 64 & 2**64 - 1, number & 2**64 - 1]

    for number, wanted in ((rest, 4), (rest - 1, 3)):
        script = Scripted([[edge], [0]], bits(number))
        assert discrete_laplace(1.0, 1, script).tolist() == [wanted]
        assert script.answers == []


def test_noise_so_small_that_it_is_hardly_any_is_zero_and_none_is_none():
    assert not discrete_laplace(2.0**-20, 1000, secret("small")).any()
    assert not discrete_laplace_share(1e-3, 7, 1000, secret("small")).any()
    # Even the largest word selects a number of the table.
    largest = Scripted([[2**64 - 1], [0]], [2**64 - 1] * 3)
    assert discrete_laplace(2.0**-20, 1, largest).tolist() == [1]
    assert discrete_laplace(1.0, 0, secret("none")).shape == (0,)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 1025.0, 2.0**-21])
def test_a_scale_without_a_table_is_refused_with_the_range(scale):
    with pytest.raises(InvalidValue, match=r"from 2\^-20 to 1024"):
        discrete_laplace(scale, 1, secret("refused"))


def test_the_widest_noise_can_be_drawn():
    draws = discrete_laplace_share(1024.0, 3, 2000, secret("wide"))
    third = discrete_laplace_variance(1024.0) / 3
    assert draws.var() == pytest.approx(third, rel=0.5)


def test_draws_repeat_with_their_secret_and_only_then():
    one, again = (discrete_laplace(9.0, 500, secret("same")) for _ in range(2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, discrete_laplace(9.0, 500, secret("other")))


# The price


def share_law(scale: float, shares: int, far: int) -> np.ndarray:
    """The law of one share on -far to far, from the table that draws it."""
    ends = np.array(discrete._negative_binomial(scale, shares).ends, dtype=object)
    one = np.array(np.diff(ends, prepend=0) / 2**256, dtype=np.float64)[: far + 1]
    one = np.pad(one, (0, far + 1 - len(one)))
    return np.convolve(one, one[::-1])


def hockey_stick(law: np.ndarray, shift: int, value: float) -> float:
    moved = np.concatenate([np.zeros(shift), law])
    law = np.concatenate([law, np.zeros(shift)])
    return float(np.maximum(law - math.exp(value) * moved, 0).sum())


@pytest.mark.parametrize("shares", [1, 2, 5])
@pytest.mark.parametrize("more", [0, 1, 4])
def test_a_sum_of_shares_never_costs_more_than_the_price(shares, more):
    """Convolved numerically; with more honest shares than are counted on, too."""
    scale, far = 1.0, 120
    one = share_law(scale, shares, far)
    law = one
    for _ in range(shares + more - 1):
        law = np.convolve(law, one)
    middle = len(law) // 2
    law = law[middle - 60 : middle + 61]
    price = epsilon([counted(scale)], 0.0)
    inner = law[20:101]
    ratios = np.abs(np.diff(np.log(inner)))
    assert ratios.max() <= price + 1e-9
    if more == 0:
        exact = stats.dlaplace(1 / scale).pmf(np.arange(-60, 61))
        assert np.allclose(law, exact, rtol=1e-9, atol=1e-14)
        assert ratios.min() == pytest.approx(price, rel=1e-9)
    fewer = share_law(scale, shares + 1, far)
    law = fewer
    for _ in range(shares - 1):
        law = np.convolve(law, fewer)
    middle = len(law) // 2
    assert abs(math.log(law[middle] / law[middle + 1])) > price + 0.01


@pytest.mark.parametrize("cells", [1, 2])
@pytest.mark.parametrize("times", [1, 2, 6])
@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-2])
def test_the_price_is_at_least_the_exact_one_and_equal_to_it_for_one_cell(cells, times, delta):
    scale = 2.0
    release = Release(law="discrete-laplace", scale=scale, sensitivity=float(cells), count=times)
    price = epsilon([release], delta)
    # One cell that moves by all of it, in each of `times` releases: losses and their probabilities.
    values = np.arange(-200, 201)
    mass = stats.dlaplace(1 / scale).pmf(values)
    steps = (np.abs(values - cells) - np.abs(values)).astype(int)
    once = np.bincount(steps + cells, weights=mass, minlength=2 * cells + 1)
    law = once
    for _ in range(times - 1):
        law = np.convolve(law, once)
    losses = np.arange(-cells * times, cells * times + 1) / scale

    def exact_delta(value: float) -> float:
        beyond = losses > value + 1e-12
        return float((law[beyond] * -np.expm1(value - losses[beyond])).sum())

    assert price <= cells * times / scale * (1 + 1e-11)
    assert exact_delta(price) <= delta + 1e-12
    if cells == 1 and delta > 0 and price > 1e-6:
        assert exact_delta(price * (1 - 1e-3)) > delta * 0.99
    assert exact_delta(0.5) <= float(deltas([release], np.array([0.5]))[0])


def test_it_composes_with_other_releases_by_privacy_loss_distributions():
    counts, gaussian = counted(2.0, count=4), Release(scale=3.0, sensitivity=1.0)
    laplace = Release(law="laplace", scale=2.0, sensitivity=1.0, count=4)
    both = epsilon([counts, gaussian], 1e-5)
    assert epsilon([gaussian], 1e-5) < both <= epsilon([gaussian], 1e-5) + 2.0
    # Its loss is +-epsilon, never less: costlier than continuous noise of the same scale.
    assert both >= epsilon([laplace, gaussian], 1e-5)
    assert epsilon([counted(2.0, count=30)], 1e-5) > epsilon(
        [Release(law="laplace", scale=2.0, sensitivity=1.0, count=30)], 1e-5
    )


def test_its_renyi_divergence_is_that_of_its_law():
    scale, values = 1.5, np.arange(-400, 401)
    law = stats.dlaplace(1 / scale)
    ((kind, _),) = group_events([counted(scale)])
    for order in (2, 5, 40):
        logs = order * law.logpmf(values) + (1 - order) * law.logpmf(values - 1)
        exact = float(np.logaddexp.reduce(logs)) / (order - 1)
        assert exact <= filters.divergence(kind, order) * (1 + 1e-12)
        assert filters.divergence(kind, order) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(("target", "delta", "steps"), [(1.0, 0.0, 1), (0.3, 0.0, 4), (2.0, 1e-5, 10)])
def test_calibrated_noise_costs_the_budget_and_no_more(target, delta, steps):
    noise = calibrate(epsilon=target, delta=delta, steps=steps, mechanism="discrete-laplace")
    price = epsilon([clipped_release(noise, law="discrete-laplace", count=steps)], delta)
    assert target * (1 - 1e-3) <= price <= target


def test_the_theorems_beside_the_claim_are_valid_bounds():
    releases = [counted(3.0, count=50)]
    found, price = compare(releases, 1e-5), epsilon(releases, 1e-5)
    assert all(value is not None and value >= price for value in found.values())


@pytest.mark.parametrize("fields", [{"sensitivity": 1.5}, {"rate": 0.5}])
def test_what_has_no_price_is_refused(fields):
    with pytest.raises(InvalidValue):
        Release(**{"law": "discrete-laplace", "scale": 2.0, "sensitivity": 1.0, **fields})


def test_a_release_survives_the_ledger_and_is_said_in_words():
    release = counted(2.0, subject="records@oslo", party="oslo", purpose="round 1")
    assert from_dict(release.as_dict()) == release
    assert release.under_replacement().multiplier == 1.0
    (words,) = released_in_words([release])
    assert "discrete Laplace noise of scale 2" in words
    assert "L1 sensitivity 1" in words
