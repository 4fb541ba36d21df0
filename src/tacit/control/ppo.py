"""Proximal policy optimization (PPO), on one page: play, compute advantages, update.

The same algorithm as Stable-Baselines3's, step by step: advantages are standardized in each batch, the ratio
of probabilities is clipped, gradients are clipped by their norm, Adam divides by at least 1e-5, and episodes
cut by their time limit go on in expectation. It differs in how fast it is.

Where sites share the actor alone, it comes without a critic, and an untrained critic would make every
advantage large: `warm_up_critic` learns it anew from what the site has just played.
"""

import math
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tacit.control import kernels
from tacit.control.config import PPOConfig as PPOConfig
from tacit.control.networks import NetworkShape
from tacit.control.rollout import SERIES, Episodes, Floats, Rollout
from tacit.errors import require
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import fields_of

if TYPE_CHECKING:
    from tacit.control.kernels import LossCoefficients


class RolloutSource(Protocol):
    """Protocol of a vectorized environment for learning."""

    @property
    def envs(self) -> int:
        """Return the number of environments."""
        ...

    def play(
        self, weights: Floats, shape: NetworkShape, steps: int, gamma: float, reward_scale: float
    ) -> Rollout:
        """Play `steps` steps in each environment (`tacit.control.envs.vector.VectorEnv.play`)."""
        ...


def learn(
    weights: Array,
    shape: NetworkShape,
    stage: RolloutSource,
    recipe: PPOConfig,
    *,
    steps: int,
    rollout: int,
    generator: np.random.Generator,
    judge_first: bool = False,
) -> tuple[Array, Episodes]:
    """Train weights for `steps` environment steps; return them and the episodes that ended on the way.

    Learning stops where weights are no longer finite; they are returned as they are then.

    Args:
        weights: Initial weights; not changed.
        shape: Their shape.
        stage: The environments; play goes on where it stopped.
        recipe: Options of PPO.
        steps: Number of steps in all, over all environments.
        rollout: Number of steps before each update.
        generator: Source of the batches.
        judge_first: Whether the critic is untrained, and learns from the first rollout before the actor.
    """
    require(rollout % stage.envs == 0, "rollout", rollout, f"a multiple of the {stage.envs} environments")
    require(steps % rollout == 0, "steps", steps, f"a multiple of the {rollout} steps of a rollout")
    vector, adam, taken = weights.astype(np.float32), np.zeros((2, shape.size), dtype=np.float32), 0
    terms = _coefficients(recipe)
    parts: list[Episodes] = []
    for _ in range(steps // rollout):
        played = stage.play(vector, shape, rollout // stage.envs, recipe.gamma, recipe.reward_scale)
        if judge_first and not parts:
            played = warm_up_critic(vector, shape, played, recipe.gamma, recipe.batch, terms, generator)
        parts.append(played.episodes)
        memory = build_buffer(played, recipe)
        for _ in range(recipe.epochs):
            order = generator.permutation(len(memory.actions))
            taken, go_on = kernels.train_epoch(
                vector, shape.sizes, memory, order, recipe.batch, terms, adam, taken
            )
            if not go_on:
                break
        if not np.isfinite(vector).all():
            break
    return vector.astype(np.float64), Episodes.concatenate(parts)


def build_buffer(played: Rollout, recipe: PPOConfig) -> kernels.RolloutBuffer:
    """Build the buffer of a rollout: advantages, and targets of the values."""
    better = kernels.advantages(
        played.rewards, played.values, played.ended, played.last_values, recipe.gamma, recipe.gae_lambda
    )
    flat = (played.log_probs, played.values, better, better + played.values)
    observations = played.observations.reshape(-1, played.observations.shape[2])
    log_probs, values, advantages, returns = (one.reshape(-1) for one in flat)
    return kernels.RolloutBuffer(
        observations, played.actions.reshape(-1), log_probs, values, advantages, returns
    )


def _coefficients(recipe: PPOConfig) -> kernels.LossCoefficients:
    return kernels.LossCoefficients(
        float(recipe.lr),
        float(recipe.clip_range),
        math.inf if recipe.value_clip is None else float(recipe.value_clip),
        float(recipe.entropy),
        float(recipe.value_weight),
        float(recipe.grad_norm),
        math.inf if recipe.target_kl is None else 1.5 * recipe.target_kl,
    )


# Passes of the critic over the first rollout of a round, and its learning rate.
PASSES, PACE = 10, 1e-3


def warm_up_critic(
    vector: Floats,
    shape: NetworkShape,
    played: Rollout,
    gamma: float,
    batch: int,
    terms: "LossCoefficients",
    generator: np.random.Generator,
) -> Rollout:
    """Train the critic, not the actor, of `vector` on the rollout; return the rollout with its values.

    Its last step is left out: what is expected after the one before it is what the critic sees there.

    Args:
        vector: Both networks.
        shape: Their shape.
        played: The rollout.
        gamma: Discount factor of rewards.
        batch: Number of environment steps in a minibatch.
        terms: Coefficients of the loss.
        generator: Source of the minibatches.
    """
    steps, envs = len(played.rewards), len(played.last_values)
    nothing = np.zeros((steps, envs), dtype=np.float32)
    # Returns until the end of the episode or of the rollout, without a critic.
    came = kernels.advantages(
        played.rewards, nothing, played.ended, np.zeros(envs, dtype=np.float32), gamma, 1.0
    )
    # In units of their own, so that large returns are learned as quickly as small ones.
    middle, spread = float(came.mean()), max(float(came.std()), 1e-6)
    observations = played.observations.reshape(steps * envs, -1)
    memory = kernels.RolloutBuffer(
        observations, played.actions.reshape(-1), played.log_probs.reshape(-1), nothing.reshape(-1),
        nothing.reshape(-1), ((came - middle) / spread).astype(np.float32).reshape(-1),
    )  # fmt: skip
    # With equal advantages and no entropy bonus, the actor has no gradient.
    alone = terms._replace(lr=PACE, value_clip=np.inf, entropy=0.0, divergence=np.inf)
    adam, taken = np.zeros((2, shape.size), dtype=np.float32), 0
    for _ in range(PASSES):
        order = generator.permutation(steps * envs)
        taken, _ = kernels.train_epoch(vector, shape.sizes, memory, order, batch, alone, adam, taken)
    # The last layer is linear: it can say the same in the units of the rewards.
    head = vector[-(int(shape.sizes[-2]) + 1) :]
    head *= spread
    head[-1] += middle
    values = np.empty(steps * envs, dtype=np.float32)
    kernels.predict_values(
        vector, shape.sizes, observations, kernels.activation_buffer(shape.sizes, steps * envs), values
    )
    seen = values.reshape(steps, envs)
    if steps == 1:
        return played._replace(values=seen)
    kept = {name: series[:-1] for name, series in fields_of(played, SERIES).items()}
    return played._replace(**kept, values=seen[:-1], last_values=seen[-1])
