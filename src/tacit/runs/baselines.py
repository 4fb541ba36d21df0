"""What federation is compared with: each site alone, and all records pooled, by the same local work.

Both look at records without protection. They are for simulations, open runs and rehearsals.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from tacit.learning.progress import Tell, silent
from tacit.learning.task import Task, at_round
from tacit.privacy.contracts import layout_of
from tacit.privacy.mechanisms.base import NoPrivacy
from tacit.privacy.provenance import Provenance
from tacit.runs.queries import final_query_of
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Cohort, Federation
from tacit.sites.table import Records

EACH, TOGETHER = "training each site alone, to compare", "training on pooled records, to compare"
# How good something is on these records.
Scoring = Callable[[Any], dict[str, float]]


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
    """How each site `alone` (their mean) and all records `pooled` score records: both are trained here.

    Args:
        task: What is learnt.
        federation: Who holds which records.
        rounds: How many.
        test: The records that models will be scored on; without any, nothing is trained.
        provenance: Who may look.
        key: The run's key.
        parted: Records by the sites that they are scored for, where several models are compared with.
        tell: Told what is being done.
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


def weighted_mean(scores: Sequence[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    """The mean of scores that count for more or less, each with its weight; of such as all of them have."""
    total, known = sum(weight for weight, _ in scores), [found for _, found in scores]
    return {
        name: sum(weight * found[name] for weight, found in scores) / total
        for name in (known[0] if known else ())
        if all(name in found for found in known)
    }
