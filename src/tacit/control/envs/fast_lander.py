"""The fast lander as an ordinary Gymnasium environment, to step through or to train on.

It takes the options of LunarLander-v3 with discrete actions, and refuses the same ones. Seeds repeat, but not
Gymnasium's episodes: the random numbers are others. There is no time limit: wrap it in
`gymnasium.wrappers.TimeLimit`.
"""

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from tacit.control.lander.bodies import POINTS, ROW
from tacit.control.lander.options import physics_of
from tacit.control.lander.simulator import ACTIONS, OBSERVED, observe, reset, step
from tacit.errors import require

Floats = NDArray[np.float32]

# Gymnasium's bounds of an observation; now and then a value lies beyond, there and here.
FARTHEST = (2.5, 2.5, 10.0, 10.0, 2 * math.pi, 10.0, 1.0, 1.0)
# From and to which power wind and turbulence are sensible.
SENSIBLE = {"wind_power": (0.0, 20.0), "turbulence_power": (0.0, 2.0)}


class FastLander(gymnasium.Env[Floats, np.int64]):
    """LunarLander-v3, compiled.

    Args:
        render_mode: None: it cannot be drawn; Gymnasium's can.
        continuous: False: engines are on or off.
        gravity: Above -12 and below 0.
        enable_wind: Whether there is wind.
        wind_power: Largest strength of the wind; sensible up to 20.
        turbulence_power: Largest torque by turbulence; sensible up to 2.
    """

    metadata: dict[str, Any] = {"render_modes": [], "render_fps": 50}  # noqa: RUF012 Gymnasium's own is like that

    def __init__(
        self,
        render_mode: str | None = None,
        continuous: bool = False,
        gravity: float = -10.0,
        enable_wind: bool = False,
        wind_power: float = 15.0,
        turbulence_power: float = 1.5,
    ) -> None:
        require(render_mode is None, "render_mode", render_mode, "None: only Gymnasium's lander can be drawn")
        require(not continuous, "continuous", continuous, "False: the fast lander has discrete actions")
        powers = {"wind_power": wind_power, "turbulence_power": turbulence_power}
        physics = physics_of({"gravity": gravity, "enable_wind": enable_wind, **powers})
        for name, power in powers.items():
            low, high = SENSIBLE[name]
            if not low <= power <= high:
                gymnasium.logger.warn(f"{name} = {power} is unusual: from {low} to {high} is sensible")
        self.render_mode, self.continuous = render_mode, continuous
        high = np.array(FARTHEST, dtype=np.float32)
        low = np.where(np.arange(OBSERVED) < 6, -high, np.float32(0))
        self.observation_space = spaces.Box(low, high)
        self.action_space = spaces.Discrete(ACTIONS)
        self._physics = np.array([physics])
        self._bodies, self._terrain = np.zeros((1, ROW)), np.zeros((1, POINTS))
        self._rng: NDArray[np.uint64] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin an episode; return its first observation and an empty info."""
        super().reset(seed=seed)
        if self._rng is None or seed is not None:
            self._rng = self.np_random.integers(2**64, size=1, dtype=np.uint64)
        reset(self._bodies, self._terrain, self._rng, 0, self._physics)
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Take an action; return observation, reward, end, and False: time never runs out."""
        allowed = "a whole number from 0 to 3"
        require(bool(self.action_space.contains(action)), "action", action, allowed)
        if self._rng is None:
            raise gymnasium.error.ResetNeeded("reset the environment before the first step")
        reward, over = step(self._bodies, self._terrain, self._rng, 0, self._physics, int(action))
        return self._observation(), reward, over, False, {}

    def _observation(self) -> Floats:
        seen = np.empty(OBSERVED, dtype=np.float32)
        observe(self._bodies, 0, seen)
        return seen
