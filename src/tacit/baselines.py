"""What federation is compared with: each site alone, and all records pooled, by the same local work.

Both look at records without protection. They are for simulations, open runs and rehearsals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tacit.keys import Key
from tacit.privacy.mechanism import Unprotected
from tacit.privacy.provenance import Provenance
from tacit.privacy.work import layout_of
from tacit.questions import closing_of
from tacit.sites.site import Cohort, Federation
from tacit.sites.tables import Records
from tacit.task import Task, of_round

if TYPE_CHECKING:
    from torch import Tensor


def compare(
    task: Task,
    federation: Federation,
    rounds: int,
    test: Records | None,
    provenance: Provenance,
    key: Key,
    apart: Sequence[tuple[Sequence[str], Records]] = (),
) -> dict[str, dict[str, float]]:
    """The scores of each site `alone` (their mean) and of all records `pooled`.

    Args:
        task: What is learnt.
        federation: Who holds which records.
        rounds: How many.
        test: The records to score models on; without any, nothing is compared.
        provenance: Who may look.
        key: The run's key.
        apart: The same records by the sites that they are scored for, where several models are compared with.
    """
    if test is None:
        return {}
    provenance.look("the scores of models trained alone and on pooled records", instead="do without them")
    if layout_of(task) == "columns":
        # Columns have no rounds: the task knows what its parties can do alone.
        return cast(Any, task).compared(federation, test)
    start = task.start(federation, key / "start")
    everybody, pooled = federation.cohort(list(federation)), federation.pooled()
    alone = _trained(task, start, everybody, rounds, key / "alone")
    together = _trained(task, start, pooled.cohort(["pooled"]), rounds, key / "pooled")
    if hasattr(task, "score_each"):
        # Agents that trained alone are judged where they trained.
        own = {name: place for place, name in enumerate(federation)}
        known = cast(Any, task).score_each(alone, own, test)
        return {"alone": known, "pooled": task.score(together[0], test)}
    if not apart:
        return {"alone": _scores(task, alone, test), "pooled": _scores(task, together, test)}
    places = {name: place for place, name in enumerate(federation)}
    own = [(alone[[places[name] for name in names]], table) for names, table in apart]
    return {
        "alone": weighed([(len(table), _scores(task, states, table)) for states, table in own]),
        "pooled": weighed([(len(table), _scores(task, together, table)) for _, table in apart]),
    }


def _trained(task: Task, start: "Tensor", cohort: Cohort, rounds: int, key: Key) -> "Tensor":
    """The states (sites, coordinates) after as many rounds of work without any exchange."""
    import torch

    # Sums are divided by a site's own expected batch: nothing is averaged that would need a common scale.
    apart = replace(cohort, typical=None)
    states = start.expand(len(cohort), -1)
    for number in range(1, rounds + 1):
        work = of_round(task, number, rounds)
        states = states + work.train(states, apart, Unprotected(), key / number).matrix
    closing = closing_of(task)
    if closing is None:
        return states
    answers = closing.train(states, apart, Unprotected(), key / "closing").matrix
    return torch.stack([closing.close(*pair) for pair in zip(states, answers, strict=True)])


def _scores(task: Task, states: "Tensor", test: Records) -> dict[str, float]:
    scores = [task.score(state, test) for state in states]
    return {name: float(np.mean([entry[name] for entry in scores])) for name in scores[0]}


def weighed(scores: Sequence[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    """The mean of scores that count for more or less, each with its weight; of such as all of them have."""
    total, known = sum(weight for weight, _ in scores), [found for _, found in scores]
    return {
        name: sum(weight * found[name] for weight, found in scores) / total
        for name in (known[0] if known else ())
        if all(name in found for found in known)
    }
