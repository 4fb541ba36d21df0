"""Will what is learnt be heard? The length of an update against that of the noise, before anything runs."""

import math
from dataclasses import asdict, dataclass

from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.policy import Privacy

# Updates point the same way from round to round, noise does not: over T rounds one grows T times, the other
# by the root of T. Below this ratio over the whole run, private policies were never seen to learn.
AUDIBLE = 5.0


@dataclass(frozen=True, kw_only=True)
class SignalToNoise:
    """How long a mean update can be at the most, and how long its noise is, in one round, by the clip bound.

    Args:
        update: The longest that the mean of clipped updates can be, in bounds; under an L1 bound, of updates
            that move all numbers alike.
        noise: The length that its noise has, in bounds.
        sites: How many sites are in the mean.
        numbers: How many numbers an update has.
        rounds: How many rounds there are.
    """

    update: float
    noise: float
    sites: float
    numbers: int
    rounds: int

    @property
    def whole(self) -> float:
        """The signal of all rounds over the noise of all rounds, at best."""
        return self.update / self.noise * math.sqrt(self.rounds)

    @property
    def drowned(self) -> bool:
        """Whether nothing can be expected to be learnt."""
        return self.whole < AUDIBLE

    def as_dict(self) -> dict[str, float]:
        """Plain data for JSON."""
        return {**asdict(self), "whole": self.whole}

    def sentence(self) -> str:
        """What to mind, in words."""
        return (
            f"the signal will drown: by the bound, the mean of {self.sites:g} updates of {self.numbers:,} "
            f"numbers is at most {self.update:.3g} long, its noise {self.noise:.3g}; over {self.rounds} "
            f"rounds that is {self.whole:.2g} to 1, and below {AUDIBLE:g} nothing was seen to learn. Take "
            "more sites, fewer numbers, or a larger epsilon"
        )


def snr_warnings(heard: SignalToNoise | None) -> list[str]:
    """What the author of an experiment may want to reconsider."""
    return [heard.sentence()] if heard is not None and heard.drowned else []


def signal_to_noise(
    privacy: Privacy, mechanism: Mechanism, numbers: int | None, sites: int, rounds: int
) -> SignalToNoise | None:
    """How a promise to sites sounds, for updates of so many numbers.

    None where single records have the promise, or how many numbers there are is not known.
    """
    if privacy.unit != "site" or numbers is None:
        return None
    came = max(privacy.participation * sites, 1.0)
    # An L1 bound leaves a vector that moves all numbers by normal amounts this part of it, in L2.
    dense = 1.0 if privacy.mechanism == "gaussian" else math.sqrt(math.pi / 2 / numbers)
    noise = mechanism.deviation(max(round(came), 1)) * math.sqrt(numbers) / privacy.site_clip
    return SignalToNoise(update=dense, noise=noise, sites=came, numbers=numbers, rounds=rounds)
