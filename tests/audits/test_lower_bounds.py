"""Bounds from below: valid whatever the mechanism, close to the truth, and not beyond it without reason."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from tacit.audits import lower_bounds
from tacit.audits.lower_bounds import (
    Evidence,
    Family,
    bounds,
    min_false_negative_rate,
    power,
    ratios,
    shift,
    sides,
)
from tacit.errors import InvalidValue
from tacit.privacy import accounting
from tacit.privacy.accounting.release import Release

DELTA = 1e-5
LAWS = {"gaussian": stats.norm, "laplace": stats.laplace}


def steps(epsilon: float, *, count: int = 50, rate: float = 1.0) -> Release:
    noise = accounting.calibrate(epsilon, DELTA, count, rate=rate)
    return Release(scale=noise, sensitivity=1.0, bound=1.0, rate=rate, count=count)


def seen(release: Release, canaries: int, seed: int, noise: float = 1.0) -> Evidence:
    """Draw an adversary's evidence about canaries in steps, at a multiple of the claimed noise."""
    draws = np.random.default_rng(seed)
    present, scores = draws.random(canaries) < 0.5, np.zeros(canaries)
    there, gone = sides(release)
    for _ in range(release.count):
        drawn = draws.random(canaries) < release.rate
        value = np.where(present & drawn, there, gone if not release.two_sided else 0.0)
        value = np.where(~present & drawn & release.two_sided, gone, value)
        law = draws.normal if release.law == "gaussian" else draws.laplace
        scores += ratios(release, value + law(0.0, noise * release.scale, canaries))
    return Evidence(scores, present)


KINDS = {
    "steps": steps(4.0),
    "few steps, drawn": steps(4.0, count=4, rate=0.3),
    "laplace": Release(law="laplace", scale=0.5, sensitivity=1.0),
    "an exchange": Release(scale=2.0, sensitivity=2.0, bound=1.0, relation="replace"),
    "groups, drawn": Release(scale=1.0, sensitivity=2.0, bound=1.0, rate=0.5, sampled="group", count=4),
}


# If each of 100 audits wrongs a right mechanism with probability 5 %, more than 13 do so once in 1,700.
MOST = int(stats.binom.isf(1e-3, 100, 0.05))


@pytest.mark.parametrize(
    "kind", ["steps", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("laplace", "groups, drawn"))]
)
def test_what_is_claimed_truly_is_not_refuted_by_100_audits_beyond_their_doubt(kind):
    claimed, delta = KINDS[kind], 0.0 if KINDS[kind].law == "laplace" else DELTA
    refuted = [not bounds(seen(claimed, 1000, seed), [claimed], delta).kept for seed in range(100)]
    assert sum(refuted) <= MOST
    # Three bounds, two shares each, and steps of sizes: all of them err on the safe side.
    assert sum(refuted) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_less_noise_than_was_claimed_is_found_out(kind):
    claimed, delta = KINDS[kind], 0.0 if KINDS[kind].law == "laplace" else DELTA
    honest, halved = (bounds(seen(claimed, 5000, 3, noise), [claimed], delta) for noise in (1.0, 0.5))
    assert honest.kept
    assert honest.fitted > 0.6 * honest.claim
    assert not halved.kept
    assert halved.noise < 0.75


@pytest.mark.parametrize("epsilon", [4.0, 8.0])
def test_the_figures_are_those_that_were_measured(epsilon):
    """Bounds for 5,000 canaries and one seed, as in the literature and in our own measurements."""
    found = bounds(seen(steps(epsilon), 5000, 0), [steps(epsilon)], DELTA)
    assert found.fitted >= 0.7 * epsilon
    assert 0.4 * epsilon < found.one_run < found.fitted
    assert 0.3 * epsilon < found.steinke < found.one_run


def test_more_canaries_tell_more():
    claimed = steps(4.0)
    few, many = (bounds(seen(claimed, count, 1), [claimed], DELTA) for count in (500, 20_000))
    assert few.fitted < many.fitted < 4.0
    assert few.canaries == 500


def test_canaries_that_tell_nothing_prove_nothing():
    blank = Evidence(np.zeros(1000), np.arange(1000) % 2 == 0)
    found = bounds(blank, [steps(4.0)], DELTA)
    assert (found.fitted, found.one_run, found.steinke, found.noise) == (0, 0, 0, math.inf)
    assert found.kept
    assert found.as_dict()["noise"] is None


def test_canaries_that_tell_everything_refute_any_claim():
    present = np.random.default_rng(0).random(5000) < 0.5
    found = bounds(Evidence(np.where(present, 9.0, -9.0), present), [steps(1.0)], DELTA)
    assert not found.kept
    assert min(found.fitted, found.one_run, found.steinke) > 1.0


def test_a_bound_is_above_the_claim_or_below_it_and_never_the_claim_itself():
    assert 1.0 not in lower_bounds.LEVELS
    assert min(lower_bounds.LEVELS) < 1 / 15
    assert max(lower_bounds.LEVELS) > 15


@given(st.floats(0.3, 3.0), st.floats(-1.0, 1.0))
def test_of_noise_of_unknown_size_the_least_that_is_refuted_is_found(truth, offset):
    found = Family((steps(1.0),)).smallest_refuted_noise(lambda factor: factor >= truth)
    assert truth <= found < truth * 2 ** (1 / 32) * (1 + 1e-12)


def test_every_level_of_noise_can_be_the_least_that_is_refuted():
    """The first and the last, and none."""
    family, levels = Family((steps(1.0),)), lower_bounds.LEVELS
    for place in (0, 1, 2, len(levels) - 2, len(levels) - 1):
        found = family.smallest_refuted_noise(lambda factor, least=levels[place]: factor >= least)
        assert found == levels[place]
    assert family.smallest_refuted_noise(lambda factor: False) == math.inf


def test_steinke_is_the_tail_of_fair_guesses_without_delta():
    # 90 of 100 guesses right: the largest epsilon under which that, or better, has probability below 5 %.
    found = lower_bounds._steinke(90, 100, 1000, 0.0, 0.05)
    assert stats.binom.sf(89, 100, 1 / (1 + math.exp(-found))) == pytest.approx(0.05, rel=1e-4)
    assert lower_bounds._steinke(90, 100, 1000, 1e-3, 0.05) < found
    assert lower_bounds._steinke(50, 100, 1000, 0.0, 0.05) == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_a_score_is_the_logarithm_of_the_ratio_of_two_densities(kind):
    release = KINDS[kind]
    places = np.linspace(-3, 3, 7)
    there, gone = sides(release)
    law, rate = LAWS[release.law], release.rate
    rest = 0.0 if release.two_sided else gone

    def density(value):
        return rate * law.pdf(places, value, release.scale) + (1 - rate) * law.pdf(
            places, rest, release.scale
        )

    absent = density(gone)
    assert ratios(release, places) == pytest.approx(np.log(density(there) / absent), abs=1e-9)


@pytest.mark.parametrize(
    ("scores", "present", "word"),
    [
        (np.zeros(10), np.zeros(10, dtype=bool), "canaries = 10"),
        (np.zeros(1000), np.zeros(999, dtype=bool), "scores"),
        (np.full(1000, np.nan), np.zeros(1000, dtype=bool), "NaN"),
    ],
)
def test_evidence_that_is_none_is_refused(scores, present, word):
    with pytest.raises(InvalidValue, match=word):
        Evidence(scores, present)


@pytest.mark.parametrize("confidence", [0.0, 0.4, 1.0, 2.0])
def test_a_confidence_that_is_none_is_refused(confidence):
    with pytest.raises(InvalidValue, match="confidence"):
        bounds(seen(steps(1.0, count=1), 1000, 0), [steps(1.0)], DELTA, confidence=confidence)


def test_what_is_never_twice_as_loud_is_no_more_private():
    family = Family((steps(1.0),))
    assert family.epsilon(2.0, DELTA) < 1.0 < family.epsilon(0.5, DELTA)
    assert family.epsilon(math.inf, DELTA) == 0.0
    assert family.with_noise_factor(2.0) == (replace(steps(1.0), scale=2 * steps(1.0).scale),)


def test_the_area_below_a_density_that_scores_use_is_one():
    release = KINDS["groups, drawn"]

    def density(place):
        return math.exp(
            float(lower_bounds._density(release, np.array([place]), lower_bounds._worst(release)[0])[0])
        )

    area, _ = integrate.quad(density, -30, 30)
    assert area / math.sqrt(2 * math.pi) == pytest.approx(release.scale, rel=1e-6)


def test_the_doubt_is_shared_by_three_bounds():
    release, evidence = steps(4.0), seen(steps(4.0), 2000, 3, noise=0.6)
    found, each = bounds(evidence, [release], DELTA, confidence=0.94), 0.98
    family = Family((release,))
    assert found.noise == lower_bounds.fit(evidence, family, each)
    assert found.one_run == family.epsilon(lower_bounds.one_run(evidence, family, each), DELTA)
    assert found.steinke == pytest.approx(lower_bounds.steinke(evidence, DELTA, each))
    assert lower_bounds.steinke(evidence, DELTA, each) < lower_bounds.steinke(evidence, DELTA, 0.8)


def test_a_threshold_is_tried_on_other_canaries_than_chose_it():
    # Every other canary is told apart perfectly by a threshold of 7, and the rest not at all.
    draws = np.random.default_rng(2)
    present = draws.random(2000) < 0.5
    scores = 5.0 + draws.random(2000)
    scores[::2] += 5.0 * present[::2]
    assert math.isinf(lower_bounds.fit(Evidence(scores, present), Family((steps(1.0),)), 0.95))


def plainly_impossible(right, made, canaries, curve, doubt):
    """Algorithm 3 of Mahloujifar and others (2025), as it is written there."""
    h, r = [0.0] * (made + 1), [0.0] * (made + 1)
    h[right], r[right] = doubt * right / canaries, doubt * (made - right) / canaries
    for i in range(right - 1, -1, -1):
        r[i] = max(r[i + 1], curve(min(h[i + 1], 1.0)))
        h[i] = h[i + 1] + i / (made - i) * (r[i] - r[i + 1])
        if h[i] + r[i] > made / canaries:
            return True
    return False


@pytest.mark.parametrize("shift", [0.2, 0.5, 1.0])
def test_guesses_are_impossible_where_the_paper_says_so(shift):
    def curve(share):
        return float(stats.norm.cdf(stats.norm.ppf(share) - shift))

    told = set()
    for right in range(0, 101, 4):
        for doubt in (0.01, 0.2):
            wanted = right > 0 and plainly_impossible(right, 100, 400, curve, doubt)
            assert lower_bounds._impossible(right, 100, 400, curve, doubt) is wanted
            told.add(wanted)
    assert told == {True, False}


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


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_two_thresholds_and_two_shares_have_a_quarter_of_the_doubt_each(confidence):
    family, present = Family((Release(scale=0.2, sensitivity=1.0),)), np.tile([True, True, False, False], 25)
    found = lower_bounds.fit(Evidence(np.where(present, 1.0, -1.0), present), family, confidence)
    # No false alarm and no miss among 50 each: as many as this are seen with a quarter of the doubt.
    share = np.array([1 - ((1 - confidence) / 4) ** (1 / 50)])
    assert found == family.smallest_refuted_noise(
        lambda factor: bool(family.min_false_negative_rate(factor, share) > share)
    )
    assert 1 < found < math.inf


@pytest.mark.parametrize("kind", ["few steps, drawn", "laplace"])
def test_between_two_points_of_a_curve_the_rarer_event_is_taken(kind):
    family = Family((KINDS[kind],))
    curve = lower_bounds._rejections(family, 1.0)

    def exact(share: float) -> float:
        return float(family.min_false_negative_rate(1.0, np.array([1 - share]))[0])

    for share in (1e-12, 1e-6, 1.01e-3, 0.0123, 0.2, 0.7, 0.999, 1.0):
        assert curve(share) <= exact(share) + 1e-15
        # Points are two per cent apart, from 1e-8 on.
        assert share < 1e-8 or curve(share) >= exact(share / 1.02) - 1e-15


def test_the_clearest_answers_on_both_sides_are_guessed():
    scores = np.arange(100.0)
    evidence = Evidence(scores=scores, present=scores >= 97)
    assert [lower_bounds._count_guesses(evidence, share) for share in (0.02, 0.1, 0.5)] == [
        (2, 2), (5 + 3, 10), (25 + 3, 50),
    ]  # fmt: skip
