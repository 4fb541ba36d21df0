"""Krum, Multi-Krum and Bulyan: rules that choose the updates with the nearest neighbors."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np

from tacit.aggregation.base import Array, Rows, Rule, pad_rows, rows_of
from tacit.aggregation.geometry import WeightedRule, blocks, gram_of, squared_distances
from tacit.aggregation.robust.krum_scores import lowest, scores
from tacit.learning.task import Updates
from tacit.privacy.contracts import Fragility
from tacit.runtime.arrays import as_array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, kw_only=True)
class KrumRule(WeightedRule, ABC):
    """A rule that averages the updates with the lowest scores of Krum; of equal scores the first by name."""

    @classmethod
    def min_sites(cls, f: int) -> int:
        """Return the fewest sites among which f dishonest ones can be tolerated."""
        return 2 * f + 3 if f else 1

    @abstractmethod
    def selection_size(self, sites: int, f: int) -> int:
        """Return the number of averaged updates."""
        ...

    def weigh(self, gram: Array, f: int) -> Array:
        """Equal parts of the chosen."""
        order = scores(squared_distances(gram), f).argsort(kind="stable")
        return _equal_parts(order[: self.selection_size(len(gram), f)], len(gram))

    def _weights(self, rows: Rows, order: "NDArray[np.intp]", updates: object, sites: float | None) -> Array:
        everybody = pad_rows(rows, sites)
        f = self.tolerates(len(everybody))
        chosen = lowest(everybody, f, self.selection_size(len(everybody), f))
        if chosen is None:
            return super()._weights(rows, order, updates, sites)
        return _equal_parts(chosen, len(everybody))[: len(rows)]


@dataclass(frozen=True, kw_only=True)
class Krum(KrumRule):
    """Krum: the one update with the nearest neighbors (Blanchard and others 2017); for comparison.

    The score is the sum of squared distances to the n - f - 1 nearest others, as in "Fixing by mixing"
    (Allouah and others 2023); the first paper counts one neighbour less. It stands f of at least 2 f + 3
    sites. It never averages: that cost 0.11 of concordance without any liar, and under noise the smallest
    score is that of a liar who sends a vector without noise.

    Args:
        allow_fragile: Permit Krum where every site adds noise, although it can then follow dishonest sites.
    """

    allow_fragile: bool = False
    kind: ClassVar[str] = "krum"

    @property
    def under_noise(self) -> Fragility:
        """Return `breaks`; with `allow_fragile`, `suffers`, so that it can be compared with others."""
        return "suffers" if self.allow_fragile else "breaks"

    def selection_size(self, sites: int, f: int) -> int:
        """One, with the lowest score."""
        return 1


@dataclass(frozen=True, kw_only=True)
class MultiKrum(KrumRule):
    """The mean of the n - f updates with the lowest scores of Krum (Blanchard and others 2017).

    It stands f of at least 2 f + 3 sites, and costs little without liars; honest sites that differ from the
    others are left out, and liars that hide among the others are not.
    """

    kind: ClassVar[str] = "multi-krum"

    @property
    def under_noise(self) -> Fragility:
        """Return `suffers`: it averages noise, but over sites that noise has brought together."""
        return "suffers"

    def selection_size(self, sites: int, f: int) -> int:
        """Return the number of sites less f."""
        return sites - f


@dataclass(frozen=True, kw_only=True)
class Bulyan(Rule):
    """Krum again and again, then the mean around the median of the chosen (El Mhamdi and others 2018).

    Of n updates n - 2 f are chosen, each the winner among those that are left; in every coordinate the
    n - 4 f values nearest to the median are averaged. It stands f of at least 4 f + 3 sites, fewer than any
    other rule, and throws away the most.
    """

    kind: ClassVar[str] = "bulyan"

    @property
    def under_noise(self) -> Fragility:
        """Return `suffers`: its last step is coordinatewise."""
        return "suffers"

    @classmethod
    def min_sites(cls, f: int) -> int:
        """Return the fewest sites among which f dishonest ones can be tolerated."""
        return 4 * f + 3 if f else 1

    def __call__(self, updates: "Updates | ArrayLike", *, sites: float | None = None) -> Array:
        """Combine the updates (sites, coordinates); see `WeightedRule`."""
        rows, order = rows_of(updates)
        everybody = pad_rows(rows, sites)
        f = self.tolerates(len(everybody))
        chosen = self.select(gram_of(everybody, order, updates), f)
        combined = np.empty(rows.shape[1])
        for part in blocks(rows):
            combined[part] = self.reduce(everybody[chosen, part], f)
        return as_array(combined)

    def select(self, gram: Array, f: int) -> "NDArray[np.intp]":
        """The positions of the n - 2 f chosen updates, in order."""
        near, whose, left = _rank_neighbours(squared_distances(gram))
        chosen: list[int] = []
        for count in range(len(gram), 2 * f, -1):
            # Two that are each other's nearest can have one score: then the nearer to all others is chosen.
            best = int(np.lexsort((near.sum(axis=1), near[:, : count - f].sum(axis=1)))[0])
            chosen.append(int(left[best]))
            kept = whose != left[best]
            # The chosen row leaves the others' lists, and takes its own with it.
            kept[best] = False
            near, whose = near[kept].reshape(count - 1, count - 1), whose[kept].reshape(count - 1, count - 1)
            left = np.delete(left, best)
        return np.sort(np.array(chosen, dtype=np.intp))

    def reduce(self, block: Rows, f: int) -> Array:
        """The mean of all but the 2 f values farthest from the median, of the chosen (chosen, columns)."""
        columns = np.sort(np.array(block.T, order="C"), axis=1).astype(np.float64)
        count = columns.shape[1]
        kept = count - 2 * f
        twice = columns[:, (count - 1) // 2] + columns[:, count // 2]
        # Neighbours in rank: the lowest goes as long as the one beyond the highest is nearer to the median.
        low = columns[:, : 2 * f] + columns[:, kept:] < twice[:, None]
        ranks = cast("NDArray[np.intp]", low.sum(axis=1)[:, None] + np.arange(kept))
        return np.take_along_axis(columns, ranks, axis=1).mean(axis=1)


def _equal_parts(chosen: "NDArray[np.intp]", sites: int) -> Array:
    weights = np.zeros(sites)
    weights[chosen] = 1 / len(chosen)
    return weights


def _rank_neighbours(distances: Array) -> "tuple[Array, NDArray[np.intp], NDArray[np.intp]]":
    """Return every row's distances in order, with their rows, itself first; and the positions of all."""
    whose = np.argsort(distances - np.eye(len(distances)), axis=1, kind="stable")
    return np.take_along_axis(distances, whose, axis=1), whose, np.arange(len(distances))
