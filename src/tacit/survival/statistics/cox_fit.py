"""Results of a Cox regression: coefficients, standard errors, tests and tables for a paper.

A fit holds numbers that have left the sites already. One from noisy sums says so, counts the noise into its
standard errors, and hides each coefficient that would be noise, with the reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import is_between, require, require_positive, require_word
from tacit.reports.text import format_rows
from tacit.runtime.arrays import Array
from tacit.survival.life_table import LifeTable
from tacit.survival.statistics.cox_newton import NewtonState, Ties

if TYPE_CHECKING:
    import pandas as pd


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

    def summary(self) -> "pd.DataFrame":
        """Return a table with one row for each feature; its columns are those of lifelines."""
        import pandas as pd
        from scipy.stats import chi2, norm

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

    def tests(self) -> "pd.DataFrame":
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

    def _test_table(self, statistics: dict[str, float]) -> "pd.DataFrame":
        import pandas as pd
        from scipy.stats import chi2

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

    A coefficient is shown if its noise is no more than `SHOWN` times its standard error without noise. Others
    are hidden: the summary gives their intervals and the reason. What cannot be computed from the sums, such
    as likelihoods and the concordance, is NaN.

    Args:
        noise_covariance: Addition of the noise to the covariance of the model (columns, columns).
        followed: Expected events up to which a typical record was followed. Where an effect is not
            log-linear, the estimate is that of records followed so far, and may differ from an open fit.
        table: Exits by interval as they left the sites, for curves that cost nothing more.
    """

    noise_covariance: Array = field(repr=False)
    followed: float
    table: LifeTable = field(repr=False)

    @property
    def noise_ratios(self) -> Array:
        """Return the noise of each coefficient in standard errors without noise (columns,)."""
        return np.sqrt(np.diag(self.noise_covariance) / np.diag(self.model_covariance))

    @property
    def shown(self) -> NDArray[np.bool_]:
        """Mark the coefficients whose noise is small enough to show them (columns,)."""
        return self.noise_ratios <= SHOWN

    @property
    def usable(self) -> bool:
        """Return True if some coefficient is shown."""
        return bool(self.shown.any())

    def summary(self) -> "pd.DataFrame":
        """Return a table with the columns of lifelines and a note; hidden estimates are NaN, not intervals.

        `attrs["notes"]` has the notes on the whole fit.
        """
        table, hidden = super().summary(), ~self.shown
        table.loc[hidden, ["coef", "exp(coef)", "z", "p", "-log2(p)"]] = np.nan
        table["note"] = [
            HIDDEN.format(ratio) if away else ""
            for ratio, away in zip(self.noise_ratios, hidden.tolist(), strict=True)
        ]
        table.attrs["notes"] = self.notes()
        return table

    def notes(self) -> list[str]:
        """Return notes on the whole fit: the reach of its estimates, and the reason for hidden ones."""
        reach = (
            f"a typical record was followed up to {self.followed:.1f} expected events; the intervals do not "
            "contain the bias of effects that are not log-linear"
        )
        warning = (
            f"WARNING: {reach}, which may be large below {FOLLOWED_ENOUGH:g}. Transform skewed columns "
            "(log1p), narrow their ranges, raise epsilon, or set `followed` and accept more noise"
        )
        hidden = [name for name, here in zip(self.columns, self.shown.tolist(), strict=True) if not here]
        found = [warning if self.followed < FOLLOWED_ENOUGH else reach]
        if hidden:
            found.append(
                f"HIDDEN by noise: {', '.join(hidden)}. The noise is more than {SHOWN:g} times the standard "
                "error without it, because of few events, or because columns say nearly the same. Give a "
                'larger epsilon, fewer columns, more records, or one noise for all sites (noise = "secure" '
                "in a file)"
            )
        return found

    def shrunk(self, deviation: float) -> "pd.DataFrame":
        """Return shrunken estimates: posterior means under a normal prior around 0, with their deviations.

        Noise that hides an effect shrinks it instead of inventing one. These estimates are biased toward 0;
        the intervals are credible ones.

        Args:
            deviation: Prior standard deviation of a coefficient.
        """
        import pandas as pd
        from scipy.stats import norm

        require_positive("deviation", deviation)
        prior = deviation**2 * np.eye(len(self.columns))
        gain = np.linalg.solve(prior + self.covariance, prior).T
        found, spread = gain @ self.coefficients, np.sqrt(np.diag(gain @ self.covariance))
        half, share = float(norm.ppf(0.5 + self.level / 2)) * spread, f"{100 * self.level:g}%"
        columns = {
            "shrunken coef": found,
            "exp(coef)": np.exp(found),
            "posterior sd": spread,
            f"coef lower {share}": found - half,
            f"coef upper {share}": found + half,
        }
        return pd.DataFrame(columns, index=pd.Index(self.columns, name="covariate"))

    def tests(self) -> "pd.DataFrame":
        """Test whether any column matters: the Wald test, the only one that noisy sums allow."""
        return self._test_table({"Wald": self._wald()})

    def text(self) -> str:
        """Format the fit as text: a header, the table, notes, a footer."""
        table = self.summary().drop(columns="cmp to").to_string(float_format=_short, na_rep="hidden")
        parts = [format_rows(list(self._head())), table, *self.notes(), format_rows(list(self._foot()))]
        return "\n\n".join(parts)

    def _head(self) -> Rows:
        return [
            ("model", "Cox regression, hazards constant within intervals"),
            ("baseline", "one at each site, of one shape" if self.strata == "site" else "one for all sites"),
            ("records", f"about {self.records:,}"),
            ("events", f"about {self.events:,}"),
            ("standard errors", "DP, noise-adjusted"),
            ("shown", f"{int(self.shown.sum())} of {len(self.columns)} coefficients"),
        ]

    def _foot(self) -> Rows:
        shares = np.sqrt(np.diag(self.noise_covariance) / np.diag(self.covariance))
        return [
            ("noise", f"up to {100 * shares.max():.0f} % of a standard error"),
            *self._test_lines(),
            ("rounds", str(self.iterations)),
            ("provenance", self.provenance),
        ]


# A coefficient is shown if its noise is at most so many standard errors without noise.
SHOWN = 3.0
# Expected events from which on follow-up is long enough for effects that are not quite log-linear.
FOLLOWED_ENOUGH = 3.0
HIDDEN = "hidden by noise: {:.1f} times the standard error without it"


def _short(value: float) -> str:
    return f"{value:.4g}"
