"""A study of worlds as text: what was run, what regimes come to, and what that shows."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tacit.experiments.studies.environments.regimes import ALONE, UNTRAINED
from tacit.privacy.policy import Open
from tacit.reports.text import align_table, format_rows

if TYPE_CHECKING:
    import pandas as pd

    from tacit.experiments.studies.environments.result import WorldStudyResult

NOTHING = "-"
# Steps that differ by less than this part are as many.
ALIKE = 0.05


def summarise(studied: "WorldStudyResult") -> str:
    """The summary of a study."""
    table = studied.table()
    rows = [dict(row) for row in table.reset_index().to_dict("records")]
    parts = [format_rows(_head(studied))]
    if rows:
        parts += [_by_regime(rows), _by_world(studied, rows)]
    else:
        parts.append("No run has a score.")
    notes = [*(_conclusions(studied, table) if rows else []), *studied.failed_in_words()]
    return "\n\n".join(part for part in (*parts, "\n".join(notes)) if part)


def _head(studied: "WorldStudyResult") -> list[tuple[str, str]]:
    common = studied.study.experiment
    data, sites = common.data, common.sites
    physics = getattr(data, "world", "gymnasium")
    judged = "" if physics == "gymnasium" else f" (trained in {physics}, judged in Gymnasium)"
    kinds = list(getattr(sites, "worlds", {}))
    each = f": {getattr(sites, 'each', 1)} each of {', '.join(kinds)}" if kinds else ""
    return [
        ("study", studied.name),
        ("task", f"{common.task.kind} in {getattr(data, 'env', data.kind)}{judged}"),
        ("sites", f"{len(sites.names):,}{each}"),
        ("runs", studied.runs),
        *_promise(studied),
    ]


def _promise(studied: "WorldStudyResult") -> list[tuple[str, str]]:
    """What every private run promises to whom."""
    promises = [regime.experiment.privacy for regime in studied.study.regimes]
    units = {promise.unit for promise in promises if not isinstance(promise, Open)}
    rehearsed = any(not isinstance(promise, Open) and promise.rehearsal for promise in promises)
    if not units:
        return []
    whom = " or ".join(f"any one {unit}" for unit in sorted(units))
    return [("promise", f"to {whom}, for the whole run{', REHEARSAL' * rehearsed}")]


def _by_regime(rows: Sequence[dict[Any, Any]]) -> str:
    """What each regime promises, returns, and is trained by."""
    header = ("regime", "promise", "n", "return", "95 %", "IQM", "95 %", "steps a site", "steps in all")
    return align_table(header, [
        (
            row["label"], _price(row), str(row["n"]),
            _number(row.get("return")), _between(row, "return"),
            _number(row.get("iqm")), _between(row, "iqm"),
            f"{row['steps']:.0f}", f"{row['steps_in_all']:.0f}",
        )
        for row in rows
    ])  # fmt: skip


def _by_world(studied: "WorldStudyResult", rows: Sequence[dict[Any, Any]]) -> str:
    """What each regime returns in each world, and how well its clusters are the worlds."""
    worlds = {_title(name, studied.unseen): score for name, score in studied.worlds.items()}
    solved = {"solved %": 100.0} if "solved" in studied.scores else {}
    apart = any(not math.isnan(row["agreement"]) for row in rows)
    if not worlds and not solved and not apart:
        return ""
    header = ("return in", *worlds, *solved, *(["agreement"] * apart))
    return align_table(header, [
        (
            row["label"],
            *(_number(row[score]) for score in worlds.values()),
            *(_number(unit * row["solved"]) for unit in solved.values()),
            *([_number(row["agreement"], 2)] * apart),
        )
        for row in rows
    ])  # fmt: skip


def _title(name: str, unseen: Sequence[str]) -> str:
    return f"{name} (unseen)" if name in unseen else "unseen, mean" if name == "unseen" else name


def _price(row: dict[Any, Any]) -> str:
    """What a regime truly costs, for people."""
    if not isinstance(row["unit"], str):
        return "none"
    spent = "unbounded" if math.isnan(row["spent"]) else f"{row['spent']:.4g}"
    return f"epsilon {spent} at delta {row['delta']:g}"


def _conclusions(studied: "WorldStudyResult", table: "pd.DataFrame") -> list[str]:
    """What the means show, in sentences."""
    seeds = int(table["n"].max())
    found = [
        f"Means over {seeds} seeds, with the 95 % interval of the mean (Student's t)."
        if seeds > 1
        else "One seed: intervals are by bootstrap over its episodes, and say nothing of other seeds."
    ]
    labels = table["label"].tolist()
    if ALONE in labels and studied.worlds:
        found += _beside_alone(studied.above_alone(), table)
    futile = studied.learnt_nothing()
    if futile:
        floor = _number(table.set_index("label").loc[UNTRAINED, "return"])
        have = "has" if len(futile) == 1 else "have"
        found.append(
            f"{_join_words(futile)} {have} learnt nothing: not above a policy nobody has trained ({floor})."
        )
    found += _fewer(table)
    return found


def _beside_alone(above: Sequence[str], table: "pd.DataFrame") -> list[str]:
    """Which regimes are worth their trouble to every world."""
    steps = table.set_index("label")["steps"].to_dict()
    if not set(steps) - {ALONE, UNTRAINED}:
        return []
    if not above:
        return ["No regime is above agents alone in every world."]
    verb = "is" if len(above) == 1 else "are"
    # Where sites are drawn by chance, steps are a little more or less.
    alike = all(abs(steps[label] / steps[ALONE] - 1) < ALIKE for label in above)
    fair = ", at as many steps a site" if alike else "; mind the steps a site"
    return [f"{_join_words(above)} {verb} above agents alone in every world{fair}."]


def _fewer(table: "pd.DataFrame") -> list[str]:
    """Where fewer sites train alone than together."""
    sites = table.set_index("label")["sites"].drop(index=UNTRAINED, errors="ignore")
    if ALONE not in sites.index or sites[ALONE] >= sites.max():
        return []
    return [f"Alone, {sites[ALONE]:.0f} of {sites.max():.0f} sites train: those that agents are judged in."]


def _between(row: dict[Any, Any], name: str) -> str:
    low, high = row.get(f"{name}_low", math.nan), row.get(f"{name}_high", math.nan)
    return NOTHING if math.isnan(low) or math.isnan(high) else f"{low:.0f} to {high:.0f}"


def _number(value: Any, decimals: int = 1) -> str:  # noqa: ANN401
    return NOTHING if value is None or math.isnan(value) else f"{value:.{decimals}f}"


def _join_words(words: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)
