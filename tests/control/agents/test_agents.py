"""A policy acts as its networks say, samples as it says it does, plays, and is filmed."""

import os
import warnings

import gymnasium
import numpy as np
import pytest
from PIL import Image

from tacit.control.agents.policy import Policy
from tacit.control.envs import episodes
from tacit.control.networks import NetworkShape
from tacit.errors import InvalidFile, InvalidValue
from tacit.sites.environments import World

with warnings.catch_warnings():
    # Box2D's wrapper warns as it is imported, and dies of it where warnings are errors.
    warnings.simplefilter("ignore")
    import Box2D  # noqa: F401

CART = World("CartPole-v1")
SHAPE = NetworkShape(4, (8,), 2)


def drawn(shape: NetworkShape = SHAPE, env: World | None = CART) -> Policy:
    generator = np.random.default_rng(2)
    center, scale = generator.normal(size=shape.inputs), generator.uniform(0.5, 2, size=shape.inputs)
    return Policy(shape, generator.normal(size=shape.size), center, scale, env)


def balancing(env: World = CART) -> Policy:
    """A linear policy that holds the pole up: it pushes where the pole falls."""
    shape = NetworkShape(4, (), 2)
    weights = np.zeros(shape.size)
    ((matrix, _),) = shape.layers(weights)[0]
    matrix[1] = [0.5, 1.0, 8.0, 4.0]
    return Policy(shape, weights, np.zeros(4), np.ones(4), env)


def test_probabilities_are_those_of_the_networks_after_normalisation():
    policy, seen = drawn(), np.random.default_rng(0).normal(size=(20, 4))
    normal = (seen - policy.center) / policy.scale
    powers = np.exp(SHAPE.logits(policy.weights, normal))
    np.testing.assert_allclose(policy.probabilities(seen), powers / powers.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(policy.values(seen), SHAPE.values(policy.weights, normal))
    np.testing.assert_allclose(policy.probabilities(seen[3]), policy.probabilities(seen)[3])
    assert policy.values(seen[3]) == pytest.approx(policy.values(seen)[3])


def test_logits_of_any_size_give_probabilities():
    shape = NetworkShape(1, (), 2)
    policy = Policy(shape, np.array([1e6, -1e6, 0, 0, 0, 0]), np.zeros(1), np.ones(1))
    np.testing.assert_array_equal(policy.probabilities([[1.0], [-1.0]]), [[1, 0], [0, 1]])


def test_predict_answers_as_stable_baselines_does():
    policy, seen = drawn(), np.random.default_rng(0).normal(size=(20, 4))
    actions, state = policy.predict(seen, None, None, deterministic=True)
    assert state is None
    assert actions.shape == (20,)
    one, _ = policy.predict(seen[0], deterministic=True)
    assert one.shape == ()
    assert one == actions[0] == policy.act(seen[0])
    np.testing.assert_array_equal(actions, policy.probabilities(seen).argmax(axis=1))


def test_sampled_actions_come_as_often_as_the_probabilities_say():
    shape = NetworkShape(2, (4,), 3)
    policy, one = drawn(shape, None), np.array([0.4, -0.2])
    actions, _ = policy.predict(np.tile(one, (20_000, 1)), generator=np.random.default_rng(1))
    shares = np.bincount(actions, minlength=3) / len(actions)
    np.testing.assert_allclose(shares, policy.probabilities(one), atol=0.01)
    again, _ = policy.predict(np.tile(one, (20_000, 1)), generator=np.random.default_rng(1))
    np.testing.assert_array_equal(actions, again)
    assert policy.act(one, deterministic=False, generator=np.random.default_rng(1)) == actions[0]
    assert policy.act(one, deterministic=False) in (0, 1, 2)


def test_sampling_touches_no_global_state():
    policy, before = drawn(), np.random.get_state()[1].copy()
    policy.predict(np.zeros(4))
    np.testing.assert_array_equal(before, np.random.get_state()[1])


def test_the_quick_way_chooses_the_same_actions():
    policy, seen = drawn(NetworkShape(8, (64, 64), 4), None), np.random.default_rng(0).normal(size=(500, 8))
    seen = seen.astype(np.float32)
    np.testing.assert_array_equal(policy.greedy(seen), policy.predict(seen, deterministic=True)[0])


def test_folded_weights_take_observations_as_they_are():
    policy, seen = drawn(), np.random.default_rng(0).normal(size=(20, 4))
    raw = Policy(SHAPE, policy.folded, np.zeros(4), np.ones(4))
    np.testing.assert_allclose(raw.probabilities(seen), policy.probabilities(seen), rtol=1e-9)
    np.testing.assert_allclose(raw.values(seen), policy.values(seen), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(raw.folded, raw.weights)


def test_it_plays_and_the_same_seed_plays_the_same():
    policy = balancing()
    returns = policy.play(episodes=11, seed=4)
    np.testing.assert_array_equal(returns, np.full(11, 500.0))
    other = drawn()
    np.testing.assert_array_equal(other.play(episodes=11, seed=4), other.play(episodes=11, seed=4))
    np.testing.assert_array_equal(other.play(episodes=3, seed=4), other.play(episodes=11, seed=4)[:3])
    assert other.play(CART, episodes=9, deterministic=False).std() > 0


def test_observations_that_are_a_choice_are_played_flattened():
    shape = NetworkShape(16, (), 4)
    weights = np.zeros(shape.size)
    matrix, _ = shape.layers(weights)[0][0]
    # Down, down, right, right, down, right: the way around the holes.
    for place, action in {0: 1, 4: 1, 8: 2, 9: 2, 10: 1, 14: 2}.items():
        matrix[action, place] = 1.0
    policy = Policy(shape, weights, np.zeros(16), np.ones(16))
    np.testing.assert_array_equal(policy.play(World("FrozenLake-v1", {"is_slippery": False}), 3), [1, 1, 1])


def test_a_world_that_does_not_fit_is_refused():
    with pytest.raises(
        InvalidValue, match=r"Acrobot-v1 does not fit this agent: it shows 6 numbers and has 3"
    ):
        drawn().play(World("Acrobot-v1"))
    with pytest.raises(InvalidValue, match="world is missing"):
        drawn(env=None).play()
    with pytest.raises(InvalidValue, match="episodes = 0 is not allowed"):
        drawn().play(episodes=0)


def test_an_episode_without_an_end_is_told_of(monkeypatch):
    from tacit.control.envs import episodes

    class Endless(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Box(0, 1, (4,)), gymnasium.spaces.Discrete(2)

        def reset(self, seed=None, options=None):
            return np.zeros(4), {}

        def step(self, action):
            return np.zeros(4), 0.0, False, False, {}

    monkeypatch.setattr(episodes, "LONGEST", 50)
    with pytest.raises(InvalidValue, match="went on for 50 steps: it must end"):
        drawn().play(World(Endless))


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (np.zeros(5), r"observation = 'shape \(5,\)' is not allowed: it must be \(4,\)"),
        (np.zeros((2, 3, 4)), "observation"),
        (3, "observation"),
        ([np.nan, 0, 0, 0], "finite"),
        ([0, np.inf, 0, 0], "finite"),
    ],
)
def test_wrong_observations_are_refused(seen, said):
    for ask in (drawn().predict, drawn().act, drawn().probabilities, drawn().values):
        with pytest.raises(InvalidValue, match=said):
            ask(seen)


def test_act_takes_one_observation():
    with pytest.raises(InvalidValue, match="one observation"):
        drawn().act(np.zeros((2, 4)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"weights": np.zeros(3)}, "weights = 'shape"),
        ({"weights": np.full(SHAPE.size, np.nan)}, "weights = 'NaN or infinite'"),
        ({"center": np.zeros(3)}, "center"),
        ({"scale": np.zeros(4)}, "scale = 0.0 is not allowed: it must be above 0"),
    ],
)
def test_what_is_no_policy_is_refused(change, said):
    whole = {"weights": np.zeros(SHAPE.size), "center": np.zeros(4), "scale": np.ones(4), **change}
    with pytest.raises(InvalidValue, match=said):
        Policy(SHAPE, **whole)


def test_other_suffixes_are_refused(tmp_path):
    for act in (drawn().save, Policy.load):
        with pytest.raises(InvalidValue, match=r'must be an agent of Stable-Baselines3, "\*.zip"'):
            act(tmp_path / "agent.pt")
    with pytest.raises(InvalidValue, match=r'a film, "\*.gif"'):
        drawn().film(tmp_path / "film.mp4")
    with pytest.raises(InvalidFile, match="cannot be written"):
        drawn().save(tmp_path / "nowhere" / "agent.zip")


def test_it_says_what_it_is():
    assert repr(drawn()) == "<Policy 4 x 8 x 2 for CartPole-v1>"
    assert repr(drawn(env=None)) == "<Policy 4 x 8 x 2>"


def test_a_film_shows_every_second_step_and_is_small(tmp_path, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv(episodes.DRIVER, raising=False)
    shape = NetworkShape(8, (16,), 4)
    policy = Policy(
        shape, shape.start(np.random.default_rng(0)), np.zeros(8), np.ones(8), World("LunarLander-v3")
    )
    path = policy.film(tmp_path / "film.gif", seed=3, most=30)
    with Image.open(path) as film:
        assert film.size == (300, 200)
        assert film.n_frames == 16
        assert film.info["duration"] == 40
        assert film.info["loop"] == 0
    assert path.stat().st_size < 50_000
    assert episodes.DRIVER not in os.environ


def test_a_film_that_grows_too_large_shows_fewer_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(episodes, "MOST_BYTES", 6_000)
    path = balancing().film(tmp_path / "film.gif", most=60)
    with Image.open(path) as film:
        assert film.n_frames < 16
    assert path.stat().st_size <= 6_000


def test_a_world_without_pictures_cannot_be_filmed(tmp_path):
    class Blind(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Box(0, 1, (4,)), gymnasium.spaces.Discrete(2)

        def __init__(self, render_mode=None):
            pass

        def reset(self, seed=None, options=None):
            return np.zeros(4), {}

        def render(self):
            return None

    with pytest.raises(InvalidValue, match="cannot be filmed"):
        drawn().film(tmp_path / "film.gif", World(Blind))
