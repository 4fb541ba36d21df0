"""What a notebook shows of what a cell came to: the words of a terminal, as a part of its page."""

from collections.abc import Mapping, Sequence
from typing import Any

from tacit.reports.page.blocks import Block, Code, Facts, Grid, Page, Section, Text
from tacit.reports.page.html import fragment
from tacit.reports.text import NAMES, header_of, score_table


def run_html(run: Mapping[str, Any], sentences: Sequence[str]) -> str:
    """A run.

    Args:
        run: What `Run.as_dict` says; perhaps `how` its intervals were found.
        sentences: Those of its statement.
    """
    return fragment(_page(f"run {run['name']}", _run(run, sentences)))


def tuned_html(tuned: Mapping[str, Any], run: Mapping[str, Any], sentences: Sequence[str]) -> str:
    """A choice among candidates.

    Args:
        tuned: What `Tuned.as_dict` says.
        run: What `Run.as_dict` says of the one that was chosen.
        sentences: Those of its statement.
    """
    by, candidates = tuned["by"], tuned["candidates"]
    varied = list(dict.fromkeys(key for trial in candidates for key in trial["changes"]))
    rows = tuple(
        (
            trial["candidate"],
            *(str(trial["changes"].get(key, "-")) for key in varied),
            "-" if trial["score"] is None else f"{trial['score']:.4f}",
            trial["failed"] or "",
        )
        for trial in candidates
    )
    score = str(NAMES.get(by["score"], by["score"]))
    noisy = "" if by["noise"] is None else f", with noise of standard deviation {by['noise']:.4g}"
    caption = f"By {score} ({by['direction']}){noisy}: {tuned['chosen']} was chosen"
    grid = Grid(caption, ("candidate", *varied, score, "failed"), rows, sortable=True)
    return fragment(_page(f"tuning {run['name']}", [Section("Candidates", (grid,)), *_run(run, sentences)]))


def tried_html(tried: Mapping[str, Any]) -> str:
    """Every attack against every rule.

    Args:
        tried: What `Tried.as_dict` says.
    """
    score = NAMES.get(tried["score"], tried["score"])
    sections = [
        Section(
            f"{score} when {tried['liars']} of {tried['sites']} sites lie, {noise} noise",
            (_attacks(table, tried["worst"][noise]), *_missing(tried["why"].get(noise, {}))),
        )
        for noise, table in tried["tables"].items()
    ]
    return fragment(_page(f"attacks on {tried['name']}", sections))


def text_html(title: str, text: str) -> str:
    """A summary whose tables are made already.

    Args:
        title: What it is of.
        text: The summary.
    """
    return fragment(_page(title, [Section("Summary", (Code(text),))]))


def _page(title: str, sections: Sequence[Section]) -> Page:
    return Page(title=title, lead="", sections=tuple(sections))


def _run(run: Mapping[str, Any], sentences: Sequence[str]) -> list[Section]:
    """The header, the scores and the statement."""
    header, rows = score_table(run)
    scores = Grid("Scores on held-out records", tuple(header), tuple(tuple(row) for row in rows))
    table: list[Block] = [scores] if len(header) > 1 else []
    told = [Text(words) for words in (run.get("how", ""),) if words]
    return [
        Section("Result", (Facts(tuple(header_of(run))), *table, *told)),
        Section("The promise", tuple(Text(words) for words in sentences)),
    ]


def _attacks(table: Mapping[str, Mapping[str, float | None]], worst: Mapping[str, float | None]) -> Grid:
    rules = list(worst)
    rows = tuple(
        (attack, *(_cell(row, rule) for rule in rules)) for attack, row in {**table, "worst": worst}.items()
    )
    return Grid("A line for each attack, a column for each rule", ("attack", *rules), rows)


def _cell(row: Mapping[str, float | None], rule: str) -> str:
    value = row.get(rule)
    return "-" if value is None else f"{value:.3f}"


def _missing(why: Mapping[str, Mapping[str, str]]) -> list[Block]:
    return [
        Text(f"{rule}, {attack}: {reason}", "mind")
        for rule, reasons in why.items()
        for attack, reason in reasons.items()
    ]
