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
from tacit.privacy.contracts import promised
from tacit.privacy.policy import Open, Privacy
from tacit.runs.checks import (
    attacked,
    combined_by,
    informed,
    left_of,
    packed_by,
    require_here,
    require_kept,
    require_layout,
    require_scores,
    taken_beforehand,
)
from tacit.runs.clusters import require_apart, settled
from tacit.runs.context import Setting
from tacit.runs.queries import Augmentation, questions
from tacit.runs.stopping import Look, Stopping, watch_over
from tacit.runtime.keys import Key
from tacit.runtime.limits import MOST_ROUNDS
from tacit.runtime.silence import suppress_warnings
from tacit.sites.federation import Federation
from tacit.sites.sampling import Poisson, Sampling
from tacit.sites.table import Records


@dataclass(frozen=True, eq=False)
class Ready:
    """A run before its first charge.

    Args:
        setting: Everything that stays the same from round to round.
        stop: When to end before the last round, if anything was said.
        test: What the result is scored on.
    """

    setting: Setting
    stop: Stopping | None
    test: Records | None


@suppress_warnings()
def readied(
    task: Task,
    federation: Federation,
    *,
    privacy: Privacy | Open = Open(),
    aggregation: Aggregator = Mean(),
    server: ServerStep = Plain(),
    sampling: Sampling = Poisson(),
    stop: Stopping | None = None,
    augment: Augmentation | None = None,
    quarantine: Quarantine | None = None,
    attack: Attack | None = None,
    clusters: Clusters | None = None,
    engine: Engine = Local(),
    rounds: int = 1,
    seed: int = 0,
) -> Ready:
    """Decide and check everything that can be before anything is charged; the arguments are those of `fit`.

    Raises:
        TacitError: What the user can mend: data that cannot be learnt from, a promise that cannot be kept.
    """
    require_count("rounds", rounds, MOST_ROUNDS)
    require_here(federation, stop=stop, augment=augment, attack=attack)
    provenance = taken_beforehand(federation, privacy)
    require_layout(task, federation, rounds)
    task = promised(task, privacy).settle(federation, provenance)
    require_kept(task, federation, provenance)
    rule = combined_by(
        task, aggregation, stop=stop, augment=augment, quarantine=quarantine, attack=attack,
        clusters=clusters, server=server, sampling=sampling,
    )  # fmt: skip
    training = (stop or Stopping()).reserve(left_of(augment, federation, privacy, provenance))
    paid = stop is not None and stop.epsilon is not None
    require_apart(clusters, privacy, watched=quarantine is not None, paid=paid, rounds=rounds)
    clusters = None if clusters is None else clusters.settled(list(federation))
    aggregation = settled(rule, clusters, list(federation), privacy)
    mechanism = training.solve(
        task, list(federation), aggregation, rounds, sampling=sampling.kind, records=federation.records,
        questions=questions(task), watched=quarantine is not None,
    )  # fmt: skip
    task = informed(task, mechanism)
    packing = packed_by(task, federation, privacy, clusters=clusters, quarantine=quarantine)
    sampling.check(list(federation))
    federation = attacked(attack, federation, privacy, seed)
    watch, test = watch_over(federation, stop, task.goal, provenance, Key(seed))
    watched = [watch.records] if isinstance(watch, Look) else []
    require_scores(task, federation, mechanism, [test, *watched], packing)
    setting = Setting(
        task, federation, privacy, aggregation, server, sampling, engine, rounds, mechanism, watch,
        training, augment, provenance, quarantine, attack, clusters, packing,
    )  # fmt: skip
    return Ready(setting, stop, test)
