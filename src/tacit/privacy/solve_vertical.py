"""Solver of vertical promises: releases of parties that hold different columns of the same records.

All parties release numbers about the same people, so the prices of all columns add up, whichever party holds
them. The number of records is public, and the relation is replacement: one record is exchanged for any other,
in all of its columns at once.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from tacit.errors import Refused
from tacit.privacy.accounting.release import Law
from tacit.privacy.contracts import QuerySpec, TaskSpec
from tacit.privacy.mechanisms.base import Mechanism
from tacit.privacy.mechanisms.vertical import (
    EVERYBODY,
    ClippedSecureGram,
    GramMatrix,
    LocalColumns,
    NoisyHistograms,
)

if TYPE_CHECKING:
    from tacit.privacy.policy import Privacy


class VerticalTaskSpec(TaskSpec, Protocol):
    """Public facts about a vertical task that a promise needs.

    Before the columns are known, as in a plan, there are none.
    """

    @property
    def release_moments(self) -> bool:
        """Return True if the products of all columns are released at once, not each column by itself."""
        ...

    @property
    def holdings(self) -> Mapping[str, Sequence[str]]:
        """The columns of each party, protected or not."""
        ...

    @property
    def holders(self) -> Mapping[str, str]:
        """The party that holds each protected column, by its name."""
        ...

    @property
    def records(self) -> int | None:
        """Number of records, once that is known."""
        ...

    @property
    def widths(self) -> Mapping[str, int]:
        """Number of coordinates of a record in each column, protected or not."""
        ...

    @property
    def lengths(self) -> Mapping[str, float] | None:
        """Largest norm of a record in each protected column; None where the clip applies to all."""
        ...


def solve(
    privacy: "Privacy",
    task: VerticalTaskSpec,
    names: Sequence[str],
    rounds: int,
    questions: Sequence[QuerySpec],
) -> Mechanism:
    """The mechanism that keeps a promise for work on columns.

    Raises:
        Refused: The promise cannot be kept for this combination; the message names a way out.
    """
    _require_promise(privacy, task, rounds)
    beside = [
        release
        for question in questions
        for release in solve_query(privacy, question).release(0, set(_holders(question).values()))
    ]
    # The price is the same for however many columns: one stands for all that are not known yet.
    holders = task.holders or {"all columns": EVERYBODY}
    widths = task.widths or dict.fromkeys(holders, 1)
    radii = dict(task.lengths or dict.fromkeys(holders, privacy.clip))
    law: Law = "discrete" if privacy.noise == "secure" else "gaussian"
    multiplier = privacy.multiplier(1, 1.0, "replace", beside=beside, law=law)
    rehearsal = privacy.rehearsal
    if privacy.noise == "secure":
        held = [tuple(widths[name] for name in columns) for columns in task.holdings.values()]
        return ClippedSecureGram(
            # Here the unit is the sensitivity, not half of it.
            multiplier=multiplier / 2,
            widths=tuple(held) or ((1,),) * len(names),
            records=task.records or 1,
            colluders=privacy.colluders,
            purpose="products of all columns",
            radii=radii,
            rehearsal=rehearsal,
        )
    if task.release_moments:
        return GramMatrix(multiplier=multiplier, radii=radii, holders=holders, rehearsal=rehearsal)
    return LocalColumns(
        multiplier=multiplier, radii=radii, widths=widths, holders=holders, rehearsal=rehearsal
    )


def solve_query(privacy: "Privacy", question: QuerySpec) -> Mechanism:
    """The mechanism of a question about columns."""
    holders = _holders(question)
    solved = privacy.multiplier(len(holders), 1.0, "replace", share=question.share)
    if privacy.noise_multiplier is not None:
        # However many columns there are, all of their histograms cost what one of the given noise would.
        solved *= math.sqrt(len(holders))
    return NoisyHistograms(
        multiplier=solved,
        holders=holders,
        purpose=question.kind,
        rehearsal=privacy.rehearsal,
    )


def _holders(question: QuerySpec) -> Mapping[str, str]:
    return getattr(question, "columns", {})


def _require_promise(privacy: "Privacy", task: VerticalTaskSpec, rounds: int) -> None:
    """Refuse promises without a proven price, with a way out."""
    if rounds != 1:
        raise Refused(
            f"rounds = {rounds} is not allowed: {task.kind} releases every column once, and the rest is "
            "free. Use rounds = 1"
        )
    if privacy.unit != "record":
        raise Refused(
            f'unit = "{privacy.unit}" does not go with columns: a party is needed whole, and every record is '
            'at all parties. Use unit = "record"'
        )
    if privacy.mechanism != "gaussian":
        raise Refused(f'mechanism = "{privacy.mechanism}" is not priced for columns: use "gaussian"')
    if privacy.participation < 1:
        raise Refused(
            f"participation = {privacy.participation:g} does not go with columns: every party is needed. "
            "Use participation = 1"
        )
    if task.release_moments == (privacy.noise == "site"):
        said = "moments" if task.release_moments else "local"
        other = '"server" or "secure"' if task.release_moments else '"site"'
        raise Refused(
            f'release = "{said}" does not go with noise = "{privacy.noise}": use noise = {other}, or leave '
            "the release out"
        )
