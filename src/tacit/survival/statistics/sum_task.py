"""What statistics have in common that are run as tasks: sites send sums, and from their mean sums come back.

The mean of what sites send does not say how many have sent something. So every site marks a place of its own
beside its sums; who takes part is public.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.errors import InvalidValue, require
from tacit.learning.record import identity_of
from tacit.privacy.contracts import Groups
from tacit.privacy.policy import Open, Privacy
from tacit.runtime.arrays import Array

# What rounding may take off a mark.
SLACK = 1e-9


@dataclass(frozen=True, kw_only=True)
class SumTask:
    """A task whose sites send sums over all of their records, once in a round."""

    kind: ClassVar[str]
    # Sums are added up as they are: what is made to weigh updates does not go with them.
    added: ClassVar[bool] = True

    @property
    def groups(self) -> Groups:
        """There are no risk groups."""
        return "none"

    @property
    def steps(self) -> int:
        """Everybody is looked at once in a round."""
        return 1

    @property
    def sample(self) -> float:
        """Every record takes part."""
        return 1.0

    @property
    def batch(self) -> int:
        """Sums are divided by nothing."""
        return 1

    @property
    def shuffled(self) -> bool:
        """Nothing is dealt out."""
        return False

    @property
    def initial_query(self) -> None:
        """Nothing is asked before."""

    @property
    def final_query(self) -> None:
        """Nothing is asked at the end."""

    @property
    def identity(self) -> str | None:
        """The choices of the task."""
        return identity_of(self)

    def require_all_sites(self, privacy: Privacy | Open) -> None:
        """Refuse to draw sites: a sum is one of all of them."""
        allowed = f"1: {self.kind} adds up what all sites have"
        require(privacy.participation == 1, "participation", privacy.participation, allowed)

    def present_sites(self, mean: Array, sites: Sequence[str]) -> tuple[str, ...]:
        """Those who are in a mean of marks (sites,); nobody where nothing was sent.

        Raises:
            InvalidValue: It is no plain mean, so that nothing can be added up.
        """
        there = np.abs(mean) > SLACK
        many = int(there.sum())
        if many and not np.allclose(mean[there], 1 / many, rtol=0, atol=SLACK):
            raise self.not_a_mean()
        return tuple(name for name, here in zip(sites, there.tolist(), strict=True) if here)

    def not_a_mean(self) -> InvalidValue:
        """What to say where marks tell that something else than a mean was taken."""
        return InvalidValue(
            f"{self.kind} adds up what the sites send, and this is no plain mean of it: leave [aggregation] "
            "and [server] out"
        )


def site_indicators(names: Sequence[str], sites: Sequence[str]) -> Array:
    """The marks of these sites among all (names, sites); whoever is none of them is taken for the first."""
    found = np.zeros((len(names), len(sites)))
    found[np.arange(len(names)), [sites.index(name) if name in sites else 0 for name in names]] = 1.0
    return found
