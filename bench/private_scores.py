"""Scores from one noisy table of held-out records, beside the truth: error, coverage, what is shown, alerts.

`python -m bench private_scores simulated 120` draws worlds whose truth is known; `useless` gives the alerts
of a model whose risks are noise, `calibrated` the size of the test of calibration, and `published` cuts
published sets in halves. The models are not private: only their evaluation is noisy.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import ndtri

from tacit.learning.noisy_scores import EXACT, Noise
from tacit.survival import data
from tacit.survival.metrics import auc, exit_table, harrell, integrated_brier, uno
from tacit.survival.metrics.brier_score import kaplan_meier
from tacit.survival.metrics.exit_table import (
    ExitTable,
    Tables,
    areas,
    brier_scores,
    calibrate_shares,
    integrate,
    merge,
    score_table,
    survival,
    table_of,
)
from tacit.survival.statistics.cox_regression import cox

RECORDS, EPSILONS = (300, 1000, 3000), (1.0, 0.5, 0.25)
# Independent noises in a sum; noise in secure sums is one noise, whatever the number of sites.
NOISES = {"one noise": 1, "5 sites": 5, "20 sites": 20}
NAMES = ("C", "Uno", "AUC", "IBS", "gain", "low", "high")
# Tests that do not find the model better, and of these, those whose score is shown.
ALERTS = ("no better than chance", "no better than Kaplan-Meier", "the same, shown", "the same, shown")
RISK, ERROR, HAZARD, CENSORING, HORIZON = 0.9, 0.4, 1.0, 0.3, 2.0


@dataclass(frozen=True)
class World:
    """Records of a simulated world: outcomes up to the horizon, and the log risks that a model predicts."""

    time: np.ndarray
    event: np.ndarray
    risk: np.ndarray


def draw_world(random: np.random.Generator, records: int, useless: bool = False) -> World:
    """Draw exponential times with log risks of sd 0.9, seen with an error of sd 0.4, or not at all."""
    true = random.normal(0, RISK, records)
    seen = random.normal(0, RISK, records) if useless else true
    risk = seen + random.normal(0, ERROR, records)
    event, censored = random.exponential(np.exp(-true) / HAZARD), random.exponential(1 / CENSORING, records)
    return World(np.minimum(event, censored), (event <= censored).astype(int), risk)


def predict(risk: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Predict survival as if log risks were seen without error: too sure of itself, by about a fifth."""
    return np.exp(-HAZARD * np.exp(risk)[:, None] * ends)


@dataclass(frozen=True)
class Cell:
    """What was measured in a cell of the table, of each score."""

    error: np.ndarray
    bias: np.ndarray
    coverage: np.ndarray
    shown: np.ndarray
    covered_if_shown: np.ndarray
    fired: np.ndarray


@cache
def bins_of(bins: int, intervals: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges of risk bins by the law of the risks, ends, and predictions of each bin."""
    edges = np.hypot(RISK, ERROR) * ndtri(np.arange(1, bins) / bins)
    ends = HORIZON * np.arange(1, intervals + 1) / intervals
    grid = np.hypot(RISK, ERROR) * ndtri((np.arange(bins * 2000) + 0.5) / (bins * 2000))
    return edges, ends, predict(grid, ends).reshape(bins, 2000, intervals).mean(axis=1)


@cache
def truth_of(intervals: int, useless: bool, records: int = 200_000) -> dict[str, float]:
    """Scores of a long table of records with their own predictions."""
    ends = bins_of(6, intervals)[1]
    world = draw_world(np.random.default_rng(12345), records, useless)
    time, event, risk = world.time, world.event, world.risk
    until, seen = np.minimum(time, HORIZON), np.where(time > HORIZON, 0, event)
    surviving = np.broadcast_to(kaplan_meier(time, event)(ends), (records, intervals))
    brier, plain = (integrated_brier(time, event, one, ends) for one in (predict(risk, ends), surviving))
    third, at = ndtri(2 / 3) * np.hypot(RISK, ERROR), intervals // 2 - 1
    low, high = (kaplan_meier(time[one], event[one])(ends[at]) for one in (risk <= -third, risk > third))
    return {
        "C": harrell(until, seen, risk),
        "Uno": uno(until, seen, risk),
        "AUC": float(auc(time, event, risk, [ends[at]])[0]),
        "IBS": brier,
        "gain": plain - brier,
        "low": float(low),
        "high": float(high),
    }


def estimates(table: ExitTable, at: int) -> list[float]:
    """Every estimate, shown or not."""
    tables = Tables(table.counts[None], table.variance)
    model, plain = (
        integrate(one, table.ends)[0] for one in brier_scores(tables, table.predicted, table.spread)
    )
    thirds = np.array_split(np.arange(len(table.counts)), 3)
    low, _, high = survival(merge(tables, thirds))[0, :, at]
    found = [exit_table.harrell(tables)[0], exit_table.uno(tables)[0], areas(tables)[0, at], model]
    return [*np.clip(np.nan_to_num(found), 0, 1), np.clip(np.nan_to_num(plain - model), -1, 1), low, high]


def measure(
    records: int, noise: Noise, shape: tuple[int, int], repeats: int, useless: bool, seed: int
) -> Cell:
    """Score worlds: estimates with ends of intervals, whether they are shown, alerts, and rejections."""
    random = np.random.default_rng([seed, records, round(1000 * noise.scale), noise.copies, useless])
    edges, ends, predicted = bins_of(*shape)
    at, rows, fired = shape[1] // 2 - 1, [], []
    for _ in range(repeats):
        world = draw_world(random, records, useless)
        counts = table_of(world.time, world.event, np.searchsorted(edges, world.risk), ends, shape[0])
        table = ExitTable(counts + noise.redraw(random, counts.shape), ends, predicted, noise)
        found = score_table(table, [at], seed=int(random.integers(2**31)))
        scores = [found.harrell, found.uno, found.auc[0], found.brier, found.gain]
        groups = found.risk_groups
        intervals = [(one.low, one.high, one.value is not None) for one in scores]
        for group in (0, -1):
            shown = not np.isnan(groups.value[group, at])
            intervals.append((groups.low[group, at], groups.high[group, at], shown))
        rows.append([[value, *one] for value, one in zip(estimates(table, at), intervals, strict=True)])
        rejected = found.d_calibration.p_value < 0.05
        alerts = [not found.better_than_chance, not found.better_than_kaplan_meier]
        said = [one.value is not None for one in (found.harrell, found.gain)]
        fired.append([*alerts, *np.logical_and(alerts, said), rejected])
    truth = np.array(list(truth_of(shape[1], useless).values()))
    return summarize(np.array(rows, dtype=float), truth, np.mean(fired, axis=0))


def summarize(rows: np.ndarray, truth: np.ndarray, fired: np.ndarray) -> Cell:
    """RMSE, bias, coverage, share shown and coverage of what is shown (scores,) each."""
    value, low, high, shown = np.moveaxis(rows, 2, 0)
    covered = (low <= truth) & (truth <= high)
    return Cell(
        np.sqrt(((value - truth) ** 2).mean(axis=0)),
        (value - truth).mean(axis=0),
        covered.mean(axis=0),
        shown.mean(axis=0),
        (covered * shown).sum(axis=0) / np.maximum(shown.sum(axis=0), 1),
        fired,
    )


def cells() -> Iterator[tuple[int, str, float | None, Noise]]:
    """Number of records, noise by name, epsilon and noise of each cell."""
    for records in RECORDS:
        yield records, "open", None, EXACT
        for name, copies in NOISES.items():
            for epsilon in EPSILONS:
                yield records, name, epsilon, Noise("discrete-laplace", 1 / epsilon, copies)


def simulated(repeats: int, seed: int = 2) -> None:
    """Print a line for each cell: a model that is useful."""
    print(head(*NAMES, *ALERTS, "D-calibration rejects"))
    for records, name, epsilon, noise in cells():
        print(line(records, epsilon, name, measure(records, noise, (6, 8), repeats, False, seed)), flush=True)


def useless(repeats: int, seed: int = 3) -> None:
    """Print a line for each cell: alerts for a model whose risks are noise."""
    print(head(*ALERTS))
    for records, name, epsilon, noise in cells():
        found = measure(records, noise, (6, 8), repeats, True, seed)
        shares = [f"{share:.2f}" for share in found.fired[:-1]]
        print(row(records, epsilon, name, shares), flush=True)


def calibrated(repeats: int, seed: int = 4) -> None:
    """Print a line for each cell: rejections of a model that knows the risks, and of one too sure by half."""
    print(head("size", "power"))
    edges, ends, predicted = bins_of(6, 8)
    for records, name, epsilon, noise in cells():
        random, shares = np.random.default_rng([seed, records, noise.copies]), []
        for factor in (1.0, 1.5):
            rejected = 0
            for _ in range(repeats):
                risk = np.hypot(RISK, ERROR) * random.normal(size=records)
                event = random.exponential(np.exp(-risk / factor))
                left = random.exponential(1 / CENSORING, records)
                time, seen = np.minimum(event, left), event <= left
                counts = table_of(time, seen, np.searchsorted(edges, risk), ends, 6)
                table = ExitTable(counts + noise.redraw(random, counts.shape), ends, predicted, noise)
                rejected += calibrate_shares(table).p_value < 0.05
            shares.append(f"{rejected / repeats:.3f}")
        print(row(records, epsilon, name, shares), flush=True)


def published(repeats: int, seed: int = 5) -> None:
    """Print a line for each set, number of records and noise: Cox regression on half, scored on the other."""
    print("| set | n | epsilon | noise | exact C | C: RMSE (bias) coverage, shown | IBS | gain |")
    print("| --- " * 8 + "|")
    for name in ("support", "flchain", "framingham"):
        splits = [Split.of(name, seed + split) for split in range(5)]
        for records in RECORDS:
            if records > min(len(split.world.time) for split in splits):
                continue
            for noise_name, epsilon, copies in (
                ("one noise", 1.0, 1),
                ("one noise", 0.5, 1),
                ("one noise", 0.25, 1),
                ("5 sites", 1.0, 5),
                ("20 sites", 1.0, 20),
            ):
                noise = Noise("discrete-laplace", 1 / epsilon, copies)
                found = [split.measure(records, noise, repeats) for split in splits]
                values, lows, highs, shown, truth = (np.concatenate(one) for one in zip(*found, strict=True))
                error, covered = values - truth, (lows <= truth) & (truth <= highs)
                cells = [
                    f"{np.sqrt((error[:, k] ** 2).mean()):.3f} ({error[:, k].mean():+.3f}) "
                    f"{covered[:, k].mean():.2f}, {shown[:, k].mean():.2f}"
                    for k in range(3)
                ]
                exact = f"{truth[:, 0].mean():.3f}"
                print(
                    " | ".join([f"| {name}", f"{records}", f"{epsilon:g}", noise_name, exact, *cells]) + " |",
                    flush=True,
                )


@dataclass(frozen=True)
class Split:
    """Half of a published set to be scored, with what the other half has taught."""

    world: World
    survival: np.ndarray
    edges: np.ndarray
    ends: np.ndarray
    predicted: np.ndarray
    truth: np.ndarray
    seed: int

    @classmethod
    def of(cls, name: str, seed: int) -> "Split":
        """Fit Cox regression to half of a set; bins and predictions come from that half."""
        whole = data.federation(name, sites=1, seed=seed, held_out=0.5)
        train, test = whole.store, whole.held_out
        beta = cox(whole, strata=None, ties="breslow").coefficients
        time, event = train.targets["time"], train.targets["event"].astype(int)
        risk, tested = train.features @ beta, test.features @ beta
        ends = np.quantile(time[event == 1], 0.95) * np.arange(1, 9) / 8
        order = np.argsort(-time)
        at_risk = np.cumsum(np.exp(risk[order]))
        steps = event[order] / at_risk
        hazard = np.array([steps[time[order] <= end].sum() for end in ends])
        edges = np.quantile(risk, np.arange(1, 6) / 6)
        curves = np.exp(-np.exp(risk)[:, None] * hazard)
        own = np.searchsorted(edges, risk)
        predicted = np.stack([curves[own == one].mean(axis=0) for one in range(6)])
        world = World(test.targets["time"], test.targets["event"].astype(int), tested)
        survival = np.exp(-np.exp(tested)[:, None] * hazard)
        until, seen = np.minimum(world.time, ends[-1]), np.where(world.time > ends[-1], 0, world.event)
        plain = np.broadcast_to(kaplan_meier(world.time, world.event)(ends), survival.shape)
        brier, baseline = (integrated_brier(world.time, world.event, one, ends) for one in (survival, plain))
        truth = np.array([harrell(until, seen, tested), brier, baseline - brier])
        return cls(world, survival, edges, ends, predicted, truth, seed)

    def measure(self, records: int, noise: Noise, repeats: int) -> tuple[np.ndarray, ...]:
        """Score so many subsets: estimates, ends of intervals, whether shown, exact scores of all records."""
        random = np.random.default_rng([self.seed, records, round(100 * noise.scale), noise.copies])
        found = []
        for _ in range(repeats):
            own = random.choice(len(self.world.time), records, replace=False)
            bins = np.searchsorted(self.edges, self.world.risk[own])
            counts = table_of(self.world.time[own], self.world.event[own], bins, self.ends, 6)
            table = ExitTable(counts + noise.redraw(random, counts.shape), self.ends, self.predicted, noise)
            scores = score_table(table, [3], repeats=100, seed=int(random.integers(2**31)))
            three, values = (scores.harrell, scores.brier, scores.gain), estimates(table, 3)
            found.append(
                [
                    [values[0], values[3], values[4]],
                    [one.low for one in three],
                    [one.high for one in three],
                    [one.value is not None for one in three],
                    self.truth,
                ]
            )
        return tuple(np.array(one, dtype=float) for one in zip(*found, strict=True))


def head(*columns: str) -> str:
    """First two lines of a table."""
    return f"| n | epsilon | noise | {' | '.join(columns)} |\n" + "| --- " * (3 + len(columns)) + "|"


def row(records: int, epsilon: float | None, name: str, found: list[str]) -> str:
    """A line of a table."""
    return f"| {records} | {epsilon or '-'} | {name} | {' | '.join(found)} |"


def line(records: int, epsilon: float | None, name: str, found: Cell) -> str:
    """A line with RMSE (bias) coverage, share shown and coverage of what is shown, and shares of alerts."""
    scores = [
        f"{error:.3f} ({bias:+.3f}) {cover:.2f}, {shown:.2f} {sure:.2f}"
        for error, bias, cover, shown, sure in zip(
            found.error, found.bias, found.coverage, found.shown, found.covered_if_shown, strict=True
        )
    ]
    return row(records, epsilon, name, [*scores, *(f"{share:.2f}" for share in found.fired)])


def main() -> None:
    """Run one of them, so many repetitions."""
    name, repeats = sys.argv[1], int(sys.argv[2])
    {"simulated": simulated, "useless": useless, "calibrated": calibrated, "published": published}[name](
        repeats
    )


if __name__ == "__main__":
    main()
