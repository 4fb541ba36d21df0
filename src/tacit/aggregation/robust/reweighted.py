"""Reweighted means: geometric median, centered clipping, covariance filter.

They keep the benefit of averaging, which choosing a few updates gives away: noise cancels. `Robust` is the
default choice without further knowledge.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tacit.aggregation.base import Aggregator, AggregatorBase, Array, noise_of, require_liars, rows_of
from tacit.aggregation.geometry import (
    Centre,
    WeightedRule,
    geometric_median,
    require_usable,
    squares_from,
)
from tacit.aggregation.kernels import add_multiple, square_of
from tacit.aggregation.mean import Mean
from tacit.aggregation.robust.coordinatewise import TrimmedMean
from tacit.aggregation.screening import LONGEST
from tacit.errors import MOST_STEPS, Refused, TooFewSites, is_between, require, require_count
from tacit.learning.query import Updates
from tacit.privacy.contracts import Norm, SiteGroups
from tacit.privacy.policy import Open, Privacy
from tacit.runtime.arrays import as_array
from tacit.runtime.jit import contiguous

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# Number of sites up to which all eigenvectors are found, and equal eigenvalues seen.
FULL = 64
EQUAL = 1e-9


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(WeightedRule):
    """The point with the smallest sum of distances to the updates (Weiszfeld 1937; Pillutla and others 2022).

    It needs no f, and tolerates dishonest sites up to half of all; like the other rules, it states a third.
    It costs nothing without dishonest sites. If the sites' data differ, the worst attack costs it 0.05 of
    concordance, and the covariance filter 0.02.
    """

    kind: ClassVar[str] = "geometric-median"

    def weigh(self, gram: Array, f: int) -> Array:
        """Return weights that fall with the distance from the median; f plays no role."""
        return geometric_median(gram)


@dataclass(frozen=True, kw_only=True)
class CenteredClip(WeightedRule):
    """Centered clipping (Karimireddy and others 2021): differences from a center, clipped, then averaged.

    It tolerates dishonest sites below half of all, each of which moves it by the radius over n at most, and
    costs nothing without them as long as honest updates are within the radius.

    Args:
        radius: Largest distance of an update from the center, which then starts at zero. By default half the
            median distance from the geometric median, which is the start.
        steps: Number of times the center is moved.
    """

    radius: float | None = None
    steps: int = 1
    kind: ClassVar[str] = "centered-clip"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("steps", self.steps, MOST_STEPS)
        if self.radius is not None:
            # Squares of shorter ones vanish, and nothing would be shortened.
            require(is_between(self.radius, 1e-100, math.inf), "radius", self.radius, "finite, above 1e-100")

    @property
    def centre(self) -> Centre:
        """Zero, where the start is public."""
        return "mean" if self.radius is None else "zero"

    def __call__(self, updates: "Updates | ArrayLike", *, sites: float | None = None) -> Array:
        """Combine the updates (sites, coordinates).

        Args:
            updates: One row per site.
            sites: Expected number of sites. With a public center and one step it divides the sum of the
                clipped updates, as in the mean; otherwise absent sites count as rows of zeros.
        """
        if self.radius is None or self.steps > 1:
            return super().__call__(updates, sites=sites)
        rows, order = rows_of(updates)
        if sites is None:
            self.tolerates(len(rows))
        squares, total = np.empty(len(rows)), np.zeros(rows.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            for place, row in enumerate(contiguous(rows)):
                squares[place] = square_of(row)
                add_multiple(row, float(_shrink_factors(squares[place], self.radius)), total)
        if not squares.max(initial=0.0) <= LONGEST**2:
            require_usable(rows, order, updates)
        return as_array(total / (len(rows) if sites is None else sites))

    def weigh(self, gram: Array, f: int) -> Array:
        """Return the share of each update after clipping; the shares add up to less than 1 about zero."""
        weights = np.zeros(len(gram)) if self.radius is not None else geometric_median(gram)
        middle = math.sqrt(np.median(squares_from(gram, weights)))
        radius = middle / 2 if self.radius is None else self.radius
        for _ in range(self.steps):
            kept = _shrink_factors(squares_from(gram, weights), radius) / len(gram)
            weights = weights * (1 - kept.sum()) + kept
        return weights

    def sensitivity(self, clip: float, sites: float, norm: Norm = "l2") -> float | None:
        """Sensitivity to one update of length `clip`, with a public center and one step.

        Guarantee:
            Then the result is a sum over a public denominator, to which an update adds itself times a factor
            of at most 1: a vector no longer than the radius, and in any norm no longer than it was.
        """
        if self.radius is None or self.steps > 1:
            return None
        return (min(self.radius, clip) if norm == "l2" else clip) / sites

    def parties(self, names: Sequence[str], number: int) -> SiteGroups | None:
        """Return one group of all sites if each can clip its own update; None if it needs each update."""
        return (tuple(names),) if self.radius is not None and self.steps == 1 else None

    def combine_groups(self, means: Updates) -> Array:
        """Return the mean of the only group, whose sites have clipped their updates."""
        return Mean()(means)


@dataclass(frozen=True, kw_only=True)
class CovarianceFilter(WeightedRule):
    """A weighted mean without the direction in which the updates differ most (CAF, arXiv 2505.01874).

    Updates far out in the top direction of the covariance lose weight, until the total weight is n - 2 f; the
    result is the mean with the smallest top variance along the way. It tolerates f of at least 2 f + 1 sites.
    The influence of dishonest sites is bounded by the largest variance in one direction, not by the sum over
    all directions, so it tolerates noise better than any other rule; without dishonest sites it costs less
    than 0.01 of concordance.
    """

    kind: ClassVar[str] = "covariance-filter"

    def weigh(self, gram: Array, f: int) -> Array:
        """The weights of the mean with the smallest top variance."""
        count = len(gram)
        weights, lowest = np.ones(count), math.inf
        best = weights / count
        while weights.sum() > count - 2 * f:
            left = np.flatnonzero(weights)
            parts = weights[left] / weights.sum()
            variance, squares = _top_variance(gram[np.ix_(left, left)], parts)
            if variance < lowest:
                lowest, best = variance, np.zeros(count)
                best[left] = parts
            if not squares.max() > 0:
                break
            # The farthest is dropped for good, so this ends; rows without weight do not count in the maximum.
            weights[left] *= 1 - squares / squares.max()
        return best


def query_aggregator(aggregation: Aggregator, sites: int, *, trusted: bool) -> Aggregator:
    """Return the aggregator for answers to a query, given the one for updates.

    Answers are sums over records, of which ratios matter: a coordinatewise rule would bend them, one that
    weighs whole answers does not. Answers have equal weights, whatever the weights of updates.

    Args:
        aggregation: The rule for updates.
        sites: Number of usable answers.
        trusted: Whether the server adds noise, which is measured by the bound of that rule.
    """
    if isinstance(aggregation, Mean):
        return Mean()
    if trusted:
        return aggregation
    try:
        f = aggregation.tolerates(sites)
    except TooFewSites:
        # There is no later round to wait for.
        return GeometricMedian()
    return CovarianceFilter(f=f) if f else Mean()


@dataclass(frozen=True, kw_only=True)
class Robust(AggregatorBase):
    """Robust rule that suits the federation, resolved from public facts about it.

    The covariance filter if f is given, and the geometric median if it is not. Where the server adds noise a
    rule needs a bound on how far one site moves it: then the trimmed mean if f is given, and if it is not,
    centered clipping about zero to half the bound of an update. That halves the pull of a liar and the noise;
    an honest update loses length at most, never its direction.

    Args:
        f: Number of dishonest sites to tolerate, if you know it.
    """

    f: int | None = None
    kind: ClassVar[str] = "robust"

    def __post_init__(self) -> None:
        if isinstance(self.f, np.integer):
            object.__setattr__(self, "f", int(self.f))
        require_liars(self.f)

    def resolve(self, sites: int, privacy: Privacy | Open) -> WeightedRule | TrimmedMean:
        """Return the chosen rule, with f resolved for a federation of `sites` sites.

        Raises:
            Refused: Under secure aggregation, single updates are hidden.
        """
        noise = noise_of(privacy)
        if noise == "secure":
            raise Refused(
                'aggregation = "robust" does not go with noise = "secure": every robust rule needs '
                "single updates, and the server sees only sums. Use mean, or bucketing with at least 3 sites "
                "to a bucket, which compares the sums of buckets."
            )
        if noise != "server":
            return self._open.resolve(sites, privacy)
        if self.f is not None:
            return TrimmedMean(f=self.f).resolve(sites, privacy)
        assert isinstance(privacy, Privacy)
        return CenteredClip(radius=privacy.bound / 2).resolve(sites, privacy)

    def tolerates(self, sites: int) -> int:
        """Return the number f of dishonest sites that it tolerates among `sites` sites."""
        return self._open.tolerates(sites)

    def __call__(self, updates: "Updates | ArrayLike", *, sites: float | None = None) -> Array:
        """Combine the updates (sites, coordinates) by the rule without server noise."""
        return self._open(updates, sites=sites)

    def shares(self, updates: "Updates | ArrayLike") -> Array | None:
        """The weight of each update."""
        return self._open.shares(updates)

    @property
    def _open(self) -> WeightedRule:
        return GeometricMedian() if self.f is None else CovarianceFilter(f=self.f)


def _shrink_factors(squares: Array | np.float64, radius: float) -> Array:
    """Return the factors that clip vectors to the radius."""
    lengths = np.sqrt(squares)
    return np.divide(radius, lengths, out=np.ones(lengths.shape), where=lengths > radius)


def _top_variance(gram: Array, parts: Array) -> tuple[float, Array]:
    """Return the top variance, and each row's squared deviation in its direction, to some scale.

    Where several directions vary as much, none is better than another: rows are measured in all of them.
    """
    inner = gram @ parts
    centred = gram - inner[:, None] - inner + parts @ inner
    scale = centred.diagonal().max(initial=0.0)
    if not scale > 0:
        return 0.0, np.zeros(len(gram))
    centred /= scale
    roots = np.sqrt(parts)
    values, vectors = _largest(roots[:, None] * centred * roots)
    out = centred @ (roots[:, None] * vectors)
    return float(values[-1]) * scale, np.square(out).sum(axis=1)


def _largest(matrix: Array) -> tuple[Array, Array]:
    """Return the largest eigenvalue and its vectors, exactly; of many sites only one vector."""
    from scipy.linalg import eigh

    if len(matrix) > FULL:
        last = len(matrix) - 1
        return eigh(matrix, subset_by_index=[last, last], driver="evx")
    values, vectors = np.linalg.eigh(matrix)
    equal = values >= values[-1] * (1 - EQUAL)
    return values[equal], vectors[:, equal]
