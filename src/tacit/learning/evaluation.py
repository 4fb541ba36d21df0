"""Evaluation on private held-out records by counts of cells; and that of classifiers.

A record is in one cell of a table, so the table has sensitivity 1, however many cells it has. From a table of
predicted probability by class follow the area under the ROC curve, accuracy, Brier score and calibration, and
the most frequent class as the simplest baseline. Its bins are fixed parts of the range of probabilities.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import require, require_count
from tacit.learning.noisy_scores import (
    EXACT,
    REPEATS,
    WIDEST_BRIER,
    WIDEST_RANK,
    Band,
    Noise,
    Score,
    band_of,
    divide,
    is_above,
    rank_concordance,
    redraw_tables,
    score_of,
    verdict_of,
)
from tacit.learning.query import EvaluationQueryBase, Updates
from tacit.learning.record import Evaluated, Simplest
from tacit.privacy.contracts import Norm
from tacit.privacy.mechanisms.base import Mechanism
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort

# Records whose probabilities are computed at once.
CHUNK = 4096


class TableCounts:
    """Counts of records by the cell that they are in (`Contributions`).

    Guarantee:
        Each record adds 1 to one cell.
    """

    def __init__(self, cells: NDArray[np.int64], width: int) -> None:
        self._cells, self._width = cells, width

    def lengths(self, norm: Norm) -> Array:
        """Return 1 for each record, in every norm (1, records)."""
        return np.ones((1, len(self._cells)))

    def total(self, factors: Array | None) -> Array:
        """Return the counts (1, cells)."""
        weights = None if factors is None else factors[0]
        found = np.bincount(self._cells, weights=weights, minlength=self._width)
        return found.astype(np.float64)[None]


@dataclass(frozen=True, eq=False)
class ClassEvaluation(EvaluationQueryBase):
    """Query for the table that scores a classifier.

    Args:
        probabilities: Returns the probability of each class (records, classes) by a state, for features; the
            bits of a record's row depend on that record alone.
        classes: Number of classes; targets `y` beyond count as the nearest.
    """

    probabilities: Callable[[Array, Array], Array]
    classes: int

    @property
    def bins(self) -> int:
        """Return the number of bins of predicted probabilities."""
        return len(bin_predictions(self.classes))

    @property
    def width(self) -> int:
        """Number of cells: one for each class in each bin."""
        return self.bins * self.classes

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Count the held-out records of each site by cell, through the mechanism (sites, cells)."""
        told: list[Array] = []
        for place, name in enumerate(cohort.names):
            table = cohort.records_of(place)
            counted = TableCounts(self._cells(state, table.features, table.targets["y"]), self.width)
            told.append(mechanism.noisy_sums(counted, [key / name / "noise"], 0)[0])
        return Updates(cohort.names, np.stack(told))

    def _cells(self, state: Array, features: Array, labels: Array) -> NDArray[np.int64]:
        """Return the cell of each record, by its own features and class alone (records,)."""
        own = np.clip(np.nan_to_num(labels.reshape(len(features))), 0, self.classes - 1).astype(np.int64)
        parts = [
            bin_probabilities(np.nan_to_num(self.probabilities(state, features[start : start + CHUNK])), BINS)
            for start in range(0, len(features), CHUNK)
        ]
        bins = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
        return bins * self.classes + own

    def scores(self, state: Array, counts: Array, noise: Noise) -> Evaluated:
        """Score a model by the noisy counts of all sites."""
        cells = counts.reshape(self.bins, self.classes)
        found = score_classes(ClassTable(cells, bin_predictions(self.classes), noise))
        return collect_scores(
            {"auc": found.auc, "accuracy": found.accuracy, "brier": found.brier},
            Simplest(
                name="most frequent class",
                how="names the most frequent class of the same table; no ranking",
                scores=values_of({"accuracy": found.majority}) | {"auc": 0.5},
            ),
            {"accuracy": found.gain, "auc": shift(found.auc, 0.5)},
            float(counts.sum()),
            {"observed": found.calibration},
        )


def collect_scores(
    scores: Mapping[str, Score],
    simplest: Simplest,
    gains: Mapping[str, Score],
    records: float,
    curves: Mapping[str, Band],
) -> Evaluated:
    """Collect the scores of an evaluation: those shown, their intervals, and why others are hidden.

    Args:
        scores: The scores, by name.
        simplest: The simplest baseline, from the same table; what it is compared by is shown only where the
            score is.
        gains: The difference between the score and its baseline, by name.
        records: Number of held-out records, with noise.
        curves: Curves with bands for figures, by name.
    """
    shown = {name: score for name, score in scores.items() if score.value is not None}
    plain = Simplest(
        name=simplest.name,
        how=simplest.how,
        scores={name: value for name, value in simplest.scores.items() if name in shown},
        lower=simplest.lower,
        gain={name: (gain.low, gain.high) for name, gain in gains.items() if name in shown},
    )
    bands = {
        f"{name}{end}": list_band(part)
        for name, band in curves.items()
        for end, part in (("", band.value), ("_low", band.low), ("_high", band.high))
    }
    return Evaluated(
        records=records,
        scores=values_of(shown),
        intervals={name: (score.low, score.high) for name, score in shown.items()},
        hidden={name: score.hidden for name, score in scores.items() if score.value is None},
        simplest=plain if plain.scores else None,
        curves=bands,
    )


def values_of(scores: Mapping[str, Score]) -> dict[str, float]:
    """Return the values of the scores that are shown."""
    return {name: float(score.value) for name, score in scores.items() if score.value is not None}


def shift(score: Score, by: float) -> Score:
    """Return a score as its distance from a constant."""
    return Score(None if score.value is None else score.value - by, score.low - by, score.high - by)


def list_band(band: Array) -> list[list[float | None]]:
    """Return a band as lists; None stands for hidden values."""
    return [[float(value) if np.isfinite(value) else None for value in row] for row in band]


# Bins of a predicted probability; an even number has an edge at one half.
BINS = 10


@dataclass(frozen=True, eq=False)
class ClassTable:
    """Classes by bin of predicted probabilities, exact or with noise.

    Args:
        counts: Signed counts (bins, classes) of records by their true class.
        predicted: Public predicted probability of each class in each bin (bins, classes).
        noise: Law of the noise in each cell.
    """

    counts: Array = field(repr=False)
    predicted: Array = field(repr=False)
    noise: Noise = EXACT

    def __post_init__(self) -> None:
        counts, predicted = (np.asarray(one, dtype=np.float64) for one in (self.counts, self.predicted))
        found = counts.ndim == 2 and counts.shape[0] > 0 and counts.shape[1] > 1
        require(found, "counts", f"shape {counts.shape}", "at least one bin and two classes")
        require(bool(np.isfinite(counts).all()), "counts", "NaN or infinity", "finite numbers")
        fits = predicted.shape == counts.shape
        require(fits, "predicted", f"shape {predicted.shape}", f"of shape {counts.shape}, as counts is")
        inside = bool(((predicted >= 0) & (predicted <= 1)).all())
        require(inside, "predicted", "another number", "probabilities, from 0 to 1")
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "predicted", predicted)


@dataclass(frozen=True, eq=False)
class ClassScores:
    """Scores of a classifier from a table of classes.

    Args:
        auc: Area under the ROC curve of the second of two classes; of more, the mean of each against others.
        accuracy: Share of records whose class is the most probable one.
        brier: Mean over records of half the sum over classes of squared errors of probabilities: with two
            classes, the mean squared error of the probability.
        majority: Share of the most frequent class: the accuracy of always naming it.
        gain: Accuracy less that.
        calibration: Share of each class in each bin, beside the predicted one (bins, classes).
        better_than_chance: Whether the AUC is above one half (one-sided, 5 %).
        better_than_majority: Whether the gain is above 0 (one-sided, 5 %).
    """

    auc: Score
    accuracy: Score
    brier: Score
    majority: Score
    gain: Score
    calibration: Band = field(repr=False)
    better_than_chance: bool
    better_than_majority: bool

    @property
    def verdict(self) -> tuple[str, ...]:
        """Sentences if the model is not shown to be better than both, or the noise hides it."""
        found = [
            verdict_of("its order of probabilities", "chance", self.better_than_chance, self.auc),
            verdict_of("its accuracy", "the most frequent class", self.better_than_majority, self.gain),
        ]
        return tuple(words for words in found if words)


def bin_probabilities(probabilities: ArrayLike, count: int = BINS) -> NDArray[np.int64]:
    """Return the bin of each record's predicted probabilities (records, classes), as in `bin_predictions`."""
    require_count("count", count)
    given = np.asarray(probabilities, dtype=np.float64)
    require(
        given.ndim == 2 and given.shape[1] > 1, "probabilities", f"shape {given.shape}", "(records, classes)"
    )
    classes = given.shape[1]
    if classes == 2:
        return np.clip(np.floor(given[:, 1] * count), 0, count - 1).astype(np.int64)
    named = given.argmax(axis=1)
    surplus = (given.max(axis=1) - 1 / classes) / (1 - 1 / classes)
    return named * count + np.clip(np.floor(surplus * count), 0, count - 1).astype(np.int64)


def bin_predictions(classes: int, count: int = BINS) -> Array:
    """Return the predicted probabilities in the middle of each bin (bins, classes).

    Two classes: equal bins of the probability of the second. More: for each most probable class, equal bins
    of its probability; the others share the rest evenly.
    """
    require_count("count", count)
    require_count("classes", classes)
    require(classes > 1, "classes", classes, "at least 2")
    middles = (np.arange(count) + 0.5) / count
    if classes == 2:
        return np.column_stack([1 - middles, middles])
    sure = 1 / classes + (1 - 1 / classes) * middles
    rest = np.repeat((1 - sure) / (classes - 1), classes).reshape(count, classes)
    found = np.tile(rest, (classes, 1))
    found[np.arange(classes * count), np.repeat(np.arange(classes), count)] = np.tile(sure, classes)
    return found


def class_table_of(label: ArrayLike, bins: ArrayLike, classes: int, count: int) -> Array:
    """Count records by bin and class (count, classes).

    Args:
        label: Class of each record, from 0 on (records,).
        bins: Bin of its predicted probabilities, from 0 on (records,).
        classes: Number of classes.
        count: Number of bins.

    Guarantee:
        Each record adds one to exactly one cell.
    """
    labels, own = np.asarray(label), np.asarray(bins)
    require(labels.ndim == 1 and labels.shape == own.shape, "bins", f"shape {own.shape}", "one per record")
    for name, given, most in (("label", labels, classes), ("bins", own, count)):
        require(bool(np.isin(given, np.arange(most)).all()), name, "another number", f"0 to {most - 1}")
    cells = own.astype(np.int64) * classes + labels.astype(np.int64)
    return np.bincount(cells, minlength=count * classes).reshape(count, classes).astype(np.float64)


def score_classes(table: ClassTable, repeats: int = REPEATS, seed: int = 0) -> ClassScores:
    """Compute the scores of a table, each with a 95 % interval for sampling and noise.

    Args:
        table: The table, exact or noisy.
        repeats: Number of tables in the bootstrap.
        seed: Of the bootstrap, which is public.
    """
    random = (Key(seed) / "class-table").generator()
    cells = redraw_tables(table.counts, table.noise, random, repeats)
    records = cells.sum(axis=(1, 2))
    named = table.predicted.argmax(axis=1)
    right = divide(cells[:, np.arange(len(named)), named].sum(axis=1), records)
    most = divide(cells.sum(axis=1).max(axis=1), records)
    order = _areas(cells, table.predicted)
    truth = np.eye(table.counts.shape[1])
    losses = ((table.predicted[:, None] - truth) ** 2).sum(axis=-1) / 2
    shares = divide(cells, np.broadcast_to(cells.sum(axis=2, keepdims=True), cells.shape))
    return ClassScores(
        auc=score_of(order, WIDEST_RANK),
        accuracy=score_of(right, WIDEST_RANK),
        brier=score_of(divide((cells * losses).sum(axis=(1, 2)), records), WIDEST_BRIER),
        majority=score_of(most, WIDEST_RANK),
        gain=score_of(right - most, WIDEST_RANK, low=-1.0),
        calibration=band_of(shares),
        better_than_chance=is_above(order, 0.5),
        better_than_majority=is_above(right - most, 0.0, low=-1.0),
    )


def _areas(cells: Array, predicted: Array) -> Array:
    """Area under the ROC curve of the second class, or the mean of each class against the rest (tables,)."""
    classes = predicted.shape[1]
    found = list[Array]()
    for one in [1] if classes == 2 else range(classes):
        order = np.argsort(predicted[:, one], kind="stable")
        mine = cells[:, order, one]
        others = cells[:, order].sum(axis=2) - mine
        # Pairs are of different cells, so noise averages out in their products.
        found.append(divide(*rank_concordance(mine[:, :, None] * others[:, None])))
    return np.mean(found, axis=0)
