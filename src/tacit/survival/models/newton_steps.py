"""Newton's method on noisy sums of bounded record contributions, for proportional hazards.

Hazards are constant within the intervals of a public grid, so the likelihood is a sum over records (the
piecewise exponential form of Cox regression). A record is followed until one event was to be expected of it:
that bounds its residual, hence its part of the score and of the information, whatever the record, the rates
and the coefficients are. To stop there biases nothing where the model holds: d - L is a martingale up to a
time that is known from the past. Nothing is clipped.

A record has regressors f = (LEVEL, features of length at most 1), and the parameters are
(shape of the baseline by interval, level, effects). With L_j the events expected of it in interval j, d_j its
event, and r = sum(d_j - L_j), it contributes

    score         (SHAPE (d_j - L_j) for each interval j, r f)    of length at most SCORE_BOUND
    information   L f f', with L = sum(L_j) at most 1             of length at most INFORMATION_BOUND

with SCORE_BOUND^2 = 2 SHAPE^2 + LEVEL^2 + 1 and INFORMATION_BOUND = LEVEL^2 + 1, since 0 <= L <= 1 and d is 0
or 1: |r| <= 1 and |f|^2 <= LEVEL^2 + 1. Of the (d_j - L_j) the event contributes 1 at most and the rest
sum(L_j^2) <= 1, so their squared length is at most 2.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.learning.elementwise import exp
from tacit.learning.kernels import multiply_rows
from tacit.privacy.contracts import Norm
from tacit.privacy.mechanisms.clip import add_exactly, add_rows, lengths
from tacit.runtime.arrays import Array
from tacit.runtime.jit import contiguous
from tacit.sites.table import Table

Marks = NDArray[np.bool_]

# Weights of level and shape beside features of length 1.
LEVEL, SHAPE = 0.3, 0.15
SCORE_BOUND = float(np.sqrt(2 * SHAPE**2 + LEVEL**2 + 1))
INFORMATION_BOUND = LEVEL**2 + 1
# Expected events up to which a record is followed, and log rates beyond which it is not followed at all.
FOLLOWED, LARGEST = 1.0, 30.0
# Prior deviation of an effect in units of length-1 features, and of the level beside what noise leaves open.
EFFECT, LEVEL_DOUBT = 0.6, 0.25
# Usual size of the mean of a feature over events, in units of length-1 features.
MEAN = 0.2
# A step changes log hazards by at most this (root mean square over expected events).
STRIDE = 1.0
# Eigenvalues of the information below this multiple of the noise's spectral size are raised to it.
FLOOR = 0.5
# Number of records written out at once.
CHUNK = 4096


@dataclass(frozen=True, eq=False)
class FollowUp:
    """Follow-up of records: the share of each interval at risk, and the interval of the event.

    Args:
        features: Of length at most 1 (records, columns).
        shares: The share of each interval that a record was at risk for (records, intervals).
        own: The interval of its event; one beyond the last if there was none (records,).
    """

    features: Array
    shares: Array
    own: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.own)

    def chunk(self, start: int) -> "FollowUp":
        """The records from there on, `CHUNK` of them."""
        rows = slice(start, start + CHUNK)
        return FollowUp(self.features[rows], self.shares[rows], self.own[rows])

    def expect(self, log_rates: Array, followed: float | Array = FOLLOWED) -> tuple[Array, Marks]:
        """Return the events expected in each interval while followed, and where an event was seen.

        Args:
            log_rates: The log of the events expected in a whole interval (records, intervals).
            followed: The number of expected events up to which a record is followed (records, 1).
        """
        return self.expect_at(exp(np.minimum(log_rates, LARGEST)), followed)

    def expect_at(self, rates: Array, followed: float | Array = FOLLOWED) -> tuple[Array, Marks]:
        """Return the same from the events expected in a whole interval (records, intervals)."""
        whole = self.shares * rates
        before = np.zeros_like(whole)
        np.cumsum(whole[:, :-1], axis=1, out=before[:, 1:])
        happened = self.own[:, None] == np.arange(whole.shape[1], dtype=np.int64)
        seen: Marks = happened & (before + whole <= followed)
        return np.clip(followed - before, 0.0, whole), seen


def follow_up(table: Table, ends: Array, features: Array) -> FollowUp:
    """Return the records of a table over the intervals that end at `ends`."""
    time, event = table.targets["time"][:, None], table.targets["event"] > 0
    entry = table.targets.get("entry", np.zeros(len(time)))[:, None]
    starts = np.append(0.0, ends[:-1])
    # Cut off before it is divided, so that no time is too large.
    lived = np.clip(time, starts, ends) - np.clip(entry, starts, ends)
    own = np.searchsorted(ends, time[:, 0], side="left")
    return FollowUp(features, lived / (ends - starts), np.where(event, own, len(ends)).astype(np.int64))


@dataclass(frozen=True, eq=False)
class NewtonPoint:
    """Parameters at which the sites compute their sums.

    Args:
        shape: Shape of the baseline (intervals,).
        effects: Level, then the effects of the features (1 + columns,).
    """

    shape: Array
    effects: Array

    def log_rates(self, log_base: Array, features: Array) -> Array:
        """The log of the events expected in whole intervals (records, intervals)."""
        moved = log_base + SHAPE * self.shape + LEVEL * self.effects[0]
        return moved + multiply_rows(features, self.effects[1:, None])


@dataclass(frozen=True, eq=False)
class BoundedRows:
    """Contributions of a site's records (`tacit.privacy.mechanisms.base.Contributions`).

    Args:
        records: The records.
        log_base: The log of the events expected in each interval of a record without effects (intervals,).
        point: The parameters.
        information: Whether the information follows the score.
        weights: Weights of score and information, whose squares add up to 1.

    Guarantee:
        A contribution has length at most 1: score and information are divided by their bounds, and weighed.
        Its bits depend on that record alone.
    """

    records: FollowUp
    log_base: Array
    point: NewtonPoint
    information: bool
    weights: tuple[float, float]

    def lengths(self, norm: Norm) -> Array:
        """The length of each contribution (1, records)."""
        found = [lengths(self._rows(start)[None], norm=norm)[0] for start in self._starts]
        return np.concatenate([np.zeros(0), *found])[None]

    def total(self, factors: Array | None) -> Array:
        """The sum of the contributions, each times its factor (1, coordinates)."""
        total = np.zeros(vector_size(self.log_base.size, self.point.effects.size, self.information))
        part, lost = np.zeros((1, total.size)), np.zeros_like(total)
        for start in self._starts:
            rows = self._rows(start)
            own = np.ones(len(rows)) if factors is None else factors[0, start : start + len(rows)]
            add_rows(contiguous(rows[None]), contiguous(own[None]), part)
            add_exactly(part[0], 1.0, total, lost)
        return (total + lost)[None]

    @property
    def _starts(self) -> range:
        return range(0, len(self.records), CHUNK)

    def _rows(self, start: int) -> Array:
        """Some of the contributions (records, coordinates)."""
        own = self.records.chunk(start)
        expected, seen = own.expect(self.point.log_rates(self.log_base, own.features))
        left = seen - expected
        regressors = np.column_stack([np.full(len(own), LEVEL), own.features])
        score = np.column_stack([SHAPE * left, sum_columns(left)[:, None] * regressors])
        parts = [self.weights[0] / SCORE_BOUND * score]
        if self.information:
            rows, others = np.triu_indices(regressors.shape[1])
            often = np.where(rows == others, 1.0, np.sqrt(2.0))
            squares = sum_columns(expected)[:, None] * regressors[:, rows] * regressors[:, others] * often
            parts.append(self.weights[1] / INFORMATION_BOUND * squares)
        made = np.column_stack(parts)
        # They are within the bound already, up to rounding.
        return made * (1 - 1e-12)


def sum_columns(rows: Array) -> Array:
    """Sum each row column by column, so that its bits do not depend on other rows."""
    total = np.zeros(len(rows))
    for column in range(rows.shape[1]):
        total = total + rows[:, column]
    return total


def vector_size(intervals: int, regressors: int, information: bool) -> int:
    """Return the length of a record's contribution."""
    return intervals + regressors + (regressors * (regressors + 1) // 2) * information


def decode_information(upper: Array, regressors: int) -> Array:
    """Return the symmetric matrix of a sum of contributions' upper halves."""
    rows, others = np.triu_indices(regressors)
    found = np.zeros((regressors, regressors))
    found[rows, others] = found[others, rows] = upper / np.where(rows == others, 1.0, np.sqrt(2.0))
    return found * INFORMATION_BOUND


@dataclass(frozen=True, eq=False)
class Curvature:
    """The information that a step uses: events expected by interval, and an information matrix.

    Args:
        expected: Events expected in each interval (intervals,).
        matrix: Information of level and effects (regressors, regressors), as it was released.
        noise: The standard deviation of the noise on its diagonal.
    """

    expected: Array
    matrix: Array
    noise: float

    def arrow(self) -> Array:
        """The information of all parameters: an arrow matrix that is positive semidefinite."""
        intervals, regressors = len(self.expected), len(self.matrix)
        events = max(float(self.expected.sum()), 1e-9)
        # The mean regressors of events: features are centered, so that noise must not make them long.
        doubt = self.noise / (np.sqrt(2.0) * LEVEL * events)
        mean = self.matrix[0] / (LEVEL * events) * (MEAN**2 / (MEAN**2 + doubt**2))
        mean[0] = LEVEL
        outer = np.outer(mean, mean)
        values, vectors = np.linalg.eigh(self.matrix - events * outer)
        # Noise must not make a direction look as if nothing were known of it, or less than nothing.
        least = FLOOR * self.noise * np.sqrt(regressors)
        inner = (vectors * np.maximum(values, least)) @ vectors.T
        found = np.zeros((intervals + regressors, intervals + regressors))
        found[:intervals, :intervals] = np.diag(SHAPE**2 * self.expected)
        found[:intervals, intervals:] = SHAPE * np.outer(self.expected, mean)
        found[intervals:, :intervals] = found[:intervals, intervals:].T
        found[intervals:, intervals:] = inner + events * outer
        return found


def posterior(arrow: Array, prior: Array, noisy: Array, variance: float) -> Array:
    """Return the posterior mean of the parameters.

    The noisy score with its point moved back, y = score + H x, is H theta plus an error of variance H + S:
    S = `variance` comes from the noise and H from the records; theta has mean 0 and precision `prior`.

    Args:
        arrow: H (parameters, parameters).
        prior: The precision of each parameter (parameters,).
        noisy: y (parameters,).
        variance: The variance of the noise in each entry of y.
    """
    gain = arrow @ np.linalg.inv(arrow + max(variance, 1e-12) * np.eye(len(arrow)))
    found = np.linalg.solve(gain @ arrow + np.diag(prior), gain @ noisy)
    return np.asarray(found, dtype=np.float64)


def limit_step(step: Array, arrow: Array, events: float) -> Array:
    """A step that changes log hazards by at most `STRIDE`, as a root mean square over expected events."""
    return step * min(1.0, STRIDE / max(step_size(step, arrow, events), 1e-12))


def step_size(step: Array, arrow: Array, events: float) -> float:
    """Return the change of log hazards by a step, as a root mean square over expected events."""
    return float(np.sqrt(max(step @ arrow @ step, 0.0) / max(events, 1.0)))
