"""How many numbers a boosted fit has really used: its degrees of freedom, exactly.

Once it is known which predictor was moved at each step, a fit is linear in the response: its degrees of
freedom are the trace of that map. The map is followed step by step, among the predictors that were moved and
once for each price that coordinates of the response pay; nothing is as large as the number of subjects.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tacit.functional.boosting.path import Design, Places

Array = NDArray[np.float64]


def degrees_of_freedom(ground: Design, chosen: Places, rate: float) -> Array:
    """The degrees of freedom after 0, 1, ... steps (steps + 1, predictors, m); they add up over both.

    Args:
        ground: Of one split.
        chosen: Who was moved at each step (steps,).
        rate: Which part of the way.
    """
    active, places = np.unique(chosen, return_inverse=True)
    count, width = ground.slopes.shape[2], ground.slopes.shape[-1]
    used = np.zeros((len(chosen) + 1, count, width))
    if not len(active):
        return used
    kept = ground.restrict_to(active.tolist())
    size = kept.slopes.shape[3]
    raw = kept.cross[0, 0].reshape(len(active), len(active) * size, size)
    levels, level = np.unique(kept.shrink[0].reshape(-1, width), axis=1, return_inverse=True)
    shrink = levels.reshape(len(active), size, -1, 1)
    units = np.eye(len(active) * size).reshape(len(active), size, 1, -1)
    start = np.broadcast_to(units, (*units.shape[:2], levels.shape[1], units.shape[-1]))
    for number, move in enumerate(_replay(kept, places, rate, start, shrink)):
        place = places[number]
        used[number + 1] = used[number]
        used[number + 1, active[place]] += np.einsum("qki,iq->k", move, raw[place])[level.ravel()]
    return used


def hutchinson(
    ground: Design, chosen: Places, rate: float, *, probes: int, draws: np.random.Generator
) -> Array:
    """Estimates of the degrees of freedom at the end of a walk by random probes (probes,); their mean is one.

    Args:
        ground: As for `degrees_of_freedom`.
        chosen: As for `degrees_of_freedom`.
        rate: As for `degrees_of_freedom`.
        probes: How many.
        draws: Where they come from; nothing private is involved.
    """
    active, places = np.unique(chosen, return_inverse=True)
    if not len(active):
        return np.zeros(probes)
    kept = ground.restrict_to(active.tolist())
    size, width = kept.slopes.shape[3:]
    raw = kept.cross[0, 0].reshape(len(active), len(active) * size, size)
    square = raw.transpose(0, 2, 1).reshape(len(active) * size, -1)
    roots, axes = np.linalg.eigh((square + square.T) / 2)
    root = axes * np.sqrt(np.maximum(roots, 0.0))
    # As many subjects' worth of noise, seen through their moments: of covariance G, as noise in Z'Y / N is.
    start = np.tensordot(root, draws.standard_normal((root.shape[1], width, probes)), axes=1)
    start = start.reshape(len(active), size, width, probes)
    reached = np.zeros_like(start)
    for place, move in zip(
        places, _replay(kept, places, rate, start, kept.shrink[0, ..., None]), strict=True
    ):
        reached[place] += move
    return np.einsum("jqmp,jqmp->p", start, reached)


def _replay(ground: Design, places: Places, rate: float, start: Array, shrink: Array) -> Iterator[Array]:
    """The moves of a walk whose choices are made, for other right-hand sides.

    Args:
        ground: Of one split.
        places: Who is moved at each step.
        rate: Which part of the way.
        start: The right-hand sides (predictors, size, m, how many).
        shrink: How penalties shrink what fits best (predictors, size, m, 1).
    """
    slopes = start.reshape(*start.shape[:2], -1).copy()
    here, explained = np.zeros_like(slopes), np.zeros_like(slopes)
    shrunk = np.broadcast_to(shrink, start.shape).reshape(slopes.shape)
    cross, own = ground.cross[0, 0], ground.own[0, 0]
    for place in places:
        move = rate * (shrunk[place] * (slopes[place] + explained[place]) - here[place])
        here[place] += move
        explained[place] += own[place] @ move
        slopes -= (cross[place] @ move).reshape(slopes.shape)
        yield move.reshape(start.shape[1:])
