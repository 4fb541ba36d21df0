"""Names that others know, on this core."""

from importlib import import_module


def __getattr__(name: str) -> object:
    if name == "privacy_manager":
        return import_module("tacit.compat.privacy_manager")
    raise AttributeError(f"module 'tacit.compat' has no attribute {name!r}")
