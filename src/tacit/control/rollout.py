"""Rollouts of an agent: plain arrays, which stay where they were made."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tacit.runtime.arrays import Array

Floats = NDArray[np.float32]
Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Episodes:
    """Episodes that have ended, in the order in which they did.

    Args:
        returns: Return of each episode, in the environment's rewards.
        lengths: Number of steps of each.
        steps: Number of steps of the site, in all its environments together, from the opening of its stage to
            the end of the episode.
    """

    returns: Array
    lengths: Whole
    steps: Whole

    def __len__(self) -> int:
        return len(self.returns)

    @classmethod
    def concatenate(cls, parts: "list[Episodes]") -> "Episodes":
        """Concatenate the episodes of all parts."""
        if not parts:
            return cls(np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        columns = zip(*((part.returns, part.lengths, part.steps) for part in parts), strict=True)
        returns, lengths, steps = (np.concatenate(column) for column in columns)
        return cls(returns, lengths, steps)


class Rollout(NamedTuple):
    """Some steps in each environment of a stage (T, E), and the episodes that ended in them.

    Args:
        observations: Observation before each step, normalized (T, E, inputs).
        actions: Actions, from 0.
        log_probs: Log probabilities of the actions.
        values: Values by the critic.
        rewards: Rewards, scaled; where a time limit cut an episode, with the discounted value after it.
        ended: Whether the episode ended with this step.
        last_values: Value after the last step (E,).
        returns: See `Episodes`, as `lengths` and `steps`.
        lengths: See `returns`.
        steps: See `returns`.
    """

    observations: Floats
    actions: Whole
    log_probs: Floats
    values: Floats
    rewards: Floats
    ended: NDArray[np.bool_]
    last_values: Floats
    returns: Array
    lengths: Whole
    steps: Whole

    @classmethod
    def blank(cls, steps: int, envs: int, inputs: int) -> "Rollout":
        """Arrays to be filled, and no episode yet."""
        floats = [np.empty((steps, envs), dtype=np.float32) for _ in range(3)]
        log_probs, values, rewards = floats
        return cls(
            np.empty((steps, envs, inputs), dtype=np.float32),
            np.empty((steps, envs), dtype=np.int64),
            log_probs,
            values,
            rewards,
            np.zeros((steps, envs), dtype=np.bool_),
            np.empty(envs, dtype=np.float32),
            np.zeros(0),
            np.zeros(0, dtype=np.int64),
            np.zeros(0, dtype=np.int64),
        )

    def with_episodes(self, ends: Sequence[tuple[float, int, int]]) -> "Rollout":
        """Return this rollout with these episodes: the return, length and end of each."""
        returns, lengths, steps = zip(*ends, strict=True) if ends else ((), (), ())
        return self._replace(
            returns=np.array(returns, dtype=np.float64),
            lengths=np.array(lengths, dtype=np.int64),
            steps=np.array(steps, dtype=np.int64),
        )

    @property
    def episodes(self) -> Episodes:
        """The episodes that ended within it."""
        return Episodes(self.returns, self.lengths, self.steps)


# Arrays of a rollout with an entry for each step.
SERIES = ("observations", "actions", "log_probs", "rewards", "ended")
