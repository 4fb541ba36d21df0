"""Ledger of a run whose people have a book: the book is charged first.

The fixed plan of a run is written down on its ledger before the first charge. The book is charged for the
whole plan before the first release. What goes beyond it, such as a round that was cut off and must be paid a
second time because it cannot be repeated, is charged to the book as well.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tacit.privacy.accounting.release import Release, Unit, from_dict
from tacit.privacy.ledger.chain import EVERYONE
from tacit.privacy.ledger.data_book import DataBook, new_run
from tacit.privacy.ledger.plans import RegisteredPlan
from tacit.privacy.ledger.store import Ledger
from tacit.privacy.ledger.total import AllRuns
from tacit.privacy.policy import Privacy


class RunLedger(Ledger):
    """A ledger that charges the book of the data before itself.

    Args:
        path: The file; None keeps the account in memory.
        book: The book; None where no private records of this machine are used.
        receipt: The receipt of the payer of this run, as a tuning has for its candidates. It counts
            if the book holds that charge.
        name: Name of the run.

    Guarantee:
        Once `cover` has returned, the book holds every release of the plan, and when a charge returns, every
        release that was charged: after a crash at any instant, the book is ahead of this ledger or level
        with it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        book: DataBook | None = None,
        receipt: object = None,
        name: str = "",
    ) -> None:
        super().__init__(path)
        self._book, self._receipt, self._name = book, receipt, name
        # Nothing is paid for until the book was charged for a plan.
        self._run, self._left = new_run(), RegisteredPlan([])
        self._delta: float | None = None

    def __enter__(self) -> "RunLedger":
        return self

    def cover(self, plan: Iterable[Release], *, run: str, work: str = "", delta: float | None = None) -> None:
        """Charge the book for the whole plan of a run, unless it was before.

        A run that is resumed with other work than it was begun with, such as another learning rate in a copy
        of its directory, draws new noise: what is left of its plan is charged to the book once more.

        Args:
            plan: Releases of the run if every site joins each round.
            run: Identifier of the run.
            work: Fingerprint of everything that its releases depend on.
            delta: The delta that the run states.

        Raises:
            BudgetExhausted: The lifetime budget of these people would be exceeded; nothing was charged.
        """
        if self._book is None:
            return
        self._delta = delta
        receipt, rows, before = self._book.accept(self._receipt), list(plan), _read_releases(self)
        if receipt is None:
            self._run = run
            # Earlier charges of a resumed run are no longer left.
            rest = RegisteredPlan(before).excess(rows) if self._book.knows(run) else rows
            _ = self._book.charge(rest, run=run, name=self._name, ticket=work, delta=delta)
        else:
            self._run, rows = receipt.run, list(receipt.plan)
        self._left = RegisteredPlan(rows)
        self._take(before)

    def charge(
        self,
        releases: Iterable[Release],
        *,
        ticket: str | None = None,
        plan: str | None = None,
        delta: float | None = None,
    ) -> bool:
        """Pay for releases before they happen; charges beyond the plan go to the book first."""
        rows = list(releases)
        new = self._cover_beyond(rows, ticket)
        paid = super().charge(rows, ticket=ticket, plan=plan, delta=delta)
        self._take(new)
        return paid

    def owe(
        self,
        releases: Iterable[Release],
        *,
        ticket: str,
        plan: str | None = None,
        delta: float | None = None,
    ) -> bool:
        """Record releases that must be stated, even beyond the budget."""
        rows = list(releases)
        new = self._cover_beyond(rows, ticket)
        paid = super().owe(rows, ticket=ticket, plan=plan, delta=delta)
        self._take(new)
        return paid

    def total(self, delta: float, unit: Unit) -> AllRuns | None:
        """Price all runs on these people together, this one included; None without a book."""
        if self._book is None:
            return None
        found = self._book.total(delta, unit)
        # The book bounds any person of any site: it never states less than the run.
        return replace(found, epsilon=max(found.epsilon, self.spent(delta)))

    def _cover_beyond(self, rows: list[Release], ticket: str | None) -> list[Release]:
        """Charge the book for the excess over the plan; return the rows, or none under a paid ticket."""
        if self._book is None or (ticket is not None and ticket in self._account.tickets):
            return []
        beyond = self._left.excess(rows)
        if beyond:
            part = f"beyond {new_run() if ticket is None else ticket}"
            _ = self._book.charge(beyond, run=self._run, name=self._name, part=part, delta=self._delta)
        return rows

    def _take(self, rows: Iterable[Release]) -> None:
        for row in rows:
            _ = self._left.consume(row)


def _read_releases(ledger: Ledger) -> list[Release]:
    """Read everything that a ledger was charged for, in order."""
    fields = Release.__dataclass_fields__
    rows = (entry for entry in ledger.entries() if entry["kind"] == "release")
    return [from_dict({name: entry[name] for name in fields}) for entry in rows]


def begin_plan(
    ledger: Ledger,
    privacy: Privacy,
    releases: Sequence[Release],
    *,
    own: str,
    larger: str | None = None,
    resumed: bool = False,
) -> str:
    """Set the budget of a run and register its plan; return the name of the plan that it is charged under.

    Args:
        ledger: The ledger of the run.
        privacy: The promise.
        releases: Releases of the whole run if every site joins each round.
        own: The name of its plan; resumed with other releases it is another one.
        larger: The plan that was written down for several runs, if this is one of them.
        resumed: True if earlier charges are possible. A run that was begun by a version without
            plans goes on with what it was charged; otherwise the budget has to bear the whole plan.

    Raises:
        BudgetExhausted: The budget does not bear all of it; nothing was written.
    """
    # A ledger that came with a budget keeps it: a run may not raise what others have set.
    if not resumed and privacy.epsilon is not None and EVERYONE not in ledger.budgets():
        ledger.allow(epsilon=privacy.epsilon, delta=privacy.delta)
    if larger is None:
        # A given noise has no budget, which would say it.
        delta = privacy.delta if privacy.epsilon is None else None
        ledger.register(releases, plan=own, resumed=resumed and ledger.has_former_run(), delta=delta)
        return own
    if not resumed:
        ledger.check(releases, plan=larger)
    return larger
