"""Empirical check of sensitivity, for those who bring their own losses, tasks and statistics.

A promise is as true as the sensitivity that its noise was made for. This module tries the sensitivity of a
user's loss, task or statistic on many neighboring data sets, ordinary and wild ones (`neighbours` makes
them). Passing proves nothing; a failure is disproof by two data sets that can be inspected.

A task does its own work on both sides, with everything else held the same. The clipped sums that noise would
be added to are compared. The second side is answered with the sums of the first: any further difference in
its behavior is due to the record that differs.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.audits.sensitivity.neighbours import (
    Domain,
    Movement,
    NeighbourCandidate,
    edge_records,
    search_worst,
)
from tacit.errors import TacitError, require, require_count, require_positive, require_word
from tacit.learning.query import Updates, Work
from tacit.learning.task import Task, as_task
from tacit.privacy.accounting.release import Relation, Release
from tacit.privacy.contracts import Norm
from tacit.privacy.mechanisms.base import NORMS, Contributions, Mechanism, RecordLevel, clip_factors
from tacit.privacy.mechanisms.counts import NoisyCounts, count_records
from tacit.privacy.policy import Privacy
from tacit.runs.queries import final_query_of, initial_query_of
from tacit.runs.setup import prepare
from tacit.runs.spec import RunSpec
from tacit.runtime.arrays import Array
from tacit.runtime.contracts import Bindable, name_of
from tacit.runtime.keys import Key, Secret
from tacit.sites.federation import FEWEST_RECORDS, Cohort, RowFederation
from tacit.sites.table import Table

__all__ = ["Movement", "Pair", "Sensitivity", "SensitivityExceeded", "check_sensitivity"]


Statistic = Callable[[Array], ArrayLike]
Bounds = tuple[ArrayLike, ArrayLike]

# Tolerance for rounding in a distance: clipping is good to nine digits.
SLACK = 1 + 1e-8
# One edge of the answer, at which rounding would decide, is searched per this many neighbors of a task, or
# of a function: an edge of a task takes as long as that many neighbors.
TASK_EDGE, FUNCTION_EDGE = 100, 10
# The number of records drawn from bounds alone.
DRAWN = 100
# A target of no more values than this has no others.
FEW_VALUES = 10
# The least that a target may be which is always above 0.
LEAST = 1e-300
SITE = "site"
# Distances of states from the start: a bound must hold wherever a coordinator begins.
WIDTHS = (0.0, 0.1, 1.0, 10.0)
OTHERWISE = (
    "look for what one record changes in the contributions of others (a mean, a rank, a risk set, a number "
    "of records, the rounding of a product over all of them), which clipping each of them does not bound: "
    "form such a loss in groups. Otherwise bound what one record contributes, or claim more"
)


@dataclass(frozen=True, eq=False)
class Pair:
    """Two neighboring data sets, with the state that both sides share.

    Args:
        one: The records of one side.
        other: The same with one more at the end; or with another record there.
        state: The state that a task begins with; a function has none.
        again: Measures them once more.
    """

    one: Table | Array
    other: Table | Array
    state: "Array | None"
    again: Callable[[], Movement] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Sensitivity: the largest distance found between answers on neighboring data sets.

    Args:
        subject: The name of what was looked at.
        moved: The distance.
        claim: The claimed sensitivity.
        what: The answer, in words.
        norm: The norm of the distance.
        relation: The neighboring relation.
        neighbours: The number of tried pairs.
        pair: Between which of them it moved.
    """

    subject: str
    moved: float
    claim: float
    what: str
    norm: Norm
    relation: Relation
    neighbours: int
    pair: Pair = field(repr=False)

    @property
    def ratio(self) -> float:
        """Distance as a share of the claim."""
        return self.moved / self.claim

    def __str__(self) -> str:
        change = "one record more" if self.relation == "add-remove" else "another record in place of one"
        far = f"by {self.moved:.4g} ({self.norm})" if math.isfinite(self.moved) else "without bound"
        return (
            f"{self.subject}: {change} moves {self.what} {far}; {self.claim:.4g} is claimed, "
            f"{self.neighbours} neighbors were tried"
        )


class SensitivityExceeded(TacitError, AssertionError):
    """One record moves a release further than claimed; `found` holds the data that show it."""

    def __init__(self, found: Sensitivity) -> None:
        super().__init__(
            f"{found}. That is {found.ratio:.9g} times the claim: {OTHERWISE}. The data are in .found.pair"
        )
        self.found = found


@overload
def check_sensitivity(
    subject: Task,
    records: RowFederation | Table,
    *,
    privacy: Privacy,
    relation: Relation = "add-remove",
    neighbours: int = 200,
    seed: int = 0,
) -> Sensitivity: ...


@overload
def check_sensitivity(
    subject: Statistic,
    records: ArrayLike | None = None,
    *,
    claim: float,
    norm: Norm = "l2",
    bounds: Bounds | None = None,
    relation: Relation = "add-remove",
    neighbours: int = 200,
    seed: int = 0,
) -> Sensitivity: ...


def check_sensitivity(
    subject: Task | Statistic,
    records: RowFederation | Table | ArrayLike | None = None,
    *,
    privacy: Privacy | None = None,
    claim: float | None = None,
    norm: Norm = "l2",
    bounds: Bounds | None = None,
    relation: Relation = "add-remove",
    neighbours: int = 200,
    seed: int = 0,
) -> Sensitivity:
    """Try to move a release further than its claimed sensitivity, by one record.

    A task does its own work, on one site, with the mechanism that its promise solves for but without noise:
    each of its sums is held against the charged sensitivity, and everything else that it releases must follow
    from its sums. All records are sampled, and secret draws of its own (`key.secret()`) stay with their
    records, if those are the last axis. A function of rows (records, columns) is held against `claim`.

    Args:
        subject: A task, or a function from rows of numbers to its release.
        records: Example records; a task's features may be anything finite beside, and its targets keep their
            sign, or their values if those are few.
        privacy: For a task: the policy, with `unit = "record"`.
        claim: For a function: the claimed sensitivity.
        norm: For a function: `l2`, as Gaussian noise needs, or `l1`, as Laplace noise does.
        bounds: For a function: the least and the most that records may hold, in all columns or in each;
            without, anything finite.
        relation: The neighboring relation: add or remove a record, or replace one.
        neighbours: The number of neighboring data sets to try; half of them are the worst of the others, made
            worse.
        seed: The seed.

    Returns:
        The worst pair that was found, if it is within the claim.

    Raises:
        SensitivityExceeded: It is beyond the claim.
    """
    require_word("relation", relation, ("add-remove", "replace"))
    require_count("neighbours", neighbours)
    if isinstance(subject, Bindable):
        require(claim is None, "claim", claim, "left out for a task: its mechanism has a claim")
        require(bounds is None, "bounds", bounds, "left out for a task: its features may be anything")
        parts = _task_probes(as_task(cast(Task, subject)), records, privacy, relation, seed)
    else:
        require(privacy is None, "privacy", privacy, "left out for a function: it has a claim")
        parts = [_function_probe(subject, records, claim, norm, bounds, relation, seed)]
    found = max((_worst(part, relation, neighbours, seed) for part in parts), key=lambda one: one.ratio)
    if found.ratio > SLACK:
        raise SensitivityExceeded(found)
    return found


@dataclass(frozen=True, eq=False)
class Probe:
    """Examined answer: its measure, its domain of records, and its presentation."""

    name: str
    norm: Norm
    domain: Domain
    measure: Callable[[NeighbourCandidate], Movement]
    pair: Callable[[NeighbourCandidate], Pair]
    answer: Callable[[Array, int], Array]
    per_edge: int


def _worst(part: Probe, relation: Relation, neighbours: int, seed: int) -> Sensitivity:
    draw = (Key(seed) / "neighbours").generator()
    movement, candidate = search_worst(part.measure, part.domain, relation, neighbours, draw)
    if relation == "add-remove":
        # Under `replace` the number of records is the same on both sides, and so is the rounding.
        for number in range(math.ceil(neighbours / part.per_edge)):
            for rows in edge_records(partial(_answer, part, number), part.domain, 1, draw):
                tried = NeighbourCandidate(rows, number)
                found = part.measure(tried)
                if found.ratio > movement.ratio:
                    movement, candidate = found, tried
    return Sensitivity(
        part.name, movement.moved, movement.claim, movement.what, part.norm, relation, neighbours,
        part.pair(candidate),
    )  # fmt: skip


def _answer(part: Probe, draws: int, rows: Array) -> Array:
    with np.errstate(all="ignore"):
        return part.answer(rows, draws)


def _task_probes(
    task: Task,
    records: RowFederation | Table | ArrayLike | None,
    privacy: Privacy | None,
    relation: Relation,
    seed: int,
) -> list[Probe]:
    known = isinstance(records, RowFederation | Table)
    require(known, "records", type(records).__name__, "a federation or a table, for a task")
    require(isinstance(privacy, Privacy), "privacy", privacy, "the promise that is made, for a task")
    found, example = list_site_work(
        task, cast("RowFederation | Table", records), cast(Privacy, privacy), seed
    )
    form = Form(example)
    return [_work_probe(task.kind, asking, form, relation) for asking in found]


def _work_probe(name: str, asking: "SiteWork", form: "Form", relation: Relation) -> Probe:
    def tables(candidate: NeighbourCandidate) -> tuple[Table, Table]:
        one, other = candidate.sides(relation)
        return form.table(one), form.table(other)

    def measure(candidate: NeighbourCandidate) -> Movement:
        return asking.movement(*tables(candidate), relation, candidate.draws)

    def pair(candidate: NeighbourCandidate) -> Pair:
        return Pair(*tables(candidate), asking.state(candidate.draws), lambda: measure(candidate))

    def answer(rows: Array, draws: int) -> Array:
        return np.concatenate([sums.ravel() for sums in asking.sums(form.table(rows), draws)])

    return Probe(name, asking.norm, form.domain(), measure, pair, answer, TASK_EDGE)


def _function_probe(
    function: Statistic,
    records: RowFederation | Table | ArrayLike | None,
    claim: float | None,
    norm: Norm,
    bounds: Bounds | None,
    relation: Relation,
    seed: int,
) -> Probe:
    require_positive("claim", claim)
    require_word("norm", norm, ("l2", "l1"))
    # A partial function, or an object that is called, has no name of its own.
    claimed, name = cast(float, claim), name_of(function)

    def measure(candidate: NeighbourCandidate) -> Movement:
        # A function may write into what it is given.
        with np.errstate(all="ignore"):
            one, other = (
                np.array(function(side.copy()), dtype=np.float64) for side in candidate.sides(relation)
            )
            return Movement(distance(one, other, norm), claimed, "the answer")

    def pair(candidate: NeighbourCandidate) -> Pair:
        return Pair(*candidate.sides(relation), None, lambda: measure(candidate))

    def answer(rows: Array, draws: int) -> Array:
        return np.atleast_1d(np.array(function(rows.copy()), dtype=np.float64)).ravel()

    return Probe(name, norm, _bounded_domain(records, bounds, seed), measure, pair, answer, FUNCTION_EDGE)


def _bounded_domain(
    records: RowFederation | Table | ArrayLike | None, bounds: Bounds | None, seed: int
) -> Domain:
    """The records that were given, or drawn evenly within bounds, and how far others may be off."""
    low, high = (np.atleast_1d(np.asarray(end, dtype=np.float64)) for end in bounds or (-np.inf, np.inf))
    require(bool((low < high).all()), "bounds", bounds, "the least below the most")
    if records is None:
        finite = bounds is not None and np.isfinite([*low, *high]).all()
        require(bool(finite), "records", None, "given, unless there are finite bounds to draw them within")
        shape = (DRAWN, max(len(low), len(high)))
        pool: Array = (Key(seed) / "records").generator().uniform(low, high, size=shape)
    else:
        plain = not isinstance(records, RowFederation | Table)
        require(plain, "records", type(records).__name__, "rows of numbers, for a function")
        pool = np.asarray(cast(ArrayLike, records), dtype=np.float64)
    right = pool.ndim == 2 and len(pool) >= FEWEST_RECORDS and bool(np.isfinite(pool).all())
    require(right, "records", f"shape {pool.shape}", f"{FEWEST_RECORDS} rows of finite numbers or more")
    width = int(pool.shape[1])
    fits = {len(low), len(high)} <= {1, width}
    require(fits, "bounds", f"{len(low)} and {len(high)} numbers", f"one for all, or {width}, one per column")
    inside = bool(((low <= pool) & (pool <= high)).all())
    require(inside, "records", "some beyond their bounds", "within bounds")
    low, high = np.broadcast_to(low, width), np.broadcast_to(high, width)
    return Domain(pool, low, high, np.zeros(width, dtype=np.bool_))


@dataclass(frozen=True, eq=False)
class Form:
    """Structure of records of a kind, by an example of them."""

    example: Table

    def table(self, rows: Array) -> Table:
        """Rows of numbers as the records that they are."""
        start = len(self.example.columns)
        targets: dict[str, Array] = {}
        for name, values in self.example.targets.items():
            numbers = int(np.prod(values.shape[1:], dtype=np.int64))
            targets[name] = rows[:, start : start + numbers].reshape(len(rows), *values.shape[1:])
            start += numbers
        return Table(rows[:, : len(self.example.columns)], targets, self.example.columns)

    def domain(self) -> Domain:
        """Return the domain of records: any features, and targets of their sign, or of their few values."""
        flat = [values.reshape(len(values), -1) for values in self.example.targets.values()]
        pool, width = np.concatenate([self.example.features, *flat], axis=1), len(self.example.columns)
        least = pool.min(axis=0)
        low = np.where(least > 0, LEAST, np.where(least == 0, 0.0, -np.inf))
        low[:width] = -np.inf
        several = np.array([len(np.unique(values)) for values in pool.T])
        kept = several <= min(FEW_VALUES, len(pool) / 2)
        kept[:width] = False
        return Domain(pool, low, np.full_like(low, np.inf), kept)


@dataclass(frozen=True)
class CoupledKey(Key):
    """A key whose draws go with the records, so that one record more changes no other record's draw.

    Records are sampled at this rate. Draws of a step beyond its records are the same for all of them: they
    are secret and independent, and a bound that holds, holds for any.
    """

    rate: float = 1.0

    def secret(self, *inputs: bytes) -> "CoupledSecret":
        """Return a repeatable stream of such draws."""
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
    """The mechanism of a policy without its noise: it clips, and records its sums.

    Args:
        replies: Answers to give instead, as long as there are any.
        heard: The clipped sums, in the order in which they were asked for.
    """

    replies: Sequence[Array] = ()
    heard: list[Array] = field(default_factory=list[Array])

    def noisy_sums(self, contributions: Contributions, keys: Sequence[Key], step: int) -> Array:
        """Return the sums of clipped contributions, or the replaced answer."""
        sums = contributions.total(clip_factors(contributions.lengths(NORMS[self.law]), self.clip))
        return _hear(self.heard, self.replies, sums)


@dataclass(frozen=True, kw_only=True)
class NoiselessCounts(NoisyCounts):
    """Counts of records without their noise, as `NoiselessMechanism`."""

    replies: Sequence[Array] = ()
    heard: list[Array] = field(default_factory=list[Array])

    def noisy_sums(self, contributions: Contributions, keys: Sequence[Key], step: int) -> Array:
        """The counts, or what is to be answered instead."""
        return _hear(self.heard, self.replies, count_records(contributions, self.cells))


def _hear(heard: list[Array], replies: Sequence[Array], sums: Array) -> Array:
    """Record sums, and return what is answered."""
    heard.append(sums)
    return (replies[len(heard) - 1] if len(heard) <= len(replies) else sums).copy()


@dataclass(frozen=True, kw_only=True, eq=False)
class SiteWork:
    """Work at one site: a query, or the steps of a round.

    Args:
        what: Its name.
        work: The task or query.
        mechanism: Its mechanism.
        start: The initial state.
        rate: Of its draws.
        typical: The public number of records at a site.
        seed: The seed.
    """

    what: str
    work: Work
    mechanism: RecordLevel | NoisyCounts
    start: Array
    rate: float
    typical: float
    seed: int

    @property
    def norm(self) -> Norm:
        """Norm of distances."""
        return "l1" if isinstance(self.mechanism, NoisyCounts) else NORMS[self.mechanism.law]

    def state(self, draws: int) -> Array:
        """Return the state to begin with, by the number of the draw: the start, or some way off."""
        away = (Key(self.seed) / "state" / draws).generator().normal(size=tuple(self.start.shape))
        return self.start + WIDTHS[draws % len(WIDTHS)] * away

    def movement(self, one: Table, other: Table, relation: Relation, draws: int) -> Movement:
        """Return the largest distance of a sum between two data sets."""
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
        kind = NoiselessCounts if isinstance(self.mechanism, NoisyCounts) else NoiselessMechanism
        guard = kind(**vars(self.mechanism), replies=replies)
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
        """Describe a difference beside the sums that reveals records; None if there is none."""
        if sums[0] != sums[1]:
            return f"the number of sums of the {self.what}, {sums[0]} or {sums[1]},"
        if sums[0] > price.count:
            return f"the number of sums of the {self.what}, {sums[0]} where {price.count} are paid for,"
        mine, yours = one.matrix, other.matrix
        same = mine.shape == yours.shape and np.allclose(mine, yours, rtol=1e-9, atol=0.0, equal_nan=True)
        if not same or one.metrics != other.metrics:
            return f"the update of the {self.what}, although all sums were equal,"
        return None


def list_site_work(
    task: Task, records: RowFederation | Table, privacy: Privacy, seed: int
) -> tuple[list[SiteWork], Table]:
    """List the work that a task gives to sites, resolved and priced as in a run; and the records.

    Raises:
        TacitError: The task does not fit the records, or the promise cannot be kept for it.
    """
    require(
        privacy.unit == "record",
        "unit",
        privacy.unit,
        '"record": the test adds, removes or replaces single records',
    )
    given = records if isinstance(records, RowFederation) else RowFederation({SITE: records})
    whole = RowFederation(
        {SITE: given.store}, public=given.public, reference=given.reference, encoding=given.encoding,
        records=len(given.store),
    )  # fmt: skip
    learned = as_task(task).resolve(privacy)
    rounds = 1 if learned.once else int(learned.usual.get("rounds", 1))
    setting = prepare(RunSpec(task=learned, privacy=privacy, rounds=rounds, seed=seed), whole)
    settled, opening = setting.task, initial_query_of(setting.task)
    found: list[tuple[str, Work, Mechanism, Array]] = []
    if opening is not None:
        guard = privacy.solve_query(opening, setting.mechanism)
        found.append((opening.kind, opening, guard, np.zeros(0, dtype=np.float64)))
        settled = settled.with_answers(opening.placeholder)
    start, closing = settled.start(whole, Key(seed)), final_query_of(settled)
    # Rounds that share one noise may differ in what they ask for: one of each kind is attacked.
    several = range(setting.mechanism.rounds, 0, -1)
    kinds = {settled.at_round(number, rounds).sent: number for number in several}
    found += [
        ("training", settled.at_round(number, rounds), setting.mechanism.at_round(number), start)
        for number in sorted(kinds.values())
    ]
    if not kinds:
        found.append(("training", settled, setting.mechanism, start))
    if closing is not None:
        found.append((closing.kind, closing, privacy.solve_query(closing, setting.mechanism), start))
    made = [
        SiteWork(
            what=what, work=work, mechanism=cast("RecordLevel | NoisyCounts", guard), start=begin,
            rate=settled.sample, typical=float(len(whole.store)), seed=seed,
        )
        for what, work, guard, begin in found
    ]  # fmt: skip
    return made, whole.store


def distance(one: Array, other: Array, norm: Norm) -> float:
    """Return the distance of two answers; infinite for different shapes or a number that is not finite."""
    if one.shape != other.shape:
        return np.inf
    difference = (one - other).ravel()
    apart = np.abs(difference).sum() if norm == "l1" else np.linalg.norm(difference)
    return float(apart) if np.isfinite(apart) else np.inf
