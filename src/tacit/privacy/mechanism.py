"""What a promise becomes: a site half, a server half, and a price.

A mechanism clips, adds noise and names its price in one object, so that nobody can set clip, noise and
sensitivity apart. The loop calls all three halves of every mechanism; what a mechanism does not do is
nothing.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from tacit.errors import require
from tacit.keys import Key
from tacit.privacy import noise
from tacit.privacy.release import (
    Relation,
    Release,
    Sampled,
    View,
    clipped_release,
    require_count,
    require_positive,
    require_rate,
)

if TYPE_CHECKING:
    # A price needs no tensors: plans are made without loading torch.
    from torch import Tensor

NoiseLaw = Literal["gaussian", "laplace"]


class Mechanism(Protocol):
    """How private data may leave a site."""

    def noisy_sum(self, rows: "Tensor", key: Key) -> "Tensor":
        """The sum of one contribution per record (records, coordinates), as a training step may use it."""
        ...

    def at_site(self, update: "Tensor", key: Key) -> "Tensor":
        """The update of a site (coordinates), as it leaves the site."""
        ...

    def at_server(self, combined: "Tensor", key: Key) -> "Tensor":
        """The aggregate (coordinates), as it leaves the server."""
        ...

    def release(self, number: int, names: Collection[str]) -> tuple[Release, ...]:
        """The price of round `number` among the sites of these names; charged before the round begins."""
        ...


@dataclass(frozen=True, kw_only=True)
class Unprotected:
    """The null mechanism: nothing is clipped, noised or charged."""

    def noisy_sum(self, rows: "Tensor", key: Key) -> "Tensor":
        """The plain sum."""
        return rows.sum(dim=0)

    def at_site(self, update: "Tensor", key: Key) -> "Tensor":
        """The update as it is."""
        return update

    def at_server(self, combined: "Tensor", key: Key) -> "Tensor":
        """The aggregate as it is."""
        return combined

    def release(self, number: int, names: Collection[str]) -> tuple[Release, ...]:
        """Nothing is charged; the statement lists all of it as bare."""
        return ()


@dataclass(frozen=True, kw_only=True)
class ProtectedRecords(Unprotected):
    """Each training step adds noise to a sum of clipped contributions (DP-SGD, Abadi and others 2016).

    Args:
        law: The noise.
        clip: The bound of one contribution.
        multiplier: Noise in units of `clip`.
        steps: Noisy sums per round.
        rate: Probability with which each record, or group, joins a step; public, drawn in secret.
        grouped: Whether a row is the sum over a risk group, which one record can turn into its opposite.
        sampled: What the draw selects: records, or fixed groups.
        rehearsal: Whether the noise repeats.
    """

    law: NoiseLaw
    clip: float
    multiplier: float
    steps: int
    rate: float
    grouped: bool = False
    sampled: Sampled = "unit"
    rehearsal: bool = False

    def __post_init__(self) -> None:
        require(self.grouped or self.sampled == "unit", "sampled", self.sampled, '"unit" without risk groups')
        require_price(self.clip, self.multiplier, self.rate)
        require_count("steps", self.steps)

    def noisy_sum(self, rows: "Tensor", key: Key) -> "Tensor":
        """The sum of clipped rows plus noise; with no rows at all, noise alone.

        Guarantee:
            One row more or less moves the sum by at most `clip` before noise of `multiplier * clip`.
        """
        clipped = _clipped(rows, self.law, self.clip)
        total = clipped.double().sum(dim=0)
        return _noised(total, self.law, self.multiplier * self.clip, key, self.rehearsal).to(rows.dtype)

    def release(self, number: int, names: Collection[str]) -> tuple[Release, ...]:
        """One release per site that takes part: its own records, nobody else's."""
        return tuple(
            Release(
                law=self.law,
                scale=self.multiplier * self.clip,
                sensitivity=2 * self.clip if self.grouped else self.clip,
                bound=self.clip,
                rate=self.rate,
                sampled=self.sampled,
                count=self.steps,
                subject=f"records@{name}",
                party=name,
                purpose=f"round {number}",
                rehearsal=self.rehearsal,
            )
            for name in names
        )


@dataclass(frozen=True, kw_only=True)
class ProtectedSites(Unprotected):
    """Each site's whole update is clipped; noise is added by the site itself, or by a trusted server.

    Args:
        law: The noise.
        clip: The bound of one site's update.
        multiplier: Noise in units of the bound: of `clip` at the site, of `reach` at the server.
        where: Who adds the noise.
        reach: How far one clipped update can move the aggregate; what the server's noise is scaled by.
        rate: Probability with which each site joins a round, drawn in secret; 1 where the server looks on.
        rehearsal: Whether the noise repeats.
    """

    law: NoiseLaw
    clip: float
    multiplier: float
    where: Literal["site", "server"]
    reach: float
    rate: float = 1.0
    rehearsal: bool = False

    def __post_init__(self) -> None:
        require_price(self.clip, self.multiplier, self.rate)
        require_positive("reach", self.reach)
        alike = self.reach == self.clip and self.rate == 1
        given = f"reach {self.reach} and rate {self.rate}"
        require(self.where == "server" or alike, "noise at the site", given, "reach = clip and rate = 1")

    def at_site(self, update: "Tensor", key: Key) -> "Tensor":
        """The clipped update; with noise if the site does not trust the server."""
        clipped = _clipped(update, self.law, self.clip)
        if self.where == "server":
            return clipped
        scale = self.multiplier * self.clip
        return _noised(clipped.double(), self.law, scale, key, self.rehearsal).to(update.dtype)

    def at_server(self, combined: "Tensor", key: Key) -> "Tensor":
        """The aggregate; with noise if the server is trusted to add it."""
        if self.where == "site":
            return combined
        scale = self.multiplier * self.reach
        return _noised(combined.double(), self.law, scale, key, self.rehearsal).to(combined.dtype)

    def release(self, number: int, names: Collection[str]) -> tuple[Release, ...]:
        """One release about the sites, whoever takes part."""
        # Who sees every single update sees a site exchanged for another, not one more or less.
        at_site = self.where == "site"
        relation: Relation = "replace" if at_site else "add-remove"
        view: View = "server" if at_site else "sites"
        price = clipped_release(
            self.multiplier,
            clip=self.clip if at_site else self.reach,
            relation=relation,
            law=self.law,
            rate=self.rate,
            unit="site",
            subject="sites",
            view=view,
            party="each site" if at_site else "server",
            purpose=f"round {number}",
            rehearsal=self.rehearsal,
        )
        return (price,)


def require_price(clip: float, multiplier: float, rate: float) -> None:
    """Refuse what cannot be priced, before it is used."""
    require_positive("clip", clip)
    require_positive("multiplier", multiplier)
    require_rate("rate", rate)


def _clipped(rows: "Tensor", law: NoiseLaw, bound: float) -> "Tensor":
    from tacit.privacy.clip import clip_rows

    return clip_rows(rows, bound, norm="l2" if law == "gaussian" else "l1")


def _noised(values: "Tensor", law: NoiseLaw, scale: float, key: Key, rehearsal: bool) -> "Tensor":
    import torch

    noise.refuse_undeclared(key, rehearsal)
    add = noise.gaussian if law == "gaussian" else noise.laplace
    return torch.from_numpy(add(values.detach().contiguous().numpy(), scale, key))
