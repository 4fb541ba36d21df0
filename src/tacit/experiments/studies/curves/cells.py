"""One cell of a study: an experiment on some parties, with some subjects held out, under one promise."""

import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from tacit.experiments.experiment import Experiment
from tacit.experiments.studies.base import Row, row_of
from tacit.functional.data.sources import RESPONSE, SimulatedCurves, vertical_federation
from tacit.functional.metrics import sensitivity, specificity
from tacit.learning.record import describe
from tacit.privacy.policy import Open, Privacy
from tacit.runtime.keys import Key
from tacit.sites.vertical import ByParty, Columns, Subjects

if TYPE_CHECKING:
    from tacit.functional.data import CurveSet
    from tacit.functional.model import Model

Release = Literal["local", "moments"]
OPEN = "open"
SCORES = ("r2", "ril2", "rmse", "nrmse", "smape", "wmape", "sensitivity", "specificity")


@dataclass(frozen=True, kw_only=True)
class CurveCell:
    """Where a run stands in a study.

    Args:
        replicate: Which draw of subjects, of the same truth.
        fold: Which part of them is held out, from 0.
        release: What leaves a party.
        epsilon: What it may cost all parties together; infinite where nothing is promised.
        parties: How many divide the predictors.
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

    def seed(self, study: int) -> int:
        """The seed of its run, made of its name: every cell has noise of its own, whatever else there is."""
        key = Key(study) / "study" / self.replicate / self.fold / self.release / repr(self.epsilon)
        return int((key / self.parties).generator().integers(2**62))


def cell_of(row: Row) -> CurveCell:
    """The cell that a row is about."""
    epsilon = math.inf if row["epsilon"] == OPEN else row["epsilon"]
    named: Row = {**{entry.name: row[entry.name] for entry in fields(CurveCell)}, "epsilon": epsilon}
    return CurveCell(**named)


def promise_in_words(epsilon: float) -> str:
    """What a run costs, for people."""
    return OPEN if math.isinf(epsilon) else f"epsilon {epsilon:g}"


def experiment_for(experiment: Experiment, cell: CurveCell) -> Experiment:
    """The experiment of a cell. Its epsilon is for all parties together, however many there are."""
    privacy = experiment.privacy
    if math.isinf(cell.epsilon):
        privacy = Open()
    elif isinstance(privacy, Privacy):
        # Who adds the noise follows from what is released.
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


def score_cell(experiment: Experiment, cell: CurveCell, folds: int) -> Row:
    """The row of a cell: its name and its scores, or why it has none.

    Args:
        experiment: That of the study.
        cell: Which one.
        folds: Into how many parts the subjects are divided.
    """
    return row_of(cell, lambda: _score(experiment, cell, folds))


def hold_out_fold(made: "CurveSet", data: SimulatedCurves, sites: ByParty, fold: int, folds: int) -> Columns:
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
        **{name: _finite(found[name]) for name in SCORES},
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

    own = ("held_out",)
    options: Mapping[str, Any] = {
        entry.name: getattr(data, entry.name) for entry in fields(data) if entry.name not in own
    }
    return simulate(**options, seed=seed)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
