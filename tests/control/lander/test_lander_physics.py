"""The fast lander on its own: it repeats, stays finite, ends as it should, refuses what it cannot be told."""

import math

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.box2d.lunar_lander import heuristic
from gymnasium.utils.env_checker import check_env

from tacit.control.envs.fast_lander import FastLander
from tacit.control.envs.lander_vector import LanderVectorEnv
from tacit.control.lander import simulator
from tacit.control.lander.bodies import (
    HULL_INERTIA,
    HULL_MASS,
    JOINT,
    LEG_INERTIA,
    LEG_MASS,
    POINTS,
    RAISED,
    ROW,
    STATE,
    TOUCHED,
    VELOCITY_ROUNDS,
)
from tacit.control.lander.solver import iterate_once, solve_velocities
from tacit.control.networks import NetworkShape
from tacit.errors import InvalidValue
from tacit.sites.environments import World

MOON, MARS, EARTH = (-1.6, 1.0, 10.0, 1.5), (-3.73, 1.0, 5.0, 1.5), (-10.0, 0.0, 15.0, 1.5)
SHAPE = NetworkShape(8, (16,), 4)


class Worlds:
    """Some worlds, and what is drawn for acting in them."""

    def __init__(self, *physics, seed=1):
        many = len(physics)
        self.bodies, self.terrain = np.zeros((many, ROW)), np.zeros((many, POINTS))
        self.rng = np.arange(seed, seed + many, dtype=np.uint64)
        self.physics, self.seen = np.array(physics), np.zeros((many, 8))
        for i in range(many):
            self.reset(i)

    def reset(self, i):
        simulator.reset(self.bodies, self.terrain, self.rng, i, self.physics)
        simulator.observe(self.bodies, i, self.seen[i])

    def step(self, i, action):
        found = simulator.step(self.bodies, self.terrain, self.rng, i, self.physics, int(action))
        simulator.observe(self.bodies, i, self.seen[i])
        return found


class Discrete:
    """As much of an environment as Gymnasium's heuristic looks at."""

    continuous = False

    @property
    def unwrapped(self):
        return self


def episode(worlds, i, choose):
    worlds.reset(i)
    total = 0.0
    for length in range(1, 1001):
        reward, over = worlds.step(i, choose(worlds.seen[i]))
        total += reward
        if over:
            return reward, total, length
    return None, total, 1000


def test_bodies_weigh_what_box2d_says():
    env = gymnasium.make("LunarLander-v3").unwrapped
    env.reset(seed=0)
    hull, leg = env.lander, env.legs[0]
    assert hull.localCenter[1] == pytest.approx(RAISED, rel=1e-5)
    assert hull.mass == pytest.approx(HULL_MASS, rel=1e-6)
    assert hull.inertia == pytest.approx(HULL_INERTIA + HULL_MASS * RAISED**2, rel=1e-6)
    assert leg.mass == pytest.approx(LEG_MASS, rel=1e-6)
    assert leg.inertia == pytest.approx(LEG_INERTIA, rel=1e-6)


def test_rounds_that_are_summed_end_where_rounds_that_are_taken_do():
    worlds, draws = Worlds(EARTH, MARS, seed=5), np.random.default_rng(0)
    off, touching = [], 0
    for _ in range(600):
        for i in range(2):
            _, over = worlds.step(i, draws.integers(4) if i else heuristic(Discrete(), worlds.seen[0]))
            if over:
                worlds.reset(i)
            # Whatever state it is in: solving it once more, pushed, is a task like any other.
            summed, taken = worlds.bodies[i].copy(), worlds.bodies[i].copy()
            on_ground = bool((summed[TOUCHED + 1 : TOUCHED + 3] > 0).any())
            touching += on_ground
            for row in (summed, taken):
                row[4] -= 0.2
            solve_velocities(summed, on_ground)
            for _ in range(VELOCITY_ROUNDS):
                iterate_once(taken, on_ground)
            off.append(np.abs(summed - taken)[:JOINT].max())
    assert touching > 50
    assert max(off) < 1e-6


def test_the_same_seed_flies_the_same_episode_and_another_one_does_not():
    def flown(seed):
        worlds, draws = Worlds(MOON, seed=seed), np.random.default_rng(3)
        return np.array([(*worlds.seen[0], *worlds.step(0, draws.integers(4))) for _ in range(150)])

    first = flown(11)
    assert np.array_equal(first, flown(11))
    assert not np.array_equal(first, flown(12))


def test_worlds_side_by_side_are_as_worlds_alone():
    together, alone = Worlds(EARTH, MOON, MARS, seed=7), [Worlds(MOON, seed=8), Worlds(MARS, seed=9)]
    draws = np.random.default_rng(4)
    for _ in range(120):
        for i in range(3):
            action, single = draws.integers(4), alone[i - 1] if i else None
            found = together.step(i, action)
            if single is not None:
                assert single.step(0, action) == found
                assert np.array_equal(single.seen[0], together.seen[i])
            if found[1]:
                together.reset(i)
                if single is not None:
                    single.reset(0)


def test_gravity_and_wind_are_each_worlds_own():
    calm, heavy, windy = (-1.6, 0.0, 20.0, 2.0), (-11.9, 0.0, 20.0, 2.0), (-1.6, 1.0, 20.0, 2.0)
    worlds = Worlds(calm, heavy, windy)
    worlds.rng[:] = 99
    for i in range(3):
        worlds.reset(i)
    fallen = worlds.seen[:, 3].copy()
    for i in range(3):
        for _ in range(10):
            worlds.step(i, 0)
    fallen = (worlds.seen[:, 3] - fallen) / (400 / 30 / 2) * 50
    assert fallen[:2] == pytest.approx([-1.6 * 0.2, -11.9 * 0.2], abs=0.02)
    assert abs(worlds.seen[2, 2] - worlds.seen[0, 2]) > 1e-4
    assert abs(worlds.seen[2, 4] - worlds.seen[0, 4]) > 1e-5


@pytest.mark.parametrize("physics", [EARTH, MARS, MOON, (-11.99, 1.0, 20.0, 2.0), (-0.01, 1.0, 0.0, 0.0)])
def test_nothing_is_ever_not_a_number(physics):
    worlds, draws = Worlds(*[physics] * 4, seed=21), np.random.default_rng(5)
    for step in range(1500):
        for i in range(4):
            # Long burns, so that the lander also turns over, flies up and comes down anywhere.
            reward, over = worlds.step(i, (step // 40) % 4 if i < 2 else draws.integers(4))
            assert math.isfinite(reward)
            if over or step % 1000 == 999:
                worlds.reset(i)
        assert np.isfinite(worlds.seen).all()
        assert np.isfinite(worlds.bodies[:, :STATE]).all()


def test_episodes_end_by_landing_by_a_crash_or_by_flying_off():
    worlds = Worlds(EARTH, seed=31)
    last, _, length = episode(worlds, 0, lambda _: 0)
    assert (last, length < 150) == (-100, True)
    landings = [episode(worlds, 0, lambda seen: heuristic(Discrete(), seen)) for _ in range(10)]
    assert sum(last == 100 for last, _, _ in landings) >= 8
    if landings[-1][0] == 100:
        assert (worlds.seen[0, [2, 3, 5]] == 0).all()
    off = Worlds((-0.5, 1.0, 20.0, 0.0), seed=33)
    ends = [(episode(off, 0, lambda _: 0)[0], abs(off.seen[0, 0])) for _ in range(6)]
    assert any(last == -100 and away >= 1 for last, away in ends)


def test_it_is_an_environment_in_good_order():
    check_env(FastLander(), skip_render_check=True)
    env = FastLander(gravity=-1.6, enable_wind=True)
    theirs = gymnasium.make("LunarLander-v3").unwrapped
    assert env.observation_space == theirs.observation_space
    assert env.action_space == theirs.action_space
    first, _ = env.reset(seed=3)
    later, _ = env.reset()
    assert np.array_equal(first, env.reset(seed=3)[0])
    assert np.array_equal(later, env.reset()[0])
    assert first.dtype == np.float32


@pytest.mark.parametrize("gravity", [-12.0, -12.1, 0.0, 1.0, math.nan])
def test_gravity_that_gymnasium_refuses_is_refused(gravity):
    with pytest.raises(AssertionError):
        gymnasium.make("LunarLander-v3", gravity=gravity)
    with pytest.raises(InvalidValue, match="gravity"):
        FastLander(gravity=gravity)


def test_what_cannot_be_done_is_refused():
    with pytest.raises(InvalidValue, match="continuous"):
        FastLander(continuous=True)
    with pytest.raises(InvalidValue, match="render_mode"):
        FastLander(render_mode="human")
    with pytest.raises(InvalidValue, match="wind_power"):
        FastLander(wind_power=math.inf)
    with pytest.raises(gymnasium.error.ResetNeeded):
        FastLander().step(0)
    env = FastLander()
    env.reset(seed=0)
    with pytest.raises(InvalidValue, match="action"):
        env.step(4)
    with pytest.raises(InvalidValue, match="turbulence_power"):
        FastLander(turbulence_power=3.0)


def stage(*options, envs=4, seed=1, center=0.0):
    worlds = [World("LunarLander-v3", one, "fast-lander") for one in options]
    generator = np.random.default_rng(seed)
    return LanderVectorEnv(
        worlds, envs, generator=generator, center=np.full(8, center), scale=np.full(8, 2.0), place="site a"
    )


def agent(seed=0):
    return SHAPE.start(np.random.default_rng(seed)).astype(np.float32)


def test_a_stage_repeats_and_goes_on_where_it_stopped():
    whole = stage({}, {"gravity": -1.6}).play(agent(), SHAPE, 300, 0.99, 1.0)
    again = stage({}, {"gravity": -1.6})
    # Both halves draw their numbers one after the other, as the whole does.
    halves = [again.play(agent(), SHAPE, 150, 0.99, 1.0) for _ in range(2)]
    for name in ("observations", "actions", "rewards", "ended", "log_probs", "values"):
        assert np.array_equal(
            getattr(whole, name), np.concatenate([getattr(half, name) for half in halves])
        ), name
    assert np.array_equal(whole.returns, np.concatenate([half.returns for half in halves]))
    assert np.array_equal(whole.steps, np.concatenate([half.steps for half in halves]))
    other = stage({}, {"gravity": -1.6}, seed=2).play(agent(), SHAPE, 300, 0.99, 1.0)
    assert not np.array_equal(whole.actions, other.actions)


def test_a_stage_tells_what_the_networks_say_of_what_was_seen():
    played = stage({"enable_wind": True}, center=0.5).play(agent(), SHAPE, 50, 0.99, 0.01)
    seen = played.observations.reshape(-1, 8)
    logits = SHAPE.logits(agent(), seen)
    odds = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    said = odds[np.arange(len(seen)), played.actions.ravel()]
    assert np.allclose(said, played.log_probs.ravel(), atol=1e-4)
    assert np.allclose(SHAPE.values(agent(), seen), played.values.ravel(), atol=1e-4)


def test_returns_of_a_stage_are_sums_of_its_rewards():
    played = stage({}, envs=2).play(agent(), SHAPE, 600, 0.99, 0.01)
    assert len(played.returns) == played.ended.sum() > 4
    ends = np.argwhere(played.ended)
    assert np.array_equal(played.steps, ends[:, 0] * 2 + ends[:, 1] + 1)
    for env in range(2):
        begin = 0
        for row in np.flatnonzero(played.ended[:, env]):
            number = int(np.flatnonzero((ends == (row, env)).all(axis=1))[0])
            assert played.lengths[number] == row + 1 - begin
            total = 100 * played.rewards[begin : row + 1, env].astype(np.float64).sum()
            assert played.returns[number] == pytest.approx(total, abs=1e-3)
            begin = row + 1


def test_an_episode_that_time_cuts_counts_what_was_still_to_come():
    one = {"max_episode_steps": 25}
    cut = stage(one, envs=3).play(agent(), SHAPE, 60, 0.9, 1.0)
    uncut = stage({}, envs=3).play(agent(), SHAPE, 60, 0.9, 1.0)
    assert cut.ended[24].all()
    assert (cut.lengths == 25).all()
    assert np.array_equal(cut.observations[:25], uncut.observations[:25])
    # What would have been seen next is what the episode without a limit saw next.
    expected = 0.9 * SHAPE.values(agent(), uncut.observations[25])
    assert np.allclose(cut.rewards[24] - uncut.rewards[24], expected, atol=1e-4)


def test_a_stage_refuses_agents_that_do_not_fit_and_is_over_when_closed():
    with pytest.raises(InvalidValue, match="site a"):
        stage({}).play(np.zeros(100, dtype=np.float32), NetworkShape(4, (), 2), 5, 0.99, 1.0)
    with pytest.raises(InvalidValue, match="site a: gravity"):
        stage({"gravity": -13.0})
    with stage({}) as open_one:
        open_one.play(agent(), SHAPE, 2, 0.99, 1.0)
    with pytest.raises(ValueError, match="closed"):
        open_one.play(agent(), SHAPE, 2, 0.99, 1.0)
