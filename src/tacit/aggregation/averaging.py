"""The mean of the sites' updates, over a denominator that is public."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tacit.errors import require_word

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Mean:
    """The mean of the updates; under noise at the server, their sum over a public denominator.

    Args:
        weights: Where the weights of the sites come from; `uniform` weighs all alike and reveals nothing.
    """

    weights: Literal["uniform"] = "uniform"

    def __post_init__(self) -> None:
        require_word("weights", self.weights, ("uniform",))

    def __call__(self, updates: "Tensor", *, sites: float | None = None) -> "Tensor":
        """Combine the updates (sites, coordinates).

        Args:
            updates: One row per site.
            sites: The public denominator: how many sites were expected, not how many came. The sensitivity
                holds for this denominator alone.

        Returns:
            The mean in double precision, so that rounding does not add to the sensitivity.
        """
        return updates.double().sum(dim=0) / (updates.shape[0] if sites is None else sites)

    def sensitivity(self, clip: float, sites: float) -> float | None:
        """How far one update of length `clip` moves the mean over an expected number of sites."""
        return clip / sites
