"""Base of all survival models: the network, the public time grid, binding and scoring.

If looking at records is not allowed, a query asks the sites for the time grid: one noisy histogram of event
times at each. Its cells are public and fit any unit of time, from millionths to millions of it, so that no
horizon has to be known.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidValue, require, require_hidden, require_positive, require_word
from tacit.learning.query import InitialQueryBase, Updates
from tacit.learning.record import Simplest
from tacit.learning.supervised import Learner, LocalTraining
from tacit.learning.task import Goal, TaskBase
from tacit.privacy.mechanisms.base import Mechanism, Norm
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import BOUND
from tacit.runtime.keys import Key
from tacit.sites.encoding import Encoding
from tacit.sites.federation import Cohort, Federation, require_rows
from tacit.sites.record_checks import require_scaled
from tacit.sites.table import Table
from tacit.survival.life_table import nearest_counts
from tacit.survival.record_checks import advise, require_horizon
from tacit.survival.targets import LAST_LEVEL, require_cuts, require_sites, time_grid

if TYPE_CHECKING:
    from tacit.learning.perceptron import Perceptron
    from tacit.learning.query import EvaluationQueryBase
    from tacit.learning.record import Round
    from tacit.reports.page.blocks import Figure
    from tacit.survival.models.prediction import GridModel

Activation = Literal["relu", "tanh", "sigmoid", "silu", "gelu", "softplus", "elu"]
ACTIVATIONS: tuple[Activation, ...] = ("relu", "tanh", "sigmoid", "silu", "gelu", "softplus", "elu")
# Two cells for each doubling of time.
EDGES = np.exp2(np.arange(-40, 41) / 2)


@dataclass(frozen=True, kw_only=True)
class SurvivalLearner(Learner):
    """A network for time-to-event data; a subclass adds the likelihood.

    Args:
        hidden: Widths of the hidden layers; an empty list gives a linear model.
        activation: Activation function between layers.
        cuts: Number of time intervals, or their ends. Ends come from public reference records or a `horizon`.
            Without either, open runs and rehearsals take quantiles of the event times, and private runs buy
            them.
        horizon: End of the last time interval; a public number.
        ranges: Public range of a feature, low and high, by its name; only where single records are protected
            without a clip bound.
        columns: The names of the features; filled in from the data.
        encoding: Encoding of raw columns as features; filled in from the data.
    """

    hidden: Sequence[int] = (32, 32)
    activation: Activation = "relu"
    cuts: int | Sequence[float] = 20
    horizon: float | None = None
    ranges: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    columns: Sequence[str] = field(default=(), metadata=BOUND)
    encoding: Encoding = field(default_factory=Encoding, metadata=BOUND)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_hidden(self.hidden)
        require_word("activation", self.activation, ACTIVATIONS)
        require_cuts(self.cuts)
        if self.horizon is not None:
            require_positive("horizon", self.horizon)

    def resolve(self, privacy: Privacy | Open) -> TaskBase:
        """This task; under a promise to records without a clip bound, proportional hazards by `NewtonPH`.

        Networks get effects that bend. Options of gradient descent are obeyed: with one of them, and for
        several causes, the promise needs a clip bound.
        """
        from tacit.survival.models.newton_ph import NewtonPH

        if isinstance(privacy, Open) or privacy.unit != "record" or privacy.clip is not None:
            return self
        # A class of a user's own is learned as it is.
        if self.causes > 1 or self._descends or not self._ours:
            return self
        return NewtonPH(
            effects="hinge" if self.hidden else "linear",
            horizon=self.horizon,
            cuts=None if isinstance(self.cuts, int) else self.cuts,
            ranges=self.ranges,
            asked=self.kind,
        )

    @property
    def _descends(self) -> bool:
        """True if an option of gradient descent was given."""
        own = LocalTraining(
            steps=self.steps, sample=self.sample, epochs=self.epochs, batch=self.batch, lr=self.lr,
            optimizer=self.optimizer, proximal=self.proximal, decay=self.decay,
        )  # fmt: skip
        return self.risk_groups is not None or own != LocalTraining()

    @property
    def goal(self) -> Goal:
        """Return the concordance index as the goal."""
        return ("c_index", "max")

    def bind(self, federation: Federation, provenance: Provenance) -> Self:
        """Bind the task to valid data, with its time grid."""
        sites = require_rows(federation)
        require_sites(sites, causes=self.causes)
        found = sites.store.columns
        require(
            tuple(self.columns) in ((), found), "columns", list(self.columns), f"{list(found)}, as the data"
        )
        self.require_records(sites, private=not provenance.allowed)
        ends = time_grid(self.cuts, self.horizon, sites, provenance)
        cuts = self.cuts if ends is None else tuple(ends)
        return replace(self, cuts=cuts, columns=found, encoding=sites.encoding or Encoding())

    def require_records(self, federation: Federation, *, private: bool) -> None:
        """Refuse another unit of time than the horizon, and in private records features without a scale."""
        federation = require_rows(federation)
        if federation.distant:
            return
        if self.last_end is not None:
            require_horizon(federation.store, self.last_end, "all sites together")
        if private:
            scaled = () if federation.encoding is None else federation.encoding.scale
            require_scaled(federation.store, "all sites together", scaled)

    @property
    def last_end(self) -> float | None:
        """The end of the time grid as far as it was given; None if records decide."""
        return self.horizon if isinstance(self.cuts, int) else float(self.cuts[-1])

    def advise(self, federation: Federation) -> list[str]:
        """Advice about these records, with counts and values: for their owner, or where they are public."""
        return advise(require_rows(federation))

    @property
    def initial_query(self) -> "TimeGridQuery | None":
        """Return the query for the time grid, unless the grid is known."""
        return TimeGridQuery(self.cuts) if isinstance(self.cuts, int) else None

    @abstractmethod
    def program(self, columns: int) -> "Perceptron":
        """Return the network and its loss for `columns` features."""

    @abstractmethod
    def losses(self, state: Array, table: Table) -> NDArray[np.float64]:
        """The loss of each record, or of all together."""

    @abstractmethod
    def model(self, state: Array) -> "GridModel":
        """Return the prediction model: survival curves and risks."""

    def start(self, federation: Federation, key: Key) -> Array:
        """Draw small random weights."""
        generator, program = key.generator(), self.program(len(self.columns))
        parts: list[NDArray[np.float64]] = []
        for layer in program.layers:
            bound = max(layer.inputs, 1) ** -0.5
            parts.append(generator.uniform(-bound, bound, layer.inputs * layer.outputs))
            parts.append(np.zeros(layer.outputs if layer.bias else 0))
        parts[-1] += self._initial_bias
        return np.concatenate(parts)

    def evaluation(self, epsilon: float, records: int | None) -> "EvaluationQueryBase | None":
        """Query for scores on private held-out records: a table of risk bin by exit interval by state."""
        from tacit.survival.evaluation import SurvivalEvaluation

        return SurvivalEvaluation(self, epsilon, records)

    def score(self, state: Array, held_out: Table) -> dict[str, float]:
        """Harrell's concordance and the integrated Brier score on held-out records."""
        from tacit.survival.models.prediction import score

        return score(self.model(state), held_out)

    def simplest(self, start: Array, held_out: Table) -> Simplest:
        """Kaplan-Meier: one curve for all held-out records, and a concordance of one half."""
        from tacit.survival.models.prediction import score_kaplan_meier

        return score_kaplan_meier(held_out, self.causes)

    def pictures(
        self, state: Array, rounds: "Sequence[Round]", read: "Callable[[str], bytes | None]"
    ) -> "list[Figure]":
        """Return the figures of a report: survival curves, and effects of features."""
        from tacit.survival.figures.report import pictures

        return pictures(self, state, rounds, read)

    @property
    def _initial_bias(self) -> float:
        """Initial value of the last biases."""
        return 0.0

    @property
    def _ends(self) -> tuple[float, ...]:
        assert not isinstance(self.cuts, int), "settle comes first"
        return tuple(self.cuts)


@dataclass(frozen=True)
class TimeGridQuery(InitialQueryBase):
    """Query for the ends of `cuts` intervals (`tacit.learning.task.Query`)."""

    cuts: int
    kind: ClassVar[str] = "time grid"
    share: ClassVar[float] = 0.2

    @property
    def placeholder(self) -> dict[str, Any]:
        """Return intervals of length 1."""
        return {"cuts": [float(end) for end in range(1, self.cuts + 1)]}

    @property
    def width(self) -> int:
        """Number of cells."""
        return len(EDGES) - 1

    def record_bound(self, norm: Literal["l2", "l1"]) -> float:
        """One record adds its event to one cell."""
        return 1.0

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Return the number of events in each cell (sites, cells), through the mechanism."""
        told: list[Array] = []
        for place, name in enumerate(cohort.names):
            targets = cohort.records_of(place).targets
            cells = EventCounts(targets["time"], targets["event"] > 0)
            told.append(mechanism.noisy_sums(cells, [key / name / "noise"], 0)[0])
        return Updates(cohort.names, np.stack(told))

    def decode(self, combined: Array, noise: float = 0.0) -> dict[str, Any]:
        """Quantiles of the event times: the ends of the intervals."""
        counts = _denoise_counts(combined)
        if not counts.any():
            raise InvalidValue(
                "cuts cannot be placed: the noise hides the times of events; give a public `horizon`, or the "
                "`cuts` themselves, in [task]"
            )
        below = np.concatenate([[0.0], np.cumsum(counts)]).astype(np.float64)
        levels = np.linspace(0, LAST_LEVEL * float(below[-1]), self.cuts + 1)[1:]
        cell = np.minimum(np.searchsorted(below[1:], levels, side="left"), len(counts) - 1)
        # Inside a cell, events are spread evenly on a log scale.
        part = np.clip((levels - below[cell]) / counts[cell], 0.0, 1.0)
        logs = np.log2(EDGES[cell]) + part * np.log2(EDGES[cell + 1] / EDGES[cell])
        ends = np.exp2(np.asarray(logs, dtype=np.float64))
        return {"cuts": [float(end) for end in np.unique(ends)]}


def _denoise_counts(noisy: Array) -> Array:
    """Return counts without noise: the cells around the fullest one, and others that stand out."""
    counts = _main_body(nearest_counts(noisy))
    if not counts.any():
        return counts
    # Most cells are empty, so the median of all sizes is that of the noise: 1.4826 times it is a deviation.
    sure = noisy > 4 * 1.4826 * float(np.median(np.abs(noisy)))
    return np.where(sure, np.maximum(noisy, 0.0), counts)


def _main_body(counts: Array) -> Array:
    """The cells around the fullest one, up to where two in a row are empty."""
    empty = np.flatnonzero((counts[:-1] == 0) & (counts[1:] == 0))
    top = int(np.argmax(counts))
    first = max([place + 1 for place in empty if place < top], default=0)
    last = min([place for place in empty if place >= top], default=len(counts) - 1)
    places = np.arange(len(counts))
    return np.where((places >= first) & (places <= last), counts, 0.0)


class EventCounts:
    """Events by the cell they fall into (`Contributions`): one record, one cell.

    Guarantee:
        Each record adds 1 to one cell, or nothing.
    """

    def __init__(self, time: Array, happened: NDArray[np.bool_]) -> None:
        cell = np.searchsorted(EDGES, time, side="left") - 1
        self._cell = np.clip(cell, 0, len(EDGES) - 2)
        self._happened = happened.astype(np.float64)

    def lengths(self, norm: Norm) -> Array:
        """1 for an event, 0 for a censored record (1, records)."""
        return self._happened[None]

    def total(self, factors: Array | None) -> Array:
        """Return the counts (1, cells)."""
        counted = self._happened if factors is None else self._happened * factors[0]
        found = np.bincount(self._cell, weights=counted, minlength=len(EDGES) - 1)
        return found.astype(np.float64)[None]
