"""Survival statistics across sites: Kaplan-Meier, Nelson-Aalen, log-rank tests, Cox regression."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.survival.statistics.cox_regression import breslow as breslow
    from tacit.survival.statistics.cox_regression import cox as cox
    from tacit.survival.statistics.cox_regression import proportional_hazards as proportional_hazards
    from tacit.survival.statistics.federated import aalen_johansen as aalen_johansen
    from tacit.survival.statistics.federated import censoring as censoring
    from tacit.survival.statistics.federated import kaplan_meier as kaplan_meier
    from tacit.survival.statistics.federated import life_table as life_table
    from tacit.survival.statistics.federated import logrank as logrank
    from tacit.survival.statistics.federated import nelson_aalen as nelson_aalen
    from tacit.survival.statistics.federated import restricted_mean as restricted_mean

__all__ = [
    "aalen_johansen",
    "breslow",
    "censoring",
    "cox",
    "kaplan_meier",
    "life_table",
    "logrank",
    "nelson_aalen",
    "proportional_hazards",
    "restricted_mean",
]

COX = ("breslow", "cox", "proportional_hazards")


def __getattr__(name: str) -> object:
    if name in __all__:
        home = "cox_regression" if name in COX else "federated"
        return getattr(import_module(f"tacit.survival.statistics.{home}"), name)
    raise AttributeError(f"module 'tacit.survival.statistics' has no attribute {name!r}")
