"""A sweep as people see it: a summary in eighty columns, the curve, and a report with both."""

import math
import shlex
from typing import TYPE_CHECKING, Any, cast

import tomli_w

from tacit.experiments.sweep_results import SweepResult
from tacit.experiments.sweeps import EPSILON, labels, sort_value
from tacit.privacy.policy import Open, Privacy
from tacit.reports.page.blocks import (
    Block,
    Code,
    Facts,
    Figure,
    Folded,
    Grid,
    Items,
    Page,
    Section,
    Text,
    Tone,
)
from tacit.reports.text import NAMES, WIDTH, align_table, fit_table, format_rows, widest_line, wrap_paragraph
from tacit.runs.directory import ENVIRONMENT, Directory, environment

if TYPE_CHECKING:
    import pandas as pd

    from tacit.reports.plots.style import Picture

NOTHING = "-"
OPEN, UNPROVEN = "open", "not proven"
CHOOSE = (
    "Each run states its own price. To choose a value on private records, choose within one promise: tacit "
    "tune."
)
# The label of a single line.
ONE = "federated"
REFERENCES = {"alone": "each site alone", "pooled": "pooled"}


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
    common = swept.batch.experiment
    return [
        ("sweep", swept.name),
        ("task", common.task.kind),
        ("runs", swept.runs),
        ("promise", promise_of(swept)),
    ]


def promise_of(swept: SweepResult) -> str:
    """Return the promise that all private runs share, in words."""
    promise = swept.batch.example.privacy
    if isinstance(promise, Open):
        return "none: every run is open"
    again = ", REHEARSAL" * promise.rehearsal
    return f"to any one {promise.unit}, delta {promise.delta:g}{again}"


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
        (*_row(swept, row["changes"], row, scores, beside), *([_spent(row)] * priced))
        for row in swept.as_dict()["table"]
    ]
    for one in swept.baselines():
        cells = _row(swept, one["changes"], one, scores, beside)
        # It is named where an epsilon would stand, after what it depends on.
        name = REFERENCES.get(str(one["name"]), str(one["name"]))
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
    return max(swept.keys, key=lambda key: (swept.numeric(key), len(swept.batch.swept[key])))


def score_format(swept: SweepResult) -> str:
    """Return the number format of the deciding score."""
    return "{:.1f}" if swept.goal[0].startswith(("return", "iqm")) else "{:.3f}"


def _rows(swept: SweepResult) -> "pd.DataFrame":
    """One row for each combination: the value along the axis, the line it belongs to, and the score."""
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
        provenance=provenance(swept),
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
        "provenance": provenance(swept),
    }
    if not swept.numeric(key):
        return by_word(rows, **options)
    return by_number(rows, **options, beside=_baseline_scores_by(swept, key))


def _baseline_scores(swept: SweepResult) -> dict[str, float]:
    """Return the scores of the baselines that are the same for all runs."""
    found = {str(one["name"]): _mean(swept, one) for one in swept.baselines() if not one["changes"]}
    return {REFERENCES.get(name, name): mean for name, mean in found.items() if mean is not None}


def _baseline_scores_by(swept: SweepResult, key: str) -> dict[str, dict[float, float]]:
    """The same where it depends on the value along the axis, and on nothing else."""
    found: dict[str, dict[float, float]] = {}
    for one in swept.baselines():
        mean = _mean(swept, one)
        if list(one["changes"]) == [key] and mean is not None:
            name = str(one["name"])
            points = found.setdefault(REFERENCES.get(name, name), {})
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


def provenance(swept: SweepResult) -> str:
    """Return the provenance of the figures: experiment, task, seeds, rehearsal."""
    promise = swept.batch.example.privacy
    seeds = len(swept.batch.seeds)
    told = f"{swept.name}: {swept.batch.experiment.task.kind}, mean of {seeds} seed{'s' * (seeds != 1)}"
    if isinstance(promise, Privacy) and promise.rehearsal:
        told += "; REHEARSAL: the noise repeats with the seed and gives no protection"
    return told


def _line(name: str, value: object) -> str:
    """Return the label of a line; words need no key before them."""
    return f"{name} {_word(value)}" if isinstance(value, float) else str(value)


def _word(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def page(swept: SweepResult) -> Page:
    """The report of a sweep."""
    document = {**swept.as_dict(), "reproduce": _reproduce(swept)}
    parts = [
        Section("Result", tuple(_result(swept))),
        Section("What runs cost", tuple(_costs(swept))),
        *([Section("Failures", tuple(_failures(swept)))] if swept.failures else []),
        Section("Reproduce", tuple(_reproduction_blocks(document["reproduce"]))),
    ]
    return Page(
        title=f"{swept.name}: a sweep of {', '.join(labels(swept.keys).values())}",
        lead=f"{headline(swept)}.",
        alerts=tuple(Text(alert["words"], cast("Tone", alert["tone"])) for alert in swept.alerts()),
        sections=tuple(parts),
        document=document,
    )


def _result(swept: SweepResult) -> list[Block]:
    """The curve, and the numbers of it."""
    blocks: list[Block] = []
    drawn = curve(swept)
    if drawn is not None:
        blocks.append(Figure("sweep", drawn, _describe_figure(swept)))
    header, rows = grid(swept, ends=False)
    if rows:
        blocks.append(Grid("Means over seeds", header, tuple(rows), sortable=True))
    if swept.interval:
        blocks.append(Text(f"Intervals: {swept.interval}."))
    return blocks


def _describe_figure(swept: SweepResult) -> str:
    """The figure in words."""
    key = axis_key(swept)
    lines = [other for other in swept.keys if other != key]
    apart = f", one line for each {' and '.join(labels(lines).values())}" if lines else ""
    shaded = ", with its intervals" * bool(swept.interval)
    return f"{_title(swept.goal[0])} against {key}{apart}{shaded}; the numbers are in the table below."


def _costs(swept: SweepResult) -> list[Block]:
    """Return a table of the cost of every run."""
    names = labels(swept.keys)
    rows = [
        (
            *(cell.row["changes"][key].strip("\"'") for key in swept.keys),
            str(cell.seed),
            _score(swept, row),
            _price(row),
            NOTHING if row.get("seconds") is None else f"{row['seconds']:.1f}",
        )
        for cell, row in ((cell, swept.rows[cell]) for cell in swept.batch.cells if cell in swept.rows)
    ]
    header = (*names.values(), "seed", _title(swept.goal[0]), "spent", "seconds")
    return [
        Facts((("promise", promise_of(swept)), ("runs", swept.runs))),
        Text(CHOOSE),
        Folded(f"Every run: {len(rows)}", (Grid("Runs one by one", header, tuple(rows), sortable=True),)),
    ]


def _score(swept: SweepResult, row: dict[str, Any]) -> str:
    found = row.get("scores", {}).get(swept.goal[0])
    return NOTHING if found is None else score_format(swept).format(found)


def _price(row: dict[str, Any]) -> str:
    return "failed" if row["failed"] is not None else _spent(row)


def _failures(swept: SweepResult) -> list[Block]:
    return [Items(reason, tuple(map(str, cells))) for reason, cells in swept.failures.items()]


def _reproduce(swept: SweepResult) -> dict[str, Any]:
    """The command, the file it is about, and what it ran on."""
    known = Directory(swept.path).read_json(ENVIRONMENT)
    return {
        "command": f"tacit sweep {shlex.quote(swept.name)}.toml",
        "experiment": tomli_w.dumps(swept.batch.document),
        "environment": known or environment(),
    }


def _reproduction_blocks(told: dict[str, Any]) -> list[Block]:
    versions = tuple((name, str(version)) for name, version in told["environment"].items())
    return [
        Text("With this file, whose table [sweep] lists the values:"),
        Code(told["command"]),
        Folded("The file", (Code(told["experiment"]),)),
        Folded("What it ran on", (Facts(versions),)),
    ]


def _title(score: str) -> str:
    return NAMES.get(score, score)
