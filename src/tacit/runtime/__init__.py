"""Foundations: random keys, files, TOML tables, limits, threads, compiled kernels."""

from importlib import import_module

_MODULES = {
    "files",
    "fingerprints",
    "imports",
    "jit",
    "keys",
    "markup",
    "refusals",
    "silence",
    "sketches",
    "tables",
    "threads",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"tacit.runtime.{name}")
    raise AttributeError(f"module 'tacit.runtime' has no attribute {name!r}")
