"""PPO against Stable-Baselines3: whole rounds of playing and learning, the same steps, networks and settings.

Before the timing, both learn from the same artificial rollout, and their final weights are compared. The
settings are those of the RL zoo for the lander and the peer's defaults for the cart; the peer plays in a
DummyVecEnv, its fastest on few cores. The fast lander is our compiled copy of Gymnasium's, equal step by
step; the peer plays in Gymnasium. `make bench-learning` compares the returns of both after equal numbers of
steps.
"""

import numpy as np

from bench.racing import Race, Work

LANDER, CART = "LunarLander-v3", "CartPole-v1"
ZOO = {"n_epochs": 4, "gamma": 0.999, "gae_lambda": 0.98, "ent_coef": 0.01}
# Environments, steps of each before it is learned from, numbers seen, actions, and what is not the default.
SETTINGS = {LANDER: (16, 1024, 8, 4, ZOO), CART: (4, 512, 4, 2, {})}
OURS = {"n_epochs": "epochs", "ent_coef": "entropy"}
WIDTHS = (64, 64)
# Steps of the made-up rollout, in one batch.
MADE_UP = 128


def parts(inputs, actions):
    """The shapes of the layers, the actor's first: of each its matrix and then its intercepts."""
    return [
        shape
        for outputs in (actions, 1)
        for before, after in zip((inputs, *WIDTHS), (*WIDTHS, outputs), strict=True)
        for shape in ((after, before), (after,))
    ]


def rollout(env):
    """Weights, and what an agent with other weights may have lived through in two environments."""
    _, _, inputs, actions, _ = SETTINGS[env]
    draws = np.random.default_rng(inputs)
    weights = np.concatenate([draws.normal(0, 0.3, np.prod(shape)) for shape in parts(inputs, actions)])
    steps = (MADE_UP // 2, 2)
    return weights.astype(np.float32), {
        "observations": draws.normal(size=(*steps, inputs)).astype(np.float32),
        "actions": draws.integers(actions, size=steps),
        "log_probs": np.log(draws.uniform(0.2, 0.6, size=steps)).astype(np.float32),
        "values": draws.normal(size=steps).astype(np.float32),
        "rewards": draws.normal(size=steps).astype(np.float32),
        "ended": draws.uniform(size=steps) < 0.1,
        "last_values": draws.normal(size=2).astype(np.float32),
    }


def ours(env, physics):
    from tacit.control.envs.vector import make_vector_env
    from tacit.control.kernels import train_epoch
    from tacit.control.networks import NetworkShape
    from tacit.control.ppo import PPOConfig, _coefficients, build_buffer, learn
    from tacit.control.rollout import Rollout
    from tacit.sites.environments import World

    envs, steps, inputs, actions, choices = SETTINGS[env]
    recipe = PPOConfig(**{OURS.get(name, name): value for name, value in choices.items()})
    shape, draws = NetworkShape(inputs, WIDTHS, actions), np.random.default_rng(0)
    lens = {"center": np.zeros(inputs), "scale": np.ones(inputs)}

    def run():
        with make_vector_env(
            [World(env, physics=physics)], envs, generator=draws, place="bench", **lens
        ) as stage:
            sizes = {"steps": envs * steps, "rollout": envs * steps}
            learn(shape.start(draws), shape, stage, recipe, generator=draws, **sizes)

    def check():
        weights, lived = rollout(env)
        none = {name: np.zeros(0) for name in ("returns", "lengths", "steps")}
        memory, adam = (
            build_buffer(Rollout(**lived, **none), recipe),
            np.zeros((2, shape.size), dtype=np.float32),
        )
        train_epoch(
            weights, shape.sizes, memory, np.arange(MADE_UP), MADE_UP, _coefficients(recipe, None), adam, 0
        )
        # What is compiled, or imported on the way, is not compared.
        run()
        return weights

    return Work(run, check)


def stable_baselines(env, physics):
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    envs, steps, _, _, choices = SETTINGS[env]
    model = PPO(
        "MlpPolicy", make_vec_env(env, n_envs=envs, seed=0), n_steps=steps, seed=0, device="cpu", **choices
    )

    return Work(
        lambda: model.learn(envs * steps, reset_num_timesteps=False),
        lambda: learnt_from(env, PPO, make_vec_env(env, n_envs=2, seed=0)),
    )


def learnt_from(env, kind, worlds):
    """The weights of the peer after one pass over the made-up rollout in a single batch."""
    import torch
    from stable_baselines3.common.logger import Logger

    choices = SETTINGS[env][-1]
    weights, lived = rollout(env)
    once = {**choices, "n_epochs": 1, "batch_size": MADE_UP, "n_steps": MADE_UP // 2}
    model = kind("MlpPolicy", worlds, seed=0, device="cpu", **once)
    model.set_logger(Logger(None, []))
    layers, start = ordered(model.policy), 0
    with torch.no_grad():
        for values in layers:
            values.copy_(torch.from_numpy(weights[start : start + values.numel()]).view_as(values))
            start += values.numel()
    buffer, begun = model.rollout_buffer, np.zeros(2)
    buffer.reset()
    for step in range(MADE_UP // 2):
        seen = (lived["observations"][step], lived["actions"][step], lived["rewards"][step])
        thought = (torch.from_numpy(lived[name][step]) for name in ("values", "log_probs"))
        buffer.add(*seen, begun, *thought)
        begun = lived["ended"][step]
    buffer.compute_returns_and_advantage(torch.from_numpy(lived["last_values"]), begun)
    model.train()
    return np.concatenate([values.detach().numpy().ravel() for values in layers])


def ordered(policy):
    """The peer's layers in the order of our vector."""
    extractor = policy.mlp_extractor
    nets = ((extractor.policy_net, policy.action_net), (extractor.value_net, policy.value_net))
    linear = [layer for net, head in nets for layer in (*net, head) if hasattr(layer, "weight")]
    return [values for layer in linear for values in (layer.weight, layer.bias)]


RACES = [
    Race(
        name=f"{env}, {said}, {SETTINGS[env][0] * SETTINGS[env][1]:,} steps",
        group=f"PPO in {env}, {said}",
        given={"env": env, "physics": physics},
        ours=ours,
        theirs={"Stable-Baselines3 2.9": stable_baselines},
        same=2e-6,
        goal=goal,
    )
    for env, said, physics, goal in (
        (CART, "Gymnasium", "gymnasium", None),
        (LANDER, "Gymnasium", "gymnasium", 4),
        (LANDER, "the fast lander", "fast-lander", 20),
    )
]
