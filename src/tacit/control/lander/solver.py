"""Joints of the fast lander, solved as Box2D 2.3 solves revolute joints, and rounds of joints and contacts.

A joint holds two points together, keeps its angle within limits and has a motor. The motor drives each leg
against a limit all the time; the two fight in every round, the motor gains what the limit loses, and
velocities stand still: so rounds that are left over are summed up in one go.

A round goes through joints and contacts one by one. A lander in flight with its legs at their limits changes
no more after a few rounds. Otherwise often not even Box2D's 180 are enough, and what is left undone then is
part of the world: so the result of the last one is wanted, not the limit. While the same constraints hold,
rounds are linear, and soon three slow modes are left at most. Then each change follows from the three before
it, d(k+1) = p d(k) + q d(k-1) + r d(k-2), and rounds can be summed without taking them. The sum is believed
if one more round, taken at the end, comes out as it foretells.

Room of a joint (at SOLVING): 0, 1 arm of the hull, 2, 3 arm of the leg; 4-9 inverse of the coupling of point
and angle (xx, xy, xz, yy, yz, zz); 10-12 inverse of that of the point alone (xx, xy, yy); 13, 14 how the
angle moves the point; 15 what the motor gained in the last round.

Bodies that would pass through the ground within a step: stopped on it, as in Box2D 2.3.

The time of an impact is found by conservative advancement: the features that are nearest give a direction in
which to measure, a root search gives the time at which the gap in it closes, and so on until nothing else is
nearer. The body is put there, moved out, and goes on for the rest of the step with what the ground leaves of
its velocity. Its joint does not take part, it pulls in the next step.
"""

import math

from tacit.control.lander.bodies import (
    ANGULAR_SLOP,
    BODY_SIZE,
    BOX,
    CONTACT,
    CONTACT_SIZE,
    CORNERS,
    IMPACT_BAUMGARTE,
    IMPACT_ROUNDS,
    IMPACTS,
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
    NEAR,
    NORMALS,
    PAIR,
    PAIR_SIZE,
    PAIRS,
    PUSH,
    PUSH_SIZE,
    RAISED,
    ROTATION,
    ROUNDS,
    SETTLED,
    SIDES,
    SLOP,
    SOLVING,
    SOLVING_SIZE,
    SPACING,
    START,
    STATE,
    STEP,
    UPPER,
    VELOCITY_ROUNDS,
    ZERO,
    Array,
    turn,
    update_rotation,
)
from tacit.control.lander.contacts import (
    FAR,
    Line,
    init_contacts,
    solve_contact_positions,
    solve_contacts,
    touches,
    transform_shape,
    update_aabb,
    update_proxies,
)
from tacit.runtime.jit import compiled

HULL, LEG = INVERSE_MASS[0], INVERSE_MASS[1]
HULL_SPIN, LEG_SPIN = INVERSE_INERTIA[0], INVERSE_INERTIA[1]
BOTH, BOTH_SPIN = HULL + LEG, HULL_SPIN + LEG_SPIN
MOTOR_MASS = 1 / BOTH_SPIN
MOST_MOTOR = STEP * MOTOR_TORQUE
# Islands are walked from the body that was made last.
ORDER, JOINTS = (2, 0, 1), (1, 0)
# Iterations between extrapolations, and the number that one must save.
EVERY, WORTH = 6, 12
# Tolerances: of the last change against those before it, and of the final iteration against all.
EXACT, FORETOLD = 1e-11, 1e-9
# A square of a length that is nothing but rounding.
NOTHING = 1e-24
SAVED = ROUNDS + 4 * STATE
CHANGES = ROUNDS + 5 * STATE


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
    # From the centers of mass to where hull and leg are joined.
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
    """Apply the remaining iterations of a joint at constant velocities: the motor gains on the limit."""
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
def solve_velocities(s: Array, touching: bool) -> None:
    """Find the velocities that joints, and contacts where there are any, leave."""
    done = 0
    while done < VELOCITY_ROUNDS:
        last = ROUNDS + STATE * (done % 4)
        for k in range(STATE):
            s[last + k] = s[k]
        iterate_once(s, touching)
        done += 1
        if _change(s, last) < SETTLED:
            for joint in JOINTS:
                finish_joint(s, joint, VELOCITY_ROUNDS - done)
            return
        if done % EVERY == 0 and done + WORTH < VELOCITY_ROUNDS:
            done += _extrapolate(s, done, VELOCITY_ROUNDS - done - 1, touching)


@compiled
def iterate_once(s: Array, touching: bool) -> None:
    """Solve each joint once, then each contact."""
    for joint in JOINTS:
        solve_joint(s, joint)
    if touching:
        for body in ORDER:
            solve_contacts(s, body)


@compiled
def _change(s: Array, last: int) -> float:
    # Total change of all velocities at fixed positions. NaN stays NaN.
    total = 0.0
    for k in range(JOINT):
        total += abs(s[k] - s[last + k])
    return total


@compiled
def _extrapolate(s: Array, done: int, rounds: int, touching: bool) -> int:
    # Extrapolate several iterations at once, and check by one more; return the number taken, or 0.
    p, q, r = _modes(s, done)
    off = 0.0
    for k in range(JOINT):
        off = max(off, abs(s[CHANGES + k]))
    if not (off < EXACT and 1 - p - q - r > EXACT):
        return 0
    a, b, c = _sum(s, done, (p, q, r), rounds)
    x1, x2 = ROUNDS + STATE * ((done + 3) % 4), ROUNDS + STATE * ((done + 2) % 4)
    x3, oldest = ROUNDS + STATE * ((done + 1) % 4), ROUNDS + STATE * (done % 4)
    for k in range(JOINT):
        # Predicted next iteration, in place of the oldest state.
        s[oldest + k] = (
            s[k] + a * (s[SAVED + k] - s[x1 + k]) + b * (s[x1 + k] - s[x2 + k]) + c * (s[x2 + k] - s[x3 + k])
        )
    iterate_once(s, touching)
    if _change(s, oldest) < FORETOLD:
        return rounds + 1
    for k in range(STATE):
        s[k] = s[SAVED + k]
    return 0


@compiled
def _modes(s: Array, done: int) -> tuple[float, float, float]:
    # Coefficients of the last change of velocities on the three before it; the remainder is left at CHANGES.
    newer = 0
    for i in range(4):
        older = ROUNDS + STATE * ((done + 3 - i) % 4)
        for k in range(JOINT):
            s[CHANGES + JOINT * i + k] = s[newer + k] - s[older + k]
        newer = older
    d0, d1, d2, d3 = CHANGES, CHANGES + JOINT, CHANGES + 2 * JOINT, CHANGES + 3 * JOINT
    a, b = _without(s, d2, d1), _without(s, d3, d1)
    c = _without(s, d3, d2)
    u, v = _without(s, d0, d1), _without(s, d0, d2)
    r = _without(s, d0, d3)
    q = v - r * c
    return u - q * a - r * b, q, r


@compiled
def _without(s: Array, change: int, other: int) -> float:
    # Subtract from one change its projection on another; return the coefficient.
    along, square = 0.0, 0.0
    for k in range(JOINT):
        along, square = along + s[change + k] * s[other + k], square + s[other + k] * s[other + k]
    if square < NOTHING:
        return 0.0
    for k in range(JOINT):
        s[change + k] -= along / square * s[other + k]
    return along / square


@compiled
def _sum(s: Array, done: int, modes: tuple[float, float, float], rounds: int) -> tuple[float, float, float]:
    # Add the changes of `rounds` iterations, each a, b, c times the last three; return a, b, c of one more.
    p, q, r = modes
    a, b, c = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
    total_a, total_b, total_c = -1.0, 0.0, 0.0
    for _ in range(rounds + 1):
        total_a, total_b, total_c = total_a + a[0], total_b + b[0], total_c + c[0]
        a = (p * a[0] + q * a[1] + r * a[2], a[0], a[1])
        b = (p * b[0] + q * b[1] + r * b[2], b[0], b[1])
        c = (p * c[0] + q * c[1] + r * c[2], c[0], c[1])
    x1, x2 = ROUNDS + STATE * ((done + 3) % 4), ROUNDS + STATE * ((done + 2) % 4)
    x3, x4 = ROUNDS + STATE * ((done + 1) % 4), ROUNDS + STATE * (done % 4)
    for k in range(STATE):
        d0, d1, d2, steady = s[k] - s[x1 + k], s[x1 + k] - s[x2 + k], s[x2 + k] - s[x3 + k], 0.0
        if JOINT <= k < PUSH:
            # A motor that fights a limit gains as much in every round.
            steady = (d0 - p * d1 - q * d2 - r * (s[x3 + k] - s[x4 + k])) / (1 - p - q - r)
        s[SAVED + k] = s[k]
        s[k] += total_a * (d0 - steady) + total_b * (d1 - steady) + total_c * (d2 - steady) + rounds * steady
    for joint in JOINTS:
        j = JOINT + joint * JOINT_SIZE
        motor = min(max(s[j + 3], -MOST_MOTOR), MOST_MOTOR)
        if s[j + 4] != 0.0:
            s[j + 2] += s[j + 3] - motor
            s[j + 3] = motor
    return a[0], b[0], c[0]


# Measure of a gap: 0 from an end of the edge to a corner, 1 from the edge, 2 from a side of the body; the
# direction, for 0 and 1; the number of the side, for 2.
Measure = tuple[int, float, float, int]
POINT, EDGE, SIDE = 0, 1, 2
# The gap that remains at an impact, and its tolerance.
TARGET, TOLERANCE = SLOP, SLOP / 4
TRIES, PUSHES, BISECTIONS = 20, 8, 50
ALL = 1 - 1e-6


@compiled
def solve_toi(s: Array, ground: Array, body: int) -> None:
    """Stop a body on the ground if it went through, as often as that happens within the step."""
    at, start, begun = body * BODY_SIZE, START + 3 * body, 0.0
    for slot in range(int(s[NEAR + body])):
        s[CONTACT + (PAIRS * body + slot) * CONTACT_SIZE + 27] = 0.0
    for _ in range(PAIRS * (IMPACTS + 1)):
        slot, share = _first_impact(s, ground, body)
        if slot < 0 or begun + (1 - begun) * share > ALL:
            return
        x, y, angle = s[at], s[at + 1], s[at + 2]
        for i in range(3):
            s[at + i] = s[start + i] + share * (s[at + i] - s[start + i])
        update_rotation(s, body)
        count = CONTACT + (PAIRS * body + slot) * CONTACT_SIZE + 27
        s[count] += 1
        if touches(s, ground, body, slot):
            begun += (1 - begun) * share
            _lift_out(s, ground, body, slot)
            _deflect(s, body)
            _go_on(s, ground, body, (1 - begun) * STEP)
        else:
            # Not yet: this pair is left alone for the rest of the step.
            s[count], s[at], s[at + 1], s[at + 2] = IMPACTS + 1, x, y, angle
            update_rotation(s, body)


@compiled
def _first_impact(s: Array, ground: Array, body: int) -> tuple[int, float]:
    # The pair that meets first, and after which share of the way; -1 if none does.
    best, soonest = -1, 1.0
    fallen = abs(s[body * BODY_SIZE + 1] - s[START + 3 * body + 1])
    for slot in range(int(s[NEAR + body])):
        pair = PAIRS * body + slot
        edge = int(s[PAIR + pair * PAIR_SIZE])
        high = max(ground[edge], ground[edge + 1])
        if s[CONTACT + pair * CONTACT_SIZE + 27] > IMPACTS or s[BOX + 4 * body + 1] - fallen > high:
            continue
        share = _impact(s, body, (edge * SPACING, ground[edge], (edge + 1) * SPACING, ground[edge + 1]))
        if share < soonest:
            best, soonest = slot, share
    return best, soonest


@compiled
def _lift_out(s: Array, ground: Array, body: int, struck: int) -> None:
    for slot in range(int(s[NEAR + body])):
        if slot != struck:
            touches(s, ground, body, slot)
    for _ in range(IMPACT_ROUNDS):
        if solve_contact_positions(s, body, IMPACT_BAUMGARTE) >= -1.5 * SLOP:
            break


@compiled
def _deflect(s: Array, body: int) -> None:
    # Apply the ground's reaction to the velocity; these impulses are not kept.
    v, push = body * BODY_SIZE + 3, PUSH + PAIRS * body * PUSH_SIZE
    for i in range(PAIRS * PUSH_SIZE):
        s[ROUNDS + i], s[push + i] = s[push + i], 0.0
    init_contacts(s, body)
    for _ in range(VELOCITY_ROUNDS):
        x, y, spin = s[v], s[v + 1], s[v + 2]
        solve_contacts(s, body)
        if max(abs(s[v] - x), abs(s[v + 1] - y), abs(s[v + 2] - spin)) < SETTLED:
            break
    for i in range(PAIRS * PUSH_SIZE):
        s[push + i] = s[ROUNDS + i]


@compiled
def _go_on(s: Array, ground: Array, body: int, left: float) -> None:
    # From here, for the rest of the step.
    update_aabb(s, body)
    at = body * BODY_SIZE
    for i in range(3):
        s[START + 3 * body + i] = s[at + i]
        s[at + i] += left * s[at + 3 + i]
    update_rotation(s, body)
    update_proxies(s, ground, body, left * s[at + 3], left * s[at + 4])


@compiled
def _impact(s: Array, body: int, edge: Line) -> float:
    # The share of the way after which the gap to an edge is the target; 1 if that is not reached.
    begin = 0.0
    for _ in range(TRIES):
        gap, how = _nearest(s, body, edge, begin)
        if gap <= 0:
            return 1.0
        if gap < TARGET + TOLERANCE:
            return begin
        begin, found = _close(s, body, edge, how, begin)
        if found != 0:
            return begin if found > 0 else 1.0
    return 1.0


@compiled
def _close(s: Array, body: int, edge: Line, how: Measure, begin: float) -> tuple[float, int]:
    # Return the time at which a gap with this measure closes; and 1 for an impact, -1 if there is none, 0 if
    # others may be.
    end = 1.0
    for _ in range(PUSHES):
        late, corner, side = _least(s, body, edge, how, end)
        if late > TARGET + TOLERANCE:
            return 1.0, -1
        if late > TARGET - TOLERANCE:
            return end, 0
        early = _gap(s, body, edge, how, begin, corner, side)
        if early < TARGET - TOLERANCE:
            return begin, -1
        if early <= TARGET + TOLERANCE:
            return begin, 1
        end = _root(s, body, edge, how, (begin, end, early, late), corner, side)
    return begin, 0


@compiled
def _root(s: Array, body: int, edge: Line, how: Measure, within: Line, corner: int, side: int) -> float:
    # Between two times, with a gap at each: bisection and secant in turn.
    low, high, early, late = within
    t = high
    for i in range(BISECTIONS):
        t = low + (TARGET - early) * (high - low) / (late - early) if i % 2 else (low + high) / 2
        gap = _gap(s, body, edge, how, t, corner, side)
        if abs(gap - TARGET) < TOLERANCE:
            break
        if gap > TARGET:
            low, early = t, gap
        else:
            high, late = t, gap
    return t


@compiled
def _transform_at(s: Array, body: int, t: float) -> None:
    # Corners and normals after a share of the way.
    at, start = body * BODY_SIZE, START + 3 * body
    angle = s[start + 2] + t * (s[at + 2] - s[start + 2])
    x, y = s[start] + t * (s[at] - s[start]), s[start + 1] + t * (s[at + 1] - s[start + 1])
    transform_shape(s, body, x, y, math.cos(angle), math.sin(angle))


@compiled
def _gap(s: Array, body: int, edge: Line, how: Measure, t: float, corner: int, end: int) -> float:
    # Between a corner and an end of the edge, along the edge's direction or along that of a side.
    _transform_at(s, body, t)
    x, y = (edge[0], edge[1]) if end == 0 else (edge[2], edge[3])
    x, y = s[CORNERS + 2 * corner] - x, s[CORNERS + 2 * corner + 1] - y
    if how[0] == SIDE:
        return -s[NORMALS + 2 * how[3]] * x - s[NORMALS + 2 * how[3] + 1] * y
    return how[1] * x + how[2] * y


@compiled
def _least(s: Array, body: int, edge: Line, how: Measure, t: float) -> tuple[float, int, int]:
    # The smallest such gap after a share of the way, and between which corner and end.
    _transform_at(s, body, t)
    least, corner, end, side = FAR, how[3], 0, how[3]
    dx, dy = how[1], how[2]
    if how[0] == SIDE:
        dx, dy = -s[NORMALS + 2 * side], -s[NORMALS + 2 * side + 1]
    else:
        for i in range(SIDES[body]):
            gap = dx * s[CORNERS + 2 * i] + dy * s[CORNERS + 2 * i + 1]
            if gap < least:
                least, corner = gap, i
    if how[0] != EDGE and dx * (edge[2] - edge[0]) + dy * (edge[3] - edge[1]) > 0:
        end = 1
    x, y = (edge[0], edge[1]) if end == 0 else (edge[2], edge[3])
    return dx * (s[CORNERS + 2 * corner] - x) + dy * (s[CORNERS + 2 * corner + 1] - y), corner, end


@compiled
def _nearest(s: Array, body: int, edge: Line, t: float) -> tuple[float, Measure]:
    # Return the distance of body and edge, and its measure; 0 where they overlap.
    _transform_at(s, body, t)
    ex, ey = edge[2] - edge[0], edge[3] - edge[1]
    length = (ex * ex + ey * ey) ** 0.5
    best, how, above, below, apart = FAR, (POINT, 0.0, 0.0, 0), False, False, False
    for i in range(SIDES[body]):
        x, y = s[CORNERS + 2 * i] - edge[0], s[CORNERS + 2 * i + 1] - edge[1]
        along, off = (ex * x + ey * y) / length, (ex * y - ey * x) / length
        above, below = above or off > 0, below or off < 0
        gap, found = abs(off), (EDGE, -ey / length, ex / length, 0)
        if off < 0:
            found = (EDGE, ey / length, -ex / length, 0)
        if not 0 <= along <= length:
            x, y = (x, y) if along < 0 else (x - ex, y - ey)
            gap = max((x * x + y * y) ** 0.5, 1e-12)
            found = (POINT, x / gap, y / gap, 0)
        if gap < best:
            best, how = gap, found
        gap, outside = _from_side(s, body, i, edge)
        apart = apart or outside
        if gap < best:
            best, how = gap, (SIDE, 0.0, 0.0, i)
    return (best if apart or not (above and below) else 0.0), how


@compiled
def _from_side(s: Array, body: int, i: int, edge: Line) -> tuple[float, bool]:
    # From a side to the nearer end of the edge that lies before it, and whether all of the edge is outside.
    j = i + 1 if i + 1 < SIDES[body] else 0
    x, y, z, w = s[CORNERS + 2 * i], s[CORNERS + 2 * i + 1], s[CORNERS + 2 * j], s[CORNERS + 2 * j + 1]
    nx, ny = s[NORMALS + 2 * i], s[NORMALS + 2 * i + 1]
    first, second = nx * (edge[0] - x) + ny * (edge[1] - y), nx * (edge[2] - x) + ny * (edge[3] - y)
    gap = FAR
    if first > 0 and (edge[0] - x) * (edge[0] - z) + (edge[1] - y) * (edge[1] - w) < first * first:
        gap = first
    if second > 0 and (edge[2] - x) * (edge[2] - z) + (edge[3] - y) * (edge[3] - w) < second * second:
        gap = min(gap, second)
    return gap, first > 0 and second > 0
