"""Scores from one noisy table of held-out records, beside the truth: error, coverage, what is shown, alerts.

`python -m bench private_scores simulated` draws worlds whose truth is known; `published` cuts published sets.
Nothing is trained under a promise here: the model is given, and only its evaluation is noisy.
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
from tacit.survival.metrics import auc, exit_scores, harrell, integrated_brier, uno
from tacit.survival.metrics.brier_score import kaplan_meier
from tacit.survival.metrics.exit_scores import Tables, areas, brier_scores, integrate, merge, survival
from tacit.survival.metrics.exit_table import ExitTable, score_table, table_of

RECORDS, EPSILONS = (300, 1000, 3000), (1.0, 0.5, 0.25)
# Independent noises in a sum; noise in secure sums is one noise, whatever the number of sites.
NOISES = {"one noise": 1, "5 sites": 5, "20 sites": 20}
NAMES = ("C", "Uno", "AUC", "IBS", "gain", "low", "high")
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
    found = [exit_scores.harrell(tables)[0], exit_scores.uno(tables)[0], areas(tables)[0, at], model]
    return [*np.clip(np.nan_to_num(found), 0, 1), np.clip(plain, 0, 1) - np.clip(model, 0, 1), low, high]


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
        fired.append([not found.better_than_chance, not found.better_than_kaplan_meier, rejected])
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
    """Print a line for each cell, of a model that is useful, and its alerts."""
    head = [*NAMES, "no better than chance", "no better than KM", "D-calibration rejects"]
    print("| n | epsilon | noise | " + " | ".join(head) + " |\n" + "| --- " * (3 + len(head)) + "|")
    for records, name, epsilon, noise in cells():
        print(line(records, epsilon, name, measure(records, noise, (6, 8), repeats, False, seed)), flush=True)


def useless(repeats: int, seed: int = 3) -> None:
    """Print the share of alerts for a model whose risks are noise, with bins as chosen and as 6 by 8."""
    print(
        "| n | epsilon | noise | no better than chance | no better than KM |\n| --- | --- | --- | --- | --- |"
    )
    for records, name, epsilon, noise in cells():
        found = measure(records, noise, (6, 8), repeats, True, seed)
        print(
            f"| {records} | {epsilon or '-'} | {name} | {found.fired[0]:.3f} | {found.fired[1]:.3f} |",
            flush=True,
        )


def line(records: int, epsilon: float | None, name: str, found: Cell) -> str:
    """A row of the table: RMSE (bias) coverage, share shown."""
    scores = [
        f"{error:.3f} ({bias:+.3f}) {cover:.2f}, {shown:.2f} {sure:.2f}"
        for error, bias, cover, shown, sure in zip(
            found.error, found.bias, found.coverage, found.shown, found.covered_if_shown, strict=True
        )
    ]
    scores += [f"{share:.2f}" for share in found.fired]
    return " | ".join(["", f"{records}", f"{epsilon or '-'}", name, *scores]).strip() + " |"


def main() -> None:
    """Run what is named, so many repetitions: `simulated`, `useless`, `published`."""
    name, repeats = sys.argv[1], int(sys.argv[2])
    {"simulated": simulated, "useless": useless}[name](repeats)


if __name__ == "__main__":
    main()
