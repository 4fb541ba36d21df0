"""Suppression of warnings, which could disclose records.

A numpy warning on stderr ("divide by zero") told of one record in 60 of 60 runs: a release that is on no
ledger. All work on records therefore runs inside `suppress_warnings`. Whether a run is open, a rehearsal or
private makes no difference, so that a rehearsal shows what a private run will print.
"""

import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np


@contextmanager
def suppress_warnings() -> Generator[None]:
    """Suppress floating-point warnings of numpy and every Python warning, in all threads.

    It may be nested, entered by several threads at once, and used as a decorator.

    Guarantee:
        Until it ends, `warnings.warn` neither prints nor raises, whatever the filters were before, and numpy
        does not report floating-point errors in this thread.
    """
    _FILTERS.enter()
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _FILTERS.leave()


class _Filters:
    """The warning filters, which belong to the whole process: changed by the first, restored by the last."""

    def __init__(self) -> None:
        self._lock, self._depth = threading.Lock(), 0
        self._before = warnings.catch_warnings()

    def enter(self) -> None:
        """Ignore every warning from here on."""
        with self._lock:
            if self._depth == 0:
                self._before = warnings.catch_warnings()
                self._before.__enter__()
            self._depth += 1
            # Each time: code that is called inside may have put another filter before ours.
            warnings.simplefilter("ignore")

    def leave(self) -> None:
        """Restore the filters once the last has left."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._before.__exit__(None, None, None)


_FILTERS = _Filters()
