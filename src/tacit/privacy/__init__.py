"""Differential privacy: policy, statement, accounting, mechanisms, ledger."""

from importlib import import_module

_MODULES = {
    "accounting",
    "contracts",
    "ledger",
    "mechanisms",
    "plan",
    "policy",
    "provenance",
    "statement",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"tacit.privacy.{name}")
    raise AttributeError(f"module 'tacit.privacy' has no attribute {name!r}")
