"""The mean time without an event up to a horizon: the area under a survival curve, and how sure it is.

It needs nothing but the counts that a life table holds already, bare or with noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from tacit.errors import require
from tacit.reports.text import format_rows
from tacit.survival.life_table import Exits, LifeTable, ratio

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RestrictedMean:
    """Mean times without an event up to a horizon, of everybody or of each group.

    Args:
        table: One row for each group: `mean`, `se(mean)`, `lower` and `upper`; where there are two groups, a
            row `difference` of the second less the first, with `z` and `p`.
        until: The horizon.
        by: What parts the groups, if anything does.
        level: Of the confidence intervals.
        provenance: How the counts behind it left the sites.
    """

    table: pd.DataFrame = field(repr=False)
    until: float
    by: str | None
    level: float
    provenance: str

    def summary(self) -> str:
        """The means as text."""
        head = [
            ("estimate", f"mean time without an event up to {self.until:g}"),
            *([("by", str(self.by))] * (self.by is not None)),
            ("interval", f"{100 * self.level:g} %"),
            ("provenance", self.provenance),
        ]
        shown = self.table.to_string(float_format=lambda value: f"{value:.4g}", na_rep="")
        return f"{format_rows(head)}\n\n{shown}"

    def __str__(self) -> str:
        return self.summary()


def restricted_means(
    table: LifeTable, exits: Exits, groups: Sequence[str], until: float, by: str | None, level: float
) -> RestrictedMean:
    """The mean of each group, and their difference if there are two."""
    parts = [_area(part, until) for part in exits.split(1)]
    means, errors = (np.array(column) for column in zip(*parts, strict=True))
    names = list(groups)
    if len(parts) == 2:
        means, errors = np.append(means, means[1] - means[0]), np.append(errors, np.hypot(*errors))
        names.append("difference")
    half = float(norm.ppf(0.5 + level / 2)) * errors
    shown = {"mean": means, "se(mean)": errors, "lower": means - half, "upper": means + half}
    found = pd.DataFrame(shown, index=pd.Index(names, name=by))
    if len(parts) == 2:
        tested = np.where(np.array(names) == "difference", 1.0, np.nan)
        found["z"] = tested * ratio(means, errors)
        found["p"] = np.asarray(chi2.sf(found["z"].to_numpy() ** 2, 1), dtype=np.float64)
    return RestrictedMean(found, until, by, level, table.provenance)


def _area(exits: Exits, until: float) -> tuple[float, float]:
    """The area under one group's curve, and its standard error (Greenwood's, and what noise adds)."""
    last = exits.times[exits.reliable_intervals - 1] if exits.reliable_intervals else 0.0
    # Beyond exact times the curve stays where it is; beyond a grid, or in noise, nobody knows.
    require(exits.exact or until <= last, "until", until, f"at most {last:g}: beyond it nothing is known")
    count = int(np.searchsorted(exits.times, until, side="left" if exits.spread else "right"))
    count = min(count + exits.spread, exits.reliable_intervals)
    steps, exposed = exits.happened[0][:count], exits.exposed[0][:count]
    curve = np.cumprod(1 - np.minimum(ratio(steps, exposed), 1.0), dtype=np.float64)
    weights = _weights(exits.times[:count], until, exits.spread)
    # The area behind each time: what one event less at that time, in shares of those at risk, would add.
    behind = np.cumsum((weights[1:] * curve)[::-1])[::-1]
    variance = float((behind**2) @ ratio(steps, exposed * (exposed - steps)))
    area = float(weights[0] + weights[1:] @ curve)
    return area, float(np.sqrt(variance + _noise(exits, weights[1:] * curve, steps, exposed)))


def _weights(times: Array, until: float, spread: bool) -> Array:
    """What each value of a curve, from that at time 0 on, adds to the area under it (1 + times,)."""
    knots = np.concatenate([[0.0], times, [until]])
    if not spread:
        return np.maximum(np.diff(np.minimum(knots, until)), 0.0)
    # Lines between the values; the last ends at the horizon, which lies within its interval.
    found, start = np.zeros(len(times) + 1), knots[:-2]
    width = times - start
    share = np.minimum((until - start) / width, 1.0)
    found[:-1] += width * share * (1 - share / 2)
    found[1:] += width * share**2 / 2
    return found


def _noise(exits: Exits, pieces: Array, steps: Array, exposed: Array) -> float:
    """The variance that noise alone gives to the area, by the delta method, cell by cell."""
    if not exits.variance:
        return 0.0
    left, stays = exposed - steps, 1 if exits.entered is None else 2
    pull = ratio(steps, exposed * left)
    total, behind = np.cumsum(pull), np.cumsum(pieces[::-1])[::-1]
    ahead = np.cumsum(pieces * total) - pieces * total
    event = ahead + behind * (total - ratio(np.ones_like(left), left))
    stay = ahead + behind * (total - pull / 2)
    causes = exits.events.shape[2]
    cells = (causes + stays) * (len(exits.times) - len(steps)) + stays
    later = cells * float(pieces @ total) ** 2
    return float(exits.variance * (causes * event @ event + stays * stay @ stay + later))
