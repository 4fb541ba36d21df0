"""Survival analysis: data, models, statistics, metrics, synthetic records, figures."""

from tacit.runtime.imports import lazy
from tacit.survival.tasks import CoxCC as CoxCC
from tacit.survival.tasks import CoxPH as CoxPH
from tacit.survival.tasks import CoxTime as CoxTime
from tacit.survival.tasks import DeepHit as DeepHit
from tacit.survival.tasks import DeepSurv as DeepSurv
from tacit.survival.tasks import LogisticHazard as LogisticHazard
from tacit.survival.tasks import NewtonPH as NewtonPH
from tacit.survival.tasks import PCHazard as PCHazard
from tacit.survival.tasks import PoissonPH as PoissonPH

__all__ = [
    "CoxCC",
    "CoxPH",
    "CoxTime",
    "DeepHit",
    "DeepSurv",
    "LogisticHazard",
    "NewtonPH",
    "PCHazard",
    "PoissonPH",
]

__getattr__ = lazy(__name__)
