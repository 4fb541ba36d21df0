"""Scores that were bought on private held-out records, in words and as a section of a report."""

from collections.abc import Iterator, Mapping
from typing import Any

from tacit.reports.page.blocks import Block, Grid, Items, Text

NO_SCORE = (
    "No score: the run has no public held-out records to score the model on. A table [evaluate] buys scores "
    "on private ones."
)
HIDDEN_SCORES = (
    "No score is shown: the noise hides all of them. A larger [evaluate] epsilon or share, more records, or "
    'noise = "secure" shows them.'
)


def evaluation_in_words(found: Mapping[str, Any] | None) -> list[str]:
    """Describe the scored records, their price, and what the noise hides; nothing without an evaluation.

    Args:
        found: The evaluation of a run, as plain data.
    """
    if not found:
        return []
    price = f"epsilon {found['epsilon']:g} for any one of them" if found.get("epsilon") else "no noise"
    told = (
        f"scored on about {found.get('records', 0.0):,.0f} private records, each held out of training with "
        f"probability {found['share']:g}, by one table of counts with {price}"
    )
    return [told, *(f"{name} is hidden: {why}" for name, why in found.get("hidden", {}).items())]


def evaluation_blocks(found: Mapping[str, Any], rows: tuple[tuple[str, str], ...] | None) -> Iterator[Block]:
    """Yield the blocks of a report: the records and their price, the scores, and what the noise hides.

    Args:
        found: The evaluation of a run, as plain data.
        rows: Name and value of each score; None where the page shows them already.
    """
    words, *hidden = evaluation_in_words(found)
    yield Text(f"Scores under the promise: the model was {words}.")
    if rows:
        yield Grid("Scores on private held-out records", ("", "score, 95 % interval"), rows)
    elif rows is not None:
        yield Text(HIDDEN_SCORES)
    if hidden:
        yield Items("Hidden by the noise", tuple(hidden))
