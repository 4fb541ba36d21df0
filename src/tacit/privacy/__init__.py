"""Differential privacy: policy, statement, accounting, mechanisms, ledger."""

from tacit.runtime.imports import lazy

__getattr__ = lazy(__name__)
