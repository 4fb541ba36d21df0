"""Data of the sites: tables, federations, environments, splits, sampling."""

from tacit.runtime.imports import lazy

__getattr__ = lazy(__name__)
