"""When a run ends before its last round, and which round is kept.

Choosing a round by a score uses the records behind the score up: what is watched and what the result is
scored on are therefore different halves of the held-out records.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tacit.errors import require, require_count
from tacit.keys import Key
from tacit.privacy.provenance import Provenance
from tacit.record import Round
from tacit.sites.site import Federation
from tacit.sites.tables import Table

Goal = tuple[str, Literal["max", "min"]]


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """End when the score has not improved for a while, and keep the best round.

    Args:
        patience: How many rounds to wait for something better.
    """

    patience: int = 5
    kind: ClassVar[str] = "patience"

    def __post_init__(self) -> None:
        require_count("patience", self.patience)


@dataclass(frozen=True, eq=False)
class Watch:
    """What is scored after every round, what the result is scored on, and what counts as better.

    Args:
        scored: Records for the score of every round; None where there are none.
        test: Records for the score of the result.
        goal: The score that counts, and its good direction.
        stopping: When to stop, if at all.
    """

    scored: Table | None
    test: Table | None
    goal: Goal
    stopping: Stopping | None

    @classmethod
    def over(
        cls, federation: Federation, stopping: Stopping | None, goal: Goal, provenance: Provenance, key: Key
    ) -> "Watch":
        """Watch the held-out records: all of them, or half of them if a choice depends on it."""
        held_out = federation.held_out
        if held_out is None:
            require(stopping is None, "stop", stopping, "left out: there are no held-out records to watch")
            return cls(None, None, goal, None)
        if not federation.held_out_public:
            provenance.look("the scores on held-out records", instead="score on public records, or on none")
        if stopping is None:
            return cls(held_out, held_out, goal, None)
        order = (key / "watch").generator().permutation(len(held_out))
        half = len(held_out) // 2
        return cls(held_out.take(order[:half]), held_out.take(order[half:]), goal, stopping)

    def best(self, rounds: list[Round]) -> int:
        """The round to keep: the best so far, or the last one if nothing is chosen."""
        if self.stopping is None or not rounds:
            return rounds[-1].number if rounds else 0
        name, direction = self.goal
        sign = 1 if direction == "max" else -1
        return max(rounds, key=lambda entry: (sign * entry.scores[name], -entry.number)).number

    def enough(self, rounds: list[Round]) -> str | None:
        """Why to stop now, in words; None to go on."""
        if self.stopping is None or not rounds:
            return None
        waited = rounds[-1].number - self.best(rounds)
        if waited < self.stopping.patience:
            return None
        return f"{self.goal[0]} has not improved for {waited} rounds"
