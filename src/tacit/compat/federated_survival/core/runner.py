"""Federated training by the runner's names, on the one loop of this library.

A run is a simulation: the records of all clients and the seed are in one process. So its noise is that of a
rehearsal, repeatable, and the statement says so; its price is the true one of the same run with secret noise.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from tacit.compat.federated_survival import explain, seed_of
from tacit.compat.federated_survival.core.config import (
    ALWAYS,
    FSAConfig,
    Translation,
    differences,
    price_of_round,
    translate,
)
from tacit.compat.federated_survival.data.loader import require_outcomes
from tacit.errors import InvalidValue, require, require_word
from tacit.learning.task import Goal, Task, TaskBase
from tacit.privacy.mechanisms.base import Mechanism, NoPrivacy
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.reports.text import progress
from tacit.runs.fit import fit
from tacit.runs.run import Run
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Federation, RowFederation
from tacit.sites.table import Table, from_arrays
from tacit.survival.metrics import antolini, integrated_brier
from tacit.survival.models.prediction import GridModel, RelativeModel

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from tacit.survival.models.prediction import GridModel


class Results(dict[str, list[float]]):
    """The four series of 0.5.0, one number a round; what 0.8.0 has beside them is found by its name.

    Args:
        series: The four series.
        beside: `selected_clients` and `communication_bytes`, which are no series to draw.
    """

    def __init__(self, series: Mapping[str, Sequence[float]], beside: Mapping[str, list[Any]]) -> None:
        super().__init__({name: list(values) for name, values in series.items()})
        self.beside = dict(beside)

    def __missing__(self, name: str) -> list[Any]:
        return self.beside[name]


SERIES = ("train_Cindex", "train_IBS", "test_Cindex", "test_IBS")


class ClientData(Protocol):
    """Protocol of data divided among clients (`tacit.compat.federated_survival.data.splitter.DataSet`)."""

    @property
    def clients_set(self) -> Mapping[str, tuple[ArrayLike, ArrayLike]]: ...  # noqa: D102
    @property
    def test_data(self) -> ArrayLike: ...  # noqa: D102
    @property
    def test_label(self) -> ArrayLike: ...  # noqa: D102


class FSARunner:
    """Trains the model of a configuration on data that were dealt out to clients.

    After a run, `explanations` says in words what was not taken literally; where such an option was chosen by
    the user, it is also said by a warning. `last_run` is the run as `tacit.fit` returns it.
    """

    def __init__(self, config: FSAConfig) -> None:
        self.config = config
        self.explanations: tuple[str, ...] = ()
        self.last_run: Run | None = None
        self.results = Results({}, {})
        self._made: Translation | None = None
        self._said: set[str] = set()
        self._seed = 0
        self._federation: RowFederation | None = None

    def run(self, data: ClientData, type: str = "raw", aug_method: str = "MVAEC") -> Results:
        """Train, and score the training and the test records after every round.

        Args:
            data: The data, divided among clients.
            type: `raw` records, or `raw_aug` for augmented ones.
            aug_method: `MVAEC` (each client by itself) or `MVAES` (synthetic records are pooled).

        Returns:
            Antolini's C-index and the integrated Brier score of both sets, one number for each round; those
            of the training set are of the records of all clients together. By their names, also for each
            round the clients that took part (`selected_clients`), and the bytes of the vectors that went to
            them and came back (`communication_bytes`).
        """
        self.config.validate()
        require_word("type", type, ("raw", "raw_aug"))
        require_word("aug_method", aug_method, ("MVAEC", "MVAES"))
        federation = _federation(data)
        augmented = type == "raw_aug"
        made = translate(self.config, federation, aug_method if augmented else None)
        self._explain([*made.notes, *differences(self.config, federation, augmented=augmented)])
        self._seed, self._federation = seed_of(self.config.random_seed), federation
        self._made, self.last_run = made, self._fit(made, federation)
        history = self.last_run.record.rounds
        series = {name: [entry.scores.get(name, np.nan) for entry in history] for name in SERIES}
        if self.last_run.record.chosen == len(history):
            # The last scores are those of the model that is given out.
            for name, values in series.items():
                values[-1] = self.last_run.scores.get(name, np.nan)
        self.results = Results(series, self._traffic(made, federation))
        return Results(self.results, self.results.beside)

    def predict_survival(self, features: "ArrayLike | DataFrame") -> "DataFrame":
        """Survival curves: one row for each time of the grid, one column for each record.

        The times are the ends of the model's intervals, never the times of single patients.
        """
        import pandas as pd

        model = cast("GridModel", self._require_run().model)
        times = [0.0, *model.ends.tolist()]
        return pd.DataFrame(model.survival(features, times).T, index=pd.Index(times, name="time"))

    def get_privacy_info(self) -> dict[str, Any]:
        """Return the privacy promise and its price.

        `epsilon` is the composed price of all releases, for any one `unit` under `relation`; `noise_scale` is
        on each coordinate of a sum of contributions that are clipped to `clip_norm`. The original returned
        the configured epsilon, which is here under `configured_epsilon`; its keys `privacy_protection`,
        `sensitivity`, `total_epsilon` and `per_round_epsilon` are here too, with the true values. Without
        differential privacy `epsilon` is None. Before a run there is no answer: `tacit plan` gives prices.
        """
        run, made, config = self._require_run(), self._made, self.config
        assert made is not None, "a run was translated"
        told = run.privacy.as_dict()
        info: dict[str, Any] = {
            "privacy_protection": config.use_differential_privacy,
            "use_differential_privacy": config.use_differential_privacy,
            "mechanism": config.dp_mechanism if config.use_differential_privacy else None,
            **{name: told[name] for name in ("epsilon", "delta", "unit", "relation", "rehearsal")},
            "rounds": len(run.record.rounds),
            "statement": "\n".join(run.privacy.sentences()),
            "explanations": list(self.explanations),
        }
        if made.noise is None:
            return info
        info["configured_epsilon"], info["sensitivity"] = config.dp_epsilon, config.dp_clip_norm
        assert self._federation is not None, "a run had data"
        info["total_epsilon"] = info["epsilon"]
        info["per_round_epsilon"] = price_of_round(made, self._federation, config.global_epochs)
        info["clip_norm"], info["noise_multiplier"] = config.dp_clip_norm, made.noise
        info["noise_scale"] = made.noise * config.dp_clip_norm
        if config.dp_mechanism == "laplace":
            # Purely private: nothing can fail, and the scale says it all.
            del info["delta"], info["noise_multiplier"]
        return info

    def plot_results(
        self,
        results: Mapping[str, list[float]] | None = None,
        raw_results: Mapping[str, list[float]] | None = None,
        output_path: str | Path | None = None,
        show: bool = True,
    ) -> "Figure":
        """Plot C-index and IBS over the rounds, for training and test records.

        Args:
            results: The result of `run`; by default that of the last run.
            raw_results: The same, by the name that the documentation of the original uses.
            output_path: The file of the figure, if any.
            show: Open a window, where there is a screen; a notebook shows the returned figure.
        """
        shown = results or raw_results or self.results
        require(bool(shown), "results", shown, "what run() returned")
        return plot_rounds(shown, output_path, show=show)

    def _fit(self, made: Translation, federation: RowFederation) -> Run:
        assert isinstance(federation.held_out, Table), "there is a test set"
        tables = {"train": federation.store, "test": federation.held_out}
        scored = ScoringTask(made.task, federation, tables, self.config.evaluation_quantiles)
        with progress(quiet=not (self.config.verbose or self.config.show_progress)) as watcher:
            return fit(
                cast("Task", scored),
                federation,
                privacy=made.privacy,
                aggregation=made.aggregation,
                server=made.server,
                sampling=made.sampling,
                stop=made.stop,
                augment=made.augment,
                rounds=self.config.global_epochs,
                seed=self._seed,
                name=self.config.model_type,
                callbacks=[watcher],
            )

    def _traffic(self, made: Translation, federation: RowFederation) -> dict[str, list[Any]]:
        """Return the clients of each round, and the bytes of state and updates."""
        run = self._require_run()
        key, names = Key(self._seed), list(federation)
        drawn = [made.sampling(names, 1.0, key / entry.number / "who") for entry in run.record.rounds]
        # One state down and one update up, of eight bytes a number.
        each = 2 * 8 * run.task.start(federation, key).shape[-1]
        return {"selected_clients": drawn, "communication_bytes": [each * len(part) for part in drawn]}

    def _explain(self, said: Sequence[tuple[str, str]]) -> None:
        self.explanations = tuple(text for _, text in said)
        chosen = [
            text for option, text in said if option == ALWAYS or (option and self.config.was_chosen(option))
        ]
        explain([text for text in chosen if text not in self._said], depth=3)
        self._said.update(chosen)

    def _require_run(self) -> Run:
        if self.last_run is None:
            raise InvalidValue("nothing was run yet: call run(client_data) first")
        return self.last_run


def _federation(data: ClientData) -> RowFederation:
    # Other splitters, such as that of the original, keep no names: their results are not ours to type.
    names = tuple(getattr(data, "feature_names", ())) or None
    clients = {name: _table(x, y, names, name) for name, (x, y) in data.clients_set.items()}
    test = _table(data.test_data, data.test_label, names, "test_data")
    require(len(test) > 0, "test_data", "no records", "records to score on")
    records = sum(len(table) for table in clients.values())
    return RowFederation(clients, held_out=test, records=records)


def _table(features: ArrayLike, labels: ArrayLike, names: Sequence[str] | None, place: str) -> Table:
    outcomes = np.asarray(labels, dtype=np.float64)
    shape = outcomes.shape
    require(len(shape) == 2 and shape[1] == 2, f"labels of {place}", f"shape {shape}", "(records, 2)")
    require_outcomes(outcomes[:, 0], outcomes[:, 1], place)
    return from_arrays(features, columns=names, place=place, time=outcomes[:, 0], event=outcomes[:, 1])


COLUMNS = {
    "test_Cindex": "c_index",
    "train_Cindex": "train_c_index",
    "test_IBS": "ibs",
    "train_IBS": "train_ibs",
}


def plot_rounds(
    results: Mapping[str, Sequence[float]], output_path: str | Path | None, *, show: bool
) -> "Figure":
    """Plot C-index and IBS over the rounds, for training and test records.

    Args:
        results: The runner's result.
        output_path: A file to keep the figure in; folders that are not there are made.
        show: Open a window, where there is a screen.
    """
    import pandas as pd

    from tacit.survival.figures import training

    columns = {COLUMNS[name]: list(values) for name, values in results.items() if name in COLUMNS}
    history = pd.DataFrame(columns)
    history.index = pd.RangeIndex(1, len(history) + 1, name="round")
    if output_path is not None:
        Path(output_path).parent.mkdir(parents=True, exist_ok=True)
    figure = training(
        history, provenance="Unprotected: scores of training and test records", path=output_path
    )
    if show:
        _open_window(figure)
    return figure


def _open_window(figure: "Figure") -> None:
    import matplotlib
    from matplotlib.backends.registry import BackendFilter, backend_registry

    if matplotlib.get_backend().lower() not in backend_registry.list_builtin(BackendFilter.INTERACTIVE):
        return
    from matplotlib import pyplot

    # Before 3.11 pyplot takes its own figures alone; the figure is returned all the same.
    with suppress(ValueError):
        pyplot.figure(figure)
        pyplot.show()


# The number of times over which Brier scores are integrated.
TIMES = 100


@dataclass(frozen=True, eq=False)
class ScoringTask:
    """A task whose scores are those of several tables, each under its own name.

    Scores of training records are bare: they are shown in open runs and rehearsals alone.

    Args:
        task: The task; everything except the scores is left to it.
        training: The records whose baseline hazards complete the state before a run is closed.
        tables: The tables to score on: `train` and `test`.
        quantiles: Between which quantiles of the times of a table its Brier score is integrated.
    """

    task: TaskBase
    training: RowFederation
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
        """Bind the task to the records that it trains on."""
        provenance.look(
            "the C-index and IBS of the training records after every round, and what their curves need",
            instead="use tacit.fit, which scores held-out records alone",
        )
        return replace(self, task=self.task.bind(federation, provenance))

    def resolve(self, privacy: Privacy | Open) -> Self:
        """Resolve the task for a privacy policy, with the same scores."""
        return replace(self, task=self.task.resolve(privacy))

    def at_one_site(self, pooled: Federation) -> Self:
        """The task where a site learns alone, with the same scores."""
        return replace(self, task=self.task.at_one_site(pooled))

    def with_privacy(self, privacy: Privacy | Open) -> Self:
        """The task under a promise, with the same scores."""
        return replace(self, task=self.task.with_privacy(privacy))

    def with_mechanism(self, mechanism: Mechanism) -> Self:
        """Return the task with a mechanism, with the same scores."""
        return replace(self, task=self.task.with_mechanism(mechanism))

    def at_round(self, number: int, rounds: int) -> Self:
        """The task in a round, with the same scores."""
        return replace(self, task=self.task.at_round(number, rounds))

    def score(self, state: Array, held_out: Table) -> dict[str, float]:
        """The scores of every table; `held_out` is one of them, or a part of it."""
        model, found = self._curves(state), dict[str, float]()
        for name, table in self.tables.items():
            found |= {f"{name}_{metric}": value for metric, value in self._scores(model, table).items()}
        return found

    def _curves(self, state: Array) -> GridModel:
        """Return the model of a state, with a baseline hazard even before the final query."""
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
        curves = model.survival(table.features, np.concatenate([ends, np.minimum(times, ends[-1])]))
        return {
            "Cindex": antolini(time, event, curves[:, : len(ends)], ends),
            "IBS": integrated_brier(time, event, curves[:, len(ends) :], times),
        }
