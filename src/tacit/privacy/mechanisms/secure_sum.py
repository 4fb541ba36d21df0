"""Noise in shares under secure aggregation: each site adds a part of it, and every sum holds enough of them.

The server is blind: it sees sums over groups of sites and never a single update. Sites that work together
with the server can tell their own shares of noise, so only those of the others count, and only of as many as
must stay for there to be a sum at all.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tacit.errors import Refused, require, require_count, require_positive
from tacit.privacy.accounting.release import COARSEST, Release, clipped_release
from tacit.privacy.contracts import SiteGroups
from tacit.privacy.mechanisms import noise
from tacit.privacy.mechanisms.base import NoPrivacy
from tacit.privacy.mechanisms.discrete import discrete_gaussian
from tacit.privacy.mechanisms.lattice import Lattice, RingLattice
from tacit.runtime.arrays import Array, as_array
from tacit.runtime.keys import Key

# Of two sites each knows the other's vector from the sum; beyond a hundred, masks between all pairs cost more
# than the training.
FEWEST, MOST = 3, 100


def threshold(sites: int) -> int:
    """Return the number of sites that must stay to the end: more than two thirds."""
    require(FEWEST <= sites <= MOST, "sites", sites, f"from {FEWEST} to {MOST}")
    return 2 * sites // 3 + 1


def honest(sites: int, colluders: int, least: int | None = None) -> int:
    """Return the smallest number of honest sites' vectors in any sum that is revealed.

    Args:
        sites: Number of participants.
        colluders: Number of them that may work together with the server.
        least: Number that must stay to the end; by default more than two thirds.

    Raises:
        Refused: This many colluders could unmask a site.
    """
    kept = threshold(sites) if least is None else least
    # Each half of two honest groups could be told another set of survivors; with all colluders, neither may
    # reach the threshold: 2 (t - c) > n - c (Bonawitz and others 2017, section 6.2). And the sum of a single
    # honest vector hides nothing.
    most, needed = min(2 * kept - sites - 1, kept - 2), max((sites + colluders) // 2 + 1, colluders + 2)
    if colluders > most:
        remedy = f"let at least {needed} stay" if needed <= sites else "take more sites"
        raise Refused(
            f"colluders = {colluders} is not allowed with {sites} sites of which {kept} must stay: with a "
            f"dishonest server they could unmask a site. At most {max(most, 0)} can be tolerated; {remedy}, "
            "or trust more of them"
        )
    return kept - colluders


def least_shares(sites: int, colluders: int) -> int | None:
    """Return the smallest number of noise shares in a sum over all sites; None if there is no such sum."""
    try:
        return honest(sites, colluders) if FEWEST <= sites <= MOST else None
    except Refused:
        return None


@dataclass(frozen=True, kw_only=True)
class SecureSum(NoPrivacy):
    """Each site clips its update, rounds it to whole steps and adds its share of discrete Gaussian noise.

    Args:
        clip: The L2 bound of one site's update.
        multiplier: The noise that counts, in units of the bound on the lattice.
        colluders: Number of sites that may work together with the server.
        sites: Number of participants.
        parties: Groups to sum in a round, given the sites and its number; by default one group of all.
        number: Number of the round.
        rehearsal: Whether the noise repeats.
    """

    clip: float
    multiplier: float
    colluders: int
    sites: int
    parties: Callable[[Sequence[str], int], SiteGroups | None] | None = None
    number: int = 0
    rehearsal: bool = False

    def __post_init__(self) -> None:
        require_positive("clip", self.clip)
        require_positive("multiplier", self.multiplier)
        require_count("colluders", self.colluders)
        _ = self.shares

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of sites in each group."""
        names = [str(place) for place in range(self.sites)]
        return tuple(len(group) for group in self.groups(names))

    @property
    def shares(self) -> int:
        """Smallest number of noise shares in any sum; refuses groups too small to hide a site."""
        smallest = min(self.sizes)
        if smallest < FEWEST:
            raise Refused(
                f"a group of {smallest} sites is too small for secure aggregation: it needs at least "
                f"{FEWEST}, or each site would learn the other's update. Use larger groups, or more sites."
            )
        return min(honest(size, self.colluders) for size in self.sizes)

    def groups(self, names: Sequence[str]) -> SiteGroups:
        """Return the groups of sites whose sums the server sees.

        Raises:
            Refused: A site is missing from the start: shares of noise are sized for all sites.
        """
        if len(names) != self.sites:
            raise Refused(
                f"{len(names)} sites cannot use secure aggregation whose noise is shared among {self.sites}: "
                "every site must start a round, though not finish it"
            )
        found = None if self.parties is None else self.parties(names, self.number)
        return (tuple(names),) if found is None else found

    def at_round(self, number: int) -> Self:
        """Return the mechanism with the groups of a round."""
        return replace(self, number=number)

    def with_one_group(self) -> Self:
        """Return the mechanism with all sites in one group."""
        return replace(self, parties=None)

    def lattice(self, width: int) -> RingLattice:
        """Return the lattice that encodes updates of `width` coordinates."""
        return self._update_lattice(width)

    def _update_lattice(self, width: int) -> Lattice:
        return Lattice.fit(
            clip=self.clip,
            width=width,
            sites=max(self.sizes),
            multiplier=self.multiplier,
            honest=self.shares,
        )

    def check_width(self, width: int) -> None:
        """Refuse updates of `width` coordinates that do not fit the lattice with their noise."""
        _ = self.lattice(width).share(self.multiplier, self.shares)

    def at_site(self, update: Array, key: Key) -> Array:
        """The update in whole steps, clipped, with the site's share of noise; to be masked before it leaves.

        Guarantee:
            One update moves a sum by at most the lattice's `reach`; the shares that count add up to noise of
            `multiplier` times that.
        """
        noise.require_rehearsal(key, self.rehearsal)
        values = as_array(update)
        lattice = self._update_lattice(values.size)
        inputs = (values.tobytes(), repr(lattice).encode())
        steps = lattice.stochastic_round(values, (key / "rounding").secret(*inputs))
        spread = lattice.share(self.multiplier, self.shares)
        steps = steps + discrete_gaussian(spread, values.size, (key / "share").secret(*inputs))
        return steps.astype(np.float64)

    def on_ring(self, steps: Array) -> NDArray[np.uint32]:
        """Encode noisy steps modulo 2^32."""
        return self.lattice(steps.size).encode(steps.astype(np.int64))

    def mean_of(self, total: NDArray[np.uint32], sites: int) -> NDArray[np.float64]:
        """Decode the sum over a group of `sites` sites as a mean; its denominator is public."""
        return self.lattice(total.size).decode(total) / sites

    def deviation(self, sites: int) -> float:
        """Return the standard deviation of the noise in a mean of `sites` updates with all shares."""
        return self.multiplier * self.clip * (sites / self.shares) ** 0.5 / sites

    def release(self, number: int, names: Collection[str]) -> tuple[Release, ...]:
        """One release about the sites: each is in one sum.

        Steps are counted on the coarsest lattice that is allowed, where rounding costs most.
        """
        return (
            clipped_release(
                self.multiplier,
                clip=COARSEST,
                law="discrete",
                unit="site",
                subject="sites",
                view="server",
                party="each site",
                purpose=f"round {number}",
                rehearsal=self.rehearsal,
            ),
        )
