"""Boosting as a walk: at each step the predictor that explains most is moved part of the way to its best fit.

A walk sees moments and nothing else, so it costs no privacy. All predictors are tried at once, in coordinates
in which each one's equation is solved number by number, and splits walk side by side, each on its own path.
Predictors of fewer coordinates than others are filled up with coordinates that are constantly 0.

Once it is known which predictor was moved at each step, a fit is linear in the response: its degrees of
freedom are the trace of that map, followed step by step among the predictors that were moved.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tacit.functional.boosting.moments import DebiasedMoments, Moments
from tacit.functional.solver import prepare
from tacit.runtime.arrays import Array

Places = NDArray[np.int64]
# Of a predictor's mean variance: keeps an equation solvable where coordinates are constant or repeat others.
TINY = 1e-10
# A walk that changes what it explains by less than this part of all there is has arrived.
ARRIVED = 1e-13


@dataclass(frozen=True, kw_only=True)
class Penalty:
    """Penalty on roughness along either argument or both, and the floor of predictor variances.

    Args:
        s: Along the predictors' argument: 1 lets mean roughness cost what its mean variance is worth.
        t: Along that of the response.
        st: Along both.
        floor: Variances of predictors are raised to this multiple of what noise alone would show.
    """

    s: float = 0.0
    t: float = 0.0
    st: float = 0.0
    floor: float = 1.0


@dataclass(frozen=True, eq=False)
class BlockLayout:
    """Columns of each predictor, as one table with a row for each.

    Args:
        columns: (predictors, size), filled up with `width`, one past the last column.
        roughness: That of each coordinate (predictors, size), 0 where filled up.
        width: The number of columns.
    """

    columns: Places
    roughness: Array
    width: int

    @classmethod
    def from_moments(cls, evidence: DebiasedMoments) -> "BlockLayout":
        """The layout of predictors side by side."""
        width = evidence.whole.xx.shape[0]
        sizes = [block.stop - block.start for block in evidence.blocks]
        columns, rough = np.full((len(sizes), max(sizes)), width), np.zeros((len(sizes), max(sizes)))
        for row, (block, size) in enumerate(zip(evidence.blocks, sizes, strict=True)):
            columns[row, :size] = np.arange(block.start, block.stop)
            rough[row, :size] = evidence.roughness[row]
        return cls(columns, rough, width)

    @cached_property
    def plain(self) -> bool:
        """True if all predictors have the same number of coordinates and stand in order."""
        return np.array_equal(self.columns.ravel(), np.arange(self.width))

    def squares(self, xx: Array) -> Array:
        """Moments of predictors by predictor, twice (predictors, size, predictors, size)."""
        shape = (*self.columns.shape, *self.columns.shape)
        if self.plain:
            return xx.reshape(shape)
        flat = self.columns.ravel()
        return np.pad(xx, (0, 1))[np.ix_(flat, flat)].reshape(shape)

    def rows(self, xy: Array) -> Array:
        """Moments with the response by predictor (predictors, size, m)."""
        if self.plain:
            return xy.reshape(*self.columns.shape, -1)
        return np.pad(xy, ((0, 1), (0, 0)))[self.columns]

    def flat(self, coefficients: Array) -> Array:
        """Coefficients by predictor (predictors, size, m) as those of all columns (columns, m)."""
        return coefficients[self.columns < self.width]


@dataclass(frozen=True, eq=False)
class Design:
    """Moments in each predictor's own coordinates, for every split and view: the input of a boosting path.

    The first view is for learning, the last for judging; a single one is both.

    Args:
        cross: Moments of all predictors with each one (splits, views, predictors, predictors * size, size).
        slopes: Moments with the response (splits, views, predictors, size, m).
        spread: Of the response, coordinate by coordinate (splits, views, m).
        basis: From own coordinates to those of the frame (splits, predictors, size, size).
        shrink: Shrinkage of the least-squares fit by the penalties (splits, predictors, size, m).
    """

    cross: Array
    slopes: Array
    spread: Array
    basis: Array
    shrink: Array

    @cached_property
    def own(self) -> Array:
        """Each predictor's moments with itself (splits, views, predictors, size, size)."""
        splits, views, count, size = self.slopes.shape[:4]
        blocks = self.cross.reshape(splits, views, count, count, size, size)
        return np.ascontiguousarray(np.moveaxis(np.diagonal(blocks, axis1=2, axis2=3), -1, 2))

    def restrict_to(self, rows: Sequence[int]) -> "Design":
        """The same with some of the predictors."""
        kept = list(rows)
        splits, views, count, size = self.slopes.shape[:4]
        blocks = self.cross.reshape(splits, views, count, count, size, size)[:, :, kept][:, :, :, kept]
        cross = blocks.reshape(splits, views, len(kept), len(kept) * size, size)
        slopes, basis, shrink = self.slopes[:, :, kept], self.basis[:, kept], self.shrink[:, kept]
        return Design(cross, slopes, self.spread, basis, shrink)


def design(evidence: DebiasedMoments, splits: Sequence[tuple[Moments, ...]], penalty: Penalty) -> Design:
    """Transform moments to coordinates in which a penalty's equations are diagonal.

    Args:
        evidence: About the predictors that may be moved.
        splits: The views of each; those of the evidence, or others of the same columns.
        penalty: The penalty of the fit.
    """
    layout = BlockLayout.from_moments(evidence)
    parts = [_views(layout, evidence.roughness_y, views, penalty) for views in splits]
    return Design(*(np.stack(arrays) for arrays in zip(*parts, strict=True)))


def _views(
    layout: BlockLayout, rough_y: Array, views: tuple[Moments, ...], penalty: Penalty
) -> tuple[Array, ...]:
    count, size = layout.columns.shape
    squares = np.stack([layout.squares(view.xx) for view in views])
    own = np.moveaxis(np.diagonal(squares[0], axis1=0, axis2=2), -1, 0)
    basis, shrink = _prepare_basis(layout, own, rough_y, penalty)
    # One predictor's basis at a time: (l, a, j, b) as (j, l a, b) into own coordinates of j, then of l.
    turned = squares.transpose(0, 3, 1, 2, 4).reshape(len(views), count, count * size, size) @ basis
    cross = basis.swapaxes(-1, -2) @ turned.reshape(len(views), count, count, size, size)
    slopes = np.stack([basis.swapaxes(-1, -2) @ layout.rows(view.xy) for view in views])
    spread = np.stack([np.diagonal(view.yy) for view in views])
    return cross.reshape(len(views), count, count * size, size), slopes, spread, basis, shrink


def _prepare_basis(layout: BlockLayout, own: Array, rough_y: Array, penalty: Penalty) -> tuple[Array, Array]:
    """The basis and shrinkage of every predictor, from its own moments (predictors, size, size)."""
    there = layout.columns < layout.width
    sizes = there.sum(axis=1)
    variance = np.trace(own, axis1=1, axis2=2) / sizes
    per_s = _over(variance, layout.roughness.sum(axis=1) / sizes)
    per_t, per_both = (_over(one, np.full_like(one, rough_y.mean())) for one in (variance, per_s))
    ridge = np.where(variance > 0, TINY * variance, 1.0)
    # Coordinates that fill up get variance 1 and no slope: they stay 0.
    filled = own + np.where(there, ridge[:, None], 1.0)[..., None] * np.eye(own.shape[-1])
    weights = (penalty.s * per_s, penalty.t * per_t, penalty.st * per_both)
    ready = prepare(filled, layout.roughness, rough_y, *weights)
    return ready.basis, ready.shrink


def _over(one: Array, other: Array) -> Array:
    return np.divide(one, other, out=np.zeros_like(one), where=other > 0)


@dataclass(frozen=True, eq=False)
class BoostingPath:
    """Boosting path: the steps of every split, and the judged loss after each.

    Args:
        chosen: The predictor moved at each step (steps, splits).
        moves: The step, in own coordinates (steps, splits, size, m).
        slopes: The judged slope before each move and after it, added up (steps, splits, size, m).
        judged: The loss that is left after 0, 1, ... steps, by coordinate (steps + 1, splits, m).
        ground: The moments that the path was computed on.
    """

    chosen: Places
    moves: Array
    slopes: Array
    judged: Array
    ground: Design

    def position(self, steps: int) -> Array:
        """Return the coefficients after some steps, in own coordinates (splits, predictors, size, m)."""
        place = np.zeros_like(self.ground.slopes[:, 0])
        for chosen, move in zip(self.chosen[:steps], self.moves[:steps], strict=True):
            place[np.arange(len(place)), chosen] += move
        return place

    def coefficients(self, steps: int) -> Array:
        """Return the coefficients after some steps, in the frame's basis (splits, predictors, size, m)."""
        return self.ground.basis @ self.position(steps)


def boost_path(
    ground: Design, *, steps: int, rate: float, weights: Array, patience: int | None = None
) -> BoostingPath:
    """Compute a boosting path: each step moves the predictor with the largest gain toward its best fit.

    Going all the way D to the best fit of one predictor changes the loss by -2 <D, g> + <D, G D>, with g the
    slope of the loss and G the predictor's own moments. Noise was taken off both, also that of the other
    predictors on their way into g: left in, it favors what was moved before, and the wrong one is chosen.

    Args:
        ground: The moments.
        steps: At most how many.
        rate: The learning rate.
        weights: Of the splits, when their judgements are averaged (splits,).
        patience: Steps without a better mean validation loss before stopping; None to take all.
    """
    state = _State(ground)
    steps_taken: list[tuple[Places, Array, Array]] = []
    judged = [ground.spread[:, -1]]
    best, since = float(weights @ judged[0].sum(axis=1)), 0
    for _ in range(steps):
        places, move, slopes, gain = state.step(rate)
        steps_taken.append((places, move, slopes))
        # The slope is linear on the way, so its mean over both ends is what a move is worth.
        judged.append(judged[-1] - (move * slopes).sum(axis=1))
        now = float(weights @ judged[-1].sum(axis=1))
        best, since = (now, 0) if now < best else (best, since + 1)
        if since == patience or gain >= -ARRIVED * state.scale:
            break
    return _make_path(ground, steps_taken, np.array(judged))


def _make_path(ground: Design, taken: list[tuple[Places, Array, Array]], judged: Array) -> BoostingPath:
    splits, _, _, size, width = ground.slopes.shape
    if not taken:
        none = np.zeros((0, splits, size, width))
        return BoostingPath(np.zeros((0, splits), dtype=np.int64), none, none, judged, ground)
    chosen, moves, slopes = (np.array(parts) for parts in zip(*taken, strict=True))
    return BoostingPath(chosen, moves, slopes, judged, ground)


class _State:
    """Current position of the paths of all splits, in own coordinates."""

    def __init__(self, ground: Design) -> None:
        self.ground = ground
        self.slopes = ground.slopes.copy()
        self.here = np.zeros_like(ground.slopes[:, 0])
        # The part explained by a predictor's own coefficients: cached, since a step changes one predictor.
        self.explained = np.zeros_like(self.here)
        self.rows = np.arange(len(self.here))
        self.scale = float(np.abs(ground.spread[:, 0]).sum(axis=1).max())

    def step(self, rate: float) -> tuple[Places, Array, Array, float]:
        """Take a step: who moved, how far, judged slopes before and after, and the best gain of any split."""
        ground, rows, slopes = self.ground, self.rows, self.slopes[:, 0]
        ahead = ground.shrink * (slopes + self.explained) - self.here
        curved = ground.own[:, 0] @ ahead
        gains = np.einsum("spqm,spqm->sp", ahead, curved - 2 * slopes)
        places = gains.argmin(axis=1)
        move = rate * ahead[rows, places]
        self.here[rows, places] += move
        self.explained[rows, places] += rate * curved[rows, places]
        before = self.slopes[rows, -1, places]
        cross = ground.cross[rows, :, places]
        self.slopes -= (cross @ move[:, None]).reshape(self.slopes.shape)
        return places, move, before + self.slopes[rows, -1, places], float(gains.min())


def degrees_of_freedom(ground: Design, chosen: Places, rate: float) -> Array:
    """Return the degrees of freedom after 0, 1, ... steps (steps + 1, predictors, m); they add up over both.

    Args:
        ground: Of one split.
        chosen: The predictor moved at each step (steps,).
        rate: The learning rate.
    """
    active, places = np.unique(chosen, return_inverse=True)
    count, width = ground.slopes.shape[2], ground.slopes.shape[-1]
    used = np.zeros((len(chosen) + 1, count, width))
    if not len(active):
        return used
    kept = ground.restrict_to(active.tolist())
    size = kept.slopes.shape[3]
    raw = kept.cross[0, 0].reshape(len(active), len(active) * size, size)
    levels, level = np.unique(kept.shrink[0].reshape(-1, width), axis=1, return_inverse=True)
    shrink = levels.reshape(len(active), size, -1, 1)
    units = np.eye(len(active) * size).reshape(len(active), size, 1, -1)
    start = np.broadcast_to(units, (*units.shape[:2], levels.shape[1], units.shape[-1]))
    for number, move in enumerate(_replay(kept, places, rate, start, shrink)):
        place = places[number]
        used[number + 1] = used[number]
        used[number + 1, active[place]] += np.einsum("qki,iq->k", move, raw[place])[level.ravel()]
    return used


def _replay(ground: Design, places: Places, rate: float, start: Array, shrink: Array) -> Iterator[Array]:
    """Replay the moves of a fixed sequence of predictors for other right-hand sides.

    Args:
        ground: Of one split.
        places: The predictor moved at each step.
        rate: The learning rate.
        start: The right-hand sides (predictors, size, m, how many).
        shrink: Shrinkage of the least-squares fit by the penalties (predictors, size, m, 1).
    """
    slopes = start.reshape(*start.shape[:2], -1).copy()
    here, explained = np.zeros_like(slopes), np.zeros_like(slopes)
    shrunk = np.broadcast_to(shrink, start.shape).reshape(slopes.shape)
    cross, own = ground.cross[0, 0], ground.own[0, 0]
    for place in places:
        move = rate * (shrunk[place] * (slopes[place] + explained[place]) - here[place])
        here[place] += move
        explained[place] += own[place] @ move
        slopes -= (cross[place] @ move).reshape(slopes.shape)
        yield move.reshape(start.shape[1:])
