"""Gradient inversion: the record of a patient, read off the update of a site that has no other.

The gradient of one record in a linear layer is what went in times what came back, and that of the biases is
what came back: their ratio is the record (Phong and others 2018). One step of descent sends both. The records
are shown as they are, so only public ones are taken. `tacit.fit` refuses sites of a single record, but a step
that happens to draw one is the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from tacit.aggregation.mean import Mean
from tacit.engines.base import run_at_site
from tacit.errors import Refused, require, require_count, require_positive
from tacit.experiments.experiment import Experiment
from tacit.learning.task import TaskBase
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.runtime.keys import Key
from tacit.runtime.threads import one_thread
from tacit.sites.federation import Cohort, RowFederation
from tacit.sites.table import Table
from tacit.survival.models.discrete_time import GridLearner

if TYPE_CHECKING:
    from tacit.learning.perceptron import Layer

Array = NDArray[np.float64]
# A reconstruction this near to the truth, in standard deviations, is exact: the rest is rounding.
EXACT = 1e-6
PATIENTS, FEWEST, EPSILONS = 40, 3, (8.0, 1.0)
# The promise to a record where the experiment makes none.
USUAL = Privacy(unit="record", epsilon=1.0, delta=1e-5, clip=1.0)


@dataclass(frozen=True, kw_only=True)
class RecordReconstruction:
    """Accuracy of records reconstructed from updates of one kind.

    Args:
        epsilon: The price of the update; None without protection.
        exact: The number of records reconstructed without an error.
        correlation: The rank correlation of reconstruction and truth among patients, over all columns.
        error: The error of a record's worst column in standard deviations, at the median patient.
    """

    epsilon: float | None
    exact: int
    correlation: float
    error: float

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"name": "open" if self.epsilon is None else "private", **vars(self)}


@dataclass(frozen=True, kw_only=True)
class Inversion:
    """Result of gradient inversion: records read from the updates of sites with one patient each.

    Args:
        patients: The number of attacked patients.
        columns: The columns of a record.
        true: The record of one of them, in standard deviations from the mean.
        open: Its reconstruction from the unprotected update.
        private: Its reconstruction under the first, weakest promise.
        readings: The accuracy over all patients: unprotected, and under each promise.
    """

    patients: int
    columns: tuple[str, ...]
    true: tuple[float, ...]
    open: tuple[float, ...]
    private: tuple[float, ...]
    readings: tuple[RecordReconstruction, ...]

    @property
    def sentence(self) -> str:
        """Result in one sentence."""
        bare, *kept = self.readings
        many = f"all {len(self.columns)} columns" if len(self.columns) > 1 else "the only column"
        under = ", ".join(
            f"under epsilon {one.epsilon:g} for {one.exact or 'none'} (rank correlation "
            f"{round(one.correlation, 2) + 0.0:.2f})"
            for one in kept
        )
        return (
            f"From the update of a site with one patient, sent without noise, {many} of the record could be "
            f"reconstructed exactly for {bare.exact} of {self.patients} patients; {under}."
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        example = {"true": list(self.true), "open": list(self.open), "private": list(self.private)}
        return {
            "kind": "inversion",
            "patients": self.patients,
            "columns": list(self.columns),
            "example": {**example, "epsilon": self.readings[1].epsilon},
            "settings": [reading.as_dict() for reading in self.readings],
            "sentence": self.sentence,
        }


def demonstrate(
    experiment: Experiment,
    federation: RowFederation,
    *,
    patients: int = PATIENTS,
    epsilons: Sequence[float] = EPSILONS,
    seed: int = 0,
) -> Inversion:
    """Reconstruct patients' records from the first update of an experiment, without noise and with it.

    Each patient is a site of its own and takes one gradient step. Under a promise the whole epsilon is spent
    on that step: no run of several rounds has less noise in a step that all sites join.

    Args:
        experiment: Its task: a survival model on a grid of time, linear or not; its clip and delta, if it
            protects records.
        federation: Its sites, opened; records must be public.
        patients: The number of patients.
        epsilons: The promises, the weakest first.
        seed: The seed of the patients, the initial weights and the noise.

    Raises:
        InvalidValue: The loss is no sum over records, or there are too few patients.
        Refused: The records are private.
    """
    require_count("patients", patients)
    require(patients >= FEWEST, "patients", patients, f"at least {FEWEST}, to compare them")
    require(len(epsilons) > 0, "epsilons", list(epsilons), "at least one")
    for epsilon in epsilons:
        require_positive("epsilons", epsilon)
    task, key = _single_step(experiment.task), Key(seed, rehearsal=True) / "inversion"
    if not federation.public:
        raise Refused("a demonstration shows real records: use simulated or published data")
    task = task.bind(federation, Provenance(Open(), public=True))
    state, layers = task.start(federation, key / "start"), task.program(len(task.columns)).layers
    # Patients censored within the first interval have no loss and hence a zero update.
    telling = np.flatnonzero(task.losses(state, federation.store))
    cohort = _single_patients(federation.store, telling, patients, key / "patients")
    middle, spread = _moments(federation.store.features)
    found: dict[float | None, Array] = {}
    for epsilon in (None, *epsilons):
        mechanism = _mechanism(experiment.privacy, epsilon, task, cohort.names)
        with one_thread():
            updates = run_at_site(task, state, cohort, mechanism, key / "update" / str(epsilon)).matrix
        read = np.stack([invert(update, layers) for update in updates])
        found[epsilon] = (read - middle) / spread
    truth = (cohort.store.features - middle) / spread
    return Inversion(
        patients=patients,
        columns=tuple(task.columns),
        true=tuple(truth[0].tolist()),
        open=tuple(found[None][0].tolist()),
        private=tuple(found[epsilons[0]][0].tolist()),
        readings=tuple(_reconstruction(epsilon, truth, read) for epsilon, read in found.items()),
    )


def invert(update: Array, layers: Sequence["Layer"]) -> Array:
    """The record that a step of descent was taken from, read off its update (coordinates).

    Every output of the first layer tells the record, times what came back to it; they are averaged, those
    that much came back to counting most. Where nothing came back, nothing can be told: then it is all zeros.

    Args:
        update: The update; of one record, without noise, the record is exact.
        layers: The layers of the network, from the features on.
    """
    first, row = layers[0], update[None]
    back = first.biases(row)[0]
    if not first.bias:
        # A single output that is spread over intervals: what came back to it is what came back to them all.
        alone = len(layers) == 2 and first.outputs == 1 and layers[1].inputs == 0
        require(alone, "layers", list(layers), "a first layer with biases, or one output spread over several")
        back = layers[1].biases(row).sum(axis=1)
    squared = float(back @ back)
    return back @ first.matrices(row)[0] / squared if squared else np.zeros(first.inputs)


def _single_step(task: TaskBase) -> GridLearner:
    """Return the task with a single step that every record joins."""
    fits = isinstance(task, GridLearner) and task.separable
    require(fits, "[task] kind", task.kind, "a survival model on a grid whose loss is a sum over records")
    assert isinstance(task, GridLearner)
    plain: dict[str, Any] = {"epochs": None, "batch": None, "proximal": 0.0, "decay": 0.0}
    return replace(task, steps=1, sample=1.0, optimizer="sgd", **plain)


def _single_patients(store: Table, telling: NDArray[np.int64], patients: int, key: Key) -> Cohort:
    """Return a cohort of patients with usable gradients, each a site of its own."""
    allowed = f"at most {len(telling)}, as there are records to learn from"
    require(patients <= len(telling), "patients", patients, allowed)
    rows = key.generator().choice(telling, patients, replace=False)
    names = tuple(f"patient-{number}" for number in range(1, patients + 1))
    ones = np.ones(patients, dtype=np.int64)
    return Cohort(names, store.take(rows), np.arange(patients, dtype=np.int64), ones, mean_site_size=1.0)


def _moments(features: Array) -> tuple[Array, Array]:
    """Return the mean and the standard deviation of each column; 1 for a constant column."""
    deviations = features.std(axis=0)
    return features.mean(axis=0), np.where(deviations > 0, deviations, 1.0)


def _mechanism(
    privacy: Privacy | Open, epsilon: float | None, task: GridLearner, names: Sequence[str]
) -> Mechanism:
    """Return the mechanism that protects an update; its noise repeats, since the records are public."""
    if epsilon is None:
        return Open().solve(task, names, Mean(), 1)
    own = privacy if isinstance(privacy, Privacy) and privacy.unit == "record" else USUAL
    promise = replace(own, epsilon=epsilon, noise_multiplier=None, rehearsal=True)
    return promise.solve(task, names, Mean(), 1, records=len(names))


def _reconstruction(epsilon: float | None, truth: Array, read: Array) -> RecordReconstruction:
    worst = np.abs(read - truth).max(axis=1)
    # By ranks, so that a few wild guesses count no more than tame ones; within columns, so that nothing is
    # gained by knowing what people are like; in steps, so that rounding breaks no ties.
    ranks = [rankdata(np.round(values / EXACT), axis=0).ravel() for values in (truth, read)]
    return RecordReconstruction(
        epsilon=epsilon,
        exact=int((worst <= EXACT).sum()),
        correlation=float(np.asarray(np.corrcoef(ranks))[0, 1]),
        error=float(np.median(worst)),
    )
