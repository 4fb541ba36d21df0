"""What federation is compared with: each site alone, and all records pooled, by the same local work.

Both look at records without protection. They are for simulations, open runs and rehearsals.
"""

from typing import TYPE_CHECKING

import numpy as np

from tacit.keys import Key
from tacit.privacy.mechanism import Unprotected
from tacit.privacy.provenance import Provenance
from tacit.questions import closing_of
from tacit.sites.site import Cohort, Federation
from tacit.sites.tables import Table
from tacit.task import Task

if TYPE_CHECKING:
    from torch import Tensor


def compare(
    task: Task, federation: Federation, rounds: int, test: Table | None, provenance: Provenance, key: Key
) -> dict[str, dict[str, float]]:
    """The scores of each site `alone` (their mean) and of all records `pooled`."""
    if test is None:
        return {}
    provenance.look("the scores of models trained alone and on pooled records", instead="do without them")
    start = task.start(federation, key / "start")
    everybody, pooled = federation.cohort(list(federation)), federation.pooled()
    alone = _scores(task, _trained(task, start, everybody, rounds, key / "alone"), test)
    together = _scores(task, _trained(task, start, pooled.cohort(["pooled"]), rounds, key / "pooled"), test)
    return {"alone": alone, "pooled": together}


def _trained(task: Task, start: "Tensor", cohort: Cohort, rounds: int, key: Key) -> "Tensor":
    """The states (sites, coordinates) after as many rounds of work without any exchange."""
    import torch

    # Sums are divided by a site's own expected batch: nothing is averaged that would need a common scale.
    apart = Cohort(cohort.names, cohort.store, cohort.starts, cohort.sizes)
    states = start.expand(len(cohort), -1)
    for number in range(1, rounds + 1):
        states = states + task.train(states, apart, Unprotected(), key / number).matrix
    closing = closing_of(task)
    if closing is None:
        return states
    answers = closing.train(states, apart, Unprotected(), key / "closing").matrix
    return torch.stack([closing.close(*pair) for pair in zip(states, answers, strict=True)])


def _scores(task: Task, states: "Tensor", test: Table) -> dict[str, float]:
    scores = [task.score(state, test) for state in states]
    return {name: float(np.mean([entry[name] for entry in scores])) for name in scores[0]}
