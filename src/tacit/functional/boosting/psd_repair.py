"""Evidence about some of the predictors, made possible again: no variance is negative, or below its noise.

Noise is taken off moments on average, so some variances end up near 0 or below, and what is divided by them
explodes. Raising them to a floor moves what is not broken too, the more the more predictors there are. It is
therefore done anew for those that take part, from moments as they came; how high, is for a fit to choose.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.functional.boosting.fission import LEARNT
from tacit.functional.boosting.moments import DebiasedMoments, Moments

Array = NDArray[np.float64]
# Columns without noise are measured in this share of their deviation: next to nothing of them is changed.
EXACT = 1e-3


@dataclass(frozen=True, eq=False)
class RepairedMoments:
    """The evidence about some predictors as it came, and repaired for them alone.

    Args:
        given: As it came, without the other predictors.
        made: What was repaired before, by how high the floor was.
    """

    given: DebiasedMoments
    made: dict[float, DebiasedMoments] = field(default_factory=dict[float, DebiasedMoments])

    def repair(self, multiple: float) -> DebiasedMoments:
        """The evidence with no variance below a multiple of what noise alone would show."""
        if not any(self.given.floors):
            return self.given
        if multiple not in self.made:
            self.made[multiple] = self._repair(multiple)
        return self.made[multiple]

    def _repair(self, multiple: float) -> DebiasedMoments:
        given, floor = self.given, multiple * self._edge
        learnt = [
            replace(moments, xx=spectrum.raise_to(floor * self._wider(moments)))
            for (moments, _), spectrum in zip(given.splits, self._learnt, strict=True)
        ]
        whole = replace(given.whole, xx=self._whole.raise_to(floor))
        return replace(given, whole=whole, splits=list(zip(learnt, self._judges, strict=True)))

    @cached_property
    def _edge(self) -> float:
        """In units of the noise, the largest variance it shows in all predictors together."""
        # That of one grows with the root of its width, and so does that of all with theirs.
        return float(np.sqrt(np.count_nonzero(self.given.floors)))

    def _wider(self, learnt: Moments) -> float:
        """How much larger it is in a part of the subjects, or in what was split for its noise alone."""
        return LEARNT if self.given.optimism else float(np.sqrt(self.given.whole.count / learnt.count))

    @cached_property
    def _units(self) -> Array:
        """For each column, in what to measure it so that noise is alike everywhere."""
        widths = [block.stop - block.start for block in self.given.blocks]
        noise = np.repeat(np.sqrt(self.given.floors), widths)
        own = np.sqrt(np.maximum(np.diagonal(self.given.whole.xx), 0.0))
        return np.where(noise > 0, noise, np.where(own > 0, EXACT * own, 1.0))

    @cached_property
    def _whole(self) -> "Spectrum":
        return Spectrum.from_moments(self.given.whole.xx, self._units)

    @cached_property
    def _learnt(self) -> list["Spectrum"]:
        return [Spectrum.from_moments(learnt.xx, self._units) for learnt, _ in self.given.splits]

    @cached_property
    def _judges(self) -> list[Moments]:
        # Where a judge has negative variances, the boldest coefficients look best.
        judges = [judge for _, judge in self.given.splits]
        return [replace(own, xx=Spectrum.from_moments(own.xx, self._units).raise_to(0.0)) for own in judges]


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Moments of predictors by their variances, in units of the noise.

    Args:
        xx: The moments.
        sizes: The variances, the smallest first.
        directions: Of unit length, in these units, one in each column.
        units: The units, for each row.
    """

    xx: Array
    sizes: Array
    directions: Array
    units: Array

    @classmethod
    def from_moments(cls, xx: Array, units: Array) -> "Spectrum":
        """The spectrum of moments."""
        sizes, directions = np.linalg.eigh(xx / np.outer(units, units))
        return cls(xx, sizes, directions, units)

    def raise_to(self, floor: float) -> Array:
        """Moments whose variances are nowhere below a floor; what is above is left as it is."""
        low = self.sizes < floor
        if not low.any():
            return self.xx
        turned = self.directions[:, low] * self.units[:, None]
        return self.xx + (turned * (floor - self.sizes[low])) @ turned.T


def restrict_to(evidence: DebiasedMoments, kept: Sequence[int]) -> RepairedMoments:
    """The part of evidence that is about some of the predictors."""
    blocks = [evidence.blocks[row] for row in kept]
    columns = np.array([column for block in blocks for column in range(block.start, block.stop)])
    ends = np.cumsum([block.stop - block.start for block in blocks]).tolist()
    pairs = evidence.splits
    return RepairedMoments(
        replace(
            evidence,
            raw=_columns(evidence.raw, columns),
            whole=_columns(evidence.raw, columns),
            splits=[(_columns(learnt, columns), _columns(judge, columns)) for learnt, judge in pairs],
            blocks=tuple(slice(start, stop) for start, stop in zip([0, *ends[:-1]], ends, strict=True)),
            floors=tuple(evidence.floors[row] for row in kept),
            roughness=tuple(evidence.roughness[row] for row in kept),
        )
    )


def _columns(moments: Moments, columns: NDArray[np.int64]) -> Moments:
    if np.array_equal(columns, np.arange(len(moments.xx))):
        return moments
    return replace(moments, xx=moments.xx[np.ix_(columns, columns)], xy=moments.xy[columns])
