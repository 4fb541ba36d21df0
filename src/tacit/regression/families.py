"""Families of generalized linear models with canonical links, and scores of their predictions.

With a canonical link the score of a record is its regressors times outcome less mean, and its information the
regressors' outer product times the variance.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from scipy.special import expit, gammaln, xlogy

from tacit.errors import InvalidValue
from tacit.learning.task import Goal
from tacit.runtime.arrays import Array


class ResponseFamily(ABC):
    """Distribution of an outcome, given its linear predictor.

    Args:
        kind: Its name.
        title: The model in words.
        ratio: Name of the exponential of a coefficient; empty where that means nothing.
        dispersed: Whether the variance has a free factor.
        allowed: Allowed outcomes, in words.
    """

    kind: ClassVar[str]
    title: ClassVar[str]
    ratio: ClassVar[str] = ""
    dispersed: ClassVar[bool] = False
    allowed: ClassVar[str]

    @abstractmethod
    def mean(self, predictor: Array) -> Array:
        """Return the mean of each outcome."""

    @abstractmethod
    def variance(self, mean: Array) -> Array:
        """Return the variance of an outcome with this mean, at dispersion 1."""

    @abstractmethod
    def log_likelihood(self, predictor: Array, outcome: Array) -> Array:
        """Return the log-likelihood of each outcome; of a linear model, half the squared residual off 0."""

    @abstractmethod
    def valid(self, outcome: Array) -> bool:
        """Return True if these can be outcomes."""

    @abstractmethod
    def intercept(self, expected: Array, observed: Array) -> Array:
        """Return the intercept that fits best without columns; infinite where outcomes are all alike.

        Args:
            expected: Information of the intercept at predictor 0 (groups,).
            observed: Its score there (groups,).
        """

    def require_outcome(self, outcome: Array, place: str) -> None:
        """Refuse invalid outcomes; the message holds no value."""
        if not self.valid(outcome):
            told = f"the outcome in {place} is not allowed: {self.title} regression needs {self.allowed}"
            raise InvalidValue(
                told, rule=f"the outcome is not allowed: {self.title} regression needs {self.allowed}"
            )


class LinearFamily(ResponseFamily):
    """Normal outcomes with constant variance; coefficients are those of least squares."""

    kind = "linear"
    title = "linear"
    dispersed = True
    allowed = "finite numbers"

    def mean(self, predictor: Array) -> Array:
        """Return the predictor itself."""
        return predictor

    def variance(self, mean: Array) -> Array:
        """Return 1."""
        return np.ones_like(mean)

    def log_likelihood(self, predictor: Array, outcome: Array) -> Array:
        """Return half of each squared residual, negative."""
        return -((outcome - predictor) ** 2) / 2

    def valid(self, outcome: Array) -> bool:
        """Accept finite numbers."""
        return bool(np.isfinite(outcome).all())

    def intercept(self, expected: Array, observed: Array) -> Array:
        """Return the mean."""
        return observed / np.maximum(expected, 1e-300)


class LogisticFamily(ResponseFamily):
    """Outcomes of 0 and 1, with log odds that are linear."""

    kind = "logistic"
    title = "logistic"
    ratio = "odds ratio"
    allowed = "outcomes of 0 and 1"

    def mean(self, predictor: Array) -> Array:
        """Return the probability of 1."""
        return np.asarray(expit(predictor), dtype=np.float64)

    def variance(self, mean: Array) -> Array:
        """Return that of a Bernoulli variable."""
        return mean * (1 - mean)

    def log_likelihood(self, predictor: Array, outcome: Array) -> Array:
        """Return the log of each probability."""
        return -np.logaddexp(0.0, (1 - 2 * outcome) * predictor)

    def valid(self, outcome: Array) -> bool:
        """Accept 0 and 1."""
        return bool(np.isin(outcome, (0.0, 1.0)).all())

    def intercept(self, expected: Array, observed: Array) -> Array:
        """Return the log odds of the observed share of ones."""
        records = np.rint(4 * expected)
        ones = np.rint(observed + records / 2)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(ones) - np.log(records - ones)


class PoissonFamily(ResponseFamily):
    """Counts, with log rates that are linear."""

    kind = "poisson"
    title = "Poisson"
    ratio = "rate ratio"
    allowed = "counts: whole numbers of at least 0"

    def mean(self, predictor: Array) -> Array:
        """Return the expected count."""
        return np.exp(predictor)

    def variance(self, mean: Array) -> Array:
        """Return the mean."""
        return mean

    def log_likelihood(self, predictor: Array, outcome: Array) -> Array:
        """Return the log of each probability."""
        return outcome * predictor - np.exp(predictor) - np.asarray(gammaln(outcome + 1), dtype=np.float64)

    def valid(self, outcome: Array) -> bool:
        """Accept whole numbers of at least 0."""
        return bool(((outcome >= 0) & (outcome == np.floor(outcome))).all())

    def intercept(self, expected: Array, observed: Array) -> Array:
        """Return the log of the observed rate."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(np.rint(observed + expected)) - np.log(expected)


FAMILIES: Mapping[str, ResponseFamily] = {
    family.kind: family for family in (LinearFamily(), LogisticFamily(), PoissonFamily())
}


def goal_of(kind: str) -> Goal:
    """Return the score that counts for a family, and its good direction."""
    goals: dict[str, Goal] = {
        "linear": ("r2", "max"),
        "logistic": ("auc", "max"),
        "poisson": ("deviance", "min"),
    }
    return goals[kind]


def score_predictions(family: ResponseFamily, predictor: Array, outcome: Array) -> dict[str, float]:
    """Score linear predictors of records, offsets included.

    Args:
        family: The family of the outcome.
        predictor: The linear predictors (records,).
        outcome: The outcomes (records,).
    """
    with np.errstate(over="ignore"):
        mean = family.mean(predictor)
    if family.kind == "linear":
        rest, all_of_it = float(((outcome - mean) ** 2).mean()), float(outcome.var())
        return {"r2": 1 - rest / all_of_it if all_of_it else float("nan"), "rmse": float(np.sqrt(rest))}
    loss = -float(family.log_likelihood(predictor, outcome).mean())
    if family.kind == "logistic":
        return {"auc": _auc(predictor, outcome), "log_loss": loss}
    terms = np.asarray(xlogy(outcome, np.where(outcome > 0, outcome, 1.0)), dtype=np.float64)
    deviance = 2 * (terms - outcome * predictor - outcome + mean)
    return {"deviance": float(deviance.mean())}


def _auc(predictor: Array, outcome: Array) -> float:
    """The chance that a record with the outcome has a larger predictor than one without."""
    from scipy.stats import rankdata

    happened = outcome > 0
    ones = int(np.count_nonzero(happened))
    zeros = len(happened) - ones
    if not ones or not zeros:
        return float("nan")
    ranks = np.asarray(rankdata(predictor), dtype=np.float64)
    return float((ranks[happened].sum() - ones * (ones + 1) / 2) / (ones * zeros))
