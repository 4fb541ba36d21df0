"""Survival models as tasks for the one loop."""

from collections.abc import Mapping
from typing import Any

from tacit.survival.models.cox import CoxCC as CoxCC
from tacit.survival.models.cox import CoxPH as CoxPH
from tacit.survival.models.cox import CoxTime as CoxTime
from tacit.survival.models.cox import DeepSurv as DeepSurv
from tacit.survival.models.discrete_time import DeepHit as DeepHit
from tacit.survival.models.discrete_time import LogisticHazard as LogisticHazard
from tacit.survival.models.discrete_time import PCHazard as PCHazard
from tacit.survival.models.discrete_time import PoissonPH as PoissonPH
from tacit.survival.models.learner import SurvivalLearner
from tacit.survival.models.newton_ph import NewtonPH as NewtonPH
from tacit.survival.statistics.cox_task import Cox as Cox
from tacit.survival.statistics.kaplan_meier_task import KaplanMeier as KaplanMeier
from tacit.survival.statistics.private_cox_task import PrivateCox as PrivateCox

LEARNERS: Mapping[str, type[SurvivalLearner]] = {
    task.kind: task
    for task in (LogisticHazard, PCHazard, PoissonPH, DeepHit, DeepSurv, CoxPH, CoxCC, CoxTime)
}
# Statistics are tasks as well, so they run on every engine.
TASKS: Mapping[str, type[Any]] = {
    **LEARNERS,
    NewtonPH.kind: NewtonPH,
    KaplanMeier.kind: KaplanMeier,
    Cox.kind: Cox,
    PrivateCox.kind: PrivateCox,
}
