"""Every robust rule against ByzFL 0.0.11, with numpy and with torch, on the same updates.

100,000 numbers in single precision from 10, 50 and 200 sites, of which as many as are below a third may lie.
Answers are compared before they are timed, where both sides compute the same: ByzFL's geometric median takes
ten steps and ours all it needs, and its covariance filter goes in a random direction. CPU time of one thread,
the smallest of repetitions, both sides in turn; and the memory that was taken beside the updates, theirs with
numpy; what torch takes, as for our mean, is not seen. ByzFL's mixing is left out where it needs more than
2 GB. `make peers` makes its environment; then `make bench-aggregation`, alone. `python bench/aggregation.py
1000` takes another number of sites.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from tacit.aggregation.averaging import Mean
from tacit.aggregation.coordinates import MeanAroundMedian, Median, TrimmedMean
from tacit.aggregation.mixing import Mixing
from tacit.aggregation.robust import CenteredClip, CovarianceFilter, GeometricMedian
from tacit.aggregation.selecting import Krum, MultiKrum

PYTHON = Path(os.environ.get("PEERS", ".venv-peers")) / "bin" / "python"
WIDTH, SITES, RADIUS = 100_000, (10, 50, 200), 1.5
# More than this is not asked of the other side.
BYTES = 2e9
# How often, up to so many sites.
REPEAT = {100: 9, 500: 5, 10_000: 1}
RULES: dict[str, Callable[[int], Callable[..., torch.Tensor]]] = {
    "mean": lambda f: Mean(),
    "median": lambda f: Median(f=f),
    "trimmed-mean": lambda f: TrimmedMean(f=f),
    "mean-around-median": lambda f: MeanAroundMedian(f=f),
    "geometric-median": lambda f: GeometricMedian(f=f),
    "krum": lambda f: Krum(f=f),
    "multi-krum": lambda f: MultiKrum(f=f),
    "centered-clip": lambda f: CenteredClip(f=f, radius=RADIUS),
    "covariance-filter": lambda f: CovarianceFilter(f=f),
    "mixing, trimmed-mean": lambda f: Mixing(then=TrimmedMean(f=f)),
    "mixing, krum": lambda f: Mixing(then=Krum(f=f)),
}
OTHERWISE = ("geometric-median", "covariance-filter")


class Peer:
    """ByzFL in its own environment, which answers one question at a time."""

    def __init__(self, folder: Path) -> None:
        script = Path(__file__).parent / "peers" / "run_byzfl.py"
        self.folder = folder
        self.process = subprocess.Popen(
            [PYTHON, script, "serve", folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, rule: str, f: int, library: str, *, memory: bool = False) -> tuple[float, float | None]:
        """CPU seconds, and bytes beside the updates."""
        asked = {"rule": rule, "f": f, "with": library, "memory": memory}
        print(json.dumps(asked), file=self.process.stdin, flush=True)
        told = json.loads(self.process.stdout.readline())
        return told["seconds"], told["extra"]

    @property
    def answer(self) -> np.ndarray:
        """The last answer."""
        return np.load(self.folder / "answer.npy")


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def beside(work: Callable[[], object]) -> float:
    """Megabytes that the work takes while it runs."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def agree(name: str, mine: torch.Tensor, theirs: np.ndarray) -> None:
    apart = np.abs(mine.numpy() - theirs).max()
    assert name in OTHERWISE or apart < 1e-4, f"{name}: the two sides differ by {apart}"


def compare(name: str, rows: np.ndarray, peer: Peer) -> str:
    """A line of the table."""
    sites = len(rows)
    f = (sites - 1) // 3
    rule = RULES[name](f)
    given = torch.from_numpy(rows)
    mine, extra = rule(given), beside(lambda: rule(given))
    line = f"{sites:5}  {name:22}"
    if name.startswith("mixing") and sites * (sites - f) * rows[0].nbytes > BYTES:
        best = min(seconds(lambda: rule(given)) for _ in range(3))
        return f"{line}{1e3 * best:10.1f}{'-':>10}{'-':>8}{'-':>10}{'-':>8}{extra:9.1f}{'-':>9}"
    _, theirs = peer.ask(name, f, "numpy", memory=True)
    agree(name, mine, peer.answer)
    taken: dict[str, list[float]] = {"ours": [], "numpy": [], "torch": []}
    for _ in range(next(times for most, times in REPEAT.items() if sites <= most)):
        taken["ours"].append(seconds(lambda: rule(given)))
        for library in ("numpy", "torch"):
            taken[library].append(peer.ask(name, f, library)[0])
    best = {who: 1e3 * min(times) for who, times in taken.items()}
    others = "".join(f"{best[who]:10.1f}{best[who] / best['ours']:7.1f}x" for who in ("numpy", "torch"))
    return f"{line}{best['ours']:10.1f}{others}{extra:9.1f}{theirs / 1e6:9.1f}"


def main() -> None:
    if not PYTHON.exists():
        sys.exit(f"{PYTHON} is not there: make peers")
    torch.set_num_threads(1)
    columns = f"{'ours ms':>10}{'numpy ms':>10}{'ratio':>8}{'torch ms':>10}{'ratio':>8}{'MB':>9}{'theirs':>9}"
    print(f"sites  {'rule':22}{columns}")
    with tempfile.TemporaryDirectory() as name, threadpool_limits(1):
        folder = Path(name)
        peer = Peer(folder)
        for sites in map(int, sys.argv[1:] or SITES):
            rows = np.random.default_rng(sites).standard_normal((sites, WIDTH), dtype=np.float32)
            np.save(folder / "rows.npy", rows)
            for rule in RULES:
                print(compare(rule, rows, peer), flush=True)
        peer.process.stdin.close()
        peer.process.wait()


if __name__ == "__main__":
    main()
