"""Experiment files, and many runs: sweeps, studies, tuning, tables of attacks."""

from importlib import import_module

_MODULES = {"attacks", "experiment", "studies", "sweeps", "tuning"}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"tacit.experiments.{name}")
    raise AttributeError(f"module 'tacit.experiments' has no attribute {name!r}")
