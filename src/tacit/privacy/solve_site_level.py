"""Solver of site-level promises: the mechanism by who adds the noise."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from tacit.errors import Refused
from tacit.privacy.contracts import AggregatorSpec, Norm, name_of, parties_of, sensitivity_of

if TYPE_CHECKING:
    from tacit.privacy.mechanisms.base import Mechanism
    from tacit.privacy.policy import Privacy


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
    from tacit.privacy.mechanisms.site_level import SiteLevel

    if promise.clip_quantile is not None:
        _require_mean(aggregation)
    if promise.noise == "secure":
        return _secure(promise, federation, aggregation, rounds, sampling, asked)
    rounds += asked
    if promise.noise == "site":
        # The server sees who takes part, so no draw is counted on.
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


def _require_mean(aggregation: AggregatorSpec) -> None:
    """Refuse rules that compare updates where each is sent in units of its own."""
    if name_of(aggregation) != "mean":
        raise Refused(
            f"clip_quantile does not go with {name_of(aggregation)}: updates are sent in units of their "
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

    if promise.participation < 1 or sampling != "poisson":
        # Shares of noise are sized for all sites; a sum over fewer would hold too little of it.
        raise Refused(
            f'noise = "secure" with participation = {promise.participation:g} and sampling = "{sampling}" '
            "is not priced: every site adds its share of the noise in every round. Use participation = 1 "
            "without a draw."
        )
    if promise.mechanism != "gaussian":
        raise Refused(
            'noise = "secure" adds discrete Gaussian noise: use mechanism = "gaussian", delta above 0'
        )
    if parties_of(aggregation, list(federation)) is None:
        raise Refused(
            f'noise = "secure" does not go with {name_of(aggregation)}: it looks at every single update, '
            "and nobody sees more than sums. Use mean, centered-clip with a radius and one step, or "
            "bucketing with at least 3 sites to a bucket, which sums each bucket in secret; or noise = "
            '"site".'
        )
    if aggregation.weights != "uniform":
        raise Refused(
            'noise = "secure" adds up updates as they are: use weights = "uniform", or noise = "server"'
        )
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


def _sensitivity(
    promise: "Privacy", federation: Collection[str], aggregation: AggregatorSpec, sampling: str
) -> float:
    if sampling != "poisson":
        # In a draw of fixed size one site more takes the place of another.
        raise Refused(
            f'noise = "server" with sampling = "{sampling}" is not priced: only an independent, secret '
            'draw of the sites is. Use sampling = "poisson" with participation, or noise = "site".'
        )
    norm: Norm = "l2" if promise.mechanism == "gaussian" else "l1"
    sites, name = len(federation), name_of(aggregation)
    if sensitivity_of(aggregation, promise.site_clip, sites, norm) is None:
        raise Refused(
            f'noise = "server" does not go with {name}: there is no bound on how far one site can move '
            "its result, so no noise is enough. Use mean, trimmed-mean, mixing before trimmed-mean, or "
            'centered-clip with a radius and one step; or noise = "site".'
        )
    if promise.participation < 1 and parties_of(aggregation, list(federation)) is None:
        raise Refused(
            f'noise = "server" with {name} and participation = {promise.participation:g} is not priced: its '
            "result hangs on how many come, which is a secret. Use participation = 1, or the mean."
        )
    reach = sensitivity_of(aggregation, promise.site_clip, promise.participation * sites, norm)
    assert reach is not None
    return reach
