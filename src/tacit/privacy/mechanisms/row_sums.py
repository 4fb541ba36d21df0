"""Lengths and sums of rows, one row after the other: the bits of a row depend on that row alone.

Library kernels choose their order of summation by the shape of the whole array, so that one record more
rounds all others anew. Here a row is summed by a loop over its own numbers, and rows are added up with
compensation, so that the sum of millions of clipped rows is off by a few roundings of one.
"""

import math

import numpy as np

from tacit.runtime.arrays import Array
from tacit.runtime.jit import compiled, compiled_sums

# Between these, sums of squares neither overflow nor vanish; other rows are measured by their largest entry.
SMALLEST, LARGEST = 1e-100, 1e100
# The smallest normal number.
TINY = float(np.finfo(np.float64).tiny)


@compiled
def row_lengths(rows: Array, squared: bool, found: Array) -> None:
    """Write the length of each row (rows, coordinates) to `found`, infinite where a row is broken.

    Args:
        rows: The rows.
        squared: L2 lengths if true, L1 lengths otherwise.
        found: One length for each row.

    Guarantee:
        The bits of a length depend on the numbers of its own row alone.
    """
    for place in range(len(rows)):
        row = rows[place]
        length = _length(row, 1.0, squared)
        # Written so that NaN is measured again too.
        if not (SMALLEST < length < LARGEST):
            peak = TINY
            for number in range(len(row)):
                peak = max(peak, abs(row[number]))
            length = _length(row, peak, squared) * peak
            for number in range(len(row)):
                if not math.isfinite(row[number]):
                    length = math.inf
        found[place] = length if math.isfinite(length) else math.inf


@compiled_sums
def _length(row: Array, unit: float, squared: bool) -> float:
    """The length of one row, in multiples of `unit`."""
    total = 0.0
    if squared:
        for number in range(len(row)):
            total += (row[number] / unit) * (row[number] / unit)
        return math.sqrt(total)
    for number in range(len(row)):
        total += abs(row[number] / unit)
    return total


@compiled
def add_rows(rows: Array, factors: Array, sums: Array) -> None:
    """Write the sum over rows (sites, records, coordinates), each times its factor, to `sums`.

    A row whose factor is 0 is passed over, however broken it is.

    Args:
        rows: Rows to add up.
        factors: One for each row (sites, records).
        sums: The sums (sites, coordinates).

    Guarantee:
        A sum is off by at most two roundings of itself and of the sum of lengths over 2^53 (Neumaier 1974).
    """
    lost = np.empty(rows.shape[2])
    for site in range(len(rows)):
        total = sums[site]
        total[:] = 0.0
        lost[:] = 0.0
        for record in range(rows.shape[1]):
            if factors[site, record] != 0.0:
                add_exactly(rows[site, record], factors[site, record], total, lost)
        for place in range(len(total)):
            total[place] += lost[place]


@compiled
def add_exactly(row: Array, factor: float, total: Array, lost: Array) -> None:
    """Add a row times its factor to `total`, and the roundings of these additions to `lost`."""
    for place in range(len(total)):
        added = row[place] * factor
        before = total[place]
        after = before + added
        shifted = after - before
        # Exact for doubles (Knuth's two-sum), whichever of the two is larger.
        lost[place] += (before - (after - shifted)) + (added - shifted)
        total[place] = after
