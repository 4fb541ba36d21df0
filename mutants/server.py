"""A process that runs pytest again and again, each time in a child of its own.

It has loaded what is not ours beforehand, which is most of the time that a few tests take. It reads requests
from its standard input and answers each with an exit code, one JSON document on a line.
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

# Children begin with these; whatever they do to them ends with them.
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
# The answers where a child is late, and where it has used up its processor time.
LATE, ENDLESS = -1000, -signal.SIGXCPU
# How much longer than its processor time a child may take: other work of the machine comes between.
PATIENCE = 8


def main() -> None:
    """Answer until nothing more is asked."""
    for name in LOADED:
        with suppress(ImportError):
            import_module(name)
    import pytest

    assert "tacit" not in sys.modules
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            _begin(asked)
            code = 3
            try:
                code = int(pytest.main(asked["words"]))
            finally:
                sys.stdout.flush()
                os._exit(code)
        with suppress(BrokenPipeError):
            seconds = asked["seconds"]
            print(json.dumps(_end(child, None if seconds is None else PATIENCE * seconds)), flush=True)


def _begin(asked: dict[str, Any]) -> None:
    """Become a process for one request: in its folder, with its modules, and bounded."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if asked["seconds"] is not None:
        # Not the time on the clock: a machine with other work to do is no catch.
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(asked["seconds"]), resource.RLIM_INFINITY))
    os.chdir(asked["root"])
    os.environ.update(asked["env"])
    sys.path[:0] = [asked["root"], str(Path(asked["root"], "src"))]
    # It has read its settings already.
    sys.modules["numba"].config.CACHE_DIR = asked["env"]["NUMBA_CACHE_DIR"]  # pyright: ignore
    said = os.open(asked["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for place, file in enumerate((nothing, said, said)):
        os.dup2(file, place)


def _end(child: int, seconds: float | None) -> int:
    """The exit code of a child, which ends when its time is over; and so does all that it has started."""
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
