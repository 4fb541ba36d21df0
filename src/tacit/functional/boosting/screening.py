"""Which predictors help: judged, split by split, on what was held back from learning.

Boosting that predicts best still moves predictors that explain nothing, a little each. What such a predictor
learnt does harm where it was not learnt. That tells it from those that help, and they are learnt without it.
"""

import numpy as np
from numpy.typing import NDArray

from tacit.functional.boosting.path import BoostingPath

Array = NDArray[np.float64]


def contributions(walk: BoostingPath, steps: int) -> Array:
    """How much larger the loss on what was held back is without each predictor (splits, predictors).

    Args:
        walk: Over splits.
        steps: How many of its steps count.
    """
    reached, ground = walk.position(steps), walk.ground
    explained = (ground.cross[:, -1] @ reached).sum(axis=1).reshape(reached.shape)
    own = ground.own[:, -1] @ reached
    return np.einsum("spqm,spqm->sp", reached, 2 * (ground.slopes[:, -1] - explained) + own)


def survivors(found: Array, spread: Array, weights: Array, margin: float) -> tuple[int, ...]:
    """The predictors whose contributions, averaged over splits, are above 0 by more than they vary.

    Args:
        found: Contributions (splits, predictors).
        spread: The deviation of what all splits have in common (predictors,).
        weights: Of the splits; they add up to 1.
        margin: By how many standard errors of the mean.
    """
    mean = weights @ found
    splits = len(found)
    variance = weights @ (found - mean) ** 2 / max(splits - 1, 1) + spread**2
    return tuple(np.flatnonzero(mean > margin * np.sqrt(variance)).tolist())
