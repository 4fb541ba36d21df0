"""The options, the runner and the privacy tools, under the names that users of federated-survival know."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.compat.federated_survival.core.config import FSAConfig as FSAConfig
    from tacit.compat.federated_survival.core.differential_privacy import (
        DifferentialPrivacy as DifferentialPrivacy,
    )
    from tacit.compat.federated_survival.core.runner import FSARunner as FSARunner

_HOMES = {"DifferentialPrivacy": "differential_privacy", "FSAConfig": "config", "FSARunner": "runner"}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
