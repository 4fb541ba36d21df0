"""The other side of `bench/federated_survival.py`: federated-survival 0.8.0, in an environment of its own.

Draws the data and deals them out as that package does, writes them down for both, then runs its models and
prints one line of JSON for each: CPU seconds, and the scores of the last round on the test records.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from federated_survival.core.config import FSAConfig
from federated_survival.core.runner import FSARunner
from federated_survival.data.generator import DataGenerator, SimulationConfig
from federated_survival.data.splitter import DataSplitter


def main() -> None:
    """`python run_federated_survival.py FOLDER STEPS ROUNDS SEED MODEL...`."""
    folder, steps, rounds, seed = Path(sys.argv[1]), *map(int, sys.argv[2:5])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    frame = DataGenerator(SimulationConfig(2000, 10, random_state=seed)).generate("SDGM1", c_mean=0.4)
    splitter = DataSplitter(n_clients=10, split_type="iid", test_size=0.2, random_state=seed)
    data = splitter.split(frame)
    parts = {"test": (data.test_data, data.test_label), **data.clients_set}
    for name, (features, labels) in parts.items():
        np.savez(folder / name, x=np.asarray(features, float), y=np.asarray(labels, float))
    for model in sys.argv[5:]:
        _ = _run(model, data, steps, 1, seed)
        before = time.process_time()
        results = _run(model, data, steps, rounds, seed)
        spent = time.process_time() - before
        scores = {"c_index": float(results["test_Cindex"][-1]), "ibs": float(results["test_IBS"][-1])}
        print(json.dumps({"model": model, "cpu": spent, **scores}), flush=True)


def _run(model: str, data: object, steps: int, rounds: int, seed: int) -> dict[str, list[float]]:
    shape = {"num_nodes": ()} if model == "CoxPH" else {}
    config = FSAConfig(
        num_clients=10,
        n_features=10,
        n_samples=2000,
        model_type=model,
        # In this version, the number of mini-batches in a round.
        local_epochs=steps,
        global_epochs=rounds,
        learning_rate=0.01,
        batch_size=32,
        random_seed=seed,
        **shape,
    )
    return FSARunner(config).run(data)


main()
