"""Cox regression with noise: hazards constant within intervals, and one bounded vector from each record.

The partial likelihood couples everybody at risk; the likelihood of piecewise constant hazards is a sum over
records, and nearly the same. Each site first releases a histogram of exits, from which the baseline takes its
shape. Then, in every round, each record gives its part of the score and of the information. Nobody is
followed beyond the time at which one event was to be expected of them: that censors by what is known, biases
nothing, and bounds every part, whatever the record. Estimates of all later rounds are averaged, so that
rounds cost nothing but time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue, NotSeparable, Refused, choices, require, require_positive
from tacit.privacy.accounting import calibrate
from tacit.privacy.accounting.release import Release, clipped_release
from tacit.privacy.mechanisms import noise
from tacit.privacy.mechanisms.base import ROUNDED
from tacit.runtime.keys import Key
from tacit.sites.federation import Federation
from tacit.sites.table import Table
from tacit.survival.life_table import LifeTable, exit_cells, refuse_weights
from tacit.survival.private_sums import Payment, from_sites
from tacit.survival.statistics.cox_fit import PrivateCoxFit
from tacit.survival.statistics.piecewise_exponential import (
    WIDTH,
    FollowUp,
    follow_up,
    record_vectors,
    vector_size,
)
from tacit.survival.statistics.private_newton import NewtonPath, Scales

Array = NDArray[np.float64]

# How often the sites are asked, and the share of the budget that the histogram before takes.
ROUNDS, HISTOGRAM = 8, 0.12
# With less information than this, in units of what noise alone could pretend, nothing is shown.
USABLE = 0.5
WHAT = "exits by interval and state, then in every round a score and an information matrix"


@dataclass(frozen=True, eq=False)
class FeatureBounds:
    """How features are brought into the unit ball, by public numbers alone.

    Args:
        low: The least value of each column (columns,).
        high: The largest (columns,).
        centre: What is taken off (columns,).
        scale: What the rest is divided by (columns,).
        bound: The longest that the result may be.
    """

    low: Array
    high: Array
    centre: Array
    scale: Array
    bound: float

    def scale_to_unit(self, features: Array) -> Array:
        """Features of length 1 at most (records, columns); huge ones keep their direction."""
        moved = (np.clip(features, self.low, self.high) - self.centre) / self.scale
        peak = np.maximum(np.abs(moved).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        way = moved / peak
        # A way is 1 long at least, so that whatever is larger than the bound is beyond it anyway.
        return way * np.minimum(
            np.minimum(peak, self.bound) / self.bound,
            1 / np.maximum(np.linalg.norm(way, axis=1, keepdims=True), 1),
        )


def refuse_options(federation: Federation, grid: Array | None, *, robust: object, ridge: float) -> None:
    """Refuse what has no private version, with what there is instead."""
    refuse_weights(federation)
    if grid is None:
        raise NotSeparable(
            "grid = None would fit the partial likelihood, which couples everybody at risk and cannot "
            "protect single records: give the ends of public intervals, such as "
            "numpy.linspace(0, horizon, 11)[1:]"
        )
    require(not robust, "robust", robust, "False with epsilon: errors allow for the noise, not for the model")
    require(ridge == 0, "ridge", ridge, "0 with epsilon")


def feature_bounds(
    tables: Mapping[str, Table], bound: float | None, ranges: Mapping[str, tuple[float, float]] | None
) -> FeatureBounds:
    """The limits of features that were agreed on; nothing is looked up in the records."""
    columns = next(iter(tables.values())).columns
    if ranges is None:
        if bound is None:
            raise Refused(
                "bound = None is not private: nothing limits one record's features. Give the ranges of all "
                'columns, such as ranges={"age": (18, 100)}, or a bound on the length of standardised ones'
            )
        require_positive("bound", bound)
        everywhere, still = np.full(len(columns), np.inf), np.zeros(len(columns))
        return FeatureBounds(-everywhere, everywhere, still, np.ones(len(columns)), bound)
    if set(ranges) != set(columns):
        raise InvalidValue(f"ranges of {choices(ranges)} are not allowed: give those of {choices(columns)}")
    for name in columns:
        low, high = (float(end) for end in ranges[name])
        require(0 < high - low < np.inf, f"ranges of {name}", ranges[name], "finite and ascending")
    ends = np.array([ranges[name] for name in columns], dtype=np.float64)
    widest = np.sqrt(len(columns)) if bound is None else bound
    require_positive("bound", widest)
    low, high = ends.T
    return FeatureBounds(low, high, (low + high) / 2, (high - low) / 2, float(widest))


def fit(
    tables: Mapping[str, Table],
    strata: Literal["site"] | None,
    grid: Array | None,
    payment: Payment,
    limit: FeatureBounds,
    level: float,
) -> PrivateCoxFit:
    """Fit from noisy sums that have been charged for.

    Guarantee:
        All that leaves a site is one histogram and `ROUNDS` sums of vectors no longer than 1, one for each
        record, with Gaussian noise; together (epsilon, delta)-private for one record more or less. All of it
        is charged before any noise is drawn.
    """
    assert grid is not None
    sites = _Sites(tables, grid, limit, payment)
    exits = sites.histogram()
    path = NewtonPath.begin(exits, Scales(sites.steps.scale, len(limit.scale)), strata == "site")
    for number in range(ROUNDS):
        levels, slopes = path.query_point()
        path = path.step(sites.answers(levels, path.trend, slopes, number))
    units = limit.bound * limit.scale
    found, model, noisy = path.estimate()
    # Noise that hides everything is not to be read as a number.
    signal, count = path.signal, exits.exits()
    units = units if signal >= USABLE else np.full(len(units), np.nan)
    return PrivateCoxFit(
        columns=next(iter(tables.values())).columns,
        coefficients=found / units,
        covariance=(model + noisy) / np.outer(units, units),
        model_covariance=model / np.outer(units, units),
        noise_covariance=noisy / np.outer(units, units),
        signal=signal,
        table=exits,
        **dict.fromkeys(("log_likelihood", "null_log_likelihood", "score", "concordance"), float("nan")),
        records=round(float(count.records.sum())),
        events=round(float(count.happened.sum())),
        iterations=ROUNDS,
        strata=strata,
        ties="breslow",
        grid=grid,
        ridge=0.0,
        robust=False,
        level=level,
        provenance=sites.provenance,
    )


class _Sites:
    """The sites, as they may be asked: everything they let out has been paid for and carries noise."""

    def __init__(
        self, tables: Mapping[str, Table], grid: Array, limit: FeatureBounds, payment: Payment
    ) -> None:
        epsilon, delta = payment.epsilon, payment.delta
        assert epsilon is not None
        assert payment.ledger is not None
        if delta == 0:
            raise Refused("delta = 0 takes Laplace noise, which is too much for a regression: give 1e-5, say")
        self.tables, self.grid = tables, grid
        self.late = any("entry" in table.targets for table in tables.values())
        self.records = {
            name: follow_up(table, grid, limit.scale_to_unit(table.features))
            for name, table in tables.items()
        }
        self.key = Key(0) if payment.key is None else payment.key
        # Gaussians add up by the inverse squares of their multipliers: each has its share of the budget.
        multiplier = calibrate(epsilon=epsilon, delta=delta)
        self.counts = self._release(multiplier / HISTOGRAM**0.5, np.sqrt(1.0 + self.late), 1)
        self.steps = self._release(multiplier * (ROUNDS / (1 - HISTOGRAM)) ** 0.5, 1.0, ROUNDS)
        total = payment.charge([
            replace(release, subject=f"records@{name}", party=name)
            for name in tables
            for release in (self.counts, self.steps)
        ])  # fmt: skip
        self.provenance = (
            f"released: epsilon {epsilon:g} at delta {delta:g} for any one record; {WHAT}, with gaussian "
            f"noise, {from_sites(len(tables))}{total}"
        )
        if self.key.rehearsal:
            self.provenance += "; REHEARSAL: the noise repeats with the seed and protects nobody"

    def _release(self, multiplier: float, clip: float, count: int) -> Release:
        purpose = "Cox regression: " + ("exits by interval" if count == 1 else "score and information")
        return clipped_release(
            multiplier, clip=float(clip), count=count, purpose=purpose, rehearsal=self.key.rehearsal
        )

    def histogram(self) -> LifeTable:
        """Exits by interval and state, with noise."""
        counted = [
            noise.gaussian(
                exit_cells(table, self.grid, 2, None), self.counts.scale, self.key / "exits" / name
            )
            for name, table in self.tables.items()
        ]
        told, variance = np.stack(counted)[:, None], self.counts.scale**2
        return LifeTable(
            self.grid, told, tuple(self.tables), None, variance, False, self.provenance, self.late
        )

    def answers(self, levels: Array, trend: Array, slopes: Array, number: int) -> Array:
        """The noisy sum of what the records of each site have to say (sites, `vector_size` of the columns).

        Args:
            levels: The log hazard of each interval at each site (sites, intervals).
            trend: The function of time beside the constant (intervals,).
            slopes: The coefficients of unit features (columns,).
            number: The round.
        """
        told: list[Array] = []
        for (name, records), level in zip(self.records.items(), levels, strict=True):
            summed = _site_sum(records, level, trend, slopes)
            # A little more noise than is charged, for the rounding of the sums (`mechanisms.base`).
            scale = self.steps.scale * (1 + ROUNDED)
            told.append(noise.gaussian(summed, scale, self.key / "round" / number / name))
        return np.stack(told)


def _site_sum(records: FollowUp, level: Array, trend: Array, slopes: Array) -> Array:
    """The sum over a site's records, a few at a time."""
    total = np.zeros(vector_size(len(slopes)))
    for start in range(0, len(records), WIDTH):
        total += record_vectors(records.chunk(start), level, trend, slopes).sum(axis=0)
    return total
