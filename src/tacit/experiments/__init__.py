"""Experiment files, and many runs: sweeps, studies, tuning, tables of attacks."""

from tacit.runtime.imports import lazy

__getattr__ = lazy(__name__)
