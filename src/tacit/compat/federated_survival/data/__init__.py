"""Data for a federation that is simulated in one process: drawn, read from a file, dealt out to clients."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.compat.federated_survival.data.generator import DataGenerator as DataGenerator
    from tacit.compat.federated_survival.data.generator import SimulationConfig as SimulationConfig
    from tacit.compat.federated_survival.data.loader import DataLoader as DataLoader
    from tacit.compat.federated_survival.data.splitter import DataSet as DataSet
    from tacit.compat.federated_survival.data.splitter import DataSplitter as DataSplitter

_HOMES = {
    "DataGenerator": "generator",
    "DataLoader": "loader",
    "DataSet": "splitter",
    "DataSplitter": "splitter",
    "SimulationConfig": "generator",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
