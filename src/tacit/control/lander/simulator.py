"""The fast lander: Gymnasium's LunarLander-v3 with discrete actions, compiled, on rows of numbers.

Many worlds side by side, each with its own gravity, wind and turbulence. World i is row i of four arrays:
`bodies` (worlds, ROW) what moves, `terrain` (worlds, POINTS) heights of the ground, `rng` (worlds,) the state
of its random numbers, `physics` (worlds, 4) gravity, wind (1 on, 0 off), its power, that of turbulence.
No time limit: that is for whoever plays. `place_lander` and `step_row` take their random numbers from
outside, so that a world can be played next to Gymnasium's.
"""

import math

import numpy as np
from numpy.typing import NDArray

from tacit.control.lander.bodies import (
    ASLEEP,
    BODY_SIZE,
    BOX,
    FAT,
    FRAMES,
    HEIGHT,
    INVERSE_INERTIA,
    INVERSE_MASS,
    LEG_AWAY,
    LEG_DOWN,
    MARGIN,
    PAD,
    POINTS,
    RAISED,
    ROTATION,
    ROW,
    SCALE,
    SHAPING,
    TOUCHED,
    TURBULENCE,
    WIDTH,
    WIND,
    ZERO,
    Array,
)
from tacit.control.lander.broad_phase import update_aabb
from tacit.control.lander.joints import update_rotation
from tacit.control.lander.step import move
from tacit.runtime.jit import compiled

Floats = NDArray[np.float32] | NDArray[np.float64]
States = NDArray[np.uint64]

OBSERVED, ACTIONS = 8, 4
MAIN, SIDE = 13.0, 0.6
MAIN_DOWN, SIDE_AWAY, SIDE_HIGH, SIDE_BACK = 4 / SCALE, 12 / SCALE, 14 / SCALE, 17 / SCALE
PUSH = 1000.0
WIND_START = 9999
# SplitMix64 (Steele, Lea and Flood 2014): one word of state, and every start is as good as any other.
GOLDEN, FIRST, SECOND = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
)
SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11))


@compiled
def draw(rng: States, i: int) -> float:
    """A number from 0 to 1, 1 excluded, from the stream of one world."""
    rng[i] += GOLDEN
    z = rng[i]
    z = (z ^ (z >> SHIFTS[0])) * FIRST
    z = (z ^ (z >> SHIFTS[1])) * SECOND
    return float((z ^ (z >> SHIFTS[2])) >> SHIFTS[3]) * 2.0**-53


@compiled
def reset(bodies: Array, terrain: Array, rng: States, i: int, physics: Array) -> None:
    """Begin a new episode in one world: new ground, a random push, wind from a random hour."""
    for k in range(POINTS):
        terrain[i, k] = draw(rng, i) * HEIGHT / 2
    smooth(terrain[i], draw(rng, i) * HEIGHT / 2)
    fx, fy = PUSH * (2 * draw(rng, i) - 1), PUSH * (2 * draw(rng, i) - 1)
    wind = math.floor(2 * WIND_START * draw(rng, i)) - WIND_START
    turbulence = math.floor(2 * WIND_START * draw(rng, i)) - WIND_START
    place_lander(bodies[i], wind, turbulence)
    step_row(bodies[i], terrain[i], physics[i], ZERO, 0.0, 0.0, fx, fy)


@compiled
def step(
    bodies: Array, terrain: Array, rng: States, i: int, physics: Array, action: int
) -> tuple[float, bool]:
    """Act in one world; the reward, and whether the episode ended by landing, by a crash or by flying off."""
    first, second = 2 * draw(rng, i) - 1, 2 * draw(rng, i) - 1
    return step_row(bodies[i], terrain[i], physics[i], action, first, second, 0.0, 0.0)


@compiled
def observe(bodies: Array, i: int, out: Floats) -> None:
    """Write down what is seen of one world (8,): place, velocity, angle, its velocity, which legs touch."""
    x, y, vx, vy = _hull_state(bodies[i])
    out[0], out[1], out[2], out[3] = x, y, vx, vy
    out[4], out[5] = bodies[i, 2], 20 * bodies[i, 5] / FRAMES
    out[6], out[7] = bodies[i, TOUCHED + 1], bodies[i, TOUCHED + 2]


@compiled
def smooth(heights: Array, beyond: float) -> None:
    """Make ground of random heights (POINTS,), and of one more: flat in the middle, smoothed elsewhere."""
    middle = POINTS // 2
    for k in range(middle - 2, middle + 3):
        heights[k] = PAD
    last = beyond
    for k in range(POINTS):
        following = heights[k + 1] if k + 1 < POINTS else beyond
        here = heights[k]
        heights[k] = 0.33 * (last + here + following)
        last = here


@compiled
def place_lander(s: Array, wind: float, turbulence: float) -> None:
    """Put the lander at the top, at rest; `wind` and `turbulence` are the hours that they begin with."""
    for k in range(ROW):
        s[k] = 0.0
    s[0], s[1] = WIDTH / 2, HEIGHT + RAISED
    for leg in range(2):
        at, sign = (1 + leg) * BODY_SIZE, 2 * leg - 1
        s[at], s[at + 1], s[at + 2] = WIDTH / 2 - sign * LEG_AWAY, HEIGHT, sign * 0.05
    for body in range(3):
        update_rotation(s, body)
        update_aabb(s, body)
        for k in range(4):
            s[FAT + 4 * body + k] = s[BOX + 4 * body + k] + (MARGIN if k > 1 else -MARGIN)
    s[WIND], s[TURBULENCE] = wind, turbulence


@compiled
def step_row(
    s: Array, ground: Array, physics: Array, action: int, first: float, second: float, fx: float, fy: float
) -> tuple[float, bool]:
    """One step of one world.

    Args:
        s: Its row of `bodies`, as the next two are of `terrain` and `physics`.
        ground: See `s`.
        physics: See `s`.
        action: 0 nothing, 1 and 3 the side engines, 2 the main engine.
        first: How engines are dispersed, from -1 to 1.
        second: See `first`.
        fx: What else pushes the hull: the push at the beginning.
        fy: See `fx`.

    Returns:
        The reward, and whether the episode ended.
    """
    blown, turned = _blow(s, physics)
    if action > 0:
        _fire(s, action, first / SCALE, second / SCALE)
    move(s, ground, physics[0], fx + blown, fy, turned)
    x, y, vx, vy = _hull_state(s)
    still = 100 * (math.sqrt(x * x + y * y) + math.sqrt(vx * vx + vy * vy) + abs(s[2]))
    shaping = 10 * (s[TOUCHED + 1] + s[TOUCHED + 2]) - still
    reward = shaping - s[SHAPING]
    s[SHAPING] = shaping
    if action > 0:
        reward -= 0.3 if action == 2 else 0.03
    if s[ASLEEP] > 0:
        return 100.0, True
    if s[TOUCHED] > 0 or abs(x) >= 1:
        return -100.0, True
    return reward, False


@compiled
def _blow(s: Array, physics: Array) -> tuple[float, float]:
    # Force and torque of the wind on a lander in the air.
    if physics[1] == 0 or s[TOUCHED + 1] > 0 or s[TOUCHED + 2] > 0:
        return 0.0, 0.0
    force = math.tanh(math.sin(0.02 * s[WIND]) + math.sin(math.pi * 0.01 * s[WIND])) * physics[2]
    torque = math.tanh(math.sin(0.02 * s[TURBULENCE]) + math.sin(math.pi * 0.01 * s[TURBULENCE])) * physics[3]
    s[WIND] += 1
    s[TURBULENCE] += 1
    return force, torque


@compiled
def _fire(s: Array, action: int, first: float, second: float) -> None:
    # Engines push where they are; that the side engines sit at two heights is Gymnasium's.
    cos, sin = s[ROTATION], s[ROTATION + 1]
    if action == 2:
        down, across, power = MAIN_DOWN + 2 * first, second, MAIN
    else:
        down, across, power = first, 3 * second + (action - 2) * SIDE_AWAY, SIDE
    ox, oy = sin * down - cos * across, -cos * down - sin * across
    # From the centre of mass, which lies above the origin.
    ax, ay = ox + sin * RAISED, oy - cos * RAISED
    if action != 2:
        ax, ay = ax - sin * SIDE_BACK, ay + cos * SIDE_HIGH
    px, py = -ox * power, -oy * power
    s[3] += INVERSE_MASS[0] * px
    s[4] += INVERSE_MASS[0] * py
    s[5] += INVERSE_INERTIA[0] * (ax * py - ay * px)


@compiled
def _hull_state(s: Array) -> tuple[float, float, float, float]:
    # Where the hull's origin is and how fast its centre of mass moves, in Gymnasium's units.
    x, y = s[0] + s[ROTATION + 1] * RAISED, s[1] - s[ROTATION] * RAISED
    half_wide, half_high = WIDTH / 2, HEIGHT / 2
    place = (x - half_wide) / half_wide, (y - PAD - LEG_DOWN) / half_high
    return place[0], place[1], s[3] * half_wide / FRAMES, s[4] * half_high / FRAMES
