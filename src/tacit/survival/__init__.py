"""Survival analysis: data, models, statistics, metrics, synthetic records, figures."""

from importlib import import_module

from tacit.survival.tasks import CoxCC as CoxCC
from tacit.survival.tasks import CoxPH as CoxPH
from tacit.survival.tasks import CoxTime as CoxTime
from tacit.survival.tasks import DeepHit as DeepHit
from tacit.survival.tasks import DeepSurv as DeepSurv
from tacit.survival.tasks import LogisticHazard as LogisticHazard
from tacit.survival.tasks import PCHazard as PCHazard
from tacit.survival.tasks import PoissonPH as PoissonPH

__all__ = ["CoxCC", "CoxPH", "CoxTime", "DeepHit", "DeepSurv", "LogisticHazard", "PCHazard", "PoissonPH"]

_MODULES = {
    "augment",
    "data",
    "figures",
    "life_table",
    "metrics",
    "models",
    "partial_effects",
    "statistics",
    "targets",
    "tasks",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"tacit.survival.{name}")
    raise AttributeError(f"module 'tacit.survival' has no attribute {name!r}")
