"""Mixing of updates before a robust rule: nearest neighbors, or random buckets.

Both are matrices with a row for each mix and a column for each site. A rule that weighs updates gets the
inner products of the mixes, one that works on coordinates the mixes of some columns; they are never in memory
all at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from tacit.aggregation.base import AggregatorBase, Array, Rows, Rule, blocks, pad_rows, rows_of, weighted_sum
from tacit.aggregation.geometry import (
    Centre,
    WeightedRule,
    gram_of,
    paired_distances,
    require_usable,
    squared_distances,
)
from tacit.aggregation.robust.coordinatewise import CoordinatewiseRule, TrimmedMean
from tacit.aggregation.robust.krum import Bulyan
from tacit.errors import TooFewSites, require, require_count
from tacit.learning.query import Updates
from tacit.privacy.contracts import Fragility, Norm, SiteGroups
from tacit.privacy.policy import Open, Privacy
from tacit.runtime.arrays import as_array
from tacit.runtime.keys import Key

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, kw_only=True)
class Mixing(AggregatorBase):
    """Every update becomes the mean of the n - f nearest, itself among them; then a rule (Allouah and others
    2023, "Fixing by mixing").

    It tolerates as many dishonest sites as the rule, and reduces the error of any rule to the order of f / n.
    It costs a product of the updates with a matrix, and no accuracy without dishonest sites.

    Args:
        then: The rule that follows.
    """  # noqa: D205

    then: Rule
    kind: ClassVar[str] = "mixing"

    def __post_init__(self) -> None:
        _require_rule(self.then)

    @property
    def under_noise(self) -> Fragility:
        """Fragility under noise: at most `suffers`, since a mix averages the noise of its updates."""
        return "suffers" if self.then.under_noise == "breaks" else "stands"

    def min_sites(self, f: int) -> int:
        """Return the fewest sites among which f dishonest ones can be tolerated."""
        return self.then.min_sites(f)

    def default_f(self, sites: int) -> int:
        """Return the default f for `sites` sites."""
        return self.then.default_f(sites)

    def tolerates(self, sites: int) -> int:
        """Return the number f of dishonest sites that it tolerates among `sites` sites."""
        return self.then.tolerates(sites)

    def resolve(self, sites: int, privacy: Privacy | Open) -> Self:
        """Return the rule with f resolved for a federation of `sites` sites."""
        return replace(self, then=self.then.resolve(sites, privacy))

    def __call__(self, updates: "Updates | ArrayLike", *, sites: float | None = None) -> Array:
        """Combine the updates (sites, coordinates).

        Args:
            updates: One row per site.
            sites: Expected number of sites; absent ones count as rows of zeros.

        Raises:
            InvalidValue: An update is not finite or too long to be squared, or more came than were expected.
            TooFewSites: Too few sites for the configured f.
        """
        rows, order = rows_of(updates)
        expected = len(rows) if sites is None else round(sites)
        require(len(rows) <= expected, "sites", sites, f"at least {len(rows)}, which is how many came")
        everybody, f = pad_rows(rows, sites), self.tolerates(expected)
        if sites is None or not isinstance(self.then, TrimmedMean):
            gram = gram_of(everybody, order, updates, _centre(self.then))
            mix = mixing_matrix(squared_distances(gram), f)
            return as_array(_apply_rule(self.then, everybody, mix, gram, f))
        require_usable(everybody, order, updates)
        mix = mixing_matrix(paired_distances(everybody), f)
        # In double precision, so that rounding does not add to the sensitivity.
        return as_array(_by_column(self.then, everybody, mix, f))

    def shares(self, updates: "Updates | ArrayLike") -> Array | None:
        """Return the share of each update in the result, if the rule weighs mixes."""
        if not isinstance(self.then, WeightedRule):
            return None
        rows, order = rows_of(updates)
        f = self.tolerates(len(rows))
        gram = gram_of(rows, order, updates, self.then.centre)
        mix = mixing_matrix(squared_distances(gram), f)
        given = np.empty(len(rows))
        given[order] = self.then.weigh(mix @ gram @ mix.T, f) @ mix
        return given

    def sensitivity(self, clip: float, sites: float, norm: Norm = "l2") -> float | None:
        """Sensitivity of the trimmed mean of the mixes to one update of length `clip`, in either norm.

        Guarantee:
            It holds for exactly n = `sites` rows, absent sites being rows of zeros. Neighbors are chosen by
            distances that depend on two rows alone, and in a total order. So when a row x is exchanged for
            zeros, every other row keeps its neighbors but one, and its mix moves by at most
            a = 2 clip / (n - f); the row itself keeps at least n - 2 f of its neighbors, x among them, so
            that its mix moves by at most b = (1 + 2 f) clip / (n - f). On the way from the old mixes to the
            new ones the trimmed mean of a coordinate moves by a weighted mean of their moves, in which no
            weight is above w = 1 / (n - 2 f). In L1 this adds up to w (b + (n - 1) a). In L2 the others
            together move it by no more than the root of the weighted mean of their squares, at most
            a sqrt((n - 1) w). Nothing here but the choice of neighbors depends on the norm.
        """
        if not isinstance(self.then, TrimmedMean):
            return None
        count = round(sites)
        f = self.tolerates(count)
        if f == 0:
            return clip / count
        most = 1 / (count - 2 * f)
        others = (count - 1) * most
        own = (1 + 2 * f) * most
        return clip / (count - f) * (own + 2 * (others if norm == "l1" else math.sqrt(others)))


@dataclass(frozen=True, kw_only=True)
class Bucketing(AggregatorBase):
    """Bucketing (Karimireddy and others 2022): means of buckets of sites, drawn in public; then a rule.

    A dishonest site spoils its bucket, so the rule must outvote f buckets: f times the size must be below
    half the sites. Means of buckets differ less than single sites, which helps if the sites' data differ.
    Under secure aggregation, which shows only the sum of a bucket, no other robust rule is possible.

    Args:
        then: The rule that follows.
        size: Smallest number of sites in a bucket; sites that are left over join other buckets.
        seed: Seed of the public draw.
    """

    then: Rule
    size: int = 2
    seed: int = 0
    kind: ClassVar[str] = "bucketing"

    def __post_init__(self) -> None:
        _require_rule(self.then)
        require_count("size", self.size)

    @property
    def under_noise(self) -> Fragility:
        """Return the fragility of its rule."""
        return self.then.under_noise

    def min_sites(self, f: int) -> int:
        """Return the fewest sites among which f dishonest ones can be tolerated."""
        return self.size * self.then.min_sites(f) if f else 1

    def default_f(self, sites: int) -> int:
        """Return the default f for `sites` sites."""
        return self.then.default_f(self._count(sites))

    def tolerates(self, sites: int) -> int:
        """Return the number f of dishonest sites that it tolerates among `sites` sites."""
        f = self.then.f
        if f and sites < self.min_sites(f):
            raise TooFewSites(
                f"f = {f} is not allowed with {sites} sites in buckets of {self.size}: every dishonest site "
                f"spoils a bucket, so f * size = {f * self.size} must be below {sites / 2:g}, half the "
                f"sites, and {self.then.kind} needs {self.then.min_sites(f)} buckets, that is, "
                f"{self.min_sites(f)} sites"
            )
        return self.then.tolerates(self._count(sites))

    def resolve(self, sites: int, privacy: Privacy | Open) -> Self:
        """Return the rule with f resolved for a federation of `sites` sites."""
        self.tolerates(sites)
        return replace(self, then=self.then.resolve(self._count(sites), privacy))

    def __call__(self, updates: "Updates | ArrayLike", *, sites: float | None = None) -> Array:
        """Combine the updates (sites, coordinates).

        Args:
            updates: One row per site, and the round that they are of.
            sites: Expected number of sites; absent ones count as rows of zeros.

        Raises:
            InvalidValue: An update is not finite, or too long to be squared.
            TooFewSites: Too few sites for the configured f.
        """
        rows, order = rows_of(updates)
        everybody = pad_rows(rows, sites)
        f = self.tolerates(len(everybody))
        mix = self._mix(len(everybody), updates)
        if isinstance(self.then, CoordinatewiseRule):
            require_usable(everybody, order, updates)
            return as_array(_by_column(self.then, everybody, mix, f))
        gram = gram_of(everybody, order, updates, _centre(self.then))
        return as_array(_apply_rule(self.then, everybody, mix, gram, f))

    def shares(self, updates: "Updates | ArrayLike") -> Array | None:
        """Return the share of each update in the result, if the rule weighs buckets."""
        if not isinstance(self.then, WeightedRule):
            return None
        rows, order = rows_of(updates)
        f = self.tolerates(len(rows))
        mix = self._mix(len(rows), updates)
        gram = gram_of(rows, order, updates, self.then.centre)
        given = np.empty(len(rows))
        given[order] = self.then.weigh(mix @ gram @ mix.T, f) @ mix
        return given

    def parties(self, names: Sequence[str], number: int) -> SiteGroups | None:
        """The buckets of a round."""
        known = sorted(names)
        return tuple(tuple(known[place] for place in bucket) for bucket in self._buckets(len(known), number))

    def combine_groups(self, means: Updates) -> Array:
        """Apply the rule across the means of buckets."""
        return self.then(means)

    def _count(self, sites: int) -> int:
        return min(max(sites // self.size, 1), sites)

    def _mix(self, count: int, updates: object) -> Array:
        number = updates.round if isinstance(updates, Updates) else 0
        buckets = self._buckets(count, number)
        mix = np.zeros((len(buckets), count))
        for row, bucket in enumerate(buckets):
            mix[row, bucket] = 1 / len(bucket)
        return mix

    def _buckets(self, count: int, number: int) -> list[list[int]]:
        """Draw the buckets, by position in the order of names."""
        drawn = (Key(self.seed) / "buckets" / number).generator().permutation(count)
        parts = np.array_split(drawn, max(self._count(count), 1))
        return [sorted(int(place) for place in part) for part in parts]


def mixing_matrix(distances: Array, f: int) -> Array:
    """The matrix that mixes each row with its n - f nearest (sites, sites), itself always among them.

    Of rows that are as near, the first by name is taken.
    """
    count = len(distances)
    mix = np.zeros((count, count))
    order = np.argsort(distances - np.eye(count) * (1 + distances.max(initial=0)), axis=1, kind="stable")
    np.put_along_axis(mix, order[:, : count - f], 1 / (count - f), axis=1)
    return mix


def _require_rule(then: object) -> None:
    known = isinstance(then, WeightedRule | CoordinatewiseRule | Bulyan)
    require(known, "then", then, "a rule, such as trimmed-mean or geometric-median")


def _centre(then: Rule) -> Centre:
    return then.centre if isinstance(then, WeightedRule) else "mean"


def _apply_rule(then: Rule, rows: Rows, mix: Array, gram: Array, f: int) -> Array:
    """Apply a rule to mixes of the rows."""
    if isinstance(then, WeightedRule):
        return weighted_sum(rows, then.weigh(mix @ gram @ mix.T, f) @ mix)
    if isinstance(then, Bulyan):
        mix = mix[then.select(mix @ gram @ mix.T, f)]
    return _by_column(then, rows, mix.astype(rows.dtype), f)


def _by_column(then: Rule, rows: Rows, mix: Rows, f: int) -> Array:
    """Apply a coordinatewise rule to mixes of the rows."""
    assert isinstance(then, CoordinatewiseRule | Bulyan)
    combined = np.empty(rows.shape[1])
    for part in blocks(rows):
        combined[part] = then.reduce(mix @ rows[:, part], f)
    return combined
