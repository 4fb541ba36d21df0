"""Results of a Cox regression: coefficients, standard errors, tests and tables for a paper.

A fit holds numbers that have left the sites already. One from noisy sums says so, counts the noise into its
standard errors, and shows no numbers at all where they would be noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import chi2, norm

from tacit.errors import is_between, require, require_word
from tacit.reports.text import format_rows
from tacit.runtime.arrays import Array
from tacit.survival.life_table import LifeTable
from tacit.survival.statistics.cox_newton import NewtonState, Ties

Rows = Sequence[tuple[str, str]]


@dataclass(frozen=True, eq=False, kw_only=True)
class CoxOptions:
    """Options of a Cox regression: strata, ties, penalty and standard errors.

    Args:
        strata: `site` if each site has a baseline hazard of its own; None if all share one.
        ties: Method for events at the same time.
        grid: The ends of the intervals that times are rounded up to, if they are.
        ridge: The penalty.
        robust: Deviations from the model that the standard errors allow for.
        level: Of the confidence intervals.
    """

    strata: Literal["site"] | None = "site"
    ties: Ties = "efron"
    grid: Array | None = field(default=None, repr=False)
    ridge: float = 0.0
    robust: bool | Literal["site"] = False
    level: float = 0.95

    def __post_init__(self) -> None:
        require(self.strata in ("site", None), "strata", self.strata, '"site" or None')
        require_word("ties", self.ties, ("efron", "breslow"))
        require(self.robust in (False, True, "site"), "robust", self.robust, 'True, False or "site"')
        allowed = "0 or a finite number above it"
        require(self.ridge == 0 or is_between(self.ridge, 0, np.inf), "ridge", self.ridge, allowed)
        require(is_between(self.level, 0, 1), "level", self.level, "above 0 and below 1")

    def fit(
        self, columns: Sequence[str], climb: NewtonState, covariance: Array | None = None, **found: Any
    ) -> "CoxFit":
        """Build the fit from the final state of Newton's method.

        Args:
            columns: The features.
            climb: The final state of Newton's method.
            covariance: Of the coefficients; by default that of the model.
            found: The other fields of a `CoxFit`.
        """
        assert climb.here is not None
        assert climb.null is not None
        inverse = climb.inverse(self.ridge)
        return CoxFit(
            **vars(self),
            columns=tuple(columns),
            coefficients=climb.beta,
            model_covariance=inverse,
            log_likelihood=climb.here.log_likelihood,
            null_log_likelihood=climb.null.log_likelihood,
            score=climb.null.score_statistic,
            iterations=climb.asked,
            covariance=inverse if covariance is None else covariance,
            **found,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class CoxFit(CoxOptions):
    """Fit of a Cox regression: coefficients, standard errors, and the combination of sites.

    Args:
        columns: The features.
        coefficients: Log hazard ratios (columns,).
        covariance: Of the coefficients (columns, columns); a sandwich if `robust`.
        model_covariance: The inverse of the information, which holds if the model does.
        log_likelihood: The partial log-likelihood, without the penalty.
        null_log_likelihood: That of no effect at all.
        score: The score statistic at no effect.
        records: Number of records.
        events: Number of records with an event.
        concordance: Of pairs of records at the same site; NaN where none can be compared.
        concordance_error: Its standard error, by the infinitesimal jackknife.
        iterations: Number of rounds.
        provenance: Description of how the sums behind it left the sites.
    """

    columns: tuple[str, ...]
    coefficients: Array
    covariance: Array = field(repr=False)
    model_covariance: Array = field(repr=False)
    log_likelihood: float
    null_log_likelihood: float
    score: float
    records: int
    events: int
    concordance: float
    concordance_error: float = float("nan")
    iterations: int
    provenance: str

    @property
    def standard_errors(self) -> Array:
        """Return the standard errors of the coefficients (columns,)."""
        return np.sqrt(np.diag(self.covariance))

    def log_risk(self, features: ArrayLike) -> Array:
        """Return the log hazard ratio of each record (records,) against one whose features are all 0."""
        return np.asarray(features, dtype=np.float64) @ self.coefficients

    def summary(self) -> pd.DataFrame:
        """Return a table with one row for each feature; its columns are those of lifelines."""
        half = float(norm.ppf(0.5 + self.level / 2)) * self.standard_errors
        z, share = self.coefficients / self.standard_errors, f"{100 * self.level:g}%"
        p = np.asarray(chi2.sf(z**2, 1), dtype=np.float64)
        with np.errstate(over="ignore", divide="ignore"):
            columns = {
                "coef": self.coefficients,
                "exp(coef)": np.exp(self.coefficients),
                "se(coef)": self.standard_errors,
                f"coef lower {share}": self.coefficients - half,
                f"coef upper {share}": self.coefficients + half,
                f"exp(coef) lower {share}": np.exp(self.coefficients - half),
                f"exp(coef) upper {share}": np.exp(self.coefficients + half),
                "cmp to": np.zeros_like(z),
                "z": z,
                "p": p,
                "-log2(p)": -np.log2(p),
            }
        return pd.DataFrame(columns, index=pd.Index(self.columns, name="covariate"))

    def tests(self) -> pd.DataFrame:
        """Test whether any column matters: likelihood ratio, Wald and score tests."""
        found = {
            "likelihood ratio": 2 * (self.log_likelihood - self.null_log_likelihood),
            "Wald": self._wald(),
            "score": self.score,
        }
        return self._test_table(found)

    def text(self) -> str:
        """Format the fit as text: a header, the table, a footer."""
        table = self.summary().drop(columns="cmp to").to_string(float_format=_short)
        return f"{format_rows(list(self._head()))}\n\n{table}\n\n{format_rows(list(self._foot()))}"

    def print_summary(self) -> None:
        """Print the summary as text."""
        print(self.text())

    def __str__(self) -> str:
        return self.text()

    def _wald(self) -> float:
        return float(self.coefficients @ np.linalg.pinv(self.covariance) @ self.coefficients)

    def _test_table(self, statistics: dict[str, float]) -> pd.DataFrame:
        values = list(statistics.values())
        p = np.asarray(chi2.sf(values, len(self.columns)), dtype=np.float64)
        index = pd.Index(list(statistics), name="test")
        return pd.DataFrame({"statistic": values, "degrees": len(self.columns), "p": p}, index=index)

    def _head(self) -> Rows:
        robust = "robust" if self.robust is True else "robust, by site"
        return [
            ("model", f"Cox regression, {self.ties} ties"),
            ("baseline", "one at each site" if self.strata == "site" else "one for all sites"),
            ("records", f"{self.records:,}"),
            ("events", f"{self.events:,}"),
            ("partial log-likelihood", f"{self.log_likelihood:.4f}"),
            *([("standard errors", robust)] * bool(self.robust)),
            *([("ridge", f"{self.ridge:g}")] * bool(self.ridge)),
        ]

    def _foot(self) -> Rows:
        return [
            ("concordance within sites", f"{self.concordance:.4f} (se {self.concordance_error:.4f})"),
            ("partial AIC", f"{2 * len(self.columns) - 2 * self.log_likelihood:.4f}"),
            *self._test_lines(),
            ("rounds", str(self.iterations)),
            ("provenance", self.provenance),
        ]

    def _test_lines(self) -> Rows:
        return [
            (f"{name} test", f"{row['statistic']:.4f} on {len(self.columns)} df, p {row['p']:.4g}")
            for name, row in self.tests().iterrows()
        ]


@dataclass(frozen=True, eq=False, kw_only=True)
class PrivateCoxFit(CoxFit):
    """A Cox regression from noisy sums, whose standard errors count the noise.

    What cannot be computed from the sums, such as likelihoods and the concordance, is NaN; so are all
    coefficients if the fit is too noisy to be of use.

    Args:
        noise_covariance: Addition of the noise to the covariance of the model (columns, columns).
        signal: The least information about any combination of columns, in units of what noise alone could
            pretend; below `tacit.survival.statistics.cox_regression.USABLE` nothing is shown.
        table: Exits by interval as they left the sites, for curves that cost nothing more.
    """

    noise_covariance: Array = field(repr=False)
    signal: float
    table: LifeTable = field(repr=False)

    @property
    def usable(self) -> bool:
        """Return True if the information of the records exceeds the noise."""
        return bool(np.isfinite(self.coefficients).all())

    def tests(self) -> pd.DataFrame:
        """Test whether any column matters: the Wald test, the only one that noisy sums allow."""
        return self._test_table({"Wald": self._wald() if self.usable else float("nan")})

    def _head(self) -> Rows:
        return [
            ("model", "Cox regression, hazards constant within intervals"),
            ("baseline", "one at each site, of one shape" if self.strata == "site" else "one for all sites"),
            ("records", f"about {self.records:,}"),
            ("events", f"about {self.events:,}"),
            ("standard errors", "DP, noise-adjusted"),
            *([] if self.usable else [("TOO NOISY", TOO_NOISY)]),
        ]

    def _foot(self) -> Rows:
        with np.errstate(invalid="ignore"):
            shares = np.sqrt(np.diag(self.noise_covariance) / np.diag(self.covariance))
        told = f"up to {100 * np.nanmax(shares):.0f} % of a standard error" if self.usable else "too much"
        return [
            ("noise", told),
            *(self._test_lines() if self.usable else []),
            ("rounds", str(self.iterations)),
            ("provenance", self.provenance),
        ]


TOO_NOISY = (
    "the noise hides the effect of some column, so no number is shown. Give a larger epsilon, fewer columns, "
    "a smaller bound, strata=None, or more records at each site"
)


def _short(value: float) -> str:
    return f"{value:.4g}"
