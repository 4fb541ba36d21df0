"""The arithmetic of layers, compiled: a whole cohort in one call, where numpy would need ten.

Networks at sites are small: what a call of numpy costs before it does anything is more than what it does. So
each function here goes through all sites by itself. What comes of a record depends, to the bit, on that
record and the weights alone: BLAS takes another kernel for another number of rows, so its products are taken
in blocks of one shape, the last one filled up with zeros, where `position_independent` shows that a row gets
the same bits at every place of a block, and by loops over rows elsewhere. Callers look at shapes.
"""

import math
from functools import lru_cache

import numpy as np

from tacit.runtime.arrays import Array
from tacit.runtime.jit import compiled, contiguous

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
