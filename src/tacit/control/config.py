"""Options of proximal policy optimization (PPO); nothing here loads a compiler."""

import math
from dataclasses import dataclass

from tacit.errors import MOST_STEPS, require, require_count, require_positive
from tacit.runtime.contracts import fields_of


@dataclass(frozen=True, kw_only=True)
class PPOConfig:
    """Options of proximal policy optimization (PPO); the defaults are those of Stable-Baselines3.

    Args:
        lr: Learning rate of Adam.
        epochs: Number of passes over each rollout.
        batch: Number of environment steps in a minibatch.
        gamma: Discount factor of rewards.
        gae_lambda: Lambda of generalized advantage estimation (GAE): 0 looks one step ahead, 1 to the end of
            the episode.
        clip_range: Clip range of the probability ratio between new and old policy.
        value_clip: Clip range of the value function; None for none.
        entropy: Weight of the entropy bonus.
        value_weight: Weight of the value loss.
        grad_norm: Largest norm of a gradient; longer ones are clipped.
        target_kl: Target Kullback-Leibler divergence from the policy that acted; an update stops at 1.5 times
            that. None for no limit.
        reward_scale: Factor that rewards are multiplied by before learning.
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
        for name, given in fields_of(self, ("lr", "clip_range", "grad_norm", "reward_scale")).items():
            require_positive(name, given)
        for name, given in fields_of(self, ("value_clip", "target_kl")).items():
            if given is not None:
                require_positive(name, given)
        require_count("epochs", self.epochs, MOST_STEPS)
        require_count("batch", self.batch, MOST_STEPS)
        for name, given in fields_of(self, ("gamma", "gae_lambda")).items():
            require(isinstance(given, int | float) and 0 <= given <= 1, name, given, "from 0 to 1")
        for name, given in fields_of(self, ("entropy", "value_weight")).items():
            fits = isinstance(given, int | float) and 0 <= given < math.inf
            require(fits, name, given, "a finite number, 0 or more")
