"""Verdict on a result: whether its scores are better than those of the simplest baseline.

A score that is not better, or may not be, is said in words before anything else of a run.
"""

from collections.abc import Mapping

from tacit.learning.record import Simplest
from tacit.reports.text import NAMES, number


def judge(simplest: Simplest | None, scores: Mapping[str, float]) -> tuple[str, ...]:
    """Judge scores beside the simplest baseline: return sentences if some are not better, or may not be.

    Args:
        simplest: The baseline, with intervals of the gain where they are known.
        scores: Scores of the model.
    """
    if simplest is None:
        return ()
    gains = simplest.gains(scores)
    told = {
        name: f"{NAMES.get(name, name)} {number(scores[name], name)} against {number(value, name)}"
        for name, value in simplest.scores.items()
        if name in gains and "@" not in name
    }
    worse = [words for name, words in told.items() if not gains[name] > 0]
    unsure = [
        f"{words} (gain {number(low, name)} to {number(high, name)})"
        for name, words in told.items()
        if gains[name] > 0 and name in simplest.gain
        for low, high in [simplest.gain[name]]
        if low <= 0
    ]
    found = [f"not better than {simplest.name}, the simplest baseline: {'; '.join(worse)}"] if worse else []
    if unsure:
        found.append(f"not clearly better than {simplest.name} by its 95 % interval: {'; '.join(unsure)}")
    return tuple(found)
