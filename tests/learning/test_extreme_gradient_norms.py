"""Lengths are right, and clipping holds, for any numbers that double precision has; in exact arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tacit.learning.kernels import FARTHEST
from tacit.learning.kernels import HIDDEN as ROUNDING
from tacit.learning.perceptron import Layer, OuterProducts
from tacit.privacy.mechanisms.base import clip_factors
from tacit.privacy.policy import LONGEST

# Far below the shortest bound there is.
VANISHING = Fraction(1, 10**100)
NINE_DIGITS = Fraction(1, 10**9)
# Two layers, the second without biases, as they lie in a flat vector.
LAYERS = (Layer(2, 2, True, "tanh", 0), Layer(2, 1, False, "identity", 6))

EDGES = np.array([0.0, 5e-324, 2.3e-308, 1.5e-162, 1e-154, 1e154, 1e199, 1.7e308])

seeds = st.integers(0, 2**32)
bounds = st.integers(-49, 49).map(lambda power: float(f"1e{power}"))
norms = st.sampled_from(["l2", "l1"])


def arrays(seed: int, records: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Draw inputs and slopes: of all orders of magnitude, or with products of one.

    Rows are of one magnitude or of many, with zeros and the ends of the range among them.
    """
    draws = np.random.default_rng(seed)
    one, together = draws.random() < 0.5, draws.random() < 0.7
    powers = draws.uniform(-323, 308, (2, records, 1))
    found: list[np.ndarray] = []
    for side, width in ((0, 2), (0, 2), (1, 2), (1, 1)):
        own = draws.uniform(-60, 60) - powers[0] if side and together else powers[side]
        numbers = 10 ** np.clip(own if one else own + draws.uniform(-5, 5, (records, width)), -323, 307.9)
        numbers = numbers * draws.uniform(-1, 1, (records, width))
        rare = draws.random(numbers.shape) < 0.05
        numbers[rare] = draws.choice(EDGES, int(rare.sum()))
        found.append(numbers[None])
    return found[:2], found[2:]


def gradient(inputs: list[np.ndarray], signals: list[np.ndarray], records: range) -> list[Fraction]:
    """The gradient of the sum over some records, written out without rounding."""
    found: list[Fraction] = []
    for layer, entering, back in zip(LAYERS, inputs, signals, strict=True):
        rows = [([Fraction(a) for a in entering[0, r]], [Fraction(b) for b in back[0, r]]) for r in records]
        found += [
            sum((b[o] * a[i] for a, b in rows), Fraction(0))
            for o in range(layer.outputs)
            for i in range(layer.inputs)
        ]
        if layer.bias:
            found += [sum((b[o] for _, b in rows), Fraction(0)) for o in range(layer.outputs)]
    return found


def length(values: list[Fraction], norm: str) -> Fraction:
    """The length, to thirty digits."""
    if norm == "l1":
        return sum(map(abs, values), Fraction(0))
    square = sum((value**2 for value in values), Fraction(0))
    if not square:
        return square
    unit = Fraction(2) ** ((square.numerator.bit_length() - square.denominator.bit_length()) // 2 - 100)
    return math.isqrt(int(square / unit**2)) * unit


def broken(inputs: list[np.ndarray], records: range, norm: str) -> bool:
    """Return True if some activations are too large to be multiplied by a clipped signal."""
    measure = {
        "l1": lambda a: sum(map(Fraction, np.abs(a).tolist()), Fraction(1)),
        "l2": lambda a: np.abs(a).max(),
    }
    return any(measure[norm](entering[0, r]) >= FARTHEST * 0.999 for entering in inputs for r in records)


@settings(deadline=None, max_examples=250)
@given(seeds, norms)
def test_lengths_of_records_are_exact_whatever_the_numbers(seed, norm):
    inputs, signals = arrays(seed, 3)
    found = OuterProducts(LAYERS, inputs, signals, 3).lengths(norm)[0]
    for unit, told in enumerate(found):
        true = length(gradient(inputs, signals, range(unit, unit + 1)), norm)
        if math.isinf(told):
            assert broken(inputs, range(unit, unit + 1), norm) or true > Fraction(10) ** 307
        else:
            assert abs(Fraction(told) - true) <= true * NINE_DIGITS + VANISHING


@settings(deadline=None, max_examples=250)
@given(seeds, norms)
def test_lengths_of_groups_are_never_too_small_whatever_the_numbers(seed, norm):
    inputs, signals = arrays(seed, 6)
    found = OuterProducts(LAYERS, inputs, signals, 2).lengths(norm)[0]
    for unit, told in enumerate(found):
        records = range(3 * unit, 3 * unit + 3)
        true = length(gradient(inputs, signals, records), norm)
        alone = [length(gradient(inputs, signals, range(r, r + 1)), norm) for r in records]
        if math.isinf(told):
            assert broken(inputs, records, norm) or max(alone) > Fraction(10) ** 306
        else:
            assert Fraction(told) >= true * (1 - NINE_DIGITS) - VANISHING
            # What is added for members that cancel is a small part of them.
            assert (
                Fraction(told) <= true * (1 + NINE_DIGITS) + sum(alone) * Fraction(3 * ROUNDING) + VANISHING
            )


@settings(deadline=None, max_examples=250)
@given(seeds, bounds, norms, st.sampled_from([1, 2]))
def test_what_is_clipped_is_never_longer_than_the_bound(seed, bound, norm, members):
    inputs, signals = arrays(seed, members)
    products = OuterProducts(LAYERS, inputs, signals, 1)
    factors = clip_factors(products.lengths(norm), bound)
    total = products.total(factors)[0]
    assert np.isfinite(total).all()
    assert length([Fraction(value) for value in total], norm) <= Fraction(bound) * (1 + 2 * NINE_DIGITS)


@settings(deadline=None, max_examples=200)
@given(st.floats(0, allow_infinity=False), bounds)
@example(9e302, 1e-20)
@example(1.7e308, 1.1e-15)
def test_length_times_factor_is_at_most_the_bound(size, bound):
    (factor,) = clip_factors(np.array([size]), bound)
    assert Fraction(size) * Fraction(factor) <= Fraction(bound)


@pytest.mark.parametrize("members", [1, 2])
def test_a_tiny_slope_under_a_large_activation_is_clipped(members):
    # Their squares are 1e300 and 0, and the length is 1.4e-15.
    inputs = [np.full((1, members, 2), 1e150), np.zeros((1, members, 2))]
    signals = [np.zeros((1, members, 2)), np.zeros((1, members, 1))]
    signals[0][0, :, 0] = 1e-165 / members
    products = OuterProducts(LAYERS, inputs, signals, 1)
    (found,) = products.lengths("l2")[0]
    assert found == pytest.approx(math.sqrt(2) * 1e-15, rel=1e-9, abs=0)
    clipped = products.total(clip_factors(products.lengths("l2"), 1e-30))[0]
    assert np.linalg.norm(clipped * 1e30) == pytest.approx(1.0, rel=1e-8)


def test_members_of_opposite_scales_count_alike():
    inputs = [np.zeros((1, 2, 2)), np.zeros((1, 2, 2))]
    signals = [np.zeros((1, 2, 2)), np.zeros((1, 2, 1))]
    inputs[0][0, :, 0], signals[0][0, :, 0] = [1e-180, 1e180], [3e180, 3e-180]
    inputs[0][0, 1, 0], signals[0][0, 1, 1] = 1e180, 4e-180
    signals[0][0, 1, 0] = 0.0
    # The bias of the first member alone is longer than all the rest.
    assert OuterProducts(LAYERS, inputs, signals, 1).lengths("l2")[0, 0] == pytest.approx(3e180, rel=1e-9)
    bare = (Layer(2, 2, False, "tanh", 0), Layer(2, 1, False, "identity", 4))
    assert OuterProducts(bare, inputs, signals, 1).lengths("l2")[0, 0] == pytest.approx(5.0, rel=1e-9)


def test_a_clipped_signal_is_not_rounded_up_under_a_huge_activation():
    # 5e-324 times 0.6 is 5e-324 again: the record has to be left out.
    inputs = [np.array([[[3.3e307, 0.0]]]), np.zeros((1, 1, 2))]
    signals = [np.array([[[5e-324, 0.0]]]), np.zeros((1, 1, 1))]
    products = OuterProducts(LAYERS, inputs, signals, 1)
    for norm in ("l2", "l1"):
        total = products.total(clip_factors(products.lengths(norm), 1e-16))[0]
        assert np.abs(total).sum() <= 1e-16


def test_one_wild_record_leaves_the_lengths_of_others_as_they_are():
    draws = np.random.default_rng(5)
    inputs = [draws.normal(size=(2, 6, 2)), draws.normal(size=(2, 6, 2))]
    signals = [draws.normal(size=(2, 6, 2)), draws.normal(size=(2, 6, 1))]
    calm = OuterProducts(LAYERS, inputs, signals, 3).lengths("l2")
    for value in (1e170, 1e250, math.inf, math.nan):
        wild = [inputs[0].copy(), inputs[1]]
        wild[0][1, 4] = value
        found = OuterProducts(LAYERS, wild, signals, 3).lengths("l2")
        others = np.ones(found.shape, dtype=bool)
        others[1, 2] = False
        assert np.array_equal(found[others], calm[others])
        assert found[1, 2] > 1e160


def test_the_shortest_bound_is_far_above_what_lengths_may_lack():
    assert Fraction(1 / LONGEST) > VANISHING * 10**40


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_a_group_of_one_is_as_long_whether_or_not_another_group_has_two(norm):
    draws = np.random.default_rng(5)
    inputs, signals = draws.normal(size=(1, 3, 2)), draws.normal(size=(1, 3, 1))
    layer = (Layer(2, 1, True, "identity", 0),)

    def lengths(entering, back, units):
        return OuterProducts(layer, [entering], [back], units).lengths(norm)[0]

    alone = lengths(inputs[:, :2], signals[:, :2], 2)
    # The second group gets a member; the first one is padded, as a batch has it.
    blank = np.zeros((1, 1, 1))
    joined_in = np.concatenate([inputs[:, :1], np.zeros((1, 1, 2)), inputs[:, 1:]], axis=1)
    joined_back = np.concatenate([signals[:, :1], blank, signals[:, 1:]], axis=1)
    beside = lengths(joined_in, joined_back, 2)
    assert beside[0] == pytest.approx(alone[0], rel=1e-14)
    assert beside[1] != pytest.approx(alone[1], rel=1e-3)
