"""Who takes part in a round: an independent, secret draw of each site, or a fixed number drawn in public."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from tacit.errors import require
from tacit.keys import Key


@dataclass(frozen=True, kw_only=True)
class Poisson:
    """Each site joins with the participation of the promise, independently and in secret; maybe none does."""

    kind: ClassVar[Literal["poisson", "fixed"]] = "poisson"

    def __call__(self, names: Sequence[str], participation: float, key: Key) -> list[str]:
        """The names that take part, in their order."""
        if participation == 1:
            return list(names)
        drawn = key.secret().uniform((len(names),)) < participation
        return [name for name, joins in zip(names, drawn.tolist(), strict=True) if joins]


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """The same number of sites in every round, drawn in public: nothing may count on the draw.

    Args:
        count: How many.
    """

    count: int
    kind: ClassVar[Literal["poisson", "fixed"]] = "fixed"

    def __call__(self, names: Sequence[str], participation: float, key: Key) -> list[str]:
        """The names that take part, in their order."""
        require(1 <= self.count <= len(names), "count", self.count, f"from 1 to {len(names)}, the sites")
        drawn = set(key.generator().permutation(len(names))[: self.count].tolist())
        return [name for position, name in enumerate(names) if position in drawn]


Sampling = Poisson | Fixed
