"""The arithmetic of layers, compiled: a whole cohort in one call, where numpy would need ten.

Networks at sites are small: what a call of numpy costs before it does anything is more than what it does. So
each function here goes through all sites by itself, with the products of matrices left to BLAS. What comes of
a site's own rows is the same, bit for bit, whoever works beside it; shapes are looked at by those who call.
"""

import math

import numpy as np
from numpy.typing import NDArray

from tacit.compiled import compiled, compiled_sums

Array = NDArray[np.float64]

# What rounding may leave of a sum that is 0, as a part of the largest one.
ROUNDING = 1e-13


@compiled
def spread(inputs: Array, weights: Array, start: int, bias: bool, rectified: bool, made: Array) -> None:
    """What a layer makes of its inputs (sites, records, inputs), with the weights that begin at `start`.

    Args:
        inputs: What goes in.
        weights: All weights of each site (sites, coordinates).
        start: Where those of this layer begin.
        bias: Whether biases come behind them.
        rectified: Whether what is below zero becomes zero.
        made: Where the result goes (sites, records, outputs).
    """
    sites, records, wide = made.shape
    middle = start + wide * inputs.shape[2]
    for site in range(sites):
        own, here = weights[site], made[site]
        if records:
            np.dot(inputs[site], own[start:middle].reshape(wide, inputs.shape[2]).T, here)
        _shift(here, own[middle : middle + wide], bias, rectified)


@compiled
def _shift(made: Array, biases: Array, bias: bool, rectified: bool) -> None:
    """Add biases to rows, if there are any, and rectify, if that is asked for: what is no number stays none.

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
def gather(back: Array, weights: Array, start: int, entered: Array, rectified: bool, under: Array) -> None:
    """The gradient in what entered a layer, from that in what it made of it.

    Args:
        back: The gradient in what was made (sites, records, outputs).
        weights: All weights of each site (sites, coordinates).
        start: Where those of this layer begin.
        entered: What went in (sites, records, inputs).
        rectified: Whether that was rectified: then there is no slope where it is zero.
        under: Where the result goes (sites, records, inputs).
    """
    sites, records, wide = under.shape
    outputs = back.shape[2]
    for site in range(sites):
        own, here, entering = weights[site], under[site], entered[site]
        if records:
            np.dot(back[site], own[start : start + outputs * wide].reshape(outputs, wide), here)
        if rectified:
            for record in range(records):
                row, below = here[record], entering[record]
                for place in range(wide):
                    # A product, so that what is infinite does not vanish unseen.
                    row[place] *= 1.0 if below[place] > 0.0 else 0.0


@compiled_sums
def squares(entered: Array, back: Array, bias: bool, most: float, found: Array) -> int:
    """Add the squared lengths of single records' gradients in a layer to `found` (sites, records).

    Returns:
        For how many records one of the two factors is not below `most`.
    """
    unsure = 0
    for site in range(len(found)):
        for record in range(found.shape[1]):
            entering, signals = entered[site, record], back[site, record]
            first, second = 0.0, 0.0
            for place in range(len(entering)):
                first += entering[place] * entering[place]
            for place in range(len(signals)):
                second += signals[place] * signals[place]
            if bias:
                first += 1.0
            # Written so that what is no number is counted.
            if not (first < most and second < most):
                unsure += 1
            found[site, record] += first * second
    return unsure


@compiled
def add_up(entered: Array, back: Array, factors: Array, start: int, bias: bool, sums: Array) -> None:
    """Write the sums over records of a layer's gradients, each times its factor (sites, records), to `sums`.

    Args:
        entered: What went in (sites, records, inputs).
        back: The gradient in what was made of it (sites, records, outputs).
        factors: One for each record.
        start: Where the numbers of this layer begin.
        bias: Whether biases come behind its weights.
        sums: Where the result goes (sites, coordinates).
    """
    sites, records, inputs = entered.shape
    outputs = back.shape[2]
    middle = start + outputs * inputs
    scaled = np.empty((outputs, records))
    for site in range(sites):
        own, signals, shares = sums[site], back[site], factors[site]
        for place in range(outputs):
            row, total = scaled[place], 0.0
            for record in range(records):
                row[record] = signals[record, place] * shares[record]
                total += row[record]
            if bias:
                own[middle + place] = total
        if inputs:
            np.dot(scaled, entered[site], own[start:middle].reshape(outputs, inputs))


@compiled
def adam(weights: Array, gradient: Array, means: Array, squares: Array, lr: float, taken: int) -> None:
    """One step of Adam (Kingma and Ba 2015), for each site by itself.

    Args:
        weights: What is moved (sites, coordinates).
        gradient: Against what.
        means: Their running means, from zero on; changed.
        squares: Those of their squares; changed.
        lr: How far a step goes.
        taken: How many steps that makes.
    """
    root = math.sqrt(1 - 0.999**taken)
    least, whole = 1e-8 * root, root / (1 - 0.9**taken)
    for site in range(len(gradient)):
        slopes, mean, square, moved = gradient[site], means[site], squares[site], weights[site]
        largest = 0.0
        for place in range(len(slopes)):
            largest = max(largest, abs(slopes[place]))
        for place in range(len(slopes)):
            # Where a gradient cancels, rounding is left, whose pace would be that of any other.
            slope = 0.0 if abs(slopes[place]) < ROUNDING * largest else slopes[place]
            mean[place] = mean[place] * 0.9 + 0.1 * slope
            square[place] = square[place] * 0.999 + slope * slope * 0.001
            moved[place] -= mean[place] / (math.sqrt(square[place]) + least) * whole * lr
