"""Contract of an engine, the engine in this process, and the work at a site that all engines share."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, cast

import numpy as np

from tacit.learning.query import Updates, Work, WorkKind
from tacit.privacy.mechanisms.adaptive_clipping import AdaptiveClipping
from tacit.privacy.mechanisms.base import Mechanism
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.runtime.silence import suppress_warnings
from tacit.runtime.threads import one_thread
from tacit.sites.federation import Cohort, Federation

if TYPE_CHECKING:
    from tacit.privacy.mechanisms.secure_sum import SecureSum


class Engine(Protocol):
    """Engine: sends the work of a round to the sites, and returns their updates."""

    # True if sites remember the rounds they joined, and so join one sum at most even if a round restarts.
    remembers: ClassVar[bool] = False

    @property
    def chosen(self) -> "Engine":
        """Engine as an experiment file describes it: its options without connections and keys."""
        return self

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
        ...


@suppress_warnings()
def run_at_site(task: Work, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
    """Train a cohort and let each update out only through the mechanism: the site's whole side of a round."""
    trained = task.train(state, cohort, mechanism, key)
    keys = [key / name / "update" for name in trained.names]
    return replace(trained, matrix=mechanism.at_sites(trained.matrix, keys))


def server_view(updates: Updates, mechanism: Mechanism) -> Updates:
    """Return the server's view: every protected update or, under secure aggregation, group sums only."""
    if mechanism.groups(updates.names) is None:
        return updates
    # Only a server that is blind needs cryptography.
    from tacit.aggregation.secure.products import multiply_locally, sum_locally
    from tacit.privacy.mechanisms.secure_gram import SecureGram

    if isinstance(mechanism, SecureGram):
        return multiply_locally(updates, mechanism)
    return sum_locally(updates, cast("SecureSum", mechanism))


@dataclass(frozen=True)
class RecordCountQuery(Work):
    """Query for the number of records at each site, with the noise of the mechanism."""

    kind: ClassVar[str] = "number of records"
    work_kind: ClassVar[WorkKind] = "count"

    @property
    def sent(self) -> int:
        """Number of doubles sent: the count of records alone."""
        return 1

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Return the noisy number of records of each site."""
        told = [
            mechanism.noisy_count(int(size), key / name)
            for name, size in zip(cohort.names, cohort.sizes, strict=True)
        ]
        return Updates(cohort.names, np.array(told, dtype=np.float64).reshape(-1, 1))


@dataclass(frozen=True, eq=False)
class ClippedWork(Work):
    """A task's work, with its updates encoded for adaptive clipping.

    Args:
        task: The task.
        packing: The encoding of updates.
        bounds: The released, hence public, clip bounds of this round.
    """

    task: Work
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
