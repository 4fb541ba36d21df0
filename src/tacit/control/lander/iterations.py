"""Rounds of solving the fast lander's joints and contacts, fewer than Box2D's 180 with the same result.

A round goes through joints and contacts one by one. A lander in flight with its legs at their limits changes
no more after a few rounds. Otherwise often not even 180 are enough, and what is left undone then is part of
the world: so the result of the last one is wanted, not the limit. While the same constraints hold, rounds
are linear, and soon three slow modes are left at most. Then each change follows from the three before it,
d(k+1) = p d(k) + q d(k-1) + r d(k-2), and rounds can be summed without taking them. The sum is believed if
one more round, taken at the end, comes out as it foretells.
"""

from tacit.control.lander.bodies import (
    JOINT,
    JOINT_SIZE,
    PUSH,
    ROUNDS,
    SETTLED,
    STATE,
    VELOCITY_ROUNDS,
    Array,
)
from tacit.control.lander.contact_solver import solve_contacts
from tacit.control.lander.joints import MOST_MOTOR, finish_joint, solve_joint
from tacit.runtime.jit import compiled

# Islands are walked from the body that was made last.
ORDER, JOINTS = (2, 0, 1), (1, 0)
# How often a leap is tried, and how many rounds are worth one.
EVERY, WORTH = 6, 12
# How exactly the last change must follow from those before it, and the round at the end from all.
EXACT, FORETOLD = 1e-11, 1e-9
# A square of a length that is nothing but rounding.
NOTHING = 1e-24
SAVED = ROUNDS + 4 * STATE
CHANGES = ROUNDS + 5 * STATE


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
    """Each joint once, and then each contact."""
    for joint in JOINTS:
        solve_joint(s, joint)
    if touching:
        for body in ORDER:
            solve_contacts(s, body)


@compiled
def _change(s: Array, last: int) -> float:
    # How much all velocities have changed; places stand still here. What is not a number stays that.
    total = 0.0
    for k in range(JOINT):
        total += abs(s[k] - s[last + k])
    return total


@compiled
def _extrapolate(s: Array, done: int, rounds: int, touching: bool) -> int:
    # Take so many rounds at once, and one to see whether that was right; how many were taken, or none.
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
        # Where the next round should lead, in place of the oldest state.
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
    # How the last change of velocities follows from the three before it; what does not is left at CHANGES.
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
    # Take off one change what is along another; how much of the other that was.
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
    # Add the changes of so many rounds, each a, b, c times the last three; a, b, c of one more.
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
