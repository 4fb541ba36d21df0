"""Vectorized fast landers: one compiled function acts and moves all of them, for a whole rollout.

Each environment has its own physics, its own time limit and its own stream of random numbers.

`play_lander` plays greedy episodes, for following a run or choosing among models: as quick as training, and
nearly what Gymnasium would say. What an agent is finally judged by is played in Gymnasium.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.control.envs.vector import VectorEnv
from tacit.control.kernels import act, activation_buffer, normalise, predict_values
from tacit.control.lander.bodies import POINTS, ROW, ZERO
from tacit.control.lander.options import limit_of, physics_of
from tacit.control.lander.simulator import ACTIONS, OBSERVED, observe, reset, step
from tacit.control.networks import NetworkShape
from tacit.control.rollout import Floats, Rollout, Whole
from tacit.errors import InvalidValue, require
from tacit.runtime.arrays import Array
from tacit.runtime.jit import compiled, compiled_fast
from tacit.sites.environments import World

if TYPE_CHECKING:
    from tacit.control.agents.policy import Policy
    from tacit.sites.environments import World

# Center and scale of observations.
Scaling = tuple[Array, Array]


class Landers(NamedTuple):
    """Fast landers: the arrays of `lander`, and the state of each episode.

    Args:
        bodies: See `lander`, as the next three.
        terrain: See `bodies`.
        rng: See `bodies`.
        physics: See `bodies`.
        limits: Largest number of steps of an episode.
        totals: Return of each episode so far.
        lengths: Number of its steps so far.
    """

    bodies: Array
    terrain: Array
    rng: NDArray[np.uint64]
    physics: Array
    limits: Whole
    totals: Array
    lengths: Whole


class LanderVectorEnv(VectorEnv):
    """Vectorized fast landers."""

    def __init__(
        self,
        worlds: Sequence[World],
        envs: int,
        *,
        generator: np.random.Generator,
        center: ArrayLike,
        scale: ArrayLike,
        place: str,
    ) -> None:
        super().__init__(worlds, envs, generator=generator, center=center, scale=scale, place=place)
        self._landers = Landers(
            np.zeros((envs, ROW)),
            np.zeros((envs, POINTS)),
            generator.integers(2**64, size=envs, dtype=np.uint64),
            np.array([physics_of(world.options, place) for world in self._worlds]),
            np.array([limit_of(world.options) for world in self._worlds], dtype=np.int64),
            np.zeros(envs),
            np.zeros(envs, dtype=np.int64),
        )

    def _play(
        self, weights: Floats, shape: NetworkShape, steps: int, gamma: float, reward_scale: float
    ) -> Rollout:
        spaces, expected = (OBSERVED, ACTIONS), (shape.inputs, shape.actions)
        fits = spaces == expected and len(self._center) == OBSERVED
        require(fits, f"{self.place}: inputs and actions", spaces, f"{expected}, as those of the agent")
        most = steps * self.envs
        # With room for as many episodes as there are steps.
        tape = Rollout.blank(steps, self.envs, shape.inputs)._replace(
            returns=np.empty(most),
            lengths=np.empty(most, dtype=np.int64),
            steps=np.empty(most, dtype=np.int64),
        )
        if self._made == 0:
            for i in range(self.envs):
                reset(*self._landers[:3], i, self._landers.physics)
        draws = self._generator.random((steps, self.envs), dtype=np.float32)
        scaling = (self._center, self._scale)
        ends = _play(weights, shape.sizes, self._landers, scaling, draws, gamma, reward_scale, tape)
        before, self._made = self._made, self._made + most
        return tape._replace(
            returns=tape.returns[:ends].copy(),
            lengths=tape.lengths[:ends].copy(),
            steps=tape.steps[:ends] + before,
        )


@compiled
def _play(
    weights: Floats,
    sizes: Whole,
    landers: Landers,
    scaling: Scaling,
    draws: Floats,
    gamma: float,
    reward_scale: float,
    tape: Rollout,
) -> int:
    # Play a whole rollout; return the number of episodes that ended in it.
    steps, envs = draws.shape
    work, ends = activation_buffer(sizes, envs), 0
    far, scale, value = np.float32(gamma), np.float32(reward_scale), np.empty(1, np.float32)
    for at in range(steps):
        seen, actions = tape.observations[at], tape.actions[at]
        _look(landers, scaling, ZERO, seen)
        act(weights, sizes, seen, draws[at], work, actions, tape.log_probs[at], tape.values[at])
        for i in range(envs):
            reward, over = step(landers.bodies, landers.terrain, landers.rng, i, landers.physics, actions[i])
            cut = _count(landers, i, reward) and not over
            tape.rewards[at, i] = np.float32(reward) * scale
            tape.ended[at, i] = over or cut
            if cut:
                last = np.empty((1, OBSERVED), np.float32)
                _look(landers, scaling, i, last)
                predict_values(weights, sizes, last, work, value)
                tape.rewards[at, i] += far * value[0]
            if over or cut:
                _note(landers, i, tape, ends, at * envs + i + 1)
                ends += 1
                reset(landers.bodies, landers.terrain, landers.rng, i, landers.physics)
    seen = np.empty((envs, OBSERVED), np.float32)
    _look(landers, scaling, ZERO, seen)
    predict_values(weights, sizes, seen, work, tape.last_values)
    return ends


@compiled
def _look(landers: Landers, scaling: Scaling, first: int, seen: Floats) -> None:
    # Write the current observations of some environments, from the first of them on, normalized.
    raw = np.empty(seen.shape)
    for row in range(len(seen)):
        observe(landers.bodies, first + row, raw[row])
    normalise(raw, scaling[0], scaling[1], seen)


@compiled
def _count(landers: Landers, i: int, reward: float) -> bool:
    # One more step of an episode; whether its time is up.
    landers.totals[i] += reward
    landers.lengths[i] += 1
    return landers.lengths[i] >= landers.limits[i]


@compiled
def _note(landers: Landers, i: int, tape: Rollout, row: int, number: int) -> None:
    # An episode has ended, after this number of steps of the rollout in all environments.
    tape.returns[row], tape.lengths[row], tape.steps[row] = landers.totals[i], landers.lengths[i], number
    landers.totals[i], landers.lengths[i] = 0.0, 0


def play_lander(policy: "Policy", world: "World", seeds: list[int]) -> Array:
    """Return the returns of episodes from these seeds.

    Args:
        policy: The agent.
        world: The environment: the keyword arguments of the lander.
        seeds: Seed of each episode; the same seed is the same episode, whatever is played beside it.
    """
    shape = policy.shape
    if (shape.inputs, shape.actions) != (OBSERVED, ACTIONS):
        raise InvalidValue(
            f"{world.name} does not fit this agent: it shows {OBSERVED} numbers and has {ACTIONS} actions, "
            f"and the agent was made for {shape.inputs} and {shape.actions}"
        )
    physics, most = physics_of(world.options), limit_of(world.options)
    returns = np.zeros(len(seeds))
    _play_episodes(
        policy.folded[: shape.actor].astype(np.float32),
        shape.sizes,
        np.array([physics]),
        np.array(seeds, dtype=np.uint64),
        most,
        returns,
    )
    return returns


@compiled
def _play_episodes(
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
