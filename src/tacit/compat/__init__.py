"""Interfaces of other packages, exports to other programs, tracking."""

from importlib import import_module

_MODULES = {
    "export",
    "federated_survival",
    "functional_regressor",
    "privacy_manager",
    "scikit_survival",
    "scores",
    "tracking",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"tacit.compat.{name}")
    raise AttributeError(f"module 'tacit.compat' has no attribute {name!r}")
