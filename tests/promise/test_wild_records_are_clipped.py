"""The promise itself, where numbers run away: what one record adds to a sum is within the bound before noise.

A coordinator chooses the weights, and a site's records are what they are; so slopes can be made as small, and
activations as large, as double precision goes.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.learning.batches import Batch
from tacit.learning.perceptron import ACTIVATIONS, build_perceptron
from tacit.privacy.mechanisms.base import clip_factors
from tacit.sites.table import from_arrays

ROUNDED = 1 + Fraction(1, 10**8)


class Logistic:
    """The slope of a logistic loss, which vanishes as fast as an output falls."""

    def slopes(self, outputs, targets, present):
        """The gradient in the outputs."""
        return np.exp(np.minimum(outputs, 0.0)) * targets["y"][..., None]


@settings(deadline=None, max_examples=100)
@given(
    seed=st.integers(0, 2**32),
    clip=st.integers(-49, 49).map(lambda power: float(f"1e{power}")),
    norm=st.sampled_from(["l2", "l1"]),
    activation=st.sampled_from(sorted(ACTIVATIONS)),
    members=st.sampled_from([1, 3]),
)
def test_a_record_adds_no_more_than_the_bound_whatever_the_weights(seed, clip, norm, activation, members):
    draws = np.random.default_rng(seed)

    def wild(*shape: int) -> np.ndarray:
        return draws.normal(size=shape) * 10 ** draws.uniform(-160, 160, shape[:1] + (1,) * (len(shape) - 1))

    table = from_arrays(wild(members, 3), y=wild(members))
    program = build_perceptron([3, 2, 2], activation, Logistic())
    # Half of the numbers are ordinary, as they are where only one layer was tampered with.
    weights = np.where(
        draws.random((1, program.size)) < 0.5, draws.normal(size=program.size), wild(program.size)
    )
    batch = Batch(np.arange(members).reshape(1, 1, members), np.ones((1, 1, members), dtype=bool))
    with np.errstate(all="ignore"):
        contributions = program.contributions(weights, batch, table)
        total = contributions.total(clip_factors(contributions.lengths(norm), clip))[0]
    numbers = [Fraction(value) for value in total.tolist()]
    if norm == "l1":
        assert sum(map(abs, numbers)) <= Fraction(clip) * ROUNDED
    else:
        assert sum(number**2 for number in numbers) <= (Fraction(clip) * ROUNDED) ** 2


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_a_slope_that_the_weights_made_vanish_is_clipped_under_a_large_feature(norm):
    # The squares of feature and slope are 1e300 and 0; the gradient is 1e-19, and the bound 1e-40.
    table = from_arrays(np.array([[1e150]]), y=np.array([1.0]))
    program = build_perceptron([1, 1], "identity", Logistic())
    batch = Batch(np.zeros((1, 1, 1), dtype=np.int64), np.ones((1, 1, 1), dtype=bool))
    contributions = program.contributions(np.array([[0.0, -390.0]]), batch, table)
    assert contributions.lengths(norm)[0, 0] == pytest.approx(1e150 * np.exp(-390.0), abs=0)
    total = contributions.total(clip_factors(contributions.lengths(norm), 1e-40))[0]
    assert np.abs(total).max() == pytest.approx(1e-40, rel=1e-6, abs=0)
