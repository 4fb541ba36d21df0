"""Simulated events of several causes, of which the first one to come is seen: hazards that are known.

As in the example of Lee and others (2018, DeepHit), times are exponential, each cause has features of its
own that act linearly, and a share of features acts on all causes by its square. Their means may be negative;
here hazards are log-linear, so every draw exists and the truth has a closed form.
"""

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from tacit.errors import require, require_count

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# How strongly features act: on the log hazard of one cause, and by their square on all.
OWN, SHARED = 0.8, 0.4


def hazards(features: ArrayLike, causes: int = 2) -> Floats:
    """The hazard of each cause (records, causes), the same at all times.

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


def incidence(features: ArrayLike, times: ArrayLike, cause: int = 1, causes: int = 2) -> Floats:
    """The true chance that an event of this cause came first, up to each time (records, times)."""
    require_count("cause", cause)
    require(cause <= causes, "cause", cause, f"at most {causes}, the number of causes")
    found = hazards(features, causes)
    total = found.sum(axis=1, keepdims=True)
    moments = np.atleast_1d(np.asarray(times, dtype=np.float64))
    return found[:, cause - 1 : cause] / total * -np.expm1(-total * moments)


def first_times(features: Floats, generator: Generator, causes: int) -> Floats:
    """When the first event of any cause comes."""
    return generator.standard_exponential(len(features)) / hazards(features, causes).sum(axis=1)


def first_causes(features: Floats, generator: Generator, causes: int) -> Integers:
    """The cause of the first event, from 1; it does not depend on when that comes."""
    bounds = np.cumsum(hazards(features, causes), axis=1)
    drawn = generator.random(len(features)) * bounds[:, -1]
    return 1 + (drawn[:, None] >= bounds[:, :-1]).sum(axis=1)
