"""The contract of an engine, and what happens at a site whatever the engine."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Protocol, cast

from tacit.learning.task import Trainable, Updates
from tacit.privacy.mechanisms.base import Mechanism
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.runtime.silence import suppress_warnings
from tacit.sites.federation import Cohort, Federation

if TYPE_CHECKING:
    from tacit.privacy.mechanisms.secure_sum import SecureSum


class Engine(Protocol):
    """Carries the work of a round to the sites and brings back what they let out."""

    # True if sites remember the rounds they joined, and so join one sum at most even if a round restarts.
    remembers: ClassVar[bool] = False

    @property
    def chosen(self) -> "Engine":
        """Engine as an experiment file describes it: its options without connections and keys."""
        return self

    def train(
        self,
        task: Trainable,
        federation: Federation,
        state: Array,
        names: Sequence[str],
        mechanism: Mechanism,
        key: Key,
    ) -> Updates:
        """The guarded updates of these sites, in this order."""
        ...


@suppress_warnings()
def run_at_site(task: Trainable, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
    """Train a cohort and let each update out only through the mechanism: the site's whole side of a round."""
    trained = task.train(state, cohort, mechanism, key)
    keys = [key / name / "update" for name in trained.names]
    return replace(trained, matrix=mechanism.at_sites(trained.matrix, keys))


def server_view(updates: Updates, mechanism: Mechanism) -> Updates:
    """Return the server's view: every protected update or, under secure aggregation, group sums only."""
    if mechanism.groups(updates.names) is None:
        return updates
    # Only a server that is blind needs cryptography.
    from tacit.engines.secure.local_gram import multiply_locally
    from tacit.engines.secure.local_sum import sum_locally
    from tacit.privacy.mechanisms.secure_gram import SecureGram

    if isinstance(mechanism, SecureGram):
        return multiply_locally(updates, mechanism)
    return sum_locally(updates, cast("SecureSum", mechanism))
