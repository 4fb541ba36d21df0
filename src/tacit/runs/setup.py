"""From what a user asked for to everything that a run is made of: decided, checked, and nothing charged yet.

It is a function of its arguments alone, so that whoever reads the same experiment, the coordinator of a
federation or a site of it, comes to the same mechanism, and nobody has to be told.
"""

from dataclasses import dataclass

from tacit.aggregation.attacks.base import Attack
from tacit.aggregation.base import Aggregator
from tacit.aggregation.defence.clustering import Clusters
from tacit.aggregation.defence.quarantine import Quarantine
from tacit.aggregation.mean import Mean
from tacit.aggregation.server import Plain, ServerStep
from tacit.engines.base import Engine
from tacit.engines.local import Local
from tacit.errors import require_count
from tacit.learning.task import Task
from tacit.privacy.contracts import with_privacy
from tacit.privacy.policy import Open, Privacy
from tacit.runs.checks import (
    initial_provenance,
    poison,
    remaining_budget,
    require_layout,
    require_local_records,
    require_protection,
    require_scores,
    resolve_adaptive_clipping,
    resolve_aggregator,
    with_mechanism,
)
from tacit.runs.clusters import require_compatible_clusters, resolve_for_clusters
from tacit.runs.context import RunContext
from tacit.runs.queries import Augmenter, queries_of
from tacit.runs.stopping import HeldOutWatch, Stopping, watch_over
from tacit.runtime.keys import Key
from tacit.runtime.limits import MOST_ROUNDS
from tacit.runtime.silence import suppress_warnings
from tacit.sites.federation import Federation
from tacit.sites.sampling import Poisson, Sampling
from tacit.sites.table import Records


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """A run before its first charge.

    Args:
        setting: Everything that stays the same from round to round.
        stop: When to end before the last round, if anything was said.
        test: What the result is scored on.
    """

    setting: RunContext
    stop: Stopping | None
    test: Records | None


@suppress_warnings()
def prepare(
    task: Task,
    federation: Federation,
    *,
    privacy: Privacy | Open = Open(),
    aggregation: Aggregator = Mean(),
    server: ServerStep = Plain(),
    sampling: Sampling = Poisson(),
    stop: Stopping | None = None,
    augment: Augmenter | None = None,
    quarantine: Quarantine | None = None,
    attack: Attack | None = None,
    clusters: Clusters | None = None,
    engine: Engine = Local(),
    rounds: int = 1,
    seed: int = 0,
) -> PreparedRun:
    """Decide and check everything that can be before anything is charged; the arguments are those of `fit`.

    Raises:
        TacitError: What the user can mend: data that cannot be learnt from, a promise that cannot be kept.
    """
    require_count("rounds", rounds, MOST_ROUNDS)
    require_local_records(federation, stop=stop, augment=augment, attack=attack)
    provenance = initial_provenance(federation, privacy)
    require_layout(task, federation, rounds)
    task = with_privacy(task, privacy).bind(federation, provenance)
    require_protection(task, federation, provenance)
    rule = resolve_aggregator(
        task, aggregation, stop=stop, augment=augment, quarantine=quarantine, attack=attack,
        clusters=clusters, server=server, sampling=sampling,
    )  # fmt: skip
    training = (stop or Stopping()).reserve(remaining_budget(augment, federation, privacy, provenance))
    paid = stop is not None and stop.epsilon is not None
    require_compatible_clusters(clusters, privacy, watched=quarantine is not None, paid=paid, rounds=rounds)
    clusters = None if clusters is None else clusters.resolve(list(federation))
    aggregation = resolve_for_clusters(rule, clusters, list(federation), privacy)
    mechanism = training.solve(
        task, list(federation), aggregation, rounds, sampling=sampling.kind, records=federation.records,
        questions=queries_of(task), watched=quarantine is not None,
    )  # fmt: skip
    task = with_mechanism(task, mechanism)
    packing = resolve_adaptive_clipping(task, federation, privacy, clusters=clusters, quarantine=quarantine)
    sampling.check(list(federation))
    federation = poison(attack, federation, privacy, seed)
    watch, test = watch_over(federation, stop, task.goal, provenance, Key(seed))
    watched = [watch.records] if isinstance(watch, HeldOutWatch) else []
    require_scores(task, federation, mechanism, [test, *watched], packing)
    setting = RunContext(
        task, federation, privacy, aggregation, server, sampling, engine, rounds, mechanism, watch,
        training, augment, provenance, quarantine, attack, clusters, packing,
    )  # fmt: skip
    return PreparedRun(setting, stop, test)
