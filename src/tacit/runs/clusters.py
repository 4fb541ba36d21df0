"""Rounds of a clustered federation: each site trains the model of its own cluster and moves that alone."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from tacit.aggregation.base import Aggregator
from tacit.aggregation.defence.clustering import ClusterChoice, Clusters, UpdateHistory
from tacit.errors import InvalidValue, TooFewSites
from tacit.learning.query import Updates
from tacit.learning.record import Fault
from tacit.learning.task import TaskBase
from tacit.privacy.mechanisms.base import NoPrivacy
from tacit.runs.directory import Checkpoint
from tacit.runs.round import Groups
from tacit.runs.spec import PreparedRun
from tacit.runs.stopping import HeldOutWatch, Watch, finite
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Federation
from tacit.sites.table import Records

# Name of the update history of the warm-up rounds among a checkpoint's tensors.
TRAILS = "trails"


@dataclass(eq=False)
class ClusterRound:
    """Assign the sites of a round to clusters and split their updates by the model that they move.

    Args:
        clusters: The clustering rule.
        models: The models before the round (models, coordinates).
        before: The model of each site before the round; with `loss`, the one that it chose.
        key: The key of the round.
        f: The number of malicious sites that the aggregation rule tolerates.
        together: True in the warm-up, where there is one model that all sites move.
        trails: Update history of the warm-up rounds; this round is added to it.
    """

    clusters: Clusters
    models: Array
    before: Mapping[str, int]
    key: Key
    f: int
    together: bool = False
    trails: UpdateHistory | None = None

    def __call__(self, kept: Updates) -> Groups:
        """Group the updates by model: each is the site's new weights minus the model that it moves."""
        handed = self.clusters.models_for(self.models, self.before, kept.names)
        if self.trails is not None and (self.together or not self.before):
            self.trails = self.trails.with_round(kept, handed, self.f)
        if self.together:
            return [kept] * len(self.models), dict(self.before)
        found = self.clusters.reassign(
            kept, handed, self.models, self.before, self.key / "clusters", self.f, self.trails
        )
        own = self.clusters.models_for(self.models, found, kept.names)
        # A site that keeps its model moves it by its own update, bit for bit.
        moved = kept.matrix + (handed - own)
        groups: list[Updates] = []
        for model in range(len(self.models)):
            rows = [place for place, name in enumerate(kept.names) if found[name] == model]
            names = tuple(kept.names[place] for place in rows)
            groups.append(replace(kept, names=names, matrix=moved[rows]))
        return groups, found


def train_clusters(
    prepared: PreparedRun,
    clusters: Clusters,
    federation: Federation,
    point: Checkpoint,
    names: Sequence[str],
    before: Mapping[str, int],
    key: Key,
) -> tuple[Updates, tuple[Fault, ...], ClusterRound]:
    """Train sites that start from different models; return updates and their assignment.

    Args:
        prepared: The prepared run, with the task and the mechanism of this round.
        clusters: Its clustering rule.
        federation: The sites.
        point: The checkpoint before the round.
        names: The sites of the round.
        before: The model of each site before the round.
        key: The key of the round.
    """
    engine, task, mechanism = prepared.spec.engine, prepared.task, prepared.mechanism
    models, f = point.state, prepared.aggregation.tolerates(len(names))
    if clusters.by == "loss":
        chosen = engine.train(ClusterChoice(task, len(models)), federation, models, names, mechanism, key)
        updates, found, faults = clusters.decode_choices(chosen)
        return updates, faults, ClusterRound(clusters, models, {**before, **found}, key, f)
    if clusters.by == "site" and type(mechanism) is NoPrivacy:
        # Nothing is averaged that would need a common scale: each site divides by what it has itself.
        federation = federation.with_record_count(None)
    handed = clusters.models_for(models, before, names)
    updates = engine.train(task, federation, handed, names, mechanism, key)
    together, trails = point.finished < clusters.warm, trails_of(clusters, point, federation)
    return updates, (), ClusterRound(clusters, models, before, key, f, together, trails)


def trails_of(clusters: Clusters, point: Checkpoint, federation: Federation) -> UpdateHistory | None:
    """Return the update history of the warm-up rounds; None for clusters without a warm-up."""
    if not clusters.warm:
        return None
    kept, sites = point.kept.get(TRAILS), tuple(federation)
    rows = np.full((len(sites), point.state.shape[-1]), np.nan) if kept is None else kept
    return UpdateHistory(clusters.by, sites, rows)


def watch_scores(
    watch: Watch, task: TaskBase, state: Array, clusters: Mapping[str, int], key: Key
) -> dict[str, float]:
    """Score a state after a round; of several models, each on the held-out records of its own sites."""
    if state.ndim == 1 or not isinstance(watch, HeldOutWatch):
        return watch.scores(task, state, key)
    return score_clusters(task, state, clusters, watch.records)


def score_clusters(
    task: TaskBase, state: Array, clusters: Mapping[str, int], records: Records | None
) -> dict[str, float]:
    """Score a state on held-out records; several models give a weighted mean over clusters.

    If the records name their sites, each model is scored on the records of its own sites and on those without
    a site, weighted by their number. Otherwise each model is scored on all records, weighted by its sites:
    that understates models of groups that differ. A task may decide otherwise with `score_each`.
    """
    if records is None:
        return {}
    if state.ndim == 1:
        return finite(task.score(state, records))
    if task.scores_clusters:
        return finite(task.score_each(state, clusters, records))
    parts = _own(task, state, clusters, records)
    if parts:
        return weighted_mean([(len(own), scores) for _, own, scores in parts])
    sites = Counter(clusters.values()) or Counter(range(len(state)))
    return weighted_mean([(many, finite(task.score(state[model], records))) for model, many in sites.items()])


def own_records(
    task: TaskBase, state: Array, clusters: Mapping[str, int], records: Records | None
) -> list[tuple[tuple[str, ...], Records]]:
    """Return the sites of each model with their held-out records; empty if the records name no sites.

    Clusters with too few records for any score are left out.
    """
    # A task that scores several models itself knows whose records are whose.
    if records is None or state.ndim == 1 or task.scores_clusters:
        return []
    return [(names, own) for names, own, _ in _own(task, state, clusters, records)]


def _own(
    task: TaskBase, state: Array, clusters: Mapping[str, int], records: Records
) -> list[tuple[tuple[str, ...], Records, dict[str, float]]]:
    """Return the sites of each model, their held-out records, and the scores of the model on them."""
    found: list[tuple[tuple[str, ...], Records, dict[str, float]]] = []
    if records.sites is None:
        return found
    for model in sorted(set(clusters.values())):
        names = tuple(name for name in clusters if clusters[name] == model)
        # Records without a site count for every cluster.
        own = records.take(np.flatnonzero(np.isin(records.sites, (*names, ""))))
        with suppress(InvalidValue):
            found.append((names, own, finite(task.score(state[model], own))))
    return found


def weighted_mean(scores: Sequence[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    """Return the weighted mean of the scores that all have."""
    total, known = sum(weight for weight, _ in scores), [found for _, found in scores]
    return {
        name: sum(weight * found[name] for weight, found in scores) / total
        for name in (known[0] if known else ())
        if all(name in found for found in known)
    }


def idle_models(
    aggregation: Aggregator, clusters: Clusters | None, standing: Mapping[str, int], rounds: int
) -> list[str]:
    """Name the models that no site can move any more, with the reasons.

    Args:
        aggregation: The aggregation rule.
        clusters: The clustering rule; None for a single model.
        standing: The model of each site.
        rounds: The number of finished rounds; all sites move the one model of the warm-up.
    """
    found: list[str] = []
    if clusters is None or not standing or rounds < clusters.warm:
        return found
    for model in range(clusters.models):
        sites = sum(place == model for place in standing.values())
        try:
            if sites == 0:
                raise TooFewSites("it has no site")
            _ = aggregation.tolerates(sites)
        except TooFewSites as error:
            found.append(f"model {model} is unchanged: {error}")
    return found
