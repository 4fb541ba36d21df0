"""Every survival model against federated-survival 0.8.0 on its own benchmark, same records, same work.

SDGM1, 2,000 records, 10 sites, 20 rounds, batches of 32, networks of 32 and 32 units, a fresh Adam in every
round, one thread; after each round the C-index and the integrated Brier score of the test records. (The peer
scores the training records too, and cannot leave that out.) Twice: with the 2 mini-batches a
round that `local_epochs=2` means in that version, and with 2 passes over the records. Weights decay by 0.01;
the peer's default, 0.05, ruins some of its models. It is timed once, after a warm-up. `make peers` makes its
environment; then `make bench-federated_survival`, alone; `--cox-time` adds the model that takes it minutes.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

import tacit
from tacit.sites.site import Federation
from tacit.sites.tables import Table, from_arrays
from tacit.survival.tasks import TASKS

PYTHON = Path(os.environ.get("PEERS", ".venv-peers")) / "bin" / "python"
ROUNDS, SEED = 20, 42
# Their names, and ours.
MODELS = {
    "LogisticHazard": "logistic-hazard",
    "PC-Hazard": "pc-hazard",
    "DeepHit": "deep-hit",
    "DeepSurv": "deep-surv",
    "CoxPH": "cox-ph",
    "CoxCC": "cox-cc",
    "CoxTime": "cox-time",
}


def peer(folder: Path, steps: int, models: list[str]) -> dict[str, dict[str, float]]:
    """CPU seconds and scores of the other package."""
    script = Path(__file__).parent / "peers" / "run_federated_survival.py"
    words = [PYTHON, script, folder, str(steps), str(ROUNDS), str(SEED), *models]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    lines = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    return {line["model"]: line for line in lines}


def read(folder: Path) -> Federation:
    """The very records that the other package trained on."""

    def table(name: str) -> Table:
        with np.load(folder / f"{name}.npz") as kept:
            return from_arrays(kept["x"], time=kept["y"][:, 0], event=kept["y"][:, 1])

    names = sorted(path.stem for path in folder.glob("client*.npz"))
    return Federation({name: table(name) for name in names}, held_out=table("test"), held_out_public=True)


def ours(kind: str, federation: Federation, steps: int) -> dict[str, float]:
    """CPU seconds and scores of Tacit, the best of three runs of the same work."""
    work = {"epochs": 2, "batch": 32} if steps > 2 else {"steps": steps, "sample": 0.2}
    task = TASKS[kind](**work, lr=0.01, optimizer="adam", decay=0.01)
    spent = []
    for _ in range(3):
        before = time.process_time()
        run = tacit.fit(task, federation, rounds=ROUNDS, seed=SEED)
        spent.append(time.process_time() - before)
    return {"cpu": min(spent), **run.scores}


def main() -> None:
    if not PYTHON.exists():
        sys.exit(f"{PYTHON} is not there: make peers")
    for steps, said in ((2, "2 mini-batches a round"), (10, "2 passes a round")):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            chosen = [model for model in MODELS if model != "CoxTime" or "--cox-time" in sys.argv]
            theirs = peer(folder, steps, chosen)
            federation, total = read(folder), 0.0
            _ = ours("logistic-hazard", federation, steps)
            print(f"\n{said}\n{'':16}{'peer s':>8}{'s':>8}{'ratio':>7}{'peer C':>9}{'C':>8}")
            for model in chosen:
                mine = ours(MODELS[model], federation, steps)
                total += mine["cpu"]
                print(
                    f"{model:16}{theirs[model]['cpu']:8.2f}{mine['cpu']:8.3f}"
                    f"{theirs[model]['cpu'] / mine['cpu']:7.0f}"
                    f"{theirs[model]['c_index']:9.4f}{mine['c_index']:8.4f}",
                    flush=True,
                )
            print(f"{'all of them':16}{sum(t['cpu'] for t in theirs.values()):8.2f}{total:8.3f}")


if __name__ == "__main__":
    main()
