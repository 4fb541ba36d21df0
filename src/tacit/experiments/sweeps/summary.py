"""A sweep as text: what was run, what it came to, and what failed; in eighty columns."""

import math
from typing import Any

from tacit.experiments.sweeps.figure import REFERENCES, headline, score_format
from tacit.experiments.sweeps.result import SweepResult, score_title
from tacit.experiments.sweeps.values import labels
from tacit.privacy.policy import Open
from tacit.reports.text_tables import WIDTH, align_table, fit_table, format_rows, widest_line, wrap_paragraph

NOTHING = "-"
OPEN, UNPROVEN = "open", "not proven"
CHOOSE = (
    "Each run has a price of its own, as if there were no other. To choose a value for records that are "
    "somebody's, choose within one promise: tacit tune."
)


def summarise(swept: SweepResult) -> str:
    """The summary of a sweep."""
    header, rows = grid(swept, ends=True)
    if rows and widest_line(align_table(header, rows)) > WIDTH:
        # The other scores are in the report.
        header, rows = grid(swept, ends=True, only=True)
    table = fit_table(header, rows) if rows else "No run has a score."
    notes = [f"{headline(swept)}."] * bool(rows) + notes_of(swept) + swept.failed_in_words()
    return "\n\n".join([format_rows(_head(swept)), table, "\n".join(map(wrap_paragraph, notes))])


def _head(swept: SweepResult) -> list[tuple[str, str]]:
    common = swept.study.experiment
    return [
        ("sweep", swept.name),
        ("task", common.task.kind),
        ("runs", swept.runs),
        ("promise", promise_of(swept)),
    ]


def promise_of(swept: SweepResult) -> str:
    """What private runs have in common, in words."""
    promise = swept.study.example.privacy
    if isinstance(promise, Open):
        return "none: every run is open"
    again = ", REHEARSAL" * promise.rehearsal
    return f"to any one {promise.unit}, delta {promise.delta:g}{again}"


def grid(
    swept: SweepResult, *, ends: bool, only: bool = False
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The table for people: what is swept, how many runs, the scores, and what they cost.

    Args:
        swept: What came of the sweep.
        ends: Whether only the score that counts has its interval beside it; all have if not.
        only: Whether to leave the other scores out.
    """
    names = labels(swept.keys)
    scores = swept.scores[:1] if only else swept.scores
    beside = [name for name in scores if swept.interval and (not ends or name == swept.scores[0])]
    priced = any(one["unit"] is not None for one in swept.rows.values() if not one["failed"])
    header = [*(names[key] for key in swept.keys), "n"]
    for name in scores:
        header += [score_title(name), *(["interval"] * (name in beside))]
    found = [
        (*_row(swept, row["changes"], row, scores, beside), *([_spent(row)] * priced))
        for row in swept.as_dict()["table"]
    ]
    for one in swept.baselines():
        cells = _row(swept, one["changes"], one, scores, beside)
        # It is named where an epsilon would stand, after what it depends on.
        name = (
            _column_name(one["name"]) if cells[0] == NOTHING else f"{cells[0]}, {_column_name(one['name'])}"
        )
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


def _column_name(name: str) -> str:
    return REFERENCES.get(name, name)


def _value(text: str) -> str:
    """A value as it was written, cut off where it is very long."""
    bare = text.strip("\"'")
    return bare if len(bare) <= 24 else f"{bare[:21]}..."


def _number(value: float | None, form: str) -> str:
    return NOTHING if value is None or math.isnan(value) else form.format(value)


def _spent(row: dict[str, Any]) -> str:
    if row["unit"] is None:
        return OPEN
    return UNPROVEN if row["spent"] is None else f"{row['spent']:.4g}"


def notes_of(swept: SweepResult) -> list[str]:
    """What to mind when reading the table."""
    intervals = [f"Intervals: {swept.interval}."] * bool(swept.interval)
    priced = not isinstance(swept.study.example.privacy, Open)
    return [*intervals, *(alert["words"] for alert in swept.alerts()), *([CHOOSE] * priced)]
