"""Whole noise has its law exactly, vectors are rounded within their bound, and the price is not too low.

Draws come from rehearsal keys, so every verdict repeats; `FALSE_ALARM` is the share of seeds on which a right
implementation would be accused.
"""

import math
from fractions import Fraction
from itertools import chain, pairwise

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.optimize import brentq

from tacit.errors import InvalidValue
from tacit.privacy import accounting
from tacit.privacy.accounting import calibrate, clipped_release, compare, epsilon, gaussian, theorems
from tacit.privacy.accounting.release import COARSEST, Release, from_dict
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.mechanisms import discrete
from tacit.privacy.mechanisms.discrete import discrete_gaussian
from tacit.privacy.mechanisms.lattice import HALF, Lattice
from tacit.privacy.statement import released_in_words
from tacit.runtime.keys import Key, Secret

FALSE_ALARM = 1e-6
DELTA = 1e-5
REHEARSAL = Key(5, rehearsal=True)
STEPS = 2.0**20


def secret(*names: str | int) -> Secret:
    key = REHEARSAL
    for name in names:
        key = key / name
    return key.secret()


class Scripted(Secret):
    """Words in a given order, and no others."""

    def __init__(self, *answers: list[int] | list[list[int]]) -> None:
        self.answers = list(answers)

    def words(self, shape):
        words = np.array(self.answers.pop(0), dtype=np.uint64)
        assert words.shape == shape
        return words


def in_words(number: int) -> list[int]:
    """The 192 bits after the first 64."""
    return [number >> 128 & 2**64 - 1, number >> 64 & 2**64 - 1, number & 2**64 - 1]


def probabilities(sigma: float, far: int) -> np.ndarray:
    """Of the integers from -far to far, by their definition."""
    weights = np.exp(-(np.arange(-far, far + 1.0) ** 2) / (2 * sigma**2))
    return weights / weights.sum()


# The sampler


@pytest.mark.parametrize("sigma", [0.5, 0.7, 1.0, 3.0, 17.3, 50.0])
def test_draws_have_the_probabilities_of_the_discrete_gaussian(sigma):
    size, far = 400_000, math.ceil(12 * sigma)
    draws = discrete_gaussian(sigma, size, secret("pmf", str(sigma)))
    expected = size * probabilities(sigma, far)
    seen = np.bincount(draws + far, minlength=2 * far + 1)
    likely = expected >= 10
    rest = [expected[~likely].sum(), seen[~likely].sum()]
    observed, wanted = np.append(seen[likely], rest[1]), np.append(expected[likely], rest[0])
    if rest[0] < 1:
        assert rest[1] < 10
        observed, wanted = observed[:-1], wanted[:-1]
    statistic = float(((observed - wanted) ** 2 / wanted).sum())
    assert stats.chi2.sf(statistic, observed.size - 1) > FALSE_ALARM


@pytest.mark.parametrize("sigma", [1000.5, 1e6, 3e7, 2.0**40 * 0.99])
def test_wide_noise_looks_like_a_gaussian_in_its_law_and_moments(sigma):
    draws = discrete_gaussian(sigma, 300_000, secret("wide", str(sigma)))
    jitter = np.random.default_rng(1).uniform(-0.5, 0.5, draws.size)
    assert stats.kstest((draws + jitter) / sigma, "norm").pvalue > FALSE_ALARM
    scaled = draws / sigma
    assert abs(scaled.mean()) < 5 / math.sqrt(draws.size)
    assert abs((scaled**2).mean() - 1) < 5 * math.sqrt(2 / draws.size)
    assert abs((scaled**4).mean() - 3) < 5 * math.sqrt(96 / draws.size)
    # All the low bits are as likely as each other: no block is preferred, and no place in it.
    assert stats.chisquare(np.bincount(draws & 255, minlength=256)).pvalue > FALSE_ALARM


def test_neighbouring_draws_are_independent():
    draws = discrete_gaussian(1e5, 200_000, secret("apart")) / 1e5
    for values in (draws, np.abs(draws), np.sign(draws)):
        centred = values - values.mean()
        for lag in (1, 2, 7):
            correlation = (centred[lag:] * centred[:-lag]).mean() / centred.var()
            assert abs(correlation) < 5 / math.sqrt(draws.size)


def test_draws_repeat_with_their_secret_and_only_then():
    one, again = (discrete_gaussian(1e4, 1000, secret("same")) for _ in range(2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, discrete_gaussian(1e4, 1000, secret("other")))
    assert one.dtype == np.int64
    stream = secret("same")
    discrete_gaussian(1e4, 1000, stream)
    assert not np.array_equal(one, discrete_gaussian(1e4, 1000, stream))


@pytest.mark.parametrize("sigma", [0.3, 2.0, 31.0, 1.7e6])
def test_blocks_and_chances_multiply_to_the_exact_law(sigma):
    """The probability of each integer before conditioning, from the table itself, against high precision."""
    blocks = discrete._blocks(sigma)
    ends = (0, *blocks.ends)
    with mpmath.workdps(120):
        law = [mpmath.mpf(-((k * blocks.length) ** 2)) / 2 / mpmath.mpf(sigma) ** 2 for k in range(len(ends))]
        drawn = [mpmath.mpf(b - a) / 2**256 for a, b in pairwise(ends)]
        wanted = [mpmath.exp(value) for value in law[: len(drawn)]]
        total = mpmath.fsum(wanted)
        apart = mpmath.fsum(abs(one - other / total) for one, other in zip(drawn, wanted, strict=True))
        # What is cut off, and what rounding to 256 bits moves.
        assert apart < mpmath.mpf(2) ** -240
        assert mpmath.exp(law[len(drawn)]) < mpmath.mpf(2) ** -255
    assert blocks.length == 1 or sigma / 16 < blocks.length <= sigma / 8


def test_a_word_on_the_edge_of_a_block_is_decided_by_the_bits_that_follow():
    blocks = discrete._blocks(3.0)
    for number, end in enumerate(blocks.ends[:-1]):
        edge, rest = end >> 192, end & 2**192 - 1
        word = np.array([edge], dtype=np.uint64)
        assert discrete._pick(blocks, word, Scripted(in_words(rest)))[0] == number + 1 or rest == 0
        if rest > 0 and number < 20:
            assert discrete._pick(blocks, word, Scripted(in_words(rest - 1)))[0] == number
    plain = np.array([0, 2**62], dtype=np.uint64)
    assert discrete._pick(blocks, plain, Scripted())[0] == 0


@pytest.mark.parametrize("start", [0, 3, 40])
def test_a_coin_too_close_to_call_is_decided_by_the_bits_that_follow(start):
    sigma = 1e6 + 1 / 3
    blocks = discrete._blocks(sigma)
    inside = blocks.length - 5
    with mpmath.workdps(120):
        fall = mpmath.mpf(inside) * (2 * start * blocks.length + inside) / (2 * mpmath.mpf(sigma) ** 2)
        edge = int(mpmath.floor(mpmath.exp(-fall) * 2**256))
    starts, places = np.array([start * blocks.length]), np.array([inside])
    coins = np.array([edge >> 192], dtype=np.uint64)

    def kept(number: int) -> bool:
        return bool(discrete._flip_coin(blocks, starts, places, coins, Scripted(in_words(number)))[0])

    assert kept(edge)
    assert not kept(edge + 1)
    # Where doubles can tell, nothing more is drawn.
    for coin, verdict in ((coins - np.uint64(2**30), True), (coins + np.uint64(2**30), False)):
        assert bool(discrete._flip_coin(blocks, starts, places, coin, Scripted())[0]) == verdict


def test_a_whole_draw_can_pass_through_the_exact_comparison():
    blocks = discrete._blocks(100.0)
    count = math.ceil(2 / blocks.kept * 1.02) + 32
    with mpmath.workdps(120):
        edge = int(mpmath.floor(mpmath.exp(mpmath.mpf(-9) / 20_000) * 2**256))
    # Every candidate is the number 3, with a coin that doubles cannot tell; all but two are just too high.
    words = [[0] * count, [3] * count, [edge >> 192] * count]
    fates = [in_words(edge + 1)] * (count - 2) + [in_words(edge)] * 2
    script = Scripted(words, *fates)
    assert discrete_gaussian(100.0, 2, script).tolist() == [3, 3]
    assert script.answers == []


def test_zero_is_not_counted_twice():
    count = math.ceil(2 / discrete._blocks(0.5).kept * 1.02) + 32
    # Every other candidate is minus zero.
    places = [2**63 if number % 2 else 0 for number in range(count)]
    assert discrete_gaussian(0.5, 2, Scripted([[0] * count, places, [0] * count])).tolist() == [0, 0]


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf, 2.0**41, 0.01, 0.099])
def test_noise_that_cannot_be_drawn_exactly_is_refused(sigma):
    with pytest.raises(InvalidValue, match="sigma"):
        discrete_gaussian(sigma, 3, secret("no"))


@pytest.mark.parametrize("sigma", [0.05, 2.0**40 * 1.01])
def test_noise_whose_draws_are_not_exact_is_refused(sigma):
    with pytest.raises(InvalidValue, match="sigma"):
        discrete_gaussian(sigma, 1, secret("refused"))


def test_no_draws_are_no_draws():
    assert discrete_gaussian(1e6, 0, secret("none")).shape == (0,)


# The lattice


def lattice(clip: float = 1.0, width: int = 4, sites: int = 10, scale: float = 2.0**10) -> Lattice:
    return Lattice(scale=scale, clip=clip, width=width, sites=sites)


def length_within(steps: np.ndarray, bound: float) -> bool:
    """In exact arithmetic."""
    return sum(int(step) ** 2 for step in steps) <= Fraction(bound) ** 2


@settings(max_examples=150, deadline=None)
@given(
    values=arrays(np.float64, st.integers(1, 12), elements=st.floats(allow_nan=True, allow_infinity=True)),
    clip=st.floats(1e-3, 1e3),
    power=st.integers(-3, 20),
    seed=st.integers(0, 10**6),
)
def test_a_rounded_vector_is_never_longer_than_its_bound_whatever_is_given(values, clip, power, seed):
    grid = lattice(clip, values.size, 1, 2.0**power)
    before = values.copy()
    rounded = grid.stochastic_round(values, secret("any", seed))
    assert rounded.dtype == np.int64
    assert length_within(rounded, grid.sensitivity)
    assert np.array_equal(values, before, equal_nan=True)
    if not np.isfinite(values).all():
        assert not rounded.any()


@settings(max_examples=150, deadline=None)
@given(
    direction=arrays(np.float64, st.integers(1, 40), elements=st.floats(-1, 1)),
    scale=st.sampled_from([0.25, 1.0, 4.0, 2.0**24]),
    clip=st.floats(0.5, 7),
    seed=st.integers(0, 10**6),
)
def test_a_vector_exactly_at_the_clip_is_rounded_within_its_bound(direction, scale, clip, seed):
    norm = math.hypot(*direction)
    values = direction * (clip / norm) if norm > 1e-100 else direction
    grid = lattice(clip, direction.size, 1, scale)
    rounded = grid.stochastic_round(values, secret("edge", seed))
    assert length_within(rounded, grid.sensitivity)
    # Not by giving up: every coordinate is next to where it was.
    assert np.abs(rounded - values * scale).max() < 1 + 1e-6 * scale


def test_what_chance_would_make_too_long_is_rounded_anew():
    # Two in five times it would go up to 4, beyond the bound of 3.9.
    values = np.array([3.4])
    grid = Lattice(scale=1.0, clip=3.4, width=1, sites=1)
    seen = {int(grid.stochastic_round(values, secret("corner", number))[0]) for number in range(50)}
    assert seen == {3}


class Unlucky(Secret):
    """Always rounds up."""

    def uniform(self, shape):
        return np.full(shape, 2.0**-53)


def test_after_a_few_tries_the_nearest_vector_is_taken():
    values = np.array([1.1, 1.1, 1.1, 1.1])
    roomy, tight = (Lattice(scale=1.0, clip=clip, width=4, sites=1) for clip in (4.0, 2.2))
    assert roomy.stochastic_round(values, Unlucky(b"")).tolist() == [2, 2, 2, 2]
    assert tight.stochastic_round(values, Unlucky(b"")).tolist() == [1, 1, 1, 1]


def test_rounding_is_unbiased():
    grid = lattice(width=1000, scale=4.0, clip=50.0)
    values = np.random.default_rng(3).normal(size=1000)
    total = np.zeros(1000)
    times = 2000
    for number in range(times):
        total += grid.stochastic_round(values, secret("bias", number)) / grid.scale
    # Each coordinate varies by at most half a step.
    errors = (total / times - values) / (0.125 / math.sqrt(times))
    assert np.abs(errors).max() < 6
    assert abs(errors.sum()) / math.sqrt(1000) < 5


def test_whole_steps_are_not_moved():
    grid = lattice(width=3, scale=8.0, clip=5.0)
    values = np.array([1.25, -2.5, 0.0])
    assert grid.stochastic_round(values, secret("whole")).tolist() == [10, -20, 0]


@settings(max_examples=100, deadline=None)
@given(
    clip=st.floats(1e-6, 1e6),
    width=st.integers(1, 10**6),
    sites=st.integers(1, 300),
    multiplier=st.floats(0.05, 60),
    data=st.data(),
)
def test_a_fitted_lattice_holds_the_longest_sum_and_its_noise_and_no_finer_one_does(
    clip, width, sites, multiplier, data
):
    honest = data.draw(st.integers(max(1, sites // 2), sites))
    grid = Lattice.fit(clip=clip, width=width, sites=sites, multiplier=multiplier, honest=honest)
    noise = 12 * math.sqrt(sites) * grid.share(multiplier, honest)
    assert sites * grid.sensitivity + noise < HALF
    finer = 2 * grid.scale * clip + math.sqrt(width) / 2
    assert sites * finer + 12 * math.sqrt(sites / honest) * multiplier * finer > HALF * (1 - 1e-6)
    assert grid.sensitivity >= COARSEST
    # What rounding adds to the bound is little.
    assert grid.sensitivity <= 1.03 * clip * grid.scale


@pytest.mark.parametrize("change", [{"multiplier": 1e5}, {"sites": 100_000}, {"width": 10**12}])
def test_what_does_not_fit_into_the_ring_is_refused_with_the_way_out(change):
    asked = {"clip": 1.0, "width": 1000, "sites": 10, "multiplier": 3.0, "honest": 7, **change}
    with pytest.raises(InvalidValue, match="fewer sites"):
        Lattice.fit(**asked)


@pytest.mark.parametrize(
    ("field", "value"),
    [("scale", 3.0), ("scale", 0.0), ("clip", math.inf), ("width", 0), ("sites", 0), ("scale", 2.0**40)],
)
def test_a_lattice_that_makes_no_sense_is_refused(field, value):
    with pytest.raises(InvalidValue):
        Lattice(**{"scale": 4.0, "clip": 1.0, "width": 3, "sites": 2, field: value})


def test_a_lattice_of_less_than_65536_steps_is_refused():
    """Noise that was calibrated without knowing the lattice counts on as many."""
    assert COARSEST == 2**16
    fine = {"clip": 1.0, "width": 1, "sites": 1, "honest": 1}
    assert Lattice.fit(**fine, multiplier=1200.0).sensitivity > 2**16
    for multiplier in (1500.0, 20_000.0, 1e6):
        with pytest.raises(InvalidValue, match="do not fit into 32 bits"):
            Lattice.fit(**fine, multiplier=multiplier)


def test_more_honest_shares_than_sites_and_vectors_of_another_width_are_refused():
    with pytest.raises(InvalidValue, match="honest"):
        Lattice.fit(clip=1.0, width=3, sites=3, multiplier=1.0, honest=4)
    with pytest.raises(InvalidValue, match="values"):
        lattice(width=3).stochastic_round(np.zeros(4), secret("shape"))


def test_shares_too_thin_to_be_priced_are_refused():
    with pytest.raises(InvalidValue, match="multiplier"):
        lattice(scale=2.0**10).share(0.01, 10)


@given(multiplier=st.floats(0.5, 50), honest=st.integers(1, 10), width=st.integers(1, 10_000))
def test_honest_shares_add_up_to_the_charged_noise_without_a_rounding_too_little(multiplier, honest, width):
    grid = lattice(width=width, scale=2.0**20)
    variance = honest * Fraction(grid.share(multiplier, honest)) ** 2
    assert variance >= (Fraction(multiplier) * Fraction(grid.sensitivity)) ** 2


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20))
def test_encoding_is_undone_by_decoding(steps):
    grid = lattice(width=len(steps))
    values = np.array(steps, dtype=np.int64)
    assert np.array_equal(grid.decode(grid.encode(values)), values / grid.scale)


@settings(max_examples=50, deadline=None)
@given(arrays(np.int64, (7, 5), elements=st.integers(-(2**40), 2**40)))
def test_sums_wrap_around_to_the_exact_sum_of_what_stays_inside_the_ring(parts):
    grid = lattice(width=5)
    # Masks as large as they like: only the sum has to be small.
    small = np.array([3, -(2**31), 2**31 - 1, 0, -1])
    shares = np.vstack([parts, small - parts.sum(axis=0)])
    total = np.add.reduce([grid.encode(share) for share in shares], dtype=np.uint32)
    assert np.array_equal(grid.decode(total), small / grid.scale)


def test_the_longest_vectors_of_all_sites_add_up_without_wrapping():
    sites, multiplier, honest = 10, 2.0, 5
    grid = Lattice.fit(clip=3.0, width=2, sites=sites, multiplier=multiplier, honest=honest)
    values = np.array([-3.0, 0.0])
    noise = math.floor(12 * grid.share(multiplier, honest) * math.sqrt(sites))
    total = np.zeros(2, dtype=np.uint32)
    for number in range(sites):
        total += grid.encode(grid.stochastic_round(values, secret("sum", number)))
    total += grid.encode(np.array([-noise, 0]))
    assert grid.decode(total).tolist() == [-30.0 - noise / grid.scale, 0.0]


# The price


def rounded_noise(scale: float, sensitivity: float = 1.0, **fields) -> Release:
    return Release(law="discrete", scale=scale, sensitivity=sensitivity, **fields)


def exact_epsilon(sigma: float, shift: tuple[int, ...], delta: float) -> float:
    """Of one discrete Gaussian per coordinate, summed over all integers that matter."""
    axes = [np.arange(-math.ceil(14 * sigma), math.ceil(14 * sigma) + 1)] * len(shift)
    places = np.meshgrid(*axes, indexing="ij")
    logs = sum(-(axis**2) / (2 * sigma**2) for axis in places)
    # How much likelier each place is than under the shifted law.
    losses = sum(step**2 - 2 * step * axis for step, axis in zip(shift, places, strict=True)) / (2 * sigma**2)
    mass = np.exp(logs) / np.exp(logs).sum()

    def excess(value: float) -> float:
        beyond = losses > value
        return float((mass[beyond] * -np.expm1(value - losses[beyond])).sum()) - delta

    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, float(losses.max()), xtol=1e-12))


@pytest.mark.parametrize("sigma", [16.0, 23.7, 100.0, 1000.0])
@pytest.mark.parametrize("ratio", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_the_price_is_at_least_the_exact_one_and_close_to_it(sigma, ratio, delta):
    shift = round(sigma / ratio)
    price = epsilon([rounded_noise(sigma, shift)], delta)
    exact = exact_epsilon(sigma, (shift,), delta)
    assert exact <= price
    assert price <= gaussian.epsilon_of(math.sqrt(sigma**2 - 16) / shift, delta) * (1 + 1e-9)
    assert price <= exact * (1 + 30 / sigma**2) + 2 * shift / sigma**2


@pytest.mark.parametrize("shift", [(12, 16), (20, 0), (19, 6), (14, 14)])
def test_the_price_holds_in_two_dimensions(shift):
    assert exact_epsilon(16.0, shift, DELTA) <= epsilon([rounded_noise(16.0, math.hypot(*shift))], DELTA)


@settings(max_examples=60, deadline=None)
@given(
    multiplier=st.floats(0.05, 50), steps=st.floats(COARSEST, 2**28), count=st.integers(1, 5000),
    delta=st.sampled_from([1e-3, 1e-5, 1e-9]),
)  # fmt: skip
def test_the_price_lies_between_the_gaussian_one_and_renyi_privacy(multiplier, steps, count, delta):
    release = rounded_noise(multiplier * steps, steps, count=count)
    plain = Release(scale=release.scale, sensitivity=steps, count=count)
    price = epsilon([release], delta)
    # Above a hundred the two differ by less than their last digit.
    assert epsilon([plain], delta) <= price * (1 + 1e-12)
    assert price <= theorems.rdp_epsilon(count * theorems.rho(release), delta) * (1 + 1e-3)


def test_a_rounded_gaussian_has_the_discrete_law():
    """The argument of `Release.unrounded`, integrated; a rounding of variance 1 has an error that shows."""
    sigma, rounding = 4.0, 1.0
    places, step = np.linspace(-40, 40, 80_001, retstep=True)
    density = stats.norm.pdf(places, scale=math.sqrt(sigma**2 - rounding**2))
    whole = np.arange(-60, 61)[:, None]
    chances = np.exp(-((whole - places) ** 2) / (2 * rounding**2))
    outcome = (density * chances / chances.sum(axis=0)).sum(axis=1) * step
    inside = np.abs(whole[:, 0]) <= 20
    ratio = outcome[inside] / probabilities(sigma, 60)[inside]
    assert np.abs(ratio - 1).max() < 5 * math.exp(-2 * math.pi**2 * rounding**2)


@pytest.mark.parametrize("shares", [2, 5, 40])
def test_the_sum_of_shares_has_the_law_that_the_whole_is_priced_by(shares):
    """The convolution of shares of 2 steps, by brute force, against the bound for that many."""
    share, far = 2.0, 200
    one = probabilities(share, far)
    total = one
    for _ in range(shares - 1):
        total = np.convolve(total, one, mode="same")
    whole = probabilities(share * math.sqrt(shares), far)
    likely = whole > 1e-12
    apart = np.abs(np.log(total[likely] / whole[likely])).max()
    assert apart < 10 * shares * math.exp(-(math.pi**2) * share**2) + 1e-9


def test_the_theorems_beside_the_claim_agree_with_the_library():
    release = rounded_noise(3.0 * STEPS, STEPS, count=20)
    found = compare([release], DELTA)
    library = RdpAccountant()
    library.compose(dp_event.GaussianDpEvent(3.0), 20)
    rdp = library.get_epsilon(DELTA)
    assert found["rdp"] == pytest.approx(rdp, rel=2e-3)
    assert found["rdp"] <= rdp * (1 + 1e-9)
    assert found["zcdp"] == pytest.approx(gaussian.zcdp_epsilon(20 / 18, DELTA))
    for name in ("basic", "advanced"):
        assert found[name] is not None
        assert found[name] >= epsilon([release], DELTA)
    assert theorems.pure_epsilon(release) == math.inf
    assert epsilon([release], 0.0) == math.inf


LAPLACE = Release(law="laplace", scale=9.0, sensitivity=1.0)
SELECTION = Release(law="selection", scale=8.0, sensitivity=1.0)
GAUSSIAN = Release(scale=4.0, sensitivity=1.0)
WIDE = Release(scale=20.0, sensitivity=1.0)
SAMPLED = Release(scale=2.0, sensitivity=1.0, rate=0.05, count=30)
OTHERS = {"laplace": [LAPLACE], "selection": [SELECTION], "gaussian": [GAUSSIAN], "sampled": [SAMPLED]}


@pytest.mark.parametrize("others", [*OTHERS.values(), [*chain(*OTHERS.values())]], ids=[*OTHERS, "all"])
def test_discrete_noise_composes_with_every_other_law(others):
    own = rounded_noise(3.0 * STEPS, STEPS, count=4)
    together = epsilon([own, *others], DELTA)
    alone, rest = epsilon([own], DELTA), epsilon(others, DELTA)
    assert max(alone, rest) <= together * (1 + 2e-3)
    # Never cheaper than with the Gaussian that it is not quite, and no dearer than half of delta for each.
    plain = Release(scale=own.scale, sensitivity=STEPS, count=4)
    assert epsilon([plain, *others], DELTA) <= together * (1 + 1e-9)
    assert together <= (epsilon([own], DELTA / 2) + epsilon(others, DELTA / 2)) * (1 + 2e-3)
    assert accounting.affordable([own, *others], together, DELTA)
    compare([own, *others], DELTA)


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("steps", [1, 40])
@pytest.mark.parametrize("beside", [(), (LAPLACE,), (WIDE, SELECTION)], ids=["alone", "laplace", "mixed"])
def test_calibrated_noise_costs_at_most_the_target_on_every_lattice_allowed(relation, steps, beside):
    target = 2.0
    multiplier = calibrate(target, DELTA, steps, relation=relation, mechanism="discrete", beside=beside)
    for reach in (COARSEST, 2.0**23 + 158.11, 2.0**30 / 3):
        release = clipped_release(multiplier, clip=reach, relation=relation, law="discrete", count=steps)
        cost = epsilon([release, *beside], DELTA)
        assert 0.99 * target < cost <= target
    plain = calibrate(target, DELTA, steps, relation=relation, beside=beside)
    assert plain <= multiplier <= plain * (1 + 1e-6)


@pytest.mark.parametrize("target", [0.01, 1.0, 50.0, 1000.0])
def test_calibration_keeps_to_extreme_targets(target):
    multiplier = calibrate(target, DELTA, mechanism="discrete")
    assert epsilon([clipped_release(multiplier, clip=COARSEST, law="discrete")], DELTA) <= target


def test_what_is_beside_is_paid_for_under_the_relation_of_all_together():
    pure = calibrate(1.0, 0.0, 3, relation="replace", mechanism="laplace", beside=[LAPLACE])
    release = clipped_release(pure, relation="replace", law="laplace", count=3)
    assert 0.99 < epsilon([release, LAPLACE], 0.0) <= 1.0
    # On its own it would fit; exchanged, it does not, and no noise helps.
    with pytest.raises(InvalidValue, match="the price of the other releases"):
        calibrate(0.15, 0.0, relation="replace", mechanism="laplace", beside=[LAPLACE])


def test_draws_and_delta_zero_are_refused():
    with pytest.raises(InvalidValue, match="rate"):
        rounded_noise(STEPS, STEPS, rate=0.5)
    with pytest.raises(InvalidValue, match="rate"):
        calibrate(1.0, DELTA, rate=0.5, mechanism="discrete")
    with pytest.raises(InvalidValue, match="delta"):
        calibrate(1.0, 0.0, mechanism="discrete")
    for scale in (3.0, 1e200):
        with pytest.raises(InvalidValue, match="steps"):
            rounded_noise(scale)


def test_an_exchange_of_sites_costs_what_twice_the_bound_costs():
    release = rounded_noise(8 * STEPS, STEPS, unit="site", subject="sites")
    assert release.under_replacement().sensitivity == 2 * STEPS
    twice = rounded_noise(8 * STEPS, 2 * STEPS, unit="site", subject="sites", relation="replace")
    assert epsilon([release.under_replacement()], DELTA) == epsilon([twice], DELTA)


def test_the_ledger_keeps_and_prices_discrete_noise(tmp_path):
    release = rounded_noise(
        3.0 * STEPS, STEPS, count=4, unit="site", subject="sites", party="each site", purpose="round 3"
    )
    assert from_dict(release.as_dict()) == release
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.charge([release])
        spent = ledger.spent(DELTA)
    with Ledger(tmp_path / "ledger.db", mode="read") as again:
        assert again.spent(DELTA) == spent == epsilon([release], DELTA)
        assert [row["law"] for row in again.entries() if row["kind"] == "release"] == ["discrete"]


def test_the_statement_says_discrete_gaussian_noise():
    (words,) = released_in_words([rounded_noise(3.0 * STEPS, STEPS, unit="site", subject="sites", count=2)])
    assert (
        "discrete Gaussian noise of standard deviation 3.146e+06 steps, L2 sensitivity 1.049e+06 steps"
        in words
    )


def test_all_sites_may_be_honest_and_no_more():
    lattice = Lattice.fit(clip=1.0, width=10, sites=5, multiplier=1.0, honest=5)
    assert lattice.sites == 5
    with pytest.raises(
        InvalidValue, match="honest = 6 is not allowed: it must be at most the number of sites, 5"
    ):
        Lattice.fit(clip=1.0, width=10, sites=5, multiplier=1.0, honest=6)
