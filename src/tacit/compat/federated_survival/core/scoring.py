"""A task that also scores the records it is trained on, after every round, as the original does."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np

from tacit.learning.task import Goal, Task
from tacit.privacy.mechanisms.base import NoPrivacy
from tacit.privacy.provenance import Provenance
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Federation
from tacit.sites.table import Table
from tacit.survival.metrics import antolini, integrated_brier
from tacit.survival.models.prediction import GridModel, RelativeModel

# Brier scores are integrated over so many times.
TIMES = 100


@dataclass(frozen=True, eq=False)
class ScoringTask:
    """A task whose scores are those of several tables, each under its own name.

    Scores of training records are bare: they are shown in open runs and rehearsals alone.

    Args:
        task: What is learnt; everything but the scores is left to it.
        training: Whose records give what curves need beside the state, before a run is closed.
        tables: What to score on: `train` and `test`.
        quantiles: Between which quantiles of the times of a table its Brier score is integrated.
    """

    task: Task
    training: Federation
    tables: Mapping[str, Table]
    quantiles: tuple[float, float]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        # A copy in the making has no task yet.
        if name.startswith("__") or name == "task":
            raise AttributeError(name)
        return getattr(self.task, name)

    @property
    def goal(self) -> Goal:
        """The concordance on the training records, which early stopping watches."""
        return ("train_Cindex", "max")

    def bind(self, federation: Federation, provenance: Provenance) -> Self:
        """The task settled, once it may look at the records that it trains on."""
        provenance.look(
            "the C-index and IBS of the training records after every round, and what their curves need",
            instead="use tacit.fit, which scores held-out records alone",
        )
        return replace(self, task=self.task.bind(federation, provenance))

    def score(self, state: Array, held_out: Table) -> dict[str, float]:
        """The scores of every table; `held_out` is one of them, or a part of it."""
        model, found = self._curves(state), dict[str, float]()
        for name, table in self.tables.items():
            found |= {f"{name}_{metric}": value for metric, value in self._scores(model, table).items()}
        return found

    def _curves(self, state: Array) -> GridModel:
        """The model of a state, with the hazard that all records share even before the sites are asked."""
        model = cast("GridModel", self.task.model(state))
        if not isinstance(model, RelativeModel) or model.baseline is not None:
            return model
        closing = self.task.final_query
        assert closing is not None, "relative risks are closed"
        cohort = self.training.cohort(list(self.training))
        told = closing.train(state, cohort, NoPrivacy(), Key(0) / "scores")
        return cast("GridModel", self.task.model(closing.apply(state, told.matrix.sum(axis=0))))

    def _scores(self, model: GridModel, table: Table) -> dict[str, float]:
        """Antolini's concordance, and the Brier score integrated between the quantiles."""
        time, event = table.targets["time"], table.targets["event"]
        first, last = (float(end) for end in np.quantile(time, self.quantiles))
        times, ends = np.linspace(first, last, TIMES), model.ends
        # Both at once: the network is asked once.
        curves = model.survival(table.features, np.concatenate([ends, times]))
        return {
            "Cindex": antolini(time, event, curves[:, : len(ends)], ends),
            "IBS": integrated_brier(time, event, curves[:, len(ends) :], times),
        }
