"""Figures of runs from round to round, and of their results: one run, or several side by side.

Figures show what has left the sites already and read no records. What they know of a workload is the names of
its scores. Whether several runs were trained on the same records is not known here.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from tacit.errors import InvalidValue, require
from tacit.learning.record import Record
from tacit.privacy.policy import is_all_public
from tacit.privacy.statement import Statement
from tacit.reports.plots import ROUND, column, footnote, line, name_rows, tint_rows, write
from tacit.reports.plots.style import (
    BODY,
    GREY,
    GROUND,
    INCH,
    INK,
    LINE,
    PALETTE,
    RULE,
    Label,
    Picture,
    colour,
    dashes,
    ink,
    label_lines,
    levels,
    picture,
    round_axis,
    save_figure,
    shorten_label,
    tidy,
)
from tacit.reports.text import BROKEN, NAMES
from tacit.runtime.arrays import Array

if TYPE_CHECKING:
    import pandas as pd

PUBLIC = "public: the records are simulated or published"
HELD_OUT, TRAIN, TRAIN_ = "held out", "train", "train_"
OTHERS = ("sites", "epsilon", "seconds")
WORDS = {"alone": "each site alone", "pooled": "pooled"}
TOGETHER = "federated"
BETTER = {"max": "higher is better", "min": "lower is better"}
# Good direction of well-known scores.
WAYS = {"c_index": "max", "ibs": "min", "r2": "max", "ril2": "min"}
# Number of panels side by side, and letters that fit below each; height of a row, in inches, and the margin
# around the rows.
ACROSS, ACROSS_LETTERS, HIGH, AROUND = 3, 18, 0.33, 0.62
# Number of runs that a title lists one by one; of more it names the extremes.
TOLD = 3
# Letters of a run's name beside a number: a long name keeps its end, which differs from others.
UNNAMED, LETTERS, ENDING = "unnamed", 20, 12
BREAKS, CUT = "/-_. ", "\N{HORIZONTAL ELLIPSIS}"


class PlottableRun(Protocol):
    """Protocol of a run that can be plotted."""

    @property
    def history(self) -> "pd.DataFrame":
        """One row for each round."""
        ...

    @property
    def record(self) -> Record:
        """Return the record of the rounds."""
        ...

    @property
    def privacy(self) -> Statement:
        """Return the statement of the promise."""
        ...


@dataclass(frozen=True, eq=False)
class RunSnapshot:
    """A run in progress, or loaded: its record so far and its promise."""

    record: Record
    privacy: Statement

    @property
    def history(self) -> "pd.DataFrame":
        """One row for each round."""
        return history_of(self.record)


def history_of(record: Record) -> "pd.DataFrame":
    """Tabulate rounds: participants, scores, epsilon, seconds."""
    import pandas as pd

    rows = [
        {"round": entry.number, "sites": entry.sites, **entry.scores, "epsilon": entry.epsilon,
         "seconds": entry.seconds}
        for entry in record.rounds
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=None if rows else ["round"]).set_index("round")


def scores_of(names: Iterable[str]) -> list[str]:
    """Select the scores to draw.

    Not drawn are those of one world alone (`score@world`), those of training records (`train_score`), and the
    ends of intervals (`score_low`, `score_high`).
    """
    known = list(dict.fromkeys(names))
    ends = {f"{name}_{end}" for name in known for end in ("low", "high")}
    return [name for name in known if "@" not in name and name not in ends and not name.startswith(TRAIN_)]


def score_label(score: str) -> str:
    """The name of a score on an axis."""
    return shorten_label(NAMES.get(score, score)) or "score"


def format_score(value: float) -> str:
    """Format a score, without superfluous digits."""
    size = abs(value)
    if size >= 100:
        return f"{value:.1f}" if size < 1000 else f"{value:,.0f}"
    return f"{value:.3f}" if size >= 0.001 or size == 0 else f"{value:.1e}"


def privacy_line(statement: Statement) -> str:
    """The promise of a run in one line."""
    if statement.unit is None:
        return PUBLIC if is_all_public(statement.public) else f"bare: {'; '.join(statement.bare)}"
    spent = (
        f"released: epsilon {statement.epsilon:.4g} at delta {statement.delta:g} for any one {statement.unit}"
    )
    again = "; REHEARSAL: the noise repeats with the seed and gives no protection" * statement.rehearsal
    return spent + again + f"; unprotected: {'; '.join(statement.bare)}" * bool(statement.bare)


# Round by round


def training(
    run: "PlottableRun | pd.DataFrame",
    *,
    baselines: Mapping[str, Mapping[str, float]] | None = None,
    title: str | None = None,
    provenance: str | None = None,
    path: str | Path | None = None,
) -> Picture:
    """Draw scores, and epsilon if there is one, from round to round.

    Args:
        run: A run, a record and its promise as `RunSnapshot`, or a history: one row for each round, one
            column for each score. The score of training records, where it is known, has the same name after
            `train_`.
        baselines: Scores to compare with, by name and score; by default those of the run.
        title: The title; by default the last scores.
        provenance: Source of the scores; by default the statement of the run.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    history, record, statement = _parts(run)
    known = record.baselines if baselines is None and record is not None else baselines or {}
    spent = "epsilon" in history and bool(history["epsilon"].notna().any())
    scores = _scores(history)
    allowed = "with a score: a run has one if it may use held-out records"
    require(bool(scores) or spent, "history", list(map(str, history.columns)), allowed)
    source = provenance or ("" if statement is None else privacy_line(statement))
    kept = _chosen_round(history, record)
    note = f"{source}." * bool(source) + f" Dot: the model that was kept, of round {kept}." * bool(kept)
    height = 0.45 + 1.6 * len(scores) + 0.9 * spent
    figure = picture(height, title or _result_title(history, scores, record), note)
    shares = [2.0] * len(scores) + [1.0] * spent
    panels = figure.subplots(len(shares), 1, sharex=True, squeeze=False, height_ratios=shares)[:, 0]
    labels: dict[Axes, list[Label]] = {}
    for axes, score in zip(panels, scores, strict=False):
        # No longer than the panel is high.
        tidy(axes, "", shorten_label(score_label(score), 20))
        found = {
            WORDS.get(name, name): own[score] for name, own in known.items() if own.get(score) is not None
        }
        labels[axes] = levels(axes, found, format_score)
        if TRAIN_ + score in history:
            labels[axes].append(_course(axes, history, TRAIN_ + score, colour(1), TRAIN, linestyle="--"))
        labels[axes].append(_course(axes, history, score, colour(0), HELD_OUT, kept))
    if spent:
        labels[panels[-1]] = _price_panel(panels[-1], history, record)
    _round_axis(panels[-1], [history])
    label_lines(labels)
    return save_figure(figure, path)


def _parts(
    run: "PlottableRun | pd.DataFrame",
) -> "tuple[pd.DataFrame, Record | None, Statement | None]":
    """Return the history of a run, its record and its promise; of a history, itself alone."""
    import pandas as pd

    if isinstance(run, pd.DataFrame):
        return run, None, None
    try:
        return run.history, run.record, run.privacy
    except AttributeError as error:
        raise InvalidValue(
            f"run = {run!r} is not allowed: it must be a run, or its history as a DataFrame"
        ) from error


def _scores(history: "pd.DataFrame") -> list[str]:
    """Return the scores of a history that have a value in any round."""
    found = [name for name in scores_of(map(str, history.columns)) if name not in OTHERS]
    return [name for name in found if len(_series(history, name)[1])]


def _series(history: "pd.DataFrame", name: str) -> tuple[Array, Array]:
    """Return the rounds in which a number is known, and the number."""
    values = column(history, name)
    known = np.isfinite(values)
    return np.asarray(history.index, dtype=np.float64)[known], values[known]


def _chosen_round(history: "pd.DataFrame", record: Record | None) -> int:
    """Return the round that the model is of, if not of the last; else 0."""
    return record.chosen if record is not None and 0 < record.chosen < len(history) else 0


def _course(
    axes: Axes, history: "pd.DataFrame", score: str, shade: str, words: str, kept: int = 0, **look: Any
) -> Label:
    """Draw a number round by round, and a dot at the round that was kept."""
    rounds, values = _series(history, score)
    label = line(axes, rounds, values, shade, f"{words} {format_score(values[-1])}", **look)
    if kept in rounds:
        line(axes, [kept], values[rounds == kept], shade)
    return label


def _round_axis(axes: Axes, histories: "Iterable[pd.DataFrame]") -> None:
    """Name the rounds, from the first to the last."""
    rounds = np.concatenate([np.asarray(history.index, dtype=np.int64) for history in histories])
    round_axis(axes, int(rounds.min()), int(rounds.max()))
    axes.set_xlabel("Round", fontsize=BODY, color=INK)


def _result_title(history: "pd.DataFrame", scores: Sequence[str], record: Record | None) -> str:
    """Return a title with the scores after training."""
    last = {name: float(_series(history, name)[1][-1]) for name in scores}
    found = record.scores if record is not None and record.scores else last
    words = [f"{score_label(name)} {format_score(found.get(name, last[name]))}" for name in scores]
    words = words or [f"epsilon {_series(history, 'epsilon')[1][-1]:.3g} spent"]
    rounds = len(history)
    return f"After {rounds} round{'s' * (rounds != 1)}: {', '.join(words)}"


def _price_panel(axes: Axes, history: "pd.DataFrame", record: Record | None) -> list[Label]:
    """Draw the cumulative epsilon."""
    tidy(axes, "", "Epsilon")
    rounds, spent = _series(history, "epsilon")
    label = line(axes, rounds, spent, GREY, f"spent {spent[-1]:.3g}", drawstyle="steps-post")
    budget = record.rounds[-1].budget if record is not None and record.rounds else None
    labels = levels(axes, {} if budget is None else {"budget": budget}, "{:.3g}".format)
    axes.set_ylim(0, 1.1 * max(float(spent.max()), budget or 0.0))
    return [*labels, label]


def overlay(runs: Mapping[str, Record], *, provenance: str = "") -> Picture | None:
    """Draw the scores of several runs round by round, one panel for each score that all of them have.

    Args:
        runs: Records, by the names of the runs.
        provenance: Source of the scores.

    Returns:
        None if there is no such score.
    """
    names, histories = shorten_names(list(runs)), [history_of(record) for record in runs.values()]
    known = [_scores(history) for history in histories]
    scores = [name for name in dict.fromkeys(chain(*known)) if all(name in own for own in known)]
    if not scores:
        return None
    marks = [_chosen_round(*pair) for pair in zip(histories, runs.values(), strict=True)]
    dotted = any(
        kept in _series(history, name)[0]
        for name in scores
        for kept, history in zip(marks, histories, strict=True)
    )
    # A panel is as high as its labels below each other.
    height = 0.45 + max(1.7, (len(runs) + 1) * BODY * LINE / INCH) * len(scores)
    ends = [float(_series(history, scores[0])[1][-1]) for history in histories]
    note = footnote(provenance, "Dots: the models kept" * dotted)
    figure = picture(height, _overlay_title(scores[0], names, ends), note)
    panels = figure.subplots(len(scores), 1, sharex=True, squeeze=False)[:, 0].tolist()
    labels: dict[Axes, list[Label]] = {}
    for axes, score in zip(panels, scores, strict=True):
        tidy(axes, "", score_label(score))
        labels[axes] = [
            _course(axes, history, score, colour(place), name, kept, linestyle=dashes(place))
            for place, (name, history, kept) in enumerate(zip(names, histories, marks, strict=True))
        ]
    _round_axis(panels[-1], histories)
    label_lines(labels)
    return figure


def _overlay_title(score: str, names: Sequence[str], ends: Sequence[float]) -> str:
    """Return a title with the score of each run, or of the two that differ most."""
    if len(ends) <= TOLD:
        told = [f"{name} {format_score(end)}" for name, end in zip(names, ends, strict=True)]
        return f"{score_label(score)} at the end: {', '.join(told)}"
    order: list[int] = np.argsort(ends, kind="stable").tolist()
    told = [f"{format_score(ends[place])} ({names[place]})" for place in (order[0], order[-1])]
    return f"{score_label(score)} of {len(ends)} runs at the end: from {' to '.join(told)}"


def shorten_names(names: Sequence[str]) -> list[str]:
    """Shorten names to few letters: drop the common prefix of long ones, and keep their ends."""
    lines = [shorten_label(name, max(len(name), LETTERS)) or UNNAMED for name in names]
    long = [words for words in lines if len(words) > LETTERS]
    letters = list(zip(*long, strict=False))
    same = next((place for place, own in enumerate(letters) if len(set(own)) > 1), 0)
    begin = max((long[0].rfind(sign, 0, same) for sign in BREAKS), default=-1) + 1 if same else 0
    return [_cut(CUT + words[begin:] if begin and len(words) > LETTERS else words) for words in lines]


def _cut(words: str) -> str:
    """Leave out the middle of a name that is too long."""
    begin = words[: LETTERS - ENDING - 1].rstrip()
    return words if len(words) <= LETTERS else f"{begin}{CUT}{words[-ENDING:].lstrip()}"


# The result


@dataclass(frozen=True)
class Outcome:
    """Scores of one model: its name, its display name, scores and intervals."""

    name: str
    label: str
    scores: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float, float]]

    def score(self, name: str) -> float | None:
        """Return a score, or None if it cannot be drawn."""
        value = self.scores.get(name)
        return None if value is None or not math.isfinite(value) else float(value)


def results(result: Mapping[str, Any], *, title: str | None = None, provenance: str = "") -> Picture | None:
    """Draw each score of a run as dots with their intervals, beside those of the baselines.

    Args:
        result: `models`, each with `name`, `label`, `scores` and `intervals` by score; and where they are
            known `goal`, the score that counts and whether it is to be `max` or `min`, and `how` intervals
            were found.
        title: The title; by default the main score of every model.
        provenance: Source of the scores.

    Returns:
        None if there is no score.
    """
    rows = [_outcome(model) for model in result.get("models") or ()]
    scores = scores_of(name for row in rows for name in row.scores)
    scores = [name for name in scores if any(row.score(name) is not None for row in rows)]
    if not scores:
        return None
    goal, way = tuple(result.get("goal") or ("", ""))
    scores.sort(key=lambda name: name != goal)
    barred = any(name in row.intervals for row in rows for name in scores)
    how = str(result.get("how") or "intervals of the scores").removeprefix("Intervals: ")
    note = footnote(provenance, f"Bars: {how}" if barred else "")
    across = min(ACROSS, len(scores))
    down = -(-len(scores) // across)
    figure = picture(down * (AROUND + HIGH * len(rows)), title or _score_title(rows, scores[0]), note)
    panels = figure.subplots(down, across, squeeze=False).ravel().tolist()
    for place, (axes, score) in enumerate(zip(panels, scores, strict=False)):
        better = BETTER.get(str(way if score == goal else WAYS.get(score)), "")
        _result_panel(axes, rows, score, better, named=place % across == 0)
    for axes in panels[len(scores) :]:
        axes.set_visible(False)
    return figure


def _outcome(model: Mapping[str, Any]) -> Outcome:
    """Convert the plain data of a model into an `Outcome`."""
    name = str(model.get("name", ""))
    given = cast("Mapping[str, Sequence[float] | None]", model.get("intervals") or {})
    ends = {score: (float(pair[0]), float(pair[1])) for score, pair in given.items() if pair}
    return Outcome(
        name=name,
        label=shorten_label(str(model.get("label") or name)) or UNNAMED,
        scores=model.get("scores") or {},
        intervals={score: pair for score, pair in ends.items() if all(map(math.isfinite, pair))},
    )


def _score_title(rows: Sequence[Outcome], score: str) -> str:
    """Return a title with a score of the federated model and of the others."""
    found = [(row.label, row.score(score)) for row in rows]
    words = [f"{label} {format_score(value)}" for label, value in found if value is not None]
    return f"{score_label(score)}: {', '.join(words)}"


def _result_panel(axes: Axes, rows: Sequence[Outcome], score: str, better: str, *, named: bool) -> None:
    """Draw one score of all models, the first on top; panels further right share the names of the first."""
    tidy(axes, shorten_label(score_label(score), ACROSS_LETTERS) + f" ({better})" * bool(better), "")
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x", color=RULE, linewidth=0.5)
    for place, row in enumerate(rows):
        _dot(axes, row, score, place)
    name_rows(axes, [row.label for row in rows], above=0.75, below=0.5)
    tint_rows(axes, [PALETTE[0] if row.name == TOGETHER else INK for row in rows])
    if not named:
        axes.set_yticks([])
    # Numbers stand above their dots: at the ends they need room to either side.
    axes.margins(x=0.16)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=ROUND))


def _dot(axes: Axes, row: Outcome, score: str, place: int) -> None:
    """Draw one score in its row, or write that there is none."""
    shade, value = PALETTE[0] if row.name == TOGETHER else GREY, row.score(score)
    if value is None:
        write(axes, BROKEN if score in row.scores else "", (0.5, place), frame="row", color=GREY)
        return
    if score in row.intervals:
        line(axes, row.intervals[score], (place, place), shade, solid_capstyle="butt")
    if row.name == TOGETHER:
        axes.axvline(value, color=shade, linewidth=0.5, linestyle=":", zorder=0.9)
    line(axes, [value], [place], shade, markersize=5)
    write(axes, format_score(value), (value, place), (0, 4.5), va="bottom", color=ink(shade), bbox=GROUND)
