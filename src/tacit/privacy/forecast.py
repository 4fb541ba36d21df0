"""Forecast of the accuracy of a private run from public numbers, before anything is charged.

It counts features, records and sites, and no data. A run from which nothing can be learned is refused.
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from tacit.errors import Refused

# Noise of a forecast below which little is lost, above which much is, and above which nothing is learned.
LITTLE, MUCH, HOPELESS = 0.2, 0.8, 2.0
# Of the gain in the integrated Brier score over Kaplan-Meier, half is lost at this noise.
HALVED = 0.78
# Margin of the forecast C-index: without noise, and by its noise (docs/guides/private-training.md).
MARGIN = 0.02, 0.08


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Forecast of the accuracy under a promise to records, from public numbers alone.

    Args:
        per_feature: Standard deviation of the noise in log hazards, for one feature and one record; it grows
            with the number of features and falls with that of records.
        sites: Number of sites; None if the data decide it, and `per_feature` is for one site.
        features: Number of features; None if it is not public.
        records: Number of records of all sites; None if it is not public.
        secure: `per_feature` with one noise in secure sums; None where there are too few sites for that.
    """

    per_feature: float
    sites: int | None
    features: int | None
    records: int | None
    secure: float | None = None

    @property
    def with_one_noise(self) -> "Forecast | None":
        """Return the forecast for `noise = "secure"`; None if that is no choice, or was chosen."""
        if self.secure is None or self.secure >= self.per_feature:
            return None
        return replace(self, per_feature=self.secure)

    @property
    def noise(self) -> float | None:
        """Standard deviation of the noise in log hazards; None if a number is not public."""
        if self.features is None or self.records is None or self.sites is None:
            return None
        return self.per_feature * self.features / max(self.records, 1)

    @property
    def kept(self) -> float | None:
        """Share of an open model's C-index above one half that is expected to be left."""
        return None if self.noise is None else 1 / math.sqrt(1 + self.noise**2)

    @property
    def margin(self) -> float | None:
        """Half of the interval of the C-index that held in 90 % of 600 runs on 23 published sets."""
        return None if self.noise is None else MARGIN[0] + MARGIN[1] * min(self.noise, 1.5)

    @property
    def hopeless(self) -> bool:
        """Return True if nothing can be learned."""
        return self.noise is not None and self.noise > HOPELESS

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        found = {"noise": self.noise, "kept": self.kept, "margin": self.margin}
        return {**asdict(self), **found, "sentence": self.sentence()}

    @property
    def gain(self) -> float | None:
        """Share of an open model's gain over Kaplan-Meier in the Brier score that is expected to be left."""
        return None if self.noise is None else 1 / (1 + (self.noise / HALVED) ** 2)

    def sentence(self) -> str:
        """Return the forecast in words."""
        other = self.with_one_noise
        if self.noise is None or self.kept is None:
            # Every site adds the whole noise to its own sums.
            more = " (times the root of the number of sites)"
            more *= self.sites is None and self.secure != self.per_feature
            told = (
                f"each feature needs about {self.per_feature / LITTLE:,.0f} records of all sites{more} to "
                f"lose little accuracy; with {self.per_feature / MUCH:,.0f}, much is lost"
            )
            if other is None:
                return told
            less, least = other.per_feature / LITTLE, other.per_feature / MUCH
            return f'{told}; with noise = "secure", one noise for all sites, {less:,.0f} and {least:,.0f}'
        left = (
            f"with {self.records:,} records and {self.features} features, about {self.kept:.0%} of an open "
            f"model's C-index above 0.5 is left (± {self.margin:.2f}), and {self.gain:.0%} of its gain in "
            "Brier score over Kaplan-Meier"
        )
        if other is not None:
            both = f"{other.kept:.0%} and {other.gain:.0%}"
            left += f'; with noise = "secure", one noise for all sites, {both}'
        return left if self.noise <= MUCH else f"{left}. {REMEDY}"


REMEDY = "More epsilon, fewer features, more records, or public `ranges` would help"


def require_useful(forecast: Forecast | None, *, spend_anyway: bool) -> None:
    """Refuse a run from which nothing can be learned, before anything is charged.

    Raises:
        Refused: The forecast says that noise will hide everything.
    """
    if forecast is None or not forecast.hopeless or spend_anyway:
        return
    needed, other = _needed_records(forecast), forecast.with_one_noise
    shared = "" if other is None else f', with noise = "secure" {_needed_records(other):,}'
    raise Refused(
        f"the noise would hide what these records say: with this epsilon and {forecast.features} features, "
        f"about {needed:,} records of all sites are needed{shared}. {REMEDY}. Or run it all the same: "
        "--spend-anyway, or spend_anyway=True in Python"
    )


def _needed_records(forecast: Forecast) -> int:
    """Return the number of records of all sites from which something can be learned."""
    return math.ceil(forecast.per_feature * (forecast.features or 1) / MUCH)
