"""What one record says about hazards that are constant within intervals, as a vector of length 1 at most.

This is the site's half of a private Cox regression. A record has three regressors: a constant, a public
function of time, and its features; its vector holds its part of the score in them, and of the information.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.learning.elementwise import exp
from tacit.learning.kernels import multiply_rows
from tacit.sites.table import Table

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# How long the constant and the function of time are beside features of length 1.
CONSTANT = 1 / 3
# How many events are to be expected of a record, at most, while it is followed.
LIMIT = 1.0
# The longest regressor, squared: features of length 1, a constant, and a function of time between -1 and 1.
LONGEST = 1 + 2 * CONSTANT**2
# Log hazards beyond this are no longer told apart: nobody is followed any longer.
LARGEST = 30.0
# So many records are written out at once.
WIDTH = 4096


@dataclass(frozen=True, eq=False)
class FollowUp:
    """How long each record was in each interval, and where its event was.

    Args:
        features: Of length 1 at most (records, columns).
        shares: The share of each interval that a record was at risk for (records, intervals).
        own: The interval of its event; one beyond the last if there was none (records,).
    """

    features: Array
    shares: Array
    own: Integers

    def __len__(self) -> int:
        return len(self.own)

    def chunk(self, start: int) -> "FollowUp":
        """The records from there on, a few of them."""
        rows = slice(start, start + WIDTH)
        return FollowUp(self.features[rows], self.shares[rows], self.own[rows])


def follow_up(table: Table, grid: Array, features: Array) -> FollowUp:
    """The records of a table over these intervals."""
    time, event = table.targets["time"][:, None], table.targets["event"] == 1
    entry = table.targets.get("entry", np.zeros(len(time)))[:, None]
    starts = np.append(0.0, grid[:-1])
    # Cut off before it is divided, so that no time is too large.
    lived = np.clip(time, starts, grid) - np.clip(entry, starts, grid)
    own = np.searchsorted(grid, time[:, 0], side="left")
    return FollowUp(features, lived / (grid - starts), np.where(event, own, len(grid)).astype(np.int64))


def vector_size(columns: int) -> int:
    """The length of a record's vector: a score and the upper half of a matrix."""
    regressors = columns + 2
    return regressors + regressors * (regressors + 1) // 2


def largest_norm() -> float:
    """How long score and information together can be, before they are divided by it.

    With m events expected and d seen, the score is at its longest for m = 0 or m = `LIMIT`, as its square is
    convex in m: `LONGEST` for d + m = 1, and 4 `CONSTANT`^2, which is less, for d = m = 1. The information is
    m `LONGEST` long at most, and weighed to be as long as the score.
    """
    return float(np.sqrt(2 * LONGEST))


def record_vectors(records: FollowUp, level: Array, trend: Array, slopes: Array) -> Array:
    """What each record gives (records, `vector_size` of the columns).

    Args:
        records: Some of a site's records.
        level: The log of the events expected of a record with features 0 in each interval (intervals,).
        trend: The function of time, between -1 and 1 (intervals,).
        slopes: The coefficients of the features (columns,).

    Guarantee:
        Each row has length 1 at most, and its bits depend on one record alone: whether an event is still seen
        is decided by a comparison, which another rounding would turn over.
    """
    rates = exp(np.minimum(level + multiply_rows(records.features, slopes[:, None]), LARGEST))
    expected = records.shares * rates
    before = np.cumsum(expected, axis=1) - expected
    # Followed until `LIMIT` events were to be expected; an event after that is not seen.
    expected = np.clip(LIMIT - before, 0.0, expected)
    seen = (records.own[:, None] == np.arange(len(level))) & (before + records.shares * rates <= LIMIT)
    left = seen - expected
    moments = multiply_rows(expected, np.stack([np.ones_like(trend), trend, trend**2], axis=1))
    score = [CONSTANT * left.sum(axis=1), CONSTANT * multiply_rows(left, trend[:, None])[:, 0]]
    rows = np.column_stack([*score, records.features * left.sum(axis=1)[:, None], _squares(records, moments)])
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    # They are within it already, but for rounding.
    return rows / np.maximum(length * (1 + 1e-12), largest_norm())


def _squares(records: FollowUp, moments: Array) -> Array:
    """The upper half of each record's information, as long as the matrix, over the longest regressor."""
    columns = records.features.shape[1]
    plain = np.column_stack(
        [np.full(len(records), CONSTANT), np.full(len(records), CONSTANT), records.features]
    )
    rows, others = np.triu_indices(columns + 2)
    # The function of time is in an entry as often as the second regressor is.
    often = (rows == 1).astype(np.int64) + (others == 1)
    weights = np.where(rows == others, 1.0, np.sqrt(2.0)) / np.sqrt(LONGEST)
    return plain[:, rows] * plain[:, others] * moments[:, often] * weights
