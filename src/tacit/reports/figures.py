"""Figures of any run: how training went on, and what a score costs.

They show what has left the sites already and read no records. What they know of a workload is the names of
its scores.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator
from matplotlib.transforms import ScaledTranslation
from numpy.typing import NDArray

from tacit.errors import InvalidValue, require
from tacit.privacy.statement import Statement
from tacit.record import Record
from tacit.reports.style import (
    BODY,
    GREY,
    INCH,
    INK,
    PALETTE,
    SMALL,
    Label,
    Picture,
    colour,
    ink,
    label_lines,
    picture,
    plain,
    saved,
    tidy,
)
from tacit.reports.text import NAMES

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

PUBLIC = "public: the records are simulated or published"
HELD_OUT, TRAIN = "held out", "train"
OTHERS = ("sites", "epsilon", "seconds")
# So many letters have room along an axis.
LETTERS = 60
WORDS = {"alone": "each site alone", "pooled": "pooled"}


class Trained(Protocol):
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


def training(
    run: "Trained | pd.DataFrame",
    *,
    baselines: Mapping[str, Mapping[str, float]] | None = None,
    title: str | None = None,
    provenance: str | None = None,
    path: str | Path | None = None,
) -> Picture:
    """Draw how scores, and epsilon if there is one, go on from round to round.

    Args:
        run: A run, or its history: one row for each round, one column for each score. The score of training
            records, where it is known, has the same name after `train_`.
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
    scores, spent = _scores(history), "epsilon" in history and bool(history["epsilon"].notna().any())
    told = provenance or ("" if statement is None else _stated(statement))
    note = f"{told}." * bool(told) + _kept(history, record)
    figure = picture(0.45 + 1.6 * len(scores) + 0.9 * spent, title or _learnt(history, scores, record), note)
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
    return saved(figure, path)


def privacy_utility(
    table: "pd.DataFrame",
    *,
    references: Mapping[str, float] | None = None,
    score: str = "C-index",
    shown: str = "{:.3f}",
    floor: float | None = None,
    title: str | None = None,
    provenance: str = "",
    path: str | Path | None = None,
) -> Picture:
    """Draw a score against the epsilon that it costs.

    Args:
        table: One row for each run or mean of runs: `epsilon`, `score`, and where they are known `low` and
            `high`, the ends of an interval, `method`, which parts the rows into lines, and `claimed`, the
            epsilon that somebody said it costs: a cross where that differs, tied to the true one.
        references: Scores that cost no epsilon, by name: `open`, `alone`.
        score: What the score is.
        shown: How its numbers are written.
        floor: What a model that has learnt nothing scores, where high is good: points that are not above it,
            as far as their intervals tell, are hollow.
        title: What is seen; if not said, the best score at the smallest and at the largest epsilon.
        provenance: Where the scores come from.
        path: A file to keep the figure in, `.png`, `.svg` or `.pdf`.
    """
    rows = _priced(table)
    methods = list(dict.fromkeys(rows["method"].tolist()))
    most = len(PALETTE)
    require(len(methods) <= most, "method", f"{len(methods)} of them", f"at most {most}, to be told apart")
    note = [f"{provenance}."] * bool(provenance) + ["Bars: intervals of the scores."] * ("low" in rows)
    note += [] if floor is None else [f"Hollow: nothing learnt, not above {shown.format(floor)}."]
    note += ["Crosses: what was claimed of the points at their height."] * bool(_misstated(rows).any())
    figure = picture(3.1, title or _traded(rows, score, shown), " ".join(note))
    axes = figure.add_subplot()
    tidy(axes, "Epsilon: what a score costs any one unit (log scale)", score)
    axes.set_xscale("log")
    labels = _references(axes, references or {}, shown)
    for place, (_, own) in enumerate(rows.groupby("method", sort=False)):
        shift = 3.0 * (place - (len(methods) - 1) / 2) * ("low" in rows)
        labels.append(_trade(axes, own, place, shift, shown, floor))
        _claims(axes, own[_misstated(own)], colour(place))
    _mark(axes, np.unique(rows["epsilon"].to_numpy(dtype=np.float64)), rows.get("claimed", ()))
    drawn = rows[[name for name in ("score", "low", "high") if name in rows]].to_numpy(dtype=np.float64)
    heights = np.append(drawn.ravel(), list((references or {}).values()))
    edge = 0.06 * max(float(np.ptp(heights)), 0.01)
    axes.set_ylim(float(heights.min()) - edge, float(heights.max()) + edge)
    label_lines({axes: labels}, gap=8.0)
    return saved(figure, path)


def _history(run: "Trained | pd.DataFrame") -> "pd.DataFrame":
    """The history of a run, or what was given as one."""
    import pandas as pd

    found = run if isinstance(run, pd.DataFrame) else getattr(run, "history", None)
    if not isinstance(found, pd.DataFrame):
        raise InvalidValue(f"run = {run!r} is not allowed: it must be a run, or its history as a DataFrame")
    return found


def _scores(history: "pd.DataFrame") -> list[str]:
    """The scores that a history has."""
    names = [str(name) for name in history.columns]
    found = [name for name in names if name not in OTHERS and not name.startswith(f"{TRAIN}_")]
    found = [name for name in found if bool(history[name].notna().any())]
    allowed = "with a score: runs have one where held-out records may be looked at"
    require(bool(found), "history", names, allowed)
    return found


def _series(history: "pd.DataFrame", name: str) -> tuple[Array, Array]:
    """The rounds in which a number is known, and the number."""
    values = np.asarray(history[name], dtype=np.float64)
    known = ~np.isnan(values)
    return np.asarray(history.index, dtype=np.float64)[known], values[known]


def _round_axis(axes: Axes, history: "pd.DataFrame") -> None:
    """Name the rounds, from the first to the last."""
    rounds = np.asarray(history.index, dtype=np.float64)
    edge = max(0.02 * float(np.ptp(rounds)), 0.2)
    axes.set_xlim(float(rounds.min()) - edge, float(rounds.max()) + edge)
    axes.set_xlabel("Round", fontsize=BODY, color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))


def _kept(history: "pd.DataFrame", record: Record | None) -> str:
    """Which round the model is of, if not of the last."""
    if record is None or not 0 < record.chosen < len(history):
        return ""
    return f" Dot: the model that was kept, of round {record.chosen}."


def _stated(statement: Statement) -> str:
    """The promise of a run in one line."""
    if statement.unit is None:
        everybody = any(words.startswith("all records") for words in statement.public)
        return PUBLIC if everybody else f"bare: {'; '.join(statement.bare)}"
    spent = (
        f"released: epsilon {statement.epsilon:.4g} at delta {statement.delta:g} for any one {statement.unit}"
    )
    again = "; REHEARSAL: the noise repeats with the seed and protects nobody" * statement.rehearsal
    return spent + again + f"; bare: {'; '.join(statement.bare)}" * bool(statement.bare)


def _learnt(history: "pd.DataFrame", scores: Sequence[str], record: Record | None) -> str:
    """What training came to."""
    last = {name: float(_series(history, name)[1][-1]) for name in scores}
    found = record.scores if record is not None and record.scores else last
    told = ", ".join(f"{NAMES.get(name, name)} {found.get(name, last[name]):.3f}" for name in scores)
    rounds = len(history)
    return f"After {rounds} round{'s' * (rounds != 1)}: {told}"


def _score_panel(
    axes: Axes,
    history: "pd.DataFrame",
    score: str,
    baselines: Mapping[str, float | None],
    record: Record | None,
) -> list[Label]:
    """Draw one score round by round, and lines to compare it with."""
    tidy(axes, "", NAMES.get(score, score))
    known = {WORDS.get(name, name): value for name, value in baselines.items() if value is not None}
    labels = _references(axes, known)
    for place, name in ((1, f"{TRAIN}_{score}"), (0, score)):
        if name in history:
            rounds, values = _series(history, name)
            alone = "o" if len(rounds) == 1 else ""
            axes.plot(rounds, values, color=colour(place), linestyle=("-", "--")[place], marker=alone)
            words = f"{(HELD_OUT, TRAIN)[place]} {values[-1]:.3f}"
            labels.append(Label(float(values[-1]), words, colour(place)))
    if _kept(history, record) and record is not None:
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
    labels = _references(axes, {} if budget is None else {"budget": budget}, "{:.3g}")
    axes.set_ylim(0, 1.1 * max(float(spent.max()), budget or 0.0))
    return [*labels, Label(float(spent[-1]), f"spent {spent[-1]:.3g}", GREY)]


def _references(axes: Axes, known: Mapping[str, float], shown: str = "{:.3f}") -> list[Label]:
    """Draw a level for each number to compare with."""
    for place, value in enumerate(known.values()):
        axes.axhline(value, color=GREY, linewidth=0.9, linestyle=("--", ":", "-.", "-")[place % 4])
    return [Label(float(value), f"{name} {shown.format(value)}") for name, value in known.items()]


def _priced(table: "pd.DataFrame") -> "pd.DataFrame":
    """The rows in the order of epsilon, once they are found to be drawable."""
    columns = list(getattr(table, "columns", []))
    for name in ("epsilon", "score"):
        if name not in columns:
            raise InvalidValue(f"table has no column {name}: it must have epsilon and score")
    require(("low" in columns) == ("high" in columns), "table", "one of low and high", "with both or neither")
    require(len(table) > 0, "table", "no row", "at least one row")
    for name in [name for name in ("epsilon", "score", "low", "high") if name in columns]:
        finite = bool(np.isfinite(table[name].to_numpy(dtype=np.float64)).all())
        require(finite, name, table[name].tolist(), "finite; a score without epsilon belongs to references")
    require(bool((table["epsilon"] > 0).all()), "epsilon", table["epsilon"].tolist(), "above 0")
    if "claimed" in columns:
        said = table["claimed"].to_numpy(dtype=np.float64)
        fits = np.isnan(said) | ((said > 0) & np.isfinite(said))
        require(bool(fits.all()), "claimed", said.tolist(), "above 0, or missing where nothing was claimed")
    rows = table.assign(method=table["method"].astype(str) if "method" in columns else "")
    return rows.sort_values("epsilon", kind="stable")


def _traded(rows: "pd.DataFrame", score: str, shown: str) -> str:
    """What the trade comes to."""
    best = rows.groupby("epsilon")["score"].max()
    ends = [f"{shown.format(best.iloc[place])} at epsilon {best.index[place]:g}" for place in (0, -1)]
    return f"{score}: " + (ends[0] if len(best) == 1 else f"{ends[0]}, {ends[1]}")


def _trade(
    axes: Axes, rows: "pd.DataFrame", place: int, shift: float, shown: str, floor: float | None
) -> Label:
    """Draw one method, shifted by so many points, that the bars of several do not hide each other."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    beside = axes.transData + ScaledTranslation(shift / INCH, 0, figure.dpi_scale_trans)
    epsilon, score = (rows[name].to_numpy(dtype=np.float64) for name in ("epsilon", "score"))
    axes.plot(epsilon, score, color=colour(place), linewidth=1.5, marker="o", markersize=4, transform=beside)
    if "low" in rows:
        low, high = (rows[name].to_numpy(dtype=np.float64) for name in ("low", "high"))
        axes.vlines(epsilon, low, high, color=colour(place), linewidth=1.0, transform=beside)
    if floor is not None:
        vain = rows["low" if "low" in rows else "score"].to_numpy(dtype=np.float64) <= floor
        axes.plot(
            epsilon[vain], score[vain], color=colour(place), linestyle="none", transform=beside, marker="o",
            markersize=4, mfc="white",
        )  # fmt: skip
    method = str(rows["method"].iloc[0])
    return Label(float(score[-1]), f"{method} {shown.format(score[-1])}".strip(), colour(place))


def _misstated(rows: "pd.DataFrame") -> NDArray[np.bool_]:
    """The rows of which another epsilon was claimed than they cost."""
    if "claimed" not in rows:
        return np.zeros(len(rows), dtype=np.bool_)
    claimed, epsilon = (rows[name].to_numpy(dtype=np.float64) for name in ("claimed", "epsilon"))
    return ~np.isnan(claimed) & ~np.isclose(claimed, epsilon)


def _claims(axes: Axes, rows: "pd.DataFrame", shade: str) -> None:
    """Tie points to the epsilons that were claimed for them, and write these down."""
    if rows.empty:
        return
    claimed, epsilon, score = (
        rows[name].to_numpy(dtype=np.float64) for name in ("claimed", "epsilon", "score")
    )
    axes.hlines(score, claimed, epsilon, color=shade, linewidth=0.6, linestyle=":", zorder=1)
    axes.plot(claimed, score, color=shade, marker="x", markersize=4, linestyle="none")
    for place, one in enumerate(claimed.tolist()):
        first = place == int(claimed.argmin())
        axes.annotate(
            f"claimed {plain(one)}" if first else plain(one), (one, score[place]), fontsize=SMALL,
            color=ink(shade), xytext=(-5, 0) if first else (0, 3), textcoords="offset points",
            ha="right" if first else "center", va="center" if first else "bottom",
        )  # fmt: skip


def _mark(axes: Axes, epsilons: Array, claimed: "Sequence[float] | pd.Series[float]" = ()) -> None:
    """Mark the epsilons that there are, or so many of them as have room."""
    low, high = (float(end) for end in np.nanquantile(np.append(epsilons, claimed), (0, 1)))
    span = max(np.log(high / low), 1e-9)
    kept: list[float] = []
    for epsilon in epsilons.tolist():
        letters = len(plain(epsilon)) + len(plain(kept[-1])) if kept else 0
        if not kept or np.log(epsilon / kept[-1]) > span * (letters / 2 + 1) / LETTERS:
            kept.append(epsilon)
    edge = (high / low) ** 0.04 if high > low else 2.0
    # What was claimed is written to the left of its cross.
    axes.set_xlim(low / edge ** (1 if low == epsilons[0] else 4), high * edge)
    axes.set_xticks(kept)
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.xaxis.set_minor_locator(NullLocator())
