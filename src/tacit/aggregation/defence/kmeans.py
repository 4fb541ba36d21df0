"""Clustering of points: k-means, directions, and the agreement of two groupings.

It knows neither sites nor models; the caller defines the points.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tacit.errors import require
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key

Labels = NDArray[np.intp]

# Number of restarts of k-means; the best of all is kept.
STARTS = 16
# Points nearer to each other than this part of the largest distance are one point: the rest is rounding.
ROUNDING = 1e-8


def robust_kmeans(points: Array, count: int, key: Key, f: int) -> Labels:
    """Cluster points by k-means; groups of f points or fewer are dissolved if there are larger ones.

    Liars who agree look like a group. A group that may be all liars is set aside, others are searched for
    without it, and its points go to the nearest of them, where they are outvoted.
    """
    kept = np.arange(len(points))
    labels = kmeans(points, count, key)
    while f:
        small = np.bincount(labels) <= f
        rest = kept[~small[labels]]
        if not small.any() or len(rest) < count * (f + 1):
            break
        kept, labels = rest, kmeans(points[rest], count, key)
    centres = np.stack([points[kept[labels == group]].mean(axis=0) for group in range(labels.max() + 1)])
    found = centre_distances(points, centres).argmin(axis=1)
    found[kept] = labels
    return found


def kmeans(points: Array, count: int, key: Key) -> Labels:
    """The group of each point (points, coordinates), at most `count` of them, numbered as they appear.

    Groups are chosen so that points are near the mean of their group (Lloyd's steps from seeds drawn far from
    each other: k-means++, Arthur and Vassilvitskii 2007), the best of several starts. Equal points are in one
    group.
    """
    compact, chance = _compact(points), key.generator()
    found = [_lloyd(compact, _seeds(compact, count, chance)) for _ in range(STARTS)]
    # Sums that differ by rounding are one result: the first.
    costs = np.array([cost for cost, _ in found])
    labels = found[int(np.flatnonzero(costs <= costs.min() * (1 + ROUNDING))[0])][1]
    _, first, named = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[named]


def _compact(points: Array) -> Array:
    """Rotate the points into as many coordinates as there are points, with largest distances about 1.

    Few sites have few dimensions between them, however many coordinates an update has.
    """
    centred = points - points.mean(axis=0)
    largest = float(np.abs(centred).max(initial=0.0))
    if largest == 0.0:
        return np.zeros((len(points), 1))
    centred /= largest
    values, vectors = np.linalg.eigh(centred @ centred.T)
    # Smaller eigenvalues are rounding errors, which would separate equal points.
    kept = values > 1e-13 * values[-1]
    return vectors[:, kept] * np.sqrt(values[kept] / values[-1])


def _seeds(points: Array, count: int, chance: np.random.Generator) -> Array:
    """Choose initial centers, each far from those before; fewer than `count` where there are no more."""
    seeds = points[[int(chance.integers(len(points)))]]
    while len(seeds) < count:
        far = centre_distances(points, seeds).min(axis=1)
        far[far <= ROUNDING**2] = 0.0
        if not far.any():
            break
        place = int(chance.choice(len(points), p=far / far.sum()))
        seeds = np.concatenate([seeds, points[[place]]])
    return seeds


def _lloyd(points: Array, centres: Array) -> tuple[float, Labels]:
    """Run Lloyd's k-means: assign points to centers and recompute centers, until nothing changes."""
    labels = np.full(len(points), -1, dtype=np.intp)
    while True:
        squares = centre_distances(points, centres)
        nearest = squares.argmin(axis=1)
        # A point as near to its own center stays, so that every step makes the objective smaller.
        here = np.take_along_axis(squares, np.maximum(labels, 0)[:, None], axis=1)[:, 0]
        stays = (labels >= 0) & (here <= squares.min(axis=1) + ROUNDING**2)
        nearest = np.where(stays, labels, nearest)
        if np.array_equal(nearest, labels):
            return float(np.take_along_axis(squares, labels[:, None], axis=1).sum()), labels
        labels = nearest
        taken = np.unique(labels)
        centres = centres.copy()
        centres[taken] = [points[labels == label].mean(axis=0) for label in taken]


def clip_to_unit(ways: Array) -> Array:
    """Ways (points, coordinates) at length 1 or below: where each is going, however far.

    One that is short beside the others has no direction: it stays short, as a direction of its own would be
    chance.
    """
    lengths = np.linalg.norm(ways, axis=1)
    unit = np.hypot(lengths, np.median(lengths))[:, None]
    return np.divide(ways, unit, out=np.zeros_like(ways), where=unit > 0)


def centre_distances(points: Array, centres: Array) -> Array:
    """The squared distances (points, centers)."""
    return ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)


def match_labels(labels: Labels, reached: Array, models: Array) -> Labels:
    """Match labels to models: the assignment with the smallest total distance."""
    from scipy.optimize import linear_sum_assignment

    groups = range(int(labels.max()) + 1)
    centres = np.stack([reached[labels == group].mean(axis=0) for group in groups])
    far = np.stack([((models - centre) ** 2).sum(axis=1) for centre in centres])
    _, numbers = linear_sum_assignment(far)
    return np.asarray(numbers, dtype=np.intp)[labels]


def agreement(found: Mapping[str, int], truth: Mapping[str, object]) -> float:
    """Return the adjusted Rand index of found and known groups.

    Args:
        found: The model of each site, such as `run.clusters`; one that never came has none.
        truth: True group of each site, such as its planet; further sites are ignored.
    """
    unknown = sorted(set(found) - set(truth))
    require(not unknown, "found", unknown, f"of the sites {sorted(truth)}")
    return adjusted_rand(found, {name: truth[name] for name in found})


def adjusted_rand(
    labels: Mapping[str, object] | Sequence[object], known: Mapping[str, object] | Sequence[object]
) -> float:
    """Return the adjusted Rand index of groupings (Hubert and Arabie 1985): 1 if equal, about 0 by chance.

    Args:
        labels: The group of each site, by name or in order.
        known: Another grouping of the same sites.
    """
    one, other = _align(labels, known)
    _, rows = np.unique(one, return_inverse=True)
    _, columns = np.unique(other, return_inverse=True)
    table = np.zeros((rows.max(initial=0) + 1, columns.max(initial=0) + 1))
    np.add.at(table, (rows, columns), 1)
    both, ours, theirs, all_pairs = (
        float((counts * (counts - 1) / 2).sum())
        for counts in (table, table.sum(axis=1), table.sum(axis=0), np.array(float(len(rows))))
    )
    by_chance = ours * theirs / all_pairs if all_pairs else 0.0
    most = (ours + theirs) / 2
    # Both groupings have one group, or only single points.
    return 1.0 if most == by_chance else (both - by_chance) / (most - by_chance)


def _align(
    labels: Mapping[str, object] | Sequence[object], known: Mapping[str, object] | Sequence[object]
) -> tuple[list[str], list[str]]:
    """Align the groups of the same sites in the same order, as words that can be sorted."""
    if isinstance(labels, Mapping) and isinstance(known, Mapping):
        require(set(labels) == set(known), "labels", sorted(labels), f"of the sites {sorted(known)}")
        labels, known = [labels[name] for name in known], list(known.values())
    both_by_name = isinstance(labels, Mapping) == isinstance(known, Mapping)
    require(both_by_name, "labels", type(labels).__name__, f"a {type(known).__name__}, like known")
    require(len(labels) == len(known), "labels", f"{len(labels)} of them", f"{len(known)}, as many as known")
    return [repr(label) for label in labels], [repr(label) for label in known]
