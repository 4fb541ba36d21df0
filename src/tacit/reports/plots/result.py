"""What came of a run, drawn: how good the model of all is, beside what each alone and all in one place reach.

It shows scores that were found elsewhere, with the intervals that were found for them, and judges nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import blended_transform_factory

from tacit.reports.plots.style import (
    BODY,
    GREY,
    GROUND,
    INK,
    PALETTE,
    RULE,
    Picture,
    ink,
    picture,
    shorten_label,
    tidy,
)
from tacit.reports.plots.training import format_score, score_label, scores_of
from tacit.reports.text import BROKEN

TOGETHER = "federated"
BETTER = {"max": "higher is better", "min": "lower is better"}
# Which way is good, of scores that everybody knows.
WAYS = {"c_index": "max", "ibs": "min", "r2": "max", "ril2": "min"}
# So many panels stand side by side, below which so many letters fit; a row of one is so high, in inches, and
# so much is around the rows.
ACROSS, LETTERS, HIGH, AROUND = 3, 18, 0.33, 0.62


@dataclass(frozen=True)
class Outcome:
    """How good one model is.

    Args:
        name: Which way of training it is of, as a word for programs.
        label: The same for people.
        scores: What is known; None or NaN where the model was ruined.
        intervals: The ends of what chance could make of a score, where that is known.
    """

    name: str
    label: str
    scores: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float, float]]

    def score(self, name: str) -> float | None:
        """A score that can be drawn."""
        value = self.scores.get(name)
        return None if value is None or not math.isfinite(value) else float(value)


def results(result: Mapping[str, Any], *, title: str | None = None, provenance: str = "") -> Picture | None:
    """Draw each score of a run as dots with their intervals, beside those of the models it is compared with.

    Args:
        result: `models`, each with `name`, `label`, `scores` and `intervals` by score; and where they are
            known `goal`, the score that counts and whether it is to be `max` or `min`, and `how` intervals
            were found.
        title: What is seen; if not said, the score that counts of every model.
        provenance: Where the scores come from.

    Returns:
        None if there is no score.
    """
    rows = [_outcome(model) for model in result.get("models") or ()]
    scores = [
        name for name in scores_of(name for row in rows for name in row.scores) if _has_score(rows, name)
    ]
    if not scores:
        return None
    goal, way = tuple(result.get("goal") or ("", ""))
    scores.sort(key=lambda name: name != goal)
    barred = any(name in row.intervals for row in rows for name in scores)
    note = [provenance] + [str(result.get("how") or "intervals of the scores")] * barred
    note = [
        ("", "Bars: ")[place] + words.removeprefix("Intervals: ").rstrip(".") + "."
        for place, words in enumerate(note)
        if words
    ]
    across = min(ACROSS, len(scores))
    down = -(-len(scores) // across)
    height = down * (AROUND + HIGH * len(rows))
    figure = picture(height, title or _score_title(rows, scores[0]), " ".join(note))
    panels = figure.subplots(down, across, squeeze=False).ravel().tolist()
    for axes, score in zip(panels, scores, strict=False):
        good = way if score == goal else WAYS.get(score)
        _panel(axes, rows, score, BETTER.get(str(good), ""))
        _name_rows(axes, rows if axes in panels[::across] else [])
    for axes in panels[len(scores) :]:
        axes.set_visible(False)
    return figure


def _outcome(model: Mapping[str, Any]) -> Outcome:
    """A model as it is drawn."""
    name = str(model.get("name", ""))
    given = cast("Mapping[str, Sequence[float] | None]", model.get("intervals") or {})
    ends = {score: (float(pair[0]), float(pair[1])) for score, pair in given.items() if pair}
    return Outcome(
        name=name,
        label=shorten_label(str(model.get("label") or name)) or "unnamed",
        scores=model.get("scores") or {},
        intervals={score: pair for score, pair in ends.items() if all(map(math.isfinite, pair))},
    )


def _has_score(rows: Sequence[Outcome], score: str) -> bool:
    return any(row.score(score) is not None for row in rows)


def _score_title(rows: Sequence[Outcome], score: str) -> str:
    """What a score comes to, together and otherwise."""
    found = [("together" if row.name == TOGETHER else row.label, row.score(score)) for row in rows]
    words = [f"{label} {format_score(value)}" for label, value in found if value is not None]
    return f"{score_label(score)}: {', '.join(words)}"


def _panel(axes: Axes, rows: Sequence[Outcome], score: str, better: str) -> None:
    """Draw one score of all models, the first on top."""
    tidy(axes, shorten_label(score_label(score), LETTERS) + f" ({better})" * bool(better), "")
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x", color=RULE, linewidth=0.5)
    axes.spines["left"].set_visible(False)
    for place, row in enumerate(rows):
        _dot(axes, row, score, len(rows) - 1 - place)
    axes.set_ylim(-0.5, len(rows) - 0.25)
    # Numbers stand above their dots: at the ends they need room to either side.
    axes.margins(x=0.16)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))


def _dot(axes: Axes, row: Outcome, score: str, height: int) -> None:
    """Draw one score at its height, or say that there is none."""
    shade, value = PALETTE[0] if row.name == TOGETHER else GREY, row.score(score)
    if value is None:
        words = BROKEN if score in row.scores else ""
        middle = blended_transform_factory(axes.transAxes, axes.transData)
        axes.text(0.5, height, words, fontsize=BODY, color=GREY, ha="center", va="center", transform=middle)
        return
    if score in row.intervals:
        axes.plot(row.intervals[score], (height, height), color=shade, linewidth=1.4, solid_capstyle="butt")
    if row.name == TOGETHER:
        axes.axvline(value, color=shade, linewidth=0.5, linestyle=":", zorder=0.9)
    axes.plot([value], [height], color=shade, marker="o", markersize=5)
    axes.annotate(
        format_score(value), (value, height), xytext=(0, 4.5), textcoords="offset points",
        ha="center", va="bottom",
        fontsize=BODY, color=ink(shade), bbox=GROUND, parse_math=False,
    )  # fmt: skip


def _name_rows(axes: Axes, rows: Sequence[Outcome]) -> None:
    """Write what each row is of to its left; panels further right share the names of the first."""
    axes.set_yticks(range(len(rows)), [row.label for row in rows][::-1], parse_math=False)
    axes.tick_params(axis="y", length=0)
    for text, row in zip(axes.get_yticklabels(), rows[::-1], strict=True):
        text.set_color(ink(PALETTE[0]) if row.name == TOGETHER else INK)
