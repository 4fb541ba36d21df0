"""Calibration: the noise at which a falling price meets a target, by secants on log scales."""

import math
from collections.abc import Callable, Sequence

Price = Callable[[float], float]

# A search stops between this share of the target and the target; rough prices are searched roughly.
CLOSE, ROUGH = 0.9995, 0.98
# Less noise than this is never asked for, even where a rare draw would allow none at all.
LEAST = 1e-2


def smallest_noise(prices: Sequence[Price], target: float) -> float:
    """Return the smallest noise whose price is at most the target.

    Args:
        prices: Price of a given noise, from a rough guess to the price that counts; may be infinite. Each
            search starts where the one before ended.
        target: Price not to exceed.

    Guarantee:
        By the last of the prices, the answer costs at most the target, and as a rule almost that.
    """
    noise, slope = 1.0, 1.0
    for price in prices[:-1]:
        found, steep = _search(price, target, noise, slope, ROUGH)
        # A guess that never gets below the target is no place to start from.
        noise, slope = (found, steep) if math.isfinite(found) else (noise, slope)
    return _search(prices[-1], target, noise, slope, CLOSE)[0]


def _search(price: Price, target: float, noise: float, slope: float, close: float) -> tuple[float, float]:
    """Search for the noise; return it, and the slope of the price there, on log scales."""
    scarce, enough, last = 0.0, math.inf, None
    for _ in range(200):
        value = price(noise)
        scarce, enough = (scarce, noise) if value <= target else (noise, enough)
        settled = close * target <= value <= target or enough <= scarce * (1 + 1e-3)
        if settled or enough <= LEAST:
            break
        if last and math.isfinite(value) and last[1] != value and last[0] != noise:
            slope = max(math.log(last[1] / value) / math.log(noise / last[0]), 0.1)
        last = (noise, value) if math.isfinite(value) else None
        # Aim just below the target, so as to end on the safe side.
        factor = (value / (target * (1 + close) / 2)) ** (1 / slope) if last else 4.0
        noise = _inside(noise * min(max(factor, 0.25), 4.0), scarce, enough)
    return enough, slope


def _inside(noise: float, scarce: float, enough: float) -> float:
    if scarce < noise < enough:
        return noise
    return math.sqrt(scarce * enough) if scarce > 0 and math.isfinite(enough) else noise
