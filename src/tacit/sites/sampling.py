"""Sampling of the sites of a round: Poisson sampling (independent and secret), or a fixed number of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from tacit.errors import require, require_count
from tacit.runtime.keys import Key


@dataclass(frozen=True, kw_only=True)
class Poisson:
    """Poisson sampling: each site joins independently and in secret, with the promise's participation."""

    kind: ClassVar[Literal["poisson", "fixed"]] = "poisson"

    def check(self, names: Sequence[str]) -> None:
        """Any number of sites will do."""

    def __call__(self, names: Sequence[str], participation: float, key: Key) -> list[str]:
        """The names that take part, in their order."""
        if participation == 1:
            return list(names)
        drawn = key.secret().uniform((len(names),)) < participation
        return [name for name, joins in zip(names, drawn.tolist(), strict=True) if joins]


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """Fixed-size sampling: a number of sites in every round, drawn in public, which lowers no price.

    Args:
        count: Number of sites in a round.
    """

    count: int
    kind: ClassVar[Literal["poisson", "fixed"]] = "fixed"

    def __post_init__(self) -> None:
        require_count("count", self.count)

    def check(self, names: Sequence[str]) -> None:
        """Refuse a federation with fewer sites."""
        allowed = f"at most {len(names)}, the number of sites"
        require(self.count <= len(names), "[sampling] count", self.count, allowed)

    def __call__(self, names: Sequence[str], participation: float, key: Key) -> list[str]:
        """The names that take part, in their order."""
        self.check(names)
        drawn = set(key.generator().permutation(len(names))[: self.count].tolist())
        return [name for position, name in enumerate(names) if position in drawn]


Sampling = Poisson | Fixed
