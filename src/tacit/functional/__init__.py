"""Function-on-function regression: curves, releases, boosting, figures.

Names below are loaded on first use.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.functional.tasks import Boosting as Boosting

_HOMES = {
    "Boosting": "tacit.functional.tasks",
    # It runs the loop, which is above: to be imported by name alone.
    "FunctionalRegressor": "tacit.compat.functional_regressor",
}

__all__ = ["Boosting", "FunctionalRegressor"]  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return [*__all__, *(found.name for found in iter_modules(__path__))]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    try:
        return import_module(f"tacit.functional.{name}")
    except ModuleNotFoundError as error:
        raise AttributeError(f"module 'tacit.functional' has no attribute {name!r}") from error
