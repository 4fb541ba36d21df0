"""Whether a fitted model gives away whose curves it was fitted to.

Two attacks on predictions: by loss, since a model may fit its own subjects better, and by confidence, since
it may predict larger curves for them. Each is a score that is to be higher for members, judged by its exact
ROC curve over all thresholds. An attack that fails proves nothing; one that succeeds shows a leak.

It needs to know who is a member, so it is for simulated, public or held-out subjects, and what it finds is as
private as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import require
from tacit.functional.metrics import quadrature

__all__ = ["Attack", "Membership", "attack", "judge", "membership"]

Array = NDArray[np.float64]
Score = Literal["loss", "confidence"]

# The share of false alarms at which an attack is read.
ALARMS = 0.1


@dataclass(frozen=True, kw_only=True)
class Attack:
    """How well one score tells members from others.

    Args:
        auc: How often a member has the higher score than another subject; ties count one half. 1/2 is a coin.
        advantage: The largest difference, over thresholds, of the share of members found and of others.
        found: The share of members found by the best threshold that takes at most `alarms` of the others.
        alarms: That share.
        members: How many members were scored.
        others: How many others.
    """

    auc: float
    advantage: float
    found: float
    alarms: float
    members: int
    others: int

    def as_dict(self) -> dict[str, float | int]:
        """Plain data."""
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class Membership:
    """Both attacks on one model.

    Args:
        loss: By minus the squared length of the residual curve.
        confidence: By the squared length of the predicted curve.
    """

    loss: Attack
    confidence: Attack

    def as_dict(self) -> dict[str, dict[str, float | int]]:
        """Plain data."""
        return {"loss": self.loss.as_dict(), "confidence": self.confidence.as_dict()}


def membership(
    members: tuple[ArrayLike, ArrayLike],
    others: tuple[ArrayLike, ArrayLike],
    times: ArrayLike | None = None,
    *,
    alarms: float = ALARMS,
) -> Membership:
    """Attack a model by what it predicts for its own subjects and for others.

    Args:
        members: True and predicted curves of subjects that the model was fitted to (subjects, times).
        others: The same of subjects that it never saw.
        times: The grid, ascending; None if curves are coordinates in orthonormal functions.
        alarms: The share of others that may be taken for members.
    """
    inside, outside = judge(*members, times), judge(*others, times)
    return Membership(
        loss=attack(inside["loss"], outside["loss"], alarms=alarms),
        confidence=attack(inside["confidence"], outside["confidence"], alarms=alarms),
    )


def judge(true: ArrayLike, predicted: ArrayLike, times: ArrayLike | None = None) -> Mapping[Score, Array]:
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


def attack(members: ArrayLike, others: ArrayLike, *, alarms: float = ALARMS) -> Attack:
    """Judge a score by all its thresholds.

    Args:
        members: The scores of members (subjects,).
        others: The scores of others.
        alarms: The share of others that may be taken for members.
    """
    inside, outside = _scores("members", members), _scores("others", others)
    require(0 <= alarms <= 1, "alarms", alarms, "from 0 to 1")
    false, true = _roc(inside, outside)
    return Attack(
        auc=float(np.sum(np.diff(false) * (true[1:] + true[:-1])) / 2),
        advantage=float((true - false).max()),
        found=float(true[false <= alarms].max()),
        alarms=float(alarms),
        members=len(inside),
        others=len(outside),
    )


def _scores(field: str, given: ArrayLike) -> Array:
    found = np.asarray(given, dtype=np.float64)
    require(found.ndim == 1 and len(found) > 0, field, f"shape {found.shape}", "one score for each subject")
    require(bool(np.isfinite(found).all()), field, "NaN or infinity", "finite scores")
    return found


def _roc(members: Array, others: Array) -> tuple[Array, Array]:
    """The shares of others and of members at or above each threshold, from none to all; ties go together."""
    thresholds = np.unique(np.concatenate([members, others]))[::-1]
    return _at_least(others, thresholds), _at_least(members, thresholds)


def _at_least(scores: Array, thresholds: Array) -> Array:
    counts = len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")
    return np.concatenate([[0.0], counts / len(scores)])
