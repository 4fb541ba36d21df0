"""The networks of an agent forwards and backwards, compiled; the arithmetic that `kernels` is made of.

One network at a time: `sizes` are its widths from inputs to outputs, `weights` are its own, layer by layer.
"""

import numpy as np
from numpy.typing import NDArray

from tacit.runtime.jit import compiled, compiled_fast

Floats = NDArray[np.float32]
Whole = NDArray[np.int64]
ONE = np.float32(1.0)
# For up to so many rows a plain loop is faster than a library that first rearranges the matrix.
FEW = 8
# tanh(x) as x p(x^2) / q(x^2), fitted to |x| <= 8 for the least relative error: 2e-8 before rounding.
FAR = np.float32(8.0)
P0, P1, P2 = np.float32(0.99999998107708), np.float32(0.12979221758233), np.float32(2.9858601712755e-3)
P3, P4, P5 = np.float32(9.8786440079578e-6), np.float32(-1.4704171417175e-8), np.float32(2.350847837853e-11)
Q1, Q2, Q3 = np.float32(0.46312537797121), np.float32(0.024027917353538), np.float32(2.3720299127504e-4)


@compiled
def activation_buffer(sizes: Whole, rows: int) -> Floats:
    """What `act` and `predict_values` work in, for up to so many rows."""
    return np.empty(rows * _width(sizes, len(sizes)), np.float32)


@compiled
def forward(weights: Floats, sizes: Whole, inputs: Floats, work: Floats) -> Floats:
    """What one network makes of its inputs; what every layer made of them stays in `work`."""
    before, last = inputs, len(sizes) - 1
    for layer in range(1, last + 1):
        after = block(work, sizes, layer, len(inputs))
        matrix, intercepts = layer_of(weights, sizes, layer)
        if len(inputs) > FEW:
            np.dot(before, matrix.T, after)
        else:
            _product(before, matrix, after)
        if layer < last:
            _squash(after, intercepts)
        else:
            _shift(after, intercepts)
        before = after
    return before


@compiled
def backward(
    weights: Floats, sizes: Whole, inputs: Floats, work: Floats, deltas: Floats, slopes: Floats
) -> None:
    """From what the loss makes of a network's outputs, in the last block of `deltas`, to its gradient."""
    rows = len(inputs)
    for layer in range(len(sizes) - 1, 0, -1):
        here = block(deltas, sizes, layer, rows)
        below = block(work, sizes, layer - 1, rows) if layer > 1 else inputs
        matrix, intercepts = layer_of(slopes, sizes, layer)
        np.dot(here.T, below, matrix)
        _column_sums(here, intercepts)
        if layer > 1:
            under = block(deltas, sizes, layer - 1, rows)
            np.dot(here, layer_of(weights, sizes, layer)[0], under)
            _unsquash(under, below)


@compiled
def critic_sizes(sizes: Whole) -> Whole:
    """How wide the critic is."""
    widths = sizes.copy()
    widths[-1] = 1
    return widths


@compiled
def weight_offset(sizes: Whole, layers: int) -> int:
    """How many weights come before a layer."""
    count = 0
    for layer in range(1, layers):
        count += (sizes[layer - 1] + 1) * sizes[layer]
    return count


@compiled
def _width(sizes: Whole, layers: int) -> int:
    width = 0
    for layer in range(1, layers):
        width += sizes[layer]
    return width


@compiled
def layer_of(weights: Floats, sizes: Whole, layer: int) -> tuple[Floats, Floats]:
    """The matrix and the intercepts of a layer of one network."""
    at, inputs, outputs = weight_offset(sizes, layer), sizes[layer - 1], sizes[layer]
    middle = at + inputs * outputs
    return weights[at:middle].reshape(outputs, inputs), weights[middle : middle + outputs]


@compiled
def block(work: Floats, sizes: Whole, layer: int, rows: int) -> Floats:
    """Where what comes out of a layer is, for so many rows."""
    start = rows * _width(sizes, layer)
    return work[start : start + rows * sizes[layer]].reshape(rows, sizes[layer])


@compiled_fast
def _product(before: Floats, matrix: Floats, after: Floats) -> None:
    for row in range(before.shape[0]):
        for output in range(matrix.shape[0]):
            total = np.float32(0)
            for column in range(matrix.shape[1]):
                total += before[row, column] * matrix[output, column]
            after[row, output] = total


@compiled_fast
def _squash(values: Floats, intercepts: Floats) -> None:
    rows, columns = values.shape
    for row in range(rows):
        for column in range(columns):
            x = min(max(values[row, column] + intercepts[column], -FAR), FAR)
            u = x * x
            above = ((((P5 * u + P4) * u + P3) * u + P2) * u + P1) * u + P0
            values[row, column] = x * above / (((Q3 * u + Q2) * u + Q1) * u + ONE)


@compiled_fast
def _unsquash(deltas: Floats, values: Floats) -> None:
    rows, columns = deltas.shape
    for row in range(rows):
        for column in range(columns):
            deltas[row, column] *= ONE - values[row, column] * values[row, column]


@compiled_fast
def _shift(values: Floats, intercepts: Floats) -> None:
    rows, columns = values.shape
    for row in range(rows):
        for column in range(columns):
            values[row, column] += intercepts[column]


@compiled_fast
def _column_sums(values: Floats, sums: Floats) -> None:
    sums[:] = 0
    for row in range(values.shape[0]):
        for column in range(values.shape[1]):
            sums[column] += values[row, column]
