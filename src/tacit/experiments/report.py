"""Reports of sweeps and studies: the verdict first, then figures, films, means, the promise, the command."""

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import tomli_w

from tacit.errors import TacitError
from tacit.experiments.batch import BatchResult, Row, interval_of, lead_verdict, verdict_sentences
from tacit.experiments.studies.curves import mean_rows, promise_in_words
from tacit.experiments.studies.environment_results import conclusions, regime_rows, world_rows
from tacit.experiments.studies.figures import drawings, pictures
from tacit.experiments.studies.regimes import UNTRAINED, world_source
from tacit.experiments.sweep_results import (
    CHOOSE,
    NOTHING,
    SweepResult,
    axis_key,
    grid,
    headline,
    price_of,
    score_format,
)
from tacit.experiments.sweeps import labels
from tacit.privacy.statement import NEIGHBORS, Statement
from tacit.reports.data import SCHEMA, score_name
from tacit.reports.page.blocks import (
    Block,
    Code,
    Facts,
    Figure,
    Film,
    Folded,
    Grid,
    Items,
    Page,
    Section,
    Text,
    Tone,
)
from tacit.reports.plots.style import Picture
from tacit.reports.plots.training import results
from tacit.reports.text import number
from tacit.runs.directory import ENVIRONMENT, Directory, environment
from tacit.runtime import files

if TYPE_CHECKING:
    from tacit.experiments.studies.curves import CurveStudyResult
    from tacit.experiments.studies.environment_results import WorldStudyResult

LISTED = "With this file, whose table [study] lists the factors:"
SWEPT = "With this file, whose table [sweep] lists the values:"
REHEARSED = "REHEARSAL: the noise repeats with the seed, so it gives no protection."
EACH = (
    "Each private run makes this promise for itself. Promises of several runs on the same data add up, so "
    "that studies are for simulated or public data and for rehearsals."
)
# Conditions that fit into one figure, and bytes of all films that a report embeds.
MOST, LARGEST = 12, 12 * 2**20
# Titles of the parts of a report on agents, by the beginning of a figure's name.
PARTS = {
    "Learning": ("learning-curves", "overlay", "side-by-side"),
    "Clusters": ("clusters-",),
    "Weights": ("weights-",),
}
# What a figure shows, by the beginning of its name.
SEEN = {
    "parties-": "Error (RIL2) by number of parties, one line for each promise",
    "selection-epsilon": "Sensitivity and specificity of the selection of predictors by epsilon",
    "selection-": "Sensitivity and specificity of the selection of predictors by number of parties",
    "privacy-utility": "Error (RIL2) by epsilon",
    "scenarios": "Return after training in each environment, by regime",
    "privacy-return": "Return by epsilon, beside what costs none",
    "learning-curves": "Return after each round, one panel for each environment",
    "overlay": "Mean return after each round, one line for each regime",
    "side-by-side": "Return after each round, one panel for each regime",
    "clusters-": "Cluster of each site after each round",
    "weights-": "Weights of the sites along training, in a plane",
}
# Scores of curves that are drawn.
SCORES = ("r2", "ril2")


def curve_page(studied: "CurveStudyResult") -> Page:
    """The report of a study of curves."""
    table = studied.table()
    blocks: list[Block] = []
    drawn = _conditions(studied)
    if drawn is not None:
        blocks.append(drawn)
    blocks += [_figure(name, picture) for name, picture in pictures(studied).items()]
    if len(table):
        header, rows = mean_rows(studied)
        caption, cells = "Means over replicates and folds, with one standard error", tuple(map(tuple, rows))
        blocks += [Grid(caption, tuple(header), cells, sortable=True), *map(Text, studied.notes())]
    else:
        blocks.append(Text("No run has a score."))
    title = f"{studied.name}: a study of curves"
    return _page(studied, title, _best_curve(studied), [Section("Result", tuple(blocks))])


def world_page(studied: "WorldStudyResult") -> Page:
    """The report of a study in environments."""
    table = studied.table()
    rows = [dict(row) for row in table.reset_index().to_dict("records")]
    figures, omitted = _draw(drawings(studied) if rows else {})
    blocks: list[Block] = [figure for figure in figures if _part_of(figure.name) is None]
    if rows:
        for caption, (header, cells) in (
            ("Means over seeds", regime_rows(rows)),
            ("Mean return in each world", world_rows(studied, rows)),
        ):
            blocks += [Grid(caption, header, tuple(cells), sortable=True)] if header else []
        blocks += [Text(words) for words in conclusions(studied, table)]
    else:
        blocks.append(Text("No run has a score."))
    blocks += [Text(words, "mind") for words in omitted]
    sections = [Section("Result", tuple(blocks))]
    for title in PARTS:
        own = tuple(figure for figure in figures if _part_of(figure.name) == title)
        sections += [Section(title, own)] if own else []
    films = tuple(_films(studied))
    sections += [Section("Films", films)] if films else []
    title = f"{studied.name}: a study in {world_source(studied.batch.experiment).env}"
    return _page(studied, title, _best_regime(studied, rows), sections)


def _page(
    studied: "CurveStudyResult | WorldStudyResult",
    title: str,
    lead: str,
    sections: Sequence[Section],
) -> Page:
    """The page around the results: verdict first, promise, runs, failures, reproduction."""
    told = verdict_sentences(studied.verdicts)
    alerts = [*told, *_alerts(studied)]
    found = {**studied.as_dict(), "reproduce": reproduction(studied, "run")}
    document = {
        "schema": SCHEMA,
        "kind": type(studied).__name__.lower(),
        **found,
        "alerts": [{"tone": tone, "words": words} for tone, words in alerts],
    }
    return Page(
        title=title,
        lead=" ".join([*lead_verdict(studied.verdicts), lead]),
        alerts=tuple(Text(words, cast("Tone", tone)) for tone, words in alerts),
        sections=(
            *sections,
            Section("The promise", tuple(_promise(studied))),
            Section("Runs", tuple(_runs(studied))),
            *([Section("Failures", tuple(failure_blocks(studied)))] if studied.failures else []),
            Section("Reproduce", tuple(reproduction_blocks(found["reproduce"], LISTED))),
        ),
        document=document,
    )


def _alerts(studied: BatchResult[Any]) -> Iterator[tuple[str, str]]:
    """Yield what a reader has to know about the study as a whole."""
    every, failed = len(studied.batch.cells), sum(map(len, studied.failures.values()))
    missing = every - len(studied.rows)
    if _statement(studied).rehearsal:
        yield "stop", REHEARSED
    if failed:
        yield "mind", f"{failed} of {every} runs failed. `tacit run --resume` tries them again."
    if missing:
        yield "mind", f"{missing} of {every} runs are still to be made. `tacit run --resume` makes them."


def _statement(studied: BatchResult[Any]) -> Statement:
    """The statement of one of the runs, with a promise if any has one."""
    return studied.batch.example.plan().statement


def _promise(studied: "CurveStudyResult | WorldStudyResult") -> Iterator[Block]:
    said = _statement(studied)
    if said.unit is None or said.relation is None:
        yield Text("No promise: every run is open, and what leaves the sites is not protected.")
        return
    whom = "no observer: they are rehearsals" if said.rehearsal else ", ".join(said.against)
    yield Text(EACH)
    yield Facts(
        (
            ("Protected unit", f"any one {said.unit}"),
            ("Neighboring data sets", NEIGHBORS[said.relation].format(unit=said.unit)),
            ("Delta", f"{said.delta:g}"),
            ("Holds against", whom),
            ("Trusted", "; ".join(said.trusted) or "no party"),
        )
    )
    prices: dict[str, tuple[str, float | None]] = {}
    for cell, row in _finished(studied):
        label, spent = _condition(studied, cell), row["spent"]
        asked = "open" if cell.epsilon is None or math.isinf(cell.epsilon) else f"{cell.epsilon:g}"
        # Prices are never averaged: the largest counts.
        before = prices.get(label, (asked, None))[1]
        prices[label] = (asked, spent if before is None else max(before, spent or 0.0))
    cells = [
        (label, asked, "-" if spent is None else f"{spent:.4g}") for label, (asked, spent) in prices.items()
    ]
    yield Grid("Epsilon of a run, by condition", ("condition", "allowed", "spent at most"), tuple(cells))
    yield Items("Not protected", said.not_protected)


def _condition(studied: "CurveStudyResult | WorldStudyResult", cell: Any) -> str:  # noqa: ANN401
    return studied.batch.condition(cell) or "all runs"


def _runs(studied: BatchResult[Any]) -> Iterator[Block]:
    """Yield a table of all runs."""
    goal = studied.batch.experiment.task.goal[0]
    rows = [
        (
            str(cell),
            _number(row.get("scores", row).get(goal), goal),
            "-" if row["spent"] is None else f"{row['spent']:.4g}",
            "-" if row["seconds"] is None else f"{row['seconds']:.1f}",
        )
        for cell, row in _finished(studied)
    ]
    yield Facts((("Runs", studied.runs),))
    if rows:
        header = ("run", score_name(goal), "epsilon", "seconds")
        yield Folded(
            f"Every run: {len(rows)}", (Grid("Runs one by one", header, tuple(rows), sortable=True),)
        )


def _finished(studied: BatchResult[Any]) -> Iterator[tuple[Any, Row]]:
    """Yield the runs with a score, in their order."""
    for cell in studied.batch.cells:
        row = studied.rows.get(cell)
        if row is not None and row["failed"] is None:
            yield cell, row


def _number(value: float | None, score: str) -> str:
    return "-" if value is None or not math.isfinite(value) else number(value, score)


def _figure(name: str, picture: Picture) -> Figure:
    """Return a figure with what it shows, and its title, which says what is seen."""
    shown = next((words for start, words in SEEN.items() if name.startswith(start)), "Results of the study")
    return Figure(name, picture, f"{shown}. {' '.join(picture.get_suptitle().split())}.")


def _conditions(studied: "CurveStudyResult") -> Figure | None:
    """Draw the scores of each condition beside the simplest baseline; None for too many conditions."""
    verdicts = studied.verdicts
    if not 0 < len(verdicts) <= MOST:
        return None
    values: dict[str, dict[str, list[float]]] = {}
    for cell, row in _finished(studied):
        own = values.setdefault(_condition(studied, cell), {})
        for name in SCORES:
            own.setdefault(name, []).append(float(row[name]))
    models: list[dict[str, Any]] = [
        {
            "name": label,
            "label": label or "federated",
            "scores": {name: sum(many) / len(many) for name, many in own.items()},
            "intervals": {
                name: (low, high)
                for name, many in own.items()
                for low, high, kind in [interval_of(many)]
                if kind == "t"
            },
        }
        for label, own in values.items()
    ]
    simplest = [verdict.simplest for verdict in verdicts if verdict.simplest is not None]
    if simplest:
        scores = {name: sum(one.scores[name] for one in simplest) / len(simplest) for name in SCORES}
        models.append({"name": "simplest", "label": simplest[0].name, "scores": scores, "intervals": {}})
    how = "95 % intervals of the mean over runs (Student's t)"
    drawn = results(
        {"models": models, "goal": ("r2", "max"), "how": how}, title=_best_curve(studied).rstrip(".")
    )
    told = "; ".join(f"{model['label']} {number(model['scores']['r2'], 'r2')}" for model in models)
    return None if drawn is None else Figure("conditions", drawn, f"Mean R2: {told}.")


def _best_curve(studied: "CurveStudyResult") -> str:
    """Return the best mean error in a sentence."""
    table = studied.table()
    if not len(table):
        return "No run has a score."
    rows = cast("list[dict[str, Any]]", table.reset_index().to_dict("records"))
    private = [row for row in rows if math.isfinite(row["epsilon"])]
    row = min(private or rows, key=lambda each: each["ril2"])
    of = f", the best of {len(private or rows)} conditions" if len(private or rows) > 1 else ""
    where = f"{row['release']} releases, {promise_in_words(row['epsilon'])}, {row['parties']} parties"
    opened = min((each["ril2"] for each in rows if each not in private), default=None)
    without = f"; RIL2 {opened:.3f} without a promise" if private and opened is not None else ""
    return f"RIL2 {row['ril2']:.3f} and R2 {row['r2']:.3f} with {where}{of}{without}."


def _best_regime(studied: "WorldStudyResult", rows: Sequence[Mapping[Any, Any]]) -> str:
    """Return the best mean return in a sentence."""
    trained = [row for row in rows if row["regime"] != UNTRAINED]
    if not trained:
        return "No run has a score."
    best = max(trained, key=lambda row: row["return"])
    of = f", the best of {len(trained)} regimes" if len(trained) > 1 else ""
    return f"Mean return {best['return']:.1f} by {best['label']}{of}."


def _draw(wanted: Mapping[str, Callable[[Path | None], object]]) -> tuple[list[Figure], list[str]]:
    """Draw all figures; return them, and sentences on those that cannot be drawn."""
    figures, omitted = list[Figure](), list[str]()
    for name, drawing in wanted.items():
        try:
            figures.append(_figure(name, cast("Picture", drawing(None))))
        except TacitError as error:
            omitted.append(f"The figure {name} is left out: {error}.")
    return figures, omitted


def _part_of(name: str) -> str | None:
    """Return the section of a figure of agents; None for the result."""
    return next((title for title, starts in PARTS.items() if name.startswith(starts)), None)


def _films(studied: "WorldStudyResult") -> Iterator[Film]:
    """Yield the films that the directory of a study holds, as many as fit into a report."""
    if studied.path is None:
        return
    labels = {regime.label.replace(" ", "-"): regime.label for regime in studied.batch.regimes}
    left = LARGEST
    for place in sorted((studied.path / "films").glob("*.gif")):
        slug = max((slug for slug in labels if place.stem.startswith(f"{slug}-")), key=len, default="")
        world = place.stem.removeprefix(f"{slug}-")
        try:
            content = files.read_bytes(place, left)
        except OSError:
            # Too large for what is left of the page, or no plain file: the report names it and shows nothing.
            content = b""
        left -= len(content)
        words = f"An agent of the regime {labels.get(slug, 'unknown')} in {world}: one episode."
        yield Film(name=place.stem, path=f"films/{place.name}", content=content, words=words)


# Sweeps


def sweep_page(swept: SweepResult) -> Page:
    """The report of a sweep."""
    document = {**swept.as_dict(), "reproduce": reproduction(swept, "sweep")}
    parts = [
        Section("Result", tuple(_sweep_result(swept))),
        Section("What runs cost", tuple(_costs(swept))),
        *([Section("Failures", tuple(failure_blocks(swept)))] if swept.failures else []),
        Section("Reproduce", tuple(reproduction_blocks(document["reproduce"], SWEPT))),
    ]
    return Page(
        title=f"{swept.name}: a sweep of {', '.join(labels(swept.keys).values())}",
        lead=" ".join([*lead_verdict(swept.verdicts), f"{headline(swept)}."]),
        alerts=tuple(Text(alert["words"], cast("Tone", alert["tone"])) for alert in swept.alerts()),
        sections=tuple(parts),
        document=document,
    )


def _sweep_result(swept: SweepResult) -> list[Block]:
    """Return the blocks of the result: the curve and its table."""
    blocks: list[Block] = []
    drawn = swept.figure()
    if drawn is not None:
        blocks.append(Figure("sweep", drawn, _describe_figure(swept)))
    header, rows = grid(swept, ends=False)
    if rows:
        blocks.append(Grid("Means over seeds", header, tuple(rows), sortable=True))
    if swept.interval:
        blocks.append(Text(f"Intervals: {swept.interval}."))
    return blocks


def _describe_figure(swept: SweepResult) -> str:
    """Describe the figure in words."""
    key = axis_key(swept)
    lines = [other for other in swept.keys if other != key]
    apart = f", one line for each {' and '.join(labels(lines).values())}" if lines else ""
    shaded = ", with its intervals" * bool(swept.interval)
    return f"{score_name(swept.goal[0])} against {key}{apart}{shaded}; the numbers are in the table below."


def _costs(swept: SweepResult) -> list[Block]:
    """Return a table of the cost of every run."""
    names = labels(swept.keys)
    rows = [
        (
            *(cell.row["changes"][key].strip("\"'") for key in swept.keys),
            str(cell.seed),
            _sweep_score(swept, row),
            _price(row),
            NOTHING if row.get("seconds") is None else f"{row['seconds']:.1f}",
        )
        for cell, row in ((cell, swept.rows[cell]) for cell in swept.batch.cells if cell in swept.rows)
    ]
    header = (*names.values(), "seed", score_name(swept.goal[0]), "spent", "seconds")
    return [
        Facts((("promise", swept.batch.promise), ("runs", swept.runs))),
        Text(CHOOSE),
        Folded(f"Every run: {len(rows)}", (Grid("Runs one by one", header, tuple(rows), sortable=True),)),
    ]


def _sweep_score(swept: SweepResult, row: dict[str, Any]) -> str:
    found = row.get("scores", {}).get(swept.goal[0])
    return NOTHING if found is None else score_format(swept).format(found)


def _price(row: dict[str, Any]) -> str:
    return "failed" if row["failed"] is not None else price_of(row)


def failure_blocks(swept: BatchResult[Any]) -> list[Block]:
    """Return the runs without a score, by the reason."""
    return [Items(reason, tuple(map(str, cells))) for reason, cells in swept.failures.items()]


def reproduction(swept: BatchResult[Any], verb: str) -> dict[str, Any]:
    """Return the command, the experiment file, and the environment."""
    known = Directory(swept.path).read_json(ENVIRONMENT)
    return {
        "command": f"tacit {verb} {shlex.quote(swept.name)}.toml",
        "experiment": tomli_w.dumps(swept.batch.document),
        "environment": known or environment(),
    }


def reproduction_blocks(told: dict[str, Any], words: str) -> list[Block]:
    """Return the command with its file, under a few words."""
    versions = tuple((name, str(version)) for name, version in told["environment"].items())
    return [
        Text(words),
        Code(told["command"]),
        Folded("The file", (Code(told["experiment"]),)),
        Folded("What it ran on", (Facts(versions),)),
    ]
