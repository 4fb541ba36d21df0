"""Which bodies of the fast lander are near which edges of the ground, and what happens when they touch.

As in Box2D 2.3, a body has a box with a margin that follows it only when it must, and a pair begins and ends
with the overlap of boxes. Pairs are kept newest first: this is the order in which they are solved, and in
which a leg learns that it touches. As in Gymnasium, a leg that leaves one edge is off the ground, even while
it stands on the next.
"""

from tacit.control.lander.bodies import (
    AHEAD,
    BODY_SIZE,
    BOX,
    CONTACT,
    CONTACT_SIZE,
    FAT,
    MARGIN,
    NEAR,
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
    SPACING,
    TOUCHED,
    Array,
)
from tacit.control.lander.contacts import collide
from tacit.runtime.jit import compiled

# How far the box of an edge reaches beyond it: its skin and its margin.
REACH = RADIUS + MARGIN


@compiled
def update_pairs(s: Array, ground: Array, body: int) -> int:
    """End the pairs of a body that are far apart, find anew how the others touch; give back how many do."""
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
    """Find anew how one pair touches, and note when that begins or ends; a crash stays one."""
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
    """The box of a body in its present place."""
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
    """Let the boxes of a body follow it to its present place; begin pairs with edges that it came near to."""
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
