"""Several runs in one figure: how each went on, and what each score has cost.

Runs are compared by what their records say. Whether they were trained on the same records is not known here,
and has to be said by whoever puts them side by side.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from tacit.learning.record import Record
from tacit.reports.plots.privacy_utility import COST, mark
from tacit.reports.plots.style import (
    BODY,
    GROUND,
    INCH,
    LINE,
    Label,
    Picture,
    colour,
    dashes,
    ink,
    label_lines,
    levels,
    picture,
    round_axis,
    shorten_label,
    spread,
    tidy,
    width,
)
from tacit.reports.plots.training import format_score, score_label, scores_of

Array = NDArray[np.float64]

UNNAMED = "unnamed"
# So many runs are told one by one in a title; more are told by the ends.
TOLD = 3
# Letters of a run's name beside a number: of a long name the end is kept, which tells it from others.
LETTERS, ENDING = 20, 12
BREAKS, CUT = "/-_. ", "\N{HORIZONTAL ELLIPSIS}"
# Points between a dot and its name.
BESIDE = 6.0


@dataclass(frozen=True, eq=False)
class Line:
    """A score of a run, round by round.

    Args:
        name: What the run is called, in short.
        rounds: Those in which the score is known.
        values: The score.
        kept: The round of which the model is, if not of the last.
    """

    name: str
    rounds: Array
    values: Array
    kept: int | None

    @property
    def last(self) -> float:
        """What the score came to."""
        return float(self.values[-1])

    @property
    def words(self) -> str:
        """Its name and what it came to."""
        return f"{self.name} {format_score(self.last)}"


@dataclass(frozen=True)
class Point:
    """A run as a dot.

    Args:
        name: What it is called, in short.
        epsilon: What it has cost; infinite if nobody said so.
        score: How good it is.
        interval: The ends of what chance could make of the score, where they are known.
    """

    name: str
    epsilon: float
    score: float
    interval: tuple[float, float] | None

    @property
    def words(self) -> str:
        """Its name and its score."""
        return f"{self.name} {format_score(self.score)}"


def overlay(runs: Mapping[str, Record], *, provenance: str = "") -> Picture | None:
    """Draw the scores of several runs round by round, one panel for each score that all of them have.

    Args:
        runs: What happened, by the names of the runs.
        provenance: Where the scores come from.

    Returns:
        None if there is no such score.
    """
    names = dict(zip(runs, _brief(list(runs)), strict=True))
    seen = (name for record in runs.values() for entry in record.rounds for name in entry.scores)
    every = {
        score: [_line(names[name], record, score) for name, record in runs.items()]
        for score in scores_of(seen)
    }
    lines = {score: found for score, found in every.items() if all(len(line.values) for line in found)}
    if not lines:
        return None
    kept = any(line.kept is not None for found in lines.values() for line in found)
    note = [f"{provenance.rstrip('.')}."] * bool(provenance) + ["Dots: the models that were kept."] * kept
    # A panel is as high as its labels below each other.
    high = max(1.7, (len(runs) + 1) * BODY * LINE / INCH)
    figure = picture(0.45 + high * len(lines), _score_title(lines), " ".join(note))
    panels = figure.subplots(len(lines), 1, sharex=True, squeeze=False)[:, 0].tolist()
    labels: dict[Axes, list[Label]] = {}
    for axes, (score, found) in zip(panels, lines.items(), strict=True):
        tidy(axes, "Round" if axes is panels[-1] else "", score_label(score))
        labels[axes] = [_draw(axes, line, place) for place, line in enumerate(found)]
    rounds = np.concatenate([line.rounds for found in lines.values() for line in found])
    round_axis(panels[-1], int(rounds.min()), int(rounds.max()))
    label_lines(labels)
    return figure


def frontier(rows: Sequence[Mapping[str, Any]], score: str) -> Picture | None:
    """Draw a score of several runs against the epsilon that each has cost.

    Args:
        rows: One for each run: its `name`, its `epsilon`, None where there is none, its `score`, and where
            they are known `low` and `high`, the ends of an interval. Runs without a score are left out.
        score: What the score is.

    Returns:
        None if fewer than two runs have both.
    """
    names = _brief([str(row.get("name", "")) for row in rows])
    found = [_point(name, row) for name, row in zip(names, rows, strict=True)]
    points = [point for point in found if point is not None]
    priced = sorted((point for point in points if point.epsilon < math.inf), key=lambda one: one.epsilon)
    if len(priced) < 2:
        return None
    free = [point for point in points if point.epsilon == math.inf]
    note = ["Bars: intervals of the scores."] * any(point.interval is not None for point in priced)
    note += ["Lines across: runs without an epsilon."] * bool(free)
    figure = picture(3.2, _tradeoff_title(priced, score), " ".join(note))
    axes = figure.add_subplot()
    tidy(axes, COST, score_label(score))
    axes.set_xscale("log")
    labels = [label for point in free for label in levels(axes, {point.name: point.score}, format_score)]
    for place, point in enumerate(priced):
        if point.interval is not None:
            axes.vlines(point.epsilon, *point.interval, color=colour(place), linewidth=1.2)
        # Above all words: those of others may come to lie there.
        axes.plot([point.epsilon], [point.score], color=colour(place), marker="o", markersize=5, zorder=4)
    mark(axes, np.unique([point.epsilon for point in priced]))
    ends = [end for point in points for end in (point.interval or (point.score,))]
    edge = 0.1 * max(max(ends) - min(ends), 0.01 * abs(max(ends)), 1e-6)
    axes.set_ylim(min(ends) - edge, max(ends) + edge)
    label_lines({axes: labels}, gap=8.0)
    _name(axes, priced)
    return figure


def _line(name: str, record: Record, score: str) -> Line:
    """The rounds of a run in which a score is known, and the score."""
    found = [(entry.number, entry.scores[score]) for entry in record.rounds if score in entry.scores]
    finite = [(number, value) for number, value in found if math.isfinite(value)]
    rounds = np.array([number for number, _ in finite], dtype=np.float64)
    kept = record.chosen if 0 < record.chosen < len(record.rounds) and record.chosen in rounds else None
    return Line(name, rounds, np.array([value for _, value in finite], dtype=np.float64), kept)


def _brief(names: Sequence[str]) -> list[str]:
    """Names in few letters: long ones without what they all begin with, and with their ends."""
    lines = [shorten_label(name, max(len(name), LETTERS)) or UNNAMED for name in names]
    long = [line for line in lines if len(line) > LETTERS]
    columns = list(zip(*long, strict=False))
    same = next((place for place, letters in enumerate(columns) if len(set(letters)) > 1), 0)
    begin = max((long[0].rfind(sign, 0, same) for sign in BREAKS), default=-1) + 1 if same else 0
    return [_cut(CUT + line[begin:] if begin and len(line) > LETTERS else line) for line in lines]


def _cut(line: str) -> str:
    """A line without its middle, if it is too long."""
    head = line[: LETTERS - ENDING - 1].rstrip()
    return line if len(line) <= LETTERS else f"{head}{CUT}{line[-ENDING:].lstrip()}"


def _score_title(lines: Mapping[str, Sequence[Line]]) -> str:
    """What the first score comes to in each run, or in the two that differ most."""
    score, found = next(iter(lines.items()))
    if len(found) <= TOLD:
        return f"{score_label(score)} in the end: {', '.join(line.words for line in found)}"
    order = sorted(found, key=lambda line: line.last)
    ends = [f"{format_score(line.last)} ({line.name})" for line in (order[0], order[-1])]
    return f"{score_label(score)} of {len(found)} runs in the end: from {' to '.join(ends)}"


def _draw(axes: Axes, line: Line, place: int) -> Label:
    """Draw one run in one panel."""
    shade = colour(place)
    alone = "o" if len(line.rounds) == 1 else ""
    axes.plot(
        line.rounds, line.values, color=shade, linestyle=dashes(place), linewidth=1.3, marker=alone,
        markersize=4,
    )  # fmt: skip
    if line.kept is not None:
        axes.plot([line.kept], line.values[line.rounds == line.kept], color=shade, marker="o", markersize=4)
    return Label(line.last, line.words, shade)


def _point(name: str, row: Mapping[str, Any]) -> Point | None:
    """A run as a dot, if it has a score that can be drawn."""
    score, low, high = (_finite(row.get(key)) for key in ("score", "low", "high"))
    price = math.inf if row.get("epsilon") is None else float(row["epsilon"])
    if score is None or not price > 0:
        return None
    return Point(name, price, score, None if low is None or high is None else (low, high))


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _tradeoff_title(priced: Sequence[Point], score: str) -> str:
    """What the cheapest and the dearest run come to."""
    first, last = priced[0], priced[-1]
    if first.epsilon == last.epsilon:
        values = [point.score for point in priced]
        ends = f"from {format_score(min(values))} to {format_score(max(values))}"
        return f"{score_label(score)} {ends} at epsilon {first.epsilon:.3g}"
    ends = [f"{format_score(point.score)} at epsilon {point.epsilon:.3g}" for point in (first, last)]
    return f"{score_label(score)}: {', '.join(ends)}"


def _name(axes: Axes, points: Sequence[Point]) -> None:
    """Write the names of dots beside them, apart from one another."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    layout = figure.get_layout_engine()
    assert layout is not None
    layout.execute(figure)
    size = INCH / figure.dpi
    left, low, right, high = (edge * size for edge in axes.get_window_extent().extents)
    spots = axes.transData.transform([(point.epsilon, point.score) for point in points]) * size
    wide = np.array([width(figure, point.words, BODY) + 2 * BESIDE for point in points])
    before = _sides(spots, wide, (left, right))
    starts = np.where(before, spots[:, 0] - wide, spots[:, 0])
    for group in _crowds(starts, starts + wide):
        order = sorted(group, key=lambda place: spots[place, 1])
        heights = spots[order, 1]
        shifts = spread(heights, BODY * LINE, low, high) - heights
        for place, shift in zip(order, shifts.tolist(), strict=True):
            _write(axes, points[place], place, (-BESIDE if before[place] else BESIDE, shift))


def _sides(spots: Array, wide: Array, ends: tuple[float, float]) -> NDArray[np.bool_]:
    """Which names stand to the left of their dots: where the axes end, or other dots are, to the right."""
    across, up = spots.T
    apart = np.abs(up[:, None] - up) < BODY * LINE
    steps = across - across[:, None]
    after = (apart & (steps > 0) & (steps < wide[:, None])).sum(axis=1)
    ahead = (apart & (steps < 0) & (-steps < wide[:, None])).sum(axis=1)
    beyond, room = across + wide > ends[1], across - wide > ends[0]
    return room & (beyond | (ahead < after))


def _crowds(starts: Array, ends: Array) -> list[list[int]]:
    """Names that could be on one another, since they share a part of the axis."""
    crowds: list[list[int]] = []
    reach = -math.inf
    for place in np.argsort(starts, kind="stable").tolist():
        if starts[place] >= reach:
            crowds.append([])
        crowds[-1].append(place)
        reach = max(reach, float(ends[place]))
    return crowds


def _write(axes: Axes, point: Point, place: int, aside: tuple[float, float]) -> None:
    """Write one name, so far from its dot."""
    words = axes.annotate(
        point.words, (point.epsilon, point.score), xytext=aside, textcoords="offset points",
        va="center", ha="left" if aside[0] > 0 else "right", fontsize=BODY, color=ink(colour(place)),
        parse_math=False, bbox=GROUND,
    )  # fmt: skip
    # It is inside already, and is not to move what it was placed by.
    words.set_in_layout(False)
