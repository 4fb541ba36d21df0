"""Acting in worlds that others live in: policies, worlds, proximal policy optimisation, figures.

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
