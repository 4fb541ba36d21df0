"""Clustered federated learning: several models for one federation, shared by similar sites.

Which model a site belongs to is chosen by the site, or found by the server in what has left the sites: that
is post-processing and costs nothing. What the server finds is as good as what it sees; where much noise was
added, groups cannot be told apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from tacit.aggregation.base import rows_of
from tacit.aggregation.defence.kmeans import (
    Labels,
    centre_distances,
    clip_to_unit,
    match_labels,
    robust_kmeans,
)
from tacit.aggregation.defence.kmeans import adjusted_rand as adjusted_rand
from tacit.aggregation.defence.kmeans import agreement as agreement
from tacit.aggregation.defence.kmeans import kmeans as kmeans
from tacit.errors import MOST_ROUNDS, MOST_SITES, require, require_count, require_word
from tacit.learning.query import Updates, Work, WorkKind
from tacit.learning.record import Fault
from tacit.learning.task import TaskBase
from tacit.privacy.mechanisms.base import Mechanism
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort

By = Literal["loss", "direction", "weights", "site"]


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """Clusters: several models for one federation, each trained by similar sites.

    All models are equal before the first round, and the sites' updates separate them. Models with different
    initial weights mostly leave one of them without a site for good.

    Args:
        count: Number of models; left out where every site has its own.
        by: `loss`: each site picks the model that fits its own records best (IFCA, Ghosh and others 2020);
            the pick depends on private records. `direction`: by the direction of a site's updates. `weights`:
            by k-means of the trained models. `site`: every site trains a model of its own.
        warm: Number of first rounds with one model for all, with `direction` or `weights`. The sum of a
            site's updates over these rounds then assigns it to a cluster, once.
    """

    count: int | None = None
    by: By = "loss"
    warm: int = 0
    kind: ClassVar[str] = "clusters"

    def __post_init__(self) -> None:
        if self.count is None:
            require(self.by == "site", "count", "nothing", 'a whole number of at least 2, unless by = "site"')
        else:
            require_count("count", self.count, MOST_SITES)
            require(self.count >= 2, "count", self.count, "at least 2: a single model needs no clusters")
        require_word("by", self.by, get_args(By))
        if self.warm != 0:
            require_count("warm", self.warm, MOST_ROUNDS)
        useful = self.warm == 0 or self.by in ("direction", "weights")
        require(useful, "warm", self.warm, f'0, or left out, with by = "{self.by}"')

    @property
    def models(self) -> int:
        """Number of models; known once the clusters are resolved."""
        assert self.count is not None
        return self.count

    @property
    def min_models(self) -> int:
        """Smallest number of models, for any sites."""
        return 2 if self.count is None else self.count

    def check(self, names: Sequence[str]) -> None:
        """Refuse a federation with fewer sites than models, or other than as many where each has its own."""
        sites = f"{len(names)}, the number of sites"
        if self.by == "site":
            require(len(names) >= 2, "[clusters] by", self.by, "left out: there is one site")
            allowed = f'{sites}, or left out, with by = "site"'
            require(self.count in (None, len(names)), "[clusters] count", self.count, allowed)
        else:
            require(self.models <= len(names), "[clusters] count", self.count, f"at most {sites}")

    def resolve(self, names: Sequence[str]) -> "Clusters":
        """Return this with the number of models resolved, for a federation of these sites."""
        self.check(names)
        return replace(self, count=len(names)) if self.count is None else self

    def initial_models(self, state: Array) -> Array:
        """Return the initial models (count, coordinates), all equal."""
        return np.tile(state, (self.models, 1))

    def initial_assignment(self, names: Sequence[str]) -> dict[str, int]:
        """Return the model of each site before the first round; empty if that is open."""
        if self.by == "site":
            return {name: place for place, name in enumerate(names)}
        return dict.fromkeys(names, 0) if self.warm else {}

    def models_for(self, models: Array, standing: Mapping[str, int], names: Sequence[str]) -> Array:
        """Return the initial weights of these sites in a round (sites, coordinates): their models.

        Args:
            models: The models (count, coordinates).
            standing: The model of each site. A site without one starts from the mean of all models, so that
                its first update assigns it.
            names: The sites.
        """
        middle = models.mean(axis=0)
        rows = [models[standing[name]] if name in standing else middle for name in names]
        return np.stack(rows) if rows else models[:0]

    def decode_choices(self, updates: Updates) -> tuple[Updates, dict[str, int], tuple[Fault, ...]]:
        """Decode the result of `ClusterChoice`: updates, the choice of each site, and invalid choices.

        A site whose choice names no model is left out of the round.
        """
        choices = {name: float(row[0]) for name, row in zip(updates.names, updates.matrix, strict=True)}
        valid = {name: int(given) for name, given in choices.items() if given in range(self.models)}
        kept = [place for place, name in enumerate(updates.names) if name in valid]
        faults = tuple(
            Fault(
                site=name,
                reason="schema",
                detail=f"model {given:g} is not allowed: it must be from 0 to {self.models - 1}",
            )
            for name, given in choices.items()
            if name not in valid
        )
        return replace(updates, names=tuple(valid), matrix=updates.matrix[kept, 1:]), valid, faults

    def reassign(
        self,
        updates: Updates,
        handed: Array,
        models: Array,
        before: Mapping[str, int],
        key: Key,
        f: int = 0,
        trails: "UpdateHistory | None" = None,
    ) -> dict[str, int]:
        """Assign each site to a model, after a round; models keep their numbers as far as possible.

        An absent site keeps its model, and counts as a point there: participants are not spread over models
        of other sites.

        Args:
            updates: Updates of the sites, noise included.
            handed: Initial weights of each (sites, coordinates).
            models: The models before this round (count, coordinates).
            before: The model of each site before; by `loss`, the one it chose.
            key: Key of the search's draws.
            f: Number of dishonest sites: as few sites form no cluster of their own.
            trails: History of the rounds with one model for all, if there were some: then assigned sites keep
                their model.
        """
        if not updates.names or self.by == "site":
            return dict(before)
        if trails is not None:
            return trails.assign_new(updates, before) if before else trails.groups(self.models, key, f)
        if self.by == "loss" and len(np.unique(models, axis=0)) == self.models:
            return dict(before)
        places = _Places.of(updates, handed, models, before)
        found = robust_kmeans(places.features(self.by), self.models, key, f)
        labels = match_labels(found, places.reached, places.models)
        came = dict(zip(places.names, labels.tolist(), strict=True))
        return {**before, **{name: came[name] for name in updates.names}}


@dataclass(frozen=True)
class ClusterChoice(Work):
    """IFCA: each site trains the model that has the smallest loss on its own records.

    A pick is taken from private records without protection: this is for runs without a promise.

    Args:
        task: The task.
        count: Number of models.
    """

    task: TaskBase
    count: int
    work_kind: ClassVar[WorkKind] = "choosing"

    def train(self, state: Array, cohort: Cohort, mechanism: Mechanism, key: Key) -> Updates:
        """Train each site's chosen model, and prepend the number of that model to its update.

        Args:
            state: The models (count, coordinates), or one after the other in one vector.
            cohort: The sites.
            mechanism: The mechanism that protects records.
            key: The key of the round.

        Returns:
            One row for each site (sites, 1 + coordinates); `Clusters.decode_choices` takes them apart.
        """
        models = state.reshape(self.count, -1)
        held = cohort.holdings or [cohort.records_of(position) for position in range(len(cohort))]
        picked = [self._pick(models, own) for own in held]
        updates = self.task.train(models[picked], cohort, mechanism, key)
        column = np.array(picked, dtype=np.float64)[:, None]
        return replace(updates, matrix=np.concatenate([column, updates.matrix], axis=1))

    def _pick(self, models: Array, own: Any) -> int:  # noqa: ANN401
        """Return the model with the smallest mean loss; of several, the first."""
        # A diverged model is never the best.
        with np.errstate(over="ignore", invalid="ignore"):
            losses = [self.task.losses(model, own) for model in models]
        means = np.nan_to_num([loss.mean() if loss.size else 0.0 for loss in losses], nan=np.inf)
        return int(means.argmin())


@dataclass(frozen=True, eq=False)
class UpdateHistory:
    """History of each site's updates in the rounds with one model for all.

    One round says little about a site's direction. The common part of all rounds adds up, and chance does
    not.

    Args:
        by: By `direction`, a row is the sum of a site's updates, each centered among the updates of its round
            and at length 1; by `weights`, it is the site's last trained weights.
        names: The sites of the federation.
        rows: Their rows (sites, coordinates); NaN for a site that has never taken part.
    """

    by: By
    names: tuple[str, ...]
    rows: Array

    def with_round(self, updates: Updates, handed: Array, f: int = 0) -> "UpdateHistory":
        """Return the history with a round added.

        Args:
            updates: Updates of the sites, noise included.
            handed: Initial weights of each (sites, coordinates).
            f: Number of dishonest sites, which must not decide where the center is.
        """
        if not updates.names:
            return self
        names, moved, order = _sort_by_name(updates)
        came = [self.names.index(name) for name in names]
        rows = self.rows.copy()
        if self.by == "weights":
            rows[came] = handed[order] + moved
        else:
            # Every round has equal weight: rounds of long updates would dominate.
            rows[came] = np.where(np.isnan(rows[came]), 0.0, rows[came]) + _unit(moved - _middle(moved, f))
        return replace(self, rows=rows)

    def groups(self, count: int, key: Key, f: int = 0) -> dict[str, int]:
        """Group the participating sites by their histories; see `Clusters.reassign`."""
        known = self._known
        if not len(known):
            return {}
        labels = robust_kmeans(self._points(known), count, key, f)
        return {self.names[place]: int(label) for place, label in zip(known, labels, strict=True)}

    def assign_new(self, updates: Updates, before: Mapping[str, int]) -> dict[str, int]:
        """Assign each new site to the model whose sites' histories are most like its update.

        Args:
            updates: Updates of the sites.
            before: The model of each site before.
        """
        names, moved, _ = _sort_by_name(updates)
        own = np.array([before.get(name, -1) for name in names])
        if (own >= 0).all():
            return dict(before)
        known = np.array([place for place in self._known if self.names[place] in before], dtype=np.intp)
        points, labels = self._points(known), np.array([before[self.names[place]] for place in known])
        numbers = np.unique(labels)
        centres = _means(points, labels, numbers)
        away = moved[own < 0]
        if np.isin(numbers, own).all():
            # The center is that of all groups: seen from one group's, any site would be in another.
            away = away - _means(moved, own, numbers).mean(axis=0)
        if self.by == "direction":
            away, centres = (_unit(part) for part in (away, centres))
        nearest = numbers[centre_distances(away, centres).argmin(axis=1)].tolist()
        late = [name for name in names if name not in before]
        return {**before, **dict(zip(late, nearest, strict=True))}

    @property
    def _known(self) -> Labels:
        """Places of the sites that have participated."""
        return np.flatnonzero(~np.isnan(self.rows).any(axis=1))

    def _points(self, places: Labels) -> Array:
        """Return the points to cluster these sites by."""
        rows = self.rows[places]
        return clip_to_unit(rows) if self.by == "direction" else rows - rows.mean(axis=0)


def _sort_by_name(updates: Updates) -> tuple[list[str], Array, Labels]:
    """Return the sites by name, their updates, and their original rows: sums keep one order."""
    rows, order = rows_of(updates)
    return [updates.names[int(place)] for place in order], rows.astype(np.float64), order


def _middle(rows: Array, f: int) -> Array:
    """Return the mean of all rows, without the f largest and the f smallest numbers of each column."""
    if f == 0 or len(rows) <= 2 * f:
        return rows.mean(axis=0)
    return np.sort(rows, axis=0)[f : len(rows) - f].mean(axis=0)


def _means(rows: Array, labels: Labels, numbers: Labels) -> Array:
    """Return the mean of the rows of each of these groups."""
    return np.stack([rows[labels == number].mean(axis=0) for number in numbers])


def _unit(rows: Array) -> Array:
    """Scale the rows to length 1; zero rows stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)


@dataclass(frozen=True)
class _Places:
    """Start and update of each site in a round, sorted by name; rows are sites.

    Args:
        names: Participants, and absent sites with a model.
        start: Initial weights of each.
        moved: Update of each.
        models: The models before the round.
    """

    names: tuple[str, ...]
    start: Array
    moved: Array
    models: Array

    @staticmethod
    def of(updates: Updates, handed: Array, models: Array, before: Mapping[str, int]) -> "_Places":
        rows = {name: place for place, name in enumerate(updates.names)}
        here, moved = handed, updates.matrix
        own = models
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
        """Return the model that each site reached: its start plus its update."""
        return self.start + self.moved

    def features(self, by: By) -> Array:
        """Return the points to cluster sites by (sites, coordinates)."""
        return self._directions() if by == "direction" else self.reached

    def _directions(self) -> Array:
        """Return the direction of each site, seen from the mean of all models, at length 1 or below.

        Sites that share a model differ by their updates alone. Once models differ, updates are about
        different points: a site is seen where it stands, and its update is drawn out toward the next model,
        so that one that moves away from its group is noticed, however short its steps. Where noise makes
        updates longer than that, they stay as they are. A site that stands in the middle and hardly moves has
        no direction: it stays short, as a direction of its own would be chance.
        """
        middle = self.models.mean(axis=0)
        way = self.start - middle + self._stretch() * self.moved
        return clip_to_unit(way)

    def _stretch(self) -> float:
        """Return the factor by which updates are stretched.

        A step that is chance goes one part in the root of the number of coordinates toward another model; it
        must not get anywhere near the half of the way.
        """
        steps, between = np.linalg.norm(self.moved, axis=1), centre_distances(self.models, self.models)
        if not steps.any() or not between.any():
            return 1.0
        half = float(np.sqrt(between[between > 0].min())) / 2
        usual = float(np.median(steps[steps > 0]))
        return max(1.0, half / usual * min(2.0, np.sqrt(self.moved.shape[1]) / 6))
