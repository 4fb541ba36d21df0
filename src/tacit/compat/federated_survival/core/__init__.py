"""The options, the runner and the privacy tools, under the names that users of federated-survival know."""

from typing import TYPE_CHECKING

from tacit.runtime.imports import lazy

if TYPE_CHECKING:
    from tacit.compat.federated_survival.core.config import FSAConfig as FSAConfig
    from tacit.compat.federated_survival.core.differential_privacy import (
        DifferentialPrivacy as DifferentialPrivacy,
    )
    from tacit.compat.federated_survival.core.runner import FSARunner as FSARunner

_HOMES = {
    "DifferentialPrivacy": "tacit.compat.federated_survival.core.differential_privacy",
    "FSAConfig": "tacit.compat.federated_survival.core.config",
    "FSARunner": "tacit.compat.federated_survival.core.runner",
}

__getattr__ = lazy(__name__, _HOMES)
