"""Lattices of secure sums: encode vectors as integers modulo 2^32, and decode their sum.

Where whole sites are protected (`Lattice`), a clipped vector is scaled by a power of two and rounded at
random to whole numbers, without bias, but never to a vector longer than a public bound (conditional rounding:
Kairouz, Liu and Steinke 2021). The bound is what one site can move the sum by. Where records are protected
(`RecordLattice`), each site rounds the sum of its records once, and the bound is what one record can move it
by. Noise, and price, are measured in these bounds. Sums that leave the ring would come back from its other
end: a lattice is chosen so that this does not happen, and refused where it is too coarse.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue, is_between, require, require_count, require_positive
from tacit.privacy.accounting.release import COARSEST, FEWEST_STEPS
from tacit.privacy.mechanisms.base import ROUNDED
from tacit.privacy.mechanisms.clip import clip_rows
from tacit.runtime.keys import Secret

# Half the ring; and the standard deviations of noise that must fit into it beside the longest sum.
HALF, DEVIATIONS = 2.0**31, 12.0
# Random roundings of a vector before it is rounded to the nearest.
TRIES = 8
# Fewest steps in the bound of one record, where sums of records are rounded: the ring has to hold many.
COARSEST_RECORD = 2.0**10
# Largest share of a record's bound that the rounding of a sum may add to it.
ROUNDING_COST = 0.02
# Fewest contributions of full length that the sum of a site has to have room for.
FEWEST_ADDED = 1024


class RingLattice(Protocol):
    """Lattice of a secure sum, with the sensitivity of the sum in its steps."""

    @property
    def scale(self) -> float:
        """Steps per unit; a power of two."""
        ...

    @property
    def sensitivity(self) -> float:
        """Sensitivity of the sum to one protected unit, in steps."""
        ...

    def share(self, multiplier: float, honest: int) -> float:
        """Return the standard deviation, in steps, of each noise share if `honest` shares are counted on."""
        ...

    def encode(self, steps: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Encode whole numbers modulo 2^32."""
        ...

    def decode(self, total: NDArray[np.uint32]) -> NDArray[np.float64]:
        """A sum modulo 2^32 as real numbers."""
        ...


@dataclass(frozen=True, kw_only=True)
class Lattice:
    """Whole numbers modulo 2^32 that encode multiples of `1 / scale`.

    Args:
        scale: Steps per unit; a power of two, so that scaling is exact.
        clip: The L2 bound of one vector before it is rounded.
        width: Coordinates of a vector.
        sites: The most vectors that are added up.
    """

    scale: float
    clip: float
    width: int
    sites: int

    def __post_init__(self) -> None:
        _require_steps(self)
        allowed = (
            f"fewer, or the scale lower: their sum must stay below 2^31, and {self.sensitivity:.6g} is one"
        )
        require(self.sites * self.sensitivity < HALF, "sites", self.sites, allowed)

    @classmethod
    def fit(cls, *, clip: float, width: int, sites: int, multiplier: float, honest: int) -> Self:
        """The finest lattice on which the sum and 12 standard deviations of its noise stay inside the ring.

        Args:
            clip: The L2 bound of one vector.
            width: Coordinates of a vector.
            sites: The most vectors that are added up, each with its share of noise.
            multiplier: The noise of `honest` shares, in units of `reach`.
            honest: Number of honest shares that are counted on.
        """
        require_positive("multiplier", multiplier)
        require_count("sites", sites)
        require_count("honest", honest)
        require(honest <= sites, "honest", honest, f"at most the number of sites, {sites}")
        most = sites + DEVIATIONS * multiplier * math.sqrt(sites / honest)
        # The longest vector that leaves room for the noise; the rounding error comes off first.
        room = HALF * (1 - 1e-9) / most
        scaled = room - math.sqrt(width) / 2
        # Powers of two may cost half of it.
        if room < 2 * COARSEST or scaled < 0.99 * room:
            raise InvalidValue(
                f"noise of {multiplier:.4g} times the bound, {sites} sites of which {honest} are honest, and "
                f"{width:,} coordinates do not fit into 32 bits: fewer sites, fewer rounds, a larger epsilon "
                "or a smaller model are needed"
            )
        power = math.floor(math.log2(scaled / clip))
        return cls(scale=math.ldexp(1.0, power), clip=clip, width=width, sites=sites)

    @property
    def sensitivity(self) -> float:
        """Sensitivity, in steps: the L2 bound of one rounded vector.

        The nearest whole vector is at most half a step away in each coordinate, sqrt(width) / 2 in all.
        """
        # Clipped vectors are within the bound up to the rounding of a norm over `width` numbers.
        rounding = 1 + (self.width + 16) * 2.0**-52
        return self.scale * self.clip * rounding + math.sqrt(self.width) / 2 * (1 + 2.0**-50)

    def share(self, multiplier: float, honest: int) -> float:
        """Return the standard deviation, in steps, of each noise share if `honest` shares are counted on."""
        return noise_share(self.sensitivity, multiplier, honest)

    def stochastic_round(self, values: NDArray[np.float64], secret: Secret) -> NDArray[np.int64]:
        """A vector as whole steps, at random and without bias unless that would make it too long.

        Guarantee:
            The result has L2 norm at most `reach`, exactly, whatever is given: longer vectors are clipped
            first, and one that holds NaN or infinity becomes zero.
        """
        given = f"shape {values.shape}"
        require(values.shape == (self.width,), "values", given, f"a vector of {self.width} numbers")
        steps = clip_rows(values, self.clip) * self.scale
        below = np.floor(steps)
        parts, whole = steps - below, below.astype(np.int64)
        for _ in range(TRIES):
            tried = whole + (secret.uniform(steps.shape) < parts)
            if self._within(tried):
                return tried
        nearest = np.rint(steps).astype(np.int64)
        assert self._within(nearest)
        return nearest

    def encode(self, steps: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Encode whole numbers modulo 2^32."""
        return steps.astype(np.uint32)

    def decode(self, total: NDArray[np.uint32]) -> NDArray[np.float64]:
        """A sum modulo 2^32 as real numbers: the residues nearest to zero, in units."""
        return total.view(np.int32) / self.scale

    def _within(self, steps: NDArray[np.int64]) -> bool:
        # Exact: squares of numbers within the ring stay below 2^63.
        return int(np.dot(steps, steps)) <= Fraction(self.sensitivity) ** 2


@dataclass(frozen=True, kw_only=True)
class RecordLattice:
    """Whole numbers modulo 2^32 that encode the sum of a site's records in multiples of `1 / scale`.

    Args:
        scale: Steps per unit; a power of two, so that scaling is exact.
        clip: The L2 bound of one record's contribution.
        width: Coordinates of a sum.
        sites: The most sums that are added up.
        most: The largest absolute number of steps in a coordinate of a site's sum; beyond, it is cut off.
    """

    scale: float
    clip: float
    width: int
    sites: int
    most: int

    def __post_init__(self) -> None:
        _require_steps(self)
        require_count("most", self.most)
        require(self.sites * self.most < HALF, "most", self.most, f"below 2^31 / {self.sites}")

    @classmethod
    def fit(cls, *, clip: float, width: int, sites: int, multiplier: float, honest: int) -> Self:
        """The coarsest lattice whose rounding adds at most `ROUNDING_COST` to the bound: most records fit.

        Args:
            clip: The L2 bound of one record's contribution.
            width: Coordinates of a sum.
            sites: The most sums that are added up, each with its share of noise.
            multiplier: The noise of `honest` shares, in units of `sensitivity`.
            honest: Number of honest shares that are counted on.
        """
        require_positive("multiplier", multiplier)
        require_count("sites", sites)
        require_count("honest", honest)
        require(honest <= sites, "honest", honest, f"at most the number of sites, {sites}")
        noise = DEVIATIONS * multiplier * (1 + ROUNDING_COST) * 1.01 * math.sqrt(sites / honest)
        least = max(COARSEST_RECORD, math.sqrt(width) / ROUNDING_COST)
        scale = math.ldexp(1.0, math.ceil(math.log2(least / clip)))
        steps = scale * clip
        # Records of full length that fit into a site's sum beside the noise.
        added = (HALF * (1 - 1e-9) / steps - noise) / sites
        if added < FEWEST_ADDED:
            raise InvalidValue(
                f"noise of {multiplier:.4g} times the bound of a record, {sites} sites of which {honest} are "
                f"honest, and {width:,} coordinates leave no room for sums of records in 32 bits: fewer "
                "sites, a larger epsilon or fewer features are needed"
            )
        return cls(scale=scale, clip=clip, width=width, sites=sites, most=math.floor(added * steps))

    @property
    def sensitivity(self) -> float:
        """Sensitivity of a site's rounded sum to one record more or less, in steps.

        Guarantee:
            Before rounding, sums as `RecordLevel.noisy_sums` forms them differ by at most `clip (1 +
            ROUNDED)`, as shown there. Rounding to the nearest moves each of the two by at most half a step in
            each coordinate, hence by sqrt(width) / 2, and the two apart by at most sqrt(width). To cut
            coordinates off at a public limit moves no two sums apart.
        """
        return self.scale * self.clip * (1 + ROUNDED) + math.sqrt(self.width) * (1 + 2.0**-50)

    def share(self, multiplier: float, honest: int) -> float:
        """Return the standard deviation, in steps, of each noise share if `honest` shares are counted on."""
        return noise_share(self.sensitivity, multiplier, honest)

    @property
    def most_records(self) -> int:
        """Most records whose sum is never cut off: no coordinate of one is longer than the clip bound."""
        return math.floor(self.most / (self.scale * self.clip))

    def round_sum(self, total: NDArray[np.float64]) -> NDArray[np.int64]:
        """Round a site's sum to the nearest whole steps, cut off at `most`; broken numbers become zero."""
        given = f"shape {total.shape}"
        require(total.shape == (self.width,), "total", given, f"a vector of {self.width} numbers")
        farthest = self.most / self.scale
        known = np.clip(np.where(np.isnan(total), 0.0, total), -farthest, farthest)
        return np.rint(known * self.scale).astype(np.int64)

    def encode(self, steps: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Encode whole numbers modulo 2^32."""
        return steps.astype(np.uint32)

    def decode(self, total: NDArray[np.uint32]) -> NDArray[np.float64]:
        """A sum modulo 2^32 as real numbers: the residues nearest to zero, in units."""
        return total.view(np.int32) / self.scale


def noise_share(sensitivity: float, multiplier: float, honest: int) -> float:
    """Return the standard deviation, in steps, of each noise share if `honest` shares are counted on.

    Guarantee:
        `honest` shares, or more, are as private as one discrete Gaussian of `multiplier * sensitivity`. With
        k shares of s steps, probabilities differ from its own by a factor of at most
        exp(10 k exp(-pi^2 s^2)) for each coordinate (Kairouz, Liu and Steinke 2021): for any model, and
        the least s allowed, closer to 1 than 2^-3000.
    """
    require_positive("multiplier", multiplier)
    require_count("honest", honest)
    # A rounding more, so that shares add up to at least the charged noise.
    deviation = multiplier * sensitivity / math.sqrt(honest) * (1 + 2.0**-48)
    allowed = f"more: a share has {deviation:.3g} steps, and needs {FEWEST_STEPS:g}"
    require(deviation >= FEWEST_STEPS, "multiplier", multiplier, allowed)
    return deviation


def _require_steps(lattice: Lattice | RecordLattice) -> None:
    """Refuse a clip bound out of range, a scale that is no power of two, and empty vectors or sums."""
    require(is_between(lattice.clip, 1e-200, 1e200), "clip", lattice.clip, "from 1e-200 to 1e200")
    require_positive("scale", lattice.scale)
    require(math.frexp(lattice.scale)[0] == 0.5, "scale", lattice.scale, "a power of two")
    require_count("width", lattice.width)
    require_count("sites", lattice.sites)
