"""One run: prepare, check, train, evaluate, keep in a directory, resume."""

from tacit.runtime.imports import lazy

__getattr__ = lazy(__name__)
