"""A critic that is learnt anew from what a site has just played, before its actor learns from it.

Where sites share the actor alone, nobody else's critic comes with it. One that knows nothing would call every
step a surprise.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tacit.control.networks import NetworkShape
from tacit.control.rollout import Floats, Rollout

if TYPE_CHECKING:
    from tacit.control.kernels import LossCoefficients

# How often the critic goes through the first rollout of a round, and how far its steps go.
PASSES, PACE = 10, 1e-3
# What a rollout has of each step.
SERIES = ("observations", "actions", "log_probs", "rewards", "ended")


def warm_up_critic(
    vector: Floats,
    shape: NetworkShape,
    played: Rollout,
    gamma: float,
    batch: int,
    terms: "LossCoefficients",
    generator: np.random.Generator,
) -> Rollout:
    """The rollout as a critic sees it that has learnt from it; in `vector` the critic changes, not the actor.

    Its last step is left out: what is expected after the one before it is what the critic sees there.

    Args:
        vector: Both networks.
        shape: How large they are.
        played: What was played.
        gamma: What a reward is worth one step later.
        batch: How many steps of the environment a step of Adam is made from.
        terms: How to learn.
        generator: What batches are drawn with.
    """
    from tacit.control import kernels

    steps, envs = len(played.rewards), len(played.last_values)
    nothing = np.zeros((steps, envs), dtype=np.float32)
    # What came until the end, or until the rollout did: no critic is asked.
    came = kernels.advantages(
        played.rewards, nothing, played.ended, np.zeros(envs, dtype=np.float32), gamma, 1.0
    )
    # In units of their own, so that large returns are learnt as quickly as small ones.
    middle, spread = float(came.mean()), max(float(came.std()), 1e-6)
    observations = played.observations.reshape(steps * envs, -1)
    memory = kernels.RolloutBuffer(
        observations, played.actions.reshape(-1), played.log_probs.reshape(-1), nothing.reshape(-1),
        nothing.reshape(-1), ((came - middle) / spread).astype(np.float32).reshape(-1),
    )  # fmt: skip
    # Where no action is better than another, and certainty costs nothing, the actor has nothing to learn.
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
        return replace(played, values=seen)
    kept = {name: getattr(played, name)[:-1] for name in SERIES}
    return replace(played, **kept, values=seen[:-1], last_values=seen[-1])
