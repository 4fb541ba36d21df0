"""Foundations: random keys, files, TOML tables, limits, threads, compiled kernels."""

from tacit.runtime.imports import lazy

__getattr__ = lazy(__name__)
