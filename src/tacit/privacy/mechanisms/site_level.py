"""Site-level mechanism: the whole update of a site is clipped, and the site or the server adds noise.

`solve` chooses the mechanism of a site-level promise by who adds the noise.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tacit.errors import Refused, require, require_positive
from tacit.privacy.accounting.release import Relation, Release, View, clipped_release
from tacit.privacy.contracts import AggregatorSpec, Norm
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

if TYPE_CHECKING:
    from tacit.privacy.mechanisms.base import Mechanism
    from tacit.privacy.policy import Privacy


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


def solve(
    promise: "Privacy",
    federation: Collection[str],
    aggregation: AggregatorSpec,
    rounds: int,
    sampling: str,
    asked: int,
) -> "Mechanism":
    """The mechanism that protects whole sites over `rounds` rounds.

    Args:
        promise: The promise.
        federation: The names of the sites.
        aggregation: Aggregator of the updates.
        rounds: Number of rounds.
        sampling: Sampling of sites in a round.
        asked: Number of queries beside the rounds.

    Raises:
        Refused: The promise cannot be kept for this combination; the message names a way out.
    """
    if promise.clip_quantile is not None:
        require_mean(aggregation)
    if promise.noise == "secure":
        return _secure(promise, federation, aggregation, rounds, sampling, asked)
    rounds += asked
    if promise.noise == "site":
        # The server sees who takes part, so there is no amplification.
        multiplier = promise.multiplier(rounds, 1.0, "replace")
        reach, rate = promise.site_clip, 1.0
    else:
        reach, rate = _sensitivity(promise, federation, aggregation, sampling), promise.participation
        multiplier = promise.multiplier(rounds, rate, "add-remove")
    return SiteLevel(
        law=promise.mechanism,
        clip=promise.site_clip,
        multiplier=multiplier,
        where=promise.noise,
        reach=reach,
        rate=rate,
        rehearsal=promise.rehearsal,
    )


def require_mean(aggregation: AggregatorSpec) -> None:
    """Refuse rules that compare updates where each is sent in units of its own."""
    if aggregation.name != "mean":
        raise Refused(
            f"clip_quantile does not go with {aggregation.name}: updates are sent in units of their "
            "bounds, with counts beside them. Use mean, or a clip that stays"
        )


def _secure(
    promise: "Privacy",
    federation: Collection[str],
    aggregation: AggregatorSpec,
    rounds: int,
    sampling: str,
    asked: int,
) -> "Mechanism":
    from tacit.privacy.mechanisms.secure_sum import SecureSum

    require_sums(promise, federation, aggregation, sampling)
    bound = aggregation.sensitivity(promise.site_clip, 1.0)
    mechanism = SecureSum(
        clip=promise.site_clip if bound is None else bound,
        multiplier=promise.multiplier(rounds + asked, 1.0, "add-remove", law="discrete"),
        colluders=promise.colluders,
        sites=len(federation),
        parties=aggregation.parties,
        rehearsal=promise.rehearsal,
    )
    if asked:
        # All sites answer queries together: refused now, if there are too many for that.
        mechanism.with_one_group()
    return mechanism


def require_plain_mean(aggregation: AggregatorSpec, kind: str) -> None:
    """Refuse a rule other than the mean over all sites."""
    if aggregation.name != "mean":
        raise Refused(
            f'noise = "secure" with unit = "record" adds up the sums of all sites, and {kind} has the '
            f"aggregation {aggregation.name}: use mean"
        )


def require_sums(
    promise: "Privacy",
    federation: Collection[str],
    aggregation: AggregatorSpec,
    sampling: str,
    *,
    counts: bool = False,
) -> None:
    """Refuse what needs more than unweighted sums over groups of sites, in which every site takes part.

    Args:
        promise: The promise.
        federation: The names of the sites.
        aggregation: Aggregator of the updates.
        sampling: Sampling of sites in a round.
        counts: Whether the sums are counts of records, which have discrete Laplace noise as well.
    """
    if promise.participation < 1 or sampling != "poisson":
        # Shares of noise are sized for all sites; a sum over fewer would hold too little of it.
        raise Refused(
            f'noise = "secure" with participation = {promise.participation:g} and sampling = "{sampling}" '
            "is not priced: every site adds its share of the noise in every round. Use participation = 1 "
            "without a draw."
        )
    if promise.mechanism != "gaussian" and not counts:
        raise Refused(
            'noise = "secure" adds discrete Gaussian noise: use mechanism = "gaussian", delta above 0; '
            'mechanism = "laplace" is for counts of records (kaplan-meier)'
        )
    if aggregation.parties(list(federation), 0) is None:
        raise Refused(
            f'noise = "secure" does not go with {aggregation.name}: it needs every single update, and '
            "the server sees only sums. Use mean, centered-clip with a radius and one step, or bucketing "
            "with at least 3 sites to a bucket, which sums each bucket by secure aggregation; or noise = "
            '"site".'
        )
    if aggregation.weights != "uniform":
        raise Refused(
            'noise = "secure" sums updates without weights: use weights = "uniform", or noise = "server"'
        )


def _sensitivity(
    promise: "Privacy", federation: Collection[str], aggregation: AggregatorSpec, sampling: str
) -> float:
    if sampling != "poisson":
        # In a draw of fixed size one site more takes the place of another.
        raise Refused(
            f'noise = "server" with sampling = "{sampling}" is not priced: only independent (Poisson) '
            'sampling of the sites in secret is. Use sampling = "poisson" with participation, or noise = '
            '"site".'
        )
    norm: Norm = "l2" if promise.mechanism == "gaussian" else "l1"
    sites, name = len(federation), aggregation.name
    if aggregation.sensitivity(promise.site_clip, sites, norm) is None:
        raise Refused(
            f'noise = "server" does not go with {name}: its sensitivity to one site is not bounded, so no '
            "noise is enough. Use mean, trimmed-mean, mixing before trimmed-mean, or centered-clip with a "
            'radius and one step; or noise = "site".'
        )
    if promise.participation < 1 and aggregation.parties(list(federation), 0) is None:
        raise Refused(
            f'noise = "server" with {name} and participation = {promise.participation:g} is not priced: '
            "its result depends on the number of sites in the round, which is a secret. Use participation = "
            "1, or the mean."
        )
    reach = aggregation.sensitivity(promise.site_clip, promise.participation * sites, norm)
    assert reach is not None
    return reach
