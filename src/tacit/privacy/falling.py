"""Where a falling function meets a target: secants on log scales, ending on the safe side."""

import math
from collections.abc import Callable

# The search stops between this share of the target and the target.
CLOSE_ENOUGH = 0.9995
# Less noise than this is never answered, even where a rare draw would allow none at all.
LEAST = 1e-2


def meet(price: Callable[[float], float], target: float, start: float, close: float = CLOSE_ENOUGH) -> float:
    """The noise at which a falling price meets the target from below.

    Args:
        price: What so much noise costs; may be infinite.
        target: What it may cost.
        start: Where to look first.
        close: The least share of the target that will do.

    Guarantee:
        The price of the answer is at most the target, and as a rule at least `close` of it.
    """
    scarce, enough = 0.0, math.inf
    noise, slope, last = start, 1.0, None
    for _ in range(200):
        value = price(noise)
        scarce, enough = (scarce, noise) if value <= target else (noise, enough)
        settled = close * target <= value <= target or enough <= scarce * (1 + 1e-3)
        if settled or enough <= LEAST:
            return enough
        if last and math.isfinite(value) and last[1] != value and last[0] != noise:
            slope = max(math.log(last[1] / value) / math.log(noise / last[0]), 0.1)
        last = (noise, value) if math.isfinite(value) else None
        # Aim just below the target, so as to end on the safe side.
        factor = (value / (target * (1 + close) / 2)) ** (1 / slope) if last else 4.0
        noise = _inside(noise * min(max(factor, 0.25), 4.0), scarce, enough)
    return enough


def _inside(noise: float, scarce: float, enough: float) -> float:
    if scarce < noise < enough:
        return noise
    return math.sqrt(scarce * enough) if scarce > 0 and math.isfinite(enough) else noise
