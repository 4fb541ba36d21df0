"""Agents are judged by greedy episodes that are always the same, and what is told of them adds up."""

import sys
import warnings

import gymnasium
import numpy as np
import pytest

from tacit.control.agents.evaluation import evaluate, summarise
from tacit.control.agents.policy import Policy
from tacit.control.networks import NetworkShape
from tacit.errors import InvalidValue
from tacit.runtime.keys import Key
from tacit.sites.environments import Scenes, World

with warnings.catch_warnings():
    # Box2D's wrapper warns as it is imported, and dies of it where warnings are errors.
    warnings.simplefilter("ignore")
    import Box2D  # noqa: F401

CART = World("CartPole-v1", label="cart")
LANDER = World("LunarLander-v3", {"gravity": -9.8}, "fast-lander", "earth")


def drawn(shape: NetworkShape, seed: int = 1) -> Policy:
    generator = np.random.default_rng(seed)
    center, scale = generator.normal(size=shape.inputs), generator.uniform(0.5, 2, size=shape.inputs)
    return Policy(shape, generator.normal(size=shape.size), center, scale)


def scenes(*worlds: World, sites: list[str] | None = None, **options) -> Scenes:
    return Scenes(worlds, np.array(sites or ["a"] * len(worlds)), **options)


def replayed(policy: Policy, world: World, seed: int) -> float:
    """An episode, one step after another, by somebody else's loop."""
    with world.make() as env:
        observation, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            action = policy.act(observation)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
    return total


@pytest.mark.parametrize(
    ("world", "shape"), [(CART, NetworkShape(4, (8,), 2)), (LANDER, NetworkShape(8, (16, 16), 4))]
)
def test_episodes_are_those_that_anybody_would_play_from_their_seeds(world, shape):
    policy = drawn(shape)
    judged = scenes(world, world, episodes=10, seed=5)
    found = evaluate([policy, policy], judged)
    for place, own in enumerate(found):
        seeds = (Key(5) / "scene" / place).generator().integers(2**31, size=10)
        np.testing.assert_allclose(own, [replayed(policy, world, int(seed)) for seed in seeds])
    assert not np.array_equal(found[0], found[1])


def test_every_agent_meets_the_same_episodes_and_they_repeat():
    shape = NetworkShape(4, (8,), 2)
    judged = scenes(CART, CART, episodes=4)
    first, second = drawn(shape, 1), drawn(shape, 2)
    together, alone = evaluate([first, second], judged), evaluate([first, first], judged)
    np.testing.assert_array_equal(together[0], alone[0])
    np.testing.assert_array_equal(evaluate([first, first], judged), alone)
    other = evaluate([first, first], judged.at_a_glance)
    assert not np.array_equal(other[0], alone[0][: len(other[0])])


def test_worlds_are_opened_when_they_are_played_in_and_closed_after_that():
    opened, most = [], []

    class Counted(gymnasium.Wrapper):
        def __init__(self, **options):
            super().__init__(gymnasium.make("CartPole-v1", **options))
            opened.append(self)
            most.append(len(opened))

        def close(self):
            opened.remove(self)
            super().close()

    policy = drawn(NetworkShape(4, (8,), 2))
    evaluate([policy] * 3, scenes(*[World(Counted)] * 3, episodes=2))
    assert not opened
    assert max(most) == 2
    with pytest.raises(InvalidValue, match="does not fit"):
        evaluate([drawn(NetworkShape(5, (8,), 2))], scenes(World(Counted)))
    assert not opened


@pytest.mark.slow
def test_in_its_own_physics_a_lander_lands_about_as_well():
    policy = drawn(NetworkShape(8, (16,), 4))
    judged = scenes(LANDER, episodes=60)
    (own,) = evaluate([policy], judged, physics="own")
    (theirs,) = evaluate([policy], judged)
    assert own.shape == theirs.shape == (60,)
    error = np.hypot(own.std(), theirs.std()) / np.sqrt(60)
    assert abs(own.mean() - theirs.mean()) < 4 * error
    (again,) = evaluate([policy], judged, physics="own")
    np.testing.assert_array_equal(own, again)


def test_the_episodes_of_a_lander_are_its_seeds_alone():
    from tacit.control.envs.lander_vector import play_lander

    policy = drawn(NetworkShape(8, (), 4))
    together = play_lander(policy, LANDER, [3, 9, 4])
    np.testing.assert_array_equal(
        together[[1, 0]], np.concatenate([play_lander(policy, LANDER, [seed]) for seed in (9, 3)])
    )
    with pytest.raises(InvalidValue, match="shows 8 numbers and has 4 actions"):
        play_lander(drawn(NetworkShape(4, (), 2)), LANDER, [1])


def test_what_the_fast_lander_does_not_know_is_refused():
    from tacit.control.envs.lander_vector import play_lander

    calm = World("LunarLander-v3", {"gravty": -3.7}, "fast-lander")
    with pytest.raises(InvalidValue, match='did you mean "gravity"'):
        play_lander(drawn(NetworkShape(8, (), 4)), calm, [1])


def test_a_lander_is_cut_at_its_time_limit():
    from tacit.control.envs.lander_vector import play_lander

    policy = drawn(NetworkShape(8, (16,), 4))
    brief = World("LunarLander-v3", {"max_episode_steps": 3}, "fast-lander")
    assert np.abs(play_lander(policy, brief, [1, 2, 3])).max() < 60


def test_worlds_without_physics_of_their_own_are_played_in_gymnasium():
    policy = drawn(NetworkShape(4, (8,), 2))
    judged = scenes(CART, episodes=3)
    np.testing.assert_array_equal(evaluate([policy], judged, physics="own"), evaluate([policy], judged))


def test_judging_in_gymnasium_needs_nothing_compiled(monkeypatch):
    monkeypatch.setitem(sys.modules, "tacit.control.envs.lander_vector", None)
    evaluate([drawn(NetworkShape(8, (8,), 4))], scenes(LANDER, episodes=1))


def test_a_scene_has_one_agent():
    with pytest.raises(InvalidValue, match="policies = '1 for 2 scenes' is not allowed"):
        evaluate([drawn(NetworkShape(4, (), 2))], scenes(CART, CART))
    with pytest.raises(InvalidValue, match="physics"):
        evaluate([drawn(NetworkShape(4, (), 2))], scenes(CART), physics="newton")


def test_what_is_told_adds_up():
    moon, mars = (World("LunarLander-v3", {}, label=label) for label in ("moon", "mars"))
    odd = World("LunarLander-v3", {}, label="odd")
    judged = scenes(moon, moon, mars, odd, sites=["a", "b", "c", ""], episodes=4)
    returns = [np.array(own, float) for own in ([0, 100, 200, 300], [100] * 4, [300] * 4, [-500] * 4)]
    told = summarise(returns, judged, Key(1))
    assert told["return"] == pytest.approx((150 + 100 + 300) / 3)
    assert told["return@moon"] == pytest.approx(125)
    assert told["return@mars"] == pytest.approx(300)
    assert told["return@odd"] == told["return_unseen"] == pytest.approx(-500)
    # At 200 or above: two of four, none, all.
    assert told["solved"] == pytest.approx((0.5 + 0 + 1) / 3)
    middle = np.sort(np.concatenate(returns[:3]))[3:9]
    assert told["iqm"] == pytest.approx(middle.mean())
    assert told["return_low"] < told["return"] < told["return_high"]
    assert told["iqm_low"] <= told["iqm"] <= told["iqm_high"]
    assert told == summarise(returns, judged, Key(1))
    assert all(isinstance(value, float) for value in told.values())


def test_where_nobody_trained_all_scenes_are_told_of():
    judged = scenes(CART, sites=[""], episodes=2)
    told = summarise([np.array([1.0, 3.0])], judged, Key(0))
    assert told["return"] == told["return@cart"] == 2.0
    assert "return_unseen" not in told


def test_an_environment_that_asks_for_nothing_is_never_solved():
    world = World(lambda: gymnasium.make("CartPole-v1"))
    told = summarise([np.array([1.0, 3.0])], scenes(world), Key(0))
    assert "solved" not in told
    assert not [name for name in told if "@" in name]
    with pytest.raises(InvalidValue, match="those of each scene"):
        summarise([], scenes(CART), Key(0))
