"""Policy for the user: the networks, their weights, and the normalization of observations.

It predicts as an agent of Stable-Baselines3 does, and is saved and loaded as one. A sampled action is drawn
afresh unless a generator is given; nothing here is random by global state.
"""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.control.networks import NetworkShape
from tacit.errors import InvalidValue, require, require_count
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import fields_of
from tacit.runtime.keys import Key

if TYPE_CHECKING:
    from tacit.sites.environments import World

Actions = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Policy:
    """An agent.

    Args:
        shape: Its networks.
        weights: Their weights, as one vector.
        center: Center of each number of an observation, subtracted first.
        scale: Scale of each number of an observation.
        env: The default environment.
    """

    shape: NetworkShape
    weights: Array
    center: Array
    scale: Array
    env: "World | None" = None

    def __post_init__(self) -> None:
        sizes = {"weights": self.shape.size, "center": self.shape.inputs, "scale": self.shape.inputs}
        held = fields_of(self, sizes)
        for name, size in sizes.items():
            values = np.array(held[name], dtype=np.float64)
            require(values.shape == (size,), name, f"shape {values.shape}", f"a vector of {size}")
            require(bool(np.isfinite(values).all()), name, "NaN or infinite", "finite numbers")
            object.__setattr__(self, name, values)
        require(bool((self.scale > 0).all()), "scale", float(self.scale.min()), "above 0")

    def __repr__(self) -> str:
        layers = " x ".join(map(str, (self.shape.inputs, *self.shape.hidden, self.shape.actions)))
        return f"<Policy {layers}" + (f" for {self.env.name}>" if self.env is not None else ">")

    def probabilities(self, observations: ArrayLike) -> Array:
        """Return action probabilities for each observation (observations, actions), or for one (actions,)."""
        seen, one = self._as_rows(observations)
        found = _softmax(self.shape.logits(self.weights, (seen - self.center) / self.scale))
        return found[0] if one else found

    def values(self, observations: ArrayLike) -> Array:
        """Return the critic's values of observations, in the units of training."""
        seen, one = self._as_rows(observations)
        found = self.shape.values(self.weights, (seen - self.center) / self.scale)
        return found[0] if one else found

    def act(
        self,
        observation: ArrayLike,
        deterministic: bool = True,
        generator: np.random.Generator | None = None,
    ) -> int:
        """The action upon one observation.

        Args:
            observation: The observation.
            deterministic: Whether the likeliest action is taken, rather than one drawn.
            generator: Generator of the draw.
        """
        actions, _ = self.predict(observation, deterministic=deterministic, generator=generator)
        require(actions.ndim == 0, "observation", f"{actions.size} of them", "one observation")
        return int(actions)

    def predict(
        self,
        observation: ArrayLike,
        state: object = None,
        episode_start: object = None,
        deterministic: bool = False,
        generator: np.random.Generator | None = None,
    ) -> tuple[Actions, None]:
        """The action upon one observation, or the actions upon several, as Stable-Baselines3 has it.

        Args:
            observation: The observation (inputs,), or several (observations, inputs).
            state: Not used: there is no memory.
            episode_start: Not used either.
            deterministic: Whether the likeliest action is taken, rather than one drawn.
            generator: Generator of the draws; by default fresh ones.
        """
        likely = self.probabilities(observation)
        if deterministic:
            return np.asarray(likely.argmax(axis=-1), dtype=np.int64), None
        drawn = (generator or np.random.default_rng()).random((*likely.shape[:-1], 1))
        return np.asarray(_sample_actions(likely, drawn), dtype=np.int64), None

    def greedy(self, observations: NDArray[np.float32]) -> Actions:
        """Return the likeliest action for each observation (observations, inputs), without checks."""
        passing = observations
        for matrix, intercepts in self._quick[:-1]:
            passing = np.tanh(passing @ matrix + intercepts)
        matrix, intercepts = self._quick[-1]
        return (passing @ matrix + intercepts).argmax(axis=1)

    def play(
        self,
        world: "World | None" = None,
        episodes: int = 1,
        seed: int = 0,
        deterministic: bool = True,
    ) -> Array:
        """Return the returns of some episodes, in Gymnasium.

        Args:
            world: The environment; by default its own.
            episodes: Number of episodes.
            seed: Seed of the episodes.
            deterministic: Whether the likeliest action is taken, rather than one drawn.
        """
        from tacit.control.envs.episodes import play_episodes

        require_count("episodes", episodes)
        key = Key(seed) / "play"
        generator = (key / "actions").generator()

        def sample(seen: NDArray[np.float32]) -> Actions:
            return self.predict(seen, generator=generator)[0]

        seeds = key.generator().integers(2**31, size=episodes).tolist()
        return play_episodes(self.greedy if deterministic else sample, self._world(world), self.shape, seeds)

    def film(
        self,
        path: str | os.PathLike[str],
        world: "World | None" = None,
        seed: int = 0,
        fps: int = 50,
        most: int = 1000,
    ) -> Path:
        """Write one episode as a GIF; return its path.

        Args:
            path: The file, `*.gif`.
            world: The environment; by default its own.
            seed: Seed of the episode.
            fps: Steps per second.
            most: Largest number of steps in the film.
        """
        from tacit.control.envs.episodes import film

        return film(self, Path(path), self._world(world), seed=seed, fps=fps, most=most)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as an agent of Stable-Baselines3, for `PPO.load`; it takes observations as they are.

        Weights become single precision, and normalization a part of the first layer.

        Args:
            path: The file, `*.zip`.
        """
        from tacit.control.agents.stable_baselines import write
        from tacit.control.envs.spaces import agent_spaces

        place = _zip(path)
        write(place, self.shape, self.folded, *agent_spaces(self.shape, self.env))
        return place

    @classmethod
    def load(cls, path: str | os.PathLike[str], env: "World | None" = None) -> "Policy":
        """Load an agent of Stable-Baselines3 with an `MlpPolicy`; no code in the file is run.

        Args:
            path: Its file, `*.zip`.
            env: The default environment.
        """
        from tacit.control.agents.stable_baselines import read

        shape, weights = read(_zip(path))
        return cls(shape, weights, np.zeros(shape.inputs), np.ones(shape.inputs), env)

    @cached_property
    def folded(self) -> Array:
        """Return the weights for raw observations: the first layers include center and scale."""
        weights = self.weights.copy()
        if self.center.any() or (self.scale != 1).any():
            for layers in self.shape.layers(weights):
                matrix, intercepts = layers[0]
                matrix /= self.scale
                intercepts -= matrix @ self.center
        return weights

    @cached_property
    def _quick(self) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        actor, _ = self.shape.layers(self.folded)
        return [
            (np.ascontiguousarray(matrix.T, dtype=np.float32), intercepts.astype(np.float32))
            for matrix, intercepts in actor
        ]

    def _as_rows(self, observations: ArrayLike) -> tuple[Array, bool]:
        """Return observations as rows, and whether there was a single one."""
        seen, inputs = np.asarray(observations, dtype=np.float64), self.shape.inputs
        fits = seen.ndim in (1, 2) and seen.shape[-1] == inputs
        require(fits, "observation", f"shape {seen.shape}", f"({inputs},) or (observations, {inputs})")
        require(bool(np.isfinite(seen).all()), "observation", "NaN or infinite", "finite numbers")
        return np.atleast_2d(seen), seen.ndim == 1

    def _world(self, world: "World | None") -> "World":
        found = self.env if world is None else world
        if found is None:
            raise InvalidValue("world is missing: this policy has none of its own; give one")
        return found


def _softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _sample_actions(likely: Array, uniform: Array) -> Actions:
    """Sample actions from their probabilities; rounding never leads past the last one."""
    passed = (uniform >= likely.cumsum(axis=-1)).sum(axis=-1)
    return np.minimum(passed, likely.shape[-1] - 1)


def _zip(path: str | os.PathLike[str]) -> Path:
    """Return the path of an agent's file; a missing suffix is added, as Stable-Baselines3 does."""
    found = Path(path)
    found = found if found.suffix else found.with_name(found.name + ".zip")
    require(found.suffix == ".zip", "path", str(path), 'an agent of Stable-Baselines3, "*.zip"')
    return found
