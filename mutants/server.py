"""Server process that runs pytest for each request, in a fork of its own.

Third-party packages are loaded once, before the first fork, since they take most of the time of a few tests.
The server reads requests from its standard input and answers each with an exit code, one JSON document per
line.
"""

import json
import math
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

# Packages that every fork starts with.
LOADED = (
    "numpy",
    "scipy.stats",
    "scipy.optimize",
    "pandas",
    "torch",
    "numba",
    "cryptography",
    "msgspec",
    "sklearn",
)
# A mutant that would fill the memory of the machine fails instead.
MEMORY = 8 * 2**30
# Answers for a child that is late on the clock, and for one that used up its processor time.
LATE, TIMEOUT = -1000, -signal.SIGXCPU
# How much longer than its processor time a child may take: other work of the machine comes between.
PATIENCE = 8


def main() -> None:
    """Answer requests until standard input ends."""
    for name in LOADED:
        with suppress(ImportError):
            import_module(name)
    import pytest

    assert "tacit" not in sys.modules
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            _begin(request)
            code = 3
            try:
                code = int(pytest.main(request["arguments"]))
            finally:
                sys.stdout.flush()
                os._exit(code)
        with suppress(BrokenPipeError):
            seconds = request["seconds"]
            print(json.dumps(_end(child, None if seconds is None else PATIENCE * seconds)), flush=True)


def _begin(request: dict[str, Any]) -> None:
    """Set up the process of one request: its folder, its modules, and its limits."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if request["seconds"] is not None:
        # Processor time, not time on the clock: other work of the machine must not kill a mutant.
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(request["seconds"]), resource.RLIM_INFINITY))
    os.chdir(request["root"])
    os.environ.update(request["env"])
    sys.path[:0] = [request["root"], str(Path(request["root"], "src"))]
    # numba has read its settings already.
    sys.modules["numba"].config.CACHE_DIR = request["env"]["NUMBA_CACHE_DIR"]  # pyright: ignore
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for place, file in enumerate((nothing, output, output)):
        os.dup2(file, place)


def _end(child: int, seconds: float | None) -> int:
    """Return the exit code of a child; kill it, and everything it started, when its time is over."""
    until = None if seconds is None else time.monotonic() + seconds
    late = False
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if until is not None and time.monotonic() > until and not late:
            late = True
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return LATE if late else os.waitstatus_to_exitcode(ended[1])


if __name__ == "__main__":
    main()
