"""Our PPO against Stable-Baselines3's and torch: the same sums, the same steps, the same learning."""

import math
from itertools import pairwise

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.logger import Logger
from torch.nn.functional import log_softmax, mse_loss

from tacit.control import kernels
from tacit.control.envs.vector import make_vector_env
from tacit.control.networks import NetworkShape
from tacit.control.ppo import PPOConfig, build_buffer, learn
from tacit.control.rollout import Rollout
from tacit.errors import InvalidValue
from tacit.sites.environments import World

USUAL = kernels.LossCoefficients(3e-4, 0.2, math.inf, 0.0, 0.5, 0.5, math.inf)


def floats(generator, *shape):
    return generator.normal(size=shape).astype(np.float32)


def experience(shape, steps, envs, seed=0, spread=0.3):
    """A rollout of nothing in particular, by a policy near to the one that will learn from it."""
    draws = np.random.default_rng(seed)
    weights = shape.start(draws) + 0.2 * draws.normal(size=shape.size)
    observations = floats(draws, steps, envs, shape.inputs)
    flat = observations.reshape(-1, shape.inputs)
    logits = shape.logits(weights, flat)
    log_probs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    actions = draws.integers(shape.actions, size=steps * envs)
    taken = log_probs[np.arange(len(flat)), actions] + spread * draws.normal(size=len(flat))
    rollout = Rollout(
        observations,
        actions.reshape(steps, envs),
        taken.astype(np.float32).reshape(steps, envs),
        floats(draws, steps, envs),
        floats(draws, steps, envs),
        draws.random((steps, envs)) < 0.1,
        floats(draws, envs),
        np.zeros(0),
        np.zeros(0, dtype=np.int64),
        np.zeros(0, dtype=np.int64),
    )
    return weights.astype(np.float32), rollout


def stage(world, envs, seed=0, inputs=4):
    draws = np.random.default_rng(seed)
    ends = {"center": np.zeros(inputs), "scale": np.ones(inputs)}
    return make_vector_env([World(world)], envs, generator=draws, place="site a", **ends)


def passed(weights, shape, observations):
    """Logits and values by torch, from one flat vector."""
    answers = []
    ends = ((weights[: shape.actor], shape.actions), (weights[shape.actor :], 1))
    for part, outputs in ends:
        widths, at, passing = (shape.inputs, *shape.hidden, outputs), 0, observations
        for number, (before, after) in enumerate(pairwise(widths)):
            matrix = part[at : at + before * after].reshape(after, before)
            intercepts = part[at + before * after : at + (before + 1) * after]
            passing = passing @ matrix.T + intercepts
            passing = torch.tanh(passing) if number < len(shape.hidden) else passing
            at += (before + 1) * after
        answers.append(passing)
    return answers[0], answers[1][:, 0]


def slopes(weights, shape, memory, chosen, terms):
    """The gradient of the loss by torch, and how far the policy has gone."""
    vector = torch.tensor(weights, dtype=torch.float64, requires_grad=True)
    rows = [torch.from_numpy(one[chosen].astype(np.float64)) for one in memory]
    observations, actions, old, before, better, returns = rows
    logits, values = passed(vector, shape, observations)
    every = log_softmax(logits, dim=1)
    log_probs = every[torch.arange(len(chosen)), actions.long()]
    if len(chosen) > 1:
        better = (better - better.mean()) / (better.std() + 1e-8)
    ratio = torch.exp(log_probs - old)
    clipped = better * ratio.clamp(1 - terms.clip_range, 1 + terms.clip_range)
    loss = -torch.min(better * ratio, clipped).mean()
    loss = loss - terms.entropy * -(every.exp() * every).sum(1).mean()
    if terms.value_clip < math.inf:
        values = before + (values - before).clamp(-terms.value_clip, terms.value_clip)
    loss = loss + terms.value_weight * mse_loss(returns, values)
    loss.backward()
    far = (ratio - 1 - (log_probs - old)).mean().item()
    return vector.grad.numpy(), far


@pytest.mark.parametrize("hidden", [(), (5,), (64, 64), (6, 3, 4)])
@pytest.mark.parametrize(
    "terms",
    [
        USUAL._replace(value_weight=0.0),
        USUAL._replace(value_weight=0.0, clip_range=0.05),
        USUAL._replace(entropy=0.3, value_weight=0.0),
        USUAL._replace(value_weight=2.0),
        USUAL._replace(value_clip=0.4),
        USUAL._replace(entropy=0.01, value_clip=1.0),
    ],
    ids=["policy", "clipped", "entropy", "value", "value clip", "all"],
)
def test_gradients_are_those_of_torch(hidden, terms):
    shape = NetworkShape(3, hidden, 4)
    weights, played = experience(shape, 20, 2)
    memory = build_buffer(played, PPOConfig())
    for chosen in (np.arange(3, 33), np.array([7]), np.array([9, 2])):
        room = kernels.make_workspace(shape.sizes, 32)
        far = kernels.gradient(weights, shape.sizes, memory, chosen, terms, room)
        expected, gone = slopes(weights, shape, memory, chosen, terms)
        np.testing.assert_allclose(
            room.gradient, expected, rtol=2e-4, atol=2e-6 * max(1, abs(expected).max())
        )
        assert far == pytest.approx(gone, rel=1e-4, abs=1e-6)


# The last batch has fewer rows, which theirs warns of.
@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")
@pytest.mark.parametrize(
    ("hidden", "extra"),
    [
        ((64, 64), {}),
        ((), {"ent_coef": 0.02}),
        ((16,), {"clip_range_vf": 0.3, "ent_coef": 0.01, "max_grad_norm": 0.1}),
        ((16,), {"target_kl": 0.001, "learning_rate": 3e-3}),
        ((16,), {"target_kl": 1e-4}),
    ],
    ids=["usual", "linear", "value clip", "stopped on the way", "stopped at once"],
)
def test_an_update_ends_with_the_weights_that_stable_baselines_ends_with(hidden, extra):
    steps, envs, epochs, batch = 50, 3, 3, 32
    shape, spread = NetworkShape(8, hidden, 4), 0.0 if "learning_rate" in extra else 0.2
    weights, played = experience(shape, steps, envs, seed=4, spread=spread)
    model = peer(shape, steps, envs, n_epochs=epochs, batch_size=batch, **extra)
    fill(model, shape, weights, played)
    # Theirs draws its batches from there.
    np.random.seed(11)
    orders = [np.random.permutation(steps * envs) for _ in range(epochs)]
    np.random.seed(11)
    model.train()

    recipe = PPOConfig(
        lr=extra.get("learning_rate", 3e-4),
        epochs=epochs,
        batch=batch,
        value_clip=extra.get("clip_range_vf"),
        entropy=extra.get("ent_coef", 0.0),
        grad_norm=extra.get("max_grad_norm", 0.5),
        target_kl=extra.get("target_kl"),
    )
    ours = weights.copy()
    passes = improve(ours, shape, played, recipe, [(one % steps) * envs + one // steps for one in orders])
    theirs = flat(model.policy)
    assert passes == model._n_updates
    assert passes == {0.001: 2, 1e-4: 1}.get(extra.get("target_kl"), epochs)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    assert (abs(theirs - weights).max() > 1e-3) == (passes > 1)


def improve(weights, shape, played, recipe, orders):
    """As `learn` does, with batches that are given; how many passes were begun."""
    limit = math.inf if recipe.target_kl is None else 1.5 * recipe.target_kl
    clip = math.inf if recipe.value_clip is None else recipe.value_clip
    terms = kernels.LossCoefficients(recipe.lr, 0.2, clip, recipe.entropy, 0.5, recipe.grad_norm, limit)
    adam, taken, memory = np.zeros((2, shape.size), dtype=np.float32), 0, build_buffer(played, recipe)
    for number, order in enumerate(orders, 1):
        taken, go_on = kernels.train_epoch(
            weights, shape.sizes, memory, order, recipe.batch, terms, adam, taken
        )
        if not go_on:
            return number
    return len(orders)


class Nowhere(gymnasium.Env):
    """Spaces and nothing in them."""

    def __init__(self, shape):
        self.observation_space = gymnasium.spaces.Box(-9.0, 9.0, (shape.inputs,))
        self.action_space = gymnasium.spaces.Discrete(shape.actions)

    def reset(self, *, seed=None, options=None):
        return np.zeros(self.observation_space.shape, dtype=np.float32), {}


def peer(shape, steps, envs, **choices):
    from stable_baselines3.common.vec_env import DummyVecEnv

    worlds = DummyVecEnv([lambda: Nowhere(shape)] * envs)
    net = {"net_arch": list(shape.hidden)}
    model = PPO("MlpPolicy", worlds, n_steps=steps, policy_kwargs=net, device="cpu", **choices)
    model.set_logger(Logger(None, []))
    return model


def modules(policy):
    for body, head in (
        (policy.mlp_extractor.policy_net, policy.action_net),
        (policy.mlp_extractor.value_net, policy.value_net),
    ):
        yield from [one for one in body if isinstance(one, torch.nn.Linear)]
        yield head


def flat(policy):
    parts = [part for one in modules(policy) for part in (one.weight, one.bias)]
    return torch.cat([part.detach().reshape(-1) for part in parts]).numpy()


def fill(model, shape, weights, played):
    """Our weights into their policy, our rollout into their buffer."""
    actor, critic = shape.layers(weights)
    with torch.no_grad():
        for (matrix, intercepts), one in zip([*actor, *critic], modules(model.policy), strict=True):
            one.weight.copy_(torch.from_numpy(matrix))
            one.bias.copy_(torch.from_numpy(intercepts))
    fill_buffer(model.rollout_buffer, played)


def fill_buffer(buffer, played):
    begun = np.zeros(played.ended.shape[1])
    for step in range(len(played.rewards)):
        buffer.add(
            played.observations[step],
            played.actions[step][:, None],
            played.rewards[step],
            begun,
            torch.from_numpy(played.values[step]),
            torch.from_numpy(played.log_probs[step]),
        )
        begun = played.ended[step]
    buffer.compute_returns_and_advantage(torch.from_numpy(played.last_values), begun)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 30), st.integers(1, 4), st.floats(0, 1), st.floats(0, 1))
def test_advantages_are_those_of_stable_baselines(seed, steps, envs, gamma, decay):
    shape = NetworkShape(2, (), 3)
    _, played = experience(shape, steps, envs, seed)
    world = Nowhere(shape)
    spaces = (world.observation_space, world.action_space)
    buffer = RolloutBuffer(steps, *spaces, "cpu", gae_lambda=decay, gamma=gamma, n_envs=envs)
    fill_buffer(buffer, played)
    memory = build_buffer(played, PPOConfig(gamma=gamma, gae_lambda=decay))
    np.testing.assert_allclose(
        memory.advantages.reshape(steps, envs), buffer.advantages, rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(memory.returns.reshape(steps, envs), buffer.returns, rtol=1e-5, atol=1e-5)


def test_squashing_is_tanh_to_a_millionth():
    shape = NetworkShape(1, (1,), 1)
    weights = np.zeros(shape.size, dtype=np.float32)
    # One number in, its tanh out: of the critic, for few rows and for many.
    weights[shape.actor :] = [1.0, 0.0, 1.0, 0.0]
    inputs = np.concatenate([np.linspace(-12, 12, 9999), [-1e30, 1e30, 1e-30, 0.0]]).astype(np.float32)
    values = np.empty(len(inputs), dtype=np.float32)
    work = kernels.activation_buffer(shape.sizes, len(inputs))
    kernels.predict_values(weights, shape.sizes, inputs[:, None], work, values)
    np.testing.assert_allclose(values, np.tanh(inputs.astype(np.float64)), atol=1e-6)
    assert abs(values).max() <= 1


@pytest.mark.parametrize("rows", [1, 2, 8, 9, 64])
@pytest.mark.parametrize("hidden", [(), (64, 64)])
def test_acting_draws_the_action_whose_share_the_number_falls_into(rows, hidden):
    shape, draws = NetworkShape(5, hidden, 3), np.random.default_rng(rows)
    weights = shape.start(draws) + 0.5 * draws.normal(size=shape.size)
    observations, numbers = floats(draws, rows, 5), draws.random(rows, dtype=np.float32)
    actions, log_probs, values = (np.empty(rows, dtype=kind) for kind in (np.int64, np.float32, np.float32))
    work, small = kernels.activation_buffer(shape.sizes, rows), weights.astype(np.float32)
    kernels.act(small, shape.sizes, observations, numbers, work, actions, log_probs, values)
    logits = shape.logits(weights, observations)
    expected = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    shares = np.exp(expected).cumsum(axis=1)
    assert actions.tolist() == [
        int(np.searchsorted(one, u, side="right")) for one, u in zip(shares, numbers, strict=True)
    ]
    np.testing.assert_allclose(log_probs, expected[np.arange(rows), actions], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(values, shape.values(weights, observations), rtol=1e-4, atol=1e-5)


def test_the_same_seeds_give_the_same_weights_to_the_last_bit_and_others_do_not():
    shape = NetworkShape(4, (8,), 2)
    begin = shape.start(np.random.default_rng(0))

    def learnt(seed):
        with stage("CartPole-v1", 2, seed) as worlds:
            draws = np.random.default_rng(seed + 100)
            return learn(begin, shape, worlds, PPOConfig(epochs=2), steps=512, rollout=256, generator=draws)

    first, again, other = learnt(1), learnt(1), learnt(2)
    assert first[0].tobytes() == again[0].tobytes()
    assert first[1].returns.tolist() == again[1].returns.tolist()
    assert first[0].tobytes() != other[0].tobytes()
    assert first[0].dtype == np.float64
    assert not (first[0] == begin).all()


def test_steps_are_counted_exactly_and_none_is_made_up():
    shape, draws = NetworkShape(4, (), 2), np.random.default_rng(0)
    with stage("CartPole-v1", 4) as worlds:
        weights = shape.start(draws)
        for steps, rollout, field in ((400, 150, "rollout"), (500, 200, "steps")):
            with pytest.raises(InvalidValue, match=f"{field} = .* a multiple of"):
                learn(weights, shape, worlds, PPOConfig(), steps=steps, rollout=rollout, generator=draws)
        _, episodes = learn(
            weights, shape, worlds, PPOConfig(epochs=1), steps=400, rollout=200, generator=draws
        )
    assert episodes.lengths.sum() <= 400
    assert (np.diff(episodes.steps) > 0).all()
    assert 0 < episodes.steps[-1] <= 400
    assert (episodes.returns == episodes.lengths).all()


def test_learning_stops_where_weights_are_no_longer_finite():
    shape, draws = NetworkShape(4, (4,), 2), np.random.default_rng(0)
    begin = shape.start(draws)
    begin[-1] = np.inf
    with stage("CartPole-v1", 2) as worlds:
        weights, episodes = learn(
            begin, shape, worlds, PPOConfig(epochs=1), steps=4000, rollout=200, generator=draws
        )
    assert not np.isfinite(weights).all()
    assert episodes.lengths.sum() <= 200


def test_rewards_are_scaled_where_an_agent_learns_and_not_where_it_is_judged():
    shape, draws = NetworkShape(4, (), 2), np.random.default_rng(0)
    weights = shape.start(draws).astype(np.float32)
    with stage("CartPole-v1", 2) as worlds:
        played = worlds.play(weights, shape, 100, 0.99, 0.01)
    assert set(played.rewards[~played.ended].tolist()) == {float(np.float32(0.01))}
    assert (played.returns == played.lengths).all()


@pytest.mark.parametrize(
    ("field", "given"),
    [("lr", 0.0), ("gamma", 1.5), ("epochs", 0), ("target_kl", -1.0), ("entropy", math.nan), ("batch", 2.5)],
)
def test_a_recipe_that_cannot_be_followed_is_refused_by_name(field, given):
    with pytest.raises(InvalidValue, match=f"{field} = "):
        PPOConfig(**{field: given})


def test_cart_pole_is_learnt_within_as_many_steps_as_stable_baselines_needs():
    shape, draws = NetworkShape(4, (64, 64), 2), np.random.default_rng(0)
    with stage("CartPole-v1", 4) as worlds:
        weights = shape.start(draws)
        _, episodes = learn(weights, shape, worlds, PPOConfig(), steps=40_960, rollout=2048, generator=draws)
    assert episodes.returns[:20].mean() < 60
    assert episodes.returns[-20:].mean() > 400
