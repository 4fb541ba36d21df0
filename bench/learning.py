"""Learning of agents from equally many steps, beside Stable-Baselines3.

Both have the same networks, hyperparameters, environments and steps: those of the zoo for the lander, the
peer's own defaults for the cart. Training returns along the way, three seeds; `make bench-control` says who
is faster. The lander takes the peer minutes for each seed; `python -m bench learning --full` takes it as far
as the zoo does. Prints Markdown tables.
"""

import argparse
import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from tacit.control.envs.vector import make_vector_env
from tacit.control.networks import NetworkShape
from tacit.control.ppo import PPOConfig, learn
from tacit.control.rollout import Episodes
from tacit.sites.environments import World

SEEDS = (0, 1, 2)
ZOO = {"n_epochs": 4, "gamma": 0.999, "gae_lambda": 0.98, "ent_coef": 0.01}
LANDER, CART = "LunarLander-v3", "CartPole-v1"
SHAPES = {LANDER: NetworkShape(8, (64, 64), 4), CART: NetworkShape(4, (64, 64), 2)}
# Environments, steps of each before it is learned from, and the peer's names for what is not its default.
SETTINGS: dict[str, tuple[int, int, dict[str, Any]]] = {LANDER: (16, 1024, ZOO), CART: (4, 512, {})}
OURS = {"n_epochs": "epochs", "ent_coef": "entropy"}
PLAYED = [(CART, "gymnasium"), (LANDER, "gymnasium"), (LANDER, "fast-lander")]
# Returns are means over so many episodes, as the peer's.
WINDOW = 100


def peer(env: str, seed: int) -> stable_baselines3.PPO:
    envs, steps, choices = SETTINGS[env]
    worlds = make_vec_env(env, n_envs=envs, seed=seed)
    return stable_baselines3.PPO("MlpPolicy", worlds, n_steps=steps, seed=seed, device="cpu", **choices)


def ours(env: str, physics: Any, seed: int, rollouts: int) -> Episodes:
    envs, steps, choices = SETTINGS[env]
    recipe = PPOConfig(**{OURS.get(name, name): value for name, value in choices.items()})
    shape, draws = SHAPES[env], np.random.default_rng(seed)
    lens = {"center": np.zeros(shape.inputs), "scale": np.ones(shape.inputs)}
    rollout = envs * steps
    with make_vector_env(
        [World(env, physics=physics)], envs, generator=draws, place="bench", **lens
    ) as stage:
        start = shape.start(draws)
        sizes = {"steps": rollouts * rollout, "rollout": rollout}
        return learn(start, shape, stage, recipe, generator=draws, **sizes)[1]


class Followed(BaseCallback):
    """Every episode of the peer: the step that it ended with and what it returned."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[tuple[int, float]] = []

    def _on_step(self) -> bool:
        found = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        self.ends += [(self.num_timesteps, float(value)) for value in found]
        return True


def followed(env: str, seed: int, steps: int) -> tuple[list[int], list[float]]:
    model, diary = peer(env, seed), Followed()
    model.learn(steps, callback=diary)
    model.get_env().close()
    made, returns = zip(*diary.ends, strict=True)
    return list(made), list(returns)


def along(made: Sequence[int], returns: Sequence[float], marks: Sequence[int]) -> list[float]:
    ends = np.searchsorted(made, marks, side="right")
    return [float(np.mean(returns[max(0, end - WINDOW) : end])) for end in ends]


def curve(env: str, steps: int, points: int) -> None:
    envs, each, _ = SETTINGS[env]
    rollouts = steps // (envs * each)
    marks = [rollouts * number // points * envs * each for number in range(1, points + 1)]
    columns = {"SB3": [along(*followed(env, seed, marks[-1]), marks) for seed in SEEDS]}
    for _, physics in (one for one in PLAYED if one[0] == env):
        played = [ours(env, physics, seed, rollouts) for seed in SEEDS]
        columns[f"ours, {physics}"] = [along(one.steps, one.returns, marks) for one in played]
    print(f"\n| {env}, steps | {' | '.join(columns)} |\n| ---: |{' --- |' * len(columns)}")
    for place, mark in enumerate(marks):
        cells = [", ".join(f"{one[place]:.0f}" for one in column) for column in columns.values()]
        print(f"| {mark:,} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--full", action="store_true", help="the lander to 700,000 steps")
    options = asked.parse_args()
    torch.set_num_threads(1)
    # Box2D warns when it is first imported.
    warnings.filterwarnings("ignore", "builtin type .* has no __module__", DeprecationWarning)
    curve(CART, 50_000, 6)
    curve(LANDER, 700_000 if options.full else 300_000, 6)


if __name__ == "__main__":
    main()
