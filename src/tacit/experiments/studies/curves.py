"""One experiment on curves, repeated over subjects, parties, folds and promises.

The table [study] says what varies, and every combination is a cell: some parties, some subjects held out, one
promise. Reading one touches no data.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, cast

import numpy as np

from tacit.errors import InvalidFile, InvalidValue, require, require_count, require_positive, require_word
from tacit.experiments.batch import (
    Batch,
    Cell,
    Row,
    count_words,
    finite,
    require_distinct,
    row_of,
    without_workers,
)
from tacit.experiments.experiment import Experiment, construct_experiment
from tacit.functional.data.sources import RESPONSE, SimulatedCurves, vertical_federation
from tacit.functional.metrics import sensitivity, specificity
from tacit.learning.record import describe
from tacit.privacy.contracts import layout_of
from tacit.privacy.policy import Open, Privacy
from tacit.runtime.keys import Key
from tacit.runtime.tables import Table, construct, portable
from tacit.runtime.threads import cores
from tacit.sites.vertical import ByParty, Subjects, VerticalFederation

if TYPE_CHECKING:
    from tacit.experiments.studies.curve_results import CurveStudyResult
    from tacit.functional.data import CurveSet
    from tacit.functional.model import Model

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
        """The seed of its run, made of its name: every cell has noise of its own, whatever else there is."""
        key = Key(study) / "study" / self.replicate / self.fold / self.release / repr(self.epsilon)
        return int((key / self.parties).generator().integers(2**62))


@dataclass(frozen=True, kw_only=True)
class CurveStudy(Batch[CurveCell, "CurveStudyResult"]):
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
        """The study that a document says."""
        factors = construct(CurveFactors, "study", document["study"])
        _refuse_twice(document, factors)
        rest = {name: value for name, value in document.items() if name != "study"}
        experiment = construct_experiment(_with_promise(rest, factors), folder)
        experiment = replace(experiment, data=_simulation(experiment, factors))
        study = cls(
            experiment=experiment,
            replicates=tuple(experiment.data.replicate + number for number in range(factors.replicates)),
            folds=factors.folds,
            parties=factors.parties or (len(experiment.sites.names),),
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
        """Refuse what no run of it could have, before anything is drawn."""
        for cell in self.cells[: len(self.releases) * len(self.epsilons) * len(self.parties)]:
            if cell.parties == self.parties[0]:
                _ = experiment_for(self.experiment, cell).plan()

    def run_cell(self, cell: CurveCell, place: Path | None) -> Row:
        """The row of a cell; nothing else is kept of it."""
        return row_of(cell, lambda: _score(self.experiment, cell, self.folds))

    def outcome(self, row: Row) -> str:
        """Return the prediction error and the duration of a run, in words."""
        error = "unknown" if row["ril2"] is None else f"{row['ril2']:.4f}"
        return f"RIL2 {error}, {row['seconds']:.1f} s"

    def result(self, rows: Mapping[CurveCell, Row], path: Path | None) -> "CurveStudyResult":
        """Return the results of the study."""
        from tacit.experiments.studies.curve_results import CurveStudyResult

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
    sites = experiment.sites
    if not sites.parties:
        sites = replace(sites, count=cell.parties)
    return replace(
        experiment,
        privacy=privacy,
        task=replace(experiment.task, release=cell.release),
        sites=sites,
        data=replace(experiment.data, replicate=cell.replicate),
        seed=cell.seed(experiment.seed),
        baselines=False,
    )


def hold_out_fold(
    made: "CurveSet", data: SimulatedCurves, sites: ByParty, fold: int, folds: int
) -> VerticalFederation:
    """The parties with the curves of all subjects but those of a fold, who are held out.

    Folds are runs of neighbours and the same ones however many parties there are; subjects are drawn one
    like the other, so that their order means nothing.
    """
    rows = np.arange(len(made))
    apart = np.array_split(rows, folds)[fold]
    told = {"data": describe(data), "sites": describe(sites)}
    return vertical_federation(
        {**made.predictors, RESPONSE: made.response},
        RESPONSE, sites, np.delete(rows, apart), apart, origin=told, public=True,
    )  # fmt: skip


def _score(experiment: Experiment, cell: CurveCell, folds: int) -> Row:
    chosen = experiment_for(experiment, cell)
    # The truth is that of the study: it depends on its own seed alone.
    made = subjects(chosen.data, experiment.seed)
    federation = hold_out_fold(made, chosen.data, chosen.sites, cell.fold, folds)
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
    }


@lru_cache(maxsize=1)
def subjects(data: SimulatedCurves, seed: int) -> "CurveSet":
    """The simulated subjects; kept, since neighbouring cells share them."""
    from tacit.functional.data import simulate

    options = {name: value for name, value in vars(data).items() if name != "held_out"}
    return simulate(**options, seed=seed)


def _refuse_twice(document: Table, factors: CurveFactors) -> None:
    """Refuse what is said in [study] and in a table of its own as well."""
    if "attack" in document:
        raise InvalidFile("it has a table [attack]: what is studied has no liars, leave it out")
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
                f"[{name}] {key} is said twice: leave it out, [study] {factor} says it for every run"
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
