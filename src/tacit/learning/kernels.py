"""Kernels of layers: products, and norms and sums of per-record gradients that are not written out.

They are compiled: a whole cohort in one call, where numpy would need ten.

Networks at sites are small: what a call of numpy costs before it does anything is more than what it does. So
each function here goes through all sites by itself. What comes of a record depends, to the bit, on that
record and the weights alone: BLAS takes another kernel for another number of rows, so its products are taken
in blocks of one shape, the last one filled up with zeros, where `position_independent` shows that a row gets
the same bits at every place of a block, and by loops over rows elsewhere. Callers look at shapes.

A gradient is an outer product, and the length of one record's, or of one unit's, depends to the bit on its
own numbers alone; sums of them are rounded by a bound that `tacit.privacy.mechanisms.base` states. A clipped
gradient is as short as promised only if its length is right. Squares are fast, and right for all numbers that
training meets. Of others they vanish, while what they are multiplied by is large, or overflow, and a length
of 0 would let a gradient out as it is. Such units are measured again, scaled by powers of two.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.contracts import Norm
from tacit.privacy.mechanisms.clip import add_exactly
from tacit.runtime.arrays import Array
from tacit.runtime.jit import compiled, compiled_sums, contiguous

# Bound of the rounding error of a sum that is 0, as a part of the largest one.
ROUNDING = 1e-13
# Rows of a product. Measured with layers of 10 to 512 numbers: blocks of 8 are a tenth slower, of 32 hardly
# faster, and small batches would be filled up with more zeros.
BLOCK = 16


@compiled
def layer_forward(
    inputs: Array, weights: Array, start: int, bias: bool, rectified: bool, blocks: bool, made: Array
) -> None:
    """Apply a layer to its inputs (sites, records, inputs), with the weights that begin at `start`.

    Args:
        inputs: Inputs of the layer.
        weights: All weights of each site (sites, coordinates).
        start: First coordinate of this layer.
        bias: Whether biases come behind them.
        rectified: Whether what is below zero becomes zero.
        blocks: Whether BLAS may be used (`position_independent`).
        made: Output for the result (sites, records, outputs).
    """
    sites, _, wide = made.shape
    middle = start + wide * inputs.shape[2]
    for site in range(sites):
        own, here = weights[site], made[site]
        matrix = own[start:middle].reshape(wide, inputs.shape[2])
        if blocks:
            _by_blocks(inputs[site], matrix.T, here)
        else:
            _by_rows(inputs[site], np.ascontiguousarray(matrix.T), here)
        _shift(here, own[middle : middle + wide], bias, rectified)


@compiled
def _by_blocks(rows: Array, matrix: Array, made: Array) -> None:
    """Multiply rows by a matrix, `BLOCK` rows at a time; the last ones are filled up with zeros."""
    whole = len(rows) - len(rows) % BLOCK
    for first in range(0, whole, BLOCK):
        np.dot(rows[first : first + BLOCK], matrix, made[first : first + BLOCK])
    left = len(rows) - whole
    if left:
        entering, leaving = np.zeros((BLOCK, rows.shape[1])), np.empty((BLOCK, made.shape[1]))
        entering[:left] = rows[whole:]
        np.dot(entering, matrix, leaving)
        made[whole:] = leaving[:left]


@compiled
def _by_rows(rows: Array, matrix: Array, made: Array) -> None:
    """Multiply rows by a matrix, row by row, inputs in their order."""
    for record in range(len(rows)):
        row, total = rows[record], made[record]
        total[:] = 0.0
        for place in range(len(row)):
            value, column = row[place], matrix[place]
            for output in range(len(total)):
                total[output] += value * column[output]


def multiply_rows(rows: Array, matrix: Array) -> Array:
    """Rows (records, inputs) times a matrix (inputs, outputs); the bits of each row are its own."""
    made = np.empty((len(rows), matrix.shape[1]))
    _by_rows(contiguous(rows), contiguous(matrix), made)
    return made


@lru_cache(maxsize=256)
def position_independent(inputs: int, outputs: int) -> bool:
    """Return True if BLAS gives a row the same bits at every place of a block, forwards and backwards.

    That is a property of its kernels on this processor, not a law. It is tried on rows of all sizes, shifted
    through all places, beside zeros and beside NaN and infinity; the rows are public and always the same.
    """
    draws = np.random.default_rng(7)
    weights = draws.normal(size=(1, inputs * outputs)) * np.exp2(draws.integers(-20, 20, inputs * outputs))
    return _steady(inputs, outputs, weights, forwards=True, draws=draws) and _steady(
        outputs, inputs, weights, forwards=False, draws=draws
    )


def _steady(inputs: int, outputs: int, weights: Array, *, forwards: bool, draws: np.random.Generator) -> bool:
    rows = draws.normal(size=(BLOCK, inputs)) * np.exp2(draws.integers(-20, 20, (BLOCK, inputs)))

    def product(block: Array) -> Array:
        made = np.empty((1, BLOCK, outputs))
        if forwards:
            layer_forward(block[None], weights, 0, False, False, True, made)
        else:
            # Without a rectifier the layer's inputs are not used.
            layer_backward(block[None], weights, 0, np.empty((1, BLOCK, outputs)), False, True, made)
        return made[0]

    known = product(rows)
    for shift in range(BLOCK):
        if product(np.roll(rows, shift, axis=0)).tobytes() != np.roll(known, shift, axis=0).tobytes():
            return False
    for beside in (0.0, np.nan, np.inf):
        alone = np.full_like(rows, beside)
        alone[BLOCK // 2] = rows[BLOCK // 2]
        if product(alone)[BLOCK // 2].tobytes() != known[BLOCK // 2].tobytes():
            return False
    return True


@compiled
def _shift(made: Array, biases: Array, bias: bool, rectified: bool) -> None:
    """Add biases to rows, if there are any, and rectify on request; NaN stays NaN.

    Both in one go, as most layers have it.
    """
    for record in range(len(made)):
        row = made[record]
        if bias and rectified:
            for place in range(len(row)):
                shifted = row[place] + biases[place]
                row[place] = 0.0 if shifted < 0.0 else shifted
        elif bias:
            for place in range(len(row)):
                row[place] += biases[place]
        elif rectified:
            for place in range(len(row)):
                row[place] = 0.0 if row[place] < 0.0 else row[place]


@compiled
def layer_backward(
    back: Array, weights: Array, start: int, entered: Array, rectified: bool, blocks: bool, under: Array
) -> None:
    """Compute the gradient with respect to a layer's inputs from that of its outputs.

    Args:
        back: The gradient in what was made (sites, records, outputs).
        weights: All weights of each site (sites, coordinates).
        start: First coordinate of this layer.
        entered: Inputs of the layer (sites, records, inputs).
        rectified: Whether that was rectified: then there is no slope where it is zero.
        blocks: Whether BLAS may be used (`position_independent`).
        under: Output for the result (sites, records, inputs).
    """
    sites, records, wide = under.shape
    outputs = back.shape[2]
    for site in range(sites):
        own, here, entering = weights[site], under[site], entered[site]
        matrix = own[start : start + outputs * wide].reshape(outputs, wide)
        if blocks:
            _by_blocks(back[site], matrix, here)
        else:
            _by_rows(back[site], matrix, here)
        if rectified:
            for record in range(records):
                row, below = here[record], entering[record]
                for place in range(wide):
                    # A product, so that infinity does not vanish silently.
                    row[place] *= 1.0 if below[place] > 0.0 else 0.0


@compiled
def adam(weights: Array, gradient: Array, means: Array, squares: Array, lr: float, taken: int) -> None:
    """Make one step of Adam (Kingma and Ba 2015), separately for each site.

    Args:
        weights: Weights to update (sites, coordinates).
        gradient: Against what.
        means: Their running means, from zero on; changed.
        squares: Those of their squares; changed.
        lr: Learning rate.
        taken: Number of steps, this one included.
    """
    root = math.sqrt(1 - 0.999**taken)
    least, whole = 1e-8 * root, root / (1 - 0.9**taken)
    for site in range(len(gradient)):
        slopes, mean, square, moved = gradient[site], means[site], squares[site], weights[site]
        largest = 0.0
        for place in range(len(slopes)):
            largest = max(largest, abs(slopes[place]))
        for place in range(len(slopes)):
            # Where a gradient cancels, rounding errors are left, which Adam would scale up to full steps.
            slope = 0.0 if abs(slopes[place]) < ROUNDING * largest else slopes[place]
            mean[place] = mean[place] * 0.9 + 0.1 * slope
            square[place] = square[place] * 0.999 + slope * slope * 0.001
            moved[place] -= mean[place] / (math.sqrt(square[place]) + least) * whole * lr


Marks = NDArray[np.bool_]
Integers = NDArray[np.int64]

# Bound of the rounding error of a sum whose parts cancel, as a share of the parts; generous.
HIDDEN = 1e-7
# Number of records whose products BLAS adds up at a time; a sum over one of these is rounded as often.
ADDED = 256


@compiled_sums
def _dot(one: Array, other: Array) -> float:
    """Return the inner product of two rows, in an order that their length alone decides."""
    total = 0.0
    for place in range(len(one)):
        total += one[place] * other[place]
    return total


@compiled
def squares(entered: Array, back: Array, bias: bool, most: float, found: Array, unsure: Marks) -> None:
    """Add the squared lengths of single records' gradients in a layer to `found` (sites, records).

    Records for which one of the two factors is not below `most` are marked in `unsure`.
    """
    for site in range(len(found)):
        for record in range(found.shape[1]):
            first = _dot(entered[site, record], entered[site, record])
            second = _dot(back[site, record], back[site, record])
            if bias:
                first += 1.0
            # Written so that NaN is marked.
            if not (first < most and second < most):
                unsure[site, record] = True
            found[site, record] += first * second


@compiled
def group_squares(entered: Array, back: Array, bias: bool, most: float, found: Array, unsure: Marks) -> None:
    """Add the squared lengths of sums over members to `found` (sites, units): their Gram matrices multiply.

    Members that nearly cancel leave little but rounding. A small part of what they would add up to otherwise
    is added to the length, so that it is never too small. A member of zeros changes nothing, to the bit, and
    one by itself cancels nothing: otherwise one record would move groups that it is not in.

    Args:
        entered: Inputs of the layer (sites, units x members, inputs).
        back: The gradient in what was made of it (sites, units x members, outputs).
        bias: Whether there are biases.
        most: Units with a member one of whose factors is not below this are marked.
        found: Squared lengths so far.
        unsure: Marks (sites, units).
    """
    sites, units = found.shape
    members = entered.shape[1] // max(units, 1)
    for site in range(sites):
        for unit in range(units):
            ins = entered[site, unit * members : (unit + 1) * members]
            backs = back[site, unit * members : (unit + 1) * members]
            total, summed, largest = 0.0, 0.0, 0.0
            for one in range(members):
                first, second = _dot(ins[one], ins[one]), _dot(backs[one], backs[one])
                if bias:
                    first += 1.0
                if not (first < most and second < most):
                    unsure[site, unit] = True
                size = math.sqrt(first * second)
                summed += size
                largest = max(largest, size)
                total += first * second
                for other in range(one):
                    alike = _dot(ins[one], ins[other])
                    if bias:
                        alike += 1.0
                    total += 2.0 * alike * _dot(backs[one], backs[other])
            hidden = HIDDEN * (summed - largest)
            found[site, unit] += max(total, 0.0) + hidden * hidden


@compiled
def group_sums(entered: Array, back: Array, bias: bool, farthest: float, found: Array) -> None:
    """Add the L1 lengths of sums over members to `found` (sites, units).

    Those of an outer product multiply; sums of several need writing out, unit by unit.

    Args:
        entered: Inputs of the layer (sites, units x members, inputs).
        back: The gradient in what was made of it (sites, units x members, outputs).
        bias: Whether there are biases.
        farthest: Norm of the inputs beyond which they count as broken.
        found: Lengths so far.
    """
    sites, units = found.shape
    members = entered.shape[1] // max(units, 1)
    written = np.empty((back.shape[2], entered.shape[2] + 1))
    for site in range(sites):
        for unit in range(units):
            first = unit * members
            ins, backs = entered[site, first : first + members], back[site, first : first + members]
            summed, largest = 0.0, 0.0
            for one in range(members):
                size = _sizes(ins[one]) + (1.0 if bias else 0.0)
                size = (math.inf if size > farthest else size) * _sizes(backs[one])
                summed += size
                largest = max(largest, size)
            # A single record cancels nothing. NaN is not equal.
            if summed == largest:
                found[site, unit] += summed
            else:
                _write(ins, backs, bias, 1.0, written)
                found[site, unit] += _sizes(written.reshape(-1)) + HIDDEN * (summed - largest)


@compiled_sums
def _sizes(row: Array) -> float:
    """Return the sum of absolute values of a row, in an order that its length alone decides."""
    total = 0.0
    for place in range(len(row)):
        total += abs(row[place])
    return total


@compiled
def _write(entered: Array, back: Array, bias: bool, factor: float, written: Array) -> None:
    """Write out the gradient of one unit, member after member: weights, then biases as last column.

    Args:
        entered: Inputs of the layer (members, inputs).
        back: Gradient with respect to its outputs (members, outputs).
        bias: Whether there are biases.
        factor: Factor of the gradient.
        written: Output for the result (outputs, inputs + 1).
    """
    wide = entered.shape[1]
    written[:] = 0.0
    for member in range(len(entered)):
        for output in range(back.shape[1]):
            signal, row, entering = back[member, output] * factor, written[output], entered[member]
            for place in range(wide):
                row[place] += signal * entering[place]
            if bias:
                row[wide] += signal


@compiled
def add_up(
    entered: Array, back: Array, factors: Array, counts: Integers, start: int, bias: bool, sums: Array
) -> None:
    """Write the sums of a layer's per-record gradients, each times its factor (sites, records), to `sums`.

    A site's sum is formed of its own records alone, independent of other sites: `ADDED` at a time by BLAS,
    these parts with compensation.

    Args:
        entered: Inputs of the layer (sites, records, inputs).
        back: The gradient with respect to its outputs (sites, records, outputs).
        factors: One for each record.
        counts: Number of records of each site; those behind are zeros.
        start: First coordinate of this layer.
        bias: Whether biases follow its weights.
        sums: The result (sites, coordinates).
    """
    sites, records, inputs = entered.shape
    outputs = back.shape[2]
    middle = start + outputs * inputs
    end = middle + (outputs if bias else 0)
    scaled, part = np.empty(outputs * min(records, ADDED)), np.empty(outputs * (inputs + 1))
    lost = np.empty(outputs * (inputs + 1))
    for site in range(sites):
        own = sums[site, start:end]
        own[:] = 0.0
        lost[:] = 0.0
        for first in range(0, counts[site], ADDED):
            last = min(first + ADDED, counts[site])
            rows = scaled[: outputs * (last - first)].reshape(outputs, last - first)
            for output in range(outputs):
                row, total = rows[output], 0.0
                for record in range(first, last):
                    row[record - first] = back[site, record, output] * factors[site, record]
                    total += row[record - first]
                part[outputs * inputs + output] = total
            if inputs:
                product = part[: outputs * inputs].reshape(outputs, inputs)
                np.dot(rows, entered[site, first:last], product)
            if counts[site] <= ADDED:
                own[:] = part[: len(own)]
            else:
                add_exactly(part[: len(own)], 1.0, own, lost)
        for place in range(len(own)):
            own[place] += lost[place]


@compiled
def add_groups(entered: Array, back: Array, factors: Array, start: int, bias: bool, sums: Array) -> None:
    """Write the sums over units of a layer's gradients, each times its factor (sites, units), to `sums`.

    The gradient of a unit is written out by itself, so that its bits are its own however its members cancel,
    and added with compensation. A unit of factor 0 is passed over.

    Args:
        entered: Inputs of the layer (sites, units x members, inputs).
        back: The gradient in what was made of it (sites, units x members, outputs).
        factors: One for each unit.
        start: First coordinate of this layer.
        bias: Whether biases come behind its weights.
        sums: Output for the result (sites, coordinates).
    """
    sites, units = factors.shape
    members, inputs, outputs = entered.shape[1] // max(units, 1), entered.shape[2], back.shape[2]
    middle = start + outputs * inputs
    written, lost = np.empty((outputs, inputs + 1)), np.empty((outputs, inputs + 1))
    for site in range(sites):
        total = np.zeros((outputs, inputs + 1))
        lost[:] = 0.0
        for unit in range(units):
            if factors[site, unit] != 0.0:
                first, last = unit * members, (unit + 1) * members
                _write(entered[site, first:last], back[site, first:last], bias, factors[site, unit], written)
                add_exactly(written.reshape(-1), 1.0, total.reshape(-1), lost.reshape(-1))
        total += lost
        sums[site, start:middle] = total[:, :inputs].copy().reshape(-1)
        if bias:
            sums[site, middle : middle + outputs] = total[:, inputs]


# A layer: inputs (..., members, inputs), gradients of outputs (..., members, outputs), whether it has biases.
Part = tuple[Array, Array, bool]

# Sums of squares below this lose less than 1e-240 where numbers vanish, and their products too: lengths lack
# less than 1e-100, whatever the number of layers, and no bound is as short as that (`require_bound`).
MOST = 1e60
# Inputs of a layer beyond this are broken: the signal beside them, after clipping, may be so small that it is
# rounded up to a multiple of itself, which would be seen.
FARTHEST = 1e200
# Exponent that stands for zero: below that of any product.
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
    """Compute lengths from squares, and again with scaling where squares overflow or underflow."""
    sites, records = parts[0][0].shape[:2]
    found, unsure = np.zeros((sites, units)), np.zeros((sites, units), dtype=np.bool_)
    for inputs, signals, bias in parts:
        (squares if records == units else group_squares)(
            contiguous(inputs), contiguous(signals), bias, MOST, found, unsure
        )
    np.sqrt(found, out=found)
    if np.count_nonzero(unsure):
        # Unit by unit: an outlier does not change how others are measured.
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
    """Return the lengths of some units (units,), from parts (units, members, numbers) of any size.

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
