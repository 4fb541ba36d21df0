"""Table of classes by bin of the predicted probability: one query from which scores of a classifier follow.

A record is in exactly one cell, so that one record more or less moves one count by one, however many cells
there are. `class_table_of` counts; `score_classes` computes scores from exact or noisy counts, each with an
interval that covers sampling and noise. This is post-processing: it knows the law of the noise and no price.
"""

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
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key

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
