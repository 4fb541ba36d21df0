"""Scores of survival predictions against scikit-survival, lifelines, torchsurv and pycox: the same answers.

Simulated records with continuous times, a third of them censored; curves and risks at 100 times. The tie
tolerance of scikit-survival is 0, so that both sides count the same pairs. torchsurv works in single
precision and needs memory for all pairs of records, as pycox does for its curves: both are run up to 10,000
records. pycox's compilation is not counted. Uno's C with 100,000 records takes scikit-survival half a minute,
as Harrell's does, and is left out.
"""

from functools import partial

import numpy as np

from bench.racing import Race, Work

TIMES = 100
SIZES = (1_000, 10_000, 100_000)
# Peers count all pairs: beyond this they take minutes, or more memory than there is.
MANY = 10_000


def records(count):
    draws = np.random.default_rng(count)
    risk = draws.normal(size=count)
    events, censorings = draws.exponential(np.exp(-risk)), draws.exponential(1.5, size=count)
    times = np.quantile(np.minimum(events, censorings), np.linspace(0.02, 0.9, TIMES))
    noisy = risk + draws.normal(size=count)
    survival = np.exp(-np.exp(0.5 * noisy)[:, None] * times)
    return np.minimum(events, censorings), (events < censorings).astype(int), noisy, times, survival


def ours(score, count):
    from tacit.survival.metrics import antolini, auc, brier, harrell, integrated_brier, uno

    time, event, risk, times, survival = records(count)
    answers = {
        "Harrell's C": partial(harrell, time, event, risk),
        "Uno's C": partial(uno, time, event, risk, tau=float(times[-1])),
        "AUC, one risk": partial(auc, time, event, risk, times),
        "AUC, a risk for each time": partial(auc, time, event, 1 - survival, times),
        "Brier": partial(brier, time, event, survival, times, rule="right"),
        "integrated Brier": partial(integrated_brier, time, event, survival, times, rule="right"),
        "Antolini's C": partial(antolini, time, event, survival, times),
    }
    return Work(answers[score])


def scikit_survival(score, count):
    from sksurv import metrics
    from sksurv.util import Surv

    time, event, risk, times, survival = records(count)
    known, exact = Surv.from_arrays(event == 1, time), {"tied_tol": 0.0}
    last, risks = float(times[-1]), 1 - survival
    answers = {
        "Harrell's C": lambda: metrics.concordance_index_censored(event == 1, time, risk, **exact)[0],
        "Uno's C": lambda: metrics.concordance_index_ipcw(known, known, risk, tau=last, **exact)[0],
        "AUC, one risk": lambda: metrics.cumulative_dynamic_auc(known, known, risk, times, **exact)[0],
        "AUC, a risk for each time": lambda: metrics.cumulative_dynamic_auc(
            known, known, risks, times, **exact
        )[0],
        "Brier": lambda: metrics.brier_score(known, known, survival, times)[1],
        "integrated Brier": lambda: metrics.integrated_brier_score(known, known, survival, times),
    }
    return Work(answers[score])


def lifelines(score, count):
    from lifelines.utils import concordance_index

    time, event, risk, _, _ = records(count)
    assert score == "Harrell's C"
    return Work(lambda: concordance_index(time, -risk, event))


def torchsurv(score, count):
    import torch
    from torchsurv.metrics.brier_score import BrierScore
    from torchsurv.metrics.cindex import ConcordanceIndex
    from torchsurv.stats.ipcw import get_ipcw

    time, event, risk, times, survival = (torch.tensor(values) for values in records(count))
    seen = event.bool()

    def integrated():
        weights = {"weight": get_ipcw(seen, time), "weight_new_time": get_ipcw(seen, time, times)}
        found = BrierScore()
        found(survival, seen, time, new_time=times, **weights)
        return found.integral()

    answers = {
        "Harrell's C": lambda: ConcordanceIndex()(risk, seen, time),
        "integrated Brier": integrated,
    }
    return Work(lambda: float(answers[score]()))


def pycox(score, count):
    import pandas as pd
    import scipy.integrate

    # It asks for a function that scipy has renamed.
    scipy.integrate.simps = scipy.integrate.simpson
    from pycox.evaluation import EvalSurv

    time, event, _, times, survival = records(count)
    # Before the first time nobody has died: without it, early events have no prediction.
    curves = pd.DataFrame(np.vstack([survival[:, 0], survival.T]), index=[0.0, *times])
    assert score == "Antolini's C"
    return Work(lambda: EvalSurv(curves, time, event).concordance_td("antolini"))


def races():
    for count in SIZES:
        peers = {
            "Harrell's C": {
                "scikit-survival 0.28": scikit_survival,
                "lifelines 0.30": lifelines,
                "torchsurv 0.2": torchsurv,
            },
            "Uno's C": {"scikit-survival 0.28": scikit_survival},
            "AUC, one risk": {"scikit-survival 0.28": scikit_survival},
            "AUC, a risk for each time": {"scikit-survival 0.28": scikit_survival},
            "Brier": {"scikit-survival 0.28": scikit_survival},
            "integrated Brier": {"scikit-survival 0.28": scikit_survival, "torchsurv 0.2": torchsurv},
            "Antolini's C": {"pycox 0.3": pycox},
        }
        for score, theirs in peers.items():
            able = {
                peer: side for peer, side in theirs.items() if count <= MANY or side not in (torchsurv, pycox)
            }
            goals = {"scikit-survival 0.28": 100, "lifelines 0.30": 6}
            if able and (score, count) != ("Uno's C", SIZES[-1]):
                yield Race(
                    name=f"{score}, {count:,} records",
                    group=f"{score}, {count:,} records" if count == SIZES[-1] else f"{score}, fewer records",
                    given={"score": score, "count": count},
                    ours=ours,
                    theirs=able,
                    # Single precision, where it is somebody's.
                    same=1e-6 if torchsurv in able.values() else 1e-9,
                    goal=goals if score == "Harrell's C" and count == 100_000 else None,
                )


RACES = list(races())
