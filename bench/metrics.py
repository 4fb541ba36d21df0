"""Scores of survival predictions against scikit-survival and lifelines: the same records, the same answers.

Every answer is checked before it is timed. CPU time, one thread, repetitions interleaved, median ratio (how
many times faster we answer). What takes them long is run once. Run it alone: `make bench-metrics`.
"""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from lifelines.utils import concordance_index
from sksurv.metrics import (
    brier_score,
    concordance_index_censored,
    concordance_index_ipcw,
    cumulative_dynamic_auc,
    integrated_brier_score,
)
from sksurv.util import Surv

from tacit.survival.metrics import antolini, auc, brier, harrell, integrated_brier, uno

TIMES = 100
# An answer of theirs that takes longer than this is asked for once.
PATIENCE = 2.0
Answer = Callable[[], object]


def records(count: int):
    draws = np.random.default_rng(count)
    risk = draws.normal(size=count)
    events, censorings = draws.exponential(np.exp(-risk)), draws.exponential(1.5, size=count)
    times = np.quantile(np.minimum(events, censorings), np.linspace(0.02, 0.9, TIMES))
    noisy = risk + draws.normal(size=count)
    survival = np.exp(-np.exp(0.5 * noisy)[:, None] * times)
    return np.minimum(events, censorings), (events < censorings).astype(int), noisy, times, survival


def event_by_event(time, event, survival, times) -> float:
    """Antolini's concordance as one would write it with numpy; neither package has it."""
    column = np.maximum(np.searchsorted(times, time, side="right") - 1, 0)
    rows = np.ascontiguousarray(survival.T)
    above = below = 0.0
    for i in np.flatnonzero(event):
        others = rows[column[i]][(time > time[i]) | ((time == time[i]) & (event == 0))]
        own = rows[column[i], i]
        above += (others > own).sum() + 0.5 * (others == own).sum()
        below += len(others)
    return above / below


def cases(count: int) -> dict[str, tuple[Answer, Answer]]:
    time, event, risk, times, survival = records(count)
    seen, outcome = event == 1, Surv.from_arrays(event == 1, time)
    last, risks = float(times[-1]), 1 - survival
    # Without their tolerance for ties, so that both sides count the very same pairs.
    exact = {"tied_tol": 0.0}
    found = {
        "Harrell, lifelines": (
            partial(harrell, time, event, risk),
            lambda: concordance_index(time, -risk, event),
        ),
        "Harrell, scikit-survival": (
            partial(harrell, time, event, risk),
            lambda: concordance_index_censored(seen, time, risk, **exact)[0],
        ),
        "Uno, scikit-survival": (
            partial(uno, time, event, risk, tau=last),
            lambda: concordance_index_ipcw(outcome, outcome, risk, tau=last, **exact)[0],
        ),
        f"AUC at {TIMES} times, scikit-survival": (
            partial(auc, time, event, risk, times),
            lambda: cumulative_dynamic_auc(outcome, outcome, risk, times, **exact)[0],
        ),
        f"AUC at {TIMES} times, a risk for each, scikit-survival": (
            partial(auc, time, event, risks, times),
            lambda: cumulative_dynamic_auc(outcome, outcome, risks, times, **exact)[0],
        ),
        f"Brier at {TIMES} times, scikit-survival": (
            partial(brier, time, event, survival, times, rule="right"),
            lambda: brier_score(outcome, outcome, survival, times)[1],
        ),
        "integrated Brier, scikit-survival": (
            partial(integrated_brier, time, event, survival, times, rule="right"),
            lambda: integrated_brier_score(outcome, outcome, survival, times),
        ),
    }
    if count <= 10_000:
        found[f"Antolini at {TIMES} times, a plain loop"] = (
            partial(antolini, time, event, survival, times),
            partial(event_by_event, time, event, survival, times),
        )
    return found


def timed(answer: Answer) -> tuple[object, float]:
    start = time.process_time()
    value = answer()
    return value, time.process_time() - start


def race(label: str, ours: Answer, theirs: Answer) -> tuple[float, float, float]:
    """Our seconds, theirs and the ratio, all medians."""
    expected, first = timed(theirs)
    apart = float(np.max(np.abs(np.subtract(ours(), expected))))
    assert apart < 1e-9, f"{label}: the two sides differ by {apart}"
    pairs = [(timed(ours)[1], first if first > PATIENCE else timed(theirs)[1]) for _ in range(5)]
    fast, slow = (statistics.median(side) for side in zip(*pairs, strict=True))
    return fast, slow, statistics.median(theirs / our for our, theirs in pairs)


def main() -> None:
    print("| same answer, CPU time | records | theirs, ms | ours, ms | times faster |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for count in (1_000, 10_000, 100_000):
        for label, (ours, theirs) in cases(count).items():
            fast, slow, ratio = race(label, ours, theirs)
            print(
                f"| {label} | {count:,} | {1e3 * slow:,.1f} | {1e3 * fast:,.2f} | {ratio:,.1f} |", flush=True
            )


if __name__ == "__main__":
    main()
