"""What survival tasks give back: curves and risks for anybody's features."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import require
from tacit.sites.tables import Table, from_arrays, require_column
from tacit.survival.metrics import harrell, integrated_brier

if TYPE_CHECKING:
    import pandas as pd

    from tacit.batched.perceptron import Perceptron
    from tacit.survival.losses import GridLoss

Array = NDArray[np.float64]

# Brier scores are integrated between these quantiles of the held-out times: beyond, hardly anybody is left.
SCORED_SPAN = (0.05, 0.9)
SCORED_TIMES = 100


class SurvivalModel(Protocol):
    """A fitted survival model."""

    def survival(self, features: "ArrayLike | pd.DataFrame", times: ArrayLike) -> Array:
        """The chance of being event-free at each time (records, times)."""
        ...

    def risk(self, features: "ArrayLike | pd.DataFrame") -> Array:
        """A score for each record: the higher, the earlier the event is expected."""
        ...


@dataclass(frozen=True, eq=False)
class HazardModel:
    """Hazards on a grid; inside an interval the hazard is constant, so curves have no steps.

    Args:
        program: The network.
        loss: What its outputs mean.
        weights: Its weights, flat.
        columns: The names of the features.
    """

    program: "Perceptron"
    loss: "GridLoss"
    weights: Array
    columns: tuple[str, ...]

    def survival(self, features: "ArrayLike | pd.DataFrame", times: ArrayLike) -> Array:
        """The chance of being event-free at each time (records, times); constant after the last interval."""
        moments = np.atleast_1d(np.asarray(times, dtype=np.float64))
        require(bool((moments >= 0).all()), "times", "one below 0", "at least 0")
        hazard = np.concatenate(
            [np.zeros((len(self._matrix(features)), 1)), self.cumulative(features)], axis=1
        )
        edges = np.concatenate([[0.0], self.loss.ends])
        place = np.clip(np.searchsorted(edges, moments, side="right") - 1, 0, len(edges) - 2)
        share = np.clip((moments - edges[place]) / np.diff(edges)[place], 0.0, 1.0)
        return np.exp(-(hazard[:, place] * (1 - share) + hazard[:, place + 1] * share))

    def risk(self, features: "ArrayLike | pd.DataFrame") -> Array:
        """The cumulative hazard added up over the grid: the expected number of events among people alike."""
        return self.cumulative(features).sum(axis=1)

    def cumulative(self, features: "ArrayLike | pd.DataFrame") -> Array:
        """The cumulative hazard at the end of each interval (records, intervals)."""
        outputs = self.program.outputs(self.weights[None], self._matrix(features)[None])[0]
        return np.cumsum(self.loss.increments(outputs), axis=1)

    def _matrix(self, features: "ArrayLike | pd.DataFrame") -> Array:
        """Features as numbers; a DataFrame may have its columns in any order, and others beside them."""
        names = getattr(features, "columns", None)
        if names is not None:
            for column in self.columns:
                require_column(features, column, "features")  # pyright: ignore[reportArgumentType]
            features = features[list(self.columns)]  # pyright: ignore
        table = from_arrays(np.atleast_2d(np.asarray(features)), place="features")
        fits = table.features.shape[1] == len(self.columns)
        require(fits, "features", f"{table.features.shape[1]} columns", f"{len(self.columns)} columns")
        return table.features


def score(model: SurvivalModel, held_out: Table) -> dict[str, float]:
    """Harrell's concordance, and the Brier score integrated over the bulk of the held-out times."""
    time, event = held_out.targets["time"], held_out.targets["event"]
    first, last = (float(end) for end in np.quantile(time, SCORED_SPAN))
    times = np.linspace(first, last, SCORED_TIMES)
    curves = model.survival(held_out.features, times)
    return {
        "c_index": harrell(time, event, model.risk(held_out.features)),
        "ibs": integrated_brier(time, event, curves, times),
    }
