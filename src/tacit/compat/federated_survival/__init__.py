"""The names of the federated-survival package, on this core: only the import line changes.

    data.generator             DataGenerator, SimulationConfig
    data.loader                DataLoader
    data.splitter              DataSplitter, DataSet
    core.config                FSAConfig
    core.runner                FSARunner
    core.differential_privacy  DifferentialPrivacy
    utils.metrics              calculate_cindex, calculate_ibs

What is different: the epsilon that `FSARunner.get_privacy_info` tells is the composed price of everything
that was released, not the number that was put in; noise never comes from the seed of a global generator; and
an option that cannot be taken literally is explained (`FSARunner.explanations`), not ignored.
"""

import secrets
import warnings
from typing import TYPE_CHECKING

from tacit.runtime.imports import lazy

if TYPE_CHECKING:
    from tacit.compat.federated_survival.core.config import FSAConfig as FSAConfig
    from tacit.compat.federated_survival.core.differential_privacy import (
        DifferentialPrivacy as DifferentialPrivacy,
    )
    from tacit.compat.federated_survival.core.runner import FSARunner as FSARunner
    from tacit.compat.federated_survival.data.generator import DataGenerator as DataGenerator
    from tacit.compat.federated_survival.data.generator import SimulationConfig as SimulationConfig
    from tacit.compat.federated_survival.data.loader import DataLoader as DataLoader
    from tacit.compat.federated_survival.data.splitter import DataSet as DataSet
    from tacit.compat.federated_survival.data.splitter import DataSplitter as DataSplitter
    from tacit.compat.federated_survival.utils.metrics import calculate_cindex as calculate_cindex
    from tacit.compat.federated_survival.utils.metrics import calculate_ibs as calculate_ibs

_HOMES = {
    "DataGenerator": "tacit.compat.federated_survival.data.generator",
    "DataLoader": "tacit.compat.federated_survival.data.loader",
    "DataSet": "tacit.compat.federated_survival.data.splitter",
    "DataSplitter": "tacit.compat.federated_survival.data.splitter",
    "DifferentialPrivacy": "tacit.compat.federated_survival.core.differential_privacy",
    "FSAConfig": "tacit.compat.federated_survival.core.config",
    "FSARunner": "tacit.compat.federated_survival.core.runner",
    "SimulationConfig": "tacit.compat.federated_survival.data.generator",
    "calculate_cindex": "tacit.compat.federated_survival.utils.metrics",
    "calculate_ibs": "tacit.compat.federated_survival.utils.metrics",
}

__all__ = [
    "DataGenerator",
    "DataLoader",
    "DataSet",
    "DataSplitter",
    "DifferentialPrivacy",
    "Explained",
    "FSAConfig",
    "FSARunner",
    "SimulationConfig",
    "calculate_cindex",
    "calculate_ibs",
]

__getattr__ = lazy(__name__, _HOMES)


class Explained(UserWarning):
    """A given option has another effect than in the original; the text explains it."""


def explain(texts: list[str], *, depth: int = 2) -> None:
    """Warn once about all options that are not taken literally.

    Args:
        texts: One sentence each; nothing is said where there is none.
        depth: The number of calls between this one and the user's line.
    """
    if texts:
        warnings.warn("\n  ".join(texts), Explained, stacklevel=depth + 1)


def seed_of(given: int | None) -> int:
    """Return the given seed, or a random one."""
    return secrets.randbits(32) if given is None else int(given)
