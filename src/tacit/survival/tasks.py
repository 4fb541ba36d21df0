"""What survival models learn, as tasks for the one loop."""

from collections.abc import Mapping
from typing import Any

from tacit.survival.grids import DeepHit as DeepHit
from tacit.survival.grids import LogisticHazard as LogisticHazard
from tacit.survival.grids import PCHazard as PCHazard
from tacit.survival.grids import PoissonPH as PoissonPH
from tacit.survival.learner import SurvivalLearner
from tacit.survival.newton_task import Cox as Cox
from tacit.survival.relative import CoxCC as CoxCC
from tacit.survival.relative import CoxPH as CoxPH
from tacit.survival.relative import CoxTime as CoxTime
from tacit.survival.relative import DeepSurv as DeepSurv
from tacit.survival.tabulated import KaplanMeier as KaplanMeier

LEARNERS: Mapping[str, type[SurvivalLearner]] = {
    task.kind: task
    for task in (LogisticHazard, PCHazard, PoissonPH, DeepHit, DeepSurv, CoxPH, CoxCC, CoxTime)
}
# Statistics are tasks as well: what runs them runs on every engine.
TASKS: Mapping[str, type[Any]] = {**LEARNERS, KaplanMeier.kind: KaplanMeier, Cox.kind: Cox}
