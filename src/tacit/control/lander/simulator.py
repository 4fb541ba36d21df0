"""The fast lander: Gymnasium's LunarLander-v3 with discrete actions, compiled, on rows of numbers.

Many worlds side by side, each with its own gravity, wind and turbulence. World i is row i of four arrays:
`bodies` (worlds, ROW) what moves, `terrain` (worlds, POINTS) heights of the ground, `rng` (worlds,) the state
of its random numbers, `physics` (worlds, 4) gravity, wind (1 on, 0 off), its power, that of turbulence. No
time limit: the caller sets one. `place_lander` and `step_row` take their random numbers from outside, so that
a world can be played next to Gymnasium's.

`move` is one step of the rigid bodies, as in Box2D 2.3 but in double precision: contacts are found; forces
change velocities; joints and contacts are solved in rounds, from the impulses of the last step; bodies move;
they are moved once more to where joints and ground allow; bodies at rest for half a second fall asleep;
bodies that would go through the ground are stopped on it.
"""

import math

import numpy as np
from numpy.typing import NDArray

from tacit.control.lander.bodies import (
    ASLEEP,
    BAUMGARTE,
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
    MOST_ROTATION,
    MOST_TRANSLATION,
    NEAR,
    PAD,
    POINTS,
    POSITION_ROUNDS,
    RAISED,
    RESTED,
    ROTATION,
    ROW,
    SCALE,
    SHAPING,
    SLEEP_SPEED,
    SLEEP_SPIN,
    SLEEP_STEPS,
    SLOP,
    START,
    STEP,
    TOUCHED,
    TURBULENCE,
    WIDTH,
    WIND,
    ZERO,
    Array,
    update_rotation,
)
from tacit.control.lander.contacts import (
    init_contacts,
    solve_contact_positions,
    update_aabb,
    update_pairs,
    update_proxies,
)
from tacit.control.lander.solver import (
    JOINTS,
    ORDER,
    init_joint,
    solve_joint_position,
    solve_toi,
    solve_velocities,
)
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
    """Write the observation of one world (8,): position, velocity, angle, its velocity, leg contacts."""
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
        first: Dispersion of the engines, from -1 to 1.
        second: See `first`.
        fx: Other forces on the hull: the push at the beginning.
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
    # From the center of mass, which lies above the origin.
    ax, ay = ox + sin * RAISED, oy - cos * RAISED
    if action != 2:
        ax, ay = ax - sin * SIDE_BACK, ay + cos * SIDE_HIGH
    px, py = -ox * power, -oy * power
    s[3] += INVERSE_MASS[0] * px
    s[4] += INVERSE_MASS[0] * py
    s[5] += INVERSE_INERTIA[0] * (ax * py - ay * px)


@compiled
def _hull_state(s: Array) -> tuple[float, float, float, float]:
    # Position of the hull's origin and velocity of its center of mass, in Gymnasium's units.
    x, y = s[0] + s[ROTATION + 1] * RAISED, s[1] - s[ROTATION] * RAISED
    half_wide, half_high = WIDTH / 2, HEIGHT / 2
    place = (x - half_wide) / half_wide, (y - PAD - LEG_DOWN) / half_high
    return place[0], place[1], s[3] * half_wide / FRAMES, s[4] * half_high / FRAMES


@compiled
def move(s: Array, ground: Array, gravity: float, fx: float, fy: float, torque: float) -> None:
    """Let 1/50 of a second pass, while a force and a torque act on the hull."""
    touching = 0
    for body in range(3):
        touching += update_pairs(s, ground, body)
        s[body * BODY_SIZE + 4] += STEP * gravity
    s[3] += STEP * INVERSE_MASS[0] * fx
    s[4] += STEP * INVERSE_MASS[0] * fy
    s[5] += STEP * INVERSE_INERTIA[0] * torque
    for body in ORDER:
        init_contacts(s, body)
    for joint in JOINTS:
        init_joint(s, joint)
    solve_velocities(s, touching > 0)
    for body in range(3):
        _integrate_positions(s, body)
    solved = _solve_positions(s, touching > 0)
    for body in range(3):
        at, start = body * BODY_SIZE, START + 3 * body
        update_proxies(s, ground, body, s[at] - s[start], s[at + 1] - s[start + 1])
    _update_sleep(s, solved)
    for body in range(3):
        if s[NEAR + body] > 0 and s[ASLEEP] == 0:
            solve_toi(s, ground, body)


@compiled
def _integrate_positions(s: Array, body: int) -> None:
    # From velocities to places; nothing flies farther than this in one step.
    at = body * BODY_SIZE
    far = STEP * (s[at + 3] * s[at + 3] + s[at + 4] * s[at + 4]) ** 0.5
    if far > MOST_TRANSLATION:
        s[at + 3] *= MOST_TRANSLATION / far
        s[at + 4] *= MOST_TRANSLATION / far
    turn = STEP * abs(s[at + 5])
    if turn > MOST_ROTATION:
        s[at + 5] *= MOST_ROTATION / turn
    for i in range(3):
        s[START + 3 * body + i] = s[at + i]
        s[at + i] += STEP * s[at + 3 + i]
    update_rotation(s, body)


@compiled
def _solve_positions(s: Array, touching: bool) -> bool:
    # Out of the ground and back to where joints hold, until both are nearly so.
    for _ in range(POSITION_ROUNDS):
        ok = True
        if touching:
            for body in ORDER:
                ok = solve_contact_positions(s, body, BAUMGARTE) >= -3 * SLOP and ok
        for joint in JOINTS:
            ok = solve_joint_position(s, joint) and ok
        if ok:
            return True
    return False


@compiled
def _update_sleep(s: Array, solved: bool) -> None:
    rested = SLEEP_STEPS
    for body in range(3):
        at = body * BODY_SIZE
        speed = s[at + 3] * s[at + 3] + s[at + 4] * s[at + 4]
        still = abs(s[at + 5]) <= SLEEP_SPIN and speed <= SLEEP_SPEED * SLEEP_SPEED
        s[RESTED + body] = s[RESTED + body] + 1 if still else 0.0
        rested = min(rested, int(s[RESTED + body]))
    if rested == SLEEP_STEPS and solved:
        s[ASLEEP] = 1.0
        for body in range(3):
            for i in range(3):
                s[body * BODY_SIZE + 3 + i] = 0.0
