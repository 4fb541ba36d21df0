"""One step of the fast lander's world: the rigid bodies of Gymnasium's LunarLander, as Box2D 2.3 moves them.

In this order: what touches is found; forces change velocities; joints and contacts are solved in rounds, from
the impulses of the last step; bodies move; they are moved once more to where joints and ground allow; who has
been still for half a second falls asleep; who would go through the ground is stopped on it. Double precision,
where Box2D has single.
"""

from tacit.control.lander.bodies import (
    ASLEEP,
    BAUMGARTE,
    BODY_SIZE,
    INVERSE_INERTIA,
    INVERSE_MASS,
    MOST_ROTATION,
    MOST_TRANSLATION,
    NEAR,
    POSITION_ROUNDS,
    RESTED,
    SLEEP_SPEED,
    SLEEP_SPIN,
    SLEEP_STEPS,
    SLOP,
    START,
    STEP,
    Array,
)
from tacit.control.lander.broad_phase import update_pairs, update_proxies
from tacit.control.lander.contact_solver import init_contacts, solve_contact_positions
from tacit.control.lander.continuous import solve_toi
from tacit.control.lander.iterations import JOINTS, ORDER, solve_velocities
from tacit.control.lander.joints import init_joint, solve_joint_position, update_rotation
from tacit.runtime.jit import compiled


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
