"""One run: prepare, check, train, evaluate, keep in a directory, resume."""

from importlib import import_module

_MODULES = {
    "clusters",
    "context",
    "directory",
    "fit",
    "queries",
    "round",
    "run",
    "setup",
    "spec",
    "stopping",
    "trainer",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"tacit.runs.{name}")
    raise AttributeError(f"module 'tacit.runs' has no attribute {name!r}")
