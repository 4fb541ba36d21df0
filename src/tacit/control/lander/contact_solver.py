"""What the ground does to a body of the fast lander that touches it: pushes, friction and moving out.

As in Box2D 2.3: friction first, bounded by the last push; then pushes, two points of a manifold together, by
going through the four cases of their complementarity problem. The ground stands still, so a contact moves one
body only. `lander_contacts` says where things are kept.
"""

from tacit.control.lander.bodies import (
    BODY_SIZE,
    CONTACT,
    CONTACT_SIZE,
    FRICTION,
    ILL_CONDITIONED,
    INVERSE_INERTIA,
    INVERSE_MASS,
    MOST_CORRECTION,
    NEAR,
    PAIR,
    PAIR_SIZE,
    PAIRS,
    PUSH,
    PUSH_SIZE,
    RADIUS,
    ROTATION,
    SLOP,
    Array,
)
from tacit.control.lander.joints import turn
from tacit.runtime.jit import compiled


@compiled
def init_contacts(s: Array, body: int) -> None:
    """Lay out the contacts of a body for this step, and start from their last pushes."""
    m, i, at = INVERSE_MASS[body], INVERSE_INERTIA[body], body * BODY_SIZE
    for slot in range(int(s[NEAR + body])):
        pair = PAIRS * body + slot
        count, room, push = (
            int(s[PAIR + pair * PAIR_SIZE + 1]),
            CONTACT + pair * CONTACT_SIZE,
            PUSH + pair * PUSH_SIZE,
        )
        s[room + 2], s[room + 3] = count, FRICTION[body]
        for p in range(count):
            nx, ny, gap, x, y = _gap(s, body, room, p)
            # Half way between the skins; the clipped point is the body's if the normal is the edge's.
            half = gap / 2 + RADIUS if s[room + 18] > 0 else -gap / 2 - RADIUS
            x, y, arm = x + half * nx - s[at], y + half * ny - s[at + 1], room + 4 + 4 * p
            along, across = x * ny - y * nx, x * nx + y * ny
            s[room], s[room + 1], s[arm], s[arm + 1] = nx, ny, x, y
            s[arm + 2], s[arm + 3] = 1 / (m + i * along * along), 1 / (m + i * across * across)
        if count == 2:
            _couple(s, room, m, i)
        for p in range(int(s[room + 2])):
            _push(s, body, room, room + 4 + 4 * p, s[push + p], s[push + 2 + p])


@compiled
def _gap(s: Array, body: int, room: int, point: int) -> tuple[float, float, float, float, float]:
    # The normal out of the ground, how far skins are apart along it, and the clipped point; all in the world.
    x, y = s[body * BODY_SIZE], s[body * BODY_SIZE + 1]
    cos, sin = s[ROTATION + 2 * body], s[ROTATION + 2 * body + 1]
    nx, ny, ax, ay = s[room + 19], s[room + 20], s[room + 21], s[room + 22]
    px, py = s[room + 23 + 2 * point], s[room + 24 + 2 * point]
    if s[room + 18] == 0:
        px, py = x + cos * px - sin * py, y + sin * px + cos * py
        return nx, ny, nx * (px - ax) + ny * (py - ay) - 2 * RADIUS, px, py
    nx, ny = cos * nx - sin * ny, sin * nx + cos * ny
    ax, ay = x + cos * ax - sin * ay, y + sin * ax + cos * ay
    return -nx, -ny, nx * (px - ax) + ny * (py - ay) - 2 * RADIUS, px, py


@compiled
def _couple(s: Array, room: int, m: float, i: float) -> None:
    # Two points together, or the first alone where the second would tell nothing new.
    a = s[room + 4] * s[room + 1] - s[room + 5] * s[room]
    b = s[room + 8] * s[room + 1] - s[room + 9] * s[room]
    k11, k12, k22 = m + i * a * a, m + i * a * b, m + i * b * b
    determinant = k11 * k22 - k12 * k12
    if k11 * k11 < ILL_CONDITIONED * determinant:
        s[room + 12], s[room + 13], s[room + 14] = k11, k12, k22
        s[room + 15], s[room + 16], s[room + 17] = k22 / determinant, -k12 / determinant, k11 / determinant
    else:
        s[room + 2] = 1.0


@compiled
def _push(s: Array, body: int, room: int, arm: int, normal: float, tangent: float) -> None:
    v = body * BODY_SIZE + 3
    px = normal * s[room] + tangent * s[room + 1]
    py = normal * s[room + 1] - tangent * s[room]
    s[v] += INVERSE_MASS[body] * px
    s[v + 1] += INVERSE_MASS[body] * py
    s[v + 2] += INVERSE_INERTIA[body] * (s[arm] * py - s[arm + 1] * px)


@compiled
def solve_contacts(s: Array, body: int) -> None:
    """One round of the contacts of a body: of each the friction, then the pushes."""
    v = body * BODY_SIZE + 3
    for slot in range(int(s[NEAR + body])):
        pair = PAIRS * body + slot
        if s[PAIR + pair * PAIR_SIZE + 1] == 0:
            continue
        room, push = CONTACT + pair * CONTACT_SIZE, PUSH + pair * PUSH_SIZE
        nx, ny, count = s[room], s[room + 1], int(s[room + 2])
        for p in range(count):
            arm, across = room + 4 + 4 * p, push + 2 + p
            sliding = ny * (s[v] - s[v + 2] * s[arm + 1]) - nx * (s[v + 1] + s[v + 2] * s[arm])
            most = s[room + 3] * s[push + p]
            gained = min(max(s[across] - s[arm + 3] * sliding, -most), most) - s[across]
            s[across] += gained
            _push(s, body, room, arm, 0.0, gained)
        if count == 1:
            opening = nx * (s[v] - s[v + 2] * s[room + 5]) + ny * (s[v + 1] + s[v + 2] * s[room + 4])
            gained = max(s[push] - s[room + 6] * opening, 0.0) - s[push]
            s[push] += gained
            _push(s, body, room, room + 4, gained, 0.0)
        else:
            _push_two(s, body, room, push)


@compiled
def _push_two(s: Array, body: int, room: int, push: int) -> None:
    v = body * BODY_SIZE + 3
    a, b, nx, ny = s[push], s[push + 1], s[room], s[room + 1]
    k11, k12, k22 = s[room + 12], s[room + 13], s[room + 14]
    first = nx * (s[v] - s[v + 2] * s[room + 5]) + ny * (s[v + 1] + s[v + 2] * s[room + 4])
    second = nx * (s[v] - s[v + 2] * s[room + 9]) + ny * (s[v + 1] + s[v + 2] * s[room + 8])
    first, second = first - k11 * a - k12 * b, second - k12 * a - k22 * b
    # Both push; else only one does and the other moves off; else none does.
    x = -(s[room + 15] * first + s[room + 16] * second)
    y = -(s[room + 16] * first + s[room + 17] * second)
    if x < 0 or y < 0:
        x, y = -s[room + 6] * first, 0.0
        if x < 0 or k12 * x + second < 0:
            x, y = 0.0, -s[room + 10] * second
            if y < 0 or k12 * y + first < 0:
                x, y = 0.0, 0.0
                if first < 0 or second < 0:
                    return
    s[push], s[push + 1] = x, y
    _push(s, body, room, room + 4, x - a, 0.0)
    _push(s, body, room, room + 8, y - b, 0.0)


@compiled
def solve_contact_positions(s: Array, body: int, share: float) -> float:
    """Move a body by a share of how deep it is in the ground; give back how far apart the two were before."""
    m, i, at, least = INVERSE_MASS[body], INVERSE_INERTIA[body], body * BODY_SIZE, 0.0
    for slot in range(int(s[NEAR + body])):
        pair = PAIRS * body + slot
        for p in range(int(s[PAIR + pair * PAIR_SIZE + 1])):
            nx, ny, gap, x, y = _gap(s, body, CONTACT + pair * CONTACT_SIZE, p)
            least = min(least, gap)
            back = min(max(share * (gap + SLOP), -MOST_CORRECTION), 0.0)
            along = (x - s[at]) * ny - (y - s[at + 1]) * nx
            impulse = -back / (m + i * along * along)
            s[at] += m * impulse * nx
            s[at + 1] += m * impulse * ny
            turn(s, body, i * along * impulse)
    return least
