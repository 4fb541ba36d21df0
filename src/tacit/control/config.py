"""Options of proximal policy optimisation; nothing here loads a compiler."""

import math
from dataclasses import dataclass

from tacit.errors import require, require_count, require_positive
from tacit.runtime.limits import MOST_STEPS


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """How an agent learns; what is not said is as in Stable-Baselines3.

    Args:
        lr: How far a step of Adam goes.
        epochs: How often each rollout is gone through.
        batch: How many steps of the environment a step of Adam is made from.
        gamma: What a reward is worth one step later.
        gae_lambda: How far advantages look ahead: 0 to the next step, 1 to the end.
        clip_range: How much more or less likely an action may become before it counts for no more.
        value_clip: How far expectations may move from what they were; None for any distance.
        entropy: What indecision is worth.
        value_weight: What wrong expectations cost.
        grad_norm: How long a gradient may be.
        target_kl: How far from the policy that acted learning is to stay; it stops at 1.5 times that. None
            for any distance.
        reward_scale: What rewards are multiplied by before anything is learnt from them.
    """

    lr: float = 3e-4
    epochs: int = 10
    batch: int = 64
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    value_clip: float | None = None
    entropy: float = 0.0
    value_weight: float = 0.5
    grad_norm: float = 0.5
    target_kl: float | None = None
    reward_scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("lr", "clip_range", "grad_norm", "reward_scale"):
            require_positive(name, getattr(self, name))
        for name in ("value_clip", "target_kl"):
            if getattr(self, name) is not None:
                require_positive(name, getattr(self, name))
        for name in ("epochs", "batch"):
            require_count(name, getattr(self, name), MOST_STEPS)
        for name in ("gamma", "gae_lambda"):
            given = getattr(self, name)
            require(isinstance(given, int | float) and 0 <= given <= 1, name, given, "from 0 to 1")
        for name in ("entropy", "value_weight"):
            given = getattr(self, name)
            fits = isinstance(given, int | float) and 0 <= given < math.inf
            require(fits, name, given, "a finite number, 0 or more")
