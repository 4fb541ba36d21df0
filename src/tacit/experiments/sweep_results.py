"""Results of a sweep: means over seeds with intervals, warnings, a summary and a figure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tacit.experiments.batch import (
    ENOUGH,
    Announce,
    BatchResult,
    Row,
    Verdict,
    interval_of,
    judge_runs,
    silent,
    verdict_sentences,
)
from tacit.experiments.sweeps import (
    EPSILON,
    Changes,
    Sweep,
    SweepCell,
    Value,
    baseline_changes,
    in_words,
    labels,
    sort_value,
)
from tacit.privacy.policy import Open, Privacy
from tacit.reports.text import NAMES, WIDTH, align_table, fit_table, format_rows, widest_line, wrap_paragraph

if TYPE_CHECKING:
    import pandas as pd

    from tacit.reports.page.blocks import Page
    from tacit.reports.plots.style import Picture

PLAIN = ("spent", "delta", "rounds", "seconds")
SCHEMA = 1
NOTHING = "-"
OPEN, UNPROVEN = "open", "not proven"
CHOOSE = (
    "Each run states its own price. To choose a value on private records, choose within one promise: tacit "
    "tune."
)
# The label of a single line.
ONE = "federated"
REFERENCES = {"alone": "each site alone", "pooled": "pooled"}
REHEARSED = "REHEARSAL: the noise repeats with the seed, so it gives no protection."


@dataclass(frozen=True, eq=False, kw_only=True)
class SweepResult(BatchResult[SweepCell]):
    """Results of a sweep.

    In its frame and table, swept keys have columns of their own, and an infinite epsilon is an open run;
    `spent` is the epsilon in the run's statement, and is missing for open runs.

    Args:
        batch: The sweep.
        rows: The row of each finished run: its scores, or the reason that it has none.
        path: The directory of the sweep.
    """

    batch: Sweep

    @property
    def keys(self) -> list[str]:
        """Swept keys."""
        return list(self.batch.swept)

    @property
    def goal(self) -> tuple[str, str]:
        """The score that counts, and its good direction."""
        return cast("tuple[str, str]", self.batch.experiment.task.goal)

    @cached_property
    def scores(self) -> list[str]:
        """Names of the scores, the deciding one first; without single worlds and ends of intervals."""
        names = dict.fromkeys(name for row in self._scored for name in row["scores"])
        plain = [name for name in names if "@" not in name and not name.endswith(("_low", "_high"))]
        return sorted(plain, key=lambda name: name != self.goal[0])

    @property
    def _scored(self) -> list[Row]:
        return [row for row in self.rows.values() if row["failed"] is None]

    @property
    def unknown(self) -> list[SweepCell]:
        """The runs that are still to be made."""
        return [cell for cell in self.batch.cells if cell not in self.rows]

    @property
    def _columns(self) -> tuple[list[str], list[str]]:
        return [*self.keys, "seed", "unit", *PLAIN], list(PLAIN)

    def _factors(self, cell: SweepCell) -> Row:
        return dict(self._values(cell.changes))

    def _values(self, changes: Changes) -> dict[str, Value]:
        """Values to sort and to draw by; words and numbers do not mix within a key."""
        found = {key: sort_value(text) for key, text in changes}
        return {
            key: value if self.batch.is_numeric(key) else str(dict(changes)[key]).strip("\"'")
            for key, value in found.items()
        }

    def table(self) -> "pd.DataFrame":
        """Means over seeds of the runs with scores, by the swept options; `n` runs each.

        Beside each score are `<score>_low` and `<score>_high`. What they are is in `interval`: the ends of
        the 95 % interval of the mean (`t`, Student's), or of two runs the smaller and the larger (`range`);
        of a single run nothing is known. `spent` is that of the dearest run: prices are never averaged.
        """
        import pandas as pd

        groups = [(own, found) for own in self.batch.combinations if (found := self._scored_at(own))]
        rows = [{**self._values(own), **_average(found, self.scores)} for own, found in groups]
        beside = [name for score in self.scores for name in (score, f"{score}_low", f"{score}_high")]
        columns = [*self.keys, "n", "unit", *PLAIN, "interval", *beside]
        return pd.DataFrame(rows, columns=columns).set_index(self.keys)

    def _scored_at(self, changes: Changes) -> list[Row]:
        """Return the rows of all seeds with these values that have scores."""
        cells = [SweepCell(changes=changes, seed=seed) for seed in self.batch.seeds]
        return [self.rows[cell] for cell in cells if cell in self.rows and not self.rows[cell]["failed"]]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The mean of each combination with scores beside that of its simplest baselines."""
        groups = [(own, found) for own in self.batch.combinations if (found := self._scored_at(own))]
        return [
            judge_runs(in_words(own), [(row["scores"], row.get("simplest")) for row in found])
            for own, found in groups
        ]

    def baselines(self) -> list[Row]:
        """Return the scores of the baselines: the simplest one, and without privacy by site and `pooled`.

        Each row has `changes` (the swept values that baselines depend on), `name`, `n`, and the mean of each
        score with its interval. The `simplest` one also has its `label`.
        """
        found: list[Row] = []
        for own in dict.fromkeys(map(baseline_changes, self.batch.combinations)):
            alike = [each for each in self.batch.combinations if baseline_changes(each) == own]
            known = [row["baselines"] for each in alike for row in self._scored_at(each) if row["baselines"]]
            for name in dict.fromkeys(name for one in known for name in one):
                rows = [{"scores": one[name]} for one in known if name in one]
                found.append({"changes": dict(own), "name": name, **_means(rows, self.scores)})
        return found + self._simplest()

    def _simplest(self) -> list[Row]:
        """Return the mean of the simplest baselines: once if it is the same for all runs."""
        found: list[Row] = []
        for own in dict.fromkeys(map(baseline_changes, self.batch.combinations)):
            alike = [each for each in self.batch.combinations if baseline_changes(each) == own]
            # Runs of one seed share it.
            known = [row for row in self._scored_at(alike[0]) if row.get("simplest")]
            if known:
                rows = [{"scores": row["simplest"]["scores"]} for row in known]
                label = known[0]["simplest"]["name"]
                means = _means(rows, self.scores)
                found.append({"changes": dict(own), "name": "simplest", "label": label, **means})
        told: list[Row] = [row | {"changes": dict[str, str]()} for row in found]
        return told[:1] if told and all(row == told[0] for row in told) else found

    @property
    def interval(self) -> str:
        """Kind of the intervals, in words; empty if there are none."""
        kinds = list(self.table()["interval"].dropna().unique())
        words = {
            "t": "the 95 % interval of the mean over seeds (Student's t)",
            "range": "the smaller and the larger of two seeds",
        }
        return "; or ".join(words[kind] for kind in kinds)

    def alerts(self) -> list[dict[str, str]]:
        """Return warnings about the sweep as a whole: each has a `tone` and `words`, as in reports."""
        every, failed = len(self.batch.cells), sum(map(len, self.failures.values()))
        loose = [cell for cell, row in self.rows.items() if row["failed"] is None and _loose(row)]
        seeds, unknown = len(self.batch.seeds), len(self.unknown)
        apart = "there are no intervals" if seeds == 1 else "intervals are the range of the two"
        promise = self.batch.example.privacy
        told = {
            f"{failed} of {every} runs failed. The same command tries them again.": bool(failed),
            f"{unknown} of {every} runs are still to be made. The same command resumes.": bool(unknown),
            f"The price of {len(loose)} runs is not proven: they are not plotted.": bool(loose),
            f"{seeds} seed{'s' * (seeds > 1)}: {apart}. More seeds give narrower intervals (--seeds).": seeds
            < ENOUGH,
            REHEARSED: isinstance(promise, Privacy) and promise.rehearsal,
        }
        bare = list(dict.fromkeys(what for row in self.rows.values() for what in row.get("bare") or ()))
        stops = [f"Unprotected, in every run: {'; '.join(bare)}."] if bare else []
        minds = [words for words, holds in told.items() if holds]
        return [
            *({"tone": "stop", "words": words} for words in stops),
            *({"tone": tone, "words": words} for tone, words in verdict_sentences(self.verdicts)),
            *({"tone": "mind", "words": words} for words in minds),
        ]

    def summary(self) -> str:
        """Summarize the sweep in text: the runs, the means with intervals, and the failures."""
        return summarise(self)

    def figure(self) -> "Picture | None":
        """Draw the score against the swept option, with bands; None if that is impossible."""
        return curve(self)

    def figures(self, folder: str | Path, *, announce: Announce = silent) -> dict[str, Path]:
        """Draw the score against the swept option, as PNG."""
        from tacit.reports.plots.style import save_figure

        drawn = self.figure()
        if drawn is None:
            announce("the curve is not plotted: too few runs have a score, or there are too many lines")
            return {}
        Path(folder).mkdir(parents=True, exist_ok=True)
        name = "privacy-utility" if EPSILON in self.keys else "sweep"
        place = Path(folder) / f"{name}.png"
        save_figure(drawn, place)
        return {name: place}

    def page(self) -> "Page":
        """The sweep as a report."""
        from tacit.experiments.report import sweep_page

        return sweep_page(self)

    def as_dict(self) -> dict[str, Any]:
        """The sweep as one document."""
        return {
            "schema": SCHEMA,
            "kind": "sweep",
            **super().as_dict(),
            "goal": list(self.goal),
            "swept": {key: list(values) for key, values in self.batch.swept.items()},
            "seeds": list(self.batch.seeds),
            "interval": self.interval,
            "alerts": self.alerts(),
            "verdicts": [verdict.as_dict() for verdict in self.verdicts],
            "baselines": self.baselines(),
            "rows": [self.rows[cell] for cell in self.batch.cells if cell in self.rows],
        }

    def _records(self) -> list[Row]:
        return [
            {"changes": dict(own), **_average(found, self.scores, plain=True)}
            for own in self.batch.combinations
            if (found := self._scored_at(own))
        ]


def _average(rows: Sequence[Row], scores: Sequence[str], *, plain: bool = False) -> Row:
    """Average the rows of runs that differ in their seeds alone."""
    found: Row = {"n": len(rows), "unit": rows[0]["unit"]}
    for name in PLAIN:
        known = [row[name] for row in rows if row[name] is not None]
        # Epsilon is never averaged: the largest counts.
        pick = max if name in ("spent", "delta") else np.mean
        found[name] = float(pick(known)) if known else None if plain else math.nan
    # Of a price that is not proven no larger one is known.
    found["spent"] = found["spent"] if not any(map(_loose, rows)) else None if plain else math.nan
    means = _means(rows, scores)
    found["interval"] = means["interval"]
    if plain:
        return {**found, "scores": means["scores"]}
    for name, one in means["scores"].items():
        ends = (one["mean"], one["low"], one["high"])
        for column, value in zip((name, f"{name}_low", f"{name}_high"), ends, strict=True):
            found[column] = math.nan if value is None else value
    return found


def _means(rows: Sequence[Row], scores: Sequence[str]) -> Row:
    """Return the mean of each score with its interval, and what the interval is."""
    found: Row = {"n": len(rows), "interval": None, "scores": {}}
    for name in scores:
        known = [row["scores"][name] for row in rows if row["scores"].get(name) is not None]
        low, high, kind = interval_of(known)
        found["interval"] = found["interval"] or kind
        mean = float(np.mean(known)) if known else None
        found["scores"][name] = {"mean": mean, "low": low, "high": high}
    return found


def _loose(row: Row) -> bool:
    """Return True for a private run without a proven epsilon."""
    return row["unit"] is not None and row["spent"] is None


def summarise(swept: SweepResult) -> str:
    """The summary of a sweep."""
    header, rows = grid(swept, ends=True)
    if rows and widest_line(align_table(header, rows)) > WIDTH:
        # The other scores are in the report.
        header, rows = grid(swept, ends=True, only=True)
    table = fit_table(header, rows) if rows else "No run has a score."
    # Verdicts stand in the head.
    known = {words for _, words in verdict_sentences(swept.verdicts)}
    beside = [words for words in notes_of(swept) if words not in known]
    notes = [f"{headline(swept)}."] * bool(rows) + beside + swept.failed_in_words()
    return "\n\n".join([format_rows(_head(swept)), table, "\n".join(map(wrap_paragraph, notes))])


def _head(swept: SweepResult) -> list[tuple[str, str]]:
    common = swept.batch.experiment
    return [
        *(("verdict", words.rstrip(".")) for _, words in verdict_sentences(swept.verdicts)),
        ("sweep", swept.name),
        ("task", common.task.kind),
        ("runs", swept.runs),
        ("promise", swept.batch.promise),
    ]


def grid(
    swept: SweepResult, *, ends: bool, only: bool = False
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the table of a sweep for people: swept values, number of runs, scores, and prices.

    Args:
        swept: The results of the sweep.
        ends: Show intervals of the deciding score alone; by default of all scores.
        only: Leave the other scores out.
    """
    names = labels(swept.keys)
    scores = swept.scores[:1] if only else swept.scores
    beside = [name for name in scores if swept.interval and (not ends or name == swept.scores[0])]
    priced = any(one["unit"] is not None for one in swept.rows.values() if not one["failed"])
    header = [*(names[key] for key in swept.keys), "n"]
    for name in scores:
        header += [_title(name), *(["interval"] * (name in beside))]
    found = [
        (*_row(swept, row["changes"], row, scores, beside), *([price_of(row)] * priced))
        for row in swept.as_dict()["table"]
    ]
    for one in swept.baselines():
        cells = _row(swept, one["changes"], one, scores, beside)
        # It is named where an epsilon would stand, after what it depends on.
        name = _baseline_label(one)
        name = name if cells[0] == NOTHING else f"{cells[0]}, {name}"
        found.append((name, *cells[1:], *([NOTHING] * priced)))
    return (*header, *(["spent"] * priced)), found


def _row(
    swept: SweepResult, changes: dict[str, str], row: dict[str, Any], scores: list[str], beside: list[str]
) -> tuple[str, ...]:
    cells = [*(_value(changes.get(key, NOTHING)) for key in swept.keys), str(row["n"])]
    form = score_format(swept)
    for name in scores:
        one = row["scores"].get(name, {})
        decimals = form if name == swept.goal[0] or name.startswith(("return", "iqm")) else "{:.3f}"
        cells.append(_number(one.get("mean"), decimals))
        if name in beside:
            low, high = (_number(one.get(end), decimals) for end in ("low", "high"))
            cells.append(NOTHING if NOTHING in (low, high) else f"{low} to {high}")
    return tuple(cells)


def _value(text: str) -> str:
    """Return a value as it was written, cut off where it is very long."""
    bare = text.strip("\"'")
    return bare if len(bare) <= 24 else f"{bare[:21]}..."


def _number(value: float | None, form: str) -> str:
    return NOTHING if value is None or math.isnan(value) else form.format(value)


def price_of(row: dict[str, Any]) -> str:
    """Format the spent epsilon of a run, or of several."""
    if row["unit"] is None:
        return OPEN
    return UNPROVEN if row["spent"] is None else f"{row['spent']:.4g}"


def notes_of(swept: SweepResult) -> list[str]:
    """Return the notes below the table: intervals, alerts, and the cost of choosing."""
    intervals = [f"Intervals: {swept.interval}."] * bool(swept.interval)
    priced = not isinstance(swept.batch.example.privacy, Open)
    return [*intervals, *(alert["words"] for alert in swept.alerts()), *([CHOOSE] * priced)]


def curve(swept: SweepResult) -> "Picture | None":
    """Draw the main score against the swept option; None without scores, or with too many lines."""
    from tacit.reports.plots.style import PALETTE

    rows = _rows(swept)
    if rows.empty or rows["method"].nunique() > len(PALETTE):
        return None
    if axis_key(swept) != EPSILON:
        return _by_value(swept, rows)
    priced = rows[rows["value"] < math.inf]
    return None if priced.empty else _by_price(swept, priced, rows[rows["value"] == math.inf])


def axis_key(swept: SweepResult) -> str:
    """The key that is drawn along the axis: epsilon, or else the one with most numbers, or most words."""
    if EPSILON in swept.keys:
        return EPSILON
    return max(swept.keys, key=lambda key: (swept.batch.is_numeric(key), len(swept.batch.swept[key])))


def score_format(swept: SweepResult) -> str:
    """Return the number format of the deciding score."""
    return "{:.1f}" if swept.goal[0].startswith(("return", "iqm")) else "{:.3f}"


def _rows(swept: SweepResult) -> "pd.DataFrame":
    """Tabulate the combinations: value along the axis, line, and score."""
    import pandas as pd

    key, score, found = axis_key(swept), swept.goal[0], list[dict[str, Any]]()
    table = swept.table().reset_index()
    if score not in table:
        return pd.DataFrame()
    others = [name for name in swept.keys if name != key]
    names = labels(others)
    for row in table.to_dict("records"):
        mean, low, high = (float(row[f"{score}{end}"]) for end in ("", "_low", "_high"))
        if math.isnan(mean) or (key == EPSILON and row[key] < math.inf and math.isnan(row["spent"])):
            # Of a price that is not proven there is no place on the axis.
            continue
        # A promise is kept at what was asked for; what a run cost is never more.
        value = max(row[key], row["spent"]) if key == EPSILON and row[key] < math.inf else row[key]
        known = not math.isnan(low)
        found.append(
            {
                "value": value,
                "method": ", ".join(_line(names[name], row[name]) for name in others) or ONE,
                "score": mean,
                "low": low if known else mean,
                "high": high if known else mean,
            }
        )
    return pd.DataFrame(found, columns=["value", "method", "score", "low", "high"])


def _by_price(swept: SweepResult, priced: "pd.DataFrame", opened: "pd.DataFrame") -> "Picture":
    from tacit.reports.plots.privacy_utility import privacy_utility

    many = opened["method"].nunique() > 1
    references = {
        f"open, {row['method']}" if many else "open": float(row["score"]) for row in opened.to_dict("records")
    }
    table = priced.rename(columns={"value": "epsilon"})
    return privacy_utility(
        table if swept.interval else table.drop(columns=["low", "high"]),
        references={**references, **_baseline_scores(swept)},
        score=_title(swept.goal[0]),
        shown=score_format(swept),
        # A single point has no band to be seen.
        band=(swept.interval or None) if table["epsilon"].nunique() > 1 else None,
        title=headline(swept),
        provenance=swept.batch.provenance,
    )


def _by_value(swept: SweepResult, rows: "pd.DataFrame") -> "Picture":
    from tacit.reports.plots.privacy_utility import by_number, by_word

    key = axis_key(swept)
    options: dict[str, Any] = {
        "across": key,
        "score": _title(swept.goal[0]),
        "shown": score_format(swept),
        "references": _baseline_scores(swept),
        "band": swept.interval or None,
        "title": headline(swept),
        "provenance": swept.batch.provenance,
    }
    if not swept.batch.is_numeric(key):
        return by_word(rows, **options)
    return by_number(rows, **options, beside=_baseline_scores_by(swept, key))


def _baseline_scores(swept: SweepResult) -> dict[str, float]:
    """Return the scores of the baselines that are the same for all runs."""
    found = {_baseline_label(one): _mean(swept, one) for one in swept.baselines() if not one["changes"]}
    return {name: mean for name, mean in found.items() if mean is not None}


def _baseline_label(one: dict[str, Any]) -> str:
    """Return the name of a baseline for people."""
    return str(one.get("label") or REFERENCES.get(str(one["name"]), str(one["name"])))


def _baseline_scores_by(swept: SweepResult, key: str) -> dict[str, dict[float, float]]:
    """Return the scores of baselines that depend on the value along the axis alone."""
    found: dict[str, dict[float, float]] = {}
    for one in swept.baselines():
        mean = _mean(swept, one)
        if list(one["changes"]) == [key] and mean is not None:
            points = found.setdefault(_baseline_label(one), {})
            points[float(sort_value(one["changes"][key]))] = mean
    return found


def _mean(swept: SweepResult, one: dict[str, Any]) -> float | None:
    return one["scores"].get(swept.goal[0], {}).get("mean")


def headline(swept: SweepResult) -> str:
    """Return the main result of the sweep in one sentence."""
    rows = _rows(swept).to_dict("records")
    if not rows:
        return f"There are no results to plot for {swept.name} yet"
    score, form = _title(swept.goal[0]), score_format(swept)
    best = max if swept.goal[1] == "max" else min
    if axis_key(swept) != EPSILON:
        top = best(rows, key=lambda row: row["score"])
        ends = [form.format(end(row["score"] for row in rows)) for end in (min, max)]
        own = f"{labels([axis_key(swept)])[axis_key(swept)]} {_word(top['value'])}"
        line = "" if top["method"] == ONE else f", {top['method']}"
        return f"{score} between {ends[0]} and {ends[1]}, best with {own}{line}"
    prices = sorted({float(row["value"]) for row in rows})
    bounded = [price for price in prices if price < math.inf]
    ends = list(dict.fromkeys([*bounded[:1], *bounded[-1:], *prices[-1:]]))
    reached = {price: best(row["score"] for row in rows if row["value"] == price) for price in ends}
    # Of several lines that share an epsilon, the best.
    most = "" if len({row["method"] for row in rows}) == 1 else "at best "
    told = ", ".join(f"{form.format(found)} {_at(price)}" for price, found in reached.items())
    return f"{score} {most}{told}"


def _at(price: float) -> str:
    return f"at epsilon {price:g}" if price < math.inf else "without a promise"


def _line(name: str, value: object) -> str:
    """Return the label of a line; words need no key before them."""
    return f"{name} {_word(value)}" if isinstance(value, float) else str(value)


def _word(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _title(score: str) -> str:
    return NAMES.get(score, score)
