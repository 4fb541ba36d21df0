"""Bodies of the fast lander: masses, constants of the solver, and the layout of a world.

Three bodies: 0 is the hull, 1 and 2 are the legs that Gymnasium makes first and second, each on a revolute
joint to the hull with a motor and limits. The ground is a chain of ten edges. A world is one row of numbers:
the places named below, first the state carried from one step to the next, then room for the work of one step.
Numbers are Gymnasium's (lunar_lander.py) and those that Box2D 2.3 is compiled with (b2Settings.h).
"""

import math
from typing import cast

import numpy as np

from tacit.runtime.arrays import Array
from tacit.runtime.jit import compiled

# Numba compiles a function once more for a 0 that is written down.
ZERO = cast("int", np.int64(0))

# The scene.
FRAMES, SCALE = 50.0, 30.0
WIDTH, HEIGHT = 600 / SCALE, 400 / SCALE
POINTS = 11
SPACING = WIDTH / (POINTS - 1)
PAD = HEIGHT / 4
HULL_POINTS = ((17, -10), (17, 0), (14, 17), (-14, 17), (-17, 0), (-17, -10))
LEG_AWAY, LEG_DOWN = 20 / SCALE, 18 / SCALE
LEG_POINTS = ((-2, -8), (2, -8), (2, 8), (-2, 8))
HULL_DENSITY, LEG_DENSITY = 5.0, 1.0
FRICTION = (0.1, math.sqrt(0.1 * 0.2), math.sqrt(0.1 * 0.2))
MOTOR_SPEED, MOTOR_TORQUE = 0.3, 40.0
# Gymnasium's limits, from .4 to .9 either way, count from where the legs are made: .05 the other way.
LOWER, UPPER = (0.35, -0.85), (0.85, -0.35)

# The solver.
STEP = 1 / FRAMES
VELOCITY_ROUNDS, POSITION_ROUNDS, IMPACT_ROUNDS, IMPACTS = 180, 60, 20, 8
SLOP, ANGULAR_SLOP = 0.005, 2 / 180 * math.pi
RADIUS = 2 * SLOP
MOST_CORRECTION, MOST_ANGULAR_CORRECTION = 0.2, 8 / 180 * math.pi
MOST_TRANSLATION, MOST_ROTATION = 2.0, 0.5 * math.pi
BAUMGARTE, IMPACT_BAUMGARTE = 0.2, 0.75
ILL_CONDITIONED = 1000.0
MARGIN, AHEAD = 0.1, 2.0
SLEEP_SPEED, SLEEP_SPIN, SLEEP_STEPS = 0.01, 2 / 180 * math.pi, 25
# Velocities that change by less in an iteration have converged: less than Box2D's single precision resolves.
SETTLED = 1e-9

# One row. First the part that iterations change: bodies (x, y of the center of mass, angle, and velocities)
# ...
BODY_SIZE = 6
# ... joints (impulse x, y, of the limit, of the motor; which limit holds: -1 lower, 1 upper) ...
JOINT, JOINT_SIZE = 18, 5
# ... and the pushes of each pair of a body and an edge near it: two along the normal, two across.
PUSH, PUSH_SIZE, PAIRS = 28, 4, 3
STATE = 64
# More state carried between steps. Pairs: edge, points that touch, names of the two; newest first.
PAIR, PAIR_SIZE = 64, 4
NEAR = 100  # number of pairs of each body
ROTATION = 103  # cosine and sine of each body's angle
FAT = 109  # each body's box with a margin: left, bottom, right, top
BOX = 121  # each body's box at the end of the last step
RESTED = 133  # number of steps that each body has been at rest
TOUCHED = 136  # flag: the body is on the ground
SHAPING, WIND, TURBULENCE, ASLEEP = 139, 140, 141, 142
# Room for the work of one step.
START = 143  # each body's x, y, angle when the step began
SOLVING, SOLVING_SIZE = 152, 16  # each joint: see `solver`
CONTACT, CONTACT_SIZE = 184, 28  # each pair: see `contacts`
CORNERS, NORMALS = 436, 448  # of the body that is looked at, in the world
ROUNDS = 460  # five earlier states, and four changes of velocities: see `solver`
ROW = 852


def mass_of(points: Array, density: float) -> tuple[float, float, Array]:
    """Mass, moment of inertia about the center of mass, and that center, of a polygon."""
    following = np.roll(points, -1, axis=0)
    cross = points[:, 0] * following[:, 1] - points[:, 1] * following[:, 0]
    area = float(cross.sum()) / 2
    centre = ((points + following) * cross[:, None]).sum(axis=0) / (6 * area)
    squares = points**2 + points * following + following**2
    about_origin = float((squares.sum(axis=1) * cross).sum()) / 12
    mass = density * area
    return mass, density * about_origin - mass * float(centre @ centre), centre


def _normals(points: Array) -> Array:
    along = np.roll(points, -1, axis=0) - points
    return np.stack([along[:, 1], -along[:, 0]], axis=1) / np.linalg.norm(along, axis=1, keepdims=True)


_HULL = np.array(HULL_POINTS) / SCALE
_LEG = np.array(LEG_POINTS) / SCALE
HULL_MASS, HULL_INERTIA, _CENTRE = mass_of(_HULL, HULL_DENSITY)
LEG_MASS, LEG_INERTIA, _ = mass_of(_LEG, LEG_DENSITY)
# Height of the hull's center of mass above its origin, which is observed and pushed by the engines.
RAISED = float(_CENTRE[1])
INVERSE_MASS = (1 / HULL_MASS, 1 / LEG_MASS, 1 / LEG_MASS)
INVERSE_INERTIA = (1 / HULL_INERTIA, 1 / LEG_INERTIA, 1 / LEG_INERTIA)
SIDES = (6, 4, 4)
# The corners of each body about its center of mass, and the normals of the sides that begin there (3, 6, 2).
SHAPE: Array = np.zeros((3, 6, 2))
FACING: Array = np.zeros((3, 6, 2))
SHAPE[0], FACING[0] = _HULL - _CENTRE, _normals(_HULL)
SHAPE[1:, :4], FACING[1:, :4] = _LEG, _normals(_LEG)
for _array in (SHAPE, FACING):
    _array.flags.writeable = False
# By less, a body is turned without its angle being looked up: to the last digit the same.
LITTLE = 0.01


@compiled
def update_rotation(s: Array, body: int) -> None:
    """Update the cosine and sine of a body's angle."""
    angle = s[body * BODY_SIZE + 2]
    s[ROTATION + 2 * body], s[ROTATION + 2 * body + 1] = math.cos(angle), math.sin(angle)


@compiled
def turn(s: Array, body: int, by: float) -> None:
    """Turn a body, and with it where it faces."""
    s[body * BODY_SIZE + 2] += by
    if abs(by) > LITTLE:
        update_rotation(s, body)
        return
    at, square = ROTATION + 2 * body, by * by
    sin = by * (1 - square / 6 * (1 - square / 20))
    cos = 1 - square / 2 * (1 - square / 12 * (1 - square / 30))
    s[at], s[at + 1] = s[at] * cos - s[at + 1] * sin, s[at + 1] * cos + s[at] * sin
