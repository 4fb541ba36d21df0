"""Figures of any run: how training went on, and what a score costs.

They show what has left the sites already and read no records. What they know of a workload is the names of
its scores.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from tacit.errors import InvalidValue, require
from tacit.learning.record import Record
from tacit.privacy.provenance import is_all_public
from tacit.privacy.statement import Statement
from tacit.reports.plots.privacy_utility import privacy_utility as privacy_utility
from tacit.reports.plots.style import (
    BODY,
    GREY,
    INK,
    Label,
    Picture,
    colour,
    label_lines,
    levels,
    picture,
    round_axis,
    save_figure,
    shorten_label,
    tidy,
)
from tacit.reports.text import NAMES

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

PUBLIC = "public: the records are simulated or published"
HELD_OUT, TRAIN, TRAIN_ = "held out", "train", "train_"
OTHERS = ("sites", "epsilon", "seconds")
WORDS = {"alone": "each site alone", "pooled": "pooled"}


class PlottableRun(Protocol):
    """What is drawn of a run."""

    @property
    def history(self) -> "pd.DataFrame":
        """One row for each round."""
        ...

    @property
    def record(self) -> Record:
        """What happened."""
        ...

    @property
    def privacy(self) -> Statement:
        """What was promised."""
        ...


@dataclass(frozen=True, eq=False)
class RunSnapshot:
    """What there is to draw of a run that nobody has called over yet.

    Args:
        record: What has happened so far.
        privacy: What was promised.
    """

    record: Record
    privacy: Statement

    @property
    def history(self) -> "pd.DataFrame":
        """One row for each round."""
        return history_of(self.record)


def history_of(record: Record) -> "pd.DataFrame":
    """One row for each round: who took part, scores, epsilon, seconds."""
    import pandas as pd

    rows = [
        {
            "round": entry.number,
            "sites": entry.sites,
            **entry.scores,
            "epsilon": entry.epsilon,
            "seconds": entry.seconds,
        }
        for entry in record.rounds
    ]
    return pd.DataFrame(rows, columns=None if rows else ["round"]).set_index("round")


def scores_of(names: Iterable[str]) -> list[str]:
    """The scores that are drawn, of all there are.

    Not drawn are those of one world alone (`score@world`), those of training records (`train_score`), and the
    ends of intervals (`score_low`, `score_high`).
    """
    known = list(dict.fromkeys(names))
    ends = {f"{name}_{end}" for name in known for end in ("low", "high")}
    return [name for name in known if "@" not in name and name not in ends and not name.startswith(TRAIN_)]


def score_label(score: str) -> str:
    """What a score is called on an axis."""
    return shorten_label(NAMES.get(score, score)) or "score"


def format_score(value: float) -> str:
    """A score in words, without digits that say nothing."""
    size = abs(value)
    if size >= 100:
        return f"{value:.1f}" if size < 1000 else f"{value:,.0f}"
    return f"{value:.3f}" if size >= 0.001 or size == 0 else f"{value:.1e}"


def training(
    run: "PlottableRun | pd.DataFrame",
    *,
    baselines: Mapping[str, Mapping[str, float]] | None = None,
    title: str | None = None,
    provenance: str | None = None,
    path: str | Path | None = None,
) -> Picture:
    """Draw how scores, and epsilon if there is one, go on from round to round.

    Args:
        run: A run, a record and its promise as `RunSnapshot`, or a history: one row for each round, one
            column for each score. The score of training records, where it is known, has the same name after
            `train_`.
        baselines: Scores to compare with, by name and score; those of the run if not said.
        title: What is seen; if not said, the last scores.
        provenance: Where the scores come from; the statement of the run if not said.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    history = _history(run)
    plain_history = run is history
    record: Record | None = None if plain_history else getattr(run, "record", None)
    statement: Statement | None = None if plain_history else getattr(run, "privacy", None)
    known = record.baselines if baselines is None and record is not None else baselines or {}
    spent = "epsilon" in history and bool(history["epsilon"].notna().any())
    scores = _scores(history, spent)
    source = provenance or ("" if statement is None else privacy_line(statement))
    note = f"{source}." * bool(source) + _chosen_round_note(history, record)
    figure = picture(
        0.45 + 1.6 * len(scores) + 0.9 * spent, title or _result_title(history, scores, record), note
    )
    shares = [2.0] * len(scores) + [1.0] * spent
    panels = figure.subplots(len(shares), 1, sharex=True, squeeze=False, height_ratios=shares)[:, 0]
    labels = [
        _score_panel(axes, history, score, {name: found.get(score) for name, found in known.items()}, record)
        for axes, score in zip(panels, scores, strict=False)
    ]
    if spent:
        labels.append(_price_panel(panels[-1], history, record))
    _round_axis(panels[-1], history)
    label_lines(dict(zip(panels, labels, strict=True)))
    return save_figure(figure, path)


def _history(run: "PlottableRun | pd.DataFrame") -> "pd.DataFrame":
    """The history of a run, or what was given as one."""
    import pandas as pd

    found = run if isinstance(run, pd.DataFrame) else getattr(run, "history", None)
    if not isinstance(found, pd.DataFrame):
        raise InvalidValue(f"run = {run!r} is not allowed: it must be a run, or its history as a DataFrame")
    return found


def _scores(history: "pd.DataFrame", spent: bool) -> list[str]:
    """The scores that a history has; there may be none where it says what was spent."""
    names = [str(name) for name in history.columns]
    found = [name for name in scores_of(names) if name not in OTHERS]
    found = [name for name in found if len(_series(history, name)[1])]
    allowed = "with a score: runs have one where held-out records may be looked at"
    require(bool(found) or spent, "history", names, allowed)
    return found


def _series(history: "pd.DataFrame", name: str) -> tuple[Array, Array]:
    """The rounds in which a number is known, and the number."""
    values = np.asarray(history[name], dtype=np.float64)
    known = np.isfinite(values)
    return np.asarray(history.index, dtype=np.float64)[known], values[known]


def _round_axis(axes: Axes, history: "pd.DataFrame") -> None:
    """Name the rounds, from the first to the last."""
    rounds = np.asarray(history.index, dtype=np.int64)
    round_axis(axes, int(rounds.min()), int(rounds.max()))
    axes.set_xlabel("Round", fontsize=BODY, color=INK)


def _chosen_round_note(history: "pd.DataFrame", record: Record | None) -> str:
    """Which round the model is of, if not of the last."""
    if record is None or not 0 < record.chosen < len(history):
        return ""
    return f" Dot: the model that was kept, of round {record.chosen}."


def privacy_line(statement: Statement) -> str:
    """The promise of a run in one line."""
    if statement.unit is None:
        return PUBLIC if is_all_public(statement.public) else f"bare: {'; '.join(statement.bare)}"
    spent = (
        f"released: epsilon {statement.epsilon:.4g} at delta {statement.delta:g} for any one {statement.unit}"
    )
    again = "; REHEARSAL: the noise repeats with the seed and protects nobody" * statement.rehearsal
    return spent + again + f"; bare: {'; '.join(statement.bare)}" * bool(statement.bare)


def _result_title(history: "pd.DataFrame", scores: Sequence[str], record: Record | None) -> str:
    """What training came to."""
    last = {name: float(_series(history, name)[1][-1]) for name in scores}
    found = record.scores if record is not None and record.scores else last
    words = [f"{score_label(name)} {format_score(found.get(name, last[name]))}" for name in scores]
    words = words or [f"epsilon {_series(history, 'epsilon')[1][-1]:.3g} spent"]
    rounds = len(history)
    return f"After {rounds} round{'s' * (rounds != 1)}: {', '.join(words)}"


def _score_panel(
    axes: Axes,
    history: "pd.DataFrame",
    score: str,
    baselines: Mapping[str, float | None],
    record: Record | None,
) -> list[Label]:
    """Draw one score round by round, and lines to compare it with."""
    # No longer than the panel is high.
    tidy(axes, "", shorten_label(score_label(score), 20))
    known = {WORDS.get(name, name): value for name, value in baselines.items() if value is not None}
    labels = levels(axes, known, format_score)
    for place, name in ((1, TRAIN_ + score), (0, score)):
        if name in history:
            rounds, values = _series(history, name)
            alone = "o" if len(rounds) == 1 else ""
            axes.plot(rounds, values, color=colour(place), linestyle=("-", "--")[place], marker=alone)
            words = f"{(HELD_OUT, TRAIN)[place]} {format_score(values[-1])}"
            labels.append(Label(float(values[-1]), words, colour(place)))
    if _chosen_round_note(history, record) and record is not None:
        rounds, values = _series(history, score)
        axes.plot([record.chosen], values[rounds == record.chosen], color=colour(0), marker="o", markersize=4)
    return labels


def _price_panel(axes: Axes, history: "pd.DataFrame", record: Record | None) -> list[Label]:
    """Draw what everything has cost so far."""
    tidy(axes, "", "Epsilon")
    rounds, spent = _series(history, "epsilon")
    axes.plot(
        rounds,
        spent,
        color=GREY,
        linewidth=1.5,
        drawstyle="steps-post",
        marker="o" if len(rounds) == 1 else "",
    )
    budget = record.rounds[-1].budget if record is not None and record.rounds else None
    labels = levels(axes, {} if budget is None else {"budget": budget}, "{:.3g}".format)
    axes.set_ylim(0, 1.1 * max(float(spent.max()), budget or 0.0))
    return [*labels, Label(float(spent[-1]), f"spent {spent[-1]:.3g}", GREY)]
