"""Record-level noise in shares: sums of bounded records under secure aggregation.

Each site clips the contribution of every record, adds them up, rounds the sum to whole steps of a public
lattice and adds its share of discrete Gaussian noise. The server sees the sum over all sites and no single
one, so all sites together pay for one noise instead of one each.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from tacit.errors import Refused, require
from tacit.privacy.accounting.release import ROUNDED, Release, clipped_release
from tacit.privacy.contracts import SiteGroups
from tacit.privacy.mechanisms import noise
from tacit.privacy.mechanisms.base import Contributions, Rows, SumRounds, clip_factors
from tacit.privacy.mechanisms.discrete import discrete_gaussian
from tacit.privacy.mechanisms.lattice import COARSEST_RECORD, RecordLattice
from tacit.privacy.mechanisms.secure_sum import SecureSum
from tacit.runtime.arrays import Array, as_array
from tacit.runtime.keys import Key


@dataclass(frozen=True, kw_only=True)
class SecureRecordSum(SecureSum):
    """One sum over all records of all sites: each site adds its share of the noise to its own.

    Of the arguments of `SecureSum`, `clip` is the L2 bound of one record's contribution, and `multiplier` the
    noise that counts in units of the sensitivity on the lattice.

    Guarantee:
        One record more or less moves its site's sum on the lattice by at most `RecordLattice.sensitivity`,
        and no other site's. Any sum that is revealed has the shares of `shares` honest sites or more, which
        are as private as one discrete Gaussian of `multiplier` times that (`noise_share`): sites that drop
        out take their shares along, colluders know theirs, and neither is counted. To reduce a sum modulo
        2^32 is post-processing.
    """

    def noisy_sums(self, contributions: Contributions, keys: Sequence[Key], step: int) -> Array:
        """The sums of clipped contributions on the lattice, each with its site's share of the noise.

        They are to be masked, and not to be shown to anyone: a share alone protects nothing.
        """
        require(step == 0, "step", step, "0: there is one secure sum in a round")
        totals = contributions.total(clip_factors(contributions.lengths("l2"), self.clip))
        return np.stack([self._add_share(own, key / step) for own, key in zip(totals, keys, strict=True)])

    def noisy_sum(self, rows: Array, key: Key) -> Array:
        """The sum of clipped rows, with the site's share of the noise."""
        return self.noisy_sums(Rows(rows[None]), [key], 0)[0]

    def _add_share(self, total: Array, key: Key) -> Array:
        noise.require_rehearsal(key, self.rehearsal)
        lattice = self.lattice(total.size)
        spread = lattice.share(self.multiplier, self.shares)
        inputs = (total.tobytes(), repr((lattice, spread)).encode())
        drawn = discrete_gaussian(spread, total.size, (key / "share").secret(*inputs))
        # Exact: the scale is a power of two.
        return (lattice.round_sum(total) + drawn) / lattice.scale

    def lattice(self, width: int) -> RecordLattice:
        """Return the lattice that encodes sums of `width` coordinates."""
        return RecordLattice.fit(
            clip=self.clip,
            width=width,
            sites=max(self.sizes),
            multiplier=self.multiplier,
            honest=self.shares,
        )

    def most_records(self, width: int) -> int | None:
        """Return the most records of a site whose sum of `width` coordinates is never cut off."""
        return self.lattice(width).most_records

    def at_site(self, update: Array, key: Key) -> Array:
        """The noisy sum in whole steps, to be masked before it leaves.

        Raises:
            Refused: It is no noisy sum, as `noisy_sums` gave it: the task has changed it.
        """
        values = as_array(update)
        steps = values * self.lattice(values.size).scale
        if not bool(np.isfinite(steps).all() and (steps == np.rint(steps)).all()):
            raise Refused(
                'noise = "secure" with unit = "record" sends one noisy sum of each site as it is, and this '
                'task sends something else: use noise = "site"'
            )
        return steps

    def release(self, number: int, names: Collection[str]) -> tuple[Release, ...]:
        """Return one release per site, about its own records.

        Steps are counted on the coarsest lattice that is allowed, where rounding costs most.
        """
        return tuple(
            clipped_release(
                self.multiplier,
                clip=COARSEST_RECORD,
                law="discrete",
                subject=f"records@{name}",
                party=name,
                purpose=f"round {number}",
                rehearsal=self.rehearsal,
            )
            for name in names
        )


@dataclass(frozen=True, kw_only=True)
class SecureSumRounds(SumRounds):
    """Rounds of secure sums over all records, with a share of one noise each.

    Args:
        colluders: Number of sites that may work together with the server.
        sites: Number of sites.

    Guarantee:
        As that of `SumRounds`, if the multiplier is `discrete_multiplier` of the Gaussian one: a discrete
        release of multiplier m costs no more than a Gaussian of m^2 - c, where c is 16 / `COARSEST_RECORD`^2.
        With shares f that add up to 1, the precisions f / (m^2 - f c) add up to 1 / (m^2 - c) at most.
    """

    colluders: int
    sites: int

    def __post_init__(self) -> None:
        # Too few sites, and too many colluders, are refused.
        _ = self.at_round(1).shares

    def at_round(self, number: int) -> SecureRecordSum:
        """The mechanism of a round."""
        return SecureRecordSum(
            clip=self.bound,
            multiplier=self.multiplier_of(number),
            colluders=self.colluders,
            sites=self.sites,
            number=number,
            rehearsal=self.rehearsal,
        )

    def groups(self, names: Sequence[str]) -> SiteGroups:
        """Return one group of all sites."""
        return self.at_round(1).groups(names)

    def check_width(self, width: int) -> None:
        """Refuse sums of `width` coordinates that do not fit the lattice of some round."""
        for number in range(1, self.rounds + 1):
            self.at_round(number).check_width(width)

    def most_records(self, width: int) -> int | None:
        """Return the most records of a site whose sums of `width` coordinates are cut off in no round."""
        rounds = range(1, self.rounds + 1)
        return min(self.at_round(number).lattice(width).most_records for number in rounds)


def discrete_multiplier(multiplier: float) -> float:
    """Return the multiplier of discrete noise that costs no more than a Gaussian of this one.

    On the coarsest lattice that is allowed, where rounding costs most.
    """
    return math.hypot(multiplier, math.sqrt(ROUNDED) / COARSEST_RECORD) * (1 + 1e-12)
