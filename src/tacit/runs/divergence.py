"""Divergence of training, checked in every round: by the training loss if it is visible, else by norms.

A run that diverges ends with a sentence, and keeps the model before the round. A loss itself leaves nothing
but that it rose.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tacit.learning.supervised import LocalTraining
from tacit.learning.task import TaskBase
from tacit.privacy.mechanisms.base import NoPrivacy
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort, Federation, RowFederation
from tacit.sites.table import Table

DIVERGED = "training diverged"
# Records whose loss is watched; more would cost time and tell little.
WATCHED = 1000
# A step this many times as long as the state before it is no step towards a solution.
LONGEST_STEP = 1e6
# Shares of the learning rate with which a baseline that diverged is trained again.
SLOWER = (0.1, 0.01, 0.001)
# Drop of the loss by a round of short steps, as a share, that a model which has settled does not show.
UNSETTLED = 0.1


@dataclass(frozen=True, eq=False)
class LossProbe:
    """Mean training loss of some records of all sites.

    Args:
        task: The task.
        records: The records.
        start: The state before the first round.
    """

    task: TaskBase
    records: Table
    start: Array
    _known: dict[bytes, float] = field(default_factory=dict[bytes, float])

    @staticmethod
    def of(task: TaskBase, federation: Federation, start: Array) -> "LossProbe | None":
        """Return the probe of a federation; None for tasks without local steps, and for remote records."""
        if not isinstance(task, LocalTraining) or not isinstance(federation, RowFederation):
            return None
        if federation.distant:
            return None
        rows = np.unique(np.linspace(0, len(federation.store) - 1, WATCHED).round().astype(np.int64))
        return LossProbe(task, federation.store.take(rows), start)

    def __call__(self, state: Array) -> float:
        """Return the mean loss at a state; see `mean_loss`."""
        name = state.tobytes()
        if name not in self._known:
            # Two are kept: the start, and the state after the last round, which is the one before this.
            while len(self._known) > 2:
                self._known.pop(list(self._known)[1])
            self._known[name] = mean_loss(self.task, state, self.records)
        return self._known[name]


def find_divergence(before: Array, after: Array, probe: LossProbe | None) -> str | None:
    """Return why a step diverged, in words; None if it did not.

    Args:
        before: The state before the step.
        after: The state after it.
        probe: The training loss, where it may be looked at and there is one model.
    """
    if not bool(np.isfinite(after).all()):
        return "the state is not finite"
    if float(np.linalg.norm(after - before)) > LONGEST_STEP * (1 + float(np.linalg.norm(before))):
        return "the step is far longer than the state before it"
    if probe is None:
        return None
    for earlier, when in ((before, "in this round"), (probe.start, "above its value before the first round")):
        was = probe(earlier)
        # More than one nat for each record, and more than double.
        if probe(after) - was > max(1.0, abs(was)):
            return f"the training loss rose {when}"
    return None


def slower(task: TaskBase, share: float) -> TaskBase | None:
    """Return the task with a share of its learning rate; None if it has none."""
    return replace(task, lr=share * task.lr) if isinstance(task, LocalTraining) else None


def mean_loss(task: TaskBase, state: Array, records: Any) -> float:  # noqa: ANN401
    """Return the mean loss of a model on some records; infinity if it is not finite, NaN if there is none."""
    try:
        with np.errstate(all="ignore"):
            found = float(np.mean(task.losses(state, records)))
    except Exception:
        # A task of a user's own may have no losses of records; to watch them must not end its run.
        return math.nan
    return found if math.isfinite(found) else math.inf


def find_lost(task: TaskBase, states: Array, cohort: Cohort) -> list[int]:
    """Return the places of sites whose own model is not finite, or has no finite loss on their records."""
    if not isinstance(task, LocalTraining):
        return np.flatnonzero(~np.isfinite(states).all(axis=1)).tolist()
    return [
        place
        for place, own in enumerate(states)
        if not np.isfinite(own).all() or math.isinf(mean_loss(task, own, cohort.records_of(place)))
    ]


def find_diverged(task: TaskBase, states: Array, start: Array, cohort: Cohort, key: Key) -> list[int]:
    """Return the places of sites whose training diverged.

    Their own loss is above that of the start, or a round of much shorter steps lowers it at once, because
    longer ones leap to and fro about the solution.
    """
    short = slower(task, SLOWER[0])
    if short is None:
        return find_lost(task, states, cohort)
    usable = np.where(np.isfinite(states), states, 0.0)
    with np.errstate(all="ignore"):
        after = usable + short.train(usable, cohort, NoPrivacy(), key).matrix
    found = list[int]()
    for place, own in enumerate(states):
        records = cohort.records_of(place)
        loss = mean_loss(task, own, records)
        drop = loss - mean_loss(task, after[place], records)
        if math.isinf(loss) or loss > mean_loss(task, start, records) or drop > UNSETTLED * abs(loss):
            found.append(place)
    return found
