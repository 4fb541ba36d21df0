"""Mean of the sites' updates over a public denominator; `Join` puts columns of parties side by side."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from tacit.aggregation.base import AggregatorBase, rows_of, weighted_sum
from tacit.errors import InvalidValue, require, require_positive
from tacit.learning.query import Updates
from tacit.privacy.contracts import Norm, SiteGroups
from tacit.runtime.arrays import Array, as_array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, kw_only=True)
class Mean(AggregatorBase):
    """The mean of the updates; under noise at the server, their sum over a public denominator.

    Args:
        weights: `uniform` gives all sites the same weight; a table gives each site a public weight by name.
    """

    weights: Literal["uniform"] | dict[str, float] = "uniform"  # pyright: ignore[reportIncompatibleMethodOverride] set, not computed
    kind: ClassVar[str] = "mean"

    def __post_init__(self) -> None:
        if isinstance(self.weights, Mapping):
            require(bool(self.weights), "weights", self.weights, 'a weight for each site, or "uniform"')
            for name, weight in self.weights.items():
                require_positive(f"weights.{name}", weight)
        else:
            require(
                self.weights == "uniform", "weights", self.weights, '"uniform", or a weight for each site'
            )

    def __call__(self, updates: "Updates | ArrayLike", *, sites: float | None = None) -> Array:
        """Combine the updates (sites, coordinates).

        Args:
            updates: One row per site; public weights need names, that is, `Updates`.
            sites: The public denominator: how many sites were expected, not how many came. The sensitivity
                holds for this denominator alone.

        Returns:
            The mean in double precision, so that rounding does not add to the sensitivity.
        """
        rows, order = rows_of(updates)
        weights = np.array(self._of(updates, len(rows)))[order]
        whole = float(weights.sum()) if sites is None else self._expected_weight(sites)
        # The mean of no sites, over nothing, is zero.
        return as_array(weighted_sum(rows, weights, whole or 1.0))

    def sensitivity(self, clip: float, sites: float, norm: Norm = "l2") -> float | None:
        """Sensitivity of the mean to one update of length `clip`, over an expected number of sites."""
        heaviest = max(self.weights.values()) if isinstance(self.weights, Mapping) else 1.0
        return heaviest * clip / self._expected_weight(sites)

    def parties(self, names: Sequence[str], number: int) -> SiteGroups | None:
        """Return one group of all sites: a mean needs only their sum."""
        return (tuple(names),)

    def combine_groups(self, means: Updates) -> Array:
        """The mean of the one group there is."""
        return Mean()(means)

    def shares(self, updates: "Updates | ArrayLike") -> "NDArray[np.float64] | None":
        """The weights, as parts of their sum."""
        rows = updates.matrix if isinstance(updates, Updates) else np.asarray(updates)
        weights = np.array(self._of(updates, len(rows)))
        return weights / weights.sum()

    def _expected_weight(self, sites: float) -> float:
        """Return the weight of `sites` sites, each at its average weight."""
        if isinstance(self.weights, Mapping):
            return sites * sum(self.weights.values()) / len(self.weights)
        return sites

    def _of(self, updates: object, count: int) -> list[float]:
        if not isinstance(self.weights, Mapping):
            return [1.0] * count
        if not isinstance(updates, Updates):
            raise InvalidValue("weights by name need updates with names: give Updates, not a matrix")
        for name in updates.names:
            require(name in self.weights, f"weights.{name}", "nothing", "a weight, as for every other site")
        return [self.weights[name] for name in updates.names]


@dataclass(frozen=True)
class Join(AggregatorBase):
    """Join of the parties' messages by the task, which knows their meaning.

    Args:
        combine: From the messages of each party to the state.
        together: The same, from the result of a secure computation.
    """

    combine: Callable[[Updates], Array]
    together: Callable[[Updates], Array]
    kind: ClassVar[str] = "join"

    def __call__(self, updates: "Updates | ArrayLike", *, sites: float | None = None) -> Array:
        """Join the messages; no party may be missing."""
        assert isinstance(updates, Updates), "columns have names"
        return self.combine(updates)

    def combine_groups(self, means: Updates) -> Array:
        """Join the result of the secure computation."""
        return self.together(means)
