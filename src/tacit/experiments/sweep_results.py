"""Results of a sweep: a row for each run, means over seeds with their intervals, warnings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tacit.experiments.batch import Announce, BatchResult, Row, silent, student_interval
from tacit.experiments.sweeps import (
    EPSILON,
    Changes,
    Sweep,
    SweepCell,
    Value,
    baseline_changes,
    sort_value,
)
from tacit.privacy.policy import Privacy

if TYPE_CHECKING:
    import pandas as pd

    from tacit.reports.page.blocks import Page
    from tacit.reports.plots.style import Picture

PLAIN = ("spent", "delta", "rounds", "seconds")
# The smallest number of seeds whose interval says something about other seeds.
ENOUGH = 3
SCHEMA = 1
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

    def _repr_html_(self) -> str:
        from tacit.reports.page.html import fragment

        return fragment(self.page())

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
            key: value if self.numeric(key) else str(dict(changes)[key]).strip("\"'")
            for key, value in found.items()
        }

    def numeric(self, key: str) -> bool:
        """Return True if all values of a key are numbers."""
        return all(isinstance(sort_value(text), float) for text in self.batch.swept[key])

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
        """The rows of all seeds with these values that have scores."""
        cells = [SweepCell(changes=changes, seed=seed) for seed in self.batch.seeds]
        return [self.rows[cell] for cell in cells if cell in self.rows and not self.rows[cell]["failed"]]

    def baselines(self) -> list[Row]:
        """Return the scores of the baselines, trained without privacy: by site `alone` and `pooled`.

        Each row has `changes` (the swept values that baselines depend on), `name`, `n`, and the mean of each
        score with its interval.
        """
        found: list[Row] = []
        for own in dict.fromkeys(map(baseline_changes, self.batch.combinations)):
            alike = [each for each in self.batch.combinations if baseline_changes(each) == own]
            known = [row["baselines"] for each in alike for row in self._scored_at(each) if row["baselines"]]
            for name in dict.fromkeys(name for one in known for name in one):
                rows = [{"scores": one[name]} for one in known if name in one]
                found.append({"changes": dict(own), "name": name, **_means(rows, self.scores)})
        return found

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
            *({"tone": "mind", "words": words} for words in minds),
        ]

    def summary(self) -> str:
        """Summarize the sweep in text: the runs, the means with intervals, and the failures."""
        from tacit.experiments.sweep_report import summarise

        return summarise(self)

    def figure(self) -> "Picture | None":
        """Draw the score against the swept option, with bands; None if that is impossible."""
        from tacit.experiments.sweep_report import curve

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
        from tacit.experiments.sweep_report import page

        return page(self)

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
    """The mean of each score with its interval, and what the interval is."""
    found: Row = {"n": len(rows), "interval": None, "scores": {}}
    for name in scores:
        known = [row["scores"][name] for row in rows if row["scores"].get(name) is not None]
        low, high, kind = interval_of(known)
        found["interval"] = found["interval"] or kind
        mean = float(np.mean(known)) if known else None
        found["scores"][name] = {"mean": mean, "low": low, "high": high}
    return found


def interval_of(values: Sequence[float]) -> tuple[float | None, float | None, str | None]:
    """Return the ends of an interval of these values, and its kind, `t` or `range`; none for one value."""
    if len(values) < 2:
        return None, None, None
    if len(values) < ENOUGH:
        return float(min(values)), float(max(values)), "range"
    return *student_interval(values), "t"


def _loose(row: Row) -> bool:
    """Return True for a private run without a proven epsilon."""
    return row["unit"] is not None and row["spent"] is None
