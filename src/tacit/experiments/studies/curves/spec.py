"""The table [study]: what is varied, and every combination of it as a cell. Reading one touches no data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tacit.errors import InvalidFile, InvalidValue, require, require_count, require_positive, require_word
from tacit.experiments.experiment import Experiment, construct_experiment
from tacit.experiments.studies.base import Row, Study, Table
from tacit.experiments.studies.curves.cells import (
    OPEN,
    CurveCell,
    Release,
    cell_of,
    experiment_for,
    score_cell,
    subjects,
)
from tacit.functional.data.sources import SimulatedCurves
from tacit.privacy.contracts import layout_of
from tacit.privacy.policy import Open
from tacit.runtime.tables import construct, portable
from tacit.runtime.threads import cores

if TYPE_CHECKING:
    from tacit.experiments.studies.curves.result import CurveStudyResult

RELEASES: tuple[Release, ...] = ("local", "moments")


@dataclass(frozen=True, kw_only=True)
class CurveFactors:
    """What is varied.

    Args:
        replicates: How many draws of subjects, of the same truth.
        parties: How many parties divide the predictors, in turn; as in [sites] if not said.
        folds: Into how many parts the subjects are divided, each scored by what the others have learnt.
        epsilons: What a run may cost all parties together, or `open`; as in [privacy] if not said.
        releases: What leaves a party, `local` or `moments`; as in [task] if not said.
        workers: How many processes share the work; as many as there are cores if not said.
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
        for name in ("parties", "epsilons", "releases"):
            _require_distinct(name, getattr(self, name))
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
class CurveStudy(Study[CurveCell]):
    """What an experiment file with a table [study] asks for, of curves.

    Args:
        experiment: What is repeated.
        replicates: Which draws of subjects.
        folds: Into how many parts they are divided.
        parties: The numbers of parties.
        epsilons: What a run may cost; infinite where nothing is promised.
        releases: What leaves a party.
        document: As for any study; so are `folder` and `workers`.
    """

    replicates: tuple[int, ...]
    folds: int
    parties: tuple[int, ...]
    epsilons: tuple[float, ...]
    releases: tuple[Release, ...]

    @property
    def cells(self) -> tuple[CurveCell, ...]:
        """Every combination; neighbours share their subjects."""
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
        """How many runs, and of what, in words."""
        parts = [
            _many(len(self.replicates), "replicate"),
            _many(self.folds, "fold"),
            _many(len(self.releases), "release"),
            _many(len(self.epsilons), "promise"),
            _many(len(self.parties), "number", " of parties"),
        ]
        return " x ".join(part for part in parts if not part.startswith("1 "))

    def check(self) -> None:
        """Refuse what no run of it could have, before anything is drawn."""
        for cell in self.cells[: len(self.releases) * len(self.epsilons) * len(self.parties)]:
            if cell.parties == self.parties[0]:
                _ = experiment_for(self.experiment, cell).plan()

    def run_cell(self, cell: CurveCell, place: Path | None) -> Row:
        """The row of a cell; nothing else is kept of it."""
        return score_cell(self.experiment, cell, self.folds)

    def outcome(self, row: Row) -> str:
        """How far off predictions are, and how long that took."""
        error = "unknown" if row["ril2"] is None else f"{row['ril2']:.4f}"
        return f"RIL2 {error}, {row['seconds']:.1f} s"

    def cell_of(self, row: Row) -> CurveCell:
        """The cell that a row is about."""
        return cell_of(row)

    def result(self, rows: Mapping[CurveCell, Row], path: Path | None) -> "CurveStudyResult":
        """What came of it."""
        from tacit.experiments.studies.curves.result import CurveStudyResult

        return CurveStudyResult(study=self, rows=rows, path=path)


def construct_study(document: Table, folder: Path) -> CurveStudy:
    """The study that a document says."""
    factors = construct(CurveFactors, "study", document["study"])
    _refuse_twice(document, factors)
    rest = {name: value for name, value in document.items() if name != "study"}
    experiment = construct_experiment(_with_promise(rest, factors), folder)
    experiment = replace(experiment, data=_simulation(experiment, factors))
    study = CurveStudy(
        experiment=experiment,
        replicates=tuple(experiment.data.replicate + number for number in range(factors.replicates)),
        folds=factors.folds,
        parties=factors.parties or (len(experiment.sites.names),),
        epsilons=_epsilons(experiment, factors),
        releases=_releases(experiment, factors),
        document=_without_workers(portable(document, folder)),
        folder=folder,
        workers=factors.workers or cores(),
    )
    _require_predictors(study)
    return study


def _without_workers(document: Table) -> Table:
    """The document without the number of processes: a study may be resumed on another machine."""
    document["study"].pop("workers", None)
    return document


def _refuse_twice(document: Table, factors: CurveFactors) -> None:
    """Refuse what is said in [study] and in a table of its own as well."""
    if "attack" in document:
        raise InvalidFile("it has a table [attack]: what is studied has no liars, leave it out")
    twice = {
        ("sites", "count"): factors.parties,
        ("sites", "parties"): factors.parties,
        ("privacy", "epsilon"): factors.epsilons,
        ("task", "release"): factors.releases,
        ("data", "held_out"): factors.folds,
    }
    names = {"sites": "parties", "privacy": "epsilons", "task": "releases", "data": "folds"}
    for (name, key), varied in twice.items():
        said = document.get(name)
        if varied is not None and isinstance(said, dict) and key in said:
            raise InvalidFile(
                f"[{name}] {key} is said twice: leave it out, [study] {names[name]} says it for every run"
            )


def _with_promise(document: Table, factors: CurveFactors) -> Table:
    """The document with one of the promises that are studied, which is then exchanged for each."""
    numbers = [epsilon for epsilon in factors.epsilons or () if not isinstance(epsilon, str)]
    privacy = document.get("privacy")
    if isinstance(privacy, dict) and "noise_multiplier" in privacy:
        raise InvalidFile("[privacy] noise_multiplier does not go with [study]: say what a run may cost")
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
    """The data, of which a fold is held out."""
    data = experiment.data
    if not isinstance(data, SimulatedCurves) or layout_of(experiment.task) != "columns":
        told = f"[task] {experiment.task.kind} on [data] {data.kind} cannot be studied"
        raise InvalidFile(
            f'{told}: use "functional-boosting" on "{SimulatedCurves.kind}", whose truth is known and whose '
            'subjects are nobody\'s secret; or "ppo" on "gymnasium"'
        )
    allowed = f"at most {data.records}, as there are subjects"
    require(factors.folds <= data.records, "[study] folds", factors.folds, allowed)
    return replace(data, held_out=1 / factors.folds)


def _epsilons(experiment: Experiment, factors: CurveFactors) -> tuple[float, ...]:
    privacy = experiment.privacy
    if factors.epsilons is not None:
        if isinstance(privacy, Open) and any(epsilon != OPEN for epsilon in factors.epsilons):
            raise InvalidValue('[privacy] kind = "open" promises nothing: leave it out, or the epsilons')
        return tuple(math.inf if isinstance(epsilon, str) else epsilon for epsilon in factors.epsilons)
    return (math.inf,) if isinstance(privacy, Open) else (cast(float, privacy.epsilon),)


def _releases(experiment: Experiment, factors: CurveFactors) -> tuple[Release, ...]:
    if factors.releases is not None:
        return cast("tuple[Release, ...]", factors.releases)
    return (experiment.task.with_privacy(experiment.privacy).release,)


def _require_predictors(study: CurveStudy) -> None:
    """Refuse more parties than there are predictors to be divided."""
    known = len(subjects(replace(study.experiment.data, records=1), 0).predictors)
    for count in study.parties:
        require(count <= known, "[study] parties", count, f"at most {known}, as there are predictors")


def _require_distinct(name: str, given: tuple[object, ...] | None) -> None:
    if given is not None:
        require(len(given) > 0, name, list(given), "a list of at least one, or left out")
        require(len(set(given)) == len(given), name, list(given), "a list of different ones")


def _many(count: int, word: str, rest: str = "") -> str:
    return f"{count} {word}{'s' * (count != 1)}{rest}"
