"""Running totals of one subject's plans: each charge is added once.

Divergences add up over releases, so a filter needs one number for each order that is asked about, however
many releases there were.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tacit.privacy.accounting import filters, renyi
from tacit.privacy.accounting.events import Counts, Event, group_events
from tacit.privacy.accounting.release import Release, enclosing_subjects, is_mixed, one_relation


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
        relations: Under which relations and units (`is_mixed` tells which of them bring all to replacement).
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
        return is_mixed(self.relations, self.subject)

    def _count(self, release: Release) -> None:
        (kind, times), *_ = group_events([self._add_price(release)])
        self.kinds[kind] += times
        self.pure += times * kind.pure
        for order in self.sums:
            self.sums[order] += times * renyi.divergence(kind, order)

    def _add_price(self, release: Release) -> Release:
        return release.under_replacement() if self._mixed else release

    def releases(self) -> Iterator[Release]:
        """Everything that is committed to."""
        for rows in self.plans.values():
            yield from rows

    def counts(self) -> Counts:
        """Count everything that is committed to, under one relation."""
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
        return is_mixed(after, self.subject) != self._mixed

    def admits(self, rows: Iterable[Release], epsilon: float, delta: float) -> bool:
        """Return True if the filter of a budget admits these releases as well."""
        more = group_events(self._add_price(row) for row in rows)
        if (self.pure + filters.total_pure_epsilon(more)) * (1 + renyi.SAFETY) <= epsilon:
            return True
        if delta == 0:
            return False
        order = filters.order_of(self.first(), epsilon, delta)
        if order not in self.sums:
            self.sums[order] = renyi.total(tuple(self.kinds.items()), order)
        return filters.is_within(self.sums[order] + renyi.total(more, order), epsilon, delta, order)
