"""Charges by the plan that they belong to: one fixed plan is composed, several are held against a filter.

A plan is fixed before its first release: how much noise, which rates, how many of each. Plans on one ledger
may have been chosen by the results of those before; `filters` has the proof of what is added up here.

Running totals of one subject's plans: each charge is added once.

Divergences add up over releases, so a filter needs one number for each order that is asked about, however
many releases there were.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from tacit.errors import require
from tacit.privacy import accounting
from tacit.privacy.accounting import filters
from tacit.privacy.accounting.release import (
    Counts,
    Event,
    Release,
    enclosing_subjects,
    group_events,
    mixes_relations,
    one_relation,
)


@dataclass(frozen=True)
class Commitment:
    """A release in the order in which plans began; a plan costs from its first charge on.

    Args:
        number: Its place in that order.
        plan: The plan.
        release: The release.
        late: True if the plan had begun before: such a release is owed, and never happens.
    """

    number: int
    plan: str
    release: Release
    late: bool = False


@dataclass(eq=False)
class Tally:
    """The commitments of all plans that concern one subject.

    Args:
        subject: Whom they are about.
        read: Number of commitments about each whole that are counted.
        began: The number of the first commitment of each plan.
        initial: The releases that each plan committed to when it began.
        plans: The releases of each plan.
        relations: Relations and units (`mixes_relations` tells which of them bring all to replacement).
        kinds: Counts of the attributes that decide the price.
        sums: Divergences at the orders that were asked for.
        pure: The sum of pure epsilons.
    """

    subject: str
    read: Counter[str] = field(default_factory=Counter[str])
    began: dict[str, int] = field(default_factory=dict[str, int])
    initial: dict[str, list[Release]] = field(default_factory=dict[str, list[Release]])
    plans: dict[str, list[Release]] = field(default_factory=dict[str, list[Release]])
    relations: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    kinds: Counter[Event] = field(default_factory=Counter[Event])
    sums: dict[int, float] = field(default_factory=dict[int, float])
    pure: float = 0.0
    _leader: str | None = None
    _first: tuple[int, Counts] = (0, ())

    def extend(self, commitments: Mapping[str, Sequence[Commitment]]) -> None:
        """Add the commitments since the last call."""
        for whole in enclosing_subjects(self.subject):
            for entry in commitments.get(whole, ())[self.read[whole] :]:
                self.read[whole] += 1
                self._add(entry)

    def _add(self, entry: Commitment) -> None:
        release, mixed = entry.release, self._mixed
        if not entry.late:
            self._begin(entry)
        self.relations.add((release.relation, release.unit))
        if self._mixed and not mixed:
            self.kinds, self.sums, self.pure = Counter(), {}, 0.0
            for before in self.releases():
                self._count(before)
        self.plans.setdefault(entry.plan, []).append(release)
        self._count(release)

    def _begin(self, entry: Commitment) -> None:
        # Lists of several wholes are read one after the other: a later one may hold an earlier number.
        began = min(entry.number, self.began.get(entry.plan, entry.number))
        self.began[entry.plan] = began
        self.initial.setdefault(entry.plan, []).append(entry.release)
        if self._leader is None or began < self.began[self._leader]:
            self._leader, self._first = entry.plan, (0, ())

    @property
    def _mixed(self) -> bool:
        return mixes_relations(self.relations, self.subject)

    def _count(self, release: Release) -> None:
        (kind, times), *_ = group_events([self._add_price(release)])
        self.kinds[kind] += times
        self.pure += times * kind.pure
        for order in self.sums:
            self.sums[order] += times * filters.divergence(kind, order)

    def _add_price(self, release: Release) -> Release:
        return release.under_replacement() if self._mixed else release

    def releases(self) -> Iterator[Release]:
        """Releases of all commitments."""
        for rows in self.plans.values():
            yield from rows

    def counts(self) -> Counts:
        """Count the releases of all commitments, under one relation."""
        return tuple(sorted(self.kinds.items()))

    def first(self) -> Counts:
        """Return the first plan, as it was when it began, under its own relation.

        Guarantee:
            What is committed to later does not change it. Where nothing has begun, nothing was released:
            then it is all that is owed.
        """
        rows = list(self.releases()) if self._leader is None else self.initial[self._leader]
        if self._first[0] != len(rows):
            self._first = (len(rows), group_events(one_relation(rows, self.subject)))
        return self._first[1]

    def changed_by(self, rows: Iterable[Release]) -> bool:
        """Return True if these releases would change the neighboring relation of the tally."""
        after = self.relations | {(row.relation, row.unit) for row in rows}
        return mixes_relations(after, self.subject) != self._mixed

    def admits(self, rows: Iterable[Release], epsilon: float, delta: float) -> bool:
        """Return True if the filter of a budget admits these releases as well."""
        more = group_events(self._add_price(row) for row in rows)
        if (self.pure + filters.total_pure_epsilon(more)) * (1 + filters.SAFETY) <= epsilon:
            return True
        if delta == 0:
            return False
        order = filters.order_of(self.first(), epsilon, delta)
        if order not in self.sums:
            self.sums[order] = filters.total(tuple(self.kinds.items()), order)
        return filters.is_within(self.sums[order] + filters.total(more, order), epsilon, delta, order)


# The plan of rows that runs have written before rows had plans: such a ledger holds one run.
FORMER_RUN = ""
# Suffix of plans for releases beyond a registered plan; with # in front, which no user's plan has.
BEYOND = " beyond"
# Noise, and its sums, that were computed in two ways may differ in their last digits.
ROUNDING = 1e-9
# Number of results kept about what one plan can bear.
KEPT = 16

Basis = Literal["valid", "planned", "lifetime"]
# Attributes that decide the price of a release, apart from its noise.
Price = tuple[str, str, str, str, float, bool]


@dataclass(frozen=True)
class Pricing:
    """Determinants of a subject's epsilon: its releases and, for adaptively chosen plans, the first one.

    Args:
        counts: The releases.
        first: The first plan; None where there is no other.
        budget: The epsilon and the delta that it may cost, if there is a limit.
    """

    counts: Counts
    first: Counts | None = None
    budget: tuple[float, float] | None = None

    def epsilon(self, delta: float) -> float:
        """Epsilon at a delta: by composition for one plan, by the smallest filter for several.

        Guarantee:
            That of one plan holds if what it left out was not chosen by results. That of several is where a
            budget would have to have been, fixed before the first (`filters.epsilon`).
        """
        if not self.counts:
            return 0.0
        if self.first is None:
            return accounting.epsilon_of(self.counts, delta)
        found = filters.epsilon(self.counts, self.first, delta)
        if self.budget is None or self.budget[1] != delta:
            return found
        # Bisection ends a little above the truth; the budget itself is a bound where the filter admits the
        # releases.
        bears = filters.admits(self.counts, self.first, *self.budget)
        return min(found, self.budget[0]) if bears else found


@dataclass(eq=False)
class RegisteredPlan:
    """A plan that was registered before its first charge, and its rest.

    Gaussian releases without a draw are one Gaussian together, however its precision (the sum of 1 / noise^2)
    is split among them, even by results of the same plan: what is left of them is a precision. Of everything
    else a number of releases of each noise is left.
    """

    releases: list[Release]
    begun: bool = False
    room: dict[Price, dict[float, float]] = field(default_factory=dict[Price, dict[float, float]])

    def __post_init__(self) -> None:
        for release in self.releases:
            left = self.room.setdefault(_price(release), {})
            noise, each = _unit(release)
            # A little more, once and for all, so that sums that were rounded otherwise still fit.
            left[noise] = left.get(noise, 0.0) + each * release.count * (1 + ROUNDING)

    def consume(self, release: Release) -> Release | None:
        """Consume a release from the rest of the plan; return the excess."""
        left, excess = self.room.get(_price(release), {}), release.count
        noise, each = _unit(release)
        for known in left:
            if math.isclose(known, noise, rel_tol=ROUNDING):
                used = min(excess, max(math.floor(left[known] / each), 0))
                left[known], excess = left[known] - used * each, excess - used
        return replace(release, count=excess) if excess else None

    def excess(self, rows: Sequence[Release]) -> list[Release]:
        """Return the part of these releases that exceeds the rest of the plan; nothing is consumed."""
        some = {_price(row): dict(self.room.get(_price(row), {})) for row in rows}
        copy = RegisteredPlan([], room=some)
        return [excess for row in rows if (excess := copy.consume(row)) is not None]


def _price(release: Release) -> Price:
    law = "gaussian" if release.law == "discrete" else release.law
    return (release.subject, release.unit, release.relation, law, release.rate, release.two_sided)


def _unit(release: Release) -> tuple[float, float]:
    """Return the noise that a release is matched by, and the part of the rest that each one takes."""
    multiplier = release.as_gaussian().multiplier
    precision = 1 / multiplier / multiplier
    undrawn = release.law in ("gaussian", "discrete") and release.rate == 1
    return (0.0, precision) if undrawn and 0 < precision < math.inf else (multiplier, 1.0)


@dataclass(eq=False)
class Plans:
    """All charges, by subject and by plan.

    Args:
        known: The plans that were written down, by name.
        charged: Number of releases of each kind charged to each subject.
        commitments: Totals of the plans that have begun, about each subject.
        tallies: The same, summed up for each subject that was asked about.
        bearable: Affordable releases of one plan: a budget, and the number of releases of each kind.
    """

    known: dict[str, RegisteredPlan] = field(default_factory=dict[str, RegisteredPlan])
    charged: dict[str, Counter[Release]] = field(default_factory=dict[str, Counter[Release]])
    commitments: dict[str, list[Commitment]] = field(default_factory=dict[str, list[Commitment]])
    tallies: dict[str, Tally] = field(default_factory=dict[str, Tally])
    bearable: list[tuple[float, float, dict[Event, int]]] = field(
        default_factory=list[tuple[float, float, dict[Event, int]]]
    )
    count: int = 0

    def register(self, name: str, releases: Sequence[Release], *, former: bool = False) -> None:
        """Take in a plan before its first charge.

        Args:
            name: Its name.
            releases: All that it releases, at most.
            former: Whether what a run charged before rows had plans is a part of it.
        """
        self.known[name] = RegisteredPlan(list(releases))
        if former:
            self._adopt_former_run(name)

    def _adopt_former_run(self, name: str) -> None:
        """Begin a plan with the charges of a run without plans; other plans stay unchanged."""
        entries = [entry for rows in self.commitments.values() for entry in rows if entry.plan == FORMER_RUN]
        for rows in self.commitments.values():
            rows[:] = [entry for entry in rows if entry.plan != FORMER_RUN]
        self.tallies = {}
        for entry in sorted(entries, key=lambda entry: entry.number):
            self._begin(entry.release, name, number=entry.number)

    def add(self, release: Release, plan: str, *, owed: bool = False) -> None:
        """Add a charge; owed releases never happen, and so exceed no plan."""
        alike = replace(release, count=1, party="", purpose="")
        self.charged.setdefault(release.subject, Counter())[alike] += release.count
        self._begin(release, plan, owed=owed)

    def _begin(self, release: Release, plan: str, *, owed: bool = False, number: int | None = None) -> None:
        for name, part in self._committing([release], plan):
            self.count += 1
            excess = name == BEYOND
            # Releases beyond a plan were decided upon later: they form a plan of their own.
            own = plan if owed or not excess else f"#{plan}{BEYOND} {self.count}"
            place, plain = self.count if number is None else number, replace(part, party="", purpose="")
            entry = Commitment(place, own, plain, late=owed and excess)
            self.commitments.setdefault(part.subject, []).append(entry)
        if plan in self.known:
            self.known[plan].begun = True
            self.known[plan].consume(release)

    def _committing(self, rows: Sequence[Release], plan: str) -> list[tuple[str, Release]]:
        """Return the releases that a charge newly commits to, with their plans.

        A registered plan commits to all of itself when it begins, and to nothing after that.
        """
        whole = self.known.get(plan)
        if whole is None:
            return [(plan, row) for row in rows]
        planned = [] if whole.begun else [(plan, row) for row in whole.releases]
        return [*planned, *((BEYOND, row) for row in whole.excess(rows))]

    def pricing(self, subject: str, basis: Basis = "valid") -> Pricing:
        """Return the pricing of the releases charged to a subject.

        Args:
            subject: Its name.
            basis: `planned` takes all of it as one fixed plan, `lifetime` as plans that were chosen in turn;
                `valid` is the first where there is one plan, and the second where there are several.
        """
        tally, counts = self._tally(subject), group_events(self._charged_releases(subject))
        turns = basis == "lifetime" or (basis == "valid" and len(tally.plans) > 1)
        return Pricing(counts, tally.first() if turns and tally.plans else None)

    def names(self) -> set[str]:
        """Return the names of the plans that have begun."""
        return {entry.plan for rows in self.commitments.values() for entry in rows}

    def has_former_run(self) -> bool:
        """Return True if a run charged something before rows had plans, and no plan has adopted it."""
        return FORMER_RUN in self.names()

    def _charged_releases(self, subject: str, rows: Sequence[Release] = ()) -> list[Release]:
        about = [
            replace(release, count=times)
            for whole in enclosing_subjects(subject)
            for release, times in self.charged.get(whole, Counter[Release]()).items()
        ]
        return one_relation([*about, *rows], subject)

    def _tally(self, subject: str) -> Tally:
        tally = self.tallies.setdefault(subject, Tally(subject))
        tally.extend(self.commitments)
        return tally

    def pending(self, rows: Sequence[Release], plan: str) -> "Pending":
        """Return a charge that is not paid yet."""
        return Pending(_by_subject((plan, row) for row in rows), _by_subject(self._committing(rows, plan)))

    def affected_subjects(self, charge: "Pending", also: Iterable[str] = ()) -> Iterator[str]:
        """Yield each subject that a charge concerns, among those charged before and some more."""
        for subject in dict.fromkeys([*charge.rows, *self.charged, *also]):
            if any(whole in charge.rows for whole in enclosing_subjects(subject)):
                yield subject

    def pricing_after(self, subject: str, charge: "Pending") -> Pricing:
        """Return the pricing of a subject once a charge is paid and its plan is completed."""
        tally, more = self._tally(subject), _about(subject, charge.more)
        first = _first(tally, more) if _several(tally, more) else None
        if not more:
            return Pricing(tally.counts(), first)
        everything = [*tally.releases(), *(row for _, row in more)]
        return Pricing(group_events(one_relation(everything, subject)), first)

    def can_afford(self, subject: str, charge: "Pending", epsilon: float, delta: float) -> bool:
        """Return True if the budget of a subject bears a charge.

        Guarantee:
            Charges of one plan are composed only where the budget bears the whole of that plan, which is what
            the proof in `filters` asks for. A plan that no budget has borne as a whole (the budget was set
            after it, or lowered) is held against the filter, charge by charge.
        """
        tally, more = self._tally(subject), _about(subject, charge.more)
        own = [row for _, row in more]
        if not _several(tally, more):
            paid = group_events(
                self._charged_releases(subject, [row for _, row in _about(subject, charge.rows)])
            )
            if self._fits(self.pricing_after(subject, charge).counts, epsilon, delta):
                return self._fits(paid, epsilon, delta)
            return filters.admits(paid, _first(tally, more), epsilon, delta)
        if tally.began and not tally.changed_by(own):
            return tally.admits(own, epsilon, delta)
        found = self.pricing_after(subject, charge)
        return filters.admits(found.counts, found.first or (), epsilon, delta)

    def _fits(self, counts: Counts, epsilon: float, delta: float) -> bool:
        # Fewer releases than a known affordable set are affordable: no need to compose again.
        for *budget, most in self.bearable:
            if budget == [epsilon, delta] and all(times <= most.get(kind, 0) for kind, times in counts):
                return True
        fits = not counts or accounting.is_within_budget(counts, epsilon, delta)
        if fits:
            self.bearable = [(epsilon, delta, dict(counts)), *self.bearable[: KEPT - 1]]
        return fits


# Releases about each subject, with their plans.
Parts = dict[str, list[tuple[str, Release]]]


@dataclass(frozen=True, eq=False)
class Pending:
    """A charge that is not paid yet: its rows, and the releases that it newly commits to."""

    rows: Parts
    more: Parts


def max_epsilon(prices: Iterable[Pricing], delta: float) -> float:
    """Return the largest epsilon over all subjects; equal prices are computed once."""
    return max((price.epsilon(delta) for price in dict.fromkeys(prices)), default=0.0)


def require_plan(plan: object) -> None:
    """Refuse an invalid name of a plan; names with a # are those of charges without one."""
    clean = isinstance(plan, str) and plan == plan.strip() and 0 < len(plan) <= 256 and plan[0] != "#"
    require(clean, "plan", plan, "a name of 1 to 256 characters, without surrounding spaces or a leading #")


def _by_subject(parts: Iterable[tuple[str, Release]]) -> Parts:
    found: Parts = {}
    for plan, row in parts:
        found.setdefault(row.subject, []).append((plan, row))
    return found


def _about(subject: str, parts: Parts) -> list[tuple[str, Release]]:
    return [part for whole in enclosing_subjects(subject) for part in parts.get(whole, ())]


def _several(tally: Tally, more: Iterable[tuple[str, Release]]) -> bool:
    """Return True if several plans concern a subject after committing to more."""
    return len({*tally.plans, *(plan for plan, _ in more)}) > 1


def _first(tally: Tally, more: Sequence[tuple[str, Release]]) -> Counts:
    """Return the first plan about a subject, counting commitments that are not charged yet."""
    if tally.began or not more:
        return tally.first()
    name = more[0][0]
    return group_events(one_relation([row for plan, row in more if plan == name], tally.subject))
