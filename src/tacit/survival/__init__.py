"""When it happens: time-to-event models across sites, their data and scores, statistics across sites."""

from importlib import import_module

from tacit.survival.tasks import LogisticHazard as LogisticHazard
from tacit.survival.tasks import PCHazard as PCHazard
from tacit.survival.tasks import PoissonPH as PoissonPH

__all__ = ["LogisticHazard", "PCHazard", "PoissonPH"]

_MODULES = {"data", "losses", "metrics", "models", "sources", "statistics", "targets", "tasks"}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"tacit.survival.{name}")
    raise AttributeError(f"module 'tacit.survival' has no attribute {name!r}")
