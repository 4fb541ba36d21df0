"""All sites in this process, a whole cohort as one batched program."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tacit.engines.base import seen, work
from tacit.keys import Key
from tacit.privacy.mechanism import Mechanism
from tacit.sites.site import Federation
from tacit.task import Trains, Updates
from tacit.threads import one_thread

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Local:
    """The in-process engine."""

    kind: ClassVar[str] = "local"

    def train(
        self,
        task: Trains,
        federation: Federation,
        state: "Tensor",
        names: Sequence[str],
        mechanism: Mechanism,
        key: Key,
    ) -> Updates:
        """The guarded updates of these sites, in this order."""
        if not names:
            # Noise alone, as wide as ever: nobody learns that nobody came.
            width: int = getattr(task, "sent", state.shape[-1])
            return Updates((), state.new_zeros((0, width)))
        with one_thread():
            return seen(work(task, state, federation.cohort(names), mechanism, key), mechanism)
