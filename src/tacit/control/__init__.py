"""Reinforcement learning: PPO, environments, a compiled lander, agents, figures.

tasks              PPO as a task of the one loop; scaling of observations that all sites share
networks, rollout  actor and critic in one flat vector; what an agent has lived through
ppo, config        the algorithm on one page, with critic warm-up; its options
kernels            acting, judging and one pass of learning, compiled
sources            environments from an experiment file, simulated here or held at sites elsewhere
history            episodes and weights along the way, and how a run keeps them
envs/              spaces, checks, vectorized stepping, episodes, films
lander/            a compiled LunarLander
agents/            policies, evaluation, statistics of returns, files of Stable-Baselines3
figures/           learning curves, returns by scenario, clusters, maps of weights

Names below are loaded on first use.
"""

from pkgutil import iter_modules
from typing import TYPE_CHECKING

from tacit.runtime.imports import lazy

if TYPE_CHECKING:
    from tacit.control.tasks import PPO as PPO

_HOMES = {"PPO": "tacit.control.tasks"}

__all__ = ["PPO"]  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return [*__all__, *(found.name for found in iter_modules(__path__))]


__getattr__ = lazy(__name__, _HOMES)
