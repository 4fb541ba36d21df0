"""A round of several models: each site trains the one it belongs to, and moves that one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from tacit.aggregation.base import Aggregator
from tacit.aggregation.defence.clustering import ClusterChoice, Clusters, UpdateHistory
from tacit.engines.base import Engine
from tacit.errors import InvalidValue, Refused, TooFewSites, require
from tacit.learning.record import Fault
from tacit.learning.task import Task, Updates
from tacit.privacy.mechanisms.base import Mechanism, NoPrivacy
from tacit.privacy.policy import Open, Privacy
from tacit.runs.directory import Checkpoint
from tacit.runs.round import Groups
from tacit.runs.spec import RunSpec
from tacit.runs.stopping import HeldOutWatch, Watch, finite
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Federation
from tacit.sites.table import Records

# What is kept of where sites went while there was one model for all.
TRAILS = "trails"


@dataclass(eq=False)
class ClusterRound:
    """What the sites of a round made of several models.

    Args:
        clusters: How sites are told apart.
        models: The models before the round (models, coordinates).
        before: Which model each site belonged to; by `loss`, which it chose.
        key: The key of the round.
        f: How many liars the rule stands that combines them.
        together: Whether there is still one model for all, which everybody moves.
        trails: What is remembered of the rounds with one model for all; this round is added to it.
    """

    clusters: Clusters
    models: Array
    before: Mapping[str, int]
    key: Key
    f: int
    together: bool = False
    trails: UpdateHistory | None = None

    def __call__(self, kept: Updates) -> Groups:
        """The updates by the model that they move: what a site has come to, seen from its model."""
        handed = self.clusters.models_for(self.models, self.before, kept.names)
        if self.trails is not None and (self.together or not self.before):
            self.trails = self.trails.with_round(kept, handed, self.f)
        if self.together:
            return [kept] * len(self.models), dict(self.before)
        found = self.clusters.reassign(
            kept, handed, self.models, self.before, self.key / "clusters", self.f, self.trails
        )
        own = self.clusters.models_for(self.models, found, kept.names)
        # Who stays with its model moves it by what it sent, to the last bit.
        moved = kept.matrix + (handed - own)
        groups: list[Updates] = []
        for model in range(len(self.models)):
            rows = [place for place, name in enumerate(kept.names) if found[name] == model]
            names = tuple(kept.names[place] for place in rows)
            groups.append(replace(kept, names=names, matrix=moved[rows]))
        return groups, found


def train_clusters(
    clusters: Clusters,
    engine: Engine,
    task: Task,
    federation: Federation,
    point: Checkpoint,
    names: Sequence[str],
    mechanism: Mechanism,
    before: Mapping[str, int],
    f: int,
    key: Key,
) -> tuple[Updates, tuple[Fault, ...], ClusterRound]:
    """The updates of sites that start from different models, and how they are told apart."""
    models = point.state
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
    """What is remembered of the rounds with one model for all, if there are such."""
    if not clusters.warm:
        return None
    kept, sites = point.kept.get(TRAILS), tuple(federation)
    rows = np.full((len(sites), point.state.shape[-1]), np.nan) if kept is None else kept
    return UpdateHistory(clusters.by, sites, rows)


def watch_scores(
    watch: Watch, task: Task, state: Array, clusters: Mapping[str, int], key: Key
) -> dict[str, float]:
    """What a watch sees of a state after a round."""
    if state.ndim == 1 or not isinstance(watch, HeldOutWatch):
        return watch.scores(task, state, key)
    return score_clusters(task, state, clusters, watch.records)


def score_clusters(
    task: Task, state: Array, clusters: Mapping[str, int], records: Records | None
) -> dict[str, float]:
    """The scores of a state on held-out records; of several models, a mean in which each site has its own.

    Where it is known which site a record is of, each model is scored on the records of its own sites and on
    those that are nobody's, and counts by their number. Where it is not, each is scored on all records, and
    counts by its sites: that understates models of groups that differ. A task that knows better says it
    itself, by `score_each`.
    """
    if records is None:
        return {}
    if state.ndim == 1:
        return finite(task.score(state, records))
    if hasattr(task, "score_each"):
        return finite(cast(Any, task).score_each(state, clusters, records))
    parts = _own(task, state, clusters, records)
    if parts:
        return weighted_mean([(len(own), scores) for _, own, scores in parts])
    sites = Counter(clusters.values()) or Counter(range(len(state)))
    return weighted_mean([(many, finite(task.score(state[model], records))) for model, many in sites.items()])


def own_records(
    task: Task, state: Array, clusters: Mapping[str, int], records: Records | None
) -> list[tuple[tuple[str, ...], Records]]:
    """The sites of each model, and their held-out records; nothing where nobody knows whose those are.

    Records that no score can be computed on, because they are too few, are left out.
    """
    # A task that scores several models itself knows whose records are whose.
    if records is None or state.ndim == 1 or hasattr(task, "score_each"):
        return []
    return [(names, own) for names, own, _ in _own(task, state, clusters, records)]


def _own(
    task: Task, state: Array, clusters: Mapping[str, int], records: Records
) -> list[tuple[tuple[str, ...], Records, dict[str, float]]]:
    """The sites of each model, their held-out records, and what the model scores on them."""
    found: list[tuple[tuple[str, ...], Records, dict[str, float]]] = []
    if records.sites is None:
        return found
    for model in sorted(set(clusters.values())):
        names = tuple(name for name in clusters if clusters[name] == model)
        # What is nobody's is everybody's.
        own = records.take(np.flatnonzero(np.isin(records.sites, (*names, ""))))
        with suppress(InvalidValue):
            found.append((names, own, finite(task.score(state[model], own))))
    return found


def weighted_mean(scores: Sequence[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    """The mean of scores that count for more or less, each with its weight; of such as all of them have."""
    total, known = sum(weight for weight, _ in scores), [found for _, found in scores]
    return {
        name: sum(weight * found[name] for weight, found in scores) / total
        for name in (known[0] if known else ())
        if all(name in found for found in known)
    }


def resolve_for_clusters(
    aggregation: Aggregator, clusters: Clusters | None, names: Sequence[str], privacy: Privacy | Open
) -> Aggregator:
    """The aggregator with everything decided for a federation; each of several models has a part of it.

    Raises:
        TooFewSites: It cannot serve so few sites.
    """
    if clusters is None:
        return aggregation.resolve(len(names), privacy)
    each = len(names) // clusters.resolve(names).models
    try:
        return aggregation.resolve(each, privacy)
    except TooFewSites as error:
        choice = 'by = "site"' if clusters.by == "site" else f"count = {clusters.count}"
        few = f"[clusters] {choice} leaves {each} of {len(names)} sites to a model"
        raise TooFewSites(f"{few}: {error}") from error


def idle_models(
    aggregation: Aggregator, clusters: Clusters | None, standing: Mapping[str, int], rounds: int
) -> list[str]:
    """Which models nobody moves after so many rounds, and why, in words.

    Args:
        aggregation: How updates are combined.
        clusters: How sites are told apart, if they are.
        standing: Which model each site belongs to.
        rounds: How many rounds there were: while there is one model for all, everybody moves it.
    """
    found: list[str] = []
    if clusters is None or not standing or rounds < clusters.warm:
        return found
    for model in range(clusters.models):
        sites = sum(place == model for place in standing.values())
        try:
            if sites == 0:
                raise TooFewSites("no site belongs to it")
            _ = aggregation.tolerates(sites)
        except TooFewSites as error:
            found.append(f"model {model} stays as it is: {error}")
    return found


def require_compatible_clusters(spec: RunSpec) -> None:
    """Refuse what clusters do not go with, before anything is charged."""
    clusters, privacy = spec.clusters, spec.privacy
    if clusters is None:
        return
    allowed = f"below {spec.rounds}, the number of rounds"
    require(clusters.warm < spec.rounds, "[clusters] warm", clusters.warm, allowed)
    if isinstance(privacy, Privacy) and clusters.by == "loss":
        raise Refused(
            '[clusters] by = "loss" does not go with a promise: which model fits a site best tells about its '
            'records. Use by = "direction" or by = "weights", which look at what has left the sites.'
        )
    if isinstance(privacy, Privacy) and privacy.noise != "site":
        raise Refused(
            f'[clusters] does not go with noise = "{privacy.noise}": the server would have to look at single '
            'updates without noise. Use noise = "site".'
        )
    if spec.quarantine is not None:
        raise Refused(
            "[clusters] does not go with [quarantine]: a site of a small cluster looks like a liar to the "
            "others. Leave one of them out."
        )
    if spec.stop is not None and spec.stop.epsilon is not None:
        raise Refused(
            "[clusters] does not go with [stop] epsilon: the loss of every model would have to be bought. "
            "Watch held-out records instead."
        )
