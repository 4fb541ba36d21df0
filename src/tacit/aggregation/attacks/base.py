"""Base of all attacks: dishonest (Byzantine) sites that change their records or their updates.

Attackers know everything: each other, the honest updates and the aggregation rule.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.aggregation.base import Aggregator, rows_of
from tacit.errors import require, require_count
from tacit.learning.task import Updates
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Federation

# The aggregate if all attackers send a vector, or one each.
Outcome = Callable[[Array], Array]


@dataclass(frozen=True, kw_only=True)
class Attack:
    """Dishonest sites, in a rehearsal.

    Args:
        liars: Number of dishonest sites.
    """

    liars: int
    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        require_count("liars", self.liars)

    @property
    def name(self) -> str:
        """Its kind; a user's own has the name of its class."""
        return self.kind or type(self).__name__

    def draw_liars(self, sites: Sequence[str], key: Key) -> tuple[str, ...]:
        """Draw the attackers among these sites; the same key gives the same ones."""
        allowed = f"fewer than the {len(sites)} sites: somebody has to be honest"
        require(self.liars < len(sites), "liars", self.liars, allowed)
        drawn = (key / "liars").generator().permutation(len(sites))[: self.liars]
        ordered = sorted(sites)
        return tuple(sorted(ordered[int(place)] for place in drawn))

    def poison_data(self, federation: Federation, liars: Sequence[str], key: Key) -> Federation:
        """Return the federation with the attackers' changed records; held-out records stay unchanged."""
        return federation

    def poison_updates(
        self, updates: Updates, liars: Sequence[str], aggregation: Aggregator, key: Key
    ) -> Updates:
        """Return the updates that the server gets in a round.

        Args:
            updates: Honest updates of all sites, attackers included; stay unchanged.
            liars: The attackers, whether they take part in this round or not.
            aggregation: The aggregation rule; an adaptive attack tries it.
            key: Key of the draws; rounds and sites have keys of their own below it.
        """
        rows, order = rows_of(updates)
        values = rows.astype(np.float64)
        lying = np.isin(np.array(updates.names, dtype=np.str_)[order], list(liars))
        # Updates that are broken are not aggregated: liars know that too.
        honest = ~lying & np.isfinite(values).all(axis=1)
        if not lying.any() or not honest.any():
            return updates

        def substitute(lie: Array) -> Updates:
            matrix = updates.matrix.copy()
            matrix[order[lying]] = np.broadcast_to(lie, (int(lying.sum()), rows.shape[1]))
            return Updates(updates.names, matrix, updates.round)

        def outcome(lie: Array) -> Array:
            kept = order[lying | honest]
            names = tuple(updates.names[int(place)] for place in kept)
            seen = Updates(names, substitute(lie).matrix[kept], updates.round)
            return aggregation(seen)

        return substitute(self.craft(values[lying], values[honest], outcome, key / "lies" / updates.round))

    def craft(self, own: Array, honest: Array, outcome: Outcome, key: Key) -> Array:
        """Return the updates of the attackers in a round: one vector for all, or one row each.

        Args:
            own: Their honest updates (liars, coordinates), in the order of their names.
            honest: The updates of the other sites.
            outcome: The aggregate as a function of the attackers' updates.
            key: The key of the round.
        """
        return own
