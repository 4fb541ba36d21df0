"""Fitted model of curves: surfaces, boosting path, and predictions, party by party.

To predict, each party works out the part of its own curves (`contribution`); only the sum of those parts, a
prediction, is seen by the party that asks. Raw curves stay where they are.

`from_sums` and `from_moments` fit one to what was released: moments without noise, then boosting.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import ArrayLike

from tacit.errors import InvalidValue, require_word
from tacit.functional.boosting.boost import BoostingFit, boost
from tacit.functional.boosting.debias import BlockShape, debias_moments, debias_sums
from tacit.functional.boosting.moments import Sums, fold_sums
from tacit.functional.config import FunctionalConfig
from tacit.functional.curves import Curves, curves
from tacit.functional.curves.basis import Frame
from tacit.functional.metrics import BYTES, scores
from tacit.privacy.mechanisms.vertical import allocate_noise, clip_to_bound
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key

if TYPE_CHECKING:
    import pandas as pd

    from tacit.functional.curves import Curves
    from tacit.functional.tasks import Boosting

# The default number of times at which a curve is shown.
POINTS = 101
# New curves may exceed the clip radius by this factor: surfaces were learned from clipped curves.
BEYOND = 3.0
# Bytes of a number of the ring in which sums are taken in secret.
RING = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class Model:
    """Fitted function-on-function model: y(t) = mean(t) + sum_j int (x_j(s) - mean x_j(s)) beta_j(s, t) ds.

    Args:
        predictors: Their names, in the order of the coefficients.
        response: The name of the response.
        frames: The basis functions of each curve's coordinates, by name.
        boosted: The fit, in coordinates.
        means: The mean coordinates of each predictor, side by side.
        mean_y: Those of the response.
        center: The number subtracted from a curve first, by name.
        scale: The number that it is divided by then.
        smooth: The smoothing of curves as they become coordinates.
        sent: The bytes that each party sent, once.
        reach: The largest length of a new curve, by name: longer ones are clipped, beyond the training data.
    """

    predictors: tuple[str, ...]
    response: str
    frames: Mapping[str, Frame]
    boosted: BoostingFit
    means: Array
    mean_y: Array
    center: Mapping[str, float] = field(default_factory=dict[str, float])
    scale: Mapping[str, float] = field(default_factory=dict[str, float])
    smooth: float = 0.0
    sent: Mapping[str, int] = field(default_factory=dict[str, int])
    reach: Mapping[str, float] = field(default_factory=dict[str, float])

    def __repr__(self) -> str:
        known = ", ".join(self.selected) or "no predictor"
        return f"<Model of {self.response} by {known}: {self.steps} steps>"

    @property
    def selected(self) -> tuple[str, ...]:
        """The predictors that count."""
        return tuple(self.predictors[place] for place in self.boosted.selected)

    @property
    def path(self) -> tuple[str, ...]:
        """The predictor that was moved at each step."""
        return tuple(self.predictors[place] for place in self.boosted.path)

    @property
    def steps(self) -> int:
        """Number of boosting steps."""
        return self.boosted.steps

    @property
    def criterion(self) -> Array:
        """Stopping criterion after 0, 1, ... steps; less is better."""
        return self.boosted.curve

    @property
    def degrees(self) -> float:
        """Degrees of freedom."""
        return self.boosted.degrees

    @property
    def bytes_sent(self) -> int:
        """Bytes sent by all parties."""
        return sum(self.sent.values())

    @cached_property
    def places(self) -> dict[str, slice]:
        """The rows of the coefficients that belong to each predictor."""
        ends = np.cumsum([0, *(self.frames[name].size for name in self.predictors)]).tolist()
        return {name: slice(*ends[at : at + 2]) for at, name in enumerate(self.predictors)}

    @property
    def importance(self) -> dict[str, float]:
        """The mean square of each predictor's surface, as a share of all: how much of the model it is."""
        squares = {
            name: float((self.boosted.coefficients[place] ** 2).sum()) for name, place in self.places.items()
        }
        total = sum(squares.values())
        return {name: square / total if total > 0 else 0.0 for name, square in squares.items()}

    def surface(self, name: str, s: ArrayLike | None = None, t: ArrayLike | None = None) -> Array:
        """The coefficient surface beta(s, t) of a predictor (times s, times t), in the units of the curves.

        Args:
            name: The predictor.
            s: Times of the predictor; 101 over its domain if not said.
            t: Times of the response.
        """
        require_word("predictor", name, self.predictors)
        own, response = self.frames[name], self.frames[self.response]
        left, right = own.design(_times(s, own)), response.design(_times(t, response))
        low, high = own.domain
        # Coordinates are means over the domain, and a surface is integrated over it.
        unit = self._scale(self.response) / self._scale(name) / (high - low)
        return unit * (left @ self.boosted.coefficients[self.places[name]] @ right.T)

    def mean(self, t: ArrayLike | None = None) -> Array:
        """The mean response at these times."""
        return self._evaluate(self.mean_y, t)

    def contribution(self, name: str, given: object) -> Array:
        """Compute one predictor's part of predictions (subjects, coordinates); for its holder.

        Args:
            name: The predictor.
            given: Its curves, of new subjects.
        """
        require_word("predictor", name, self.predictors)
        frame, place = self.frames[name], self.places[name]
        found = curves(given, name=name, domain=None if isinstance(given, Curves) else frame.domain, least=1)
        shifted = found.standardise(self.center.get(name, 0.0), self._scale(name))
        known = shifted.coordinates(frame, self.smooth)
        if name in self.reach:
            known = clip_to_bound(known, self.reach[name])
        return (known - self.means[place]) @ self.boosted.coefficients[place]

    def predict(self, given: Mapping[str, object], times: ArrayLike | None = None) -> Array:
        """Predict the response of new subjects (subjects, times).

        Args:
            given: The curves of each selected predictor, in any form that `curves` takes.
            times: The times; by default 101 over the domain of the response.
        """
        return self._evaluate(self.coordinates(given), times)

    def coordinates(self, given: Mapping[str, object]) -> Array:
        """The predicted response of new subjects in its frame."""
        if not isinstance(cast(object, given), Mapping):
            kind = type(given).__name__
            raise InvalidValue(
                f"curves of type {kind} are not allowed: give them by name, as in {{'x1': ...}}"
            )
        missing = [name for name in self.selected if name not in given]
        if missing:
            raise InvalidValue(
                f"the curves of {missing[0]} are missing: the model needs {', '.join(self.selected)}"
            )
        parts = [self.contribution(name, given[name]) for name in self.selected]
        if not parts:
            name, first = next(iter(given.items()), (self.response, np.zeros((1, 2))))
            many = len(curves(first, name=name, least=1))
            return np.repeat(self.mean_y[None], many, axis=0)
        sizes = {len(part) for part in parts}
        if len(sizes) > 1:
            told = ", ".join(f"{name} {len(part)}" for name, part in zip(self.selected, parts, strict=True))
            raise InvalidValue(
                f"curves of unequal subjects are not allowed ({told}): give the same ones for all"
            )
        return self.mean_y + np.sum(parts, axis=0)

    def score(self, given: Mapping[str, object], response: object) -> dict[str, float]:
        """Score the model on new subjects: R2, the relative integrated square error, and others."""
        return scores(*self.compare(given, response))

    def compare(self, given: Mapping[str, object], response: object) -> tuple[Array, Array, Array]:
        """Return true and predicted curves of new subjects (subjects, times), and the times."""
        seen, times = self._true_values(response)
        return seen, self.predict(given, times), times

    def score_mean(self, response: object) -> dict[str, float]:
        """Score the mean curve of new subjects as the prediction for each of them."""
        seen, times = self._true_values(response)
        known = np.isfinite(seen)
        mean = np.where(known, seen, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        return scores(seen, np.broadcast_to(mean, seen.shape), times)

    def _true_values(self, response: object) -> tuple[Array, Array]:
        """Return the true curves of new subjects (subjects, times), and their times."""
        frame = self.frames[self.response]
        true = curves(
            response,
            name=self.response,
            domain=None if isinstance(response, Curves) else frame.domain,
            least=1,
        )
        if true.owners is None:
            return true.values, true.times
        # Curves without a common grid are compared as the functions that they are.
        times = _times(None, frame)
        shifted = true.standardise(self.center.get(self.response, 0.0), self._scale(self.response))
        return self._evaluate(shifted.coordinates(frame, self.smooth), times), times

    def summary(self) -> "pd.DataFrame":
        """One row for each predictor: whether it counts, in how many steps, how much of the model it is."""
        import pandas as pd

        importance = self.importance
        rows = [
            {
                "predictor": name,
                "selected": name in self.selected,
                "steps": self.path.count(name),
                "importance": importance[name],
            }
            for name in self.predictors
        ]
        return pd.DataFrame(rows).set_index("predictor")

    def _scale(self, name: str) -> float:
        return self.scale.get(name, 1.0)

    def _evaluate(self, coordinates: Array, times: ArrayLike | None) -> Array:
        frame, name = self.frames[self.response], self.response
        values = coordinates @ frame.design(_times(times, frame)).T
        return values * self._scale(name) + self.center.get(name, 0.0)


def _times(given: ArrayLike | None, frame: Frame) -> Array:
    return np.linspace(*frame.domain, POINTS) if given is None else np.asarray(given, dtype=np.float64)


def empty_fit(columns: int, size: int) -> BoostingFit:
    """Return an empty fit: no predictor counts."""
    return BoostingFit(
        coefficients=np.zeros((columns, size)), path=(), steps=0, curve=np.zeros(1), losses=np.zeros(1),
        selected=(), screened=None, degrees=0.0, smooth=(0.0, 0.0, 0.0), ridge=0.0,
    )  # fmt: skip


def from_sums(choices: FunctionalConfig, middle: Array, sums: Sequence[Sums]) -> Model:
    """The model of sums over parts of the subjects, each curve with its noise."""
    cut = len(choices.predictors) * choices.width
    noise = dict.fromkeys(choices.column_blocks.widths, 0.0)
    if choices.noise and choices.lengths is not None:
        widths = {name: choices.widths[name] for name in choices.lengths}
        noise |= allocate_noise(choices.lengths, widths, choices.noise)
    evidence = debias_sums(
        sums, _shape(choices),
        variances=[noise[name] ** 2 for name in choices.predictors],
        variance_y=noise[choices.response] ** 2,
    )  # fmt: skip
    return _model(choices, boost(evidence, choices), middle[:cut], middle[cut:])


def from_moments(choices: FunctionalConfig, noisy: Array) -> Model:
    """The model of products of all curves, with their noise."""
    names = (*choices.predictors, choices.response)
    # Without noise, rows are not divided by a radius.
    lengths = choices.lengths if choices.noise else None
    radii = [1.0 if lengths is None else lengths[name] for name in names]
    count = choices.column_blocks.records
    evidence = debias_moments(
        noisy, _shape(choices), sigma=choices.noise or 0.0, radii=radii, count=count,
        key=Key(0) / "fission",
    )  # fmt: skip
    means = noisy[0, 1:] / count * np.repeat(radii, list(choices.column_blocks.widths.values()))
    cut = len(choices.predictors) * choices.width
    spread = (choices.noise or 0.0) / math.sqrt(2) / count * radii[-1]
    return _model(choices, boost(evidence, choices), means[:cut], _shrink_mean(means[cut:], spread))


def _shrink_mean(mean: Array, spread: float) -> Array:
    """Shrink a mean by the part that noise of this deviation may explain (James and Stein)."""
    square, width = float(mean @ mean), len(mean)
    # Three deviations of the squared length of nothing but noise.
    explained = (width + 3 * math.sqrt(2 * width)) * spread**2
    return mean * max(0.0, 1 - explained / square) if square > 0 else mean


def empty_model(choices: FunctionalConfig) -> Model:
    """Return a model without any release."""
    columns, width_y = len(choices.predictors) * choices.width, choices.width_y
    return _model(choices, empty_fit(columns, width_y), np.zeros(columns), np.zeros(width_y))


def without_noise(task: "Boosting", columns: Mapping[str, "Curves"]) -> Model:
    """The model of these curves in one place, without any promise."""
    predictors = tuple(name for name in task.predictors if name in columns)
    # Without noise every coordinate is worth having.
    alone = replace(
        task, predictors=predictors, parties={"here": (*predictors, task.response)}, release="local",
        components=None, components_y=1 if task.components_y == 1 else None, radius=None, noise=None,
        stretch={},
    )  # fmt: skip
    rows = np.hstack([alone.coordinates_of(name, columns[name]) for name in (*predictors, task.response)])
    if predictors:
        cut = rows.shape[1] - alone.width_y
        return from_sums(alone, rows.mean(axis=0), fold_sums(rows[:, :cut], rows[:, cut:], alone.folds))
    return replace(empty_model(alone), mean_y=rows.mean(axis=0))


def _shape(choices: FunctionalConfig) -> BlockShape:
    names = (*choices.predictors, choices.response)
    return BlockShape(
        blocks=choices.column_blocks.predictors,
        roughness=[choices.frame_of(name).roughness for name in choices.predictors],
        roughness_y=choices.frame_of(choices.response).roughness,
        stretches=[choices.stretch.get(name, 1.0) for name in names] if choices.stretch else (),
    )


def _model(choices: FunctionalConfig, boosted: BoostingFit, means: Array, mean_y: Array) -> Model:
    frames: dict[str, Frame] = {
        name: choices.frame_of(name) for name in (*choices.predictors, choices.response)
    }
    return Model(
        predictors=choices.predictors,
        response=choices.response,
        frames=frames,
        boosted=boosted,
        means=means,
        mean_y=mean_y,
        center=choices.center,
        scale=choices.scale,
        smooth=choices.smooth,
        sent={party: count_bytes_sent(choices, party) for party in choices.parties},
        reach={} if choices.noise is None else _clip_radii(choices),
    )


def _clip_radii(choices: FunctionalConfig) -> dict[str, float]:
    return {name: BEYOND * length for name, length in (choices.lengths or {}).items()}


def count_bytes_sent(choices: FunctionalConfig, party: str) -> int:
    """Return the bytes that a party sends, once."""
    blocks, others = choices.column_blocks, len(choices.parties) - 1
    columns = blocks.column_count(party)
    if choices.secret:
        # Rows that are hidden go to each of the others, and a masked vector of products to the server.
        products = (blocks.columns + 1) * (blocks.columns + 2) // 2
        return RING * (others * blocks.records * columns + products)
    if (
        not choices.release_moments
        and choices.protect == "predictors"
        and choices.response in choices.parties[party]
    ):
        # The active party keeps its response.
        columns -= choices.widths[choices.response]
    return BYTES * blocks.records * columns
