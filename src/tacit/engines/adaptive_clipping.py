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
    """The work of a task, its updates packed.

    Args:
        task: What is learnt.
        packing: How an update is packed.
        bounds: The bounds of this round; released, and so known to everybody.
    """

    task: Trainable
    packing: AdaptiveClipping
    bounds: Array

    @property
    def sent(self) -> int:
        """How many numbers a site sends, and how wide the noise is where nobody comes."""
        return self.packing.width

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """What each site sends: no row is longer than 1."""
        updates = self.task.train(state, cohort, mechanism, key)
        return replace(updates, matrix=self.packing.encode(updates.matrix, self.bounds))
