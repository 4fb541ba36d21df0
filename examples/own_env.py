"""Environment of your own, with one keyword argument that differs between sites.

Run it: `python examples/own_env.py`. In a file, name the id of an environment that you registered.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

import tacit
from tacit.control import PPO

Observation = NDArray[np.float32]


class Tank(gymnasium.Env[Observation, int]):
    """Keep a leaking tank half full by opening a tap or closing it; the leak differs between sites."""

    def __init__(self, leak: float = 0.05, minutes: int = 60) -> None:
        self.leak, self.minutes = leak, minutes
        self.observation_space = spaces.Box(0.0, 1.0, shape=(2,), dtype=np.float32)
        self.action_space = spaces.Discrete(2)  # closed, open

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start at a random level; the same seed gives the same level."""
        super().reset(seed=seed)
        self.level, self.minute = float(self.np_random.uniform()), 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Advance one minute: water runs in if the tap is open, and leaks by the level of the tank."""
        before, self.minute = self.level, self.minute + 1
        self.level = float(np.clip(before + 0.1 * action - self.leak * (0.5 + before), 0.0, 1.0))
        return self._seen(), -abs(self.level - 0.5), False, self.minute >= self.minutes, {}

    def _seen(self) -> Observation:
        return np.array([self.level, self.minute / self.minutes], dtype=np.float32)


def main() -> None:
    """Train one agent at three sites with different leaks, and evaluate it at a fourth leak as well."""
    leaks = {"tight": {"leak": 0.03}, "usual": {"leak": 0.06}, "loose": {"leak": 0.09}}
    tanks = tacit.Worlds.of(Tank, public=True, unseen={"new": {"leak": 0.075}}, **leaks)
    task = PPO(hidden=[16], envs=4, steps=240, lr=3e-3, gamma=0.9, center=[0.5, 0.5], scale=[0.25, 0.25])
    run = tacit.fit(task, tanks, rounds=10, seed=1)
    followed = run.history["return"]
    print(f"return {followed.iloc[0]:.1f} after one round, {run.scores['return']:.1f} after ten")
    print(f"where no site trained {run.scores['return@new']:.1f}")
    for level in (0.1, 0.9):
        tap = ["closed", "open"][run.model.act([level, 0.5])]
        print(f"a tank filled to {level:.0%}: {tap}")


if __name__ == "__main__":
    main()
