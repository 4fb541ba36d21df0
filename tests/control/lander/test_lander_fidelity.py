"""The fast lander next to Gymnasium's: the same ground, pushes, winds and actions give the same flight."""

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.box2d.lunar_lander import heuristic

from tacit.control.envs.fast_lander import FastLander
from tacit.control.lander import simulator
from tacit.control.lander.bodies import POINTS, ROW

WORLDS = {
    "default": {},
    "mars": {"gravity": -3.73, "enable_wind": True, "wind_power": 5.0},
    "moon": {"gravity": -1.6, "enable_wind": True, "wind_power": 15.0, "turbulence_power": 2.0},
}


class Recorder:
    """A generator that remembers what Gymnasium draws."""

    def __init__(self, seed):
        self.generator, self.drawn = np.random.default_rng(seed), []

    def uniform(self, low, high, size=None):
        self.drawn.append(self.generator.uniform(low, high, size=size))
        return self.drawn[-1]

    def integers(self, low, high):
        self.drawn.append(self.generator.integers(low, high))
        return self.drawn[-1]


class Twins:
    """Gymnasium's lander and ours, told the same."""

    def __init__(self, options, seed):
        self.theirs = gymnasium.make("LunarLander-v3", **options).unwrapped
        self.recorder = self.theirs._np_random = Recorder(seed)
        self.seen, _ = self.theirs.reset()
        heights, fx, fy, *hours = self.recorder.drawn
        wind, turbulence = hours[:2] if options.get("enable_wind") else (0, 0)
        self.s, self.ground = np.zeros((1, ROW)), heights[:POINTS].copy()
        simulator.smooth(self.ground, float(heights[POINTS]))
        told = {
            "gravity": -10.0,
            "enable_wind": False,
            "wind_power": 15.0,
            "turbulence_power": 1.5,
            **options,
        }
        self.physics = np.array([float(told[name]) for name in told])
        simulator.place_lander(self.s[0], float(wind), float(turbulence))
        simulator.step_row(self.s[0], self.ground, self.physics, 0, 0.0, 0.0, float(fx), float(fy))

    def step(self, action):
        self.recorder.drawn.clear()
        self.seen, reward, over, _, _ = self.theirs.step(action)
        first, second = self.recorder.drawn
        ours = simulator.step_row(self.s[0], self.ground, self.physics, action, first, second, 0.0, 0.0)
        return (float(reward), over), ours

    @property
    def apart(self):
        out = np.zeros(8)
        simulator.observe(self.s, 0, out)
        return float(np.abs(out - self.seen).max())


def flown(options, seed, choose):
    """Return the distance of both simulations after each step, and the returns of the episode."""
    twins = Twins(options, seed)
    apart, returns = [twins.apart], np.zeros(2)
    for _ in range(1000):
        (reward, over), (ours, ended) = twins.step(choose(twins))
        returns += reward, ours
        apart.append(twins.apart)
        if over or ended:
            # A crash is where it ends; how the wreck lies is not seen by anybody.
            return np.array(apart[:-1]), returns, (over, ended)
    return np.array(apart), returns, (False, False)


def at_random(seed):
    draws = np.random.default_rng(seed)
    return lambda _: int(draws.integers(4))


@pytest.mark.parametrize("world", WORLDS)
def test_random_flights_stay_together_to_the_end(world):
    for seed in range(6):
        apart, returns, ends = flown(WORLDS[world], seed, at_random(seed + 50))
        assert apart[0] < 5e-6
        assert apart[:11].mean() < 1e-5
        assert apart[: min(61, len(apart))].max() < 1e-3
        assert ends == (True, True)
        assert returns[0] == pytest.approx(returns[1], abs=1.0)


@pytest.mark.parametrize("world", WORLDS)
def test_landings_stay_together_through_touchdown_and_rest(world):
    pairs = [
        flown(WORLDS[world], seed, lambda twins: heuristic(twins.theirs, twins.seen)) for seed in range(6)
    ]
    apart = np.array([np.median(apart) for apart, _, _ in pairs])
    together = np.array(
        [abs(returns[0] - returns[1]) < 1 and ends[0] == ends[1] for _, returns, ends in pairs]
    )
    assert (apart < 1e-3).all()
    # Whether a leg touches in this step or in the next may hang on the last digit of single precision.
    assert together.sum() >= 4


def test_first_sights_are_spread_alike():
    theirs, ours = gymnasium.make("LunarLander-v3"), FastLander()
    first = np.array([theirs.reset(seed=seed)[0] for seed in range(300)])
    second = np.array([ours.reset(seed=seed)[0] for seed in range(3000)])
    spread = first.std(axis=0)
    error = spread * np.sqrt(1 / 300 + 1 / 3000) + 1e-9
    assert (np.abs(first.mean(axis=0) - second.mean(axis=0)) < 4 * error).all()
    assert second.std(axis=0)[:6] == pytest.approx(spread[:6], rel=0.15)
    # Pushes have the same reach, and are uniform in it.
    assert np.abs(second[:, 2]).max() == pytest.approx(np.abs(first[:, 2]).max(), rel=0.05)


def returns_of(env, choose, episodes):
    env, found = gymnasium.wrappers.TimeLimit(env, 1000), []
    for seed in range(episodes):
        seen, _ = env.reset(seed=seed)
        total, over = 0.0, False
        while not over:
            seen, reward, terminated, truncated, _ = env.step(choose(env, seen))
            total, over = total + float(reward), terminated or truncated
        found.append(total)
    return np.array(found)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("policy", ["random", "heuristic"])
def test_policies_earn_the_same_in_both(world, policy):
    draws = np.random.default_rng(9)
    choose = heuristic if policy == "heuristic" else lambda env, seen: int(draws.integers(4))
    few, many = 25, 75
    first = returns_of(gymnasium.make("LunarLander-v3", **WORLDS[world]).unwrapped, choose, few)
    second = returns_of(FastLander(**WORLDS[world]), choose, many)
    error = np.sqrt(first.var() / few + second.var() / many)
    assert abs(first.mean() - second.mean()) < 4 * error
