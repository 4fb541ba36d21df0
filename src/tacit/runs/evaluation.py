"""Baselines (each site alone, all records pooled) and confidence intervals of a result.

Baselines are trained by the same local work; they look at records without protection, and are for
simulations, open runs and rehearsals. Intervals cover the sampling of held-out records alone: nothing is
trained again, so the variation from training records and random draws is not in them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from tacit.errors import TacitError
from tacit.learning.progress import Tell, silent
from tacit.learning.record import Record
from tacit.learning.task import Task, at_round
from tacit.privacy.contracts import layout_of
from tacit.privacy.mechanisms.base import NoPrivacy
from tacit.privacy.provenance import Provenance
from tacit.runs.clusters import own_records, score_clusters, weighted_mean
from tacit.runs.context import RunContext
from tacit.runs.queries import final_query_of
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort, Federation
from tacit.sites.table import Records

Ends = tuple[float, float]
# Enough for a deviation, and few enough to score a model so often.
GROUPS = 20
LEVEL = 0.95
CERTAIN = "finding out how certain the scores are"
# Groups of fewer records tell more about themselves than about a score.
FEWEST = 3
EACH, TOGETHER = "training each site alone, to compare", "training on pooled records, to compare"
# Scores of a model, or of anything else, on fixed records.
Scoring = Callable[[Any], dict[str, float]]


def compare(
    context: RunContext,
    record: Record,
    state: Array,
    chosen: Mapping[str, int],
    test: Records | None,
    key: Key,
    tell: Tell = silent,
) -> Record:
    """Return the record with baselines and confidence intervals added.

    Args:
        context: The run's context.
        record: The record of the run.
        state: The model, or several.
        chosen: The model of each site, with several models.
        test: The records that models are scored on.
        key: The run's key.
        tell: Receives progress.
    """

    def ours(records: Records) -> dict[str, float]:
        return score_clusters(context.task, state, chosen, records)

    def parted(records: Records) -> list[tuple[tuple[str, ...], Records]]:
        return own_records(context.task, state, chosen, records)

    rounds, provenance = context.spec.rounds, context.prepared.provenance
    others = train_baselines(context.task, context.federation, rounds, test, provenance, key, parted, tell)
    found = {name: score(test) for name, score in others.items()}
    # Worlds are judged by many episodes, whose intervals are among the scores.
    if test is None or layout_of(context.task) == "environments":
        return replace(record, baselines=found)
    ends = intervals({"federated": ours, **others}, test, key / "intervals", tell)
    return replace(record, baselines=found, intervals=ends)


def train_baselines(
    task: Task,
    federation: Federation,
    rounds: int,
    test: Records | None,
    provenance: Provenance,
    key: Key,
    parted: Callable[[Any], Sequence[tuple[Sequence[str], Any]]] = lambda records: (),
    tell: Tell = silent,
) -> dict[str, Scoring]:
    """Train and score the baselines: each site `alone` (their mean) and all records `pooled`.

    Args:
        task: The task.
        federation: The sites.
        rounds: The number of rounds.
        test: The records that models will be scored on; without any, nothing is trained.
        provenance: Decides if the records may be looked at.
        key: The run's key.
        parted: Records by the sites that they are scored for, with several models.
        tell: Receives progress.
    """
    if test is None:
        return {}
    provenance.look("the scores of models trained alone and on pooled records", instead="do without them")
    if layout_of(task) == "columns":
        # Columns have no rounds: the task knows what its parties can do alone.
        tell("training one party alone and on all columns, to compare", None)
        return cast(Any, task).rivals(federation)
    start = task.start(federation, key / "start")
    everybody, pooled = federation.cohort(list(federation)), federation.pool()
    alone = _train(task, start, everybody, rounds, key / "alone", partial(tell, EACH))
    together = _train(task, start, pooled.cohort(["pooled"]), rounds, key / "pooled", partial(tell, TOGETHER))
    places = {name: place for place, name in enumerate(federation)}
    if hasattr(task, "score_each"):
        # Agents that trained alone are judged where they trained.
        return {
            "alone": lambda records: cast(Any, task).score_each(alone, places, records),
            "pooled": lambda records: task.score(together[0], records),
        }

    def scoring(states: Callable[[Sequence[str]], Array]) -> Scoring:
        def score(records: Any) -> dict[str, float]:  # noqa: ANN401
            parts = [(names, own, _scores(task, states(names), own)) for names, own in parted(records)]
            if not parts:
                return _scores(task, states(list(federation)), records)
            return weighted_mean([(len(own), scores) for _, own, scores in parts])

        return score

    return {
        "alone": scoring(lambda names: alone[[places[name] for name in names]]),
        "pooled": scoring(lambda names: together),
    }


def _train(
    task: Task,
    start: Array,
    cohort: Cohort,
    rounds: int,
    key: Key,
    tell: Callable[[float | None], None] = lambda share: None,
) -> Array:
    """The states (sites, coordinates) after as many rounds of work without any exchange."""
    # Sums are divided by a site's own expected batch: nothing is averaged that would need a common scale.
    apart = replace(cohort, mean_site_size=None)
    states = np.broadcast_to(start, (len(cohort), start.size))
    tell(None)
    for number in range(1, rounds + 1):
        work = at_round(task, number, rounds)
        states = states + work.train(states, apart, NoPrivacy(), key / number).matrix
        tell(number / rounds)
    closing = final_query_of(task)
    if closing is None:
        return states
    answers = closing.train(states, apart, NoPrivacy(), key / "closing").matrix
    return np.stack([closing.apply(*pair) for pair in zip(states, answers, strict=True)])


def _scores(task: Task, states: Array, test: Records) -> dict[str, float]:
    scores = [task.score(state, test) for state in states]
    return {name: float(np.mean([entry[name] for entry in scores])) for name in scores[0]}


def intervals(
    scorings: Mapping[str, Scoring], test: Records, key: Key, tell: Tell = silent
) -> dict[str, dict[str, Ends]]:
    """Compute bootstrap intervals of every score of every model, from the same resamples for all.

    The delete-a-group jackknife: the deviation of a score is that of its values without a group each, times
    the root of (groups - 1).

    Args:
        scorings: The scoring functions, by the name of the model.
        test: The records.
        key: The key of the resamples.
        tell: Receives progress.
    """
    if len(test) < FEWEST * GROUPS:
        return {}
    order = key.generator().permutation(len(test))
    rests = [np.sort(np.delete(order, slice(first, None, GROUPS))) for first in range(GROUPS)]
    parts = [test.take(rest) for rest in rests]
    found: dict[str, dict[str, Ends]] = {}
    tell(CERTAIN, None)
    for number, (name, score) in enumerate(scorings.items()):
        try:
            without = list[dict[str, float]]()
            for part in parts:
                without.append(score(part))
                tell(CERTAIN, (number + len(without) / GROUPS) / len(scorings))
            whole = score(test)
        except TacitError:
            # Without these few a score cannot be computed: then it has no interval.
            continue
        found[name] = {
            entry: _ends(value, [scores[entry] for scores in without])
            for entry, value in whole.items()
            if all(math.isfinite(scores.get(entry, math.nan)) for scores in (whole, *without))
        }
    return found


def _ends(value: float, without: list[float]) -> Ends:
    from scipy.stats import t

    groups = len(without)
    deviation = float(np.std(without)) * math.sqrt(groups - 1)
    reach = float(t.ppf((1 + LEVEL) / 2, groups - 1)) * deviation
    return value - reach, value + reach
