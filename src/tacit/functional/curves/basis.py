"""Functions that curves are made of: splines and waves, and the frame in which all mathematics is done.

A frame holds the Demmler-Reinsch functions of a basis: orthonormal in the mean over the domain, the smoothest
first. So the coordinates of a curve are as long as its root mean square, whatever its domain and its units of
time, and its roughness is a weighted sum of their squares. Everything here is public; nothing reads a curve.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import BSpline
from scipy.linalg import eigh

from tacit.errors import InvalidValue, require, require_count
from tacit.runtime.arrays import Array
from tacit.sites.encoding import numbers

Domain = tuple[float, float]

# By how much of the domain a time may miss it: what rounding does, and no more.
ROUNDING = 1e-9
# The nearest that inner knots may come to each other, as a share of the domain: nearer, rounding would decide
# which function is the smoothest.
NEAREST = 1e-3
# No curve needs more functions, and the time grows with the cube.
MOST = 400


class Basis(Protocol):
    """Functions on a domain; frozen, so that it can be hashed.

    Args:
        pointwise: True if the bits of `design` at a time depend on that time alone.
    """

    pointwise: ClassVar[bool]

    @property
    def size(self) -> int:
        """Number of basis functions."""
        ...

    @property
    def domain(self) -> Domain:
        """Interval on which they are defined."""
        ...

    def design(self, times: ArrayLike, derivative: int = 0) -> Array:
        """The functions, or a derivative of theirs, at these times (times, functions)."""
        ...

    def gram(self) -> Array:
        """The integral of the product of each two functions over the domain."""
        ...

    def penalty(self, derivative: int = 2) -> Array:
        """The integral of the product of the derivatives of each two functions over the domain."""
        ...


@dataclass(frozen=True, kw_only=True)
class BSplines:
    """B-splines: smooth piecewise polynomials, each of them zero on most of the domain.

    Args:
        size: The number of functions; determined by `knots` if they are given.
        order: Of the pieces: 4 for cubic ones.
        domain: From when to when.
        knots: The inner knots; by default equally spaced.
    """

    size: int = 20
    order: int = 4
    domain: Domain = (0.0, 1.0)
    knots: tuple[float, ...] | None = None
    kind: ClassVar[str] = "b-splines"
    # SciPy goes from one time to the next.
    pointwise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_count("size", self.size, MOST)
        # Below 3 there is no second derivative to measure roughness by.
        orders = "a whole number from 3 to 10, as 4 for cubic pieces"
        require(type(self.order) is int and 3 <= self.order <= 10, "order", self.order, orders)
        object.__setattr__(self, "domain", interval("domain", self.domain))
        if self.knots is not None:
            object.__setattr__(self, "knots", _inner(self.knots, self.domain))
            told = self.order + len(self.knots)
            left_out = self.size == BSplines.size or self.size == told
            require(left_out, "size", self.size, f"left out, or {told} as order and knots imply")
            object.__setattr__(self, "size", told)
        sizes = f"from {self.order}, the order, to {MOST}"
        require(self.order <= self.size <= MOST, "size", self.size, sizes)

    def design(self, times: ArrayLike, derivative: int = 0) -> Array:
        """The functions, or a derivative of theirs, at these times (times, functions)."""
        _require_order(derivative, self.order - 1)
        found = self._at(_to_unit_interval(times, self.domain), derivative)
        return found / _length(self.domain) ** derivative

    def gram(self) -> Array:
        """The integral of the product of each two functions over the domain, exact."""
        return self.penalty(0)

    def penalty(self, derivative: int = 2) -> Array:
        """The integral of the product of the derivatives of each two functions over the domain, exact."""
        _require_order(derivative, self.order - 1)
        breaks = self._breaks
        # As many nodes a piece as its order are exact for the product of two pieces (Gauss and Legendre).
        nodes, weights = np.polynomial.legendre.leggauss(self.order)
        halves = np.diff(breaks)[:, None] / 2
        places = breaks[:-1, None] + halves * (nodes + 1)
        found = self._at(places.ravel(), derivative)
        length = _length(self.domain)
        return (found.T * (halves * weights).ravel()) @ found * length ** (1 - 2 * derivative)

    @property
    def _breaks(self) -> Array:
        """Breakpoints of the pieces, the domain mapped to [0, 1]."""
        if self.knots is None:
            return np.linspace(0.0, 1.0, self.size - self.order + 2)
        inner = (np.array(self.knots) - self.domain[0]) / _length(self.domain)
        return np.concatenate([[0.0], inner, [1.0]])

    def _at(self, places: Array, derivative: int) -> Array:
        ends = self.order - 1
        knots = np.pad(self._breaks, ends, mode="edge")
        spline = BSpline(knots, np.eye(self.size), ends)
        return np.asarray(spline(places, nu=derivative), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class Fourier:
    """Fourier basis: a constant and waves whose period is the domain, for periodic curves.

    They are orthonormal: each has length 1 over the domain.

    Args:
        size: The number of functions, an odd number: the constant, a sine and a cosine for each wave.
        domain: From when to when; one period.
    """

    size: int = 21
    domain: Domain = (0.0, 1.0)
    kind: ClassVar[str] = "fourier"
    pointwise: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_count("size", self.size)
        odd = self.size % 2 == 1 and 3 <= self.size <= MOST
        require(odd, "size", self.size, f"an odd number from 3 to {MOST}: a constant, sines and cosines")
        object.__setattr__(self, "domain", interval("domain", self.domain))

    def design(self, times: ArrayLike, derivative: int = 0) -> Array:
        """The functions, or a derivative of theirs, at these times (times, functions)."""
        _require_order(derivative, 10)
        places, waves, length = _to_unit_interval(times, self.domain), self._waves, _length(self.domain)
        # A derivative turns a wave by a quarter; a cosine is a sine that was turned once.
        quarters = np.pad(np.tile([0, 1], self.size // 2), (1, 0)) + derivative
        turned = np.sin(2 * np.pi * places[:, None] * waves + np.pi / 2 * quarters)
        found = turned * (2 * np.pi * waves / length) ** derivative * math.sqrt(2 / length)
        found[:, 0] = 0.0 if derivative else 1 / math.sqrt(length)
        return found

    def gram(self) -> Array:
        """The integral of the product of each two functions over the domain."""
        return np.eye(self.size)

    def penalty(self, derivative: int = 2) -> Array:
        """The integral of the product of the derivatives of each two functions over the domain, exact."""
        _require_order(derivative, 10)
        return np.diag((2 * np.pi * self._waves / _length(self.domain)) ** (2 * derivative))

    @property
    def _waves(self) -> Array:
        """Number of periods of each function in the domain: 0, 1, 1, 2, 2, ..."""
        return np.ceil(np.arange(self.size) / 2)


@dataclass(frozen=True, eq=False, kw_only=True)
class Frame:
    """The smoothest functions of a basis, orthonormal in the mean over its domain; the first is constantly 1.

    Args:
        basis: The basis that they are combinations of.
        roughness: Of each function: the mean square of its second derivative, the domain mapped to [0, 1].
        mixing: From coordinates in the frame to coefficients in the basis (those of the basis, functions).
    """

    basis: Basis
    roughness: Array
    mixing: Array

    @property
    def size(self) -> int:
        """Number of functions: the length of a curve's coordinates."""
        return len(self.roughness)

    @property
    def domain(self) -> Domain:
        """Interval on which its functions are defined."""
        return self.basis.domain

    def design(self, times: ArrayLike, derivative: int = 0) -> Array:
        """The functions, or a derivative of theirs, at these times (times, functions)."""
        return self.basis.design(times, derivative) @ self.mixing


def frame(basis: Basis, components: int | None = None) -> Frame:
    """Return the Demmler-Reinsch functions of a basis, cached.

    Args:
        basis: Splines or waves.
        components: The number of functions to keep, the smoothest; by default all.
    """
    if components is None:
        return _leading_frame(basis, basis.size)
    require_count("components", components)
    require(
        components <= basis.size, "components", components, f"at most {basis.size}, the size of the basis"
    )
    return _leading_frame(basis, components)


def whitening(gram: Array) -> tuple[Array, Array]:
    """The symmetric square root of a Gram matrix and its inverse: coefficients times the root have length L2.

    Raises:
        InvalidValue: It is not symmetric, or has an eigenvalue that is not positive.
    """
    square = gram.ndim == 2 and gram.shape[0] == gram.shape[1]
    require(square and np.allclose(gram, gram.T), "gram", f"shape {gram.shape}", "a symmetric matrix")
    values, vectors = np.linalg.eigh(gram)
    least = len(gram) * np.finfo(np.float64).eps * values[-1]
    require(values[0] > least, "gram", f"a matrix with eigenvalue {values[0]:.3g}", "positive definite")
    roots = np.sqrt(values)
    return (vectors * roots) @ vectors.T, (vectors / roots) @ vectors.T


def interval(field: str, given: Sequence[float]) -> Domain:
    """A domain as two plain numbers, the first below the second."""
    ends = np.asarray(given)
    two = ends.shape == (2,) and ends.dtype.kind in "iuf"
    rising = two and bool(np.isfinite(ends).all()) and 0 < float(ends[1]) - float(ends[0]) < math.inf
    require(rising, field, given, "two finite numbers, the first below the second")
    return float(ends[0]), float(ends[1])


@lru_cache(maxsize=64)
def _leading_frame(basis: Basis, components: int) -> Frame:
    """Return the first functions of the full frame; cached and read-only."""
    if components < basis.size:
        whole = _leading_frame(basis, basis.size)
        return Frame(basis=basis, roughness=whole.roughness[:components], mixing=whole.mixing[:, :components])
    length = _length(basis.domain)
    roughness, mixing = _demmler_reinsch(
        basis.gram() / length, basis.penalty(1) * length, basis.penalty(2) * length**3
    )
    roughness.flags.writeable = mixing.flags.writeable = False
    return Frame(basis=basis, roughness=roughness, mixing=mixing)


def _demmler_reinsch(gram: Array, slope: Array, penalty: Array) -> tuple[Array, Array]:
    """Diagonalize a Gram matrix and a penalty at once (Demmler-Reinsch basis), the smoothest first."""
    found, vectors = eigh(penalty, gram)
    roughness, mixing = np.asarray(found, dtype=np.float64), np.asarray(vectors, dtype=np.float64)
    flat = roughness <= len(roughness) * np.finfo(np.float64).eps * roughness[-1]
    roughness = np.where(flat, 0.0, roughness)
    # Any mixture of the constant and the line is as smooth: the one with less slope comes first.
    level = mixing[:, flat]
    mixing[:, flat] = level @ np.linalg.eigh(level.T @ slope @ level)[1]
    # Signs are arbitrary, so fix them: the last of the largest coefficients is positive.
    size = np.abs(mixing)
    last = size.shape[0] - 1 - np.argmax((size >= (1 - 1e-6) * size.max(axis=0))[::-1], axis=0)
    return roughness, mixing * np.sign(mixing[last, np.arange(mixing.shape[1])])


def _inner(knots: Sequence[float], domain: Domain) -> tuple[float, ...]:
    """Inner knots as plain numbers, increasing and inside the domain."""
    found = np.concatenate([domain[:1], numbers("knots", knots, "the basis").ravel(), domain[1:]])
    apart = bool((np.diff(found) >= NEAREST * _length(domain)).all())
    allowed = f"increasing, inside {domain} and at least {NEAREST:g} of its length apart"
    require(apart, "knots", tuple(knots), allowed)
    return tuple(found[1:-1].tolist())


def _to_unit_interval(times: ArrayLike, domain: Domain) -> Array:
    """Map times from the domain to [0, 1]."""
    given = numbers("times", times, "the domain")
    require(given.ndim == 1, "times", f"shape {given.shape}", "a list of times")
    places = (given - domain[0]) / _length(domain)
    outside = ~((places >= -ROUNDING) & (places <= 1 + ROUNDING))
    if outside.any():
        first = float(given[outside][0])
        raise InvalidValue(f"times = {first!r} is not allowed: it must be inside the domain {domain}")
    return places.clip(0.0, 1.0)


def _require_order(derivative: int, most: int) -> None:
    allowed = f"a whole number from 0 to {most}"
    require(type(derivative) is int and 0 <= derivative <= most, "derivative", derivative, allowed)


def _length(domain: Domain) -> float:
    return domain[1] - domain[0]
