"""Early stopping, and the choice of the round to keep.

The criterion is either a score on public held-out records, or a loss that every site reports on records it
keeps apart, with noise and at a price. Choosing a round by a score uses the records behind the score up: of
held-out records, one half is watched and the other scores the result.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from tacit.errors import Refused, require, require_count, require_positive
from tacit.learning.record import Round
from tacit.learning.task import Goal, TaskBase
from tacit.privacy.accounting import calibrate
from tacit.privacy.mechanisms.base import BoundedSum
from tacit.privacy.policy import Open, Privacy, Provenance
from tacit.runtime.arrays import Array
from tacit.runtime.keys import Key
from tacit.sites.federation import Federation, require_rows
from tacit.sites.splits import hold_out
from tacit.sites.table import Records


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """Early stopping: end when the score has not improved for a while, and keep the best round.

    Args:
        patience: Number of rounds to wait for an improvement.
        epsilon: Part of the promise that pays for watching: each site keeps records apart and releases their
            noisy loss after every round. By default held-out records are watched.
        apart: Share of its records that a site keeps apart; the draw is secret.
        bound: Largest loss of one record; larger ones are clipped to it.
    """

    patience: int = 5
    epsilon: float | None = None
    apart: float = 0.2
    bound: float = 5.0
    kind: ClassVar[str] = "patience"

    def __post_init__(self) -> None:
        require_count("patience", self.patience)
        if self.epsilon is not None:
            require_positive("epsilon", self.epsilon)
        require(0 < self.apart < 1, "apart", self.apart, "above 0 and below 1")
        require_positive("bound", self.bound)

    def reserve(self, privacy: Privacy | Open) -> Privacy | Open:
        """Return the privacy policy that is left for training after the watched loss has its part."""
        if self.epsilon is None:
            return privacy
        if isinstance(privacy, Open) or privacy.unit != "record":
            raise Refused(
                "[stop] epsilon pays for a watched loss in runs that protect records; this run does not. "
                "Remove it, and watch held-out records"
            )
        if privacy.epsilon is None:
            return privacy
        require(self.epsilon < privacy.epsilon, "[stop] epsilon", self.epsilon, "below that of the promise")
        share = self.epsilon / privacy.epsilon
        # The parts add up: (e1, d1) and (e2, d2) make (e1 + e2, d1 + d2), and the ledger finds less.
        return replace(privacy, epsilon=privacy.epsilon - self.epsilon, delta=privacy.delta * (1 - share))

    def noisy_loss(self, privacy: Privacy | Open, rounds: int) -> BoundedSum | None:
        """Return the bounded sum that buys the watched loss of all rounds; None for held-out records."""
        if self.epsilon is None or isinstance(privacy, Open):
            return None
        share = 1.0 if privacy.epsilon is None else self.epsilon / privacy.epsilon
        multiplier = calibrate(
            epsilon=self.epsilon, delta=privacy.delta * share, steps=rounds, mechanism=privacy.mechanism
        )
        return BoundedSum(
            law=privacy.mechanism,
            bound=self.bound,
            multiplier=multiplier,
            purpose="watched loss",
            rehearsal=privacy.rehearsal,
        )


class Watch(Protocol):
    """Protocol of the score that is computed after every round."""

    @property
    def goal(self) -> Goal:
        """The score that decides, and its good direction."""
        ...

    @property
    def patience(self) -> int | None:
        """Rounds without improvement before stopping; None to train all rounds and keep the last."""
        ...

    def scores(self, task: TaskBase, state: Array, key: Key) -> dict[str, float]:
        """Score the state after a round."""
        ...


@dataclass(frozen=True, eq=False)
class HeldOutWatch:
    """Watch of scores on held-out records, free of charge; empty without held-out records."""

    records: Records | None
    goal: Goal
    patience: int | None

    def scores(self, task: TaskBase, state: Array, key: Key) -> dict[str, float]:
        """The scores of the task."""
        return finite(task.score(state, self.records)) if self.records is not None else {}


@dataclass(frozen=True, eq=False)
class NoisyLoss:
    """Watch of the noisy loss on the records that every site reserves.

    Args:
        apart: Those records.
        mechanism: The bounded sum that clips the losses and adds the noise; its price is charged with each
            round.
        patience: Rounds without improvement before stopping.
    """

    apart: Federation
    mechanism: BoundedSum
    patience: int | None

    @property
    def goal(self) -> Goal:
        """The noisy loss."""
        return ("watched_loss", "min")

    def scores(self, task: TaskBase, state: Array, key: Key) -> dict[str, float]:
        """The noisy losses of all sites, added up."""
        told = 0.0
        for name in self.apart:
            losses = task.losses(state, self.apart.records_of(name))
            told += self.mechanism.noisy_total(losses, key / name / "watch")
        return {self.goal[0]: told}


def watch_over(
    federation: Federation, stopping: Stopping | None, goal: Goal, provenance: Provenance, key: Key
) -> tuple[HeldOutWatch, Records | None]:
    """Split held-out records: return the watch over one part, and the records left to score the result."""
    held_out = federation.held_out
    if held_out is not None and not federation.held_out_public:
        provenance.look("the scores on held-out records", instead="score on public records, or on none")
    if held_out is not None and held_out.at_a_glance is not None:
        # Other episodes in the same worlds.
        return HeldOutWatch(
            held_out.at_a_glance, goal, None if stopping is None else stopping.patience
        ), held_out
    if stopping is None or stopping.epsilon is not None:
        return HeldOutWatch(held_out, goal, None), held_out
    if held_out is None:
        raise Refused("[stop] has no held-out records to watch: hold some out, or pay with [stop] epsilon")
    tested, watched = hold_out(held_out, 0.5, key / "watch")
    return HeldOutWatch(held_out.take(watched), goal, stopping.patience), held_out.take(tested)


def reserve_records(
    federation: Federation, stopping: Stopping, mechanism: BoundedSum, key: Key
) -> tuple[Federation, NoisyLoss]:
    """Return the federation without the reserved records of its sites, and the watch on these."""
    sites = require_rows(federation)
    marks = (key / "apart").secret().uniform((len(sites.store),)) < stopping.apart
    training, apart = sites.split(marks, stopping.apart)
    return training, NoisyLoss(apart, mechanism, stopping.patience)


def finite(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the finite scores; a diverged model has none."""
    return {name: value for name, value in scores.items() if math.isfinite(value)}


def best(rounds: Sequence[Round], goal: Goal, patience: int | None) -> int:
    """The round to keep: the best so far, or the last one if nothing is chosen."""
    if patience is None or not rounds:
        return rounds[-1].number if rounds else 0
    sign = 1 if goal[1] == "max" else -1
    worst = -sign * math.inf
    return max(rounds, key=lambda entry: (sign * entry.scores.get(goal[0], worst), -entry.number)).number


def early_stop_reason(rounds: Sequence[Round], goal: Goal, patience: int | None) -> str | None:
    """Return the reason to stop now; None to continue."""
    waited = rounds[-1].number - best(rounds, goal, patience) if rounds else 0
    if patience is None or waited < patience:
        return None
    return f"{goal[0]} has not improved for {waited} rounds"
