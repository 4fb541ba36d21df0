"""Interfaces of other packages, exports to other programs, tracking."""

from tacit.runtime.imports import lazy

__getattr__ = lazy(__name__)
