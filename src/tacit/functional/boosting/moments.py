"""What a fit needs to know of curves: sums of products of their coordinates, and what noise did to them.

A curve is a few coordinates in a frame: functions that are orthonormal over its domain, the smoothest first.
Predictors stand side by side, one block of columns for each; the response is apart. Everything that is
decided from moments, such as which predictors count and when to stop, is free once they have been paid for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Moments:
    """Second moments of centred coordinates, noise taken off; they may be indefinite where there was some.

    Args:
        xx: Of all predictors with each other (columns, columns).
        xy: Of predictors with the response (columns, coordinates of the response).
        yy: Of the response with itself.
        count: Over how many subjects they are means; a public number.
    """

    xx: Array
    xy: Array
    yy: Array
    count: int

    def loss(self, coefficients: Array) -> float:
        """The mean squared distance, over curves, of the response from what coefficients make of predictors.

        Args:
            coefficients: (columns, coordinates of the response).
        """
        fitted = self.xx @ coefficients - 2 * self.xy
        return float(np.trace(self.yy) + np.vdot(coefficients, fitted))


@dataclass(frozen=True, eq=False, kw_only=True)
class DebiasedMoments:
    """Everything that a fit may look at, wherever it came from.

    Args:
        whole: The moments of all subjects; `xx` is repaired: positive semidefinite.
        raw: The same before repair.
        splits: Pairs of moments to learn from and to judge by, whose noise and subjects do not overlap; as
            they are, to be repaired for the predictors that take part.
        blocks: The columns of each predictor.
        floors: For each predictor, what noise does to the eigenvalues of its moments; 0 where there is none.
        roughness: For each predictor, that of each of its coordinates: the diagonal penalty of its frame.
        roughness_y: That of the coordinates of the response.
        optimism: Whether `splits` share subjects and differ in noise alone, so that what is learnt from the
            subjects themselves has to be judged by degrees of freedom as well.
    """

    whole: Moments
    raw: Moments
    splits: Sequence[tuple[Moments, Moments]]
    blocks: tuple[slice, ...]
    floors: tuple[float, ...]
    roughness: tuple[Array, ...]
    roughness_y: Array
    optimism: bool = False
