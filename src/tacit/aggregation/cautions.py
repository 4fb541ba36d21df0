"""What the author of an experiment may want to reconsider about who is believed, and how much."""

from tacit.aggregation.averaging import Mean
from tacit.aggregation.base import Aggregator, Own, noise_of
from tacit.aggregation.quarantine import Quarantine, unjudged
from tacit.privacy.policy import Open, Privacy

# With fewer sites, whoever is outvoted may be the honest one.
FEWEST_TO_VOTE = 4


def cautions(
    aggregation: Aggregator, sites: int, privacy: Privacy | Open, quarantine: Quarantine | None = None
) -> list[str]:
    """Warnings, each a sentence.

    Args:
        aggregation: How updates are combined, settled.
        sites: How many there are.
        privacy: What is promised.
        quarantine: Who keeps watch, if anybody does.
    """
    noise, found = noise_of(privacy), list[str]()
    f = aggregation.standing(sites)
    if not isinstance(aggregation, Mean | Own) and sites < FEWEST_TO_VOTE:
        found.append(f"with {sites} sites nobody can outvote a bad one: updates are only screened")
    if 3 * f >= sites:
        found.append(
            f"f = {f} of {sites} sites is a third or more: with sites that differ, few rules stand that"
        )
    if noise == "site" and aggregation.under_noise == "suffers":
        found.append(
            f"{aggregation.kind} loses more to noise at the sites than the mean does, the more the longer "
            "the model: covariance-filter and geometric-median lose less"
        )
    if noise == "secure":
        found.append(
            "nobody sees the update of a single site, so a site that lies is limited only by the clip that "
            "it chooses to obey"
        )
    unseen = None if quarantine is None else unjudged(sites)
    return found if unseen is None else [*found, unseen]
