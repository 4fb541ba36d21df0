"""Updates in units of bounds that follow them, as a site sends them."""

from dataclasses import dataclass, replace

from tacit.learning.task import Trainable, Updates
from tacit.privacy.mechanisms.adaptive_clipping import AdaptiveClipping
from tacit.privacy.mechanisms.base import Mechanism
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort


@dataclass(frozen=True, eq=False)
class ClippedWork:
    """A task's work, with its updates encoded for adaptive clipping.

    Args:
        task: The task.
        packing: The encoding of updates.
        bounds: The released, hence public, clip bounds of this round.
    """

    task: Trainable
    packing: AdaptiveClipping
    bounds: Array

    @property
    def sent(self) -> int:
        """Count of numbers that a site sends; the noise has this width even without any site."""
        return self.packing.width

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Train and encode the updates: rows of norm at most 1."""
        updates = self.task.train(state, cohort, mechanism, key)
        return replace(updates, matrix=self.packing.encode(updates.matrix, self.bounds))
