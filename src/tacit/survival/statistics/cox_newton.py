"""Newton's method on the Cox partial likelihood, from sums that sites send; robust covariances, residuals.

A stratum is the sites that share a baseline hazard. Its sites send sums over risk sets, one for each event
time; a stratum of a single site adds them up by itself and lets out a number, a gradient and a matrix. No
record leaves a site, but the sums are not protected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue
from tacit.runtime.arrays import Array
from tacit.sites.table import Table

Integers = NDArray[np.int64]
Ties = Literal["efron", "breslow"]
Transform = Literal["rank", "km", "identity", "log"]
TRANSFORMS: tuple[Transform, ...] = get_args(Transform)

# A column that varies less than this share of its size is constant up to rounding.
CONSTANT = 1e-12
MOST_STEPS, MOST_HALVINGS = 50, 30
# A smaller step, in standard deviations of a column among those at risk, changes nothing.
SETTLED = 1e-9
# The share of its information at 0 that no coefficient but an unbounded one takes from a column.
GONE = 1e-10
# The share of the largest curvature at 0 from which on that of a combination of columns is no rounding.
CLEAR = 1e-5
# Least share of a column's information that the other columns must leave.
OWN = 1e-10
# Relative rounding error allowed in the likelihood.
SLACK = 1e-13
EVENTLESS = "event is not allowed: no record has one, so no effect can be estimated"


@dataclass(frozen=True, eq=False)
class Slope:
    """The log-likelihood at some coefficients, its gradient (columns,) and information (columns, columns)."""

    log_likelihood: float
    gradient: Array
    information: Array

    @property
    def score_statistic(self) -> float:
        """Score statistic g' I^+ g of this gradient and information."""
        return float(self.gradient @ np.linalg.pinv(self.information) @ self.gradient)


@dataclass(frozen=True, eq=False)
class StratumSite:
    """One site in a stratum: its records, in the order of their places among the stratum's event times.

    Args:
        design: A column of ones, then the centered features (records, 1 + columns).
        weights: Weight of each record (records,).
        places: The last event time that each record was at risk at (records,), ascending.
        starts: The first one (records,).
        late: The records that were not at risk at the first event time of all, by their starts.
        deaths: The positions of the records with an event (events,).
        times: Number of event times of the stratum.
    """

    design: Array
    weights: Array
    places: Integers
    starts: Integers
    late: Integers
    deaths: Integers
    times: int

    def risks(self, beta: Array) -> Array:
        """Return the relative hazard of each record (records,), times its weight; it stays at the site."""
        return np.exp(self.design @ np.append(0.0, beta)) * self.weights

    def at_risk(self, risks: Array) -> Array:
        """Over each risk set, the sum of risks and of risks times features (times, 1 + columns)."""
        weighed = self.design * risks[:, None]
        summed = sum_by_place(weighed, self.places, self.times)
        if len(self.late):
            # A delayed entry was in no risk set before.
            summed -= sum_by_place(weighed[self.late], self.starts[self.late] - 1, self.times)
        return np.cumsum(summed[::-1], axis=0)[::-1]

    def event_sums(self, risks: Array) -> Array:
        """Return the sums over records with an event (times, 1 + columns)."""
        weighed = self.design[self.deaths] * risks[self.deaths, None]
        return sum_by_place(weighed, self.places[self.deaths], self.times)

    def second_moment(self, risks: Array, pull: Array, spared: Array) -> Array:
        """The squares of features, weighed by each record's part in the hazards (columns, columns)."""
        weights = risks * self._while_at_risk(pull)
        weights[self.deaths] -= risks[self.deaths] * spared[self.places[self.deaths]]
        return (self.design.T @ (self.design * weights[:, None]))[1:, 1:]

    def score_residuals(self, risks: Array, hazards: "Hazards") -> Array:
        """Return each record's score residuals (records, columns), for a robust variance."""
        features, own = self.design[:, 1:], self.places[self.deaths]
        found = self._while_at_risk(hazards.drift)
        found -= features * self._while_at_risk(hazards.pull)[:, None]
        found[self.deaths] += features[self.deaths] * hazards.spared[own][:, None] - hazards.spared_drift[own]
        found *= risks[:, None]
        found[self.deaths] += (features[self.deaths] - hazards.means[own]) * self.weights[self.deaths, None]
        return found

    def _while_at_risk(self, values: Array) -> Array:
        """Sum values of event times over those that each record was at risk at (records, ...)."""
        total = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])
        return total[self.places + 1] - total[self.starts]


@dataclass(frozen=True, eq=False)
class Hazards:
    """Hazards at a stratum's event times, as sent to its sites.

    Args:
        means: The mean features of those at risk, as ties are counted (times, columns).
        pull: The hazard (times,).
        spared: The part of it that those who die at that time are spared (times,).
        drift: Hazard times mean features, and `spared_drift` the same of the spared part (times, columns).
    """

    means: Array
    pull: Array
    spared: Array
    drift: Array
    spared_drift: Array


@dataclass(frozen=True, eq=False)
class EventTerms:
    """A stratum event by event, at some coefficients.

    Args:
        risks: The risks of each site's records, which stay there.
        worth: Weight of each event: the mean weight of those who die at its time (events,).
        gone: Share of the dying that has left the risk set before each event (events,).
        mass: The risk that is left (events,).
        means: The mean features of those who are left (events, columns).
    """

    risks: list[Array]
    worth: Array
    gone: Array
    mass: Array
    means: Array

    @property
    def share(self) -> Array:
        """The hazard that each event adds (events,)."""
        return self.worth / self.mass


@dataclass(frozen=True, eq=False)
class Stratum:
    """Sites that share a baseline hazard.

    Args:
        members: The sites.
        event_times: Distinct, ascending (times,).
        deaths: Number of events at each (times,).
        weights: Their total weight (times,).
        at_risk: Total weight of those at risk at each (times,).
        sums: The summed features of those whose event it is, as often as they count (times, columns).
        ties: Method for events at the same time (Efron 1977, or Breslow 1974).
    """

    members: tuple[StratumSite, ...]
    event_times: Array
    deaths: Integers
    weights: Array
    at_risk: Array
    sums: Array
    ties: Ties

    def slope(self, beta: Array) -> Slope:
        """The likelihood and its derivatives; sums leave the sites twice, by event time and over time."""
        events = self._events(beta)
        pull, spared = (self._sum_by_time(share) for share in (events.share, events.gone * events.share))
        moments = [m.second_moment(r, pull, spared) for m, r in zip(self.members, events.risks, strict=True)]
        total = self.sums.sum(axis=0)
        return Slope(
            float(total @ beta - events.worth @ np.log(events.mass)),
            total - events.worth @ events.means,
            sum_arrays(moments) - events.means.T @ (events.means * events.worth[:, None]),
        )

    def hazards(self, beta: Array) -> Hazards:
        """Return the hazards that residuals are taken against."""
        events = self._events(beta)
        share, spared = events.share, events.gone * events.share
        return Hazards(
            means=self._sum_by_time(events.means) / self.deaths[:, None],
            pull=self._sum_by_time(share),
            spared=self._sum_by_time(spared),
            drift=self._sum_by_time(events.means * share[:, None]),
            spared_drift=self._sum_by_time(events.means * spared[:, None]),
        )

    def squared_scores(self, beta: Array, by_site: bool) -> Array:
        """The sum of squared score residuals, of records or of whole sites (columns, columns)."""
        hazards, found = self.hazards(beta), np.zeros((len(beta), len(beta)))
        for member in self.members:
            residuals = member.score_residuals(member.risks(beta), hazards)
            rows = residuals.sum(axis=0, keepdims=True) if by_site else residuals
            found += rows.T @ rows
        return found

    def schoenfeld(self, beta: Array) -> Array:
        """Schoenfeld residuals: features of the dying less their expectation (times, columns)."""
        return self.sums - self.weights[:, None] * self.hazards(beta).means

    def transform_times(self, transform: Transform) -> Array:
        """The event times on another scale (times,); one that the stratum alone has is centered there."""
        if transform in ("identity", "log"):
            return self.event_times if transform == "identity" else np.log(self.event_times)
        ranks = (np.cumsum(self.weights) - self.weights / 2) / self.weights.sum()
        found = ranks if transform == "rank" else 1 - np.cumprod(1 - self.weights / self.at_risk)
        return found - self.weights @ found / self.weights.sum()

    @property
    def _starts(self) -> Integers:
        return np.cumsum(self.deaths) - self.deaths

    def _events(self, beta: Array) -> EventTerms:
        risks = [member.risks(beta) for member in self.members]
        every = sum_arrays([m.at_risk(r) for m, r in zip(self.members, risks, strict=True)])
        row = np.repeat(np.arange(len(self.deaths)), self.deaths)
        # The k-th of d events at one time finds k/d of the dying gone from the risk set; Breslow's finds none
        # gone.
        gone = (np.arange(len(row)) - self._starts[row]) / self.deaths[row] * float(self.ties == "efron")
        left = every[row]
        if bool(gone.any()):
            dying = sum_arrays([m.event_sums(r) for m, r in zip(self.members, risks, strict=True)])
            left -= gone[:, None] * dying[row]
        worth = (self.weights / self.deaths)[row]
        return EventTerms(risks, worth, gone, left[:, 0], left[:, 1:] / left[:, :1])

    def _sum_by_time(self, events: Array) -> Array:
        """Sums over the events of each time."""
        return np.add.reduceat(events, self._starts)


def strata_of(tables: Mapping[str, Table], by_site: bool, ties: Ties, grid: Array | None) -> list[Stratum]:
    """The strata that have events: one for each site, or one of all sites."""
    groups = [[table] for table in tables.values()] if by_site else [list(tables.values())]
    found = [_stratum(group, ties, grid) for group in groups]
    return [stratum for stratum in found if len(stratum.event_times)]


def sum_by_place(values: Array, places: Integers, times: int) -> Array:
    """The sums of rows at each place (times, columns); places ascend."""
    found = np.zeros((times, values.shape[1]))
    first = np.flatnonzero(np.diff(places, prepend=-1))
    if len(first):
        found[places[first]] = np.add.reduceat(values, first)
    return found


def sum_arrays(arrays: Sequence[Array]) -> Array:
    """Return the sum of arrays."""
    return arrays[0] if len(arrays) == 1 else np.sum(arrays, axis=0)


def _stratum(tables: Sequence[Table], ties: Ties, grid: Array | None) -> Stratum:
    spans = [round_times(table, grid) for table in tables]
    event_times = np.unique(np.concatenate([span.time[span.happened] for span in spans]))
    weights = [table.targets.get("weight", np.ones(len(table))) for table in tables]
    centre = sum_arrays([table.features.sum(axis=0) for table in tables]) / sum(map(len, tables))
    members = tuple(
        _stratum_site(_centre(table.features, centre), weight, span, event_times)
        for table, weight, span in zip(tables, weights, spans, strict=True)
    )
    own = [m.places[m.deaths] for m in members]
    dead = [m.event_sums(m.weights) for m in members]
    risk = [m.at_risk(m.weights)[:, 0] for m in members]
    deaths = np.sum([np.bincount(places, minlength=len(event_times)) for places in own], axis=0)
    totals = sum_arrays(dead)
    return Stratum(members, event_times, deaths, totals[:, 0], sum_arrays(risk), totals[:, 1:], ties)


@dataclass(frozen=True, eq=False)
class Spans:
    """Time at risk of each record: after `entry`, up to and at `time`; and whether it had an event then."""

    entry: Array
    time: Array
    happened: NDArray[np.bool_]


def round_times(table: Table, grid: Array | None) -> Spans:
    """Round times up to interval ends, and entries down; records beyond the last interval are censored."""
    time, happened = table.targets["time"], table.targets["event"] == 1
    entry = table.targets.get("entry", np.zeros(len(time)))
    if grid is None:
        return Spans(entry, time, happened)
    interval = np.searchsorted(grid, time, side="left")
    start = np.append(0.0, grid)[np.searchsorted(grid, entry, side="right")]
    return Spans(start, np.append(grid, np.inf)[interval], happened & (interval < len(grid)))


def _stratum_site(features: Array, weights: Array, span: Spans, event_times: Array) -> StratumSite:
    places = np.searchsorted(event_times, span.time, side="right") - 1
    starts = np.searchsorted(event_times, span.entry, side="right")
    # A record that leaves before the first event after its entry was never at risk of one.
    ever = np.flatnonzero(places >= starts)
    order = ever[np.argsort(places[ever], kind="stable")]
    design = np.column_stack([np.ones(len(order)), features[order]])
    first = starts[order]
    late = np.argsort(first, kind="stable")[int((first == 0).sum()) :]
    deaths = np.flatnonzero(span.happened[order])
    return StratumSite(design, weights[order], places[order], first, late, deaths, len(event_times))


def _centre(features: Array, centre: Array) -> Array:
    found = features - centre
    found[np.abs(found) <= CONSTANT * np.abs(features).max(axis=0)] = 0.0
    return found


@dataclass(frozen=True, eq=False)
class NewtonState:
    """State of Newton's method; every slope advances it.

    Args:
        beta: The coefficients accepted so far (columns,).
        step: The step that is tried from there (columns,).
        here: The slope there; None before the first slope.
        null: The slope at 0.
        asked: Number of slopes asked for.
        taken: Number of steps taken.
        halved: Number of halvings of the tried step.
        settled: Whether it has converged.
    """

    beta: Array
    step: Array
    here: Slope | None = None
    null: Slope | None = None
    asked: int = 0
    taken: int = 0
    halved: int = 0
    settled: bool = False

    @property
    def trial(self) -> Array:
        """The coefficients to ask the sites about (columns,)."""
        return self.beta + self.step

    def update(self, slope: Slope, events: float, columns: Sequence[str], ridge: float) -> "NewtonState":
        """Return the next state, given the slope of the trial: accepted, or with a shorter step.

        Args:
            slope: The slope of the trial, finite or not.
            events: Number of events.
            columns: The names of the features.
            ridge: The penalty.

        Raises:
            InvalidValue: A column is constant, says what others say, or has a coefficient without bound.
        """
        if self.here is None:
            return replace(self, null=slope)._accept(slope, events, columns, ridge)
        floor = _penalised_likelihood(self.here, self.beta, ridge) - SLACK * abs(self.here.log_likelihood)
        if _penalised_likelihood(slope, self.trial, ridge) >= floor:
            return replace(self, taken=self.taken + 1)._accept(slope, events, columns, ridge)
        if self.halved + 1 >= MOST_HALVINGS:
            raise InvalidValue(
                _divergence_message(columns, self.beta, np.abs(self.beta) * self._units(events))
            )
        return replace(self, step=self.step / 2, asked=self.asked + 1, halved=self.halved + 1)

    def _accept(self, slope: Slope, events: float, columns: Sequence[str], ridge: float) -> "NewtonState":
        """Accept the trial point, and compute the step from there."""
        assert self.null is not None
        beta, asked = self.trial, self.asked + 1
        if self.here is None:
            _require_identifiable(self.null.information, columns, ridge)
        units = self._units(events)
        if not _has_maximum(slope, self.null, ridge) or self.taken >= MOST_STEPS:
            raise InvalidValue(_divergence_message(columns, beta, np.abs(beta) * units))
        flat = np.zeros(len(beta)) if ridge > 0 else _flat_direction(slope, self.null)
        if flat.any():
            raise InvalidValue(_divergence_message(columns, beta, np.abs(flat) * units))
        uphill = slope.gradient - ridge * beta
        step = _solve(slope.information + ridge * np.eye(len(beta)), uphill)
        settled = bool((np.abs(step) * self._units(events)).max() <= SETTLED)
        step = np.zeros_like(step) if settled else step
        return replace(self, beta=beta, step=step, here=slope, asked=asked, halved=0, settled=settled)

    def inverse(self, ridge: float) -> Array:
        """The inverse of the penalized information: the covariance of the coefficients by the model."""
        assert self.here is not None
        curvature = self.here.information + ridge * np.eye(len(self.beta))
        return np.asarray(np.linalg.inv(curvature), dtype=np.float64)

    def _units(self, events: float) -> Array:
        """Return the standard deviation of each column among those at risk (columns,)."""
        assert self.null is not None
        return np.sqrt(np.maximum(np.diag(self.null.information), 0.0)) / np.sqrt(events)


def initial_state(columns: Sequence[str]) -> NewtonState:
    """A climb that starts at 0."""
    return NewtonState(np.zeros(len(columns)), np.zeros(len(columns)))


def maximise(parts: Sequence[Stratum], columns: Sequence[str], ridge: float) -> NewtonState:
    """Climb to where the likelihood is largest by Newton's method from 0, halving steps that lead down.

    Raises:
        InvalidValue: A column is constant, says what others say, or has a coefficient without bound.
    """
    if not parts:
        raise InvalidValue(EVENTLESS)
    climb, events = initial_state(columns), float(sum(part.deaths.sum() for part in parts))
    while not climb.settled:
        climb = climb.update(slope_at(parts, climb.trial), events, columns, ridge)
    return climb


def sandwich(parts: Sequence[Stratum], beta: Array, inverse: Array, by_site: bool) -> Array:
    """The robust covariance of the coefficients (Lin and Wei 1989), over records or over whole sites."""
    return inverse @ sum_arrays([part.squared_scores(beta, by_site) for part in parts]) @ inverse


def trend(parts: Sequence[Stratum], beta: Array, transform: Transform) -> tuple[Array, float]:
    """Return the trend of residuals over time: sums of products (columns,), and the variance of time."""
    times = [part.transform_times(transform) for part in parts]
    weights = np.concatenate([part.weights for part in parts])
    centred = np.concatenate(times) - weights @ np.concatenate(times) / weights.sum()
    residuals = np.concatenate([part.schoenfeld(beta) for part in parts])
    return centred @ residuals, float(weights @ centred**2 / weights.sum())


def slope_at(parts: Sequence[Stratum], beta: Array) -> Slope:
    """The likelihood of all strata and its derivatives, finite or not."""
    # A step too far overflows; values that are not finite count as downhill, and the step is halved.
    with np.errstate(all="ignore"):
        found = [part.slope(beta) for part in parts]
    return Slope(
        sum(own.log_likelihood for own in found),
        sum_arrays([own.gradient for own in found]),
        sum_arrays([own.information for own in found]),
    )


def _penalised_likelihood(slope: Slope, beta: Array, ridge: float) -> float:
    return slope.log_likelihood - ridge / 2 * float(beta @ beta)


def _solve(matrix: Array, values: Array) -> Array:
    """Solve linear equations whose unknowns may differ in size by orders of magnitude."""
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(np.float64).tiny))
    return np.linalg.lstsq(matrix / np.outer(scale, scale), values / scale, rcond=None)[0] / scale


def _require_identifiable(information: Array, columns: Sequence[str], ridge: float) -> None:
    """Refuse constant columns, and columns that depend linearly on others."""
    found = np.sqrt(np.maximum(np.diag(information), 0.0))
    for name, unit in zip(columns, found, strict=True):
        if unit == 0:
            raise InvalidValue(
                f"column {name} is not allowed: it is constant among those at risk, within every stratum, "
                "and carries no information about events. Remove it"
            )
    values, vectors = np.linalg.eigh(information / np.outer(found, found))
    if values[0] < OWN and ridge == 0:
        alike = [name for name, part in zip(columns, np.abs(vectors[:, 0]), strict=True) if part > 1e-3]
        raise InvalidValue(
            f"columns {', '.join(alike)} are not allowed together: each can be computed from the others. "
            "Leave one out, or give a ridge"
        )


def _has_maximum(here: Slope, null: Slope, ridge: float) -> bool:
    """Return True if the likelihood has a maximum: a separating column empties risk sets and overflows."""
    left = np.diag(here.information) > GONE * np.diag(null.information)
    return bool(np.isfinite(here.information).all() and (ridge > 0 or left.all()))


def _flat_direction(here: Slope, null: Slope) -> Array:
    """Return a combination of columns along which the likelihood became flat, unlike at 0; or zeros.

    Dummies of a factor whose reference has no events grow together, and each of them keeps its own curvature.
    """
    unit = np.sqrt(np.diag(null.information))
    scales = np.outer(unit, unit)
    now, before = here.information / scales, null.information / scales
    values, vectors = np.linalg.eigh(before)
    # Combinations that are nearly collinear at 0 have rounding for a curvature.
    told = vectors[:, values > CLEAR * values[-1]] / np.sqrt(values[values > CLEAR * values[-1]])
    left, turned = np.linalg.eigh(told.T @ now @ told)
    return told @ turned[:, 0] / unit if left[0] < GONE else np.zeros(len(unit))


def _divergence_message(columns: Sequence[str], beta: Array, lengths: Array) -> str:
    worst = [place for place, length in enumerate(lengths) if length > lengths.max() / 2]
    names = ", ".join(columns[place] for place in worst)
    values = ", ".join(f"{beta[place]:.3g}" for place in worst)
    kind = "column" if len(worst) == 1 else "columns"
    return (
        f"{kind} {names} cannot be fitted: records with an event are separated from those at risk, and the "
        f"coefficient diverges (so far {values}). Leave a column out, merge categories, or give a ridge"
    )
