"""Results of a study in environments: a row for each run, means with intervals, and conclusions in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tacit.experiments.batch import (
    Announce,
    BatchResult,
    Row,
    Verdict,
    join_words,
    silent,
    student_interval,
    verdict_sentences,
)
from tacit.experiments.studies.environments import WorldCell, WorldStudy
from tacit.experiments.studies.regimes import ALONE, UNTRAINED, world_source
from tacit.learning.record import Simplest
from tacit.privacy.policy import Open
from tacit.reports.text import align_table, format_rows
from tacit.runs.run import judge
from tacit.sites.environments import Variants

if TYPE_CHECKING:
    import pandas as pd

    from tacit.reports.page.blocks import Page

BY = ["regime", "epsilon"]
PLAIN = ["sites", "rounds", "steps", "steps_in_all", "seconds", "spent", "delta", "agreement"]
PLAYED = ["played_low", "played_high"]
WORLD, UNSEEN = "return@", "return_unseen"
NOTHING = "-"
# A header, and rows.
Cells = tuple[tuple[str, ...], list[tuple[str, ...]]]
# Steps that differ by less than this part are as many.
ALIKE = 0.05


@dataclass(frozen=True, eq=False, kw_only=True)
class WorldStudyResult(BatchResult[WorldCell]):
    """Results of a study in environments.

    In its frame, `epsilon` is the requested one and `spent` the one in the run's statement; both are missing
    for open runs. `steps` are environment steps of one site, `steps_in_all` those of all sites.

    Args:
        batch: The study.
        rows: The row of each finished cell: its scores, or the reason that it has none.
        path: The directory of the study, with every run in it.
    """

    batch: WorldStudy

    @property
    def _columns(self) -> tuple[list[str], list[str]]:
        return [*BY, "seed", "unit", *PLAIN], ["epsilon", *PLAIN]

    @property
    def scores(self) -> list[str]:
        """Score columns of agents, without the ends of intervals."""
        known = [str(name) for name in self.frame.columns]
        first = known.index(PLAIN[-1]) + 1
        return [name for name in known[first:-1] if not name.endswith(("_low", "_high"))]

    @cached_property
    def worlds(self) -> dict[str, str]:
        """Score column of each kind of world, by its name; the mean over unseen worlds comes last."""
        found = {name.removeprefix(WORLD): name for name in self.scores if name.startswith(WORLD)}
        return found | ({"unseen": UNSEEN} if UNSEEN in self.scores and len(self.unseen) > 1 else {})

    @property
    def unseen(self) -> tuple[str, ...]:
        """Worlds in which no site trains."""
        return tuple(world_source(self.batch.experiment).unseen)

    def table(self) -> "pd.DataFrame":
        """Means over seeds of the runs that have scores, by regime and epsilon; `n` runs each.

        Beside each score are `<score>_low` and `<score>_high`, the ends of its 95 % interval: of the mean
        over seeds (Student's t), or of a single run by bootstrap over its episodes, where that is known.
        `played_low` and `played_high` are what episodes alone tell of the return, whatever other seeds do.
        """
        import pandas as pd

        scored = self.frame[self.frame["failed"].isna()]
        groups = [
            (*cast("tuple[str, float]", key), own)
            for key, own in scored.groupby(BY, sort=False, dropna=False)
        ]
        rows = [
            {
                "regime": name,
                "epsilon": asked,
                "label": self._label(name, asked),
                **_means(own, self.scores),
            }
            for name, asked, own in groups
        ]
        beside = [name for score in self.scores for name in (score, f"{score}_low", f"{score}_high")]
        return pd.DataFrame(rows, columns=[*BY, "label", "n", "unit", *PLAIN, *PLAYED, *beside]).set_index(BY)

    def above_alone(self) -> list[str]:
        """The regimes whose mean return is above that of agents alone in every world, unseen ones too."""
        means = self._by_label()
        if ALONE not in means.index or not self.worlds:
            return []
        columns = list(self.worlds.values())
        others = means.drop(index=[ALONE, *([UNTRAINED] if UNTRAINED in means.index else [])])
        better = (others[columns] > means.loc[ALONE, columns]).all(axis=1)
        return [str(label) for label in others.index[better]]

    def learnt_nothing(self) -> list[str]:
        """Return the regimes without evidence of a higher return than that of untrained policies."""
        means = self._by_label()
        if UNTRAINED not in means.index:
            return []
        floor = float(means["return"].to_dict()[UNTRAINED])
        low = means["played_low"].fillna(means["return"]).drop(index=UNTRAINED)
        return [str(label) for label in low.index[~(low > floor)]]

    def summary(self) -> str:
        """Summarize the study in text: the runs, means by regime and by world, findings, and failures."""
        return _summarise(self)

    def as_dict(self) -> dict[str, Any]:
        """The study as one document."""
        return {
            **super().as_dict(),
            "above_alone": self.above_alone(),
            "learnt_nothing": self.learnt_nothing(),
            "verdicts": [verdict.as_dict() for verdict in self.verdicts],
        }

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """The mean return of each regime beside that of untrained policies, the simplest baseline."""
        means = self._by_label()
        if UNTRAINED not in means.index:
            return []
        floor = float(means["return"].to_dict()[UNTRAINED])
        how = "the initial weights, with random actions"
        simplest = Simplest(name="an untrained policy", how=how, scores={"return": floor})
        found: list[Verdict] = []
        for label, row in means.drop(index=UNTRAINED).to_dict("index").items():
            value, low, high = (float(row[name]) for name in ("return", *PLAYED))
            # What episodes alone tell, as in `learnt_nothing`.
            gain = {} if math.isnan(low) else {"return": (low - floor, high - floor)}
            words = judge(replace(simplest, gain=gain), {"return": value})
            found.append(Verdict(label=str(label), simplest=simplest, words=words))
        return found

    def page(self) -> "Page":
        """The study as a report."""
        from tacit.experiments.report import world_page

        return world_page(self)

    def figures(self, folder: str | Path, *, announce: Announce = silent) -> dict[str, Path]:
        """Draw learning curves, returns by world, return against epsilon, clusters and weights, as PNG."""
        from tacit.experiments.studies.figures import draw

        return draw(self, Path(folder), announce)

    def films(self, folder: str | Path, *, announce: Announce = silent) -> dict[str, Path]:
        """Film the agents of the federated regime, or else of the best, in each kind of world, as GIF.

        Args:
            folder: The folder of the films; created if missing.
            announce: Receives the names of omitted films, with reasons.
        """
        from tacit.experiments.studies.figures import film_worlds

        return film_worlds(self, Path(folder), announce)

    def draw(self, folder: str | Path, *, announce: Announce = silent) -> dict[str, Path]:
        """Draw all `figures`, and `films` if the study asks for them."""
        found = super().draw(folder, announce=announce)
        if self.batch.films:
            found |= self.films(Path(folder) / "films", announce=announce)
        return found

    def _records(self) -> list[Row]:
        rows = cast("list[Row]", self.table().reset_index().to_dict("records"))
        return [{name: _plain(value) for name, value in row.items()} for row in rows]

    def _by_label(self) -> "pd.DataFrame":
        return self.table().set_index("label")

    def _label(self, regime: str, epsilon: float) -> str:
        """Return the label of a regime at an epsilon."""
        asked = None if math.isnan(epsilon) else epsilon
        found = [each for each in self.batch.regimes if (each.name, each.epsilon) == (regime, asked)]
        return found[0].label if found else regime


def _means(own: "pd.DataFrame", scores: list[str]) -> Row:
    """Return the means of runs that differ in their seeds alone."""
    found: Row = {"n": len(own), "unit": own["unit"].iloc[0]}
    # Epsilon is never averaged: the largest counts.
    found |= {name: own[name].max() if name == "spent" else own[name].mean() for name in PLAIN}
    for name in PLAYED:
        ends = f"return{name.removeprefix('played')}"
        found[name] = own[ends].mean() if ends in own else math.nan
    for name in scores:
        low, high = _interval(own, name)
        found |= {name: own[name].mean(), f"{name}_low": low, f"{name}_high": high}
    return found


def _interval(own: "pd.DataFrame", name: str) -> tuple[float, float]:
    values = own[name].dropna().to_numpy(dtype=np.float64)
    if len(values) > 1:
        return student_interval(values)
    low, high = (f"{name}{end}" for end in ("_low", "_high"))
    if low not in own or not len(values):
        return math.nan, math.nan
    return float(own[low].iloc[0]), float(own[high].iloc[0])


def _plain(value: object) -> str | float | None:
    """Convert a value for JSON; numbers that are not finite become null."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, int) else str(value)


def _summarise(studied: WorldStudyResult) -> str:
    """The summary of a study."""
    table = studied.table()
    rows = [dict(row) for row in table.reset_index().to_dict("records")]
    parts = [format_rows(_head(studied))]
    if rows:
        parts += [align_table(*cells) for cells in (regime_rows(rows), world_rows(studied, rows)) if cells[0]]
    else:
        parts.append("No run has a score.")
    notes = [*(conclusions(studied, table) if rows else []), *studied.failed_in_words()]
    return "\n\n".join(part for part in (*parts, "\n".join(notes)) if part)


def _head(studied: WorldStudyResult) -> list[tuple[str, str]]:
    common = studied.batch.experiment
    source, sites = world_source(common), common.sites
    physics = source.world
    judged = "" if physics == "gymnasium" else f" (trained in {physics}, evaluated in Gymnasium)"
    each = ""
    if isinstance(sites, Variants) and sites.worlds:
        each = f": {sites.each} each of {', '.join(sites.worlds)}"
    return [
        *(("verdict", words.rstrip(".")) for _, words in verdict_sentences(studied.verdicts)),
        ("study", studied.name),
        ("task", f"{common.task.kind} in {source.env}{judged}"),
        ("sites", f"{len(common.names or ()):,}{each}"),
        ("runs", studied.runs),
        *_promise(studied),
    ]


def _promise(studied: WorldStudyResult) -> list[tuple[str, str]]:
    """Return the promise of the private runs, for the summary."""
    promises = [regime.experiment.privacy for regime in studied.batch.regimes]
    units = {promise.unit for promise in promises if not isinstance(promise, Open)}
    rehearsed = any(not isinstance(promise, Open) and promise.rehearsal for promise in promises)
    if not units:
        return []
    whom = " or ".join(f"any one {unit}" for unit in sorted(units))
    return [("promise", f"to {whom}, for the whole run{', REHEARSAL' * rehearsed}")]


def regime_rows(rows: Sequence[dict[Any, Any]]) -> Cells:
    """Return a table of regimes: price, return, interquartile mean, training steps."""
    header = ("regime", "promise", "n", "return", "95 %", "IQM", "95 %", "steps a site", "steps in all")
    return header, [
        (
            row["label"], _price(row), str(row["n"]),
            _number(row.get("return")), _between(row, "return"),
            _number(row.get("iqm")), _between(row, "iqm"),
            f"{row['steps']:.0f}", f"{row['steps_in_all']:.0f}",
        )
        for row in rows
    ]  # fmt: skip


def world_rows(studied: WorldStudyResult, rows: Sequence[dict[Any, Any]]) -> Cells:
    """Return a table of returns by regime and world, with the agreement of clusters and worlds."""
    worlds = {_title(name, studied.unseen): score for name, score in studied.worlds.items()}
    solved = {"solved %": 100.0} if "solved" in studied.scores else {}
    apart = any(not math.isnan(row["agreement"]) for row in rows)
    if not worlds and not solved and not apart:
        return (), []
    header = ("return in", *worlds, *solved, *(["agreement"] * apart))
    return header, [
        (
            row["label"],
            *(_number(row[score]) for score in worlds.values()),
            *(_number(unit * row["solved"]) for unit in solved.values()),
            *([_number(row["agreement"], 2)] * apart),
        )
        for row in rows
    ]  # fmt: skip


def _title(name: str, unseen: Sequence[str]) -> str:
    return f"{name} (unseen)" if name in unseen else "unseen, mean" if name == "unseen" else name


def _price(row: dict[Any, Any]) -> str:
    """Format the spent epsilon of a regime for people."""
    if not isinstance(row["unit"], str):
        return "none"
    spent = "unbounded" if math.isnan(row["spent"]) else f"{row['spent']:.4g}"
    return f"epsilon {spent} at delta {row['delta']:g}"


def conclusions(studied: WorldStudyResult, table: "pd.DataFrame") -> list[str]:
    """Return the conclusions from the means, in sentences."""
    seeds = int(table["n"].max())
    found = [
        f"Means over {seeds} seeds, with the 95 % interval of the mean (Student's t)."
        if seeds > 1
        else "One seed: intervals are by bootstrap over its episodes, and do not cover the variation over "
        "seeds."
    ]
    labels = table["label"].tolist()
    if ALONE in labels and studied.worlds:
        found += _beside_alone(studied.above_alone(), table)
    futile = studied.learnt_nothing()
    if futile:
        floor = _number(table.set_index("label").loc[UNTRAINED, "return"])
        have = "has" if len(futile) == 1 else "have"
        found.append(f"{join_words(futile)} {have} learned nothing: not above an untrained policy ({floor}).")
    found += _fewer(table)
    return found


def _beside_alone(above: Sequence[str], table: "pd.DataFrame") -> list[str]:
    """Name the regimes that beat agents trained alone in every world."""
    steps = table.set_index("label")["steps"].to_dict()
    if not set(steps) - {ALONE, UNTRAINED}:
        return []
    if not above:
        return ["No regime is above agents alone in every world."]
    verb = "is" if len(above) == 1 else "are"
    # Sampling of sites makes steps vary a little.
    alike = all(abs(steps[label] / steps[ALONE] - 1) < ALIKE for label in above)
    fair = ", at as many steps a site" if alike else "; note the different numbers of steps"
    return [f"{join_words(above)} {verb} above agents alone in every world{fair}."]


def _fewer(table: "pd.DataFrame") -> list[str]:
    """Note that fewer sites train alone than in the federation, if so."""
    sites = table.set_index("label")["sites"].drop(index=UNTRAINED, errors="ignore")
    if ALONE not in sites.index or sites[ALONE] >= sites.max():
        return []
    return [
        f"Alone, {sites[ALONE]:.0f} of {sites.max():.0f} sites train: those in which agents are evaluated."
    ]


def _between(row: dict[Any, Any], name: str) -> str:
    low, high = row.get(f"{name}_low", math.nan), row.get(f"{name}_high", math.nan)
    return NOTHING if math.isnan(low) or math.isnan(high) else f"{low:.0f} to {high:.0f}"


def _number(value: Any, decimals: int = 1) -> str:  # noqa: ANN401
    return NOTHING if value is None or math.isnan(value) else f"{value:.{decimals}f}"
