"""Functions that numba compiles once and keeps beside the source, with their types kept for readers.

Numba compiles a function anew when its own file has changed. Here also when one has that it takes compiled
functions from, by `from ... import ...`: what they do is part of its machine code.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=np.generic)


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function to machine code that holds no lock, with arithmetic as written."""
    return _compile(function, fast=False)


def compiled_sums(function: Callable[P, R]) -> Callable[P, R]:
    """Compile with reordered sums; infinities and NaN stay what they are."""
    return _compile(function, fast={"reassoc", "contract"})


def compiled_fast(function: Callable[P, R]) -> Callable[P, R]:
    """Compile with reordered sums, for finite numbers only."""
    return _compile(function, fast=True)


def contiguous(values: NDArray[T]) -> NDArray[T]:
    """Return values in C order and writable, as compiled functions take them; a copy only if needed."""
    return values if values.flags.carray else np.array(values, order="C")


def _compile(function: Callable[P, R], *, fast: bool | set[str]) -> Callable[P, R]:
    # Numba has no types of its own: what it gives back is called like what it was given.
    njit = cast("Callable[..., Callable[[object], object]]", import_module("numba").njit)
    # Divisions as numpy's, by zero too: one that may raise cannot be done eight at a time.
    settings = {"nogil": True, "fastmath": fast, "error_model": "numpy"}
    try:
        machine = njit(cache=True, **settings)(function)
    except RuntimeError:
        # There is no place to keep it, as in a service that may write nowhere: every process compiles anew.
        machine = njit(**settings)(function)
    _stamp(machine, function)
    return cast("Callable[P, R]", machine)


def _stamp(machine: object, function: Callable[..., object]) -> None:
    """Stamp cached machine code with the ages of its source files; imported functions have stamps."""
    names = cast("dict[str, object]", function.__globals__)
    taken = (one for one in names.values() if getattr(one, "__module__", None) != function.__module__)
    stamps = sorted({str(kept._source_stamp) for one in taken if (kept := _cached_file(one)) is not None})
    own = _cached_file(machine)
    if own is None:
        return
    if stamps:
        own._source_stamp = (own._source_stamp, *stamps)
    own._load_index = _ignore_unreadable(own._load_index)


def _ignore_unreadable(load: Callable[[], dict[Any, str]]) -> Callable[[], dict[Any, str]]:
    """Compile anew where the index of kept code cannot be read.

    Numba reads the whole index before it compares stamps, and one of an earlier version names classes that
    are called otherwise now.
    """

    def load_or_nothing() -> dict[Any, str]:
        try:
            return load()
        except Exception:
            # The reader is not ours, and a damaged index may raise anything.
            return {}

    return load_or_nothing


def _cached_file(one: object) -> Any:  # noqa: ANN401
    """Return the path of numba's cached machine code of a function; None for anything else."""
    return getattr(getattr(one, "_cache", None), "_cache_file", None)
