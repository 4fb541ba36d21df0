"""Stages: worlds opened, played and closed as Gymnasium means them, and refused where they cannot be."""

import gc
import os
import warnings
from contextlib import closing
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from tacit.control.envs.spaces import open_env, require_spaces
from tacit.control.envs.vector import GymnasiumVectorEnv, deal, make_vector_env
from tacit.control.networks import NetworkShape
from tacit.errors import InvalidValue
from tacit.sites.environments import World

CART = NetworkShape(4, (8,), 2)


def start(shape, seed=0):
    return shape.start(np.random.default_rng(seed)).astype(np.float32)


def opened(worlds, envs, seed=0, inputs=4, center=0.0, scale=1.0):
    lens = {"center": np.full(inputs, center), "scale": np.full(inputs, scale)}
    return make_vector_env(worlds, envs, generator=np.random.default_rng(seed), place="site moon-1", **lens)


class Clock(gymnasium.Env):
    """Says how late it is; ends at `end`, cuts itself at `cut`, breaks at `broken`."""

    closed = 0

    def __init__(self, end=10**6, cut=10**6, broken=10**6, first=0, late=np.nan, reward=1.0):
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), dtype=np.float64)
        self.action_space = spaces.Discrete(3, start=first)
        self.end, self.cut, self.broken, self.late, self.reward = end, cut, broken, late, reward
        self.now, self.resets = 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets, self.now = self.resets + 1, 0
        return np.array([0.0, self.resets]), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.now += 1
        if self.now == self.broken and np.isinf(self.late):
            raise RuntimeError("the spring broke")
        seen = self.late if self.now == self.broken else self.now
        over, cut = self.now >= self.end, self.now >= self.cut
        return np.array([seen, self.resets]), self.reward, over, cut, {}

    def close(self):
        Clock.closed += 1


def clock(**options):
    return World(Clock, options)


def test_steps_are_those_of_gymnasium_itself_with_the_same_seeds_and_actions():
    shape, steps = NetworkShape(8, (), 4), 300
    world = World("LunarLander-v3", {"gravity": -3.7, "enable_wind": True})
    weights = start(shape)
    seeds = np.random.default_rng(5).integers(2**31, size=3).tolist()
    with opened([world], 3, seed=5, inputs=8, center=0.5, scale=2.0) as stage:
        parts = [stage.play(weights, shape, steps // 2, 0.9, 1.0) for _ in range(2)]
    seen, actions, rewards, ended = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("observations", "actions", "rewards", "ended")
    )
    ends = []
    for at, seed in enumerate(seeds):
        env = world.make()
        observation, _ = env.reset(seed=seed)
        total, length = 0.0, 0
        for step in range(steps):
            expected = ((np.asarray(observation, dtype=np.float64) - 0.5) / 2).astype(np.float32)
            assert seen[step, at].tolist() == expected.tolist()
            observation, reward, over, cut, _ = env.step(int(actions[step, at]))
            assert rewards[step, at] == np.float32(reward)
            assert not cut
            total, length = total + float(reward), length + 1
            assert ended[step, at] == over
            if over:
                ends.append((step * 3 + at + 1, total, length))
                total, length = 0.0, 0
                observation, _ = env.reset()
        env.close()
    counted = zip(*(np.concatenate([getattr(part, name) for part in parts]) for name in END), strict=True)
    # Each part counts on from the one before it.
    assert list(counted) == sorted(ends)
    assert len(ends) > 3


END = ("steps", "returns", "lengths")


@pytest.mark.parametrize(
    "world",
    [
        clock(cut=7),
        World(lambda: gymnasium.wrappers.TimeLimit(Clock(), 7)),
        World("tests/Clock-v0"),
        World("tests/Clock-v0", {"max_episode_steps": 7}),
    ],
    ids=["its own", "wrapped", "registered", "asked for"],
)
def test_an_episode_cut_by_time_goes_on_in_expectation_and_one_that_ends_does_not(world):
    if "tests/Clock-v0" not in gymnasium.registry:
        gymnasium.register("tests/Clock-v0", entry_point=Clock, max_episode_steps=7)
    shape = NetworkShape(2, (), 3)
    weights = start(shape)
    with opened([world], 2, inputs=2) as stage:
        played = stage.play(weights, shape, 20, 0.9, 0.5)
    assert played.ended[:, 0].nonzero()[0].tolist() == [6, 13]
    last = shape.values(weights.astype(np.float64), [[7.0, 1.0]])[0]
    assert played.rewards[6, 0] == pytest.approx(0.5 + 0.9 * last, abs=1e-6)
    assert played.rewards[5, 0] == 0.5
    assert played.returns.tolist() == [7.0] * 4
    assert played.lengths.tolist() == [7] * 4
    assert played.steps.tolist() == [13, 14, 27, 28]
    with opened([clock(end=7, cut=7)], 1, inputs=2) as stage:
        played = stage.play(weights, shape, 20, 0.9, 0.5)
    assert played.ended[:, 0].nonzero()[0].tolist() == [6, 13]
    assert (played.rewards == 0.5).all()


def test_what_is_expected_after_the_last_step_is_of_what_is_seen_then():
    shape = NetworkShape(2, (8,), 3)
    weights = start(shape)
    with opened([clock()], 2, inputs=2) as stage:
        played = stage.play(weights, shape, 5, 0.9, 1.0)
        again = stage.play(weights, shape, 1, 0.9, 1.0)
    assert again.observations[0].tolist() == [[5.0, 1.0]] * 2
    assert played.last_values.tolist() == pytest.approx(again.values[0].tolist(), abs=1e-6)
    assert (played.observations.dtype, played.actions.dtype) == (np.float32, np.int64)


def test_the_same_generator_plays_the_same_to_the_last_bit_and_another_does_not():
    def played(seed):
        with opened([World("CartPole-v1")], 3, seed) as stage:
            rollout = stage.play(start(CART), CART, 60, 0.99, 1.0)
        return b"".join(values.tobytes() for values in rollout)

    assert played(1) == played(1)
    assert played(1) != played(2)


def test_environments_are_dealt_out_in_turn_and_by_lot_where_they_are_too_few():
    worlds = [clock(reward=float(number)) for number in range(3)]
    assert deal(worlds, 5, np.random.default_rng(0)) == [*worlds, *worlds[:2]]
    drawn = [deal(worlds, 2, np.random.default_rng(seed)) for seed in range(30)]
    assert all(one[0] is not one[1] for one in drawn)
    assert all(any(world in one for one in drawn) for world in worlds)
    with opened(worlds, 4, inputs=2) as stage:
        played = stage.play(start(NetworkShape(2, (), 3)), NetworkShape(2, (), 3), 2, 0.9, 1.0)
    assert played.rewards[0].tolist() == [0.0, 1.0, 2.0, 0.0]


def test_actions_that_are_counted_from_another_number_reach_the_environment_as_it_counts():
    shape = NetworkShape(2, (), 3)
    with opened([clock(first=-5)], 2, inputs=2) as stage:
        played = stage.play(start(shape), shape, 30, 0.9, 1.0)
    assert set(played.actions.ravel().tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("space", "inputs"),
    [
        (spaces.Discrete(5), 5),
        (spaces.Box(0, 255, (2, 3), dtype=np.uint8), 6),
        (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-1, 1, (3,))}), 5),
        (spaces.Tuple([spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3])]), 7),
    ],
    ids=["one of five", "picture", "by name", "tuple"],
)
def test_observations_of_any_kind_that_can_be_flattened_are(space, inputs):
    class Shows(Clock):
        def __init__(self):
            super().__init__()
            self.observation_space = space

        def reset(self, *, seed=None, options=None):
            return space.sample(), super().reset(seed=seed)[1]

        def step(self, action):
            return (space.sample(), *super().step(action)[1:])

    assert spaces_of(World(Shows)) == (inputs, 3)
    shape = NetworkShape(inputs, (), 3)
    with opened([World(Shows)], 2, inputs=inputs) as stage:
        played = stage.play(start(shape), shape, 4, 0.9, 1.0)
    assert played.observations.shape == (4, 2, inputs)


def spaces_of(world, place=""):
    """Return the number of inputs in an observation, and of actions."""
    with closing(open_env(world, place)) as env:
        return require_spaces(world, env, place)


def test_gymnasium_says_how_many_inputs_and_actions_there_are():
    assert spaces_of(World("CartPole-v1")) == (4, 2)
    assert spaces_of(World("LunarLander-v3")) == (8, 4)
    assert spaces_of(World("FrozenLake-v1")) == (16, 4)


@pytest.mark.parametrize(
    ("world", "said"),
    [
        (World("CartPol-v1"), r"CartPol-v1' is not known to Gymnasium \(did you mean \"CartPole-v1\"\?\)"),
        (World("nowhere/Thing-v0"), "nowhere/Thing-v0' is not known"),
        (World("no words"), "'no words' cannot be opened: Malformed"),
        (World("no_such_module_:Env-v0"), "cannot be opened: No module named 'no_such_module_'"),
        (World("Pendulum-v1"), r"action space of Pendulum-v1 = Box.* Continuous \(Box\)"),
        (World("LunarLander-v3", {"continuous": True}), "action space of LunarLander-v3 = Box"),
        (World("LunarLander-v3", {"gravity": -12}), "gravity = -12 is not allowed: .* above -12 and below 0"),
        (World("LunarLander-v3", {"gravity": 1.6}), "gravity = 1.6 is not allowed"),
        (World("LunarLander-v3", {"gravity": "moon"}), "gravity = 'moon' is not allowed"),
        (World("LunarLander-v3", {"gravity": np.nan}), "gravity = nan is not allowed"),
        (
            World("LunarLander-v3", {"gravty": -3.0}),
            r"gravty = -3.0 is not allowed: LunarLander-v3 takes .*did you mean \"gravity\"",
        ),
        (World(Clock, {"ende": 3}), "ende = 3 is not allowed"),
        (World("FrozenLake-v1", {"map_name": "9x9"}), "map_name = '9x9' is not allowed in FrozenLake-v1"),
    ],
)
def test_what_cannot_be_opened_is_refused_by_name(world, said):
    with pytest.raises(InvalidValue, match=said):
        spaces_of(world, "site moon-1")
    with pytest.raises(InvalidValue, match=r"^site moon-1: "):
        spaces_of(world, "site moon-1")


def test_a_world_that_does_not_fit_the_agent_is_refused():
    with (
        opened([World("CartPole-v1"), World("LunarLander-v3")], 2) as stage,
        pytest.raises(InvalidValue, match=r"inputs and actions of LunarLander-v3 = \(8, 4\)"),
    ):
        stage.play(start(CART), CART, 2, 0.99, 1.0)


@pytest.mark.parametrize("late", [np.nan, 1e400])
def test_what_is_not_finite_is_refused_with_the_site_the_environment_and_the_step(late):
    shape, broken = NetworkShape(2, (), 3), "step" if np.isnan(late) else "spring"
    Clock.closed = 0
    stage = opened([clock(broken=9, late=late)], 3, inputs=2)
    with pytest.raises((InvalidValue, RuntimeError), match=broken) as caught:
        stage.play(start(shape), shape, 20, 0.9, 1.0)
    # Whatever happened, nothing is left open.
    assert Clock.closed == 3
    if np.isnan(late):
        assert "site moon-1: test_envs_vector:Clock" in str(caught.value).replace("tests.control.", "")
        assert "at step 9 of an episode" in str(caught.value)
    with pytest.raises(ValueError, match="closed"):
        stage.play(start(shape), shape, 1, 0.9, 1.0)


def test_a_last_observation_and_a_reward_that_are_not_finite_are_refused_too():
    shape = NetworkShape(2, (), 3)
    with pytest.raises(InvalidValue, match="at step 4 of an episode"):
        opened([clock(broken=4, cut=4)], 1, inputs=2).play(start(shape), shape, 6, 0.9, 1.0)
    with pytest.raises(InvalidValue, match="gave a reward that is not finite at step 1 of a rollout"):
        opened([clock(reward=np.inf)], 1, inputs=2).play(start(shape), shape, 6, 0.9, 1.0)


def test_every_environment_is_closed_even_if_one_will_not():
    class Stuck(Clock):
        def close(self):
            super().close()
            raise RuntimeError("stuck")

    shape, Clock.closed = NetworkShape(2, (), 3), 0
    stage = opened([World(Stuck), clock()], 4, inputs=2)
    stage.play(start(shape), shape, 2, 0.9, 1.0)
    with pytest.raises(InvalidValue, match="stuck"):
        stage.close()
    assert Clock.closed == 4
    stage.close()
    assert Clock.closed == 4


def test_nothing_is_opened_before_it_is_played_in():
    Clock.closed = 0
    with opened([clock(end="never")], 2, inputs=2):
        pass
    assert Clock.closed == 0


def test_wrappers_that_do_something_are_kept():
    class Doubled(gymnasium.RewardWrapper):
        def reward(self, reward):
            return 2 * float(reward)

    world = World(lambda: Doubled(gymnasium.make("CartPole-v1", max_episode_steps=5)))
    with opened([world], 2) as stage:
        played = stage.play(start(CART), CART, 12, 0.0, 1.0)
    assert set(played.rewards.ravel().tolist()) == {2.0}
    assert played.lengths.max() <= 5


@pytest.mark.parametrize(
    ("env", "shape", "rounds"), [("CartPole-v1", CART, 1000), ("LunarLander-v3", NetworkShape(8, (), 4), 60)]
)
def test_rounds_leave_nothing_open(env, shape, rounds):
    weights = start(shape)

    def held():
        gc.collect()
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return len(os.listdir("/proc/self/fd")), len(children), len(gc.get_objects())

    def many(rounds):
        for _ in range(rounds):
            with opened([World(env)], 2, inputs=shape.inputs) as stage:
                stage.play(weights, shape, 2, 0.99, 1.0)

    many(5)
    before = held()
    many(rounds)
    after = held()
    assert after[:2] == before[:2]
    assert after[2] - before[2] < rounds


def test_worlds_of_both_kinds_do_not_share_a_stage():
    worlds = [World("LunarLander-v3"), World("LunarLander-v3", physics="fast-lander")]
    with pytest.raises(InvalidValue, match="site moon-1: worlds"):
        opened(worlds, 2, inputs=8)


def test_a_scale_of_nothing_is_refused():
    with warnings.catch_warnings(), pytest.raises(InvalidValue, match="scale"):
        opened([World("CartPole-v1")], 2, scale=0.0)
    assert isinstance(opened([World("CartPole-v1")], 2), GymnasiumVectorEnv)
