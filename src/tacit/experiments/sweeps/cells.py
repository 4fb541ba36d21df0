"""One run of a sweep: some values and a seed. Nothing is kept of it but a row."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

from tacit.experiments.experiment import Experiment
from tacit.experiments.studies.base import Row
from tacit.experiments.sweeps.values import in_words
from tacit.privacy.policy import Open
from tacit.privacy.provenance import is_all_public

# Some values: of each key that is swept, as it was written.
Changes = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class SweepCell:
    """Where a run stands in a sweep.

    Args:
        changes: What it has of each key that is swept.
        seed: What it repeats by.
    """

    changes: Changes
    seed: int

    def __str__(self) -> str:
        return f"{in_words(self.changes)}, seed {self.seed}"

    @property
    def row(self) -> Row:
        """Plain data for JSON."""
        return {"changes": dict(self.changes), "seed": self.seed}


def cell_of(row: Row) -> SweepCell:
    """The cell that a row is about."""
    return SweepCell(changes=tuple(row["changes"].items()), seed=row["seed"])


def run_experiment(experiment: Experiment) -> Row:
    """What came of a run: what it cost, and how good its model is."""
    began = time.perf_counter()
    run = experiment.run(None)
    took = time.perf_counter() - began
    promise = run.privacy
    # Where a draw is secret, the time tells how many were drawn.
    secret = not isinstance(experiment.privacy, Open) and not experiment.privacy.rehearsal
    return {
        "unit": promise.unit,
        "delta": promise.delta,
        "spent": _finite(promise.epsilon),
        "bare": [] if is_all_public(promise.public) else list(promise.bare),
        "rounds": len(run.record.rounds),
        "seconds": None if secret else took,
        "scores": _scores(run.scores),
        "baselines": {name: _scores(found) for name, found in run.baselines.items()},
    }


def _scores(found: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _finite(value) for name, value in found.items()}


def _finite(value: float | None) -> float | None:
    """A number as JSON has it."""
    return None if value is None or not math.isfinite(value) else float(value)
