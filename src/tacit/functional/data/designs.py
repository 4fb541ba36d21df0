"""The mathematics of simulated curves: how each design draws predictors, operators and responses.

Every design is linear, y(t) = sum_j int x_j(s) beta_j(s, t) ds + noise, and has mean 0. The operators belong
to the truth, which has a key of its own; subjects have another, and each predictor its own stream of it, so
that neither more subjects nor more predictors change those that were there before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from tacit.functional.curves.basis import BSplines, whitening
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key

# Of the operators of the seed design.
SINGULAR = (1.0, 0.7, 0.4)
# Of the bump design: the width of a bump in its window, the noise of coefficients, the size of the operator.
WIDTH, SPECKS, GAIN = 0.85, 0.05, 2.0
# Of the smooth design: cosines in an operator, nodes of integrals, the least share of variance that counts.
COSINES, NODES, NEGLIGIBLE = 4, 80, 1e-10


class Functions(Protocol):
    """Functions of time."""

    def design(self, times: ArrayLike) -> Array:
        """Their values (times, functions)."""
        ...


@dataclass(frozen=True, eq=False)
class Surface:
    """A coefficient surface beta(s, t) = f(s)' core f(t): what y(t) owes to x(s), in units of the domain.

    Args:
        functions: f, of both times.
        core: (functions, functions).
    """

    functions: Functions
    core: Array

    def __call__(self, s: ArrayLike, t: ArrayLike) -> Array:
        """Its values, predictor's times first (s, t)."""
        return self.functions.design(s) @ self.core @ self.functions.design(t).T


@dataclass(frozen=True, kw_only=True)
class DesignSpec:
    """Options of a simulation design.

    Args:
        records: The number of subjects.
        names: Of the predictors.
        active: The number of predictors with an effect, the first ones.
        snr: The variance of the signal over that of the noise, both integrated; None for the design's own.
        times: The observation times (times,).
        domain: Of all curves.
        size: The number of splines, where there are any.
        length: The length scale of Gaussian processes, as a share of the domain.
        truth: The key of operators.
        subjects: The key of subjects.
    """

    records: int
    names: tuple[str, ...]
    active: int
    snr: float | None
    times: Array
    domain: tuple[float, float]
    size: int
    length: float
    truth: Key
    subjects: Key

    def normal(self, name: str, columns: int) -> Array:
        """White noise of subjects (records, columns)."""
        return (self.subjects / name).generator().standard_normal((self.records, columns))


@dataclass(frozen=True, eq=False)
class DesignSample:
    """Sample from a simulation design.

    Args:
        predictors: Their values by name (records, times).
        response: Its values (records, times).
        surfaces: The true surface of each predictor.
        noise: The unpredictable share of the response: noise over signal and noise, integrated.
    """

    predictors: Mapping[str, Array]
    response: Array
    surfaces: Mapping[str, Surface]
    noise: float


def seed(setting: DesignSpec) -> DesignSample:
    """White coordinates in an orthonormal basis of splines, and operators of rank 3."""
    basis = BSplines(size=setting.size, domain=setting.domain)
    _, inverse_root = whitening(basis.gram())
    values = basis.design(setting.times) @ inverse_root
    active = setting.names[: setting.active]
    operators = {name: _operator(setting.truth / name, setting.size) for name in active}
    white = {name: setting.normal(name, setting.size) for name in setting.names}
    snr = 10.0 if setting.snr is None else setting.snr
    # White coordinates: what an operator gives has the trace of B'B as its variance.
    power = sum(float((operator**2).sum()) for operator in operators.values())
    response = np.sqrt(power / (setting.size * snr)) * setting.normal("noise", setting.size)
    for name, operator in operators.items():
        response += white[name] @ operator
    zero = np.zeros((setting.size, setting.size))
    cores = {name: inverse_root @ operators.get(name, zero) @ inverse_root for name in setting.names}
    return DesignSample(
        {name: own @ values.T for name, own in white.items()},
        response @ values.T,
        {name: Surface(basis, core) for name, core in cores.items()},
        1 / (1 + snr),
    )


def _operator(key: Key, size: int) -> Array:
    """An operator between random orthonormal directions, of Frobenius norm sqrt 3."""
    draws = key.generator()
    left, right = (np.linalg.qr(draws.standard_normal((size, len(SINGULAR))))[0] for _ in range(2))
    found = (left * np.array(SINGULAR)) @ right.T
    return found * np.sqrt(3 / np.sum(np.square(SINGULAR)))


def bumps(setting: DesignSpec) -> DesignSample:
    """One bump of random height for each predictor, and a local operator, beta(s, t) = 2 f(s)' f(t)."""
    basis = BSplines(size=setting.size, domain=setting.domain)
    gram, values = basis.gram(), basis.design(setting.times)
    shapes = dict(zip(setting.names, _bumps(basis, len(setting.names)), strict=True))
    coefficients = {
        name: setting.normal(f"{name}, height", 1) * shape
        + SPECKS * setting.normal(f"{name}, specks", setting.size)
        for name, shape in shapes.items()
    }
    active = setting.names[: setting.active]
    through = GAIN * gram
    # The coefficients of y are 2 M (c_1 + ...), and the square of a curve is that of its coefficients in M.
    cube = through @ gram @ through
    power = sum(
        float(shapes[name] @ cube @ shapes[name]) + SPECKS**2 * float(np.trace(cube)) for name in active
    )
    floor = SPECKS**2 * float(np.trace(gram))
    wanted = floor if setting.snr is None else power / setting.snr
    response = SPECKS * np.sqrt(wanted / floor) * setting.normal("noise", setting.size)
    for name in active:
        response += coefficients[name] @ through
    cores = {name: GAIN * (name in active) * np.eye(setting.size) for name in setting.names}
    return DesignSample(
        {name: own @ values.T for name, own in coefficients.items()},
        response @ values.T,
        {name: Surface(basis, core) for name, core in cores.items()},
        wanted / (power + wanted),
    )


def _bumps(basis: BSplines, count: int) -> Array:
    """Return the coefficients of a Hann bump in the middle of each of `count` windows (windows, splines)."""
    times = np.linspace(*basis.domain, 40 * basis.size * count + 1)
    share = (times - times[0]) / (times[-1] - times[0])
    centres = (np.arange(count)[:, None] + 0.5) / count
    inside = np.clip((share - centres) * count / WIDTH, -0.5, 0.5)
    values, wanted = basis.design(times), np.cos(np.pi * inside) ** 2
    return wanted @ values @ np.linalg.inv(values.T @ values)


@dataclass(frozen=True)
class Cosines:
    """The first few cosines, orthonormal over the domain."""

    size: int
    domain: tuple[float, float]

    def design(self, times: ArrayLike) -> Array:
        """Their values (times, cosines)."""
        low, high = self.domain
        order = np.arange(self.size)
        share = (np.asarray(times, dtype=np.float64)[:, None] - low) / (high - low)
        return np.cos(np.pi * order * share) * np.sqrt(np.where(order > 0, 2, 1) / (high - low))


def smooth(setting: DesignSpec) -> DesignSample:
    """Gaussian processes with squared exponential covariance, and operators of a few cosines."""
    process = _process(setting)
    cosines = Cosines(COSINES, setting.domain)
    # Each column: the integral of a component against a cosine.
    mixing = (process.nodes * process.weights) @ cosines.design(process.times)
    operators: dict[str, Array] = {}
    for name in setting.names[: setting.active]:
        draws = (setting.truth / name).generator().standard_normal((COSINES, COSINES))
        order = 1 + np.arange(COSINES)
        rough = draws / np.sqrt(np.outer(order, order))
        # Every predictor contributes the same: a variance of 1, on average over the domain.
        operators[name] = rough * np.sqrt(process.span / ((mixing @ rough) ** 2).sum())
    snr = 10.0 if setting.snr is None else setting.snr
    parts = {name: setting.normal(name, len(mixing)) for name in setting.names}
    response = np.sqrt(setting.active / snr) * setting.normal("noise", len(mixing)) @ process.values
    for name, operator in operators.items():
        response += parts[name] @ mixing @ operator @ cosines.design(setting.times).T
    zero = np.zeros((COSINES, COSINES))
    return DesignSample(
        {name: own @ process.values for name, own in parts.items()},
        response,
        {name: Surface(cosines, operators.get(name, zero)) for name in setting.names},
        1 / (1 + snr),
    )


@dataclass(frozen=True, eq=False)
class _Process:
    """A Gaussian process of variance 1 as a sum of components with independent normal weights.

    Args:
        values: Each component where curves are seen (components, times).
        nodes: Each component at the nodes of an integral (components, nodes).
        times: These nodes, and `weights` their weights.
        span: The length of the domain.
    """

    values: Array
    nodes: Array
    times: Array
    weights: Array
    span: float


def _process(setting: DesignSpec) -> _Process:
    """The components of the covariance exp(-(s - t)^2 / (2 length^2)), by Nystrom's method."""
    low, high = setting.domain
    span = high - low
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    times, weights = low + span * (nodes + 1) / 2, span * weights / 2

    def covariance(left: Array, right: Array) -> Array:
        return np.exp(-0.5 * ((left[:, None] - right) / (setting.length * span)) ** 2)

    root = np.sqrt(weights)
    sizes, vectors = np.linalg.eigh(root[:, None] * covariance(times, times) * root)
    kept = np.flatnonzero(sizes > NEGLIGIBLE * sizes[-1])[::-1]
    sizes, vectors = sizes[kept], vectors[:, kept]
    # A vector is known up to its sign alone: the last of its largest entries is positive, on every machine.
    large = np.abs(vectors) >= (1 - 1e-6) * np.abs(vectors).max(axis=0)
    last = len(large) - 1 - large[::-1].argmax(axis=0)
    vectors *= np.sign(vectors[last, np.arange(len(kept))])
    onto = (root[:, None] * vectors) / np.sqrt(sizes)
    values, own = (onto.T @ covariance(times, grid) for grid in (setting.times, times))
    return _Process(values, own, times, weights, span)
