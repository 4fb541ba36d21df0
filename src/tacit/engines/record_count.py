"""The question of how many records a site holds, asked once where a task has to know about how many."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.learning.task import Updates
from tacit.privacy.mechanisms.base import Mechanism
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort


@dataclass(frozen=True)
class RecordCountQuery:
    """Query for the number of records at each site, with the noise of the mechanism."""

    kind: ClassVar[str] = "number of records"
    sent: ClassVar[int] = 1

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """One number for each site."""
        told = [
            mechanism.noisy_count(int(size), key / name)
            for name, size in zip(cohort.names, cohort.sizes, strict=True)
        ]
        return Updates(cohort.names, np.array(told, dtype=np.float64).reshape(-1, 1))
