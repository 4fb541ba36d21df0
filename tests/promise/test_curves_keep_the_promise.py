"""A two-point attack on released curves: within the bound for our noise, far beyond it for noise of others.

Whoever tells two records apart with false alarms of probability f is right with at most delta + e^epsilon f.
"""

import math

import numpy as np
import pytest

from tacit.functional.curves.basis import BSplines, whitening
from tacit.privacy.accounting import calibrate
from tacit.privacy.mechanisms.vertical import GramMatrix, LocalColumns
from tacit.runtime.keys import Key

EPSILON, DELTA, ALARMS, DRAWS = 1.0, 1e-5, 1e-3, 400_000
RADIUS, SIZE = 2.0, 20


def power(honest, other):
    """Return the power of the test between both data sets at the false alarm rate `ALARMS`."""
    threshold = np.quantile(honest, 1 - ALARMS)
    return float((other > threshold).mean())


def bound():
    error = 4 * math.sqrt(math.exp(EPSILON) * ALARMS / DRAWS)
    return DELTA + math.exp(EPSILON) * ALARMS + error


def test_an_attack_on_released_coordinates_stays_within_its_bound():
    multiplier = calibrate(epsilon=EPSILON, delta=DELTA, steps=1, relation="replace")
    mechanism = LocalColumns(
        multiplier=multiplier, radii={"x": RADIUS}, widths={"x": 4}, holders={"x": "a"}, rehearsal=True
    )
    direction = np.array([1.0, -1.0, 1.0, 1.0]) / 2
    # Both are much longer than the radius: opposite ends of what clipping leaves.
    scores = [
        mechanism.noisy_rows(np.tile(sign * 9 * direction, (DRAWS, 1)), "x", Key(3, rehearsal=True) / sign)
        @ direction
        for sign in (-1, 1)
    ]
    found = power(*scores)
    assert found <= bound()
    # The attack is a good one: it comes close.
    assert found > 0.5 * bound()


def test_an_attack_on_released_moments_stays_within_its_bound():
    multiplier = calibrate(epsilon=EPSILON, delta=DELTA, steps=1, relation="replace")
    mechanism = GramMatrix(
        multiplier=multiplier, radii={"x": 1.0, "y": 1.0}, holders={"x": "a", "y": "a"}, rehearsal=True
    )
    one, other = np.array([1.0, 1.0, 1.0]), np.array([1.0, -1.0, 0.0])
    moved = np.outer(other, other) - np.outer(one, one)
    # The likelihood ratio is a normal number whose mean moves by the distance in units of the noise.
    distance = np.linalg.norm(moved) / mechanism.sigma
    draws = np.random.default_rng(1).normal(size=(2, DRAWS))
    found = power(draws[0], draws[1] + distance)
    assert np.linalg.norm(moved) <= mechanism.sensitivity
    assert found <= bound()


def test_the_same_attack_on_noise_shaped_like_the_gram_matrix_breaks_its_claim():
    """Reason that the reference system's noise, N(0, s^2 M) after clipping in the M-norm, is not offered.

    It claims 2 (S / s)^2 of zero-concentrated privacy. But along the eigenvector of the smallest eigenvalue
    of M a clipped record is longest in coefficients, where the noise is smallest.
    """
    gram = BSplines(size=SIZE, domain=(0.0, 100.0)).gram()
    values, vectors = np.linalg.eigh(gram)
    scale = calibrate(epsilon=EPSILON, delta=DELTA, steps=1, relation="replace") * RADIUS
    record = vectors[:, 0] * RADIUS / math.sqrt(values[0])
    assert math.sqrt(record @ gram @ record) == pytest.approx(RADIUS)
    noise = scale * math.sqrt(values[0])
    draws = np.random.default_rng(2).normal(size=(2, DRAWS)) * noise
    length = np.linalg.norm(record)
    found = power(draws[0] - length, draws[1] + length)
    assert found > 4 * bound()
    # Noise of the same size is private where it is spread over the whitened coordinates.
    root, _ = whitening(gram)
    assert np.linalg.norm(root @ record) == pytest.approx(RADIUS)
