"""How many threads sums are taken by: one, so that they keep one order."""

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

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
        with _threads().limit(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()
