"""Signal-to-noise ratio: the length of an update against that of the noise, before anything runs."""

import math
from dataclasses import asdict, dataclass

from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.policy import Privacy

# Updates point the same way from round to round, noise does not: over T rounds one grows T times, the other
# by the root of T. Below this ratio over the whole run, private policies were never seen to learn.
AUDIBLE = 5.0


@dataclass(frozen=True, kw_only=True)
class SignalToNoise:
    """Signal-to-noise ratio of a mean update in one round, by the clip bound.

    Args:
        update: Largest length of the mean of clipped updates, in bounds; under an L1 bound, of updates that
            move all numbers alike.
        noise: Length of its noise, in bounds.
        sites: Number of sites in the mean.
        numbers: Number of coordinates of an update.
        rounds: Number of rounds.
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
        """Return True if the signal is too weak for learning to be expected."""
        return self.whole < AUDIBLE

    def as_dict(self) -> dict[str, float]:
        """Return plain data for JSON."""
        return {**asdict(self), "whole": self.whole}

    def sentence(self) -> str:
        """Return the warning in words."""
        return (
            f"the signal will drown: by the bound, the mean of {self.sites:g} updates of {self.numbers:,} "
            f"numbers is at most {self.update:.3g} long, its noise {self.noise:.3g}; over {self.rounds} "
            f"rounds that is {self.whole:.2g} to 1, and below {AUDIBLE:g} nothing was seen to learn. Take "
            "more sites, fewer numbers, or a larger epsilon"
        )


def snr_warnings(heard: SignalToNoise | None) -> list[str]:
    """Return warnings for the author of an experiment."""
    return [heard.sentence()] if heard is not None and heard.drowned else []


def signal_to_noise(
    privacy: Privacy, mechanism: Mechanism, numbers: int | None, sites: int, rounds: int
) -> SignalToNoise | None:
    """Compute the signal-to-noise ratio of a site-level promise, for updates of `numbers` coordinates.

    None for record-level promises, or if the number of coordinates is not known.
    """
    if privacy.unit != "site" or numbers is None:
        return None
    came = max(privacy.participation * sites, 1.0)
    # An L1 bound leaves a vector that moves all numbers by normal amounts this part of it, in L2.
    dense = 1.0 if privacy.mechanism == "gaussian" else math.sqrt(math.pi / 2 / numbers)
    noise = mechanism.deviation(max(round(came), 1)) * math.sqrt(numbers) / privacy.site_clip
    return SignalToNoise(update=dense, noise=noise, sites=came, numbers=numbers, rounds=rounds)
