"""Log-rank tests and restricted means from noisy counts, signed as they are, with the noise in the variance.

Counts below 0 are left as they are: cutting them off would move every sum of later cells, and with it the
numbers at risk. A redraw adds new noise of the public law to the table cut off at 0, which looks like the
table of the records; how a statistic varies over redraws is what noise adds to its variance. Redraws read the
released table alone, and cost nothing.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import numpy as np

from tacit.privacy.accounting.release import Release
from tacit.privacy.mechanisms.discrete import discrete_laplace_variance
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key

# Number of redraws.
REDRAWS = 200
# Numbers exposed below this are taken to be this.
FLOOR = 4.0


@dataclass(frozen=True, kw_only=True)
class CellNoise:
    """Public law of the noise in each cell.

    Args:
        law: The law of one noise.
        scale: Its standard deviation (`gaussian`), or its scale.
        times: Number of such noises in each cell; a share of discrete Laplace noise counts as a part of one.
    """

    law: Literal["gaussian", "discrete-laplace"]
    scale: float
    times: float = 1.0

    @classmethod
    def of_variance(cls, variance: float) -> Self:
        """Return Gaussian noise."""
        return cls(law="gaussian", scale=math.sqrt(variance))

    @classmethod
    def of_release(cls, release: Release) -> Self:
        """Return the noise of a charged release."""
        law = "discrete-laplace" if release.law == "discrete-laplace" else "gaussian"
        return cls(law=law, scale=release.scale)

    @property
    def variance(self) -> float:
        """The variance in each cell."""
        return self.times * (
            self.scale**2 if self.law == "gaussian" else discrete_laplace_variance(self.scale)
        )

    def redraw(self, shape: tuple[int, ...]) -> Array:
        """Draw noise of this law anew; always the same, as it protects nothing."""
        generator = (Key(0) / "redraws").generator()
        if self.law == "gaussian":
            return generator.normal(size=shape) * (self.scale * math.sqrt(self.times))
        kept = -math.expm1(-1 / self.scale)
        one, other = (generator.negative_binomial(self.times, kept, shape) for _ in range(2))
        return (one - other).astype(np.float64)


class SignedCounts(NamedTuple):
    """Counts with noise, by group and interval: the last two axes.

    Args:
        events: (..., groups, times).
        censored: (..., groups, times).
        beyond: (..., groups).
        entered: (..., groups, times + 1), with delayed entry.
    """

    events: Array
    censored: Array
    beyond: Array
    entered: Array | None = None

    @property
    def exposed(self) -> Array:
        """Return the number exposed in each interval, by sums of later cells (..., groups, times).

        Who is censored or enters in an interval counts for half of it.
        """
        leaving = self.events + self.censored
        still = _from_the_end(leaving) + self.beyond[..., None] - self.censored / 2
        if self.entered is not None:
            still = still - _from_the_end(self.entered)[..., 1:] - self.entered[..., :-1] / 2
        return np.maximum(still, FLOOR)


def _from_the_end(values: Array) -> Array:
    return np.cumsum(values[..., ::-1], axis=-1)[..., ::-1]


def read_cells(cells: Array, times: int, late: bool) -> SignedCounts:
    """Read cells as they leave the sites (..., groups, cells), summed over causes."""
    entries = times + 1 if late else 0
    left = cells[..., : cells.shape[-1] - entries]
    states = left[..., :-1].reshape(*left.shape[:-1], times, -1)
    entered = cells[..., cells.shape[-1] - entries :] if late else None
    return SignedCounts(states[..., 1:].sum(axis=-1), states[..., 0], left[..., -1], entered)


class LogRankTerms(NamedTuple):
    """Terms of a log-rank test.

    Args:
        observed: Events of each group (..., groups).
        lead: Observed less expected events (..., groups).
        covariance: That of the lead under equal hazards (..., groups, groups).
    """

    observed: Array
    lead: Array
    covariance: Array


def logrank_of(counts: SignedCounts) -> LogRankTerms:
    """Compute the terms of a log-rank test; the covariance is hypergeometric (Mantel 1966)."""
    exposed = counts.exposed
    events, everybody = counts.events.sum(axis=-2), exposed.sum(axis=-2)
    shares = exposed / everybody[..., None, :]
    lead = (counts.events - shares * events[..., None, :]).sum(axis=-1)
    # A negative number of events has no variance.
    happened = np.clip(events, 0.0, everybody)
    weights = happened * (everybody - happened) / np.maximum(everybody - 1, 1.0)
    weighed = shares * weights[..., None, :]
    between = weighed @ np.swapaxes(shares, -1, -2)
    own = np.eye(shares.shape[-2]) * weighed.sum(axis=-1)[..., None, :]
    return LogRankTerms(counts.events.sum(axis=-1), lead, own - between)


@dataclass(frozen=True, eq=False)
class SignedTable:
    """Counts as they left the sites, with the law of their noise.

    Args:
        cells: Blocks of groups that are compared (blocks, groups, cells).
        times: Number of intervals.
        late: Whether counts of entries follow those of exits.
        noise: The noise in each cell.
    """

    cells: Array
    times: int
    late: bool
    noise: CellNoise

    def logrank_terms(self) -> tuple[Array, Array, Array]:
        """Return events observed and expected under equal hazards (groups,), and covariance (groups, groups).

        Summed over blocks, which are strata.
        """
        found = logrank_of(read_cells(self.cells, self.times, self.late))
        leads = logrank_of(read_cells(self._redraws(), self.times, self.late)).lead.sum(axis=1)
        spread = leads - leads.mean(axis=0)
        covariance = found.covariance.sum(axis=0) + spread.T @ spread / (REDRAWS - 1)
        observed = found.observed.sum(axis=0)
        return observed, observed - found.lead.sum(axis=0), covariance

    def restricted_means(self, weights: Array) -> tuple[Array, Array]:
        """Return restricted means and their variances, of sampling and noise, of each group (groups,).

        Args:
            weights: The weight of each value of a curve, from time 0 on (1 + times,).
        """
        area, variance = restricted_mean_of(read_cells(self.cells[0], self.times, self.late), weights)
        again, _ = restricted_mean_of(read_cells(self._redraws()[:, 0], self.times, self.late), weights)
        return area, variance + again.var(axis=0, ddof=1)

    def _redraws(self) -> Array:
        """Add new noise to the table cut off at 0, many times (redraws, blocks, groups, cells)."""
        return np.maximum(self.cells, 0.0) + self.noise.redraw((REDRAWS, *self.cells.shape))


def restricted_mean_of(counts: SignedCounts, weights: Array) -> tuple[Array, Array]:
    """Return the area under each group's curve, and the variance of sampling (..., groups).

    Args:
        counts: Signed counts.
        weights: The weight of each value of a curve, from time 0 on (1 + times,).
    """
    exposed = counts.exposed
    # Noise may make events negative; hazards below -1 would let a curve explode.
    hazard = np.clip(counts.events / exposed, -1.0, 1.0)
    curve = np.cumprod(1 - hazard, axis=-1)
    pieces = weights[1:] * curve
    area = weights[0] + pieces.sum(axis=-1)
    # The area behind each time: the effect of one event less at that time, in shares of those at risk.
    behind, events = _from_the_end(pieces), np.clip(counts.events, 0.0, exposed)
    variance = (behind**2 * events / (exposed * np.maximum(exposed - events, 1.0))).sum(axis=-1)
    return area, variance
