"""Results of a private regression: coefficients with standard errors that count the noise."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tacit.regression.fit import RegressionFit
from tacit.regression.private_path import PathState, PrivatePath, estimate
from tacit.runtime.arrays import Array

if TYPE_CHECKING:
    import pandas as pd


# Noise of so many standard errors of the model hides a coefficient.
HIDDEN = 3.0


@dataclass(frozen=True, eq=False, kw_only=True)
class PrivateRegressionFit(RegressionFit):
    """A regression from noisy sums, whose standard errors count the noise.

    Likelihoods cannot be computed from the sums and are NaN. A coefficient whose noise exceeds three standard
    errors of the model is hidden by noise: its interval still holds, and its value says little.

    Args:
        noise_covariance: Addition of the noise to the covariance of the model (coefficients, coefficients).
    """

    noise_covariance: Array = field(repr=False)

    @property
    def noise_errors(self) -> Array:
        """Return the standard deviation of the noise in each coefficient (coefficients,)."""
        return np.sqrt(np.diag(self.noise_covariance))

    @property
    def hidden(self) -> tuple[str, ...]:
        """Return the names of the coefficients that the noise hides."""
        with np.errstate(invalid="ignore"):
            shown = self.noise_errors <= HIDDEN * np.sqrt(np.diag(self.model_covariance))
        return tuple(name for name, seen in zip(self.columns, shown.tolist(), strict=True) if not seen)

    def summary(self) -> "pd.DataFrame":
        """Return the table of an open fit, with the noise of each coefficient and whether it hides it."""
        words = ["hidden by noise" if name in self.hidden else "" for name in self.columns]
        return super().summary().assign(**{"noise": self.noise_errors, "note": words})

    def tests(self) -> "pd.DataFrame":
        """Test whether any column matters: the Wald test, the only one that noisy sums allow."""
        import pandas as pd
        from scipy.stats import chi2

        chosen = slice(self.intercepts, None)
        own = self.coefficients[chosen]
        found = float("nan")
        if bool(np.isfinite(self.covariance).all()):
            found = float(own @ np.linalg.pinv(self.covariance[chosen, chosen]) @ own)
        p = np.asarray(chi2.sf([found], len(own)), dtype=np.float64)
        table = {"statistic": [found], "degrees": len(own), "p": p}
        return pd.DataFrame(table, index=pd.Index(["Wald"], name="test"))

    def _head(self) -> Sequence[tuple[str, str]]:
        mend = "give a larger epsilon, fewer columns or more records"
        hidden = f"hidden by noise: {', '.join(self.hidden)}; {mend}"
        return [
            ("model", f"{self.family.title} regression of {self.outcome}"),
            ("intercept", "one for all sites"),
            ("records", f"about {max(self.records, 0):,}"),
            ("standard errors", "DP, noise-adjusted"),
            *([("coefficients", hidden)] * bool(self.hidden)),
        ]

    def _foot(self) -> Sequence[tuple[str, str]]:
        deviation = [("residual deviation", f"{np.sqrt(self.dispersion):.4g}")]
        return [
            *(deviation * self.family.dispersed),
            *self._test_lines(),
            ("rounds", str(self.iterations)),
            ("provenance", self.provenance),
        ]


def private_fit(path: PrivatePath, state: PathState, level: float, provenance: str) -> PrivateRegressionFit:
    """Build the fit from the state after the last round.

    Args:
        path: The rule of the rounds.
        state: The state.
        level: Confidence level of the intervals.
        provenance: How the sums left the sites.
    """
    found, nothing = estimate(path, state), float("nan")
    return PrivateRegressionFit(
        level=level,
        kind=path.kind,
        outcome=path.scale.variables.outcome,
        columns=("intercept", *path.scale.variables.columns),
        intercepts=1,
        coefficients=found.coefficients,
        covariance=found.model + found.noise,
        model_covariance=found.model,
        noise_covariance=found.noise,
        log_likelihood=nothing,
        null_log_likelihood=nothing,
        dispersion=found.deviation**2,
        records=round(found.records),
        iterations=state.number,
        provenance=provenance,
    )
