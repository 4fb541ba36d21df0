"""Contacts of the fast lander with the ground, found and solved as Box2D 2.3 does: an edge against a polygon.

What touches is a manifold: one or two points, and a normal that belongs either to the edge or to one side of
the body. The way of least penetration decides which, edges first, so that it does not flicker. Points have
names, by which their pushes are found again in the next step.

A body has a box with a margin that follows it only when it must, and a pair of a body and an edge begins and
ends with the overlap of boxes. Pairs are kept newest first: this is the order in which they are solved, and
in which a leg learns that it touches. As in Gymnasium, a leg that leaves one edge is off the ground, even
while it stands on the next.

They are solved in this order: friction first, bounded by the last push; then pushes, two points of a manifold
together, by going through the four cases of their complementarity problem. The ground stands still, so a
contact moves one body only.

Room of a pair (at CONTACT): 0, 1 normal, out of the ground; 2 points that are solved for; 3 friction; from 4
and 8, for each point: its arm x, y, its normal and tangential mass; 12-14 how points couple, 15-17 the
inverse; 18 whose normal: 0 the edge's, 1 the body's; 19, 20 that normal, 21, 22 a point of its plane, 23-26
the two points on the other one, where a body's coordinates turn with it; 27 impacts in this step.
"""

from tacit.control.lander.bodies import (
    AHEAD,
    ANGULAR_SLOP,
    BODY_SIZE,
    BOX,
    CONTACT,
    CONTACT_SIZE,
    CORNERS,
    FACING,
    FAT,
    FRICTION,
    ILL_CONDITIONED,
    INVERSE_INERTIA,
    INVERSE_MASS,
    MARGIN,
    MOST_CORRECTION,
    NEAR,
    NORMALS,
    PAIR,
    PAIR_SIZE,
    PAIRS,
    POINTS,
    PUSH,
    PUSH_SIZE,
    RADIUS,
    ROTATION,
    SHAPE,
    SIDES,
    SLOP,
    SPACING,
    TOUCHED,
    ZERO,
    Array,
    turn,
)
from tacit.runtime.jit import compiled

# From where to where.
Line = tuple[float, float, float, float]
# A point of a manifold on its way: x, y, and its name: two numbers of corners, and whether the second is one.
Point = tuple[float, float, float, float, float]
# Two shapes farther apart than this do not touch: each has a skin.
SKIN = 2 * RADIUS
FAR = 1e30


# Margin of an edge's box: its skin and its margin.
REACH = RADIUS + MARGIN


@compiled
def collide(s: Array, ground: Array, body: int, slot: int) -> int:
    """Recompute the manifold of one pair at the body's present position; return its number of points."""
    at, pair = body * BODY_SIZE, PAIRS * body + slot
    edge = int(s[PAIR + pair * PAIR_SIZE])
    x1, y1, x2, y2 = edge * SPACING, ground[edge], (edge + 1) * SPACING, ground[edge + 1]
    transform_shape(s, body, s[at], s[at + 1], s[ROTATION + 2 * body], s[ROTATION + 2 * body + 1])
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
    nx, ny = (y2 - y1) / length, (x1 - x2) / length
    front = nx * (s[at] - x1) + ny * (s[at + 1] - y1) >= 0
    if not front:
        x1, y1, x2, y2, nx, ny = x2, y2, x1, y1, -nx, -ny
    gap = FAR
    for i in range(SIDES[body]):
        gap = min(gap, nx * (s[CORNERS + 2 * i] - x1) + ny * (s[CORNERS + 2 * i + 1] - y1))
    if gap > SKIN:
        return 0
    side, side_gap = _side_gap(s, SIDES[body], (x1, y1, x2, y2), nx, ny)
    if side_gap > SKIN:
        return 0
    if side_gap > 0.98 * gap + 0.001:
        return _collide_side(s, body, pair, side, (x1, y1, x2, y2), front)
    return _collide_edge(s, body, pair, (x1, y1, x2, y2), nx, ny, front)


@compiled
def transform_shape(s: Array, body: int, x: float, y: float, cos: float, sin: float) -> None:
    """Transform the vertices and normals of a body to world coordinates."""
    for i in range(SIDES[body]):
        px, py = SHAPE[body, i, 0], SHAPE[body, i, 1]
        s[CORNERS + 2 * i], s[CORNERS + 2 * i + 1] = x + cos * px - sin * py, y + sin * px + cos * py
        px, py = FACING[body, i, 0], FACING[body, i, 1]
        s[NORMALS + 2 * i], s[NORMALS + 2 * i + 1] = cos * px - sin * py, sin * px + cos * py


@compiled
def _side_gap(s: Array, sides: int, edge: Line, nx: float, ny: float) -> tuple[int, float]:
    # The side that is farthest from the edge, among those that face it, and its distance.
    best, gap = 0, -FAR
    for i in range(sides):
        mx, my = -s[NORMALS + 2 * i], -s[NORMALS + 2 * i + 1]
        cx, cy = s[CORNERS + 2 * i], s[CORNERS + 2 * i + 1]
        here = min(mx * (cx - edge[0]) + my * (cy - edge[1]), mx * (cx - edge[2]) + my * (cy - edge[3]))
        if here > SKIN:
            return i, here
        if here > gap and (mx + nx) * nx + (my + ny) * ny >= -ANGULAR_SLOP:
            best, gap = i, here
    return best, gap


@compiled
def _clip(p: Point, q: Point, line: Line, nx: float, ny: float, corner: float) -> tuple[bool, Point, Point]:
    # Clip a segment at the beginning of a line with this normal; return whether anything is left, and its
    # ends.
    offset = ny * line[0] - nx * line[1]
    a, b = ny * p[0] - nx * p[1] - offset, ny * q[0] - nx * q[1] - offset
    if a <= 0 and b <= 0:
        return True, p, q
    if a * b >= 0:
        return False, p, q
    share = a / (a - b)
    between = (p[0] + share * (q[0] - p[0]), p[1] + share * (q[1] - p[1]), corner, p[3], 0.0)
    return True, (p if a <= 0 else q), between


@compiled
def _collide_edge(s: Array, body: int, pair: int, edge: Line, nx: float, ny: float, front: bool) -> int:
    # The corners of the side that faces the edge most squarely.
    first, least = 0, FAR
    for i in range(SIDES[body]):
        facing = nx * s[NORMALS + 2 * i] + ny * s[NORMALS + 2 * i + 1]
        if facing < least:
            first, least = i, facing
    second = first + 1 if first + 1 < SIDES[body] else 0
    p = (s[CORNERS + 2 * first], s[CORNERS + 2 * first + 1], 0.0, float(first), 1.0)
    q = (s[CORNERS + 2 * second], s[CORNERS + 2 * second + 1], 0.0, float(second), 1.0)
    ok, p, q = _clip(p, q, edge, nx, ny, 0.0 if front else 1.0)
    back = (edge[2], edge[3], edge[0], edge[1])
    ok_too, p, q = _clip(p, q, back, -nx, -ny, 1.0 if front else 0.0)
    if not (ok and ok_too):
        return 0
    room, at, count = CONTACT + pair * CONTACT_SIZE, body * BODY_SIZE, ZERO
    cos, sin = s[ROTATION + 2 * body], s[ROTATION + 2 * body + 1]
    s[room + 18], s[room + 19], s[room + 20], s[room + 21], s[room + 22] = 0.0, nx, ny, edge[0], edge[1]
    names = (0.0, 0.0)
    for point in (p, q):
        if nx * (point[0] - edge[0]) + ny * (point[1] - edge[1]) <= SKIN:
            dx, dy = point[0] - s[at], point[1] - s[at + 1]
            s[room + 23 + 2 * count], s[room + 24 + 2 * count] = cos * dx + sin * dy, cos * dy - sin * dx
            names = (names[1], point[2] + 8 * point[3] + 64 * point[4])
            count += 1
    return _name(s, pair, count, names)


@compiled
def _collide_side(s: Array, body: int, pair: int, side: int, edge: Line, front: bool) -> int:
    # The ends of the edge, where they lie before one side of the body.
    second = side + 1 if side + 1 < SIDES[body] else 0
    x, y, z, w = CORNERS + 2 * side, CORNERS + 2 * side + 1, CORNERS + 2 * second, CORNERS + 2 * second + 1
    nx, ny = s[NORMALS + 2 * side], s[NORMALS + 2 * side + 1]
    p, q = (edge[0], edge[1], 0.0, float(side), 0.0), (edge[2], edge[3], 0.0, float(side), 0.0)
    if not front:
        p, q = q, p
    ok, p, q = _clip(p, q, (s[x], s[y], s[z], s[w]), nx, ny, float(side))
    ok_too, p, q = _clip(p, q, (s[z], s[w], s[x], s[y]), -nx, -ny, float(second))
    if not (ok and ok_too):
        return 0
    room, count = CONTACT + pair * CONTACT_SIZE, ZERO
    s[room + 18], s[room + 19], s[room + 20] = 1.0, FACING[body, side, 0], FACING[body, side, 1]
    s[room + 21], s[room + 22] = SHAPE[body, side, 0], SHAPE[body, side, 1]
    names = (0.0, 0.0)
    for point in (p, q):
        if nx * (point[0] - s[x]) + ny * (point[1] - s[y]) <= SKIN:
            s[room + 23 + 2 * count], s[room + 24 + 2 * count] = point[0], point[1]
            # The two numbers change places, as in Box2D.
            names = (names[1], point[3] + 8 * point[2] + 64)
            count += 1
    return _name(s, pair, count, names)


@compiled
def _name(s: Array, pair: int, count: int, names: tuple[float, float]) -> int:
    # Points that were there before keep their pushes.
    named, push = PAIR + pair * PAIR_SIZE + 2, PUSH + pair * PUSH_SIZE
    before = int(s[named - 1])
    old = (s[named], s[named + 1])
    pushes = (s[push], s[push + 1], s[push + 2], s[push + 3])
    for i in range(count):
        # The last name is the last point's.
        name = names[2 - count + i]
        s[named + i], s[push + i], s[push + 2 + i] = name, 0.0, 0.0
        for j in range(before - 1, -1, -1):
            if old[j] == name:
                s[push + i], s[push + 2 + i] = pushes[j], pushes[2 + j]
    return count


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
    # The normal out of the ground, the separation of the skins along it, and the clipped point; all in the
    # world.
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
    # Two points together, or the first alone where the second is redundant.
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
    """Push a body out of the ground by a share of the penetration; return the separation before."""
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


@compiled
def update_pairs(s: Array, ground: Array, body: int) -> int:
    """Remove separated pairs of a body and update the others; return the number of touching ones."""
    for slot in range(int(s[NEAR + body]) - 1, -1, -1):
        if not _overlaps(s, ground, body, int(s[PAIR + (PAIRS * body + slot) * PAIR_SIZE])):
            s[NEAR + body] -= 1
            for later in range(slot, int(s[NEAR + body])):
                _shift(s, PAIRS * body + later + 1, PAIRS * body + later)
    touching = 0
    for slot in range(int(s[NEAR + body])):
        touching += touches(s, ground, body, slot)
    return touching


@compiled
def touches(s: Array, ground: Array, body: int, slot: int) -> bool:
    """Update one pair, and note when its contact begins or ends; a crash stays one."""
    count = PAIR + (PAIRS * body + slot) * PAIR_SIZE + 1
    before, now = s[count], collide(s, ground, body, slot)
    s[count] = now
    if now > 0 and before == 0:
        s[TOUCHED + body] = 1.0
    if now == 0 and before > 0 and body > 0:
        s[TOUCHED + body] = 0.0
    return now > 0


@compiled
def _overlaps(s: Array, ground: Array, body: int, edge: int) -> bool:
    box = FAT + 4 * body
    if s[box] > (edge + 1) * SPACING + REACH or s[box + 2] < edge * SPACING - REACH:
        return False
    low, high = min(ground[edge], ground[edge + 1]), max(ground[edge], ground[edge + 1])
    return s[box + 1] <= high + REACH and s[box + 3] >= low - REACH


@compiled
def _shift(s: Array, origin: int, target: int) -> None:
    for i in range(PAIR_SIZE):
        s[PAIR + target * PAIR_SIZE + i] = s[PAIR + origin * PAIR_SIZE + i]
    for i in range(PUSH_SIZE):
        s[PUSH + target * PUSH_SIZE + i] = s[PUSH + origin * PUSH_SIZE + i]
    for i in range(CONTACT_SIZE):
        s[CONTACT + target * CONTACT_SIZE + i] = s[CONTACT + origin * CONTACT_SIZE + i]


@compiled
def update_aabb(s: Array, body: int) -> None:
    """Update the axis-aligned bounding box of a body."""
    x, y = s[body * BODY_SIZE], s[body * BODY_SIZE + 1]
    cos, sin = s[ROTATION + 2 * body], s[ROTATION + 2 * body + 1]
    left, bottom, right, top = x, y, x, y
    for i in range(SIDES[body]):
        px = x + cos * SHAPE[body, i, 0] - sin * SHAPE[body, i, 1]
        py = y + sin * SHAPE[body, i, 0] + cos * SHAPE[body, i, 1]
        left, bottom, right, top = min(left, px), min(bottom, py), max(right, px), max(top, py)
    box = BOX + 4 * body
    s[box], s[box + 1], s[box + 2], s[box + 3] = left - RADIUS, bottom - RADIUS, right + RADIUS, top + RADIUS


@compiled
def update_proxies(s: Array, ground: Array, body: int, dx: float, dy: float) -> None:
    """Move the bounding boxes of a body to its present position; add pairs with near edges."""
    box, fat = BOX + 4 * body, FAT + 4 * body
    left, bottom, right, top = s[box], s[box + 1], s[box + 2], s[box + 3]
    update_aabb(s, body)
    left, bottom = min(left, s[box]), min(bottom, s[box + 1])
    right, top = max(right, s[box + 2]), max(top, s[box + 3])
    if s[fat] <= left and s[fat + 1] <= bottom and right <= s[fat + 2] and top <= s[fat + 3]:
        return
    s[fat], s[fat + 2] = left - MARGIN + AHEAD * min(dx, 0.0), right + MARGIN + AHEAD * max(dx, 0.0)
    s[fat + 1], s[fat + 3] = bottom - MARGIN + AHEAD * min(dy, 0.0), top + MARGIN + AHEAD * max(dy, 0.0)
    first = max(int((s[fat] - REACH) // SPACING), 0)
    last = min(int((s[fat + 2] + REACH) // SPACING), POINTS - 2)
    for edge in range(first, last + 1):
        if _overlaps(s, ground, body, edge):
            _pair(s, body, edge)


@compiled
def _pair(s: Array, body: int, edge: int) -> None:
    # The newest comes first. A body is too small to be near more edges than there is room for.
    near, first = int(s[NEAR + body]), PAIRS * body
    for slot in range(near):
        if s[PAIR + (first + slot) * PAIR_SIZE] == edge:
            return
    if near == PAIRS:
        return
    for slot in range(near, 0, -1):
        _shift(s, first + slot - 1, first + slot)
    s[PAIR + first * PAIR_SIZE], s[PAIR + first * PAIR_SIZE + 1] = edge, 0.0
    s[CONTACT + first * CONTACT_SIZE + 27] = 0.0
    s[NEAR + body] = near + 1
