"""Simulated curves: subjects with a known truth, and predictors divided among parties.

Three designs, drawn with randomness by name: the same seed gives the same truth, every replicate of it has
subjects of its own, and a longer set begins with the shorter one. How many parties there are changes nothing:
they divide predictors, not subjects.

Every design is linear, y(t) = sum_j int x_j(s) beta_j(s, t) ds + noise, and has mean 0. The operators belong
to the truth, which has a key of its own; subjects have another, and each predictor its own stream of it, so
that neither more subjects nor more predictors change those that were there before.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from tacit.errors import InvalidValue, is_between, require, require_count, require_positive, require_word
from tacit.functional.curves import Curves, curves
from tacit.functional.curves.basis import BSplines, interval, whitening
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
    """Return an operator between random orthonormal directions, of Frobenius norm sqrt 3."""
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
    """Return the components of the covariance exp(-(s - t)^2 / (2 length^2)), by Nystrom's method."""
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


__all__ = ["DESIGNS", "CurveSet", "Surface", "deal_predictors", "simulate"]

DESIGNS: dict[str, str] = {
    "seed": "white spline coordinates on [0, 100], operators of rank 3; 5 of 20 predictors matter",
    "bumps": "a bump of random height in its own window of [0, 100], local operators; 2 of 4 matter",
    "smooth": "Gaussian processes on [0, 1], operators of a few cosines; 2 of 4 predictors matter",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class CurveSet:
    """Curves of the same subjects: predictors by name, and the response.

    Args:
        predictors: Those of each predictor.
        response: Those to be predicted.
        active: The predictors with a true effect.
        surfaces: The true coefficient surface of each predictor: `surfaces["x1"](s, t)` is its values on a
            grid, in y(t) = sum_j int x_j(s) beta_j(s, t) ds + noise.
        noise: The unpredictable share of the response: the RIL2 of the true surfaces.
    """

    predictors: Mapping[str, Curves]
    response: Curves
    active: tuple[str, ...]
    surfaces: Mapping[str, Surface]
    noise: float

    def __len__(self) -> int:
        return len(self.response)

    def take(self, rows: ArrayLike | slice) -> "CurveSet":
        """Select subjects."""
        own = {name: found.take(rows) for name, found in self.predictors.items()}
        return replace(self, predictors=own, response=self.response.take(rows))


def simulate(
    design: str = "seed",
    *,
    records: int = 1000,
    predictors: int | None = None,
    active: int | None = None,
    snr: float | None = None,
    seed: int = 0,
    replicate: int = 0,
    points: int = 101,
    domain: tuple[float, float] | None = None,
    size: int | None = None,
    length: float | None = None,
) -> CurveSet:
    """Simulate curves x1, x2, ... and a response that depends on the first of them, on an even grid.

    With orthonormal f = M^{-1/2} (B-splines of Gram matrix M), g white noise, and h a Hann bump:

        seed    x_j = f' g_j, y = f' (sum_j B_j' g_j + noise), B_j = U diag(1, .7, .4) V' with random
                orthonormal U and V, stretched to ||B_j||_F = sqrt 3
        bumps   coefficients c_j = g_j h_j + .05 g, h_j 85 % as wide as its window, and those of y are
                2 M sum_j c_j + noise
        smooth  x_j of covariance exp(-(s - t)^2 / (2 length^2)), beta_j of random cosines that fall off, all
                alike in what they contribute; noise is such a process too

    Args:
        design: One of `DESIGNS`.
        records: The number of subjects.
        predictors: Their number; 20 in seed, else 4.
        active: The number of predictors with an effect, the first ones; 5 in seed, else 2.
        snr: The variance of the signal over that of the noise, both integrated over the domain: RIL2 cannot
            be below 1 / (1 + snr). If not said it is 10; in bumps, coefficients have noise of 0.05 instead.
        seed: The same one gives the same operators.
        replicate: Each number gives new subjects of the same truth.
        points: The number of grid points, both ends among them.
        domain: Of all curves; [0, 100] in seed and bumps, [0, 1] in smooth.
        size: The number of B-splines in seed and bumps; 20 by default.
        length: Over which curves of smooth change, as a share of the domain; 0.2 by default.
    """
    require_word("design", design, DESIGNS)
    recipe = _RECIPES[design]
    recipe.refuse_foreign(design, {"size": size, "length": length})
    key = Key(_whole("seed", seed)) / "simulate" / "curves" / design
    ends = recipe.domain if domain is None else interval("domain", domain)
    require(_whole("points", points) > 1, "points", points, "at least 2")
    setting = DesignSpec(
        records=_count("records", records),
        names=tuple(f"x{k}" for k in range(1, _count("predictors", predictors, recipe.predictors) + 1)),
        active=_count("active", active, min(recipe.active, predictors or recipe.active)),
        snr=snr,
        times=np.linspace(*ends, points),
        domain=ends,
        size=_count("size", size, 20),
        length=0.2 if length is None else length,
        truth=key / "truth",
        subjects=key / "subjects" / _whole("replicate", replicate),
    )
    _require_setting(setting)
    return _curve_set(recipe.draw(setting), setting)


def deal_predictors(names: Sequence[str], count: int) -> dict[str, tuple[str, ...]]:
    """Deal predictors to parties in turn: `party-1` has the first, `party-2` the second, and so on.

    Args:
        names: Of the predictors.
        count: The number of parties; at most one for each predictor.
    """
    known = tuple(names)
    require(len(set(known)) == len(known) > 0, "names", list(known), "at least one, each of them once")
    require_count("count", count)
    require(count <= len(known), "count", count, f"at most {len(known)}, so that every party has a predictor")
    return {f"party-{place + 1}": known[place::count] for place in range(count)}


@dataclass(frozen=True)
class _Recipe:
    """A design's sampler and its defaults."""

    draw: Callable[[DesignSpec], DesignSample]
    predictors: int
    active: int
    domain: tuple[float, float]
    option: str

    def refuse_foreign(self, design: str, given: Mapping[str, object]) -> None:
        """Refuse an option that another design takes."""
        for name, value in given.items():
            if value is not None and name != self.option:
                raise InvalidValue(f"{name} = {value!r} is not allowed: {design} takes {self.option} instead")


def _curve_set(drawn: DesignSample, setting: DesignSpec) -> CurveSet:
    def make_curves(name: str, values: Array) -> Curves:
        return curves(values, name=name, times=setting.times, domain=setting.domain, least=1)

    return CurveSet(
        predictors={name: make_curves(name, values) for name, values in drawn.predictors.items()},
        response=make_curves("y", drawn.response),
        active=setting.names[: setting.active],
        surfaces=dict(drawn.surfaces),
        noise=drawn.noise,
    )


def _require_setting(setting: DesignSpec) -> None:
    """Refuse what no design can draw."""
    known = len(setting.names)
    require(setting.active <= known, "active", setting.active, f"at most {known}, as there are predictors")
    require(setting.size >= 4, "size", setting.size, "at least 4: a cubic spline has at least 4")
    require(is_between(setting.length, 0.0499, 100), "length", setting.length, "from 0.05 to 100")
    if setting.snr is not None:
        require_positive("snr", setting.snr)


def _whole(field: str, given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise InvalidValue(f"{field} = {given!r} is not allowed: it must be a whole number")
    return int(given)


def _count(field: str, given: int | None, otherwise: int = 1) -> int:
    if given is None:
        return otherwise
    require_count(field, given)
    return given


_RECIPES: dict[str, _Recipe] = {
    "seed": _Recipe(seed, 20, 5, (0.0, 100.0), "size"),
    "bumps": _Recipe(bumps, 4, 2, (0.0, 100.0), "size"),
    "smooth": _Recipe(smooth, 4, 2, (0.0, 1.0), "length"),
}
