"""From what was let out to what a fit may look at: noise is taken off, and pairs of moments are made.

Two things can have been let out: the coordinates of every subject, each with noise, or the moments of all
subjects, with noise. What is done here is arithmetic on that and costs no privacy: neither the repair nor the
pairs of moments by which a fit decides what to believe, what to keep and when to stop.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tacit.errors import require, require_count, require_positive
from tacit.functional.boosting.fission import JUDGED, LEARNT, fission
from tacit.functional.boosting.folds import NOISY_FOLDS, Sums, fold_sums, halves, leave_one_out, union
from tacit.functional.boosting.moments import DebiasedMoments, Moments
from tacit.functional.boosting.psd_repair import EXACT, Spectrum
from tacit.runtime.keys import Key

Array = NDArray[np.float64]


def debias_rows(
    x: Array,
    y: Array,
    *,
    blocks: Sequence[slice],
    roughness: Sequence[Array],
    roughness_y: Array,
    variances: Sequence[float] | None = None,
    variance_y: float = 0.0,
    folds: int = 5,
    stretches: Sequence[float] | None = None,
) -> DebiasedMoments:
    """What coordinates tell, subject by subject, with independent noise or none.

    Folds are contiguous rows, the same whoever holds which predictor. Without noise, each judges what was
    learnt from all others. With noise halves judge halves, in several ways: a smaller part would judge by
    little more than its noise. Pairs are right on average and not repaired, since that is done anew for the
    predictors that take part (`restrict_to`).

    Args:
        x: Coordinates of all predictors (subjects, columns); clipped, where they have noise.
        y: Those of the response (subjects, coordinates).
        blocks: The columns of each predictor, side by side.
        roughness: For each predictor, that of each of its coordinates.
        roughness_y: That of the coordinates of the response.
        variances: Of the noise in every coordinate of each predictor; none if not said.
        variance_y: The same of the response.
        folds: In how many parts to divide subjects where there is no noise.
        stretches: How much too large the coefficients of each predictor come out because it was clipped, and
            last by how much the response is too short (`radii.clip_correction`); 1 if not said.
    """
    _require_rows(x, y, _Shape.from_blocks(blocks, roughness, roughness_y, stretches))
    noisy = variances is not None and bool(np.any(variances))
    return debias_sums(
        fold_sums(x, y, NOISY_FOLDS if noisy else folds),
        blocks=blocks,
        roughness=roughness,
        roughness_y=roughness_y,
        variances=variances,
        variance_y=variance_y,
        stretches=stretches,
    )


def debias_sums(
    sums: Sequence[Sums],
    *,
    blocks: Sequence[slice],
    roughness: Sequence[Array],
    roughness_y: Array,
    variances: Sequence[float] | None = None,
    variance_y: float = 0.0,
    stretches: Sequence[float] | None = None,
) -> DebiasedMoments:
    """What the sums over parts of the subjects tell, which is all that `debias_rows` needs of rows.

    Args:
        sums: Of each part, predictors and response side by side.
        blocks: As for `debias_rows`, and so are the others.
        roughness: See there.
        roughness_y: See there.
        variances: See there.
        variance_y: See there.
        stretches: See there.
    """
    shape = _Shape.from_blocks(blocks, roughness, roughness_y, stretches)
    noise = shape.over_columns(np.zeros(len(blocks)) if variances is None else variances)
    for field, given in (("variances", noise), ("variance_y", np.array([variance_y]))):
        fine = bool(((given >= 0) & (given < math.inf)).all())
        require(fine, field, given.tolist(), "at least 0 and finite")
    size, count = len(roughness_y), sum(part.count for part in sums)

    def moments(part: Sums) -> Moments:
        found = part.moments(shape.columns)
        clean = found.xx - np.diag(noise), found.yy - variance_y * np.eye(size)
        return shape.correct_clipping(replace(found, xx=clean[0], yy=clean[1]))

    parts = halves(sums) if noise.any() else leave_one_out(sums)
    pairs = [(moments(learnt), moments(judged)) for learnt, judged in parts]
    edges = [2 * math.sqrt(width / count) + width / count for width in shape.widths]
    return _assemble(moments(union(sums)), pairs, np.sqrt(noise), edges, shape)


def debias_moments(
    noisy: Array,
    *,
    sigma: float,
    radii: Sequence[float],
    count: int,
    blocks: Sequence[slice],
    roughness: Sequence[Array],
    roughness_y: Array,
    key: Key,
    stretches: Sequence[float] | None = None,
) -> DebiasedMoments:
    """What moments of all subjects tell, which were let out together with noise.

    They are W'W + E. A row of W is [1, z_1 / S_1, ..., y / S_y] with each block clipped to length 1, and E is
    symmetric with deviation sigma on the diagonal and sigma / sqrt 2 beside it. No subjects can be held back,
    but noise of a known law can be split (`fission`).

    Args:
        noisy: W'W + E (1 + columns + coordinates of the response, the same).
        sigma: The deviation of noise on the diagonal; 0 if there is none.
        radii: The clip radius of each predictor, and last that of the response.
        count: How many subjects there are; a public number, so the first entry is known.
        blocks: The columns of each predictor, side by side.
        roughness: For each predictor, that of each of its coordinates.
        roughness_y: That of the coordinates of the response.
        key: For the noise that splits noise; it protects nobody, and repeats.
        stretches: How much too large the coefficients of each predictor come out because it was clipped, and
            last by how much the response is too short (`radii.clip_correction`); 1 if not said.
    """
    shape = _Shape.from_blocks(blocks, roughness, roughness_y, stretches)
    _require_moments(noisy, sigma, radii, count, shape)
    scales = shape.over_all(radii)

    def moments(released: Array, deviation: float) -> Moments:
        found = _centre_moments(released, deviation, count) * np.outer(scales, scales)
        cut = shape.columns
        split = Moments(xx=found[:cut, :cut], xy=found[:cut, cut:], yy=found[cut:, cut:], count=count)
        return shape.correct_clipping(split)

    whole = moments(noisy, sigma)
    # Where there is nothing to split, what is learnt is judged by itself, and by its degrees of freedom.
    pairs = [
        (moments(learnt, LEARNT * sigma), moments(judged, JUDGED * sigma))
        for learnt, judged in (fission(noisy, sigma, key) if sigma > 0 else [(noisy, noisy)])
    ]
    edges = [sigma * math.sqrt(2 * width) / count for width in shape.widths]
    units = scales[: shape.columns] * (sigma > 0)
    return _assemble(whole, pairs, units, edges, shape, optimism=True)


@dataclass(frozen=True, eq=False)
class _Shape:
    """What is public about the columns of moments: whose they are, how rough, and by how much too short."""

    blocks: tuple[slice, ...]
    roughness: tuple[Array, ...]
    roughness_y: Array
    stretches: Array

    @classmethod
    def from_blocks(
        cls,
        blocks: Sequence[slice],
        roughness: Sequence[Array],
        roughness_y: Array,
        stretches: Sequence[float] | None,
    ) -> "_Shape":
        starts = [0, *(block.stop for block in blocks)]
        beside = all(block.start == start < block.stop for block, start in zip(blocks, starts, strict=False))
        require(len(blocks) > 0 and beside, "blocks", tuple(blocks), "side by side from column 0 on")
        told = np.ones(len(blocks) + 1) if stretches is None else np.array(stretches, dtype=np.float64)
        fits = len(told) == len(blocks) + 1 and bool(((told >= 1) & (told < math.inf)).all())
        require(fits, "stretches", told.tolist(), "1 or more for each predictor, and last for the response")
        shape = cls(tuple(blocks), tuple(np.asarray(own) for own in roughness), np.asarray(roughness_y), told)
        sizes = [len(own) for own in shape.roughness]
        require(sizes == shape.widths, "roughness", sizes, f"numbers for {shape.widths} coordinates")
        return shape

    @property
    def widths(self) -> list[int]:
        return [block.stop - block.start for block in self.blocks]

    @property
    def columns(self) -> int:
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


def _assemble(
    raw: Moments,
    pairs: Sequence[tuple[Moments, Moments]],
    units: Array,
    edges: Sequence[float],
    shape: _Shape,
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
        optimism: Whether pairs share subjects.
    """
    stretched = units * np.sqrt(shape.over_columns(shape.stretches[:-1]))
    own = [float(stretched[block.start]) ** 2 for block in shape.blocks]
    return DebiasedMoments(
        whole=replace(raw, xx=_repair(raw.xx, stretched)),
        raw=raw,
        splits=pairs,
        blocks=shape.blocks,
        floors=tuple(edge * square for edge, square in zip(edges, own, strict=True)),
        roughness=shape.roughness,
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


def _require_rows(x: Array, y: Array, shape: _Shape) -> None:
    """Refuse coordinates that do not fit each other."""
    wide = x.ndim == 2 and x.shape[1] == shape.columns
    require(wide, "x", f"shape {x.shape}", f"{shape.columns} columns, as blocks say")
    fits = y.shape == (len(x), len(shape.roughness_y))
    require(fits, "y", f"shape {y.shape}", f"{len(x)} rows as x, {len(shape.roughness_y)} coordinates")
    require(bool(np.isfinite(x).all() and np.isfinite(y).all()), "x, y", "not finite", "finite numbers")


def _require_moments(noisy: Array, sigma: float, radii: Sequence[float], count: int, shape: _Shape) -> None:
    """Refuse moments that do not fit what is said of them."""
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
