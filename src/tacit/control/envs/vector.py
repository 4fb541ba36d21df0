"""Vectorized environments of one site, open for a round of work.

All randomness comes from one generator: with the same one, the same happens, to the last bit.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from tacit.control.envs.spaces import env_failure, flattener, open_env, require_spaces, strip_wrappers
from tacit.control.networks import NetworkShape
from tacit.control.rollout import Floats, Rollout
from tacit.errors import InvalidValue, require, require_count
from tacit.runtime.arrays import Array
from tacit.sites.environments import World

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.spaces import Discrete

# Exceptions of an environment's code; ending the program is not for it to decide.
FAILURES = (Exception, SystemExit)
# No episode is as long.
NO_LIMIT = 2**62


class VectorEnv(ABC):
    """Vectorized environments of an agent, as `make_vector_env` opens them."""

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
        self.envs, self.place = envs, place
        self._worlds, self._generator = deal(worlds, envs, generator), generator
        self._center, self._scale = (np.ascontiguousarray(one, dtype=np.float64) for one in (center, scale))
        require(bool((self._scale > 0).all()), "scale", self._scale.tolist(), "above 0 everywhere")
        self._made, self._closed = 0, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all environments; playing is refused afterwards."""
        self._closed = True

    def play(
        self, weights: Floats, shape: NetworkShape, steps: int, gamma: float, reward_scale: float
    ) -> Rollout:
        """Play `steps` steps in each environment, from where it stopped before.

        Args:
            weights: Both networks.
            shape: Their shape.
            steps: Number of steps in each environment.
            gamma: Discount factor of the value after an episode that a time limit cut.
            reward_scale: Factor that rewards are multiplied by.
        """
        if self._closed:
            raise ValueError("this stage is closed: open another one")
        return self._play(weights, shape, steps, gamma, reward_scale)

    @abstractmethod
    def _play(
        self, weights: Floats, shape: NetworkShape, steps: int, gamma: float, reward_scale: float
    ) -> Rollout: ...


def make_vector_env(
    worlds: Sequence[World],
    envs: int,
    *,
    generator: np.random.Generator,
    center: ArrayLike,
    scale: ArrayLike,
    place: str,
) -> VectorEnv:
    """Make a vectorized environment of `envs` environments in these worlds.

    Args:
        worlds: The worlds, dealt out in turn; where there are more than environments, by lot.
        envs: Number of environments.
        generator: All its randomness: seeds, and the draws of actions.
        center: Center of observations, subtracted coordinate by coordinate.
        scale: Divisor of observations after that.
        place: Owner of these worlds, for messages.
    """
    fast = {world.physics == "fast-lander" for world in worlds}
    require(len(fast) == 1, f"{place}: worlds", "of both kinds", "all computed by Gymnasium or none")
    if fast == {True}:
        from tacit.control.envs.lander_vector import LanderVectorEnv

        return LanderVectorEnv(worlds, envs, generator=generator, center=center, scale=scale, place=place)
    return GymnasiumVectorEnv(worlds, envs, generator=generator, center=center, scale=scale, place=place)


def deal(worlds: Sequence[World], envs: int, generator: np.random.Generator) -> list[World]:
    """Assign a world to each environment: in turn, or by lot where there are more worlds."""
    require_count("envs", envs)
    if envs < len(worlds):
        return [worlds[index] for index in sorted(generator.choice(len(worlds), envs, replace=False))]
    return [worlds[index % len(worlds)] for index in range(envs)]


class GymnasiumVectorEnv(VectorEnv):
    """Environments as Gymnasium makes them, without the wrappers that only cost time.

    They are opened when they are first played in.
    """

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
        self._seeds: list[int] = generator.integers(2**31, size=envs).tolist()
        self._players: list[Player] = []
        self._seen: Array = np.zeros((envs, len(self._center)))

    def close(self) -> None:
        """Close every environment, even if one fails."""
        super().close()
        players, self._players = self._players, []
        try:
            with ExitStack() as closing:
                for player in players:
                    closing.callback(player.whole.close)
        except FAILURES as error:
            raise env_failure(self._worlds[0], error, self.place) from error

    def _play(
        self, weights: Floats, shape: NetworkShape, steps: int, gamma: float, reward_scale: float
    ) -> Rollout:
        try:
            if not self._players:
                self._begin(shape)
            return self._play_steps(weights, shape, steps, gamma, reward_scale)
        except BaseException:
            self.close()
            raise

    def _begin(self, shape: NetworkShape) -> None:
        expected = (shape.inputs, shape.actions)
        for at, (world, seed) in enumerate(zip(self._worlds, self._seeds, strict=True)):
            env = open_env(world, self.place)
            self._players.append(Player(world, env))
            spaces = require_spaces(world, env, self.place)
            fits = spaces == expected and spaces[0] == len(self._center)
            what = f"{self.place}: inputs and actions of {world.name}"
            require(fits, what, spaces, f"{expected}, as those of the agent")
            self._players[at].ready()
            try:
                self._seen[at] = self._players[at].reset(seed)
            except FAILURES as error:
                raise env_failure(world, error, self.place) from error

    def _play_steps(
        self, weights: Floats, shape: NetworkShape, steps: int, gamma: float, reward_scale: float
    ) -> Rollout:
        from tacit.control import kernels

        tape = Rollout.blank(steps, self.envs, shape.inputs)
        draws = self._generator.random((steps, self.envs), dtype=np.float32)
        work = kernels.activation_buffer(shape.sizes, self.envs)
        ends: list[tuple[float, int, int]] = []
        cuts: list[tuple[int, int, Array]] = []
        for step in range(steps):
            seen, actions = tape.observations[step], tape.actions[step]
            self._normalise(self._seen, seen)
            kernels.act(
                weights,
                shape.sizes,
                seen,
                draws[step],
                work,
                actions,
                tape.log_probs[step],
                tape.values[step],
            )
            self._advance(step, tape, actions.tolist(), ends, cuts)
        self._require_rewards(tape.rewards)
        tape.rewards[:] *= np.float32(reward_scale)
        if cuts:
            steps_cut, places, last = zip(*cuts, strict=True)
            expected = self._predict_values(weights, shape, np.array(last))
            tape.rewards[steps_cut, places] += np.float32(gamma) * expected
        tape.last_values[:] = self._predict_values(weights, shape, self._seen)
        return tape.with_episodes(ends)

    def _advance(
        self,
        step: int,
        tape: Rollout,
        actions: list[int],
        ends: list[tuple[float, int, int]],
        cuts: list[tuple[int, int, Array]],
    ) -> None:
        """Make one step in every environment; note ended episodes, and where truncated ones stopped."""
        for at, action in enumerate(actions):
            player = self._players[at]
            try:
                observation, reward, over, cut = player.step(action)
                tape.rewards[step, at] = reward
                self._made += 1
                if over or cut:
                    tape.ended[step, at] = True
                    ends.append((player.total, player.length, self._made))
                    if not over:
                        cuts.append((step, at, np.array(observation, dtype=np.float64)))
                        self._require_finite(cuts[-1][2], player)
                    observation = player.reset()
                self._seen[at] = observation
            except FAILURES as error:
                if isinstance(error, InvalidValue):
                    raise
                raise env_failure(player.world, error, self.place) from error

    def _normalise(self, raw: Array, out: Floats) -> None:
        from tacit.control import kernels

        bad = kernels.normalise(raw, self._center, self._scale, out)
        if bad >= 0:
            self._require_finite(raw[bad], self._players[bad])

    def _predict_values(self, weights: Floats, shape: NetworkShape, raw: Array) -> Floats:
        from tacit.control import kernels

        seen, values = np.empty(raw.shape, dtype=np.float32), np.empty(len(raw), dtype=np.float32)
        self._normalise(raw, seen)
        kernels.predict_values(
            weights, shape.sizes, seen, kernels.activation_buffer(shape.sizes, len(raw)), values
        )
        return values

    def _require_finite(self, observation: Array, player: "Player") -> None:
        if not np.isfinite(observation).all():
            raise InvalidValue(
                f"{self.place}: {player.world.name} returned an observation that is not finite at step "
                f"{player.length} of an episode: observations must hold finite numbers"
            )

    def _require_rewards(self, rewards: Floats) -> None:
        bad = np.argwhere(~np.isfinite(rewards))
        if len(bad):
            step, at = bad[0].tolist()
            raise InvalidValue(
                f"{self.place}: {self._worlds[at].name} gave a reward that is not finite at step {step + 1} "
                "of a rollout: rewards must be finite numbers"
            )


class Player:
    """One environment, and the state of its episode."""

    def __init__(self, world: World, env: "gymnasium.Env[Any, Any]") -> None:
        self.world, self.whole, self.env = world, env, env
        self.total, self.length = 0.0, 0

    def ready(self) -> None:
        """Read its spaces, which were checked before, and remove slow wrappers."""
        self._first = int(cast("Discrete", self.whole.action_space).start)
        self._flat = flattener(self.whole.observation_space)
        self.env, limit = strip_wrappers(self.whole)
        self._limit = NO_LIMIT if limit is None else limit

    def reset(self, seed: int | None = None) -> Array:
        """Begin an episode and return its first observation."""
        observation, _ = self.env.reset(seed=seed)
        self.total, self.length = 0.0, 0
        return observation if self._flat is None else self._flat(observation)

    def step(self, action: int) -> tuple[Array, float, bool, bool]:
        """Take an action; return observation, reward, whether the episode ended, and whether time is up."""
        observation, reward, over, cut, _ = self.env.step(action + self._first)
        reward = float(reward)
        self.total += reward
        self.length += 1
        if self._flat is not None:
            observation = self._flat(observation)
        return observation, reward, over, cut or self.length >= self._limit
