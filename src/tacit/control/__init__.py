"""AGENTS IN WORLDS: policies that sites learn together, each in worlds with physics of its own.

tasks         what is learnt: PPO as a task of the one loop; recipe: how; sensing, judging: what it may need
ppo           the algorithm on one page; kernels, layers: its gradients, compiled; networks: the weights
stages        the environments of a site, opened for a round; spaces, openings: what can be played at all
lander        a compiled LunarLander: lander_physics and what it is made of, lander_stage to train in it
policy        what to act with; stable_baselines (opcodes, torch_archive): its zips; films
evaluation    how good an agent is; playing, landings: episodes; statistics: intervals
history       what happened, as plain arrays; archive: how a run keeps it
figures       learning curves, regimes, prices; rounds: clusters; maps: weights; tables: what they need

Names below are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.control.tasks import PPO as PPO

_HOMES = {"PPO": "tacit.control.tasks"}

__all__ = ["PPO"]  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return [*__all__, "evaluation", "figures", "networks", "policy", "ppo", "rollout", "stages", "statistics"]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    try:
        return import_module(f"tacit.control.{name}")
    except ModuleNotFoundError as error:
        raise AttributeError(f"module 'tacit.control' has no attribute {name!r}") from error
