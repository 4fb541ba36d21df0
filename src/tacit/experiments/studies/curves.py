"""One experiment on curves, repeated over subjects, parties, folds and promises.

The table [study] says what varies, and every combination is a cell: some parties, some subjects held out, one
promise. Reading one touches no data.

Its results are a row for each run, their means, a summary and figures.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from tacit.errors import InvalidFile, InvalidValue, require, require_count, require_positive, require_word
from tacit.experiments.batch import (
    Announce,
    BatchResult,
    Cell,
    CellBatch,
    Row,
    Scored,
    Verdict,
    count_words,
    finite,
    judge_runs,
    require_distinct,
    row_of,
    silent,
    verdict_sentences,
    without_workers,
)
from tacit.experiments.experiment import Experiment, construct_experiment
from tacit.functional.data.sources import RESPONSE, SimulatedCurves, hold_out_fold
from tacit.functional.metrics import sensitivity, specificity
from tacit.functional.tasks import Boosting
from tacit.learning.record import plain_table
from tacit.privacy.policy import Open, Privacy
from tacit.reports.text import align_table, format_rows
from tacit.runtime.keys import Key
from tacit.runtime.tables import Table, construct, portable
from tacit.runtime.threads import cores
from tacit.sites.vertical import ByParty, Subjects

if TYPE_CHECKING:
    import pandas as pd

    from tacit.functional.data import CurveSet
    from tacit.functional.model import Model
    from tacit.reports.page.blocks import Page

Release = Literal["local", "moments"]
OPEN = "open"
RELEASES: tuple[Release, ...] = ("local", "moments")
SCORES = ("r2", "ril2", "rmse", "nrmse", "smape", "wmape", "sensitivity", "specificity")


@dataclass(frozen=True, kw_only=True)
class CurveFactors:
    """Factors of a study of curves: the table [study].

    Args:
        replicates: The number of draws of subjects from the same truth.
        parties: Numbers of parties that divide the predictors, in turn; by default as in [sites].
        folds: The number of cross-validation folds of the subjects.
        epsilons: Budgets of a run for all parties together, or `open`; by default as in [privacy].
        releases: The kinds of release of a party, `local` or `moments`; by default as in [task].
        workers: The number of processes; by default the number of cores.
    """

    replicates: int = 1
    parties: tuple[int, ...] | None = None
    folds: int = 4
    epsilons: tuple[float | str, ...] | None = None
    releases: tuple[str, ...] | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        require_count("replicates", self.replicates)
        require_count("folds", self.folds)
        require(self.folds > 1, "folds", self.folds, "at least 2: one is held out, and the others learn")
        if self.workers is not None:
            require_count("workers", self.workers)
        require_distinct(parties=self.parties, epsilons=self.epsilons, releases=self.releases)
        for count in self.parties or ():
            require_count("parties", count)
        for epsilon in self.epsilons or ():
            if isinstance(epsilon, str):
                require_word("epsilons", epsilon, (OPEN,))
            else:
                require_positive("epsilons", epsilon)
        for release in self.releases or ():
            require_word("releases", release, RELEASES)


@dataclass(frozen=True, kw_only=True)
class CurveCell(Cell):
    """One run of a study of curves.

    Args:
        replicate: The number of the draw of subjects from the same truth.
        fold: The held-out fold, from 0.
        release: The kind of release of a party.
        epsilon: The budget of all parties together; infinite for an open run.
        parties: The number of parties that divide the predictors.
    """

    replicate: int
    fold: int
    release: Release
    epsilon: float
    parties: int

    def __str__(self) -> str:
        return (
            f"{self.release}, {promise_in_words(self.epsilon)}, {self.parties} parties, "
            f"replicate {self.replicate}, fold {self.fold}"
        )

    @property
    def row(self) -> Row:
        """Plain data for JSON, which has no infinity."""
        return {**asdict(self), "epsilon": OPEN if math.isinf(self.epsilon) else self.epsilon}

    @classmethod
    def from_row(cls, row: Row) -> Self:
        """The cell that a row is about."""
        return super().from_row({**row, "epsilon": math.inf if row["epsilon"] == OPEN else row["epsilon"]})

    def seed(self, study: int) -> int:
        """Seed of its run, derived from its name, so that every cell has its own noise."""
        key = Key(study) / "study" / self.replicate / self.fold / self.release / repr(self.epsilon)
        return int((key / self.parties).generator().integers(2**62))


@dataclass(frozen=True, kw_only=True)
class CurveStudy(CellBatch[CurveCell, "CurveStudyResult"]):
    """Study of curves: an experiment file with a table [study].

    Args:
        experiment: The experiment that is repeated.
        replicates: The numbers of the draws of subjects.
        folds: The number of cross-validation folds.
        parties: The numbers of parties.
        epsilons: The budgets; infinite for an open run.
        releases: The kinds of release of a party.
        document: As for any batch; so are `folder` and `workers`.
    """

    replicates: tuple[int, ...]
    folds: int
    parties: tuple[int, ...]
    epsilons: tuple[float, ...]
    releases: tuple[Release, ...]

    @classmethod
    def construct(cls, document: Table, folder: Path) -> Self:
        """Construct the study of a document."""
        factors = construct(CurveFactors, "study", document["study"])
        _refuse_twice(document, factors)
        rest = {name: value for name, value in document.items() if name != "study"}
        experiment = construct_experiment(_with_promise(rest, factors), folder)
        experiment = replace(experiment, data=_simulation(experiment, factors))
        data, sites, _ = parts_of(experiment)
        study = cls(
            experiment=experiment,
            replicates=tuple(data.replicate + number for number in range(factors.replicates)),
            folds=factors.folds,
            parties=factors.parties or (len(sites.names),),
            epsilons=_epsilons(experiment, factors),
            releases=_releases(experiment, factors),
            document=without_workers(portable(document, folder)),
            folder=folder,
            workers=factors.workers or cores(),
        )
        _require_predictors(study)
        return study

    @property
    def cells(self) -> tuple[CurveCell, ...]:
        """Every combination; neighbors share their subjects."""
        every = product(self.replicates, range(self.folds), self.releases, self.epsilons, self.parties)
        return tuple(
            CurveCell(replicate=replicate, fold=fold, release=release, epsilon=epsilon, parties=parties)
            for replicate, fold, release, epsilon, parties in every
        )

    @property
    def example(self) -> Experiment:
        """One of the runs, with a promise if any has one."""
        private = [cell for cell in self.cells if not math.isinf(cell.epsilon)]
        return experiment_for(self.experiment, (private or self.cells)[0])

    @property
    def size(self) -> str:
        """Number of runs by factor, in words."""
        parts = [
            count_words(len(self.replicates), "replicate"),
            count_words(self.folds, "fold"),
            count_words(len(self.releases), "release"),
            count_words(len(self.epsilons), "promise"),
            count_words(len(self.parties), "number", " of parties"),
        ]
        return " x ".join(part for part in parts if not part.startswith("1 "))

    def check(self) -> None:
        """Refuse options that no run of the study could have, before data are drawn."""
        for cell in self.cells[: len(self.releases) * len(self.epsilons) * len(self.parties)]:
            if cell.parties == self.parties[0]:
                _ = experiment_for(self.experiment, cell).plan()

    def run_cell(self, cell: CurveCell, place: Path | None) -> Row:
        """Run a cell and return its row; nothing else is stored."""
        return row_of(cell, lambda: _score(self.experiment, cell, self.folds))

    def outcome(self, row: Row) -> str:
        """Return the prediction error and the duration of a run, in words."""
        error = "unknown" if row["ril2"] is None else f"{row['ril2']:.4f}"
        return f"RIL2 {error}, {row['seconds']:.1f} s"

    def condition(self, cell: CurveCell) -> str:
        """Return the factors of a cell in words, without what runs are averaged over and what is common."""
        parts = {
            cell.release: len(self.releases) > 1,
            promise_in_words(cell.epsilon): len(self.epsilons) > 1,
            count_words(cell.parties, "party").replace("partys", "parties"): len(self.parties) > 1,
        }
        return ", ".join(words for words, varied in parts.items() if varied)

    def result(self, rows: Mapping[CurveCell, Row], path: Path | None) -> "CurveStudyResult":
        """Return the results of the study."""
        return CurveStudyResult(batch=self, rows=rows, path=path)


def promise_in_words(epsilon: float) -> str:
    """Format the budget of a run for people."""
    return OPEN if math.isinf(epsilon) else f"epsilon {epsilon:g}"


def experiment_for(experiment: Experiment, cell: CurveCell) -> Experiment:
    """The experiment of a cell. Its epsilon is for all parties together, however many there are."""
    privacy = experiment.privacy
    if math.isinf(cell.epsilon):
        privacy = Open()
    elif isinstance(privacy, Privacy):
        # The release decides who adds the noise: local releases are noised at the site.
        apart = cell.release == "local"
        noise = "site" if apart else "server" if privacy.noise == "site" else privacy.noise
        privacy = replace(privacy, epsilon=cell.epsilon, noise=noise)
    data, sites, task = parts_of(experiment)
    if not sites.parties:
        sites = replace(sites, count=cell.parties)
    return replace(
        experiment,
        privacy=privacy,
        task=replace(task, release=cell.release),
        sites=sites,
        data=replace(data, replicate=cell.replicate),
        seed=cell.seed(experiment.seed),
        baselines=False,
    )


def parts_of(experiment: Experiment) -> tuple[SimulatedCurves, ByParty, Boosting]:
    """Data, parties and task of a study, which was refused with any others."""
    data, sites, task = experiment.data, experiment.sites, experiment.task
    assert isinstance(data, SimulatedCurves)
    assert isinstance(sites, ByParty)
    assert isinstance(task, Boosting)
    return data, sites, task


def _score(experiment: Experiment, cell: CurveCell, folds: int) -> Row:
    chosen = experiment_for(experiment, cell)
    # The truth is that of the study: it depends on its own seed alone.
    data, sites, _ = parts_of(chosen)
    made = subjects(data, experiment.seed)
    federation = hold_out_fold(made, data, sites, cell.fold, folds)
    began = time.perf_counter()
    run = chosen.run_on(federation, None)
    seconds = time.perf_counter() - began
    model, held_out = cast("Model", run.model), cast(Subjects, federation.held_out)
    found = model.score(held_out.columns, held_out[RESPONSE])
    found["sensitivity"] = sensitivity(model.selected, made.active)
    found["specificity"] = specificity(model.selected, made.active, model.predictors)
    return {
        "spent": run.privacy.epsilon,
        **{name: finite(found[name]) for name in SCORES},
        "selected": list(model.selected),
        "steps": model.steps,
        "seconds": seconds,
        "bytes": model.bytes_sent,
        "floor": made.noise,
        "simplest": plain_table(run.record.simplest) if run.record.simplest else None,
    }


@lru_cache(maxsize=1)
def subjects(data: SimulatedCurves, seed: int) -> "CurveSet":
    """The simulated subjects; kept, since neighboring cells share them."""
    from tacit.functional.data import simulate

    options = {name: value for name, value in vars(data).items() if name != "held_out"}
    return simulate(**options, seed=seed)


def _refuse_twice(document: Table, factors: CurveFactors) -> None:
    """Refuse options that are given in [study] and in a table of their own."""
    if "attack" in document:
        raise InvalidFile("it has a table [attack]: a study has no dishonest sites, remove it")
    twice = (
        ("sites", "count", "parties", factors.parties),
        ("sites", "parties", "parties", factors.parties),
        ("privacy", "epsilon", "epsilons", factors.epsilons),
        ("task", "release", "releases", factors.releases),
        ("data", "held_out", "folds", factors.folds),
    )
    for name, key, factor, varied in twice:
        said = document.get(name)
        if varied is not None and isinstance(said, dict) and key in said:
            raise InvalidFile(
                f"[{name}] {key} is given twice: remove it, [study] {factor} gives it for every run"
            )


def _with_promise(document: Table, factors: CurveFactors) -> Table:
    """Return the document with the first studied epsilon, which each cell replaces."""
    numbers = [epsilon for epsilon in factors.epsilons or () if not isinstance(epsilon, str)]
    privacy = document.get("privacy")
    if isinstance(privacy, dict) and "noise_multiplier" in privacy:
        raise InvalidFile("[privacy] noise_multiplier does not go with [study]: give epsilon instead")
    if not numbers:
        return document
    if privacy is None:
        raise InvalidFile(
            f"[privacy] is missing: epsilons = {list(factors.epsilons or ())} need its delta and its clip"
        )
    return (
        {**document, "privacy": {**privacy, "epsilon": numbers[0]}} if isinstance(privacy, dict) else document
    )


def _simulation(experiment: Experiment, factors: CurveFactors) -> SimulatedCurves:
    """Return the simulated data, of which a fold is held out."""
    data = experiment.data
    if not isinstance(data, SimulatedCurves) or experiment.task.layout != "columns":
        told = f"[task] {experiment.task.kind} on [data] {data.kind} cannot be studied"
        raise InvalidFile(
            f'{told}: use "functional-boosting" on "{SimulatedCurves.kind}", whose true surfaces are known '
            'and whose subjects are simulated; or "ppo" on "gymnasium"'
        )
    allowed = f"at most {data.records}, as there are subjects"
    require(factors.folds <= data.records, "[study] folds", factors.folds, allowed)
    return replace(data, held_out=1 / factors.folds)


def _epsilons(experiment: Experiment, factors: CurveFactors) -> tuple[float, ...]:
    privacy = experiment.privacy
    if factors.epsilons is not None:
        if isinstance(privacy, Open) and any(epsilon != OPEN for epsilon in factors.epsilons):
            raise InvalidValue('[privacy] kind = "open" makes no promise: remove it, or the epsilons')
        return tuple(math.inf if isinstance(epsilon, str) else epsilon for epsilon in factors.epsilons)
    return (math.inf,) if isinstance(privacy, Open) else (cast(float, privacy.epsilon),)


def _releases(experiment: Experiment, factors: CurveFactors) -> tuple[Release, ...]:
    if factors.releases is not None:
        return cast("tuple[Release, ...]", factors.releases)
    return (cast(Release, parts_of(experiment)[2].with_privacy(experiment.privacy).release),)


def _require_predictors(study: CurveStudy) -> None:
    """Refuse more parties than there are predictors to be divided."""
    known = len(subjects(replace(parts_of(study.experiment)[0], records=1), 0).predictors)
    for count in study.parties:
        require(count <= known, "[study] parties", count, f"at most {known}, as there are predictors")


# Results


BY = ("release", "epsilon", "parties")
MEASURES = (*SCORES, "seconds", "bytes")
COLUMNS = [*BY, "replicate", "fold", "spent", *SCORES, "selected", "steps", "seconds", "bytes", "floor"]
NUMBERS = ["epsilon", "spent", "floor", *MEASURES]
# Means in the summary: label, decimals, and factor of the unit.
SHOWN = {
    "r2": ("R2", 3, 1.0),
    "ril2": ("RIL2", 3, 1.0),
    "nrmse": ("NRMSE", 3, 1.0),
    "wmape": ("WMAPE %", 1, 1.0),
    "sensitivity": ("sensitivity", 2, 1.0),
    "specificity": ("specificity", 2, 1.0),
    "seconds": ("seconds", 2, 1.0),
    "bytes": ("MB sent", 2, 2.0**20),
}
# These are told with their standard errors.
JUDGED = ("r2", "ril2")


@dataclass(frozen=True, eq=False, kw_only=True)
class CurveStudyResult(BatchResult[CurveCell]):
    """Results of a study of curves.

    In its frame, `epsilon` is the requested one, infinite for an open run, and `spent` is the one in the
    run's statement; `floor` is the RIL2 of the true regression, which no method is expected to beat.

    Args:
        batch: The study.
        rows: The row of each finished cell: its scores, or the reason that it has none.
        path: The directory of the study.
    """

    batch: CurveStudy

    @property
    def _columns(self) -> tuple[list[str], list[str]]:
        return COLUMNS, NUMBERS

    def _factors(self, cell: CurveCell) -> Row:
        return {"epsilon": cell.epsilon}

    def table(self, by: Sequence[str] = BY) -> "pd.DataFrame":
        """Means of the runs that have scores, by release, epsilon and parties; `n` runs each.

        Beside each mean is its standard error, sd / sqrt(n), in `<score>_error`. Runs of one replicate share
        subjects, so that it is a little too small where folds outnumber replicates.
        """
        import pandas as pd

        groups = self.frame[self.frame["failed"].isna()].groupby(list(by), sort=False)
        measures = list(MEASURES)
        means, errors = groups[measures].mean(), groups[measures].sem().add_suffix("_error")
        beside = [name for measure in measures for name in (measure, f"{measure}_error")]
        return pd.concat([groups.size().rename("n"), means, errors], axis=1)[["n", *beside]]

    def summary(self) -> str:
        """Summarize the study in text: the runs, the means, and the failures."""
        table = align_table(*mean_rows(self)) if len(self.table()) else "No run has a score."
        parts = [format_rows(self._head()), table]
        return "\n\n".join(part for part in (*parts, "\n".join(self.notes())) if part)

    def _records(self) -> list[Row]:
        rows = cast("list[Row]", self.table().reset_index().to_dict("records"))
        return [{**row, "epsilon": OPEN if math.isinf(row["epsilon"]) else row["epsilon"]} for row in rows]

    def figures(self, folder: str | Path, *, announce: Announce = silent) -> dict[str, Path]:
        """Draw the error by number of parties, the price, and the selection of predictors, as PNG."""
        from tacit.experiments.studies.figures import pictures
        from tacit.reports.plots.style import save_figure

        found: dict[str, Path] = {}
        for name, picture in pictures(self).items():
            Path(folder).mkdir(parents=True, exist_ok=True)
            found[name] = Path(folder) / f"{name}.png"
            save_figure(picture, found[name])
        return found

    def page(self) -> "Page":
        """The study as a report."""
        from tacit.experiments.report import curve_page

        return curve_page(self)

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """Means of each condition beside those of the mean curve, the simplest baseline."""
        groups: dict[str, list[Scored]] = {}
        for cell in self._in_order():
            row = self.rows.get(cell)
            if row is not None and row["failed"] is None:
                scores = {name: row[name] for name in SCORES}
                groups.setdefault(self.batch.condition(cell), []).append((scores, row.get("simplest")))
        return [judge_runs(label, runs) for label, runs in groups.items()]

    def as_dict(self) -> dict[str, Any]:
        """The study as one document."""
        return {**super().as_dict(), "verdicts": [verdict.as_dict() for verdict in self.verdicts]}

    def _in_order(self) -> list[CurveCell]:
        releases, epsilons = self.batch.releases, self.batch.epsilons

        def place(cell: CurveCell) -> tuple[int, int, int]:
            return releases.index(cell.release), epsilons.index(cell.epsilon), cell.parties

        return sorted(self.batch.cells, key=place)

    def _head(self) -> list[tuple[str, str]]:
        data, _, task = parts_of(self.batch.experiment)
        return [
            *(("verdict", words.rstrip(".")) for _, words in verdict_sentences(self.verdicts)),
            ("study", self.name),
            ("task", task.kind),
            ("data", f"{data.kind}, {data.design}: {data.records:,} subjects in {self.batch.folds} folds"),
            ("runs", self.runs),
            *self._promise(),
        ]

    def _promise(self) -> list[tuple[str, str]]:
        """Return the promise that all private runs share, for the summary."""
        promise = self.batch.example.privacy
        if isinstance(promise, Open):
            return []
        common = f"delta {promise.delta:g} for any one {promise.unit}{', REHEARSAL' * promise.rehearsal}"
        return [("promise", f"epsilon for all parties in total, for any number; {common}")]

    def notes(self) -> list[str]:
        """Return sentences below the means: what they are, the best that is possible, and failures."""
        found = list[str]()
        if len(self.frame) and self.frame["floor"].notna().any():
            floor = float(self.frame["floor"].mean())
            found.append(
                f"Means over replicates and folds, ± one standard error. A share of {floor:.3f} (RIL2) of "
                "the response cannot be predicted."
            )
        return found + self.failed_in_words()


def mean_rows(studied: CurveStudyResult) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of means: by condition, of the simplest baseline, and of the truth."""
    header = [*BY, "n", *(words for words, _, _ in SHOWN.values())]
    rows = [
        [
            row["release"],
            OPEN if math.isinf(row["epsilon"]) else f"{row['epsilon']:g}",
            str(row["parties"]),
            str(row["n"]),
            *(_cell(row, name) for name in SHOWN),
        ]
        for row in studied.table().reset_index().to_dict("records")
    ]
    simplest = [verdict.simplest for verdict in studied.verdicts if verdict.simplest is not None]
    if simplest:
        scores = {name: sum(one.scores[name] for one in simplest) / len(simplest) for name in JUDGED}
        rows.append(_reference_row(simplest[0].name, scores))
    if studied.frame["floor"].notna().any():
        rows.append(_reference_row("true regression", {"ril2": float(studied.frame["floor"].mean())}))
    return header, rows


def _reference_row(name: str, scores: Mapping[str, float]) -> list[str]:
    """Return the row of what was not trained."""
    told = [f"{scores[score]:.{SHOWN[score][1]}f}" if score in scores else "-" for score in SHOWN]
    return [name, *["-"] * len(BY), *told]


def _cell(row: Mapping[Any, Any], name: str) -> str:
    _, decimals, unit = SHOWN[name]
    if not math.isfinite(row[name]):
        return "-"
    error = row[f"{name}_error"]
    beside = f" ± {error:.{decimals}f}" if name in JUDGED and math.isfinite(error) else ""
    return f"{row[name] / unit:.{decimals}f}{beside}"
