"""Site-level mechanism: the whole update of a site is clipped, and the site or the server adds noise."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from tacit.errors import require, require_positive
from tacit.privacy.accounting.release import Relation, Release, View, clipped_release
from tacit.privacy.contracts import Norm
from tacit.privacy.mechanisms.base import (
    DEVIATIONS,
    NORMS,
    NoiseLaw,
    NoPrivacy,
    add_noise,
    clip_by_law,
    require_price,
)
from tacit.runtime.arrays import Array, as_array
from tacit.runtime.keys import Key


@dataclass(frozen=True, kw_only=True)
class SiteLevel(NoPrivacy):
    """Each site's whole update is clipped; noise is added by the site itself, or by a trusted server.

    Args:
        law: The noise.
        clip: The bound of one site's update.
        multiplier: Noise in units of the bound: of `clip` at the site, of `reach` at the server.
        where: Party that adds the noise.
        reach: Sensitivity of the aggregate to one clipped update, which scales the server's noise.
        rate: Probability with which each site joins a round; the draw is secret, or the rate 1 where the
            server sees it.
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

    def at_site(self, update: Array, key: Key) -> Array:
        """The clipped update; with noise if the site does not trust the server."""
        return self._clip_and_noise(update, key)

    def at_sites(self, updates: Array, keys: Sequence[Key]) -> Array:
        """Clip and noise all rows at once."""
        return self._clip_and_noise(updates, keys)

    def _clip_and_noise(self, updates: Array, key: Key | Sequence[Key]) -> Array:
        short = clip_by_law(as_array(updates), self.law, self.clip)
        if self.where == "server":
            return short
        scale = self.multiplier * self.clip
        return add_noise(short, self.law, scale, key, self.rehearsal)

    def at_server(self, combined: Array, key: Key) -> Array:
        """The aggregate; with noise if the server is trusted to add it."""
        if self.where == "site":
            return combined
        scale = self.multiplier * self.reach
        return add_noise(combined, self.law, scale, key, self.rehearsal)

    def deviation(self, sites: int) -> float:
        """Return the standard deviation of the noise in a mean of `sites` updates, wherever it is added."""
        at_site = self.multiplier * self.clip / math.sqrt(sites)
        own = at_site if self.where == "site" else self.multiplier * self.reach
        return DEVIATIONS[self.law] * own

    def denominator(self, sites: int) -> float | None:
        """Expected number of sites, if the server adds the noise: `reach` holds for that number alone."""
        return self.rate * sites if self.where == "server" else None

    def update_bound(self) -> tuple[float, Norm] | None:
        """The bound, where there is no noise on top of it."""
        return (self.clip, NORMS[self.law]) if self.where == "server" else None

    def release(self, number: int, names: Collection[str]) -> tuple[Release, ...]:
        """Return one release about the sites, independent of who takes part."""
        # A server that sees every single update sees a site replaced, not one added or removed.
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
