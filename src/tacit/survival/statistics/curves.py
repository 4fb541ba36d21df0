"""Results of survival statistics, each with a table, a text and its provenance: curves, tests, mean times.

Results hold numbers that have left the sites already, unprotected or with noise; they can be kept, printed
and shown wherever those numbers may be.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import polygamma
from scipy.stats import chi2, norm

from tacit.errors import is_between, require
from tacit.reports.text import format_rows
from tacit.runtime.arrays import Array
from tacit.survival.life_table import Exits, LifeTable, Over, ratio
from tacit.survival.metrics import Curve
from tacit.survival.statistics.cox_fit import CoxFit as CoxFit

ROWS = 11


@dataclass(frozen=True, eq=False)
class Estimate:
    """A curve over time, or one for each cause.

    Args:
        name: Name of the estimate.
        table: One row for each time, from 0 on: `at_risk` just before it, `events` and `censored` since the
            row above, the curves, and `lower` and `upper` where there is a band. Where people come late,
            `entered` says how many have come since the row above.
        curves: Columns that are curves.
        until: The time up to which they are known; beyond it they are NaN.
        spread: Whether exits are spread over the intervals: then values between two times lie on a line.
        provenance: Description of how the numbers behind it left the sites.
        level: Of the band.
    """

    name: str
    table: pd.DataFrame = field(repr=False)
    curves: tuple[str, ...]
    until: float
    spread: bool
    provenance: str
    level: float = 0.95

    def at(self, times: ArrayLike) -> Array:
        """The curve at these times (times,); where there are several (times, curves)."""
        asked = np.asarray(times, dtype=np.float64)
        found = np.stack([self._at(asked, self._column(name)) for name in self.curves], axis=-1)
        found[asked > self.until] = np.nan
        return found[..., 0] if len(self.curves) == 1 else found

    def at_risk(self, times: ArrayLike) -> Array:
        """Return the number at risk just before these times (times,); NaN beyond what is known."""
        asked, known = np.asarray(times, dtype=np.float64), self._column("at_risk")
        # A time within an interval is known only to be in it; the interval's own number is at its end.
        rows = np.searchsorted(self._times, asked, side="left")
        beyond = 0.0 if np.isinf(self.until) else np.nan
        return np.where(rows < len(known), known[np.minimum(rows, len(known) - 1)], beyond)

    @property
    def median(self) -> float:
        """The first time at which the (first) curve is at 1/2 or below it; infinite if it never is."""
        below = self._times[self._column(self.curves[0]) <= 0.5]
        return float(below[0]) if len(below) else float("inf")

    @property
    def curve(self) -> Curve:
        """The curve as a step function, as Brier scores take it to weight for censoring."""
        return Curve(self._times[1:], np.clip(self._column(self.curves[0])[1:], 0.0, 1.0))

    def summary(self) -> str:
        """Render the curve as text: method, source, and some of its rows."""
        events = sum(
            self._column(name).sum() for name in self.table.columns.astype(str) if name.startswith("events")
        )
        head = [
            ("estimate", self.name),
            ("records", f"{self._records:,.0f}"),
            ("events", f"{events:,.0f}"),
            ("known until", "the last exit" if np.isinf(self.until) else f"{self.until:g}"),
            ("provenance", self.provenance),
        ]
        if self.curves == ("survival",):
            head.insert(3, ("median", f"{self.median:g}"))
        if "lower" in self.table:
            head.insert(-1, ("band", f"{100 * self.level:g} %"))
        rows = np.unique(np.linspace(0, len(self.table) - 1, ROWS).round().astype(np.int64))
        return f"{format_rows(head)}\n\n{self.table.iloc[rows].to_string(float_format=_short)}"

    def __str__(self) -> str:
        return self.summary()

    @property
    def _records(self) -> float:
        return float(self._column("entered").sum() if "entered" in self.table else self._column("at_risk")[0])

    @property
    def _times(self) -> Array:
        return self.table.index.to_numpy(dtype=np.float64)

    def _column(self, name: str) -> Array:
        return self.table[name].to_numpy(dtype=np.float64)

    def _at(self, asked: Array, values: Array) -> Array:
        if self.spread:
            return np.interp(asked, self._times, values)
        rows = np.searchsorted(self._times, asked, side="right") - 1
        return values[np.maximum(rows, 0)]


@dataclass(frozen=True, eq=False)
class LogRank:
    """Log-rank test: do groups have the same hazards?

    Args:
        statistic: Chi-squared under equal hazards, with `degrees` degrees of freedom.
        degrees: Number of groups less one.
        p: Probability of at least this statistic under equal hazards.
        table: For each group its records, the events seen, and those expected under equal hazards.
        by: The column that defines the groups.
        provenance: Description of how the counts behind it left the sites.
    """

    statistic: float
    degrees: int
    p: float
    table: pd.DataFrame = field(repr=False)
    by: str
    provenance: str

    def summary(self) -> str:
        """Render the test as text."""
        head = [
            ("test", f"log-rank, by {self.by}"),
            ("statistic", f"{self.statistic:.4f} on {self.degrees} degrees of freedom"),
            ("p", f"{self.p:.4g}"),
            ("provenance", self.provenance),
        ]
        return f"{format_rows(head)}\n\n{self.table.to_string(float_format=_short)}"

    def __str__(self) -> str:
        return self.summary()


@dataclass(frozen=True, eq=False)
class HazardTest:
    """Test of proportional hazards for each column (Grambsch and Therneau 1994).

    Args:
        table: For each column its `statistic`, chi-squared with one degree of freedom, and `p`.
        transform: The scale of time on which a trend was looked for.
        provenance: Description of how the sums behind it left the sites.
    """

    table: pd.DataFrame = field(repr=False)
    transform: str
    provenance: str

    def summary(self) -> str:
        """Render the test as text."""
        head = [
            ("test", f"proportional hazards, over {self.transform} time"),
            ("provenance", self.provenance),
        ]
        return f"{format_rows(head)}\n\n{self.table.to_string(float_format=_short)}"

    def __str__(self) -> str:
        return self.summary()


def product_limit(exits: Exits, exposed: Array, steps: Array, name: str, level: float) -> dict[str, Array]:
    """A curve that falls by the share of `steps` among the `exposed`, and its log-log band."""
    curve = np.cumprod(1 - np.minimum(ratio(steps, exposed), 1.0), dtype=np.float64)
    variance = np.cumsum(ratio(steps, exposed * (exposed - steps))) + exits.noise(exposed, steps)
    lower, upper = curve.copy(), curve.copy()
    inner, margin = (curve > 0) & (curve < 1), z_value(level) * np.sqrt(variance)
    with np.errstate(over="ignore"):
        power = np.exp(margin[inner] / -np.log(curve[inner]))
        lower[inner], upper[inner] = curve[inner] ** power, curve[inner] ** (1 / power)
    # Near 1 the log-log band has no width, or all of it; the noise is there all the same.
    near = (curve == 1) | (inner & exits.spread & (margin > -np.log(np.where(inner, curve, 1.0))))
    lower[near] = np.maximum(curve[near] * (1 - margin[near]), 0.0)
    upper[near] = np.minimum(curve[near] * (1 + margin[near]), 1.0)
    return {name: curve, "lower": lower, "upper": upper}


def cumulative_hazard(exits: Exits, level: float) -> dict[str, Array]:
    """A cumulative hazard that grows as if the events of one time followed each other, and its band.

    Weights that are fractions are no people who could follow each other: their events come at once.
    """
    exposed, happened = exits.exposed[0], exits.happened[0]
    if exits.spread or exits.whole:
        # Sums of 1/k and of 1/k^2 over the numbers at risk, which noise makes fractions.
        hazard, squares = (np.cumsum(_polygamma(order, exposed, happened)) for order in (0, 1))
    else:
        share = ratio(happened, exposed)
        hazard, squares = np.cumsum(share), np.cumsum(ratio((1 - share) * share, exposed))
    variance = squares + exits.noise(exposed, happened)
    with np.errstate(over="ignore"):
        factor = np.exp(z_value(level) * np.sqrt(variance) / np.where(hazard > 0, hazard, np.inf))
    return {"hazard": hazard, "lower": hazard / factor, "upper": hazard * factor}


def estimate(
    name: str,
    table: LifeTable,
    exits: Exits,
    curves: dict[str, Array],
    level: float = 0.95,
    known: int | None = None,
) -> Estimate:
    """Build the estimate: a row for time 0 and one for each reliable interval."""
    last = exits.reliable_intervals if known is None else known
    causes = {f"events_{cause}": part for cause, part in enumerate(exits.events[0].T, start=1)}
    events = {"events": exits.happened[0]} if len(causes) == 1 else causes
    came = {} if exits.entered is None else {"entered": exits.entered[0]}
    columns = {"at_risk": exits.at_risk[0], **came, **events, "censored": exits.censored[0], **curves}
    start = 1.0 if next(iter(curves)) in ("survival", "uncensored") else 0.0
    first = dict.fromkeys(curves, start) | dict.fromkeys(("at_risk", "entered"), float(exits.started[0]))
    filled = {name: np.append(first.get(name, 0.0), part[:last]) for name, part in columns.items()}
    index = pd.Index(np.append(0.0, exits.times[:last]), name="time")
    # Beyond the last exit a curve stays constant; beyond a grid, or in noise, it is unknown.
    ended = table.exact or not (exits.variance or exits.beyond.any())
    names = tuple(name for name in curves if name not in ("lower", "upper"))
    until = float("inf") if ended else float(index[-1])
    return Estimate(
        name, pd.DataFrame(filled, index=index), names, until, exits.spread, table.provenance, level
    )


def z_value(level: float) -> float:
    """Return the normal quantile of a two-sided confidence of `level`."""
    require(is_between(level, 0, 1), "level", level, "above 0 and below 1")
    return float(norm.ppf(0.5 + level / 2))


def _polygamma(order: int, exposed: Array, steps: Array) -> Array:
    above = np.asarray(polygamma(order, exposed + 1), dtype=np.float64)
    return np.abs(above - np.asarray(polygamma(order, exposed - steps + 1), dtype=np.float64))


def _short(value: float) -> str:
    return f"{value:.4g}"


@dataclass(frozen=True, eq=False)
class RestrictedMean:
    """Restricted mean survival times (RMST) up to a horizon, in total or by group.

    Args:
        table: One row for each group: `mean`, `se(mean)`, `lower` and `upper`; where there are two groups, a
            row `difference` of the second less the first, with `z` and `p`.
        until: The horizon.
        by: The column that defines the groups, if there is one.
        level: Of the confidence intervals.
        provenance: Description of how the counts behind it left the sites.
    """

    table: pd.DataFrame = field(repr=False)
    until: float
    by: str | None
    level: float
    provenance: str

    def summary(self) -> str:
        """Render the means as text."""
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
    table: LifeTable, over: Over, groups: Sequence[str], until: float, by: str | None, level: float
) -> RestrictedMean:
    """The mean of each group, and their difference if there are two."""
    exits = table.exits(over)
    if table.variance:
        means, errors = _noisy_areas(table, exits, over, until)
    else:
        areas = [_area(part, until) for part in exits.split(1)]
        means, errors = (np.array(column) for column in zip(*areas, strict=True))
    names = list(groups)
    if len(groups) == 2:
        means, errors = np.append(means, means[1] - means[0]), np.append(errors, np.hypot(*errors))
        names.append("difference")
    half = float(norm.ppf(0.5 + level / 2)) * errors
    shown = {"mean": means, "se(mean)": errors, "lower": means - half, "upper": means + half}
    found = pd.DataFrame(shown, index=pd.Index(names, name=by))
    if len(groups) == 2:
        tested = np.where(np.array(names) == "difference", 1.0, np.nan)
        found["z"] = tested * ratio(means, errors)
        found["p"] = np.asarray(chi2.sf(found["z"].to_numpy() ** 2, 1), dtype=np.float64)
    return RestrictedMean(found, until, by, level, table.provenance)


def _noisy_areas(table: LifeTable, exits: Exits, over: Over, until: float) -> tuple[Array, Array]:
    """Return the areas under the groups' curves, and their standard errors, with that of the noise."""
    known = exits.reliable_intervals
    last = float(exits.times[known - 1]) if known else 0.0
    require(until <= last, "until", until, f"at most {last:g}: the curve ends there")
    areas, variances = table.signed(over).restricted_means(_weights(table.grid, until, True))
    return areas, np.sqrt(variances)


def _area(exits: Exits, until: float) -> tuple[float, float]:
    """Return the area under one group's curve of exact counts, and its standard error (Greenwood's)."""
    last = exits.times[-1]
    # Beyond exact times the curve stays constant; beyond a grid it is unknown.
    require(exits.exact or until <= last, "until", until, f"at most {last:g}: the curve ends there")
    count = int(np.searchsorted(exits.times, until, side="right"))
    steps, exposed = exits.happened[0][:count], exits.exposed[0][:count]
    curve = np.cumprod(1 - np.minimum(ratio(steps, exposed), 1.0), dtype=np.float64)
    weights = _weights(exits.times[:count], until, False)
    # The area behind each time: the effect of one event less at that time, in shares of those at risk.
    behind = np.cumsum((weights[1:] * curve)[::-1])[::-1]
    variance = float((behind**2) @ ratio(steps, exposed * (exposed - steps)))
    area = float(weights[0] + weights[1:] @ curve)
    return area, float(np.sqrt(variance))


def _weights(times: Array, until: float, spread: bool) -> Array:
    """Return the weight of each value of a curve, from time 0 on, in the area under it (1 + times,)."""
    knots = np.concatenate([[0.0], times, [until]])
    if not spread:
        return np.maximum(np.diff(np.minimum(knots, until)), 0.0)
    # Lines between the values; the last ends at the horizon, which lies within its interval.
    found, start = np.zeros(len(times) + 1), knots[:-2]
    width = times - start
    share = np.clip((until - start) / width, 0.0, 1.0)
    found[:-1] += width * share * (1 - share / 2)
    found[1:] += width * share**2 / 2
    return found
