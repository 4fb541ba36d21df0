"""The work of a task on two neighbouring data sets, by its own code, with everything else held the same.

What is compared are the clipped sums that noise would be added to. The second side is answered with the sums
of the first: whatever it does then that the first did not, it does because of the record that differs.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tacit.audits.sensitivity.neighbours import Array, Movement
from tacit.errors import require
from tacit.learning.task import Task, Trainable, Updates
from tacit.privacy.accounting.release import Relation, Release
from tacit.privacy.contracts import Norm
from tacit.privacy.mechanisms.base import NORMS, Contributions, Mechanism, RecordLevel, clip_factors
from tacit.privacy.policy import Privacy
from tacit.runs.queries import final_query_of, initial_query_of, with_answers
from tacit.runs.setup import prepare
from tacit.runtime.keys import Key, Secret
from tacit.sites.federation import Cohort, Federation
from tacit.sites.table import Table

SITE = "site"
# How far states are from the start: what is bounded is bounded wherever a coordinator begins.
WIDTHS = (0.0, 0.1, 1.0, 10.0)


@dataclass(frozen=True)
class CoupledKey(Key):
    """A key whose draws go with the records, so that one record more changes nobody else's.

    Everybody is drawn at this rate. What a step draws beyond its records is the same for all of them: it is
    secret and independent, and a bound that holds, holds for any.
    """

    rate: float = 1.0

    def secret(self, *inputs: bytes) -> "CoupledSecret":
        """A stream of such draws, which repeats."""
        purpose = self.path[-1] if self.path else ""
        below = self.rate if purpose == "batches" else 1.0
        return CoupledSecret(hashlib.sha256(self.name).digest(), below, shared=purpose == "luck")


class CoupledSecret(Secret):
    """Draws whose last axis are records."""

    def __init__(self, seed: bytes, below: float, *, shared: bool) -> None:
        super().__init__(seed)
        self._below, self._shared = below, shared

    def uniform(self, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Numbers between 0 and the rate, each of them that of its record however many there are."""
        *others, records = shape
        drawn = super().uniform((1 if self._shared else records, *others))
        return self._below * np.broadcast_to(np.moveaxis(drawn, 0, -1), shape)


@dataclass(frozen=True, kw_only=True)
class NoiselessMechanism(RecordLevel):
    """The mechanism of a promise without its noise: it clips, and remembers what it let out.

    Args:
        replies: What to answer instead, as long as there is something.
        heard: The clipped sums, in the order in which they were asked for.
    """

    replies: Sequence[Array] = ()
    heard: list[Array] = field(default_factory=list[Array])

    def noisy_sums(self, contributions: Contributions, keys: Sequence[Key], step: int) -> Array:
        """The sums of clipped contributions, or what is to be answered instead."""
        sums = contributions.total(clip_factors(contributions.lengths(NORMS[self.law]), self.clip))
        self.heard.append(sums)
        number = len(self.heard)
        return (self.replies[number - 1] if number <= len(self.replies) else sums).copy()


@dataclass(frozen=True, kw_only=True, eq=False)
class SiteWork:
    """One thing that a site is sent to do: a question, or the steps of a round.

    Args:
        what: Its name.
        work: What does it.
        mechanism: What guards it.
        start: Where it begins.
        rate: Of its draws.
        typical: The public number of records at a site.
        seed: What repeats.
    """

    what: str
    work: Trainable
    mechanism: RecordLevel
    start: Array
    rate: float
    typical: float
    seed: int

    @property
    def norm(self) -> Norm:
        """What distances are measured in."""
        return NORMS[self.mechanism.law]

    def state(self, draws: int) -> Array:
        """Where to begin, by a number that names the draw: at the start, or some way off."""
        away = (Key(self.seed) / "state" / draws).generator().normal(size=tuple(self.start.shape))
        return self.start + WIDTHS[draws % len(WIDTHS)] * away

    def movement(self, one: Table, other: Table, relation: Relation, draws: int) -> Movement:
        """How far the sum moves that moves furthest between two data sets."""
        mine, first = self._clipped_sums(one, (), draws)
        yours, second = self._clipped_sums(other, mine, draws)
        (price,) = self.mechanism.release(1, [SITE])
        claim = price.sensitivity if relation == "add-remove" else price.under_replacement().sensitivity
        if (why := self._side_channel(first, second, price, (len(mine), len(yours)))) is not None:
            return Movement(np.inf, claim, why)
        distances = [distance(*sums, self.norm) for sums in zip(mine, yours, strict=True)]
        step = int(np.argmax(distances))
        return Movement(distances[step], claim, f"sum {step + 1} of the {self.what}")

    def sums(self, table: Table, draws: int) -> list[Array]:
        """The clipped sums of a site with these records."""
        return self._clipped_sums(table, (), draws)[0]

    def _clipped_sums(
        self, table: Table, replies: Sequence[Array], draws: int
    ) -> tuple[list[Array], Updates]:
        """The clipped sums of a site with these records, and the update that it makes of the replies."""
        guard = NoiselessMechanism(**vars(self.mechanism), replies=replies)
        sizes = np.array([len(table)], dtype=np.int64)
        cohort = Cohort((SITE,), table, np.zeros(1, dtype=np.int64), sizes, self.typical)
        key = CoupledKey(self.seed, True, rate=self.rate) / draws
        # Wild records overflow; whether that spoils a sum is what is looked at.
        with np.errstate(all="ignore"):
            updates = self.work.train(self.state(draws), cohort, guard, key)
        return guard.heard, updates

    def _side_channel(
        self, one: Updates, other: Updates, price: Release, sums: tuple[int, int]
    ) -> str | None:
        """What tells of records beside their sums, if anything does."""
        if sums[0] != sums[1]:
            return f"the number of sums of the {self.what}, {sums[0]} or {sums[1]},"
        if sums[0] > price.count:
            return f"the number of sums of the {self.what}, {sums[0]} where {price.count} are paid for,"
        mine, yours = one.matrix, other.matrix
        same = mine.shape == yours.shape and np.allclose(mine, yours, rtol=1e-9, atol=0.0, equal_nan=True)
        if not same or one.metrics != other.metrics:
            return f"the update of the {self.what}, although all sums were answered alike,"
        return None


def list_site_work(
    task: Task, records: Federation | Table, privacy: Privacy, seed: int
) -> tuple[list[SiteWork], Table]:
    """Everything that a task sends sites to do, settled and priced as in a run; and the records.

    Raises:
        TacitError: The task does not fit the records, or the promise cannot be kept for it.
    """
    require(privacy.unit == "record", "unit", privacy.unit, '"record": what one record moves is looked at')
    given = records if isinstance(records, Federation) else Federation({SITE: records})
    whole = Federation(
        {SITE: given.store}, public=given.public, reference=given.reference, encoding=given.encoding,
        records=len(given.store),
    )  # fmt: skip
    setting = prepare(task, whole, privacy=privacy, seed=seed).setting
    settled, opening = setting.task, initial_query_of(setting.task)
    found: list[tuple[str, Trainable, Mechanism, Array]] = []
    if opening is not None:
        guard = privacy.solve_query(opening, setting.mechanism)
        found.append((opening.kind, opening, guard, np.zeros(0, dtype=np.float64)))
        settled = with_answers(settled, opening.placeholder)
    start, closing = settled.start(whole, Key(seed)), final_query_of(settled)
    found.append(("training", settled, setting.mechanism, start))
    if closing is not None:
        found.append((closing.kind, closing, privacy.solve_query(closing, setting.mechanism), start))
    made = [
        SiteWork(
            what=what, work=work, mechanism=cast(RecordLevel, guard), start=begin,
            rate=settled.sample, typical=float(len(whole.store)), seed=seed,
        )
        for what, work, guard, begin in found
    ]  # fmt: skip
    return made, whole.store


def distance(one: Array, other: Array, norm: Norm) -> float:
    """How far two answers are apart; infinitely if a number in them is none, or there are not as many."""
    if one.shape != other.shape:
        return np.inf
    difference = (one - other).ravel()
    apart = np.abs(difference).sum() if norm == "l1" else np.linalg.norm(difference)
    return float(apart) if np.isfinite(apart) else np.inf
