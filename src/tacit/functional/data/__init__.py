"""Curves to begin with: simulated subjects, whose truth is known, and predictors divided among parties.

Three designs, drawn with randomness by name: the same seed gives the same truth, every replicate of it has
subjects of its own, and a longer set begins with the shorter one. How many parties there are changes nothing:
they divide predictors, not subjects.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike

from tacit.errors import InvalidValue, is_between, require, require_count, require_positive, require_word
from tacit.functional.curves import Curves, curves
from tacit.functional.curves.basis import interval
from tacit.functional.data import designs
from tacit.functional.data.designs import DesignSample, DesignSpec, Surface
from tacit.runtime.keys import Key

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
        """The same of these subjects alone."""
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
    def make_curves(name: str, values: designs.Array) -> Curves:
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
    require(setting.size >= 4, "size", setting.size, "at least 4: cubic splines are no fewer")
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
    "seed": _Recipe(designs.seed, 20, 5, (0.0, 100.0), "size"),
    "bumps": _Recipe(designs.bumps, 4, 2, (0.0, 100.0), "size"),
    "smooth": _Recipe(designs.smooth, 4, 2, (0.0, 1.0), "length"),
}
