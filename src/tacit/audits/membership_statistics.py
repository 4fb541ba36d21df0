"""Statistics of membership inference: ROC curves, likelihood ratios (LiRA), TPR at a low FPR.

An attack is a score that should be higher for members: for people who were in the training. This module knows
scores alone, not models and records. An attack that fails proves nothing; one that succeeds shows a leak.

Membership inference on a fitted model of curves: does it reveal its training subjects?

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

from tacit.errors import require
from tacit.functional.metrics import quadrature

__all__ = [
    "ALARMS",
    "AttackResult",
    "CurveMembership",
    "TprAtFpr",
    "attack",
    "lira",
    "membership",
    "membership_scores",
    "roc",
    "tpr_at_fpr",
]

Array = NDArray[np.float64]
Marks = NDArray[np.bool_]

# The share of false alarms at which an attack is read, where nothing else is asked for.
ALARMS = 0.1
# One false alarm among 100 others: an attack that accuses half of the town is no attack.
FEW_ALARMS = 0.01
# The number of points of an ROC curve in a report.
POINTS = 200
RESAMPLES = 400
LEVEL = 0.95
# Fewer models leave a record without others to compare with.
FEWEST_MODELS = 3
# A record with fewer scores than these has the variance of all, which is better known (Carlini et al. 2022).
ENOUGH = 32


@dataclass(frozen=True, kw_only=True)
class AttackResult:
    """Accuracy with which one score distinguishes members from non-members.

    Args:
        auc: The probability that a member has the higher score than another subject; ties count one half. 1/2
            is a coin.
        advantage: The largest difference, over thresholds, of the share of members found and of others.
        found: The share of members found by the best threshold that takes at most `alarms` of the others.
        alarms: That share.
        members: The number of scored members.
        others: The number of scored others.
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
class TprAtFpr:
    """True positive rate of an attack at a false positive rate, with an interval.

    Args:
        found: The share of members that is named.
        low: The lower end of its interval, over models and people.
        high: The upper end.
        alarms: The largest share of others that is taken for members.
    """

    found: float
    low: float
    high: float
    alarms: float

    def as_dict(self) -> dict[str, float | int]:
        """Plain data: the share that is found, and the others in people of 100."""
        low, high = round(100 * self.low), round(100 * self.high)
        return {
            "found": self.found, "alarms": self.alarms, "named": self.of_hundred, "low": low, "high": high
        }  # fmt: skip

    @property
    def of_hundred(self) -> int:
        """Number of members named among 100."""
        return round(100 * self.found)


def attack(members: ArrayLike, others: ArrayLike, *, alarms: float = ALARMS) -> AttackResult:
    """Judge a score by all its thresholds.

    Args:
        members: The scores of members (subjects,).
        others: The scores of others.
        alarms: The share of others that may be taken for members.
    """
    inside, outside = _scores("members", members), _scores("others", others)
    _require_share(alarms)
    false, true = _roc(inside, outside)
    return AttackResult(
        auc=float(np.sum(np.diff(false) * (true[1:] + true[:-1])) / 2),
        advantage=float((true - false).max()),
        found=float(true[false <= alarms].max()),
        alarms=float(alarms),
        members=len(inside),
        others=len(outside),
    )


def roc(members: ArrayLike, others: ArrayLike) -> dict[str, list[float]]:
    """The ROC curve of a score for a report: shares of `false` alarms, and of members that are `true` finds.

    Every point is one of the exact curve, from none to all. At most `POINTS` are kept, evenly spread over the
    logarithm of false alarms: few of them matter most.
    """
    false, true = _roc(_scores("members", members), _scores("others", others))
    wanted: Array = np.geomspace(float(false[false > 0].min()), 1.0, POINTS - 2)
    # Of equally many false alarms the last has found the most.
    kept = np.unique([0, *(np.searchsorted(false, np.append(0.0, wanted), side="right") - 1)])
    return {"false": false[kept].tolist(), "true": true[kept].tolist()}


def lira(scores: ArrayLike, present: ArrayLike) -> Array:
    """Likelihood ratio attack (LiRA): log-ratio of a record's score if the model saw it and if not.

    Each model in turn is the target, and all others are its shadows: those that saw the record give the law
    of its score then, the others its law otherwise, as two normal laws (Carlini et al. 2022). With few
    shadows the variances are those of all records together.

    Args:
        scores: Of each record under each model, high for members (models, records).
        present: True where the model was trained on the record, of the same shape.

    Returns:
        Ratios (models, records), each found without looking at its own entry of `present`.
    """
    given, inside = _matrices(scores, present)
    require(
        len(given) >= FEWEST_MODELS, "models", len(given), f"at least {FEWEST_MODELS}: all but one shadow"
    )
    shadows = [_shadows(given, inside, target) for target in range(len(given))]
    return np.stack([_log_ratio(row, *seen) for row, seen in zip(given, shadows, strict=True)])


def tpr_at_fpr(scores: ArrayLike, present: ArrayLike, *, alarms: float = FEW_ALARMS) -> TprAtFpr:
    """Return the true positive rate at a false positive rate, with a 95 % interval.

    Scores of one model, and those of one record, are dependent: a binomial interval would be too short.
    Models and records are both resampled, and every score counts as often as its model and its record were
    drawn (Owen 2007), which errs toward long intervals.

    Args:
        scores: Of each record under each model, high for members (models, records).
        present: True where the model was trained on the record, of the same shape.
        alarms: The share of others that may be taken for members.
    """
    given, inside = _matrices(scores, present)
    _require_share(alarms)
    draws = np.random.default_rng(0)
    again = [
        np.outer(*(draws.multinomial(size, np.full(size, 1 / size)) for size in given.shape))
        for _ in range(RESAMPLES)
    ]
    found = _tpr(given, inside, [np.ones(given.shape, dtype=np.int64), *again], alarms)
    low, high = np.nanquantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return TprAtFpr(found=float(found[0]), low=float(low), high=float(high), alarms=float(alarms))


def _shadows(given: Array, inside: Marks, target: int) -> tuple[Array, Array, Array, Array]:
    """Means and variances of each record's scores in all models but the target: without it, and with it."""
    others, seen = np.delete(given, target, axis=0), np.delete(inside, target, axis=0)
    (mean_out, own_out), (mean_in, own_in) = (_moments(others, marks) for marks in (~seen, seen))
    # A record that all shadows saw, or none, is taken to gain as much as others do.
    gains = (mean_in - mean_out)[np.isfinite(mean_in - mean_out)]
    gain = float(gains.mean()) if len(gains) else 0.0
    known_out = np.where(np.isnan(mean_out), mean_in - gain, mean_out)
    known_in = np.where(np.isnan(mean_in), mean_out + gain, mean_in)
    return known_out, own_out, known_in, own_in


def _moments(given: Array, marks: Marks) -> tuple[Array, Array]:
    """Return the mean of each record's marked scores, NaN where there are none, and their variance."""
    count = marks.sum(axis=0)
    mean = np.divide(
        np.where(marks, given, 0.0).sum(axis=0), count, out=np.full(len(count), np.nan), where=count > 0
    )
    squares = (np.where(marks, given - mean, 0.0) ** 2).sum(axis=0)
    free = np.maximum(count - 1, 0)
    together = float(squares.sum()) / max(int(free.sum()), 1)
    own = np.where(count >= ENOUGH, squares / np.maximum(free, 1), np.full(len(count), together))
    # Constant scores have variance 0, which would divide by zero.
    return mean, np.maximum(own, np.finfo(np.float64).eps ** 2)


def _log_ratio(row: Array, mean_out: Array, own_out: Array, mean_in: Array, own_in: Array) -> Array:
    without, having = (row - mean_out) ** 2 / own_out, (row - mean_in) ** 2 / own_in
    return (without - having + np.log(own_out / own_in)) / 2


def _tpr(given: Array, inside: Marks, weights: list[NDArray[np.int64]], alarms: float) -> Array:
    """Return the true positive rate at these false alarms, by each weighting; NaN without members."""
    order = np.argsort(-given, axis=None)
    falling, members = given.ravel()[order], inside.ravel()[order]
    # Ties go together: a threshold lies behind the last of them.
    last = np.append(np.flatnonzero(np.diff(falling)), len(falling) - 1)
    shares: list[float] = []
    for each in weights:
        weight = each.ravel()[order]
        true, false = (np.cumsum(np.where(marks, weight, 0)) for marks in (members, ~members))
        allowed = false[last] <= alarms * false[-1]
        best = true[last][allowed].max(initial=0.0)
        shares.append(best / true[-1] if true[-1] > 0 and false[-1] > 0 else np.nan)
    return np.array(shares)


def _matrices(scores: ArrayLike, present: ArrayLike) -> tuple[Array, Marks]:
    given, inside = np.asarray(scores, dtype=np.float64), np.asarray(present)
    fits = given.ndim == 2 and given.shape == inside.shape and inside.dtype == np.bool_
    shapes = f"shapes {given.shape} and {inside.shape} of {inside.dtype}"
    require(fits, "scores and present", shapes, "two matrices, models by records, the second of truth values")
    require(bool(np.isfinite(given).all()), "scores", "NaN or infinity", "finite")
    both = bool(inside.any()) and not bool(inside.all())
    require(both, "present", f"{int(inside.sum())} of {inside.size}", "some, and not all")
    return given, inside


def _require_share(alarms: float) -> None:
    require(0 <= alarms <= 1, "alarms", alarms, "from 0 to 1")


def _scores(field: str, given: ArrayLike) -> Array:
    found = np.asarray(given, dtype=np.float64)
    require(found.ndim == 1 and len(found) > 0, field, f"shape {found.shape}", "one score for each subject")
    require(bool(np.isfinite(found).all()), field, "NaN or infinity", "finite scores")
    return found


def _roc(members: Array, others: Array) -> tuple[Array, Array]:
    """Return false and true positive rates at each threshold, from none to all; ties count together."""
    thresholds = np.unique(np.concatenate([members, others]))[::-1]
    return _at_least(others, thresholds), _at_least(members, thresholds)


def _at_least(scores: Array, thresholds: Array) -> Array:
    counts = len(scores) - np.searchsorted(np.sort(scores), thresholds, side="left")
    return np.concatenate([[0.0], counts / len(scores)])


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
    """Attack a model by its predictions for its training subjects and for others.

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
