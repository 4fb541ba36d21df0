"""Greedy episodes in the fast lander, compiled as a whole: for following a run, or choosing among models.

As quick as training, and nearly what Gymnasium would say; what an agent is finally judged by is played there.
"""

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tacit.control.lander.bodies import POINTS, ROW
from tacit.control.lander.options import limit_of, physics_of
from tacit.control.lander.simulator import ACTIONS, OBSERVED, observe, reset, step
from tacit.errors import InvalidValue
from tacit.runtime.arrays import Array
from tacit.runtime.jit import compiled, compiled_fast

if TYPE_CHECKING:
    from tacit.control.agents.policy import Policy
    from tacit.sites.environments import World

Floats = NDArray[np.float32]
Whole = NDArray[np.int64]


def play_lander(policy: "Policy", world: "World", seeds: list[int]) -> Array:
    """What an episode from each of these seeds returns.

    Args:
        policy: Who acts.
        world: Where: the keyword arguments of the lander.
        seeds: Where each episode begins; the same seed is the same episode, whatever is played beside it.
    """
    shape = policy.shape
    if (shape.inputs, shape.actions) != (OBSERVED, ACTIONS):
        raise InvalidValue(
            f"{world.name} does not fit this agent: it shows {OBSERVED} numbers and has {ACTIONS} actions, "
            f"and the agent was made for {shape.inputs} and {shape.actions}"
        )
    physics, most = physics_of(world.options), limit_of(world.options)
    returns = np.zeros(len(seeds))
    _play(
        policy.folded[: shape.actor].astype(np.float32),
        shape.sizes,
        np.array([physics]),
        np.array(seeds, dtype=np.uint64),
        most,
        returns,
    )
    return returns


@compiled
def _play(
    weights: Floats, sizes: Whole, physics: Array, seeds: NDArray[np.uint64], most: int, returns: Array
) -> None:
    bodies, terrain, rng = np.zeros((1, ROW)), np.zeros((1, POINTS)), np.zeros(1, np.uint64)
    work = np.zeros((2, sizes.max()), np.float32)
    for episode in range(len(seeds)):
        rng[0] = seeds[episode]
        reset(bodies, terrain, rng, 0, physics)
        for _ in range(most):
            observe(bodies, 0, work[0])
            reward, over = step(bodies, terrain, rng, 0, physics, _likeliest(weights, sizes, work))
            returns[episode] += reward
            if over:
                break


@compiled_fast
def _likeliest(weights: Floats, sizes: Whole, work: Floats) -> int:
    # The actor's answer to the observation in the first row of `work`; layers go to and fro between the rows.
    start, last = 0, len(sizes) - 2
    for layer in range(last + 1):
        before, after, now = sizes[layer], sizes[layer + 1], layer % 2
        shifts = start + before * after
        for output in range(after):
            total = weights[shifts + output]
            for place in range(before):
                total += weights[start + output * before + place] * work[now, place]
            work[1 - now, output] = total if layer == last else math.tanh(total)
        start = shifts + after
    answer = work[(last + 1) % 2, : sizes[-1]]
    return int(answer.argmax())
