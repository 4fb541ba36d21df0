"""Parties that hold different columns are not averaged: what they send is put side by side."""

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
    """What all parties send, put together by the task that knows what it means.

    Args:
        combine: From what each party sent to the state.
        together: The same, from what they worked out together in secret.
    """

    combine: Callable[[Updates], Array]
    together: Callable[[Updates], Array]
    kind: ClassVar[str] = "join"

    @property
    def weights(self) -> str:
        """Nobody is weighed."""
        return "uniform"

    @property
    def under_noise(self) -> Fragility:
        """It combines nothing that noise could spoil."""
        return "stands"

    def resolve(self, sites: int, privacy: Privacy | Open) -> Self:
        """As it is."""
        return self

    def tolerates(self, sites: int) -> int:
        """A party that lies spoils its own columns, and nobody can tell."""
        return 0

    def __call__(self, updates: "Updates | ArrayLike", *, sites: float | None = None) -> Array:
        """Everything side by side; nobody may be missing."""
        assert isinstance(updates, Updates), "columns have names"
        return self.combine(updates)

    def shares(self, updates: "Updates | ArrayLike") -> "Array | None":
        """Everybody is in it with something else."""
        return None

    def sensitivity(self, clip: float, sites: float, norm: Norm = "l2") -> float | None:
        """A whole party is not protected."""
        return None

    def parties(self, names: Sequence[str], number: int) -> SiteGroups | None:
        """It looks at what each party sent."""
        return None

    def combine_groups(self, means: Updates) -> Array:
        """What all parties worked out together, in secret."""
        return self.together(means)
