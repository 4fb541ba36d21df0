"""Cox regression and Kaplan-Meier across sites against lifelines with all records in one place.

Both sides must give the same numbers before they are timed. CPU time, one thread, repetitions interleaved,
median ratio with its spread. Run it alone: `make bench-cox`. Prints a Markdown table, writes bench/cox.json.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import json
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from tacit import Federation, Key
from tacit.sites.splits import Iid
from tacit.sites.tables import from_frame
from tacit.survival.data import simulate
from tacit.survival.statistics import cox, kaplan_meier

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from lifelines import CoxPHFitter, KaplanMeierFitter

REPEATS, SITES = 5, 5
# Lifelines stops a little early; it is timed as it comes.
SAME = 1e-6


def patients(records: int, features: int, ties: bool) -> pd.DataFrame:
    drawn = simulate("SDGM1", records=records, features=features, seed=records)
    return drawn.assign(time=np.ceil(drawn["time"] * 100) / 100) if ties else drawn


def dealt(data: pd.DataFrame) -> Federation:
    table = from_frame(data, targets=("time", "event"))
    rows = Iid(count=SITES)(table, Key(1))
    return Federation({name: table.take(own, f"site {name}") for name, own in rows.items()})


def in_one_place(federation: Federation) -> pd.DataFrame:
    sites = [name for name, site in federation.items() for _ in range(len(site.table))]
    store = federation.store
    return pd.DataFrame(store.features, columns=store.columns).assign(**store.targets, site=sites)


def regression(strata: str | None) -> Callable[..., tuple[Callable, Callable]]:
    def sides(federation: Federation, data: pd.DataFrame) -> tuple[Callable, Callable]:
        columns = data if strata else data.drop(columns="site")

        def ours() -> np.ndarray:
            fit = cox(federation, strata=strata)
            return np.concatenate([fit.coefficients, fit.standard_errors])

        def theirs() -> np.ndarray:
            fit = CoxPHFitter().fit(columns, "time", "event", strata=strata)
            return np.concatenate([fit.params_, fit.standard_errors_])

        return ours, theirs

    return sides


def survival(federation: Federation, data: pd.DataFrame) -> tuple[Callable, Callable]:
    def ours() -> np.ndarray:
        table = kaplan_meier(federation).table
        return table[["survival", "lower", "upper"]].to_numpy()

    def theirs() -> np.ndarray:
        fit = KaplanMeierFitter().fit(data["time"], data["event"])
        return np.column_stack([fit.survival_function_, fit.confidence_interval_])

    return ours, theirs


CASES = {
    "Cox, a baseline per site, 1,000 records, 5 features": (regression("site"), 1_000, 5, False),
    "Cox, a baseline per site, 10,000 records, 10 features": (regression("site"), 10_000, 10, False),
    "Cox, one baseline, 1,000 records, 5 features": (regression(None), 1_000, 5, False),
    "Cox, one baseline, 10,000 records, 10 features": (regression(None), 10_000, 10, False),
    "Cox, one baseline, 10,000 records, 10 features, ties": (regression(None), 10_000, 10, True),
    "Kaplan-Meier with its band, 1,000 records": (survival, 1_000, 2, False),
    "Kaplan-Meier with its band, 100,000 records": (survival, 100_000, 2, False),
}


def timed(function: Callable[[], np.ndarray]) -> tuple[np.ndarray, float]:
    with warnings.catch_warnings(), np.errstate():
        warnings.simplefilter("ignore")
        start = time.process_time()
        answer = function()
        return answer, time.process_time() - start


def race(name: str) -> dict[str, float | str]:
    sides, records, features, ties = CASES[name]
    federation = dealt(patients(records, features, ties))
    ours, theirs = sides(federation, in_one_place(federation))
    difference = float(abs(timed(ours)[0] - timed(theirs)[0]).max())
    assert difference < SAME, (name, difference)
    pairs = [(timed(ours)[1], timed(theirs)[1]) for _ in range(REPEATS)]
    ratios = sorted(other / mine for mine, other in pairs)
    return {
        "case": name,
        "difference": difference,
        "our_cpu_seconds": statistics.median(mine for mine, _ in pairs),
        "their_cpu_seconds": statistics.median(other for _, other in pairs),
        "ratio": statistics.median(ratios),
        "lowest": ratios[0],
        "highest": ratios[-1],
    }


def main() -> None:
    rows = [race(name) for name in CASES]
    print("| against lifelines 0.30, 5 sites | largest difference | theirs, s | ours, s | times faster |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for row in rows:
        spread = f"{row['ratio']:,.1f} ({row['lowest']:,.1f} to {row['highest']:,.1f})"
        seconds = f"{row['their_cpu_seconds']:.4f} | {row['our_cpu_seconds']:.4f}"
        print(f"| {row['case']} | {row['difference']:.0e} | {seconds} | {spread} |")
    Path(__file__).with_suffix(".json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
