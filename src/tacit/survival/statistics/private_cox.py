"""Cox regression with noise: public design, refusals, and the fit from Python.

The partial likelihood couples all records at risk; the likelihood of piecewise constant hazards is a sum over
records, and nearly the same. Each site releases moments, information and scores of bounded contributions
(`bounded_score`), all of it charged before any noise is drawn; the rest is post-processing (`score_path`).
The task `private-cox` uses the same design, so that it gives the same fit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tacit.errors import InvalidValue, NotSeparable, Refused, choices, require, require_positive
from tacit.privacy.accounting import calibrate
from tacit.privacy.ledger.payment import Payment
from tacit.privacy.mechanisms.base import ROUNDED
from tacit.runtime.arrays import Array
from tacit.sites.encoding import Encoding
from tacit.sites.federation import RowFederation
from tacit.sites.table import Table
from tacit.survival.life_table import LifeTable, refuse_weights
from tacit.survival.statistics.bounded_score import (
    EXITS,
    INFORMATION,
    MOMENTS,
    TRENDS,
    ChunkedRows,
    FeatureLimits,
    InformationRows,
    MomentLayout,
    MomentRows,
    RegressionRecords,
    Regressors,
    ScoreRows,
)
from tacit.survival.statistics.cox_fit import CoxOptions, PrivateCoxFit
from tacit.survival.statistics.score_path import ScorePath, Start, start_from_moments

# Rounds: one for the information, the others for scores, whose shares of the rest grow like this.
ROUNDS, GROWTH = 8, (0.0, 0.05, 0.12, 0.22, 0.36, 0.55, 0.75, 1.0)
# Length of features in the release of their moments, for each root of a column.
CUT = 1.5
WHAT = "exits by interval, moments of features, the information of events, then a score in every round"
REMEDY = (
    'give the ranges of columns, such as ranges={"age": (18, 100)}, or a bound on the length of features '
    "that have a public center and scale"
)


def round_shares(rounds: int) -> tuple[float, ...]:
    """Return the share of the promise of each round: the information, then growing scores."""
    require(rounds >= 3, "rounds", rounds, "3 or more: one for the information, the others for scores")
    grown = np.interp(np.linspace(0, 1, rounds), np.linspace(0, 1, len(GROWTH)), GROWTH)
    scored = 1 - EXITS - MOMENTS - INFORMATION
    return (INFORMATION, *(float(share) for share in scored * np.diff(grown)))


@dataclass(frozen=True, eq=False, kw_only=True)
class CoxDesign:
    """Public choices of a private Cox regression.

    Args:
        columns: The features.
        ends: The ends of the intervals.
        limits: Limits, center and scale of each feature.
        sites: The sites.
        by_site: Whether each site has a level of its own.
        late: Whether records enter late.
        followed: Expected events to follow a typical record for; None for as many as the noise allows.
    """

    columns: tuple[str, ...]
    ends: Array
    limits: FeatureLimits
    sites: tuple[str, ...]
    by_site: bool
    late: bool
    followed: float | None = None

    @property
    def levels(self) -> int:
        """Number of levels: of sites, or one of all."""
        return len(self.sites) if self.by_site else 1

    @property
    def layout(self) -> MomentLayout:
        """The layout of the first release."""
        return MomentLayout(len(self.ends), len(self.columns), self.levels, self.late, float(self.limits.cut))

    @property
    def regressors(self) -> int:
        """Number of regressors: levels, other functions of time, features."""
        return self.levels + TRENDS - 1 + len(self.columns)

    def records(self, table: Table, site: str) -> RegressionRecords:
        """The records of a site, scaled."""
        level = self.sites.index(site) if self.by_site and site in self.sites else 0
        return RegressionRecords.of(table, self.ends, self.limits, level)

    def moments(self, table: Table, site: str) -> MomentRows:
        """Contributions of a site's records to the first release."""
        return MomentRows(table, self.records(table, site), self.layout, self.ends)

    def start(self, sums: Array, noise: float, noises: Sequence[float]) -> Start:
        """Return what the first release gives; see `start_from_moments`."""
        return start_from_moments(sums, self.layout, self.ends, noise, noises, followed=self.followed)

    def exits(
        self, sums: Sequence[Array], noise: float, sites: tuple[str, ...], provenance: str
    ) -> LifeTable:
        """Return exits by interval and state, as they were released by each site or by all together."""
        counts = np.stack([self.layout.split(own)[0] for own in sums])[:, None]
        deviation = noise / self.layout.units[0]
        return LifeTable(self.ends, counts, sites, None, deviation**2, False, provenance, self.late)

    def fit(
        self, options: CoxOptions, start: Start, path: ScorePath, table: LifeTable, provenance: str
    ) -> PrivateCoxFit:
        """Build the fit after the last round."""
        found, model, noise = path.estimate()
        units = self.limits.scale
        return PrivateCoxFit(
            **vars(replace(options, ties="breslow")),
            columns=self.columns,
            coefficients=found / units,
            covariance=(model + noise) / np.outer(units, units),
            model_covariance=model / np.outer(units, units),
            noise_covariance=noise / np.outer(units, units),
            followed=start.followed,
            table=table,
            **dict.fromkeys(("log_likelihood", "null_log_likelihood", "score", "concordance"), float("nan")),
            records=round(start.baseline.records),
            events=round(start.baseline.events),
            iterations=len(path.scores) + 1,
            provenance=provenance,
        )


def refuse_options(federation: RowFederation, options: CoxOptions) -> None:
    """Refuse options without a private version, and name the alternative."""
    refuse_weights(federation)
    if options.grid is None:
        raise NotSeparable(
            "grid = None would fit the partial likelihood, which couples all records at risk and cannot "
            "protect single ones: give the ends of public intervals, such as numpy.linspace(0, horizon, "
            "21)[1:]"
        )
    allowed = "False with epsilon: standard errors account for the noise, not for a wrong model"
    require(not options.robust, "robust", options.robust, allowed)
    allowed = "0 with epsilon: fit.shrunk(0.5) gives shrunken estimates, with the errors of noise"
    require(options.ridge == 0, "ridge", options.ridge, allowed)


def feature_limits(
    columns: Sequence[str],
    encoding: Encoding,
    ranges: Mapping[str, Sequence[float]],
    bound: float | None,
) -> FeatureLimits:
    """Return limits, center and scale of each feature from public facts; the records are not read.

    A column with a range is scaled to -1 up to 1, as one of 0 and 1 is; one that came with a public center
    and scale is in units of that already, and with a bound so are all others.

    Args:
        columns: The features.
        encoding: Their encoding; ranges are those of raw columns.
        ranges: The least and largest value of columns.
        bound: Length of scaled features in the release of their moments; 1.5 root p by default.
    """
    unknown = [name for name in ranges if name not in columns]
    if unknown:
        raise InvalidValue(f"ranges of {choices(unknown)} are not allowed: there are {choices(columns)}")
    if bound is not None:
        require_positive("bound", bound)
    words = {f"{name}={level}" for name, levels in encoding.levels.items() for level in map(str, levels)}
    rows: list[tuple[float, float]] = []
    for name in columns:
        if name in ranges:
            low, high = (float(end) for end in ranges[name])
            require(-np.inf < low < high < np.inf, f"ranges of {name}", ranges[name], "finite and ascending")
            moved, divided = encoding.center.get(name, 0.0), encoding.scale.get(name, 1.0)
            rows.append(((low - moved) / divided, (high - moved) / divided))
        elif name in words or name in encoding.levels:
            rows.append((0.0, 1.0))
        elif name in encoding.scale or bound is not None:
            rows.append((-np.inf, np.inf))
        else:
            raise Refused(
                f"bound = None is not private: nothing public bounds {name}. {REMEDY[0].upper()}{REMEDY[1:]}"
            )
    low, high = np.array(rows, dtype=np.float64).reshape(-1, 2).T
    known = np.isfinite(low)
    with np.errstate(invalid="ignore"):
        center = np.where(known, (low + high) / 2, 0.0)
        scale = np.where(known, (high - low) / 2, 1.0)
    return FeatureLimits(low, high, center, scale, CUT * len(columns) ** 0.5 if bound is None else bound)


def fit(
    tables: Mapping[str, Table], options: CoxOptions, payment: Payment, design: CoxDesign
) -> PrivateCoxFit:
    """Fit from noisy sums that have been charged for.

    Guarantee:
        All that leaves a site are `ROUNDS` + 1 sums of vectors no longer than 1, one for each record, with
        Gaussian noise. Their shares of one noise add up to 1, so that together they are as private as one
        Gaussian release that costs (epsilon, delta) for one record more or less, although later ones depend
        on the results of earlier ones. All of it is charged before any noise is drawn.
    """
    sites = _Sites(tables, payment, design)
    sums = sites.answers(lambda name: design.moments(tables[name], name), 0)
    start = design.start(np.sum(sums, axis=0), sites.noises[0], sites.noises[1:])
    told = sites.answers(lambda name: InformationRows(sites.records[name], start.regressors), 1)
    path = ScorePath.begin(start, np.sum(told, axis=0), sites.noises[1])
    for number in range(2, len(sites.noises)):
        public, point = path.public, path.points[-1]
        told = sites.answers(partial(_score_rows, sites.records, public, point), number)
        path = path.step(np.sum(told, axis=0), sites.noises[number])
    provenance = sites.paid.provenance
    exits = design.exits(sums, sites.noises[0] / len(tables) ** 0.5, tuple(tables), provenance)
    return design.fit(options, start, path, exits, provenance)


def _score_rows(
    records: Mapping[str, RegressionRecords], public: Regressors, point: Array, name: str
) -> ScoreRows:
    return ScoreRows(records[name], public, point)


class _Sites:
    """Sites of a private fit: their answers are paid for and carry noise."""

    def __init__(self, tables: Mapping[str, Table], payment: Payment, design: CoxDesign) -> None:
        if payment.delta == 0:
            raise Refused(
                "delta = 0 takes Laplace noise, which is too much for a regression: give delta above 0, such "
                "as 1e-5"
            )
        assert payment.epsilon is not None
        self.records = {name: design.records(table, name) for name, table in tables.items()}
        # A little more than is charged: shares and their roots are rounded.
        multiplier = calibrate(epsilon=payment.epsilon, delta=payment.delta) * (1 + 1e-9)
        purposes = ("exits and moments", "information", *(f"score {number}" for number in range(1, ROUNDS)))
        self.releases = [
            payment.release(1.0, f"Cox regression: {purpose}", multiplier=multiplier / share**0.5)
            for purpose, share in zip(purposes, (EXITS + MOMENTS, *round_shares(ROUNDS)), strict=True)
        ]
        self.paid = payment.pay(self.releases, tables, f"{WHAT}, with gaussian noise")
        # The noise in the sums over sites; a little more than is charged, for roundings (`mechanisms.base`).
        self.noises = [len(tables) ** 0.5 * (1 + ROUNDED) * one.scale for one in self.releases]

    def answers(self, rows: Callable[[str], ChunkedRows], number: int) -> list[Array]:
        """Return the noisy sum of each site's contributions, for the release of this number."""
        release = self.releases[number]
        return [
            self.paid.add_noise(rows(name).total(None)[0], release, "round", number, name, rounded=ROUNDED)
            for name in self.records
        ]
