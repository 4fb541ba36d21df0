"""Options of the fast lander: those of LunarLander-v3, within the same limits."""

from collections.abc import Mapping
from typing import Any

from tacit.errors import InvalidValue, choices, hint, is_between, require

# Defaults: gravity, wind on or off, its power, that of turbulence, and the length of episodes.
USUAL: Mapping[str, Any] = {
    "gravity": -10.0,
    "enable_wind": False,
    "wind_power": 15.0,
    "turbulence_power": 1.5,
    "max_episode_steps": 1000,
}

# Stronger ones are not recommended by Gymnasium.
STRONGEST = {"wind_power": 20.0, "turbulence_power": 2.0}


def require_options(options: Mapping[str, Any], place: str = "") -> None:
    """Refuse invalid options of the lander.

    Args:
        options: The keyword arguments.
        place: Owner of the options, for messages.
    """
    where = f"{place}: " if place else ""
    for name, value in options.items():
        if name not in USUAL:
            raise InvalidValue(
                f"{where}{name} = {value!r} is not allowed: the fast lander takes {choices(sorted(USUAL))}"
                f"{hint(name, USUAL)}"
            )
    require_physics(options, where)
    limit = options.get("max_episode_steps", USUAL["max_episode_steps"])
    whole = isinstance(limit, int) and not isinstance(limit, bool) and limit >= 1
    require(whole, f"{where}max_episode_steps", limit, "a whole number of at least 1")


def require_physics(options: Mapping[str, Any], where: str) -> None:
    """Refuse gravity and winds that Gymnasium refuses, or warns of, under either simulator."""
    gravity, wind = options.get("gravity", -10.0), options.get("enable_wind", False)
    require(is_between(gravity, -12, 0), f"{where}gravity", gravity, "above -12 and below 0")
    require(isinstance(wind, bool), f"{where}enable_wind", wind, "true or false")
    for name, most in STRONGEST.items():
        power = options.get(name, USUAL[name])
        plain = isinstance(power, int | float) and not isinstance(power, bool)
        require(plain and 0 <= power <= most, f"{where}{name}", power, f"from 0 to {most:g}")


def physics_of(options: Mapping[str, Any], place: str = "") -> tuple[float, float, float, float]:
    """Gravity, wind (1 or 0), its power and that of turbulence."""
    require_options(options, place)
    told = {**USUAL, **options}
    return (
        float(told["gravity"]),
        float(told["enable_wind"]),
        float(told["wind_power"]),
        float(told["turbulence_power"]),
    )


def limit_of(options: Mapping[str, Any]) -> int:
    """Return the largest number of steps of an episode."""
    return int(options.get("max_episode_steps", USUAL["max_episode_steps"]))
