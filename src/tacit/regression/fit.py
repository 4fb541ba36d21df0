"""Results of a regression: coefficients, standard errors, tests and tables for a paper."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from tacit.errors import is_between, require
from tacit.regression.families import FAMILIES, ResponseFamily
from tacit.reports.text import format_rows
from tacit.runtime.arrays import Array

if TYPE_CHECKING:
    import pandas as pd


Rows = Sequence[tuple[str, str]]
Robust = bool | Literal["site"]


@dataclass(frozen=True, kw_only=True)
class RegressionOptions:
    """Options of a regression: intercepts, penalty and standard errors.

    Args:
        strata: `site` if each site has an intercept of its own; None if all share one.
        robust: Deviations from the model that the standard errors allow for: none, any of single records
            (sandwich), or any of whole sites as clusters.
        ridge: The penalty.
        level: Confidence level of the intervals.
    """

    strata: Literal["site"] | None = None
    robust: Robust = False
    ridge: float = 0.0
    level: float = 0.95

    def __post_init__(self) -> None:
        require(self.strata in ("site", None), "strata", self.strata, '"site" or None')
        require(self.robust in (False, True, "site"), "robust", self.robust, 'True, False or "site"')
        allowed = "0 or a finite number above it"
        require(self.ridge == 0 or is_between(self.ridge, 0, np.inf), "ridge", self.ridge, allowed)
        require(is_between(self.level, 0, 1), "level", self.level, "above 0 and below 1")


@dataclass(frozen=True, eq=False, kw_only=True)
class RegressionFit(RegressionOptions):
    """Fit of a regression: coefficients, standard errors, and the combination of sites.

    Args:
        kind: `linear`, `logistic` or `poisson`.
        outcome: The name of the outcome.
        columns: The names of the coefficients: intercepts first, then the columns.
        intercepts: Number of intercepts.
        coefficients: The estimates (coefficients,).
        covariance: Of the estimates (coefficients, coefficients); a sandwich if `robust`.
        model_covariance: The inverse of the information times the dispersion, which holds if the model does.
        log_likelihood: The log-likelihood, without the penalty.
        null_log_likelihood: That of intercepts alone.
        dispersion: The residual variance of a linear model; 1 for others.
        records: Number of records.
        iterations: Number of rounds.
        provenance: Description of how the sums behind it left the sites.
    """

    kind: str
    outcome: str
    columns: tuple[str, ...]
    intercepts: int
    coefficients: Array
    covariance: Array = field(repr=False)
    model_covariance: Array = field(repr=False)
    log_likelihood: float
    null_log_likelihood: float
    dispersion: float
    records: int
    iterations: int
    provenance: str

    @property
    def family(self) -> ResponseFamily:
        """The family of the outcome."""
        return FAMILIES[self.kind]

    @property
    def standard_errors(self) -> Array:
        """Return the standard errors of the estimates (coefficients,)."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def degrees(self) -> int:
        """Return the residual degrees of freedom."""
        return self.records - len(self.columns)

    @property
    def statistic(self) -> Literal["t", "z"]:
        """Return `t` for a linear model with constant variance, `z` otherwise, as statsmodels has it."""
        exact = self.family.dispersed and not self.robust and bool(np.isfinite(self.log_likelihood))
        return "t" if exact else "z"

    @property
    def r_squared(self) -> float:
        """Return the explained share of the variance; of other models, McFadden's share of likelihood."""
        if not self.family.dispersed:
            return 1 - self.log_likelihood / self.null_log_likelihood
        return 1 - float(np.exp(2 * (self.null_log_likelihood - self.log_likelihood) / self.records))

    def linear_predictor(self, features: ArrayLike, *, intercept: int = 0) -> Array:
        """Return the linear predictor of records (records,), without offset.

        Args:
            features: Their columns, in the order of the regression (records, columns).
            intercept: The position of the intercept, where sites have their own.
        """
        matrix = np.asarray(features, dtype=np.float64)
        return self.coefficients[intercept] + matrix @ self.coefficients[self.intercepts :]

    def predict(self, features: ArrayLike, *, intercept: int = 0) -> Array:
        """Return the mean of the outcome of records (records,), for an exposure of 1.

        Of a logistic model it is the probability of 1, such as a propensity score.

        Args:
            features: As for `linear_predictor`.
            intercept: As for `linear_predictor`.
        """
        return self.family.mean(self.linear_predictor(features, intercept=intercept))

    def summary(self) -> "pd.DataFrame":
        """Return a table with one row for each coefficient, as in statsmodels, with odds or rate ratios."""
        import pandas as pd
        from scipy.stats import norm, t

        errors, name = self.standard_errors, self.statistic
        ratio = self.coefficients / errors
        law = t(self.degrees) if name == "t" else norm()
        p = 2 * np.asarray(law.sf(np.abs(ratio)), dtype=np.float64)
        half = float(law.ppf(0.5 + self.level / 2)) * errors
        low, high = self.coefficients - half, self.coefficients + half
        below, above = (f"{share:.4g}" for share in ((1 - self.level) / 2, (1 + self.level) / 2))
        table = {
            "coef": self.coefficients,
            "std err": errors,
            name: ratio,
            f"P>|{name}|": p,
            f"[{below}": low,
            f"{above}]": high,
        }
        if self.family.ratio:
            with np.errstate(over="ignore"):
                table |= {
                    self.family.ratio: np.exp(self.coefficients),
                    f"{self.family.ratio} [{below}": np.exp(low),
                    f"{self.family.ratio} {above}]": np.exp(high),
                }
        return pd.DataFrame(table, index=pd.Index(self.columns, name="covariate"))

    def tests(self) -> "pd.DataFrame":
        """Test whether any column matters: likelihood ratio and Wald tests."""
        import pandas as pd
        from scipy.stats import chi2

        chosen = slice(self.intercepts, None)
        own = self.coefficients[chosen]
        wald = float(own @ np.linalg.pinv(self.covariance[chosen, chosen]) @ own)
        values = [2 * (self.log_likelihood - self.null_log_likelihood), wald]
        p = np.asarray(chi2.sf(values, len(own)), dtype=np.float64)
        index = pd.Index(["likelihood ratio", "Wald"], name="test")
        return pd.DataFrame({"statistic": values, "degrees": len(own), "p": p}, index=index)

    def text(self) -> str:
        """The fit for people: a header, the table, a footer."""
        table = self.summary().to_string(float_format=_short)
        return f"{format_rows(list(self._head()))}\n\n{table}\n\n{format_rows(list(self._foot()))}"

    def print_summary(self) -> None:
        """Print the summary as text."""
        print(self.text())

    def __str__(self) -> str:
        return self.text()

    def _head(self) -> Rows:
        robust = "robust" if self.robust is True else "robust, by site"
        return [
            ("model", f"{self.family.title} regression of {self.outcome}"),
            ("intercept", "one at each site" if self.strata == "site" else "one for all sites"),
            ("records", f"{self.records:,}"),
            ("log-likelihood", f"{self.log_likelihood:.4f}"),
            *([("standard errors", robust)] * bool(self.robust)),
            *([("ridge", f"{self.ridge:g}")] * bool(self.ridge)),
        ]

    def _foot(self) -> Rows:
        explained = "R-squared" if self.family.dispersed else "pseudo R-squared"
        return [
            (explained, f"{self.r_squared:.4f}"),
            *([("residual deviation", f"{np.sqrt(self.dispersion):.4g}")] * self.family.dispersed),
            ("AIC", f"{2 * len(self.columns) - 2 * self.log_likelihood:.4f}"),
            *self._test_lines(),
            ("rounds", str(self.iterations)),
            ("provenance", self.provenance),
        ]

    def _test_lines(self) -> Rows:
        return [
            (
                f"{name} test",
                f"{row['statistic']:.4f} on {row['degrees']:.0f} degrees of freedom, p {row['p']:.4g}",
            )
            for name, row in self.tests().iterrows()
        ]


def _short(value: float) -> str:
    return f"{value:.4g}"
