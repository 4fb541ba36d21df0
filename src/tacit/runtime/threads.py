"""Single-threaded numerics, so that small sums keep one order; memory reuse; the number of usable cores."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any, cast

import numpy as np
from threadpoolctl import ThreadpoolController  # pyright: ignore[reportMissingTypeStubs]

# In bytes: a little less than what the C library still counts.
LARGEST_KEPT = 2**25 - 2**16


@contextmanager
def one_thread() -> Generator[None]:
    """One thread for all sums: small products gain nothing from two, and sums keep one order.

    What is computed again after a crash must be the same to the last bit, or it would be another release.
    """
    _keep_memory()
    # Optional: its threads count only if it is loaded.
    torch: Any = sys.modules.get("torch")
    before = 1 if torch is None else torch.get_num_threads()
    threads = _threads(len(sys.modules))
    libraries = cast("list[Any]", threads.lib_controllers)
    alone = before == 1 and all(library.num_threads == 1 for library in libraries)
    # To set what is so already costs more than a small round's sums.
    with nullcontext() if alone else threads.limit(limits=1):
        if torch is not None:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)


@lru_cache(maxsize=1)
def _keep_memory() -> None:
    """Let the C library keep freed memory: otherwise every step asks the system for the same pages again.

    In glibc, blocks go back to the system above a threshold that rises to the largest block ever given back,
    if that is below 32 MiB (mallopt(3)). This one is never touched, so it takes no memory. Elsewhere, nothing
    changes.
    """
    _ = np.empty(LARGEST_KEPT, dtype=np.uint8)


@lru_cache(maxsize=1)
def _threads(modules: int) -> ThreadpoolController:
    """Return the libraries that have threads; looked for again once there are more modules."""
    return ThreadpoolController()


def cores() -> int:
    """Return the number of cores that this process may use."""
    # The scheduler of Linux alone tells.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
