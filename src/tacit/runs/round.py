"""One round on the server: screen the updates, judge the sites, aggregate.

It sees what has left the sites, noise included, and nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tacit.aggregation.base import Aggregator
from tacit.aggregation.defence.quarantine import Quarantine
from tacit.aggregation.screening import Screen, anonymize
from tacit.errors import InvalidValue, TooFewSites
from tacit.learning.query import Updates
from tacit.learning.record import Decision, Fault, Standing
from tacit.runs.divergence import DIVERGED
from tacit.runtime.arrays import Array


class TrainingDiverged(InvalidValue):
    """Training diverged in a round: there is no further model."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RoundResult:
    """Result of a round on the server.

    Args:
        step: The aggregate; None if there is none.
        skipped: The reason that there is none.
        faults: Rejected updates, with reasons.
        shares: The weight of each update in the aggregate, for rules that report it.
        standings: The quarantine standing of each site.
        decisions: Changes of standing.
        clusters: The model of each site, with several models.
        diary: The metrics that each site reports of its local work.
    """

    step: "Array | None" = None
    skipped: str | None = None
    faults: tuple[Fault, ...] = ()
    shares: dict[str, float] = field(default_factory=dict[str, float])
    standings: dict[str, Standing] = field(default_factory=dict[str, Standing])
    decisions: tuple[Decision, ...] = ()
    clusters: dict[str, int] = field(default_factory=dict[str, int])
    diary: dict[str, dict[str, list[float]]] = field(default_factory=dict[str, dict[str, list[float]]])


# Updates by the model that they move, and which model each site belongs to.
Groups = tuple[list[Updates], dict[str, int]]


def single_model(updates: Updates) -> Groups:
    """Assign all updates to one model."""
    return [updates], {}


@dataclass(frozen=True, eq=False)
class RoundAggregator:
    """Turn the updates of a round into one step.

    Args:
        aggregation: The aggregation rule.
        quarantine: The rule that watches the sites, if there is one.
        blind: True under secure aggregation: the rows are means over groups of sites, not updates of sites.
        sites: The number of sites in the federation.
    """

    aggregation: Aggregator
    quarantine: Quarantine | None = None
    blind: bool = False
    sites: int = 1

    def __call__(
        self,
        updates: Updates,
        screen: Screen,
        past: Mapping[str, Standing],
        *,
        expected: float | None,
        parted: Callable[[Updates], Groups] = single_model,
    ) -> RoundResult:
        """Screen, judge and combine the updates.

        Args:
            updates: The updates that the sites sent.
            screen: The limits that an update must keep.
            past: The standing of each site before.
            expected: The public number of sites to average over; None where participation is public.
            parted: Splits the updates by the model that they move.

        Raises:
            TrainingDiverged: None of all the sites sent finite numbers.
        """
        kept, faults = screen.rows(updates)
        diverged = not kept.names and all(fault.reason == "not-finite" for fault in faults)
        if diverged and len(faults) >= (1 if self.blind else self.sites):
            raise TrainingDiverged(
                f"{DIVERGED} in round {screen.round}: no site sent finite numbers; lower the lr"
            )
        standings, decisions = dict(past), tuple[Decision, ...]()
        if self.quarantine is not None:
            standings, decisions = self.quarantine.judge(kept, past, self._most(len(kept.names)))
            kept = self.quarantine.admit(kept, standings)
        groups, clusters = parted(kept)
        told = RoundResult(
            # Secret participation: the names in faults would reveal it.
            faults=faults if expected is None else anonymize(faults),
            standings=standings,
            decisions=decisions,
            clusters=clusters,
        )
        return replace(told, **self._steps(groups, expected))

    def _steps(self, groups: Sequence[Updates], expected: float | None) -> dict[str, Any]:
        """Compute the step of each model, or why there is none; a model that too few moved stays in place."""
        steps: list[Array | None] = []
        shares: dict[str, float] = {}
        why = "no site sent a usable update"
        for group in groups:
            try:
                step, told = self._step(group, expected)
            except TooFewSites as error:
                why, step, told = str(error), None, {}
            except MemoryError:
                # The error's own text would reveal how many sites took part.
                why, step, told = "not enough memory to combine the updates", None, {}
            steps.append(step)
            shares |= told
        known = next((step for step in steps if step is not None), None)
        if known is None:
            return {"skipped": why}
        if len(groups) == 1:
            return {"step": known, "shares": shares}
        filled = [np.zeros_like(known) if step is None else step for step in steps]
        return {"step": np.stack(filled), "shares": shares}

    def _step(self, kept: Updates, expected: float | None) -> "tuple[Array, dict[str, float]]":
        if expected is not None:
            # Absent sites count as zeros: there are never too few, and the realized count stays secret.
            return self.aggregation(kept, sites=expected), {}
        if not kept.names:
            raise TooFewSites("no site sent a usable update")
        if self.blind:
            return self.aggregation.combine_groups(kept), {}
        self.aggregation.tolerates(len(kept.names))
        shares = self.aggregation.shares(kept)
        # Equal shares say nothing beyond "mean".
        if shares is None or float(shares.max()) == float(shares.min()):
            return self.aggregation(kept), {}
        # A rule that says how much of each update is in its result has found it already.
        return shares @ kept.matrix, dict(zip(kept.names, shares.tolist(), strict=True))

    def _most(self, sites: int) -> int:
        """Return the largest number of sites that may be left out without breaking the rule's tolerance."""
        most = sites // 3
        for left_out in range(most + 1):
            try:
                self.aggregation.tolerates(sites - left_out)
            except TooFewSites:
                return max(left_out - 1, 0)
        return most
