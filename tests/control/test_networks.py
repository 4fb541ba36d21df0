"""Two perceptrons in one vector: laid out as promised, begun and passed through as Stable-Baselines3's."""

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO

from tacit.control.networks import NetworkShape
from tacit.errors import InvalidValue

LANDER = NetworkShape(8, (64, 64), 4)


def start(shape, seed=0):
    return shape.start(np.random.default_rng(seed))


def test_a_lander_has_as_many_weights_as_its_peer_and_the_actor_comes_first():
    assert (LANDER.actor, LANDER.critic, LANDER.size) == (4996, 4801, 9797)
    actor, critic = LANDER.layers(np.arange(9797.0))
    assert [matrix.shape for matrix, _ in actor] == [(64, 8), (64, 64), (4, 64)]
    assert [matrix.shape for matrix, _ in critic] == [(64, 8), (64, 64), (1, 64)]
    assert actor[0][0][0].tolist() == list(range(8))
    assert actor[0][1][0] == 512
    assert critic[0][0][0, 0] == 4996
    assert critic[-1][1].tolist() == [9796]


def test_layers_are_views_of_the_vector():
    weights = np.zeros(LANDER.size)
    LANDER.layers(weights)[1][-1][1][:] = 3.0
    assert weights[-1] == 3.0
    assert np.count_nonzero(weights) == 1


@pytest.mark.parametrize("hidden", [(), (5,), (64, 64), (7, 3, 9)])
def test_weights_begin_orthogonal_with_the_gains_of_their_layers(hidden):
    shape = NetworkShape(6, hidden, 3)
    for layers, head in zip(shape.layers(start(shape)), (0.01, 1.0), strict=True):
        gains = [2**0.5] * len(hidden) + [head]
        for (matrix, intercepts), gain in zip(layers, gains, strict=True):
            small = matrix @ matrix.T if matrix.shape[0] < matrix.shape[1] else matrix.T @ matrix
            np.testing.assert_allclose(small, gain**2 * np.eye(len(small)), atol=1e-12)
            assert not intercepts.any()


def test_the_same_generator_begins_with_the_same_weights():
    assert (start(LANDER, 5) == start(LANDER, 5)).all()
    assert (start(LANDER, 5) != start(LANDER, 6)).any()


@pytest.mark.parametrize("hidden", [(), (64, 64), (16,)])
def test_logits_and_values_are_those_of_stable_baselines(hidden):
    space = gymnasium.spaces.Box(-1.0, 1.0, (8,))
    env = gymnasium.make("CartPole-v1").unwrapped
    env.observation_space, env.action_space = space, gymnasium.spaces.Discrete(4)
    net = {"net_arch": list(hidden)}
    theirs = PPO("MlpPolicy", env, n_steps=2, batch_size=2, policy_kwargs=net, device="cpu", seed=0).policy
    shape = NetworkShape(8, hidden, 4)
    weights = start(shape, 3)
    load(theirs, shape, weights)
    observations = np.random.default_rng(1).normal(size=(9, 8))
    seen = torch.from_numpy(observations.astype(np.float32))
    with torch.no_grad():
        logits = theirs.get_distribution(seen).distribution.logits.numpy()
        values = theirs.predict_values(seen)[:, 0].numpy()
    ours = shape.logits(weights, observations)
    np.testing.assert_allclose(
        ours - np.logaddexp.reduce(ours, axis=1, keepdims=True), logits, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(shape.values(weights, observations), values, rtol=1e-5, atol=1e-6)


def load(policy, shape, weights):
    """Our weights into a policy of theirs."""
    actor, critic = shape.layers(weights)
    bodies = (policy.mlp_extractor.policy_net, policy.mlp_extractor.value_net)
    with torch.no_grad():
        for layers, body, head in zip(
            (actor, critic), bodies, (policy.action_net, policy.value_net), strict=True
        ):
            modules = [one for one in body if isinstance(one, torch.nn.Linear)] + [head]
            for (matrix, intercepts), module in zip(layers, modules, strict=True):
                module.weight.copy_(torch.from_numpy(matrix))
                module.bias.copy_(torch.from_numpy(intercepts))


@pytest.mark.parametrize(
    ("given", "field"), [((0, (), 2), "inputs"), ((4, (8, 0), 2), "hidden"), ((4, (), 0), "actions")]
)
def test_a_shape_without_numbers_is_refused_by_name(given, field):
    with pytest.raises(InvalidValue, match=f"{field} = 0 is not allowed"):
        NetworkShape(*given)


def test_a_vector_of_another_length_is_refused():
    with pytest.raises(InvalidValue, match="a vector of 9797"):
        LANDER.layers(np.zeros(7))
