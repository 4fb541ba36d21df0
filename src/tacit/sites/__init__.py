"""Data of the sites: tables, federations, environments, splits, sampling."""

from importlib import import_module

_MODULES = {
    "encoding",
    "environments",
    "federation",
    "remote",
    "sampling",
    "source",
    "splits",
    "table",
    "vertical",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"tacit.sites.{name}")
    raise AttributeError(f"module 'tacit.sites' has no attribute {name!r}")
