"""Survival tasks as scikit-survival knows models: `fit`, `predict`, `predict_survival_function`, `score`.

Targets are structured arrays (event, time), pairs (time, event) or DataFrames; models go into pipelines and
grid searches. What is fitted is a run like any other: its privacy statement is `run_.privacy`.
"""

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.compat.scores import warn_of_score
from tacit.errors import InvalidValue, require
from tacit.privacy.policy import Open, Privacy
from tacit.runs.fit import fit
from tacit.runs.run import Run
from tacit.runtime.contracts import fields_of
from tacit.runtime.silence import suppress_warnings
from tacit.sites.federation import RowFederation
from tacit.sites.table import Table, from_arrays
from tacit.survival.metrics import harrell
from tacit.survival.models.learner import SurvivalLearner
from tacit.survival.models.prediction import GridModel

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]
# Rounds of tasks without a number of their own.
ROUNDS = 20


def outcomes(y: "ArrayLike | pd.DataFrame | tuple[ArrayLike, ArrayLike]") -> tuple[Array, Array]:
    """Times and events from a structured array, a DataFrame with `time` and `event`, or a pair (time, event).

    In a structured array the field of truth values is the event, the other the time, whatever their names.
    """
    if isinstance(y, tuple):
        pair = cast("tuple[ArrayLike, ArrayLike]", y)
        require(len(pair) == 2, "y", f"{len(pair)} arrays", "a pair: time, event")
        return np.asarray(pair[0], dtype=np.float64), np.asarray(pair[1], dtype=np.float64)
    # A DataFrame, known by its columns: pandas need not be imported.
    if getattr(y, "columns", None) is not None:
        frame = cast("pd.DataFrame", y)
        for name in ("time", "event"):
            require(name in frame.columns, "y", list(frame.columns), "a DataFrame with time and event")
        return frame["time"].to_numpy(np.float64), frame["event"].to_numpy(np.float64)
    given = np.asarray(cast("ArrayLike", y))
    names = given.dtype.names or ()
    truth = [name for name in names if given.dtype[name].kind == "b"]
    if len(names) != 2 or len(truth) != 1:
        raise InvalidValue(
            f"y of type {given.dtype} is not allowed: it must be a structured array of a truth value (event) "
            "and a number (time), a DataFrame with time and event, or a pair (time, event)"
        )
    other = next(name for name in names if name != truth[0])
    return given[other].astype(np.float64), given[truth[0]].astype(np.float64)


def as_structured(time: ArrayLike, event: ArrayLike) -> NDArray[np.void]:
    """Times and events as the structured array that scikit-survival takes."""
    times = np.asarray(time, dtype=np.float64)
    made = np.empty(len(times), dtype=[("event", np.bool_), ("time", np.float64)])
    made["event"], made["time"] = np.asarray(event) > 0, times
    return made


class Step:
    """A curve of one record: called with times, it gives values; `x` and `y` are its points.

    Args:
        x: The points, ascending.
        y: The values there; between them the last one counts, before the first the first.
    """

    def __init__(self, x: Array, y: Array) -> None:
        self.x, self.y = x, y

    @property
    def domain(self) -> tuple[float, float]:
        """Interval on which the step function is defined."""
        return float(self.x[0]), float(self.x[-1])

    def __call__(self, times: ArrayLike) -> Array:
        """The values at these times."""
        moments = np.asarray(times, dtype=np.float64)
        inside = bool(((moments >= self.x[0]) & (moments <= self.x[-1])).all())
        require(inside, "times", "some outside", f"from {self.x[0]:g} to {self.x[-1]:g}")
        return self.y[np.searchsorted(self.x, moments, side="right") - 1]


class Estimator:
    """A survival task with the interface of a scikit-learn estimator.

    Args:
        task: The task, such as `tacit.survival.DeepSurv()`.
        privacy: The privacy policy: what may leave a site.
        rounds: The number of rounds; by default what the task needs under this policy, or 20 where it has no
            number of its own.
        seed: The seed.
        points: On how many times, evenly over the grid, curves are given.
    """

    def __init__(
        self,
        task: SurvivalLearner,
        *,
        privacy: Privacy | Open = Open(),
        rounds: int | None = None,
        seed: int = 0,
        points: int = 100,
    ) -> None:
        # Nothing is checked or changed here: copies are made from these very objects.
        self.task, self.privacy, self.rounds, self.seed, self.points = task, privacy, rounds, seed, points

    @suppress_warnings()
    def fit(
        self,
        X: "ArrayLike | pd.DataFrame",
        y: "ArrayLike | pd.DataFrame | tuple[ArrayLike, ArrayLike]",
        sites: ArrayLike | None = None,
    ) -> Self:
        """Train across sites.

        Args:
            X: Features, numbers (records, columns).
            y: Times and events; see `outcomes`.
            sites: The site of each record; one site if not said.
        """
        time, event = outcomes(y)
        # Of a DataFrame; arrays have none.
        names = getattr(X, "columns", None)
        columns = None if names is None else [str(name) for name in names]
        table = from_arrays(np.asarray(X), columns=columns, time=time, event=event)
        federation = RowFederation(_by_site(table, sites))
        own = self.task.resolve(self.privacy).usual.get("rounds", ROUNDS)
        rounds = own if self.rounds is None else self.rounds
        self.run_: Run = fit(self.task, federation, privacy=self.privacy, rounds=rounds, seed=self.seed)
        self.n_features_in_ = len(table.columns)
        self.unique_times_: Array = np.linspace(0.0, float(self._model.ends[-1]), self.points)
        return self

    @suppress_warnings()
    def predict(self, X: "ArrayLike | pd.DataFrame") -> Array:
        """A risk score for each record: the higher, the earlier the event."""
        return self._model.risk(X)

    @suppress_warnings()
    def predict_survival_function(
        self, X: "ArrayLike | pd.DataFrame", return_array: bool = False
    ) -> NDArray[Any]:
        """The survival curve of each record, as functions or as an array (records, `unique_times_`)."""
        return self._curves(self._model.survival(X, self.unique_times_), return_array)

    @suppress_warnings()
    def predict_cumulative_hazard_function(
        self, X: "ArrayLike | pd.DataFrame", return_array: bool = False
    ) -> NDArray[Any]:
        """The cumulative hazard of each record, as functions or as an array (records, `unique_times_`)."""
        return self._curves(self._model.cumulative_hazard(X, self.unique_times_), return_array)

    def score(
        self,
        X: "ArrayLike | pd.DataFrame",
        y: "ArrayLike | pd.DataFrame | tuple[ArrayLike, ArrayLike]",
    ) -> float:
        """Harrell's concordance; of private records it is unprotected, and warned about once."""
        found = self._score(X, y)
        warn_of_score(self, self.privacy)
        return found

    @suppress_warnings()
    def _score(
        self,
        X: "ArrayLike | pd.DataFrame",
        y: "ArrayLike | pd.DataFrame | tuple[ArrayLike, ArrayLike]",
    ) -> float:
        return harrell(*outcomes(y), self.predict(X))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments; those of the task as `task__lr` and the like."""
        own = fields_of(self, inspect.signature(Estimator).parameters)
        inner = {f"task__{name}": value for name, value in vars(self.task).items()} if deep else {}
        return {**own, **inner}

    def set_params(self, **given: Any) -> Self:
        """Change arguments; those of the task as `task__lr` and the like."""
        from dataclasses import replace

        known = self.get_params()
        for name in given:
            require(name in known, "parameter", name, "one of " + ", ".join(sorted(known)))
        for name in [name for name in given if "__" not in name]:
            setattr(self, name, given[name])
        inner = {name.partition("__")[2]: value for name, value in given.items() if "__" in name}
        if inner:
            self.task = replace(self.task, **inner)
        return self

    def __sklearn_tags__(self) -> object:
        """Return scikit-learn's tags; only scikit-learn asks, so it is loaded already."""
        from sklearn.utils import InputTags, Tags, TargetTags  # pyright: ignore

        return Tags(estimator_type=None, target_tags=TargetTags(required=True), input_tags=InputTags())

    def __sklearn_is_fitted__(self) -> bool:
        return "run_" in vars(self)

    @property
    def _model(self) -> GridModel:
        require("run_" in vars(self), "estimator", "not fitted", "fitted first: call fit(X, y)")
        return cast(GridModel, self.run_.model)

    def _curves(self, values: Array, return_array: bool) -> NDArray[Any]:
        if return_array:
            return values
        made = np.empty(len(values), dtype=object)
        made[:] = [Step(self.unique_times_, row) for row in values]
        return made


def _by_site(table: Table, sites: ArrayLike | None) -> Mapping[str, Table]:
    if sites is None:
        return {"all": table}
    names = np.asarray(sites).astype(str)
    require(names.shape == (len(table),), "sites", f"shape {names.shape}", f"one for each of {len(table)}")
    return {str(name): table.take(np.flatnonzero(names == name), f"site {name}") for name in np.unique(names)}
