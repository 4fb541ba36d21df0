"""Bodies of the fast lander that would pass through the ground within a step: stopped on it, as in Box2D 2.3.

The time of an impact is found by conservative advancement: the features that are nearest give a direction in
which to measure, a root search gives the time at which the gap in it closes, and so on until nothing else is
nearer. The body is put there, moved out, and goes on for the rest of the step with what the ground leaves of
its velocity. Its joint does not take part, it pulls in the next step.
"""

import math

from tacit.control.lander.bodies import (
    BODY_SIZE,
    BOX,
    CONTACT,
    CONTACT_SIZE,
    CORNERS,
    IMPACT_BAUMGARTE,
    IMPACT_ROUNDS,
    IMPACTS,
    NEAR,
    NORMALS,
    PAIR,
    PAIR_SIZE,
    PAIRS,
    PUSH,
    PUSH_SIZE,
    ROUNDS,
    SETTLED,
    SIDES,
    SLOP,
    SPACING,
    START,
    STEP,
    VELOCITY_ROUNDS,
    Array,
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
