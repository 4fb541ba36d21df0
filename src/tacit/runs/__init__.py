"""ONE RUN: set up, checked, trained round by round, kept in a directory."""

from importlib import import_module

_MODULES = {
    "baselines",
    "checks",
    "clusters",
    "context",
    "data_books",
    "directory",
    "intervals",
    "queries",
    "round",
    "run",
    "setup",
    "stopping",
    "tickets",
    "trainer",
    "verification",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"tacit.runs.{name}")
    raise AttributeError(f"module 'tacit.runs' has no attribute {name!r}")
