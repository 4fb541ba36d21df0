"""A round of several models: each site trains the one it belongs to, and moves that one."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tacit.aggregation.clusters import Choosing, Clusters
from tacit.combining import Parts
from tacit.engines.base import Engine
from tacit.errors import Refused
from tacit.keys import Key
from tacit.privacy.mechanism import Mechanism
from tacit.privacy.policy import Open, Privacy
from tacit.record import Fault
from tacit.sites.site import Federation
from tacit.task import Task, Updates

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Apart:
    """What the sites of a round made of several models.

    Args:
        clusters: How sites are told apart.
        models: The models before the round (models, coordinates).
        before: Which model each site belonged to; by `loss`, which it chose.
        key: The key of the round.
    """

    clusters: Clusters
    models: "Tensor"
    before: Mapping[str, int]
    key: Key

    def __call__(self, kept: Updates) -> Parts:
        """The updates by the model that they move: what a site has come to, seen from its model."""
        handed = self.clusters.handed(self.models, self.before, kept.names)
        found = self.clusters.regrouped(kept, handed, self.models, self.before, self.key / "clusters")
        own = self.clusters.handed(self.models, found, kept.names)
        moved = handed + kept.matrix - own
        groups: list[Updates] = []
        for model in range(len(self.models)):
            rows = [place for place, name in enumerate(kept.names) if found[name] == model]
            names = tuple(kept.names[place] for place in rows)
            groups.append(replace(kept, names=names, matrix=moved[rows]))
        return groups, found


def trained_apart(
    clusters: Clusters,
    engine: Engine,
    task: Task,
    federation: Federation,
    models: "Tensor",
    names: Sequence[str],
    mechanism: Mechanism,
    before: Mapping[str, int],
    key: Key,
) -> tuple[Updates, tuple[Fault, ...], Apart]:
    """The updates of sites that start from different models, and how they are told apart."""
    if clusters.by != "loss":
        handed = clusters.handed(models, before, names)
        updates = engine.train(task, federation, handed, names, mechanism, key)
        return updates, (), Apart(clusters, models, before, key)
    chosen = engine.train(Choosing(task, len(models)), federation, models, names, mechanism, key)
    updates, found, faults = clusters.parted(chosen)
    return updates, faults, Apart(clusters, models, {**before, **found}, key)


def over_sites(
    told: "Callable[[Tensor], dict[str, float]]", state: "Tensor", clusters: Mapping[str, int]
) -> dict[str, float]:
    """What is told of a state; of several models, the mean over the sites, each with its own model."""
    if state.ndim == 1:
        return told(state)
    sites = Counter(clusters.values()) or Counter(range(len(state)))
    found = {model: told(state[model]) for model in sites}
    return {
        name: sum(many * found[model][name] for model, many in sites.items()) / sites.total()
        for name in next(iter(found.values()))
        if all(name in scores for scores in found.values())
    }


def require_apart(
    clusters: Clusters, privacy: Privacy | Open, names: Sequence[str], *, watched: bool, paid: bool
) -> None:
    """Refuse what clusters do not go with, before anything is charged.

    Args:
        clusters: How sites are told apart.
        privacy: What is promised.
        names: The sites.
        watched: Whether there is a quarantine.
        paid: Whether a noisy loss is bought after every round.
    """
    clusters.check(names)
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
    if watched:
        raise Refused(
            "[clusters] does not go with [quarantine]: a site of a small cluster looks like a liar to the "
            "others. Leave one of them out."
        )
    if paid:
        raise Refused(
            "[clusters] does not go with [stop] epsilon: the loss of every model would have to be bought. "
            "Watch held-out records instead."
        )
