"""Data for a federation that is simulated in one process: drawn, read from a file, dealt out to clients."""

from typing import TYPE_CHECKING

from tacit.runtime.imports import lazy

if TYPE_CHECKING:
    from tacit.compat.federated_survival.data.generator import DataGenerator as DataGenerator
    from tacit.compat.federated_survival.data.generator import SimulationConfig as SimulationConfig
    from tacit.compat.federated_survival.data.loader import DataLoader as DataLoader
    from tacit.compat.federated_survival.data.splitter import DataSet as DataSet
    from tacit.compat.federated_survival.data.splitter import DataSplitter as DataSplitter

_HOMES = {
    "DataGenerator": "tacit.compat.federated_survival.data.generator",
    "DataLoader": "tacit.compat.federated_survival.data.loader",
    "DataSet": "tacit.compat.federated_survival.data.splitter",
    "DataSplitter": "tacit.compat.federated_survival.data.splitter",
    "SimulationConfig": "tacit.compat.federated_survival.data.generator",
}

__getattr__ = lazy(__name__, _HOMES)
