"""How curves are boosted on curves: every public choice; the defaults were tuned on simulated designs."""

import math
from dataclasses import dataclass
from typing import Literal

from tacit.errors import choices, is_between, require, require_count, require_rate, require_word
from tacit.runtime.limits import MOST_STEPS

Grid = float | tuple[float, ...]
RULES = ("cv", "aic", "aicc", "mv")
PRICES = ("smooth_s", "smooth_t", "smooth_st", "ridge")


@dataclass(frozen=True, kw_only=True)
class BoostingConfig:
    """All that may be chosen about a fit; none of it depends on data. Of a grid, the best value is taken.

    Args:
        rate: Which part of the way to its best fit a predictor is moved at each step.
        steps: At most how many steps.
        stop: When to stop: `cv` by what was held back; `aic`, `aicc` (for few subjects) or `mv` (by the
            residuals' covariance) by loss and exact degrees of freedom; or after so many steps.
        patience: How many steps to wait for something better on what was held back.
        selection: `screen` drops predictors that do not help on what was held back; `all` keeps them.
        margin: By how many standard errors over splits a predictor has to help to be kept.
        smooth_s: The price of roughness along the predictors' argument, a relative number or a grid of them:
            1 lets mean roughness cost what a predictor's mean variance is worth.
        smooth_t: Along that of the response.
        smooth_st: Along both.
        ridge: Below which multiple of what noise alone would show no variance of predictors is believed; idle
            without noise.
    """

    rate: float = 0.3
    steps: int = 100
    stop: Literal["cv", "aic", "aicc", "mv"] | int = "cv"
    patience: int = 10
    selection: Literal["screen", "all"] = "screen"
    margin: float = 2.0
    smooth_s: Grid = (0.0, 1e-3, 3e-2, 1.0)
    smooth_t: Grid = (0.0, 1e-2, 0.1, 1.0)
    smooth_st: Grid = 0.0
    ridge: Grid = (1.0, 0.5, 2.0, 4.0)

    def __post_init__(self) -> None:
        require_rate("rate", self.rate)
        require_count("steps", self.steps, MOST_STEPS)
        if isinstance(self.stop, str):
            require_word("stop", self.stop, RULES)
        else:
            counted = type(self.stop) is int and self.stop >= 1
            require(counted, "stop", self.stop, f"{choices(RULES)}, or a whole number of at least 1")
        require_count("patience", self.patience)
        require_word("selection", self.selection, ("screen", "all"))
        require(_price(self.margin), "margin", self.margin, "a finite number of at least 0")
        for name in PRICES:
            grid = self.values(name)
            allowed = "a finite number of at least 0, or several of them"
            require(len(grid) > 0 and all(map(_price, grid)), name, getattr(self, name), allowed)

    def values(self, price: str) -> tuple[float, ...]:
        """The grid of a price; of one value, if that was given."""
        given: Grid = getattr(self, price)
        return tuple(given) if isinstance(given, tuple | list) else (given,)


def _price(given: object) -> bool:
    return is_between(given, math.nextafter(0, -1), 1e12)
