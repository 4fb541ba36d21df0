"""Compile the kernels of all workloads ahead: `make setup` calls it, so that no test waits for the compiler.

Numba compiles a function for the types that it is called with, and keeps it beside its source. So each
workload is run once, as small as it gets, and each robust rule is called in single and in double precision.
"""

from pathlib import Path

import numpy as np

from tacit.aggregation import Bulyan, CenteredClip, CovarianceFilter, GeometricMedian, Krum, Mixing
from tacit.experiments.experiment import construct_experiment

PATIENTS = {"data": {"records": 80, "features": 3}, "sites": {"count": 2}, "baselines": False}
AGENTS = {"rounds": 1, "sites": {"copies": 2}, "baselines": False}
LANDER = {"env": "LunarLander-v3", "world": "fast-lander", "episodes": 1, "watch": 1}
PPO = {"kind": "ppo", "hidden": [4], "envs": 2, "steps": 64}
SMALL = {"steps": 1, "sample": 0.5}
RECORD = {"unit": "record", "epsilon": 3.0, "delta": 1e-5, "clip": 1.0, "rehearsal": True}
RUNS = (
    {**PATIENTS, "task": {"kind": "logistic-hazard", "hidden": [3], **SMALL}, "privacy": RECORD},
    {**PATIENTS, "task": {"kind": "poisson-ph", **SMALL}, "privacy": {**RECORD, "mechanism": "laplace"}},
    {**PATIENTS, "task": {"kind": "cox-ph", "groups_per_site": 4, "steps": 1}, "privacy": RECORD},
    {**PATIENTS, "task": {"kind": "deep-hit", "hidden": [3], **SMALL}},
    {"data": {"kind": "simulated-curves", "records": 60}, "sites": {"kind": "columns", "count": 3},
     "task": {"kind": "functional-boosting", "size": 8}},
    {**AGENTS, "data": {"kind": "gymnasium", "env": "CartPole-v1", "episodes": 1, "watch": 1}, "task": PPO},
    {**AGENTS, "data": {"kind": "gymnasium", **LANDER}, "task": PPO},
)  # fmt: skip
RULES = (
    Krum(f=2),
    Bulyan(f=2),
    GeometricMedian(),
    CenteredClip(),
    CovarianceFilter(f=2),
    Mixing(then=Krum(f=2)),
)


def compile_all() -> None:
    """Run each workload and call each rule once."""
    for document in RUNS:
        construct_experiment(document, Path()).run(None)
    draws = np.random.default_rng(0).normal(size=(15, 20))
    for rule in RULES:
        for updates in (draws, draws.astype(np.float32)):
            rule(updates)


if __name__ == "__main__":
    compile_all()
