"""Lengths of gradients that are never written out, for any numbers that double precision has.

A clipped gradient is as short as promised only if its length is right. Squares are fast, and right for all
numbers that training meets. Of others they vanish, while what they are multiplied by is large, or overflow,
and a length of 0 would let a gradient out as it is. Such units are measured again, scaled by powers of two.
"""

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from tacit.batched.kernels import squares as squares_of
from tacit.compiled import plain
from tacit.privacy.mechanism import Norm

Array = NDArray[np.float64]
Marks = NDArray[np.bool_]
# A layer: what went in (..., members, inputs), what came back (..., members, outputs), whether it has biases.
Part = tuple[Array, Array, bool]

# What rounding may hide of a sum whose parts cancel, as a share of the parts; generous.
ROUNDING = 1e-7
# Sums of squares below this lose less than 1e-240 where numbers vanish, and their products too: lengths lack
# less than 1e-100, whatever the number of layers, and no bound is as short as that (`require_bound`).
MOST = 1e60
# What went into a layer is broken beyond this: a signal that goes with it and is clipped may be so small that
# it is rounded up to a multiple of itself, which would be seen.
FARTHEST = 1e200
# The power of two of what is zero: below that of any product.
NOTHING = -10_000


def lengths(parts: Sequence[Part], units: int, norm: Norm) -> Array:
    """The length of each unit's gradient (sites, units), infinite where it is broken.

    The members of a unit are one after the other (sites, units x members, numbers), and add up.

    Guarantee:
        No length is too small by more than a rounding, or by more than 1e-100, whatever numbers are given.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return _by_squares(parts, units) if norm == "l2" else _by_sums(parts, units)


def _by_sums(parts: Sequence[Part], units: int) -> Array:
    """Sums of absolute values: those of an outer product multiply; sums of products need writing out."""
    found = np.zeros((len(parts[0][0]), units))
    for inputs, signals, bias in parts:
        entering = np.abs(inputs).sum(axis=2) + bias
        entering[entering > FARTHEST] = np.inf
        single = entering * np.abs(signals).sum(axis=2)
        if single.shape == found.shape:
            found += single
            continue
        entering, back = _by_unit(inputs, units), _by_unit(signals, units)
        written = np.abs(back.swapaxes(2, 3) @ entering).sum(axis=(2, 3))
        if bias:
            written += np.abs(back.sum(axis=2)).sum(axis=2)
        # As in `_of_groups`.
        found += written + ROUNDING * _besides(single.reshape(*found.shape, -1))
    found[~np.isfinite(found)] = np.inf
    return found


def _by_squares(parts: Sequence[Part], units: int) -> Array:
    """Squares, and whatever they do not measure once more."""
    sites, records = parts[0][0].shape[:2]
    if records == units:
        # The usual case, in which units are single records and nothing is extreme.
        added, unsure = np.zeros((sites, records)), 0
        for inputs, signals, bias in parts:
            unsure += squares_of(plain(inputs), plain(signals), bias, MOST, added)
        if not unsure:
            return np.sqrt(added, out=added)
    # What went in, then what came back, of all layers: few calls, as most batches are small.
    squares = np.empty((2, len(parts), sites, records))
    for place, (inputs, signals, _) in enumerate(parts):
        np.vecdot(inputs, inputs, out=squares[0, place])
        np.vecdot(signals, signals, out=squares[1, place])
    squares[0] += np.array([[[bias]] for *_, bias in parts], dtype=np.float64)
    single = squares[0] * squares[1]
    if records == units:
        found = reduce(np.add, single[1:], single[0])
    else:
        apart = [(_by_unit(a, units), _by_unit(b, units), c) for a, b, c in parts]
        found = np.sum([_of_groups(*part, each) for part, each in zip(apart, single, strict=True)], axis=0)
    np.sqrt(found, out=found)
    # The usual case first, which costs one look at small arrays; NaN is not in it.
    sure = squares < MOST
    if np.count_nonzero(sure) < sure.size:
        unsure = ~sure.reshape(-1, sites, units, records // units).all(axis=(0, 3))
        found[unsure] = _scaled(
            [(_by_unit(a, units)[unsure], _by_unit(b, units)[unsure], c) for a, b, c in parts]
        )
        found[~np.isfinite(found)] = np.inf
    return found


def _by_unit(values: Array, units: int) -> Array:
    """Members along an axis of their own (sites, units, members, numbers)."""
    members = values.shape[1] // max(units, 1)
    return values.reshape(len(values), units, members, values.shape[2])


def _of_groups(entering: Array, back: Array, bias: bool, single: Array) -> Array:
    """Squares of the lengths of sums over members: their Gram matrices multiply.

    Members that nearly cancel leave little but rounding. A small part of what they would add up to otherwise
    is added to the length, so that it is never too small.
    """
    likeness = entering @ entering.swapaxes(-1, -2) + bias
    found = (likeness * (back @ back.swapaxes(-1, -2))).sum(axis=(-1, -2))
    each = np.sqrt(single).reshape(*found.shape, -1)
    return np.maximum(found, 0.0) + (ROUNDING * _besides(each)) ** 2


def _besides(sizes: Array) -> Array:
    """What there is beside the largest member of each unit (..., members).

    One by itself cancels nothing. Its length must not change because another group of the batch has two
    members: one record would then move the contributions of groups that it is not in.
    """
    return sizes.sum(axis=-1) - sizes.max(axis=-1)


def _scaled(parts: Sequence[Part]) -> Array:
    """The lengths of some units (units,), from parts (units, members, numbers) of any size.

    Powers of two are kept apart from the numbers, so that nothing is lost but what the largest hides anyway.
    """
    squares: list[Array] = []
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
        single = np.vecdot(entering, entering) * np.vecdot(back, back)
        alone = single.shape[1] == 1
        squares.append(single[:, 0] if alone else _of_groups(entering, back, False, single))
        powers.append(top)
    top = np.maximum.reduce(powers)
    shares = [np.ldexp(square, 2 * (power - top)) for square, power in zip(squares, powers, strict=True)]
    found = np.ldexp(np.sqrt(np.sum(shares, axis=0)), top)
    return np.where(broken, np.inf, found)


def _normal(values: Array, farthest: float) -> tuple[Array, NDArray[np.int64], Marks]:
    """Rows over a power of two that makes their peak about 1, the power, and which of them are broken."""
    peaks = np.abs(values).max(axis=2, initial=0.0)
    # NaN is not below anything.
    broken = ~(peaks < farthest)
    peaks[broken] = 0.0
    powers = np.where(peaks > 0, np.frexp(peaks)[1], NOTHING).astype(np.int64)
    kept = np.where((peaks > 0)[..., None], values, 0.0)
    return np.ldexp(kept, np.where(peaks > 0, -powers, 0)[..., None]), powers, broken
