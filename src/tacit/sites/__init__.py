"""Who holds what: tables, sites and federations, how data are split over sites, how sites are drawn."""

from importlib import import_module

_MODULES = {"sampling", "site", "splits", "tables"}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"tacit.sites.{name}")
    raise AttributeError(f"module 'tacit.sites' has no attribute {name!r}")
