"""When it happens: time-to-event models across sites, their data and their scores."""

from tacit.survival.tasks import LogisticHazard as LogisticHazard
from tacit.survival.tasks import PCHazard as PCHazard
from tacit.survival.tasks import PoissonPH as PoissonPH

__all__ = ["LogisticHazard", "PCHazard", "PoissonPH"]
