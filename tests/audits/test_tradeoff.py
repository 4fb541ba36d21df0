"""What any attack can achieve: never below the truth, and close to it where that is known."""

import numpy as np
import pytest
from scipy import stats

from tacit.audits.tradeoff import min_false_negative_rate, power, shift
from tacit.privacy import accounting
from tacit.privacy.accounting.release import Release

ALARMS = np.array([0.001, 0.01, 0.1, 0.3, 0.5, 0.9])


def test_gaussians_move_by_their_deviations():
    releases = [Release(scale=2.0, sensitivity=1.0, count=4), Release(scale=1.0, sensitivity=1.0)]
    assert shift(releases) == pytest.approx(np.sqrt(4 / 4 + 1))
    exact = stats.norm.cdf(stats.norm.isf(ALARMS) - shift(releases))
    assert min_false_negative_rate(releases, ALARMS) == pytest.approx(exact)


def test_a_drawn_gaussian_has_the_curve_of_its_likelihood_ratio():
    rate, noise = 0.3, 0.8
    releases = [Release(scale=noise, sensitivity=1.0, bound=1.0, rate=rate)]
    assert shift(releases) is None
    places = np.linspace(-6, 8, 200_001)
    absent = stats.norm.sf(places, 0, noise)
    present = rate * stats.norm.sf(places, 1, noise) + (1 - rate) * absent
    # Present against absent, and absent against present: the worse of the two is promised.
    one = np.interp(ALARMS, absent[::-1], 1 - present[::-1])
    other = np.interp(ALARMS, 1 - present, absent)
    exact = np.minimum(one, other)
    found = min_false_negative_rate(releases, ALARMS)
    assert (found <= exact + 1e-9).all()
    assert found == pytest.approx(exact, abs=0.02)


def test_laplace_has_the_curve_of_its_likelihood_ratio():
    releases = [Release(law="laplace", scale=1.0, sensitivity=1.0)]
    exact = stats.laplace.cdf(stats.laplace.isf(ALARMS) - 1)
    found = min_false_negative_rate(releases, ALARMS)
    assert (found <= exact + 1e-9).all()
    assert found == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_the_curve_agrees_with_epsilon_at_every_delta(rate):
    releases = [Release(scale=1.0, sensitivity=1.0, bound=1.0, rate=rate, count=10)]
    for delta in (1e-2, 1e-4):
        epsilon = accounting.epsilon(releases, delta)
        # What (epsilon, delta) allows is more than the whole curve does.
        allowed = np.minimum(1, np.exp(epsilon) * ALARMS + delta)
        assert (power(releases, ALARMS) <= allowed + 1e-6).all()


def test_the_subject_that_is_protected_least_counts():
    quiet = Release(scale=5.0, sensitivity=1.0, subject="records@a")
    loud = Release(scale=1.0, sensitivity=1.0, subject="records@b")
    assert (power([quiet, loud], ALARMS) == power([loud], ALARMS)).all()
    assert (power([quiet], ALARMS) < power([loud], ALARMS)).all()


def test_a_curve_falls_and_lies_below_guessing():
    for releases in (
        [Release(scale=0.6, sensitivity=1.0, rate=0.2, count=30, bound=1.0)],
        [Release(law="selection", scale=0.5, sensitivity=1.0), Release(scale=1.0, sensitivity=1.0)],
    ):
        alarms = np.linspace(0.001, 0.999, 101)
        found = min_false_negative_rate(releases, alarms)
        assert (np.diff(found) <= 1e-12).all()
        assert (found <= 1 - alarms + 1e-9).all()
        assert (found >= 0).all()
