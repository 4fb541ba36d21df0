"""A sweep as a report: the curve, the table, what runs cost, what failed, and how to do it again."""

import shlex
from typing import Any, cast

import tomli_w

from tacit.experiments.sweeps.figure import axis_key, curve, headline, score_format
from tacit.experiments.sweeps.result import SweepResult, score_title
from tacit.experiments.sweeps.summary import CHOOSE, NOTHING, OPEN, UNPROVEN, grid, promise_of
from tacit.experiments.sweeps.values import labels
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
from tacit.runs.directory import ENVIRONMENT, Directory, environment


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
    return f"{score_title(swept.goal[0])} against {key}{apart}{shaded}; the numbers are in the table below."


def _costs(swept: SweepResult) -> list[Block]:
    """What every run cost, one by one."""
    names = labels(swept.keys)
    rows = [
        (
            *(cell.row["changes"][key].strip("\"'") for key in swept.keys),
            str(cell.seed),
            _score(swept, row),
            _price(row),
            NOTHING if row.get("seconds") is None else f"{row['seconds']:.1f}",
        )
        for cell, row in ((cell, swept.rows[cell]) for cell in swept.study.cells if cell in swept.rows)
    ]
    header = (*names.values(), "seed", score_title(swept.goal[0]), "spent", "seconds")
    return [
        Facts((("promise", promise_of(swept)), ("runs", swept.runs))),
        Text(CHOOSE),
        Folded(f"Every run: {len(rows)}", (Grid("Runs one by one", header, tuple(rows), sortable=True),)),
    ]


def _score(swept: SweepResult, row: dict[str, Any]) -> str:
    found = row.get("scores", {}).get(swept.goal[0])
    return NOTHING if found is None else score_format(swept).format(found)


def _price(row: dict[str, Any]) -> str:
    if row["failed"] is not None:
        return "failed"
    if row["unit"] is None:
        return OPEN
    return UNPROVEN if row["spent"] is None else f"{row['spent']:.4g}"


def _failures(swept: SweepResult) -> list[Block]:
    return [Items(reason, tuple(map(str, cells))) for reason, cells in swept.failures.items()]


def _reproduce(swept: SweepResult) -> dict[str, Any]:
    """The command, the file it is about, and what it ran on."""
    known = Directory(swept.path).read_json(ENVIRONMENT)
    return {
        "command": f"tacit sweep {shlex.quote(swept.name)}.toml",
        "experiment": tomli_w.dumps(swept.study.document),
        "environment": known or environment(),
    }


def _reproduction_blocks(told: dict[str, Any]) -> list[Block]:
    versions = tuple((name, str(version)) for name, version in told["environment"].items())
    return [
        Text("With this file, whose table [sweep] says what is swept:"),
        Code(told["command"]),
        Folded("The file", (Code(told["experiment"]),)),
        Folded("What it ran on", (Facts(versions),)),
    ]
