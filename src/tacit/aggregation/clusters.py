"""Several models for one federation: sites that learn alike share one.

Which model a site belongs to is chosen by the site, or found by the server in what has left the sites: that
is post-processing and costs nothing. What the server finds is as good as what it sees; where much noise was
added, groups cannot be told apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from tacit.errors import require, require_count, require_word
from tacit.keys import Key
from tacit.privacy.mechanism import Mechanism
from tacit.record import Fault
from tacit.sites.site import Cohort
from tacit.sites.tables import Table
from tacit.task import Task, Updates

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float64]
Labels = NDArray[np.intp]
By = Literal["loss", "direction", "weights"]

# How often k-means starts anew; the best of all is kept.
STARTS = 16
# Points nearer to each other than this part of the largest distance are one point: the rest is rounding.
ROUNDING = 1e-8


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """How sites are told apart.

    All models are the same before the first round, and what the sites make of them tells the sites apart.
    Models that are drawn apart instead mostly leave one of them without a site for good.

    Args:
        count: How many models there are.
        by: `loss`: each site picks the model that fits its own records best, once models differ (IFCA, Ghosh
            and others 2020); a pick is taken from private records. `direction`: by where a site is going.
            `weights`: by where it has come to, that is, k-means of the trained models.
    """

    count: int
    by: By = "loss"
    kind: ClassVar[str] = "clusters"

    def __post_init__(self) -> None:
        require_count("count", self.count)
        require(self.count >= 2, "count", self.count, "at least 2: one model needs no clusters")
        require_word("by", self.by, ("loss", "direction", "weights"))

    def check(self, names: Sequence[str]) -> None:
        """Refuse a federation with fewer sites than models."""
        allowed = f"at most {len(names)}, the number of sites"
        require(self.count <= len(names), "[clusters] count", self.count, allowed)

    def started(self, state: "Tensor") -> "Tensor":
        """The models before the first round (count, coordinates), all the same."""
        return state.expand(self.count, -1).clone()

    def handed(self, models: "Tensor", standing: Mapping[str, int], names: Sequence[str]) -> "Tensor":
        """What each of these sites starts a round from (sites, coordinates): its model.

        Args:
            models: The models (count, coordinates).
            standing: Which model each site belongs to. One that is not in there starts from the mean of all
                models, so that its first update says where it belongs.
            names: The sites.
        """
        import torch

        middle = models.mean(dim=0)
        rows = [models[standing[name]] if name in standing else middle for name in names]
        return torch.stack(rows) if rows else models[:0]

    def parted(self, updates: Updates) -> tuple[Updates, dict[str, int], tuple[Fault, ...]]:
        """What `Choosing` sent, taken apart: updates, the choice of each site, and choices that are none.

        A site whose choice names no model is left out of the round.
        """
        choices = {name: float(row[0]) for name, row in zip(updates.names, updates.matrix, strict=True)}
        valid = {name: int(given) for name, given in choices.items() if given in range(self.count)}
        kept = [place for place, name in enumerate(updates.names) if name in valid]
        faults = tuple(
            Fault(site=name, reason="schema", detail=f"model {given:g} came, 0 to {self.count - 1} are there")
            for name, given in choices.items()
            if name not in valid
        )
        return replace(updates, names=tuple(valid), matrix=updates.matrix[kept, 1:]), valid, faults

    def regrouped(
        self,
        updates: Updates,
        handed: "Tensor",
        models: "Tensor",
        before: Mapping[str, int],
        key: Key,
        f: int = 0,
    ) -> dict[str, int]:
        """Which model each site belongs to, after a round; models keep their numbers as far as they can.

        A site that did not come keeps its model, and counts as being where that is: those who came are not
        spread over models that belong to others.

        Args:
            updates: What the sites sent, noise included.
            handed: What each of them started from (sites, coordinates).
            models: The models before this round (count, coordinates).
            before: Which model each site belonged to; by `loss`, which it chose.
            key: What the draws of the search repeat by.
            f: How many liars there may be: so few sites are no group of their own.
        """
        if not updates.names or (self.by == "loss" and len(np.unique(models.numpy(), axis=0)) == self.count):
            return dict(before)
        places = _Places.of(updates, handed, models, before)
        found = outvoted(places.seen(self.by), self.count, key, f)
        labels = _matched(found, places.reached, places.models)
        came = dict(zip(places.names, labels.tolist(), strict=True))
        return {**before, **{name: came[name] for name in updates.names}}


@dataclass(frozen=True)
class Choosing:
    """Each site picks the model that fits its own records best, and trains that one (IFCA).

    A pick is taken from private records without protection: this is for runs without a promise.

    Args:
        task: What is learnt.
        count: How many models there are.
    """

    task: Task
    count: int

    def train(self, state: "Tensor", cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """What each site makes of the model it picks, and before that the number of the model.

        Args:
            state: The models (count, coordinates), or one after the other in one vector.
            cohort: The sites.
            mechanism: What may leave a record.
            key: The key of the round.

        Returns:
            One row for each site (sites, 1 + coordinates); `Clusters.parted` takes them apart.
        """
        import torch

        models = state.reshape(self.count, -1)
        picked = [self._picked(models, cohort.records_of(position)) for position in range(len(cohort))]
        updates = self.task.train(models[picked], cohort, mechanism, key)
        column = updates.matrix.new_tensor(picked).unsqueeze(1)
        return replace(updates, matrix=torch.cat([column, updates.matrix], dim=1))

    def _picked(self, models: "Tensor", table: Table) -> int:
        """The model with the smallest mean loss; of several, the first."""
        # A model that has come to nothing is nobody's best.
        with np.errstate(over="ignore", invalid="ignore"):
            losses = [self.task.losses(model, table) for model in models]
        means = np.nan_to_num([loss.mean() if loss.size else 0.0 for loss in losses], nan=np.inf)
        return int(means.argmin())


@dataclass(frozen=True)
class _Places:
    """Where each site stands after a round, sorted by name; rows are sites.

    Args:
        names: Those who came and those who did not, but have a model.
        start: Where each started the round.
        moved: How far each came.
        models: The models before the round.
    """

    names: tuple[str, ...]
    start: Array
    moved: Array
    models: Array

    @staticmethod
    def of(updates: Updates, handed: "Tensor", models: "Tensor", before: Mapping[str, int]) -> "_Places":
        rows = {name: place for place, name in enumerate(updates.names)}
        here, moved = (
            np.asarray(part.detach().numpy(), dtype=np.float64) for part in (handed, updates.matrix)
        )
        own = np.asarray(models.detach().numpy(), dtype=np.float64)
        allowed = f"{own.shape[1]} finite numbers for each of {len(rows)} sites, as for the models"
        for name, part in (("updates", moved), ("handed", here)):
            fits = part.shape == (len(rows), own.shape[1]) and bool(np.isfinite(part).all())
            require(fits, name, f"an array {part.shape}", allowed)
        names = tuple(sorted({*rows, *before}))
        still = np.zeros(own.shape[1])
        start = np.stack([here[rows[name]] if name in rows else own[before[name]] for name in names])
        way = np.stack([moved[rows[name]] if name in rows else still for name in names])
        return _Places(names, start, way, own)

    @property
    def reached(self) -> Array:
        """The model that each site has made."""
        return self.start + self.moved

    def seen(self, by: By) -> Array:
        """What sites are told apart by (sites, coordinates)."""
        return self._going() if by == "direction" else self.reached

    def _going(self) -> Array:
        """Where each site is going, seen from the middle of all models, at length 1 or below.

        Sites that share a model differ by their updates alone. Once models differ, updates are about
        different points: a site is seen where it stands, and its update is drawn out towards the next model,
        so that one that moves away from its group is noticed, however short its steps. Where noise makes
        updates longer than that, they stay as they are. A site that stands in the middle and hardly moves has
        no direction: it stays short, as a direction of its own would be chance.
        """
        middle = self.models.mean(axis=0)
        way = self.start - middle + self._stretch() * self.moved
        lengths = np.linalg.norm(way, axis=1)
        unit = np.hypot(lengths, np.median(lengths))[:, None]
        return np.divide(way, unit, out=np.zeros_like(way), where=unit > 0)

    def _stretch(self) -> float:
        """How much longer than they are updates are taken to be.

        A step that is chance goes one part in the root of the number of coordinates towards another model; it
        must not get anywhere near the half of the way.
        """
        steps, between = np.linalg.norm(self.moved, axis=1), _squares(self.models, self.models)
        if not steps.any() or not between.any():
            return 1.0
        half = float(np.sqrt(between[between > 0].min())) / 2
        usual = float(np.median(steps[steps > 0]))
        return max(1.0, half / usual * min(2.0, np.sqrt(self.moved.shape[1]) / 6))


def outvoted(points: Array, count: int, key: Key, f: int) -> Labels:
    """The group of each point as k-means finds it, but no group of f points or fewer, where there are others.

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
    found = _squares(points, centres).argmin(axis=1)
    found[kept] = labels
    return found


def kmeans(points: Array, count: int, key: Key) -> Labels:
    """The group of each point (points, coordinates), at most `count` of them, numbered as they appear.

    Groups are chosen so that points are near the mean of their group (Lloyd's steps from seeds drawn far from
    each other: k-means++, Arthur and Vassilvitskii 2007), the best of several starts. Equal points are in one
    group.
    """
    compact, chance = _compact(points), key.generator()
    found = [_settled(compact, _seeds(compact, count, chance)) for _ in range(STARTS)]
    # Sums that differ by rounding are one result: the first.
    costs = np.array([cost for cost, _ in found])
    labels = found[int(np.flatnonzero(costs <= costs.min() * (1 + ROUNDING))[0])][1]
    _, first, named = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[named]


def _compact(points: Array) -> Array:
    """The same points in as many coordinates as there are points, the largest distances about 1.

    Few sites have few dimensions between them, however many coordinates an update has.
    """
    centred = points - points.mean(axis=0)
    largest = float(np.abs(centred).max(initial=0.0))
    if largest == 0.0:
        return np.zeros((len(points), 1))
    centred /= largest
    values, vectors = np.linalg.eigh(centred @ centred.T)
    # What is smaller is rounding, which would tell equal points apart.
    kept = values > 1e-13 * values[-1]
    return vectors[:, kept] * np.sqrt(values[kept] / values[-1])


def _seeds(points: Array, count: int, chance: np.random.Generator) -> Array:
    """Some of the points, each far from those before; fewer than `count` where there are no more."""
    seeds = points[[int(chance.integers(len(points)))]]
    while len(seeds) < count:
        far = _squares(points, seeds).min(axis=1)
        far[far <= ROUNDING**2] = 0.0
        if not far.any():
            break
        place = int(chance.choice(len(points), p=far / far.sum()))
        seeds = np.concatenate([seeds, points[[place]]])
    return seeds


def _settled(points: Array, centres: Array) -> tuple[float, Labels]:
    """Points go to the nearest centre and centres to the middle of their points, until nobody moves."""
    labels = np.full(len(points), -1, dtype=np.intp)
    while True:
        squares = _squares(points, centres)
        nearest = squares.argmin(axis=1)
        # Who is as near to its own centre stays, so that every step makes the whole smaller.
        here = np.take_along_axis(squares, np.maximum(labels, 0)[:, None], axis=1)[:, 0]
        stays = (labels >= 0) & (here <= squares.min(axis=1) + ROUNDING**2)
        nearest = np.where(stays, labels, nearest)
        if np.array_equal(nearest, labels):
            return float(np.take_along_axis(squares, labels[:, None], axis=1).sum()), labels
        labels = nearest
        taken = np.unique(labels)
        centres = centres.copy()
        centres[taken] = [points[labels == label].mean(axis=0) for label in taken]


def _squares(points: Array, centres: Array) -> Array:
    """The squared distances (points, centres)."""
    return ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)


def _matched(labels: Labels, reached: Array, models: Array) -> Labels:
    """The labels as numbers of models, each group beside the model it is nearest to, all in all."""
    from scipy.optimize import linear_sum_assignment

    groups = range(int(labels.max()) + 1)
    centres = np.stack([reached[labels == group].mean(axis=0) for group in groups])
    far = np.stack([((models - centre) ** 2).sum(axis=1) for centre in centres])
    _, numbers = linear_sum_assignment(far)
    return np.asarray(numbers, dtype=np.intp)[labels]


def adjusted_rand(
    labels: Mapping[str, object] | Sequence[object], known: Mapping[str, object] | Sequence[object]
) -> float:
    """How well two groupings agree (Hubert and Arabie 1985): 1 if they are the same, about 0 if by chance.

    Args:
        labels: The group of each site, by name or in order.
        known: Another grouping of the same sites.
    """
    one, other = _paired(labels, known)
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
    # Both put everybody together, or everybody apart.
    return 1.0 if most == by_chance else (both - by_chance) / (most - by_chance)


def _paired(
    labels: Mapping[str, object] | Sequence[object], known: Mapping[str, object] | Sequence[object]
) -> tuple[list[str], list[str]]:
    """The groups of the same sites in the same order, as words that can be sorted."""
    if isinstance(labels, Mapping) and isinstance(known, Mapping):
        require(set(labels) == set(known), "labels", sorted(labels), f"of the sites {sorted(known)}")
        labels, known = [labels[name] for name in known], list(known.values())
    both_by_name = isinstance(labels, Mapping) == isinstance(known, Mapping)
    require(both_by_name, "labels", type(labels).__name__, f"a {type(known).__name__}, like known")
    require(len(labels) == len(known), "labels", f"{len(labels)} of them", f"{len(known)}, as many as known")
    return [repr(label) for label in labels], [repr(label) for label in known]
