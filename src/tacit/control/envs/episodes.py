"""Episodes in Gymnasium itself, from given seeds: several at once, so that an agent is asked once for all.

Nothing is learnt here and nothing is kept but what each episode returned.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from tacit.control.envs.spaces import env_failure, flattener, open_env, require_spaces, strip_wrappers
from tacit.errors import InvalidValue
from tacit.runtime.arrays import Array

if TYPE_CHECKING:
    import gymnasium

    from tacit.control.networks import NetworkShape
    from tacit.sites.environments import World

    Env = gymnasium.Env[Any, Any]

# Which action is taken upon each observation (rows, inputs).
Choice = Callable[[NDArray[np.float32]], NDArray[np.int64]]

# How many episodes are played side by side: asking the agent then costs little, and so do the worlds.
LANES = 8
# What the code of a world may do wrong.
FAILURES = (Exception, SystemExit)
# An episode that is longer than this has no end.
LONGEST = 200_000


def play_episodes(choose: Choice, world: "World", shape: "NetworkShape", seeds: Sequence[int]) -> Array:
    """What an episode from each of these seeds returns.

    Args:
        choose: The agent.
        world: Where it acts.
        shape: What it takes and gives.
        seeds: Where each episode begins; the same seed is the same episode, whatever is played beside it.

    Raises:
        InvalidValue: The world does not fit the agent, or its episodes have no end.
    """
    returns, waiting = np.zeros(len(seeds)), iter(range(len(seeds)))
    with ExitStack() as open_ones:
        lanes = [open_ones.enter_context(_Lane(world, shape)) for _ in range(min(LANES, len(seeds)))]
        seen = np.zeros((len(lanes), shape.inputs), dtype=np.float32)
        busy = [place for place, lane in enumerate(lanes) if lane.start_next(waiting, seeds, seen[place])]
        while busy:
            # Always as many rows, so that sums are taken in the same order to the end.
            actions = choose(seen).tolist()
            for place in busy.copy():
                lane = lanes[place]
                if lane.step(actions[place], seen[place]):
                    returns[lane.episode] = lane.total
                    if not lane.start_next(waiting, seeds, seen[place]):
                        busy.remove(place)
    return returns


class _Lane:
    """A world in which one episode is played after another."""

    def __init__(self, world: "World", shape: "NetworkShape") -> None:
        self.world, self.whole = world, open_env(world)
        try:
            self.flat, self.first = match_spaces(self.whole, world, shape)
        except Exception:
            self.whole.close()
            raise
        self.env, self.limit = strip_wrappers(self.whole)
        self.episode, self.total, self.steps = -1, 0.0, 0

    def __enter__(self) -> "_Lane":
        return self

    def __exit__(self, *_: object) -> None:
        self.whole.close()

    def start_next(self, waiting: Iterator[int], seeds: Sequence[int], seen: NDArray[np.float32]) -> bool:
        """Whether another episode has begun; what is seen first is put in place."""
        self.episode, self.total, self.steps = next(waiting, -1), 0.0, 0
        if self.episode < 0:
            return False
        try:
            seen[:] = self.flat(self.env.reset(seed=int(seeds[self.episode]))[0])
        except FAILURES as error:
            raise env_failure(self.world, error) from error
        return True

    def step(self, action: int, seen: NDArray[np.float32]) -> bool:
        """Whether the episode is over after this action; what is seen next is put in place."""
        try:
            observation, reward, terminated, truncated, _ = self.env.step(self.first + action)
            seen[:] = self.flat(observation)
            self.total += float(reward)
        except FAILURES as error:
            raise env_failure(self.world, error) from error
        self.steps += 1
        # One sum for both: it is finite if all of them are.
        if not math.isfinite(self.total + float(seen.sum())):
            raise InvalidValue(
                f"{self.world.name} showed something, or gave a reward, that is not finite at step "
                f"{self.steps} of an episode: both must be finite numbers"
            )
        if self.steps > LONGEST:
            raise InvalidValue(
                f"an episode of {self.world.name} went on for {LONGEST} steps: it must end; give it a time "
                "limit"
            )
        return bool(terminated or truncated) or self.steps == self.limit


def match_spaces(env: "Env", world: "World", shape: "NetworkShape") -> tuple[Callable[[Any], Any], int]:
    """How observations become numbers, and which action is the first, in a world that fits an agent.

    Raises:
        InvalidValue: It does not.
    """
    inputs, actions = require_spaces(world, env)
    if (inputs, actions) != (shape.inputs, shape.actions):
        raise InvalidValue(
            f"{world.name} does not fit this agent: it shows {inputs} numbers and has {actions} actions, and "
            f"the agent was made for {shape.inputs} and {shape.actions}"
        )
    first = int(cast("gymnasium.spaces.Discrete", env.action_space).start)
    return flattener(env.observation_space) or np.asarray, first
