"""Survival data: simulated patients, whose true model is known, and published sets.

Six designs are those of the federated-survival package, formula by formula; a seventh has competing causes.
They are drawn with randomness by name: the same seed gives the same table, and a longer table begins with
the shorter one. `load` and `federation` read what other packages bring along.

Competing causes follow the example of Lee and others (2018, DeepHit): times are exponential, each cause has
features of its own that act linearly, and a share of features acts on all causes by its square. Their means
may be negative; here hazards are log-linear, so every draw exists and the truth has a closed form (`hazards`,
`incidence`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InvalidValue, is_between, require, require_count, require_word
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.survival.data.published import load, published_federation

if TYPE_CHECKING:
    from pandas import DataFrame

    from tacit.sites.federation import RowFederation
    from tacit.survival.data.partition import Cause, Split

__all__ = ["DESIGNS", "federation", "load", "simulate"]

Integers = NDArray[np.int64]

# Sample size for finding the option that gives a wanted share of censored records.
PILOT = 2_000_000
# Strength of features with competing causes: on the log hazard of one, and by their square on all.
OWN, SHARED = 0.8, 0.4

DESIGNS: dict[str, str] = {
    "weibull": "log-normal times, despite its name, second half of features; exponential censoring (c_mean)",
    "lognormal": "log-normal times, first and last fifth of features; exponential censoring (c_mean)",
    "SDGM1": "proportional hazards, second half of features; exponential censoring (c_mean)",
    "SDGM2": "proportional hazards, non-linear in the first three features; uniform censoring (u_max)",
    "SDGM3": "gamma times whose shape follows the middle fifth, not proportional; uniform censoring (u_max)",
    "SDGM4": "log-normal times, absolute sums of the outer fifths; censoring follows them too (c_step)",
    "competing": "several causes (causes), exponential times, own and shared features; exponential censoring "
    "(c_mean)",
}


def simulate(
    design: str = "SDGM1",
    *,
    records: int = 2000,
    features: int = 10,
    seed: int = 0,
    c_mean: float | None = None,
    u_max: float | None = None,
    c_step: float | None = None,
    censoring: float | None = None,
    causes: int | None = None,
) -> "DataFrame":
    """Draw a table of simulated patients: columns x1, x2, ..., time and event (1 seen, 0 censored).

    In the design competing an event tells its cause, from 1.

    Features are normal with correlation rho^|i - j|, rho = 0.6, or 0.75 in SDGM3 and SDGM4; in SDGM2 they are
    independent and uniform on (0, 1). With s the sum of the second half of the features, f of the first fifth
    and l of the last, and m of the features from the 40 % to the 60 % quantile of their positions:

        weibull    log T = 0.1 s + N(0, 1): log-normal, as in the reference, which calls it Weibull
        lognormal  log T = 0.1 (f + l) + N(0, 1)
        SDGM1      T exponential of mean exp(0.1 s)
        SDGM2      T exponential of mean sin(pi x1) + 2 |x2 - 0.5| + x3^3
        SDGM3      T gamma of shape 0.5 + 0.25 |m| and scale 2; no feature matters if there are 1, 2 or 4
        SDGM4      log T = 0.1 |f| + 0.1 |l| + N(0, 1)
        competing  constant hazards of each cause; features independent. See `hazards`

    Args:
        design: One of `DESIGNS`.
        records: Number of patients.
        features: Number of features; SDGM2 needs three, competing one more than causes.
        seed: The same one gives the same table.
        c_mean: Rate (not mean) of the exponential censoring of weibull, lognormal, SDGM1 and competing; 0.4
            by default.
        u_max: Latest censoring of SDGM2 and SDGM3, uniform from 0 on; by default 4 and 7.
        c_step: By how much log C, normal as log T is, exceeds it in the mean in SDGM4; 0.4 by default.
        censoring: Instead of these: the share of records to be censored. The option that gives it is found
            on a large draw of its own, so it depends on the design and the number of features alone.
        causes: Number of causes of the design competing; 2 by default.
    """
    import pandas

    require_word("design", design, DESIGNS)
    recipe = _recipe(design, causes)
    _require_whole("records", records, 1)
    _require_whole("features", features, recipe.fewest)
    _require_whole("seed", seed, -math.inf)
    given = {"c_mean": c_mean, "u_max": u_max, "c_step": c_step}
    option = recipe.choose(design, given) if censoring is None else recipe.solve(given, features, censoring)
    key = Key(int(seed)) / "simulate" / design
    # One stream for each kind of draw, so that a record does not depend on how many follow it.
    x = recipe.features((key / "features").generator(), records, features)
    event_times = recipe.event_times(x, (key / "events").generator())
    censoring_times = recipe.censoring_times(x, option, (key / "censorings").generator())
    columns = {f"x{number}": column for number, column in enumerate(x.T, start=1)}
    columns["time"] = np.minimum(event_times, censoring_times)
    kinds = recipe.causes(x, (key / "causes").generator())
    return pandas.DataFrame({**columns, "event": np.where(event_times < censoring_times, kinds, 0)})


def federation(
    name: str,
    *,
    sites: "int | Split | None" = None,
    seed: int = 0,
    held_out: float = 0.2,
    cause: "Cause | None" = None,
) -> "RowFederation":
    """The sites of a published set, ready for `tacit.fit`: `federation("metabric-2019", cause=1)`.

    Args:
        name: One of the sets that `tacit list data` describes; needs the package it comes from.
        sites: Number of sites, of equal shares; or a split of `tacit.sites.splits`. By default the real sites
            of the set, such as hospitals, where it names them, and five otherwise.
        seed: The same one gives the same split.
        held_out: The share that is held out to score models on.
        cause: Of a set with competing causes, the one to learn about, or "any"; by default events keep their
            codes.
    """
    return published_federation(name, sites=sites, seed=seed, held_out=held_out, cause=cause)


def hazards(features: ArrayLike, causes: int = 2) -> Array:
    """Return the hazard of each cause (records, causes), constant over time.

    The features are cut into causes + 1 runs, as equal as can be, the longer ones first. With s_k the sum of
    run k over the root of its length, and r that of the last run, log h_k = 0.8 s_k + 0.4 r^2 - log k.
    """
    x = np.asarray(features, dtype=np.float64)
    require_count("causes", causes)
    require(x.ndim == 2 and x.shape[1] > causes, "features", f"shape {x.shape}", "more columns than causes")
    parts = np.array_split(x, causes + 1, axis=1)
    scores = np.column_stack([part.sum(axis=1) / np.sqrt(part.shape[1]) for part in parts])
    ranks = np.arange(1, causes + 1)
    return np.exp(OWN * scores[:, :causes] + SHARED * scores[:, causes:] ** 2) / ranks


def incidence(features: ArrayLike, times: ArrayLike, cause: int = 1, causes: int = 2) -> Array:
    """Return the true cumulative incidence of a cause up to each time (records, times)."""
    require_count("cause", cause)
    require(cause <= causes, "cause", cause, f"at most {causes}, the number of causes")
    found = hazards(features, causes)
    total = found.sum(axis=1, keepdims=True)
    moments = np.atleast_1d(np.asarray(times, dtype=np.float64))
    return found[:, cause - 1 : cause] / total * -np.expm1(-total * moments)


def _single(x: Array, generator: Generator) -> Integers:
    return np.ones(len(x), dtype=np.int64)


@dataclass(frozen=True)
class _Recipe:
    """Recipe of one design: features, event times and censoring times, and the one option it takes."""

    features: Callable[[Generator, int, int], Array]
    event_times: Callable[[Array, Generator], Array]
    censoring_times: Callable[[Array, float, Generator], Array]
    option: str
    default: float
    fewest: int = 1
    causes: Callable[[Array, Generator], Integers] = _single

    def choose(self, design: str, given: dict[str, float | None]) -> float:
        """The value of the option, or its default; options of other designs are refused."""
        stated = {name: value for name, value in given.items() if value is not None}
        foreign = [f"{name} = {value!r}" for name, value in stated.items() if name != self.option]
        if foreign:
            raise InvalidValue(f"{', '.join(foreign)} is not allowed: {design} takes {self.option} alone")
        value = stated.get(self.option, self.default)
        _require_option(self.option, value)
        return value

    def solve(self, given: dict[str, float | None], features: int, share: float) -> float:
        """The value of the option by which this share of records is censored."""
        require(is_between(share, 0, 1), "censoring", share, "above 0 and below 1")
        for name, value in given.items():
            require(value is None, name, value, "left out where `censoring` is given")
        key, records = Key(0) / "censoring", max(PILOT // features, PILOT // 100)
        x = self.features((key / "features").generator(), records, features)
        event_times = self.event_times(x, (key / "events").generator())
        neutral = 0.0 if self.option == "c_step" else 1.0
        censoring_times = self.censoring_times(x, neutral, (key / "censorings").generator())
        # Censoring times are stretched by the option; a record is censored if that does not reach its event.
        stretch = float(np.quantile(event_times / censoring_times, 1 - share))
        return {"c_mean": 1 / stretch, "u_max": stretch, "c_step": math.log(stretch)}[self.option]


def _correlated_normal(rho: float) -> Callable[[Generator, int, int], Array]:
    def features(generator: Generator, records: int, count: int) -> Array:
        x = generator.standard_normal((records, count))
        for column in range(1, count):
            x[:, column] = rho * x[:, column - 1] + math.sqrt(1 - rho**2) * x[:, column]
        return x

    return features


def _uniform(generator: Generator, records: int, count: int) -> Array:
    return generator.random((records, count))


def _second_half(x: Array) -> Array:
    return 0.1 * x[:, x.shape[1] // 2 :].sum(axis=1)


def _outer_fifths(x: Array) -> tuple[Array, Array]:
    # The first fifth is rounded down, the last one up, as in the reference.
    first, last = x.shape[1] // 5, -(-x.shape[1] // 5)
    return 0.1 * x[:, :first].sum(axis=1), 0.1 * x[:, -last:].sum(axis=1)


def _middle(x: Array) -> Array:
    # From the 40 % to the 60 % quantile of the positions 0, ..., p - 1, both rounded down.
    end = x.shape[1] - 1
    return x[:, 2 * end // 5 : 3 * end // 5].sum(axis=1)


def _outer_sizes(x: Array) -> Array:
    first, last = _outer_fifths(x)
    return np.abs(first) + np.abs(last)


def _weibull(x: Array, generator: Generator) -> Array:
    return np.exp(_second_half(x) + generator.standard_normal(len(x)))


def _lognormal(x: Array, generator: Generator) -> Array:
    first, last = _outer_fifths(x)
    return np.exp(first + last + generator.standard_normal(len(x)))


def _sdgm1(x: Array, generator: Generator) -> Array:
    return np.exp(_second_half(x)) * generator.standard_exponential(len(x))


def _sdgm2(x: Array, generator: Generator) -> Array:
    mean = np.sin(np.pi * x[:, 0]) + 2 * np.abs(x[:, 1] - 0.5) + x[:, 2] ** 3
    return mean * generator.standard_exponential(len(x))


def _sdgm3(x: Array, generator: Generator) -> Array:
    return 2 * generator.standard_gamma(0.5 + 0.25 * np.abs(_middle(x)))


def _sdgm4(x: Array, generator: Generator) -> Array:
    return np.exp(_outer_sizes(x) + generator.standard_normal(len(x)))


def _exponential(x: Array, rate: float, generator: Generator) -> Array:
    return generator.standard_exponential(len(x)) / rate


def _until(x: Array, latest: float, generator: Generator) -> Array:
    return generator.random(len(x)) * latest


def _later(x: Array, step: float, generator: Generator) -> Array:
    return np.exp(_outer_sizes(x) + step + generator.standard_normal(len(x)))


def _first_times(features: Array, generator: Generator, causes: int) -> Array:
    """Draw the time of the first event of any cause."""
    return generator.standard_exponential(len(features)) / hazards(features, causes).sum(axis=1)


def _first_causes(features: Array, generator: Generator, causes: int) -> Integers:
    """Draw the cause of the first event, from 1; it does not depend on the time."""
    bounds = np.cumsum(hazards(features, causes), axis=1)
    drawn = generator.random(len(features)) * bounds[:, -1]
    return 1 + (drawn[:, None] >= bounds[:, :-1]).sum(axis=1)


def _recipe(design: str, causes: int | None) -> _Recipe:
    if design != "competing":
        require(causes is None, "causes", causes, f"left out: {design} has one cause")
        return _RECIPES[design]
    _require_whole("causes", 2 if causes is None else causes, 1)
    return _several(2 if causes is None else int(causes))


def _several(causes: int) -> _Recipe:
    times, kinds = partial(_first_times, causes=causes), partial(_first_causes, causes=causes)
    return _Recipe(_independent, times, _exponential, "c_mean", 0.4, fewest=causes + 1, causes=kinds)


def _require_whole(field: str, given: object, least: float) -> None:
    number = math.nan if isinstance(given, bool) or not isinstance(given, Integral) else int(given)
    allowed = f"a whole number of at least {least}" if math.isfinite(least) else "a whole number"
    require(number >= least, field, given, allowed)


def _require_option(field: str, given: object) -> None:
    number = math.nan if isinstance(given, bool) or not isinstance(given, Real) else float(given)
    signed = field == "c_step"
    allowed = "a finite number" if signed else "a finite number above 0"
    require(math.isfinite(number) and (signed or number > 0), field, given, allowed)


_normal, _closer, _independent = _correlated_normal(0.6), _correlated_normal(0.75), _correlated_normal(0.0)
_RECIPES: dict[str, _Recipe] = {
    "weibull": _Recipe(_normal, _weibull, _exponential, "c_mean", 0.4),
    "lognormal": _Recipe(_normal, _lognormal, _exponential, "c_mean", 0.4),
    "SDGM1": _Recipe(_normal, _sdgm1, _exponential, "c_mean", 0.4),
    "SDGM2": _Recipe(_uniform, _sdgm2, _until, "u_max", 4.0, fewest=3),
    "SDGM3": _Recipe(_closer, _sdgm3, _until, "u_max", 7.0),
    "SDGM4": _Recipe(_closer, _sdgm4, _later, "c_step", 0.4),
    "competing": _several(2),
}
