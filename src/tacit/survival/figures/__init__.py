"""The figures of a survival paper, each from plain results.

    runs          training, privacy_utility
    curves        estimates, kaplan_meier_by_site, cumulative_incidence, survival_curves, calibration
    importance    forest

Each gives a matplotlib figure, and keeps it in a file if a `path` is named. What a figure shows has left the
sites already, except in `kaplan_meier_by_site` of a federation and in `calibration`, which look at records.
"""

from tacit.reports.plots.privacy_utility import privacy_utility
from tacit.reports.plots.training import training
from tacit.survival.figures.curves import (
    by_site,
    calibration,
    cumulative_incidence,
    estimates,
    kaplan_meier_by_site,
    survival_curves,
)
from tacit.survival.figures.importance import forest

__all__ = [
    "by_site",
    "calibration",
    "cumulative_incidence",
    "estimates",
    "forest",
    "kaplan_meier_by_site",
    "privacy_utility",
    "survival_curves",
    "training",
]
