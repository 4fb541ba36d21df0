"""Survival statistics across sites: Kaplan-Meier, Nelson-Aalen, log-rank tests, Cox regression."""

from typing import TYPE_CHECKING

from tacit.runtime.imports import lazy

if TYPE_CHECKING:
    from tacit.survival.statistics.cox_regression import cox as cox
    from tacit.survival.statistics.cox_regression import proportional_hazards as proportional_hazards
    from tacit.survival.statistics.federated import aalen_johansen as aalen_johansen
    from tacit.survival.statistics.federated import breslow as breslow
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

_COX = ("cox", "proportional_hazards")

__getattr__ = lazy(
    __name__,
    {name: f"{__name__}.{'cox_regression' if name in _COX else 'federated'}" for name in __all__},
)
