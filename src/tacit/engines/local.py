"""All sites in this process, a whole cohort as one batched program."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.engines.base import Engine, run_at_site, server_view
from tacit.learning.task import Updates, Work
from tacit.privacy.mechanisms.base import Mechanism
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.runtime.threads import one_thread
from tacit.sites.federation import Federation


@dataclass(frozen=True, kw_only=True)
class Local(Engine):
    """The in-process engine."""

    kind: ClassVar[str] = "local"

    def train(
        self,
        task: Work,
        federation: Federation,
        state: Array,
        names: Sequence[str],
        mechanism: Mechanism,
        key: Key,
    ) -> Updates:
        """The guarded updates of these sites, in this order."""
        if not names:
            # Noise of the usual width, so that it does not reveal that no site took part.
            width = state.shape[-1] if task.sent is None else task.sent
            return Updates((), np.zeros((0, width)))
        with one_thread():
            return server_view(run_at_site(task, state, federation.cohort(names), mechanism, key), mechanism)
