"""A side of a race as a process: it gets work ready, answers, and measures what its work took.

`python -m bench.sides MODULE` is such a process. It reads one question a line and writes one answer a line,
as JSON; whatever a library prints meanwhile goes to the standard error.
"""

import ctypes
import gc
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
# One thread for all: cores are what a user has more of, not what makes a program better.
ALONE = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"),
    "PYTHONPATH": str(ROOT),
    "PYTHONWARNINGS": "ignore",
}


@dataclass(frozen=True)
class Spent:
    """Seconds of one call, those of processes that it started included."""

    cpu: float
    wall: float


def ours_python() -> Path:
    """The interpreter that has Tacit."""
    return Path(sys.executable)


def peers_python() -> Path:
    """The interpreter that has the peers."""
    found = ROOT / os.environ.get("PEERS", ".venv-peers") / "bin" / "python"
    if not found.exists():
        sys.exit(f"{found} is not there: make peers")
    return found


class Process:
    """One side, seen from the race."""

    def __init__(self, python: Path, module: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._said = Path(self._folder.name) / "said.txt"
        with self._said.open("w") as errors:
            self._process = subprocess.Popen(
                [python, "-m", "bench.sides", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env={**os.environ, **ALONE},
            )

    def __enter__(self) -> "Process":
        """It runs."""
        return self

    def __exit__(self, *_: object) -> None:
        """It has no more questions to answer, so it ends."""
        self._process.communicate()
        self._folder.cleanup()

    def prepare(self, side: str, given: Mapping[str, Any]) -> None:
        """Begin to get the work of a side ready, whatever was ready before."""
        self._say(do="ready", side=side, given=given)

    def ready(self) -> None:
        """Wait until what was begun is ready."""
        self._hear("ready")

    def answer(self) -> tuple[dict[str, np.ndarray], Spent | None]:
        """Return the answer to compare, and its seconds if it is the timed work."""
        path = Path(self._folder.name) / "answer.npz"
        told = self._ask(do="answer", path=str(path))
        with np.load(path) as kept:
            return dict(kept), Spent(**told) if told else None

    def timed(self, calls: int, *, warm: bool = False) -> Spent:
        """Time calls, after an optional warm-up, and return the seconds of one."""
        return Spent(**self._ask(do="time", calls=calls, warm=warm))

    def peak(self) -> float:
        """The most memory of the process since the work was got ready, in megabytes."""
        return self._ask(do="peak")["megabytes"]

    def _ask(self, **question: Any) -> dict[str, Any]:
        self._say(**question)
        return self._hear(question["do"])

    def _say(self, **question: Any) -> None:
        assert self._process.stdin is not None
        # A process that has ended is noticed when it is listened to.
        with suppress(BrokenPipeError):
            print(json.dumps(question), file=self._process.stdin, flush=True)

    def _hear(self, what: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        told = json.loads(line) if line else {"error": f"the process has ended\n{self._tail()}"}
        if "error" in told:
            raise Failed(f"{what}: {told['error']}")
        return told

    def _tail(self) -> str:
        return "\n".join(self._said.read_text(errors="replace").splitlines()[-20:])


class Failed(Exception):
    """A side could not do its work."""


class Bench:
    """One side, seen from its own process."""

    def __init__(self, module: str) -> None:
        self._module = importlib.import_module(module)
        self._work: Any = None

    def ready(self, side: str, given: dict[str, Any]) -> dict[str, Any]:
        """Get the work of a side ready; what was ready before is gone."""
        self._work = None
        _forget_peak()
        self._work = getattr(self._module, side)(**given)
        return {}

    def answer(self, path: str) -> dict[str, Any]:
        """Write down what is to be compared; tell what it took, if it is what will be timed."""
        began, cpu = time.perf_counter(), _cpu()
        found = (self._work.check or self._work.run)()
        spent = {"cpu": _cpu() - cpu, "wall": time.perf_counter() - began}
        np.savez(path, **(found if isinstance(found, dict) else {"answer": np.asarray(found)}))
        return spent if self._work.check is None and self._work.seconds is None else {}

    def time(self, calls: int, warm: bool) -> dict[str, Any]:
        """CPU and wall seconds of a call."""
        if self._work.seconds is not None:
            cpu, wall = self._work.seconds()
            return {"cpu": cpu, "wall": wall}
        gc.collect()
        if warm:
            self._work.run()
        work, began, cpu = self._work.run, time.perf_counter(), _cpu()
        for _ in range(calls):
            work()
        return {"cpu": (_cpu() - cpu) / calls, "wall": (time.perf_counter() - began) / calls}

    def peak(self) -> dict[str, Any]:
        """The most memory since the work was got ready."""
        return {"megabytes": _peak()}


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _forget_peak() -> None:
    """Give back what is free, and let the highest mark begin anew, where the system can do that."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> float:
    if sys.platform == "linux":
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    """Answer until there are no more questions."""
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    bench = Bench(sys.argv[1])
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            found = getattr(bench, asked.pop("do"))(**asked)
        except Exception:
            found = {"error": traceback.format_exc()}
        print(json.dumps(found), file=told, flush=True)


if __name__ == "__main__":
    main()
