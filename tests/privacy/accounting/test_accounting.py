"""The claim itself: what releases cost together, how much noise a target needs, and how failures are priced.

An epsilon that is too small is the worst bug there is, so most of this file asks for bounds from below.
"""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import scipy.fft
from dp_accounting.pld.pld_pmf import SparsePLDPmf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from tacit.errors import InvalidValue
from tacit.privacy import accounting
from tacit.privacy.accounting import (
    affordable,
    calibrate,
    clipped_release,
    compare,
    epsilon,
    gaussian,
    group_events,
    pld,
    theorems,
)
from tacit.privacy.accounting.release import Release, max_loss

DELTA = 1e-5
ALMOST_ONE = math.nextafter(1, 0)
# Two grids may differ by this much; only what goes through privacy loss distributions has a grid.
GRID = 2e-3

GAUSSIAN = Release(scale=2.0, sensitivity=1.0)
LAPLACE = Release(law="laplace", scale=5.0, sensitivity=1.0)
SELECTION = Release(law="selection", scale=8.0, sensitivity=1.0)
SAMPLED = Release(scale=1.0, sensitivity=1.0, rate=0.01, count=100)
EXCHANGED = Release(scale=1.0, sensitivity=2.0, bound=1.0, relation="replace", rate=0.01, count=100)
GROUPED = Release(scale=1.0, sensitivity=2.0, bound=1.0, sampled="group", rate=0.01, count=100)
DRAWN_LAPLACE = Release(law="laplace", scale=1.0, sensitivity=1.0, rate=0.1, count=20)
EVERYTHING = [GAUSSIAN, LAPLACE, SELECTION, SAMPLED, GROUPED, DRAWN_LAPLACE]


def gauss(multiplier: float, **fields) -> Release:
    return Release(scale=multiplier, sensitivity=1.0, **fields)


@pytest.fixture
def fresh_cache():
    """No answer from before, and none left behind."""
    answers = (accounting.epsilon_of, accounting._coarse_bound)
    for known in answers:
        known.cache_clear()
    yield
    for known in answers:
        known.cache_clear()


@st.composite
def kinds(draw) -> dict:
    return {
        "law": draw(st.sampled_from(["gaussian", "laplace"])),
        "scale": draw(st.floats(0.5, 20)),
        "sensitivity": 1.0,
        "bound": 0.5,
        "rate": draw(st.sampled_from([1.0, 0.3, 0.01])),
        "relation": draw(st.sampled_from(["add-remove", "replace"])),
        "count": draw(st.integers(1, 300)),
    }


def slack(kind: dict) -> float:
    return 1e-9 if kind["law"] == "gaussian" and kind["rate"] == 1 else GRID


# What it costs


def test_nothing_costs_nothing():
    assert epsilon([], DELTA) == 0
    assert epsilon([], 0) == 0


@pytest.mark.parametrize("delta", [math.nan, -1e-9, 1.0, 1.5, math.inf, True, "1e-5", None], ids=repr)
def test_a_delta_that_is_no_probability_below_one_is_refused(delta):
    with pytest.raises(InvalidValue, match="delta"):
        epsilon([GAUSSIAN], delta)
    with pytest.raises(InvalidValue, match="delta"):
        compare([GAUSSIAN], delta)


@pytest.mark.parametrize("delta", [math.nan, -1e-9, 1.0, 1.5], ids=repr)
@pytest.mark.parametrize("release", [GAUSSIAN, SAMPLED, LAPLACE], ids=["gaussian", "sampled", "laplace"])
def test_nothing_is_affordable_at_a_delta_that_is_none(release, delta):
    with pytest.raises(InvalidValue, match="delta"):
        affordable([release], 5.0, delta)


def test_the_order_of_releases_does_not_matter():
    assert epsilon(EVERYTHING, DELTA) == epsilon(EVERYTHING[::-1], DELTA)


def test_releases_may_come_from_an_iterator():
    assert epsilon(iter([GAUSSIAN, GAUSSIAN]), DELTA) == epsilon([GAUSSIAN, GAUSSIAN], DELTA)
    assert affordable(iter([GAUSSIAN]), 100.0, DELTA)


@pytest.mark.parametrize("release", [GAUSSIAN, LAPLACE, SAMPLED, EXCHANGED, GROUPED])
def test_a_count_may_be_split_over_several_releases(release):
    whole = Release(**{**release.as_dict(), "count": 90})
    parts = [Release(**{**release.as_dict(), "count": count, "purpose": str(count)}) for count in (1, 29, 60)]
    assert epsilon(parts, DELTA) == epsilon([whole], DELTA)
    assert group_events(parts) == group_events([whole])


def test_only_the_ratio_of_noise_to_sensitivity_counts():
    assert epsilon([Release(scale=6.0, sensitivity=3.0)], DELTA) == epsilon([GAUSSIAN], DELTA)
    assert group_events([Release(scale=6.0, sensitivity=3.0), GAUSSIAN]) == group_events([GAUSSIAN, GAUSSIAN])


def test_what_a_price_depends_on_is_not_merged():
    different = [
        GAUSSIAN,
        gauss(2.0, rate=0.5),
        gauss(2.0, rate=0.5, relation="replace", bound=0.5),
        gauss(math.nextafter(2.0, 3)),
        Release(law="laplace", scale=2.0, sensitivity=1.0),
        Release(law="selection", scale=2.0, sensitivity=1.0),
    ]
    assert len(group_events(different)) == len(different)


def test_unsampled_gaussians_are_one_gaussian():
    rows = [gauss(2.0, count=3), gauss(5.0), gauss(1.0, relation="add-remove")]
    together = (3 / 4 + 1 / 25 + 1) ** -0.5
    assert epsilon(rows, DELTA) == pytest.approx(gaussian.epsilon_of(together, DELTA), rel=1e-9)


def test_unsampled_gaussians_are_one_gaussian_beside_other_laws():
    """To the bit, on a grid: a hundred small distributions would gather the rounding of a hundred."""
    laplace = group_events([LAPLACE])
    many = group_events([gauss(5.0, count=100)]) + laplace
    one = group_events([gauss(0.5)]) + laplace
    assert pld.epsilon(many, DELTA, 1e-3) == pld.epsilon(one, DELTA, 1e-3)
    exact = gaussian.epsilon_of(0.5, DELTA)
    assert exact <= pld.epsilon(group_events([gauss(5.0, count=100)]), DELTA, 1e-3) <= exact * (1 + GRID)


@pytest.mark.parametrize("multiplier", [0.1, 1.0, 20.0])
def test_grids_are_made_for_losses_up_to_nine_deviations(multiplier):
    """A loss has mean 1 / (2 z^2) and deviation 1 / z under Gaussian noise; pure noise has a largest loss."""
    ((kind, _),) = group_events([gauss(multiplier)])
    assert max_loss(kind) == pytest.approx(0.5 / multiplier**2 + 9 / multiplier)
    ((kind, _),) = group_events([Release(law="laplace", scale=multiplier, sensitivity=1.0)])
    assert max_loss(kind) == pytest.approx(1 / multiplier)


def test_renyi_privacy_adds_up_over_what_is_drawn_and_what_is_not():
    drawn, both = (compare(rows, DELTA)["rdp"] for rows in ([SAMPLED], [SAMPLED, LAPLACE]))
    assert drawn is not None
    assert both is not None
    assert drawn < both < drawn + compare([LAPLACE], DELTA)["basic"]


def test_a_draw_is_never_dearer_than_none():
    assert epsilon([SAMPLED], DELTA) < epsilon([gauss(1.0, count=100)], DELTA)
    assert epsilon([gauss(1.0, rate=ALMOST_ONE)], DELTA) <= epsilon([gauss(1.0)], DELTA)


@given(kinds(), st.floats(1.0, 4.0))
@settings(max_examples=12, deadline=None)
def test_more_noise_never_costs_more(kind, factor):
    price = epsilon([Release(**kind)], DELTA)
    assert epsilon([Release(**{**kind, "scale": kind["scale"] * factor})], DELTA) <= price * (1 + slack(kind))


@given(kinds(), st.integers(1, 300))
@settings(max_examples=12, deadline=None)
def test_more_steps_never_cost_less(kind, more):
    price = epsilon([Release(**kind)], DELTA)
    assert epsilon([Release(**{**kind, "count": kind["count"] + more})], DELTA) >= price * (1 - slack(kind))


@given(kinds(), kinds())
@settings(max_examples=8, deadline=None)
def test_another_release_never_makes_it_cheaper_and_costs_at_most_its_own_price(one, other):
    other["relation"] = one["relation"]
    first, second = Release(**one), Release(**other)
    both = epsilon([first, second], DELTA)
    assert both >= max(epsilon([first], DELTA), epsilon([second], DELTA)) * (1 - GRID)
    assert both <= (epsilon([first], DELTA / 2) + epsilon([second], DELTA / 2)) * (1 + GRID)


@pytest.mark.parametrize("release", [GAUSSIAN, SAMPLED, LAPLACE, DRAWN_LAPLACE])
def test_a_smaller_delta_never_costs_less(release):
    prices = [epsilon([release], delta) for delta in (1e-9, 1e-7, 1e-5, 1e-3)]
    assert all(tighter >= looser * (1 - GRID) for tighter, looser in pairwise(prices))


# Subjects


def test_over_disjoint_subjects_the_largest_counts():
    oslo, bergen = gauss(1.0, subject="records@oslo"), gauss(2.0, subject="records@bergen")
    assert epsilon([oslo, bergen], DELTA) == epsilon([oslo], DELTA)


def test_within_a_subject_costs_compose():
    half = gauss(math.sqrt(2), subject="records@oslo")
    assert epsilon([half, half], DELTA) == pytest.approx(gaussian.epsilon_of(1.0, DELTA), rel=1e-9)


def test_pure_costs_add_up_within_a_subject_and_not_beyond():
    oslo = Release(law="laplace", scale=2.0, sensitivity=1.0, subject="records@oslo")
    bergen = Release(law="selection", scale=2.5, sensitivity=1.0, subject="records@bergen")
    assert epsilon([oslo, oslo, bergen], 0) == pytest.approx(1.0)


def test_what_concerns_everybody_adds_to_each():
    everywhere, oslo = gauss(math.sqrt(2)), gauss(math.sqrt(2), subject="records@oslo")
    bergen = gauss(10.0, subject="records@bergen")
    assert epsilon([everywhere, oslo, bergen], DELTA) == pytest.approx(
        gaussian.epsilon_of(1.0, DELTA), rel=1e-9
    )


def test_a_record_pays_for_what_is_let_out_about_its_site_as_an_exchange():
    site, record = gauss(4.0, unit="site", subject="sites"), gauss(4.0, subject="records@oslo")
    expected = gaussian.epsilon_of(2 / math.sqrt(2), DELTA)
    assert epsilon([site, record], DELTA) == pytest.approx(expected, rel=1e-9)


def test_mixed_relations_are_priced_as_exchanges():
    added, exchanged = gauss(4.0), Release(scale=4.0, sensitivity=2.0, relation="replace")
    assert epsilon([added, exchanged], DELTA) == pytest.approx(
        gaussian.epsilon_of(math.sqrt(2), DELTA), rel=1e-9
    )


def test_an_exchange_is_never_cheaper_than_an_addition_by_the_same_clip():
    for rate in (1.0, 0.1, 0.01):
        added = clipped_release(1.0, rate=rate, count=50)
        exchanged = clipped_release(1.0, rate=rate, count=50, relation="replace")
        assert epsilon([exchanged], DELTA) > epsilon([added], DELTA)
        assert epsilon([exchanged], DELTA) == epsilon([added.under_replacement()], DELTA)


# Delta zero


def test_gaussian_noise_promises_nothing_at_delta_zero():
    assert epsilon([GAUSSIAN], 0) == math.inf
    assert epsilon([SAMPLED], 0) == math.inf
    assert epsilon([GAUSSIAN, LAPLACE], 0) == math.inf


def test_pure_releases_add_up_at_delta_zero():
    assert epsilon([LAPLACE], 0) == pytest.approx(0.2)
    assert epsilon([LAPLACE, SELECTION, SELECTION], 0) == pytest.approx(0.45)
    assert epsilon([DRAWN_LAPLACE], 0) == pytest.approx(20 * math.log1p(0.1 * math.expm1(1.0)))


@pytest.mark.parametrize("release", [LAPLACE, SELECTION, DRAWN_LAPLACE])
def test_a_positive_delta_never_makes_a_pure_release_dearer(release):
    assert epsilon([release], DELTA) <= epsilon([release], 0)
    assert epsilon([release], 1e-300) == epsilon([release], 0)


# The safe side


@pytest.mark.parametrize(
    ("times", "mu", "delta"),
    [
        (10_000, 3, 1e-12),
        (100_000, 1, 1e-10),
        (1_000_000, 3, 1e-11),
        (10_000_000, 0.3, 1e-10),
        (10_000_000, 1, 1e-7),
    ],
)
def test_rounding_in_long_compositions_never_lowers_the_claim(times, mu, delta):
    # A draw that all but never leaves anybody out goes through the numerics, and its truth is known: it
    # differs from the closed form by less than times * 1e-16.
    release = gauss(math.sqrt(times) / mu, rate=ALMOST_ONE, count=times)
    assert epsilon([release], delta) >= gaussian.epsilon_of(1 / mu, delta) * (1 - 1e-8)


@pytest.mark.parametrize("rate", [0.5, 0.01, 1e-4])
@pytest.mark.parametrize("multiplier", [0.4, 1.0, 5.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-10])
def test_one_drawn_gaussian_keeps_its_delta(multiplier, rate, delta):
    claim = epsilon([gauss(multiplier, rate=rate)], delta)
    # Where the mixture is e^claim times likelier, the drawn part alone is e^before times likelier.
    before = math.log1p(math.expm1(claim) / rate)
    assert rate * gaussian.delta_of(multiplier, before) <= delta * (1 + 1e-9)


@pytest.mark.parametrize(("times", "delta"), [(100, 1e-12), (100, 1e-5), (1000, 1e-9)])
def test_a_selection_by_permute_and_flip_is_never_underpriced(times, delta):
    # Two candidates: the worse one wins with probability 1/2 where they tie, e^-epsilon / 2 where they differ
    # by as much as a neighbor allows. Unlike the exponential mechanism it has no bounded range.
    each = 0.1
    tied, apart = 0.5, math.exp(-each) / 2
    rows = [Release(law="selection", scale=1 / each, sensitivity=1.0, count=times)]
    wins = np.arange(times + 1)
    for claim in (
        epsilon(rows, delta),
        *(bound for bound in compare(rows, delta).values() if bound is not None),
    ):
        for here, there in ((tied, apart), (apart, tied)):
            mine, theirs = binom.logpmf(wins, times, here), binom.logpmf(wins, times, there) + claim
            excess = np.exp(mine) * -np.expm1(np.minimum(theirs - mine, 0))
            assert excess.sum() <= delta * (1 + 1e-6)


class Broken:
    """A distribution that composes and then answers nonsense."""

    def __init__(self, answer):
        self.answer = answer

    def self_compose(self, *_, **__):
        return self

    def compose(self, *_, **__):
        return self

    def get_epsilon_for_delta(self, _):
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


NONSENSE = [
    math.nan,
    0,
    0.0,
    -1,
    -math.inf,
    math.inf,
    None,
    "nothing",
    MemoryError(),
    ZeroDivisionError(),
    ValueError(),
]
NEED_NUMERICS = [[SAMPLED], [EXCHANGED], [GROUPED], [LAPLACE], [DRAWN_LAPLACE], EVERYTHING]


@pytest.fixture(scope="module")
def honest():
    """Prices of the releases that need numerics, while the library works."""
    return [(rows, epsilon(rows, DELTA)) for rows in NEED_NUMERICS]


@pytest.mark.usefixtures("fresh_cache")
@pytest.mark.parametrize("answer", NONSENSE, ids=repr)
def test_nonsense_from_the_library_never_lowers_the_claim(monkeypatch, honest, answer):
    monkeypatch.setattr(pld, "single", lambda *_: Broken(answer))
    for rows, true in honest:
        assert epsilon(rows, DELTA) >= true
        assert not affordable(rows, true * (1 - 1e-6), DELTA)


@pytest.mark.usefixtures("fresh_cache")
@pytest.mark.parametrize("error", [MemoryError, OverflowError, ValueError, RuntimeError, AssertionError])
def test_a_library_that_fails_never_lowers_the_claim(monkeypatch, honest, error):
    def fail(*_):
        raise error("out of order")

    monkeypatch.setattr(pld, "single", fail)
    for rows, true in honest:
        assert epsilon(rows, DELTA) >= true


@pytest.mark.usefixtures("fresh_cache")
@pytest.mark.parametrize("answer", NONSENSE, ids=repr)
def test_where_every_bound_fails_the_claim_is_infinite(monkeypatch, answer):
    def fail(*_):
        raise ArithmeticError("out of order")

    monkeypatch.setattr(pld, "single", lambda *_: Broken(answer))
    monkeypatch.setattr(gaussian, "epsilon_of", fail)
    assert epsilon([SAMPLED], DELTA) == math.inf
    assert epsilon([GAUSSIAN], DELTA) == math.inf
    assert not affordable([SAMPLED], 1e9, DELTA)
    assert not affordable([GAUSSIAN], 1e9, DELTA)


@pytest.mark.usefixtures("fresh_cache")
@pytest.mark.parametrize("answer", [math.nan, 0.0, -1.0])
def test_nonsense_from_the_closed_form_never_lowers_the_claim(monkeypatch, answer):
    monkeypatch.setattr(gaussian, "epsilon_of", lambda *_: answer)
    assert epsilon([GAUSSIAN], DELTA) == math.inf


# Extremes

LARGEST_TRANSFORM = 2**24
LARGEST_INTEGER = 2**25  # bits
FINEST_GRID = 2_000_000


@pytest.fixture
def absurdities(monkeypatch):
    """Releases that would fill the memory or take minutes; they fail at once instead."""
    found: list[str] = []
    transform, compose = scipy.fft.next_fast_len, SparsePLDPmf.self_compose

    def refuse(what: str) -> None:
        found.append(what)
        raise MemoryError(what)

    def measured(target, *args, **options):
        if target > LARGEST_TRANSFORM:
            refuse(f"a Fourier transform of {target} points")
        return transform(target, *args, **options)

    def powered(self, num_times, *args, **options):
        # The library asks whether size ** num_times is small, and computes it in full.
        if num_times * math.log2(max(self.size, 1)) > LARGEST_INTEGER:
            refuse(f"the number {self.size} ** {num_times}")
        return compose(self, num_times, *args, **options)

    monkeypatch.setattr(scipy.fft, "next_fast_len", measured)
    monkeypatch.setattr(SparsePLDPmf, "self_compose", powered)
    return found


@pytest.mark.usefixtures("fresh_cache")
@pytest.mark.parametrize("count", [1, 10**7])
@pytest.mark.parametrize(
    ("law", "multiplier", "rate", "relation"),
    [
        ("gaussian", 1e-3, 1e-9, "add-remove"),
        ("gaussian", 1e-3, 0.01, "add-remove"),
        ("gaussian", 1e-3, 0.01, "replace"),
        ("gaussian", 1.0, 1e-9, "replace"),
        ("gaussian", 1.0, 0.01, "add-remove"),
        ("gaussian", 1e6, 0.01, "replace"),
        ("gaussian", 1e6, 1.0, "add-remove"),
        ("laplace", 1e-3, 0.01, "add-remove"),
        ("laplace", 1.0, 0.01, "add-remove"),
        ("laplace", 1e6, 0.01, "replace"),
        ("selection", 1e-3, 1e-9, "add-remove"),
        ("selection", 1.0, 1.0, "add-remove"),
        ("selection", 1e6, 0.01, "add-remove"),
    ],
)
def test_extreme_releases_have_a_price(law, multiplier, rate, relation, count, absurdities):
    fields = {"law": law, "rate": rate, "relation": relation, "count": count}
    price = epsilon([Release(scale=multiplier, sensitivity=1.0, bound=0.5, **fields)], DELTA)
    assert price > 0
    assert absurdities == []


@pytest.mark.usefixtures("fresh_cache")
@pytest.mark.parametrize("law", ["gaussian", "laplace", "selection"])
@pytest.mark.parametrize("multiplier", [1e-160, 1e-30, 1e-9, 1e9, 1e30, 1e160])
def test_absurd_noise_gives_a_price_and_no_error(monkeypatch, law, multiplier):
    finest, honest = [0.0], pld.single

    def measured(kind, grid):
        loss = 0.5 * kind.multiplier**-2 + 10 / kind.multiplier if kind.law == "gaussian" else kind.pure
        finest.append(loss / grid)
        if loss / grid > FINEST_GRID:
            raise MemoryError(f"{loss / grid} points")
        return honest(kind, grid)

    monkeypatch.setattr(pld, "single", measured)
    for rate in (1.0, 0.1):
        assert epsilon([Release(law=law, scale=multiplier, sensitivity=1.0, rate=rate)], DELTA) > 0
    assert max(finest) <= FINEST_GRID


@pytest.mark.parametrize("delta", [5e-324, 1e-300, 1e-18, 1e-15, 1e-13, 0.5, 1 - 1e-9])
def test_extreme_deltas_have_a_price(delta):
    for rows in ([GAUSSIAN], [SAMPLED], [GROUPED], [LAPLACE], EVERYTHING):
        assert epsilon(rows, delta) > 0


def test_extreme_rates_have_a_price():
    for law in ("gaussian", "laplace", "selection"):
        for rate in (5e-324, 1e-17, ALMOST_ONE):
            assert epsilon([Release(law=law, scale=0.5, sensitivity=1.0, rate=rate)], DELTA) > 0


# How much noise a target needs


TARGETS = [
    (1.0, 1e-5, 1, 1.0, "add-remove", "gaussian"),
    (1.0, 1e-5, 100, 1.0, "replace", "gaussian"),
    (0.01, 1e-8, 7, 1.0, "add-remove", "gaussian"),
    (300.0, 1e-5, 3, 1.0, "add-remove", "gaussian"),
    (3.0, 1e-4, 400, 0.1, "add-remove", "gaussian"),
    (1.0, 1e-5, 10_000, 0.01, "add-remove", "gaussian"),
    (0.1, 1e-6, 1000, 0.01, "add-remove", "gaussian"),
    (8.0, 1e-5, 50, 0.5, "replace", "gaussian"),
    (1.0, 1e-5, 1000, 0.01, "replace", "gaussian"),
    (1.0, 0.0, 10, 1.0, "add-remove", "laplace"),
    (1.0, 0.0, 10, 0.1, "add-remove", "laplace"),
    (2.0, 0.0, 5, 0.3, "replace", "laplace"),
    (40.0, 0.0, 1, 0.01, "add-remove", "laplace"),
    (1.0, 1e-5, 50, 1.0, "add-remove", "laplace"),
    (1.0, 1e-5, 100, 0.1, "add-remove", "laplace"),
    (1.0, 1e-5, 100, 0.1, "replace", "laplace"),
]


@pytest.mark.parametrize(("target", "delta", "steps", "rate", "relation", "mechanism"), TARGETS)
def test_calibrated_noise_priced_again_is_just_within_the_target(
    target, delta, steps, rate, relation, mechanism
):
    multiplier = calibrate(
        epsilon=target, delta=delta, steps=steps, rate=rate, relation=relation, mechanism=mechanism
    )
    release = clipped_release(multiplier, count=steps, rate=rate, relation=relation, law=mechanism)
    assert 0.995 * target <= epsilon([release], delta) <= target


@pytest.mark.parametrize(
    ("target", "delta", "steps", "rate", "relation", "mechanism", "clip"),
    [
        (1.0, 1e-5, 10, 1.0, "replace", "gaussian", 0.3),
        (3.0, 1e-5, 100, 0.1, "add-remove", "gaussian", 5.0),
        (40.0, 0.0, 1, 0.01, "add-remove", "laplace", 3.0),
        (1.0, 0.0, 2, 0.1, "replace", "laplace", 5.0),
        (3.0, 0.0, 50, 0.3, "add-remove", "laplace", 0.1),
    ],
)
def test_calibrated_noise_fits_its_budget_whatever_the_clip(
    target, delta, steps, rate, relation, mechanism, clip
):
    multiplier = calibrate(
        epsilon=target, delta=delta, steps=steps, rate=rate, relation=relation, mechanism=mechanism
    )
    fields = {"count": steps, "rate": rate, "relation": relation, "law": mechanism}
    assert affordable([clipped_release(multiplier, clip=clip, **fields)], target, delta)


@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_a_search_that_ends_with_too_little_noise_is_mended_before_it_is_used(monkeypatch, rate):
    searched, closed = accounting.smallest_noise, accounting.gaussian.multiplier_of
    monkeypatch.setattr(accounting, "smallest_noise", lambda *given: 0.9999 * searched(*given))
    monkeypatch.setattr(accounting.gaussian, "multiplier_of", lambda *given: 0.9999 * closed(*given))
    multiplier = calibrate(epsilon=2.0, delta=1e-5, steps=20, rate=rate)
    assert 1.99 < epsilon([clipped_release(multiplier, count=20, rate=rate)], 1e-5) <= 2.0


def test_the_noise_of_a_single_gaussian():
    assert calibrate(epsilon=1, delta=1e-5) == pytest.approx(3.7306, abs=1e-3)


def test_an_exchange_needs_twice_the_noise_without_a_draw():
    once = calibrate(epsilon=1, delta=1e-5, steps=10)
    assert calibrate(epsilon=1, delta=1e-5, steps=10, relation="replace") == pytest.approx(2 * once, rel=1e-9)


def test_noise_grows_with_the_root_of_the_steps_without_a_draw():
    once = calibrate(epsilon=1, delta=1e-5)
    assert calibrate(epsilon=1, delta=1e-5, steps=100) == pytest.approx(10 * once, rel=1e-9)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"epsilon": None}, "epsilon"),
        ({"delta": 0}, "delta"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1}, "delta"),
        ({"delta": 1.5}, "delta"),
        ({"delta": -1e-5}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"delta": math.nan, "mechanism": "laplace"}, "delta"),
        ({"rate": 1.5}, "rate"),
        ({"rate": 0}, "rate"),
        ({"rate": math.nan}, "rate"),
        ({"steps": 0}, "steps|count"),
        ({"steps": 1.5}, "steps|count"),
        ({"steps": True}, "steps|count"),
        ({"steps": math.nan}, "steps|count"),
        ({"relation": "replaced"}, "relation"),
        ({"mechanism": "gausian"}, "mechanism"),
        ({"mechanism": "selection"}, "mechanism"),
    ],
    ids=repr,
)
def test_a_target_that_makes_no_sense_is_refused(wrong, named):
    with pytest.raises(InvalidValue, match=f"^({named}) = "):
        calibrate(**{"epsilon": 1.0, "delta": 1e-5, **wrong})


@pytest.mark.parametrize(
    "target",
    [
        {"epsilon": 1e-10, "delta": 1e-5},
        {"epsilon": 1e-10, "delta": 1e-5, "rate": 0.01},
        {"epsilon": 1.0, "delta": 1e-5, "rate": 1e-6},
        {"epsilon": 1.0, "delta": 0.5, "rate": 0.01, "steps": 10},
        {"epsilon": 1.0, "delta": 1e-16, "rate": 0.1},
        {"epsilon": 1.0, "delta": 1e-5, "rate": 1e-6, "mechanism": "laplace"},
    ],
    ids=repr,
)
def test_an_unusual_target_is_met_or_refused_by_name_and_never_searched_for_ever(monkeypatch, target):
    asked, honest = [], accounting.cost

    def counted_cost(rows, delta):
        asked.append(delta)
        if len(asked) > 300:
            pytest.fail(f"still searching after {len(asked)} prices")
        return honest(rows, delta)

    monkeypatch.setattr(accounting, "cost", counted_cost)
    law = target.get("mechanism", "gaussian")
    try:
        multiplier = calibrate(**target)
    except InvalidValue as refusal:
        assert str(refusal).startswith(tuple(target))  # noqa: PT017
    else:
        shape = {"count": target.get("steps", 1), "rate": target.get("rate", 1.0), "law": law}
        assert 0 < epsilon([clipped_release(multiplier, **shape)], target["delta"]) <= target["epsilon"]


def test_clip_and_sensitivity_are_tied():
    assert clipped_release(1.5, clip=2.0).sensitivity == 2.0
    assert clipped_release(1.5, clip=2.0, relation="replace").sensitivity == 4.0
    assert (
        clipped_release(1.5, clip=2.0).scale
        == clipped_release(1.5, clip=2.0, relation="replace").scale
        == 3.0
    )
    with pytest.raises(InvalidValue, match="clip"):
        clipped_release(1.0, clip=0.0)
    with pytest.raises(InvalidValue, match="noise multiplier"):
        clipped_release(math.nan)


# Whether it can be afforded


@pytest.mark.parametrize("rows", [[GAUSSIAN], [LAPLACE], [SAMPLED], [GROUPED], [DRAWN_LAPLACE], EVERYTHING])
def test_a_budget_bears_what_it_costs_and_no_more(rows):
    price = epsilon(rows, DELTA)
    assert affordable(rows, price, DELTA)
    assert affordable(rows, price * 1.5, DELTA)
    assert not affordable(rows, price * (1 - 1e-6), DELTA)
    assert not affordable(rows, price / 2, DELTA)


def test_a_budget_must_bear_every_subject():
    cheap, dear = gauss(10.0, subject="records@oslo"), gauss(1.0, subject="records@bergen")
    assert affordable([cheap], 1.0, DELTA)
    assert not affordable([cheap, dear], 1.0, DELTA)
    assert affordable([cheap, dear], 5.0, DELTA)


def test_nothing_is_always_affordable_and_gaussians_never_at_delta_zero():
    assert affordable([], 1e-9, DELTA)
    assert not affordable([GAUSSIAN], 1e9, 0)
    assert affordable([LAPLACE, SELECTION], 0.325, 0)
    assert not affordable([LAPLACE, SELECTION], 0.3249, 0)


def test_a_budget_that_is_no_number_bears_nothing():
    assert not affordable([GAUSSIAN], math.nan, DELTA)
    assert not affordable([SAMPLED], math.nan, DELTA)


# Beside what others would say


COMPARED = {
    "one gaussian": [GAUSSIAN],
    "many gaussians": [gauss(30.0, count=500)],
    "laplace": [Release(law="laplace", scale=10.0, sensitivity=1.0, count=200)],
    "selections": [Release(law="selection", scale=10.0, sensitivity=1.0, count=100)],
    "very many selections": [Release(law="selection", scale=100.0, sensitivity=1.0, count=100_000)],
    "sampled": [SAMPLED],
    "rarely sampled": [gauss(0.8, rate=1e-4, count=1000)],
    "mixed": [GAUSSIAN, LAPLACE, gauss(1.2, rate=0.05, count=50)],
    "sampled laplace": [DRAWN_LAPLACE],
    "exchanged": [EXCHANGED],
    "everything": EVERYTHING,
    "sites and records": [gauss(9.0, unit="site", subject="sites"), gauss(9.0, subject="records@oslo")],
}


@pytest.mark.parametrize("rows", COMPARED.values(), ids=COMPARED)
def test_no_theorem_is_below_the_claim(rows):
    claim = epsilon(rows, DELTA)
    bounds = compare(rows, DELTA)
    assert set(bounds) == {"rdp", "zcdp", "advanced", "basic"}
    assert {
        name: bound for name, bound in bounds.items() if bound is not None and bound < claim * (1 - 1e-9)
    } == {}


def test_theorems_are_silent_where_they_know_nothing():
    assert compare([SAMPLED], DELTA)["zcdp"] is None
    assert compare([EXCHANGED], DELTA)["rdp"] is None
    assert compare([DRAWN_LAPLACE], DELTA)["rdp"] is None
    assert set(compare([GAUSSIAN], 0).values()) == {None}
    assert set(compare([], DELTA).values()) == {None}


def test_theorems_speak_of_the_costliest_subject():
    cheap, dear = gauss(10.0, subject="records@oslo"), gauss(1.0, subject="records@bergen")
    assert compare([cheap, dear], DELTA) == compare([dear], DELTA)
    assert compare([cheap, SAMPLED], DELTA)["zcdp"] is None


def test_the_renyi_and_zcdp_numbers_of_one_gaussian():
    bounds = compare([gauss(1.0)], DELTA)
    assert bounds["rdp"] == pytest.approx(4.729, abs=1e-3)
    assert bounds["zcdp"] == pytest.approx(5.2985, abs=1e-4)
    assert bounds["basic"] == pytest.approx(4.37718, abs=1e-5)


def test_the_pure_price_of_a_kind_is_the_theorem_of_amplification():
    ((kind, times),) = group_events([DRAWN_LAPLACE])
    assert times == 20
    assert kind.pure == theorems.amplify(1.0, 0.1)
    assert group_events([SAMPLED])[0][0].pure == math.inf


def test_the_deltas_of_unsampled_gaussians_are_those_of_one_gaussian():
    # Four of deviation 6 and one of 3 are together one of deviation sqrt(1 / (4 / 36 + 1 / 9)).
    rows = [Release(scale=6.0, sensitivity=1.0, count=4), Release(scale=3.0, sensitivity=1.0)]
    together, at = (4 / 36 + 1 / 9) ** -0.5, np.array([0.1, 0.5, 2.0])
    found = accounting.deltas(rows, at)
    wanted = norm.cdf(0.5 / together - at * together) - np.exp(at) * norm.cdf(-0.5 / together - at * together)
    assert found == pytest.approx(wanted, rel=1e-9)
    assert [epsilon(rows, delta) for delta in found] == pytest.approx(at.tolist(), rel=1e-6)


@pytest.mark.parametrize("sites", [1, 50])
def test_theorems_are_asked_once_for_all_sites_that_release_alike(monkeypatch, sites):
    asked, real = [], pld.rdp
    monkeypatch.setattr(pld, "rdp", lambda *given: (asked.append(1), real(*given))[1])
    rows = [
        clipped_release(2.0, rate=0.1, count=20, subject=f"records@{n}", party=str(n)) for n in range(sites)
    ]
    found = accounting.compare(rows, 1e-5)
    assert len(asked) == 1
    assert found == accounting.compare(rows[:1], 1e-5)


def test_the_costliest_of_sites_that_release_otherwise_is_compared():
    rows = [
        clipped_release(noise, rate=0.1, count=20, subject=f"records@{noise}") for noise in (2.0, 1.0, 3.0)
    ]
    assert accounting.compare(rows, 1e-5) == accounting.compare(rows[1:2], 1e-5)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("rate", [5e-324, 1e-300, 1e-160, 1e-100])
def test_draws_that_are_too_rare_for_a_double_have_a_price_and_a_noise(rate, mechanism):
    noise = accounting.calibrate(3.0, 1e-5, 100, rate=rate, mechanism=mechanism)
    rows = [clipped_release(noise, rate=rate, count=100, law=mechanism)]
    assert 0 < accounting.epsilon(rows, 1e-5) <= 3.0
    assert accounting.affordable(rows, 3.0, 1e-5)
    assert accounting.deltas(rows, np.array([0.5, 3.0])).max() <= 1.0


@given(st.lists(st.tuples(st.floats(0.5, 50.0), st.integers(1, 1000)), min_size=1, max_size=6))
def test_pure_costs_are_never_below_their_exact_sum(rows):
    releases = [Release(law="laplace", scale=scale, sensitivity=1.0, count=count) for scale, count in rows]
    exact = sum(count / Fraction(scale) for scale, count in rows)
    assert exact <= Fraction(accounting.total_pure_epsilon(releases)) <= exact * (1 + Fraction(1, 10**11))
