"""How far scores would move with other held-out records.

A score of few records is uncertain, whoever trained the model. Intervals here tell that part, and that alone:
nothing is trained again, so how far a model depends on its own records and draws is not in them.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tacit.errors import TacitError
from tacit.learning.progress import Tell, silent
from tacit.learning.record import Record
from tacit.privacy.contracts import layout_of
from tacit.runs.baselines import Scoring, train_baselines
from tacit.runs.clusters import own_records, score_clusters
from tacit.runs.context import RunContext
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.table import Records

Ends = tuple[float, float]
# Enough for a deviation, and few enough to score a model so often.
GROUPS = 20
LEVEL = 0.95
CERTAIN = "finding out how certain the scores are"
# Groups of fewer records tell more about themselves than about a score.
FEWEST = 3


def compare(
    setting: RunContext,
    record: Record,
    state: Array,
    chosen: Mapping[str, int],
    test: Records | None,
    key: Key,
    tell: Tell = silent,
) -> Record:
    """The record with what its model is compared with, and how certain all scores are.

    Args:
        setting: What was run.
        record: What happened.
        state: The model, or several.
        chosen: Which of several models each site belongs to.
        test: The records that models are scored on.
        key: The run's key.
        tell: Told what is being done.
    """

    def ours(records: Records) -> dict[str, float]:
        return score_clusters(setting.task, state, chosen, records)

    def parted(records: Records) -> list[tuple[tuple[str, ...], Records]]:
        return own_records(setting.task, state, chosen, records)

    others = train_baselines(
        setting.task, setting.federation, setting.rounds, test, setting.provenance, key, parted, tell
    )
    found = {name: score(test) for name, score in others.items()}
    # Worlds are judged by many episodes, whose intervals are among the scores.
    if test is None or layout_of(setting.task) == "environments":
        return replace(record, baselines=found)
    ends = intervals({"federated": ours, **others}, test, key / "intervals", tell)
    return replace(record, baselines=found, intervals=ends)


def intervals(
    scorings: Mapping[str, Scoring], test: Records, key: Key, tell: Tell = silent
) -> dict[str, dict[str, Ends]]:
    """An interval for every score of every model, from the same records left out of all.

    The delete-a-group jackknife: the deviation of a score is that of its values without a group each, times
    the root of (groups - 1).

    Args:
        scorings: How each of them scores records, by name.
        test: The records.
        key: Who is left out together.
        tell: Told how far it is.
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
