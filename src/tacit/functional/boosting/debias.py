"""Moments without the noise of their release, in pairs for training and evaluation.

Two things can have been let out: the coordinates of every subject, each with noise, or the moments of all
subjects, with noise. What is done here is arithmetic on that and costs no privacy: neither the repair nor the
pairs of moments by which a fit decides what to believe, what to keep and when to stop.

Noise is taken off on average, so some variances end up near 0 or below, and what is divided by them explodes.
The repair raises them to a floor. That moves what is not broken too, the more the more predictors there are:
so it is done anew for those that take part, from moments as they came.

Noise of a known law is split: with M = T + E, and E' another draw of the law of E, M + g E' and M - E' / g
are the truth T with independent noise: one is learned from, the other judges. This is data fission, or the
coupled bootstrap (Oliveira, Lei and Tibshirani 2021).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.errors import require, require_count, require_positive
from tacit.functional.boosting.moments import (
    DebiasedMoments,
    Moments,
    Sums,
    halves,
    leave_one_out,
    union,
)
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key

# Columns without noise are measured in this share of their deviation: next to nothing of them is changed.
EXACT = 1e-3
# g, how much noise is added to learn from: with little of it the judge is noisy, with much of it the learner
# learns less than it will from all there is.
GAIN = 0.7
# Noise deviations of the learning and of the judging half, as multiples of the released one.
LEARNT, JUDGED = math.sqrt(1 + GAIN**2), math.sqrt(1 + 1 / GAIN**2)
PAIRS = 16


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockShape:
    """Public facts about the columns of moments.

    Args:
        blocks: The columns of each predictor, side by side.
        roughness: For each predictor, that of each of its coordinates.
        roughness_y: That of the coordinates of the response.
        stretches: The factor by which clipping inflates the coefficients of each predictor, and last the
            factor by which it shrinks the response (`clip_radius.clip_correction`); 1 where left out.
    """

    blocks: Sequence[slice]
    roughness: Sequence[Array]
    roughness_y: Array
    stretches: Sequence[float] = ()

    def __post_init__(self) -> None:
        starts = [0, *(block.stop for block in self.blocks)]
        beside = all(
            block.start == start < block.stop for block, start in zip(self.blocks, starts, strict=False)
        )
        allowed = "side by side from column 0 on"
        require(len(self.blocks) > 0 and beside, "blocks", tuple(self.blocks), allowed)
        told = list(self.stretches) or [1.0] * (len(self.blocks) + 1)
        fits = len(told) == len(self.blocks) + 1 and all(1 <= stretch < math.inf for stretch in told)
        require(fits, "stretches", told, "1 or more for each predictor, and last for the response")
        sizes = [len(own) for own in self.roughness]
        require(sizes == self.widths, "roughness", sizes, f"numbers for {self.widths} coordinates")
        object.__setattr__(self, "stretches", told)

    @property
    def widths(self) -> list[int]:
        """The number of coordinates of each predictor."""
        return [block.stop - block.start for block in self.blocks]

    @property
    def columns(self) -> int:
        """The number of coordinates of all predictors."""
        return self.blocks[-1].stop

    def over_columns(self, by_predictor: Sequence[float] | Array) -> Array:
        """A number for each column from one for each predictor."""
        told = len(by_predictor) == len(self.blocks)
        require(told, "variances", len(by_predictor), f"{len(self.blocks)} numbers, one for each predictor")
        return np.repeat(np.asarray(by_predictor, dtype=np.float64), self.widths)

    def over_all(self, radii: Sequence[float]) -> Array:
        """A number for each column of predictors and response, from one for each of these."""
        return np.repeat(np.asarray(radii, dtype=np.float64), [*self.widths, len(self.roughness_y)])

    def correct_clipping(self, moments: Moments) -> Moments:
        """Moments whose coefficients fit curves as they are, not as they were clipped."""
        # Square roots on both sides of xx: coefficients shrink, and no variance becomes negative.
        roots, longer = np.sqrt(self.over_columns(self.stretches[:-1])), float(self.stretches[-1])
        xx = moments.xx * np.outer(roots, roots)
        return replace(moments, xx=xx, xy=moments.xy * longer, yy=moments.yy * longer**2)


def debias_sums(
    sums: Sequence[Sums],
    shape: BlockShape,
    *,
    variances: Sequence[float] | None = None,
    variance_y: float = 0.0,
) -> DebiasedMoments:
    """Subtract independent noise, or none, from the sums over parts of the subjects.

    Parts are contiguous rows, independent of the parties' predictors. Without noise, cross-validation leaves
    one part out. With noise halves judge halves, in several ways: a smaller part would be dominated by its
    noise. Pairs are unbiased and not repaired, since that is done anew for the predictors that take part
    (`restrict_to`).

    Args:
        sums: Of each part, predictors and response side by side; clipped, where they have noise.
        shape: Of the columns.
        variances: Of the noise in every coordinate of each predictor; none if left out.
        variance_y: The same of the response.
    """
    noise = shape.over_columns(np.zeros(len(shape.blocks)) if variances is None else variances)
    for name, given in (("variances", noise), ("variance_y", np.array([variance_y]))):
        fine = bool(((given >= 0) & (given < math.inf)).all())
        require(fine, name, given.tolist(), "at least 0 and finite")
    size, count = len(shape.roughness_y), sum(part.count for part in sums)

    def moments(part: Sums) -> Moments:
        found = part.moments(shape.columns)
        clean = found.xx - np.diag(noise), found.yy - variance_y * np.eye(size)
        return shape.correct_clipping(replace(found, xx=clean[0], yy=clean[1]))

    parts = halves(sums) if noise.any() else leave_one_out(sums)
    pairs = [(moments(learnt), moments(judged)) for learnt, judged in parts]
    edges = [2 * math.sqrt(width / count) + width / count for width in shape.widths]
    return _assemble(moments(union(sums)), pairs, np.sqrt(noise), edges, shape)


def debias_moments(
    noisy: Array, shape: BlockShape, *, sigma: float, radii: Sequence[float], count: int, key: Key
) -> DebiasedMoments:
    """Subtract the noise from moments of all subjects that were released together.

    They are W'W + E. A row of W is [1, z_1 / S_1, ..., y / S_y] with each block clipped to length 1, and E is
    symmetric with deviation sigma on the diagonal and sigma / sqrt 2 beside it. No subjects can be held back,
    but noise of a known law can be split (`fission`).

    Args:
        noisy: W'W + E (1 + columns + coordinates of the response, the same).
        shape: Of the columns.
        sigma: The deviation of noise on the diagonal; 0 if there is none.
        radii: The clip radius of each predictor, and last that of the response.
        count: The public number of subjects, so the first entry is known.
        key: For the noise that splits noise; it protects no one, and repeats.
    """
    _require_moments(noisy, sigma, radii, count, shape)
    scales = shape.over_all(radii)

    def moments(released: Array, deviation: float) -> Moments:
        found = _centre_moments(released, deviation, count) * np.outer(scales, scales)
        cut = shape.columns
        split = Moments(xx=found[:cut, :cut], xy=found[:cut, cut:], yy=found[cut:, cut:], count=count)
        return shape.correct_clipping(split)

    whole = moments(noisy, sigma)
    # Without noise there is nothing to split: the fit is judged on its own data, by degrees of freedom.
    pairs = [
        (moments(learnt, LEARNT * sigma), moments(judged, JUDGED * sigma))
        for learnt, judged in (fission(noisy, sigma, key) if sigma > 0 else [(noisy, noisy)])
    ]
    edges = [sigma * math.sqrt(2 * width) / count for width in shape.widths]
    units = scales[: shape.columns] * (sigma > 0)
    return _assemble(whole, pairs, units, edges, shape, optimism=True)


def _assemble(
    raw: Moments,
    pairs: Sequence[tuple[Moments, Moments]],
    units: Array,
    edges: Sequence[float],
    shape: BlockShape,
    *,
    optimism: bool = False,
) -> DebiasedMoments:
    """Evidence of moments and of pairs of them.

    Args:
        raw: The moments of all, right on average.
        pairs: To learn from and to judge by, right on average.
        units: For each column, in what to measure it so that noise is alike in all; 0 where there is none.
        edges: In these units, the largest eigenvalue that noise alone has in each predictor's moments.
        shape: Of the columns.
        optimism: True if pairs share subjects.
    """
    stretched = units * np.sqrt(shape.over_columns(shape.stretches[:-1]))
    own = [float(stretched[block.start]) ** 2 for block in shape.blocks]
    return DebiasedMoments(
        whole=replace(raw, xx=_repair(raw.xx, stretched)),
        raw=raw,
        splits=pairs,
        blocks=tuple(shape.blocks),
        floors=tuple(edge * square for edge, square in zip(edges, own, strict=True)),
        roughness=tuple(shape.roughness),
        roughness_y=shape.roughness_y,
        optimism=optimism,
    )


def _repair(xx: Array, units: Array) -> Array:
    """Moments with no negative variance, all predictors together; as they are where there is no noise."""
    if not units.any():
        return xx
    own = np.sqrt(np.maximum(np.diagonal(xx), 0.0))
    exact = np.where(own > 0, EXACT * own, 1.0)
    return Spectrum.from_moments(xx, np.where(units > 0, units, exact)).raise_to(0.0)


def _centre_moments(released: Array, deviation: float, count: int) -> Array:
    """Moments about means, both with noise, right on average (columns and coordinates, the same)."""
    middle = released[0, 1:] / count
    # The square of a noisy mean is too large by the variance of its noise.
    excess = (deviation / count) ** 2 / 2
    found = released[1:, 1:] / count - np.outer(middle, middle) + excess * np.eye(len(middle))
    return found * (count / (count - 1))


def _require_moments(
    noisy: Array, sigma: float, radii: Sequence[float], count: int, shape: BlockShape
) -> None:
    """Refuse moments that do not match their shapes."""
    size = 1 + shape.columns + len(shape.roughness_y)
    square = noisy.shape == (size, size) and np.allclose(noisy, noisy.T)
    require(square, "noisy", f"shape {noisy.shape}", f"a symmetric matrix of {size} rows")
    require(bool(np.isfinite(noisy).all()), "noisy", "not finite", "finite numbers")
    require(0 <= sigma < math.inf, "sigma", sigma, "at least 0 and finite")
    require_count("count", count)
    require(count > 1, "count", count, "at least 2")
    told = len(radii) == len(shape.blocks) + 1
    require(told, "radii", tuple(radii), "one for each predictor, and last that of the response")
    for radius in radii:
        require_positive("radii", radius)


@dataclass(frozen=True, eq=False)
class RepairedMoments:
    """Moments of some predictors as released, and repaired (variances raised to a floor) for them alone.

    Args:
        given: As it came, without the other predictors.
        made: Cache of repaired moments, by the floor.
    """

    given: DebiasedMoments
    made: dict[float, DebiasedMoments] = field(default_factory=dict[float, DebiasedMoments])

    def repair(self, multiple: float) -> DebiasedMoments:
        """Raise variances to at least a multiple of what noise alone would show."""
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
        """Return the factor by which noise is larger in a part of the subjects, or in a fission pair."""
        return LEARNT if self.given.optimism else float(np.sqrt(self.given.whole.count / learnt.count))

    @cached_property
    def _units(self) -> Array:
        """Return the unit of each column in which its noise has variance 1."""
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
        # With negative variances in a judge, the largest coefficients would look best.
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
        """Raise the eigenvalues below a floor to it; larger ones stay as they are."""
        low = self.sizes < floor
        if not low.any():
            return self.xx
        turned = self.directions[:, low] * self.units[:, None]
        return self.xx + (turned * (floor - self.sizes[low])) @ turned.T


def restrict_to(evidence: DebiasedMoments, kept: Sequence[int]) -> RepairedMoments:
    """Restrict moments to some of the predictors."""
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


def symmetric(size: int, sigma: float, generator: np.random.Generator) -> Array:
    """Draw symmetric noise: deviation sigma on the diagonal, sigma / sqrt 2 off it."""
    square = sigma * generator.standard_normal((size, size))
    return (square + square.T) / 2


def fission(noisy: Array, sigma: float, key: Key, pairs: int = PAIRS) -> Iterator[tuple[Array, Array]]:
    """Yield pairs of a noisy matrix, with independent noise of `LEARNT` and `JUDGED` times the deviation.

    Args:
        noisy: A symmetric matrix with the noise of `symmetric`.
        sigma: Its deviation.
        key: Names the noise that splits; it protects no one, and repeats.
        pairs: The number of pairs.
    """
    for number in range(pairs):
        other = symmetric(len(noisy), sigma, (key / "fission" / number).generator())
        yield noisy + GAIN * other, noisy - other / GAIN
