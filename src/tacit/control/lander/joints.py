"""The joints between hull and legs of the fast lander, solved as Box2D 2.3 solves revolute joints.

A joint holds two points together, keeps its angle within limits and has a motor. The motor drives each leg
against a limit all the time; the two fight in every round, the motor gains what the limit loses, and
velocities stand still: so rounds that are left over are summed up in one go.

Room of a joint (at SOLVING): 0, 1 arm of the hull, 2, 3 arm of the leg; 4-9 inverse of the coupling of point
and angle (xx, xy, xz, yy, yz, zz); 10-12 inverse of that of the point alone (xx, xy, yy); 13, 14 how the
angle moves the point; 15 what the motor gained in the last round.
"""

import math

from tacit.control.lander.bodies import (
    ANGULAR_SLOP,
    BODY_SIZE,
    INVERSE_INERTIA,
    INVERSE_MASS,
    JOINT,
    JOINT_SIZE,
    LEG_AWAY,
    LEG_DOWN,
    LOWER,
    MOST_ANGULAR_CORRECTION,
    MOTOR_SPEED,
    MOTOR_TORQUE,
    RAISED,
    ROTATION,
    SLOP,
    SOLVING,
    SOLVING_SIZE,
    STEP,
    UPPER,
    ZERO,
    Array,
)
from tacit.runtime.jit import compiled

HULL, LEG = INVERSE_MASS[0], INVERSE_MASS[1]
HULL_SPIN, LEG_SPIN = INVERSE_INERTIA[0], INVERSE_INERTIA[1]
BOTH, BOTH_SPIN = HULL + LEG, HULL_SPIN + LEG_SPIN
MOTOR_MASS = 1 / BOTH_SPIN
MOST_MOTOR = STEP * MOTOR_TORQUE
# By less, a body is turned without its angle being looked up: to the last digit the same.
LITTLE = 0.01


@compiled
def init_joint(s: Array, joint: int) -> None:
    """Lay out one joint for this step, and start from the impulses of the last one."""
    j, room, leg = JOINT + joint * JOINT_SIZE, SOLVING + joint * SOLVING_SIZE, (1 + joint) * BODY_SIZE
    ax, ay, bx, by = _arms(s, joint)
    s[room], s[room + 1], s[room + 2], s[room + 3] = ax, ay, bx, by
    _invert(s, room, ax, ay, bx, by)
    angle, limit = s[leg + 2] - s[2], 0.0
    if angle <= LOWER[joint]:
        limit = -1.0
    elif angle >= UPPER[joint]:
        limit = 1.0
    if limit == 0.0 or limit != s[j + 4]:
        # A limit that did not hold before has no impulse yet.
        s[j + 2] = 0.0
    s[j + 4] = limit
    _push(s, leg, room, s[j], s[j + 1], s[j + 2] + s[j + 3])


@compiled
def _arms(s: Array, joint: int) -> tuple[float, float, float, float]:
    # From the centres of mass to where hull and leg are joined.
    cos, sin = s[ROTATION], s[ROTATION + 1]
    ax, ay = sin * RAISED, -cos * RAISED
    cos, sin = s[ROTATION + 2 + 2 * joint], s[ROTATION + 3 + 2 * joint]
    away = LEG_AWAY if joint == 1 else -LEG_AWAY
    return ax, ay, cos * away - sin * LEG_DOWN, sin * away + cos * LEG_DOWN


@compiled
def _invert(s: Array, room: int, ax: float, ay: float, bx: float, by: float) -> None:
    xx = BOTH + ay * ay * HULL_SPIN + by * by * LEG_SPIN
    xy = -ay * ax * HULL_SPIN - by * bx * LEG_SPIN
    yy = BOTH + ax * ax * HULL_SPIN + bx * bx * LEG_SPIN
    xz, yz, zz = -ay * HULL_SPIN - by * LEG_SPIN, ax * HULL_SPIN + bx * LEG_SPIN, BOTH_SPIN
    flat = 1 / (xx * yy - xy * xy)
    s[room + 10], s[room + 11], s[room + 12] = yy * flat, -xy * flat, xx * flat
    s[room + 13], s[room + 14] = xz, yz
    a, b, c = yy * zz - yz * yz, xz * yz - xy * zz, xy * yz - xz * yy
    full = 1 / (xx * a + xy * b + xz * c)
    s[room + 4], s[room + 5], s[room + 6] = a * full, b * full, c * full
    s[room + 7], s[room + 8] = (xx * zz - xz * xz) * full, (xy * xz - xx * yz) * full
    s[room + 9] = (xx * yy - xy * xy) * full


@compiled
def _push(s: Array, leg: int, room: int, px: float, py: float, turn: float) -> None:
    s[3] -= HULL * px
    s[4] -= HULL * py
    s[5] -= HULL_SPIN * (s[room] * py - s[room + 1] * px + turn)
    s[leg + 3] += LEG * px
    s[leg + 4] += LEG * py
    s[leg + 5] += LEG_SPIN * (s[room + 2] * py - s[room + 3] * px + turn)


@compiled
def solve_joint(s: Array, joint: int) -> None:
    """One round of one joint: the motor, then point and limit together."""
    j, room, leg = JOINT + joint * JOINT_SIZE, SOLVING + joint * SOLVING_SIZE, (1 + joint) * BODY_SIZE
    speed = MOTOR_SPEED if joint == 1 else -MOTOR_SPEED
    wanted = s[j + 3] - (s[leg + 5] - s[5] - speed) * MOTOR_MASS
    gained = min(max(wanted, -MOST_MOTOR), MOST_MOTOR) - s[j + 3]
    s[j + 3] += gained
    s[room + 15] = gained
    s[5] -= HULL_SPIN * gained
    s[leg + 5] += LEG_SPIN * gained
    dx = s[leg + 3] - s[leg + 5] * s[room + 3] - s[3] + s[5] * s[room + 1]
    dy = s[leg + 4] + s[leg + 5] * s[room + 2] - s[4] - s[5] * s[room]
    turn, turned, free = 0.0, s[leg + 5] - s[5], s[j + 4] == 0.0
    px, py = 0.0, 0.0
    if not free:
        px = -(s[room + 4] * dx + s[room + 5] * dy + s[room + 6] * turned)
        py = -(s[room + 5] * dx + s[room + 7] * dy + s[room + 8] * turned)
        turn = -(s[room + 6] * dx + s[room + 8] * dy + s[room + 9] * turned)
        if (s[j + 2] + turn) * s[j + 4] > 0:
            # A limit only pushes: without its impulse, the point alone.
            turn = -s[j + 2]
            dx, dy, free = dx + turn * s[room + 13], dy + turn * s[room + 14], True
    if free:
        px = -(s[room + 10] * dx + s[room + 11] * dy)
        py = -(s[room + 11] * dx + s[room + 12] * dy)
    s[j] += px
    s[j + 1] += py
    s[j + 2] += turn
    _push(s, leg, room, px, py, turn)


@compiled
def finish_joint(s: Array, joint: int, rounds: int) -> None:
    """What rounds that are left over would do while velocities stand still: the motor gains on the limit."""
    j, room = JOINT + joint * JOINT_SIZE, SOLVING + joint * SOLVING_SIZE
    if s[j + 4] != 0.0:
        motor = min(max(s[j + 3] + rounds * s[room + 15], -MOST_MOTOR), MOST_MOTOR)
        s[j + 2] -= motor - s[j + 3]
        s[j + 3] = motor


@compiled
def solve_joint_position(s: Array, joint: int) -> bool:
    """Move hull and leg so that the joint holds again; whether it did already, within its slop."""
    j, leg = JOINT + joint * JOINT_SIZE, (1 + joint) * BODY_SIZE
    bent, angle = 0.0, s[leg + 2] - s[2]
    if s[j + 4] != 0.0:
        off = angle - LOWER[joint] if s[j + 4] < 0 else UPPER[joint] - angle
        bent = -off
        back = min(max(off + ANGULAR_SLOP, -MOST_ANGULAR_CORRECTION), 0.0) * MOTOR_MASS * s[j + 4]
        turn(s, ZERO, -HULL_SPIN * back)
        turn(s, 1 + joint, LEG_SPIN * back)
    ax, ay, bx, by = _arms(s, joint)
    dx, dy = s[leg] + bx - s[0] - ax, s[leg + 1] + by - s[1] - ay
    xx = BOTH + ay * ay * HULL_SPIN + by * by * LEG_SPIN
    xy = -ay * ax * HULL_SPIN - by * bx * LEG_SPIN
    yy = BOTH + ax * ax * HULL_SPIN + bx * bx * LEG_SPIN
    flat = 1 / (xx * yy - xy * xy)
    px, py = -(yy * dx - xy * dy) * flat, -(xx * dy - xy * dx) * flat
    s[0] -= HULL * px
    s[1] -= HULL * py
    s[leg] += LEG * px
    s[leg + 1] += LEG * py
    turn(s, ZERO, -HULL_SPIN * (ax * py - ay * px))
    turn(s, 1 + joint, LEG_SPIN * (bx * py - by * px))
    return dx * dx + dy * dy <= SLOP * SLOP and bent <= ANGULAR_SLOP


@compiled
def update_rotation(s: Array, body: int) -> None:
    """Cosine and sine of where a body faces now."""
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
