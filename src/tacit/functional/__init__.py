"""Function-on-function regression: curves, releases, boosting, figures.

Names below are loaded on first use.
"""

from pkgutil import iter_modules
from typing import TYPE_CHECKING

from tacit.runtime.imports import lazy

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


__getattr__ = lazy(__name__, _HOMES)
