"""Private Cox regression on published sets: errors, what is kept, and coverage on simulated outcomes.

`python -m bench private_cox accuracy|coverage NAME... [--epsilon 100 3 1] [--runs 40] [--sites 1]` prints
one row for each set and epsilon. Numbers come from the functions that the statistic uses; noise is drawn by
numpy with a seed for each run. Features are winsorized at three deviations and standardized, the grid has 20
quantiles of event times: both are taken as public, as they would be from a protocol or another study.

accuracy    The real records, one noise seed a run. Errors are against `cox` in the open on the same features
            (Breslow ties), in its standard errors; a significant coefficient (p < .05) is kept if it is
            shown, of the same sign, and significant.
coverage    Outcomes drawn from the fitted model (Breslow's baseline, the Kaplan-Meier estimate of censoring)
            on the real features, one noise each; intervals of 95 %.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.privacy.accounting import calibrate
from tacit.sites.encoding import Encoding, infer_encoding
from tacit.sites.table import Table, from_arrays
from tacit.survival.data import published
from tacit.survival.statistics import cox_newton
from tacit.survival.statistics.bounded_score import EXITS, MOMENTS, InformationRows, ScoreRows
from tacit.survival.statistics.cox_fit import SHOWN
from tacit.survival.statistics.private_cox import ROUNDS, CoxDesign, feature_limits, round_shares
from tacit.survival.statistics.score_path import ScorePath

Array = NDArray[np.float64]
DELTA, NORMAL = 1e-5, 1.959964
# Deviations that features are winsorized at, and intervals.
FARTHEST, INTERVALS = 3.0, 20


@dataclass(frozen=True, eq=False)
class Problem:
    """Records of one set, and the open fit of them."""

    name: str
    columns: tuple[str, ...]
    features: Array
    time: Array
    event: Array
    grid: Array
    beta: Array
    errors: Array

    @property
    def design(self) -> CoxDesign:
        """The public design."""
        limits = feature_limits(self.columns, Encoding(), {}, 1.5 * len(self.columns) ** 0.5)
        return CoxDesign(
            columns=self.columns, ends=self.grid, limits=limits, sites=("all",), by_site=False, late=False
        )


def problem(name: str) -> Problem:
    """A published set; its first cause is the event."""
    frame = published.load(name)
    features = frame.drop(columns=[name for name in ("time", "event", "site") if name in frame])
    numbers = infer_encoding(features).apply(features)
    columns = [name for name in numbers if numbers[name].std() > 0]
    raw = numbers[columns].to_numpy(dtype=np.float64)
    scaled = np.clip((raw - raw.mean(axis=0)) / raw.std(axis=0), -FARTHEST, FARTHEST)
    time, event = frame["time"].to_numpy(dtype=np.float64), (frame["event"] == 1).to_numpy(dtype=np.float64)
    return of_records(name, tuple(map(str, columns)), scaled - scaled.mean(axis=0), time, event)


def of_records(name: str, columns: tuple[str, ...], features: Array, time: Array, event: Array) -> Problem:
    """Records with their open fit, and the grid of quantiles."""
    parts = cox_newton.strata_of(
        {"all": from_arrays(features, time=time, event=event)}, True, "breslow", None
    )
    found = cox_newton.maximise(parts, columns, 0.0)
    inner = np.quantile(time[event > 0], np.linspace(0, 1, INTERVALS + 1)[1:-1])
    grid = np.unique(np.append(inner, time.max()))
    errors = np.sqrt(np.diag(found.inverse(0.0)))
    return Problem(name, columns, features, time, event, grid, found.beta, errors)


def moments_of(design: CoxDesign, table: Table, known: dict[str, Array]) -> Array:
    """The first release, whose moments are worked out once for outcomes on the same features."""
    layout, ends = design.layout, len(design.ends)
    exits = layout.sizes[0]
    if "moments" not in known:
        known["moments"] = design.moments(table, "all").total(None)[0][exits:]
    place = np.searchsorted(design.ends, table.targets["time"], side="left")
    cells = np.minimum(2 * place + (table.targets["event"] > 0), 2 * ends).astype(np.int64)
    return np.concatenate([layout.units[0] * np.bincount(cells, minlength=exits), known["moments"]])


@dataclass(frozen=True, eq=False)
class Estimate:
    """Coefficients with their errors without noise, those of noise, and follow-up."""

    beta: Array
    model: Array
    noise: Array
    followed: float

    @property
    def errors(self) -> Array:
        """Standard errors."""
        return np.hypot(self.model, self.noise)

    @property
    def shown(self) -> NDArray[np.bool_]:
        """Mark the coefficients that are shown."""
        return self.noise <= SHOWN * self.model


def fit(
    design: CoxDesign, table: Table, sigma: float, draws: np.random.Generator, known: dict[str, Array]
) -> Estimate:
    """One private fit with noise of this multiplier in the sum over sites."""
    first = sigma / (EXITS + MOMENTS) ** 0.5
    noises = [sigma / share**0.5 for share in round_shares(ROUNDS)]

    def noisy(exact: Array, deviation: float) -> Array:
        return exact + deviation * draws.normal(size=exact.size)

    start = design.start(noisy(moments_of(design, table, known), first), first, noises)
    records = design.records(table, "all")
    upper = InformationRows(records, start.regressors).total(None)[0]
    path = ScorePath.begin(start, noisy(upper, noises[0]), noises[0])
    for noise in noises[1:]:
        score = ScoreRows(records, path.public, path.points[-1]).total(None)[0]
        path = path.step(noisy(score, noise), noise)
    beta, model, noise = path.estimate()
    return Estimate(beta, np.sqrt(np.diag(model)), np.sqrt(np.diag(noise)), start.followed)


def accuracy(given: Problem, epsilon: float, runs: int, sites: int, seed: int = 21) -> str:
    """A row of errors against the open fit."""
    sigma, known = calibrate(epsilon=epsilon, delta=DELTA) * sites**0.5, dict[str, Array]()
    table = from_arrays(given.features, time=given.time, event=given.event)
    found = [
        fit(given.design, table, sigma, np.random.default_rng([seed, run]), known) for run in range(runs)
    ]
    beta, errors = np.stack([one.beta for one in found]), np.stack([one.errors for one in found])
    shown = np.stack([one.shown for one in found])
    off = (beta - given.beta) / given.errors
    clear = np.abs(given.beta / given.errors) > NORMAL
    same = shown & (np.sign(beta) == np.sign(given.beta)) & (np.abs(beta / errors) > NORMAL)
    noise = np.median([one.noise / given.errors for one in found])
    cells = (
        f"{given.name} {len(given.time):,} / {given.event.sum():,.0f} / {len(given.columns)} / {clear.sum()}",
        f"{epsilon:g}",
        f"{np.sqrt((off**2).mean()):.2f}",
        f"{np.abs(off.mean(axis=0)).max():.2f}",
        f"{same[:, clear].mean() if clear.any() else np.nan:.2f}",
        f"{shown.mean():.2f}",
        f"{noise:.2f}",
        f"{np.mean([one.followed for one in found]):.1f}",
    )
    return f"| {' | '.join(cells)} |"


def outcomes(given: Problem) -> Callable[[np.random.Generator], tuple[Array, Array]]:
    """Draw times and events from the fitted model."""
    order = np.argsort(given.time, kind="stable")
    time, event, risk = given.time[order], given.event[order], np.exp(given.features @ given.beta)
    first = np.searchsorted(time, time, side="left")
    at_risk = np.cumsum(risk[order][::-1])[::-1][first]
    hazard, size = np.cumsum(event / at_risk), len(time)
    staying = np.log1p(-np.minimum((1 - event) / np.arange(size, 0, -1)[first], 1 - 1e-12))
    censored = np.cumsum(-staying)

    def draw(draws: np.random.Generator) -> tuple[Array, Array]:
        place = np.searchsorted(hazard, draws.exponential(size=size) / risk)
        last = np.searchsorted(censored, draws.exponential(size=size))
        until = np.where(place < size, time[np.minimum(place, size - 1)], np.inf)
        end = np.where(last < size, time[np.minimum(last, size - 1)], time[-1])
        return np.minimum(until, end), (until <= end).astype(np.float64)

    return draw


def coverage(given: Problem, epsilon: float, runs: int, sites: int, seed: int = 22) -> str:
    """A row of coverage on simulated outcomes."""
    sigma, known = calibrate(epsilon=epsilon, delta=DELTA) * sites**0.5, dict[str, Array]()
    draw, inside, shown, ratio = outcomes(given), list[Array](), list[Array](), list[Array]()
    for run in range(runs):
        draws = np.random.default_rng([seed, run])
        time, event = draw(draws)
        one = fit(given.design, from_arrays(given.features, time=time, event=event), sigma, draws, known)
        inside.append(np.abs(one.beta - given.beta) <= NORMAL * one.errors)
        shown.append(one.shown)
        ratio.append((one.beta - given.beta) / one.errors)
    held, seen = np.stack(inside), np.stack(shown)
    cells = (
        given.name,
        f"{epsilon:g}",
        f"{held.mean():.3f}",
        f"{held[seen].mean() if seen.any() else np.nan:.3f}",
        f"{held.mean(axis=0).min():.2f}",
        f"{seen.mean():.2f}",
        f"{np.stack(ratio).std():.2f}",
    )
    return f"| {' | '.join(cells)} |"


def rows(
    study: Callable[[Problem, float, int, int], str],
    names: Sequence[str],
    epsilons: Sequence[float],
    runs: int,
    sites: int,
) -> Iterator[str]:
    """Yield one row for each set and epsilon."""
    for name in names:
        given = problem(name)
        for epsilon in epsilons:
            yield study(given, epsilon, runs, sites)


def main() -> None:
    """Print the rows of one study."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", choices=("accuracy", "coverage"))
    parser.add_argument("names", nargs="+")
    parser.add_argument("--epsilon", nargs="+", type=float, default=[3.0, 1.0])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--sites", type=int, default=1)
    asked = parser.parse_args()
    study = accuracy if asked.study == "accuracy" else coverage
    for row in rows(study, asked.names, asked.epsilon, asked.runs, asked.sites):
        print(row, flush=True)


if __name__ == "__main__":
    main()
