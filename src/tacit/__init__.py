"""Tacit trains models across sites that may not pool their data, and says what privacy that cost.

The map of the package, in the order in which data flows:

    privacy       WHAT MAY LEAVE       clip, noise, releases, the ledger, accounting
    aggregation   HOW IT IS COMBINED   from one vector per site to one vector
    experiment    experiment files: every table is a constructor call
    compat        names that others know, on this core
    cli           the `tacit` command

Names below are loaded on first use, so that `import tacit` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.aggregation.averaging import Mean as Mean
    from tacit.errors import TacitError as TacitError
    from tacit.keys import Key as Key
    from tacit.privacy.ledger import Ledger as Ledger
    from tacit.privacy.policy import Open as Open
    from tacit.privacy.policy import Privacy as Privacy
    from tacit.privacy.release import Release as Release

_HOMES = {
    "Key": "tacit.keys",
    "Ledger": "tacit.privacy.ledger",
    "Mean": "tacit.aggregation.averaging",
    "Open": "tacit.privacy.policy",
    "Privacy": "tacit.privacy.policy",
    "Release": "tacit.privacy.release",
    "TacitError": "tacit.errors",
}

__all__ = ["Key", "Ledger", "Mean", "Open", "Privacy", "Release", "TacitError"]


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("tacit")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in ("aggregation", "compat", "experiment", "privacy"):
        return import_module(f"tacit.{name}")
    raise AttributeError(f"module 'tacit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
