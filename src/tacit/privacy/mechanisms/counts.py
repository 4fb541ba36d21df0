"""Counts of records with discrete Laplace noise (the geometric mechanism), at each site or in secure sums.

A record moves a few cells of a table by 1 each, whatever it holds. Whole noise on whole counts leaves no
rounding to pay for, and its guarantee has no delta. Under secure aggregation each site adds a share of the
noise, so all sites together pay for one noise instead of one each. Ghosh, Roughgarden and Sundararajan
(2009): for a single count no mechanism is better.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue, Refused, require, require_count, require_positive
from tacit.privacy.accounting.release import Release
from tacit.privacy.mechanisms import noise
from tacit.privacy.mechanisms.base import Contributions, NoPrivacy, Rows
from tacit.privacy.mechanisms.discrete import (
    discrete_laplace_share,
    discrete_laplace_variance,
    require_laplace_scale,
)
from tacit.privacy.mechanisms.lattice import FEWEST_ADDED, HALF
from tacit.privacy.mechanisms.secure_sum import SecureSum
from tacit.runtime.arrays import Array, as_array
from tacit.runtime.keys import Key

# Whole numbers are exact in doubles up to this.
MOST_COUNTED = 2.0**53
# Scales of noise that must fit into the ring beside the counts: beyond, e^-80 of it is left.
SCALES = 100.0


@dataclass(frozen=True, kw_only=True)
class NoisyCounts(NoPrivacy):
    """Counts of records with discrete Laplace noise, added by each site to its own.

    Args:
        cells: The most cells that one record moves, each by 1.
        multiplier: The scale of the noise, in units of `cells`.
        rehearsal: Whether the noise repeats.

    Guarantee:
        One record more or less moves the counts by at most `cells` in L1 norm, exactly: contributions that
        are longer, or broken, are left out, and whole numbers are added up without rounding. Noise of scale b
        = `multiplier * cells` changes no probability by more than a factor of exp(cells / b), since
        `a^|k - m| <= a^|k| exp(|m| / b)` in each cell: epsilon is 1 / `multiplier` at delta 0, but for the
        2^-200 by which a draw may differ from its law.
    """

    cells: int
    multiplier: float
    rehearsal: bool = False

    def __post_init__(self) -> None:
        require_scale(self.cells, self.multiplier)

    @property
    def scale(self) -> float:
        """The scale of the noise."""
        return self.multiplier * self.cells

    def noisy_sums(self, contributions: Contributions, keys: Sequence[Key], step: int) -> Array:
        """The counts of each site plus noise; with no records at all, noise alone."""
        counted = count_records(contributions, self.cells)
        return np.stack([
            own + draw_share(own, self.scale, 1, key / step, self.rehearsal)
            for own, key in zip(counted, keys, strict=True)
        ])  # fmt: skip

    def noisy_sum(self, rows: Array, key: Key) -> Array:
        """The sum of rows of counts, one for each record, plus noise."""
        return self.noisy_sums(Rows(rows[None]), [key], 0)[0]

    def deviation(self, sites: int) -> float:
        """Return the standard deviation of the noise in each count, averaged over `sites` sites."""
        return math.sqrt(discrete_laplace_variance(self.scale) / sites)

    def release(self, number: int, names: Collection[str]) -> tuple[Release, ...]:
        """Return one release per site, about its own records."""
        return counts_releases(self.cells, self.multiplier, f"round {number}", names, self.rehearsal)


@dataclass(frozen=True, kw_only=True)
class SecureCounts(SecureSum):
    """Sums of counts over all sites: each site adds its share of one discrete Laplace noise to its own.

    Of the arguments of `SecureSum`, `clip` is the most cells that one record moves, each by 1, and
    `multiplier` the scale of the noise in units of it.

    Guarantee:
        As that of `NoisyCounts`. One record more or less moves the counts of its site, and no other's. Any
        sum that is revealed has the shares of `shares` honest sites or more. The first `shares` of them add
        up to discrete Laplace noise of scale b = `multiplier * clip` exactly (`discrete_laplace_share`); the
        others, the shares of colluders, counts cut off at a public limit (which moves no two counts apart)
        and sums modulo 2^32 change nothing about that: they are independent of it, or functions of what
        it has hidden. Sites that drop out take their shares along; they are not counted on.
    """

    def __post_init__(self) -> None:
        require(self.clip == round(self.clip), "clip", self.clip, "a whole number of cells")
        require_scale(int(self.clip), self.multiplier)
        super().__post_init__()

    @property
    def scale(self) -> float:
        """The scale of the noise that is counted on."""
        return self.multiplier * self.clip

    def noisy_sums(self, contributions: Contributions, keys: Sequence[Key], step: int) -> Array:
        """The counts of each site, each with the site's share of the noise.

        They are to be masked, and not to be shown to anyone: a share alone protects nothing.
        """
        require(step == 0, "step", step, "0: there is one secure sum in a round")
        counted = count_records(contributions, int(self.clip))
        most = self.lattice(counted.shape[1]).most
        return np.stack([
            own + draw_share(own, self.scale, self.shares, key / step, self.rehearsal)
            for own, key in zip(np.clip(counted, -most, most), keys, strict=True)
        ])  # fmt: skip

    def noisy_sum(self, rows: Array, key: Key) -> Array:
        """The sum of rows of counts, one for each record, with the site's share of the noise."""
        return self.noisy_sums(Rows(rows[None]), [key], 0)[0]

    def lattice(self, width: int) -> "CountLattice":
        """Return the encoding of counts in the ring."""
        return CountLattice.fit(cells=self.clip, scale=self.scale, sites=max(self.sizes), shares=self.shares)

    def check_width(self, width: int) -> None:
        """Refuse noise that does not fit the ring."""
        _ = self.lattice(width)

    def at_site(self, update: Array, key: Key) -> Array:
        """The noisy counts, to be masked before they leave.

        Raises:
            Refused: They are no noisy counts, as `noisy_sums` gave them: the task has changed them.
        """
        values = as_array(update)
        if not bool(np.isfinite(values).all() and (values == np.rint(values)).all()):
            raise Refused(
                'noise = "secure" with unit = "record" sends the noisy counts of each site as they are, and '
                'this task sends something else: use noise = "site"'
            )
        return values

    def deviation(self, sites: int) -> float:
        """Return the standard deviation of the noise in a mean of `sites` counts with all shares."""
        return math.sqrt(discrete_laplace_variance(self.scale) * sites / self.shares) / sites

    def release(self, number: int, names: Collection[str]) -> tuple[Release, ...]:
        """Return one release per site, about its own records."""
        return counts_releases(int(self.clip), self.multiplier, f"round {number}", names, self.rehearsal)


@dataclass(frozen=True, kw_only=True)
class CountLattice:
    """Whole counts modulo 2^32: their own lattice.

    Args:
        sensitivity: Sensitivity of a site's counts to one record, in L1 norm.
        deviation: Standard deviation of the whole noise.
        most: The largest absolute count of a site; beyond, it is cut off.
        scale: Steps per record.
    """

    sensitivity: float
    deviation: float
    most: int
    scale: float = 1.0

    @classmethod
    def fit(cls, *, cells: float, scale: float, sites: int, shares: int) -> "CountLattice":
        """The encoding of the counts of `sites` sites, beside noise that nearly never leaves the ring."""
        # Sums of more shares than are counted on have more noise.
        room = SCALES * scale * (1 + sites / shares)
        most = math.floor((HALF * (1 - 1e-9) - room) / sites)
        if most < FEWEST_ADDED:
            raise InvalidValue(
                f"discrete Laplace noise of scale {scale:.4g} and {sites} sites leave no room for counts in "
                "32 bits: fewer sites or a larger epsilon are needed"
            )
        deviation = math.sqrt(discrete_laplace_variance(scale))
        return cls(sensitivity=cells, deviation=deviation, most=most)

    def share(self, multiplier: float, honest: int) -> float:
        """Return the standard deviation of each noise share if `honest` shares are counted on."""
        return self.deviation / math.sqrt(honest)

    def encode(self, steps: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Encode whole numbers modulo 2^32."""
        return steps.astype(np.uint32)

    def decode(self, total: NDArray[np.uint32]) -> NDArray[np.float64]:
        """A sum modulo 2^32: the residues nearest to zero."""
        return total.view(np.int32).astype(np.float64)


def count_records(contributions: Contributions, cells: int) -> Array:
    """Add up whole contributions of records (sites, cells), and leave out those that move more cells.

    Guarantee:
        One record more or less moves its site's row by at most `cells` in L1 norm, to the last bit.

    Raises:
        Refused: The contributions are no counts: they are not whole, whatever the records are.
    """
    total = contributions.total(np.where(contributions.lengths("l1") <= cells, 1.0, 0.0))
    if not bool(np.isfinite(total).all() and (total == np.rint(total)).all()):
        raise Refused("discrete Laplace noise is for counts of records, and these sums are not whole numbers")
    return np.clip(total, -MOST_COUNTED, MOST_COUNTED)


def draw_share(counted: Array, scale: float, shares: int, key: Key, rehearsal: bool) -> Array:
    """Draw a site's share of the noise on its counts, keyed by them: one noise for one table."""
    noise.require_rehearsal(key, rehearsal)
    inputs = (counted.tobytes(), repr(("discrete-laplace", scale, shares)).encode())
    drawn = discrete_laplace_share(scale, shares, counted.size, (key / "share").secret(*inputs))
    return drawn.reshape(counted.shape).astype(np.float64)


def counts_releases(
    cells: int, multiplier: float, purpose: str, names: Collection[str], rehearsal: bool
) -> tuple[Release, ...]:
    """Describe the release of counts at each site, about its own records."""
    return tuple(
        Release(
            law="discrete-laplace",
            scale=multiplier * cells,
            sensitivity=float(cells),
            subject=f"records@{name}",
            party=name,
            purpose=purpose,
            rehearsal=rehearsal,
        )
        for name in names
    )


def require_scale(cells: int, multiplier: float) -> None:
    """Refuse noise on counts that cannot be drawn, before anything is charged."""
    require_count("cells", cells)
    require_positive("multiplier", multiplier)
    require_laplace_scale(multiplier * cells)
