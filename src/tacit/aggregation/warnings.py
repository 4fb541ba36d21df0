"""Warnings about an aggregation for the author of an experiment."""

from bisect import bisect_left

from tacit.aggregation.base import Aggregator, CustomAggregator, noise_of
from tacit.aggregation.defence.quarantine import Quarantine, too_few_warning
from tacit.aggregation.mean import Mean
from tacit.aggregation.robust.mixing import Bucketing
from tacit.errors import Refused, TooFewSites
from tacit.privacy.mechanisms.secure_sum import FEWEST, MOST, honest
from tacit.privacy.policy import Open, Privacy

# With fewer sites, the outvoted one may be the honest one.
FEWEST_TO_VOTE = 4
# More sites than any federation has.
MANY = 100_000


def aggregation_warnings(
    aggregation: Aggregator, sites: int | None, privacy: Privacy | Open, quarantine: Quarantine | None = None
) -> list[str]:
    """Return warnings, each a sentence.

    Args:
        aggregation: The aggregator, resolved.
        sites: Number of sites; None if that is not known yet.
        privacy: The promise.
        quarantine: The quarantine, if there is one.
    """
    noise, found = noise_of(privacy), list[str]()
    if sites is not None and not isinstance(aggregation, Mean | CustomAggregator):
        found += _tolerance_warnings(aggregation, sites)
    if noise == "site" and aggregation.under_noise == "suffers":
        found.append(
            f"{aggregation.kind} loses more accuracy to noise at the sites than the mean, and more with a "
            "larger model: covariance-filter and geometric-median lose less"
        )
    if noise == "secure":
        found.append(_secure_warnings(aggregation, sites))
    unseen = None if quarantine is None or sites is None else too_few_warning(sites)
    return found if unseen is None else [*found, unseen]


def min_sites_for(aggregation: Aggregator, privacy: Privacy | Open) -> int:
    """The fewest sites that a rule can serve and among which a promise can be kept."""

    def can_serve(sites: int) -> bool:
        try:
            _ = aggregation.resolve(sites, privacy)
        except TooFewSites:
            return False
        return True

    fewest = 1 + bisect_left(range(1, MANY), True, key=can_serve)
    if isinstance(privacy, Open) or privacy.noise != "secure":
        return fewest
    fewest = max(fewest, FEWEST)
    return next((sites for sites in range(fewest, MOST + 1) if _hides(sites, privacy.colluders)), fewest)


def _hides(sites: int, colluders: int) -> bool:
    try:
        _ = honest(sites, colluders)
    except Refused:
        return False
    return True


def _tolerance_warnings(aggregation: Aggregator, sites: int) -> list[str]:
    """Return warnings about a rule for `sites` sites."""
    f = aggregation.tolerates(sites)
    if sites < FEWEST_TO_VOTE:
        return [f"with {sites} sites, no rule can outvote a dishonest one: updates are only screened"]
    if f == 0:
        return [f"{aggregation.kind} with these options tolerates no dishonest site among {sites}"]
    if 3 * f >= sites:
        return [
            f"f = {f} of {sites} sites is a third or more: few rules tolerate that if the data of sites "
            "differ"
        ]
    return []


def _secure_warnings(aggregation: Aggregator, sites: int | None) -> str:
    """Return the warning about attackers under secure aggregation."""
    f = 1 if sites is None else aggregation.tolerates(sites)
    if isinstance(aggregation, Bucketing) and f:
        told = "" if sites is None else f"; {f} of {sites // aggregation.size} buckets can be outvoted"
        return f"the server sees no single update: a dishonest site spoils the sum of its bucket{told}"
    return "the server sees no single update, so nothing but its own clipping limits a dishonest site"
