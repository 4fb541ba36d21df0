"""Membership inference on a fitted model of curves: does it reveal its training subjects?

Two attacks on predictions: by loss, since a model may fit its own subjects better, and by confidence, since
it may predict larger curves for them. Each is a score that should be higher for members, judged by its exact
ROC curve over all thresholds. An attack that fails proves nothing; one that succeeds shows a leak.

It needs to know the members, so it is for simulated, public or held-out subjects, and its findings are as
private as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.audits.membership_statistics import ALARMS, AttackResult, attack
from tacit.errors import require
from tacit.functional.metrics import quadrature

__all__ = ["AttackResult", "CurveMembership", "attack", "membership_scores", "membership"]

Array = NDArray[np.float64]
Score = Literal["loss", "confidence"]


@dataclass(frozen=True, kw_only=True)
class CurveMembership:
    """Both attacks on one model.

    Args:
        loss: By minus the squared length of the residual curve.
        confidence: By the squared length of the predicted curve.
    """

    loss: AttackResult
    confidence: AttackResult

    def as_dict(self) -> dict[str, dict[str, float | int]]:
        """Plain data."""
        return {"loss": self.loss.as_dict(), "confidence": self.confidence.as_dict()}


def membership(
    members: tuple[ArrayLike, ArrayLike],
    others: tuple[ArrayLike, ArrayLike],
    times: ArrayLike | None = None,
    *,
    alarms: float = ALARMS,
) -> CurveMembership:
    """Attack a model by what it predicts for its own subjects and for others.

    Args:
        members: True and predicted curves of subjects that the model was fitted to (subjects, times).
        others: The same of subjects that it never saw.
        times: The grid, ascending; None if curves are coordinates in orthonormal functions.
        alarms: The share of others that may be taken for members.
    """
    inside, outside = membership_scores(*members, times), membership_scores(*others, times)
    return CurveMembership(
        loss=attack(inside["loss"], outside["loss"], alarms=alarms),
        confidence=attack(inside["confidence"], outside["confidence"], alarms=alarms),
    )


def membership_scores(
    true: ArrayLike, predicted: ArrayLike, times: ArrayLike | None = None
) -> Mapping[Score, Array]:
    """The scores of subjects, to be high for members: loss is -int (y - yhat)^2, confidence int yhat^2.

    Args:
        true: Values on a grid, NaN where one is not known, or coordinates (subjects, times).
        predicted: Of the same shape.
        times: The grid, ascending; None if coordinates are given.
    """
    seen, told = np.asarray(true, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    fits = seen.ndim == 2 and seen.shape == told.shape
    require(fits, "curves", f"shapes {seen.shape} and {told.shape}", "true and predicted, subjects by points")
    require(bool(np.isfinite(told).all()), "predicted", "NaN or infinity", "finite")
    rule = np.ones(seen.shape[1]) if times is None else quadrature(times)
    require(len(rule) == seen.shape[1], "times", f"{len(rule)} of them", f"{seen.shape[1]}, as curves have")
    weights = np.where(np.isnan(seen), 0.0, rule)
    known = weights.sum(axis=1)
    require(bool((known > 0).all()), "true", "a curve without a value", "curves of one value or more")
    residual = np.where(np.isnan(seen), 0.0, seen - told)
    # A curve with holes is judged by what is known of it, as if the rest were alike.
    loss = (weights * residual**2).sum(axis=1) * (rule.sum() / known)
    return {"loss": -loss, "confidence": (rule * told**2).sum(axis=1)}
