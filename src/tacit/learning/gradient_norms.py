"""Norms of gradients that are never written out, for any double precision numbers.

A clipped gradient is as short as promised only if its norm is right. Squares are fast, and right for all
numbers that training meets. For other numbers they underflow beside large factors, or overflow, and a norm of
0 would let a gradient out unclipped. Such units are measured again, scaled by powers of two.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.learning.gradient_sums import group_squares, group_sums, squares
from tacit.privacy.mechanisms.base import Norm
from tacit.runtime.arrays import Array
from tacit.runtime.jit import contiguous

Marks = NDArray[np.bool_]
# A layer: what went in (..., members, inputs), what came back (..., members, outputs), whether it has biases.
Part = tuple[Array, Array, bool]

# Sums of squares below this lose less than 1e-240 where numbers vanish, and their products too: lengths lack
# less than 1e-100, whatever the number of layers, and no bound is as short as that (`require_bound`).
MOST = 1e60
# Inputs of a layer beyond this are broken: the signal beside them, after clipping, may be so small that it is
# rounded up to a multiple of itself, which would be seen.
FARTHEST = 1e200
# The power of two of what is zero: below that of any product.
NOTHING = -10_000


def lengths(parts: Sequence[Part], units: int, norm: Norm) -> Array:
    """The length of each unit's gradient (sites, units), infinite where it is broken.

    The members of a unit are one after the other (sites, units x members, numbers), and add up.

    Guarantee:
        No length is too small by more than a rounding, or by more than 1e-100, whatever numbers are given.
        Its bits depend on the unit's own numbers alone; members of zeros change nothing.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return _by_squares(parts, units) if norm == "l2" else _by_sums(parts, units)


def _by_sums(parts: Sequence[Part], units: int) -> Array:
    """Compute L1 norms as sums of absolute values."""
    found = np.zeros((len(parts[0][0]), units))
    for inputs, signals, bias in parts:
        group_sums(contiguous(inputs), contiguous(signals), bias, FARTHEST, found)
    found[~np.isfinite(found)] = np.inf
    return found


def _by_squares(parts: Sequence[Part], units: int) -> Array:
    """Squares, and whatever they do not measure once more."""
    sites, records = parts[0][0].shape[:2]
    found, unsure = np.zeros((sites, units)), np.zeros((sites, units), dtype=np.bool_)
    for inputs, signals, bias in parts:
        (squares if records == units else group_squares)(
            contiguous(inputs), contiguous(signals), bias, MOST, found, unsure
        )
    np.sqrt(found, out=found)
    if np.count_nonzero(unsure):
        # Unit by unit: how others are measured does not hang on a wild one.
        found[unsure] = _rescale_lengths(
            [(_by_unit(a, units)[unsure], _by_unit(b, units)[unsure], c) for a, b, c in parts]
        )
        found[~np.isfinite(found)] = np.inf
    return found


def _by_unit(values: Array, units: int) -> Array:
    """Members along an axis of their own (sites, units, members, numbers)."""
    members = values.shape[1] // max(units, 1)
    return values.reshape(len(values), units, members, values.shape[2])


def _rescale_lengths(parts: Sequence[Part]) -> Array:
    """The lengths of some units (units,), from parts (units, members, numbers) of any size.

    Powers of two are kept apart from the numbers, so that nothing is lost but what the largest hides anyway.
    """
    measured: list[Array] = []
    powers: list[NDArray[np.int64]] = []
    broken = np.zeros(len(parts[0][0]), dtype=np.bool_)
    for inputs, signals, bias in parts:
        ones = np.ones((*inputs.shape[:2], int(bias)))
        entering, first, far = _normal(np.concatenate([inputs, ones], axis=2), FARTHEST)
        back, second, torn = _normal(signals, np.inf)
        broken |= (far | torn).any(axis=1)
        power = np.maximum(first + second, NOTHING)
        top = power.max(axis=1)
        back = np.ldexp(back, (power - top[:, None])[..., None])
        measured.append(_squared_lengths(entering, back))
        powers.append(top)
    top = np.maximum.reduce(powers)
    total = np.zeros(len(top))
    for square, power in zip(measured, powers, strict=True):
        total += np.ldexp(square, 2 * (power - top))
    return np.where(broken, np.inf, np.ldexp(np.sqrt(total), top))


def _squared_lengths(entering: Array, back: Array) -> Array:
    """Squared lengths of sums over members (units, members, numbers), numbers of about 1, no biases."""
    units, members = entering.shape[:2]
    found, unsure = np.zeros((1, units)), np.zeros((1, units), dtype=np.bool_)
    flat = (entering.reshape(1, units * members, -1), back.reshape(1, units * members, -1))
    (squares if members == 1 else group_squares)(*flat, False, MOST, found, unsure)
    return found[0]


def _normal(values: Array, farthest: float) -> tuple[Array, NDArray[np.int64], Marks]:
    """Rows over a power of two that makes their peak about 1, the power, and which of them are broken."""
    peaks = np.abs(values).max(axis=2, initial=0.0)
    # NaN is not below anything.
    broken = ~(peaks < farthest)
    peaks[broken] = 0.0
    powers = np.where(peaks > 0, np.frexp(peaks)[1], NOTHING).astype(np.int64)
    kept = np.where((peaks > 0)[..., None], values, 0.0)
    return np.ldexp(kept, np.where(peaks > 0, -powers, 0)[..., None]), powers, broken
