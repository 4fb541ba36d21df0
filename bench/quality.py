"""Every survival model on published sets, beside what the literature and pycox reach; central and federated.

Five folds, stratified by event; one fixed setting for all models and sets, nothing tuned and nothing stopped
early: 30 rounds of one pass, Adam at 0.005, weight decay 16 over the number of records, two layers of 32 (64
from 4,000 records on). C-td is Antolini's, IBS is integrated over all test times. References: C-td of Kvamme,
Borgan and Scheel 2019 (tables 2 to 4, tuned), C-td and IBS of pycox 0.3 untuned, all with five folds.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
from dataclasses import dataclass

import numpy as np

import tacit
from tacit.sites.federation import RowFederation
from tacit.sites.table import Table
from tacit.survival import data
from tacit.survival.metrics import antolini, integrated_brier
from tacit.survival.models.prediction import GridModel
from tacit.survival.tasks import TASKS

# Set: model: C-td of the paper, C-td of pycox untuned, IBS of pycox untuned.
REFERENCES = {
    "metabric": {
        "cox-ph": (0.628, 0.634, 0.1635),
        "deep-surv": (0.636, 0.635, 0.1667),
        "cox-cc": (0.643, 0.634, 0.1676),
        "cox-time": (0.662, 0.653, 0.1650),
        "logistic-hazard": (None, 0.644, 0.1659),
        "pc-hazard": (None, 0.646, 0.1662),
        "deep-hit": (0.675, 0.652, 0.1768),
    },
    "rotterdam-gbsg": {
        "cox-ph": (0.666, 0.663, 0.1825),
        "deep-surv": (0.674, 0.679, 0.1763),
        "cox-cc": (0.669, 0.673, 0.1783),
        "cox-time": (0.677, 0.677, 0.1765),
        "logistic-hazard": (None, 0.678, 0.1821),
        "pc-hazard": (None, 0.678, 0.1769),
        "deep-hit": (0.670, 0.671, 0.2063),
    },
    "support": {
        "cox-ph": (0.598, 0.570, 0.2053),
        "deep-surv": (0.611, 0.609, 0.1920),
        "cox-cc": (0.613, 0.610, 0.1923),
        "cox-time": (0.629, 0.618, 0.1924),
        "logistic-hazard": (None, 0.621, 0.1978),
        "pc-hazard": (None, 0.620, 0.1924),
        "deep-hit": (0.642, 0.633, 0.2107),
    },
    "flchain": {
        "cox-ph": (0.790, 0.791, 0.1004),
        "deep-surv": (0.790, 0.791, 0.1005),
        "cox-cc": (0.793, 0.789, 0.1058),
        "cox-time": (0.790, 0.789, 0.1012),
        "logistic-hazard": (None, 0.787, 0.1038),
        "pc-hazard": (None, 0.779, 0.1001),
        "deep-hit": (0.792, 0.781, 0.1198),
    },
}
OPTIONS = {"deep-hit": {"ranking": 0.5}, "cox-time": {"cuts": 40}}
FOLDS = 5


@dataclass(frozen=True)
class Found:
    """Means over folds, and their standard errors."""

    c: float
    c_error: float
    ibs: float
    ibs_error: float
    seconds: float


def measured(name: str, kind: str, sites: int, folds: int = FOLDS) -> Found:
    """Score one model on one data set, trained at a number of sites."""
    whole = data.federation(name, sites=1, held_out=0.0, cause=None).store
    fold = _folds(whole.targets["event"], folds)
    before, scores = time.process_time(), []
    for number in range(folds):
        inner, test = whole.take(np.flatnonzero(fold != number)), whole.take(np.flatnonzero(fold == number))
        scores.append(_scores(_trained(inner, kind, sites, number), test))
    found = np.array(scores)
    mean, error = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(folds)
    spent = (time.process_time() - before) / folds
    return Found(mean[0], error[0], mean[1], error[1], spent)


def _folds(event: np.ndarray, folds: int) -> np.ndarray:
    generator, fold = np.random.default_rng(0), np.zeros(len(event), dtype=int)
    for status in np.unique(event):
        rows = generator.permutation(np.flatnonzero(event == status))
        fold[rows] = np.arange(len(rows)) % folds
    return fold


def _trained(table: Table, kind: str, sites: int, seed: int) -> object:
    rows = np.random.default_rng(seed).permutation(len(table))
    parts = {f"site-{place}": table.take(rows[place::sites]) for place in range(sites)}
    large = len(table) > 4000
    layers = {} if kind == "cox-ph" else {"hidden": (64, 64) if large else (32, 32)}
    task = TASKS[kind](
        **layers,
        epochs=1,
        batch=max((512 if large else 256) // sites, 32),
        lr=0.005,
        decay=16 / len(table),
        optimizer="adam",
        **OPTIONS.get(kind, {}),
    )
    return tacit.fit(task, RowFederation(parts), rounds=30, seed=seed).model


def _scores(model: GridModel, test: Table) -> tuple[float, float]:
    time_, event = test.targets["time"], (test.targets["event"] > 0).astype(float)
    fine = np.unique(np.quantile(time_, np.linspace(0, 1, 400)))
    span = np.linspace(time_.min(), np.quantile(time_, 0.999), 100)
    # The last value holds beyond the horizon, as in the packages that are compared.
    curves, later = (
        model.survival(test.features, np.minimum(times, model.ends[-1])) for times in (fine, span)
    )
    return antolini(time_, event, curves, fine), integrated_brier(time_, event, later, span)


def main() -> None:
    chosen = sys.argv[1:] or list(REFERENCES)
    print(f"{'':32}{'paper':>7}{'pycox':>7}{'C-td':>7}{'±':>7}{'5 sites':>9}{'pycox':>8}{'IBS':>8}{'s':>6}")
    for name in chosen:
        for kind, (paper, untuned, ibs) in REFERENCES[name].items():
            central, federated = measured(name, kind, 1), measured(name, kind, 5)
            print(
                f"{name:16}{kind:16}{paper or float('nan'):7.3f}{untuned:7.3f}{central.c:7.3f}"
                f"{central.c_error:7.3f}{federated.c:9.3f}{ibs:8.4f}{central.ibs:8.4f}{central.seconds:6.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
