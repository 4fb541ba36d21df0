"""Exponentials and logarithms whose bits depend on their own argument alone.

Vectorized libraries may take another formula for the elements that do not fill a vector, so that the same
argument gives other last bits at another place or in a longer array. numpy's functions are taken where a look
at all places of short arrays shows no such difference, which takes about a millisecond in each process;
elsewhere a loop calls the C library for one element after the other.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, cast

import numpy as np

from tacit.runtime.arrays import Array
from tacit.runtime.jit import compiled, contiguous

Name = Literal["exp", "log", "log1p", "expm1", "tanh"]
# Arrays up to this length are looked at, from every place up to the next on: two vectors of any processor.
LONGEST, PLACES = 67, 17


def exp(values: Array) -> Array:
    """E to each value; infinite where that is beyond all numbers."""
    return _elementwise("exp")(contiguous(values))


def log(values: Array) -> Array:
    """The natural logarithm of each value."""
    return _elementwise("log")(contiguous(values))


def expm1(values: Array) -> Array:
    """E to each value, less 1."""
    return _elementwise("expm1")(contiguous(values))


def tanh(values: Array) -> Array:
    """The hyperbolic tangent of each value."""
    return _elementwise("tanh")(contiguous(values))


def sigmoid(values: Array) -> Array:
    """1 / (1 + e^-x)."""
    found = np.negative(contiguous(values))
    with np.errstate(over="ignore"):
        found = _elementwise("exp")(found)
    found += 1.0
    return np.divide(1.0, found, out=found)


def softplus(values: Array) -> Array:
    """log(1 + e^x), as max(x, 0) + log(1 + e^-|x|)."""
    given = contiguous(values)
    found = _elementwise("log1p")(_elementwise("exp")(-np.abs(given)))
    found += np.maximum(given, 0.0)
    return found


@lru_cache(maxsize=8)
def _elementwise(name: Name) -> Callable[[Array], Array]:
    vectorised = cast("Callable[[Array], Array]", getattr(np, name))
    return vectorised if independent(vectorised, _arguments(name)) else one_by_one(name)


def independent(function: Callable[[Array], Array], values: Array) -> bool:
    """Return True if a function gives each value the same bits alone and at any place of an array.

    Args:
        function: It takes an array and returns one of the same shape.
        values: Values to try, `LONGEST` or more.
    """
    with np.errstate(all="ignore"):
        alone = np.concatenate([function(values[place : place + 1]) for place in range(len(values))])
        return all(
            function(values[first : len(values) - missing]).tobytes()
            == alone[first : len(values) - missing].tobytes()
            for first in range(PLACES)
            for missing in range(PLACES)
        )


def _arguments(name: Name) -> Array:
    """Return public, fixed arguments of all sizes."""
    sizes = np.exp2(np.linspace(-60.0, 9.4, LONGEST))
    signed = np.where(np.arange(LONGEST) % 3 == 0, -sizes, sizes)
    return np.abs(signed) if name in ("log", "log1p") else signed


def one_by_one(name: Name) -> Callable[[Array], Array]:
    """The function of the C library, for one element after the other."""

    def apply(values: Array) -> Array:
        found = np.empty_like(values)
        LOOPS[name](values.reshape(-1), found.reshape(-1))
        return found

    return apply


@compiled
def _exp(values: Array, found: Array) -> None:
    for place in range(len(values)):
        found[place] = math.exp(values[place])


@compiled
def _log(values: Array, found: Array) -> None:
    for place in range(len(values)):
        found[place] = math.log(values[place])


@compiled
def _log1p(values: Array, found: Array) -> None:
    for place in range(len(values)):
        found[place] = math.log1p(values[place])


@compiled
def _expm1(values: Array, found: Array) -> None:
    for place in range(len(values)):
        found[place] = math.expm1(values[place])


@compiled
def _tanh(values: Array, found: Array) -> None:
    for place in range(len(values)):
        found[place] = math.tanh(values[place])


LOOPS: dict[Name, Callable[[Array, Array], None]] = {
    "exp": _exp, "log": _log, "log1p": _log1p, "expm1": _expm1, "tanh": _tanh,
}  # fmt: skip
