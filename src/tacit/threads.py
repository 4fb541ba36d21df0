"""How many threads sums are taken by: one, so that they keep one order. And how many cores there are."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache

from threadpoolctl import ThreadpoolController  # pyright: ignore[reportMissingTypeStubs]


@contextmanager
def one_thread() -> Generator[None]:
    """One thread for all sums: small products gain nothing from two, and sums keep one order.

    What is computed again after a crash must be the same to the last bit, or it would be another release.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _threads(len(sys.modules)).limit(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=1)
def _threads(modules: int) -> ThreadpoolController:
    """The libraries that have threads; looked for again once there are more modules."""
    return ThreadpoolController()


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
