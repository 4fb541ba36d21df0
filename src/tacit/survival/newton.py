"""The Cox partial likelihood from sums that sites send, and Newton's method on it.

A stratum is the sites that share a baseline hazard. Its sites send sums over risk sets, one for each event
time; a stratum of a single site adds them up by itself and lets out a number, a gradient and a matrix. No
record leaves a site, but the sums are not protected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue
from tacit.sites.tables import Table

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Ties = Literal["efron", "breslow"]
Transform = Literal["rank", "km", "identity", "log"]
TRANSFORMS: tuple[Transform, ...] = get_args(Transform)

MOST_STEPS, MOST_HALVINGS = 50, 30
# A step that is smaller than this, in units of what a column varies by among those at risk, changes nothing.
SETTLED = 1e-9
# The share of its information at 0 that no coefficient but an unbounded one takes from a column.
GONE = 1e-10
# What the other columns leave of a column's information, at least, if it says anything of its own.
OWN = 1e-10
# What rounding may take off the likelihood, as a share of it.
SLACK = 1e-13
# A column that varies less than this share of its size is constant but for rounding.
CONSTANT = 1e-12


@dataclass(frozen=True, eq=False)
class Slope:
    """The log-likelihood at some coefficients, its gradient (columns,) and information (columns, columns)."""

    log_likelihood: float
    gradient: Array
    information: Array

    @property
    def rise(self) -> float:
        """The score statistic: twice what a parabola of this slope still gains."""
        return float(self.gradient @ np.linalg.pinv(self.information) @ self.gradient)


@dataclass(frozen=True, eq=False)
class Member:
    """One site in a stratum: its records, in the order of their places among the stratum's event times.

    Args:
        design: A column of ones, then the centred features (records, 1 + columns).
        places: The last event time that each record was at risk at (records,), ascending.
        deaths: The positions of the records with an event (events,).
        times: How many event times the stratum has.
    """

    design: Array
    places: Integers
    deaths: Integers
    times: int

    def risks(self, beta: Array) -> Array:
        """The relative hazard of each record (records,); it stays at the site."""
        return np.exp(self.design @ np.append(0.0, beta))

    def at_risk(self, risks: Array) -> Array:
        """Over each risk set, the sum of risks and of risks times features (times, 1 + columns)."""
        summed = by_place(self.design * risks[:, None], self.places, self.times)
        return np.cumsum(summed[::-1], axis=0)[::-1]

    def dying(self, risks: Array) -> Array:
        """The same sums over those whose event it is (times, 1 + columns)."""
        weighed = self.design[self.deaths] * risks[self.deaths, None]
        return by_place(weighed, self.places[self.deaths], self.times)

    def second_moment(self, risks: Array, pull: Array, spared: Array) -> Array:
        """The squares of features, weighed by each record's part in the hazards (columns, columns)."""
        weights = risks * np.cumsum(pull)[self.places]
        weights[self.deaths] -= risks[self.deaths] * spared[self.places[self.deaths]]
        return (self.design.T @ (self.design * weights[:, None]))[1:, 1:]

    def score_residuals(self, risks: Array, hazards: "Hazards") -> Array:
        """How far each record moves the score (records, columns): its part in a robust variance."""
        features, own = self.design[:, 1:], self.places[self.deaths]
        found = np.cumsum(hazards.drift, axis=0)[self.places]
        found -= features * np.cumsum(hazards.pull)[self.places][:, None]
        found[self.deaths] += features[self.deaths] * hazards.spared[own][:, None] - hazards.spared_drift[own]
        found *= risks[:, None]
        found[self.deaths] += features[self.deaths] - hazards.means[own]
        return found


@dataclass(frozen=True, eq=False)
class Hazards:
    """What a stratum tells its sites about each event time.

    Args:
        means: The mean features of those at risk, as ties are counted (times, columns).
        pull: The hazard (times,).
        spared: What those who die at that time are spared of it (times,).
        drift: Hazard times mean features, and `spared_drift` the same of what is spared (times, columns).
    """

    means: Array
    pull: Array
    spared: Array
    drift: Array
    spared_drift: Array


@dataclass(frozen=True, eq=False)
class Events:
    """A stratum event by event, at some coefficients.

    Args:
        risks: The risks of each site's records, which stay there.
        gone: What share of the dying has left the risk set before each event (events,).
        mass: The risk that is left (events,).
        means: The mean features of those who are left (events, columns).
    """

    risks: list[Array]
    gone: Array
    mass: Array
    means: Array


@dataclass(frozen=True, eq=False)
class Stratum:
    """Sites that share a baseline hazard.

    Args:
        members: The sites.
        event_times: Distinct, ascending (times,).
        deaths: How many events each has (times,).
        at_risk: How many records are at risk at each (times,).
        sums: The summed features of those whose event it is (times, columns).
        ties: How events at the same time are counted (Efron 1977, or Breslow 1974).
    """

    members: tuple[Member, ...]
    event_times: Array
    deaths: Integers
    at_risk: Array
    sums: Array
    ties: Ties

    def slope(self, beta: Array) -> Slope:
        """The likelihood and its derivatives; sums leave the sites twice, by event time and over time."""
        events = self._events(beta)
        pull, spared = (self._over(share) for share in (1 / events.mass, events.gone / events.mass))
        moments = [m.second_moment(r, pull, spared) for m, r in zip(self.members, events.risks, strict=True)]
        total = self.sums.sum(axis=0)
        return Slope(
            float(total @ beta - np.log(events.mass).sum()),
            total - events.means.sum(axis=0),
            _added(moments) - events.means.T @ events.means,
        )

    def hazards(self, beta: Array) -> Hazards:
        """What residuals are taken against."""
        events = self._events(beta)
        share, spared = 1 / events.mass, events.gone / events.mass
        return Hazards(
            means=self._over(events.means) / self.deaths[:, None],
            pull=self._over(share),
            spared=self._over(spared),
            drift=self._over(events.means * share[:, None]),
            spared_drift=self._over(events.means * spared[:, None]),
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
        """At each event time, the features of the dying less what was expected (times, columns)."""
        return self.sums - self.deaths[:, None] * self.hazards(beta).means

    def transformed(self, transform: Transform) -> Array:
        """The event times on another scale (times,); one that the stratum alone has is centred there."""
        if transform in ("identity", "log"):
            return self.event_times if transform == "identity" else np.log(self.event_times)
        ranks = (self._starts + (self.deaths + 1) / 2) / self.deaths.sum()
        found = ranks if transform == "rank" else 1 - np.cumprod(1 - self.deaths / self.at_risk)
        return found - self.deaths @ found / self.deaths.sum()

    @property
    def _starts(self) -> Integers:
        return np.cumsum(self.deaths) - self.deaths

    def _events(self, beta: Array) -> Events:
        risks = [member.risks(beta) for member in self.members]
        every = _added([m.at_risk(r) for m, r in zip(self.members, risks, strict=True)])
        row = np.repeat(np.arange(len(self.deaths)), self.deaths)
        # The k-th of d events at one time finds k/d of the dying gone from the risk set; Breslow's, nobody.
        gone = (np.arange(len(row)) - self._starts[row]) / self.deaths[row] * float(self.ties == "efron")
        left = every[row]
        if bool(gone.any()):
            dying = _added([m.dying(r) for m, r in zip(self.members, risks, strict=True)])
            left -= gone[:, None] * dying[row]
        return Events(risks, gone, left[:, 0], left[:, 1:] / left[:, :1])

    def _over(self, events: Array) -> Array:
        """Sums over the events of each time."""
        return np.add.reduceat(events, self._starts)


def strata(tables: Mapping[str, Table], by_site: bool, ties: Ties, grid: Array | None) -> list[Stratum]:
    """The strata that have events: one for each site, or one of all sites."""
    groups = [[table] for table in tables.values()] if by_site else [list(tables.values())]
    found = [_stratum(group, ties, grid) for group in groups]
    return [stratum for stratum in found if len(stratum.event_times)]


def by_place(values: Array, places: Integers, times: int) -> Array:
    """The sums of rows at each place (times, columns); places ascend."""
    found = np.zeros((times, values.shape[1]))
    first = np.flatnonzero(np.diff(places, prepend=-1))
    if len(first):
        found[places[first]] = np.add.reduceat(values, first)
    return found


@dataclass(frozen=True, eq=False)
class Optimum:
    """Where the likelihood is largest (columns,), its slope there and at 0, and how often it was asked."""

    beta: Array
    slope: Slope
    null: Slope
    asked: int


def maximise(parts: Sequence[Stratum], columns: Sequence[str], ridge: float) -> Optimum:
    """Newton's method from 0, with steps halved that lead down.

    Raises:
        InvalidValue: A column is constant, says what others say, or has a coefficient without bound.
    """
    if not parts:
        raise InvalidValue("event is not allowed: no record has one, and nothing can be learnt about them")
    beta, asked = np.zeros(len(columns)), 1
    null = here = _slope(parts, beta)
    units = _units(null.information, columns, ridge) / np.sqrt(sum(part.deaths.sum() for part in parts))
    for _ in range(MOST_STEPS):
        if not _bounded(here, null, ridge):
            break
        uphill = here.gradient - ridge * beta
        step = _solved(here.information + ridge * np.eye(len(beta)), uphill)
        lengths = np.abs(step) * units
        if lengths.max() <= SETTLED:
            return Optimum(beta, here, null, asked)
        floor = _penalised(here, beta, ridge) - SLACK * abs(here.log_likelihood)
        for _ in range(MOST_HALVINGS):
            here, asked = _slope(parts, beta + step), asked + 1
            if _penalised(here, beta + step, ridge) >= floor:
                break
            step = step / 2
        else:
            break
        beta = beta + step
    raise InvalidValue(_unbounded(columns, beta, np.abs(beta) * units))


def sandwich(parts: Sequence[Stratum], beta: Array, inverse: Array, by_site: bool) -> Array:
    """The robust covariance of the coefficients (Lin and Wei 1989), over records or over whole sites."""
    return inverse @ _added([part.squared_scores(beta, by_site) for part in parts]) @ inverse


def trend(parts: Sequence[Stratum], beta: Array, transform: Transform) -> tuple[Array, float]:
    """How residuals go with time: the sum of their products (columns,), and the spread of time."""
    times = [part.transformed(transform) for part in parts]
    deaths = np.concatenate([part.deaths for part in parts])
    centred = np.concatenate(times) - deaths @ np.concatenate(times) / deaths.sum()
    residuals = np.concatenate([part.schoenfeld(beta) for part in parts])
    return centred @ residuals, float(deaths @ centred**2)


def _slope(parts: Sequence[Stratum], beta: Array) -> Slope:
    # A step too far overflows; what is not finite is not uphill, and the step is halved.
    with np.errstate(all="ignore"):
        found = [part.slope(beta) for part in parts]
    return Slope(
        sum(slope.log_likelihood for slope in found),
        _added([slope.gradient for slope in found]),
        _added([slope.information for slope in found]),
    )


def _added(arrays: Sequence[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else np.sum(arrays, axis=0)


def _penalised(slope: Slope, beta: Array, ridge: float) -> float:
    return slope.log_likelihood - ridge / 2 * float(beta @ beta)


def _solved(matrix: Array, values: Array) -> Array:
    """The solution of linear equations whose unknowns may differ in size by orders of magnitude."""
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(np.float64).tiny))
    return np.linalg.lstsq(matrix / np.outer(scale, scale), values / scale, rcond=None)[0] / scale


def _units(information: Array, columns: Sequence[str], ridge: float) -> Array:
    """What each column varies by among those at risk, over all events; refuse those that say nothing."""
    found = np.sqrt(np.maximum(np.diag(information), 0.0))
    for name, unit in zip(columns, found, strict=True):
        if unit == 0:
            raise InvalidValue(
                f"column {name} is not allowed: it is constant among those at risk, within every stratum, "
                "and says nothing about who has an event. Leave it out"
            )
    values, vectors = np.linalg.eigh(information / np.outer(found, found))
    if values[0] < OWN and ridge == 0:
        alike = [name for name, part in zip(columns, np.abs(vectors[:, 0]), strict=True) if part > 1e-3]
        raise InvalidValue(
            f"columns {', '.join(alike)} are not allowed together: each can be computed from the others. "
            "Leave one out, or give a ridge"
        )
    return found


def _bounded(here: Slope, null: Slope, ridge: float) -> bool:
    """Whether anything is left to step by: a separating column empties risk sets, and may overflow."""
    left = np.diag(here.information) > GONE * np.diag(null.information)
    return bool(np.isfinite(here.information).all() and (ridge > 0 or left.all()))


def _unbounded(columns: Sequence[str], beta: Array, lengths: Array) -> str:
    worst = [place for place, length in enumerate(lengths) if length > lengths.max() / 2]
    names = ", ".join(columns[place] for place in worst)
    values = ", ".join(f"{beta[place]:.3g}" for place in worst)
    kind = "column" if len(worst) == 1 else "columns"
    return (
        f"{kind} {names} cannot be fitted: whoever has an event is separated from those at risk, and the "
        f"coefficient grows beyond all bounds (by now {values}). Leave a column out, merge categories, or "
        "give a ridge"
    )


def _stratum(tables: Sequence[Table], ties: Ties, grid: Array | None) -> Stratum:
    exits = [rounded(table, grid) for table in tables]
    event_times = np.unique(np.concatenate([time[happened] for time, happened in exits]))
    centre = _added([table.features.sum(axis=0) for table in tables]) / sum(map(len, tables))
    members = tuple(
        _member(_centred(table.features, centre), time, happened, event_times)
        for table, (time, happened) in zip(tables, exits, strict=True)
    )
    dead = [by_place(m.design[m.deaths], m.places[m.deaths], m.times) for m in members]
    risk = [m.at_risk(np.ones(len(m.places)))[:, 0] for m in members]
    totals = _added(dead)
    deaths = np.rint(totals[:, 0]).astype(np.int64)
    return Stratum(members, event_times, deaths, _added(risk), totals[:, 1:], ties)


def rounded(table: Table, grid: Array | None) -> tuple[Array, NDArray[np.bool_]]:
    """Times and events, rounded up to the ends of intervals; whoever stays beyond the last is censored."""
    time, happened = table.targets["time"], table.targets["event"] == 1
    if grid is None:
        return time, happened
    interval = np.searchsorted(grid, time, side="left")
    return np.append(grid, np.inf)[interval], happened & (interval < len(grid))


def _member(features: Array, time: Array, happened: NDArray[np.bool_], event_times: Array) -> Member:
    places = np.searchsorted(event_times, time, side="right") - 1
    # Who leaves before the first event was never at risk of one.
    order = np.argsort(places, kind="stable")[int((places < 0).sum()) :]
    design = np.column_stack([np.ones(len(order)), features[order]])
    return Member(design, places[order], np.flatnonzero(happened[order]), len(event_times))


def _centred(features: Array, centre: Array) -> Array:
    found = features - centre
    found[np.abs(found) <= CONSTANT * np.abs(features).max(axis=0)] = 0.0
    return found
