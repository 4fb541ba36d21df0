"""Where a body of the fast lander touches the ground, as Box2D 2.3 finds it: an edge against a polygon.

What touches is a manifold: one or two points, and a normal that belongs either to the edge or to one side of
the body. The way of least penetration decides which, edges first, so that it does not flicker. Points have
names, by which their pushes are found again in the next step.

Room of a pair (at CONTACT): 0, 1 normal, out of the ground; 2 points that are solved for; 3 friction; from 4
and 8, for each point: its arm x, y, its normal and tangential mass; 12-14 how points couple, 15-17 the
inverse; 18 whose normal: 0 the edge's, 1 the body's; 19, 20 that normal, 21, 22 a point of its plane, 23-26
the two points on the other one, where a body's coordinates turn with it; 27 impacts in this step.
"""

from tacit.control.lander.bodies import (
    ANGULAR_SLOP,
    BODY_SIZE,
    CONTACT,
    CONTACT_SIZE,
    CORNERS,
    FACING,
    NORMALS,
    PAIR,
    PAIR_SIZE,
    PAIRS,
    PUSH,
    PUSH_SIZE,
    RADIUS,
    ROTATION,
    SHAPE,
    SIDES,
    SPACING,
    ZERO,
    Array,
)
from tacit.runtime.jit import compiled

# From where to where.
Line = tuple[float, float, float, float]
# A point of a manifold on its way: x, y, and its name: two numbers of corners, and whether the second is one.
Point = tuple[float, float, float, float, float]
# Apart by more than this, two shapes do not touch: each has a skin.
SKIN = 2 * RADIUS
FAR = 1e30


@compiled
def collide(s: Array, ground: Array, body: int, slot: int) -> int:
    """Find the manifold of one pair anew, in the body's present place; give back how many points it has."""
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
    """The corners and normals of a body, in the world, where it is like this."""
    for i in range(SIDES[body]):
        px, py = SHAPE[body, i, 0], SHAPE[body, i, 1]
        s[CORNERS + 2 * i], s[CORNERS + 2 * i + 1] = x + cos * px - sin * py, y + sin * px + cos * py
        px, py = FACING[body, i, 0], FACING[body, i, 1]
        s[NORMALS + 2 * i], s[NORMALS + 2 * i + 1] = cos * px - sin * py, sin * px + cos * py


@compiled
def _side_gap(s: Array, sides: int, edge: Line, nx: float, ny: float) -> tuple[int, float]:
    # The side that is farthest from the edge, among those that face it, and how far that is.
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
    # What is left of a segment before the beginning of a line with this normal; whether that is a segment.
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
