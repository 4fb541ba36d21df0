"""Join for vertical parties: messages about different columns are concatenated, not averaged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from tacit.learning.task import Updates
from tacit.privacy.contracts import Fragility, Norm, SiteGroups
from tacit.privacy.policy import Open, Privacy
from tacit.runtime.arrays import Array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from tacit.aggregation.base import Array


@dataclass(frozen=True)
class Join:
    """Join of the parties' messages by the task, which knows their meaning.

    Args:
        combine: From the messages of each party to the state.
        together: The same, from the result of a secure computation.
    """

    combine: Callable[[Updates], Array]
    together: Callable[[Updates], Array]
    kind: ClassVar[str] = "join"

    @property
    def weights(self) -> str:
        """Return uniform weights, which a join does not use."""
        return "uniform"

    @property
    def under_noise(self) -> Fragility:
        """Return `stands`: noise cannot spoil a join."""
        return "stands"

    def resolve(self, sites: int, privacy: Privacy | Open) -> Self:
        """Return this aggregator."""
        return self

    def tolerates(self, sites: int) -> int:
        """Return 0: a party that lies spoils its own columns unnoticed."""
        return 0

    def __call__(self, updates: "Updates | ArrayLike", *, sites: float | None = None) -> Array:
        """Join the messages; no party may be missing."""
        assert isinstance(updates, Updates), "columns have names"
        return self.combine(updates)

    def shares(self, updates: "Updates | ArrayLike") -> "Array | None":
        """Return None: parties send different parts."""
        return None

    def sensitivity(self, clip: float, sites: float, norm: Norm = "l2") -> float | None:
        """A whole party is not protected."""
        return None

    def parties(self, names: Sequence[str], number: int) -> SiteGroups | None:
        """Return None: the task needs each party's message."""
        return None

    def combine_groups(self, means: Updates) -> Array:
        """Join the result of the secure computation."""
        return self.together(means)
